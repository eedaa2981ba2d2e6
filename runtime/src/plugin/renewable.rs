//! An operator whose instance is replaced between two calls by a fresh one with the same state: to put an image back, and to
//! get rid of memory that has leaked.
//!
//! *An image* is put into an instance on which nothing was called: memory already holds what `open` did, and cannot shrink to what it was.
//!
//! *Recycling*: some languages' toolchains leak. When linear memory is above the soft ceiling after a call, the operator writes all of its
//! state, its instance is dropped, and a fresh one is opened and takes the state over: the way of a recovery, without a
//! checkpoint. Nobody outside can tell, but for the time it takes. Two things need care:
//!
//! - What changed between the last checkpoint and the recycling is old news to the fresh instance, so it would not be in its next
//!   incremental snapshot (I8). The next one is written in full, whatever was asked for; where less was asked for, what has vanished meanwhile is
//!   cleared by name, so that the result is the same to whoever keeps the segments.
//! - A snapshot that is being written in steps lives in the instance: while one is open, nothing is recycled.
//!
//! Only for state that the operator writes itself: in an image the leak is too.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;

use super::host::Call;
use super::instance::Instance;
use super::limits::bytes;
use super::{HostCut, IDLE_STEPS_MAX, Operator, OperatorError, Output, Plugin, SnapshotReader, SnapshotWriter};
use crate::model::{Batch, Chunk, Epoch, Scope, SegmentKind, SnapshotMode, TaskInfo, Timestamp};
use crate::plan::LimitsSpec;

/// Makes the instances of one subtask.
pub(super) struct Maker {
    plugin: Plugin,
    limits: LimitsSpec,
    /// A JSON object.
    config: String,
    task: TaskInfo,
}

impl Maker {
    pub(super) fn new(plugin: Plugin, limits: LimitsSpec, config: String, task: TaskInfo) -> Self {
        Self { plugin, limits, config, task }
    }

    /// One on which nothing was called.
    async fn fresh(&self, first: Call) -> Result<Instance, OperatorError> {
        self.plugin.instance(first, &self.limits, &self.config, &self.task).await
    }

    /// One that is open for work.
    pub(super) async fn opened(&self) -> Result<Instance, OperatorError> {
        let mut instance = self.fresh(Call::Open).await?;
        instance.open(&self.config, &self.task).await?;
        Ok(instance)
    }
}

/// See the module.
pub(super) struct Renewable {
    maker: Maker,
    instance: Instance,
    ceiling: Option<Ceiling>,
    /// The snapshot that is being written in steps.
    open: Option<Epoch>,
    /// The newest that was asked for.
    epoch: Epoch,
    /// It works beside the one that counts, and so does each fresh instance.
    is_aside: bool,
    is_live: bool,
}

/// When to recycle, and what is owed for it.
#[derive(Debug)]
struct Ceiling {
    soft_bytes: u64,
    /// Above this much memory. More than `soft_bytes` where a fresh instance is above that at once.
    at_bytes: u64,
    said_above: bool,
    /// Scopes of the segments that the host holds.
    held: BTreeSet<Scope>,
    /// Scopes that the open snapshot has written.
    written: BTreeSet<Scope>,
    /// The instance was recycled since the last snapshot that was done: the next one has to be full.
    owes_full: bool,
}

impl Renewable {
    /// Begins with an instance that is open for work.
    pub(super) fn new(maker: Maker, instance: Instance) -> Self {
        let soft = maker.limits.soft_memory_bytes.filter(|_| !maker.plugin.takes_images());
        let ceiling = soft.map(|soft_bytes| Ceiling {
            soft_bytes,
            at_bytes: soft_bytes,
            said_above: false,
            held: BTreeSet::new(),
            written: BTreeSet::new(),
            owes_full: false,
        });
        Self { maker, instance, ceiling, open: None, epoch: Epoch(0), is_aside: false, is_live: false }
    }

    /// After a call that went well.
    async fn called(&mut self, out: &mut Output) -> Result<(), OperatorError> {
        let Some(ceiling) = &self.ceiling else { return Ok(()) };
        if out.more || self.open.is_some() || self.instance.memory_bytes() <= ceiling.at_bytes {
            return Ok(());
        }
        let looked = self.instance.looked_at_time();
        self.recycle(out).await?;
        self.instance.note_looked(looked);
        Ok(())
    }

    async fn recycle(&mut self, out: &mut Output) -> Result<(), OperatorError> {
        let before = self.instance.memory_bytes();
        let TaskInfo { job, node, subtask, .. } = &self.maker.task;
        let mut kept = Kept { origin: *subtask, chunks: Vec::new() };
        let epoch = Epoch(self.epoch.0 + 1);
        let mut idle_steps = 0;
        loop {
            let chunks = kept.chunks.len();
            match self.instance.snapshot(epoch, SnapshotMode::Full, &mut kept).await {
                Ok(true) => break,
                Ok(false) if kept.chunks.len() > chunks => idle_steps = 0,
                Ok(false) => {
                    idle_steps += 1;
                    if idle_steps > IDLE_STEPS_MAX {
                        return Err(OperatorError::says_nothing("snapshot"));
                    }
                }
                // Not now. What it has written is thrown away, and its next snapshot is full.
                Err(OperatorError::Retry(reason)) => {
                    tracing::warn!(job, node, subtask, reason, "the plugin asks to be recycled later");
                    if let Some(ceiling) = &mut self.ceiling {
                        ceiling.owes_full = true;
                        ceiling.at_bytes = before;
                    }
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        // The contract promises an order; in each segment it is that of writing.
        kept.chunks.sort_by_key(|chunk| chunk.scope);
        let state: usize = kept.chunks.iter().map(|chunk| chunk.data.len()).sum();
        let cut = self.instance.host_cut();
        // The old one first: it may hold the last place, and its memory is what this is about.
        self.instance.retire();
        self.instance = self.maker.opened().await.map_err(not_again)?;
        self.instance.set_aside(self.is_aside);
        self.instance.resume_from(cut);
        if !kept.chunks.is_empty() {
            let version = self.maker.plugin.descriptor().state_version;
            self.instance.restore(version, kept.chunks).await.map_err(not_again)?;
        }
        if self.is_live {
            self.instance.go_live();
        }
        out.recycled += 1;
        let after = self.instance.memory_bytes();
        let Some(ceiling) = &mut self.ceiling else { return Ok(()) };
        ceiling.owes_full = true;
        ceiling.at_bytes = ceiling.soft_bytes;
        tracing::info!(
            job,
            node,
            subtask,
            before = bytes(before),
            after = bytes(after),
            state = bytes(state as u64),
            "recycled: a fresh instance has taken over the state"
        );
        if after > ceiling.soft_bytes {
            // Else it would be recycled after every call.
            ceiling.at_bytes = after.saturating_mul(2);
            if !std::mem::replace(&mut ceiling.said_above, true) {
                tracing::warn!(
                    job,
                    node,
                    subtask,
                    soft_memory = bytes(ceiling.soft_bytes),
                    after = bytes(after),
                    next_at = bytes(ceiling.at_bytes),
                    "a fresh instance with the state of this subtask is above soft_memory at once: raise soft_memory, or \
                     the parallelism; until then it is recycled at twice what it needs"
                );
            }
        }
        Ok(())
    }
}

/// The call after which an instance is recycled went well and must not be made again, so the old instance's call is not what is
/// asked for when a fresh one says "retry".
fn not_again(error: OperatorError) -> OperatorError {
    match error {
        OperatorError::Retry(reason) => OperatorError::Fatal(format!("a fresh instance did not take over: {reason}")),
        other => other,
    }
}

/// The state on its way from one instance to the next.
struct Kept {
    origin: u32,
    chunks: Vec<Chunk>,
}

impl SnapshotWriter for Kept {
    fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> bool {
        // A base without bytes clears what is not there.
        if !data.is_empty() {
            self.chunks.push(Chunk { scope, kind, origin: self.origin, data: data.to_vec().into() });
        }
        true
    }
}

/// Hands chunks on and notes where they belong.
struct Noting<'a> {
    writer: &'a mut dyn SnapshotWriter,
    written: &'a mut BTreeSet<Scope>,
}

impl SnapshotWriter for Noting<'_> {
    fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> bool {
        self.written.insert(scope);
        self.writer.write(scope, kind, data)
    }
}

#[async_trait]
impl Operator for Renewable {
    async fn process(
        &mut self,
        now: Timestamp,
        port: u32,
        batch: &Batch,
        out: &mut Output,
    ) -> Result<(), OperatorError> {
        self.instance.process(now, port, batch, out).await?;
        self.called(out).await
    }

    async fn advance(&mut self, now: Timestamp, watermark: Timestamp, out: &mut Output) -> Result<(), OperatorError> {
        self.instance.advance(now, watermark, out).await?;
        self.called(out).await
    }

    async fn wake(&mut self, now: Timestamp, out: &mut Output) -> Result<(), OperatorError> {
        self.instance.wake(now, out).await?;
        self.called(out).await
    }

    async fn finish(&mut self, now: Timestamp, port: u32, out: &mut Output) -> Result<(), OperatorError> {
        self.instance.finish(now, port, out).await?;
        self.called(out).await
    }

    async fn resume(&mut self, now: Timestamp, out: &mut Output) -> Result<(), OperatorError> {
        self.instance.resume(now, out).await?;
        self.called(out).await
    }

    async fn snapshot(
        &mut self,
        epoch: Epoch,
        mode: SnapshotMode,
        writer: &mut dyn SnapshotWriter,
    ) -> Result<bool, OperatorError> {
        self.epoch = self.epoch.max(epoch);
        let begins = self.open.replace(epoch) != Some(epoch);
        let Some(ceiling) = &mut self.ceiling else {
            let done = self.instance.snapshot(epoch, mode, writer).await;
            self.open = self.open.filter(|_| matches!(done, Ok(false)));
            return done;
        };
        if begins {
            ceiling.written.clear();
        }
        let full = mode == SnapshotMode::Full || ceiling.owes_full;
        let given = if full { SnapshotMode::Full } else { SnapshotMode::Incremental };
        let mut noting = Noting { writer: &mut *writer, written: &mut ceiling.written };
        let done = self.instance.snapshot(epoch, given, &mut noting).await;
        match done {
            Ok(false) => return Ok(false),
            Ok(true) => {}
            Err(error) => {
                self.open = None;
                return Err(error);
            }
        }
        self.open = None;
        let written = std::mem::take(&mut ceiling.written);
        if full {
            if mode == SnapshotMode::Incremental {
                // Less was asked for, so what is not written would stay.
                for scope in ceiling.held.difference(&written) {
                    writer.write(*scope, SegmentKind::Base, &[]);
                }
            }
            ceiling.held = written;
        } else {
            ceiling.held.extend(written);
        }
        ceiling.owes_full = false;
        Ok(true)
    }

    async fn restore(&mut self, state_version: u32, chunks: Vec<Chunk>) -> Result<(), OperatorError> {
        if self.maker.plugin.takes_images() {
            let cut = self.instance.host_cut();
            self.instance.retire();
            self.instance = self.maker.fresh(Call::Restore).await?;
            self.instance.set_aside(self.is_aside);
            self.instance.resume_from(cut);
            if self.is_live {
                self.instance.go_live();
            }
        }
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.held.extend(chunks.iter().map(|chunk| chunk.scope));
        }
        self.instance.restore(state_version, chunks).await
    }

    async fn restore_from(
        &mut self,
        state_version: u32,
        mut chunks: Box<dyn SnapshotReader>,
    ) -> Result<(), OperatorError> {
        if self.maker.plugin.takes_images() || self.ceiling.is_some() {
            let all = super::all_chunks(&mut *chunks).await;
            return self.restore(state_version, all).await;
        }
        self.instance.restore_from(state_version, chunks).await
    }

    fn looked_at_time(&self) -> bool {
        self.instance.looked_at_time()
    }

    fn owes_full(&self) -> bool {
        self.ceiling.as_ref().is_some_and(|ceiling| ceiling.owes_full)
    }

    fn host_cut(&self) -> HostCut {
        self.instance.host_cut()
    }

    fn resume_from(&mut self, cut: HostCut) {
        self.instance.resume_from(cut);
    }

    fn set_aside(&mut self, aside: bool) {
        self.is_aside = aside;
        self.instance.set_aside(aside);
    }

    fn go_live(&mut self) {
        self.is_live = true;
        self.instance.go_live();
    }

    fn memory_bytes(&self) -> u64 {
        self.instance.memory_bytes()
    }

    /// Of the instance that is there now.
    fn emitting(&self) -> Duration {
        self.instance.emitting()
    }
}
