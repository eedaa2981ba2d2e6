package weir

import (
	"encoding/binary"
	"math/bits"
)

// A Key is a key with its hash. [Record.Keyed] has the hash that the host gave.
type Key struct {
	Bytes []byte
	Hash  uint64
}

// KeyOf hashes a key.
func KeyOf(key []byte) Key { return Key{Bytes: key, Hash: KeyHash(key)} }

// KeyGroup is the key group of a hash, of so many.
func KeyGroup(hash uint64, keyGroups uint32) uint32 {
	return uint32((hash >> 32 & 0xffff) * uint64(keyGroups) >> 16)
}

// KeyHash is the hash of a key: XXH3-64 with seed 0. On a keyed input the host has done this already: see [Record.Hash].
func KeyHash(key []byte) uint64 {
	switch length := len(key); {
	case length == 0:
		return avalanche64(secret(56) ^ secret(64))
	case length <= 3:
		word := uint64(key[0])<<16 | uint64(key[length>>1])<<24 | uint64(key[length-1]) | uint64(length)<<8
		return avalanche64(word ^ (secret(0)&0xffff_ffff ^ secret(4)&0xffff_ffff))
	case length <= 8:
		word := uint64(binary.LittleEndian.Uint32(key[length-4:])) + uint64(binary.LittleEndian.Uint32(key))<<32
		word ^= secret(8) ^ secret(16)
		word ^= bits.RotateLeft64(word, 49) ^ bits.RotateLeft64(word, 24)
		word *= 0x9fb21c651e98df25
		word ^= word>>35 + uint64(length)
		word *= 0x9fb21c651e98df25
		return word ^ word>>28
	case length <= 16:
		low := load(key, 0) ^ secret(24) ^ secret(32)
		high := load(key, length-8) ^ secret(40) ^ secret(48)
		return avalanche(uint64(length) + bits.ReverseBytes64(low) + high + fold(low, high))
	case length <= 128:
		sum := uint64(length) * prime64_1
		for i := (length - 1) / 32; i >= 0; i-- {
			sum += mix16(key, 16*i, 32*i) + mix16(key, length-16*(i+1), 32*i+16)
		}
		return avalanche(sum)
	case length <= 240:
		sum := uint64(length) * prime64_1
		for i := range 8 {
			sum += mix16(key, 16*i, 16*i)
		}
		sum = avalanche(sum)
		for i := 8; i < length/16; i++ {
			sum += mix16(key, 16*i, 16*(i-8)+3)
		}
		return avalanche(sum + mix16(key, length-16, 136-17))
	default:
		return hashLong(key)
	}
}

const (
	prime32_1 = 0x9e3779b1
	prime32_2 = 0x85ebca77
	prime32_3 = 0xc2b2ae3d
	prime64_1 = 0x9e3779b185ebca87
	prime64_2 = 0xc2b2ae3d27d4eb4f
	prime64_3 = 0x165667b19e3779f9
	prime64_4 = 0x85ebca77c2b2ae63
	prime64_5 = 0x27d4eb2f165667c5
)

// hashLong takes stripes of 64 bytes; after each block of 16 it scrambles.
func hashLong(key []byte) uint64 {
	lanes := [8]uint64{prime32_3, prime64_1, prime64_2, prime64_3, prime64_4, prime32_2, prime64_5, prime32_1}
	const stripesPerBlock = (len(secretBytes) - 64) / 8
	stripes := (len(key) - 1) / 64
	for stripe := range stripes {
		inBlock := stripe % stripesPerBlock
		accumulate(&lanes, key[64*stripe:], 8*inBlock)
		if inBlock == stripesPerBlock-1 {
			for i, lane := range lanes {
				lane ^= lane>>47 ^ secret(len(secretBytes)-64+8*i)
				lanes[i] = lane * prime32_1
			}
		}
	}
	accumulate(&lanes, key[len(key)-64:], len(secretBytes)-64-7)
	sum := uint64(len(key)) * prime64_1
	for i := range 4 {
		sum += fold(lanes[2*i]^secret(11+16*i), lanes[2*i+1]^secret(11+16*i+8))
	}
	return avalanche(sum)
}

func accumulate(lanes *[8]uint64, stripe []byte, at int) {
	for i := range lanes {
		data := load(stripe, 8*i)
		keyed := data ^ secret(at+8*i)
		lanes[i^1] += data
		lanes[i] += (keyed & 0xffff_ffff) * (keyed >> 32)
	}
}

func mix16(key []byte, at, secretAt int) uint64 {
	return fold(load(key, at)^secret(secretAt), load(key, at+8)^secret(secretAt+8))
}

func fold(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

func avalanche(word uint64) uint64 {
	word ^= word >> 37
	word *= 0x165667919e3779f9
	return word ^ word>>32
}

func avalanche64(word uint64) uint64 {
	word ^= word >> 33
	word *= prime64_2
	word ^= word >> 29
	word *= prime64_3
	return word ^ word>>32
}

func load(from []byte, at int) uint64 { return binary.LittleEndian.Uint64(from[at:]) }

func secret(at int) uint64 { return binary.LittleEndian.Uint64(secretBytes[at:]) }

// secretBytes are the constant that XXH3 is defined with.
var secretBytes = [192]byte{
	0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
	0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
	0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
	0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
	0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
	0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
	0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
	0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
	0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
	0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
	0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
	0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
}
