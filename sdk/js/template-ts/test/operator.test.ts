// Plain native tests: no WebAssembly and no runtime, but a host that keeps the contract.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Harness, row, task } from "#weir/testing";
import Changes from "../src/operator.ts";

const config = { least: 0.5 };
const reading = (sensor: string, value: number) => row(sensor, JSON.stringify({ sensor, value }));

test("hands on what has changed enough", () => {
  const changes = new Harness(Changes, { config });
  changes.process(0, [reading("roof", 3.0), reading("roof", 3.4), reading("cellar", 3.4), reading("roof", 3.5)]);
  assert.deepEqual(changes.take(0), [reading("roof", 3.0), reading("cellar", 3.4), reading("roof", 3.5)]);
});

test("puts aside what it cannot read", () => {
  const changes = new Harness(Changes);
  changes.process(0, [row("roof", "wind"), row("roof", "{}"), row(null, "{}"), reading("roof", 1.0)]);
  assert.deepEqual(changes.take(0), [reading("roof", 1.0)]);
  assert.equal(changes.takeRejected().length, 3);
});

test("goes on after a restore as if nothing had happened", () => {
  const before = new Harness(Changes, { config });
  before.process(0, [reading("roof", 3.0)]);
  const after = Harness.restore(Changes, before.snapshot(), { config });
  after.process(0, [reading("roof", 3.1), reading("roof", 9.0)]);
  assert.deepEqual(after.take(0), [reading("roof", 9.0)]);
});

test("keeps its state when it is spread over more subtasks, and when a snapshot is taken in steps", () => {
  const sensors = Array.from({ length: 50 }, (_, i) => `sensor ${i}`);
  const before = new Harness(Changes);
  before.process(0, sensors.map((sensor) => reading(sensor, 1)));
  before.beginSnapshot();
  // What changes in between belongs to the next snapshot.
  while (before.snapshotStep(1) === "more") before.process(0, [reading("sensor 7", 2)]);
  const after = [0, 1, 2].map((i) => Harness.restore(Changes, before.checkpoint, { task: task(i, 3) }));
  const values = after.flatMap((changes) => [...changes.operator.last].map(([, value]) => value));
  assert.deepEqual(values, sensors.map(() => 1));
});

test("refuses a configuration with a typing error", () => {
  // @ts-expect-error TypeScript finds it, too.
  assert.throws(() => new Harness(Changes, { config: { laest: 0.5 } }), /laest/);
});
