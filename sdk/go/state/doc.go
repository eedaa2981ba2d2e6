// Package state keeps state by key, and writes and reads it in snapshots.
//
//   - [Keyed]: a value for each key.
//   - [EventTimers]: times in event time, each with a key.
//   - [Value]: one value, of the subtask or shared by all.
//
// An operator embeds a *[Segments], makes its collections from it, and so implements weir.Stateful:
//
//	type counter struct {
//		weir.Base
//		*state.Segments
//		counts *state.Keyed[uint64]
//	}
//
//	func open(config string, task weir.TaskInfo) (weir.Operator, error) {
//		segments := state.NewSegments(task)
//		return &counter{Segments: segments, counts: state.NewKeyedWith(segments, "counts", state.Uint64)}, nil
//	}
//
// Incremental: a snapshot writes the key groups in which something has changed. In steps: when the host asks to stop, the stream goes
// on, and later steps still write the state of the cut. By key group: state follows its keys when the parallelism changes. In an order
// of its own: what is written and iterated depends on what a collection holds alone; one that grew and one that was restored
// agree, to the byte. The tables hold no pointers unless the values do, so a large state does not slow the garbage collector down.
package state
