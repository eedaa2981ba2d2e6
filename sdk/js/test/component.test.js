import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import * as sdk from "../src/index.js";
import * as testing from "../src/testing.js";
import { BatchBuilder, Failure, log, metrics, now, wakeAt } from "../src/index.js";
import { Harness, Trap, row } from "../src/testing.js";
import { operator } from "./helpers.js";

const process = (method, ...rest) => new Harness(operator({ process: method }), ...rest);

test("an error in the operator is logged before it ends the call, with where it was and what caused it", () => {
  const harness = process(() => {
    throw new TypeError("no", { cause: new Error("deeper") });
  });
  assert.throws(() => harness.process(0, [row("a", "1")]), TypeError);
  const [[level, line]] = harness.takeLog();
  assert.equal(level, "error");
  assert.match(line, /^process failed: TypeError: no \(at .*component\.test\.js.*caused by Error: deeper/);
});

test("a failure reaches the host with its kind, and is not logged as a bug", () => {
  for (const kind of ["retry", "invalid", "fatal"]) {
    const harness = process(() => {
      throw Failure[kind]("because");
    });
    assert.throws(() => harness.process(0, [row("a", "1")]), (error) => {
      assert.deepEqual(error.payload, { kind, message: "because" });
      return true;
    });
    assert.deepEqual(harness.takeLog(), []);
  }
});

test("what a failed call emitted and rejected is dropped", () => {
  let fail = true;
  const harness = process((port, batch, out) => {
    out.forward(0, batch);
    out.reject(0, "bad");
    if (fail) throw Failure.retry("later");
  });
  assert.throws(() => harness.process(0, [row("a", "1")]));
  fail = false;
  harness.process(0, [row("a", "2")]);
  assert.deepEqual(harness.take(0), [row("a", "2")]);
  assert.deepEqual(harness.takeRejected(), [[row("a", "2"), "bad"]]);
});

test("a generator yields to the host and goes on where it was", () => {
  const calls = [];
  const harness = process(function* (port, batch, out) {
    for (const record of batch) {
      out.forward(0, batch.withValues(Array(batch.length).fill(record.valueText)));
      calls.push(record.valueText);
      yield;
    }
  });
  harness.process(0, [row("a", "1"), row("b", "2")]);
  assert.deepEqual(calls, ["1", "2"]);
  assert.deepEqual(harness.take(0).map((one) => one.value), ["1", "1", "2", "2"]);
});

test("a generator that fails may be tried again before its first yield, and not after it", () => {
  let at = 0;
  const harness = process(function* () {
    if (at === 0) throw Failure.retry("first");
    yield;
    if (at === 1) throw Failure.retry("second");
  });
  const fails = (kind) => (error) => error instanceof Failure && error.payload.kind === kind;
  assert.throws(() => harness.process(0, [row("a", "1")]), fails("retry"));
  at = 1;
  assert.throws(() => harness.process(0, [row("a", "1")]), fails("fatal"));
  at = 2;
  harness.process(0, [row("a", "1")]);
});

test('an operator that returns "more" is resumed until it is done', () => {
  let left = 3;
  const harness = new Harness(operator({ process: () => "more", resume: () => (--left > 0 ? "more" : "done") }));
  harness.process(0, [row("a", "1")]);
  assert.equal(left, 0);
});

test("a promise and other results are refused with what to do", () => {
  assert.throws(() => process(async () => {}).process(0, [row("a", "1")]), /process returned a promise: an operator works without async/);
  assert.throws(() => process(() => 5).process(0, [row("a", "1")]), /process returned 5/);
});

test("the configuration is checked against the schema before the operator is made", () => {
  const configSchema = {
    type: "object",
    properties: { least: { type: "number", minimum: 0 }, names: { type: "array", items: { type: "string" } }, mode: { enum: ["a", "b"] } },
    required: ["mode"],
    additionalProperties: false,
  };
  const open = (config) => new Harness(operator({}, () => {}, { configSchema }), { config });
  assert.equal(open({ mode: "a", least: 1 }).operator.config.least, 1);
  for (const [config, what] of [
    [{ mode: "a", laest: 1 }, /\/laest is not known; what may stand there: least, names, mode/],
    [{ mode: "a", least: "1" }, /\/least is "1": it must be of type number/],
    [{ mode: "a", least: -1 }, /\/least is -1: it must be at least 0/],
    [{ mode: "c" }, /\/mode is "c": it must be one of "a", "b"/],
    [{ mode: "a", names: ["x", 5] }, /\/names\/1 is 5: it must be of type string/],
    [{}, /\/mode is missing/],
    [{ least: -1 }, /mode is missing; .*least is -1/],
  ]) {
    assert.throws(() => open(config), (error) => error instanceof Failure && error.kind === "invalid" && what.test(error.message));
  }
});

test("a descriptor that the host would refuse is refused in a test", () => {
  for (const [change, what] of [
    [{ name: "Upper" }, /name is "Upper"/],
    [{ version: "1" }, /version is "1"/],
    [{ inputs: [] }, /inputs is empty/],
    [{ inputs: [{ name: "a" }, { name: "a" }] }, /two ports named "a"/],
    [{ state: "some" }, /state is "some"/],
    [{ stateVersion: 1, oldestStateVersion: 2 }, /oldest not above/],
    [{ sumary: "" }, /sumary is not known/],
    [{ configSchema: "{}" }, /must be an object/],
  ]) {
    assert.throws(() => new Harness(operator({}, () => {}, change)), what);
  }
  assert.throws(() => new Harness(class {}), /default export/);
});

test("what the host traps on traps in the harness", () => {
  const emit = (value) => process((port, batch, out) => out.emit(port === 0 ? value.port : 0, value.batch));
  const keyless = new BatchBuilder();
  keyless.push(1, null, "v");
  assert.throws(() => emit({ port: 1, batch: keyless }).process(0, [row("a", "1")]), Trap);
  const keyed = operator({ process: (port, batch, out) => out.emit(0, keyless) }, () => {}, { outputs: [{ name: "out", keyed: true }] });
  assert.throws(() => new Harness(keyed).process(0, [row("a", "1")]), /is keyed, and a record has no key/);
  assert.throws(() => process((port, batch, out) => out.reject(5, "no")).process(0, [row("a", "1")]), /no record 5 in this batch of 1/);
  const late = new Harness(operator({ snapshot: () => wakeAt(5) }));
  assert.throws(() => late.snapshot(), /wake-at is not allowed in snapshot/);
  assert.throws(() => now(), /needs a host/);
});

test("processing time wakes an operator once for what it asked", () => {
  const woken = [];
  const harness = new Harness(operator({ process: () => (wakeAt(50), wakeAt(20), undefined), wake: () => void woken.push(now()) }));
  harness.process(0, [row("a", "1")]);
  assert.equal(harness.wakeTime, 20);
  harness.setTime(10);
  assert.deepEqual(woken, []);
  harness.setTime(25);
  harness.setTime(60);
  assert.deepEqual(woken, [25]);
  assert.equal(harness.wakeTime, null);
});

test("messages and metrics reach the host", () => {
  const harness = process((port, batch) => {
    log.info("seen", batch.length, { of: ["a", new Map([[1, 2n]])] });
    metrics.count("seen", 2);
    metrics.count("seen");
    metrics.gauge("level", 0.5);
  });
  harness.process(0, [row("a", "1")]);
  assert.deepEqual(harness.takeLog(), [["info", 'seen 1 {of: ["a", Map {1 => 2n}]}']]);
  assert.equal(harness.metric("seen"), 3);
  assert.equal(harness.metric("level"), 0.5);
  assert.throws(() => process(() => metrics.count("Bad")).process(0, [row("a", "1")]), /no name of a metric/);
  assert.throws(() => metrics.count("seen", -1), /cannot grow by -1/);
});

test("a reason is cut at the boundary of a character", () => {
  const harness = process((port, batch, out) => out.reject(0, `x${"é".repeat(1000)}`));
  harness.process(0, [row("a", "1")]);
  const [[, reason]] = harness.takeRejected();
  assert.equal(reason, `x${"é".repeat(511)}`);
});

test("the types declare what the modules export, and nothing else", async () => {
  for (const [module, file] of [
    [sdk, "index"],
    [testing, "testing"],
  ]) {
    const text = await readFile(new URL(`../src/${file}.d.ts`, import.meta.url), "utf8");
    const declared = [...text.matchAll(/^export (?:abstract )?(?:class|function|const|namespace) (\w+)/gm)].map((match) => match[1]);
    assert.deepEqual([...new Set(declared)].sort(), Object.keys(module).sort(), file);
  }
});
