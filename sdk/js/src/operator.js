// What an operator is: the contract of `wit/processor.wit` and `wit/checkpoint.wit` as a class to extend.

import { Segments } from "./state/segments.js";

/**
 * The base of all operators. A call is a transaction: what it emits takes effect when it returns. The host makes one call at a time.
 *
 * `process`, `advance`, `wake`, `finish` and `resume` return nothing when they are done, or "more": then the host passes on what there is and calls
 * `resume`, with no other call in between. A generator says the same by `yield`, and goes on where it was.
 *
 * The same calls must lead to the same results: take time from `now()` and chance from `task.seed`.
 */
export class Operator {
  /** What this plugin is. Every operator has its own. */
  static descriptor = undefined;

  /** Prepares for work. The configuration satisfies the schema of the descriptor. Throw `Failure.invalid` where it makes no sense. */
  constructor(config, task) {
    this.config = config;
    this.task = task;
    /** The state: collections that are made here are in every checkpoint. */
    this.segments = new Segments(task);
  }

  /** Takes a batch that came in on an input port. A record that cannot be processed is not a failure: `out.reject` it and go on. */
  process(port, batch, out) {
    throw new Error(`${this.constructor.name} has no method process(port, batch, out)`);
  }

  /** Event time has moved: all records at or before `watermark` have come, but for late ones. Emit what was waiting for that. */
  advance(watermark, out) {}

  /** Processing time has come to what `wakeAt` asked for, or later; it may also be called when nothing is due. */
  wake(out) {}

  /** An input port has ended. Not called when a job is stopped before its end. */
  finish(port, out) {}

  /** Goes on with a call that returned "more". */
  resume(out) {}

  /** Writes the state as it is at the first call with this epoch. As it stands, it writes the collections of `segments`. */
  snapshot(cut, writer) {
    return this.segments.snapshot(cut, writer);
  }

  /** Takes over state, after the constructor. `stateVersion` is that of the plugin which wrote it. */
  restore(stateVersion, reader) {
    this.segments.restore(reader);
  }
}
