// One value that belongs to no key: of this subtask alone, or the same for all.

import { json } from "./codecs.js";
import { corrupt } from "./chunk.js";

/** Made by `segments.subtask` and `segments.shared`. */
export class Cell {
  #codec;
  #value;
  #dirty = false;
  #exists = false;
  #cut = undefined;

  constructor(name, scope, initial, { codec = json } = {}) {
    this.name = name;
    this.kind = "value";
    this.scope = scope;
    this.#codec = codec;
    this.#value = initial;
  }

  /** The value, not to be changed. */
  get() {
    return this.#value;
  }

  /** Sets it. */
  set(value) {
    this.#value = value;
    this.#dirty = true;
    this.#exists = true;
  }

  // What follows is called by `Segments` only.

  get isEmpty() {
    return !this.#exists;
  }

  get isDirty() {
    return this.#dirty;
  }

  beginCut(pending) {
    this.#dirty = false;
    this.#cut = pending && this.#exists ? JSON.stringify(this.#codec.encode(this.#value)) : undefined;
  }

  *write(to) {
    if (this.#cut === undefined) return;
    const text = this.#cut;
    this.#cut = undefined;
    yield* to.line(this.name, this.kind, [text]);
  }

  endCut() {
    this.#cut = undefined;
  }

  read(items) {
    if (items.length !== 1) throw corrupt(`${JSON.stringify(this.name)} has ${items.length} values and not one`);
    try {
      this.#value = this.#codec.decode(items[0]);
    } catch (error) {
      throw corrupt(`the value of ${JSON.stringify(this.name)} does not decode (${error.message})`);
    }
    this.#exists = true;
  }

  *encoded() {
    if (this.#exists) yield ["", this.#codec.encode(this.#value)];
  }
}
