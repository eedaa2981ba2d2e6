// Numbers for people, for what only the plugin knows: the host counts records, bytes, time and failures by itself.

import { host } from "./host.js";

/** Names are 1 to 64 lower-case letters, digits and underscores, at most 256 of them. Call once a batch, not once a record. */
export const metrics = {
  /** Adds to a counter. */
  count(name, delta = 1) {
    if (!Number.isSafeInteger(delta) || delta < 0) {
      throw new RangeError(`counter ${JSON.stringify(name)} cannot grow by ${delta}: give a whole number, 0 or more`);
    }
    host("metrics.count").count(name, delta);
  },
  /** Sets a gauge. */
  gauge(name, value) {
    host("metrics.gauge").gauge(name, Number(value));
  },
  /** Adds an observation to a histogram. */
  observe(name, value) {
    host("metrics.observe").observe(name, Number(value));
  },
};
