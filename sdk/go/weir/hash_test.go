package weir

import "testing"

// The vectors of wit/types.wit.
func TestKeyHashAndKeyGroupMatchTheVectorsOfTheContract(t *testing.T) {
	for _, vector := range []struct {
		key    string
		hash   uint64
		groups [7]uint32
	}{
		{"", 0x2d06800538d394c2, [7]uint32{0, 1, 3, 64, 128, 2048, 16386}},
		{"a", 0xe6c632b61e964e1f, [7]uint32{0, 0, 1, 25, 50, 811, 6491}},
		{"abc", 0x78af5f94892f3950, [7]uint32{0, 0, 2, 47, 95, 1529, 12234}},
	} {
		if hash := KeyHash([]byte(vector.key)); hash != vector.hash {
			t.Errorf("hash of %q is %#x, not %#x", vector.key, hash, vector.hash)
		}
		for i, keyGroups := range []uint32{1, 2, 7, 128, 256, 4096, 32768} {
			if group := KeyGroup(vector.hash, keyGroups); group != vector.groups[i] {
				t.Errorf("group of %q of %d is %d, not %d", vector.key, keyGroups, group, vector.groups[i])
			}
		}
	}
}

// Made by the reference implementation, from bytes of which number i is (7*i + 3) % 256: each way through the function, and each
// border between two.
func TestKeyHashIsThatOfTheReferenceAtAnyLength(t *testing.T) {
	for _, vector := range []struct {
		length int
		hash   uint64
	}{
		{0, 0x2d06800538d394c2},
		{1, 0x13e608bc156defed},
		{2, 0x1c9074b93943b86c},
		{3, 0xa9088dda485b481c},
		{4, 0x6d9253b16c8b1ed3},
		{5, 0x998620e10e3a4b37},
		{8, 0x60539db630471163},
		{9, 0xfeff668361d723a8},
		{15, 0x9ec169f4a98231c1},
		{16, 0xb8c859b0f030b585},
		{17, 0x714a04408e79b80f},
		{31, 0xed41ac283d0674b3},
		{32, 0x19ff4ee1d6ba1a55},
		{33, 0x3e44983ad21679c8},
		{64, 0x287eb1fa9e4be2c1},
		{65, 0x829218de4d798646},
		{96, 0xf084e7cfbc624743},
		{97, 0x1daa83271a8e7b7c},
		{127, 0x998fa0631fd78d0b},
		{128, 0x67425a03650261bf},
		{129, 0xc664bf3311c6abc4},
		{144, 0x606a17fa700bb932},
		{160, 0xd70dea8de694b883},
		{239, 0x1d861931c1f3cafa},
		{240, 0x64556dc6b462a6cf},
		{241, 0x8beadd3a8874fe17},
		{256, 0x3c38817f6d79c0da},
		{511, 0xe3fca5c97aa72e1b},
		{512, 0xf58202b8d9019d1d},
		{513, 0xb14f40af8c0a4286},
		{1023, 0xd26986a0b85dcc44},
		{1024, 0x9b81661c641c72b1},
		{1025, 0x806c2072ed713576},
		{1088, 0x2f8781e01841f0da},
		{1089, 0x2a90437fe231e7e8},
		{4096, 0xd7428746842be37e},
		{10000, 0xfcd0ecba1a48462d},
	} {
		key := make([]byte, vector.length)
		for i := range key {
			key[i] = byte(7*i + 3)
		}
		if hash := KeyHash(key); hash != vector.hash {
			t.Errorf("hash of %d bytes is %#x, not %#x", vector.length, hash, vector.hash)
		}
	}
}
