package state

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math"
	"slices"

	"github.com/weir-stream/weir/sdk/go/weir"
)

// A Timer is a time with a key.
type Timer struct {
	Time weir.Timestamp
	Key  weir.Key
}

// EventTimers are times in event time, each with a key. They come due in Advance, ordered by time, then by key, and are part of
// the state. A timer that is set twice for the same time and key is one timer.
//
// They lie in a table by key group as any state. Beside it there is what finds the earliest: the times, and for each time
// the entries of the table. An entry there may be stale, as its timer was taken back; its number says so.
type EventTimers struct {
	set    *Keyed[number64]
	groups *groups
	times  heap
	at     map[weir.Timestamp][]reference
	// numbers counts the timers that were ever set, stale the references whose timer is gone.
	numbers uint64
	stale   int
	scratch []byte
}

// number64 is the number of a timer. It is not written: it only tells a timer from another one that had the same entry before.
type number64 uint64

type reference struct {
	group, index uint32
	number       number64
}

const staleMin = 1024

// NewEventTimers makes a collection without timers. It is found again in a snapshot by its name: never change that.
func NewEventTimers(segments *Segments, name string) *EventTimers {
	t := &EventTimers{
		set:    newKeyed[number64](segments, name, nothing[number64]{}),
		groups: &segments.groups,
		at:     map[weir.Timestamp][]reference{},
	}
	segments.add(t)
	return t
}

// Len is how many are set.
func (t *EventTimers) Len() int { return t.set.Len() }

// Set sets a timer, and says whether it was not set before.
func (t *EventTimers) Set(time weir.Timestamp, key weir.Key) bool {
	group := t.groups.of(key.Hash)
	table := &t.set.tables[group]
	hash, encoded := timerHash(key.Hash, time), t.encode(time, key.Bytes)
	if _, ok := table.find(hash, encoded); ok {
		return false
	}
	t.refer(group, table.insert(hash, encoded, t.set.stamp), time)
	return true
}

// Cancel takes a timer back, and says whether it was set.
func (t *EventTimers) Cancel(time weir.Timestamp, key weir.Key) bool {
	group := t.groups.of(key.Hash)
	table := &t.set.tables[group]
	index, ok := table.find(timerHash(key.Hash, time), t.encode(time, key.Bytes))
	if !ok {
		return false
	}
	t.set.touch(table, table.entry(index))
	table.remove(index)
	t.stale++
	if t.stale > staleMin && t.stale > t.Len() {
		t.referAnew()
	}
	return true
}

// Earliest is the time of the earliest timer; false if none is set.
func (t *EventTimers) Earliest() (weir.Timestamp, bool) {
	for len(t.times) > 0 {
		time := t.times[0]
		if slices.ContainsFunc(t.at[time], t.valid) {
			return time, true
		}
		t.stale -= len(t.at[time])
		delete(t.at, t.times.pop())
	}
	return 0, false
}

// Due takes the timers that are due at a watermark, one by one, ordered by time, then by key. Timers may be set and taken back
// meanwhile; one that is set and due comes too. What is not taken, since the loop was left, stays set.
func (t *EventTimers) Due(watermark weir.Timestamp) iter.Seq[Timer] {
	return func(yield func(Timer) bool) {
		var time weir.Timestamp
		var due []reference
		defer func() { t.putBack(time, due) }()
		for {
			if len(t.times) > 0 && t.times[0] <= watermark && (len(due) == 0 || t.times[0] < time) {
				t.putBack(time, due)
				time, due = t.takeEarliest()
				continue
			}
			if len(due) == 0 {
				return
			}
			next := due[0]
			due = due[1:]
			if !t.valid(next) {
				t.stale--
				continue
			}
			table := &t.set.tables[next.group]
			e := table.entry(next.index)
			key := table.key(e)[8:]
			t.set.touch(table, e)
			table.remove(next.index)
			if !yield(Timer{Time: time, Key: weir.KeyOf(key)}) {
				return
			}
		}
	}
}

// takeEarliest gives the timers of the earliest time, by key. Afterwards that time is not among the others.
func (t *EventTimers) takeEarliest() (weir.Timestamp, []reference) {
	time := t.times.pop()
	all := t.at[time]
	delete(t.at, time)
	due := slices.DeleteFunc(all, func(r reference) bool { return !t.valid(r) })
	t.stale -= len(all) - len(due)
	if len(due) > 1 {
		slices.SortFunc(due, func(a, b reference) int { return bytes.Compare(t.keyOf(a), t.keyOf(b)) })
	}
	return time, due
}

func (t *EventTimers) putBack(time weir.Timestamp, due []reference) {
	for _, reference := range due {
		t.insert(time, reference)
	}
}

func (t *EventTimers) keyOf(r reference) []byte {
	table := &t.set.tables[r.group]
	return table.key(table.entry(r.index))
}

func (t *EventTimers) valid(r reference) bool {
	e := t.set.tables[r.group].entry(r.index)
	return e.stamp != 0 && e.value == r.number
}

// refer makes a new entry of the table found by its time.
func (t *EventTimers) refer(group int, index uint32, time weir.Timestamp) {
	t.numbers++
	t.set.tables[group].entry(index).value = number64(t.numbers)
	t.insert(time, reference{uint32(group), index, number64(t.numbers)})
}

func (t *EventTimers) insert(time weir.Timestamp, r reference) {
	list, ok := t.at[time]
	if !ok {
		t.times.push(time)
	}
	t.at[time] = append(list, r)
}

// referAnew drops all stale references.
func (t *EventTimers) referAnew() {
	t.times = t.times[:0]
	clear(t.at)
	t.stale = 0
	for group := range t.set.tables {
		table := &t.set.tables[group]
		for index := range table.used {
			if e := table.entry(index); e.stamp != 0 {
				t.insert(timerTime(table.key(e)), reference{uint32(group), index, e.value})
			}
		}
	}
}

// encode gives the key under which a timer lies: the time, so that it orders as a number does, and the key.
func (t *EventTimers) encode(time weir.Timestamp, key []byte) []byte {
	t.scratch = binary.BigEndian.AppendUint64(t.scratch[:0], uint64(time)^1<<63)
	t.scratch = append(t.scratch, key...)
	return t.scratch
}

func timerTime(encoded []byte) weir.Timestamp {
	return weir.Timestamp(binary.BigEndian.Uint64(encoded) ^ 1<<63)
}

// timerHash tells the timers of a key apart.
func timerHash(hash uint64, time weir.Timestamp) uint64 {
	hash = (hash ^ uint64(time)*0x9e3779b97f4a7c15) * 0xd6e8feb86659fd93
	return hash ^ hash>>32
}

func (t *EventTimers) partName() string       { return t.set.name }
func (t *EventTimers) changed(group int) bool { return t.set.changed(group) }
func (t *EventTimers) live(group int) bool    { return t.set.live(group) }
func (t *EventTimers) cut(write []bool)       { t.set.cut(write) }

func (t *EventTimers) write(group int, to *chunkWriter) error { return t.set.write(group, to) }

func (t *EventTimers) read(group int, section *section) error {
	return t.set.readWith(group, section, func(encoded []byte) (uint64, error) {
		if len(encoded) < 8 {
			return 0, corrupt("a timer of %q has %d bytes, less than 8", t.set.name, len(encoded))
		}
		hash := weir.KeyHash(encoded[8:])
		return timerHash(hash, timerTime(encoded)), t.groups.check(group, hash)
	}, func(index uint32, encoded []byte) {
		t.refer(group, index, timerTime(encoded))
	})
}

// A heap gives the smallest of its times first.
type heap []weir.Timestamp

func (h *heap) push(time weir.Timestamp) {
	*h = append(*h, math.MaxInt64)
	at := len(*h) - 1
	for at > 0 && (*h)[(at-1)/2] > time {
		(*h)[at] = (*h)[(at-1)/2]
		at = (at - 1) / 2
	}
	(*h)[at] = time
}

func (h *heap) pop() weir.Timestamp {
	old := *h
	first, last := old[0], old[len(old)-1]
	*h = old[:len(old)-1]
	at := 0
	for {
		child := 2*at + 1
		if child+1 < len(*h) && (*h)[child+1] < (*h)[child] {
			child++
		}
		if child >= len(*h) || (*h)[child] >= last {
			break
		}
		(*h)[at] = (*h)[child]
		at = child
	}
	if len(*h) > 0 {
		(*h)[at] = last
	}
	return first
}
