//! Packs: the objects that hold what one subtask wrote in one epoch, and the few bytes that are too few for an object.
//!
//! ```text
//! magic ‖ chunk ‖ chunk ‖ … ‖ footer ‖ footer's length ‖ footer's blake3 ‖ magic
//! footer = for each chunk, in order: its length, its length as stored, the XXH3 of what is stored, the blake3 of what it is
//! ```
//!
//! Every byte is covered: chunks by their hashes in the footer, the footer by its hash in the trailer, and that one by
//! the pack's name, which is made of it. So a chunk is hashed once when it is written, and the pack never again.
//! What comes back is exactly what was written, chunk by chunk, or an error that names the pack and the chunk.
//!
//! A chunk is stored as zstd where that pays (`compress.rs`): the blake3 is that of the plain bytes, the XXH3 that of the stored ones, so that
//! damage is found before anything is decompressed; and no more is decompressed than the footer declares.
//!
//! A pack of a few bytes is no object at all: its name carries its content ([`PackName::inline`]) into the report and into every manifest
//! that names it. It is read, checked and referred to like any other.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use object_store::{PutPayload, PutPayloadMut};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::compress::{self, Compressor};
use super::error::CheckpointError;
use super::segment::{Layout, SEGMENTS_MAX, SegmentRef};
use crate::model::{Epoch, Generation, NodeName, Scope, SegmentKind, TaskId, name_fault};

/// The largest chunk, in bytes.
pub const CHUNK_BYTES_MAX: usize = 64 << 20;
/// The most chunks in a pack.
pub const PACK_CHUNKS_MAX: usize = 1 << 20;
/// The largest pack, in bytes: what S3 takes in one request is 5 GiB.
pub const PACK_BYTES_MAX: u64 = 4 << 30;
/// The largest pack that is carried by its name, in bytes, footer included.
pub const INLINE_BYTES_MAX: usize = 4 << 10;

const MAGIC: &[u8; 8] = b"weirpack";
/// Another magic for another layout: a change of either is a change of format.
const END_MAGIC: &[u8; 8] = b"weirpk/2";
const INDEX_ENTRY_BYTES: usize = 4 + 4 + 8 + 32;
const TRAILER_BYTES: usize = 4 + 32 + 8;
/// Small chunks share a block of this size instead of each having an allocation.
const BLOCK_BYTES: usize = 1 << 20;

/// The name of a pack: who wrote it, when, and what. Two packs with one name have one content.
///
/// A name that came from a builder or a manifest also knows how large the pack is, and carries its content if that is small.
/// Neither is part of its identity: a name that was read from a listing is the same name.
#[derive(Clone)]
pub struct PackName(Arc<Parts>);

struct Parts {
    identity: Identity,
    size: Option<PackSize>,
    inline: Option<Bytes>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
struct Identity {
    generation: Generation,
    epoch: Epoch,
    task: TaskId,
    hash: [u8; 32],
}

/// How large a pack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackSize {
    /// The bytes of the object.
    pub stored: u64,
    /// The bytes of its chunks as they were written.
    pub plain: u64,
}

impl PackName {
    fn new(identity: Identity, size: Option<PackSize>, inline: Option<Bytes>) -> Self {
        Self(Arc::new(Parts { identity, size, inline }))
    }

    /// The name of a copy in another history of a job: of generation 0, which no run has.
    pub(crate) fn adopted(&self) -> Self {
        let Parts { identity, size, inline } = &*self.0;
        Self::new(Identity { generation: Generation(0), ..identity.clone() }, *size, inline.clone())
    }

    /// The run that wrote it.
    pub fn generation(&self) -> Generation {
        self.0.identity.generation
    }

    /// The attempt that it was written for.
    pub fn epoch(&self) -> Epoch {
        self.0.identity.epoch
    }

    /// The subtask whose state it holds.
    pub fn task(&self) -> &TaskId {
        &self.0.identity.task
    }

    /// How large it is; not known of a name that was read from a listing.
    pub fn size(&self) -> Option<PackSize> {
        self.0.size
    }

    /// Its content, if it is carried by the name and is no object.
    pub fn inline(&self) -> Option<&Bytes> {
        self.0.inline.as_ref()
    }
}

impl PartialEq for PackName {
    fn eq(&self, other: &Self) -> bool {
        self.0.identity == other.0.identity
    }
}

impl Eq for PackName {}

impl Hash for PackName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.identity.hash(state);
    }
}

impl PartialOrd for PackName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PackName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.identity.cmp(&other.0.identity)
    }
}

/// `<generation>-<epoch>-<node>.<subtask>-<blake3>`
impl fmt::Display for PackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { generation, epoch, task, hash } = &self.0.identity;
        let hash = blake3::Hash::from_bytes(*hash).to_hex();
        write!(f, "{generation}-{epoch}-{}.{}-{hash}", task.node, task.subtask)
    }
}

impl fmt::Debug for PackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PackName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not the name of a pack");
        let (generation, rest) = text.split_once('-').ok_or_else(bad)?;
        let (epoch, rest) = rest.split_once('-').ok_or_else(bad)?;
        let (task, hash) = rest.rsplit_once('-').ok_or_else(bad)?;
        let (node, subtask) = task.rsplit_once('.').ok_or_else(bad)?;
        let identity = Identity {
            generation: Generation(generation.parse().map_err(|_| bad())?),
            epoch: Epoch(epoch.parse().map_err(|_| bad())?),
            task: TaskId { node: NodeName::new(node), subtask: subtask.parse().map_err(|_| bad())? },
            hash: *blake3::Hash::from_hex(hash).map_err(|_| bad())?.as_bytes(),
        };
        let name = Self::new(identity, None, None);
        // Only the one spelling that `Display` gives: no leading zeros, no signs, no capitals.
        if name_fault(node).is_some() || name.to_string() != text { Err(bad()) } else { Ok(name) }
    }
}

/// As it stands in a manifest.
#[derive(Serialize, Deserialize)]
struct Wire {
    identity: Identity,
    size: Option<PackSize>,
    inline: Option<Vec<u8>>,
}

impl Serialize for PackName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let inline = self.0.inline.as_ref().map(|content| content.to_vec());
        Wire { identity: self.0.identity.clone(), size: self.0.size, inline }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PackName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let Wire { identity, size, inline } = Wire::deserialize(deserializer)?;
        if let Some(fault) = name_fault(identity.task.node.as_str()) {
            return Err(Error::custom(format!("node {:?} {fault}", identity.task.node.as_str())));
        }
        if let Some(content) = inline.as_ref().filter(|content| content.len() > INLINE_BYTES_MAX) {
            let bytes = content.len();
            return Err(Error::custom(format!(
                "an inline pack of {bytes} bytes, over the limit of {INLINE_BYTES_MAX}"
            )));
        }
        Ok(Self::new(identity, size, inline.map(Bytes::from)))
    }
}

/// Collects what one subtask writes in one epoch, or a part of it.
#[derive(Debug)]
pub struct PackBuilder {
    generation: Generation,
    epoch: Epoch,
    task: TaskId,
    payload: PutPayloadMut,
    bytes: u64,
    plain: u64,
    index: Vec<u8>,
    chunks: u32,
    compressor: Compressor,
    /// In the order of writing; adjacent chunks of one segment are one entry. The pack's name is known at the end.
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Run {
    scope: Scope,
    kind: SegmentKind,
    layout: Layout,
    /// Where its chunks are, if not in this pack.
    elsewhere: Option<PackName>,
    origin: u32,
    first_chunk: u32,
    chunks: u32,
    bytes: u64,
}

/// A finished pack, in memory: it exists for others when it has been put.
#[derive(Clone, Debug)]
pub struct Pack {
    /// Its name.
    pub name: PackName,
    /// Its content, footer included.
    pub payload: PutPayload,
    /// The size of its content.
    pub bytes: u64,
    /// How many chunks it has itself.
    pub chunks: u32,
    /// What was written, in the order of writing: give it to [`SegmentSet::apply`](super::SegmentSet::apply). A base
    /// with no chunks clears its segment.
    pub segments: Vec<SegmentRef>,
}

impl PackBuilder {
    /// An empty one.
    pub fn new(generation: Generation, epoch: Epoch, task: &TaskId) -> Self {
        let mut payload = PutPayloadMut::new().with_block_size(BLOCK_BYTES);
        payload.extend_from_slice(MAGIC);
        Self {
            generation,
            epoch,
            task: task.clone(),
            payload,
            bytes: MAGIC.len() as u64,
            plain: 0,
            index: Vec::new(),
            chunks: 0,
            compressor: Compressor::default(),
            runs: Vec::new(),
        }
    }

    /// How many bytes have been stored so far, the footer not counted.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many chunks it has itself.
    pub(super) fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Adds a chunk to a segment. A base with no bytes is no chunk: it only replaces what the segment held.
    ///
    /// Fails when a limit is crossed, and then holds what it held before.
    pub fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> Result<(), CheckpointError> {
        let origin = self.task.subtask;
        if kind == SegmentKind::Base && data.is_empty() {
            return self.clear(scope);
        }
        self.write_as(scope, kind, origin, &Layout::Chunks, Bytes::copy_from_slice(data), None)
    }

    /// Says that a segment holds nothing, as far as it was written before.
    pub(super) fn clear(&mut self, scope: Scope) -> Result<(), CheckpointError> {
        let (kind, origin, first_chunk) = (SegmentKind::Base, self.task.subtask, self.chunks);
        let layout = Layout::Chunks;
        self.extend(Run { scope, kind, layout, elsewhere: None, origin, first_chunk, chunks: 0, bytes: 0 })
    }

    /// Adds a chunk, or a piece of several, that some subtask wrote. `hash` is its blake3, where that is known.
    pub(super) fn write_as(
        &mut self,
        scope: Scope,
        kind: SegmentKind,
        origin: u32,
        layout: &Layout,
        data: Bytes,
        hash: Option<blake3::Hash>,
    ) -> Result<(), CheckpointError> {
        self.limit("a chunk (bytes)", data.len() as u64, CHUNK_BYTES_MAX as u64)?;
        self.limit("the number of chunks", u64::from(self.chunks) + 1, PACK_CHUNKS_MAX as u64)?;
        let whole = self.bytes + (data.len() + self.index.len() + INDEX_ENTRY_BYTES + TRAILER_BYTES) as u64;
        self.limit("the state (bytes)", whole, PACK_BYTES_MAX)?;
        let (first_chunk, bytes) = (self.chunks, data.len() as u64);
        let layout = layout.clone();
        self.extend(Run { scope, kind, layout, elsewhere: None, origin, first_chunk, chunks: 1, bytes })?;
        let hash = hash.unwrap_or_else(|| blake3::hash(&data));
        let plain = data.len();
        let stored = match self.compressor.compress(&data) {
            Some(compressed) => Bytes::from(compressed),
            None => data,
        };
        self.index.extend_from_slice(&(plain as u32).to_le_bytes());
        self.index.extend_from_slice(&(stored.len() as u32).to_le_bytes());
        self.index.extend_from_slice(&xxh3_64(&stored).to_le_bytes());
        self.index.extend_from_slice(hash.as_bytes());
        self.bytes += stored.len() as u64;
        self.plain += plain as u64;
        self.chunks += 1;
        // A large one is taken as it is, small ones share blocks.
        if stored.len() * 4 >= BLOCK_BYTES {
            self.payload.push(stored)
        } else {
            self.payload.extend_from_slice(&stored)
        }
        Ok(())
    }

    /// Adds chunks that lie in another pack.
    pub(super) fn refer(&mut self, segment: SegmentRef) -> Result<(), CheckpointError> {
        let SegmentRef { scope, kind, origin, pack, first_chunk, chunks, bytes, layout } = segment;
        self.extend(Run { scope, kind, layout, elsewhere: Some(pack), origin, first_chunk, chunks, bytes })
    }

    /// Says how what begins at the last entry with a layout of pieces was written. False: it does not begin in this pack.
    pub(super) fn end_pieces(&mut self, layout: Layout) -> Option<Layout> {
        match self.runs.iter_mut().rfind(|run| matches!(run.layout, Layout::Pieces(_))) {
            Some(run) => {
                run.layout = layout;
                None
            }
            None => Some(layout),
        }
    }

    fn extend(&mut self, run: Run) -> Result<(), CheckpointError> {
        if let Some(last) = self.runs.last_mut()
            && last.is_continued_by(&run)
        {
            last.chunks += run.chunks;
            last.bytes += run.bytes;
            return Ok(());
        }
        self.limit("the number of segments", self.runs.len() as u64 + 1, SEGMENTS_MAX as u64)?;
        self.runs.push(run);
        Ok(())
    }

    fn limit(&self, what: &str, value: u64, limit: u64) -> Result<(), CheckpointError> {
        let what = || format!("{what} of {} in epoch {}", self.task, self.epoch);
        if value > limit { Err(CheckpointError::TooLarge { what: what(), value, limit }) } else { Ok(()) }
    }

    /// The pack, or none if nothing was written.
    pub fn finish(self) -> Option<Pack> {
        self.finish_as(false)
    }

    /// The pack, or none if nothing was written; carried by its name if it is small enough for that and `inline` says so.
    pub(super) fn finish_as(mut self, inline: bool) -> Option<Pack> {
        if self.runs.is_empty() {
            return None;
        }
        let hash = blake3::hash(&self.index);
        self.payload.extend_from_slice(&self.index);
        self.payload.extend_from_slice(&(self.index.len() as u32).to_le_bytes());
        self.payload.extend_from_slice(hash.as_bytes());
        self.payload.extend_from_slice(END_MAGIC);
        let payload = self.payload.freeze();
        let bytes = payload.content_length() as u64;
        let identity =
            Identity { generation: self.generation, epoch: self.epoch, task: self.task, hash: *hash.as_bytes() };
        let inline = (inline && bytes <= INLINE_BYTES_MAX as u64).then(|| Bytes::from(payload.clone()));
        let name = PackName::new(identity, Some(PackSize { stored: bytes, plain: self.plain }), inline);
        let segment = |run: Run| SegmentRef {
            scope: run.scope,
            kind: run.kind,
            origin: run.origin,
            pack: run.elsewhere.unwrap_or_else(|| name.clone()),
            first_chunk: run.first_chunk,
            chunks: run.chunks,
            bytes: run.bytes,
            layout: run.layout,
        };
        let segments = self.runs.into_iter().map(segment).collect();
        Some(Pack { name, bytes, payload, chunks: self.chunks, segments })
    }
}

impl Run {
    /// Whether a run lies right behind this one, so that one reference will do.
    fn is_continued_by(&self, next: &Self) -> bool {
        let is_next = (self.scope, self.kind, self.origin, &self.elsewhere)
            == (next.scope, next.kind, next.origin, &next.elsewhere)
            && self.first_chunk.checked_add(self.chunks) == Some(next.first_chunk);
        is_next && self.layout.is_continued_by(&next.layout)
    }
}

/// What a pack consists of, checked against its name.
#[derive(Debug)]
pub(crate) struct PackIndex {
    chunks: Vec<IndexEntry>,
}

#[derive(Debug)]
struct IndexEntry {
    offset: u64,
    plain: u32,
    stored: u32,
    check: u64,
    hash: [u8; 32],
}

impl IndexEntry {
    fn range(&self) -> std::ops::Range<u64> {
        self.offset..self.offset + u64::from(self.stored)
    }

    /// The chunk, from what is stored of it.
    fn open(&self, number: u32, stored: Bytes) -> Result<Bytes, String> {
        let fault = |what: &str| format!("chunk {number} {what}");
        if stored.len() != self.stored as usize || xxh3_64(&stored) != self.check {
            return Err(fault("does not match its hash"));
        }
        let plain = if self.stored == self.plain {
            stored
        } else {
            compress::decompress(&stored, self.plain as usize).map_err(|what| fault(&what))?.into()
        };
        if blake3::hash(&plain) == blake3::Hash::from_bytes(self.hash) {
            Ok(plain)
        } else {
            Err(fault("does not match its hash"))
        }
    }
}

/// How many bytes at the end of a pack say how long its footer is.
pub(crate) const PACK_TRAILER_BYTES: usize = TRAILER_BYTES;

impl PackIndex {
    /// How many bytes before the trailer the footer takes. `tail` ends where the pack ends. The text of the error completes "the pack is damaged: …".
    pub(crate) fn footer_bytes(name: &PackName, tail: &[u8]) -> Result<usize, String> {
        let start = tail.len().checked_sub(TRAILER_BYTES).ok_or_else(|| too_short(tail.len() as u64))?;
        let trailer = &tail[start..];
        if trailer[36..] != *END_MAGIC {
            return Err("it does not begin and end as a pack does".into());
        }
        if trailer[4..36] != name.0.identity.hash {
            return Err("its index does not match its name".into());
        }
        let bytes = u32::from_le_bytes([trailer[0], trailer[1], trailer[2], trailer[3]]) as usize;
        if bytes > PACK_CHUNKS_MAX * INDEX_ENTRY_BYTES {
            return Err(format!("its index has {bytes} bytes, more than any pack's"));
        }
        Ok(bytes)
    }

    /// Reads the footer of a pack of `size` bytes.
    pub(crate) fn open(name: &PackName, footer: &[u8], size: u64) -> Result<Self, String> {
        let cut = || too_short(size);
        let start = size.checked_sub((TRAILER_BYTES + footer.len()) as u64).ok_or_else(cut)?;
        if blake3::hash(footer) != blake3::Hash::from_bytes(name.0.identity.hash) {
            return Err("its index does not match its name".into());
        }
        // The index is what was written; the rest guards against a fault in the writer.
        let (entries, rest) = footer.as_chunks::<INDEX_ENTRY_BYTES>();
        if !rest.is_empty() || entries.len() > PACK_CHUNKS_MAX {
            return Err(format!("its index has {} bytes, which is not a whole number of entries", footer.len()));
        }
        let mut offset = MAGIC.len() as u64;
        let mut chunks = Vec::with_capacity(entries.len());
        for entry in entries {
            let number = |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
            let (plain, stored) = (number(0), number(4));
            let check = u64::from(number(8)) | u64::from(number(12)) << 32;
            let mut hash = [0; 32];
            hash.copy_from_slice(&entry[16..]);
            if plain as usize > CHUNK_BYTES_MAX || stored > plain {
                let at = chunks.len();
                return Err(format!("chunk {at} takes {stored} bytes for {plain}; the limit is {CHUNK_BYTES_MAX}"));
            }
            chunks.push(IndexEntry { offset, plain, stored, check, hash });
            offset += u64::from(stored);
        }
        if offset != start {
            return Err(format!("its chunks have {offset} bytes by its index and {start} in fact"));
        }
        Ok(Self { chunks })
    }

    /// How many chunks it has.
    pub(crate) fn len(&self) -> u32 {
        self.chunks.len() as u32
    }

    fn entry(&self, number: u32) -> Result<&IndexEntry, String> {
        let chunks = self.chunks.len();
        self.chunks.get(number as usize).ok_or_else(|| format!("it has {chunks} chunks, and chunk {number} is wanted"))
    }

    /// How many bytes a chunk has.
    pub(crate) fn plain_bytes(&self, number: u32) -> Result<u32, String> {
        self.entry(number).map(|entry| entry.plain)
    }

    /// The blake3 of a chunk.
    pub(crate) fn hash(&self, number: u32) -> Result<blake3::Hash, String> {
        self.entry(number).map(|entry| blake3::Hash::from_bytes(entry.hash))
    }

    /// Where chunks lie in the pack. They lie side by side.
    pub(crate) fn range(&self, chunks: std::ops::Range<u32>) -> Result<std::ops::Range<u64>, String> {
        match chunks.end.checked_sub(1) {
            Some(last) if !chunks.is_empty() => Ok(self.entry(chunks.start)?.offset..self.entry(last)?.range().end),
            _ => Ok(0..0),
        }
    }

    /// A chunk, checked. `stored` is what lies in the pack from `start` on, at least all of that chunk.
    pub(crate) fn chunk(&self, number: u32, start: u64, stored: &Bytes) -> Result<Bytes, String> {
        let entry = self.entry(number)?;
        let std::ops::Range { start: from, end } = entry.range();
        match (from.checked_sub(start), end.checked_sub(start)) {
            (Some(from), Some(end)) if end <= stored.len() as u64 => {
                entry.open(number, stored.slice(from as usize..end as usize))
            }
            _ => Err(format!("chunk {number} is cut short")),
        }
    }

    /// The chunks that a reference names, once it is sure that the pack has them.
    pub(crate) fn chunks_of(&self, segment: &SegmentRef) -> Result<std::ops::Range<u32>, String> {
        let SegmentRef { first_chunk: first, chunks, .. } = *segment;
        match first.checked_add(chunks).filter(|end| *end <= self.len()) {
            Some(end) => Ok(first..end),
            None => Err(format!("it has {} chunks, and {chunks} from chunk {first} are wanted", self.len())),
        }
    }

    /// The same, once it is also sure that they have as many bytes as the reference says.
    pub(crate) fn named_by(&self, segment: &SegmentRef) -> Result<std::ops::Range<u32>, String> {
        let std::ops::Range { start: first, end } = self.chunks_of(segment)?;
        let claimed = segment.bytes;
        let entries = self.chunks.get(first as usize..end as usize).unwrap_or_default();
        match entries.iter().map(|entry| u64::from(entry.plain)).sum::<u64>() {
            bytes if bytes == claimed => Ok(first..end),
            bytes => Err(format!("chunks {first} to {end} have {bytes} bytes, and {claimed} are wanted")),
        }
    }
}

fn too_short(bytes: u64) -> String {
    format!("it has {bytes} bytes, fewer than its parts")
}

/// A pack that was read whole: its index is checked, its chunks are when they are asked for.
#[derive(Debug)]
pub(crate) struct PackReader {
    content: Bytes,
    index: PackIndex,
}

impl PackReader {
    /// Checks the outline of a pack against its name. The text of the error completes "the pack is damaged: …".
    pub(crate) fn open(name: &PackName, content: Bytes) -> Result<Self, String> {
        let footer = PackIndex::footer_bytes(name, &content)?;
        let end = content.len() - TRAILER_BYTES;
        let start = end.checked_sub(footer).filter(|start| *start >= MAGIC.len());
        let start = start.ok_or_else(|| too_short(content.len() as u64))?;
        if content[..MAGIC.len()] != *MAGIC {
            return Err("it does not begin and end as a pack does".into());
        }
        let index = PackIndex::open(name, &content[start..end], content.len() as u64)?;
        Ok(Self { content, index })
    }

    /// What it consists of.
    pub(crate) fn index(&self) -> &PackIndex {
        &self.index
    }

    /// How many chunks it has.
    pub(crate) fn len(&self) -> u32 {
        self.index.len()
    }

    /// The bytes of a chunk, checked against its hash.
    pub(crate) fn chunk(&self, number: u32) -> Result<Bytes, String> {
        self.index.chunk(number, 0, &self.content)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(pack: &Pack) -> Bytes {
        pack.payload.iter().flat_map(|part| part.iter().copied()).collect::<Vec<_>>().into()
    }

    fn task() -> TaskId {
        TaskId { node: NodeName::new("a-b"), subtask: 12 }
    }

    /// Every chunk, or the first fault.
    fn read(name: &PackName, content: Bytes) -> Result<Vec<Bytes>, String> {
        let pack = PackReader::open(name, content)?;
        (0..pack.len()).map(|number| pack.chunk(number)).collect()
    }

    /// The same as a restore reads it: the footer first, then parts.
    fn read_parts(name: &PackName, content: &Bytes) -> Result<Vec<Bytes>, String> {
        let footer = PackIndex::footer_bytes(name, content)?;
        let end = content.len() - TRAILER_BYTES;
        let start = end.checked_sub(footer).ok_or("cut short")?;
        let index = PackIndex::open(name, &content[start..end], content.len() as u64)?;
        let part = |number| {
            let range = index.range(number..number + 1)?;
            index.chunk(number, range.start, &content.slice(range.start as usize..range.end as usize))
        };
        (0..index.len()).map(part).collect()
    }

    fn small() -> Pack {
        let mut builder = PackBuilder::new(Generation(3), Epoch(7), &task());
        builder.write(Scope::KeyGroup(1), SegmentKind::Base, b"one").unwrap();
        builder.write(Scope::KeyGroup(1), SegmentKind::Base, b"").unwrap();
        builder.write(Scope::KeyGroup(1), SegmentKind::Delta, b"").unwrap();
        builder.write(Scope::Item, SegmentKind::Base, b"twelve").unwrap();
        builder.write(Scope::Shared, SegmentKind::Base, b"").unwrap();
        builder.finish().unwrap()
    }

    #[test]
    fn chunks_come_back_as_they_were_written_and_runs_are_references() {
        let pack = small();
        assert!(pack.name.to_string().starts_with("3-7-a-b.12-"), "{}", pack.name);
        assert_eq!(pack.name.to_string().parse(), Ok(pack.name.clone()));
        assert_eq!(read(&pack.name, content(&pack)).unwrap(), [&b"one"[..], b"", b"twelve"]);
        let runs: Vec<_> = pack.segments.iter().map(|s| (s.scope, s.kind, s.first_chunk, s.chunks, s.bytes)).collect();
        assert!(pack.segments.iter().all(|segment| segment.layout == Layout::Chunks));
        assert_eq!(
            runs,
            [
                (Scope::KeyGroup(1), SegmentKind::Base, 0, 1, 3),
                (Scope::KeyGroup(1), SegmentKind::Delta, 1, 1, 0),
                (Scope::Item, SegmentKind::Base, 2, 1, 6),
                (Scope::Shared, SegmentKind::Base, 3, 0, 0),
            ]
        );
        assert!(PackBuilder::new(Generation(3), Epoch(7), &task()).finish().is_none());
    }

    /// With chunks that are compressed, and one that is not.
    fn compressed() -> Pack {
        let mut builder = PackBuilder::new(Generation(3), Epoch(7), &task());
        let counters: Vec<u8> = (0..300_u32).flat_map(u32::to_le_bytes).collect();
        builder.write(Scope::Subtask, SegmentKind::Base, &counters).unwrap();
        builder.write(Scope::Subtask, SegmentKind::Base, b"short").unwrap();
        builder.write(Scope::Subtask, SegmentKind::Delta, &[7; 2000]).unwrap();
        let pack = builder.finish().unwrap();
        assert!(pack.name.size().unwrap().plain == 3205 && pack.bytes < 1500, "{:?}", pack.name.size());
        pack
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_pack_is_found() {
        for pack in [small(), compressed()] {
            let whole = content(&pack);
            assert_eq!(read(&pack.name, whole.clone()).unwrap(), read_parts(&pack.name, &whole).unwrap());
            for bit in 0..whole.len() * 8 {
                let mut bytes = whole.to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let bytes = Bytes::from(bytes);
                // A restore does not look at the first bytes, which say nothing.
                assert!(bit < MAGIC.len() * 8 || read_parts(&pack.name, &bytes).is_err(), "bit {bit}");
                assert!(read(&pack.name, bytes).is_err(), "bit {bit}");
            }
            for length in 0..whole.len() {
                for part in [whole.slice(..length), whole.slice(whole.len() - length..)] {
                    assert!(read_parts(&pack.name, &part).is_err(), "{length} bytes");
                    assert!(read(&pack.name, part).is_err(), "{length} bytes");
                }
            }
            assert!(read(&pack.name, [&whole[..], b"x"].concat().into()).is_err());
        }
    }

    /// What a writer gone wrong, or somebody who makes names fit, could say.
    #[test]
    fn a_chunk_that_declares_more_or_less_than_it_is_is_refused_by_number() {
        let zeros = Compressor::default().compress(&[0; 4096]).unwrap();
        let forged = |plain: u32, hash: blake3::Hash| {
            let mut index = Vec::new();
            index.extend_from_slice(&plain.to_le_bytes());
            index.extend_from_slice(&(zeros.len() as u32).to_le_bytes());
            index.extend_from_slice(&xxh3_64(&zeros).to_le_bytes());
            index.extend_from_slice(hash.as_bytes());
            let footer = blake3::hash(&index);
            let length = (index.len() as u32).to_le_bytes();
            let content = [MAGIC, &zeros[..], &index, &length, footer.as_bytes(), END_MAGIC].concat();
            let identity =
                Identity { generation: Generation(1), epoch: Epoch(1), task: task(), hash: *footer.as_bytes() };
            read(&PackName::new(identity, None, None), content.into())
        };
        assert!(forged(4096, blake3::hash(&[0; 4096])).is_ok());
        for plain in [zeros.len() as u32 + 1, 4095, 4097, 1 << 20] {
            let error = forged(plain, blake3::hash(&vec![0; plain as usize])).unwrap_err();
            assert!(error.contains("chunk 0") && error.contains(&plain.to_string()), "{plain}: {error}");
        }
        let error = forged(CHUNK_BYTES_MAX as u32 + 1, blake3::hash(b"")).unwrap_err();
        assert!(error.contains("chunk 0 takes") && error.contains("67108864"), "{error}");
    }

    #[test]
    fn a_small_pack_is_carried_by_its_name_and_is_the_same_name() {
        let mut builder = PackBuilder::new(Generation(3), Epoch(7), &task());
        builder.write(Scope::Subtask, SegmentKind::Base, b"few").unwrap();
        let pack = builder.finish_as(true).unwrap();
        let inline = pack.name.inline().unwrap().clone();
        assert_eq!(read(&pack.name, inline).unwrap(), [&b"few"[..]]);
        let bytes = postcard::to_allocvec(&pack.name).unwrap();
        let name: PackName = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((&name, name.inline(), name.size()), (&pack.name, pack.name.inline(), pack.name.size()));
        assert_eq!(pack.name.to_string().parse(), Ok(name));
        // More than a few bytes are not.
        let mut builder = PackBuilder::new(Generation(3), Epoch(7), &task());
        for number in 0..INLINE_BYTES_MAX / INDEX_ENTRY_BYTES {
            builder.write(Scope::Item, SegmentKind::Base, &number.to_le_bytes()).unwrap();
        }
        assert!(builder.finish_as(true).unwrap().name.inline().is_none());
    }

    #[test]
    fn a_name_has_one_spelling() {
        let hash = "ab".repeat(32);
        for bad in ["", "1", "1-2", "1-2-a-x", "1-2-a.0", "../../x"] {
            assert!(bad.parse::<PackName>().is_err(), "{bad}");
        }
        assert!(format!("1-2-a.0-{hash}").parse::<PackName>().is_ok());
        for bad in ["01-2-a.0", "1-+2-a.0", "1-2-a.00", "1-2-A.0", "1-2-a/b.0", "1-2-.0", "1-2-a"] {
            assert!(format!("{bad}-{hash}").parse::<PackName>().is_err(), "{bad}");
        }
        assert!(format!("1-2-a.0-{}", hash.to_uppercase()).parse::<PackName>().is_err());
    }

    #[test]
    fn a_chunk_over_the_limit_is_refused_and_leaves_the_pack_as_it_was() {
        let mut builder = PackBuilder::new(Generation(3), Epoch(7), &task());
        let error = builder.write(Scope::Subtask, SegmentKind::Base, &vec![0; CHUNK_BYTES_MAX + 1]).unwrap_err();
        assert!(error.to_string().contains("a chunk (bytes) of a-b[12] in epoch 7 is 67108865"), "{error}");
        assert!(builder.finish().is_none());
    }

    proptest! {
        #[test]
        fn a_pack_gives_back_any_chunks(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 1..40)) {
            let mut builder = PackBuilder::new(Generation(1), Epoch(1), &task());
            for (number, chunk) in chunks.iter().enumerate() {
                builder.write(Scope::KeyGroup(number as u32 / 3), SegmentKind::Base, chunk).unwrap();
            }
            let pack = builder.finish().unwrap();
            prop_assert_eq!(pack.bytes, content(&pack).len() as u64);
            prop_assert_eq!(read_parts(&pack.name, &content(&pack)).unwrap(), chunks.clone());
            prop_assert_eq!(read(&pack.name, content(&pack)).unwrap(), chunks);
        }

        #[test]
        fn bytes_that_are_no_pack_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(PackReader::open(&small().name, bytes.into()).is_err());
        }
    }
}
