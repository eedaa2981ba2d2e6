// Keys, as the collections of the state find them: binary strings, and the key group that they belong to.

import { exactGroupBits } from "../batch.js";
import { decode, encode, fromBinary, toBinary } from "../bytes.js";

/** A key that the state has given back. */
export class Key {
  constructor(keyBinary, bits = undefined) {
    this.keyBinary = keyBinary;
    this.bits = bits;
  }

  /** Its bytes. */
  get bytes() {
    return fromBinary(this.keyBinary);
  }

  /** Its bytes as text. */
  get text() {
    return decode(this.keyBinary);
  }

  /** The 16 bits that choose its key group. */
  get groupBits() {
    return (this.bits ??= exactGroupBits(this.keyBinary));
  }

  toString() {
    return this.text;
  }
}

/** The binary string of what was given as a key: a record, a key of the state, a text or bytes. */
export function binaryOf(key) {
  if (typeof key === "string") return encode(key);
  const binary = key?.keyBinary;
  if (typeof binary === "string") return binary;
  if (key instanceof Uint8Array) return toBinary(key);
  if (binary === null) throw new TypeError(`record ${key.index} has no key, and so no state: reject it, or give another key`);
  throw new TypeError("the key of a state is a record, a key that the state gave, a string or a Uint8Array");
}

/** The key groups of this subtask. They are counted from the first. */
export class Groups {
  constructor(task) {
    this.first = task.firstKeyGroup;
    this.count = task.endKeyGroup - task.firstKeyGroup;
    this.all = task.keyGroups;
  }

  /** The place of a key's group. */
  placeOf(key, binary) {
    const bits = typeof key === "object" && "groupBits" in key ? key.groupBits : exactGroupBits(binary);
    const group = (bits * this.all) >>> 16;
    const place = group - this.first;
    if (place >= 0 && place < this.count) return place;
    throw new RangeError(
      `key ${JSON.stringify(decode(binary))} is of key group ${group}, and this subtask has ${this.first} to ${this.first + this.count - 1}: ` +
        "declare the input port as keyed, and use no other keys than those of its records",
    );
  }

  /** A key of the group at a place. */
  keyAt(binary, place) {
    return new Key(binary, Math.ceil(((this.first + place) * 65536) / this.all));
  }
}
