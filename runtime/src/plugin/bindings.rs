//! The only `bindgen!`: typed calls of a guest's exports, the types of the contract, and their conversion to and from
//! the model.
//!
//! What a guest imports is not linked from here but by hand in `host.rs`, so that lists and strings that a guest hands
//! over are read where they lie. Nothing here checks what a guest says; that is done where it is used.

#![allow(unreachable_pub, reason = "generated code")]

use crate::model::{self, Batch, Scope, SegmentKind, TaskInfo};

wasmtime::component::bindgen!({
    world: "stateful-operator",
    path: "../wit",
    imports: { default: trappable },
    exports: { default: async },
    ownership: Borrowing { duplicate_if_necessary: true },
});

pub(super) use self::weir::plugin::{log, snapshots, types};
pub(super) use exports::weir::plugin::{checkpoint, processor};

/// A batch as a guest is given it: slices, so nothing is copied before it is in the guest's memory.
pub(super) fn batch_param(batch: &Batch) -> types::BatchParam<'_> {
    types::BatchParam {
        timestamps: &batch.timestamps,
        hashes: &batch.hashes,
        key_offsets: &batch.keys.offsets,
        keys: &batch.keys.bytes,
        key_nulls: &batch.keys.nulls,
        value_offsets: &batch.values.offsets,
        values: &batch.values.bytes,
        value_nulls: &batch.values.nulls,
        header_offsets: &batch.headers.offsets,
        headers: &batch.headers.bytes,
    }
}

/// Which part of a job an instance works on.
pub(super) fn task_param(task: &TaskInfo) -> types::TaskInfo<'_> {
    types::TaskInfo {
        job: &task.job,
        node: &task.node,
        subtask: task.subtask,
        parallelism: task.parallelism,
        key_groups: task.key_groups,
        first_key_group: task.groups.start,
        end_key_group: task.groups.end,
        seed: task.seed,
        attributes: &[],
    }
}

/// Where a segment belongs and how it relates to what was there.
pub(super) fn segment(segment: &snapshots::Segment) -> (Scope, SegmentKind) {
    let scope = match segment.scope {
        snapshots::Scope::KeyGroup(group) => Scope::KeyGroup(group),
        snapshots::Scope::Subtask => Scope::Subtask,
        snapshots::Scope::Shared => Scope::Shared,
        snapshots::Scope::Item => Scope::Item,
    };
    let kind = match segment.kind {
        snapshots::SegmentKind::Base => SegmentKind::Base,
        snapshots::SegmentKind::Delta => SegmentKind::Delta,
    };
    (scope, kind)
}

/// A chunk as a guest reads it; takes over the bytes where nobody else holds them.
pub(super) fn chunk(chunk: model::Chunk) -> snapshots::Chunk {
    let scope = match chunk.scope {
        Scope::KeyGroup(group) => snapshots::Scope::KeyGroup(group),
        Scope::Subtask => snapshots::Scope::Subtask,
        Scope::Shared => snapshots::Scope::Shared,
        Scope::Item => snapshots::Scope::Item,
    };
    let kind = match chunk.kind {
        SegmentKind::Base => snapshots::SegmentKind::Base,
        SegmentKind::Delta => snapshots::SegmentKind::Delta,
    };
    snapshots::Chunk { source: snapshots::Segment { scope, kind }, origin: chunk.origin, data: Vec::from(chunk.data) }
}

/// What a snapshot has to contain.
pub(super) fn snapshot_mode(mode: model::SnapshotMode) -> checkpoint::SnapshotMode {
    match mode {
        model::SnapshotMode::Full => checkpoint::SnapshotMode::Full,
        model::SnapshotMode::Incremental => checkpoint::SnapshotMode::Incremental,
    }
}
