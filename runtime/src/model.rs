//! The nouns that every room speaks: records in columns, keys and their groups, elements of a channel, and the names
//! of jobs, nodes, epochs and generations.
//!
//! Nothing here does I/O or knows who uses it. The column layout and the key hash are those of the plugin contract
//! (`wit/types.wit`), so a batch crosses to a guest without being rebuilt.

mod batch;
mod descriptor;
mod guarantee;
mod names;
mod shown;
mod state;

pub use batch::{Batch, BatchFault, BatchLimit, Column, RECORD_BYTES_MAX};
pub use descriptor::{Descriptor, Port, StateKind, TaskInfo};
pub use guarantee::Guarantee;
pub use names::{Epoch, Generation, JobId, NodeName, TaskId, name_fault};
pub use shown::ShownBytes;
pub(crate) use shown::bytes;
pub use state::{Chunk, CommitIdentity, Committable, Scope, SegmentKind, SnapshotMode, SplitPosition};

use serde::{Deserialize, Serialize};

/// Microseconds since 1970-01-01T00:00:00Z, leap seconds not counted.
pub type Timestamp = i64;

/// The event time of a record that has none.
pub const NO_TIME: Timestamp = i64::MIN;

/// The last watermark of a stream: nothing will come any more.
pub const END_OF_TIME: Timestamp = i64::MAX;

/// How many key groups a job has unless its pipeline says otherwise.
pub const KEY_GROUPS_DEFAULT: u32 = 128;

/// The most key groups a job can have: the group is taken from 16 bits of the hash.
pub const KEY_GROUPS_MAX: u32 = 32_768;

/// The hash of a key: XXH3-64 with seed 0. A record without a key has the hash of no bytes.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The key group of a hash: `(((hash >> 32) & 0xffff) * groups) >> 16`.
#[inline]
pub fn key_group(hash: u64, groups: u32) -> u32 {
    debug_assert!(groups <= KEY_GROUPS_MAX);
    ((((hash >> 32) & 0xffff) * u64::from(groups)) >> 16) as u32
}

/// The subtask that owns a key group: `group * parallelism / groups`.
#[inline]
pub fn subtask_of_group(group: u32, parallelism: u32, groups: u32) -> u32 {
    (u64::from(group) * u64::from(parallelism) / u64::from(groups)) as u32
}

/// The key groups of a subtask: the exact inverse of [`subtask_of_group`].
pub fn groups_of_subtask(subtask: u32, parallelism: u32, groups: u32) -> std::ops::Range<u32> {
    let first = |s: u64| (s * u64::from(groups)).div_ceil(u64::from(parallelism)) as u32;
    first(u64::from(subtask))..first(u64::from(subtask) + 1)
}

/// A cut between epoch `epoch` and the next one, as it travels in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// The checkpoint attempt that this barrier belongs to.
    pub epoch: Epoch,
    /// Nothing follows: the job ends or stops with this epoch.
    pub last: bool,
    /// The newest checkpoint that is complete: what a task has recorded up to its cut is not needed any more.
    pub complete: Option<Epoch>,
}

/// What a channel carries, in order. After `End` only barriers come.
///
/// Nearly every element is a batch, so the size of the others does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Element {
    /// Records.
    Batch(Batch),
    /// Records at or before this event time have come, but for late ones.
    Watermark(Timestamp),
    /// Separates two epochs.
    Barrier(Barrier),
    /// The sender has had nothing for a while: its watermark is not to be waited for until something comes.
    Idle,
    /// No record follows.
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors that `wit/types.wit` promises.
    #[test]
    fn key_hash_and_key_group_match_the_vectors_of_the_contract() {
        let vectors: [(&[u8], u64, u32); 4] = [
            (b"", 0x2d06_8005_38d3_94c2, 64),
            (b"a", 0xe6c6_32b6_1e96_4e1f, 25),
            (b"abc", 0x78af_5f94_892f_3950, 47),
            (b"UA", key_hash(b"UA"), key_group(key_hash(b"UA"), 128)),
        ];
        for (key, hash, group) in vectors {
            assert_eq!(key_hash(key), hash, "hash of {key:?}: {:#018x}", key_hash(key));
            assert_eq!(key_group(hash, 128), group, "group of {key:?}");
        }
    }

    #[test]
    fn each_group_belongs_to_exactly_the_subtask_that_claims_it() {
        for groups in [1, 2, 7, 128, KEY_GROUPS_MAX] {
            for parallelism in 1..=groups.min(37) {
                let mut next = 0;
                for subtask in 0..parallelism {
                    let range = groups_of_subtask(subtask, parallelism, groups);
                    assert_eq!(range.start, next);
                    next = range.end;
                    assert!(range.clone().all(|g| subtask_of_group(g, parallelism, groups) == subtask));
                    assert!(!range.is_empty());
                }
                assert_eq!(next, groups);
            }
        }
    }
}
