// Upper hands records on with the ASCII letters of their values as capitals. It keeps nothing.
package main

import (
	"fmt"

	"github.com/weir-stream/weir/sdk/go/weir"
)

const valueBytesMax = 80

var plugin = weir.Plugin{
	Descriptor: weir.Descriptor{
		Name:    "upper",
		Version: "1.0.0",
		Summary: "Makes capitals of the ASCII letters of each value.",
		Inputs:  []weir.Port{{Name: "in", Summary: "records with values of at most 80 bytes"}},
		Outputs: []weir.Port{{Name: "out", Summary: "the same with capitals"}},
	},
	Open: func(string, weir.TaskInfo) (weir.Operator, error) { return &upper{}, nil },
}

type upper struct {
	weir.Base
	// What a call emits; it is kept only for its memory.
	out    weir.BatchBuilder
	values weir.ColumnBuilder
}

func (op *upper) Process(_ uint32, batch *weir.Batch, out *weir.Output) (weir.Progress, error) {
	if op.allFit(batch) {
		// Only the values differ: all other columns are handed on as they came.
		op.values.Reset()
		for record := range batch.Records() {
			op.pushUpper(record.Value())
		}
		out.Emit(0, batch.WithValues(op.values.Column()))
		return weir.Done, nil
	}
	op.out.Reset()
	for record := range batch.Records() {
		value := record.Value()
		switch {
		case len(value) > valueBytesMax:
			out.Reject(record.Index(), fmt.Sprintf("the value has %d bytes, more than %d", len(value), valueBytesMax))
		case value == nil:
			op.out.PushRecord(record)
		default:
			op.out.PushWith(record.Time(), record.Key(), func(to []byte) []byte { return appendUpper(to, value) })
		}
	}
	out.Emit(0, op.out.Batch())
	return weir.Done, nil
}

func (op *upper) allFit(batch *weir.Batch) bool {
	for record := range batch.Records() {
		if len(record.Value()) > valueBytesMax {
			return false
		}
	}
	return true
}

func (op *upper) pushUpper(value []byte) {
	if value == nil {
		op.values.Push(nil)
		return
	}
	op.values.PushWith(func(to []byte) []byte { return appendUpper(to, value) })
}

func appendUpper(to, value []byte) []byte {
	for _, b := range value {
		if 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		to = append(to, b)
	}
	return to
}

func init() { weir.Export(plugin) }

func main() {}
