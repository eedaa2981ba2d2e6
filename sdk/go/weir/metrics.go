package weir

import "github.com/weir-stream/weir/sdk/go/internal/host"

// Count adds to a counter, for what only the plugin knows: the host counts records, bytes, time and failures by itself.
//
// A name of a metric is 1 to 64 lower-case letters, digits and underscores; a plugin may have 256 of them. Call once a batch, not
// once a record.
func Count(name string, delta uint64) { host.For("Count").Count(name, delta) }

// Gauge sets a gauge.
func Gauge(name string, value float64) { host.For("Gauge").Gauge(name, value) }

// Observe adds an observation to a histogram.
func Observe(name string, value float64) { host.For("Observe").Observe(name, value) }
