// Package weir is for operators of the stream runtime weir, written in Go.
//
// An operator is a type with the methods of [Operator]; one that writes its state itself has those of [Stateful] too, usually by
// embedding a *state.Segments. It says what it is in a [Plugin], which is exported in an init function of package main:
//
//	package main
//
//	import "github.com/weir-stream/weir/sdk/go/weir"
//
//	type upper struct {
//		weir.Base
//		out weir.BatchBuilder
//	}
//
//	var plugin = weir.Plugin{
//		Descriptor: weir.Descriptor{
//			Name:    "upper",
//			Version: "1.0.0",
//			Inputs:  []weir.Port{{Name: "in"}},
//			Outputs: []weir.Port{{Name: "out"}},
//		},
//		Open: func(config string, task weir.TaskInfo) (weir.Operator, error) { return &upper{}, nil },
//	}
//
//	func (op *upper) Process(port uint32, batch *weir.Batch, out *weir.Output) (weir.Progress, error) {
//		op.out.Reset()
//		for record := range batch.Records() {
//			op.out.Push(record.Time(), record.Key(), bytes.ToUpper(record.Value()))
//		}
//		out.Emit(0, op.out.Batch())
//		return weir.Done, nil
//	}
//
//	func init() { weir.Export(plugin) }
//
//	func main() {}
//
// "weir plugin build" makes a component of it. Package state has state by key, event-time timers and their snapshots; package
// weirtest runs an operator in "go test", without WebAssembly.
//
// # Rules that the compiler cannot check
//
// The host makes calls again, to recover and to verify: the same calls must lead to the same results. Nothing that reaches output or
// state may depend on the order of a map, on time.Now, on math/rand or on an address. Take time from [Now] and randomness from the
// seed in [TaskInfo]. What an operator remembers lies in its fields, and nowhere else. Do not start goroutines that outlive a call.
//
// The bytes of a batch are valid until the call returns: copy what is to be kept. Package weirtest overwrites them after each
// call, so that a test finds who does not.
//
// What is printed reaches the log of weir, line by line. A panic reaches it too, at level error, with the place where it happened; then the host
// starts over from the last checkpoint.
package weir
