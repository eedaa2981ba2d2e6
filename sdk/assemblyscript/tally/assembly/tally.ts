// Counts records by key in windows of a minute of event time: the operator `tally` of sdk/conformance, with its keyed state by hand.
//
// The state of a key is its total and its open windows. A snapshot encodes the key groups that have changed at the cut, each as one base in chunks of at
// most 256 KiB, in the order of their keys, and then writes them in as many steps as the host likes.

import { Bytes, cabi_realloc, done, emit, invalid, read, reject, release, storeList, storeText, write } from "./abi";

export { cabi_realloc };

const WINDOW: i64 = 60_000_000;
const NO_TIME: i64 = i64.MIN_VALUE;
const CHUNK_BYTES: usize = 256 << 10;
/** A chunk is decoded alone, so a key has to fit into one with all that is known of it. */
const KEY_BYTES_MAX: u32 = 128 << 10;
const OUTPUT_BYTES: usize = 1 << 20;
const FORMAT: u8 = 1;

// ---- Keys ----------------------------------------------------------------------------------------------------------

/** A key with what is known of it; its bytes come behind. */
@unmanaged
class Entry {
  hash: u64;
  total: u64;
  /** Pairs of end and count, in the order in which they were opened. */
  windows: usize;
  open: u32;
  room: u32;
  keyLen: u32;
  next: Entry | null;
}

const ENTRY: usize = offsetof<Entry>();
const NO_ENTRY: usize = 0;

let buckets: usize = 0;
let mask: u32 = 0;
let keys: u32 = 0;

function keyOf(entry: Entry): usize {
  return changetype<usize>(entry) + ENTRY;
}

function bucket(hash: u64): usize {
  return buckets + (<usize>(<u32>hash & mask) << 2);
}

function grow(): void {
  const old = buckets;
  const count: u32 = old ? mask + 1 : 0;
  mask = old ? mask * 2 + 1 : 1023;
  buckets = heap.alloc((<usize>mask + 1) << 2);
  memory.fill(buckets, 0, (<usize>mask + 1) << 2);
  for (let i: u32 = 0; i < count; i++) {
    let entry = load<usize>(old + (<usize>i << 2));
    while (entry) {
      const at = changetype<Entry>(entry);
      const next = changetype<usize>(at.next);
      const to = bucket(at.hash);
      at.next = changetype<Entry | null>(load<usize>(to));
      store<usize>(to, entry);
      entry = next;
    }
  }
  if (old) heap.free(old);
}

/** The entry of a key; a new one where there is none. */
function entryOf(hash: u64, key: usize, len: u32): Entry {
  if (keys >= mask) grow();
  const to = bucket(hash);
  for (let at = load<usize>(to); at; at = changetype<usize>(changetype<Entry>(at).next)) {
    const entry = changetype<Entry>(at);
    if (entry.hash == hash && entry.keyLen == len && memory.compare(keyOf(entry), key, len) == 0) return entry;
  }
  const entry = changetype<Entry>(heap.alloc(ENTRY + len));
  memory.fill(changetype<usize>(entry), 0, ENTRY);
  entry.hash = hash;
  entry.keyLen = len;
  memory.copy(keyOf(entry), key, len);
  entry.next = changetype<Entry | null>(load<usize>(to));
  store<usize>(to, changetype<usize>(entry));
  keys++;
  return entry;
}

function pushWindow(entry: Entry, end: i64, count: u64): void {
  if (entry.open == entry.room) {
    entry.room = entry.room ? entry.room * 2 : 2;
    entry.windows = entry.windows ? heap.realloc(entry.windows, <usize>entry.room * 16) : heap.alloc(<usize>entry.room * 16);
  }
  const to = entry.windows + <usize>entry.open * 16;
  entry.open++;
  store<i64>(to, end);
  store<u64>(to, count, 8);
  if (end < earliest) earliest = end;
}

/** No open window ends before this. */
let earliest: i64 = i64.MAX_VALUE;

// ---- Key groups ----------------------------------------------------------------------------------------------------

let keyGroups: u32 = 0;
let firstGroup: u32 = 0;
let endGroup: u32 = 0;
/** A byte for each of this subtask's groups: 1 if it has changed since the last cut. */
let changed: usize = 0;

function groupOf(hash: u64): u32 {
  return <u32>((((hash >> 32) & 0xffff) * <u64>keyGroups) >> 16);
}

function touch(hash: u64): void {
  const group = groupOf(hash);
  if (group < firstGroup || group >= endGroup) throw new Error("a key of a foreign key group: declare the input port as keyed");
  store<u8>(changed + (group - firstGroup), 1);
}

// ---- Order ---------------------------------------------------------------------------------------------------------

function keyOrder(a: Entry, b: Entry): i32 {
  const order = memory.compare(keyOf(a), keyOf(b), min(a.keyLen, b.keyLen));
  return order ? order : a.keyLen < b.keyLen ? -1 : a.keyLen > b.keyLen ? 1 : 0;
}

/** Items of 24 bytes: what comes first (a number), the entry, and a count. */
const items = new Bytes();
const spare = new Bytes();

function pushItem(first: i64, entry: Entry, count: u64): void {
  const to = items.room(24);
  store<i64>(to, first);
  store<usize>(to, changetype<usize>(entry), 8);
  store<u64>(to, count, 16);
}

function comesBefore(a: usize, b: usize): bool {
  const x = load<i64>(a);
  const y = load<i64>(b);
  if (x != y) return x < y;
  return keyOrder(changetype<Entry>(load<usize>(a, 8)), changetype<Entry>(load<usize>(b, 8))) < 0;
}

/** Sorts the items by number and key: merges runs of one, two, four, ... */
function sortItems(): void {
  const len = items.len;
  spare.len = 0;
  spare.room(len);
  let from = items.at;
  let to = spare.at;
  for (let run: usize = 24; run < len; run *= 2) {
    for (let start: usize = 0; start < len; start += 2 * run) {
      const middle = min(start + run, len);
      const end = min(start + 2 * run, len);
      let a = start;
      let b = middle;
      for (let at = start; at < end; at += 24) {
        const second = a == middle || (b < end && comesBefore(from + b, from + a));
        memory.copy(to + at, from + (second ? b : a), 24);
        if (second) b += 24;
        else a += 24;
      }
    }
    const swap = from;
    from = to;
    to = swap;
  }
  if (from != items.at) memory.copy(items.at, from, len);
}

/** Gives every entry as an item to `pushItem`, if it is wanted. */
function eachEntry(visit: (entry: Entry) => void): void {
  if (!buckets) return;
  for (let i: u32 = 0; i <= mask; i++) {
    for (let at = load<usize>(buckets + (<usize>i << 2)); at; at = changetype<usize>(changetype<Entry>(at).next)) visit(changetype<Entry>(at));
  }
}

// ---- The processor -------------------------------------------------------------------------------------------------

const descriptor = memory.data(72, 4);
const ports = memory.data(40, 4);

export function describe(): usize {
  storeText(descriptor, "tally-as");
  storeText(descriptor + 8, "0.1.0");
  storeText(descriptor + 16, "Counts records by key in windows of a minute.");
  storeList(descriptor + 24, ports, 1);
  storeList(descriptor + 32, ports + 20, 1);
  storeText(ports, "in");
  storeText(ports + 8, "what is counted");
  store<u8>(ports, 1, 16);
  storeText(ports + 20, "out");
  storeText(ports + 28, "END COUNT TOTAL KEY, one for each window and key");
  store<u8>(ports, 1, 36);
  store<u8>(descriptor, 2, 40); // keyed
  store<u32>(descriptor, 1, 44); // state version
  store<u32>(descriptor, 1, 48); // oldest
  return descriptor;
}

export function open(
  config: usize, configLen: usize, job: usize, jobLen: usize, node: usize, nodeLen: usize, subtask: u32, parallelism: u32,
  groups: u32, first: u32, end: u32, seed: u64, attributes: usize, attributesLen: usize,
): usize {
  let empty = true;
  for (let i: usize = 0; i < configLen; i++) {
    const c = load<u8>(config + i);
    if (c != 123 && c != 125 && c != 32 && c != 10) empty = false;
  }
  release(config, configLen);
  release(job, jobLen);
  release(node, nodeLen);
  for (let i: usize = 0; i < attributesLen; i++) {
    const attribute = attributes + 16 * i;
    release(load<usize>(attribute), load<usize>(attribute, 4));
    release(load<usize>(attribute, 8), load<usize>(attribute, 12));
  }
  release(attributes, attributesLen);
  if (!empty) return invalid("this plugin has no configuration: leave config out, or {}");
  keyGroups = groups;
  firstGroup = first;
  endGroup = end;
  changed = heap.alloc(end - first);
  memory.fill(changed, 0, end - first);
  return done();
}

/** The end of the window that a time belongs to. */
function windowEnd(time: i64): i64 {
  const into = time % WINDOW;
  return time - (into < 0 ? into + WINDOW : into) + WINDOW;
}

const reason = new Bytes();

function rejectRow(row: u32, why: string): void {
  reason.len = 0;
  reason.ascii(why);
  reject(row, reason.at, reason.len);
}

/** `params`: the port, then the lists of the batch. */
export function process(params: usize): usize {
  const times = load<usize>(params, 4);
  const rows = load<u32>(params, 8);
  const hashes = load<usize>(params, 12);
  const offsets = load<usize>(params, 20);
  const hasKeys = load<usize>(params, 24) > 0;
  const bytes = load<usize>(params, 28);
  const nulls = load<usize>(params, 36);
  const hasNulls = load<usize>(params, 40) > 0;
  for (let row: u32 = 0; row < rows; row++) {
    const time = load<i64>(times + (<usize>row << 3));
    if (!hasKeys || (hasNulls && (load<u8>(nulls + (row >> 3)) >> <u8>(row & 7)) & 1)) {
      rejectRow(row, "no key");
      continue;
    }
    if (time == NO_TIME) {
      rejectRow(row, "no time");
      continue;
    }
    const from = load<u32>(offsets + (<usize>row << 2));
    const keyLen = load<u32>(offsets + (<usize>row << 2), 4) - from;
    if (keyLen > KEY_BYTES_MAX) {
      rejectRow(row, "a key of more than 128 KiB");
      continue;
    }
    const hash = load<u64>(hashes + (<usize>row << 3));
    const entry = entryOf(hash, bytes + from, keyLen);
    touch(hash);
    const end = windowEnd(time);
    let window: usize = 0;
    for (let i: u32 = 0; i < entry.open && !window; i++) {
      const at = entry.windows + <usize>i * 16;
      if (load<i64>(at) == end) window = at;
    }
    if (window) store<u64>(window, load<u64>(window, 8) + 1, 8);
    else pushWindow(entry, end, 1);
  }
  // Ten lists, and what held them.
  for (let list: usize = 0; list < 10; list++) release(load<usize>(params + 4 + list * 8), load<usize>(params + 8 + list * 8));
  heap.free(params);
  return done();
}

let watermark: i64 = i64.MIN_VALUE;
/** Of the items that have come due, the next to be emitted. */
let nextItem: usize = 0;

function takeDue(entry: Entry): void {
  let kept: u32 = 0;
  for (let i: u32 = 0; i < entry.open; i++) {
    const at = entry.windows + <usize>i * 16;
    const end = load<i64>(at);
    if (end <= watermark) {
      pushItem(end, entry, load<u64>(at, 8));
      continue;
    }
    if (end < earliest) earliest = end;
    memory.copy(entry.windows + <usize>kept * 16, at, 16);
    kept++;
  }
  if (kept < entry.open) touch(entry.hash);
  entry.open = kept;
}

export function advance(to: i64): usize {
  if (to < earliest) return done();
  watermark = to;
  earliest = i64.MAX_VALUE;
  items.len = 0;
  nextItem = 0;
  eachEntry(takeDue);
  sortItems();
  return resume();
}

const outTimes = new Bytes();
const outKeys = new Bytes();
const outKeyOffsets = new Bytes();
const outValues = new Bytes();
const outValueOffsets = new Bytes();
const batch = memory.data(84, 4);

export function resume(): usize {
  outTimes.len = outKeys.len = outKeyOffsets.len = outValues.len = outValueOffsets.len = 0;
  outKeyOffsets.u32(0);
  outValueOffsets.u32(0);
  while (nextItem < items.len && outValues.len + outKeys.len < OUTPUT_BYTES) {
    const item = items.at + nextItem;
    nextItem += 24;
    const end = load<i64>(item);
    const entry = changetype<Entry>(load<usize>(item, 8));
    const count = load<u64>(item, 16);
    entry.total += count;
    outTimes.u64(<u64>end);
    outKeys.push(keyOf(entry), entry.keyLen);
    outKeyOffsets.u32(<u32>outKeys.len);
    outValues.decimal(end);
    outValues.u8(32);
    outValues.decimal(<i64>count);
    outValues.u8(32);
    outValues.decimal(<i64>entry.total);
    outValues.u8(32);
    outValues.push(keyOf(entry), entry.keyLen);
    outValueOffsets.u32(<u32>outValues.len);
  }
  const rows = outTimes.len >> 3;
  if (rows) {
    storeList(batch + 4, outTimes.at, rows);
    storeList(batch + 20, outKeyOffsets.at, rows + 1);
    storeList(batch + 28, outKeys.at, outKeys.len);
    storeList(batch + 44, outValueOffsets.at, rows + 1);
    storeList(batch + 52, outValues.at, outValues.len);
    emit(batch);
  }
  return done(nextItem < items.len);
}

export function wake(): usize {
  return done();
}

export function finish(port: u32): usize {
  return done();
}

// ---- The checkpoint ------------------------------------------------------------------------------------------------

/** The open snapshot: its epoch, its chunks one after the other, and for each the group and where it ends. */
let openEpoch: u64 = 0;
let isOpen = false;
const chunkBytes = new Bytes();
const chunkEnds = new Bytes();
let nextChunk: usize = 0;
let writeAll = false;

function pushChanged(entry: Entry): void {
  const group = groupOf(entry.hash);
  if (writeAll || load<u8>(changed + (group - firstGroup))) pushItem(group, entry, 0);
}

function endChunk(group: u32): void {
  chunkEnds.u32(group);
  chunkEnds.u32(<u32>chunkBytes.len);
}

/** Encodes what has to be written as it is now. */
function cut(): void {
  items.len = 0;
  eachEntry(pushChanged);
  sortItems();
  chunkBytes.len = chunkEnds.len = nextChunk = 0;
  let start: usize = 0;
  for (let at: usize = 0; at < items.len; at += 24) {
    const group = <u32>load<i64>(items.at + at);
    const entry = changetype<Entry>(load<usize>(items.at + at, 8));
    const size: usize = 24 + <usize>entry.keyLen + <usize>entry.open * 16;
    const sameGroup = at > 0 && <u32>load<i64>(items.at + at - 24) == group;
    if (at > 0 && (!sameGroup || chunkBytes.len - start + size > CHUNK_BYTES)) {
      endChunk(<u32>load<i64>(items.at + at - 24));
      start = chunkBytes.len;
    }
    if (chunkBytes.len == start) chunkBytes.u8(FORMAT);
    chunkBytes.u64(entry.hash);
    chunkBytes.u32(entry.keyLen);
    chunkBytes.push(keyOf(entry), entry.keyLen);
    chunkBytes.u64(entry.total);
    chunkBytes.u32(entry.open);
    chunkBytes.push(entry.windows, <usize>entry.open * 16);
  }
  if (items.len) endChunk(<u32>load<i64>(items.at + items.len - 24));
  memory.fill(changed, 0, endGroup - firstGroup);
}

export function snapshot(epoch: u64, mode: u32): usize {
  if (!isOpen || openEpoch != epoch) {
    // Keys are never forgotten, so no group that was written becomes empty.
    writeAll = mode == 0 || isOpen;
    isOpen = true;
    openEpoch = epoch;
    cut();
  }
  while (nextChunk < chunkEnds.len) {
    const from = nextChunk ? <usize>load<u32>(chunkEnds.at + nextChunk - 4) : <usize>0;
    const group = load<u32>(chunkEnds.at + nextChunk);
    const end: usize = load<u32>(chunkEnds.at + nextChunk, 4);
    nextChunk += 8;
    const goOn = write(0, group, 0, chunkBytes.at + from, end - from);
    if (!goOn && nextChunk < chunkEnds.len) return done(true);
  }
  isOpen = false;
  return done();
}

const option = memory.data(28, 4);

/** Takes over a chunk; false if it is damaged. */
function restoreChunk(from: usize, len: usize, group: u32): bool {
  const end = from + len;
  if (len == 0 || load<u8>(from) != FORMAT) return false;
  let at = from + 1;
  while (at < end) {
    if (end - at < 12) return false;
    const hash = load<u64>(at);
    const keyLen = load<u32>(at, 8);
    if (groupOf(hash) != group || end - at - 12 < keyLen) return false;
    const key = at + 12;
    at = key + keyLen;
    if (end - at < 12) return false;
    const total = load<u64>(at);
    const windows = load<u32>(at, 8);
    at += 12;
    if ((end - at) / 16 < windows) return false;
    const entry = entryOf(hash, key, keyLen);
    entry.total = total;
    for (let i: u32 = 0; i < windows; i++, at += 16) pushWindow(entry, load<i64>(at), load<u64>(at, 8));
  }
  return true;
}

export function restore(stateVersion: u32): usize {
  read(option);
  while (load<u8>(option)) {
    const scope = load<u8>(option, 4);
    const group = load<u32>(option, 8);
    const data = load<usize>(option, 20);
    const len = load<usize>(option, 24);
    const good = scope == 0 && group >= firstGroup && group < endGroup && restoreChunk(data, len, group);
    release(data, len);
    if (!good) return invalid("state cannot be read: a chunk of a key group is damaged");
    read(option);
  }
  return done();
}
