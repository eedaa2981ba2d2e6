//! The key groups that a subtask has, and which of them a hash belongs to.

use std::ops::Range;

use super::chunk::corrupt;
use crate::operator::Failure;

/// The key groups of a subtask, and how a hash finds its own.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    all: u32,
    pub(crate) range: Range<u32>,
}

impl Groups {
    pub(crate) fn new(task: &crate::TaskInfo) -> Self {
        Self { all: task.key_groups, range: task.first_key_group..task.end_key_group }
    }

    /// The place of a hash's group among those of this subtask.
    #[inline(always)]
    pub(crate) fn place(&self, hash: u64) -> usize {
        crate::key_group(hash, self.all).wrapping_sub(self.range.start) as usize
    }

    /// The place of a key group.
    pub(crate) fn place_of(&self, group: u32) -> Result<usize, Failure> {
        if self.range.contains(&group) {
            Ok((group - self.range.start) as usize)
        } else {
            Err(corrupt(&format!("key group {group} is none of this subtask's, {:?}", self.range)))
        }
    }

    pub(crate) fn all(&self) -> u32 {
        self.all
    }

    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn not_ours(&self, hash: u64) -> ! {
        panic!(
            "a key of key group {} came to a subtask that has {:?}: declare the input port as keyed",
            crate::key_group(hash, self.all),
            self.range
        )
    }
}
