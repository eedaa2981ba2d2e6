// A column of optional byte strings: read as `Column`, made by `ColumnBuilder`.

import { bytesOf, decode, encode, fromBinary, isAscii, toBinary } from "./bytes.js";

const NO_BYTES = new Uint8Array(0);
const NO_OFFSETS = new Uint32Array(0);

/**
 * Row `i` lies at `offsets[i]` up to `offsets[i + 1]` of the bytes; no offsets means that no row has a value. Bit `i % 8` of byte `i / 8` of
 * `nulls` says that row `i` has none. The parts must hold to the rules of `wit/types.wit`, and are not to be changed.
 */
export class Column {
  #binary = null;
  #ascii = null;

  constructor(offsets = NO_OFFSETS, bytes = NO_BYTES, nulls = NO_BYTES) {
    this.offsets = offsets;
    this.bytes = bytes;
    this.nulls = nulls;
  }

  /** A column of texts, bytes and nulls. */
  static from(rows) {
    const builder = new ColumnBuilder();
    for (const row of rows) builder.push(row);
    return builder.column();
  }

  /** Whether no row has a value. */
  get isAbsent() {
    return this.offsets.length === 0;
  }

  /** Whether every row has a value. */
  get isFull() {
    return this.offsets.length > 0 && this.nulls.length === 0;
  }

  /** Whether a row has no value. */
  isNull(row) {
    const { nulls } = this;
    return this.offsets.length === 0 || (nulls.length > 0 && (nulls[row >> 3] & (1 << (row & 7))) !== 0);
  }

  /** The bytes of a row, a view that must not be changed; null where it has none. */
  get(row) {
    return this.isNull(row) ? null : this.bytes.subarray(this.offsets[row], this.offsets[row + 1]);
  }

  /** How many bytes a row has; 0 where it has none. */
  byteLength(row) {
    return this.offsets.length === 0 ? 0 : this.offsets[row + 1] - this.offsets[row];
  }

  /** A row as a binary string, with a character for each byte; null where it has none. */
  binary(row) {
    const { offsets, nulls } = this;
    if (offsets.length === 0 || (nulls.length > 0 && (nulls[row >> 3] & (1 << (row & 7))) !== 0)) return null;
    this.#binary ??= toBinary(this.bytes);
    return this.#binary.slice(offsets[row], offsets[row + 1]);
  }

  /** All rows as binary strings; null for those that have none. */
  binaries() {
    const { offsets, nulls } = this;
    const binary = (this.#binary ??= toBinary(this.bytes));
    const rows = [];
    let from = 0;
    for (let row = 1; row < offsets.length; row++) {
      const to = offsets[row];
      rows.push(binary.slice(from, to));
      from = to;
    }
    for (let row = 0; row < nulls.length << 3; row++) {
      if ((nulls[row >> 3] & (1 << (row & 7))) !== 0) rows[row] = null;
    }
    return rows;
  }

  /** A row as text, decoded from UTF-8; null where it has none. */
  text(row) {
    const binary = this.binary(row);
    if (binary === null) return null;
    // Most columns are ASCII as a whole: then that is asked once, and not for each row.
    this.#ascii ??= isAscii(this.bytes);
    return this.#ascii ? binary : decode(binary);
  }

  /** Why it cannot have that many rows; null if it can. */
  fault(rows) {
    const { offsets, bytes, nulls } = this;
    if (offsets.length === 0) return bytes.length === 0 && nulls.length === 0 ? null : "it has bytes and no offsets";
    if (offsets.length !== rows + 1) return `it has ${offsets.length - 1} rows, the batch ${rows}`;
    if (offsets[0] !== 0 || offsets[rows] !== bytes.length) return "its offsets do not fit its bytes";
    if (nulls.length > 0 && nulls.length !== (rows + 7) >> 3) return "its null bits do not fit its rows";
    if (nulls.length > 0 && rows % 8 !== 0 && nulls[rows >> 3] >> (rows % 8) !== 0) return "its unused null bits are not 0";
    for (let row = 0; row < rows; row++) {
      const length = offsets[row + 1] - offsets[row];
      if (length < 0) return `its offsets go down at row ${row}`;
      if (length > ROW_BYTES_MAX) return `row ${row} has ${length} bytes, more than ${ROW_BYTES_MAX}`;
      if (length > 0 && this.isNull(row)) return `row ${row} is null and has bytes`;
    }
    return null;
  }
}

const ROW_BYTES_MAX = 16 << 20;

const TEXT = 1;
const BINARY = 2;

/**
 * Makes a column, row by row. Rows are kept as strings, and become bytes all at once: with QuickJS that is many times cheaper
 * than to write bytes one by one.
 */
export class ColumnBuilder {
  constructor() {
    this.clear();
  }

  /** Empties it. */
  clear() {
    this.rows = [];
    // Which kind the strings are of; of each one, as soon as there are both.
    this.kind = 0;
    this.kinds = null;
    this.nulls = 0;
    this.chars = 0;
  }

  get length() {
    return this.rows.length;
  }

  /** Adds a row: a text, which is written as UTF-8, bytes, or null. */
  push(value) {
    if (typeof value === "string") this.#add(value, TEXT);
    else if (value === null || value === undefined) this.pushNull();
    else this.#add(toBinary(checkRow(value, "a row")), BINARY);
  }

  /** Adds a row of which a binary string is given. */
  pushBinary(binary) {
    this.#add(binary, BINARY);
  }

  /** Adds a row without a value. */
  pushNull() {
    this.rows.push(null);
    this.nulls += 1;
    if (this.kinds !== null) this.kinds.push(0);
  }

  /** Adds to the last row, which must be binary. */
  extendLast(binary) {
    this.rows[this.rows.length - 1] += binary;
    this.chars += binary.length;
  }

  /** The column so far. */
  column() {
    const { nulls } = this;
    const length = this.rows.length;
    if (nulls === length) return new Column();
    let { rows } = this;
    let bytes = this.kind === BINARY && this.kinds === null ? fromBinary(rows.join("")) : this.#ascii();
    if (bytes === null) {
      rows = rows.map((row, i) => (row === null || (this.kinds?.[i] ?? TEXT) !== TEXT ? row : encode(row)));
      bytes = fromBinary(rows.join(""));
    }
    const offsets = new Uint32Array(length + 1);
    let at = 0;
    if (nulls === 0) {
      for (let i = 0; i < length; ) {
        at += rows[i].length;
        offsets[++i] = at;
      }
      return new Column(offsets, bytes);
    }
    const bits = new Uint8Array((length + 7) >> 3);
    for (let i = 0; i < length; i++) {
      if (rows[i] === null) bits[i >> 3] |= 1 << (i & 7);
      else at += rows[i].length;
      offsets[i + 1] = at;
    }
    return new Column(offsets, bytes, bits);
  }

  #add(row, kind) {
    if (this.kind !== kind) this.#mix(kind);
    this.rows.push(row);
    this.chars += row.length;
    if (this.kinds !== null) this.kinds.push(kind);
  }

  #mix(kind) {
    if (this.kind !== 0 && this.kinds === null) this.kinds = new Array(this.rows.length).fill(this.kind);
    this.kind = kind;
  }

  /** The bytes, if all text is ASCII. */
  #ascii() {
    const text = this.rows.join("");
    const bytes = bytesOf(text);
    return bytes.length === text.length ? bytes : null;
  }
}

/** The value, if it can be a row. */
export function checkRow(value, what) {
  if (value === null || value === undefined || typeof value === "string" || value instanceof Uint8Array) return value;
  const given = typeof value === "object" ? `an object of class ${value.constructor?.name ?? "none"}` : `a ${typeof value}`;
  throw new TypeError(`${what} is a string, a Uint8Array or null, not ${given}: JSON is written with pushJson`);
}
