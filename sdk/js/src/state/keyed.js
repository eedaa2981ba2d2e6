// A value for each key: `KeyedState`, the collection that most operators need.

import { exactGroupBits } from "../batch.js";
import { decode } from "../bytes.js";
import { corrupt } from "./chunk.js";
import { json } from "./codecs.js";
import { binaryOf } from "./key.js";

/** How many entries go into a line: enough to be cheap, few enough to be far from the size of a chunk. */
const LINE_ENTRIES = 128;

/**
 * A value for each key of this subtask's key groups. Made by `segments.keyed`.
 *
 * It knows which key groups have changed: `value`, `set` and `delete` count as a change, `get` does not. What `get` gives must not be changed,
 * and what `value` gives only until the call of the operator ends: a snapshot may be under way, and keeps what it has not yet written as it was.
 */
export class KeyedState {
  #groups;
  #initial;
  #codec;
  // All entries by key, and again by key group.
  #entries = new Map();
  #byGroup;
  #dirty;
  // Grows with each cut: an entry that is younger than the open cut is not part of it.
  #generation = 0;
  // What of the open cut has not been written: which groups, and the entries of them that are there no more.
  #pending = null;
  #removed = null;

  constructor(name, groups, { initial = undefined, codec = json } = {}) {
    this.name = name;
    this.kind = "keyed";
    this.#groups = groups;
    this.#initial = initial;
    this.#codec = codec;
    this.#byGroup = Array.from({ length: groups.count }, () => new Map());
    this.#dirty = new Uint8Array(groups.count);
  }

  /** The number of keys. */
  get size() {
    return this.#entries.size;
  }

  /** Whether a key has a value. */
  has(key) {
    return this.#entries.has(binaryOf(key));
  }

  /** The value of a key, not to be changed; undefined if it has none. */
  get(key) {
    return this.#entries.get(binaryOf(key))?.value;
  }

  /** The value of a key, to be changed; one that has none gets what `initial` makes. */
  value(key) {
    // Of a record, and that is most, the key is at hand: this is asked for every one.
    const known = key?.keyBinary;
    const binary = typeof known === "string" ? known : binaryOf(key);
    const entry = this.#entries.get(binary);
    if (entry !== undefined) {
      this.#dirty[entry.place] = 1;
      if (this.#pending !== null) this.#touch(entry);
      return entry.value;
    }
    if (this.#initial === undefined) {
      throw new Error(`state ${JSON.stringify(this.name)} has no value to begin with: give { initial: () => … } to segments.keyed, or use get and set`);
    }
    return this.#add(key, binary, this.#initial()).value;
  }

  /** Gives a key a value. */
  set(key, value) {
    const binary = binaryOf(key);
    const entry = this.#entries.get(binary);
    if (entry === undefined) {
      this.#add(key, binary, value);
      return;
    }
    this.#touch(entry);
    entry.value = value;
  }

  /** Removes a key; true if it was there. */
  delete(key) {
    const binary = binaryOf(key);
    const entry = this.#entries.get(binary);
    if (entry === undefined) return false;
    this.#touch(entry);
    if (this.#pending !== null && this.#pending[entry.place] !== 0 && entry.born <= this.#cut()) {
      this.#removed[entry.place].push(entry);
    }
    this.#entries.delete(binary);
    this.#byGroup[entry.place].delete(binary);
    return true;
  }

  /** All keys with their values, not to be changed: by key group, then by the bytes of the key. */
  *entries() {
    for (let place = 0; place < this.#byGroup.length; place++) {
      const group = this.#byGroup[place];
      for (const binary of [...group.keys()].sort()) {
        const entry = group.get(binary);
        if (entry !== undefined) yield [this.#groups.keyAt(binary, place), entry.value];
      }
    }
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  #add(key, binary, value) {
    const place = this.#groups.placeOf(key, binary);
    const entry = { key: binary, place, value, born: this.#generation, saved: undefined };
    this.#entries.set(binary, entry);
    this.#byGroup[place].set(binary, entry);
    this.#dirty[place] = 1;
    return entry;
  }

  /** An entry is about to change: what the open cut has not yet written of it is set aside. */
  #touch(entry) {
    const { place } = entry;
    this.#dirty[place] = 1;
    if (this.#pending !== null && this.#pending[place] !== 0 && entry.saved === undefined && entry.born <= this.#cut()) {
      entry.saved = this.#text(entry);
    }
  }

  #text(entry) {
    const text = JSON.stringify(this.#codec.encode(entry.value));
    if (text !== undefined) return text;
    throw new TypeError(`state ${JSON.stringify(this.name)} of key ${JSON.stringify(decode(entry.key))} is undefined, which JSON cannot hold: delete the key`);
  }

  #cut() {
    return this.#generation - 1;
  }

  // What follows is called by `Segments` only.

  isEmpty(place) {
    return this.#byGroup[place].size === 0;
  }

  isDirty(place) {
    return this.#dirty[place] !== 0;
  }

  /** Takes the cut: `pending` says which groups will be written. */
  beginCut(pending) {
    this.#generation += 1;
    this.#pending = pending.slice();
    this.#removed = Array.from({ length: this.#groups.count }, () => []);
    this.#dirty.fill(0);
  }

  /** Writes a group as it was at the cut, in the order of its keys. */
  *write(place, to) {
    const cut = this.#cut();
    const group = this.#byGroup[place];
    const gone = new Map(this.#removed[place].map((entry) => [entry.key, entry]));
    const keys = [...gone.keys()];
    for (const [key, entry] of group) {
      if (entry.born <= cut) keys.push(key);
    }
    // As strings: by code units, which here are the bytes.
    keys.sort();
    const entries = keys.map((key) => gone.get(key) ?? group.get(key));
    for (let at = 0; at < entries.length; at += LINE_ENTRIES) {
      const items = entries.slice(at, at + LINE_ENTRIES).map((entry) => `${JSON.stringify(entry.key)},${entry.saved ?? this.#text(entry)}`);
      yield* to.line(this.name, this.kind, items);
    }
    this.#forget(place, entries);
  }

  /** The cut is written, or given up. */
  endCut() {
    if (this.#pending === null) return;
    this.#pending.forEach((open, place) => {
      if (open !== 0) this.#forget(place, this.#byGroup[place].values());
    });
    this.#pending = null;
    this.#removed = null;
  }

  #forget(place, entries) {
    this.#pending[place] = 0;
    this.#removed[place] = [];
    for (const entry of entries) entry.saved = undefined;
  }

  /** Takes over a line. */
  read(place, items) {
    if (items.length % 2 !== 0) throw corrupt(`${JSON.stringify(this.name)} has a key without a value`);
    for (let i = 0; i < items.length; i += 2) {
      const key = items[i];
      checkKey(this, this.#groups, place, key, i === 0);
      let value;
      try {
        value = this.#codec.decode(items[i + 1]);
      } catch (error) {
        throw corrupt(`the value of key ${JSON.stringify(key)} in ${JSON.stringify(this.name)} does not decode (${error.message})`);
      }
      const entry = { key, place, value, born: this.#generation, saved: undefined };
      this.#entries.set(key, entry);
      this.#byGroup[place].set(key, entry);
    }
  }

  /** All values as they are written, for a harness that looks whether they come back. */
  *encoded() {
    for (const entry of this.#entries.values()) yield [entry.key, this.#codec.encode(entry.value)];
  }
}

/** Checks a key that was read. Its hash takes long to find with QuickJS: one of a line tells whether the line is where it belongs. */
export function checkKey(part, groups, place, key, thoroughly) {
  if (typeof key !== "string" || /[^\x00-\xff]/.test(key)) {
    throw corrupt(`${JSON.stringify(part.name)} has ${JSON.stringify(key)} where a key should be`);
  }
  if (!thoroughly) return;
  const group = (exactGroupBits(key) * groups.all) >>> 16;
  if (group !== groups.first + place) {
    throw corrupt(`key group ${groups.first + place} of ${JSON.stringify(part.name)} holds a key of group ${group}`);
  }
}
