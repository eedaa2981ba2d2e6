//! What is shown of jobs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::desired::Want;
use super::fault::Fault;
use super::job::{JobHandle, Phase, Samples};
use crate::checkpoint::Savepoint;
use crate::job::{Answer, Fit, Request, Status, UpgradeStatus};
use crate::model::Timestamp;
use crate::plan::{NodeKind, Plan};

/// A job in a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobSummary {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub state: Phase,
    /// Where it is to be.
    pub want: Want,
    /// The newest complete checkpoint of the run.
    pub epoch: Option<u64>,
    /// Why it is not what it is to be.
    pub error: Option<String>,
    /// When it was changed last, in microseconds since the Unix epoch.
    pub changed_at: Timestamp,
}

/// Everything of a job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// Where it is.
    pub state: Phase,
    /// Where it is to be.
    pub want: Want,
    /// Why it is not what it is to be.
    pub error: Option<FaultView>,
    /// How often it was changed.
    pub revision: u64,
    /// When it was changed last, in microseconds since the Unix epoch.
    pub changed_at: Timestamp,
    /// By which token.
    pub changed_by: String,
    /// The pipeline file.
    pub pipeline: String,
    /// Its nodes, in the order of the data.
    pub nodes: Vec<NodeView>,
    /// What reads what.
    pub edges: Vec<EdgeView>,
    /// What the running job says; none if it does not run.
    pub run: Option<RunView>,
}

/// A node of a job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Its name.
    pub node: String,
    /// `source`, `operator` or `sink`.
    pub kind: String,
    /// How many subtasks it has.
    pub parallelism: u32,
    /// The blake3 of its plugin, in hexadecimal, of an operator.
    pub digest: Option<String>,
    /// Records that came in since the server started it.
    pub records_in: u64,
    /// Records that went out since then.
    pub records_out: u64,
    /// Records that come in, a second; none before it was looked at twice.
    pub in_per_second: Option<f64>,
    /// Records that go out, a second.
    pub out_per_second: Option<f64>,
    /// The newest watermark of a subtask, in microseconds since the Unix epoch.
    pub watermark: Option<Timestamp>,
    /// How much of the time its subtasks waited for their readers, from 0 to 1: where it is high, look at the readers.
    pub backpressure: Option<f64>,
}

/// An edge of a job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EdgeView {
    /// From which node.
    pub from: String,
    /// To which.
    pub to: String,
    /// `forward`, `keyed`, `broadcast` or `rebalance`.
    pub exchange: String,
}

/// What a running job says of itself.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    /// Its history.
    pub job_id: Option<String>,
    /// This run.
    pub generation: Option<u64>,
    /// `running`, `checkpointing`, `stopping` or `restarting`.
    pub state: String,
    /// The newest complete checkpoint of this run.
    pub epoch: Option<u64>,
    /// How long it took, in microseconds.
    pub checkpoint_us: u64,
    /// Checkpoints that were completed since the server started it.
    pub checkpoints: u64,
    /// Attempts that failed since then.
    pub failed: u64,
    /// How often it started over by itself since then.
    pub restarts: u64,
    /// The upgrade that is under way, if one is.
    pub upgrade: Option<UpgradeStatus>,
    /// The settings of its checkpoints that are in force.
    pub settings: std::collections::BTreeMap<String, String>,
}

/// Why something is not as it should be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FaultView {
    /// One clause.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
    /// More lines.
    pub details: Option<String>,
}

/// What becomes of the state of a node.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodePlan {
    /// Which node.
    pub node: String,
    /// `kept`, `moved`, `migrated`, `new`, `dropped` or `refused`.
    pub verdict: String,
    /// How many subtasks it had; none for a node that is new.
    pub was: Option<u32>,
    /// How many it has; none for one that is gone.
    pub parallelism: Option<u32>,
    /// Bytes of its state.
    pub state_bytes: u64,
    /// Why.
    pub reason: String,
}

/// A savepoint.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SavepointView {
    /// Its name.
    pub name: String,
    /// The checkpoint that it keeps.
    pub epoch: u64,
    /// When that was complete, in microseconds since the Unix epoch.
    pub completed_at: Timestamp,
    /// Bytes of state in it.
    pub state_bytes: u64,
    /// The job had finished.
    pub finished: bool,
}

impl SavepointView {
    pub(super) fn new(savepoint: &Savepoint) -> Self {
        let manifest = &savepoint.manifest;
        Self {
            name: savepoint.name.clone(),
            epoch: manifest.epoch.0,
            completed_at: manifest.created_at,
            state_bytes: manifest.segments().map(|segment| segment.bytes).sum(),
            finished: manifest.finished,
        }
    }
}

impl NodePlan {
    pub(super) fn of(fit: &Fit) -> Vec<Self> {
        let node = |node: &crate::job::NodeFit| Self {
            node: node.node.clone(),
            verdict: node.verdict.word().to_owned(),
            was: node.was,
            parallelism: node.parallelism,
            state_bytes: node.state_bytes,
            reason: node.reason.clone(),
        };
        fit.nodes.iter().map(node).collect()
    }
}

impl From<&Fault> for FaultView {
    fn from(fault: &Fault) -> Self {
        Self { message: fault.message.clone(), help: fault.help.clone(), details: fault.details.clone() }
    }
}

impl JobHandle {
    /// A line of it.
    pub fn summary(&self) -> JobSummary {
        let state = self.state();
        let epoch = state.run.as_ref().map(|run| run.metrics.epoch.load(std::sync::atomic::Ordering::Relaxed));
        JobSummary {
            name: self.name.clone(),
            state: state.phase,
            want: state.record.want,
            epoch: epoch.filter(|&epoch| epoch > 0),
            error: state.fault.as_ref().map(|fault| fault.message.clone()),
            changed_at: state.record.changed_at,
        }
    }

    /// Everything of it.
    pub async fn view(&self) -> JobView {
        let run = match self.control() {
            Ok(control) => match control.ask(Request::Status).await {
                Ok(Answer::Status(status)) => Some(run_view(*status)),
                _ => None,
            },
            Err(_) => None,
        };
        let state = self.state();
        let record = &state.record;
        let (nodes, edges) = state.plan.as_deref().map_or_else(Default::default, |plan| graph(plan, &state));
        JobView {
            name: self.name.clone(),
            tenant: self.tenant.clone(),
            state: state.phase,
            want: record.want,
            error: state.fault.as_ref().map(FaultView::from),
            revision: state.number,
            changed_at: record.changed_at,
            changed_by: record.changed_by.clone(),
            pipeline: record.pipeline.clone(),
            nodes,
            edges,
            run,
        }
    }
}

fn run_view(status: Status) -> RunView {
    RunView {
        job_id: status.job_id,
        generation: status.generation,
        state: status.state,
        epoch: status.epoch,
        checkpoint_us: status.checkpoint_us,
        checkpoints: status.checkpoints,
        failed: status.failed,
        restarts: status.restarts,
        upgrade: status.upgrade,
        settings: status.settings.into_iter().collect(),
    }
}

fn graph(plan: &Plan, state: &super::job::State) -> (Vec<NodeView>, Vec<EdgeView>) {
    use std::sync::atomic::Ordering::Relaxed;
    let node = |node: &crate::plan::PlanNode| {
        let kind = match node.kind {
            NodeKind::Source(_) => "source",
            NodeKind::Operator(_) => "operator",
            NodeKind::Sink(_) => "sink",
        };
        let metrics = state.run.as_ref().map(|run| run.metrics.node(&node.name));
        let count = |read: fn(&crate::metrics::NodeMetrics) -> u64| metrics.as_deref().map_or(0, read);
        let rates = rates(&state.samples, node.name.as_str());
        NodeView {
            node: node.name.to_string(),
            kind: kind.to_owned(),
            parallelism: node.parallelism,
            digest: state.record.digests.get(node.name.as_str()).cloned(),
            records_in: count(|m| m.records_in.load(Relaxed)),
            records_out: count(|m| m.records_out.load(Relaxed)),
            in_per_second: rates.as_ref().map(|rates| rates.read),
            out_per_second: rates.as_ref().map(|rates| rates.written),
            watermark: metrics.as_deref().and_then(crate::metrics::NodeMetrics::watermark),
            backpressure: rates.as_ref().map(|rates| (rates.waited / f64::from(node.parallelism)).clamp(0.0, 1.0)),
        }
    };
    let edge = |edge: &crate::plan::Edge| EdgeView {
        from: plan.nodes[edge.from].name.to_string(),
        to: plan.nodes[edge.to].name.to_string(),
        exchange: edge.exchange.word().to_owned(),
    };
    (plan.nodes.iter().map(node).collect(), plan.edges.iter().map(edge).collect())
}

/// What a node did between the last two samples.
struct Rates {
    /// Records in, a second.
    read: f64,
    /// Records out, a second.
    written: f64,
    /// How long its subtasks waited for their readers, all together, for each second.
    waited: f64,
}

fn rates(samples: &Samples, node: &str) -> Option<Rates> {
    let (before, last) = (samples.before.as_ref()?, samples.last.as_ref()?);
    let of = |sample: &super::job::Sample| sample.nodes.iter().find(|counted| counted.node.as_str() == node).cloned();
    let (from, to) = (of(before)?, of(last)?);
    let seconds = last.at.saturating_sub(before.at).as_secs_f64();
    let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
    (seconds > 0.0).then(|| Rates {
        read: rate(from.read, to.read),
        written: rate(from.written, to.written),
        waited: rate(from.waited_micros, to.waited_micros) / 1e6,
    })
}
