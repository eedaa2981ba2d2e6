//! Starts a job's tasks, watches them end, and starts over from the last checkpoint or gives up.
//!
//! Every start claims the job anew, also in the same process: that fences whatever an earlier run still has on its way. The
//! first failure ends its siblings, and the error that is shown is the one that came first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::commit::Committers;
use super::compat::{Fate, Fit};
use super::control::{Answer, Call, Change, Changed, Refusal, Request, Status};
use super::coordinator::{Coordinator, note_restart};
use super::upgrade::{Upgrade, Upgrading, Verdict};
use super::{Job, Outcome, RunOptions};
use crate::account::Account;
use crate::checkpoint::{Begun, Manifest, Run, Start, begin, look_for};
use crate::connector;
use crate::error::{Error, ErrorKind};
use crate::flow::{Blueprint, FlowContext, OperatorCode, TaskError, Tasks, UploadBudget};
use crate::metrics::JobMetrics;
use crate::model::{Epoch, NodeName, TaskId};
use crate::plan::{CheckpointSpec, NodeKind, PipelineSpec};

/// How long siblings of a failed task have to end by themselves before they are aborted: one of them may hold the cause.
const GRACE: Duration = Duration::from_secs(2);

/// How many bytes of state all subtasks together may have in the manifest itself: it is one small object.
const INLINE_BYTES_MAX: u64 = 8 << 20;

/// Runs a job, and restarts it as its settings say.
pub(super) async fn run(job: &Job, options: RunOptions) -> Result<Outcome, Error> {
    let settings = &job.spec.restart;
    let RunOptions { mut start, drop_state, mut stop, requests } = options;
    let mut dropped = Dropped { names: &drop_state, at: None };
    // What is changed on the live job holds over its restarts, and ends with the process.
    let settings_now = watch::Sender::new(job.spec.checkpoint.clone());
    let mut desk = Desk {
        requests,
        is_open: true,
        settings: settings_now,
        code: job.code.clone(),
        upgrade: None,
        metrics: Arc::clone(&job.metrics),
    };
    let mut first = true;
    let mut in_a_row = 0;
    let mut before: Option<Run> = None;
    loop {
        let complete = job.metrics.checkpoints.load(Relaxed);
        let error = match run_once(job, start, (&mut dropped, first), stop.clone(), &mut desk, &mut before).await {
            Ok(outcome) => return Ok(outcome),
            // What the new version of an operator did is no reason to end while the old one is there.
            Err(Failure::Final(error)) if error.kind() != ErrorKind::Superseded && desk.may_take_back() => error,
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::MayPass(error)) => error,
        };
        let takes_back = desk.job_failed(&error);
        first = false;
        // With a claim, `--fresh` and `--from` are in the log: a restart goes on with what they began.
        if before.is_some() {
            start = Start::Resume;
        }
        if job.metrics.checkpoints.load(Relaxed) > complete {
            in_a_row = 0;
        }
        if *stop.borrow() {
            return Err(error);
        }
        if in_a_row >= settings.attempts && !takes_back {
            return Err(Error::new(
                ErrorKind::Job,
                format!("job {:?} is given up after {in_a_row} restarts without a checkpoint", job.spec.name),
            )
            .help(error.remedy().unwrap_or("mend the cause and run it again: it goes on from its last checkpoint"))
            .caused_by(error));
        }
        let pause = match takes_back {
            true => Duration::ZERO,
            false => settings.delay.saturating_mul(2u32.saturating_pow(in_a_row)).min(settings.max_delay),
        };
        in_a_row += 1;
        note_restart(&job.metrics);
        tracing::warn!("{}", error.report());
        tracing::warn!(attempt = in_a_row, of = settings.attempts, ?pause, "restarting from the last checkpoint");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(_) = stop.wait_for(|stop| *stop) => return Err(error),
            () = desk.while_it_restarts(job) => return Err(error),
        }
    }
}

/// Nodes whose state is given up. For those that stay it is given up once: what they have gathered since is theirs.
struct Dropped<'a> {
    names: &'a BTreeSet<NodeName>,
    /// The checkpoint that this process began with.
    at: Option<Epoch>,
}

impl Dropped<'_> {
    /// Those whose state in a checkpoint of that epoch is given up.
    fn of(&self, epoch: Epoch, job: &Job) -> BTreeSet<NodeName> {
        let is_first = self.at.is_none_or(|at| at == epoch);
        let stays = |name: &NodeName| job.plan.nodes.iter().any(|node| node.name == *name);
        self.names.iter().filter(|name| is_first || !stays(name)).cloned().collect()
    }
}

/// Where requests come in, and the settings that they may change.
pub(super) struct Desk {
    requests: mpsc::Receiver<Call>,
    /// Somebody may still ask.
    is_open: bool,
    /// The settings in force.
    pub(super) settings: watch::Sender<CheckpointSpec>,
    /// The code of each operator, with what was upgraded since the job began.
    pub(super) code: BTreeMap<NodeName, OperatorCode>,
    /// The upgrade that is under way. It outlives the run in which it has swapped.
    pub(super) upgrade: Option<Upgrading>,
    metrics: Arc<JobMetrics>,
}

impl Desk {
    /// The next request. Never returns when nobody can ask any more.
    pub(super) async fn next(&mut self) -> Call {
        if self.is_open
            && let Some(call) = self.requests.recv().await
        {
            return call;
        }
        self.is_open = false;
        std::future::pending().await
    }

    /// Answers while there is no coordinator. Returns when the job is asked to stop.
    async fn while_it_restarts(&mut self, job: &Job) {
        loop {
            let call = self.next().await;
            let later = |code| Refusal {
                code,
                message: "the job has failed and is about to start over".into(),
                help: Some("see its log; ask again when `weir status` says that it is running".into()),
            };
            match call.request {
                Request::Status => {
                    let status = Status::of(job, None, self, "restarting");
                    call.answer(Ok(Answer::Status(Box::new(status))));
                }
                Request::Set(change) => {
                    let answer = self.change(change);
                    call.answer(answer);
                }
                Request::Stop { .. } => {
                    call.answer(Err(Refusal {
                        message: "the job has failed and was about to start over: it stops without another checkpoint"
                            .into(),
                        help: Some("nothing is lost: the next run goes on from the last complete checkpoint".into()),
                        ..later(1)
                    }));
                    return;
                }
                Request::Checkpoint | Request::Savepoint { .. } | Request::Upgrade(_) => call.answer(Err(later(1))),
            }
        }
    }

    /// Changes settings.
    pub(super) fn change(&self, change: Change) -> Result<Answer, Refusal> {
        let mut settings = self.settings.borrow().clone();
        let changed = change.apply(&mut settings)?;
        for Changed { setting, old, new } in &changed {
            tracing::info!(setting, old, new, "changed until this process ends");
        }
        self.settings.send_replace(settings);
        Ok(Answer::Set { changed })
    }

    /// Begins an upgrade, or answers why not.
    pub(super) fn begin_upgrade(&mut self, mut call: Call, spec: &PipelineSpec, now: Duration) {
        let (Request::Upgrade(request), Some(code)) = (&call.request, call.code.take()) else {
            let (message, help) =
                ("an upgrade was asked for without code".into(), Some("load the plugin first".into()));
            return call.answer(Err(Refusal { code: ErrorKind::Usage.exit_code(), message, help }));
        };
        if let Some(upgrade) = &self.upgrade {
            let message =
                format!("node {:?} is being upgraded, and one upgrade is made at a time", upgrade.node().as_str());
            let help = Some("wait until it is done: `weir status` says how far it is".into());
            return call.answer(Err(Refusal { code: ErrorKind::Job.exit_code(), message, help }));
        }
        let wish = Upgrade {
            node: NodeName::new(request.node.as_str()),
            code: *code,
            shadow: request.shadow_us.map(Duration::from_micros),
            canary: request.canary,
            catch_up: request.catch_up_us.map(Duration::from_micros),
        };
        self.upgrade = Upgrading::begin(wish, call, (&self.code, spec), now);
    }

    /// Carries out what was decided about the upgrade.
    pub(super) fn judge_upgrade(&mut self, verdict: Verdict) {
        if let Verdict::GiveUp(reason) = verdict
            && let Some(upgrade) = self.upgrade.take()
        {
            self.metrics.upgrades_given_up.fetch_add(1, Relaxed);
            upgrade.give_up(&reason);
        }
    }

    /// A checkpoint holds the new version.
    pub(super) fn confirm_upgrade(&mut self, epoch: Epoch, now: Duration) {
        if let Some(upgrade) = self.upgrade.take() {
            self.metrics.upgrades_completed.fetch_add(1, Relaxed);
            let (node, code) = upgrade.confirm(epoch, now);
            self.code.insert(node, code);
        }
    }

    /// The code of a node in the checkpoint with this number.
    pub(super) fn code_of(&self, node: &NodeName, epoch: Epoch) -> Option<&OperatorCode> {
        let new = self.upgrade.as_ref().and_then(|upgrade| upgrade.code_of(node, epoch));
        new.or_else(|| self.code.get(node))
    }

    /// A task failed: an upgrade that has swapped wants to know which.
    fn failed(&mut self, error: TaskError) -> Failure {
        let task = error.task().cloned();
        let failure = Failure::from(error);
        if let Some(upgrade) = self.upgrade.as_mut().filter(|upgrade| upgrade.has_swapped()) {
            let (Failure::MayPass(error) | Failure::Final(error)) = &failure;
            upgrade.note_failure(task.as_ref(), error.chain());
        }
        failure
    }

    /// Whether the job is to start over though its failure is for good: an upgrade has to be taken back.
    fn may_take_back(&mut self) -> bool {
        self.upgrade.as_mut().is_some_and(Upgrading::may_take_back)
    }

    /// A run has failed. One upgrade that has not swapped is given up; whether one has that is now taken back.
    fn job_failed(&mut self, error: &Error) -> bool {
        match &mut self.upgrade {
            Some(upgrade) if upgrade.has_swapped() => {
                upgrade.note_failure(None, error.chain());
                true
            }
            Some(_) => {
                self.judge_upgrade(Verdict::GiveUp(format!("the job failed and starts over: {}", error.chain())));
                false
            }
            None => false,
        }
    }

    /// Decides about an upgrade that had swapped when the last run failed, by what that run has in the log: one that a complete checkpoint holds
    /// stays, another one is taken back, and that is in the log before the job starts over.
    async fn settle_upgrade(&mut self, job: &Job, run: &mut Run) -> Result<(), Error> {
        let Some(upgrade) = &self.upgrade else { return Ok(()) };
        match run.tip() {
            Some(tip) if upgrade.is_in(Some(tip)) => self.confirm_upgrade(tip, job.clock.elapsed()),
            tip => {
                if let Some(refused) = upgrade.refused(job.clock.now()) {
                    run.note_refused(refused).await?;
                }
                if let Some(upgrade) = self.upgrade.take() {
                    self.metrics.upgrades_taken_back.fetch_add(1, Relaxed);
                    upgrade.taken_back(tip);
                }
            }
        }
        Ok(())
    }
}

/// Why a run ended badly.
enum Failure {
    /// Starting over may help.
    MayPass(Error),
    /// It would not.
    Final(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Job | ErrorKind::Store => Self::MayPass(error),
            _ => Self::Final(error),
        }
    }
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        if error.may_pass() { Self::MayPass(error.into()) } else { Self::Final(error.into()) }
    }
}

/// One run: claim, recover, work.
///
/// `before` is the run of this process that came before it, and becomes this one. If somebody else has claimed the job since, it
/// is theirs: a restart by itself must not take it back (I7).
async fn run_once(
    job: &Job,
    start: Start,
    (dropped, first): (&mut Dropped<'_>, bool),
    stop: watch::Receiver<bool>,
    desk: &mut Desk,
    before: &mut Option<Run>,
) -> Result<Outcome, Failure> {
    if let Some(before) = before {
        check_fence(before).await?;
        desk.settle_upgrade(job, before).await?;
    }
    let seen = preflight(job, &desk.code, start, dropped).await?;
    // Later it may be dropped already.
    if first {
        seen.check_dropped(dropped.names)?;
    }
    let begun = begin(&job.store, &job.spec.name, start, &job.clock).await.map_err(Error::from);
    let (run, restore, commit_needed) = match begun {
        Ok(Begun::Finished(manifest)) => return Ok(Outcome::Finished { epoch: manifest.epoch, before: true }),
        Ok(Begun::Run { run, restore, commit_needed }) => (run, restore, commit_needed),
        Err(error) => {
            // Its claim may be in the log all the same, and must not be taken for that of somebody else.
            if error.kind() == ErrorKind::Store {
                *before = None;
            }
            return Err(error.into());
        }
    };
    let from = Restored { manifest: restore, commit_needed };
    let worked = work(job, before.insert(run), from, dropped, stop, desk).await;
    if let (Err(_), Some(run)) = (&worked, before) {
        // Whatever failed first: if the job was taken over, this is what there is to say.
        if let Err(error) = check_fence(run).await
            && error.kind() == ErrorKind::Superseded
        {
            return Err(Failure::Final(error));
        }
    }
    worked
}

/// Fails if somebody took over from a run. A manifest that it had sent when it failed is settled first: its epoch is not abandoned, and an entry
/// of the run's own is not taken for that of another.
async fn check_fence(run: &mut Run) -> Result<(), Error> {
    if run.in_doubt().is_some() {
        // Whoever comes next finds it in the log and commits it.
        drop(run.resolve().await?);
    }
    Ok(run.check_fence().await?)
}

/// What a run begins with.
struct Restored {
    manifest: Option<Manifest>,
    /// Not all of its output is known to be published.
    commit_needed: bool,
}

/// Recovers and works, until the end or the first failure.
async fn work(
    job: &Job,
    run: &mut Run,
    restored: Restored,
    dropped: &mut Dropped<'_>,
    stop: watch::Receiver<bool>,
    desk: &mut Desk,
) -> Result<Outcome, Failure> {
    let began = job.clock.elapsed();
    let Restored { manifest: restore, commit_needed } = restored;
    let fit = restore.as_ref().map(|manifest| {
        let drop_state = dropped.of(manifest.epoch, job);
        dropped.at.get_or_insert(manifest.epoch);
        job.fit_with(&desk.code, manifest, commit_needed, &drop_state)
    });
    if let Some(fit) = &fit {
        fit.check()?;
    }
    // What the tip prepared becomes visible before any sink opens; what nobody will ever name goes.
    let committers = Committers::new(job, run.job_id())?;
    if let (Some(manifest), true) = (&restore, commit_needed) {
        tracing::info!(epoch = %manifest.epoch, "the last checkpoint was not committed: committing it now");
        let permit = run.permit_tip().await.map_err(Error::from)?;
        committers.commit(run, permit, manifest).await?;
    }
    if let Some(given_up) = run.given_up() {
        committers.abandon(given_up).await?;
    }
    committers.collect(run).await?;
    // The run that finished the job died between its last checkpoint and the mark of its commit: this was all that was left.
    if let Some(manifest) = restore.as_ref().filter(|manifest| manifest.finished) {
        return Ok(Outcome::Finished { epoch: manifest.epoch, before: true });
    }
    match &restore {
        Some(manifest) => {
            tracing::info!(job = job.spec.name, generation = %run.generation(), epoch = %manifest.epoch, "restored");
            job.metrics.epoch.store(manifest.epoch.0, Relaxed);
            for node in fit.iter().flat_map(|fit| &fit.nodes).filter(|node| node.verdict != Fate::Kept) {
                tracing::info!(node = node.node, reason = node.reason, "its state is {}", node.verdict.word());
            }
        }
        None => tracing::info!(job = job.spec.name, generation = %run.generation(), "started at the beginning"),
    }
    run.store().put_spec(&job.text).await.map_err(Error::from)?;

    let subtasks: usize = job.plan.nodes.iter().map(|node| node.parallelism as usize).sum();
    let (events, event_receiver) = mpsc::channel(4 * subtasks + 16);
    let context = Arc::new(FlowContext {
        generation: run.generation(),
        clock: job.clock.clone(),
        store: run.store().clone(),
        events,
        metrics: Arc::clone(&job.metrics),
        batch: job.spec.batch.clone(),
        uploads: Arc::new(UploadBudget::new(job.spec.checkpoint.upload_memory, job.spec.checkpoint.uploads)),
        inline_bytes_max: job.spec.checkpoint.inline.min(INLINE_BYTES_MAX / subtasks.max(1) as u64),
        account: Account::current(),
        tap: None,
    });
    let nothing = BTreeSet::new();
    let blueprint = Blueprint {
        spec: &job.spec,
        plan: &job.plan,
        code: &desk.code,
        job_id: run.job_id(),
        // The claim's base stays the checkpoint as it was written; the tasks get it in the shape of the plan.
        restore: fit.as_ref().map(|fit| &fit.restore),
        full: fit.as_ref().map_or(&nothing, |fit| &fit.full),
        replay: None,
        context,
    };
    let covered = job.metrics.activity.load(Relaxed);
    let Tasks { tasks, barriers, participants, upgrades } = blueprint.build().await?;
    drop(blueprint);
    note_recovery(job, restore.as_ref(), began);
    let coordinator = Coordinator {
        job,
        run,
        committers,
        events: event_receiver,
        barriers,
        participants: participants.into_iter().collect(),
        upgrades,
        carry: BTreeMap::new(),
        parent: restore.as_ref().map(|manifest| manifest.epoch),
        covered,
        stop,
        desk: &mut *desk,
    };
    let mut running = Running::default();
    for (id, task) in tasks {
        running.spawn(id, task);
    }
    let driven = tokio::select! {
        biased;
        failure = running.failed() => Err(failure),
        outcome = coordinator.drive() => Ok(outcome),
    };
    match driven {
        Ok(Ok(outcome)) => {
            running.finish().await?;
            Ok(outcome)
        }
        Ok(Err(error)) => {
            // The coordinator may only have noticed that a task is gone.
            let cause = running.cause().await;
            running.abort().await;
            Err(cause.map_or_else(|| error.into(), |cause| desk.failed(cause)))
        }
        Err(failure) => {
            let cause = if matches!(failure, TaskError::Closed) { running.cause().await } else { None };
            running.abort().await;
            Err(desk.failed(cause.unwrap_or(failure)))
        }
    }
}

/// What a preflight saw.
struct Seen(Option<Fit>);

impl Seen {
    /// Fails if state was to be dropped that is not there to be dropped.
    fn check_dropped(&self, drop_state: &BTreeSet<NodeName>) -> Result<(), Error> {
        match (&self.0, drop_state.first()) {
            (Some(fit), _) => fit.check_dropped(),
            (None, None) => Ok(()),
            (None, Some(name)) => {
                let message =
                    format!("--drop-state names node {:?}, and there is no checkpoint to start from", name.as_str());
                Err(Error::new(ErrorKind::Usage, message).help("leave --drop-state out"))
            }
        }
    }
}

/// Looks at what the run would start from before it claims the job: a pipeline that will be refused must not fence a run that
/// goes well, and a fresh start that has nowhere to write must not leave the old history. What cannot be read is left to the claim, which
/// says what is wrong with it.
async fn preflight(
    job: &Job,
    code: &BTreeMap<NodeName, OperatorCode>,
    start: Start,
    dropped: &Dropped<'_>,
) -> Result<Seen, Error> {
    let name = &job.spec.name;
    let from = match start {
        Start::Fresh => {
            check_unowned(job).await?;
            return Ok(Seen(None));
        }
        Start::From(epoch) => Some(epoch),
        Start::Resume => None,
    };
    match look_for(&job.store, name, from).await {
        Ok(Some(found)) if !(found.manifest.finished && found.committed) => {
            let drop_state = dropped.of(found.manifest.epoch, job);
            let fit = job.fit_with(code, &found.manifest, !found.committed, &drop_state);
            fit.check()?;
            Ok(Seen(Some(fit)))
        }
        _ => Ok(Seen(None)),
    }
}

/// Whether a new history of a job could write to its sinks.
pub(super) async fn check_unowned(job: &Job) -> Result<(), Error> {
    for sink in &job.spec.sinks {
        connector::check_unowned(sink, &job.spec.dir).await.map_err(|e| {
            let error = Error::new(ErrorKind::State, format!("sink {:?} cannot start afresh", sink.name.as_str()));
            match e.help.clone() {
                Some(help) => error.help(help),
                None => error,
            }
            .caused_by(e)
        })?;
    }
    Ok(())
}

/// Notes what was restored, how long it took and how much is read again.
fn note_recovery(job: &Job, restore: Option<&Manifest>, began: Duration) {
    let sources = job.plan.nodes.iter().filter(|node| matches!(node.kind, NodeKind::Source(_)));
    let (mut here, mut restored) = (0, 0);
    for source in sources {
        here += job.metrics.node(&source.name).records_out.load(Relaxed);
        let node = restore.and_then(|manifest| manifest.node(source.name.as_str()));
        restored += node.map_or(0, |node| node.subtasks.iter().map(|subtask| subtask.records).sum());
    }
    let (numbers, now) = (&job.metrics.checkpoint, job.clock.elapsed());
    numbers.begins(here, restored);
    numbers.complete(now);
    if restore.is_some() {
        numbers.recovered(now.saturating_sub(began));
    }
}

/// The tasks of a run, by name.
#[derive(Default)]
struct Running {
    tasks: JoinSet<Result<(), TaskError>>,
    names: BTreeMap<tokio::task::Id, TaskId>,
}

impl Running {
    fn spawn(&mut self, id: TaskId, task: impl Future<Output = Result<(), TaskError>> + Send + 'static) {
        // What a task logs is its job's.
        let handle = self.tasks.spawn(Account::run_under(Account::current(), task).in_current_span());
        self.names.insert(handle.id(), id);
    }

    /// The next task that ends badly. Never returns while tasks end well.
    async fn failed(&mut self) -> TaskError {
        loop {
            match self.next().await {
                Some(Err(error)) => return error,
                Some(Ok(())) => {}
                None => std::future::pending().await,
            }
        }
    }

    async fn next(&mut self) -> Option<Result<(), TaskError>> {
        Some(match self.tasks.join_next().await? {
            Ok(result) => result,
            Err(join) => {
                let task = self.names.get(&join.id()).cloned();
                let task = task.unwrap_or_else(|| TaskId { node: crate::model::NodeName::new("?"), subtask: 0 });
                Err(TaskError::Panic { task, what: join.to_string() })
            }
        })
    }

    /// Looks for the error that made the others end, for a short while.
    async fn cause(&mut self) -> Option<TaskError> {
        let search = async {
            while let Some(result) = self.next().await {
                match result {
                    Ok(()) | Err(TaskError::Closed) => {}
                    Err(error) => return Some(error),
                }
            }
            None
        };
        tokio::time::timeout(GRACE, search).await.ok().flatten()
    }

    /// Ends all tasks. One that sits in a call to the operating system is not waited for longer than a moment: it is fenced.
    async fn abort(&mut self) {
        self.tasks.abort_all();
        let _ = tokio::time::timeout(GRACE, self.tasks.shutdown()).await;
    }

    /// Waits for tasks that have nothing more to do.
    async fn finish(&mut self) -> Result<(), Failure> {
        while let Some(result) = self.next().await {
            result?;
        }
        Ok(())
    }
}
