package weirtest

import (
	"fmt"
	"regexp"
	"unicode/utf8"

	"github.com/weir-stream/weir/sdk/go/internal/host"
	"github.com/weir-stream/weir/sdk/go/weir"
)

// kind is which kind of call is running: what an operator may ask for depends on it.
type kind int

const (
	callOther kind = iota
	callProcess
	callData
	callSnapshot
	callRestore
)

func (k kind) String() string {
	return [...]string{"open", "process", "advance, wake, finish or resume", "snapshot", "restore"}[k]
}

const (
	reasonBytesMax = 1024
	chunkBytesMax  = 1 << 20
	metricsMax     = 256
)

var metricName = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// fake records what an operator says, and panics where the real host traps.
type fake struct {
	kind         kind
	subtask      uint32
	outputs      []weir.Port
	input        []Row
	emitted      [][]Row
	rejected     []Rejection
	log          []string
	metrics      map[string]float64
	now          weir.Timestamp
	asked, wake  weir.Timestamp
	written      []host.Chunk
	chunksBefore int
	chunks       []host.Chunk
	lastRead     []byte
}

// never is the wake time of an operator that has not asked for one.
const never = weir.EndOfTime

// begin drops what an earlier call has left that failed.
func (f *fake) begin(kind kind) {
	f.kind = kind
	f.emitted = make([][]Row, len(f.outputs))
	f.rejected = nil
	f.asked = never
}

func (f *fake) allow(function string, kinds ...kind) {
	for _, kind := range kinds {
		if f.kind == kind {
			return
		}
	}
	panic(fmt.Sprintf("%s is not allowed within %v: the host traps", function, f.kind))
}

func (f *fake) batch(raw *host.Batch) *weir.Batch {
	batch := weir.NewBatch(raw.Timestamps, nil,
		weir.NewColumn(raw.KeyOffsets, raw.Keys, raw.KeyNulls),
		weir.NewColumn(raw.ValueOffsets, raw.Values, raw.ValueNulls),
		weir.NewColumn(raw.HeaderOffsets, raw.Headers, nil))
	for name, column := range map[string]*weir.Column{"keys": batch.Keys(), "values": batch.Values(), "headers": batch.Headers()} {
		if err := column.Check(batch.Len()); err != nil {
			panic(fmt.Sprintf("the %s of a batch are malformed: %v: the host traps", name, err))
		}
	}
	return batch
}

func (f *fake) Emit(port uint32, raw *host.Batch) {
	f.allow("Output.Emit", callProcess, callData)
	if int(port) >= len(f.outputs) {
		panic(fmt.Sprintf("there is no output port %d, of %d: the host traps", port, len(f.outputs)))
	}
	rows := Rows(f.batch(raw))
	for _, row := range rows {
		if f.outputs[port].Keyed && row.Key == nil {
			panic(fmt.Sprintf("output port %q is keyed, and a record has no key: %v: the host traps", f.outputs[port].Name, row))
		}
	}
	f.emitted[port] = append(f.emitted[port], rows...)
}

func (f *fake) Reject(index uint32, reason string) {
	f.allow("Output.Reject", callProcess)
	if int(index) >= len(f.input) {
		panic(fmt.Sprintf("there is no record %d in a batch of %d: the host traps", index, len(f.input)))
	}
	f.rejected = append(f.rejected, Rejection{f.input[index], cutReason(reason)})
}

func (f *fake) RejectBatch(raw *host.Batch, reason string) {
	f.allow("Output.RejectBatch", callProcess, callData)
	for _, row := range Rows(f.batch(raw)) {
		f.rejected = append(f.rejected, Rejection{row, cutReason(reason)})
	}
}

func cutReason(reason string) string {
	end := min(len(reason), reasonBytesMax)
	for end > 0 && end < len(reason) && !utf8.RuneStart(reason[end]) {
		end--
	}
	return reason[:end]
}

func (f *fake) Log(level uint8, message string) {
	f.log = append(f.log, [...]string{"trace", "debug", "info", "warn", "error"}[level]+": "+message)
}

func (f *fake) LogEnabled(uint8) bool { return true }

func (f *fake) metric(name string) {
	if !metricName.MatchString(name) {
		panic(fmt.Sprintf("%q is no name of a metric: 1 to 64 lower-case letters, digits and underscores", name))
	}
	if _, known := f.metrics[name]; !known && len(f.metrics) == metricsMax {
		panic(fmt.Sprintf("metric %q is one more than %d: the host drops it", name, metricsMax))
	}
}

func (f *fake) Count(name string, delta uint64) {
	f.metric(name)
	f.metrics[name] += float64(delta)
}

func (f *fake) Gauge(name string, value float64) {
	f.metric(name)
	f.metrics[name] = value
}

func (f *fake) Observe(name string, value float64) { f.Gauge(name, value) }

func (f *fake) Now() int64 { return f.now }

func (f *fake) WakeAt(at int64) {
	f.allow("WakeAt", callProcess, callData)
	f.asked = min(f.asked, at)
}

func (f *fake) Write(target host.Segment, data []byte) bool {
	f.allow("SnapshotWriter.Write", callSnapshot)
	if len(data) > chunkBytesMax {
		panic(fmt.Sprintf("a chunk of %d bytes, more than %d: a host may trap", len(data), chunkBytesMax))
	}
	f.written = append(f.written, host.Chunk{Source: target, Origin: f.subtask, Data: clone(data)})
	f.chunksBefore--
	return f.chunksBefore > 0
}

// Read hands out a copy, and spoils that of the chunk before: a plugin that keeps it is found out.
func (f *fake) Read() (host.Chunk, bool) {
	f.allow("SnapshotReader.Next", callRestore)
	if len(f.chunks) == 0 {
		return host.Chunk{}, false
	}
	chunk := f.chunks[0]
	f.chunks = f.chunks[1:]
	chunk.Data = clone(chunk.Data)
	spoil(f.lastRead)
	f.lastRead = chunk.Data
	return chunk, true
}

// spoil overwrites what is not valid any more.
func spoil(bytes []byte) {
	for i := range bytes {
		bytes[i] = 0xdb
	}
}
