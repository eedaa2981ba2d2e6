// What QuickJS lacks, and what an operator must not have: set up in a component before anything else is loaded.
//
// What is printed goes to the weir log. Time is the host's, which stands still within a call, and chance is refused: the same calls must lead to the
// same results.

import { bytesOf, textOf } from "./bytes.js";
import { hasHost } from "./host.js";
import { write } from "./log.js";
import { now } from "./time.js";

globalThis.console = {
  log: (...what) => write("info", ...what),
  info: (...what) => write("info", ...what),
  debug: (...what) => write("debug", ...what),
  trace: (...what) => write("trace", ...what),
  warn: (...what) => write("warn", ...what),
  error: (...what) => write("error", ...what),
  assert: (holds, ...what) => {
    if (!holds) write("error", "assertion failed:", ...what);
  },
};

function milliseconds(name) {
  if (!hasHost()) throw new Error(`${name}: there is no time while a component is built; ask within a call of the operator`);
  return Math.floor(now() / 1000);
}

const NativeDate = Date;
globalThis.Date = class Date extends NativeDate {
  constructor(...given) {
    if (given.length === 0) super(milliseconds("new Date()"));
    else super(...given);
  }

  static now() {
    return milliseconds("Date.now()");
  }
};
globalThis.performance = { now: () => milliseconds("performance.now()") };

Math.random = () => {
  throw new Error("Math.random() would differ from run to run: derive what you need from task.seed and keep it in the state");
};

globalThis.TextEncoder = class TextEncoder {
  encoding = "utf-8";

  encode(text = "") {
    return bytesOf(String(text));
  }
};

globalThis.TextDecoder = class TextDecoder {
  encoding = "utf-8";

  constructor(label = "utf-8") {
    if (!/^utf-?8$/i.test(label)) throw new RangeError(`TextDecoder knows utf-8, not ${JSON.stringify(label)}`);
  }

  decode(bytes = new Uint8Array(0)) {
    const view = bytes instanceof ArrayBuffer ? new Uint8Array(bytes) : new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return textOf(view).replace(/^\ufeff/, "");
  }
};
