// Makes the exports of a component of an operator: the one instance, the calls from the host, and a word in the log before a trap.

import { Batch } from "./batch.js";
import { toWit } from "./descriptor.js";
import { Failure } from "./failure.js";
import { host, install } from "./host.js";
import { describe, writeEarly } from "./log.js";
import { Operator } from "./operator.js";
import { Output } from "./output.js";
import { faults } from "./schema.js";
import { SnapshotReader, SnapshotWriter } from "./snapshot.js";

/** The exports, as the bindings want them: one object for each interface. `imports` is what the host offers. */
export function component(Type, imports) {
  if (typeof Type !== "function" || !(Type.prototype instanceof Operator)) {
    throw new TypeError("the module of an operator has it as its default export: `export default class … extends Operator`");
  }
  const out = new Output();
  let operator = null;
  // What is left of a call that is a generator.
  let rest = null;

  /** Calls the operator. A trap says no more than "unreachable": an error that is no failure is logged first, and that becomes the reason. */
  function call(name, run) {
    const before = install(imports);
    try {
      return run();
    } catch (error) {
      if (!(error instanceof Failure)) host(name).log("error", `${name} failed: ${describe(error)}`);
      throw error;
    } finally {
      install(before);
    }
  }

  function progress(name, result) {
    if (result === undefined || result === "done" || result === "more") return result ?? "done";
    if (typeof result.next === "function") {
      rest = result;
      return goOn();
    }
    const what = typeof result.then === "function" ? "a promise: an operator works without async and await" : JSON.stringify(result);
    throw new TypeError(`${name} returned ${what}; it returns nothing, "done" or "more", or is a generator`);
  }

  function goOn() {
    const steps = rest;
    // Done, or failed: either way there is nothing left of it.
    rest = null;
    if (steps.next().done) return "done";
    rest = steps;
    return "more";
  }

  function data(name, run) {
    return call(name, () => {
      rest = null;
      out.begin();
      return progress(name, run());
    });
  }

  const processor = {
    describe: () => call("describe", () => toWit(Type.descriptor)),
    open(text, task) {
      call("open", () => {
        writeEarly();
        operator = new Type(configuration(text, Type.descriptor.configSchema), task);
      });
    },
    process: (port, input) => data("process", () => operator.process(port, Batch.fromWit(input), out)),
    advance: (watermark) => data("advance", () => operator.advance(watermark, out)),
    wake: () => data("wake", () => operator.wake(out)),
    finish: (port) => data("finish", () => operator.finish(port, out)),
    resume() {
      if (rest === null) return data("resume", () => operator.resume(out));
      return call("resume", () => {
        out.begin();
        try {
          return goOn();
        } catch (error) {
          if (!(error instanceof Failure) || error.kind !== "retry") throw error;
          throw Failure.fatal(`${error.message} (a generator that has yielded cannot be tried again: fail before its first yield)`);
        }
      });
    },
  };
  const checkpoint = {
    snapshot: (epoch, mode) => call("snapshot", () => operator.snapshot({ epoch, mode }, new SnapshotWriter()) ?? "done"),
    restore(stateVersion) {
      call("restore", () => operator.restore(stateVersion, new SnapshotReader()));
    },
  };
  // The operator itself is for the harness.
  return { processor, checkpoint, instance: () => operator };
}

function configuration(text, schema) {
  const config = JSON.parse(text);
  const found = schema === undefined ? [] : faults(config, schema);
  if (found.length > 0) throw Failure.invalid(`configuration is not acceptable: ${found.join("; ")}`);
  return config;
}
