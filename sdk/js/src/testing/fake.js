// The host of tests: keeps what an operator says, and refuses what the real one refuses.

import { encode } from "../bytes.js";
import { Batch } from "../batch.js";
import { rowsOf } from "./row.js";

const REASON_BYTES = 1024;
const CHUNK_BYTES = 1 << 20;
const METRICS = 256;
const LOG_BYTES = 4096;
const DATA = ["process", "advance", "wake", "finish", "resume"];

/** A trap: what ends an instance. */
export class Trap extends Error {
  name = "Trap";
}

export class FakeHost {
  call = "describe";
  input = [];
  emitted = [];
  rejected = [];
  logged = [];
  metrics = new Map();
  time = 0;
  asked = null;
  written = [];
  budget = 0;
  unread = [];

  constructor(subtask) {
    this.subtask = subtask;
    this.outputs = [];
    /** What the operator is given to call. */
    this.imports = Object.fromEntries(IMPORTS.map((name) => [name, this[name].bind(this)]));
  }

  /** A call begins: what an earlier one left that failed is dropped. */
  begin(call) {
    this.call = call;
    this.emitted = [];
    this.rejected = [];
    this.asked = null;
  }

  #allow(what, calls) {
    if (!calls.includes(this.call)) throw new Trap(`${what} is not allowed in ${this.call}: it is in ${calls.join(", ")}`);
  }

  emit(port, wit) {
    this.#allow("output.emit", DATA);
    const output = this.outputs[port];
    if (output === undefined) throw new Trap(`there is no output port ${port}: the descriptor has ${this.outputs.length}`);
    const rows = this.#rows(wit);
    if (output.keyed && rows.some((one) => one.key === undefined)) throw new Trap(`output port ${port} is keyed, and a record has no key`);
    this.emitted.push([port, rows]);
  }

  reject(index, reason) {
    this.#allow("output.reject", ["process"]);
    if (this.input[index] === undefined) throw new Trap(`there is no record ${index} in this batch of ${this.input.length}`);
    this.rejected.push([this.input[index], cut(reason, REASON_BYTES)]);
  }

  rejectBatch(wit, reason) {
    this.#allow("output.reject-batch", DATA);
    for (const one of this.#rows(wit)) this.rejected.push([one, cut(reason, REASON_BYTES)]);
  }

  #rows(wit) {
    const batch = Batch.fromWit(wit);
    for (const name of ["keys", "values", "headers"]) {
      const fault = batch[name].fault(batch.length);
      if (fault !== null) throw new Trap(`column ${name} of a batch is malformed: ${fault}`);
    }
    return rowsOf(wit);
  }

  log(level, message) {
    this.logged.push([level, cut(message, LOG_BYTES)]);
  }

  enabled() {
    return true;
  }

  count(name, delta) {
    this.#metric(name, (this.metrics.get(name) ?? 0) + delta);
  }

  gauge(name, value) {
    this.#metric(name, value);
  }

  observe(name, value) {
    this.#metric(name, value);
  }

  #metric(name, value) {
    if (!/^[a-z0-9_]{1,64}$/.test(name)) throw new Error(`${JSON.stringify(name)} is no name of a metric: the host drops it; give 1 to 64 of a-z, 0-9 and _`);
    this.metrics.set(name, value);
    if (this.metrics.size > METRICS) throw new Error(`more than ${METRICS} metrics: the host drops ${JSON.stringify(name)}`);
  }

  now() {
    return this.call === "open" || this.call === "describe" ? 0 : this.time;
  }

  wakeAt(at) {
    this.#allow("timers.wake-at", DATA);
    this.asked = this.asked === null ? at : Math.min(this.asked, at);
  }

  write(source, data) {
    this.#allow("snapshots.write", ["snapshot"]);
    if (data.length > CHUNK_BYTES) throw new Trap(`a chunk of ${data.length} bytes: a host may take no more than ${CHUNK_BYTES}`);
    // The instance may use its memory again.
    this.written.push({ source, origin: this.subtask, data: data.slice() });
    this.budget -= 1;
    return this.budget > 0;
  }

  read() {
    this.#allow("snapshots.read", ["restore"]);
    return this.unread.shift() ?? null;
  }
}

const IMPORTS = ["emit", "reject", "rejectBatch", "log", "enabled", "count", "gauge", "observe", "now", "wakeAt", "write", "read"];

/** A text, cut at the boundary of a character. */
function cut(text, bytes) {
  if (encode(text).length <= bytes) return text;
  let length = 0;
  let kept = "";
  for (const character of text) {
    length += encode(character).length;
    if (length > bytes) break;
    kept += character;
  }
  return kept;
}
