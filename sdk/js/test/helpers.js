// What the tests share.

import { Operator } from "../src/index.js";

/** An operator with one keyed input and output, made of its methods and collections. */
export function operator(methods, setUp = () => {}, descriptor = {}) {
  class Made extends Operator {
    static descriptor = {
      name: "made",
      version: "1.0.0",
      inputs: [{ name: "in", keyed: true }],
      outputs: [{ name: "out" }],
      state: "keyed",
      ...descriptor,
    };

    constructor(config, task) {
      super(config, task);
      setUp.call(this, config, task);
    }
  }
  for (const [name, method] of Object.entries(methods)) Made.prototype[name] = method;
  return Made;
}

/** The bytes of all segments of a checkpoint, as text, by place. */
export function contents(checkpoint) {
  return checkpoint.chunks().map(({ source, data }) => [source.scope.val ?? source.scope.tag, Buffer.from(data).toString()]);
}
