//! Does an epoch again, from one checkpoint to the next, and says whether the same comes out (I12).
//!
//! ```text
//!   checkpoint N ──► the same tasks, at its positions, with its state ──► reports ──┐
//!   schedules of N + 1 ──┘      (sinks hash, packs go to a scratch folder)          ├─► compare ──► Verdict
//!   checkpoint N + 1 ───────────────────────────────────────────────────────────────┘
//! ```
//!
//! Nothing is claimed, written or published: the job may run meanwhile. What cannot be replayed is refused by name before a task
//! is started: another plugin, another parallelism, a schedule that was not recorded. A task that cannot do again what it did
//! stops, and the others go on as far as they can, so that the first node that differs is found and not the loudest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use object_store::local::LocalFileSystem;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Job;
use super::verdict::{Verdict, compare};
use crate::account::Account;
use crate::checkpoint::{EntryKind, JobStore, Manifest, Store, SubtaskEntry, history, read_manifest};
use crate::error::{Error, ErrorKind};
use crate::flow::{Blueprint, Event, FlowContext, Replayed, Tap, TaskError, Tasks, UploadBudget, schedule};
use crate::metrics::JobMetrics;
use crate::model::{Committable, Epoch, NodeName, TaskId};
use crate::plan::NodeKind;

/// How long nothing may move beyond the longest call that a plugin may make, before a replay is given up.
const STALL: Duration = Duration::from_secs(30);

/// Two checkpoints of which the second goes on from the first.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Where the replay begins; none for the beginning of the job.
    pub from: Option<Manifest>,
    /// Where it ends.
    pub to: Manifest,
}

/// What came of a replay.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The cuts that the subtasks reported for the last epoch.
    pub(super) entries: BTreeMap<TaskId, SubtaskEntry>,
    /// What its sinks prepared, in the order of a manifest.
    pub(super) committables: BTreeMap<NodeName, Vec<Committable>>,
    /// Why tasks stopped, by the subtask that is the cause.
    pub(super) failures: BTreeMap<TaskId, String>,
}

/// The checkpoint of a job that goes on from `from`, or from its beginning, with that one.
///
/// # Errors
///
/// If there is none, or one cannot be read.
pub async fn replay_pair(store: &Store, name: &str, from: Option<Epoch>) -> Result<Pair, Error> {
    let first = match from {
        Some(epoch) => Some(read_manifest(store, name, epoch).await?),
        None => None,
    };
    let entries = history(store, name).await?;
    let checkpoints = || entries.iter().filter(|entry| entry.kind == EntryKind::Checkpoint);
    // The newest: after a start from an older checkpoint there may be several.
    let next = checkpoints().filter(|entry| entry.parent == from).filter_map(|entry| entry.epoch).max();
    let Some(next) = next else {
        let pairs: Vec<String> = checkpoints()
            .filter_map(|entry| entry.parent)
            .filter(|parent| checkpoints().any(|entry| entry.epoch == Some(*parent)))
            .map(|parent| parent.to_string())
            .collect();
        let what = match from {
            Some(epoch) => format!("no checkpoint of job {name:?} goes on from checkpoint {epoch}"),
            None => format!("the first checkpoint of job {name:?} is not kept any more"),
        };
        let which = if pairs.is_empty() { "none".into() } else { pairs.join(", ") };
        return Err(Error::new(ErrorKind::State, what).help(format!(
            "a replay needs a checkpoint and the one after it; it can begin at: {which} (checkpoint.retain keeps more)"
        )));
    };
    Ok(Pair { from: first, to: read_manifest(store, name, next).await? })
}

impl Job {
    /// Replays an epoch and compares what comes out with what is recorded.
    ///
    /// # Errors
    ///
    /// If it cannot be replayed. A difference is no error: it is in the verdict.
    pub async fn verify_replay(&self, pair: &Pair) -> Result<Verdict, Error> {
        self.check_replay(pair)?;
        let scratch = Scratch::new(self, pair)?;
        let outcome = self.do_again(pair, &scratch, None).await?;
        let store = JobStore::new(&self.store, &self.spec.name, pair.to.job_id);
        compare(self, pair, &outcome, &store, &scratch.store).await
    }

    /// Replays an epoch for `tap` to watch. Gives what kept tasks from getting to the end, if anything did.
    ///
    /// # Errors
    ///
    /// If it cannot be replayed.
    pub async fn watch_replay(&self, pair: &Pair, tap: Arc<dyn Tap>) -> Result<Vec<String>, Error> {
        self.check_replay(pair)?;
        let scratch = Scratch::new(self, pair)?;
        let outcome = self.do_again(pair, &scratch, Some(tap)).await?;
        Ok(outcome.failures.iter().map(|(task, reason)| format!("{task}: {reason}")).collect())
    }

    /// Whether the tasks of this pipeline can do again what the checkpoint says.
    fn check_replay(&self, pair: &Pair) -> Result<(), Error> {
        let Pair { from, to } = pair;
        let refuse = |message: String, help: &str| {
            let message = format!("checkpoint {} cannot be replayed: {message}", to.epoch);
            Err(Error::new(ErrorKind::State, message).help(help))
        };
        const SHAPE: &str = "use the pipeline file as it was when the checkpoint was taken";
        if let Some(from) = from.as_ref().filter(|from| from.job_id != to.job_id) {
            return refuse(format!("checkpoint {} is of another history", from.epoch), "choose another one");
        }
        if to.key_groups != self.spec.key_groups {
            let have = self.spec.key_groups;
            return refuse(format!("it has {} key groups, and the pipeline has {have}", to.key_groups), SHAPE);
        }
        let known = |name: &NodeName| self.plan.nodes.iter().any(|node| node.name == *name);
        if let Some(node) = to.nodes.iter().find(|node| !known(&node.name)) {
            return refuse(format!("it holds node {:?}, which the pipeline has not", node.name.as_str()), SHAPE);
        }
        for planned in &self.plan.nodes {
            let name = planned.name.as_str();
            let Some(node) = to.node(name) else {
                return refuse(format!("it holds nothing of node {name:?}"), SHAPE);
            };
            if node.parallelism != planned.parallelism {
                let (then, now) = (node.parallelism, planned.parallelism);
                return refuse(format!("node {name:?} had parallelism {then}, and the pipeline has {now}"), SHAPE);
            }
            if let Some(from) = from {
                let between = "choose a checkpoint after the change: state that was moved is not moved again";
                match from.node(name) {
                    None => return refuse(format!("node {name:?} is new in it"), between),
                    Some(before) if before.parallelism != node.parallelism => {
                        let (then, after) = (before.parallelism, node.parallelism);
                        return refuse(format!("node {name:?} went from parallelism {then} to {after}"), between);
                    }
                    Some(_) => {}
                }
            }
            if let (Some(plugin), Some(code)) = (&node.plugin, self.code.get(&planned.name))
                && plugin.digest != code.digest
            {
                let hex = |digest: [u8; 32]| blake3::Hash::from_bytes(digest).to_hex();
                return refuse(
                    format!(
                        "node {name:?} ran plugin {} {} with digest {}, and the one that is here has digest {}",
                        plugin.name,
                        plugin.version,
                        hex(plugin.digest),
                        hex(code.digest)
                    ),
                    "let the pipeline name the plugin that ran: `plugin = \"blake3:DIGEST\"` takes it from the store",
                );
            }
            for (subtask, entry) in node.subtasks.iter().enumerate() {
                let segments = match schedule::decode(&entry.schedule) {
                    Ok(segments) => segments,
                    Err(reason) => {
                        let task = format!("{name}[{subtask}]");
                        return refuse(
                            format!("{task}: {reason}"),
                            "choose another checkpoint, or shorten checkpoint.interval",
                        );
                    }
                };
                let begins = from.as_ref().map(|from| from.epoch);
                let fits = segments.iter().all(|segment| Some(segment.epoch) > begins)
                    && segments.last().is_some_and(|segment| segment.epoch == to.epoch);
                if !fits {
                    return refuse(format!("the schedule of {name}[{subtask}] is not that of this epoch"), SHAPE);
                }
            }
        }
        Ok(())
    }

    /// Starts the tasks, and lets them come to the end of their schedules.
    async fn do_again(&self, pair: &Pair, scratch: &Scratch, tap: Option<Arc<dyn Tap>>) -> Result<Outcome, Error> {
        let Pair { from, to } = pair;
        let store = JobStore::new(&self.store, &self.spec.name, to.job_id);
        let metrics = Arc::new(JobMetrics::new(self.plan.nodes.iter().map(|node| node.name.clone())));
        let (events, mut event_receiver) = mpsc::channel(1024);
        let context = Arc::new(FlowContext {
            // Packs have the names that they had, as far as they hold the same.
            generation: to.generation,
            clock: self.clock.clone(),
            store: scratch.store.clone(),
            events,
            metrics: Arc::clone(&metrics),
            batch: self.spec.batch.clone(),
            uploads: Arc::new(UploadBudget::new(self.spec.checkpoint.upload_memory, self.spec.checkpoint.uploads)),
            inline_bytes_max: u64::MAX,
            account: Account::current(),
            tap,
        });
        let nothing = BTreeSet::new();
        let blueprint = Blueprint {
            spec: &self.spec,
            plan: &self.plan,
            code: &self.code,
            job_id: to.job_id,
            restore: from.as_ref(),
            full: &nothing,
            replay: Some(Replayed { to, store: &store }),
            context,
        };
        let built = blueprint.build().await;
        drop(blueprint);
        let Tasks { tasks, .. } = built.map_err(|error| cannot(to.epoch, error))?;
        let mut running = JoinSet::new();
        for (id, task) in tasks {
            running.spawn(Account::run_under(Account::current(), async move { (id, task.await) }));
        }
        let mut outcome = Outcome::default();
        let patience = self.longest_call() + STALL;
        let mut moved = 0;
        loop {
            tokio::select! {
                event = event_receiver.recv() => match event {
                    // Every task has ended, and with it the last that could say something.
                    None => break,
                    Some(event) => outcome.note(event, to.epoch),
                },
                () = tokio::time::sleep(patience) => {
                    let now = movement(&metrics);
                    if now == moved {
                        running.abort_all();
                        let stuck = "tasks wait for one another: one of them did not do again what it did";
                        tracing::warn!("{stuck}");
                    }
                    moved = now;
                }
            }
        }
        while let Some(joined) = running.join_next().await {
            match joined {
                Ok((_, Ok(()))) => {}
                Ok((id, Err(error))) => outcome.failed(id, error),
                Err(error) if error.is_cancelled() => {}
                Err(error) => {
                    return Err(
                        Error::new(ErrorKind::Job, "a task panicked, which is a defect of weir").caused_by(error)
                    );
                }
            }
        }
        for staged in outcome.committables.values_mut() {
            staged.sort_by_key(|staged| (staged.epoch, staged.subtask));
        }
        Ok(outcome)
    }

    fn longest_call(&self) -> Duration {
        let limits = self.plan.nodes.iter().filter_map(|node| match node.kind {
            NodeKind::Operator(index) => Some(self.spec.operators[index].limits.wall),
            _ => None,
        });
        limits.max().unwrap_or_default()
    }
}

impl Outcome {
    fn note(&mut self, event: Event, last: Epoch) {
        match event {
            Event::Cut { task, epoch, entry, committable, .. } => {
                if let Some(data) = committable {
                    let staged = Committable { epoch, subtask: task.subtask, data };
                    self.committables.entry(task.node.clone()).or_default().push(staged);
                }
                if epoch == last {
                    self.entries.insert(task, *entry);
                }
            }
            Event::Declined { task, epoch, reason } if epoch == last => {
                self.failures.insert(task, format!("it did not write its state for epoch {epoch}: {reason}"));
            }
            Event::Declined { .. } | Event::SourceEnded(_) => {}
        }
    }

    /// A task stopped. The subtask that is the cause need not be the one at its head.
    fn failed(&mut self, head: TaskId, error: TaskError) {
        let cause = match &error {
            TaskError::Closed | TaskError::Panic { .. } => return,
            TaskError::Operator { task, .. }
            | TaskError::Connector { task, .. }
            | TaskError::Inbox { task, .. }
            | TaskError::Key { task, .. }
            | TaskError::Rejected { task, .. }
            | TaskError::Upgrade { task, .. }
            | TaskError::Unread { task, .. }
            | TaskError::Diverged { task, .. }
            | TaskError::Restore { task, .. } => task.clone(),
        };
        let reason = match error {
            TaskError::Diverged { reason, .. } => reason,
            error => Error::from(error).chain(),
        };
        tracing::debug!(%head, %cause, reason, "a task of a replay stopped");
        self.failures.insert(cause, reason);
    }
}

/// A folder for what a replay uploads; gone with it.
struct Scratch {
    store: JobStore,
    _folder: tempfile::TempDir,
}

impl Scratch {
    fn new(job: &Job, pair: &Pair) -> Result<Self, Error> {
        let failed = |cause: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(ErrorKind::Store, "a folder for the replay cannot be made")
                .help("TMPDIR says where; as much room is needed as the epoch wrote")
                .caused_by(cause)
        };
        let folder = tempfile::Builder::new().prefix("weir-replay-").tempdir().map_err(|e| failed(e.into()))?;
        let objects = LocalFileSystem::new_with_prefix(folder.path()).map_err(|e| failed(e.into()))?;
        let store = JobStore::new(&Store::new(Arc::new(objects)), &job.spec.name, pair.to.job_id);
        Ok(Self { store, _folder: folder })
    }
}

/// Grows as long as anything moves.
fn movement(metrics: &JobMetrics) -> u64 {
    let nodes = metrics.nodes().map(|(_, node)| node.records_in.load(Relaxed) + node.records_out.load(Relaxed));
    nodes.sum::<u64>() + metrics.activity.load(Relaxed)
}

/// A task of the replay cannot be made.
fn cannot(epoch: Epoch, error: TaskError) -> Error {
    let error = Error::from(error);
    let outer = Error::new(error.kind(), format!("checkpoint {epoch} cannot be replayed"));
    match error.remedy().map(str::to_owned) {
        // What helps a job that starts is no help here.
        Some(help) if !help.contains("--fresh") => outer.help(help),
        _ => outer.help("a replay reads what was read then: put it back as it was"),
    }
    .caused_by(error)
}

/// The nodes from which `node` can be reached, by index.
pub(super) fn ancestors(job: &Job, node: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut next = vec![node];
    while let Some(at) = next.pop() {
        for edge in job.plan.inputs_of(at) {
            if found.insert(edge.from) {
                next.push(edge.from);
            }
        }
    }
    found
}
