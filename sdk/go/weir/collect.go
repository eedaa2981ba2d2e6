//go:build wasip1

package weir

// Garbage collection. The collector of Go relies on workers in the background to bring a cycle to its end, and here there is no
// background: nothing runs but the calls of the host, and a cycle that was begun in one may stay open for ever while memory grows. So cycles are
// run as a whole, between calls, when memory has doubled. That of Go itself stays on, for a single call that makes very much
// garbage.

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// The collector of Go begins a cycle when memory has grown by so much, which it seldom comes to.
	automaticPercent = 400
	// Less is not worth a cycle.
	heapBytesMin = 8 << 20
)

var collector = struct {
	objects [1]metrics.Sample
	// limit is how many bytes of objects there may be before the next cycle.
	limit uint64
}{
	objects: [1]metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}},
	limit:   heapBytesMin,
}

func init() { debug.SetGCPercent(automaticPercent) }

// collect runs a cycle if memory has doubled since the last.
func collect() {
	if objectBytes() > collector.limit {
		runtime.GC()
		collector.limit = max(heapBytesMin, 2*objectBytes())
	}
}

func objectBytes() uint64 {
	metrics.Read(collector.objects[:])
	return collector.objects[0].Value.Uint64()
}
