//go:build wasip1

// Package export_weir_plugin_checkpoint is where the generated exports look for the functions of weir:plugin/checkpoint. Package weir
// sets them.
package export_weir_plugin_checkpoint

import (
	"github.com/weir-stream/weir/sdk/go/internal/bind/imports/weir_plugin_types"
	"github.com/weir-stream/weir/sdk/go/internal/wit/types"
)

// The functions of the interface.
var (
	Snapshot func(epoch uint64, mode uint8) types.Result[weir_plugin_types.Progress, weir_plugin_types.Failure]
	Restore  func(stateVersion uint32) types.Result[types.Unit, weir_plugin_types.Failure]
)
