// Hands on a reading only when it differs by at least `least` from the last one handed on, for each key.

import { BatchBuilder, Operator, type Batch, type Descriptor, type Output, type Record } from "#weir";

/** What may stand under `config` in the pipeline file. */
interface Config {
  /** By how much a value has to differ. */
  least?: number;
}

/** The operator. What it has to remember between two calls lies in its collections, and nowhere else. */
export default class Changes extends Operator<Config> {
  static override descriptor: Descriptor = {
    name: "{{name}}",
    version: "0.1.0",
    summary: "Hands on a reading when it has changed.",
    // Keyed: all records of a key come to the same subtask, in order, with the hash of the key.
    inputs: [{ name: "in", summary: "readings: JSON objects with a number under `value`", keyed: true }],
    outputs: [{ name: "out", summary: "those that have changed, as they came in", keyed: true }],
    // Raise the version when you change what the state looks like, and read the old one in `restore`.
    state: "keyed",
    stateVersion: 1,
    // The configuration is checked against this before the operator is made.
    configSchema: {
      type: "object",
      properties: { least: { type: "number", minimum: 0 } },
      additionalProperties: false,
    },
  };

  // The value that was handed on last, by key. This is the state: it is in every checkpoint and survives crashes. The name is how it is
  // found again; never change it.
  readonly last = this.segments.keyed<number>("last");

  /** Called for each batch of records. What it emits takes effect when it returns: the call is a transaction. */
  override process(_port: number, batch: Batch, out: Output): void {
    const { least = 0 } = this.config;
    const changed = new BatchBuilder();
    for (const record of batch) {
      // A record that cannot be processed is no failure: put it aside, with the reason, and go on.
      if (record.keyBinary === null) {
        out.reject(record, "it has no key");
        continue;
      }
      const value = reading(record);
      if (value === null) {
        out.reject(record, "it is no reading: a JSON object with a number under `value`");
        continue;
      }
      const last = this.last.get(record);
      if (last === undefined || Math.abs(value - last) >= least) {
        this.last.set(record, value);
        changed.pushRecord(record);
      }
    }
    // Once for the whole batch: that is cheaper than once a record.
    out.emit(0, changed);
  }
}

/** The value of a record; null if it has none. Other members of the object are of no interest here, and go on with it. */
function reading(record: Record): number | null {
  try {
    const value = (record.json() as { value?: unknown } | null)?.value;
    return typeof value === "number" ? value : null;
  } catch {
    return null;
  }
}
