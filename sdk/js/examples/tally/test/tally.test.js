import assert from "node:assert/strict";
import { test } from "node:test";

import { END_OF_TIME } from "#weir";
import { Harness, row } from "#weir/testing";
import Tally from "../src/operator.js";

const MINUTE = 60_000_000;
const values = (tally) => tally.take(0).map((one) => one.value);

test("windows are emitted when they are over, by end and key, with the sum so far", () => {
  const tally = new Harness(Tally);
  tally.process(0, [row("b", "", 5), row("a", "", 6), row("b", "", MINUTE - 1), row("b", "", MINUTE), row("a", "", -1)]);
  tally.advance(MINUTE - 1);
  assert.deepEqual(values(tally), ["0 1 1 a"]);
  tally.advance(MINUTE);
  assert.deepEqual(tally.take(0), [row("a", `${MINUTE} 1 2 a`, MINUTE), row("b", `${MINUTE} 2 2 b`, MINUTE)]);
  tally.process(0, [row("b", "", 7)]);
  tally.advance(END_OF_TIME);
  assert.deepEqual(values(tally), [`${MINUTE} 1 3 b`, `${2 * MINUTE} 1 4 b`]);
});

test("open windows and sums come back from a checkpoint that is taken in steps", () => {
  const tally = new Harness(Tally);
  const rows = Array.from({ length: 1000 }, (_, i) => row(`key ${i % 100}`, "", i * 1_000_000));
  tally.process(0, rows);
  tally.advance(5 * MINUTE);
  tally.take(0);
  tally.beginSnapshot();
  while (tally.snapshotStep(1) === "more") tally.process(0, rows.slice(0, 10));
  const twin = Harness.restore(Tally, tally.checkpoint);
  twin.process(0, rows.slice(0, 50));
  twin.advance(END_OF_TIME);
  const total = values(twin).map((value) => Number(value.split(" ")[1])).reduce((a, b) => a + b, 0);
  assert.equal(total, 1000 - 300 + 50);
});

test("records without key or time are put aside", () => {
  const tally = new Harness(Tally);
  tally.process(0, [row(null, "v", 1), row("a", "v")]);
  assert.deepEqual(tally.takeRejected().map(([, reason]) => reason), ["no key", "no time"]);
});
