import assert from "node:assert/strict";
import { test } from "node:test";

import { groupBits, hashNumber, keyGroup, keyHash } from "../src/hash.js";

test("hashes and key groups are those of the contract", () => {
  const groups = [1, 2, 7, 128, 256, 4096, 32_768];
  for (const [key, hash, expected] of [
    ["", 0x2d06800538d394c2n, [0, 1, 3, 64, 128, 2048, 16_386]],
    ["a", 0xe6c632b61e964e1fn, [0, 0, 1, 25, 50, 811, 6491]],
    ["abc", 0x78af5f94892f3950n, [0, 0, 2, 47, 95, 1529, 12_234]],
  ]) {
    assert.equal(keyHash(Buffer.from(key)), hash, key);
    assert.deepEqual(groups.map((count) => keyGroup(hash, count)), expected, key);
  }
});

// From the reference implementation of XXH3, one for each way that it takes.
test("hashes of all lengths are those of XXH3-64", () => {
  for (const [length, hash] of VECTORS) {
    const key = Uint8Array.from({ length }, (_, i) => (i * 7 + 3) & 255);
    assert.equal(keyHash(key), BigInt(`0x${hash}`), `${length} bytes`);
    const shifted = new Uint8Array([9, ...key]).subarray(1);
    assert.equal(keyHash(shifted), BigInt(`0x${hash}`), `${length} bytes, not aligned`);
  }
});

test("the number that the bindings make of a hash tells its key group, or says that it does not", () => {
  let state = 1n;
  const next = () => (state = (state * 6364136223846793005n + 1442695040888963407n) & ((1n << 64n) - 1n));
  const edges = [0n, 1n, (1n << 32n) - 1n, 1n << 32n, (1n << 53n) - 1n, 1n << 53n, (1n << 63n) - 1n, 1n << 63n, (1n << 64n) - 1n, (1n << 64n) - (1n << 31n), (1n << 64n) - (1n << 31n) - 1n];
  const doubtful = [];
  for (let i = 0; i < 1000; i++) doubtful.push((next() & ~0xffffffffn) | (i % 2 === 0 ? 0xffffffffn : 0n));
  for (let i = 0; i < 20_000; i++) edges.push(next());
  let unknown = 0;
  for (const hash of [...edges, ...doubtful]) {
    const bits = groupBits(hashNumber(hash));
    if (bits === -1) unknown += 1;
    else assert.equal(bits, Number((hash >> 32n) & 0xffffn), hash.toString(16));
  }
  assert.ok(unknown >= 900 && unknown <= 1010, `${unknown} were in doubt`);
});

const VECTORS = [
  [0, "2d06800538d394c2"],
  [1, "13e608bc156defed"],
  [3, "a9088dda485b481c"],
  [4, "6d9253b16c8b1ed3"],
  [8, "60539db630471163"],
  [9, "feff668361d723a8"],
  [16, "b8c859b0f030b585"],
  [17, "714a04408e79b80f"],
  [33, "3e44983ad21679c8"],
  [65, "829218de4d798646"],
  [97, "1daa83271a8e7b7c"],
  [128, "67425a03650261bf"],
  [129, "c664bf3311c6abc4"],
  [200, "746cd0025327bf5b"],
  [240, "64556dc6b462a6cf"],
  [241, "8beadd3a8874fe17"],
  [256, "3c38817f6d79c0da"],
  [512, "f58202b8d9019d1d"],
  [1024, "9b81661c641c72b1"],
  [1025, "806c2072ed713576"],
  [2047, "e36fcecaa2c0ecba"],
  [3000, "c89178bb873c6b3d"],
];
