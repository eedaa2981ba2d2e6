/* XXH3-64 with seed 0 (the algorithm of xxhash.com, version 0.8), by which weir finds the key group of a key. The host hashes the
 * keys of keyed inputs; this is for keys that a restore reads, and for those that an operator makes. */

#include "internal.h"

#define P32_1 0x9E3779B1u
#define P32_2 0x85EBCA77u
#define P32_3 0xC2B2AE3Du
#define P64_1 0x9E3779B185EBCA87u
#define P64_2 0xC2B2AE3D27D4EB4Fu
#define P64_3 0x165667B19E3779F9u
#define P64_4 0x85EBCA77C2B2AE63u
#define P64_5 0x27D4EB2F165667C5u

static const uint8_t secret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9,
    0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78,
    0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6,
    0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f,
    0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
    0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff,
    0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static uint32_t get32(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static uint64_t get64(const uint8_t *from) { return get32(from) | (uint64_t)get32(from + 4) << 32; }

static uint64_t swap64(uint64_t x)
{
    x = (x & 0x00ff00ff00ff00ffu) << 8 | (x >> 8 & 0x00ff00ff00ff00ffu);
    x = (x & 0x0000ffff0000ffffu) << 16 | (x >> 16 & 0x0000ffff0000ffffu);
    return x << 32 | x >> 32;
}

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

/* The two halves of a product of 128 bits, folded together. */
static uint64_t fold(uint64_t a, uint64_t b)
{
    const uint64_t a_low = a & 0xffffffff, a_high = a >> 32, b_low = b & 0xffffffff, b_high = b >> 32;
    const uint64_t low = a_low * b_low, middle = a_high * b_low, other = a_low * b_high;
    const uint64_t cross = (low >> 32) + (middle & 0xffffffff) + other;
    return (cross << 32 | (low & 0xffffffff)) ^ ((middle >> 32) + (cross >> 32) + a_high * b_high);
}

static uint64_t avalanche(uint64_t h)
{
    h ^= h >> 37;
    h *= 0x165667919E3779F9u;
    return h ^ h >> 32;
}

static uint64_t avalanche_64(uint64_t h)
{
    h ^= h >> 33;
    h *= P64_2;
    h ^= h >> 29;
    h *= P64_3;
    return h ^ h >> 32;
}

static uint64_t mix(const uint8_t *in, const uint8_t *key)
{
    return fold(get64(in) ^ get64(key), get64(in + 8) ^ get64(key + 8));
}

static uint64_t hash_short(const uint8_t *in, size_t len)
{
    if (len > 8) {
        const uint64_t low = get64(in) ^ get64(secret + 24) ^ get64(secret + 32);
        const uint64_t high = get64(in + len - 8) ^ get64(secret + 40) ^ get64(secret + 48);
        return avalanche(len + swap64(low) + high + fold(low, high));
    }
    if (len >= 4) {
        uint64_t h = (get32(in + len - 4) + ((uint64_t)get32(in) << 32)) ^ get64(secret + 8) ^ get64(secret + 16);
        h ^= rotate(h, 49) ^ rotate(h, 24);
        h *= 0x9FB21C651E98DF25u;
        h ^= (h >> 35) + len;
        h *= 0x9FB21C651E98DF25u;
        return h ^ h >> 28;
    }
    if (len > 0) {
        const uint32_t all = (uint32_t)in[0] << 16 | (uint32_t)in[len / 2] << 24 | in[len - 1] | (uint32_t)len << 8;
        return avalanche_64(all ^ (uint64_t)(get32(secret) ^ get32(secret + 4)));
    }
    return avalanche_64(get64(secret + 56) ^ get64(secret + 64));
}

static uint64_t hash_middle(const uint8_t *in, size_t len)
{
    uint64_t sum = len * P64_1;
    if (len <= 128) {
        for (size_t i = (len - 1) / 32 + 1; i-- > 0;) {
            sum += mix(in + 16 * i, secret + 32 * i);
            sum += mix(in + len - 16 * (i + 1), secret + 32 * i + 16);
        }
        return avalanche(sum);
    }
    for (size_t i = 0; i < 8; i++) sum += mix(in + 16 * i, secret + 16 * i);
    sum = avalanche(sum);
    for (size_t i = 8; i < len / 16; i++) sum += mix(in + 16 * i, secret + 16 * (i - 8) + 3);
    return avalanche(sum + mix(in + len - 16, secret + 136 - 17));
}

static void accumulate(uint64_t sums[8], const uint8_t *in, const uint8_t *key)
{
    for (size_t i = 0; i < 8; i++) {
        const uint64_t data = get64(in + 8 * i), mixed = data ^ get64(key + 8 * i);
        sums[i ^ 1] += data;
        sums[i] += (mixed & 0xffffffff) * (mixed >> 32);
    }
}

static uint64_t hash_long(const uint8_t *in, size_t len)
{
    enum { STRIPE = 64, STRIPES = 16, BLOCK = STRIPE * STRIPES };
    uint64_t sums[8] = {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};
    const size_t blocks = (len - 1) / BLOCK;
    for (size_t block = 0; block < blocks; block++) {
        for (size_t i = 0; i < STRIPES; i++) accumulate(sums, in + block * BLOCK + i * STRIPE, secret + 8 * i);
        for (size_t i = 0; i < 8; i++) sums[i] = (sums[i] ^ sums[i] >> 47 ^ get64(secret + 128 + 8 * i)) * P32_1;
    }
    const size_t stripes = (len - 1 - blocks * BLOCK) / STRIPE;
    for (size_t i = 0; i < stripes; i++) accumulate(sums, in + blocks * BLOCK + i * STRIPE, secret + 8 * i);
    accumulate(sums, in + len - STRIPE, secret + 128 - 7);
    uint64_t sum = len * P64_1;
    for (size_t i = 0; i < 4; i++) {
        sum += fold(sums[2 * i] ^ get64(secret + 11 + 16 * i), sums[2 * i + 1] ^ get64(secret + 11 + 16 * i + 8));
    }
    return avalanche(sum);
}

uint64_t weir_hash(weir_bytes bytes)
{
    if (bytes.len <= 16) return hash_short(bytes.data, bytes.len);
    if (bytes.len <= 240) return hash_middle(bytes.data, bytes.len);
    return hash_long(bytes.data, bytes.len);
}

weir_key weir_key_of(weir_bytes bytes)
{
    weir_key key;
    key.bytes = bytes.data ? bytes : weir_bytes_of(NULL, 0);
    key.hash = weir_hash(key.bytes);
    return key;
}
