//! The data path: tasks that join connectors, plugins and checkpoints.
//!
//! ```text
//! source task                        inbox task
//! ┌──────────────────────────────┐   ┌─────────────────────────────────────────┐
//! │ Source ─► stage ─► stage ─► ─┼─►─┼─► Inbox ─► stage (operator) ─► stage (sink) │
//! └──────────────────────────────┘ ▲ └─────────────────────────────────────────┘
//!            chained edges         └ exchange, then a channel for each pair of subtasks
//! ```
//!
//! Read the files in this order and you follow one record: `source`, `stage`, `exchange`, `channel`, `inbox`, `task`,
//! `operator`, `sink`. This file turns a [`Plan`] into tasks: which stages share one, which channels join them, and
//! what each of them is restored from.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::stream::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::Instrument as _;

mod budget;
mod channel;
mod compare;
mod context;
mod dead_letter;
mod error;
mod exchange;
mod inbox;
mod operator;
mod pace;
mod report;
mod rescale;
pub mod schedule;
mod shadow;
mod sink;
mod snapshot;
mod source;
mod stage;
mod task;
mod upload;

pub use budget::UploadBudget;
pub use channel::{Closed, Receiver, Sender, channel};
pub use compare::{Compared, PortCompared};
pub use context::{FlowContext, Seen, Tap};
pub use error::TaskError;
pub use exchange::{Exchange, KeyFault, Keying};
pub use inbox::{Action, Inbox, InboxFault, InboxState, Incoming, InputState};
pub use report::{CutTimings, Event, Progress};
pub use rescale::{Carried, carry_over};
pub use shadow::{CAUGHT_UP, Shadow, ShadowPhase, ShadowStatus, ShadowTask, UpgradeHandle};
pub use stage::OperatorCall;

use crate::account::Account;
use crate::checkpoint::{
    CheckpointError, Holdings, JobStore, Manifest, NodeEntry, SegmentReader, SegmentRef, SubtaskEntry,
};
use crate::connector::{self, TaskContext};
use crate::model::{Barrier, Chunk, Descriptor, JobId, NodeName, StateKind, TaskId, TaskInfo, groups_of_subtask};
use crate::plan::{Edge, ExchangeKind, NodeKind, OnError, OperatorSpec, OutPort, PipelineSpec, Plan};
use crate::plugin::{HostCut, IMAGE_VERSION, Operator, OperatorError, Plugin, SnapshotReader};
use operator::OperatorStage;
use schedule::{Course, Segment};
use sink::SinkStage;
use source::{SourceTask, Timing};
use stage::{Body, Chain, OutputEdge, Stage, Target};
use task::InboxTask;

/// How many subtasks are opened and restored at once.
const OPENED_AT_ONCE: usize = 8;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Makes an instance for a subtask and opens it.
pub type OpenOperator = dyn Fn(TaskInfo) -> BoxFuture<Result<Box<dyn Operator>, OperatorError>> + Send + Sync;

/// The code of an operator node: a component, or native code in the benches.
#[derive(Clone)]
pub struct OperatorCode {
    /// What it says about itself.
    pub descriptor: Descriptor,
    /// The blake3 of its bytes; zeros for native code.
    pub digest: [u8; 32],
    /// Its state is saved as an image of its memory, by this version of the instrumenter.
    pub image: Option<u32>,
    /// Makes its instances.
    pub open: Arc<OpenOperator>,
}

impl OperatorCode {
    /// Instances of a plugin, with the limits and the configuration of an operator.
    pub fn of(plugin: &Plugin, operator: &OperatorSpec) -> Self {
        let (made, limits, config) = (plugin.clone(), operator.limits.clone(), operator.config.clone());
        Self {
            descriptor: plugin.descriptor().clone(),
            digest: plugin.digest_bytes(),
            image: plugin.takes_images().then_some(IMAGE_VERSION),
            open: Arc::new(move |task| {
                let (plugin, limits, config) = (made.clone(), limits.clone(), config.clone());
                Box::pin(async move { plugin.open(&limits, &config, &task).await })
            }),
        }
    }
}

impl std::fmt::Debug for OperatorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OperatorCode").field("descriptor", &self.descriptor.name).finish_non_exhaustive()
    }
}

/// What the tasks of a job are made from.
#[derive(Debug)]
pub struct Blueprint<'a> {
    /// What the user asked for.
    pub spec: &'a PipelineSpec,
    /// Nodes and edges.
    pub plan: &'a Plan,
    /// The code of each operator node.
    pub code: &'a BTreeMap<NodeName, OperatorCode>,
    /// The job's history.
    pub job_id: JobId,
    /// The checkpoint to go on from, in the shape of `plan`: see [`carry_over`].
    pub restore: Option<&'a Manifest>,
    /// What is to be done again instead of going on.
    pub replay: Option<Replayed<'a>>,
    /// Nodes whose next snapshot has to be full: what they are restored from is not what one of their subtasks wrote.
    pub full: &'a BTreeSet<NodeName>,
    /// What all tasks share.
    pub context: Arc<FlowContext>,
}

/// An epoch that is done again: tasks follow the schedules of a checkpoint, sinks publish nothing, and what is uploaded goes to the store of the
/// [`FlowContext`], which is not that of the job.
#[derive(Clone, Copy, Debug)]
pub struct Replayed<'a> {
    /// The checkpoint at its end.
    pub to: &'a Manifest,
    /// Where the state of the checkpoint at its beginning is.
    pub store: &'a JobStore,
}

impl Replayed<'_> {
    /// What a subtask has to follow.
    fn segments(&self, task: &TaskId) -> Result<Vec<Segment>, TaskError> {
        let node = self.to.node(task.node.as_str());
        let entry = node.and_then(|node| node.subtasks.get(task.subtask as usize));
        let refuse = |reason| TaskError::Restore { task: task.clone(), reason };
        let entry = entry.ok_or_else(|| refuse(format!("checkpoint {} holds nothing of it", self.to.epoch)))?;
        schedule::decode(&entry.schedule).map_err(refuse)
    }
}

/// A subtask, and if it is one of an operator, the way to upgrade it.
type Opened = (Stage, Option<UpgradeHandle>);

/// The tasks of a job, not started yet.
pub struct Tasks {
    /// Each task with the subtask at its head.
    pub tasks: Vec<(TaskId, BoxFuture<Result<(), TaskError>>)>,
    /// To each source subtask: the barriers that it puts into the stream.
    pub barriers: Vec<mpsc::UnboundedSender<Barrier>>,
    /// Every subtask that reports each epoch: fixed before the first barrier.
    pub participants: Vec<TaskId>,
    /// To each subtask of an operator: how it gets its next version.
    pub upgrades: BTreeMap<TaskId, UpgradeHandle>,
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("participants", &self.participants).finish_non_exhaustive()
    }
}

impl Blueprint<'_> {
    /// Opens every connector and operator, restores them (I2: all from one manifest), and wires them.
    ///
    /// # Errors
    ///
    /// If one cannot be opened, or if the checkpoint does not fit it.
    pub async fn build(&self) -> Result<Tasks, TaskError> {
        let mut wires = Wires::new(self);
        let (mut stages, mut upgrades) = (BTreeMap::new(), BTreeMap::new());
        for (place, (stage, upgrade)) in self.open_stages().await? {
            upgrades.extend(upgrade.map(|upgrade| (stage.task.clone(), upgrade)));
            stages.insert(place, stage);
        }
        let mut tasks = Tasks { tasks: Vec::new(), barriers: Vec::new(), participants: Vec::new(), upgrades };
        for (node, planned) in self.plan.nodes.iter().enumerate() {
            for subtask in 0..planned.parallelism {
                tasks.participants.push(TaskId { node: planned.name.clone(), subtask });
            }
            if self.chained_into(node) {
                continue;
            }
            for subtask in 0..planned.parallelism {
                self.build_task(node, subtask, &mut stages, &mut wires, &mut tasks)?;
            }
        }
        Ok(tasks)
    }

    /// Every subtask of every node, opened and restored: what takes long, several at once.
    async fn open_stages(&self) -> Result<BTreeMap<(usize, u32), Opened>, TaskError> {
        let nodes = self.plan.nodes.iter().enumerate();
        let all: Vec<_> = nodes.flat_map(|(node, planned)| (0..planned.parallelism).map(move |s| (node, s))).collect();
        futures::stream::iter(all)
            .map(|(node, subtask)| async move { Ok(((node, subtask), self.open_stage(node, subtask).await?)) })
            .buffer_unordered(OPENED_AT_ONCE)
            .try_collect()
            .await
    }

    fn chained_into(&self, node: usize) -> bool {
        self.plan.edges.iter().any(|edge| edge.to == node && edge.chained)
    }

    fn build_task(
        &self,
        head: usize,
        subtask: u32,
        opened: &mut BTreeMap<(usize, u32), Stage>,
        wires: &mut Wires,
        tasks: &mut Tasks,
    ) -> Result<(), TaskError> {
        // Breadth first: a stage's readers come after it.
        let mut nodes = vec![head];
        let mut next = 0;
        while let Some(&node) = nodes.get(next) {
            nodes.extend(self.plan.edges.iter().filter(|edge| edge.from == node && edge.chained).map(|edge| edge.to));
            next += 1;
        }
        // Chained nodes have equal parallelism, and every subtask was opened.
        let mut stages: Vec<Stage> = nodes.iter().filter_map(|&node| opened.remove(&(node, subtask))).collect();
        for (stage, &node) in stages.iter_mut().zip(&nodes) {
            for (index, edge) in self.plan.edges.iter().enumerate().filter(|(_, edge)| edge.from == node) {
                let target = if edge.chained {
                    Target::Stage(nodes.iter().position(|&n| n == edge.to).unwrap_or_default())
                } else {
                    let senders = wires.take_senders(index, subtask);
                    let limit = self.context.batch.limit;
                    Target::Exchange(Exchange::new(edge.exchange, senders, limit, self.spec.key_groups, subtask))
                };
                stage.outputs.push(OutputEdge { port: edge.port, keying: self.keying(edge), target });
            }
        }
        let chain = Chain { stages, context: Arc::clone(&self.context) };
        let id = chain.stages[0].task.clone();
        let task: BoxFuture<_> = match self.plan.nodes[head].kind {
            NodeKind::Source(index) => {
                let spec = &self.spec.sources[index];
                let entry = self.entry(head, subtask)?;
                let positions = entry.map_or(&[][..], |(_, entry)| &entry.positions);
                let source = connector::open_source(spec, &self.spec.dir, &self.task_context(head, subtask), positions)
                    .map_err(|e| TaskError::connector(&id, e))?;
                let timing = Timing {
                    out_of_orderness: i64::try_from(spec.out_of_orderness.as_micros()).unwrap_or(i64::MAX),
                    idle_after: spec.idle_after,
                    rate: spec.rate.map(|rate| rate / f64::from(spec.parallelism)),
                };
                let (sender, receiver) = mpsc::unbounded_channel();
                tasks.barriers.push(sender);
                let mut task = SourceTask::new(source, chain, receiver, timing);
                if let Some((_, entry)) = entry {
                    let progress = Progress::decode(&entry.progress)
                        .map_err(|reason| TaskError::Restore { task: id.clone(), reason })?;
                    task.restore(&progress, entry.records);
                }
                match &self.replay {
                    Some(replay) => {
                        Box::pin(task.replay(replay.segments(&id)?, self.restore.map(|manifest| manifest.epoch)))
                    }
                    None => Box::pin(task.run()),
                }
            }
            NodeKind::Operator(_) | NodeKind::Sink(_) => {
                let task = InboxTask::new(chain, wires.take_receivers(self, head, subtask));
                match &self.replay {
                    Some(replay) => Box::pin(task.replay(replay.segments(&id)?)),
                    None => Box::pin(task.run()),
                }
            }
        };
        tasks.tasks.push((id, task));
        Ok(())
    }

    async fn open_stage(&self, node: usize, subtask: u32) -> Result<Opened, TaskError> {
        let planned = &self.plan.nodes[node];
        let task = TaskId { node: planned.name.clone(), subtask };
        let entry = self.entry(node, subtask)?;
        let inputs = inputs_of(self.plan, node, subtask);
        let ports: Vec<u32> = inputs.iter().map(|input| input.to_port).collect();
        let input_names: Vec<String> = inputs.into_iter().map(|input| input.name).collect();
        let mut inbox = Inbox::new(&ports);
        let (mut wake_at, mut host) = (None, HostCut::default());
        if let (Some((_, entry)), true) = (entry, !matches!(planned.kind, NodeKind::Source(_))) {
            let restored = restore_inbox(&mut inbox, &input_names, entry);
            (wake_at, host) = restored.map_err(|reason| TaskError::Restore { task: task.clone(), reason })?;
        }
        let records = entry.map_or(0, |(_, entry)| entry.records);
        let mut upgrade = None;
        let (body, on_reject) = match planned.kind {
            NodeKind::Source(index) => (Body::Source, self.spec.sources[index].on_error),
            NodeKind::Operator(index) => {
                let opened = self.open_operator(&task, planned.parallelism, entry, (wake_at, host), records).await?;
                let (operator, handle) = opened;
                upgrade = Some(handle);
                (Body::Operator(Box::new(operator)), self.spec.operators[index].on_reject)
            }
            NodeKind::Sink(index) => {
                let spec = &self.spec.sinks[index];
                let sink = match self.replay {
                    Some(_) => connector::open_replayed_sink(spec),
                    None => connector::open_sink(spec, &self.spec.dir, &self.task_context(node, subtask))
                        .await
                        .map_err(|e| TaskError::connector(&task, e))?,
                };
                (Body::Sink(Box::new(SinkStage::new(sink, records))), OnError::Fail)
            }
        };
        let metrics = self.context.metrics.node(&planned.name);
        let course = match &self.replay {
            Some(replay) => Course::following(replay.segments(&task)?),
            None => Course::default(),
        };
        let (outputs, aligning_since) = (Vec::new(), None);
        let stage = Stage { task, inbox, input_names, body, outputs, metrics, on_reject, course, aligning_since };
        Ok((stage, upgrade))
    }

    async fn open_operator(
        &self,
        task: &TaskId,
        parallelism: u32,
        entry: Option<(&NodeEntry, &SubtaskEntry)>,
        (wake_at, host): (Option<i64>, HostCut),
        records: u64,
    ) -> Result<(OperatorStage, UpgradeHandle), TaskError> {
        let refuse = |reason: String| TaskError::Restore { task: task.clone(), reason };
        let code = self
            .code
            .get(&task.node)
            .ok_or_else(|| refuse("its plugin was not loaded before the tasks were made".into()))?;
        let info = TaskInfo {
            job: self.spec.name.clone(),
            node: task.node.as_str().to_owned(),
            subtask: task.subtask,
            parallelism,
            key_groups: self.spec.key_groups,
            groups: groups_of_subtask(task.subtask, parallelism, self.spec.key_groups),
            seed: seed(self.job_id, task),
        };
        let mut state = None;
        if let Some((node, entry)) = entry.filter(|(_, entry)| !entry.segments.is_empty()) {
            let written = node.plugin.as_ref().map_or(0, |plugin| plugin.state_version);
            let readable = code.descriptor.oldest_state_version..=code.descriptor.state_version;
            if !readable.contains(&written) {
                return Err(refuse(format!(
                    "its state has version {written}, and plugin {} {} reads versions {} to {}",
                    code.descriptor.name,
                    code.descriptor.version,
                    readable.start(),
                    readable.end()
                )));
            }
            state = Some((written, entry.segments.clone()));
        }
        // A task of its own: restoring is work for a core, and each subtask may have one.
        let mut opening = JoinSet::new();
        let store = self.replay.as_ref().map_or(&self.context.store, |replay| replay.store).clone();
        let (who, began) = ((task.clone(), info.clone()), (host, false));
        let restored = open_and_restore(Arc::clone(&code.open), who, began, store, state);
        opening.spawn(Account::run_under(self.context.account.clone(), restored).in_current_span());
        let (mut operator, holdings) = match opening.join_next().await {
            Some(Ok(opened)) => opened?,
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            _ => return Err(refuse("opening it was given up".into())),
        };
        // What is done over has been done: nothing of it goes out again.
        if self.replay.is_none() {
            operator.go_live();
        }
        // Without segments to add to, the next snapshot is full.
        let holdings = if self.full.contains(&task.node) { Holdings::default() } else { holdings };
        let holdings = (code.descriptor.state != StateKind::Stateless).then_some(holdings);
        let (orders, ordered) = mpsc::unbounded_channel();
        let upgrade = UpgradeHandle {
            info,
            task: task.clone(),
            orders,
            clock: self.context.clock.clone(),
            store: self.context.store.clone(),
            account: self.context.account.clone(),
        };
        let operator = OperatorStage::new(operator, (&self.context, task), holdings, (wake_at, records), ordered);
        Ok((operator, upgrade))
    }

    /// What the checkpoint holds for a subtask; nothing for a node that was added since.
    fn entry(&self, node: usize, subtask: u32) -> Result<Option<(&NodeEntry, &SubtaskEntry)>, TaskError> {
        let Some(manifest) = self.restore else { return Ok(None) };
        let planned = &self.plan.nodes[node];
        let Some(entry) = manifest.nodes.iter().find(|entry| entry.name == planned.name) else { return Ok(None) };
        match entry.subtasks.get(subtask as usize) {
            Some(own) if entry.parallelism == planned.parallelism => Ok(Some((entry, own))),
            _ => Err(TaskError::Restore {
                task: TaskId { node: planned.name.clone(), subtask },
                reason: format!(
                    "checkpoint {} was not carried over from parallelism {} to {}: this is a fault in weir",
                    manifest.epoch, entry.parallelism, planned.parallelism
                ),
            }),
        }
    }

    fn keying(&self, edge: &Edge) -> Keying {
        let name = |node: usize| &self.plan.nodes[node].name;
        Keying {
            key: edge.key.clone(),
            hash: edge.exchange == ExchangeKind::Keyed,
            on_error: edge.on_error,
            edge: format!("{} -> {}", name(edge.from), name(edge.to)),
        }
    }

    fn task_context(&self, node: usize, subtask: u32) -> TaskContext {
        let planned = &self.plan.nodes[node];
        TaskContext {
            job: self.spec.name.clone(),
            job_id: self.job_id,
            generation: self.context.generation,
            task: TaskId { node: planned.name.clone(), subtask },
            parallelism: planned.parallelism,
        }
    }
}

/// Makes an instance, and gives it its state back: what a plugin of some state version wrote, chunk by chunk.
async fn open_and_restore(
    open: Arc<OpenOperator>,
    (task, info): (TaskId, TaskInfo),
    (host, is_aside): (HostCut, bool),
    store: JobStore,
    state: Option<(u32, Vec<SegmentRef>)>,
) -> Result<(Box<dyn Operator>, Holdings), TaskError> {
    let failed = |while_doing: &str, source| TaskError::opening(&task, while_doing, source);
    let unread = |error| TaskError::state(&task, error);
    let mut operator = open(info).await.map_err(|e| failed("while it was opened", e))?;
    operator.set_aside(is_aside);
    operator.resume_from(host);
    let Some((written, segments)) = state else { return Ok((operator, Holdings::default())) };
    let (reader, holdings) = SegmentReader::open(&segments, |_| store.clone()).await.map_err(unread)?;
    let fault = Fault::default();
    let chunks = Chunks { reader, fault: Arc::clone(&fault) };
    let restored = operator.restore_from(written, Box::new(chunks)).await;
    // To the operator, a state that cannot be read on ends there; what it made of that does not matter.
    if let Some(error) = fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(unread(error));
    }
    restored.map_err(|e| failed("while its state was restored", e))?;
    Ok((operator, holdings))
}

/// Why a state could not be read to its end.
type Fault = Arc<Mutex<Option<CheckpointError>>>;

/// Hands a stored state to an operator, and keeps what went wrong.
#[derive(Debug)]
struct Chunks {
    reader: SegmentReader,
    fault: Fault,
}

#[async_trait]
impl SnapshotReader for Chunks {
    async fn read(&mut self) -> Option<Chunk> {
        if self.fault.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return None;
        }
        match self.reader.next().await {
            Ok(chunk) => chunk,
            Err(error) => {
                self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                None
            }
        }
    }
}

/// One input of a subtask.
struct Input {
    edge: usize,
    sender: u32,
    to_port: u32,
    name: String,
}

/// The inputs of a subtask, in the order of its inbox.
fn inputs_of(plan: &Plan, node: usize, subtask: u32) -> Vec<Input> {
    let mut inputs = Vec::new();
    for (index, edge) in plan.edges.iter().enumerate().filter(|(_, edge)| edge.to == node) {
        let from = &plan.nodes[edge.from];
        let port = match edge.port {
            OutPort::Rejected => "rejected",
            OutPort::Data(port) => from.output_ports.get(port as usize).map_or("out", String::as_str),
        };
        for sender in 0..from.parallelism {
            if edge.exchange == ExchangeKind::Forward && sender != subtask {
                continue;
            }
            let name = format!("{}[{sender}].{port} -> {}", from.name, edge.to_port);
            inputs.push(Input { edge: index, sender, to_port: edge.to_port, name });
        }
    }
    inputs
}

/// The channels of a job, until the tasks at their ends take them: by edge, sender and receiver.
struct Wires {
    senders: BTreeMap<(usize, u32), Vec<Sender>>,
    receivers: BTreeMap<(usize, u32, u32), Receiver>,
}

impl Wires {
    fn new(blueprint: &Blueprint<'_>) -> Self {
        let mut wires = Self { senders: BTreeMap::new(), receivers: BTreeMap::new() };
        let bounds = &blueprint.spec.channel;
        for (index, edge) in blueprint.plan.edges.iter().enumerate().filter(|(_, edge)| !edge.chained) {
            for from in 0..blueprint.plan.nodes[edge.from].parallelism {
                for to in 0..blueprint.plan.nodes[edge.to].parallelism {
                    if edge.exchange == ExchangeKind::Forward && from != to {
                        continue;
                    }
                    let (sender, receiver) = channel(bounds.batches, bounds.bytes);
                    let metrics = blueprint.context.metrics.node(&blueprint.plan.nodes[edge.from].name);
                    let sender = sender.of_node(metrics, blueprint.context.clock.clone());
                    wires.senders.entry((index, from)).or_default().push(sender);
                    wires.receivers.insert((index, from, to), receiver);
                }
            }
        }
        wires
    }

    fn take_senders(&mut self, edge: usize, subtask: u32) -> Vec<Sender> {
        self.senders.remove(&(edge, subtask)).unwrap_or_default()
    }

    fn take_receivers(&mut self, blueprint: &Blueprint<'_>, node: usize, subtask: u32) -> Vec<Receiver> {
        let inputs = inputs_of(blueprint.plan, node, subtask);
        inputs.iter().filter_map(|input| self.receivers.remove(&(input.edge, input.sender, subtask))).collect()
    }
}

/// Puts back what a cut holds of an inbox, by the names of its inputs. Says when the operator asked to be woken, and what it had of
/// the host.
fn restore_inbox(inbox: &mut Inbox, names: &[String], entry: &SubtaskEntry) -> Result<(Option<i64>, HostCut), String> {
    let Progress::Inbox { inputs, state, wake_at, host } = Progress::decode(&entry.progress)? else {
        return Err("the checkpoint holds the progress of a source for it".into());
    };
    let mut ordered = Vec::with_capacity(names.len());
    for name in names {
        let found = inputs.iter().position(|input| input == name).and_then(|at| state.inputs.get(at));
        ordered.push(*found.ok_or_else(|| {
            format!("the checkpoint knows nothing of its input {name:?}, only of {}", inputs.join(", "))
        })?);
    }
    if inputs.len() != names.len() {
        return Err(format!("the checkpoint knows inputs that it has no more: {}", inputs.join(", ")));
    }
    inbox.restore(&InboxState { inputs: ordered, watermark: state.watermark });
    Ok((wake_at, host))
}

/// What a guest gets as its seed: the same for a subtask in every run of a job.
fn seed(job: JobId, task: &TaskId) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&job.0).update(&task.subtask.to_le_bytes()).update(task.node.as_str().as_bytes());
    let hash = hasher.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(first)
}
