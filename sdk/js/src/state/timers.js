// Times in event time, each with a key: `EventTimers`. They are part of the state, and fired from `advance`.

import { checkTime, END_OF_TIME } from "../time.js";
import { corrupt } from "./chunk.js";
import { binaryOf } from "./key.js";
import { checkKey } from "./keyed.js";

const LINE_TIMERS = 256;

/** A set of pairs of time and key, sorted by time, then by the bytes of the key. Made by `segments.timers`. */
export class EventTimers {
  #groups;
  // The keys of each time, with the place of their key group; and the times as a heap, some of which may have no keys any more.
  #byTime = new Map();
  #heap = [];
  #counts;
  #dirty;
  #size = 0;
  // What of the open cut has not been written: times and keys in turn, in order, by group.
  #cut = null;

  constructor(name, groups) {
    this.name = name;
    this.kind = "timers";
    this.#groups = groups;
    this.#counts = new Uint32Array(groups.count);
    this.#dirty = new Uint8Array(groups.count);
  }

  /** The number of timers. */
  get size() {
    return this.#size;
  }

  /** Sets a timer; false if it is set already. */
  set(time, key) {
    checkTime(time, "the time of a timer");
    const binary = binaryOf(key);
    const keys = this.#byTime.get(time);
    if (keys?.has(binary)) return false;
    const place = this.#groups.placeOf(key, binary);
    this.#add(time, binary, place, keys);
    this.#dirty[place] = 1;
    return true;
  }

  /** Whether a timer is set. */
  has(time, key) {
    return this.#byTime.get(time)?.has(binaryOf(key)) ?? false;
  }

  /** Takes a timer back; false if it was not set. */
  delete(time, key) {
    return this.#delete(time, binaryOf(key));
  }

  /** The earliest time; undefined if no timer is set. */
  get next() {
    for (;;) {
      const time = this.#heap[0];
      if (time === undefined || this.#byTime.has(time)) return time;
      this.#pop();
    }
  }

  /**
   * Takes the timers up to `watermark` one by one, by time, then by the bytes of the key. One that is set meanwhile is among them, if it is due and
   * not before the one that was given last. Whoever leaves the loop early finds the rest the next time.
   */
  *due(watermark) {
    for (let time = this.next; time !== undefined && time <= watermark; time = this.next) {
      const keys = this.#byTime.get(time);
      for (const binary of [...keys.keys()].sort()) {
        const place = keys.get(binary);
        if (place === undefined || !this.#delete(time, binary)) continue;
        yield { time, key: this.#groups.keyAt(binary, place) };
      }
    }
  }

  #add(time, binary, place, keys) {
    if (keys === undefined) {
      this.#byTime.set(time, new Map([[binary, place]]));
      this.#push(time);
    } else {
      keys.set(binary, place);
    }
    this.#counts[place] += 1;
    this.#size += 1;
  }

  #delete(time, binary) {
    const keys = this.#byTime.get(time);
    const place = keys?.get(binary);
    if (place === undefined) return false;
    keys.delete(binary);
    if (keys.size === 0) this.#byTime.delete(time);
    this.#counts[place] -= 1;
    this.#dirty[place] = 1;
    this.#size -= 1;
    return true;
  }

  #push(time) {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(time);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (heap[parent] <= time) break;
      heap[at] = heap[parent];
      at = parent;
    }
    heap[at] = time;
  }

  #pop() {
    const heap = this.#heap;
    const time = heap.pop();
    const { length } = heap;
    if (length === 0) return;
    let at = 0;
    for (let child = 1; child < length; child = 2 * at + 1) {
      if (child + 1 < length && heap[child + 1] < heap[child]) child += 1;
      if (heap[child] >= time) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = time;
  }

  // What follows is called by `Segments` only.

  isEmpty(place) {
    return this.#counts[place] === 0;
  }

  isDirty(place) {
    return this.#dirty[place] !== 0;
  }

  /** Takes the cut: timers are small and do not change, so those of the pending groups are copied at once. */
  beginCut(pending) {
    this.#dirty.fill(0);
    this.#cut = Array.from(pending, (open) => (open !== 0 ? [] : null));
    for (const time of [...this.#byTime.keys()].sort((a, b) => a - b)) {
      const keys = this.#byTime.get(time);
      for (const binary of [...keys.keys()].sort()) this.#cut[keys.get(binary)]?.push(time, binary);
    }
  }

  /** Writes a group as it was at the cut. */
  *write(place, to) {
    const items = this.#cut[place];
    this.#cut[place] = null;
    for (let at = 0; at < items.length; at += 2 * LINE_TIMERS) {
      yield* to.line(this.name, this.kind, [JSON.stringify(items.slice(at, at + 2 * LINE_TIMERS)).slice(1, -1)]);
    }
  }

  /** The cut is written, or given up. */
  endCut() {
    this.#cut = null;
  }

  /** Takes over a line. */
  read(place, items) {
    if (items.length % 2 !== 0) throw corrupt(`${JSON.stringify(this.name)} has a time without a key`);
    for (let i = 0; i < items.length; i += 2) {
      const [time, key] = [items[i], items[i + 1]];
      if (!Number.isSafeInteger(time) && time !== END_OF_TIME) throw corrupt(`${JSON.stringify(this.name)} has ${JSON.stringify(time)} where a time should be`);
      checkKey(this, this.#groups, place, key, i === 0);
      const keys = this.#byTime.get(time);
      if (!keys?.has(key)) this.#add(time, key, place, keys);
    }
  }
}
