// The bytes of state in a snapshot: lines of JSON, so that whoever looks into a checkpoint can read it.
//
//     weir-js 1
//     ["totals","keyed","k1",{"total":5},"k2",{"total":7}]
//     ["ends","timers",1767225420000000,"k1",1767225480000000,"k2"]
//
// A line is `name, kind` and then what the collection of that name has to say. Keys are binary strings: a character for each byte. A chunk that
// would be too long goes in parts, `weir-js 1 part` and at the end `weir-js 1 last`, which are joined before they are read.

import { bytesOf, textOf } from "../bytes.js";
import { Failure } from "../failure.js";

/** A chunk is written before it gets longer than this. */
export const CHUNK_BYTES = 256 << 10;

/** No chunk is longer: what every host takes. */
const CHUNK_BYTES_MAX = 1 << 20;

const WHOLE = bytesOf("weir-js 1\n");
const PART = bytesOf("weir-js 1 part\n");
const LAST = bytesOf("weir-js 1 last\n");

/** Writes lines as the chunks of one segment, each replaced as a whole. */
export class ChunkWriter {
  constructor(writer, scope) {
    this.writer = writer;
    this.scope = scope;
    this.lines = [];
    this.bytes = 0;
    this.chunks = 0;
    /** Becomes false when the host asks to stop soon. */
    this.goOn = true;
  }

  /** Adds a line: a name, a kind, and items, each the JSON of what stands between two commas. Yields when the host asks to stop. */
  *line(name, kind, items) {
    const bytes = bytesOf(`[${JSON.stringify(name)},${JSON.stringify(kind)},${items.join(",")}]\n`);
    if (bytes.length > CHUNK_BYTES - WHOLE.length && items.length > 1) {
      const half = items.length >> 1;
      yield* this.line(name, kind, items.slice(0, half));
      yield* this.line(name, kind, items.slice(half));
      return;
    }
    if (this.bytes + bytes.length > CHUNK_BYTES - WHOLE.length) yield* this.flush();
    this.lines.push(bytes);
    this.bytes += bytes.length;
  }

  /** Writes what is left. */
  *flush() {
    if (this.lines.length === 0) return;
    const { lines } = this;
    this.lines = [];
    this.bytes = 0;
    const whole = join([WHOLE, ...lines]);
    if (whole.length <= CHUNK_BYTES_MAX) {
      yield* this.#write(whole);
      return;
    }
    // One entry alone: parts of it that any host takes.
    const body = whole.subarray(WHOLE.length);
    const step = CHUNK_BYTES - PART.length;
    for (let at = 0; at < body.length; at += step) {
      const head = at + step < body.length ? PART : LAST;
      yield* this.#write(join([head, body.subarray(at, at + step)]));
    }
  }

  /** Writes what is left, or empties the segment if nothing was written at all. */
  *end() {
    yield* this.flush();
    if (this.chunks === 0) yield* this.#write(new Uint8Array(0));
  }

  *#write(bytes) {
    this.chunks += 1;
    if (!this.writer.write(this.scope, "base", bytes)) yield;
  }
}

function join(pieces) {
  const joined = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    joined.set(piece, at);
    at += piece.length;
  }
  return joined;
}

/** Reads chunks back into lines. One for a whole restore: it keeps the parts of what was too long for a chunk. */
export class ChunkReader {
  #parts = [];

  /** The lines of a chunk; none if it is a part and more follow. */
  read(bytes) {
    if (bytes.length === 0) return [];
    const end = bytes.indexOf(10);
    const head = end < 0 ? "" : textOf(bytes.subarray(0, end + 1));
    let body = bytes.subarray(end + 1);
    if (head === "weir-js 1 part\n" || head === "weir-js 1 last\n") {
      this.#parts.push(body.slice());
      if (head === "weir-js 1 part\n") return [];
      body = join(this.#parts);
      this.#parts = [];
    } else if (head !== "weir-js 1\n") {
      const what = textOf(bytes.subarray(0, Math.min(20, end < 0 ? 20 : end)));
      throw corrupt(`a chunk begins with ${JSON.stringify(what)} and not with "weir-js 1": it was written by another SDK or a newer one`);
    } else if (this.#parts.length > 0) {
      throw corrupt("the last part of an entry is missing");
    }
    return textOf(body)
      .split("\n")
      .filter((line) => line !== "")
      .map(parse);
  }

  /** All has been read. */
  end() {
    if (this.#parts.length > 0) throw corrupt("the last part of an entry is missing");
  }
}

function parse(line) {
  let items;
  try {
    items = JSON.parse(line);
  } catch (error) {
    throw corrupt(`a line of ${line.length} characters is not JSON (${error.message})`);
  }
  if (!Array.isArray(items) || typeof items[0] !== "string" || typeof items[1] !== "string") {
    throw corrupt(`a line begins with ${line.slice(0, 40)} and not with the name and kind of a collection`);
  }
  return items;
}

/** State that cannot be read. */
export function corrupt(what) {
  return Failure.invalid(`state cannot be read: ${what}; go back to a checkpoint and a plugin that fit each other`);
}
