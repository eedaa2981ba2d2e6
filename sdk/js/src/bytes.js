// Bytes, binary strings and text.
//
// A binary string has a character for each byte, of the same number: what `atob` gives. QuickJS has neither TextDecoder nor TextEncoder, and
// a loop over bytes takes it 40 ns for each; but it makes a binary string of a whole column in one native call, and cutting rows out of that is
// cheap. Binary strings compare as their bytes do, so they are also the keys of state.

const NODE = typeof Buffer !== "undefined";

/** The bytes as a binary string. */
export function toBinary(bytes) {
  if (bytes.length === 0) return "";
  return NODE ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).latin1Slice() : atob(bytes.toBase64());
}

/** The bytes of a binary string. */
export function fromBinary(binary) {
  if (binary.length === 0) return new Uint8Array(0);
  if (!NODE) return Uint8Array.fromBase64(btoa(binary));
  if (/[^\x00-\xff]/.test(binary)) throw new RangeError("a binary string has no character beyond 255");
  return new Uint8Array(Buffer.from(binary, "latin1"));
}

/** Whether a text has only characters of ASCII. */
export function isAsciiText(text) {
  return !/[^\x00-\x7f]/.test(text);
}

/** Whether all bytes are below 128. Four at a time: this is asked for whole columns. */
export function isAscii(bytes) {
  const length = bytes.length;
  const whole = length >> 2;
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
  const words = new Int32Array(aligned.buffer, aligned.byteOffset, whole);
  let all = 0;
  for (let i = 0; i < whole; i++) all |= words[i];
  for (let i = whole << 2; i < length; i++) all |= bytes[i];
  return (all & 0x80808080) === 0;
}

/** The text whose UTF-8 a binary string is; what is no UTF-8 becomes U+FFFD. */
export function decode(binary) {
  if (isAsciiText(binary)) return binary;
  try {
    // The one native way from UTF-8 to text that every engine has.
    return decodeURIComponent(escape(binary));
  } catch {
    return decodeLossy(binary);
  }
}

/** The UTF-8 of a text, as a binary string; half a surrogate pair becomes U+FFFD. */
export function encode(text) {
  return isAsciiText(text) ? text : unescape(encodeURIComponent(text.toWellFormed()));
}

/** The text whose UTF-8 these bytes are. */
export function textOf(bytes) {
  return decode(toBinary(bytes));
}

/** The UTF-8 of a text. */
export function bytesOf(text) {
  if (NODE) return new Uint8Array(Buffer.from(text, "utf8"));
  let bytes;
  try {
    // Of text in ASCII, and that is most, this is all; looking at the bytes afterwards is cheaper than at the characters before.
    bytes = Uint8Array.fromBase64(btoa(text));
  } catch {
    return fromBinary(encode(text));
  }
  return isAscii(bytes) ? bytes : fromBinary(encode(text));
}

/** Decodes sequence by sequence: a maximal part of one that is broken becomes one U+FFFD, as everywhere on the Web. */
function decodeLossy(binary) {
  const parts = [];
  let at = 0;
  while (at < binary.length) {
    const first = binary.charCodeAt(at);
    const [more, low, high] = sequence(first);
    let end = at + 1;
    if (more > 0 && inside(binary.charCodeAt(end), low, high)) {
      end += 1;
      while (end < at + 1 + more && inside(binary.charCodeAt(end), 0x80, 0xbf)) end += 1;
    }
    const whole = more >= 0 && end === at + 1 + more;
    parts.push(whole ? decodeURIComponent(escape(binary.slice(at, end))) : "\ufffd");
    at = end;
  }
  return parts.join("");
}

/** How many bytes follow a first one, -1 if it is none, and in which range the second lies. */
function sequence(first) {
  if (first < 0x80) return [0, 0, 0];
  if (first < 0xc2 || first > 0xf4) return [-1, 0, 0];
  if (first < 0xe0) return [1, 0x80, 0xbf];
  if (first < 0xf0) return [2, first === 0xe0 ? 0xa0 : 0x80, first === 0xed ? 0x9f : 0xbf];
  return [3, first === 0xf0 ? 0x90 : 0x80, first === 0xf4 ? 0x8f : 0xbf];
}

function inside(byte, low, high) {
  return byte >= low && byte <= high;
}
