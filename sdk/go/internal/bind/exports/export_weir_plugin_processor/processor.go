//go:build wasip1

// Package export_weir_plugin_processor is where the generated exports look for the functions of weir:plugin/processor. Package weir
// sets them: it cannot be imported from here, since it imports the bindings.
package export_weir_plugin_processor

import (
	"github.com/weir-stream/weir/sdk/go/internal/bind/imports/weir_plugin_types"
	"github.com/weir-stream/weir/sdk/go/internal/wit/types"
)

type (
	progress = types.Result[weir_plugin_types.Progress, weir_plugin_types.Failure]
	nothing  = types.Result[types.Unit, weir_plugin_types.Failure]
)

// The functions of the interface.
var (
	Describe func() weir_plugin_types.Descriptor
	Open     func(config string, task weir_plugin_types.TaskInfo) nothing
	Process  func(port uint32, input weir_plugin_types.Batch) progress
	Advance  func(watermark int64) progress
	Wake     func() progress
	Finish   func(port uint32) progress
	Resume   func() progress
)
