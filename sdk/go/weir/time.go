package weir

import "github.com/weir-stream/weir/sdk/go/internal/host"

// Now is the processing time at which the host began this call. It stands still within a call, never goes back, and is the same when
// the call is made again.
func Now() Timestamp { return host.For("Now").Now() }

// WakeAt asks for a call of Wake at that time, or at once if it has passed. The host keeps one such time, the earliest asked for, and
// forgets it when it calls.
func WakeAt(at Timestamp) { host.For("WakeAt").WakeAt(at) }
