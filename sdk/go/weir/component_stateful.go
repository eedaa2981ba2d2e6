//go:build wasip1 && !simple_operator

package weir

import (
	exports "github.com/weir-stream/weir/sdk/go/internal/bind/exports/export_weir_plugin_checkpoint"
	"github.com/weir-stream/weir/sdk/go/internal/bind/imports/weir_plugin_snapshots"
	wit "github.com/weir-stream/weir/sdk/go/internal/bind/imports/weir_plugin_types"
	_ "github.com/weir-stream/weir/sdk/go/internal/bind/stateful"
	"github.com/weir-stream/weir/sdk/go/internal/host"
	memory "github.com/weir-stream/weir/sdk/go/internal/wit/runtime"
	"github.com/weir-stream/weir/sdk/go/internal/wit/types"
)

func init() {
	exports.Snapshot = func(epoch uint64, mode uint8) types.Result[wit.Progress, wit.Failure] {
		return call(func() (Progress, error) {
			stateful, ok := operator.(Stateful)
			if !ok {
				return Done, nil
			}
			return stateful.Snapshot(Cut{Epoch: epoch, Mode: SnapshotMode(mode)}, &SnapshotWriter{})
		})
	}
	exports.Restore = func(stateVersion uint32) types.Result[types.Unit, wit.Failure] {
		return prepare(func() error {
			stateful, ok := operator.(Stateful)
			if !ok {
				return Invalid("there is state to restore, and the operator has none: it does not implement weir.Stateful")
			}
			return stateful.Restore(stateVersion, &SnapshotReader{})
		})
	}
}

// fitsWorld refuses an operator whose state would be lost.
func fitsWorld(plugin *Plugin) error {
	if _, ok := operator.(Stateful); !ok && plugin.Descriptor.State != Stateless {
		return Invalid("plugin %q says that it has state, but %T does not write it: embed a *state.Segments, "+
			"or set world = \"simple-operator\" in weir-plugin.toml", plugin.Descriptor.Name, operator)
	}
	return nil
}

func (componentHost) Write(target host.Segment, data []byte) bool {
	return weir_plugin_snapshots.Write(weir_plugin_snapshots.Segment{Scope: scopeToWit(target), Kind: target.Kind}, data)
}

func (componentHost) Read() (host.Chunk, bool) {
	// The chunk before has been read.
	memory.Release()
	collect()
	option := weir_plugin_snapshots.Read()
	if option.Tag() == types.OptionNone {
		return host.Chunk{}, false
	}
	chunk := option.Some()
	from := host.Segment{Scope: chunk.Source.Scope.Tag(), Kind: chunk.Source.Kind}
	if from.Scope == scopeKeyGroup {
		from.Group = chunk.Source.Scope.KeyGroup()
	}
	return host.Chunk{Source: from, Origin: chunk.Origin, Data: chunk.Data}, true
}

func scopeToWit(segment host.Segment) weir_plugin_snapshots.Scope {
	switch segment.Scope {
	case scopeKeyGroup:
		return weir_plugin_snapshots.MakeScopeKeyGroup(segment.Group)
	case scopeSubtask:
		return weir_plugin_snapshots.MakeScopeSubtask()
	case scopeShared:
		return weir_plugin_snapshots.MakeScopeShared()
	default:
		return weir_plugin_snapshots.MakeScopeItem()
	}
}
