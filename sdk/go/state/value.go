package state

import (
	"fmt"

	"github.com/weir-stream/weir/sdk/go/weir"
)

// Value is one value, of the subtask or shared by all. It is for small things: all values of a scope are written together, at once.
type Value[V any] struct {
	name  string
	scope weir.Scope
	codec Codec[V]
	value V
	// set says that there is something to write, touched that it differs from what was cut last.
	set, touched bool
}

// A value is what Segments does with one.
type value interface {
	valueName() string
	valueScope() weir.Scope
	isSet() bool
	isTouched() bool
	write(to *chunkWriter) error
	read(section *section) error
}

// NewValue makes a value that is zero, of scope weir.ScopeSubtask (the job then refuses to start with another parallelism) or
// weir.ScopeShared (every subtask must hold the same: after a change of the parallelism each gets one of them). It is kept as JSON, and
// found again in a snapshot by its name.
func NewValue[V any](segments *Segments, name string, scope weir.Scope) *Value[V] {
	return NewValueWith(segments, name, scope, Codec[V](JSON[V]{}))
}

// NewValueWith is NewValue with another codec.
func NewValueWith[V any](segments *Segments, name string, scope weir.Scope, codec Codec[V]) *Value[V] {
	if scope != weir.ScopeSubtask && scope != weir.ScopeShared {
		panic(fmt.Sprintf("value %q is of scope %v: a value is of the subtask or shared", name, scope))
	}
	v := &Value[V]{name: name, scope: scope, codec: codec}
	segments.checkName(name)
	segments.values = append(segments.values, v)
	return v
}

// Get gives a copy of the value.
func (v *Value[V]) Get() V { return v.value }

// Set sets it.
func (v *Value[V]) Set(value V) { *v.Change() = value }

// Change gives the value, to be changed in the same call.
func (v *Value[V]) Change() *V {
	v.set, v.touched = true, true
	return &v.value
}

func (v *Value[V]) valueName() string      { return v.name }
func (v *Value[V]) valueScope() weir.Scope { return v.scope }
func (v *Value[V]) isSet() bool            { return v.set }
func (v *Value[V]) isTouched() bool        { return v.touched }

func (v *Value[V]) write(to *chunkWriter) error {
	v.touched = false
	encoded, err := v.codec.Append(nil, &v.value)
	if err != nil {
		return weir.Fatal("value %q cannot be written: %w", v.name, err)
	}
	to.section(v.name, 1)
	to.item(nil, encoded)
	return nil
}

func (v *Value[V]) read(section *section) error {
	if section.operation != put {
		return corrupt("value %q holds something else", v.name)
	}
	return section.items(func(_, value []byte) error {
		var decoded V
		if err := v.codec.Decode(value, &decoded); err != nil {
			return corrupt("value %q: %w", v.name, err)
		}
		v.value, v.set = decoded, true
		return nil
	})
}

// cutValues encodes the values that are to be written: all of a scope in which one has changed.
func (s *Segments) cutValues(full bool) error {
	for _, scope := range []weir.Scope{weir.ScopeSubtask, weir.ScopeShared} {
		touched, set := full, false
		for _, value := range s.values {
			if value.valueScope() == scope {
				touched, set = touched || value.isTouched(), set || value.isSet()
			}
		}
		if !touched || !set {
			continue
		}
		var writer chunkWriter
		for _, value := range s.values {
			if value.valueScope() == scope && value.isSet() {
				if err := value.write(&writer); err != nil {
					return err
				}
			}
		}
		writer.closeChunk()
		encoded := encodedValues{scope: scope}
		for number := range writer.ends {
			encoded.chunks = append(encoded.chunks, writer.chunk(number))
		}
		s.open.values = append(s.open.values, encoded)
	}
	return nil
}
