import assert from "node:assert/strict";
import { test } from "node:test";

import { Harness, row } from "#weir/testing";
import Upper from "../src/operator.js";

test("letters of ASCII become capitals, and nothing else changes", () => {
  const upper = new Harness(Upper);
  upper.process(0, [row("k", "abc xyz é流 09", 5), row(null, Uint8Array.of(0x61, 0xff, 0xe9)), row("k")]);
  assert.deepEqual(upper.take(0), [row("k", "ABC XYZ é流 09", 5), row(null, Uint8Array.of(0x41, 0xff, 0xe9)), row("k")]);
});

test("values of more than 80 bytes are put aside", () => {
  const upper = new Harness(Upper);
  upper.process(0, [row("k", "a".repeat(80)), row("k", "é".repeat(41))]);
  assert.deepEqual(upper.take(0), [row("k", "A".repeat(80))]);
  assert.deepEqual(upper.takeRejected(), [[row("k", "é".repeat(41)), "the value has 82 bytes, more than 80"]]);
});
