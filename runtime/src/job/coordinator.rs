//! The hub of the ring: ticks become barriers, reports become a manifest, a manifest becomes commits.
//!
//! One attempt at a time, and the next one starts when the last is committed or has failed (I13). The set of subtasks that must
//! report is fixed before the first barrier. An attempt that fails while the job runs on is subsumed: what sinks staged for
//! it stays in `carry` until a manifest names it, oldest first; operators and sources report everything they have each
//! time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::commit::Committers;
use super::control::{Answer, Call, Refusal, Request, Status};
use super::slow::{Phases, Slow};
use super::supervisor::Desk;
use super::upgrade::Upgrading;
use super::{Job, Outcome};
use crate::checkpoint::{
    self, CheckpointError, CommitPermit, Manifest, NodeEntry, PluginEntry, PublishError, Run, SubtaskEntry,
    check_savepoint_name, collect, pin,
};
use crate::error::{Error, ErrorKind};
use crate::flow::{CutTimings, Event, UpgradeHandle, schedule};
use crate::metrics::{FailureReason, JobMetrics, Phase};
use crate::model::{Barrier, Committable, Epoch, NodeName, TaskId};
use crate::plan::NodeKind;

/// Garbage is collected after this many checkpoints; in the simulation, where jobs are short, more often.
const COLLECT_EVERY: u64 = if cfg!(test) { 3 } else { 16 };

/// The most bytes of all schedules in one manifest.
const SCHEDULES_BYTES_MAX: usize = 16 << 20;

/// How often it is looked how an upgrade is getting on.
const LOOK: Duration = Duration::from_millis(5);

/// How long to wait before a put in doubt is asked for again.
const DOUBT_DELAY: Duration = Duration::from_millis(100);

/// The hub of one run.
pub(super) struct Coordinator<'a> {
    pub(super) job: &'a Job,
    pub(super) run: &'a mut Run,
    pub(super) committers: Committers,
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) barriers: Vec<mpsc::UnboundedSender<Barrier>>,
    pub(super) participants: BTreeSet<TaskId>,
    /// To each subtask of an operator: how it gets its next version.
    pub(super) upgrades: BTreeMap<TaskId, UpgradeHandle>,
    /// What sinks staged and no manifest names yet.
    pub(super) carry: BTreeMap<NodeName, Vec<Committable>>,
    pub(super) parent: Option<Epoch>,
    /// The activity that a checkpoint covers: read before any task was started.
    pub(super) covered: u64,
    pub(super) stop: watch::Receiver<bool>,
    /// What the job is asked, and the settings in force.
    pub(super) desk: &'a mut Desk,
}

/// Somebody who waits for a checkpoint that is begun after they asked.
struct Caller {
    call: Call,
    /// Under which name it is to be pinned.
    savepoint: Option<String>,
}

/// A checkpoint that is being taken.
struct Attempt {
    barrier: Barrier,
    /// The end of the last epoch: every source has ended.
    finished: bool,
    started: Duration,
    activity: u64,
    entries: BTreeMap<TaskId, SubtaskEntry>,
    /// Bytes that each node wrote.
    changed: BTreeMap<NodeName, u64>,
    callers: Vec<Caller>,
    phases: Phases,
}

/// What woke the coordinator.
enum Wake {
    Event(Event),
    Tick,
    TimedOut,
    Stop,
    Call(Call),
    /// It is time to look how an upgrade is getting on.
    Upgrade,
}

impl Coordinator<'_> {
    /// Takes checkpoints until the job ends with a last one.
    pub(super) async fn drive(mut self) -> Result<Outcome, Error> {
        let metrics = Arc::clone(&self.job.metrics);
        let sources = self.barriers.len();
        let mut ended = BTreeSet::new();
        let mut attempt: Option<Attempt> = None;
        let mut failures = 0;
        let mut covered = self.covered;
        let mut next_tick = self.next_tick(None);
        let mut last_started = self.job.clock.elapsed();
        let mut stopping = *self.stop.borrow();
        let mut callers: Vec<Caller> = Vec::new();
        let mut slow = Slow::default();
        loop {
            let last = stopping || ended.len() == sources;
            let is_wanted = !callers.is_empty() || self.desk.upgrade.as_ref().is_some_and(Upgrading::wants_checkpoint);
            if attempt.is_none() && (last || is_wanted) {
                let begun = self.begin(last, ended.len() == sources)?;
                attempt = Some(Attempt { callers: std::mem::take(&mut callers), ..begun });
            }
            match self.next(&attempt, next_tick, stopping).await? {
                Wake::Stop => stopping = true,
                Wake::Tick => {
                    // Nothing came and no timer fired: there is nothing to cover.
                    let is_watched = self.desk.upgrade.as_ref().is_some_and(Upgrading::has_swapped);
                    if metrics.activity.load(Relaxed) == covered && self.carry.is_empty() && !is_watched {
                        next_tick = self.next_tick(None);
                    } else {
                        attempt = Some(self.begin(false, false)?);
                    }
                }
                Wake::Event(Event::SourceEnded(task)) => {
                    ended.insert(task);
                }
                Wake::Event(Event::Cut { task, epoch, entry, committable, bytes, timings }) => {
                    if let Some(data) = committable {
                        let staged = Committable { epoch, subtask: task.subtask, data };
                        self.carry.entry(task.node.clone()).or_default().push(staged);
                    }
                    // A late report of a failed attempt has left what it carries; the rest comes again.
                    if let Some(current) = attempt.as_mut().filter(|current| current.barrier.epoch == epoch) {
                        self.note_cut(&task, timings);
                        current.phases.note(&task, timings);
                        *current.changed.entry(task.node.clone()).or_default() += bytes;
                        current.entries.insert(task, *entry);
                    }
                }
                Wake::Event(Event::Declined { task, epoch, reason }) => {
                    if attempt.as_ref().is_some_and(|current| current.barrier.epoch == epoch) {
                        let reason = format!("{task} could not store its state: {reason}");
                        metrics.checkpoint.failed(FailureReason::Declined);
                        self.fail(attempt.take(), &mut failures, &reason)?;
                        next_tick = self.next_tick(None);
                    }
                }
                Wake::TimedOut => {
                    metrics.checkpoint.failed(FailureReason::Timeout);
                    let reason = self.missing(attempt.as_ref());
                    self.fail(attempt.take(), &mut failures, &reason)?;
                    next_tick = self.next_tick(None);
                }
                Wake::Upgrade => {
                    let now = self.job.clock.elapsed();
                    if let Some(verdict) = self.desk.upgrade.as_mut().map(|upgrade| upgrade.look(now)) {
                        self.desk.judge_upgrade(verdict);
                    }
                }
                Wake::Call(call) if stopping && matches!(call.request, Request::Upgrade(_)) => {
                    call.answer(Err(Refusal {
                        code: ErrorKind::Job.exit_code(),
                        message: "the job is stopping".into(),
                        help: Some("change the pipeline file, and run it again".into()),
                    }));
                }
                Wake::Call(call) => {
                    let state = match &attempt {
                        _ if stopping => "stopping",
                        Some(_) => "checkpointing",
                        None => "running",
                    };
                    if matches!(call.request, Request::Set(_)) {
                        // Another interval counts from the last checkpoint.
                        self.serve(call, state);
                        next_tick = self.next_tick(Some(last_started));
                    } else if let Some(caller) = self.serve(call, state) {
                        stopping |= matches!(caller.call.request, Request::Stop { .. });
                        callers.push(caller);
                    }
                }
            }
            if let Some(current) = attempt.take_if(|current| current.entries.len() == self.participants.len()) {
                let (barrier, finished, activity) = (current.barrier, current.finished, current.activity);
                let started = current.started;
                let mut phases = current.phases.clone();
                let reported = self.job.clock.elapsed();
                let (completed, waiting) = self.complete(current).await?;
                let manifest = match completed {
                    Ok(manifest) => manifest,
                    Err(reason) => {
                        metrics.checkpoint.failed(FailureReason::Publish);
                        refuse(waiting, barrier.epoch, &reason);
                        self.count_failure(barrier, &mut failures, &reason)?;
                        next_tick = self.next_tick(None);
                        continue;
                    }
                };
                self.completed_upgrade(&manifest);
                failures = 0;
                covered = activity;
                last_started = started;
                // Nothing comes after the last: who asked meanwhile gets that one.
                let late = if barrier.last { std::mem::take(&mut callers) } else { Vec::new() };
                for caller in waiting.into_iter().chain(late) {
                    self.answer(caller, &manifest, barrier.last).await;
                }
                if barrier.last {
                    let epoch = barrier.epoch;
                    return Ok(if finished {
                        Outcome::Finished { epoch, before: false }
                    } else {
                        Outcome::Stopped { epoch }
                    });
                }
                let settings = self.desk.settings.borrow();
                let now = self.job.clock.elapsed();
                (phases.commit, phases.whole) = (now.saturating_sub(reported), now.saturating_sub(started));
                if let Some(warning) = slow.judge(now, settings.interval, &phases) {
                    tracing::warn!(epoch = %barrier.epoch, "{warning}");
                }
                let pause = self.job.clock.elapsed() + settings.min_pause;
                next_tick = (started + settings.interval).max(pause);
            }
        }
    }

    /// When the next checkpoint is due: an interval after `since`, or after now.
    fn next_tick(&self, since: Option<Duration>) -> Duration {
        since.unwrap_or_else(|| self.job.clock.elapsed()) + self.desk.settings.borrow().interval
    }

    /// Serves a request at once, or gives back who has to wait for a checkpoint.
    fn serve(&mut self, call: Call, state: &str) -> Option<Caller> {
        let savepoint = match &call.request {
            Request::Status => {
                let status = Status::of(self.job, Some(self.run), self.desk, state);
                call.answer(Ok(Answer::Status(Box::new(status))));
                return None;
            }
            Request::Set(change) => {
                let answer = self.desk.change(*change);
                call.answer(answer);
                return None;
            }
            Request::Upgrade(_) => {
                self.desk.begin_upgrade(call, &self.job.spec, self.job.clock.elapsed());
                return None;
            }
            Request::Checkpoint => None,
            Request::Savepoint { name } => Some(name.clone()),
            Request::Stop { savepoint } => savepoint.clone(),
        };
        match savepoint.as_deref().map(check_savepoint_name) {
            Some(Err(error)) => {
                call.answer(Err(error.into()));
                None
            }
            _ => Some(Caller { call, savepoint }),
        }
    }

    /// Answers one who waited for a checkpoint that is complete and committed now, and pins it for them first.
    async fn answer(&self, caller: Caller, manifest: &Manifest, last: bool) {
        let Caller { call, savepoint } = caller;
        let epoch = manifest.epoch;
        if let Some(name) = &savepoint {
            match pin(self.run.store(), name, manifest.clone(), self.run.last_seq()).await {
                Ok(_) => tracing::info!(%epoch, name, "savepoint"),
                Err(error) => {
                    tracing::warn!(%epoch, name, %error, "no savepoint was made of the checkpoint");
                    let mut refusal = Refusal::from(error);
                    if last {
                        refusal
                            .message
                            .push_str(&format!("; the job has stopped all the same, with checkpoint {epoch}"));
                    }
                    return call.answer(Err(refusal));
                }
            }
        }
        let answer = match call.request {
            Request::Stop { .. } => Answer::Stopped { epoch, finished: manifest.finished, savepoint },
            _ => Answer::Checkpoint { epoch, savepoint },
        };
        call.answer(Ok(answer));
    }

    /// A checkpoint is complete: an upgrade goes on with it, or is done.
    fn completed_upgrade(&mut self, manifest: &Manifest) {
        let now = self.job.clock.elapsed();
        let upgrade = self.desk.upgrade.as_mut();
        if upgrade.is_some_and(|upgrade| upgrade.completed(manifest, &self.upgrades, now)) {
            self.desk.confirm_upgrade(manifest.epoch, now);
        }
    }

    /// Notes how long the parts of a cut took.
    fn note_cut(&self, task: &TaskId, timings: CutTimings) {
        let numbers = &self.job.metrics.checkpoint;
        let node = self.job.plan.nodes.iter().find(|node| node.name == task.node);
        match node.map(|node| &node.kind) {
            Some(NodeKind::Operator(_)) => numbers.aligned(&task.node, timings.align),
            Some(NodeKind::Sink(_)) => {
                numbers.aligned(&task.node, timings.align);
                numbers.prepared(&task.node, timings.snapshot);
            }
            Some(NodeKind::Source(_)) | None => {}
        }
    }

    /// Waits for whatever comes first.
    async fn next(&mut self, attempt: &Option<Attempt>, tick: Duration, stopping: bool) -> Result<Wake, Error> {
        let (until, wake) = match attempt {
            Some(attempt) => (attempt.started + self.desk.settings.borrow().timeout, Wake::TimedOut),
            None => (tick, Wake::Tick),
        };
        let pause = until.saturating_sub(self.job.clock.elapsed());
        let wants_look = self.desk.upgrade.as_ref().is_some_and(Upgrading::wants_look);
        tokio::select! {
            biased;
            event = self.events.recv() => event.map(Wake::Event).ok_or_else(|| {
                Error::new(ErrorKind::Job, "every task has ended before the job did")
            }),
            // Whoever could ask for a stop is gone: that is treated as asked.
            _ = self.stop.wait_for(|stop| *stop), if !stopping => Ok(Wake::Stop),
            call = self.desk.next() => Ok(Wake::Call(call)),
            () = tokio::time::sleep(LOOK), if wants_look => Ok(Wake::Upgrade),
            () = tokio::time::sleep(pause) => Ok(wake),
        }
    }

    /// Starts an attempt: writes nothing, tells every source.
    fn begin(&mut self, last: bool, finished: bool) -> Result<Attempt, Error> {
        #[cfg(test)]
        if crate::simulation::mutant(crate::simulation::Mutant::FailedOutputDiscarded) {
            self.carry.clear();
        }
        let barrier = Barrier { epoch: self.run.next_epoch(), last, complete: self.parent };
        let activity = self.job.metrics.activity.load(Relaxed);
        let upgrade = self.desk.upgrade.as_mut();
        if let Some(verdict) = upgrade.map(|upgrade| upgrade.attempt_begins(barrier.epoch, last, &self.upgrades)) {
            self.desk.judge_upgrade(verdict);
        }
        for source in &self.barriers {
            // A source that is stuck has as many waiting as failures are tolerated, and one more.
            source.send(barrier).map_err(|_| gone())?;
        }
        tracing::debug!(epoch = %barrier.epoch, last, "checkpoint started");
        let started = self.job.clock.elapsed();
        Ok(Attempt {
            barrier,
            finished,
            started,
            activity,
            entries: BTreeMap::new(),
            changed: BTreeMap::new(),
            callers: Vec::new(),
            phases: Phases::default(),
        })
    }

    /// Gives an attempt up. Too often in a row, or in the last epoch, is a failure of the job.
    fn fail(&mut self, attempt: Option<Attempt>, failures: &mut u32, reason: &str) -> Result<(), Error> {
        let Some(attempt) = attempt else { return Ok(()) };
        refuse(attempt.callers, attempt.barrier.epoch, reason);
        self.count_failure(attempt.barrier, failures, reason)
    }

    fn count_failure(&mut self, barrier: Barrier, failures: &mut u32, reason: &str) -> Result<(), Error> {
        *failures += 1;
        self.job.metrics.checkpoints_failed.fetch_add(1, Relaxed);
        let epoch = barrier.epoch;
        if let Some(verdict) = self.desk.upgrade.as_ref().map(|upgrade| upgrade.attempt_failed(epoch, reason)) {
            self.desk.judge_upgrade(verdict);
        }
        tracing::warn!(%epoch, reason, "checkpoint failed; the next one carries what it would have held");
        let tolerated = self.desk.settings.borrow().tolerated_failures;
        if barrier.last || *failures > tolerated {
            return Err(Error::new(
                ErrorKind::Job,
                format!(
                    "checkpoint {epoch} failed, number {failures} in a row of which {tolerated} are tolerated: {reason}"
                ),
            )
            .help(
                "see what is slow or out of reach; checkpoint.timeout and checkpoint.tolerated_failures set the limits",
            ));
        }
        Ok(())
    }

    fn missing(&self, attempt: Option<&Attempt>) -> String {
        let entries = attempt.map(|attempt| &attempt.entries);
        let missing = self.participants.iter().filter(|task| entries.is_none_or(|e| !e.contains_key(task)));
        let (shown, count) = (missing.clone().take(5).map(TaskId::to_string), missing.clone().count());
        let names = shown.collect::<Vec<_>>().join(", ");
        let timeout = self.desk.settings.borrow().timeout;
        format!("{count} of {} tasks did not report within {timeout:?}: {names}", self.participants.len())
    }

    /// Puts the manifest, then lets the sinks commit. Gives back who waits for it; says why if the store did not take the manifest, and certainly has not got it: then
    /// the attempt has failed, and what its sinks staged waits for the next.
    async fn complete(&mut self, mut attempt: Attempt) -> Result<(Result<Manifest, String>, Vec<Caller>), Error> {
        let epoch = attempt.barrier.epoch;
        let (started, slowest) = (attempt.started, attempt.phases.slowest());
        let callers = std::mem::take(&mut attempt.callers);
        let changed = std::mem::take(&mut attempt.changed);
        let bytes: u64 = changed.values().sum();
        let reported = self.job.clock.elapsed();
        let manifest = self.manifest(attempt);
        #[cfg(test)]
        if crate::simulation::mutant(crate::simulation::Mutant::CommitBeforeManifest) {
            self.committers.commit_early(&manifest).await;
        }
        let permit = match self.publish(&manifest).await {
            Ok(permit) => permit,
            Err(PublishError::Failed(error)) if error.kind() == ErrorKind::Store => {
                for node in manifest.nodes.into_iter().filter(|node| !node.committables.is_empty()) {
                    let carried = self.carry.entry(node.name).or_default();
                    carried.splice(0..0, node.committables);
                }
                return Ok((Err(error.to_string()), callers));
            }
            Err(error) => return Err(error.into()),
        };
        let published = self.job.clock.elapsed();
        let took = published.saturating_sub(started);
        let metrics = &self.job.metrics;
        metrics.state_bytes.fetch_add(bytes, Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        metrics.checkpoint_micros.store(micros, Relaxed);
        metrics.checkpoint_micros_max.fetch_max(micros, Relaxed);
        metrics.checkpoint_micros_sum.fetch_add(micros, Relaxed);
        self.committers.commit(self.run, permit, &manifest).await?;
        self.parent = Some(epoch);
        let complete = self.job.clock.elapsed();
        metrics.checkpoint.complete(complete);
        for (phase, took) in [
            (Phase::Align, slowest.align),
            (Phase::Snapshot, slowest.snapshot),
            (Phase::Upload, slowest.upload),
            (Phase::Publish, published.saturating_sub(reported)),
            (Phase::Commit, complete.saturating_sub(published)),
            (Phase::Total, complete.saturating_sub(started)),
        ] {
            metrics.checkpoint.took(phase, took);
        }
        for node in manifest.nodes.iter().filter(|node| node.kind == checkpoint::NodeKind::Operator) {
            let bytes = node.subtasks.iter().flat_map(|subtask| &subtask.segments).map(|segment| segment.bytes).sum();
            metrics.checkpoint.state(&node.name, bytes, changed.get(&node.name).copied().unwrap_or(0));
        }
        metrics.epoch.store(epoch.0, Relaxed);
        metrics.checkpoints.fetch_add(1, Relaxed);
        tracing::debug!(%epoch, ?took, bytes, "checkpoint complete");
        let is_read = self.desk.upgrade.as_ref().is_some_and(Upgrading::needs_packs);
        if manifest.finished || (epoch.0.is_multiple_of(COLLECT_EVERY) && !is_read) {
            let retain = self.desk.settings.borrow().retain;
            match collect(self.run, retain).await {
                Ok(collected) => {
                    metrics.checkpoint.collected(collected.packs, 0);
                    tracing::debug!(?collected, "collected garbage");
                }
                Err(error @ CheckpointError::Superseded { .. }) => return Err(error.into()),
                // What could not be collected now is collected later; the stream does not depend on it.
                Err(error) => tracing::warn!(%error, "garbage was not collected"),
            }
        }
        Ok((Ok(manifest), callers))
    }

    /// Puts the manifest and does not let go of it while its outcome is unknown: its epoch is neither subsumed nor
    /// abandoned until some entry holds its place in the log.
    async fn publish(&mut self, manifest: &Manifest) -> Result<CommitPermit, PublishError> {
        let give_up = self.job.clock.elapsed() + self.desk.settings.borrow().timeout;
        let mut published = self.run.publish(manifest.clone()).await;
        loop {
            match published {
                Ok(permit) => return Ok(permit),
                Err(PublishError::InDoubt { epoch, source }) if self.job.clock.elapsed() < give_up => {
                    tracing::warn!(%epoch, ?source, "whether the manifest was written is not known yet");
                    tokio::time::sleep(DOUBT_DELAY).await;
                    published = self.run.resolve().await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn manifest(&mut self, mut attempt: Attempt) -> Manifest {
        let epoch = attempt.barrier.epoch;
        let job = self.job;
        let schedules = attempt.entries.values_mut().map(|entry| &mut entry.schedule);
        let dropped = schedule::fit(schedules, SCHEDULES_BYTES_MAX);
        if dropped > 0 {
            tracing::warn!(%epoch, dropped, "schedules are too long for a manifest: this epoch cannot be replayed");
        }
        let nodes = job.plan.nodes.iter().map(|node| {
            let code = self.desk.code_of(&node.name, epoch);
            let mut committables = self.carry.remove(&node.name).unwrap_or_default();
            committables.sort_by_key(|staged| (staged.epoch, staged.subtask));
            NodeEntry {
                name: node.name.clone(),
                kind: match node.kind {
                    NodeKind::Source(_) => checkpoint::NodeKind::Source,
                    NodeKind::Operator(_) => checkpoint::NodeKind::Operator,
                    NodeKind::Sink(_) => checkpoint::NodeKind::Sink,
                },
                parallelism: node.parallelism,
                plugin: code.map(|code| PluginEntry {
                    digest: code.digest,
                    name: code.descriptor.name.clone(),
                    version: code.descriptor.version.clone(),
                    state_version: code.descriptor.state_version,
                    image: code.image,
                }),
                subtasks: (0..node.parallelism)
                    .filter_map(|subtask| attempt.entries.remove(&TaskId { node: node.name.clone(), subtask }))
                    .collect(),
                grants: match node.kind {
                    NodeKind::Operator(index) => job.spec.operators[index].grants.words(),
                    NodeKind::Source(_) | NodeKind::Sink(_) => Vec::new(),
                },
                committables,
            }
        });
        Manifest {
            job: job.spec.name.clone(),
            job_id: self.run.job_id(),
            epoch,
            generation: self.run.generation(),
            parent: self.parent,
            created_at: job.clock.now(),
            finished: attempt.finished,
            key_groups: job.spec.key_groups,
            pipeline: *blake3::hash(job.text.as_bytes()).as_bytes(),
            nodes: nodes.collect(),
        }
    }
}

/// Tells those who waited for a checkpoint that it failed.
fn refuse(callers: Vec<Caller>, epoch: Epoch, reason: &str) {
    for caller in callers {
        caller.call.answer(Err(Refusal {
            code: ErrorKind::Job.exit_code(),
            message: format!("checkpoint {epoch} failed: {reason}"),
            help: Some("ask again; the next checkpoint carries what this one would have held".into()),
        }));
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Job, "a task has ended before the job did")
}

impl std::fmt::Debug for Coordinator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator").field("participants", &self.participants).finish_non_exhaustive()
    }
}

/// Notes in the numbers of a job that it starts over.
pub(super) fn note_restart(metrics: &JobMetrics) {
    metrics.restarts.fetch_add(1, Relaxed);
}
