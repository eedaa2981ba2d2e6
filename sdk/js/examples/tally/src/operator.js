// Counts by key in windows of a minute of event time, and since ever.

import { BatchBuilder, Operator } from "#weir";

const MINUTE = 60_000_000;

export default class Tally extends Operator {
  static descriptor = {
    name: "tally",
    version: "1.0.0",
    summary: "Counts records by key and minute.",
    inputs: [{ name: "in", summary: "what is counted", keyed: true }],
    outputs: [{ name: "out", summary: "END COUNT TOTAL KEY, when a minute is over", keyed: true }],
    state: "keyed",
  };

  // By key: the records of each window that is open, by its end, and those of all that have been emitted.
  tallies = this.segments.keyed("tallies", { initial: () => ({ open: {}, total: 0 }) });
  // The end of each window that is open, with its key.
  ends = this.segments.timers("ends");

  process(port, batch, out) {
    for (const record of batch) {
      const { time, keyBinary } = record;
      if (keyBinary === null || time === null) {
        out.reject(record, keyBinary === null ? "no key" : "no time");
        continue;
      }
      const end = (Math.floor(time / MINUTE) + 1) * MINUTE;
      const { open } = this.tallies.value(record);
      if (open[end] === undefined) {
        open[end] = 0;
        this.ends.set(end, record);
      }
      open[end] += 1;
    }
  }

  *advance(watermark, out) {
    const records = new BatchBuilder();
    for (const { time, key } of this.ends.due(watermark)) {
      const tally = this.tallies.value(key);
      const count = tally.open[time];
      delete tally.open[time];
      tally.total += count;
      records.pushBinary(time, key, `${time} ${count} ${tally.total} ${key.keyBinary}`);
      if (records.length === 10_000) {
        out.emit(0, records);
        records.clear();
        // There may be more to say than a call may emit: the host passes this on first.
        if (out.isFull) yield;
      }
    }
    out.emit(0, records);
  }
}
