// Package runtime gives memory to the host and to the generated bindings.
//
// What the host hands in, the columns of a batch above all, is put into an arena, whose memory is used again for the next call: a
// batch makes no garbage. So what came in is valid until the call returns.
package runtime

import (
	"runtime"
	"unsafe"
)

// Allocate gives zeroed memory that stays where it is until the pinner lets go of it.
func Allocate(pinner *runtime.Pinner, size, align uintptr) unsafe.Pointer {
	if size == 0 {
		return nil
	}
	memory := unsafe.Pointer(unsafe.SliceData(make([]uint64, (size+7)/8)))
	pinner.Pin(memory)
	return memory
}

// Unpin is called by bindings when they have taken over the arguments of a call. They stay in the arena until Release.
func Unpin() {}

const (
	chunkBytesMin  = 64 << 10
	chunkBytesKept = 4 << 20
)

// arena hands out memory from its last chunk; earlier ones are full.
var arena struct {
	chunks [][]uint64
	used   uintptr
}

// Release takes back all that was handed out to the host. What is usual is kept for the next call.
func Release() {
	arena.used = 0
	last := len(arena.chunks) - 1
	if last < 0 {
		return
	}
	largest := arena.chunks[last]
	clear(arena.chunks)
	arena.chunks = arena.chunks[:0]
	if len(largest)*8 <= chunkBytesKept {
		arena.chunks = append(arena.chunks, largest)
	}
}

func allocate(size, align uintptr) unsafe.Pointer {
	if last := len(arena.chunks) - 1; last >= 0 {
		chunk := arena.chunks[last]
		start := (arena.used + align - 1) &^ (align - 1)
		if capacity := uintptr(len(chunk)) * 8; start <= capacity && size <= capacity-start {
			arena.used = start + size
			return unsafe.Add(unsafe.Pointer(unsafe.SliceData(chunk)), start)
		}
	}
	next := max(chunkBytesMin, size)
	if last := len(arena.chunks) - 1; last >= 0 {
		next = max(next, min(uintptr(len(arena.chunks[last]))*16, chunkBytesKept))
	}
	chunk := make([]uint64, (next+7)/8)
	arena.chunks = append(arena.chunks, chunk)
	arena.used = size
	return unsafe.Pointer(unsafe.SliceData(chunk))
}
