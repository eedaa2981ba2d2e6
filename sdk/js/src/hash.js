// XXH3-64 with seed 0 (the hash of keys in wit/types.wit), for the few keys whose hash the host did not give, and key groups.
//
// Written for being right, not fast: in a component the host gives the hashes of keyed inputs.

const M64 = (1n << 64n) - 1n;
const P32_1 = 0x9e3779b1n;
const P32_2 = 0x85ebca77n;
const P32_3 = 0xc2b2ae3dn;
const P64_1 = 0x9e3779b185ebca87n;
const P64_2 = 0xc2b2ae3d27d4eb4fn;
const P64_3 = 0x165667b19e3779f9n;
const P64_4 = 0x85ebca77c2b2ae63n;
const P64_5 = 0x27d4eb2f165667c5n;
const PMX1 = 0x165667919e3779f9n;
const PMX2 = 0x9fb21c651e98df25n;

const SECRET = new DataView(
  Uint8Array.from(
    (
      "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c" +
      "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364" +
      "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ).match(/../g),
    (pair) => parseInt(pair, 16),
  ).buffer,
);

const secret64 = (at) => SECRET.getBigUint64(at, true);
const secret32 = (at) => BigInt(SECRET.getUint32(at, true));

/** The hash of a key, as a BigInt. */
export function keyHash(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const length = bytes.length;
  if (length <= 16) return short(view, length);
  if (length <= 128) return upTo128(view, length);
  if (length <= 240) return upTo240(view, length);
  return long(view, length);
}

function short(view, length) {
  const n = BigInt(length);
  if (length > 8) {
    const low = view.getBigUint64(0, true) ^ (secret64(24) ^ secret64(32));
    const high = view.getBigUint64(length - 8, true) ^ (secret64(40) ^ secret64(48));
    return avalanche((n + swap64(low) + high + fold(low, high)) & M64);
  }
  if (length >= 4) {
    const first = BigInt(view.getUint32(0, true));
    const last = BigInt(view.getUint32(length - 4, true));
    let h = (last + (first << 32n)) ^ (secret64(8) ^ secret64(16));
    h ^= rotate(h, 49n) ^ rotate(h, 24n);
    h = (h * PMX2) & M64;
    h ^= (h >> 35n) + n;
    h = (h * PMX2) & M64;
    return h ^ (h >> 28n);
  }
  if (length > 0) {
    const [a, b, c] = [view.getUint8(0), view.getUint8(length >> 1), view.getUint8(length - 1)].map(BigInt);
    const combined = (a << 16n) | (b << 24n) | c | (n << 8n);
    return avalanche64(combined ^ secret32(0) ^ secret32(4));
  }
  return avalanche64(secret64(56) ^ secret64(64));
}

function upTo128(view, length) {
  let sum = (BigInt(length) * P64_1) & M64;
  for (let i = Math.floor((length - 1) / 32); i >= 0; i--) {
    sum += mix16(view, 16 * i, 32 * i) + mix16(view, length - 16 * (i + 1), 32 * i + 16);
  }
  return avalanche(sum & M64);
}

function upTo240(view, length) {
  let sum = (BigInt(length) * P64_1) & M64;
  for (let i = 0; i < 8; i++) sum += mix16(view, 16 * i, 16 * i);
  sum = avalanche(sum & M64);
  for (let i = 8; i < Math.floor(length / 16); i++) sum += mix16(view, 16 * i, 16 * (i - 8) + 3);
  sum += mix16(view, length - 16, 136 - 17);
  return avalanche(sum & M64);
}

function long(view, length) {
  const lanes = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1];
  const stripes = (192 - 64) / 8;
  const block = 64 * stripes;
  const blocks = Math.floor((length - 1) / block);
  for (let b = 0; b < blocks; b++) {
    for (let s = 0; s < stripes; s++) stripe(lanes, view, b * block + s * 64, s * 8);
    for (let i = 0; i < 8; i++) {
      lanes[i] = ((lanes[i] ^ (lanes[i] >> 47n) ^ secret64(192 - 64 + 8 * i)) * P32_1) & M64;
    }
  }
  const left = Math.floor((length - 1 - block * blocks) / 64);
  for (let s = 0; s < left; s++) stripe(lanes, view, blocks * block + s * 64, s * 8);
  stripe(lanes, view, length - 64, 192 - 64 - 7);
  let sum = (BigInt(length) * P64_1) & M64;
  for (let i = 0; i < 4; i++) {
    sum += fold(lanes[2 * i] ^ secret64(11 + 16 * i), lanes[2 * i + 1] ^ secret64(11 + 16 * i + 8));
  }
  return avalanche(sum & M64);
}

function stripe(lanes, view, at, secretAt) {
  for (let i = 0; i < 8; i++) {
    const data = view.getBigUint64(at + 8 * i, true);
    const keyed = data ^ secret64(secretAt + 8 * i);
    lanes[i ^ 1] = (lanes[i ^ 1] + data) & M64;
    lanes[i] = (lanes[i] + (keyed & 0xffffffffn) * (keyed >> 32n)) & M64;
  }
}

function mix16(view, at, secretAt) {
  return fold(view.getBigUint64(at, true) ^ secret64(secretAt), view.getBigUint64(at + 8, true) ^ secret64(secretAt + 8));
}

function fold(a, b) {
  const product = a * b;
  return (product & M64) ^ (product >> 64n);
}

function avalanche(h) {
  h ^= h >> 37n;
  h = (h * PMX1) & M64;
  return h ^ (h >> 32n);
}

function avalanche64(h) {
  h ^= h >> 33n;
  h = (h * P64_2) & M64;
  h ^= h >> 29n;
  h = (h * P64_3) & M64;
  return h ^ (h >> 32n);
}

function rotate(x, bits) {
  return ((x << bits) | (x >> (64n - bits))) & M64;
}

function swap64(x) {
  let swapped = 0n;
  for (let i = 0n; i < 64n; i += 8n) swapped = (swapped << 8n) | ((x >> i) & 0xffn);
  return swapped;
}

/** The key group of a hash: `(((hash >> 32) & 0xffff) * keyGroups) >> 16`. */
export function keyGroup(hash, keyGroups) {
  return (Number((hash >> 32n) & 0xffffn) * keyGroups) >>> 16;
}

const HALF = 2 ** 32;

/**
 * The 16 bits of a hash that choose its key group, where the hash is a number as the bindings give it; -1 where that does not tell.
 *
 * The bindings round a hash to the 53 bits of a number, and give the last 2^31 of them as what they would be with a sign. Rounding can
 * only have touched bit 32 if all bits below it are 0 afterwards: once in two million keys.
 */
export function groupBits(hash) {
  if (hash < 0) return 0xffff;
  const high = hash / HALF;
  const whole = Math.floor(high);
  if (whole === high && whole >= 2 ** 21) return -1;
  return whole & 0xffff;
}

/** A hash as the bindings give it: for the harness, which plays the host. */
export function hashNumber(hash) {
  const signed = BigInt.asIntN(64, hash);
  return signed >= -(2n ** 31n) && signed < 0n ? Number(signed) : Number(hash);
}
