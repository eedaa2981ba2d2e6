package state

import (
	"bytes"
	"math/bits"
	"slices"
)

// A table holds the entries of one key group.
//
// Entries lie in pages that do not move, so that a pointer to a value stays good while others are added. Keys lie one after the other
// in a list of bytes. Slots hold the low half of a hash, which says nothing of the key group, and the number of an entry plus one.
//
// A cut is kept by copy on write: an entry that is touched for the first time after it is encoded as it was, until the group has been
// written.
type table[V any] struct {
	slots []uint64
	pages [][]entry[V]
	// used counts the entries that pages have given out, free lists those of them that are empty.
	used    uint32
	free    []uint32
	live    int
	keys    []byte
	garbage int
	// changed says that something differs from what was cut last.
	changed bool
	// pending says that what was cut is still to be written.
	pending    bool
	saved      []saved
	savedBytes []byte
}

type entry[V any] struct {
	hash       uint64
	at, length uint32
	// stamp is the number of the cut before which it was last touched; 0 says that the entry is empty.
	stamp uint32
	value V
}

// saved is an entry as it was at the cut.
type saved struct {
	hash            uint64
	key, value, end int
}

const (
	firstPage       = 8
	slotsMin        = 16
	garbageMin      = 4096
	slotIndexMask   = 1<<32 - 1
	fullNumerator   = 3
	fullDenominator = 4
)

func (t *table[V]) entry(index uint32) *entry[V] {
	if index < firstPage {
		return &t.pages[0][index]
	}
	page := bits.Len32(index / firstPage)
	return &t.pages[page][index-firstPage/2<<page]
}

func (t *table[V]) key(e *entry[V]) []byte {
	end := e.at + e.length
	return t.keys[e.at:end:end]
}

func (t *table[V]) find(hash uint64, key []byte) (index uint32, ok bool) {
	if t.live == 0 {
		return 0, false
	}
	mask, tag := uint64(len(t.slots)-1), hash&slotIndexMask
	for at := tag & mask; ; at = (at + 1) & mask {
		slot := t.slots[at]
		if slot>>32 == tag && slot != 0 {
			index := uint32(slot) - 1
			if e := t.entry(index); e.hash == hash && string(t.key(e)) == string(key) {
				return index, true
			}
		} else if slot == 0 {
			return 0, false
		}
	}
}

// insert adds an entry that is not there.
func (t *table[V]) insert(hash uint64, key []byte, stamp uint32) (index uint32) {
	if (t.live+1)*fullDenominator > len(t.slots)*fullNumerator {
		t.grow()
	}
	if last := len(t.free) - 1; last >= 0 {
		index = t.free[last]
		t.free = t.free[:last]
	} else {
		index = t.used
		if t.used++; len(t.pages) == 0 {
			t.pages = append(t.pages, make([]entry[V], firstPage))
		} else if page := bits.Len32(index / firstPage); page == len(t.pages) {
			t.pages = append(t.pages, make([]entry[V], firstPage/2<<page))
		}
	}
	e := t.entry(index)
	e.hash, e.at, e.length, e.stamp = hash, uint32(len(t.keys)), uint32(len(key)), stamp
	t.keys = append(t.keys, key...)
	t.place(hash&slotIndexMask<<32 | uint64(index+1))
	t.live++
	t.changed = true
	return index
}

// touch is called before an entry is changed.
func (t *table[V]) touch(e *entry[V], stamp uint32, codec Codec[V]) error {
	t.changed = true
	if e.stamp == stamp {
		return nil
	}
	e.stamp = stamp
	if !t.pending {
		return nil
	}
	s := saved{hash: e.hash, key: len(t.savedBytes)}
	t.savedBytes = append(t.savedBytes, t.key(e)...)
	s.value = len(t.savedBytes)
	var err error
	t.savedBytes, err = codec.Append(t.savedBytes, &e.value)
	s.end = len(t.savedBytes)
	t.saved = append(t.saved, s)
	return err
}

// remove takes an entry out; touch it before.
func (t *table[V]) remove(index uint32) {
	e := t.entry(index)
	t.removeSlot(index, e.hash)
	t.garbage += int(e.length)
	*e = entry[V]{}
	t.free = append(t.free, index)
	t.live--
	if t.garbage > garbageMin && t.garbage*2 > len(t.keys) {
		t.packKeys()
	}
}

// packKeys leaves the old list as it is: someone may still look at a key in it.
func (t *table[V]) packKeys() {
	packed := make([]byte, 0, len(t.keys)-t.garbage)
	for index := range t.used {
		if e := t.entry(index); e.stamp != 0 {
			key := t.key(e)
			e.at = uint32(len(packed))
			packed = append(packed, key...)
		}
	}
	t.keys, t.garbage = packed, 0
}

func (t *table[V]) grow() {
	old := t.slots
	t.slots = make([]uint64, max(slotsMin, 2*len(old)))
	for _, slot := range old {
		if slot != 0 {
			t.place(slot)
		}
	}
}

func (t *table[V]) place(slot uint64) {
	mask := uint64(len(t.slots) - 1)
	at := slot >> 32 & mask
	for t.slots[at] != 0 {
		at = (at + 1) & mask
	}
	t.slots[at] = slot
}

// removeSlot also moves back what had to give way to the entry.
func (t *table[V]) removeSlot(index uint32, hash uint64) {
	mask := uint64(len(t.slots) - 1)
	slot := hash&slotIndexMask<<32 | uint64(index+1)
	hole := hash & mask
	for t.slots[hole] != slot {
		hole = (hole + 1) & mask
	}
	for at := (hole + 1) & mask; t.slots[at] != 0; at = (at + 1) & mask {
		home := t.slots[at] >> 32 & mask
		if (at-home)&mask >= (at-hole)&mask {
			t.slots[hole] = t.slots[at]
			hole = at
		}
	}
	t.slots[hole] = 0
}

// cut makes what is there now what will be written, if anything will.
func (t *table[V]) cut(write bool) {
	t.changed = false
	t.pending = write
	t.dropSaved()
}

func (t *table[V]) dropSaved() {
	if cap(t.savedBytes) > 64<<10 {
		t.saved, t.savedBytes = nil, nil
	}
	t.saved, t.savedBytes = t.saved[:0], t.savedBytes[:0]
}

// A place in the order of a table is the low half of a hash, then the number of an entry, or of a saved one with the bit isSaved.
// As numbers they sort by hash, which is fast; the few whose halves are equal are then put in the order of their keys.
const isSaved = 1 << 31

// ordered lists the entries that were not touched since the cut before the given stamp and what was saved, or all with stamp 0. It
// uses the memory of a list that was.
func (t *table[V]) ordered(stamp uint32, order []uint64) []uint64 {
	order = slices.Grow(order[:0], t.live+len(t.saved))
	for index := range t.used {
		if e := t.entry(index); e.stamp != 0 && e.stamp != stamp {
			order = append(order, e.hash<<32|uint64(index))
		}
	}
	if stamp != 0 {
		for i, s := range t.saved {
			order = append(order, s.hash<<32|isSaved|uint64(i))
		}
	}
	slices.Sort(order)
	for start := 0; start < len(order); {
		end := start + 1
		for end < len(order) && order[end]>>32 == order[start]>>32 {
			end++
		}
		if end-start > 1 {
			slices.SortFunc(order[start:end], func(a, b uint64) int { return bytes.Compare(t.keyAt(a), t.keyAt(b)) })
		}
		start = end
	}
	return order
}

func (t *table[V]) keyAt(place uint64) []byte {
	if place&isSaved != 0 {
		s := t.saved[uint32(place)&^isSaved]
		return t.savedBytes[s.key:s.value]
	}
	return t.key(t.entry(uint32(place)))
}

// write encodes what was cut.
func (t *table[V]) write(name string, stamp uint32, codec Codec[V], to *chunkWriter) error {
	if !t.pending {
		return nil
	}
	to.order = t.ordered(stamp, to.order)
	if len(to.order) > 0 {
		to.section(name, len(to.order))
	}
	for _, place := range to.order {
		if place&isSaved != 0 {
			s := t.saved[uint32(place)&^isSaved]
			to.item(t.savedBytes[s.key:s.value], t.savedBytes[s.value:s.end])
			continue
		}
		e := t.entry(uint32(place))
		var err error
		if to.value, err = codec.Append(to.value[:0], &e.value); err != nil {
			return err
		}
		to.item(t.key(e), to.value)
	}
	t.pending = false
	t.dropSaved()
	return nil
}
