//! Packs: the object that holds what one subtask wrote in one epoch.
//!
//! ```text
//! magic ‖ chunk ‖ chunk ‖ … ‖ footer: (length, blake3) of each chunk, in order ‖ footer's length ‖ footer's blake3 ‖ magic
//! ```
//!
//! Every byte is covered: chunks by their hashes in the footer, the footer by its hash in the trailer, and that one by
//! the pack's name, which is made of it. So a chunk is hashed once when it is written, and the pack never again.
//! What comes back is exactly what was written, chunk by chunk, or an error that names the pack and the chunk.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use object_store::{PutPayload, PutPayloadMut};
use serde::{Deserialize, Serialize};

use super::error::CheckpointError;
use super::segment::{SEGMENTS_MAX, SegmentRef};
use crate::model::{Epoch, Generation, NodeName, Scope, SegmentKind, TaskId, name_fault};

/// The largest chunk, in bytes.
pub const CHUNK_BYTES_MAX: usize = 64 << 20;
/// The most chunks in a pack.
pub const PACK_CHUNKS_MAX: usize = 1 << 20;
/// The largest pack, in bytes: what S3 takes in one request is 5 GiB.
pub const PACK_BYTES_MAX: u64 = 4 << 30;

const MAGIC: &[u8; 8] = b"weirpack";
/// Another magic for another layout: a change of either is a change of format.
const END_MAGIC: &[u8; 8] = b"weirpk/1";
const INDEX_ENTRY_BYTES: usize = 4 + 32;
const TRAILER_BYTES: usize = 4 + 32 + 8;
/// Small chunks share a block of this size instead of each having an allocation.
const BLOCK_BYTES: usize = 1 << 20;

/// The name of a pack: who wrote it, when, and what. Two packs with one name have one content.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackName(Arc<Parts>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
struct Parts {
    generation: Generation,
    epoch: Epoch,
    task: TaskId,
    hash: [u8; 32],
}

impl PackName {
    fn new(generation: Generation, epoch: Epoch, task: TaskId, hash: [u8; 32]) -> Self {
        Self(Arc::new(Parts { generation, epoch, task, hash }))
    }

    /// The name of a copy in another history of a job: of generation 0, which no run has.
    pub(crate) fn adopted(&self) -> Self {
        let Parts { epoch, task, hash, .. } = &*self.0;
        Self::new(Generation(0), *epoch, task.clone(), *hash)
    }

    /// The run that wrote it.
    pub fn generation(&self) -> Generation {
        self.0.generation
    }

    /// The attempt that it was written for.
    pub fn epoch(&self) -> Epoch {
        self.0.epoch
    }

    /// The subtask whose state it holds.
    pub fn task(&self) -> &TaskId {
        &self.0.task
    }
}

/// `<generation>-<epoch>-<node>.<subtask>-<blake3>`
impl fmt::Display for PackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { generation, epoch, task, hash } = &*self.0;
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
        let name = Self::new(
            Generation(generation.parse().map_err(|_| bad())?),
            Epoch(epoch.parse().map_err(|_| bad())?),
            TaskId { node: NodeName::new(node), subtask: subtask.parse().map_err(|_| bad())? },
            *blake3::Hash::from_hex(hash).map_err(|_| bad())?.as_bytes(),
        );
        // Only the one spelling that `Display` gives: no leading zeros, no signs, no capitals.
        if name_fault(node).is_some() || name.to_string() != text { Err(bad()) } else { Ok(name) }
    }
}

impl Serialize for PackName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PackName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parts = Parts::deserialize(deserializer)?;
        match name_fault(parts.task.node.as_str()) {
            Some(fault) => Err(serde::de::Error::custom(format!("node {:?} {fault}", parts.task.node.as_str()))),
            None => Ok(Self(Arc::new(parts))),
        }
    }
}

/// Collects what one subtask writes in one epoch.
#[derive(Debug)]
pub struct PackBuilder {
    generation: Generation,
    epoch: Epoch,
    task: TaskId,
    payload: PutPayloadMut,
    bytes: u64,
    index: Vec<u8>,
    chunks: u32,
    /// In the order of writing; adjacent chunks of one segment are one entry. The pack's name is known at the end.
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Run {
    scope: Scope,
    kind: SegmentKind,
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
    /// What was written, in the order of writing: give it to [`SegmentSet::apply`](super::SegmentSet::apply). A base
    /// with no chunks clears its segment.
    pub segments: Vec<SegmentRef>,
}

impl PackBuilder {
    /// An empty one.
    pub fn new(generation: Generation, epoch: Epoch, task: &TaskId) -> Self {
        let mut payload = PutPayloadMut::new().with_block_size(BLOCK_BYTES);
        payload.extend_from_slice(MAGIC);
        let bytes = MAGIC.len() as u64;
        Self { generation, epoch, task: task.clone(), payload, bytes, index: Vec::new(), chunks: 0, runs: Vec::new() }
    }

    /// How many bytes have been written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a chunk to a segment. A base with no bytes is no chunk: it only replaces what the segment held.
    ///
    /// Fails when a limit is crossed, and then holds what it held before.
    pub fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> Result<(), CheckpointError> {
        let limit = |what: &str, value: u64, limit: u64| {
            let what = format!("{what} of {} in epoch {}", self.task, self.epoch);
            if value > limit { Err(CheckpointError::TooLarge { what, value, limit }) } else { Ok(()) }
        };
        limit("a chunk (bytes)", data.len() as u64, CHUNK_BYTES_MAX as u64)?;
        limit("the number of chunks", u64::from(self.chunks) + 1, PACK_CHUNKS_MAX as u64)?;
        let whole = self.bytes + (data.len() + self.index.len() + INDEX_ENTRY_BYTES + TRAILER_BYTES) as u64;
        limit("the state (bytes)", whole, PACK_BYTES_MAX)?;
        let is_new = self.runs.last().is_none_or(|run| (run.scope, run.kind) != (scope, kind));
        if is_new {
            limit("the number of segments", self.runs.len() as u64 + 1, SEGMENTS_MAX as u64)?;
            self.runs.push(Run { scope, kind, first_chunk: self.chunks, chunks: 0, bytes: 0 });
        }
        if kind == SegmentKind::Base && data.is_empty() {
            return Ok(());
        }
        self.payload.extend_from_slice(data);
        self.index.extend_from_slice(&(data.len() as u32).to_le_bytes());
        self.index.extend_from_slice(blake3::hash(data).as_bytes());
        self.bytes += data.len() as u64;
        self.chunks += 1;
        if let Some(run) = self.runs.last_mut() {
            run.chunks += 1;
            run.bytes += data.len() as u64;
        }
        Ok(())
    }

    /// The pack, or none if nothing was written.
    pub fn finish(mut self) -> Option<Pack> {
        if self.runs.is_empty() {
            return None;
        }
        let hash = blake3::hash(&self.index);
        self.payload.extend_from_slice(&self.index);
        self.payload.extend_from_slice(&(self.index.len() as u32).to_le_bytes());
        self.payload.extend_from_slice(hash.as_bytes());
        self.payload.extend_from_slice(END_MAGIC);
        let origin = self.task.subtask;
        let name = PackName::new(self.generation, self.epoch, self.task, *hash.as_bytes());
        let segment = |run: Run| SegmentRef {
            scope: run.scope,
            kind: run.kind,
            origin,
            pack: name.clone(),
            first_chunk: run.first_chunk,
            chunks: run.chunks,
            bytes: run.bytes,
        };
        let segments = self.runs.into_iter().map(segment).collect();
        let payload = self.payload.freeze();
        Some(Pack { name, bytes: payload.content_length() as u64, payload, segments })
    }
}

/// A pack that was read: its index is checked, its chunks are when they are asked for.
#[derive(Debug)]
pub(crate) struct PackReader {
    content: Bytes,
    chunks: Vec<IndexEntry>,
}

#[derive(Debug)]
struct IndexEntry {
    offset: usize,
    bytes: u32,
    hash: [u8; 32],
}

impl PackReader {
    /// Checks the outline of a pack against its name. The text of the error completes "the pack is damaged: …".
    pub(crate) fn open(name: &PackName, content: Bytes) -> Result<Self, String> {
        let cut = || format!("it has {} bytes, fewer than its parts", content.len());
        let index_end = content.len().checked_sub(TRAILER_BYTES).ok_or_else(cut)?;
        if index_end < MAGIC.len() {
            return Err(cut());
        }
        let trailer = &content[index_end..];
        if content[..MAGIC.len()] != *MAGIC || trailer[36..] != *END_MAGIC {
            return Err("it does not begin and end as a pack does".into());
        }
        let index_bytes = u32::from_le_bytes([trailer[0], trailer[1], trailer[2], trailer[3]]) as usize;
        let index_start = index_end.checked_sub(index_bytes).ok_or_else(cut)?;
        let index = &content[index_start..index_end];
        if trailer[4..36] != name.0.hash || blake3::hash(index) != blake3::Hash::from_bytes(name.0.hash) {
            return Err("its index does not match its name".into());
        }
        // The index is what was written; the rest guards against a fault in the writer.
        let (entries, rest) = index.as_chunks::<INDEX_ENTRY_BYTES>();
        if !rest.is_empty() || entries.len() > PACK_CHUNKS_MAX {
            return Err(format!("its index has {index_bytes} bytes, which is not a whole number of entries"));
        }
        let mut offset = MAGIC.len();
        let mut chunks = Vec::with_capacity(entries.len());
        for entry in entries {
            let bytes = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            let mut hash = [0; 32];
            hash.copy_from_slice(&entry[4..]);
            chunks.push(IndexEntry { offset, bytes, hash });
            offset = offset.checked_add(bytes as usize).ok_or_else(cut)?;
        }
        if offset != index_start {
            return Err(format!("its chunks have {offset} bytes by its index and {index_start} in fact"));
        }
        Ok(Self { content, chunks })
    }

    /// How many chunks it has.
    pub(crate) fn len(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// The bytes of a chunk, checked against its hash.
    pub(crate) fn chunk(&self, number: u32) -> Result<Bytes, String> {
        let entry = self
            .chunks
            .get(number as usize)
            .ok_or_else(|| format!("it has {} chunks, and chunk {number} is wanted", self.chunks.len()))?;
        let data = self.content.slice(entry.offset..entry.offset + entry.bytes as usize);
        if blake3::hash(&data) == blake3::Hash::from_bytes(entry.hash) {
            Ok(data)
        } else {
            Err(format!("chunk {number} does not match its hash"))
        }
    }

    /// The hash and the length of a chunk that is there and matches its hash.
    pub(crate) fn checked(&self, number: u32) -> Result<([u8; 32], u64), String> {
        let data = self.chunk(number)?;
        let hash = self.chunks.get(number as usize).map_or([0; 32], |entry| entry.hash);
        Ok((hash, data.len() as u64))
    }

    /// Checks that chunks have as many bytes as a reference says.
    pub(crate) fn bytes(&self, chunks: std::ops::Range<u32>, claimed: u64) -> Result<(), String> {
        let entries = self.chunks.get(chunks.start as usize..chunks.end as usize).unwrap_or_default();
        match entries.iter().map(|entry| u64::from(entry.bytes)).sum::<u64>() {
            bytes if bytes == claimed => Ok(()),
            bytes => {
                Err(format!("chunks {} to {} have {bytes} bytes, and {claimed} are wanted", chunks.start, chunks.end))
            }
        }
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

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_pack_is_found() {
        let pack = small();
        let whole = content(&pack);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&pack.name, bytes.into()).is_err(), "bit {bit}");
        }
        for length in 0..whole.len() {
            assert!(read(&pack.name, whole.slice(..length)).is_err(), "cut at {length}");
            assert!(read(&pack.name, whole.slice(whole.len() - length..)).is_err(), "the last {length} bytes");
        }
        assert!(read(&pack.name, [&whole[..], b"x"].concat().into()).is_err());
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
            prop_assert_eq!(read(&pack.name, content(&pack)).unwrap(), chunks);
        }

        #[test]
        fn bytes_that_are_no_pack_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(PackReader::open(&small().name, bytes.into()).is_err());
        }
    }
}
