package weir

import "encoding/json"

// A BatchBuilder makes a batch, record by record. The zero value is an empty batch. Keep one in the operator and [BatchBuilder.Reset] it: its
// memory is used again.
type BatchBuilder struct {
	timestamps []Timestamp
	keys       ColumnBuilder
	values     ColumnBuilder
	headers    ColumnBuilder
	hasHeaders bool
	batch      Batch
}

// Len is the number of records.
func (b *BatchBuilder) Len() int { return len(b.timestamps) }

// ByteLen is the number of bytes of keys, values and headers so far.
func (b *BatchBuilder) ByteLen() int {
	return b.keys.ByteLen() + b.values.ByteLen() + b.headers.ByteLen()
}

// Push adds a record. A nil key or value says that it has none, [NoTime] that it has no event time.
func (b *BatchBuilder) Push(time Timestamp, key, value []byte) {
	b.keys.Push(key)
	b.values.Push(value)
	b.end(time)
}

// PushWith adds a record whose value write appends to the bytes that it is given: no copy of what is made on the way.
func (b *BatchBuilder) PushWith(time Timestamp, key []byte, write func(to []byte) []byte) {
	b.keys.Push(key)
	b.values.PushWith(write)
	b.end(time)
}

// PushRecord adds a record that came in, as it is, with its headers.
func (b *BatchBuilder) PushRecord(record Record) {
	b.Push(record.Time(), record.Key(), record.Value())
	if from := record.Headers().encoded; len(from) > 0 {
		b.beginHeaders()
		b.headers.extend(func(to []byte) []byte { return append(to, from...) })
	}
}

// PushJSON adds a record whose value is JSON, as encoding/json writes it. If that fails nothing is added.
func (b *BatchBuilder) PushJSON(time Timestamp, key []byte, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	b.Push(time, key, encoded)
	return nil
}

// Header adds a header to the record that was pushed last. It panics if there is none, or if the name has more than 65,535 bytes.
func (b *BatchBuilder) Header(name string, value []byte) {
	if b.Len() == 0 {
		panic("a header needs a record: push one before")
	}
	b.beginHeaders()
	b.headers.extend(func(to []byte) []byte { return appendHeader(to, name, value) })
}

// Batch is what was pushed so far, valid until the next push or reset.
func (b *BatchBuilder) Batch() *Batch {
	b.batch = Batch{timestamps: b.timestamps, keys: b.keys.Column(), values: b.values.Column(), headers: b.headers.Column()}
	return &b.batch
}

// Reset empties it and keeps its memory.
func (b *BatchBuilder) Reset() {
	b.timestamps = b.timestamps[:0]
	b.keys.Reset()
	b.values.Reset()
	b.headers.Reset()
	b.hasHeaders = false
}

func (b *BatchBuilder) end(time Timestamp) {
	b.timestamps = append(b.timestamps, time)
	if b.hasHeaders {
		b.headers.PushString("")
	}
}

// beginHeaders gives each record a row of headers, once the first has some: none of them is null.
func (b *BatchBuilder) beginHeaders() {
	if b.hasHeaders {
		return
	}
	b.hasHeaders = true
	for range b.timestamps {
		b.headers.PushString("")
	}
}
