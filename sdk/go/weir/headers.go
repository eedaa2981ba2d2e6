package weir

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
)

// Headers are the headers of a record: names and values, in order; a name may come more than once.
type Headers struct {
	encoded []byte
}

// All goes through them.
func (h Headers) All() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		rest := h.encoded
		for {
			name, value, after, ok := splitHeader(rest)
			if !ok || !yield(string(name), value) {
				return
			}
			rest = after
		}
	}
}

// Get gives the first header of that name, nil if there is none.
func (h Headers) Get(name string) []byte {
	rest := h.encoded
	for {
		found, value, after, ok := splitHeader(rest)
		if !ok {
			return nil
		}
		if string(found) == name {
			return value
		}
		rest = after
	}
}

// splitHeader takes the first header off; the host has seen to it that the bytes can be read.
func splitHeader(from []byte) (name, value, rest []byte, ok bool) {
	if len(from) < 2 {
		return nil, nil, nil, false
	}
	nameEnd := 2 + int(binary.LittleEndian.Uint16(from))
	if len(from) < nameEnd+4 {
		return nil, nil, nil, false
	}
	valueEnd := nameEnd + 4 + int(binary.LittleEndian.Uint32(from[nameEnd:]))
	if len(from) < valueEnd {
		return nil, nil, nil, false
	}
	return from[2:nameEnd], from[nameEnd+4 : valueEnd : valueEnd], from[valueEnd:], true
}

func appendHeader(to []byte, name string, value []byte) []byte {
	if len(name) > math.MaxUint16 {
		panic(fmt.Sprintf("the name of a header has %d bytes, more than %d", len(name), math.MaxUint16))
	}
	to = binary.LittleEndian.AppendUint16(to, uint16(len(name)))
	to = append(to, name...)
	to = binary.LittleEndian.AppendUint32(to, uint32(len(value)))
	return append(to, value...)
}
