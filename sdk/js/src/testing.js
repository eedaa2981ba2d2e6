// Runs an operator in plain `node --test`, as the host would: no WebAssembly, no runtime.
//
// It goes through the same calls as a component, with batches as the bindings give them. What the host would trap on throws here.

import { keyHash, hashNumber } from "./hash.js";
import { component } from "./component.js";
import { decode } from "./bytes.js";
import { loss } from "./state/codec.js";
import { Checkpoint } from "./testing/checkpoint.js";
import { FakeHost, Trap } from "./testing/fake.js";
import { batchOf, row, rowsOf } from "./testing/row.js";

export { Checkpoint, Trap, row };

const KEY_GROUPS = 128;

/** One of several subtasks, with its part of 128 key groups; one that has all of them if nothing is said. */
export function task(subtask = 0, parallelism = 1) {
  const first = (number) => Math.ceil((number * KEY_GROUPS) / parallelism);
  return {
    job: "test",
    node: "operator",
    subtask,
    parallelism,
    keyGroups: KEY_GROUPS,
    firstKeyGroup: first(subtask),
    endKeyGroup: first(subtask + 1),
    seed: 0x5eed + subtask,
    attributes: [],
  };
}

/** An operator with a host around it. */
export class Harness {
  #host;
  #exports;
  #descriptor;
  #outputs;
  #rejected = [];
  #wake = null;
  #checkpoint = null;
  #epoch = 0;
  #open = null;

  /** Opens an operator: `new Harness(Type, { config, task })`. Throws what its constructor throws. */
  constructor(Type, { config = {}, task: of = task() } = {}) {
    this.task = of;
    this.#host = new FakeHost(of.subtask);
    this.#exports = component(Type, this.#host.imports);
    this.#descriptor = this.#exports.processor.describe();
    this.#host.outputs = this.#descriptor.outputs;
    this.#outputs = this.#descriptor.outputs.map(() => []);
    this.#host.begin("open");
    this.#exports.processor.open(JSON.stringify(config), of);
  }

  /** Opens an operator and lets it take over a checkpoint, or its part of the checkpoints of all subtasks of an earlier run. */
  static restore(Type, checkpoints, options) {
    const harness = new Harness(Type, options);
    const all = [checkpoints].flat();
    const merged = Checkpoint.merge(all, harness.task);
    harness.#checkpoint = merged;
    harness.#host.begin("restore");
    harness.#host.unread = merged.chunks();
    if (harness.#host.unread.length === 0) return harness;
    harness.#exports.checkpoint.restore(merged.stateVersion);
    const left = harness.#host.unread.length;
    if (left > 0) throw new Trap(`restore left ${left} chunks unread: all have to be read`);
    return harness;
  }

  /** The operator itself, for looking into it. */
  get operator() {
    return this.#exports.instance();
  }

  /** Hands a batch of rows to an input port, and calls `resume` until the operator has no more to say. */
  process(port, rows) {
    if (rows.length === 0) throw new RangeError("a batch that is handed to an operator has at least one record");
    const input = this.#descriptor.inputs[port];
    if (input === undefined) throw new RangeError(`there is no input port ${port}: the descriptor has ${this.#descriptor.inputs.length}`);
    const batch = batchOf(rows);
    const wit = {
      ...batch.toWit(),
      hashes: input.keyed ? [...batch].map((record) => hashNumber(keyHash(record.key ?? new Uint8Array(0)))) : [],
    };
    // The bindings give offsets as arrays of numbers.
    for (const name of ["keyOffsets", "valueOffsets", "headerOffsets"]) wit[name] = Array.from(wit[name]);
    this.#host.input = rowsOf(wit);
    this.#run("process", () => this.#exports.processor.process(port, wit));
  }

  /** Event time moves. */
  advance(watermark) {
    this.#run("advance", () => this.#exports.processor.advance(watermark));
  }

  /** Processing time moves; if it comes to what the operator asked for, it is woken. */
  setTime(now) {
    this.#host.time = Math.max(now, this.#host.time);
    if (this.#wake !== null && this.#wake <= now) {
      this.#wake = null;
      this.#run("wake", () => this.#exports.processor.wake());
    }
  }

  /** When the operator has asked to be woken; null if it has not. */
  get wakeTime() {
    return this.#wake;
  }

  /** An input port ends. */
  finish(port) {
    this.#run("finish", () => this.#exports.processor.finish(port));
  }

  /** Takes what was emitted on a port so far. */
  take(port) {
    const rows = this.#outputs[port];
    if (rows === undefined) throw new RangeError(`there is no output port ${port}: the descriptor has ${this.#outputs.length}`);
    this.#outputs[port] = [];
    return rows;
  }

  /** Takes the records that were rejected so far, each with the reason. */
  takeRejected() {
    return this.#rejected.splice(0);
  }

  /** Takes what was logged so far, each line with its level. */
  takeLog() {
    return this.#host.logged.splice(0);
  }

  /** A counter or gauge, or the last observation of a histogram. */
  metric(name) {
    return this.#host.metrics.get(name);
  }

  /** Takes a whole snapshot at once, incremental where that is possible, and returns the checkpoint after it. */
  snapshot(mode = "incremental") {
    this.beginSnapshot(mode);
    while (this.snapshotStep() === "more");
    return this.#checkpoint;
  }

  /** Begins a snapshot that is taken in steps. One that is open is given up; then, and the first time, this one is full. */
  beginSnapshot(mode = "incremental") {
    this.#epoch += 1;
    this.#open = this.#open !== null || this.#checkpoint === null ? "full" : mode;
    this.#host.written = [];
    this.#checkValues();
  }

  /** One step: after `chunks` chunks the operator is asked to stop. When it is done, `checkpoint` has it. */
  snapshotStep(chunks = Infinity) {
    if (this.#open === null) throw new Error("beginSnapshot comes before snapshotStep");
    this.#host.begin("snapshot");
    this.#host.budget = chunks;
    const progress = this.#exports.checkpoint.snapshot(this.#epoch, this.#open);
    if (progress === "done") {
      this.#checkpoint = (this.#checkpoint ?? new Checkpoint()).with(this.#open, this.#host.written, this.#descriptor.stateVersion);
      this.#open = null;
    }
    return progress;
  }

  /** The last snapshot that was done, as it would be restored. */
  get checkpoint() {
    if (this.#checkpoint === null) throw new Error("there is no checkpoint yet: take a snapshot until it is done");
    return this.#checkpoint;
  }

  #run(name, first) {
    this.#host.begin(name);
    let progress = first();
    this.#commit();
    while (progress === "more") {
      this.#host.begin("resume");
      progress = this.#exports.processor.resume();
      this.#commit();
    }
  }

  /** The call has returned: what it said takes effect. */
  #commit() {
    for (const [port, rows] of this.#host.emitted) this.#outputs[port].push(...rows);
    this.#rejected.push(...this.#host.rejected);
    const { asked } = this.#host;
    if (asked !== null) this.#wake = this.#wake === null ? asked : Math.min(this.#wake, asked);
  }

  /** A value that JSON would change comes back from a checkpoint as another: better to hear of that in a test. */
  #checkValues() {
    for (const part of this.operator.segments.parts) {
      for (const [key, encoded] of part.encoded?.() ?? []) {
        const fault = loss(encoded);
        if (fault !== null) {
          throw new TypeError(
            `state ${JSON.stringify(part.name)} of key ${JSON.stringify(decode(key))} would not survive a checkpoint: ${fault}, ` +
              "which JSON cannot hold; keep another value, or give the collection a codec",
          );
        }
      }
    }
  }
}
