//go:build wasip1

package weir

// The component: what the host calls ends here, and what an operator asks for begins here. The functions of one of the worlds are
// added by component_stateful.go or component_simple.go.

import (
	"fmt"
	"runtime"
	"strings"

	exports "github.com/weir-stream/weir/sdk/go/internal/bind/exports/export_weir_plugin_processor"
	"github.com/weir-stream/weir/sdk/go/internal/bind/imports/weir_plugin_log"
	"github.com/weir-stream/weir/sdk/go/internal/bind/imports/weir_plugin_metrics"
	"github.com/weir-stream/weir/sdk/go/internal/bind/imports/weir_plugin_output"
	"github.com/weir-stream/weir/sdk/go/internal/bind/imports/weir_plugin_timers"
	wit "github.com/weir-stream/weir/sdk/go/internal/bind/imports/weir_plugin_types"
	"github.com/weir-stream/weir/sdk/go/internal/host"
	memory "github.com/weir-stream/weir/sdk/go/internal/wit/runtime"
	"github.com/weir-stream/weir/sdk/go/internal/wit/types"
)

// operator is the one that works, set by open.
var operator Operator

// The memory of what is made anew in each call.
var (
	input  Batch
	output Output
)

func init() {
	host.Current = componentHost{}
	exports.Describe = describe
	exports.Open = open
	exports.Process = func(port uint32, batch wit.Batch) types.Result[wit.Progress, wit.Failure] {
		return call(func() (Progress, error) {
			input = Batch{
				timestamps: batch.Timestamps,
				hashes:     batch.Hashes,
				keys:       NewColumn(batch.KeyOffsets, batch.Keys, batch.KeyNulls),
				values:     NewColumn(batch.ValueOffsets, batch.Values, batch.ValueNulls),
				headers:    NewColumn(batch.HeaderOffsets, batch.Headers, nil),
			}
			return operator.Process(port, &input, &output)
		})
	}
	exports.Advance = func(watermark int64) types.Result[wit.Progress, wit.Failure] {
		return call(func() (Progress, error) { return operator.Advance(watermark, &output) })
	}
	exports.Wake = func() types.Result[wit.Progress, wit.Failure] {
		return call(func() (Progress, error) { return operator.Wake(&output) })
	}
	exports.Finish = func(port uint32) types.Result[wit.Progress, wit.Failure] {
		return call(func() (Progress, error) { return operator.Finish(port, &output) })
	}
	exports.Resume = func() types.Result[wit.Progress, wit.Failure] {
		return call(func() (Progress, error) { return operator.Resume(&output) })
	}
}

// call runs a call of the host, and lets go of what came in with it.
func call(run func() (Progress, error)) types.Result[wit.Progress, wit.Failure] {
	defer logPanic()
	progress, err := run()
	memory.Release()
	collect()
	if err != nil {
		return types.Err[wit.Progress](failure(err, KindFatal))
	}
	return types.Ok[wit.Progress, wit.Failure](wit.Progress(progress))
}

// prepare runs a call that comes before all others.
func prepare(run func() error) types.Result[types.Unit, wit.Failure] {
	defer logPanic()
	err := run()
	memory.Release()
	collect()
	if err != nil {
		return types.Err[types.Unit](failure(err, KindInvalid))
	}
	return types.Ok[types.Unit, wit.Failure](types.Unit{})
}

func failure(err error, otherwise FailureKind) wit.Failure {
	return wit.Failure{Kind: uint8(KindOf(err, otherwise)), Message: strings.ToValidUTF8(err.Error(), "\ufffd")}
}

// logPanic is deferred: it logs a panic and where it happened, then traps.
func logPanic() {
	if reason := recover(); reason != nil {
		weir_plugin_log.Write(uint8(Error), panicMessage(reason))
		exit(2)
	}
}

//go:wasmimport wasi_snapshot_preview1 proc_exit
func exit(code int32)

func panicMessage(reason any) string {
	var message strings.Builder
	fmt.Fprintf(&message, "panic: %v", reason)
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for shown := 0; shown < 8; {
		frame, more := frames.Next()
		switch {
		case strings.HasPrefix(frame.Function, "runtime."):
		case strings.HasPrefix(frame.Function, "github.com/weir-stream/weir/sdk/go/weir."):
			more = more && shown == 0
		default:
			fmt.Fprintf(&message, ", at %s (%s:%d)", frame.Function, frame.File, frame.Line)
			shown++
		}
		if !more {
			break
		}
	}
	return strings.ToValidUTF8(message.String(), "\ufffd")
}

func plugin() *Plugin {
	if exported == nil {
		panic("no plugin is exported: call weir.Export from an init function of package main")
	}
	return exported
}

func describe() wit.Descriptor {
	defer logPanic()
	d := plugin().Descriptor
	ports := func(from []Port) []wit.Port {
		to := make([]wit.Port, len(from))
		for i, port := range from {
			to[i] = wit.Port{Name: port.Name, Summary: port.Summary, Keyed: port.Keyed}
		}
		return to
	}
	schema := types.None[string]()
	if d.ConfigSchema != "" {
		schema = types.Some(d.ConfigSchema)
	}
	attributes := make([]wit.Attribute, len(d.Attributes))
	for i, attribute := range d.Attributes {
		attributes[i] = wit.Attribute(attribute)
	}
	return wit.Descriptor{
		Name: d.Name, Version: d.Version, Summary: d.Summary,
		Inputs: ports(d.Inputs), Outputs: ports(d.Outputs),
		State: uint8(d.State), StateVersion: d.StateVersion, OldestStateVersion: d.OldestStateVersion,
		ConfigSchema: schema, Attributes: attributes,
	}
}

func open(config string, from wit.TaskInfo) types.Result[types.Unit, wit.Failure] {
	return prepare(func() error {
		// What the host handed over does not outlive the call.
		task := TaskInfo{
			Job: strings.Clone(from.Job), Node: strings.Clone(from.Node),
			Subtask: from.Subtask, Parallelism: from.Parallelism,
			KeyGroups: from.KeyGroups, FirstKeyGroup: from.FirstKeyGroup, EndKeyGroup: from.EndKeyGroup,
			Seed: from.Seed,
		}
		for _, attribute := range from.Attributes {
			task.Attributes = append(task.Attributes, Attribute{strings.Clone(attribute.Name), strings.Clone(attribute.Value)})
		}
		plugin := plugin()
		opened, err := plugin.Open(strings.Clone(config), task)
		if err != nil {
			return err
		}
		operator = opened
		return fitsWorld(plugin)
	})
}

// componentHost is the host that a component has: its imports.
type componentHost struct{}

func (componentHost) Emit(port uint32, batch *host.Batch) {
	weir_plugin_output.Emit(port, wit.Batch(*batch))
	collect()
}

func (componentHost) Reject(index uint32, reason string) { weir_plugin_output.Reject(index, reason) }

func (componentHost) RejectBatch(batch *host.Batch, reason string) {
	weir_plugin_output.RejectBatch(wit.Batch(*batch), reason)
}

func (componentHost) Log(level uint8, message string)    { weir_plugin_log.Write(level, message) }
func (componentHost) LogEnabled(level uint8) bool        { return weir_plugin_log.Enabled(level) }
func (componentHost) Count(name string, delta uint64)    { weir_plugin_metrics.Count(name, delta) }
func (componentHost) Gauge(name string, value float64)   { weir_plugin_metrics.Gauge(name, value) }
func (componentHost) Observe(name string, value float64) { weir_plugin_metrics.Observe(name, value) }
func (componentHost) Now() int64                         { return weir_plugin_timers.Now() }
func (componentHost) WakeAt(at int64)                    { weir_plugin_timers.WakeAt(at) }
