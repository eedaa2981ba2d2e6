import assert from "node:assert/strict";
import { test } from "node:test";

import { END_OF_TIME } from "#weir";
import { Harness, row } from "#weir/testing";
import Visits from "../src/operator.ts";

const SECOND = 1_000_000;
const values = (visits: Harness<Visits>) => visits.take(0).map((one) => one.value);

test("records at most 30 seconds apart are one session, also when a late one joins two", () => {
  const visits = new Harness(Visits);
  visits.process(0, [row("a", "", 0), row("a", "", 60 * SECOND), row("b", "", 10 * SECOND), row("a", "", 30 * SECOND)]);
  visits.advance(END_OF_TIME);
  assert.deepEqual(values(visits), [`${10 * SECOND} ${10 * SECOND} 1 b`, `0 ${60 * SECOND} 3 a`]);
});

test("a session is over when the watermark is 30 seconds behind its end", () => {
  const visits = new Harness(Visits);
  visits.process(0, [row("a", "", SECOND)]);
  visits.advance(31 * SECOND - 1);
  assert.deepEqual(values(visits), []);
  visits.advance(31 * SECOND);
  assert.deepEqual(values(visits), [`${SECOND} ${SECOND} 1 a`]);
  assert.equal(visits.operator.sessions.size, 0);
});

test("sessions go on after a restore", () => {
  const before = new Harness(Visits);
  before.process(0, [row("a", "", 0)]);
  const after = Harness.restore(Visits, before.snapshot());
  after.process(0, [row("a", "", 20 * SECOND)]);
  after.advance(END_OF_TIME);
  assert.deepEqual(values(after), [`0 ${20 * SECOND} 2 a`]);
});

test("records without key or time are put aside", () => {
  const visits = new Harness(Visits);
  visits.process(0, [row(null, "v", 1), row("a", "v")]);
  assert.deepEqual(visits.takeRejected(), [
    [row(null, "v", 1), "no key"],
    [row("a", "v"), "no time"],
  ]);
});
