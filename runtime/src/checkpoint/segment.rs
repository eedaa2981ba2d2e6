//! Segments: what a subtask's state is made of, as references into packs.
//!
//! [`SegmentSet`] is a subtask's live list. It follows `wit/snapshots.wit` and `wit/checkpoint.wit`:
//!
//! - The first base that a snapshot writes to a scope drops all that the scope held before, base and deltas, also deltas
//!   written earlier in the same snapshot; further bases of that snapshot add to it. A base without bytes
//!   leaves nothing.
//! - A delta comes on top, in the order of writing.
//! - In a full snapshot what is not written is gone; in an incremental one it stays as it is.
//!
//! The scope is the identity of a segment, within one subtask. For [`Scope::Item`] this means: all items of a subtask
//! are *one* segment, whichever subtask wrote them and however many came from others in a rescale. A
//! base of items replaces the whole list, since the guest that writes it holds the whole list; a delta of items is on
//! top of the whole list, so a list that has deltas cannot be dealt out item by item, only as a whole. One
//! chunk of a base is one item.

use std::collections::HashSet;

use super::error::CheckpointError;
use super::objects::JobStore;
use super::pack::{PackName, PackReader};
use crate::model::{Chunk, Scope, SegmentKind, SnapshotMode};

/// The most live segment references of a subtask.
pub const SEGMENTS_MAX: usize = 1 << 20;
/// How many packs are read at once.
const PACKS_READ_AT_ONCE: usize = 4;

/// Chunks of one segment that lie side by side in a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRef {
    /// Where it belongs.
    pub scope: Scope,
    /// Base or delta.
    pub kind: SegmentKind,
    /// The number of the subtask that wrote it.
    pub origin: u32,
    /// Which pack.
    pub pack: PackName,
    /// Its first chunk in the pack, from 0.
    pub first_chunk: u32,
    /// How many chunks. None at all: a base that clears; such a reference never stays in a [`SegmentSet`].
    pub chunks: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// The live segments of one subtask, in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentSet(Vec<SegmentRef>);

impl SegmentSet {
    /// What a manifest says that a subtask holds.
    pub fn new(segments: Vec<SegmentRef>) -> Self {
        Self(segments)
    }

    /// The references, in the order in which they were written.
    pub fn as_slice(&self) -> &[SegmentRef] {
        &self.0
    }

    /// The references, for a manifest.
    pub fn to_vec(&self) -> Vec<SegmentRef> {
        self.0.clone()
    }

    /// Takes over what a snapshot wrote, in the order in which it wrote it.
    pub fn apply(&mut self, mode: SnapshotMode, written: &[SegmentRef]) {
        if mode == SnapshotMode::Full {
            self.0.clear();
        }
        // What the last base drops lies before the first base of this snapshot: everything older, and deltas that were
        // written before it.
        let mut first_base = std::collections::HashMap::new();
        for (place, segment) in written.iter().enumerate() {
            if segment.kind == SegmentKind::Base {
                first_base.entry(segment.scope).or_insert(place);
            }
        }
        self.0.retain(|segment| !first_base.contains_key(&segment.scope));
        let stays = |(place, segment): &(usize, &SegmentRef)| {
            segment.chunks > 0 && first_base.get(&segment.scope).is_none_or(|first| place >= first)
        };
        self.0.extend(written.iter().enumerate().filter(stays).map(|(_, segment)| segment.clone()));
    }

    /// Whether the deltas outweigh the bases, or the list has become long: then the next snapshot should be full.
    pub fn wants_full(&self) -> bool {
        let (mut bases, mut deltas) = (0, 0);
        for segment in &self.0 {
            *if segment.kind == SegmentKind::Base { &mut bases } else { &mut deltas } += segment.bytes;
        }
        deltas > bases || self.0.len() > SEGMENTS_MAX / 4
    }

    /// The bytes of all live chunks.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|segment| segment.bytes).sum()
    }
}

/// Sorts references as `wit/snapshots.wit` promises a guest: by ascending key group, the others after them; in a segment the
/// base before its deltas; otherwise as they were written.
pub fn reading_order(segments: &[SegmentRef]) -> Vec<&SegmentRef> {
    let mut sorted: Vec<_> = segments.iter().collect();
    sorted.sort_by_key(|segment| (segment.scope, segment.kind));
    sorted
}

/// Reads the chunks of segments, each checked against its hash, in [`reading_order`].
///
/// A pack that is missing or damaged is named in the error, and nothing is given.
pub async fn read_segments(store: &JobStore, segments: &[SegmentRef]) -> Result<Vec<Chunk>, CheckpointError> {
    use futures::{StreamExt, TryStreamExt};
    let mut seen = HashSet::new();
    let names: Vec<_> = segments.iter().map(|s| s.pack.clone()).filter(|name| seen.insert(name.clone())).collect();
    let packs: std::collections::HashMap<PackName, PackReader> = futures::stream::iter(names)
        .map(|name| async move {
            let pack = store.open_pack(&name).await?;
            Ok::<_, CheckpointError>((name, pack))
        })
        .buffer_unordered(PACKS_READ_AT_ONCE)
        .try_collect()
        .await?;
    let mut chunks = Vec::new();
    for segment in reading_order(segments) {
        // Every name was read above.
        let Some(pack) = packs.get(&segment.pack) else { continue };
        for number in chunk_numbers(segment, pack).map_err(|fault| store.damaged_pack(&segment.pack, fault))? {
            let data = pack.chunk(number).map_err(|fault| store.damaged_pack(&segment.pack, fault))?;
            chunks.push(Chunk { scope: segment.scope, kind: segment.kind, origin: segment.origin, data });
        }
    }
    Ok(chunks)
}

/// The chunks that a segment names, once it is sure that the pack has them.
pub(crate) fn chunk_numbers(segment: &SegmentRef, pack: &PackReader) -> Result<std::ops::Range<u32>, String> {
    match segment.first_chunk.checked_add(segment.chunks) {
        Some(end) if end <= pack.len() => Ok(segment.first_chunk..end),
        _ => Err(format!(
            "it has {} chunks, and {} from chunk {} are wanted",
            pack.len(),
            segment.chunks,
            segment.first_chunk
        )),
    }
}
