// Package host is what an operator can ask its host for: the imports of the contract, one method each. In a component they are
// those of weir; in tests they are those of package weirtest.
package host

import "fmt"

// A Batch is the record of the contract: columns, as in wit/types.wit.
type Batch struct {
	Timestamps    []int64
	Hashes        []uint64
	KeyOffsets    []uint32
	Keys          []byte
	KeyNulls      []byte
	ValueOffsets  []uint32
	Values        []byte
	ValueNulls    []byte
	HeaderOffsets []uint32
	Headers       []byte
}

// A Segment says where a chunk of state belongs.
type Segment struct {
	Scope uint8
	// The key group, where the scope is one.
	Group uint32
	Kind  uint8
}

// A Chunk is a piece of state.
type Chunk struct {
	Source Segment
	Origin uint32
	Data   []byte
}

// Host has the functions that the contract imports. What is handed over is valid for the time of the call.
type Host interface {
	Emit(port uint32, batch *Batch)
	Reject(index uint32, reason string)
	RejectBatch(batch *Batch, reason string)
	Log(level uint8, message string)
	LogEnabled(level uint8) bool
	Count(name string, delta uint64)
	Gauge(name string, value float64)
	Observe(name string, value float64)
	Now() int64
	WakeAt(at int64)
	Write(target Segment, data []byte) bool
	Read() (Chunk, bool)
}

// Current is the host of the call that is running.
var Current Host

// For gives the current host to a function of the SDK. Without one it panics: the function was called outside of a call.
func For(function string) Host {
	if Current == nil {
		panic(fmt.Sprintf("%s was called outside of a call from the host: in tests, go through weirtest.Harness", function))
	}
	return Current
}
