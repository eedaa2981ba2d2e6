//! Starts a job's tasks, watches them end, and starts over from the last checkpoint or gives up.
//!
//! Every start claims the job anew, also in the same process: that fences whatever an earlier run still has on its way. The
//! first failure ends its siblings, and the error that is shown is the one that came first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::commit::Committers;
use super::coordinator::{Coordinator, note_restart};
use super::image::image_fits;
use super::{Job, Outcome};
use crate::checkpoint::{Begun, Manifest, Run, Start, begin, history, read_manifest};
use crate::connector;
use crate::error::{Error, ErrorKind};
use crate::flow::{Blueprint, FlowContext, TaskError, Tasks, UploadBudget};
use crate::model::TaskId;
use crate::plan::NodeKind;

/// How long siblings of a failed task have to end by themselves before they are aborted: one of them may hold the cause.
const GRACE: Duration = Duration::from_secs(2);

/// How many bytes of state all subtasks together may have in the manifest itself: it is one small object.
const INLINE_BYTES_MAX: u64 = 8 << 20;

/// Runs a job, and restarts it as its settings say.
pub(super) async fn run(job: &Job, start: Start, mut stop: watch::Receiver<bool>) -> Result<Outcome, Error> {
    let settings = &job.spec.restart;
    let mut start = start;
    let mut in_a_row = 0;
    let mut before: Option<Run> = None;
    loop {
        let complete = job.metrics.checkpoints.load(Relaxed);
        let error = match run_once(job, start, stop.clone(), &mut before).await {
            Ok(outcome) => return Ok(outcome),
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::MayPass(error)) => error,
        };
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
        if in_a_row >= settings.attempts {
            return Err(Error::new(
                ErrorKind::Job,
                format!("job {:?} is given up after {in_a_row} restarts without a checkpoint", job.spec.name),
            )
            .help(error.remedy().unwrap_or("mend the cause and run it again: it goes on from its last checkpoint"))
            .caused_by(error));
        }
        let pause = settings.delay.saturating_mul(2u32.saturating_pow(in_a_row)).min(settings.max_delay);
        in_a_row += 1;
        note_restart(&job.metrics);
        tracing::warn!("{}", error.report());
        tracing::warn!(attempt = in_a_row, of = settings.attempts, ?pause, "restarting from the last checkpoint");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(_) = stop.wait_for(|stop| *stop) => return Err(error),
        }
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
    stop: watch::Receiver<bool>,
    before: &mut Option<Run>,
) -> Result<Outcome, Failure> {
    if let Some(before) = before {
        check_fence(before).await?;
    }
    preflight(job, start).await?;
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
    let worked = work(job, before.insert(run), restore, commit_needed, stop).await;
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

/// Recovers and works, until the end or the first failure.
async fn work(
    job: &Job,
    run: &mut Run,
    restore: Option<Manifest>,
    commit_needed: bool,
    stop: watch::Receiver<bool>,
) -> Result<Outcome, Failure> {
    let began = job.clock.elapsed();
    if let Some(manifest) = &restore {
        check_shape(job, manifest)?;
    }
    // What the tip prepared becomes visible before any sink opens; what nobody will ever name goes.
    let committers = Committers::new(job, run.job_id())?;
    if let (Some(manifest), true) = (&restore, commit_needed) {
        tracing::info!(epoch = %manifest.epoch, "the last checkpoint was not committed: committing it now");
        let permit = run.permit_tip().await.map_err(Error::from)?;
        committers.commit(run, permit, manifest).await?;
    }
    committers.collect(run).await?;
    // The run that finished the job died between its last checkpoint and the mark of its commit: this was all that was left.
    if let Some(manifest) = restore.as_ref().filter(|manifest| manifest.finished) {
        return Ok(Outcome::Finished { epoch: manifest.epoch, before: true });
    }
    match &restore {
        Some(manifest) => {
            tracing::info!(job = job.spec.name, generation = %run.generation(), epoch = %manifest.epoch, "restored");
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
        tap: None,
    });
    let blueprint = Blueprint {
        spec: &job.spec,
        plan: &job.plan,
        code: &job.code,
        job_id: run.job_id(),
        restore: restore.as_ref(),
        replay: None,
        context,
    };
    let covered = job.metrics.activity.load(Relaxed);
    let Tasks { tasks, barriers, participants } = blueprint.build().await?;
    drop(blueprint);
    note_recovery(job, restore.as_ref(), began);
    let coordinator = Coordinator {
        job,
        run,
        committers,
        events: event_receiver,
        barriers,
        participants: participants.into_iter().collect(),
        carry: BTreeMap::new(),
        parent: restore.as_ref().map(|manifest| manifest.epoch),
        covered,
        stop,
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
            Err(cause.map_or_else(|| error.into(), Failure::from))
        }
        Err(failure) => {
            let cause = if matches!(failure, TaskError::Closed) { running.cause().await } else { None };
            running.abort().await;
            Err(cause.unwrap_or(failure).into())
        }
    }
}

/// Looks at what the run would start from before it claims the job: a pipeline that will be refused must not fence a run that
/// goes well, and a fresh start that has nowhere to write must not leave the old history. What cannot be read is left to the claim, which
/// says what is wrong with it.
async fn preflight(job: &Job, start: Start) -> Result<(), Error> {
    let name = &job.spec.name;
    if start == Start::Fresh {
        for sink in &job.spec.sinks {
            connector::check_unowned(sink, &job.spec.dir).map_err(|e| {
                let error = Error::new(ErrorKind::State, format!("sink {:?} cannot start afresh", sink.name.as_str()));
                match e.help.clone() {
                    Some(help) => error.help(help),
                    None => error,
                }
                .caused_by(e)
            })?;
        }
        return Ok(());
    }
    let epoch = match start {
        Start::From(epoch) => Some(epoch),
        _ => {
            let entries = history(&job.store, name).await;
            entries.ok().and_then(|entries| entries.iter().filter_map(|e| e.epoch).max())
        }
    };
    let Some(epoch) = epoch else { return Ok(()) };
    match read_manifest(&job.store, name, epoch).await {
        Ok(manifest) if !manifest.finished => check_shape(job, &manifest),
        _ => Ok(()),
    }
}

/// Whether a checkpoint belongs to this pipeline; each task checks the inside of its own part.
fn check_shape(job: &Job, manifest: &Manifest) -> Result<(), Error> {
    let refuse = |message: String, help: &str| Err(Error::new(ErrorKind::State, message).help(help));
    if manifest.key_groups != job.spec.key_groups {
        return refuse(
            format!(
                "checkpoint {} has {} key groups, and the pipeline has {}: they are fixed for the life of a job",
                manifest.epoch, manifest.key_groups, job.spec.key_groups
            ),
            "set key_groups back, or start anew with --fresh",
        );
    }
    let known = |name: &str| job.plan.nodes.iter().any(|node| node.name.as_str() == name);
    if let Some(lost) = manifest.nodes.iter().find(|node| !known(node.name.as_str())) {
        return refuse(
            format!(
                "checkpoint {} holds state of node {:?}, which the pipeline has no more",
                manifest.epoch,
                lost.name.as_str()
            ),
            "put the node back under that name, or start anew with --fresh",
        );
    }
    for planned in &job.plan.nodes {
        let name = planned.name.as_str();
        let Some(node) = manifest.node(name) else {
            return refuse(
                format!("checkpoint {} holds nothing for node {name:?}", manifest.epoch),
                "take the node out, or start anew with --fresh",
            );
        };
        if let Some(Err(fault)) = job.code.get(&planned.name).map(|code| image_fits(node, code, planned.parallelism)) {
            return refuse(
                format!("checkpoint {}: {fault}", manifest.epoch),
                "run the pipeline as it was when the checkpoint was taken, or start anew with --fresh",
            );
        }
        if node.parallelism != planned.parallelism {
            return refuse(
                format!(
                    "checkpoint {} was taken with parallelism {} of node {name:?}, and the pipeline has {}",
                    manifest.epoch, node.parallelism, planned.parallelism
                ),
                "set the parallelism back, or start anew with --fresh: this version does not move state",
            );
        }
        if let (Some(plugin), Some(code)) = (&node.plugin, job.code.get(&planned.name))
            && plugin.name != code.descriptor.name
        {
            return refuse(
                format!(
                    "checkpoint {} holds the state of plugin {:?} for node {name:?}, and the pipeline has plugin {:?} there",
                    manifest.epoch, plugin.name, code.descriptor.name
                ),
                "use the plugin that wrote the state, give the node another name, or start anew with --fresh",
            );
        }
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
        let handle = self.tasks.spawn(task);
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
