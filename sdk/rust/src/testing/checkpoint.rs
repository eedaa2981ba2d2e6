//! Keeps segments as the host does: a base replaces, a delta comes on top, an incremental snapshot leaves what it does not write.

use std::collections::{BTreeMap, VecDeque};

use crate::bindings::SnapshotMode;
use crate::bindings::snapshots::{Chunk, Scope, Segment, SegmentKind};
use crate::operator::TaskInfo;

/// The state of one subtask, as it would be restored.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// The state version of the plugin that wrote it.
    pub state_version: u32,
    pub(crate) exists: bool,
    segments: BTreeMap<Place, Vec<Chunk>>,
    /// The bytes that the last snapshot wrote.
    last_bytes: usize,
}

/// A scope, in the order in which segments are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    KeyGroup(u32),
    Subtask,
    Shared,
    Item,
}

impl From<Scope> for Place {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::KeyGroup(group) => Self::KeyGroup(group),
            Scope::Subtask => Self::Subtask,
            Scope::Shared => Self::Shared,
            Scope::Item => Self::Item,
        }
    }
}

impl Checkpoint {
    /// All chunks, in the order in which a restore reads them.
    pub fn chunks(&self) -> VecDeque<Chunk> {
        self.segments.values().flatten().cloned().collect()
    }

    /// The bytes of all chunks.
    pub fn byte_len(&self) -> usize {
        self.segments.values().flatten().map(|chunk| chunk.data.len()).sum()
    }

    /// The bytes that the last snapshot wrote.
    pub fn last_snapshot_bytes(&self) -> usize {
        self.last_bytes
    }

    /// Segments with the bytes of their chunks in order: equal for equal histories.
    pub fn contents(&self) -> Vec<(String, Vec<Vec<u8>>)> {
        let data = |chunks: &Vec<Chunk>| chunks.iter().map(|chunk| chunk.data.clone()).collect();
        self.segments.iter().map(|(place, chunks)| (format!("{place:?}"), data(chunks))).collect()
    }

    pub(super) fn apply(&mut self, mode: SnapshotMode, written: Vec<(Segment, u32, Vec<u8>)>) {
        self.exists = true;
        if mode == SnapshotMode::Full {
            self.segments.clear();
        }
        self.last_bytes = written.iter().map(|(_, _, data)| data.len()).sum();
        let mut replaced = Vec::new();
        for (source, origin, data) in written {
            let place = Place::from(source.scope);
            let chunks = self.segments.entry(place).or_default();
            if source.kind == SegmentKind::Base && !replaced.contains(&place) {
                chunks.clear();
                replaced.push(place);
            }
            if !(source.kind == SegmentKind::Base && data.is_empty()) {
                chunks.push(Chunk { source, origin, data });
            }
        }
        self.segments.retain(|_, chunks| !chunks.is_empty());
    }

    /// What a subtask gets of the checkpoints of all subtasks.
    pub(super) fn merge(checkpoints: &[&Self], task: &TaskInfo) -> Self {
        let mut merged = Self { exists: true, ..Self::default() };
        for (number, checkpoint) in checkpoints.iter().enumerate() {
            for (place, chunks) in &checkpoint.segments {
                let mine = match place {
                    Place::KeyGroup(group) => (task.first_key_group..task.end_key_group).contains(group),
                    Place::Subtask => {
                        let same = checkpoints.len() == task.parallelism as usize;
                        assert!(same, "a segment of scope subtask refuses a rescale");
                        number == task.subtask as usize
                    }
                    Place::Shared => !merged.segments.contains_key(place),
                    Place::Item => number % task.parallelism as usize == task.subtask as usize,
                };
                if mine {
                    merged.segments.entry(*place).or_default().extend(chunks.iter().cloned());
                }
            }
        }
        merged
    }
}
