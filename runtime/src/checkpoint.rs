//! Durable truth: the log of a job, its checkpoints, and who may write them.
//!
//! Everything that a job has to remember is in an object store: what it read, what it holds, what it has prepared to publish.
//! In go references to state that tasks have put there, and a manifest that joins them; out comes the right to commit, and
//! after a crash, what to restore. This room knows no tasks, no channels and no plugins, and it never guesses: what
//! is missing or damaged is named and refused.
//!
//! ```text
//!            tasks: put_pack            coordinator: publish                 sinks: commit
//!                 │                          │                                    │
//!   packs/… ◄─────┘      log/<seq> ◄─────────┘  (create-if-absent)  CommitPermit ─┘    committed/<epoch> ◄─ mark_committed
//!                             │
//!   log:  Claim 1 · Checkpoint 2 · Checkpoint 3 · Claim 4 · Checkpoint 5 ·  …      one chain; a claim fences all before it
//! ```
//!
//! A checkpoint exists if and only if its entry is in the log. A run begins with a claim in the same log
//! ([`begin`]); it publishes one manifest after another ([`Run::publish`]), each only when the one before is marked
//! committed; it collects what is no longer needed ([`collect`]). The restore point is the last checkpoint after the last
//! claim, else that claim's base. Whether a write took place is decided by reading, never by an answer that did not come.
//!
//! # What is kept, and where
//!
//! | | invariant | kept in |
//! | --- | --- | --- |
//! | I1 | a manifest's packs are durable before it is put, and whole | `publish.rs`, `pack.rs`, `storage/local.rs` |
//! | I2 | sources, operators and sinks come from one manifest | `manifest.rs`: it is flat |
//! | I4 | a commit needs a manifest | `publish.rs`: [`CommitPermit`] |
//! | I5 | what no manifest names is never visible | `publish.rs`: a permit is for one manifest and what it names |
//! | I6 | entries form one chain | `objects.rs`: `settle`; `decide.rs` |
//! | I7 | nothing is committed or deleted after a later claim or below the boundary | `decide.rs`: `fence` |
//! | I8 | a manifest names new packs of its own run, or its parent's | `decide.rs`: `publishable` |
//! | I9 | garbage is found without a clock and without counting; what is pinned is kept | `gc.rs`, `decide.rs`: `is_garbage`; `savepoint.rs`: `pin` |
//! | I10 | a job never silently starts empty | `recover.rs`, `decide.rs`: `begin` |
//! | I11 | timers, watermarks and ended inputs are in the cut | `manifest.rs`: `progress`, `watermark` |
//! | I13 | n + 1 is not put before n is marked | `decide.rs`: `publishable` |
//!
//! I3 (no element overtakes a cut) is kept by the data path.
//!
//! # Crash here → then
//!
//! | the process dies | then |
//! | --- | --- |
//! | after the first claim, before `id/1` | the next first run makes another history; this one is never found |
//! | after a claim | the next run claims again, with the same base |
//! | after some packs, before the manifest | the checkpoint before is restored; the packs are garbage of an earlier generation |
//! | while the manifest's put is under way | it is there, or it is not: the next run reads the log |
//! | after the manifest, before or between commits | it is restored, and `commit_needed` is true |
//! | after code was refused, before the claim that follows | the entry decides nothing: the next run claims after it |
//! | after the commits, before the marker | the same; the sinks recognise what they did |
//! | after the marker | it is restored, nothing to commit; a finished job says so |
//! | in the collector, after the boundary | the next collection deletes the rest |
//! | never, but sleeps, and wakes up after others went on | it is fenced: its next put, permit or deletion finds the claim or the boundary |
//!
//! Power may go instead of the process: see `storage/local.rs` for what a local disk needs.

#[cfg(test)]
pub(crate) mod auditor;
mod catalogue;
mod compress;
mod content;
mod cut;
mod decide;
mod diff;
mod envelope;
mod error;
mod export;
#[cfg(test)]
pub(crate) mod faulty;
mod gc;
mod holdings;
mod inspect;
mod log;
mod manifest;
mod objects;
mod pack;
mod packer;
mod publish;
mod read;
mod recover;
mod refused;
mod savepoint;
mod segment;
mod series;
#[cfg(test)]
mod simulation;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use content::{ChunkContent, StateContent, state_content};
pub use diff::{Difference, diff};
pub use error::{Cause, CheckpointError, PublishError, Superseder};
pub use export::{ExportFile, Exported, check_import, check_job, export_savepoint, import, open_export};
pub use gc::{Collected, Swept, collect, sweep};
pub use holdings::Holdings;
pub use inspect::{EntryKind, EntrySummary, Report, history, read_manifest, verify};
pub use manifest::{
    COMMITTABLES_MAX, Manifest, NODES_MAX, NodeEntry, NodeKind, OPAQUE_BYTES_MAX, POSITIONS_MAX, PluginEntry,
    SUBTASKS_MAX, SubtaskEntry, TEXT_BYTES_MAX,
};
pub use objects::{DEFAULT_TENANT, JobStore, PLUGIN_BYTES_MAX, Store};
pub use pack::{
    CHUNK_BYTES_MAX, INLINE_BYTES_MAX, PACK_BYTES_MAX, PACK_CHUNKS_MAX, Pack, PackBuilder, PackName, PackSize,
};
pub use packer::{PACK_BYTES, SnapshotPacker, Written};
pub use publish::{CommitPermit, Run};
pub use read::{SegmentReader, move_chunks, read_segments};
pub use recover::{Begun, Restorable, Start, begin, give_up, histories, look_for, open_tip};
pub use refused::{Refused, refused};
pub(crate) use savepoint::pin;
pub use savepoint::{
    Freed, Savepoint, check_savepoint_name, create_savepoint, delete_savepoint, find_savepoint, list_savepoints,
    missing_plugins,
};
pub use segment::{Layout, Lengths, SEGMENTS_MAX, SegmentRef, SegmentSet, reading_order};
pub use series::{Revision, Series};
