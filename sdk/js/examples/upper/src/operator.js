// Capitals: hands each record on with the letters a to z of its value as A to Z, and rejects long values.

import { BatchBuilder, Operator } from "#weir";

const VALUE_BYTES_MAX = 80;

export default class Upper extends Operator {
  static descriptor = {
    name: "upper",
    version: "1.0.0",
    summary: "Makes the letters of values capitals.",
    inputs: [{ name: "in", summary: "any records" }],
    outputs: [{ name: "out", summary: "the same with capitals" }],
  };

  process(port, batch, out) {
    const records = new BatchBuilder();
    for (const record of batch) {
      const { valueLength } = record;
      if (valueLength > VALUE_BYTES_MAX) {
        out.reject(record, `the value has ${valueLength} bytes, more than ${VALUE_BYTES_MAX}`);
        continue;
      }
      records.push(record.time, record, upper(record.value));
    }
    out.emit(0, records);
  }
}

/** Bytes, not text: what is no ASCII, or no UTF-8 at all, stays as it is. */
function upper(value) {
  return value?.map((byte) => (byte >= 0x61 && byte <= 0x7a ? byte - 0x20 : byte)) ?? null;
}
