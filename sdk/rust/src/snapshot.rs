//! Where [`crate::Stateful`] writes state to and reads it from: segments, made of chunks.

use crate::bindings::snapshots;
use crate::host;

pub use snapshots::{Chunk, Scope, Segment, SegmentKind};

/// Takes the chunks of a snapshot.
#[derive(Debug)]
pub struct SnapshotWriter {
    _only_in_snapshot: (),
}

impl SnapshotWriter {
    pub(crate) fn new() -> Self {
        Self { _only_in_snapshot: () }
    }

    /// Adds a chunk to a segment. It comes back as it is: make it something that can be decoded alone, of about 256 KiB and
    /// at most 1 MiB.
    ///
    /// The first base chunk in a snapshot replaces the segment, further ones add to it; an empty base clears it; a delta comes on
    /// top. False asks to return [`crate::Progress::More`] soon: the stream is waiting.
    #[inline]
    pub fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> bool {
        host::snapshot_write(Segment { scope, kind }, data)
    }
}

/// Gives back the chunks of a snapshot.
#[derive(Debug)]
pub struct SnapshotReader {
    _only_in_restore: (),
}

impl SnapshotReader {
    pub(crate) fn new() -> Self {
        Self { _only_in_restore: () }
    }
}

impl Iterator for SnapshotReader {
    type Item = Chunk;

    /// The next chunk: by ascending key group, the other segments after them; in a segment the base before its deltas, chunks in
    /// the order in which they were written.
    fn next(&mut self) -> Option<Chunk> {
        host::snapshot_read()
    }
}
