// A smoke test that plays the host by the canonical ABI: node --test, after `node build.mjs`.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const module = new WebAssembly.Module(readFileSync(new URL("build/module.wasm", import.meta.url)));
const NO_TIME = -(2n ** 63n);
const END_OF_TIME = 2n ** 63n - 1n;

// Any hash will do, as long as equal keys have equal ones: these land in groups 0, 64 and 127 of 128.
const hashes = { a: 0x0000000100000001n, b: 0x0000800000000001n, "": 0x0000ffff00000002n };

class Host {
  emitted = [];
  rejected = [];
  logged = [];
  written = [];
  toRead = [];
  budget = Infinity;

  constructor(first = 0, end = 128) {
    const imports = {
      "weir:plugin/output@0.1.0": { emit: (at) => this.emit(at), reject: (row, at, len) => this.rejected.push([row, this.text(at, len)]) },
      "weir:plugin/log@0.1.0": { write: (level, at, len) => this.logged.push(this.text(at, len)) },
      "weir:plugin/snapshots@0.1.0": {
        write: (scope, group, kind, at, len) => {
          assert.deepEqual([scope, kind], [0, 0]);
          assert.ok(len <= 256 << 10);
          this.written.push({ group, data: this.bytes(at, len) });
          return --this.budget > 0;
        },
        read: (to) => this.read(to),
      },
    };
    this.exports = new WebAssembly.Instance(module, imports).exports;
    assert.equal(this.open("{}", first, end).failed, 0);
  }

  get view() {
    return new DataView(this.exports.memory.buffer);
  }

  bytes(at, len) {
    return new Uint8Array(this.exports.memory.buffer, at, len).slice();
  }

  text(at, len) {
    return new TextDecoder().decode(this.bytes(at, len));
  }

  /** A list in the plugin's memory: pointer and length. */
  list(bytes, align, length = bytes.length) {
    const at = this.exports.cabi_realloc(0, 0, align, bytes.length);
    new Uint8Array(this.exports.memory.buffer).set(bytes, at);
    return [at, length];
  }

  call(name, ...params) {
    const at = this.exports[`weir:plugin/${name}`](...params);
    const failed = this.view.getUint8(at);
    const value = this.view.getUint8(at + 4);
    const message = failed ? this.text(this.view.getUint32(at + 8, true), this.view.getUint32(at + 12, true)) : "";
    return { failed, value, message };
  }

  open(config, first, end) {
    const text = (value) => this.list(new TextEncoder().encode(value), 1);
    return this.call("processor@0.1.0#open", ...text(config), ...text("job"), ...text("node"), 0, 1, 128, first, end, 0n, 0, 0);
  }

  process(records) {
    const keys = records.map(([, key]) => new TextEncoder().encode(key ?? ""));
    const offsets = new Uint32Array(records.length + 1);
    keys.forEach((key, i) => (offsets[i + 1] = offsets[i] + key.length));
    const nulls = new Uint8Array(Math.ceil(records.length / 8));
    records.forEach(([, key], i) => key === null && (nulls[i >> 3] |= 1 << (i & 7)));
    const lists = [
      this.list(new Uint8Array(new BigInt64Array(records.map(([time]) => time)).buffer), 8, records.length),
      this.list(new Uint8Array(new BigUint64Array(records.map(([, key]) => hashes[key ?? ""])).buffer), 8, records.length),
      this.list(new Uint8Array(offsets.buffer), 4, offsets.length),
      this.list(Buffer.concat(keys), 1),
      this.list(nulls, 1),
      [4, 0], [1, 0], [1, 0], [4, 0], [1, 0],
    ];
    const at = this.exports.cabi_realloc(0, 0, 4, 84);
    this.view.setUint32(at, 0, true);
    lists.flat().forEach((number, i) => this.view.setUint32(at + 4 + 4 * i, number, true));
    const result = this.call("processor@0.1.0#process", at);
    assert.equal(result.failed, 0, result.message);
  }

  emit(at) {
    const list = (i) => [this.view.getUint32(at + 4 + 8 * i, true), this.view.getUint32(at + 8 + 8 * i, true)];
    const rows = list(0)[1];
    for (let row = 0; row < rows; row++) {
      const slice = (offsets, bytes) => {
        const from = this.view.getUint32(list(offsets)[0] + 4 * row, true);
        return this.text(list(bytes)[0] + from, this.view.getUint32(list(offsets)[0] + 4 * row + 4, true) - from);
      };
      this.emitted.push([this.view.getBigInt64(list(0)[0] + 8 * row, true), slice(2, 3), slice(5, 6)]);
    }
  }

  advance(watermark) {
    let result = this.call("processor@0.1.0#advance", watermark);
    while (!result.failed && result.value) result = this.call("processor@0.1.0#resume");
    assert.equal(result.failed, 0);
    return this.emitted.splice(0);
  }

  step(epoch, full, budget = Infinity) {
    this.budget = budget;
    return this.call("checkpoint@0.1.0#snapshot", epoch, full ? 0 : 1).value;
  }

  read(to) {
    const chunk = this.toRead.shift();
    this.view.setUint8(to, chunk ? 1 : 0);
    if (!chunk) return;
    const [at, len] = this.list(chunk.data, 1);
    this.view.setUint8(to + 4, 0);
    this.view.setUint32(to + 8, chunk.group, true);
    this.view.setUint32(to + 20, at, true);
    this.view.setUint32(to + 24, len, true);
  }

  restore(chunks) {
    this.toRead = chunks.map((chunk) => ({ ...chunk }));
    return this.call("checkpoint@0.1.0#restore", 1);
  }
}

const records = [[59_999_999n, "b"], [0n, "b"], [60_000_000n, "a"], [1n, "a"], [-1n, "a"], [5n, null], [NO_TIME, "a"], [7n, ""]];

test("windows end by time, then key, and totals add up", () => {
  const host = new Host();
  host.process(records);
  assert.deepEqual(host.rejected, [[5, "no key"], [6, "no time"]]);
  assert.deepEqual(host.advance(59_999_999n), [[0n, "a", "0 1 1 a"]]);
  assert.deepEqual(host.advance(60_000_000n), [[60_000_000n, "", "60000000 1 1 "], [60_000_000n, "a", "60000000 1 2 a"], [60_000_000n, "b", "60000000 2 2 b"]]);
  host.process([[1n, "a"]]);
  assert.deepEqual(host.advance(END_OF_TIME), [[60_000_000n, "a", "60000000 1 3 a"], [120_000_000n, "a", "120000000 1 4 a"]]);
});

test("a snapshot in steps holds the state of the cut, and is restored in two parts", () => {
  const host = new Host();
  host.process(records);
  assert.equal(host.step(1n, true, 1), 1);
  host.process([[2n, "b"]]);
  while (host.step(1n, true, 1)) host.process([[2n, "b"]]);
  const chunks = host.written.splice(0);
  assert.deepEqual(chunks.map(({ group }) => group), [0, 64, 127]);
  assert.equal(host.step(2n, false), 0);
  assert.deepEqual(host.written.map(({ group }) => group), [64]);

  const parts = [new Host(0, 64), new Host(64, 128)];
  assert.equal(parts[0].restore(chunks.slice(0, 1)).failed, 0);
  assert.equal(parts[1].restore(chunks.slice(1)).failed, 0);
  assert.deepEqual(parts[0].advance(60_000_000n), [[0n, "a", "0 1 1 a"], [60_000_000n, "a", "60000000 1 2 a"]]);
  assert.deepEqual(parts[1].advance(60_000_000n), [[60_000_000n, "", "60000000 1 1 "], [60_000_000n, "b", "60000000 2 2 b"]]);
});

test("a key that fits into no chunk is rejected", () => {
  const long = "x".repeat(128 << 10);
  hashes[long] = hashes[`${long}x`] = 1n;
  const host = new Host();
  host.process([[1n, long], [1n, `${long}x`]]);
  assert.deepEqual(host.rejected, [[1, "a key of more than 128 KiB"]]);
  host.step(1n, true);
  assert.equal(host.written.length, 1);
});

test("damaged state, a configuration and a foreign key are refused", () => {
  const host = new Host();
  host.process(records);
  host.step(1n, true);
  const { group, data } = host.written[0];
  for (let len = 0; len < data.length; len++) {
    const { failed, message } = new Host().restore([{ group, data: data.subarray(0, len) }]);
    // Only the format, and nothing after it, is whole.
    assert.equal(failed, len === 1 ? 0 : 1);
    if (failed) assert.match(message, /^state cannot be read/);
  }
  assert.match(host.open('{"size":1}', 0, 128).message, /no configuration/);
  const part = new Host(64, 128);
  assert.throws(() => part.process([[1n, "a"]]), WebAssembly.RuntimeError);
  assert.match(part.logged[0], /foreign key group.* \(assembly\/tally\.ts:\d+\)$/);
});
