// Messages for people. The host adds job, node, subtask and time, cuts a line at 4 KiB and drops what is too much.

import { hasHost, host } from "./host.js";

const LEVELS = ["trace", "debug", "info", "warn", "error"];

/** What was said before there was a host, while the component was built: it is said when the operator is opened. */
const early = [];
const EARLY_MAX = 100;

/** Logs a line; what is no text is shown as `format` shows it. */
export function write(level, ...what) {
  if (!hasHost()) {
    if (early.length < EARLY_MAX) early.push([level, format(what)]);
    return;
  }
  const to = host("log");
  if (level === "error" || to.enabled(level)) to.log(level, format(what));
}

/** Says what was said before there was a host. */
export function writeEarly() {
  for (const [level, message] of early.splice(0)) host("log").log(level, message);
}

export const log = {
  trace: (...what) => write("trace", ...what),
  debug: (...what) => write("debug", ...what),
  info: (...what) => write("info", ...what),
  warn: (...what) => write("warn", ...what),
  error: (...what) => write("error", ...what),
  /** Whether a message of this level would be kept: ask before you spend time on making one. */
  enabled(level) {
    if (!LEVELS.includes(level)) throw new RangeError(`${JSON.stringify(level)} is no level: it is one of ${LEVELS.join(", ")}`);
    return !hasHost() || host("log.enabled").enabled(level);
  },
};

/** Several things as one line. */
export function format(what) {
  return what.map((one) => (typeof one === "string" ? one : show(one, 0))).join(" ");
}

const DEPTH_MAX = 4;
const ITEMS_MAX = 100;

function show(value, depth) {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "function") return `[function ${value.name}]`;
  if (typeof value !== "object" || value === null) return String(value);
  if (value instanceof Error) return describe(value);
  if (typeof value.toJSON === "function") return show(value.toJSON(), depth + 1);
  if (depth >= DEPTH_MAX) return "…";
  const name = value.constructor?.name ?? "";
  if (Array.isArray(value) || ArrayBuffer.isView(value)) return list(name === "Array" ? "" : `${name} `, "[]", [...value], (v) => show(v, depth + 1));
  if (value instanceof Map) return list("Map ", "{}", [...value], ([k, v]) => `${show(k, depth + 1)} => ${show(v, depth + 1)}`);
  if (value instanceof Set) return list("Set ", "{}", [...value], (v) => show(v, depth + 1));
  return list(name === "Object" || name === "" ? "" : `${name} `, "{}", Object.entries(value), ([k, v]) => `${k}: ${show(v, depth + 1)}`);
}

function list(name, brackets, items, each) {
  const shown = items.slice(0, ITEMS_MAX).map(each);
  if (items.length > ITEMS_MAX) shown.push(`… ${items.length - ITEMS_MAX} more`);
  return `${name}${brackets[0]}${shown.join(", ")}${brackets[1]}`;
}

/** An error with where it came from and what caused it, in one line. */
export function describe(error) {
  if (!(error instanceof Error)) return `thrown: ${format([error])}`;
  const frames = String(error.stack ?? "")
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line.startsWith("at "));
  const where = frames.length > 0 ? ` (${frames.slice(0, 6).join("; ")})` : "";
  const cause = error.cause === undefined ? "" : `; caused by ${describe(error.cause)}`;
  return `${error.name}: ${error.message}${where}${cause}`;
}
