//! What one subtask holds in the store: its live segments, and what has to be known of them to write as little as possible.
//!
//! It changes only when a snapshot is durable, so what is in it may be named by the next manifest of this run: each pack was written by this run
//! after the last manifest, or the last manifest names it (I8). From it come the mode of the next snapshot, the pieces that
//! need not be written again, and which old chunks are to be moved into the next pack:
//!
//! - those of packs that are less than half alive, so that dead bytes go;
//! - those that are carried inline, when an object is written anyway or they have become many;
//! - those of small packs, when there are very many references.
//!
//! All of it is decided from the references alone.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::pack::PackName;
use super::packer::{Piece, Pieces, SnapshotPacker, Written};
use super::read::{OpenedPack, OpenedPacks};
use super::segment::{Layout, SegmentRef, SegmentSet};
use crate::model::{Epoch, Generation, SnapshotMode, TaskId};

/// The most live bytes that are moved out of half-dead packs in one epoch.
const MOVED_BYTES_MAX: u64 = 32 << 20;
/// References above which those of small packs are joined.
const JOIN_ABOVE: usize = 8_192;
/// As many bytes as this, or as a snapshot itself wrote, are moved to join references.
const JOINED_BYTES_MIN: u64 = 4 << 20;

/// What one subtask holds in the store.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    set: SegmentSet,
    pieces: Arc<Pieces>,
}

impl Holdings {
    /// What a manifest says that a subtask holds. Pieces of it are known as far as its packs were opened.
    pub(super) fn restored(segments: Vec<SegmentRef>, packs: &OpenedPacks) -> Self {
        let mut pieces = Pieces::new();
        for segment in segments.iter().filter(|segment| segment.layout != Layout::Chunks) {
            let Some(OpenedPack { index, .. }) = packs.get(&segment.pack) else { continue };
            for number in segment.first_chunk..segment.first_chunk.saturating_add(segment.chunks) {
                if let (Ok(hash), Ok(bytes)) = (index.hash(number), index.plain_bytes(number)) {
                    pieces.insert(*hash.as_bytes(), Piece { pack: segment.pack.clone(), number, bytes });
                }
            }
        }
        Self { set: SegmentSet::new(segments), pieces: Arc::new(pieces) }
    }

    /// What a manifest says that a subtask holds, whose packs were not looked at: its pieces are written again.
    pub fn new(segments: Vec<SegmentRef>) -> Self {
        Self { set: SegmentSet::new(segments), pieces: Arc::default() }
    }

    /// The live segments.
    pub fn segments(&self) -> &SegmentSet {
        &self.set
    }

    /// What the next snapshot has to contain, as long as nothing is lost.
    pub fn next_mode(&self) -> SnapshotMode {
        if self.set.as_slice().is_empty() || self.set.wants_full() {
            SnapshotMode::Full
        } else {
            SnapshotMode::Incremental
        }
    }

    /// Packs the next snapshot.
    pub fn packer(&self, generation: Generation, epoch: Epoch, task: &TaskId) -> SnapshotPacker {
        // With very many references a state has fallen to pieces: then all of it is written anew.
        let known = if self.set.wants_full() { Arc::default() } else { Arc::clone(&self.pieces) };
        SnapshotPacker::new(generation, epoch, task, known)
    }

    /// Takes over a snapshot that is durable.
    pub fn apply(&mut self, mode: SnapshotMode, written: Written) {
        self.set.apply(mode, &written.segments);
        self.keep_pieces(written.pieces);
    }

    /// Forgets pieces of packs that are not named any more, and adds others.
    fn keep_pieces(&mut self, fresh: Pieces) {
        if self.pieces.is_empty() && fresh.is_empty() {
            return;
        }
        let named: HashSet<&PackName> = self.set.as_slice().iter().map(|segment| &segment.pack).collect();
        let mut pieces = std::mem::take(&mut self.pieces);
        let kept = Arc::make_mut(&mut pieces);
        kept.retain(|_, piece| named.contains(&piece.pack));
        kept.extend(fresh.into_iter().filter(|(_, piece)| named.contains(&piece.pack)));
        self.pieces = pieces;
    }

    /// Which references are to be moved into a new pack, by their places, those of one scope one after the other.
    ///
    /// `own` are the bytes that the snapshot itself has put, 0 if it put no object; `inline_max` is how many may be carried inline.
    pub fn to_move(&self, own: u64, inline_max: u64) -> Vec<usize> {
        let mut packs: BTreeMap<&PackName, Live> = BTreeMap::new();
        for segment in self.set.as_slice() {
            let live = packs.entry(&segment.pack).or_default();
            live.bytes += segment.bytes;
            live.references += 1;
        }
        let is_inline = |pack: &PackName| pack.inline().is_some();
        let inline: u64 = packs.keys().filter_map(|pack| pack.inline()).map(|content| content.len() as u64).sum();
        let mut moved: HashSet<&PackName> = HashSet::new();
        if inline > inline_max || (inline > 0 && own > 0) {
            moved.extend(packs.keys().filter(|pack| is_inline(pack)));
        }
        let mut room = MOVED_BYTES_MAX;
        let mut half_dead: Vec<_> =
            packs.iter().filter(|(pack, live)| !is_inline(pack) && live.is_half_dead(pack)).collect();
        half_dead.sort_by_key(|(_, live)| live.bytes);
        for (pack, live) in half_dead {
            // One that alone is more than the limit goes alone: else it would never go.
            if live.bytes > room && room < MOVED_BYTES_MAX {
                break;
            }
            moved.insert(pack);
            room = room.saturating_sub(live.bytes);
        }
        if self.set.as_slice().len() > JOIN_ABOVE {
            let mut room = (2 * own).max(JOINED_BYTES_MIN);
            let mut small: Vec<_> = packs.iter().filter(|(pack, _)| !moved.contains(*pack)).collect();
            small.sort_by_key(|(_, live)| live.bytes / live.references);
            let small = small.into_iter().take_while(|(_, live)| {
                room = room.saturating_sub(live.bytes);
                room > 0
            });
            let small: Vec<&PackName> = small.map(|(pack, _)| *pack).collect();
            if small.len() > 1 {
                moved.extend(small);
            }
        }
        let segments = self.set.as_slice();
        let mut places: Vec<usize> = (0..segments.len()).filter(|at| moved.contains(&segments[*at].pack)).collect();
        places.sort_by_key(|at| (segments[*at].scope, *at));
        places
    }

    /// Takes over that the chunks of some references have been written again, as a durable pack.
    pub(super) fn replace(&mut self, places: &[usize], with: Vec<SegmentRef>, pieces: Pieces) {
        self.set.replace(places, with);
        self.keep_pieces(pieces);
    }
}

/// What of a pack is alive.
#[derive(Default)]
struct Live {
    bytes: u64,
    references: u64,
}

impl Live {
    fn is_half_dead(&self, pack: &PackName) -> bool {
        pack.size().is_some_and(|size| self.bytes.saturating_mul(2) < size.plain)
    }
}

#[cfg(test)]
mod tests;
