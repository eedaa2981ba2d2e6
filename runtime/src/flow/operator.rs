//! The operator's part of a stage: calls it, repeats a call that asks for it, and takes its cut.
//!
//! At a barrier everything of the cut that is not the operator's own is noted, and the operator's snapshot begins (`snapshot.rs`); what
//! it writes becomes durable behind the stream's back (`upload.rs`), and the report follows then.
//!
//! At a cut the operator may be replaced by its next version (`shadow.rs`). The old one has taken the cut, so it also writes it to its end;
//! the new one begins with the next element, and its first snapshot is full: nothing of it is in the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::TaskError;
use super::context::{FlowContext, Seen};
use super::report::{CutTimings, Event};
use super::schedule::Course;
use super::shadow::{Order, Recorder};
use super::snapshot::Snapshots;
use super::stage::{Cutting, OperatorCall, progress};
use crate::checkpoint::{Holdings, SubtaskEntry};
use crate::metrics::NodeMetrics;
use crate::model::{Barrier, Batch, Epoch, SnapshotMode, TaskId, Timestamp};
use crate::offload::offload;
use crate::plugin::{IDLE_STEPS_MAX, Operator, OperatorError, Output};

/// How often a call that asks for it is repeated before the job starts over, and how long the first wait is; each is twice as
/// long as the one before.
pub(super) const RETRIES_MAX: u32 = 8;
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(20);

/// An operator and what the host keeps for it.
pub(super) struct OperatorStage {
    operator: Box<dyn Operator>,
    /// None if it has no state to write.
    snapshots: Option<Snapshots>,
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
    /// Its inputs have ended, and it has had its last word.
    has_ended: bool,
    orders: mpsc::UnboundedReceiver<Order>,
    /// The order that is not due yet.
    next_order: Option<Order>,
    /// While calls are recorded for the next version.
    recorder: Option<Recorder>,
    /// The version that took the cut whose snapshot is being written, if it was replaced since.
    retiring: Option<Box<dyn Operator>>,
    swapped: Option<Swapped>,
}

/// The last swap.
struct Swapped {
    at: Epoch,
    /// The new version stood where one would stand that is restored from this cut.
    is_exact: bool,
}

impl OperatorStage {
    /// Takes an operator that was opened, and restored if there was state. `holdings` is what it holds in the store; none if it has no
    /// state at all.
    pub(super) fn new(
        operator: Box<dyn Operator>,
        (context, task): (&Arc<FlowContext>, &TaskId),
        holdings: Option<Holdings>,
        (wake_at, records): (Option<Timestamp>, u64),
        orders: mpsc::UnboundedReceiver<Order>,
    ) -> Self {
        // What it has seen of the time does not go back either.
        let now = operator.host_cut().seen;
        Self {
            operator,
            snapshots: holdings.map(|holdings| Snapshots::new(context, task, holdings)),
            wake_at,
            spare: Output::default(),
            now,
            records,
            epoch: None,
            idle_steps: 0,
            has_ended: false,
            orders,
            next_order: None,
            recorder: None,
            retiring: None,
            swapped: None,
        }
    }

    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.wake_at
    }

    /// Forgets when it asked to be woken: its inputs have ended, and it has had its last word.
    pub(super) fn forget_wake(&mut self) {
        self.has_ended = true;
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
        let began = self.recorder.as_ref().map(|_| context.clock.elapsed());
        loop {
            out.clear();
            self.now = course.now(self.now.max(context.clock.now()));
            let now = self.now;
            let result = call.make(&mut *self.operator, now, &mut out).await;
            course.called(self.operator.looked_at_time(), now);
            match result {
                Ok(()) => {
                    NodeMetrics::add(&metrics.recycled, u64::from(out.recycled));
                    let says_nothing_more = out.emitted.is_empty() && out.rejected.1.is_empty() && out.more;
                    self.idle_steps = if says_nothing_more { self.idle_steps + 1 } else { 0 };
                    if self.idle_steps > IDLE_STEPS_MAX {
                        return Err(TaskError::operator(
                            task,
                            self.describe(call),
                            OperatorError::says_nothing("resume"),
                        ));
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
        if let (Some(recorder), Some(began)) = (&mut self.recorder, began) {
            recorder.note(call, self.now, &out, began).await;
        }
        Ok(out)
    }

    /// What it was doing, and when, for the error that names it.
    fn describe(&self, call: OperatorCall<'_>) -> String {
        match self.epoch {
            Some(epoch) => format!("{}, after checkpoint {epoch} began", describe(call)),
            None => format!("{}, before the first checkpoint of this run", describe(call)),
        }
    }

    /// Takes the cut of an epoch: notes all that is not the operator's, and begins its snapshot.
    pub(super) async fn cut(
        &mut self,
        task: &TaskId,
        barrier: Barrier,
        Cutting { input_names, inbox, align, course }: Cutting<'_>,
        context: &FlowContext,
    ) -> Result<(), TaskError> {
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.drive(task, self.retiring.as_deref_mut().unwrap_or(&mut *self.operator)).await?;
        }
        self.retire();
        self.epoch = Some(barrier.epoch);
        let live = self.snapshots.as_ref().map_or(SnapshotMode::Full, Snapshots::next_mode);
        let mode = course.mode(live, self.operator.owes_full());
        let mut schedule = course.cut(&barrier);
        if let Some(swapped) = &self.swapped {
            // What one schedule covers was done by one version from where that would stand, or it cannot be done again.
            match barrier.complete.cmp(&Some(swapped.at)) {
                std::cmp::Ordering::Less => schedule.clear(),
                std::cmp::Ordering::Equal if !swapped.is_exact => schedule.clear(),
                std::cmp::Ordering::Equal => {}
                std::cmp::Ordering::Greater => self.swapped = None,
            }
        }
        let entry = SubtaskEntry {
            segments: Vec::new(),
            positions: Vec::new(),
            watermark: inbox.watermark,
            progress: progress(input_names, inbox, self.wake_at, self.operator.host_cut()),
            records: self.records,
            schedule,
        };
        let epoch = barrier.epoch;
        match &mut self.snapshots {
            Some(snapshots) => snapshots.begin(task, &mut *self.operator, (epoch, mode), (entry, align)).await?,
            None => {
                let (task, entry) = (task.clone(), Box::new(entry));
                let timings = CutTimings { align, ..CutTimings::default() };
                context.tell(Event::Cut { task, epoch, entry, committable: None, bytes: 0, timings }).await;
            }
        }
        // Recording begins exactly here: what came before is in the snapshot.
        if let Some(Order::Record(_, shadow)) = self.order_at(epoch, |order| matches!(order, Order::Record(..))) {
            self.recorder = Some(Recorder::new(shadow));
        }
        Ok(())
    }

    /// The order for the cut of this epoch, if it is such a one.
    fn order_at(&mut self, epoch: Epoch, is_wanted: impl Fn(&Order) -> bool) -> Option<Order> {
        loop {
            if self.next_order.is_none() {
                self.next_order = self.orders.try_recv().ok();
            }
            match &self.next_order {
                // Its cut is behind: it was not for this stage any more.
                Some(order) if order.epoch() < epoch => self.next_order = None,
                Some(order) if order.epoch() == epoch && is_wanted(order) => return self.next_order.take(),
                _ => return None,
            }
        }
    }

    /// Lets the next version take over, if it is to do so at this cut. Returns when that has done all that was done until here.
    pub(super) async fn swap_at(
        &mut self,
        task: &TaskId,
        metrics: &NodeMetrics,
        epoch: Epoch,
    ) -> Result<(), TaskError> {
        if self.order_at(epoch, |order| matches!(order, Order::Swap(_))).is_none() {
            return Ok(());
        }
        let failed = |reason: String| TaskError::Upgrade { task: task.clone(), reason };
        let Some(recorder) = self.recorder.take() else {
            return Err(failed("nothing is recorded for it any more".into()));
        };
        // The other subtasks did not swap either: whoever ordered it has taken that back.
        if recorder.is_cancelled() {
            return Ok(());
        }
        let clock = recorder.clock().clone();
        let began = clock.elapsed();
        let mut handover = recorder.shadow().hand_over().await.map_err(failed)?;
        // What it sends goes out from now on; until now it would have gone out twice.
        handover.operator.go_live();
        let is_exact = handover.wake_at.filter(|_| !self.has_ended) == self.wake_at
            && handover.operator.host_cut() == self.operator.host_cut();
        let old = std::mem::replace(&mut self.operator, handover.operator);
        self.wake_at = handover.wake_at.filter(|_| !self.has_ended);
        self.now = self.now.max(handover.now);
        self.idle_steps = 0;
        self.retiring = Some(old);
        self.swapped = Some(Swapped { at: epoch, is_exact });
        match &mut self.snapshots {
            Some(snapshots) => {
                snapshots.forget_base();
                if !snapshots.is_writing() {
                    self.retire();
                }
            }
            None => self.retire(),
        }
        let pause = clock.elapsed().saturating_sub(began);
        metrics.upgrade_pause.note(pause);
        recorder.shadow().note_pause(pause);
        tracing::info!(%task, %epoch, ?pause, "the new version has taken over");
        Ok(())
    }

    /// Drops the version before, which has nothing more to write: aside, since giving much memory back takes a while.
    fn retire(&mut self) {
        if let Some(old) = self.retiring.take() {
            tokio::spawn(offload(move || drop(old)));
        }
    }

    /// Whether a snapshot has been begun and not been written to its end.
    pub(super) fn is_writing(&self) -> bool {
        self.snapshots.as_ref().is_some_and(Snapshots::is_writing)
    }

    /// Writes a step of the snapshot that is open, if one is and there is room for it. Says whether it did.
    pub(super) async fn snapshot_step(&mut self, task: &TaskId) -> Result<bool, TaskError> {
        match &mut self.snapshots {
            Some(snapshots) => {
                let writer = self.retiring.as_deref_mut().unwrap_or(&mut *self.operator);
                let stepped = snapshots.try_step(task, writer).await?;
                if !snapshots.is_writing() {
                    self.retire();
                }
                Ok(stepped)
            }
            None => Ok(false),
        }
    }

    /// Writes an open snapshot to its end, and waits until no cut is on its way.
    pub(super) async fn settle(&mut self, task: &TaskId) -> Result<(), TaskError> {
        match &mut self.snapshots {
            Some(snapshots) => {
                snapshots.settle(task, self.retiring.as_deref_mut().unwrap_or(&mut *self.operator)).await
            }
            None => Ok(()),
        }
    }
}

/// What an operator was doing, for the error that names it.
pub(super) fn describe(call: OperatorCall<'_>) -> String {
    match call {
        OperatorCall::Process(port, batch) => describe_batch(port, batch),
        OperatorCall::Advance(time) => format!("while event time moved to {time} µs"),
        OperatorCall::Wake => "while it was woken".into(),
        OperatorCall::Finish(port) => format!("while its input port {port} ended"),
        OperatorCall::Resume => "while it went on with a call".into(),
    }
}

fn describe_batch(port: u32, batch: &Batch) -> String {
    let first = batch.values.get(0).unwrap_or_default();
    let excerpt = String::from_utf8_lossy(&first[..first.len().min(120)]);
    format!("on a batch of {} records on input port {port} that begins with {excerpt:?}", batch.len())
}
