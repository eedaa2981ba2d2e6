package state

// The bytes of state in a snapshot: chunks, each of which can be decoded alone. They are those of the Rust SDK.
//
//	chunk    = format (1)  section*
//	section  = operation, name length, name, namespace (zigzag varint), entries in all (varint, a hint), body length (u32), body
//	body     = item*                        for put: key length (varint), key, value length (varint), value
//	                                        for delete: key length (varint), key
//
// An entry that is too large for one chunk goes as fragments, which are joined before they are read.

import (
	"encoding/binary"

	"github.com/weir-stream/weir/sdk/go/weir"
)

const (
	chunkFormat   = 1
	chunkBytesMax = 256 << 10
	lengthBytes   = 4
	nameBytesMax  = 255
)

type operation byte

const (
	put operation = iota
	del
	// What Windows of the Rust SDK write.
	drop
	closed
	// A part of the body of a put or delete; more follow.
	fragment
	lastOfPut
	lastOfDelete
)

// A chunkWriter makes the chunks of one segment.
type chunkWriter struct {
	bytes []byte
	// ends says where chunks end that are complete.
	ends []int
	// start is where the open chunk begins, body where that of its open section does; 0 if none is open.
	start, body int
	header      []byte
	encoded     []byte
	// value and order are memory for who writes.
	value []byte
	order []uint64
}

func (w *chunkWriter) reset() {
	w.bytes, w.ends, w.start, w.body = w.bytes[:0], w.ends[:0], 0, 0
}

// section says where the next items belong.
func (w *chunkWriter) section(name string, entries int) {
	w.closeSection()
	w.header = append(w.header[:0], byte(put), byte(len(name)))
	w.header = append(w.header, name...)
	w.header = append(w.header, 0)
	w.header = binary.AppendUvarint(w.header, uint64(entries))
}

// item adds an entry.
func (w *chunkWriter) item(key, value []byte) {
	size := uvarintLen(len(key)) + len(key) + uvarintLen(len(value)) + len(value)
	if w.open(size); w.body == 0 {
		w.fragments(key, value)
		return
	}
	w.bytes = appendItem(w.bytes, key, value)
}

func appendItem(to, key, value []byte) []byte {
	to = append(binary.AppendUvarint(to, uint64(len(key))), key...)
	return append(binary.AppendUvarint(to, uint64(len(value))), value...)
}

// open makes room for so many bytes in a section. It leaves none open if they do not fit into any chunk.
func (w *chunkWriter) open(size int) {
	need := size
	if w.body == 0 {
		need += len(w.header) + lengthBytes
	}
	if len(w.bytes) == w.start {
		need++
	}
	if len(w.bytes)-w.start+need > chunkBytesMax {
		w.closeChunk()
		if 1+len(w.header)+lengthBytes+size > chunkBytesMax {
			return
		}
	}
	if len(w.bytes) == w.start {
		w.bytes = append(w.bytes, chunkFormat)
	}
	if w.body == 0 {
		w.bytes = append(w.bytes, w.header...)
		w.bytes = append(w.bytes, 0, 0, 0, 0)
		w.body = len(w.bytes)
	}
}

// fragments writes an item that is too large for one chunk.
func (w *chunkWriter) fragments(key, value []byte) {
	w.encoded = appendItem(w.encoded[:0], key, value)
	room := chunkBytesMax - 1 - len(w.header) - lengthBytes
	for rest := w.encoded; len(rest) > 0; {
		part := rest[:min(room, len(rest))]
		rest = rest[len(part):]
		w.header[0] = byte(fragment)
		if len(rest) == 0 {
			w.header[0] = byte(lastOfPut)
		}
		w.open(len(part))
		w.bytes = append(w.bytes, part...)
		w.closeChunk()
	}
	w.header[0] = byte(put)
}

func (w *chunkWriter) closeSection() {
	if w.body > 0 {
		binary.LittleEndian.PutUint32(w.bytes[w.body-lengthBytes:], uint32(len(w.bytes)-w.body))
		w.body = 0
	}
}

func (w *chunkWriter) closeChunk() {
	w.closeSection()
	if len(w.bytes) > w.start {
		w.ends = append(w.ends, len(w.bytes))
		w.start = len(w.bytes)
	}
}

// chunk is one that is complete.
func (w *chunkWriter) chunk(number int) []byte {
	start := 0
	if number > 0 {
		start = w.ends[number-1]
	}
	return w.bytes[start:w.ends[number]]
}

func uvarintLen(number int) int {
	length := 1
	for ; number >= 0x80; number >>= 7 {
		length++
	}
	return length
}

// A section as it is read.
type section struct {
	operation operation
	name      string
	namespace int64
	body      []byte
}

// sections takes a chunk apart.
func sections(chunk []byte, each func(section) error) error {
	if len(chunk) == 0 {
		return nil
	}
	if chunk[0] != chunkFormat {
		return weir.Invalid("state is in chunk format %d, this plugin's SDK reads %d: build it with a newer SDK", chunk[0], chunkFormat)
	}
	from := reader{rest: chunk[1:]}
	for len(from.rest) > 0 {
		var s section
		s.operation = operation(from.byte())
		s.name = string(from.take(uint64(from.byte())))
		zigzag := from.uvarint()
		s.namespace = int64(zigzag>>1) ^ -int64(zigzag&1)
		from.uvarint()
		if length := from.take(lengthBytes); length != nil {
			s.body = from.take(uint64(binary.LittleEndian.Uint32(length)))
		}
		if from.short || s.operation > lastOfDelete {
			return corrupt("a section is cut short or of an unknown kind, %d bytes before the end of its chunk", len(from.rest))
		}
		if err := each(s); err != nil {
			return err
		}
	}
	return nil
}

// items goes through the entries of a put, or through the keys of a delete, which have no value.
func (s *section) items(each func(key, value []byte) error) error {
	from := reader{rest: s.body}
	for len(from.rest) > 0 {
		key := from.take(from.uvarint())
		var value []byte
		if s.operation == put {
			value = from.take(from.uvarint())
		}
		if from.short {
			return corrupt("an entry of %q is cut short, %d bytes before its end", s.name, len(from.rest))
		}
		if err := each(key, value); err != nil {
			return err
		}
	}
	return nil
}

// A reader takes bytes off; short says that there were too few.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(length uint64) []byte {
	if r.short = r.short || length > uint64(len(r.rest)); r.short {
		return nil
	}
	taken := r.rest[:length:length]
	r.rest = r.rest[length:]
	return taken
}

func (r *reader) byte() byte {
	if taken := r.take(1); taken != nil {
		return taken[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	number, length := binary.Uvarint(r.rest)
	if r.short = r.short || length <= 0; r.short {
		return 0
	}
	r.rest = r.rest[length:]
	return number
}

func corrupt(format string, args ...any) error {
	return weir.Invalid("state cannot be read: "+format, args...)
}
