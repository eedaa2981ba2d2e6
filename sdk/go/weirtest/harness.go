// Package weirtest runs an operator in "go test", as the host would: no WebAssembly, no runtime.
//
//	harness := weirtest.New(t, plugin, "{}")
//	harness.Process(0, weirtest.KV("k", "some text").At(5))
//	harness.Want(0, weirtest.KV("k", "SOME TEXT").At(5))
//
// What the host refuses panics here: an emit outside of a call, a port that does not exist, a record without a key on a keyed port, a
// chunk that is too large. The bytes of a batch are overwritten when the call has returned, so that an operator which
// keeps them without a copy fails.
package weirtest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-stream/weir/sdk/go/internal/host"
	"github.com/weir-stream/weir/sdk/go/weir"
)

// A Harness is an operator with a host around it. Its methods fail the test when the operator does; those that begin with Try
// return the error.
type Harness struct {
	// Operator is the operator itself, for looking into it.
	Operator   weir.Operator
	t          testing.TB
	descriptor weir.Descriptor
	host       fake
	outputs    [][]Row
	rejected   []Rejection
	checkpoint Checkpoint
	exists     bool
	epoch      uint64
	open       *weir.SnapshotMode
}

// A Rejection is a record that was put aside.
type Rejection struct {
	Row    Row
	Reason string
}

// Task is one that has all 128 key groups to itself.
func Task() weir.TaskInfo { return Subtask(0, 1) }

// Subtask is one of several, with its part of 128 key groups.
func Subtask(number, parallelism uint32) weir.TaskInfo {
	const groups = 128
	first := func(subtask uint32) uint32 { return (subtask*groups + parallelism - 1) / parallelism }
	return weir.TaskInfo{
		Job: "test", Node: "operator",
		Subtask: number, Parallelism: parallelism,
		KeyGroups: groups, FirstKeyGroup: first(number), EndKeyGroup: first(number + 1),
		Seed: 0x5eed + uint64(number),
	}
}

// New opens an operator that has all key groups.
func New(t testing.TB, plugin weir.Plugin, config string) *Harness {
	t.Helper()
	return NewTask(t, plugin, config, Task())
}

// NewTask opens an operator for a given task.
func NewTask(t testing.TB, plugin weir.Plugin, config string, task weir.TaskInfo) *Harness {
	t.Helper()
	harness, err := TryNew(t, plugin, config, task)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return harness
}

// TryNew opens an operator that may refuse.
func TryNew(t testing.TB, plugin weir.Plugin, config string, task weir.TaskInfo) (*Harness, error) {
	t.Helper()
	descriptor := plugin.Descriptor.WithDefaults()
	h := &Harness{
		t: t, descriptor: descriptor,
		host: fake{
			subtask: task.Subtask, outputs: descriptor.Outputs,
			metrics: map[string]float64{}, wake: never,
		},
		outputs: make([][]Row, len(descriptor.Outputs)),
	}
	err := h.call(callOther, func() (err error) {
		h.Operator, err = plugin.Open(config, task)
		return err
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Restore opens an operator that has all key groups and lets it take over a checkpoint.
func Restore(t testing.TB, plugin weir.Plugin, config string, checkpoint Checkpoint) *Harness {
	t.Helper()
	return RestoreTask(t, plugin, config, Task(), checkpoint)
}

// RestoreTask opens one subtask and lets it take over its part of the checkpoints of all subtasks of an earlier run, in their
// order; they may have been more or fewer.
func RestoreTask(t testing.TB, plugin weir.Plugin, config string, task weir.TaskInfo, checkpoints ...Checkpoint) *Harness {
	t.Helper()
	harness, err := TryRestore(t, plugin, config, task, checkpoints...)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	return harness
}

// TryRestore is RestoreTask of what the operator may refuse.
func TryRestore(t testing.TB, plugin weir.Plugin, config string, task weir.TaskInfo, checkpoints ...Checkpoint) (*Harness, error) {
	t.Helper()
	h, err := TryNew(t, plugin, config, task)
	if err != nil {
		return nil, err
	}
	h.checkpoint, h.exists = merge(checkpoints, task), true
	h.host.chunks = h.checkpoint.chunks()
	if err := h.call(callRestore, func() error {
		return h.stateful().Restore(h.checkpoint.StateVersion, &weir.SnapshotReader{})
	}); err != nil {
		return nil, err
	}
	if left := len(h.host.chunks); left > 0 {
		t.Fatalf("restore: %d chunks were not read: the host ends such an instance", left)
	}
	return h, nil
}

// Process hands a batch to an input port, and calls Resume until the operator has no more to say.
func (h *Harness) Process(port uint32, rows ...Row) {
	h.t.Helper()
	h.must("process", h.TryProcess(port, rows...))
}

// TryProcess is Process of what may fail; what was emitted in the call that failed is dropped.
func (h *Harness) TryProcess(port uint32, rows ...Row) error {
	h.t.Helper()
	if int(port) >= len(h.descriptor.Inputs) || len(rows) == 0 {
		h.t.Fatalf("a batch of %d records for input port %d of %d: there is at least one record, and such a port", len(rows), port, len(h.descriptor.Inputs))
	}
	batch := Batch(rows...)
	var hashes []uint64
	if h.descriptor.Inputs[port].Keyed {
		for _, row := range rows {
			hashes = append(hashes, weir.KeyHash(row.Key))
		}
	}
	batch = weir.NewBatch(batch.Timestamps(), hashes, *batch.Keys(), *batch.Values(), *batch.Headers())
	h.host.input = slices.Clone(rows)
	return h.data(callProcess, func(out *weir.Output) (weir.Progress, error) {
		defer func() {
			for _, column := range []*weir.Column{batch.Keys(), batch.Values(), batch.Headers()} {
				spoil(column.Bytes())
			}
			for i := range batch.Timestamps() {
				batch.Timestamps()[i] = math.MinInt32
			}
		}()
		return h.Operator.Process(port, batch, out)
	})
}

// Advance moves event time.
func (h *Harness) Advance(watermark weir.Timestamp) {
	h.t.Helper()
	h.must("advance", h.TryAdvance(watermark))
}

// TryAdvance is Advance of what may fail.
func (h *Harness) TryAdvance(watermark weir.Timestamp) error {
	return h.data(callData, func(out *weir.Output) (weir.Progress, error) { return h.Operator.Advance(watermark, out) })
}

// SetTime moves processing time; if it comes to what the operator asked for, that is woken.
func (h *Harness) SetTime(now weir.Timestamp) {
	h.t.Helper()
	if h.host.now = max(now, h.host.now); h.host.wake <= now {
		h.host.wake = never
		h.must("wake", h.data(callData, h.Operator.Wake))
	}
}

// WakeTime is when the operator has asked to be woken.
func (h *Harness) WakeTime() (at weir.Timestamp, asked bool) {
	return h.host.wake, h.host.wake != never
}

// Finish ends an input port.
func (h *Harness) Finish(port uint32) {
	h.t.Helper()
	h.must("finish", h.data(callData, func(out *weir.Output) (weir.Progress, error) { return h.Operator.Finish(port, out) }))
}

// Take takes what was emitted on a port so far.
func (h *Harness) Take(port uint32) []Row {
	rows := h.outputs[port]
	h.outputs[port] = nil
	return rows
}

// Want takes what was emitted on a port so far, and fails the test if it is not this.
func (h *Harness) Want(port uint32, want ...Row) {
	h.t.Helper()
	if got := h.Take(port); !slices.EqualFunc(got, want, equal) {
		h.t.Errorf("output port %d has\n%s\nand should have\n%s", port, lines(got), lines(want))
	}
}

// TakeRejected takes the records that were rejected so far.
func (h *Harness) TakeRejected() []Rejection {
	rejected := h.rejected
	h.rejected = nil
	return rejected
}

// WantRejected takes the records that were rejected so far, and fails the test if the reasons are not these.
func (h *Harness) WantRejected(reasons ...string) {
	h.t.Helper()
	var got []string
	for _, rejection := range h.TakeRejected() {
		got = append(got, rejection.Reason)
	}
	if !slices.Equal(got, reasons) {
		h.t.Errorf("records were rejected for %q, and should be for %q", got, reasons)
	}
}

// TakeLog takes what was logged so far: level, colon, message.
func (h *Harness) TakeLog() []string {
	log := h.host.log
	h.host.log = nil
	return log
}

// Metric is a counter or gauge, or the last observation of a histogram; 0 if there is none.
func (h *Harness) Metric(name string) float64 { return h.host.metrics[name] }

// Snapshot takes a whole snapshot at once, incremental where that is possible, and gives the checkpoint after it.
func (h *Harness) Snapshot() Checkpoint {
	h.t.Helper()
	return h.snapshot(weir.Incremental)
}

// FullSnapshot is Snapshot of everything.
func (h *Harness) FullSnapshot() Checkpoint {
	h.t.Helper()
	return h.snapshot(weir.Full)
}

func (h *Harness) snapshot(mode weir.SnapshotMode) Checkpoint {
	h.t.Helper()
	h.BeginSnapshot(mode)
	for h.SnapshotStep(math.MaxInt) == weir.More {
	}
	return h.checkpoint
}

// BeginSnapshot begins a snapshot that is taken in steps. One that is open is abandoned; then, and the first time, this one is full.
func (h *Harness) BeginSnapshot(mode weir.SnapshotMode) {
	if h.open != nil || !h.exists {
		mode = weir.Full
	}
	h.epoch++
	h.open = &mode
	h.host.written = nil
}

// SnapshotStep is one step: after so many chunks the operator is asked to stop. When it is done, Checkpoint has it.
func (h *Harness) SnapshotStep(chunks int) weir.Progress {
	h.t.Helper()
	progress, err := h.TrySnapshotStep(chunks)
	h.must("snapshot", err)
	return progress
}

// TrySnapshotStep is SnapshotStep of what may fail; the next one is full then.
func (h *Harness) TrySnapshotStep(chunks int) (progress weir.Progress, err error) {
	h.t.Helper()
	if h.open == nil {
		h.t.Fatal("BeginSnapshot comes before SnapshotStep")
	}
	h.host.chunksBefore = chunks
	err = h.call(callSnapshot, func() (err error) {
		progress, err = h.stateful().Snapshot(weir.Cut{Epoch: h.epoch, Mode: *h.open}, &weir.SnapshotWriter{})
		return err
	})
	if err == nil && progress == weir.Done {
		h.checkpoint = h.checkpoint.after(*h.open, h.host.written)
		h.checkpoint.StateVersion = h.descriptor.StateVersion
		h.open, h.exists = nil, true
	}
	return progress, err
}

// Checkpoint is the last snapshot that was done, as it would be restored.
func (h *Harness) Checkpoint() Checkpoint { return h.checkpoint }

func (h *Harness) stateful() weir.Stateful {
	h.t.Helper()
	stateful, ok := h.Operator.(weir.Stateful)
	if !ok {
		h.t.Fatalf("%T does not implement weir.Stateful: embed a *state.Segments", h.Operator)
	}
	return stateful
}

// data runs a call that may emit, and those of Resume after it.
func (h *Harness) data(kind kind, first func(out *weir.Output) (weir.Progress, error)) error {
	for step := first; ; step, kind = h.Operator.Resume, callData {
		var progress weir.Progress
		err := h.call(kind, func() (err error) {
			progress, err = step(&weir.Output{})
			return err
		})
		if err != nil {
			return err
		}
		for port, rows := range h.host.emitted {
			h.outputs[port] = append(h.outputs[port], rows...)
		}
		h.rejected = append(h.rejected, h.host.rejected...)
		h.host.wake = min(h.host.wake, h.host.asked)
		if progress == weir.Done {
			return nil
		}
	}
}

// calling is held during a call: there is one host at a time.
var calling sync.Mutex

func (h *Harness) call(kind kind, run func() error) error {
	calling.Lock()
	defer calling.Unlock()
	h.host.begin(kind)
	host.Current = &h.host
	defer func() { host.Current = nil }()
	return run()
}

func (h *Harness) must(call string, err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("%s: %v failure: %v", call, weir.KindOf(err, weir.KindFatal), err)
	}
}

func lines(rows []Row) string {
	if len(rows) == 0 {
		return "  nothing"
	}
	var text strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&text, "  %v\n", row)
	}
	return strings.TrimSuffix(text.String(), "\n")
}
