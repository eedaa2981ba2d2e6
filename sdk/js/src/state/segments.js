// Snapshots of the state: which key groups are written, in which step, and how they are read again.
//
// All collections of an operator share one segment for each key group. A group in which anything has changed is written whole, as a base. A snapshot
// is a generator that stops where the host asks to, and goes on where it was: the collections keep what it has not yet written as it was at the cut.

import { ChunkReader, ChunkWriter, corrupt } from "./chunk.js";
import { Cell } from "./cell.js";
import { Groups } from "./key.js";
import { KeyedState } from "./keyed.js";
import { EventTimers } from "./timers.js";

const SCOPES = ["subtask", "shared"];

/** The collections of an operator. Every operator has one: `this.segments`. */
export class Segments {
  #groups;
  #parts = new Map();
  #open = null;
  #rewrite = false;

  /** For the key groups of this subtask. */
  constructor(task) {
    this.#groups = new Groups(task);
  }

  /** A value for each key. It is found again in a snapshot by its name: never change that. */
  keyed(name, options) {
    return this.#part(name, new KeyedState(name, this.#groups, options));
  }

  /** Timers in event time. */
  timers(name) {
    return this.#part(name, new EventTimers(name, this.#groups));
  }

  /** A value of this subtask alone: a job that has one refuses another parallelism. */
  subtask(name, initial, options) {
    return this.#part(name, new Cell(name, "subtask", initial, options));
  }

  /** A value that is the same in all subtasks, as rules that all of them received. */
  shared(name, initial, options) {
    return this.#part(name, new Cell(name, "shared", initial, options));
  }

  /** Makes the next snapshot write everything: after `restore` has read an older state version, whose bytes must not stay. */
  rewrite() {
    this.#rewrite = true;
  }

  /** One step of a snapshot: "more" when the host has asked to stop and something is left. */
  snapshot(cut, writer) {
    if (this.#open?.epoch !== cut.epoch) this.#begin(cut, writer);
    if (this.#open.steps.next().done) {
      this.#end();
      return "done";
    }
    return "more";
  }

  /** Reads all that is left to read. */
  restore(reader) {
    const chunks = new ChunkReader();
    for (const chunk of reader) this.restoreChunk(chunk, chunks);
    chunks.end();
  }

  /** Reads one chunk, for operators that also write segments of their own. `chunks` is one `ChunkReader` for the whole restore. */
  restoreChunk(chunk, chunks) {
    const { scope } = chunk;
    if (scope === "item") throw corrupt('it has a segment of scope "item", which this SDK does not write');
    const place = typeof scope === "number" ? scope - this.#groups.first : null;
    if (place !== null && (place < 0 || place >= this.#groups.count)) {
      throw corrupt(`key group ${scope} is not one of this subtask (${this.#groups.first} to ${this.#groups.first + this.#groups.count - 1})`);
    }
    for (const [name, kind, ...items] of chunks.read(chunk.bytes)) {
      const part = this.#parts.get(name);
      if (part === undefined) throw corrupt(`it holds a collection ${JSON.stringify(name)}, which this plugin does not have`);
      if (part.kind !== kind) throw corrupt(`collection ${JSON.stringify(name)} is of kind ${kind} there, and of kind ${part.kind} in this plugin`);
      if (place !== null && part instanceof Cell) throw corrupt(`collection ${JSON.stringify(name)} lies in a key group`);
      if (place !== null) part.read(place, items);
      else if (part.scope === scope) part.read(items);
      else throw corrupt(`collection ${JSON.stringify(name)} lies in scope ${scope}`);
    }
  }

  /** All collections, for a harness that looks into them. */
  get parts() {
    return [...this.#parts.values()];
  }

  #part(name, part) {
    if (typeof name !== "string" || name === "") throw new TypeError("a collection needs a name, by which it is found again");
    if (this.#parts.has(name)) throw new Error(`two collections are named ${JSON.stringify(name)}: give each its own name`);
    this.#parts.set(name, part);
    return part;
  }

  #begin(cut, writer) {
    // A snapshot that was not done is given up, and the next one has everything.
    const lost = this.#open !== null;
    if (lost) this.#end();
    const everything = lost || this.#rewrite || cut.mode === "full";
    // A full snapshot has no segment but those that are written; in an incremental one a segment that has become empty must be emptied.
    const clears = cut.mode !== "full";
    const rewrites = clears && everything;
    this.#rewrite = false;
    const keyed = this.parts.filter((part) => !(part instanceof Cell));
    const cells = this.parts.filter((part) => part instanceof Cell);
    const pending = Uint8Array.from({ length: this.#groups.count }, (_, place) => {
      if (rewrites) return 1;
      return everything ? keyed.some((part) => !part.isEmpty(place)) : keyed.some((part) => part.isDirty(place));
    });
    const scopes = SCOPES.filter((scope) => {
      const mine = cells.filter((cell) => cell.scope === scope);
      return mine.some((cell) => (everything ? !cell.isEmpty : cell.isDirty));
    });
    for (const part of keyed) part.beginCut(pending);
    for (const cell of cells) cell.beginCut(scopes.includes(cell.scope));
    this.#open = { epoch: cut.epoch, steps: this.#write(writer, pending, scopes, keyed, cells) };
  }

  *#write(writer, pending, scopes, keyed, cells) {
    for (let place = 0; place < pending.length; place++) {
      if (pending[place] === 0) continue;
      const to = new ChunkWriter(writer, this.#groups.first + place);
      for (const part of keyed) yield* part.write(place, to);
      yield* to.end();
    }
    for (const scope of scopes) {
      const to = new ChunkWriter(writer, scope);
      for (const cell of cells.filter((cell) => cell.scope === scope)) yield* cell.write(to);
      yield* to.end();
    }
  }

  #end() {
    for (const part of this.parts) part.endCut();
    this.#open = null;
  }
}
