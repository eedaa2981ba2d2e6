package weirtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-stream/weir/sdk/go/weir"
)

// A Row is a record as tests write and compare it.
type Row struct {
	// Time is weir.NoTime if it has none.
	Time weir.Timestamp
	// Key is nil if it has none, and so is Value.
	Key, Value []byte
	Headers    []Header
}

// A Header is a header of a record.
type Header struct {
	Name  string
	Value []byte
}

// KV is a record with key and value, without an event time.
func KV(key, value string) Row {
	return Row{Time: weir.NoTime, Key: []byte(key), Value: []byte(value)}
}

// V is a record with a value alone.
func V(value string) Row { return Row{Time: weir.NoTime, Value: []byte(value)} }

// Tombstone is a record with a key alone.
func Tombstone(key string) Row { return Row{Time: weir.NoTime, Key: []byte(key)} }

// At is the same with an event time.
func (r Row) At(time weir.Timestamp) Row {
	r.Time = time
	return r
}

// WithHeader is the same with one header more.
func (r Row) WithHeader(name, value string) Row {
	r.Headers = append(slices.Clip(r.Headers), Header{name, []byte(value)})
	return r
}

func (r Row) String() string {
	var text strings.Builder
	write := func(bytes []byte) {
		if bytes == nil {
			text.WriteString("none")
			return
		}
		fmt.Fprintf(&text, "%q", bytes)
	}
	write(r.Key)
	text.WriteString(" = ")
	write(r.Value)
	if r.Time != weir.NoTime {
		fmt.Fprintf(&text, " @ %d", r.Time)
	}
	for _, header := range r.Headers {
		fmt.Fprintf(&text, " %s: %q", header.Name, header.Value)
	}
	return text.String()
}

// Batch makes a batch of rows, without hashes.
func Batch(rows ...Row) *weir.Batch {
	var builder weir.BatchBuilder
	for _, row := range rows {
		builder.Push(row.Time, row.Key, row.Value)
		for _, header := range row.Headers {
			builder.Header(header.Name, header.Value)
		}
	}
	return builder.Batch()
}

// Rows copies the records of a batch.
func Rows(batch *weir.Batch) []Row {
	var rows []Row
	for record := range batch.Records() {
		row := Row{Time: record.Time(), Key: clone(record.Key()), Value: clone(record.Value())}
		for name, value := range record.Headers().All() {
			row.Headers = append(row.Headers, Header{name, clone(value)})
		}
		rows = append(rows, row)
	}
	return rows
}

// clone keeps nil and empty apart.
func clone(bytes []byte) []byte {
	if bytes == nil {
		return nil
	}
	return append([]byte{}, bytes...)
}

func equal(a, b Row) bool { return a.String() == b.String() }
