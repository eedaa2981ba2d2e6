// Visits makes sessions of the records of a key: a gap of more than 30 seconds of event time ends one.
package main

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/weir-stream/weir/sdk/go/state"
	"github.com/weir-stream/weir/sdk/go/weir"
)

const (
	gap = 30_000_000
	// A call that has so much to emit lets the host pass it on before it goes on.
	emitBytes = 4 << 20
)

var plugin = weir.Plugin{
	Descriptor: weir.Descriptor{
		Name:    "visits",
		Version: "1.0.0",
		Summary: "Makes sessions of the records of a key.",
		Inputs:  []weir.Port{{Name: "in", Summary: "records with a key and an event time", Keyed: true}},
		Outputs: []weir.Port{{Name: "out", Summary: "when a session is over: its start, end, count and key", Keyed: true}},
		State:   weir.Keyed,
	},
	Open: open,
}

type visits struct {
	weir.Base
	*state.Segments
	// sessions are those of a key that are open, by their start. They are kept as JSON, which needs nothing else.
	sessions *state.Keyed[[]session]
	// ends has a timer for each of them, at its end plus the gap.
	ends *state.EventTimers
	out  weir.BatchBuilder
}

type session struct {
	Start weir.Timestamp
	End   weir.Timestamp
	Count uint64
}

func open(_ string, task weir.TaskInfo) (weir.Operator, error) {
	segments := state.NewSegments(task)
	return &visits{
		Segments: segments,
		sessions: state.NewKeyed[[]session](segments, "sessions"),
		ends:     state.NewEventTimers(segments, "ends"),
	}, nil
}

func (op *visits) Process(_ uint32, batch *weir.Batch, out *weir.Output) (weir.Progress, error) {
	for record := range batch.Records() {
		key, ok := record.Keyed()
		switch {
		case !ok:
			out.Reject(record.Index(), "no key")
		case !record.HasTime():
			out.Reject(record.Index(), "no time")
		default:
			op.add(key, record.Time())
		}
	}
	return weir.Done, nil
}

// add makes one session of the record and of those it is near to, of which there are at most two.
func (op *visits) add(key weir.Key, time weir.Timestamp) {
	sessions := op.sessions.Value(key)
	joined := session{Start: time, End: time, Count: 1}
	others := slices.DeleteFunc(*sessions, func(s session) bool {
		if time < s.Start-gap || time > s.End+gap {
			return false
		}
		op.ends.Cancel(s.End+gap, key)
		joined.Start, joined.End = min(joined.Start, s.Start), max(joined.End, s.End)
		joined.Count += s.Count
		return true
	})
	at, _ := slices.BinarySearchFunc(others, joined, func(a, b session) int { return cmp.Compare(a.Start, b.Start) })
	*sessions = slices.Insert(others, at, joined)
	op.ends.Set(joined.End+gap, key)
}

func (op *visits) Advance(watermark weir.Timestamp, out *weir.Output) (weir.Progress, error) {
	return op.InSteps(out, func(out *weir.Output) (weir.Progress, error) {
		op.out.Reset()
		progress := weir.Done
		for timer := range op.ends.Due(watermark) {
			op.emit(timer.Key, timer.Time-gap)
			if op.out.ByteLen() >= emitBytes {
				progress = weir.More
				break
			}
		}
		out.Emit(0, op.out.Batch())
		return progress, nil
	})
}

func (op *visits) emit(key weir.Key, end weir.Timestamp) {
	sessions := op.sessions.Value(key)
	at := slices.IndexFunc(*sessions, func(s session) bool { return s.End == end })
	s := (*sessions)[at]
	if *sessions = slices.Delete(*sessions, at, at+1); len(*sessions) == 0 {
		op.sessions.Delete(key)
	}
	op.out.PushWith(s.End, key.Bytes, func(to []byte) []byte {
		to = append(strconv.AppendInt(to, s.Start, 10), ' ')
		to = append(strconv.AppendInt(to, s.End, 10), ' ')
		to = append(strconv.AppendUint(to, s.Count, 10), ' ')
		return append(to, key.Bytes...)
	})
}

func init() { weir.Export(plugin) }

func main() {}
