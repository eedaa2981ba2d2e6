package state

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"
)

// A Codec makes bytes of values of state and reads them back. Equal values must give equal bytes: a checkpoint is verified by making it
// again. When the encoding changes, raise the plugin's StateVersion.
type Codec[V any] interface {
	// Append appends the encoded value.
	Append(to []byte, value *V) ([]byte, error)
	// Decode reads a value, zero before, from exactly the bytes that Append has appended. They are valid for the time of the call.
	Decode(from []byte, into *V) error
}

// Funcs is a codec of two functions.
type Funcs[V any] struct {
	AppendFunc func(to []byte, value *V) ([]byte, error)
	DecodeFunc func(from []byte, into *V) error
}

// Append calls AppendFunc.
func (c Funcs[V]) Append(to []byte, value *V) ([]byte, error) { return c.AppendFunc(to, value) }

// Decode calls DecodeFunc.
func (c Funcs[V]) Decode(from []byte, into *V) error { return c.DecodeFunc(from, into) }

// JSON is the codec that collections have by default: encoding/json, which writes the members of a map in order.
type JSON[V any] struct{}

// Append writes the value as JSON.
func (JSON[V]) Append(to []byte, value *V) ([]byte, error) {
	encoded, err := json.Marshal(value)
	return append(to, encoded...), err
}

// Decode reads it.
func (JSON[V]) Decode(from []byte, into *V) error { return json.Unmarshal(from, into) }

// Codecs for values that are numbers, bytes or text. Numbers take eight bytes, little-endian.
var (
	Uint64  Codec[uint64]  = number[uint64]{func(v uint64) uint64 { return v }, func(w uint64) uint64 { return w }}
	Int64   Codec[int64]   = number[int64]{func(v int64) uint64 { return uint64(v) }, func(w uint64) int64 { return int64(w) }}
	Float64 Codec[float64] = number[float64]{math.Float64bits, math.Float64frombits}
	Bytes   Codec[[]byte]  = Funcs[[]byte]{
		func(to []byte, value *[]byte) ([]byte, error) { return append(to, *value...), nil },
		func(from []byte, into *[]byte) error { *into = append([]byte{}, from...); return nil },
	}
	String Codec[string] = Funcs[string]{
		func(to []byte, value *string) ([]byte, error) { return append(to, *value...), nil },
		func(from []byte, into *string) error {
			if !utf8.Valid(from) {
				return fmt.Errorf("text is not UTF-8: %q", from)
			}
			*into = string(from)
			return nil
		},
	}
)

type number[V any] struct {
	toWord   func(V) uint64
	fromWord func(uint64) V
}

func (c number[V]) Append(to []byte, value *V) ([]byte, error) {
	return binary.LittleEndian.AppendUint64(to, c.toWord(*value)), nil
}

func (c number[V]) Decode(from []byte, into *V) error {
	if len(from) != 8 {
		return fmt.Errorf("a number takes 8 bytes, not %d", len(from))
	}
	*into = c.fromWord(binary.LittleEndian.Uint64(from))
	return nil
}

// nothing is the codec of what has no value.
type nothing[V any] struct{}

func (nothing[V]) Append(to []byte, _ *V) ([]byte, error) { return to, nil }

func (nothing[V]) Decode(from []byte, _ *V) error {
	if len(from) != 0 {
		return fmt.Errorf("nothing takes no bytes, not %d", len(from))
	}
	return nil
}
