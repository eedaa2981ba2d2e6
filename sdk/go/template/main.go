// Hands on a reading only when it differs by at least `least` from the last one handed on, for each key.
package main

import (
	"math"

	"github.com/weir-stream/weir/sdk/go/state"
	"github.com/weir-stream/weir/sdk/go/weir"
)

var plugin = weir.Plugin{
	Descriptor: weir.Descriptor{
		Name:    "{{name}}",
		Version: "0.1.0",
		Summary: "Hands on a reading when it has changed.",
		// Keyed: all records of a key come to the same subtask, in order, with the hash of the key.
		Inputs:  []weir.Port{{Name: "in", Summary: "readings: JSON objects with a number under `value`", Keyed: true}},
		Outputs: []weir.Port{{Name: "out", Summary: "those that have changed, as they came in", Keyed: true}},
		State:   weir.Keyed,
		// Raise the version when you change what the state looks like, and read the old one in Restore.
		StateVersion: 1,
		// For people and their tools; open checks the configuration in any case.
		ConfigSchema: `{ "type": "object", "properties": { "least": { "type": "number", "minimum": 0 } }, "additionalProperties": false }`,
	},
	Open: open,
}

// config is what may stand under `config` in the pipeline file.
type config struct {
	// Least is by how much a value has to differ.
	Least float64 `json:"least"`
}

// reading is the value of a record. Other members of the object are of no interest here, and go on with it.
type reading struct {
	Value *float64 `json:"value"`
}

// changes is the operator. What it has to remember between two calls lies in here, and nowhere else.
type changes struct {
	weir.Base
	// Writes and reads the state, and only what has changed.
	*state.Segments
	least float64
	// The value that was handed on last, by key. This is the state: it is in every checkpoint and survives crashes. The name
	// is how it is found again; never change it.
	last *state.Keyed[float64]
	// What a call emits. It is kept only for its memory.
	out weir.BatchBuilder
}

func open(text string, task weir.TaskInfo) (weir.Operator, error) {
	var config config
	if err := weir.Config(text, &config); err != nil {
		return nil, err
	}
	segments := state.NewSegments(task)
	return &changes{
		Segments: segments,
		least:    config.Least,
		last:     state.NewKeyed[float64](segments, "last"),
	}, nil
}

// Process is called for each batch of records. What it emits takes effect when it returns no error: the call is a transaction.
func (op *changes) Process(_ uint32, batch *weir.Batch, out *weir.Output) (weir.Progress, error) {
	op.out.Reset()
	for record := range batch.Records() {
		// A record that cannot be processed is no failure: put it aside, with the reason, and go on.
		key, ok := record.Keyed()
		if !ok {
			out.Reject(record.Index(), "it has no key")
			continue
		}
		var reading reading
		if err := record.JSON(&reading); err != nil {
			out.Reject(record.Index(), "it is no reading: "+err.Error())
			continue
		}
		if reading.Value == nil {
			out.Reject(record.Index(), "it is no reading: it has no value")
			continue
		}
		last, seen := op.last.Get(key)
		if !seen || math.Abs(*reading.Value-last) >= op.least {
			op.last.Set(key, *reading.Value)
			op.out.PushRecord(record)
		}
	}
	// Once for the whole batch: that is cheaper than once a record.
	out.Emit(0, op.out.Batch())
	return weir.Done, nil
}

func init() { weir.Export(plugin) }

// A plugin is not run, it is called.
func main() {}
