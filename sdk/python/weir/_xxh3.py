"""XXH3-64 with seed 0, the hash by which keys are put into key groups (`wit/types.wit`).

The host gives the hashes of all keys that come in on a keyed input, so this is only needed to look up a key that did not come with a
record, and by the host of tests. It follows the published specification of XXH3 and is written to be read, not to be fast.
"""

from __future__ import annotations

from struct import unpack_from

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF

_PRIME32_1 = 0x9E3779B1
_PRIME32_2 = 0x85EBCA77
_PRIME32_3 = 0xC2B2AE3D
_PRIME64_1 = 0x9E3779B185EBCA87
_PRIME64_2 = 0xC2B2AE3D27D4EB4F
_PRIME64_3 = 0x165667B19E3779F9
_PRIME64_4 = 0x85EBCA77C2B2AE63
_PRIME64_5 = 0x27D4EB2F165667C5
_PRIME_MX1 = 0x165667919E3779F9
_PRIME_MX2 = 0x9FB21C651E98DF25

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fold(a: int, b: int) -> int:
    product = a * b
    return (product & _M64) ^ (product >> 64)


def _swap(number: int) -> int:
    return int.from_bytes(number.to_bytes(8, "little"), "big")


def _avalanche(h: int) -> int:
    h ^= h >> 37
    h = h * _PRIME_MX1 & _M64
    return h ^ (h >> 32)


def _avalanche64(h: int) -> int:
    h ^= h >> 33
    h = h * _PRIME64_2 & _M64
    h ^= h >> 29
    h = h * _PRIME64_3 & _M64
    return h ^ (h >> 32)


def _mix16(data: bytes, at: int, secret: int) -> int:
    return _fold(_u64(data, at) ^ _u64(_SECRET, secret), _u64(data, at + 8) ^ _u64(_SECRET, secret + 8))


def xxh3_64(data: bytes) -> int:
    """The hash of `data`."""
    n = len(data)
    if n <= 16:
        return _up_to_16(data, n)
    if n <= 128:
        acc = n * _PRIME64_1 & _M64
        for i in reversed(range((n - 1) // 32 + 1)):
            acc += _mix16(data, 16 * i, 32 * i) + _mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return _avalanche(acc & _M64)
    if n <= 240:
        acc = n * _PRIME64_1 & _M64
        for i in range(8):
            acc += _mix16(data, 16 * i, 16 * i)
        acc = _avalanche(acc & _M64)
        for i in range(8, n // 16):
            acc += _mix16(data, 16 * i, 16 * (i - 8) + 3)
        acc += _mix16(data, n - 16, 136 - 17)
        return _avalanche(acc & _M64)
    return _long(data, n)


def _up_to_16(data: bytes, n: int) -> int:
    if n > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, n - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        return _avalanche((n + _swap(low) + high + _fold(low, high)) & _M64)
    if n >= 4:
        word = _u32(data, n - 4) + (_u32(data, 0) << 32)
        h = word ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        h ^= (h << 49 | h >> 15) & _M64 ^ (h << 24 | h >> 40) & _M64
        h = h * _PRIME_MX2 & _M64
        h ^= (h >> 35) + n
        h = h * _PRIME_MX2 & _M64
        return h ^ (h >> 28)
    if n > 0:
        word = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return _avalanche64(word ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _avalanche64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _long(data: bytes, n: int) -> int:
    acc = [
        _PRIME32_3,
        _PRIME64_1,
        _PRIME64_2,
        _PRIME64_3,
        _PRIME64_4,
        _PRIME32_2,
        _PRIME64_5,
        _PRIME32_1,
    ]
    stripes_per_block = (len(_SECRET) - 64) // 8
    stripes = (n - 1) // 64
    for stripe in range(stripes):
        place = stripe % stripes_per_block
        _accumulate(acc, data, stripe * 64, place * 8)
        if place == stripes_per_block - 1:
            for i in range(8):
                a = acc[i]
                a ^= a >> 47
                a ^= _u64(_SECRET, len(_SECRET) - 64 + 8 * i)
                acc[i] = a * _PRIME32_1 & _M64
    _accumulate(acc, data, n - 64, len(_SECRET) - 64 - 7)
    h = n * _PRIME64_1 & _M64
    for i in range(4):
        h += _fold(acc[2 * i] ^ _u64(_SECRET, 11 + 16 * i), acc[2 * i + 1] ^ _u64(_SECRET, 11 + 16 * i + 8))
    return _avalanche(h & _M64)


def _accumulate(acc: list[int], data: bytes, at: int, secret: int) -> None:
    words = unpack_from("<8Q", data, at)
    keys = unpack_from("<8Q", _SECRET, secret)
    for i in range(8):
        word = words[i]
        key = word ^ keys[i]
        acc[i ^ 1] = (acc[i ^ 1] + word) & _M64
        acc[i] = (acc[i] + (key & _M32) * (key >> 32)) & _M64
