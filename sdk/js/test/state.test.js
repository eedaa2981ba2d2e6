import assert from "node:assert/strict";
import { test } from "node:test";

import { BatchBuilder, END_OF_TIME, Failure, codecs, keyGroup, keyHash } from "../src/index.js";
import { Checkpoint, Harness, row, task } from "../src/testing.js";
import { contents, operator } from "./helpers.js";

/** Counts records by key, and knows a key `!delete`d by its value. */
const Count = operator(
  {
    process(port, batch, out) {
      for (const record of batch) {
        if (record.valueText === "delete") this.counts.delete(record);
        else this.counts.value(record).n += 1;
      }
    },
  },
  function () {
    this.counts = this.segments.keyed("counts", { initial: () => ({ n: 0 }) });
  },
);

const counts = (harness) => Object.fromEntries([...harness.operator.counts].map(([key, { n }]) => [key.text, n]));
const keys = (from, to) => Array.from({ length: to - from }, (_, i) => row(`key ${from + i}`, "1"));
const groupOf = (key) => keyGroup(keyHash(Buffer.from(key)), 128);

test("state comes back from a checkpoint", () => {
  const before = new Harness(Count);
  before.process(0, [...keys(0, 300), ...keys(0, 10)]);
  const after = Harness.restore(Count, before.snapshot());
  after.process(0, [row("key 0", "1")]);
  assert.equal(counts(after)["key 0"], 3);
  assert.equal(after.operator.counts.size, 300);
});

test("an incremental snapshot writes the key groups that have changed, whole, and no other", () => {
  const harness = new Harness(Count);
  harness.process(0, keys(0, 500));
  const full = harness.snapshot();
  harness.process(0, [row("key 7", "1")]);
  const next = harness.snapshot();
  assert.ok(next.lastSnapshotBytes > 0 && next.lastSnapshotBytes < full.byteLength / 50, `${next.lastSnapshotBytes} of ${full.byteLength}`);
  const changed = contents(next).filter(([group, text]) => !contents(full).some(([g, t]) => g === group && t === text));
  assert.deepEqual(changed.map(([group]) => group), [groupOf("key 7")]);
  assert.deepEqual(counts(Harness.restore(Count, next)), counts(harness));
});

test("a snapshot after which nothing has changed writes nothing", () => {
  const harness = new Harness(Count);
  harness.process(0, keys(0, 50));
  harness.snapshot();
  assert.equal(harness.snapshot().lastSnapshotBytes, 0);
  assert.equal(harness.operator.counts.get("key 1").n, 1);
  assert.equal(harness.snapshot().lastSnapshotBytes, 0, "get is no change");
});

test("a key group that has become empty is gone from the checkpoint", () => {
  const harness = new Harness(Count);
  harness.process(0, [row("a", "1"), row("b", "1")]);
  harness.snapshot();
  harness.process(0, [row("a", "delete")]);
  const checkpoint = harness.snapshot();
  assert.deepEqual(checkpoint.chunks().map((chunk) => chunk.source.scope.val), [groupOf("b")]);
  assert.deepEqual(counts(Harness.restore(Count, checkpoint)), { b: 1 });
});

test("what is written depends on what the state holds, not on how it came about", () => {
  const one = new Harness(Count);
  one.process(0, keys(0, 200));
  const other = new Harness(Count);
  other.process(0, [...keys(150, 260)]);
  other.process(0, keys(0, 150).reverse());
  other.snapshot();
  other.process(0, [...keys(200, 260).map((r) => ({ ...r, value: "delete" })), ...keys(150, 200).map((r) => ({ ...r, value: "delete" }))]);
  other.process(0, keys(150, 200));
  assert.deepEqual(contents(other.snapshot()), contents(one.snapshot()));
  assert.deepEqual(contents(Harness.restore(Count, one.checkpoint).snapshot("full")), contents(one.checkpoint));
});

test("a snapshot in steps holds the state of its first step, whatever happens in between", () => {
  for (const mode of ["full", "incremental"]) {
    const harness = new Harness(Count);
    harness.process(0, keys(0, 2000));
    if (mode === "incremental") harness.snapshot();
    harness.process(0, keys(0, 2000));
    const atCut = counts(harness);
    harness.beginSnapshot(mode);
    let steps = 1;
    let random = 7;
    while (harness.snapshotStep(1) === "more") {
      steps += 1;
      const rows = [];
      for (let i = 0; i < 40; i++) {
        random = (random * 1103515245 + 12345) % 2 ** 31;
        rows.push(row(`key ${random % 2500}`, random % 3 === 0 ? "delete" : "1"));
      }
      harness.process(0, rows);
    }
    assert.ok(steps >= 128, `${steps} steps`);
    const now = counts(harness);
    assert.notDeepEqual(now, atCut);
    assert.deepEqual(counts(Harness.restore(Count, harness.checkpoint)), atCut, mode);
    assert.deepEqual(counts(Harness.restore(Count, harness.snapshot())), now, `the one after it, ${mode}`);
  }
});

test("a snapshot that is given up takes nothing with it: the next one is full and right", () => {
  const harness = new Harness(Count);
  harness.process(0, keys(0, 1000));
  harness.snapshot();
  harness.process(0, keys(0, 1000));
  harness.beginSnapshot();
  assert.equal(harness.snapshotStep(1), "more");
  harness.process(0, [...keys(500, 600), row("key 3", "delete"), row("new", "1")]);
  const checkpoint = harness.snapshot();
  assert.deepEqual(counts(Harness.restore(Count, checkpoint)), counts(harness));
});

test("state follows its keys to another parallelism", () => {
  const before = [0, 1].map((i) => new Harness(Count, { task: task(i, 2) }));
  const of = (r, parallelism) => Math.floor((groupOf(r.key) * parallelism) / 128);
  before.forEach((harness, i) => harness.process(0, keys(0, 400).filter((r) => of(r, 2) === i)));
  const checkpoints = before.map((harness) => harness.snapshot());
  const after = [0, 1, 2].map((i) => Harness.restore(Count, checkpoints, { task: task(i, 3) }));
  assert.equal(after.reduce((sum, harness) => sum + harness.operator.counts.size, 0), 400);
  after.forEach((harness, i) => harness.process(0, keys(0, 400).filter((r) => of(r, 3) === i)));
  assert.deepEqual([...new Set(after.flatMap((harness) => Object.values(counts(harness))))], [2]);
});

test("a key of a group that the subtask does not have is a mistake, and is named", () => {
  const harness = new Harness(Count, { task: task(0, 2) });
  const foreign = keys(0, 100).find((r) => groupOf(r.key) >= 64);
  assert.throws(() => harness.process(0, [foreign]), new RegExp(`${foreign.key}.*key group ${groupOf(foreign.key)}.*0 to 63.*keyed`));
});

test("a record without a key has no state", () => {
  assert.throws(() => new Harness(Count).process(0, [row("k", "1"), row(null, "1")]), /record 1 has no key/);
});

test("a value larger than a chunk, and one larger than what a host takes, come back", () => {
  const Keep = operator({ process: (port, batch) => {} }, function () {
    this.texts = this.segments.keyed("texts");
  });
  const harness = new Harness(Keep);
  const texts = { small: "s", middle: "é".repeat(200_000), large: "流".repeat(900_000), quotes: '"\\'.repeat(300_000) };
  for (const [key, text] of Object.entries(texts)) harness.operator.texts.set(key, text);
  const checkpoint = harness.snapshot();
  for (const { data } of checkpoint.chunks()) assert.ok(data.length <= 1 << 20);
  const after = Harness.restore(Keep, checkpoint);
  for (const [key, text] of Object.entries(texts)) assert.equal(after.operator.texts.get(key), text);
});

test("chunks of many entries have at most 256 KiB", () => {
  const Keep = operator({}, function () {
    this.texts = this.segments.keyed("texts");
  });
  const harness = new Harness(Keep);
  for (let i = 0; i < 20_000; i++) harness.operator.texts.set(`key ${i}`, "x".repeat(200 + (i % 3000)));
  const checkpoint = harness.snapshot();
  const sizes = checkpoint.chunks().map((chunk) => chunk.data.length);
  assert.ok(Math.max(...sizes) <= 256 << 10, `${Math.max(...sizes)}`);
  assert.ok(sizes.length > 128, `${sizes.length} chunks`);
  assert.equal(Harness.restore(Keep, checkpoint).operator.texts.size, 20_000);
});

test("keys are bytes: those that are no text, and empty ones, are kept apart", () => {
  const Seen = operator({ process(port, batch) { for (const r of batch) this.seen.value(r).n += 1; } }, function () {
    this.seen = this.segments.keyed("seen", { initial: () => ({ n: 0 }) });
  });
  const harness = new Harness(Seen);
  const rows = [Uint8Array.of(0xff), Uint8Array.of(0xfe), Uint8Array.of(), Uint8Array.of(0), "é", "e"].map((key) => row(key, "v"));
  harness.process(0, [...rows, ...rows]);
  const after = Harness.restore(Seen, harness.snapshot());
  assert.equal(after.operator.seen.size, 6);
  assert.equal(after.operator.seen.get(Uint8Array.of(0xff)).n, 2);
  assert.equal(after.operator.seen.get("é").n, 2);
  assert.equal(after.operator.seen.get("").n, 2);
});

test("codecs keep what JSON cannot", () => {
  const Keep = operator({}, function () {
    this.raw = this.segments.keyed("raw", { codec: codecs.bytes });
    this.big = this.segments.keyed("big", { codec: codecs.bigint });
    this.map = this.segments.keyed("map", { codec: codecs.map, initial: () => new Map() });
    this.set = this.segments.keyed("set", { codec: codecs.set, initial: () => new Set() });
  });
  const harness = new Harness(Keep);
  const { raw, big, map, set } = harness.operator;
  raw.set("k", Uint8Array.of(0, 200));
  big.set("k", 2n ** 70n);
  map.value("k").set("z", 1).set("a", 2);
  set.value("k").add("y");
  const { operator: after } = Harness.restore(Keep, harness.snapshot());
  assert.deepEqual(after.raw.get("k"), Uint8Array.of(0, 200));
  assert.equal(after.big.get("k"), 2n ** 70n);
  assert.deepEqual([...after.map.get("k")], [["z", 1], ["a", 2]]);
  assert.deepEqual([...after.set.get("k")], ["y"]);
});

test("a value that would not survive a checkpoint is found by the harness", () => {
  for (const [value, what] of [
    [{ a: [1, NaN] }, /value.a\[1\] is NaN/],
    [{ a: undefined }, /value.a is a undefined/],
    [new Map(), /class Map/],
    [5n, /a bigint/],
    [new Date(0), /class Date/],
    [-0, /-0/],
  ]) {
    const Keep = operator({}, function () {
      this.kept = this.segments.keyed("kept");
    });
    const harness = new Harness(Keep);
    harness.operator.kept.set("k", value);
    assert.throws(() => harness.snapshot(), what);
  }
});

test("shared and subtask values come back, and refuse what they must", () => {
  const Rules = operator({}, function () {
    this.rules = this.segments.shared("rules", []);
    this.seen = this.segments.subtask("seen", 0);
  });
  const harness = new Harness(Rules);
  assert.equal(harness.snapshot().byteLength, 0, "what was never set is not written");
  harness.operator.rules.set(["a"]);
  harness.operator.seen.set(5);
  const checkpoint = harness.snapshot();
  assert.deepEqual(contents(checkpoint), [
    ["subtask", 'weir-js 1\n["seen","value",5]\n'],
    ["shared", 'weir-js 1\n["rules","value",["a"]]\n'],
  ]);
  const after = Harness.restore(Rules, checkpoint);
  assert.deepEqual([after.operator.rules.get(), after.operator.seen.get()], [["a"], 5]);
  assert.throws(() => Harness.restore(Rules, checkpoint, { task: task(0, 2) }), /refuses/);
  after.operator.seen.set(6);
  assert.equal(after.snapshot("incremental").chunks().length, 2);
});

test("rewrite replaces everything that was stored, also groups that are empty now", () => {
  const Old = operator({}, function () { this.old = this.segments.keyed("old"); });
  const New = operator(
    {
      restore(version, reader) {
        assert.equal(version, 1);
        this.segments.restore(reader);
        for (const [key, value] of [...this.old]) {
          if (value !== "drop") this.kept.set(key, { value });
          this.old.delete(key);
        }
        this.segments.rewrite();
      },
    },
    function () {
      this.old = this.segments.keyed("old");
      this.kept = this.segments.keyed("kept");
    },
    { stateVersion: 2, oldestStateVersion: 1 },
  );
  const before = new Harness(Old);
  before.operator.old.set("a", "keep");
  before.operator.old.set("b", "drop");
  const after = Harness.restore(New, before.snapshot());
  const checkpoint = after.snapshot();
  assert.deepEqual(contents(checkpoint), [[groupOf("a"), 'weir-js 1\n["kept","keyed","a",{"value":"keep"}]\n']]);
});

test("damaged state is refused with a failure of kind invalid that says what is wrong", () => {
  const harness = new Harness(Count);
  harness.process(0, [row("a", "1")]);
  const good = harness.snapshot();
  const group = groupOf("a");
  const text = contents(good)[0][1];
  const restore = (data, place = group) => {
    const scope = typeof place === "number" ? { tag: "key-group", val: place } : { tag: place };
    const chunks = [data].flat().map((one) => ({ source: { scope, kind: "base" }, origin: 0, data: typeof one === "string" ? Buffer.from(one) : one }));
    return () => Harness.restore(Count, new Checkpoint(1, new Map([[place, chunks]])));
  };
  restore(text)();
  for (const [damaged, what] of [
    [restore("weir-js 2\n[]\n"), /begins with "weir-js 2"/],
    [restore("\u0001garbage"), /begins with/],
    [restore(text.slice(0, -4)), /is not JSON/],
    [restore(text.replace("counts", "other")), /collection "other", which this plugin does not have/],
    [restore(text.replace("keyed", "timers")), /of kind timers there, and of kind keyed/],
    [restore(text.replace('"a",', "5,")), /5 where a key should be/],
    [restore(text.replace('"a"', '"b"')), /holds a key of group/],
    [restore(text.replace(',{"n":1}', "")), /a key without a value/],
    [restore(text, (group + 1) % 128), /holds a key of group/],
    [restore(text, "shared"), /lies in scope shared/],
    [restore(text, "item"), /scope "item"/],
    [restore("weir-js 1 part\n[1"), /last part of an entry is missing/],
    [restore(["weir-js 1 part\n[1", text]), /last part of an entry is missing/],
    [restore('weir-js 1\n{"a":1}\n'), /not with the name and kind/],
  ]) {
    assert.throws(damaged, (error) => {
      assert.ok(error instanceof Failure && error.kind === "invalid", `${error.stack}`);
      assert.match(error.message, what);
      return true;
    });
  }
  assert.throws(restore("x".repeat(10)), Failure);
  const other = new Harness(Count, { task: task(1, 2) });
  assert.ok(other);
});

test("two collections cannot share a name, and a collection without a beginning says so", () => {
  const Twice = operator({}, function () {
    this.a = this.segments.keyed("x");
    this.b = this.segments.timers("x");
  });
  assert.throws(() => new Harness(Twice), /two collections are named "x"/);
  const Plain = operator({}, function () {
    this.plain = this.segments.keyed("plain");
  });
  assert.throws(() => new Harness(Plain).operator.plain.value("k"), /initial/);
});

test("timers fire by time, then by the bytes of the key, and once", () => {
  const harness = new Harness(Alarm);
  harness.process(0, [at("b", 5), at("a", 5), at("é", 5), at("c", 1), at("a", 9), at("a", 5)]);
  assert.equal(harness.operator.alarms.size, 5);
  assert.equal(harness.operator.alarms.next, 1);
  harness.advance(5);
  assert.deepEqual(fired(harness), ["1 c", "5 a", "5 b", "5 é"]);
  harness.advance(8);
  assert.deepEqual(fired(harness), []);
  harness.advance(END_OF_TIME);
  assert.deepEqual(fired(harness), ["9 a"]);
  assert.equal(harness.operator.alarms.next, undefined);
});

test("a timer that is set while others fire is among them if it is due", () => {
  const Again = operator(
    {
      process(port, batch) { for (const record of batch) this.alarms.set(record.time, record); },
      advance(watermark, out) {
        const seen = [];
        for (const { time, key } of this.alarms.due(watermark)) {
          seen.push(`${time} ${key}`);
          if (time < 4) this.alarms.set(time + 1, key);
          if (time === 2 && key.text === "a") this.alarms.set(2, "0");
        }
        this.seen = seen;
      },
    },
    function () { this.alarms = this.segments.timers("alarms"); },
  );
  const harness = new Harness(Again);
  harness.process(0, [at("a", 1)]);
  harness.operator.alarms.set(3, "b");
  harness.advance(3);
  assert.deepEqual(harness.operator.seen, ["1 a", "2 a", "2 0", "3 0", "3 a", "3 b"]);
  assert.equal(harness.operator.alarms.next, 4);
});

test("leaving the loop over due timers early leaves the rest", () => {
  const harness = new Harness(Alarm);
  harness.process(0, [at("a", 1), at("b", 1), at("c", 2)]);
  const { alarms } = harness.operator;
  for (const { key } of alarms.due(10)) if (key.text === "a") break;
  assert.deepEqual([...alarms.due(10)].map(({ time, key }) => `${time} ${key.text}`), ["1 b", "2 c"]);
});

test("timers in random order come out sorted, with deletions in between", () => {
  const harness = new Harness(Alarm);
  const { alarms } = harness.operator;
  let random = 3;
  const expected = new Set();
  for (let i = 0; i < 3000; i++) {
    random = (random * 1103515245 + 12345) % 2 ** 31;
    const [time, key] = [(random >> 8) % 400, `k${(random >> 4) % 30}`];
    if (i % 4 === 3) assert.equal(alarms.delete(time, key), expected.delete(`${String(time).padStart(4)} ${key}`));
    else {
      alarms.set(time, key);
      expected.add(`${String(time).padStart(4)} ${key}`);
    }
  }
  assert.equal(alarms.size, expected.size);
  assert.deepEqual([...alarms.due(1000)].map(({ time, key }) => `${String(time).padStart(4)} ${key.text}`), [...expected].sort());
});

test("timers come back from a checkpoint, and a snapshot in steps has those of its cut", () => {
  const harness = new Harness(Alarm);
  harness.process(0, Array.from({ length: 500 }, (_, i) => at(`key ${i}`, 1000 + (i % 7))));
  harness.beginSnapshot();
  while (harness.snapshotStep(1) === "more") {
    harness.advance(1003);
    harness.process(0, [at("late", 5000)]);
  }
  const after = Harness.restore(Alarm, harness.checkpoint);
  assert.equal(after.operator.alarms.size, 500);
  after.advance(END_OF_TIME);
  assert.equal(fired(after).length, 500);
  assert.equal(harness.operator.alarms.has(5000, "late"), true);
  const next = Harness.restore(Alarm, harness.snapshot());
  assert.equal(next.operator.alarms.size, harness.operator.alarms.size);
});

const at = (key, time) => row(key, "", time);
const fired = (harness) => harness.take(0).map((one) => one.value);

const Alarm = operator(
  {
    process(port, batch) {
      for (const record of batch) this.alarms.set(record.time, record);
    },
    advance(watermark, out) {

      const records = new BatchBuilder();
      for (const { time, key } of this.alarms.due(watermark)) records.push(time, key, `${time} ${key.text}`);
      out.emit(0, records);
    },
  },
  function () {
    this.alarms = this.segments.timers("alarms");
  },
);
