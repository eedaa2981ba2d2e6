//go:build wasm

package runtime

import "unsafe"

// started is set when the Go runtime is ready to allocate. Before that memory comes from early.
var started bool

func init() { started = true }

var early struct {
	memory [8 << 10]uint64
	used   uintptr
}

// reallocate is what the host calls for the memory of an argument.
//
//go:wasmexport cabi_realloc
func reallocate(old unsafe.Pointer, oldSize, align, size uintptr) unsafe.Pointer {
	if !started {
		start := (early.used + align - 1) &^ (align - 1)
		if size > unsafe.Sizeof(early.memory)-start {
			return nil
		}
		early.used = start + size
		return unsafe.Add(unsafe.Pointer(&early.memory), start)
	}
	memory := allocate(size, align)
	if oldSize > 0 {
		copy(unsafe.Slice((*byte)(memory), size), unsafe.Slice((*byte)(old), min(oldSize, size)))
	}
	return memory
}
