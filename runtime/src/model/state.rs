//! State as it crosses between a plugin and a checkpoint: segments, made of chunks (`wit/snapshots.wit`).
//!
//! The plugin room produces and takes these, the checkpoint room stores them; neither knows the other.

use serde::{Deserialize, Serialize};

/// Where a segment belongs when the parallelism changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// To a key group.
    KeyGroup(u32),
    /// To this subtask alone.
    Subtask,
    /// To every subtask alike.
    Shared,
    /// To any subtask: dealt out again.
    Item,
}

/// How a chunk relates to what the segment held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SegmentKind {
    /// Replaces it.
    Base,
    /// Comes on top of it.
    Delta,
}

/// What a snapshot has to contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotMode {
    /// Everything, as bases.
    Full,
    /// At least what changed since the last snapshot that was done.
    Incremental,
}

/// A piece of a segment, as it was written and as it comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where it belongs.
    pub scope: Scope,
    /// Base or delta.
    pub kind: SegmentKind,
    /// The subtask that wrote it.
    pub origin: u32,
    /// Its bytes.
    pub data: bytes::Bytes,
}

/// How a sink finds out whether an epoch was committed already.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CommitIdentity {
    /// The job's history.
    pub job: super::JobId,
    /// The sink node.
    pub node: super::NodeName,
    /// The checkpoint whose manifest names the committables.
    pub epoch: super::Epoch,
}

/// What one subtask of a sink needs to finish what it staged in one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committable {
    /// The epoch that prepared it; at most that of the manifest that names it.
    pub epoch: super::Epoch,
    /// The subtask that prepared it.
    pub subtask: u32,
    /// The sink's own words.
    pub data: Vec<u8>,
}

/// How far a source has read one of its splits (a file, a partition).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitPosition {
    /// The name of the split.
    pub split: String,
    /// Where reading goes on: the source's own words.
    pub offset: Vec<u8>,
    /// By which a split that was changed or replaced is found out.
    pub fingerprint: Vec<u8>,
}
