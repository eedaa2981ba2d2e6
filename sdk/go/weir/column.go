package weir

import (
	"fmt"
	"slices"
)

// A Column is a list of byte strings of which each may be missing: the keys or the values of a batch.
//
// Row i lies at offsets[i] up to offsets[i+1] of the bytes; no offsets say that no row has any. Bit i%8 of byte i/8 of nulls says that
// row i has none.
type Column struct {
	offsets []uint32
	bytes   []byte
	nulls   []byte
	// usual says that every row has a value.
	usual bool
}

// NewColumn makes a column of its parts, which must hold to the rules of wit/types.wit. A [ColumnBuilder] sees to that by itself.
func NewColumn(offsets []uint32, bytes, nulls []byte) Column {
	if bytes == nil && len(offsets) > 0 {
		bytes = []byte{}
	}
	return Column{offsets, bytes, nulls, len(offsets) > 0 && len(nulls) == 0}
}

// Get gives the bytes of a row, nil if it has none. A row that is empty is not nil. The slice cannot be appended to in place.
func (c *Column) Get(row int) []byte {
	// Short enough to be inlined, for what is usual.
	if c.usual {
		end := c.offsets[row+1]
		return c.bytes[c.offsets[row]:end:end]
	}
	return c.find(row)
}

func (c *Column) find(row int) []byte {
	if len(c.offsets) == 0 || c.nulls[row/8]>>(row%8)&1 != 0 {
		return nil
	}
	end := c.offsets[row+1]
	return c.bytes[c.offsets[row]:end:end]
}

// Len is the number of rows, 0 where no row has a value.
func (c *Column) Len() int { return max(len(c.offsets)-1, 0) }

// Bytes are those of all rows, one after the other.
func (c *Column) Bytes() []byte { return c.bytes }

// Offsets say where rows begin and end; none where no row has a value.
func (c *Column) Offsets() []uint32 { return c.offsets }

// Nulls say which rows have no value, a bit for each row; none where every row has one, or no row.
func (c *Column) Nulls() []byte { return c.nulls }

// Full says whether every row has a value.
func (c *Column) Full() bool { return c.usual }

// Check says which rule of wit/types.wit the column breaks, if any, for a batch of so many records. The host checks what is
// emitted; this is for who plays the host.
func (c *Column) Check(rows int) error {
	if len(c.offsets) == 0 {
		if len(c.bytes) > 0 || len(c.nulls) > 0 {
			return fmt.Errorf("%d bytes and %d bytes of nulls without offsets", len(c.bytes), len(c.nulls))
		}
		return nil
	}
	if len(c.offsets) != rows+1 {
		return fmt.Errorf("%d offsets for %d records, not one more", len(c.offsets), rows)
	}
	if c.offsets[0] != 0 || int(c.offsets[rows]) != len(c.bytes) {
		return fmt.Errorf("offsets go from %d to %d, not from 0 to %d, the number of bytes", c.offsets[0], c.offsets[rows], len(c.bytes))
	}
	if !slices.IsSorted(c.offsets) {
		return fmt.Errorf("offsets go down")
	}
	for row := range rows {
		if length := c.offsets[row+1] - c.offsets[row]; length > 16<<20 {
			return fmt.Errorf("row %d has %d bytes, more than 16,777,216", row, length)
		}
	}
	if len(c.nulls) == 0 {
		return nil
	}
	if len(c.nulls) != (rows+7)/8 || rows%8 != 0 && c.nulls[rows/8]>>(rows%8) != 0 {
		return fmt.Errorf("%d bytes of nulls do not fit %d records, or have bits beyond them", len(c.nulls), rows)
	}
	for row := range rows {
		if c.nulls[row/8]>>(row%8)&1 != 0 && c.offsets[row] != c.offsets[row+1] {
			return fmt.Errorf("row %d is null and has %d bytes", row, c.offsets[row+1]-c.offsets[row])
		}
	}
	return nil
}

// A ColumnBuilder makes a column, row by row. The zero value is an empty column.
type ColumnBuilder struct {
	rows    int
	offsets []uint32
	bytes   []byte
	nulls   []byte
}

// Len is the number of rows.
func (b *ColumnBuilder) Len() int { return b.rows }

// ByteLen is the number of bytes of all rows.
func (b *ColumnBuilder) ByteLen() int { return len(b.bytes) }

// Column is what was pushed so far, valid until the next push or reset.
func (b *ColumnBuilder) Column() Column { return NewColumn(b.offsets, b.bytes, b.nulls) }

// Push adds a row; nil makes one without a value.
func (b *ColumnBuilder) Push(value []byte) {
	if value == nil {
		b.pushNull()
		return
	}
	b.begin()
	b.bytes = append(b.bytes, value...)
	b.end()
}

// PushString adds a row.
func (b *ColumnBuilder) PushString(value string) {
	b.begin()
	b.bytes = append(b.bytes, value...)
	b.end()
}

// PushWith adds a row whose bytes write appends to those it is given. It must not touch what is there already.
func (b *ColumnBuilder) PushWith(write func(to []byte) []byte) {
	b.begin()
	b.bytes = write(b.bytes)
	b.end()
}

// Reset empties it and keeps its memory.
func (b *ColumnBuilder) Reset() {
	b.rows, b.offsets, b.bytes, b.nulls = 0, b.offsets[:0], b.bytes[:0], b.nulls[:0]
}

// begin prepares for a row that has a value. The first one comes after rows that have none.
func (b *ColumnBuilder) begin() {
	if len(b.offsets) > 0 {
		return
	}
	b.offsets = append(b.offsets, make([]uint32, b.rows+1)...)
	if b.rows > 0 {
		for range (b.rows + 7) / 8 {
			b.nulls = append(b.nulls, 0xff)
		}
		if b.rows%8 != 0 {
			b.nulls[b.rows/8] = 1<<(b.rows%8) - 1
		}
	}
}

func (b *ColumnBuilder) end() {
	b.offsets = append(b.offsets, uint32(len(b.bytes)))
	if len(b.nulls) > 0 && b.rows%8 == 0 {
		b.nulls = append(b.nulls, 0)
	}
	b.rows++
}

func (b *ColumnBuilder) pushNull() {
	row := b.rows
	b.rows++
	if len(b.offsets) == 0 {
		return
	}
	b.offsets = append(b.offsets, uint32(len(b.bytes)))
	for len(b.nulls) < row/8+1 {
		b.nulls = append(b.nulls, 0)
	}
	b.nulls[row/8] |= 1 << (row % 8)
}

// extend lets write append to the last row, which must be there and have a value.
func (b *ColumnBuilder) extend(write func(to []byte) []byte) {
	b.bytes = write(b.bytes)
	b.offsets[len(b.offsets)-1] = uint32(len(b.bytes))
}
