//! One running pipeline: who decides when to checkpoint, what becomes durable, and what happens after a failure.
//!
//! ```text
//! claimed ──► restored ──► running ──► finished        every source has ended and the last epoch is committed
//!    ▲            │            │  └───► stopped         somebody asked; the last epoch is committed
//!    │            │            ▼
//!    └── back-off ┴──── failed a task, a checkpoint too often ──► given up      after too many restarts in a row
//!                              └───► superseded        a newer run has claimed the job
//! ```
//!
//! `replay` does a past epoch again and `verdict` compares what comes of it, beside whatever runs.
//!
//! `supervisor` walks through these states, `coordinator` is the hub of the ring while a job runs, and `commit` makes sinks publish
//! what a manifest names. All three ask the log what happened; none remembers it across a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

mod commit;
mod coordinator;
mod image;
mod replay;
mod supervisor;
mod verdict;

pub use replay::{Pair, replay_pair};
pub use verdict::{Detail, Difference, Granted, Verdict};

use crate::checkpoint::{Start, Store};
use crate::clock::Clock;
use crate::error::Error;
use crate::flow::OperatorCode;
use crate::metrics::JobMetrics;
use crate::model::{Epoch, NodeName};
use crate::plan::{PipelineSpec, Plan};

/// How a job ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every source ended, and everything is committed.
    Finished {
        /// The last epoch.
        epoch: Epoch,
        /// It had finished before this run began.
        before: bool,
    },
    /// It was asked to stop, and everything up to there is committed.
    Stopped {
        /// The last epoch.
        epoch: Epoch,
    },
}

/// Everything that a job needs from outside.
#[derive(Debug)]
pub struct Job {
    /// What the user asked for.
    pub spec: PipelineSpec,
    /// Nodes and edges.
    pub plan: Plan,
    /// The code of each operator.
    pub code: BTreeMap<NodeName, OperatorCode>,
    /// The pipeline file as it stands, for the record.
    pub text: String,
    /// Where checkpoints go.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// Numbers, to be read by whoever shows them.
    pub metrics: Arc<JobMetrics>,
}

impl Job {
    /// Runs until the job finishes, is asked to stop (`stop` becomes true), or fails for good.
    ///
    /// # Errors
    ///
    /// If it cannot start, is superseded by a newer run, or fails more often in a row than its restarts allow. What
    /// was committed stays; a later run goes on from there.
    pub async fn run(&self, start: Start, stop: watch::Receiver<bool>) -> Result<Outcome, Error> {
        supervisor::run(self, start, stop).await
    }
}
