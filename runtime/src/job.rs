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
//! `upgrade` replaces an operator of a running job by its next version. `replay` does a past epoch again and `verdict` compares what comes of it, beside whatever runs.
//!
//! `supervisor` walks through these states, `coordinator` is the hub of the ring while a job runs, and `commit` makes sinks publish
//! what a manifest names. All three ask the log what happened; none remembers it across a restart. `compat` decides, without
//! touching anything, what becomes of a checkpoint's state in another pipeline, and `control` is what a running job can be asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

mod commit;
mod compat;
mod control;
mod coordinator;
mod image;
mod replay;
mod slow;
mod supervisor;
mod transactions;
mod upgrade;
mod verdict;

pub use transactions::{Transaction, Transactions, abort_open, commit_open, open_transactions};

pub use replay::{Pair, replay_pair};
pub use upgrade::{CodeVersion, Upgrade, UpgradeReport, UpgradeRequest, UpgradeStatus};
pub use verdict::{Detail, Difference, Granted, Verdict};

pub use compat::{Facts, Fate, Fit, NodeFit, fit};
pub use control::{Answer, Call, Change, Changed, Control, NodeStatus, Refusal, Request, Status};

use crate::checkpoint::{Manifest, Start, Store};
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
    /// The code of each operator, as the job begins: [`Control::upgrade`] replaces it while it runs.
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
        let (_, requests) = Control::channel();
        self.run_with(RunOptions { start, drop_state: BTreeSet::new(), stop, requests }).await
    }

    /// The same, with everything that can be said about a run.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub async fn run_with(&self, options: RunOptions) -> Result<Outcome, Error> {
        supervisor::run(self, options).await
    }

    /// Fails if the output of another history of the job is where its sinks write: a new one could not write there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::State`](crate::error::ErrorKind::State), with the sink.
    pub async fn check_unowned(&self) -> Result<(), Error> {
        supervisor::check_unowned(self).await
    }

    /// How a checkpoint fits this job: what becomes of each node's state if it starts from it. `open`: not all of its output is
    /// known to be published.
    pub fn fit(&self, manifest: &Manifest, open: bool, drop_state: &BTreeSet<NodeName>) -> Fit {
        self.fit_with(&self.code, manifest, open, drop_state)
    }

    /// The same with other code: operators may have been upgraded since the job was made.
    fn fit_with(
        &self,
        code: &BTreeMap<NodeName, OperatorCode>,
        manifest: &Manifest,
        open: bool,
        drop_state: &BTreeSet<NodeName>,
    ) -> Fit {
        let Self { plan, spec, .. } = self;
        fit(&Facts { manifest, open, plan, key_groups: spec.key_groups, code, drop_state })
    }
}

/// What a run is to do.
#[derive(Debug)]
pub struct RunOptions {
    /// From where it starts.
    pub start: Start,
    /// Nodes whose state is given up: operators, which then start empty, and nodes that the pipeline has no more.
    pub drop_state: BTreeSet<NodeName>,
    /// Becomes true when it is to stop; also when the sender is gone.
    pub stop: watch::Receiver<bool>,
    /// What it is asked while it runs: the other end of a [`Control`].
    pub requests: mpsc::Receiver<Call>,
}
