//! Makes sinks publish what a manifest names: after each checkpoint, and again at recovery for the tip that no marker
//! confirms (I4, I5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Job;
use crate::checkpoint::{CommitPermit, Manifest, Run};
use crate::clock::Clock;
use crate::connector::{self, Abandoned, Committed, Committer, ConnectorErrorKind};
use crate::error::{Error, ErrorKind};
use crate::metrics::JobMetrics;
use crate::model::{CommitIdentity, JobId, NodeName};

/// How often a commit that a file system or a network refused is tried in one run. A later run tries again.
const TRIES_MAX: u32 = 5;
const TRY_DELAY: Duration = Duration::from_millis(50);

/// The committers of a job's sinks.
pub(super) struct Committers {
    job_id: JobId,
    metrics: Arc<JobMetrics>,
    clock: Clock,
    by_node: BTreeMap<NodeName, Box<dyn Committer>>,
    /// No pipeline is known: committables say themselves where they go.
    anywhere: bool,
}

impl Committers {
    pub(super) fn new(job: &Job, job_id: JobId) -> Result<Self, Error> {
        let mut by_node = BTreeMap::new();
        for sink in &job.spec.sinks {
            if let Some(committer) =
                connector::committer(sink, &job.spec.dir, job_id).map_err(|e| failed(&sink.name, e))?
            {
                by_node.insert(sink.name.clone(), committer);
            }
        }
        let (metrics, clock) = (Arc::clone(&job.metrics), job.clock.clone());
        Ok(Self { job_id, metrics, clock, by_node, anywhere: false })
    }

    /// Those of a job whose pipeline is not at hand.
    pub(super) fn anywhere(job_id: JobId, clock: &Clock) -> Self {
        let metrics = Arc::new(JobMetrics::new(std::iter::empty()));
        Self { job_id, metrics, clock: clock.clone(), by_node: BTreeMap::new(), anywhere: true }
    }

    /// Publishes everything that `manifest` names, then marks it committed. The permit shows that no later run has claimed the
    /// job and that the manifest is in the log.
    pub(super) async fn commit(&self, run: &mut Run, permit: CommitPermit, manifest: &Manifest) -> Result<(), Error> {
        for node in &manifest.nodes {
            if node.committables.is_empty() {
                continue;
            }
            let found = self.anywhere.then(|| connector::committer_of(&node.committables, self.job_id));
            let committer = self.by_node.get(&node.name).or(found.as_ref()).ok_or_else(|| {
                Error::new(
                    ErrorKind::State,
                    format!(
                        "checkpoint {} has output of sink {:?} that is not published yet, and the pipeline has no such sink",
                        manifest.epoch,
                        node.name.as_str()
                    ),
                )
                .help("`weir txn commit` publishes it; or put the sink back and run once; then remove it")
            })?;
            let identity = CommitIdentity { job: self.job_id, node: node.name.clone(), epoch: manifest.epoch };
            let began = self.clock.elapsed();
            let mut tries = 0;
            let committed = loop {
                match committer.commit(&identity, &node.committables).await {
                    Ok(committed) => break committed,
                    Err(e) if e.kind == ConnectorErrorKind::Transient && tries < TRIES_MAX => {
                        tracing::warn!(sink = %node.name, epoch = %manifest.epoch, error = %e, "the commit is tried again");
                        tokio::time::sleep(TRY_DELAY * 2u32.pow(tries)).await;
                        tries += 1;
                    }
                    Err(e) => return Err(failed(&node.name, e)),
                }
            };
            self.metrics.checkpoint.committed(&node.name, self.clock.elapsed().saturating_sub(began));
            match committed {
                Committed::Applied => {
                    tracing::debug!(sink = %node.name, epoch = %manifest.epoch, "committed");
                }
                Committed::AlreadyApplied => {
                    tracing::info!(sink = %node.name, epoch = %manifest.epoch, "was committed before");
                }
            }
        }
        let (mut permit, mut tries) = (permit, 0);
        while let Err(error) = run.mark_committed(permit).await {
            if error.kind() != ErrorKind::Store || tries == TRIES_MAX {
                return Err(error.into());
            }
            tracing::warn!(epoch = %manifest.epoch, %error, "the mark of the commit is tried again");
            tokio::time::sleep(TRY_DELAY * 2u32.pow(tries)).await;
            tries += 1;
            permit = run.permit_tip().await?;
        }
        Ok(())
    }

    /// Makes sure that what a checkpoint that was given up has prepared never becomes visible, also not by a run that is asleep with a
    /// permit to commit it. Sinks that the pipeline has no more are told as well.
    pub(super) async fn abandon(&self, manifest: &Manifest) -> Result<(), Error> {
        for node in manifest.nodes.iter().filter(|node| !node.committables.is_empty()) {
            let identity = CommitIdentity { job: self.job_id, node: node.name.clone(), epoch: manifest.epoch };
            let committer = connector::committer_of(&node.committables, self.job_id);
            match committer.abandon(&identity, &node.committables).await.map_err(|e| failed(&node.name, e))? {
                Abandoned::Done => {
                    tracing::info!(sink = %node.name, epoch = %manifest.epoch, "given up: it will not be published");
                }
                Abandoned::AlreadyPublished => {
                    tracing::warn!(sink = %node.name, epoch = %manifest.epoch, "was published before it was given up");
                }
            }
        }
        Ok(())
    }

    /// Removes what earlier runs staged: nothing of it can become visible any more.
    pub(super) async fn collect(&self, run: &Run) -> Result<(), Error> {
        for (name, committer) in &self.by_node {
            let removed = committer.collect(run.generation()).await.map_err(|e| failed(name, e))?;
            self.metrics.checkpoint.collected(0, removed);
        }
        Ok(())
    }
}

#[cfg(test)]
impl Committers {
    /// Commits what no manifest names yet: see [`Mutant::CommitBeforeManifest`](crate::simulation::Mutant).
    pub(super) async fn commit_early(&self, manifest: &Manifest) {
        for node in manifest.nodes.iter().filter(|node| !node.committables.is_empty()) {
            let identity = CommitIdentity { job: self.job_id, node: node.name.clone(), epoch: manifest.epoch };
            drop(self.by_node[&node.name].commit(&identity, &node.committables).await);
        }
    }
}

pub(super) fn failed(sink: &NodeName, error: connector::ConnectorError) -> Error {
    let kind = match error.kind {
        ConnectorErrorKind::Mismatch => ErrorKind::State,
        ConnectorErrorKind::Transient | ConnectorErrorKind::Record => ErrorKind::Job,
    };
    let outer = Error::new(kind, format!("sink {:?} cannot publish its output", sink.as_str()));
    match error.help.clone() {
        Some(help) => outer.help(help),
        None => outer,
    }
    .caused_by(error)
}
