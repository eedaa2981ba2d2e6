package state

import (
	"iter"

	"github.com/weir-stream/weir/sdk/go/weir"
)

// Keyed is a value for each key of this subtask's key groups.
//
// It knows what has changed: a pointer that it hands out counts as a change. Such a pointer is good until the call returns or the key is
// deleted; do not keep it. A key of a group that this subtask does not have is a mistake in the plugin (its input port
// is not declared as Keyed) and panics.
type Keyed[V any] struct {
	name   string
	codec  Codec[V]
	groups *groups
	tables []table[V]
	// stamp is the number of cuts so far, plus one.
	stamp uint32
	// failed is the first value that could not be encoded.
	failed error
}

// NewKeyed makes a collection without keys, whose values are kept as JSON. It is found again in a snapshot by its name: never
// change that.
func NewKeyed[V any](segments *Segments, name string) *Keyed[V] {
	return NewKeyedWith(segments, name, Codec[V](JSON[V]{}))
}

// NewKeyedWith is NewKeyed with another codec. A component that has no JSON at all is 2 MB smaller.
func NewKeyedWith[V any](segments *Segments, name string, codec Codec[V]) *Keyed[V] {
	k := newKeyed(segments, name, codec)
	segments.add(k)
	return k
}

func newKeyed[V any](segments *Segments, name string, codec Codec[V]) *Keyed[V] {
	return &Keyed[V]{name: name, codec: codec, groups: &segments.groups, tables: make([]table[V], segments.groups.count), stamp: 1}
}

// Len is the number of keys.
func (k *Keyed[V]) Len() int {
	sum := 0
	for i := range k.tables {
		sum += k.tables[i].live
	}
	return sum
}

// Get gives a copy of the value of a key, and whether the key is there.
func (k *Keyed[V]) Get(key weir.Key) (V, bool) {
	t := &k.tables[k.groups.of(key.Hash)]
	if index, ok := t.find(key.Hash, key.Bytes); ok {
		return t.entry(index).value, true
	}
	var none V
	return none, false
}

// Value gives the value of a key, to be changed. A key that is not there is added with the zero value.
func (k *Keyed[V]) Value(key weir.Key) *V {
	t := &k.tables[k.groups.of(key.Hash)]
	index, ok := t.find(key.Hash, key.Bytes)
	if !ok {
		return &t.entry(t.insert(key.Hash, key.Bytes, k.stamp)).value
	}
	e := t.entry(index)
	k.touch(t, e)
	return &e.value
}

// Find gives the value of a key, to be changed, nil if the key is not there.
func (k *Keyed[V]) Find(key weir.Key) *V {
	t := &k.tables[k.groups.of(key.Hash)]
	index, ok := t.find(key.Hash, key.Bytes)
	if !ok {
		return nil
	}
	e := t.entry(index)
	k.touch(t, e)
	return &e.value
}

// Set sets the value of a key.
func (k *Keyed[V]) Set(key weir.Key, value V) { *k.Value(key) = value }

// Delete removes a key, and says whether it was there.
func (k *Keyed[V]) Delete(key weir.Key) bool {
	t := &k.tables[k.groups.of(key.Hash)]
	index, ok := t.find(key.Hash, key.Bytes)
	if ok {
		k.touch(t, t.entry(index))
		t.remove(index)
	}
	return ok
}

// All goes through all keys with copies of their values, by key group, then by a part of the hash and the key: an order that depends on what there is
// alone. Keys must not be added or deleted meanwhile.
func (k *Keyed[V]) All() iter.Seq2[weir.Key, V] {
	return func(yield func(weir.Key, V) bool) {
		for i := range k.tables {
			t := &k.tables[i]
			for _, place := range t.ordered(0, nil) {
				e := t.entry(uint32(place))
				if !yield(weir.Key{Bytes: t.key(e), Hash: e.hash}, e.value) {
					return
				}
			}
		}
	}
}

func (k *Keyed[V]) touch(t *table[V], e *entry[V]) {
	if e.stamp == k.stamp {
		t.changed = true
		return
	}
	if err := t.touch(e, k.stamp, k.codec); err != nil && k.failed == nil {
		k.failed = err
	}
}

func (k *Keyed[V]) partName() string       { return k.name }
func (k *Keyed[V]) changed(group int) bool { return k.tables[group].changed }
func (k *Keyed[V]) live(group int) bool    { return k.tables[group].live > 0 }

func (k *Keyed[V]) cut(write []bool) {
	k.stamp++
	k.failed = nil
	for group := range k.tables {
		k.tables[group].cut(write[group])
	}
}

func (k *Keyed[V]) write(group int, to *chunkWriter) error {
	if k.failed != nil {
		return k.failed
	}
	return k.tables[group].write(k.name, k.stamp, k.codec, to)
}

func (k *Keyed[V]) read(group int, section *section) error {
	return k.readWith(group, section, func(key []byte) (uint64, error) {
		hash := weir.KeyHash(key)
		return hash, k.groups.check(group, hash)
	}, nil)
}

// readWith takes over a section. hashOf gives the hash under which a key lies in its table; added is told of each entry.
func (k *Keyed[V]) readWith(group int, section *section, hashOf func(key []byte) (uint64, error), added func(index uint32, key []byte)) error {
	t := &k.tables[group]
	if section.operation != put && section.operation != del || section.namespace != 0 {
		return corrupt("%q holds windows, not keys alone", k.name)
	}
	return section.items(func(key, value []byte) error {
		hash, err := hashOf(key)
		if err != nil {
			return err
		}
		index, ok := t.find(hash, key)
		if section.operation == del {
			if ok {
				t.remove(index)
			}
			return nil
		}
		if !ok {
			index = t.insert(hash, key, k.stamp)
			t.changed = false
		}
		e := t.entry(index)
		var decoded V
		if err := k.codec.Decode(value, &decoded); err != nil {
			return corrupt("the value of key %q in %q: %w", key, k.name, err)
		}
		e.value = decoded
		if added != nil {
			added(index, key)
		}
		return nil
	})
}
