// Sessions: records of a key that are at most 30 seconds apart belong together.

import { BatchBuilder, Operator, type Batch, type Descriptor, type Output, type Record, type Timestamp } from "#weir";

const GAP = 30_000_000;

interface Session {
  start: Timestamp;
  end: Timestamp;
  count: number;
}

export default class Visits extends Operator {
  static override descriptor: Descriptor = {
    name: "visits",
    version: "1.0.0",
    summary: "Sessions by key with a gap of 30 seconds.",
    inputs: [{ name: "in", summary: "what belongs to a session", keyed: true }],
    outputs: [{ name: "out", summary: "START END COUNT KEY, when a session is over", keyed: true }],
    state: "keyed",
  };

  /** The sessions of each key that are open. Any two of them are further apart than the gap. */
  readonly sessions = this.segments.keyed<Session[]>("sessions", { initial: () => [] });
  /** The end of each of them, with its key. */
  readonly ends = this.segments.timers("ends");

  override process(_port: number, batch: Batch, out: Output): void {
    for (const record of batch) {
      const { keyBinary, time } = record;
      if (keyBinary === null || time === null) {
        out.reject(record, keyBinary === null ? "no key" : "no time");
        continue;
      }
      this.#add(record, time);
    }
  }

  override advance(watermark: Timestamp, out: Output): void {
    const records = new BatchBuilder();
    for (const { time, key } of this.ends.due(watermark - GAP)) {
      const open = this.sessions.value(key);
      const at = open.findIndex((session) => session.end === time);
      for (const { start, end, count } of open.splice(at, 1)) {
        records.pushBinary(end, key, `${start} ${end} ${count} ${key.keyBinary}`);
      }
      if (open.length === 0) this.sessions.delete(key);
    }
    out.emit(0, records);
  }

  /** Adds a record to the sessions of its key: it may begin one, make one longer, or make two into one. */
  #add(record: Record, time: Timestamp): void {
    const open = this.sessions.value(record);
    const merged: Session = { start: time, end: time, count: 1 };
    for (let i = open.length - 1; i >= 0; i--) {
      const session = open[i]!;
      if (session.start - time > GAP || time - session.end > GAP) continue;
      open.splice(i, 1);
      this.ends.delete(session.end, record);
      merged.start = Math.min(merged.start, session.start);
      merged.end = Math.max(merged.end, session.end);
      merged.count += session.count;
    }
    open.push(merged);
    this.ends.set(merged.end, record);
  }
}
