package weir

// A Progress says whether a call has finished what it was called for.
type Progress uint8

const (
	// Done: it has.
	Done Progress = iota
	// More: it has not. The host passes on what there is, then calls Resume (or Snapshot again).
	More
)

func (p Progress) String() string {
	if p == More {
		return "more"
	}
	return "done"
}

// Operator is what an operator does with data. Embed [Base] for all but Process.
//
// A call is a transaction: what it emits takes effect when it returns no error. The host makes one call at a time. An error that
// is no [Failure] counts as [Fatal].
type Operator interface {
	// Process takes a batch that came in on an input port. It has at least one record. Records may be out of order in event time,
	// and late. A record that cannot be processed is no failure: reject it and go on.
	Process(port uint32, batch *Batch, out *Output) (Progress, error)

	// Advance is called when event time has moved: all records at or before the watermark have come, but for late ones. Emit what
	// was waiting for that. After a restore the first watermark may be one that the state has already seen.
	Advance(watermark Timestamp, out *Output) (Progress, error)

	// Wake is called when processing time has come to what [WakeAt] asked for, or later; also when nothing is due.
	Wake(out *Output) (Progress, error)

	// Finish is called when an input port has ended, and not when a job is stopped before its end.
	Finish(port uint32, out *Output) (Progress, error)

	// Resume goes on with a call that returned [More]. No other call comes in between, and no snapshot.
	Resume(out *Output) (Progress, error)
}

// Stateful is an operator that writes and reads its state itself, so that it can be upgraded, rescaled and stored incrementally.
// Embed a *state.Segments: it has both methods.
type Stateful interface {
	Operator

	// Snapshot writes the state as it is at the first call with this epoch. Returning [More] lets the stream go on and asks for
	// another call; what changes in between must not show in this snapshot.
	Snapshot(cut Cut, to *SnapshotWriter) (Progress, error)

	// Restore takes over state, on a fresh operator. The version is that of the plugin which wrote it.
	Restore(stateVersion uint32, from *SnapshotReader) error
}

// Base has the methods of [Operator] that most operators do not need. All but Resume do nothing; that goes on with what
// [Base.InSteps] has begun.
type Base struct {
	step func(out *Output) (Progress, error)
}

// Advance does nothing.
func (*Base) Advance(Timestamp, *Output) (Progress, error) { return Done, nil }

// Wake does nothing.
func (*Base) Wake(*Output) (Progress, error) { return Done, nil }

// Finish does nothing.
func (*Base) Finish(uint32, *Output) (Progress, error) { return Done, nil }

// Resume goes on with what [Base.InSteps] has begun.
func (b *Base) Resume(out *Output) (Progress, error) {
	if b.step == nil {
		return Done, nil
	}
	return b.InSteps(out, b.step)
}

// InSteps is for calls with more to emit than is good to keep in memory: as long as step returns [More] it is called again, each time
// after the host has passed on what was emitted.
//
//	return op.InSteps(out, func(out *weir.Output) (weir.Progress, error) { ... })
func (b *Base) InSteps(out *Output, step func(out *Output) (Progress, error)) (Progress, error) {
	progress, err := step(out)
	if b.step = nil; err == nil && progress == More {
		b.step = step
	}
	return progress, err
}

// TaskInfo says which part of which job an operator works on. Nothing in it differs between two runs of a job at the same
// parallelism.
type TaskInfo struct {
	// Job is the name of the job, Node that of the node in the pipeline.
	Job, Node string
	// Subtask is the number of this subtask, from 0, of so many.
	Subtask, Parallelism uint32
	// KeyGroups is how many key groups the job has.
	KeyGroups uint32
	// FirstKeyGroup and EndKeyGroup are this subtask's: from the first up to, not including, the end.
	FirstKeyGroup, EndKeyGroup uint32
	// Seed is for whatever needs randomness. The same for this subtask in every run of the job.
	Seed uint64
	// Attributes are anything else; skip names that you do not know.
	Attributes []Attribute
}
