package state

import (
	"fmt"
	"slices"

	"github.com/weir-stream/weir/sdk/go/weir"
)

// Segments takes the snapshots of an operator's collections, all together, and restores them. Embed a pointer to one: it has
// both methods of weir.Stateful.
//
// All collections share one segment for each key group. A snapshot writes the groups in which any of them has changed, each
// whole, in chunks of at most 256 KiB.
type Segments struct {
	groups groups
	parts  []part
	values []value
	// stored says of which groups the host holds a segment.
	stored  []bool
	open    *snapshot
	rewrite bool
	writer  chunkWriter
	// fragments are the parts so far of an entry that was too large for one chunk.
	fragments []byte
}

// A part is a collection by key. Groups are counted from the first of the subtask.
type part interface {
	partName() string
	changed(group int) bool
	live(group int) bool
	// cut makes what is there now what will be written, for the groups of which write says so.
	cut(write []bool)
	write(group int, to *chunkWriter) error
	read(group int, section *section) error
}

// A snapshot that is open.
type snapshot struct {
	epoch uint64
	// groups are those that are to be written, the first of them now.
	groups []int
	// values are the segments of values, encoded at the cut, that are to be written before.
	values []encodedValues
	// chunk is the next of those of the first segment that is to be written, which is encoded if it is not zero.
	chunk   int
	encoded bool
}

type encodedValues struct {
	scope  weir.Scope
	chunks [][]byte
}

// NewSegments is for the key groups of a subtask.
func NewSegments(task weir.TaskInfo) *Segments {
	if task.EndKeyGroup <= task.FirstKeyGroup || task.EndKeyGroup > task.KeyGroups {
		panic(fmt.Sprintf("a task with key groups %d to %d of %d", task.FirstKeyGroup, task.EndKeyGroup, task.KeyGroups))
	}
	groups := groups{all: task.KeyGroups, first: task.FirstKeyGroup, count: int(task.EndKeyGroup - task.FirstKeyGroup)}
	return &Segments{groups: groups, stored: make([]bool, groups.count)}
}

// Rewrite makes the next snapshot write everything: for after Restore has read an older state version, whose bytes must not stay.
func (s *Segments) Rewrite() { s.rewrite = true }

// Snapshot implements weir.Stateful.
func (s *Segments) Snapshot(cut weir.Cut, to *weir.SnapshotWriter) (weir.Progress, error) {
	if s.open == nil || s.open.epoch != cut.Epoch {
		if err := s.begin(cut); err != nil {
			return weir.Done, err
		}
	}
	open := s.open
	for {
		scope, chunks, err := s.segment()
		if err != nil {
			s.open = nil
			s.rewrite = true
			return weir.Done, err
		}
		if chunks == 0 {
			s.open = nil
			return weir.Done, nil
		}
		goOn := to.Write(scope, weir.SegmentBase, s.chunk(open.chunk))
		if open.chunk++; open.chunk == chunks {
			s.next()
		}
		if !goOn && len(open.values)+len(open.groups) > 0 {
			return weir.More, nil
		}
	}
}

// begin takes the cut: it decides what will be written.
func (s *Segments) begin(cut weir.Cut) error {
	full := cut.Mode == weir.Full || s.open != nil || s.rewrite
	open := &snapshot{epoch: cut.Epoch}
	s.open, s.rewrite = open, false
	write := make([]bool, s.groups.count)
	for group := range write {
		changed, live := full, false
		for _, part := range s.parts {
			changed = changed || part.changed(group)
			live = live || part.live(group)
		}
		// A full snapshot need not clear what it does not write.
		stored := s.stored[group] && cut.Mode == weir.Incremental
		if write[group] = changed && (live || stored); write[group] {
			open.groups = append(open.groups, group)
		}
		if s.stored[group] = s.stored[group] && !changed || live && changed; cut.Mode == weir.Full {
			s.stored[group] = live
		}
	}
	for _, part := range s.parts {
		part.cut(write)
	}
	err := s.cutValues(full)
	if err != nil {
		s.open, s.rewrite = nil, true
	}
	return err
}

// segment encodes what is to be written next, if that is still to be done, and says in how many chunks. There is at least one,
// unless all is written.
func (s *Segments) segment() (scope weir.Scope, chunks int, err error) {
	open := s.open
	if len(open.values) > 0 {
		return open.values[0].scope, len(open.values[0].chunks), nil
	}
	if len(open.groups) == 0 {
		return weir.Scope{}, 0, nil
	}
	group := open.groups[0]
	if !open.encoded {
		s.writer.reset()
		for _, part := range s.parts {
			if err := part.write(group, &s.writer); err != nil {
				return weir.Scope{}, 0, weir.Fatal("collection %q cannot be written: %w", part.partName(), err)
			}
		}
		s.writer.closeChunk()
		if open.encoded = true; len(s.writer.ends) == 0 {
			// A base without bytes clears the segment.
			s.writer.ends = append(s.writer.ends, 0)
		}
	}
	return weir.ScopeKeyGroup(s.groups.first + uint32(group)), len(s.writer.ends), nil
}

func (s *Segments) chunk(number int) []byte {
	if values := s.open.values; len(values) > 0 {
		return values[0].chunks[number]
	}
	return s.writer.chunk(number)
}

// next goes on to the next segment.
func (s *Segments) next() {
	open := s.open
	if open.chunk, open.encoded = 0, false; len(open.values) > 0 {
		open.values = open.values[1:]
	} else {
		open.groups = open.groups[1:]
	}
}

// Restore implements weir.Stateful: it reads all that is left to read.
func (s *Segments) Restore(_ uint32, from *weir.SnapshotReader) error {
	for {
		chunk, ok := from.Next()
		if !ok {
			return nil
		}
		if err := s.RestoreChunk(chunk); err != nil {
			return err
		}
	}
}

// RestoreChunk reads one chunk, for operators that also write segments of their own.
func (s *Segments) RestoreChunk(chunk weir.Chunk) error {
	number, keyed := chunk.Scope.KeyGroup()
	group := int(number) - int(s.groups.first)
	if keyed && (group < 0 || group >= s.groups.count) {
		return corrupt("key group %d is none of this subtask's, %v", number, s.groups)
	}
	if keyed {
		s.stored[group] = s.stored[group] || len(chunk.Data) > 0
	}
	return sections(chunk.Data, func(section section) error {
		switch section.operation {
		case fragment:
			s.fragments = append(s.fragments, section.body...)
			return nil
		case lastOfPut, lastOfDelete:
			section.body = append(s.fragments, section.body...)
			s.fragments = nil
			section.operation -= lastOfPut - put
		}
		if keyed {
			for _, part := range s.parts {
				if part.partName() == section.name {
					return part.read(group, &section)
				}
			}
		} else {
			for _, value := range s.values {
				if value.valueName() == section.name && value.valueScope() == chunk.Scope {
					return value.read(&section)
				}
			}
		}
		return corrupt("it holds a collection %q of scope %v, which this plugin does not have: give the collection its old name, or "+
			"raise OldestStateVersion", section.name, chunk.Scope)
	})
}

func (s *Segments) add(part part) {
	s.checkName(part.partName())
	s.parts = append(s.parts, part)
}

func (s *Segments) checkName(name string) {
	if name == "" || len(name) > nameBytesMax {
		panic(fmt.Sprintf("the name of a collection has 1 to %d bytes, %q has %d", nameBytesMax, name, len(name)))
	}
	if slices.ContainsFunc(s.parts, func(part part) bool { return part.partName() == name }) ||
		slices.ContainsFunc(s.values, func(value value) bool { return value.valueName() == name }) {
		panic(fmt.Sprintf("two collections are named %q: give each its own name", name))
	}
}

// groups are the key groups of a subtask.
type groups struct {
	all, first uint32
	count      int
}

func (g groups) String() string { return fmt.Sprintf("%d to %d", g.first, int(g.first)+g.count-1) }

// of is the place of a hash's key group; it panics where that is none of the subtask's.
func (g *groups) of(hash uint64) int {
	place := weir.KeyGroup(hash, g.all) - g.first
	if place >= uint32(g.count) {
		g.notOurs(hash)
	}
	return int(place)
}

func (g *groups) notOurs(hash uint64) {
	panic(fmt.Sprintf("a key of key group %d came to a subtask that has %v: declare the input port as Keyed", weir.KeyGroup(hash, g.all), g))
}

// check refuses a key that is stored in another group than its own: its bytes are damaged.
func (g *groups) check(group int, hash uint64) error {
	if own := weir.KeyGroup(hash, g.all); own != g.first+uint32(group) {
		return corrupt("key group %d holds a key of group %d", int(g.first)+group, own)
	}
	return nil
}
