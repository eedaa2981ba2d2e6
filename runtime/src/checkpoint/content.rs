//! The content of state, whoever stored it and where: what two checkpoints have in common if they hold the same (I12).
//!
//! Generations, packs and the place of a chunk in a pack are left out; what stays is, for each scope, its chunks in the order in
//! which they would be read, each by the hash of its bytes. Every chunk is read and checked.

use std::collections::{BTreeMap, HashMap};

use super::error::CheckpointError;
use super::objects::JobStore;
use super::pack::{PackName, PackReader};
use super::segment::{SegmentRef, chunk_numbers, reading_order};
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
    let mut packs: HashMap<&PackName, PackReader> = HashMap::new();
    for SegmentRef { pack, .. } in segments {
        if !packs.contains_key(pack) {
            packs.insert(pack, store_of(pack).open_pack(pack).await?);
        }
    }
    let mut content = StateContent::new();
    for segment in reading_order(segments) {
        let Some(pack) = packs.get(&segment.pack) else { continue };
        let damaged = |fault| store_of(&segment.pack).damaged_pack(&segment.pack, fault);
        let chunks = content.entry(segment.scope).or_default();
        for number in chunk_numbers(segment, pack).map_err(damaged)? {
            let (id, bytes) = pack.checked(number).map_err(damaged)?;
            chunks.push(ChunkContent { kind: segment.kind, origin: segment.origin, id, bytes });
        }
    }
    Ok(content)
}
