// Records as tests write and compare them: plain objects.

import { Batch } from "../batch.js";
import { BatchBuilder } from "../builder.js";
import { textOf } from "../bytes.js";

/** A record with a key, a value and an event time, each of which may be left out. */
export function row(key, value, time) {
  const row = {};
  if (time !== undefined && time !== null) row.time = time;
  if (key !== undefined && key !== null) row.key = key;
  if (value !== undefined && value !== null) row.value = value;
  return row;
}

/** A batch of rows. */
export function batchOf(rows) {
  const builder = new BatchBuilder();
  for (const { time, key, value, headers = [], ...rest } of rows) {
    const unknown = Object.keys(rest);
    if (unknown.length > 0) throw new TypeError(`a row has ${unknown.join(", ")}: what it may have is time, key, value and headers`);
    builder.push(time, key, value);
    for (const [name, of] of headers) builder.header(name, of);
  }
  return builder.batch();
}

/** The rows of a batch as the bindings take it. Bytes that are UTF-8 are shown as text. */
export function rowsOf(wit) {
  return [...Batch.fromWit(wit)].map((record) => {
    const one = row(shown(record.key), shown(record.value), record.time);
    const headers = record.headers.map(([name, value]) => [name, shown(value)]);
    return headers.length > 0 ? { ...one, headers } : one;
  });
}

function shown(bytes) {
  if (bytes === null) return null;
  const text = textOf(bytes);
  return text.includes("\ufffd") ? bytes.slice() : text;
}
