package state

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/weir-stream/weir/sdk/go/weir"
)

func newTimers() *EventTimers {
	return NewEventTimers(NewSegments(weir.TaskInfo{Parallelism: 1, KeyGroups: 4, EndKeyGroup: 4}), "timers")
}

func TestReferencesToTimersThatWereTakenBackAreDropped(t *testing.T) {
	timers := newTimers()
	key := weir.KeyOf([]byte("k"))
	for time := range weir.Timestamp(100_000) {
		timers.Set(time+1_000_000, key)
		timers.Cancel(time+1_000_000-1, key)
	}
	if len(timers.at) > 3*staleMin || len(timers.times) != len(timers.at) {
		t.Errorf("one timer is set, and %d times in %d places are kept", len(timers.times), len(timers.at))
	}
}

// Two items that together are about as large as a chunk, one alone that is, and a section that hardly fits behind another.
func TestNoChunkIsLargerThanItMayBeToTheByte(t *testing.T) {
	for spare := range 60 {
		var writer chunkWriter
		value := bytes.Repeat([]byte("v"), chunkBytesMax-spare-1000)
		writer.section("name", 2)
		writer.item([]byte("a"), value)
		writer.item(bytes.Repeat([]byte("b"), 1000), nil)
		writer.section("other", 1)
		writer.item([]byte("c"), bytes.Repeat([]byte("v"), chunkBytesMax-spare))
		writer.item([]byte("d"), []byte("after"))
		writer.section("full", 1)
		writer.item([]byte("e"), bytes.Repeat([]byte("v"), chunkBytesMax-100-spare))
		writer.section("more", 1)
		writer.item([]byte("f"), bytes.Repeat([]byte("v"), 50))
		writer.closeChunk()
		read := map[string]int{}
		var joined []byte
		for number := range writer.ends {
			chunk := writer.chunk(number)
			if len(chunk) > chunkBytesMax {
				t.Errorf("with %d bytes to spare chunk %d has %d bytes", spare, number, len(chunk))
			}
			err := sections(chunk, func(s section) error {
				switch s.operation {
				case fragment:
					joined = append(joined, s.body...)
					return nil
				case lastOfPut:
					s.body, s.operation, joined = append(joined, s.body...), put, nil
				}
				return s.items(func(key, value []byte) error {
					read[fmt.Sprintf("%s %c", s.name, key[0])] = len(value)
					return nil
				})
			})
			if err != nil {
				t.Fatalf("with %d bytes to spare chunk %d cannot be read: %v", spare, number, err)
			}
		}
		want := map[string]int{"name a": len(value), "name b": 0, "other c": chunkBytesMax - spare, "other d": 5, "full e": chunkBytesMax - 100 - spare, "more f": 50}
		if fmt.Sprint(read) != fmt.Sprint(want) {
			t.Errorf("with %d bytes to spare what is read is %v, not %v", spare, read, want)
		}
	}
}

func TestTheHeapGivesTheSmallestFirst(t *testing.T) {
	var times heap
	for i := range weir.Timestamp(1000) {
		times.push(i * 7919 % 1009)
	}
	for last := weir.Timestamp(-1); len(times) > 0; {
		next := times.pop()
		if next < last {
			t.Fatalf("%d comes after %d", next, last)
		}
		last = next
	}
}

func TestMemoryOfKeysThatAreGoneIsUsedAgain(t *testing.T) {
	keyed := newKeyed(NewSegments(weir.TaskInfo{Parallelism: 1, KeyGroups: 1, EndKeyGroup: 1}), "keyed", Uint64)
	for i := range 100_000 {
		key := weir.KeyOf(fmt.Appendf(nil, "a key of some length, number %d", i))
		keyed.Set(key, 1)
		keyed.Delete(key)
	}
	if table := &keyed.tables[0]; table.used != 1 || cap(table.keys) > 4*garbageMin || len(table.slots) != slotsMin {
		t.Errorf("no key is left, and there are %d entries, %d bytes of keys, %d slots", table.used, cap(table.keys), len(table.slots))
	}
}

func TestKeysWhoseHashesCollideAreToldApartAndOrderedByKey(t *testing.T) {
	keyed := newKeyed(NewSegments(weir.TaskInfo{Parallelism: 1, KeyGroups: 1, EndKeyGroup: 1}), "keyed", Uint64)
	// All have the same low half, some the same hash.
	key := func(i uint64) weir.Key {
		return weir.Key{Bytes: fmt.Appendf(nil, "%03d", i*7%200), Hash: i%3<<40 | 5}
	}
	for i := range uint64(200) {
		keyed.Set(key(i), i)
	}
	for i := uint64(0); i < 200; i += 2 {
		if !keyed.Delete(key(i)) {
			t.Fatalf("%q was not there", key(i).Bytes)
		}
	}
	last := ""
	for got, value := range keyed.All() {
		if want := key(value); string(got.Bytes) != string(want.Bytes) || got.Hash != want.Hash || string(got.Bytes) <= last || value%2 == 0 {
			t.Errorf("after %q comes %q with %d", last, got.Bytes, value)
		}
		last = string(got.Bytes)
	}
	if keyed.Len() != 100 {
		t.Errorf("%d keys are left", keyed.Len())
	}
}
