//! The operator's part of a stage: calls it, repeats a call that asks for it, takes its cut and sees that the cut
//! becomes durable behind the stream's back.
//!
//! At a barrier the operator writes its segments, which are copied once; hashing, packing and uploading happen in a task of their
//! own, and the report follows when the pack is durable. At most one cut of a stage is on its way: the next barrier
//! waits for it. When a pack was lost, the next snapshot is full (I8).

use std::time::Duration;

use tokio::task::JoinHandle;

use super::TaskError;
use super::context::{FlowContext, Seen};
use super::report::{CutTimings, Event};
use super::schedule::Course;
use super::stage::{Cutting, OperatorCall, progress};
use crate::checkpoint::{PackBuilder, SegmentSet, SubtaskEntry};
use crate::metrics::NodeMetrics;
use crate::model::{Barrier, Batch, Epoch, Scope, SegmentKind, SnapshotMode, TaskId, Timestamp};
use crate::plugin::{Operator, OperatorError, Output, SnapshotWriter};

/// How often a call that asks for it is repeated before the job starts over, and how long the first wait is; each is twice as
/// long as the one before.
const RETRIES_MAX: u32 = 8;
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// How often in a row an operator may say that it has more to do, without emitting or writing anything.
const IDLE_STEPS_MAX: u32 = 1_000;

/// An operator and what the host keeps for it.
pub(super) struct OperatorStage {
    operator: Box<dyn Operator>,
    /// Whether it has state to write.
    stateful: bool,
    wake_at: Option<Timestamp>,
    spare: Output,
    /// Processing time never goes back from call to call.
    now: Timestamp,
    /// Records that came in, over all runs.
    records: u64,
    /// The last cut of this run.
    epoch: Option<Epoch>,
    /// Calls in a row that said `more` and nothing else.
    idle_steps: u32,
    snapshots: Snapshots,
}

/// The state as the store has it.
enum Snapshots {
    /// Nothing is on its way.
    Settled { segments: SegmentSet, mode: SnapshotMode },
    /// A cut is being made durable; it gives back the segments, and the mode of the next snapshot.
    Uploading(JoinHandle<(SegmentSet, SnapshotMode)>),
}

impl OperatorStage {
    /// Takes an operator that was opened, and restored if there was state: `segments` then is what it was restored from.
    pub(super) fn new(
        operator: Box<dyn Operator>,
        stateful: bool,
        segments: Option<SegmentSet>,
        wake_at: Option<Timestamp>,
        records: u64,
    ) -> Self {
        // What it has seen of the time does not go back either.
        let now = operator.host_cut().seen;
        let snapshots = match segments {
            Some(segments) if !segments.as_slice().is_empty() && !segments.wants_full() => {
                Snapshots::Settled { segments, mode: SnapshotMode::Incremental }
            }
            Some(segments) => Snapshots::Settled { segments, mode: SnapshotMode::Full },
            None => Snapshots::Settled { segments: SegmentSet::default(), mode: SnapshotMode::Full },
        };
        Self {
            operator,
            stateful,
            wake_at,
            spare: Output::default(),
            now,
            records,
            epoch: None,
            idle_steps: 0,
            snapshots,
        }
    }

    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.wake_at
    }

    /// Forgets when it asked to be woken: its inputs have ended, and it has had its last word.
    pub(super) fn forget_wake(&mut self) {
        self.wake_at = None;
    }

    /// Whether it asked to be woken by `now`; forgets the time if so.
    pub(super) fn take_due(&mut self, now: Timestamp) -> bool {
        self.wake_at.take_if(|at| *at <= now).is_some()
    }

    /// Forgets when it asked to be woken, since its time has come. False: it did not ask.
    pub(super) fn take_wake(&mut self) -> bool {
        self.wake_at.take().is_some()
    }

    /// Keeps the memory of an output for the next call.
    pub(super) fn give_back(&mut self, out: Output) {
        self.spare = out;
    }

    /// Makes one call, again if the operator asks for that.
    pub(super) async fn call(
        &mut self,
        task: &TaskId,
        metrics: &NodeMetrics,
        context: &FlowContext,
        course: &mut Course,
        call: OperatorCall<'_>,
    ) -> Result<Output, TaskError> {
        if let OperatorCall::Process(_, batch) = call {
            self.records += batch.len() as u64;
        }
        let mut out = std::mem::take(&mut self.spare);
        let mut tries = 0;
        loop {
            out.clear();
            self.now = course.now(self.now.max(context.clock.now()));
            let now = self.now;
            let result = match call {
                OperatorCall::Process(port, batch) => self.operator.process(now, port, batch, &mut out).await,
                OperatorCall::Advance(watermark) => self.operator.advance(now, watermark, &mut out).await,
                OperatorCall::Wake => self.operator.wake(now, &mut out).await,
                OperatorCall::Finish(port) => self.operator.finish(now, port, &mut out).await,
                OperatorCall::Resume => self.operator.resume(now, &mut out).await,
            };
            course.called(self.operator.looked_at_time(), now);
            match result {
                Ok(()) => {
                    NodeMetrics::add(&metrics.recycled, u64::from(out.recycled));
                    let says_nothing_more = out.emitted.is_empty() && out.rejected.1.is_empty() && out.more;
                    self.idle_steps = if says_nothing_more { self.idle_steps + 1 } else { 0 };
                    if self.idle_steps > IDLE_STEPS_MAX {
                        return Err(TaskError::operator(task, self.describe(call), says_nothing("resume")));
                    }
                    break;
                }
                Err(OperatorError::Retry(reason)) if tries < RETRIES_MAX => {
                    tracing::warn!(%task, tries, reason, "the plugin asks for the call to be repeated");
                    NodeMetrics::add(&metrics.retries, 1);
                    tokio::time::sleep(RETRY_DELAY * 2u32.pow(tries)).await;
                    tries += 1;
                }
                Err(source) => {
                    return Err(TaskError::operator(task, self.describe(call), source));
                }
            }
        }
        if let Some(tap) = &context.tap {
            let seen = self.operator.looked_at_time().then_some(self.now);
            tap.note(task, Seen::Called(call, seen, &out));
        }
        self.wake_at = match (self.wake_at, out.wake_at) {
            (Some(kept), Some(asked)) => Some(kept.min(asked)),
            (kept, asked) => kept.or(asked),
        };
        Ok(out)
    }

    /// What it was doing, and when, for the error that names it.
    fn describe(&self, call: OperatorCall<'_>) -> String {
        match self.epoch {
            Some(epoch) => format!("{}, after checkpoint {epoch} began", describe(call)),
            None => format!("{}, before the first checkpoint of this run", describe(call)),
        }
    }

    /// Takes the cut of an epoch and sends it on its way.
    pub(super) async fn cut(
        &mut self,
        task: &TaskId,
        barrier: Barrier,
        Cutting { input_names, inbox, align, course }: Cutting<'_>,
        context: &std::sync::Arc<FlowContext>,
    ) -> Result<(), TaskError> {
        let watermark = inbox.watermark;
        self.epoch = Some(barrier.epoch);
        let progress = progress(input_names, inbox, self.wake_at, self.operator.host_cut());
        let (segments, mode) = self.settled().await;
        let mode = course.mode(mode, self.operator.owes_full());
        let schedule = course.cut(&barrier);
        let began = context.clock.elapsed();
        let mut chunks = Chunks::default();
        if self.stateful {
            let failed = |source| {
                TaskError::operator(task, format!("while it wrote its state for epoch {}", barrier.epoch), source)
            };
            let mut idle_steps = 0;
            loop {
                let before = chunks.0.len();
                match self.operator.snapshot(barrier.epoch, mode, &mut chunks).await {
                    Ok(true) => break,
                    Ok(false) if chunks.0.len() > before => idle_steps = 0,
                    Ok(false) => {
                        idle_steps += 1;
                        if idle_steps > IDLE_STEPS_MAX {
                            return Err(failed(says_nothing("snapshot")));
                        }
                    }
                    // Nothing of this attempt is kept, and the next snapshot is a new, full one.
                    Err(OperatorError::Retry(reason)) => {
                        self.snapshots = Snapshots::Settled { segments, mode: SnapshotMode::Full };
                        let (task, epoch) = (task.clone(), barrier.epoch);
                        context.tell(Event::Declined { task, epoch, reason }).await;
                        return Ok(());
                    }
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        let cut = Cut {
            task: task.clone(),
            epoch: barrier.epoch,
            mode,
            chunks,
            timings: CutTimings {
                align,
                snapshot: context.clock.elapsed().saturating_sub(began),
                upload: Duration::ZERO,
            },
            entry: SubtaskEntry {
                segments: Vec::new(),
                positions: Vec::new(),
                progress,
                watermark,
                records: self.records,
                schedule,
            },
        };
        let context = std::sync::Arc::clone(context);
        self.snapshots = Snapshots::Uploading(tokio::spawn(async move { cut.make_durable(segments, &context).await }));
        Ok(())
    }

    /// The segments and the mode of the next snapshot, once no cut is on its way.
    async fn settled(&mut self) -> (SegmentSet, SnapshotMode) {
        let nothing = Snapshots::Settled { segments: SegmentSet::default(), mode: SnapshotMode::Full };
        match std::mem::replace(&mut self.snapshots, nothing) {
            Snapshots::Settled { segments, mode } => (segments, mode),
            // A task that was cancelled or panicked has lost its part: the next snapshot is full.
            Snapshots::Uploading(upload) => upload.await.unwrap_or((SegmentSet::default(), SnapshotMode::Full)),
        }
    }

    /// Waits until no cut is on its way.
    pub(super) async fn settle(&mut self) {
        let (segments, mode) = self.settled().await;
        self.snapshots = Snapshots::Settled { segments, mode };
    }
}

/// The chunks of one snapshot, copied out of the operator.
#[derive(Default)]
struct Chunks(Vec<(Scope, SegmentKind, Vec<u8>)>);

impl SnapshotWriter for Chunks {
    fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> bool {
        self.0.push((scope, kind, data.to_vec()));
        true
    }
}

/// A cut that has been taken and is not durable yet.
struct Cut {
    task: TaskId,
    epoch: Epoch,
    mode: SnapshotMode,
    chunks: Chunks,
    timings: CutTimings,
    entry: SubtaskEntry,
}

impl Cut {
    async fn make_durable(mut self, mut segments: SegmentSet, context: &FlowContext) -> (SegmentSet, SnapshotMode) {
        let began = context.clock.elapsed();
        let mut pack = PackBuilder::new(context.generation, self.epoch, &self.task);
        let chunks = std::mem::take(&mut self.chunks.0);
        let built = crate::offload::offload(move || {
            for (scope, kind, data) in &chunks {
                pack.write(*scope, *kind, data)?;
            }
            Ok::<_, crate::checkpoint::CheckpointError>(pack.finish())
        });
        let stored = async {
            let pack = built.await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
            let Some(pack) = pack else { return Ok((Vec::new(), 0)) };
            context.store.put_pack(&pack).await.map_err(|e| e.to_string())?;
            Ok((pack.segments, pack.bytes))
        };
        match stored.await {
            Ok((written, bytes)) => {
                segments.apply(self.mode, &written);
                self.entry.segments = segments.to_vec();
                self.timings.upload = context.clock.elapsed().saturating_sub(began);
                let Self { task, epoch, entry, timings, .. } = self;
                let entry = Box::new(entry);
                context.tell(Event::Cut { task, epoch, entry, committable: None, bytes, timings }).await;
                let next = if segments.wants_full() { SnapshotMode::Full } else { SnapshotMode::Incremental };
                (segments, next)
            }
            Err(reason) => {
                let Self { task, epoch, .. } = self;
                context.tell(Event::Declined { task, epoch, reason }).await;
                #[cfg(test)]
                if crate::simulation::mutant(crate::simulation::Mutant::FailedDeltasForgotten) {
                    return (segments, SnapshotMode::Incremental);
                }
                (segments, SnapshotMode::Full)
            }
        }
    }
}

/// What an operator was doing, for the error that names it.
fn describe(call: OperatorCall<'_>) -> String {
    match call {
        OperatorCall::Process(port, batch) => describe_batch(port, batch),
        OperatorCall::Advance(time) => format!("while event time moved to {time} µs"),
        OperatorCall::Wake => "while it was woken".into(),
        OperatorCall::Finish(port) => format!("while its input port {port} ended"),
        OperatorCall::Resume => "while it went on with a call".into(),
    }
}

fn says_nothing(call: &'static str) -> OperatorError {
    OperatorError::Contract {
        call,
        what: format!("it said `more` {IDLE_STEPS_MAX} times in a row, and nothing else: it has to get done"),
    }
}

fn describe_batch(port: u32, batch: &Batch) -> String {
    let first = batch.values.get(0).unwrap_or_default();
    let excerpt = String::from_utf8_lossy(&first[..first.len().min(120)]);
    format!("on a batch of {} records on input port {port} that begins with {excerpt:?}", batch.len())
}
