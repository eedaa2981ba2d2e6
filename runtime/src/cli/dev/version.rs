//! A pipeline with the code that it had at one moment: what can be run, and gone back to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::{Store, look_for};
use crate::cli::pipeline::{Pipeline, open_store};
use crate::clock::Clock;
use crate::error::Error;
use crate::flow::OperatorCode;
use crate::job::{Fate, Fit, Job};
use crate::metrics::JobMetrics;
use crate::model::NodeName;
use crate::plan::{PipelineSpec, Plan};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) spec: PipelineSpec,
    plan: Plan,
    code: BTreeMap<NodeName, OperatorCode>,
    text: String,
    store: Store,
}

/// How a version goes on from the newest checkpoint.
#[derive(Debug)]
pub(super) enum Verdict {
    /// All that it needs is there; a line for each operator whose state goes on in other code.
    Fits(Vec<String>),
    /// The state of these nodes cannot go on, for these reasons; without it the rest can.
    Without(BTreeMap<NodeName, String>),
}

impl Version {
    /// Reads a pipeline and its plugins, and keeps these in its store.
    pub(super) async fn load(path: &Path) -> Result<Self, Error> {
        let pipeline = Pipeline::load(path).await?;
        let store = open_store(&pipeline.spec)?;
        store.probe().await?;
        for found in pipeline.plugins.values() {
            store.put_plugin(found.bytes.clone().into()).await?;
        }
        let code = pipeline.code();
        let Pipeline { text, spec, plan, .. } = pipeline;
        Ok(Self { spec, plan, code, text, store })
    }

    /// To be run.
    pub(super) fn job(&self, clock: &Clock) -> Job {
        let metrics = Arc::new(JobMetrics::new(self.plan.nodes.iter().map(|node| node.name.clone())));
        Job {
            spec: self.spec.clone(),
            plan: self.plan.clone(),
            code: self.code.clone(),
            text: self.text.clone(),
            store: self.store.clone(),
            clock: clock.clone(),
            metrics,
        }
    }

    /// Whether it is the same pipeline with the same code.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        let digests = |version: &Self| version.code.values().map(|code| code.digest).collect::<Vec<_>>();
        self.text == other.text && digests(self) == digests(other)
    }

    /// Operators whose code is another than in a version before.
    pub(super) fn changed_since(&self, other: &Self) -> Vec<String> {
        let is_other = |(name, code): &(&NodeName, &OperatorCode)| {
            other.code.get(*name).is_none_or(|old| old.digest != code.digest)
        };
        self.code.iter().filter(is_other).map(|(name, _)| name.to_string()).collect()
    }

    /// Whether its job has come to the end of its input, and nothing is left to do. Not if nobody can tell.
    pub(super) async fn has_finished(&self) -> bool {
        let found = look_for(&self.store, &self.spec.name, None).await;
        found.is_ok_and(|found| found.is_some_and(|found| found.manifest.finished && found.committed))
    }

    /// Looks how it would go on from the newest checkpoint. Touches nothing.
    ///
    /// # Errors
    ///
    /// If the store does not answer, or the checkpoint does not fit whatever state is given up.
    pub(super) async fn fit(&self, clock: &Clock) -> Result<Verdict, Error> {
        let found = look_for(&self.store, &self.spec.name, None).await?;
        let Some(found) = found.filter(|found| !(found.manifest.finished && found.committed)) else {
            return Ok(Verdict::Fits(Vec::new()));
        };
        let job = self.job(clock);
        let fit = |drop_state: &BTreeSet<NodeName>| job.fit(&found.manifest, !found.committed, drop_state);
        let with_all = fit(&BTreeSet::new());
        if with_all.check().is_ok() {
            return Ok(Verdict::Fits(carried(&with_all)));
        }
        // A source without its positions reads what was read before: nobody gives that up in passing.
        if with_all.nodes.iter().any(|node| node.verdict == Fate::Refused && node.kind == "source") {
            with_all.check()?;
        }
        let refused = with_all.nodes.iter().filter(|node| node.verdict == Fate::Refused);
        let refused: BTreeMap<_, _> =
            refused.map(|node| (NodeName::new(node.node.as_str()), node.reason.clone())).collect();
        let without = fit(&refused.keys().cloned().collect());
        without.check()?;
        without.check_dropped()?;
        Ok(Verdict::Without(refused))
    }
}

/// What becomes of state that meets other code.
fn carried(fit: &Fit) -> Vec<String> {
    let moved = fit.nodes.iter().filter(|node| matches!(node.verdict, Fate::Migrated | Fate::Moved));
    moved.map(|node| format!("the state of {:?} is {}: {}", node.node, node.verdict.word(), node.reason)).collect()
}
