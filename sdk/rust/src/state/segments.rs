//! Snapshots of keyed state: which key groups are written whole, which as what has changed, and in which step.
//!
//! All collections of an operator share one segment for each key group, and a base replaces what all of them had in it. So
//! one [`Segments`] decides for all, at the cut, from facts that are the same in an operator which has run on and in one that was restored.

use super::chunk::{ChunkWriter, Operation, Section, corrupt};
use super::groups::Groups;
use crate::batch::key_group;
use crate::bindings::SnapshotMode;
use crate::operator::{Cut, Failure, Progress, TaskInfo};
use crate::snapshot::{Chunk, Scope, SegmentKind, SnapshotReader, SnapshotWriter};

/// After so many delta chunks a group is written whole, even if they are small; up to twice as many, so
/// that not all groups are at once.
const DELTA_CHUNKS: u32 = 128;

/// Into so many different shares of their base the limits of the groups' deltas are spread.
const SHARES: u64 = 128;

/// The part of a snapshot that a collection has to write for one key group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing: the group has not changed, or has nothing.
    Keep,
    /// What has changed.
    Delta,
    /// Everything.
    Base,
}

/// What a collection has in a key group.
#[derive(Clone, Copy, Debug, Default)]
#[doc(hidden)]
pub struct Weight {
    /// Entries.
    pub live: usize,
    /// Changes since the last cut.
    pub changed: usize,
}

/// A collection that [`Segments`] can write and read. Implemented by the collections of this module only.
pub trait Part: sealed::Sealed {
    /// Its name, by which it is found again: never change it.
    fn name(&self) -> &str;
}

pub(crate) mod sealed {
    use super::{Plan, Weight};
    use crate::operator::Failure;
    use crate::state::chunk::{ChunkWriter, Section};

    /// What a collection does for [`super::Segments`]. Groups are counted from the first of the subtask.
    #[allow(private_interfaces, reason = "sealed")]
    pub trait Sealed {
        fn weight(&self, group: usize) -> Weight;

        /// Takes the cut: `plans` says for each group what will be written.
        fn begin_cut(&mut self, plans: &[Plan]);

        /// Writes what is left of a group, until the host asks to stop. True: all of it.
        fn write_group(&mut self, group: usize, to: &mut ChunkWriter<'_>) -> bool;

        /// Gives up the open cut: the next one is full.
        fn abandon(&mut self);

        /// Takes over a section.
        fn read(&mut self, group: usize, section: &Section<'_>) -> Result<(), Failure>;
    }
}

/// What is stored of a key group.
#[derive(Clone, Copy, Debug, Default)]
struct Stored {
    base_bytes: u64,
    delta_bytes: u64,
    delta_chunks: u32,
}

/// An open snapshot.
#[derive(Debug)]
struct Open {
    epoch: u64,
    plans: Vec<Plan>,
    /// The group and the part that are being written.
    group: usize,
    part: usize,
    /// What has been written of this group so far.
    bytes: u64,
    chunks: u32,
}

/// Writes and reads the keyed collections of an operator, stepwise and incrementally.
///
/// ```
/// use weir_sdk::{Cut, Failure, Progress, SnapshotReader, SnapshotWriter};
/// use weir_sdk::state::{KeyedState, Segments};
///
/// struct MyOperator {
///     counts: KeyedState<u64>,
///     segments: Segments,
/// }
///
/// impl MyOperator {
///     fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
///         self.segments.snapshot(cut, writer, &mut [&mut self.counts])
///     }
///
///     fn restore(&mut self, _state_version: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
///         self.segments.restore(reader, &mut [&mut self.counts])
///     }
/// }
/// ```
///
/// A key group is written whole when the changes that are stored since it last was come near its own size, or are many, not all groups at
/// the same time; else only its changes are. What a restore has to read stays in proportion to the state.
#[derive(Debug)]
pub struct Segments {
    groups: Groups,
    stored: Vec<Stored>,
    open: Option<Open>,
    /// The next snapshot writes everything, whatever the host asks for.
    rewrite: bool,
    buffer: Vec<u8>,
    fragments: Vec<u8>,
}

impl Segments {
    /// For the key groups of this subtask.
    pub fn new(task: &TaskInfo) -> Self {
        let groups = Groups::new(task);
        let stored = vec![Stored::default(); groups.len()];
        Self { groups, stored, open: None, rewrite: false, buffer: Vec::new(), fragments: Vec::new() }
    }

    /// Makes the next snapshot write everything: after `restore` has read an older state version, whose bytes must not stay.
    pub fn rewrite(&mut self) {
        self.rewrite = true;
    }

    /// One step of a snapshot; `parts` are the collections that make up the state, always all of them. Returns
    /// `More` when the host has asked to stop and something is left.
    ///
    /// # Errors
    ///
    /// None today; a later version may refuse a state that cannot be written.
    ///
    /// # Panics
    ///
    /// If two parts have the same name.
    pub fn snapshot(
        &mut self,
        cut: Cut,
        writer: &mut SnapshotWriter,
        parts: &mut [&mut dyn Part],
    ) -> Result<Progress, Failure> {
        let mut open = match self.open.take() {
            Some(open) if open.epoch == cut.epoch => open,
            lost => self.begin(cut, lost.is_some(), parts),
        };
        while open.group < open.plans.len() {
            let kind = match open.plans[open.group] {
                Plan::Keep => {
                    open.group += 1;
                    continue;
                }
                Plan::Delta => SegmentKind::Delta,
                Plan::Base => SegmentKind::Base,
            };
            let number = self.groups.range.start + open.group as u32;
            let mut to = ChunkWriter::new(writer, &mut self.buffer, number, kind);
            while open.part < parts.len() && parts[open.part].write_group(open.group, &mut to) {
                open.part += 1;
            }
            to.flush();
            open.bytes += to.bytes;
            open.chunks += to.chunks as u32;
            let done = open.part == parts.len();
            if done && kind == SegmentKind::Base && open.chunks == 0 {
                to.clear_segment();
            }
            let go_on = to.go_on;
            if done {
                self.stored[open.group].add(kind, open.bytes, open.chunks);
                (open.group, open.part, open.bytes, open.chunks) = (open.group + 1, 0, 0, 0);
            }
            if !go_on && open.plans[open.group..].iter().any(|plan| *plan != Plan::Keep) {
                self.open = Some(open);
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    fn begin(&mut self, cut: Cut, lost: bool, parts: &mut [&mut dyn Part]) -> Open {
        for (i, part) in parts.iter().enumerate() {
            assert!(part.name().len() < 256, "the name of a collection has at most 255 bytes: {:?}", part.name());
            assert!(
                parts[..i].iter().all(|other| other.name() != part.name()),
                "two collections are named {:?}: give each its own name",
                part.name()
            );
        }
        if lost {
            parts.iter_mut().for_each(|part| part.abandon());
        }
        let full = lost || self.rewrite || cut.mode == SnapshotMode::Full;
        self.rewrite = false;
        if full {
            self.stored.fill(Stored::default());
        }
        let plans: Vec<Plan> = (0..self.groups.len())
            .map(|group| {
                let weight = parts.iter().fold(Weight::default(), |sum, part| {
                    let weight = part.weight(group);
                    Weight { live: sum.live + weight.live, changed: sum.changed + weight.changed }
                });
                let plan = self.stored[group].plan(group, full, weight);
                // A segment that an older version left must go, in whatever mode the host asks.
                if full && cut.mode == SnapshotMode::Incremental { Plan::Base } else { plan }
            })
            .collect();
        for (stored, _) in self.stored.iter_mut().zip(&plans).filter(|(_, plan)| **plan == Plan::Base) {
            *stored = Stored::default();
        }
        parts.iter_mut().for_each(|part| part.begin_cut(&plans));
        Open { epoch: cut.epoch, plans, group: 0, part: 0, bytes: 0, chunks: 0 }
    }

    /// Reads all that is left to read.
    ///
    /// # Errors
    ///
    /// A failure of kind `invalid` that says what cannot be read: a segment that [`Segments`] did not write, a collection that is
    /// not among `parts`, bytes that do not decode.
    pub fn restore(&mut self, reader: &mut SnapshotReader, parts: &mut [&mut dyn Part]) -> Result<(), Failure> {
        reader.try_for_each(|chunk| self.restore_chunk(&chunk, parts))
    }

    /// Reads one chunk, for operators that also write segments of their own.
    ///
    /// # Errors
    ///
    /// As [`restore`](Self::restore).
    pub fn restore_chunk(&mut self, chunk: &Chunk, parts: &mut [&mut dyn Part]) -> Result<(), Failure> {
        let Scope::KeyGroup(number) = chunk.source.scope else {
            return Err(corrupt(&format!("a segment of scope {:?} is not keyed state", chunk.source.scope)));
        };
        let group = self.groups.place_of(number)?;
        self.stored[group].add(chunk.source.kind, chunk.data.len() as u64, 1);
        for mut section in Section::read_all(&chunk.data)? {
            let joined;
            match section.operation {
                Operation::Fragment => {
                    self.fragments.extend_from_slice(section.body);
                    continue;
                }
                Operation::LastOfPut | Operation::LastOfDelete => {
                    self.fragments.extend_from_slice(section.body);
                    joined = std::mem::take(&mut self.fragments);
                    section.body = &joined;
                    section.operation = match section.operation {
                        Operation::LastOfPut => Operation::Put,
                        _ => Operation::Delete,
                    };
                }
                _ => {}
            }
            let Some(part) = parts.iter_mut().find(|part| part.name() == section.name) else {
                return Err(corrupt(&format!(
                    "it holds a collection {:?}, which this plugin does not have",
                    section.name
                )));
            };
            part.read(group, &section)?;
        }
        Ok(())
    }
}

impl Stored {
    fn add(&mut self, kind: SegmentKind, bytes: u64, chunks: u32) {
        match kind {
            SegmentKind::Base => self.base_bytes += bytes,
            SegmentKind::Delta => {
                self.delta_bytes += bytes;
                self.delta_chunks += chunks;
            }
        }
    }

    /// How many bytes of deltas a group may have: between a half and one and a half times its base, another share for each group. Else groups that
    /// change alike would all be written whole in the same snapshot.
    fn delta_bytes_max(&self, group: usize) -> u64 {
        self.base_bytes / 2 + self.base_bytes / SHARES * (group as u64 % SHARES)
    }

    /// What to write of a group. Decided by what the state is and what is stored of it alone.
    fn plan(&self, group: usize, full: bool, weight: Weight) -> Plan {
        let long = self.delta_chunks > DELTA_CHUNKS + group as u32 % DELTA_CHUNKS;
        match weight {
            Weight { live: 0, .. } if full => Plan::Keep,
            _ if full => Plan::Base,
            Weight { changed: 0, .. } => Plan::Keep,
            Weight { live, changed } if changed >= live => Plan::Base,
            _ if self.base_bytes == 0 || self.delta_bytes > self.delta_bytes_max(group) || long => Plan::Base,
            _ => Plan::Delta,
        }
    }
}

/// A key that is in the wrong key group is one whose bytes were damaged.
pub(crate) fn check_group(groups: &Groups, group: usize, hash: u64) -> Result<(), Failure> {
    if groups.place(hash) == group { Ok(()) } else { Err(misplaced(groups, group, hash)) }
}

#[cold]
fn misplaced(groups: &Groups, group: usize, hash: u64) -> Failure {
    corrupt(&format!(
        "key group {} holds a key of group {}",
        groups.range.start as usize + group,
        key_group(hash, groups.all())
    ))
}
