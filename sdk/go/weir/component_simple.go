//go:build wasip1 && simple_operator

package weir

import (
	_ "github.com/weir-stream/weir/sdk/go/internal/bind/simple"
	"github.com/weir-stream/weir/sdk/go/internal/host"
)

// fitsWorld has nothing to refuse: the host keeps all memory.
func fitsWorld(*Plugin) error { return nil }

func (componentHost) Write(host.Segment, []byte) bool {
	panic("a simple operator does not write its state: the host keeps its memory")
}

func (componentHost) Read() (host.Chunk, bool) {
	panic("a simple operator does not read its state: the host keeps its memory")
}
