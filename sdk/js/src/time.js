// Times, and processing time. A time is a number: microseconds since 1970-01-01T00:00:00Z, exact from the year 1684 to 2255.

import { host } from "./host.js";

/** The event time of a record that has none, as it stands in a column; `record.time` is null then. */
export const NO_TIME = -(2 ** 63);

/** The last watermark of a stream: nothing will come any more. (2^63 - 1, to the precision of a number.) */
export const END_OF_TIME = 2 ** 63;

/** The time at which the host began this call: it stands still within a call, never goes back, and is the same when the call is made again. */
export function now() {
  return host("now").now();
}

/**
 * Asks for a call of `wake` at that time, or at once if it has passed. The host keeps one such time, the earliest asked for, and forgets it
 * when it calls.
 */
export function wakeAt(at) {
  host("wakeAt").wakeAt(checkTime(at, "a time to wake at"));
}

/** The time, if it can be one. */
export function checkTime(time, what) {
  if (Number.isSafeInteger(time) || time === END_OF_TIME) return time;
  throw new RangeError(
    `${what} is ${show(time)}: give microseconds since 1970 as a whole number between -2^53 and 2^53, or END_OF_TIME`,
  );
}

function show(time) {
  return typeof time === "bigint" ? `${time}n` : typeof time === "string" ? JSON.stringify(time) : String(time);
}
