package weirtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-stream/weir/sdk/go/internal/host"
	"github.com/weir-stream/weir/sdk/go/weir"
)

// A Checkpoint is the state of one subtask, as it would be restored. It keeps segments as the host does: a base replaces, a delta
// comes on top, an incremental snapshot leaves what it does not write.
type Checkpoint struct {
	// StateVersion is that of the plugin that wrote it.
	StateVersion uint32
	segments     map[place][]host.Chunk
	written      int
}

// A place is a segment, in the order in which they are read: by scope, then key group.
type place struct {
	scope uint8
	group uint32
}

// Scopes, as the contract numbers them.
const (
	keyGroup = iota
	subtask
	shared
	item
)

func (p place) String() string {
	if p.scope == keyGroup {
		return fmt.Sprintf("key-group %d", p.group)
	}
	return [...]string{"key-group", "subtask", "shared", "item"}[p.scope]
}

func (c Checkpoint) places() []place {
	return slices.SortedFunc(maps.Keys(c.segments), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.group, b.group))
	})
}

// Chunks are those of all segments, in the order in which a restore reads them.
func (c Checkpoint) Chunks() [][]byte {
	var chunks [][]byte
	for _, chunk := range c.chunks() {
		chunks = append(chunks, chunk.Data)
	}
	return chunks
}

func (c Checkpoint) chunks() []host.Chunk {
	var chunks []host.Chunk
	for _, place := range c.places() {
		chunks = append(chunks, c.segments[place]...)
	}
	return chunks
}

// Contents are the segments with their bytes, as text: equal for equal states.
func (c Checkpoint) Contents() []string {
	var contents []string
	for _, place := range c.places() {
		for _, chunk := range c.segments[place] {
			contents = append(contents, fmt.Sprintf("%v: %q", place, chunk.Data))
		}
	}
	return contents
}

// ByteLen is the number of bytes of all chunks.
func (c Checkpoint) ByteLen() int {
	sum := 0
	for _, chunk := range c.chunks() {
		sum += len(chunk.Data)
	}
	return sum
}

// LastSnapshotBytes is how many bytes the last snapshot wrote.
func (c Checkpoint) LastSnapshotBytes() int { return c.written }

// Damage is a copy in which damage has changed the bytes of one chunk: for tests of what a plugin says of state that it cannot
// read.
func (c Checkpoint) Damage(number int, damage func(chunk []byte) []byte) Checkpoint {
	damaged := Checkpoint{StateVersion: c.StateVersion, segments: map[place][]host.Chunk{}}
	at := 0
	for _, place := range c.places() {
		for _, chunk := range c.segments[place] {
			if chunk.Data = clone(chunk.Data); at == number {
				chunk.Data = damage(chunk.Data)
			}
			damaged.segments[place] = append(damaged.segments[place], chunk)
			at++
		}
	}
	if number >= at {
		panic(fmt.Sprintf("there is no chunk %d in a checkpoint of %d", number, at))
	}
	return damaged
}

// after is the checkpoint after a snapshot that was done.
func (c Checkpoint) after(mode weir.SnapshotMode, written []host.Chunk) Checkpoint {
	next := Checkpoint{StateVersion: c.StateVersion, segments: map[place][]host.Chunk{}}
	if mode == weir.Incremental {
		for place, chunks := range c.segments {
			next.segments[place] = slices.Clone(chunks)
		}
	}
	replaced := map[place]bool{}
	for _, chunk := range written {
		next.written += len(chunk.Data)
		place := place{chunk.Source.Scope, chunk.Source.Group}
		base := weir.SegmentKind(chunk.Source.Kind) == weir.SegmentBase
		if base && !replaced[place] {
			replaced[place] = true
			delete(next.segments, place)
		}
		if !base || len(chunk.Data) > 0 {
			next.segments[place] = append(next.segments[place], chunk)
		}
	}
	return next
}

// merge is what a subtask gets of the checkpoints of all subtasks.
func merge(checkpoints []Checkpoint, task weir.TaskInfo) Checkpoint {
	merged := Checkpoint{segments: map[place][]host.Chunk{}}
	for number, checkpoint := range checkpoints {
		merged.StateVersion = max(merged.StateVersion, checkpoint.StateVersion)
		for _, place := range checkpoint.places() {
			mine := false
			switch place.scope {
			case keyGroup:
				mine = place.group >= task.FirstKeyGroup && place.group < task.EndKeyGroup
			case subtask:
				if len(checkpoints) != int(task.Parallelism) {
					panic(fmt.Sprintf("state of scope subtask was written by %d subtasks and cannot be restored by %d: the host refuses", len(checkpoints), task.Parallelism))
				}
				mine = number == int(task.Subtask)
			case shared:
				mine = len(merged.segments[place]) == 0
			case item:
				mine = number%int(task.Parallelism) == int(task.Subtask)
			}
			if mine {
				merged.segments[place] = append(merged.segments[place], checkpoint.segments[place]...)
			}
		}
	}
	return merged
}
