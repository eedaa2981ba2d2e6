package weir

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/weir-stream/weir/sdk/go/internal/host"
)

// A Timestamp is a time in microseconds since 1970-01-01T00:00:00Z, leap seconds not counted.
type Timestamp = int64

const (
	// NoTime is the event time of a record that has none.
	NoTime Timestamp = math.MinInt64
	// EndOfTime is the last watermark: nothing will come any more.
	EndOfTime Timestamp = math.MaxInt64
)

// A Batch is a list of records in columns. What came in lies where the host has put it and is valid until the call
// returns; nothing is copied. It is not to be changed.
type Batch struct {
	timestamps []Timestamp
	hashes     []uint64
	keys       Column
	values     Column
	headers    Column
}

// NewBatch makes a batch of columns, which must hold to the rules of wit/types.wit: for who plays the host. Hashes may be missing.
func NewBatch(timestamps []Timestamp, hashes []uint64, keys, values, headers Column) *Batch {
	return &Batch{timestamps, hashes, keys, values, headers}
}

// Len is the number of records; at least one in a batch that came in.
func (b *Batch) Len() int { return len(b.timestamps) }

// Timestamps are the event times, [NoTime] for a record that has none.
func (b *Batch) Timestamps() []Timestamp { return b.timestamps }

// Hashes are those of the keys on a keyed input, otherwise none. [Record.Hash] answers in either case.
func (b *Batch) Hashes() []uint64 { return b.hashes }

// Keys are the keys.
func (b *Batch) Keys() *Column { return &b.keys }

// Values are the values.
func (b *Batch) Values() *Column { return &b.values }

// Headers are the headers of all records, encoded; [Record.Headers] reads them.
func (b *Batch) Headers() *Column { return &b.headers }

// Record gives one record. It panics if there is none of that number.
func (b *Batch) Record(row int) Record {
	if uint(row) >= uint(len(b.timestamps)) {
		b.noRecord(row)
	}
	return Record{b, row}
}

//go:noinline
func (b *Batch) noRecord(row int) {
	panic(fmt.Sprintf("record %d of a batch of %d", row, len(b.timestamps)))
}

// Records goes through all records, in order.
func (b *Batch) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for row := range b.timestamps {
			if !yield(Record{b, row}) {
				return
			}
		}
	}
}

// WithValues is the same batch with other values: keys, times and headers are handed on for free.
// It panics if there are not as many values as records.
func (b *Batch) WithValues(values Column) *Batch {
	b.mustFit(values.Len(), len(values.offsets) == 0)
	with := *b
	with.values = values
	return &with
}

// WithKeys is the same batch with other keys. It panics if there are not as many as records.
func (b *Batch) WithKeys(keys Column) *Batch {
	b.mustFit(keys.Len(), len(keys.offsets) == 0)
	with := *b
	with.keys, with.hashes = keys, nil
	return &with
}

// WithTimestamps is the same batch with other event times. It panics if there are not as many as records.
func (b *Batch) WithTimestamps(timestamps []Timestamp) *Batch {
	b.mustFit(len(timestamps), false)
	with := *b
	with.timestamps = timestamps
	return &with
}

func (b *Batch) mustFit(rows int, absent bool) {
	if !absent && rows != b.Len() {
		panic(fmt.Sprintf("a column of %d rows for a batch of %d records", rows, b.Len()))
	}
}

// raw is the batch as the contract has it. The host hashes anew what comes out of a plugin, so hashes are left out.
func (b *Batch) raw() host.Batch {
	return host.Batch{
		Timestamps:   b.timestamps,
		KeyOffsets:   b.keys.offsets,
		Keys:         b.keys.bytes,
		KeyNulls:     b.keys.nulls,
		ValueOffsets: b.values.offsets, Values: b.values.bytes, ValueNulls: b.values.nulls,
		HeaderOffsets: b.headers.offsets, Headers: b.headers.bytes,
	}
}

// A Record is one record of a batch, valid as long as that is.
type Record struct {
	batch *Batch
	row   int
}

// Index is its number in the batch: what [Output.Reject] wants.
func (r Record) Index() uint32 { return uint32(r.row) }

// Time is its event time, [NoTime] if it has none.
func (r Record) Time() Timestamp { return r.batch.timestamps[r.row] }

// HasTime says whether it has an event time.
func (r Record) HasTime() bool { return r.Time() != NoTime }

// Key is its key, nil if it has none. An empty key is a key.
func (r Record) Key() []byte { return r.batch.keys.Get(r.row) }

// Value is its value, nil if it has none. A record without one is a tombstone: what was known under its key is gone.
func (r Record) Value() []byte { return r.batch.values.Get(r.row) }

// Hash is that of its key: the one the host gave, or else computed.
func (r Record) Hash() uint64 {
	if len(r.batch.hashes) > 0 {
		return r.batch.hashes[r.row]
	}
	return KeyHash(r.Key())
}

// Keyed is its key with its hash, for the collections of package state; false if it has none.
func (r Record) Keyed() (key Key, ok bool) {
	bytes := r.Key()
	if bytes == nil {
		return Key{}, false
	}
	if len(r.batch.hashes) > 0 {
		return Key{bytes, r.batch.hashes[r.row]}, true
	}
	return KeyOf(bytes), true
}

// Headers are its headers.
func (r Record) Headers() Headers { return Headers{r.batch.headers.Get(r.row)} }

// JSON parses its value into what into points to, as encoding/json does. A record without a value reads as null. What is nested more than
// 100 deep is an error.
func (r Record) JSON(into any) error {
	value := r.Value()
	if value == nil {
		value = []byte("null")
	}
	if len(value) > nestingMax && isNestedDeeper(value, nestingMax) {
		return errors.New("JSON that is nested more than 100 deep")
	}
	return json.Unmarshal(value, into)
}

// The parser recurses, and where WebAssembly's stack ends there is no error but a trap.
const nestingMax = 100

// isNestedDeeper says whether more than most brackets are open at some place of a JSON text, outside of its strings.
func isNestedDeeper(text []byte, most int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > most {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}
