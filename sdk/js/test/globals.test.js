import assert from "node:assert/strict";
import { test } from "node:test";

import { now } from "../src/index.js";
import { Harness, row } from "../src/testing.js";
import { operator } from "./helpers.js";

const Native = Date;
console.log("before the globals are set up");
await import("../src/globals.js");
console.warn("while it is built", 5);

const run = (method) => {
  const harness = new Harness(operator({ process: method }));
  const built = harness.takeLog();
  harness.setTime(1_767_225_600_123_456);
  harness.process(0, [row("a", "1")]);
  return [built, harness];
};

test("what is printed goes to the log, also what was printed while the component was built", () => {
  const [built, harness] = run(() => {
    console.log("seen", { a: 1 });
    console.error("bad");
    console.assert(true, "not this");
  });
  assert.deepEqual(built, [["warn", "while it is built 5"]]);
  assert.deepEqual(harness.takeLog(), [
    ["info", "seen {a: 1}"],
    ["error", "bad"],
  ]);
});

test("time is the host's", () => {
  run(() => {
    assert.equal(now(), 1_767_225_600_123_456);
    assert.equal(Date.now(), 1_767_225_600_123);
    assert.equal(new Date().toISOString(), "2026-01-01T00:00:00.123Z");
    assert.equal(new Date(5).getTime(), 5);
    assert.equal(performance.now(), 1_767_225_600_123);
    assert.ok(new Date() instanceof Native);
  });
  assert.throws(() => Date.now(), /there is no time while a component is built/);
});

test("chance is refused, with what to do instead", () => {
  assert.throws(() => Math.random(), /task\.seed/);
});

test("text is coded as in other engines", () => {
  assert.deepEqual([...new TextEncoder().encode("é")], [0xc3, 0xa9]);
  assert.equal(new TextDecoder().decode(Uint8Array.of(0xef, 0xbb, 0xbf, 0x61, 0xff)), "a\ufffd");
  assert.throws(() => new TextDecoder("latin1"), /utf-8/);
});
