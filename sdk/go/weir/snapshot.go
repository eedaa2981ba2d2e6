package weir

import "github.com/weir-stream/weir/sdk/go/internal/host"

// A Cut says which snapshot a call of Snapshot is part of.
type Cut struct {
	// Epoch is the one that ends with this cut. Another one than in the last call begins a new snapshot.
	Epoch uint64
	// Mode is everything, or what has changed.
	Mode SnapshotMode
}

// A SnapshotMode is what a snapshot has to contain.
type SnapshotMode uint8

const (
	// Full: everything, as bases. A segment that is not written is gone.
	Full SnapshotMode = iota
	// Incremental: at least what has changed since the last snapshot that was done. A segment that is not written stays.
	Incremental
)

// A Scope is where a segment belongs when the parallelism changes.
type Scope struct {
	kind  uint8
	group uint32
}

// ScopeKeyGroup is the scope of one of this subtask's key groups: it goes where the group goes.
func ScopeKeyGroup(group uint32) Scope { return Scope{scopeKeyGroup, group} }

var (
	// ScopeSubtask: to this subtask alone; the job refuses to start with another parallelism.
	ScopeSubtask = Scope{kind: scopeSubtask}
	// ScopeShared: to every subtask alike.
	ScopeShared = Scope{kind: scopeShared}
	// ScopeItem: to any subtask; each chunk is an item of a list that is dealt out anew.
	ScopeItem = Scope{kind: scopeItem}
)

const (
	scopeKeyGroup = iota
	scopeSubtask
	scopeShared
	scopeItem
)

// KeyGroup gives the key group, where the scope is one.
func (s Scope) KeyGroup() (group uint32, ok bool) { return s.group, s.kind == scopeKeyGroup }

func (s Scope) String() string {
	return [...]string{"key-group", "subtask", "shared", "item"}[s.kind&3]
}

// A SegmentKind is how a chunk relates to what its segment held before.
type SegmentKind uint8

const (
	// SegmentBase replaces it: the first base chunk in a snapshot drops what was there, further ones add to it. One without bytes clears the segment.
	SegmentBase SegmentKind = iota
	// SegmentDelta comes on top of it.
	SegmentDelta
)

// A SnapshotWriter takes the chunks of a snapshot.
type SnapshotWriter struct{}

// Write adds a chunk to a segment. It comes back as it is: make it something that can be decoded alone, of about 256 KiB
// and at most 1 MiB. False asks to return [More] soon: the stream is waiting.
func (*SnapshotWriter) Write(scope Scope, kind SegmentKind, data []byte) bool {
	return host.For("SnapshotWriter.Write").Write(host.Segment{Scope: scope.kind, Group: scope.group, Kind: uint8(kind)}, data)
}

// A SnapshotReader gives back the chunks of a snapshot.
type SnapshotReader struct{}

// A Chunk is a piece of state. Its bytes are valid until the next is read.
type Chunk struct {
	Scope Scope
	Kind  SegmentKind
	// Origin is the number of the subtask that wrote it.
	Origin uint32
	Data   []byte
}

// Next gives the next chunk, false when there are no more: by ascending key group, the other segments after them; in a segment the base
// before its deltas, chunks in the order in which they were written. All of them have to be read.
func (*SnapshotReader) Next() (Chunk, bool) {
	chunk, ok := host.For("SnapshotReader.Next").Read()
	return Chunk{
		Scope: Scope{chunk.Source.Scope, chunk.Source.Group},
		Kind:  SegmentKind(chunk.Source.Kind), Origin: chunk.Origin, Data: chunk.Data,
	}, ok
}
