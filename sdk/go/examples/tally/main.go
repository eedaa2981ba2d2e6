// Tally counts records by key in windows of a minute of event time.
package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/weir-stream/weir/sdk/go/state"
	"github.com/weir-stream/weir/sdk/go/weir"
)

const (
	minute = 60_000_000
	// A call that has so much to emit lets the host pass it on before it goes on.
	emitBytes = 4 << 20
)

var plugin = weir.Plugin{
	Descriptor: weir.Descriptor{
		Name:    "tally",
		Version: "1.0.0",
		Summary: "Counts records by key and minute.",
		Inputs:  []weir.Port{{Name: "in", Summary: "records with a key and an event time", Keyed: true}},
		Outputs: []weir.Port{{Name: "out", Summary: "when a minute is over: its end, count, total so far and key", Keyed: true}},
		State:   weir.Keyed,
	},
	Open: open,
}

type tally struct {
	weir.Base
	*state.Segments
	keys *state.Keyed[tallies]
	// ends has a timer for each window that is open.
	ends *state.EventTimers
	out  weir.BatchBuilder
}

// tallies is what is known of a key.
type tallies struct {
	// total is the records of the windows that were emitted.
	total uint64
	// open are the windows that were not, in no order that matters.
	open []window
}

type window struct {
	end   weir.Timestamp
	count uint64
}

func open(_ string, task weir.TaskInfo) (weir.Operator, error) {
	segments := state.NewSegments(task)
	return &tally{
		Segments: segments,
		keys:     state.NewKeyedWith(segments, "keys", state.Codec[tallies](codec{})),
		ends:     state.NewEventTimers(segments, "ends"),
	}, nil
}

func (op *tally) Process(_ uint32, batch *weir.Batch, out *weir.Output) (weir.Progress, error) {
	for record := range batch.Records() {
		key, ok := record.Keyed()
		if !ok {
			out.Reject(record.Index(), "no key")
			continue
		}
		if !record.HasTime() {
			out.Reject(record.Index(), "no time")
			continue
		}
		op.window(key, windowEnd(record.Time())).count++
	}
	return weir.Done, nil
}

func (op *tally) window(key weir.Key, end weir.Timestamp) *window {
	tallies := op.keys.Value(key)
	for i := range tallies.open {
		if tallies.open[i].end == end {
			return &tallies.open[i]
		}
	}
	op.ends.Set(end, key)
	tallies.open = append(tallies.open, window{end: end})
	return &tallies.open[len(tallies.open)-1]
}

func windowEnd(time weir.Timestamp) weir.Timestamp {
	minutes := time / minute
	if time%minute < 0 {
		minutes--
	}
	return (minutes + 1) * minute
}

func (op *tally) Advance(watermark weir.Timestamp, out *weir.Output) (weir.Progress, error) {
	return op.InSteps(out, func(out *weir.Output) (weir.Progress, error) {
		op.out.Reset()
		progress := weir.Done
		for timer := range op.ends.Due(watermark) {
			op.emit(timer)
			if op.out.ByteLen() >= emitBytes {
				progress = weir.More
				break
			}
		}
		out.Emit(0, op.out.Batch())
		return progress, nil
	})
}

func (op *tally) emit(timer state.Timer) {
	tallies := op.keys.Value(timer.Key)
	for i, window := range tallies.open {
		if window.end != timer.Time {
			continue
		}
		last := len(tallies.open) - 1
		tallies.open[i] = tallies.open[last]
		tallies.open = tallies.open[:last]
		tallies.total += window.count
		op.out.PushWith(window.end, timer.Key.Bytes, func(to []byte) []byte {
			to = append(strconv.AppendInt(to, window.end, 10), ' ')
			to = append(strconv.AppendUint(to, window.count, 10), ' ')
			to = append(strconv.AppendUint(to, tallies.total, 10), ' ')
			return append(to, timer.Key.Bytes...)
		})
		return
	}
}

// A codec writes tallies as varints: JSON would do as well, but this is half the size. Windows are written by their end, so that equal
// tallies give equal bytes.
type codec struct{}

func (codec) Append(to []byte, t *tallies) ([]byte, error) {
	slices.SortFunc(t.open, func(a, b window) int { return cmp.Compare(a.end, b.end) })
	to = binary.AppendUvarint(to, t.total)
	for _, window := range t.open {
		to = binary.AppendVarint(to, window.end)
		to = binary.AppendUvarint(to, window.count)
	}
	return to, nil
}

func (codec) Decode(from []byte, into *tallies) error {
	total, read := binary.Uvarint(from)
	if read <= 0 {
		return fmt.Errorf("there is no total in %d bytes", len(from))
	}
	into.total = total
	for from = from[read:]; len(from) > 0; {
		end, endBytes := binary.Varint(from)
		count, countBytes := binary.Uvarint(from[max(endBytes, 0):])
		if endBytes <= 0 || countBytes <= 0 {
			return fmt.Errorf("a window is cut short, %d bytes before the end", len(from))
		}
		into.open = append(into.open, window{end, count})
		from = from[endBytes+countBytes:]
	}
	return nil
}

func init() { weir.Export(plugin) }

func main() {}
