package runtime

import (
	"testing"
	"unsafe"
)

func TestMemoryIsAlignedAndDisjoint(t *testing.T) {
	Release()
	type piece struct{ start, end uintptr }
	var pieces []piece
	for i := range 2000 {
		align := uintptr(1) << (i % 4)
		size := uintptr(i%97) * align
		start := uintptr(allocate(size, align))
		if start%align != 0 {
			t.Fatalf("memory at %#x is not aligned to %d", start, align)
		}
		for _, other := range pieces {
			if start < other.end && other.start < start+size {
				t.Fatalf("piece %d overlaps an earlier one", i)
			}
		}
		pieces = append(pieces, piece{start, start + size})
	}
}

func TestMemoryIsUsedAgainAfterRelease(t *testing.T) {
	Release()
	first := allocate(100<<10, 8)
	Release()
	if again := allocate(50<<10, 8); again != first {
		t.Errorf("after a release memory comes from %p, not from %p as before", again, first)
	}
	Release()
	if grown := testing.AllocsPerRun(100, func() { allocate(64<<10, 8); Release() }); grown != 0 {
		t.Errorf("a call that needs no more than the one before allocates %v times", grown)
	}
}

func TestWhatIsUnusuallyLargeIsGivenBack(t *testing.T) {
	Release()
	allocate(32<<20, 8)
	Release()
	if len(arena.chunks) != 0 {
		t.Errorf("%d bytes are kept, more than %d", len(arena.chunks[0])*8, chunkBytesKept)
	}
	memory := unsafe.Slice((*byte)(allocate(16, 1)), 16)
	memory[15] = 1
}
