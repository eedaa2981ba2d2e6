// Batches as an operator sees them: columns as the host gave them, out of which rows are cut when they are asked for.

import { decode, fromBinary } from "./bytes.js";
import { Column } from "./column.js";
import { keyHash, groupBits } from "./hash.js";
import { parseJson } from "./json.js";
import { NO_TIME } from "./time.js";

const NO_HASHES = [];

/** A batch of records in columns. Only for the call that it was handed to: records and columns of it must not be kept. */
export class Batch {
  /**
   * A batch of columns, which must hold to the rules of `wit/types.wit`. Times are an array of numbers, `NO_TIME` where a record has none; hashes
   * are those that the host gave.
   */
  constructor(timestamps, keys = new Column(), values = new Column(), headers = new Column(), hashes = NO_HASHES) {
    this.timestamps = timestamps;
    this.hashes = hashes;
    this.keys = keys;
    this.values = values;
    this.headers = headers;
  }

  /** A batch as the bindings give it. */
  static fromWit(wit) {
    return new Batch(
      wit.timestamps,
      new Column(wit.keyOffsets, wit.keys, wit.keyNulls),
      new Column(wit.valueOffsets, wit.values, wit.valueNulls),
      new Column(wit.headerOffsets, wit.headers),
      wit.hashes,
    );
  }

  /** The batch as the bindings take it. */
  toWit() {
    const { timestamps, keys, values, headers } = this;
    return {
      timestamps: Array.isArray(timestamps) ? timestamps : Array.from(timestamps),
      // The host hashes anew what comes out of a plugin.
      hashes: NO_HASHES,
      keyOffsets: offsets(keys),
      keys: keys.bytes,
      keyNulls: keys.nulls,
      valueOffsets: offsets(values),
      values: values.bytes,
      valueNulls: values.nulls,
      headerOffsets: offsets(headers),
      headers: headers.bytes,
    };
  }

  /** The number of records; at least one in a batch that was handed in. */
  get length() {
    return this.timestamps.length;
  }

  /** The bytes of keys, values and headers. */
  get byteLength() {
    return this.keys.bytes.length + this.values.bytes.length + this.headers.bytes.length;
  }

  /** One record. */
  record(index) {
    if (index >>> 0 !== index || index >= this.timestamps.length) {
      throw new RangeError(`there is no record ${index} in a batch of ${this.timestamps.length}`);
    }
    return new Record(this, index);
  }

  /** All records, in order. */
  *[Symbol.iterator]() {
    const { timestamps } = this;
    const length = timestamps.length;
    // What every operator on a keyed input asks for is made here, in one go; and the objects are written out, since a constructor takes
    // QuickJS four times as long.
    const keys = this.hashes.length > 0 && !this.keys.isAbsent ? this.keys.binaries() : null;
    for (let index = 0; index < length; index++) {
      const at = timestamps[index];
      const time = at === NO_TIME ? null : at;
      yield keys === null
        ? { __proto__: Record.prototype, batch: this, index, time }
        : { __proto__: Record.prototype, batch: this, index, time, keyBinary: keys[index] };
    }
  }

  /** The same records with other values, a column or an array of rows: an operator that gives one record for each hands all else on for free. */
  withValues(values) {
    return new Batch(this.timestamps, this.keys, fitting(values, this.length, "values"), this.headers, this.hashes);
  }

  /** The same records with other keys, a column or an array of rows. */
  withKeys(keys) {
    return new Batch(this.timestamps, fitting(keys, this.length, "keys"), this.values, this.headers);
  }

  /** The same records with other event times. */
  withTimestamps(timestamps) {
    if (timestamps.length !== this.length) {
      throw new RangeError(`${timestamps.length} event times for a batch of ${this.length} records: give one for each`);
    }
    return new Batch(timestamps, this.keys, this.values, this.headers, this.hashes);
  }
}

function offsets(column) {
  const { offsets } = column;
  // A typed array is copied as a whole, an array number by number.
  return offsets instanceof Uint32Array ? offsets : new Uint32Array(offsets);
}

function fitting(rows, length, what) {
  const column = rows instanceof Column ? rows : Column.from(rows);
  const count = rows instanceof Column ? rows.offsets.length - 1 : rows.length;
  if (count !== length && !(rows instanceof Column && rows.isAbsent)) {
    throw new RangeError(`${count} ${what} for a batch of ${length} records: give one for each, null where a record has none`);
  }
  return column;
}

/** One record of a batch. */
export class Record {
  /** `index` is its number in the batch: what `Output.reject` wants; `time` its event time, null if it has none. */
  constructor(batch, index) {
    this.batch = batch;
    this.index = index;
    const time = batch.timestamps[index];
    this.time = time === NO_TIME ? null : time;
  }

  /** Its key in bytes, null if it has none. An empty key is a key. */
  get key() {
    return this.batch.keys.get(this.index);
  }

  /** Its key as text. */
  get keyText() {
    return this.batch.keys.text(this.index);
  }

  /** Its key as a binary string, with a character for each byte: the cheapest form, and what state goes by. */
  get keyBinary() {
    return this.batch.keys.binary(this.index);
  }

  /** Its value in bytes; null for a tombstone: what was known under its key is gone. */
  get value() {
    return this.batch.values.get(this.index);
  }

  /** Its value as text. */
  get valueText() {
    return this.batch.values.text(this.index);
  }

  /** Its value as a binary string. */
  get valueBinary() {
    return this.batch.values.binary(this.index);
  }

  /** How many bytes its value has; 0 for a tombstone. */
  get valueLength() {
    return this.batch.values.byteLength(this.index);
  }

  /** Its value, parsed as JSON; null for a tombstone. Throws a SyntaxError where it is none, or nested more than 100 deep. */
  json() {
    const text = this.batch.values.text(this.index);
    return text === null ? null : parseJson(text);
  }

  /** The 16 bits that choose its key group. */
  get groupBits() {
    const { hashes } = this.batch;
    const bits = hashes.length === 0 ? -1 : groupBits(hashes[this.index]);
    return bits >= 0 ? bits : exactGroupBits(this.keyBinary ?? "");
  }

  /** Its headers in order, each a name and bytes; a name may come more than once. */
  get headers() {
    const headers = [];
    const binary = this.headersBinary;
    let at = 0;
    while (at < binary.length) {
      const name = at + 2 + number(binary, at, 2);
      const value = name + 4 + number(binary, name, 4);
      headers.push([decode(binary.slice(at + 2, name)), fromBinary(binary.slice(name + 4, value))]);
      at = value;
    }
    return headers;
  }

  /** The first header of that name; null if there is none. */
  header(name) {
    return this.headers.find(([other]) => other === name)?.[1] ?? null;
  }

  /** All headers as they are encoded. */
  get headersBinary() {
    return this.batch.headers.binary(this.index) ?? "";
  }
}

/** The 16 bits that choose a key group, from the bytes of the key. */
export function exactGroupBits(keyBinary) {
  return Number((keyHash(fromBinary(keyBinary)) >> 32n) & 0xffffn);
}

function number(binary, at, bytes) {
  let value = 0;
  for (let i = bytes - 1; i >= 0; i--) value = value * 256 + binary.charCodeAt(at + i);
  return value;
}
