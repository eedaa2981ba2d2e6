//! The snapshots of one stage: which one is being written, and one step of it after the other.
//!
//! At the barrier of epoch n only the first step is taken, then the barrier goes on. Each later step is taken between two elements of the stream, and one
//! after the other when nothing else is to be done, until the operator says that it is done. How many bytes a step writes depends on the
//! bytes alone; when it is taken, on what else there is to do and whether there is room ([`UploadBudget`](super::budget::UploadBudget)). A barrier that comes before the end drives the
//! snapshot before it to its end first.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use super::TaskError;
use super::budget::{Reservation, UploadBudget};
use super::context::FlowContext;
use super::report::CutTimings;
use super::upload::{CutChunk, Message, Status, Uploader};
use crate::account::Account;
use crate::checkpoint::{Holdings, SubtaskEntry};
use crate::clock::Clock;
use crate::model::{Epoch, Scope, SegmentKind, SnapshotMode, TaskId};
use crate::plugin::{IDLE_STEPS_MAX, Operator, OperatorError, SnapshotWriter};

/// After so many bytes a step asks the operator to return: about a millisecond.
const STEP_BYTES: u64 = 1 << 20;
/// The same of the step that takes the cut: the barrier waits for it.
const CUT_BYTES: u64 = 128 << 10;
/// What is counted for a chunk beside its bytes.
const CHUNK_BYTES: u64 = 64;

/// The snapshots of one stage.
pub(super) struct Snapshots {
    messages: mpsc::UnboundedSender<Message>,
    status: watch::Receiver<Status>,
    budget: Arc<UploadBudget>,
    clock: Clock,
    /// How many were begun.
    begun: u64,
    /// The one that is being written.
    open: Option<Open>,
    /// The last one was given up half way, or what is stored is of no use to the operator.
    is_lost: bool,
    uploader: JoinHandle<()>,
}

struct Open {
    epoch: Epoch,
    mode: SnapshotMode,
    idle_steps: u32,
    began: Duration,
}

impl Snapshots {
    /// Of a stage that holds this in the store.
    pub(super) fn new(context: &Arc<FlowContext>, task: &TaskId, holdings: Holdings) -> Self {
        let (uploader, messages, status) = Uploader::new(context, task, holdings);
        let uploader = Account::run_under(context.account.clone(), uploader.run());
        let uploader = tokio::spawn(uploader.in_current_span());
        let (budget, clock) = (Arc::clone(&context.uploads), context.clock.clone());
        Self { messages, status, budget, clock, begun: 0, open: None, is_lost: false, uploader }
    }

    /// Whether one is being written.
    pub(super) fn is_writing(&self) -> bool {
        self.open.is_some()
    }

    /// What the next one has to contain. One that is still on its way counts as stored: if it is lost, so is what builds on it.
    pub(super) fn next_mode(&self) -> SnapshotMode {
        let status = *self.status.borrow();
        let is_settled = status.finished == self.begun;
        if self.is_lost || status.is_lost || (is_settled && status.wants_full) {
            SnapshotMode::Full
        } else {
            SnapshotMode::Incremental
        }
    }

    /// What is stored was written by another: the next one has to be full.
    pub(super) fn forget_base(&mut self) {
        self.is_lost = true;
    }

    /// Takes the cut: the first step of a snapshot, which does not wait for room. The one before has been driven to its end.
    pub(super) async fn begin(
        &mut self,
        task: &TaskId,
        operator: &mut dyn Operator,
        (epoch, mode): (Epoch, SnapshotMode),
        (entry, align): (SubtaskEntry, Duration),
    ) -> Result<(), TaskError> {
        self.is_lost = false;
        self.begun += 1;
        let timings = CutTimings { align, ..CutTimings::default() };
        self.send(Message::Begin { epoch, mode, entry: Box::new(entry), timings });
        self.open = Some(Open { epoch, mode, idle_steps: 0, began: self.clock.elapsed() });
        let room = self.budget.overdraw(STEP_BYTES);
        self.step(task, operator, (CUT_BYTES, room)).await
    }

    /// Writes one step of the open snapshot, if there is one and room for it. Says whether it did.
    pub(super) async fn try_step(&mut self, task: &TaskId, operator: &mut dyn Operator) -> Result<bool, TaskError> {
        let room = self.open.as_ref().and_then(|_| self.budget.try_reserve(STEP_BYTES));
        let Some(room) = room else { return Ok(false) };
        self.step(task, operator, (STEP_BYTES, room)).await?;
        Ok(true)
    }

    /// Writes the open snapshot to its end, if there is one.
    pub(super) async fn drive(&mut self, task: &TaskId, operator: &mut dyn Operator) -> Result<(), TaskError> {
        while self.open.is_some() {
            let room = self.budget.reserve(STEP_BYTES).await;
            self.step(task, operator, (STEP_BYTES, room)).await?;
        }
        Ok(())
    }

    /// Drives the open snapshot to its end, and waits until all that were begun are durable or have failed: before a task ends.
    pub(super) async fn settle(&mut self, task: &TaskId, operator: &mut dyn Operator) -> Result<(), TaskError> {
        self.drive(task, operator).await?;
        let begun = self.begun;
        // An uploader that is gone has told nobody, and the attempt will time out.
        let _ = self.status.wait_for(|status| status.finished == begun).await;
        Ok(())
    }

    /// One step: a call of the operator that writes about so many bytes.
    async fn step(
        &mut self,
        task: &TaskId,
        operator: &mut dyn Operator,
        (limit, mut room): (u64, Reservation),
    ) -> Result<(), TaskError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let mut step = Step { limit, ..Step::default() };
        let result = operator.snapshot(open.epoch, open.mode, &mut step).await;
        open.idle_steps = if step.chunks.is_empty() { open.idle_steps + 1 } else { 0 };
        let failed = |epoch, source| {
            Err(TaskError::operator(task, format!("while it wrote its state for epoch {epoch}"), source))
        };
        let (epoch, began) = (open.epoch, open.began);
        let is_done = match result {
            Ok(false) if open.idle_steps > IDLE_STEPS_MAX => {
                return failed(epoch, OperatorError::says_nothing("snapshot"));
            }
            Ok(is_done) => is_done,
            // Nothing of this attempt is kept, and the next snapshot is a new, full one.
            Err(OperatorError::Retry(reason)) => {
                self.open = None;
                self.is_lost = true;
                self.send(Message::Abandon { reason });
                return Ok(());
            }
            Err(error) => return failed(epoch, error),
        };
        if !step.chunks.is_empty() {
            room.resize(step.bytes);
            self.send(Message::Chunks(step.chunks, room));
        }
        if is_done {
            let took = self.clock.elapsed().saturating_sub(began);
            self.open = None;
            self.send(Message::End { took });
        }
        Ok(())
    }

    fn send(&self, message: Message) {
        // One that is gone was lost with all it had: the attempt is not reported, and the coordinator gives it up.
        let _ = self.messages.send(message);
    }
}

impl Drop for Snapshots {
    /// What is still on its way is of no use to anybody: a run that comes after this one does not wait for it.
    fn drop(&mut self) {
        self.uploader.abort();
    }
}

/// Waits until there is room for a step.
pub(super) async fn room(budget: Arc<UploadBudget>) {
    drop(budget.reserve(STEP_BYTES).await);
}

/// The chunks of one step, copied out of the operator.
#[derive(Default)]
struct Step {
    limit: u64,
    chunks: Vec<CutChunk>,
    bytes: u64,
}

impl SnapshotWriter for Step {
    fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> bool {
        self.bytes += data.len() as u64 + CHUNK_BYTES;
        self.chunks.push((scope, kind, Bytes::copy_from_slice(data)));
        self.bytes < self.limit
    }
}
