//! One snapshot on its way from a guest's chunks to packs.
//!
//! Chunks go in, in the order in which the guest wrote them; packs come out whenever one is full, so that uploading begins while the
//! guest still writes, and at the end the references for a manifest. This is work for a core and does no I/O.
//!
//! What a guest writes as one opaque state (bases of scope `subtask` and `shared`) is cut again by content: a piece that a pack of the
//! checkpoint before already holds becomes a reference and is not written again. Only such packs count ([`Holdings`](super::Holdings)), never what happens
//! to be in the store (I8).

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::cut::{PIECE_BYTES_MAX, first_piece};
use super::error::CheckpointError;
use super::pack::{Pack, PackBuilder, PackName};
use super::segment::{Layout, Lengths, SegmentRef};
use crate::model::{Epoch, Generation, Scope, SegmentKind, TaskId};

/// A pack is full when it has so many bytes: enough for a store that asks a price for each object, and little enough that the last one, which
/// nothing overlaps, takes no time to speak of.
pub const PACK_BYTES: u64 = 16 << 20;
/// Or so many chunks.
const PACK_CHUNKS: u32 = 1 << 18;
/// What is shorter is not worth cutting: a chunk of its own says more than pieces.
const JOINED_BYTES_MIN: usize = 4 << 10;

/// Where a piece of opaque state is, by its blake3.
pub(super) type Pieces = HashMap<[u8; 32], Piece>;

/// A chunk of a pack.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) pack: PackName,
    pub(super) number: u32,
    pub(super) bytes: u32,
}

/// Makes packs of one snapshot of one subtask.
#[derive(Debug)]
pub struct SnapshotPacker {
    generation: Generation,
    epoch: Epoch,
    task: TaskId,
    pack: PackBuilder,
    /// Of packs that are full.
    segments: Vec<SegmentRef>,
    /// What may be referred to.
    known: Arc<Pieces>,
    /// New pieces of the pack that is being filled: hash, number, length.
    unnamed: Vec<([u8; 32], u32, u32)>,
    fresh: Pieces,
    joined: Option<Joined>,
}

/// A run of chunks of one segment that are joined and cut again.
#[derive(Debug)]
struct Joined {
    scope: Scope,
    lengths: Vec<Lengths>,
    pending: BytesMut,
    /// A piece of it has been written or referred to.
    has_begun: bool,
}

/// All that one snapshot wrote.
#[derive(Debug, Default)]
pub struct Written {
    /// In the order of writing.
    pub(super) segments: Vec<SegmentRef>,
    /// New pieces of opaque state.
    pub(super) pieces: Pieces,
}

impl SnapshotPacker {
    /// For a snapshot that may refer to `known` pieces.
    pub(super) fn new(generation: Generation, epoch: Epoch, task: &TaskId, known: Arc<Pieces>) -> Self {
        Self {
            generation,
            epoch,
            task: task.clone(),
            pack: PackBuilder::new(generation, epoch, task),
            segments: Vec::new(),
            known,
            unnamed: Vec::new(),
            fresh: Pieces::new(),
            joined: None,
        }
    }

    /// Adds a chunk to a segment.
    ///
    /// # Errors
    ///
    /// If a limit is crossed; the snapshot is of no use then.
    pub fn write(&mut self, scope: Scope, kind: SegmentKind, data: Bytes) -> Result<(), CheckpointError> {
        let is_opaque = kind == SegmentKind::Base && matches!(scope, Scope::Subtask | Scope::Shared);
        if !is_opaque || data.len() < JOINED_BYTES_MIN {
            self.end_joined()?;
            if kind == SegmentKind::Base && data.is_empty() {
                return self.pack.clear(scope);
            }
            return self.pack.write_as(scope, kind, self.task.subtask, &Layout::Chunks, data, None);
        }
        if self.joined.as_ref().is_some_and(|joined| joined.scope != scope) {
            self.end_joined()?;
        }
        let mut joined = self.joined.take().unwrap_or_else(|| Joined {
            scope,
            lengths: Vec::new(),
            pending: BytesMut::new(),
            has_begun: false,
        });
        match joined.lengths.last_mut() {
            Some(last) if last.bytes as usize == data.len() => last.count += 1,
            _ => joined.lengths.push(Lengths { bytes: data.len() as u32, count: 1 }),
        }
        joined.pending.extend_from_slice(&data);
        drop(data);
        while joined.pending.len() >= PIECE_BYTES_MAX {
            self.piece(&mut joined)?;
        }
        self.joined = Some(joined);
        Ok(())
    }

    fn piece(&mut self, joined: &mut Joined) -> Result<(), CheckpointError> {
        let data = joined.pending.split_to(first_piece(&joined.pending)).freeze();
        let layout = if joined.has_begun { Layout::More } else { Layout::Pieces(Vec::new()) };
        joined.has_begun = true;
        let (scope, kind, origin) = (joined.scope, SegmentKind::Base, self.task.subtask);
        let hash = blake3::hash(&data);
        let known = self.known.get(hash.as_bytes()).filter(|piece| piece.bytes as usize == data.len());
        if let Some(Piece { pack, number, bytes }) = known {
            let (pack, first_chunk, bytes) = (pack.clone(), *number, u64::from(*bytes));
            return self.pack.refer(SegmentRef { scope, kind, origin, pack, first_chunk, chunks: 1, bytes, layout });
        }
        self.unnamed.push((*hash.as_bytes(), self.pack.chunks(), data.len() as u32));
        self.pack.write_as(scope, kind, origin, &layout, data, Some(hash))
    }

    fn end_joined(&mut self) -> Result<(), CheckpointError> {
        let Some(mut joined) = self.joined.take() else { return Ok(()) };
        while !joined.pending.is_empty() {
            self.piece(&mut joined)?;
        }
        if let Some(layout) = self.pack.end_pieces(Layout::Pieces(joined.lengths))
            && let Some(first) = self.segments.iter_mut().rfind(|s| matches!(s.layout, Layout::Pieces(_)))
        {
            first.layout = layout;
        }
        Ok(())
    }

    /// How many bytes lie in it, ready to be put.
    pub fn bytes(&self) -> u64 {
        if self.pack.chunks() == 0 { 0 } else { self.pack.bytes() }
    }

    /// A pack to be put, when one is full.
    pub fn take_full(&mut self) -> Option<Pack> {
        if self.pack.bytes() < PACK_BYTES && self.pack.chunks() < PACK_CHUNKS { None } else { self.take() }
    }

    /// What there is so far, as a pack to be put; none if that is nothing.
    pub fn take(&mut self) -> Option<Pack> {
        if self.pack.chunks() == 0 { None } else { self.turn(false).filter(|pack| pack.chunks > 0) }
    }

    /// Takes the pack out and begins another.
    fn turn(&mut self, inline: bool) -> Option<Pack> {
        let next = PackBuilder::new(self.generation, self.epoch, &self.task);
        let pack = std::mem::replace(&mut self.pack, next).finish_as(inline)?;
        self.segments.extend(pack.segments.iter().cloned());
        for (hash, number, bytes) in self.unnamed.drain(..) {
            self.fresh.insert(hash, Piece { pack: pack.name.clone(), number, bytes });
        }
        Some(pack)
    }

    /// The last pack to be put, if there is one, and all that was written. With `inline` a few bytes make no pack to be put: the references carry
    /// them.
    ///
    /// # Errors
    ///
    /// If a limit is crossed.
    pub fn finish(mut self, inline: bool) -> Result<(Option<Pack>, Written), CheckpointError> {
        self.end_joined()?;
        let pack = self.turn(inline).filter(|pack| pack.chunks > 0 && pack.name.inline().is_none());
        Ok((pack, Written { segments: self.segments, pieces: self.fresh }))
    }
}
