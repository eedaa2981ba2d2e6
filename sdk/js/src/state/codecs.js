// How a value of the state becomes JSON and comes back.

import { fromBinary, toBinary } from "../bytes.js";

/** Values that JSON can hold: objects, arrays, strings, finite numbers, true, false, null. */
export const json = { encode: (value) => value, decode: (encoded) => encoded };

/** Byte strings: Uint8Array. */
export const bytes = { encode: toBinary, decode: fromBinary };

/** BigInts. */
export const bigint = { encode: (value) => value.toString(), decode: (encoded) => BigInt(encoded) };

/** Maps whose keys and values JSON can hold, in their order. */
export const map = { encode: (value) => [...value], decode: (encoded) => new Map(encoded) };

/** Sets whose members JSON can hold, in their order. */
export const set = { encode: (value) => [...value], decode: (encoded) => new Set(encoded) };
