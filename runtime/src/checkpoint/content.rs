//! The content of state, whoever stored it and where: what two checkpoints have in common if they hold the same (I12).
//!
//! Generations, packs and the place of a chunk in a pack are left out; what stays is, for each scope, its chunks in the order in
//! which they would be read, each by the hash of its bytes. Every chunk is read and checked.

use std::collections::BTreeMap;

use super::error::CheckpointError;
use super::objects::JobStore;
use super::pack::PackName;
use super::read::SegmentReader;
use super::segment::SegmentRef;
use crate::model::{Scope, SegmentKind};

/// A chunk of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkContent {
    /// Base or delta.
    pub kind: SegmentKind,
    /// The subtask that wrote it.
    pub origin: u32,
    /// The blake3 hash of its bytes.
    pub id: [u8; 32],
    /// How many bytes.
    pub bytes: u64,
}

/// The state of one subtask by scope.
pub type StateContent = BTreeMap<Scope, Vec<ChunkContent>>;

/// Reads what segments hold. `store_of` says in which store a pack is.
///
/// # Errors
///
/// A pack that is missing or damaged, by name.
pub async fn state_content<'a>(
    segments: &[SegmentRef],
    store_of: impl Fn(&PackName) -> &'a JobStore,
) -> Result<StateContent, CheckpointError> {
    let (mut reader, _) = SegmentReader::open(segments, |pack| store_of(pack).clone()).await?;
    let mut content = StateContent::new();
    while let Some(chunk) = reader.next().await? {
        // Of the chunk as it was written: how it was cut and packed is the host's matter.
        let id = *blake3::hash(&chunk.data).as_bytes();
        let bytes = chunk.data.len() as u64;
        content.entry(chunk.scope).or_default().push(ChunkContent {
            kind: chunk.kind,
            origin: chunk.origin,
            id,
            bytes,
        });
    }
    Ok(content)
}
