import assert from "node:assert/strict";
import { test } from "node:test";

import { Batch, BatchBuilder, Column, END_OF_TIME, NO_TIME, bytesOf, fromBinary, textOf, toBinary } from "../src/index.js";

const bytes = (...of) => Uint8Array.from(of);

test("a builder writes offsets, null bits and bytes as the contract wants them", () => {
  const builder = new BatchBuilder();
  builder.push(5, "a", "one");
  builder.push(null, null, "");
  builder.push(-7, "bc", null);
  const wit = builder.batch().toWit();
  assert.deepEqual(wit.timestamps, [5, NO_TIME, -7]);
  assert.deepEqual([...wit.keyOffsets], [0, 1, 1, 3]);
  assert.deepEqual([...wit.keys], [...Buffer.from("abc")]);
  assert.deepEqual([...wit.keyNulls], [0b010]);
  assert.deepEqual([...wit.valueOffsets], [0, 3, 3, 3]);
  assert.deepEqual([...wit.valueNulls], [0b100]);
  assert.equal(wit.headerOffsets.length, 0);
  assert.equal(wit.hashes.length, 0);
});

test("columns without any value are empty, and those without nulls have no null bits", () => {
  const builder = new BatchBuilder();
  for (let i = 0; i < 9; i++) builder.push(i, null, `v${i}`);
  const wit = builder.batch().toWit();
  assert.equal(wit.keyOffsets.length, 0);
  assert.equal(wit.keyNulls.length, 0);
  assert.equal(wit.valueNulls.length, 0);
});

test("text, bytes and binary strings mix in one column, nulls at any place", () => {
  for (const rows of [
    ["é", bytes(0xff, 0), null, "x"],
    [null, "plain", bytes(0xc3)],
    [bytes(1), bytes(2)],
    ["流", "б", ""],
    [null, null, bytes()],
  ]) {
    const column = Column.from(rows);
    assert.equal(column.fault(rows.length), null);
    rows.forEach((row, i) => {
      const expected = typeof row === "string" ? bytesOf(row) : row;
      assert.deepEqual(column.get(i), expected, `row ${i} of ${rows}`);
      assert.equal(column.binary(i), row === null ? null : toBinary(expected));
      assert.equal(column.isNull(i), row === null);
    });
  }
});

test("rows are read as bytes, text and binary strings", () => {
  const batch = batchOf([
    ["k1", "déjà"],
    [null, null],
  ]);
  const [first, second] = [...batch];
  assert.equal(first.keyText, "k1");
  assert.equal(first.valueText, "déjà");
  assert.equal(first.valueBinary, "d\xc3\xa9j\xc3\xa0");
  assert.deepEqual(first.value, bytesOf("déjà"));
  assert.equal(first.valueLength, 6);
  for (const nothing of [second.key, second.keyText, second.keyBinary, second.value, second.valueText, second.json()]) {
    assert.equal(nothing, null);
  }
});

test("JSON that is nested too deep is an error that can be caught", () => {
  const json = (text) => [...batchOf([["k", text]])][0].json();
  const nested = (depth) => "[".repeat(depth) + "]".repeat(depth);
  assert.equal(JSON.stringify(json(nested(100))), nested(100));
  const many = "\\\"".repeat(500_000);
  for (const deep of [nested(101), "[".repeat(100_000), '{"a":'.repeat(101), `["\\\\",${nested(100)}]`, `${nested(101)}"${many}`]) {
    assert.throws(() => json(deep), { name: "SyntaxError", message: /nested more than 100 deep/ });
  }
  for (const wide of [`[${"[],".repeat(500)}0]`, JSON.stringify(["[".repeat(500), '\\"[[{'.repeat(500)])]) {
    assert.equal(JSON.stringify(json(wide)), wide);
  }
});

test("UTF-8 and back is exact, and what is no UTF-8 is replaced as TextDecoder does", () => {
  for (const text of ["", "ascii", "é", "流ключ", "😀a", "\u0000\u007f\u0080\uffff"]) {
    assert.deepEqual(bytesOf(text), new Uint8Array(new TextEncoder().encode(text)));
    assert.equal(textOf(bytesOf(text)), text);
  }
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  for (const broken of [
    [0xff], [0xc3], [0xc3, 0x28], [0xe2, 0x82], [0xe2, 0x28, 0xa1], [0xf0, 0x9f, 0x98], [0xed, 0xa0, 0x80], [0xc0, 0xaf],
    [0x61, 0xf4, 0x90, 0x80, 0x80, 0x62], [0xf8, 0x88], [0xe0, 0x80, 0x80], [0x80, 0x80],
  ]) {
    assert.equal(textOf(Uint8Array.from(broken)), decoder.decode(Uint8Array.from(broken)), broken.join());
  }
  for (let a = 0; a < 256; a++) {
    for (const b of [0x00, 0x28, 0x80, 0x9f, 0xa0, 0xbf, 0xc3, 0xff]) {
      const pair = bytes(a, b, 0x80);
      assert.equal(textOf(pair), decoder.decode(pair), `${pair}`);
    }
  }
  assert.deepEqual(fromBinary(toBinary(Uint8Array.from({ length: 256 }, (_, i) => i))), Uint8Array.from({ length: 256 }, (_, i) => i));
});

test("a batch is handed on with other values, keys or times", () => {
  const batch = batchOf([
    ["a", "1"],
    ["b", "2"],
  ]);
  const changed = batch.withValues(["x", null]).withKeys(["y", "z"]).withTimestamps([7, 8]);
  assert.deepEqual([...changed].map((r) => [r.time, r.keyText, r.valueText]), [
    [7, "y", "x"],
    [8, "z", null],
  ]);
  assert.throws(() => batch.withValues(["only one"]), /1 values for a batch of 2 records/);
  assert.throws(() => batch.withTimestamps([1]), /1 event times for a batch of 2 records/);
});

test("headers come back in order, with names that repeat", () => {
  const builder = new BatchBuilder();
  builder.push(1, "k", "without");
  builder.push(2, "k", "with");
  builder.header("é", "text");
  builder.header("é", bytes(0, 255));
  builder.push(3, "k", "without again");
  const again = new BatchBuilder();
  for (const record of builder.batch()) again.pushRecord(record);
  const records = [...again.batch()];
  assert.deepEqual(records.map((r) => r.headers.length), [0, 2, 0]);
  assert.deepEqual(records[1].headers, [
    ["é", bytesOf("text")],
    ["é", bytes(0, 255)],
  ]);
  assert.deepEqual(records[1].header("é"), bytesOf("text"));
  assert.equal(records[0].header("é"), null);
  assert.equal(again.batch().headers.fault(3), null);
});

test("what cannot be a record is refused, and leaves the builder as it was", () => {
  const builder = new BatchBuilder();
  builder.push(1, "k", "v");
  assert.throws(() => builder.push(1.5, "k", "v"), /the time of a record is 1.5/);
  assert.throws(() => builder.push("2026", "k", "v"), /is "2026"/);
  assert.throws(() => builder.push(2 ** 60, "k", "v"), /between -2\^53 and 2\^53/);
  assert.throws(() => builder.push(1, { no: "key" }, "v"), /a key is/);
  assert.throws(() => builder.push(1, "k", { a: 1 }), /pushJson/);
  assert.throws(() => builder.push(1, 5, "v"), /not a number/);
  assert.throws(() => builder.pushJson(1, "k", undefined), /cannot be written as JSON/);
  builder.push(END_OF_TIME, "k", "w");
  assert.equal(builder.length, 2);
  assert.equal(builder.batch().keys.fault(2), null);
  assert.equal(builder.batch().values.fault(2), null);
});

test("there is no record beyond the last", () => {
  assert.throws(() => batchOf([["a", "1"]]).record(1), /no record 1 in a batch of 1/);
  assert.throws(() => batchOf([["a", "1"]]).record(-1), /no record -1/);
});

function batchOf(rows) {
  const builder = new BatchBuilder();
  for (const [key, value] of rows) builder.push(1, key, value);
  return Batch.fromWit(builder.batch().toWit());
}
