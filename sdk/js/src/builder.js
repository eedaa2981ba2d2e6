// Makes a batch to emit, record by record.

import { Batch } from "./batch.js";
import { encode, toBinary } from "./bytes.js";
import { checkRow, ColumnBuilder } from "./column.js";
import { checkTime, NO_TIME } from "./time.js";

/** Keep one in the operator, and `clear` it after it was emitted. */
export class BatchBuilder {
  #times = [];
  #keys = new ColumnBuilder();
  #values = new ColumnBuilder();
  #headers = null;

  /** The number of records. */
  get length() {
    return this.#times.length;
  }

  /** About how many bytes its keys, values and headers have. */
  get byteLength() {
    return this.#keys.chars + this.#values.chars + (this.#headers?.chars ?? 0);
  }

  /**
   * Adds a record. The time may be null; the key may be a text, bytes, a record (its key), a key of the state or null; the value a text,
   * bytes or null.
   */
  push(time, key, value) {
    // What throws must leave all columns at one length, so everything is looked at before anything is added.
    const at = time === null || time === undefined ? NO_TIME : checkTime(time, "the time of a record");
    checkRow(value, "a value");
    this.#key(key);
    this.#values.push(value);
    this.#end(at);
  }

  /** Adds a record whose value is JSON. */
  pushJson(time, key, value) {
    const text = JSON.stringify(value);
    if (text === undefined) throw new TypeError(`${typeof value} cannot be written as JSON: give null for a record without a value to push`);
    this.push(time, key, text);
  }

  /** Adds a record whose value is given as a binary string, with a character for each byte. */
  pushBinary(time, key, value) {
    const at = time === null || time === undefined ? NO_TIME : checkTime(time, "the time of a record");
    this.#key(key);
    this.#values.pushBinary(value);
    this.#end(at);
  }

  /** Adds a record that came in, as it is, headers included. */
  pushRecord(record) {
    const { batch, index } = record;
    const key = batch.keys.binary(index);
    const value = batch.values.binary(index);
    if (key === null) this.#keys.pushNull();
    else this.#keys.pushBinary(key);
    if (value === null) this.#values.pushNull();
    else this.#values.pushBinary(value);
    this.#end(batch.timestamps[index]);
    if (!batch.headers.isAbsent) {
      const headers = record.headersBinary;
      if (headers.length > 0) this.#addHeaders(headers);
    }
  }

  /** Adds a header to the record that was added last: a name, and a text or bytes. */
  header(name, value) {
    if (this.length === 0) throw new Error("a header needs a record before it");
    const encoded = encode(name);
    if (encoded.length > 0xffff) throw new RangeError(`the name of a header has ${encoded.length} bytes, more than 65535`);
    const binary = typeof value === "string" ? encode(value) : toBinary(value);
    this.#addHeaders(little(encoded.length, 2) + encoded + little(binary.length, 4) + binary);
  }

  /** The batch so far. */
  batch() {
    return new Batch(this.#times, this.#keys.column(), this.#values.column(), this.#headers?.column());
  }

  /** Empties it. */
  clear() {
    this.#times = [];
    this.#keys.clear();
    this.#values.clear();
    this.#headers = null;
  }

  #key(key) {
    if (typeof key === "object" && key !== null && !(key instanceof Uint8Array)) {
      const binary = key.keyBinary;
      if (typeof binary === "string") this.#keys.pushBinary(binary);
      else if (binary === null) this.#keys.pushNull();
      else throw new TypeError("a key is a string, a Uint8Array, a record, a key of the state or null");
    } else {
      this.#keys.push(key);
    }
  }

  #end(time) {
    this.#times.push(time);
    if (this.#headers !== null) this.#headers.pushBinary("");
  }

  /** There is no column of headers until a record has some; then it has a row for each record, none of them null. */
  #addHeaders(binary) {
    if (this.#headers === null) {
      this.#headers = new ColumnBuilder();
      for (let i = 0; i < this.length; i++) this.#headers.pushBinary("");
    }
    this.#headers.extendLast(binary);
  }
}

function little(number, bytes) {
  let binary = "";
  for (let i = 0; i < bytes; i++, number = Math.floor(number / 256)) binary += String.fromCharCode(number % 256);
  return binary;
}
