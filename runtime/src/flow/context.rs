//! What every task of a job shares: who it works for, what time it is, where state goes, whom to tell.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::mpsc;

use super::budget::UploadBudget;
use super::report::Event;
use super::stage::OperatorCall;
use crate::account::Account;
use crate::checkpoint::JobStore;
use crate::clock::Clock;
use crate::metrics::JobMetrics;
use crate::model::{Batch, Generation, TaskId, Timestamp};
use crate::plan::{BatchSpec, OutPort};
use crate::plugin::Output;

/// What every task of a job shares.
#[derive(Debug)]
pub struct FlowContext {
    /// This run.
    pub generation: Generation,
    /// Time.
    pub clock: Clock,
    /// Where packs go.
    pub store: JobStore,
    /// To the coordinator.
    pub events: mpsc::Sender<Event>,
    /// Numbers.
    pub metrics: Arc<JobMetrics>,
    /// When batches are full.
    pub batch: BatchSpec,
    /// What snapshots may keep in memory on their way to the store.
    pub uploads: Arc<UploadBudget>,
    /// How many bytes of state a subtask may have in the manifest itself.
    pub inline_bytes_max: u64,
    /// Under what its tasks run, if under anything: what they spawn and what they have done elsewhere is charged to it.
    pub account: Option<Account>,
    /// Sees what every node receives and says; only in a replay that somebody watches.
    pub tap: Option<Arc<dyn Tap>>,
}

/// What a node received, or did and said.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A source gave records, or put some aside as dead letters.
    Gave(OutPort, &'a Batch),
    /// An operator was called, and said this; at a processing time, if it looked at that.
    Called(OperatorCall<'a>, Option<Timestamp>, &'a Output),
    /// A sink got records on a port.
    Received(u32, &'a Batch),
}

/// Watches the nodes of a job.
pub trait Tap: Send + Sync + std::fmt::Debug {
    /// Something happened in a subtask. Those of one subtask come in their order.
    fn note(&self, task: &TaskId, seen: Seen<'_>);
}

impl FlowContext {
    /// Notes that something happened that a checkpoint has to cover.
    pub(super) fn note_activity(&self, n: u64) {
        self.metrics.activity.fetch_add(n, Relaxed);
    }

    /// Tells the coordinator. If it is gone the job is ending, and nobody has to know.
    pub(super) async fn tell(&self, event: Event) {
        let _ = self.events.send(event).await;
    }
}
