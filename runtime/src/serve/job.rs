//! A job of a tenant: what it is to be, what runs of it now, and how it ended.
//!
//! ```text
//! starting ──► running ──► stopping ──► stopped        somebody asked; everything up to there is committed
//!    ▲            │  └───────────────► finished        every source has ended
//!    │            ▼
//!    └────────  waiting                                 its restarts are used up, or the store is away: again after a pause that grows
//!                 └──► failed                           starting over would not help: somebody has to change something
//! superseded                                            another process has claimed it
//! ```
//!
//! Changes of a job come one after the other. The record is written first, so what is asked survives the server; then it is done.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tracing::Instrument as _;

use super::Inner;
use super::desired::{JobRecord, Origin, Want};
use super::fault::{Fault, FaultKind};
use super::journal::{Journal, Ring};
use super::load::{self, Code, Loaded};
use super::tenant::Tenant;
use super::upgrade::settled;
use crate::checkpoint::{Series, Start, Store, histories, look_for};
use crate::error::{Error, ErrorKind};
use crate::job::{Control, Job, Outcome, RunOptions};
use crate::metrics::{JobMetrics, NodeMetrics};
use crate::model::{Epoch, NodeName};
use crate::plan::Plan;

/// The pause before a job that has used up its restarts is started again: the first, and the longest.
const PAUSE: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Where a job is: see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Its code is loaded, its state restored.
    Starting,
    /// It runs, or starts over by itself.
    Running,
    /// It takes its last checkpoint.
    Stopping,
    /// It stands still, as asked.
    Stopped,
    /// Every source has ended, and everything is committed.
    Finished,
    /// It is started again after a pause.
    Waiting,
    /// Starting over would not help.
    Failed,
    /// Another process has claimed it.
    Superseded,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Starting,
        Self::Running,
        Self::Stopping,
        Self::Stopped,
        Self::Finished,
        Self::Waiting,
        Self::Failed,
        Self::Superseded,
    ];

    /// As people and labels say it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Superseded => "superseded",
        }
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// See the module.
#[derive(Debug)]
pub struct JobHandle {
    /// Whose it is.
    pub tenant: String,
    /// Its name.
    pub name: String,
    pub(super) series: Series,
    /// One change at a time.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// One savepoint at a time.
    pub(super) saving: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// What it logs.
    pub ring: Arc<Ring>,
}

#[derive(Debug)]
pub(super) struct State {
    /// The revision of the record.
    pub(super) number: u64,
    pub(super) record: Arc<JobRecord>,
    pub(super) phase: Phase,
    /// Why it is not what it is to be.
    pub(super) fault: Option<Fault>,
    /// How many subtasks it has or would have.
    pub(super) subtasks: u64,
    /// The state in the newest checkpoint of a job of which nothing has run yet, in bytes.
    pub(super) resting_bytes: Option<u64>,
    /// Its graph, as it was loaded last.
    pub(super) plan: Option<Arc<Plan>>,
    pub(super) run: Option<Run>,
    /// When it was started again for the last time, how often in all, and the numbers of before.
    pub(super) samples: Samples,
}

/// A run of it.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// None while it is loaded or waits.
    pub(super) control: Option<Control>,
    pub(super) metrics: Arc<JobMetrics>,
    /// What it sends to the store; none before it is loaded.
    pub(super) store: Option<Store>,
    stop: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
}

/// What each node had counted at two moments, for rates.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    pub(super) before: Option<Sample>,
    pub(super) last: Option<Sample>,
}

/// What was counted at a moment: records in and out, and how long it was held up, of each node.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) nodes: Vec<Counted>,
}

/// What a node had counted.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) node: NodeName,
    pub(super) read: u64,
    pub(super) written: u64,
    pub(super) waited_micros: u64,
}

impl JobHandle {
    pub(super) fn new(tenant: &str, name: &str, series: Series, number: u64, record: JobRecord) -> Arc<Self> {
        let phase = if record.want == Want::Run { Phase::Starting } else { Phase::Stopped };
        let state = State {
            number,
            record: Arc::new(record),
            phase,
            fault: None,
            subtasks: 0,
            resting_bytes: None,
            plan: None,
            run: None,
            samples: Samples::default(),
        };
        let ring = Journal::of_process().ring(tenant, name);
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        Arc::new(Self {
            tenant,
            name,
            series,
            changing: tokio::sync::Mutex::default(),
            saving: tokio::sync::Mutex::default(),
            state: Mutex::new(state),
            ring,
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is to be.
    pub fn record(&self) -> Arc<JobRecord> {
        Arc::clone(&self.state().record)
    }

    /// Where it is.
    pub fn phase(&self) -> Phase {
        self.state().phase
    }

    /// Whether something of it runs, or waits to.
    pub(super) fn is_active(&self) -> bool {
        self.state().run.as_ref().is_some_and(|run| !*run.ended.borrow())
    }

    /// Its state in its newest complete checkpoint, in bytes, as far as it is known.
    pub(super) fn state_bytes(&self) -> u64 {
        let (run, resting) = {
            let state = self.state();
            (state.run.clone(), state.resting_bytes)
        };
        let running = |run: Run| run.metrics.nodes().map(|(node, _)| run.metrics.checkpoint.state_bytes_of(node)).sum();
        run.map_or(0, running).max(resting.unwrap_or(0))
    }

    /// Whether nobody has looked yet how much state it has.
    pub(super) fn is_unweighed(&self) -> bool {
        let state = self.state();
        state.run.is_none() && state.resting_bytes.is_none()
    }

    /// Looks how much state a job has that has not run since the server started.
    pub(super) async fn weigh(&self, store: &Store) -> Result<(), Fault> {
        let found = match look_for(store, &self.name, None).await.map_err(Fault::from) {
            Err(fault) if fault.kind == FaultKind::Unavailable => return Err(fault),
            // What is damaged is not looked at again and again.
            found => found.ok().flatten(),
        };
        let bytes = found.map_or(0, |found| found.manifest.segments().map(|segment| segment.bytes).sum());
        self.state().resting_bytes = Some(bytes);
        Ok(())
    }

    /// Whether it is still there for whoever has waited for their turn.
    pub(super) fn check_alive(&self, tenant: &Tenant) -> Result<(), Fault> {
        tenant.check_alive()?;
        if !self.record().deleting {
            return Ok(());
        }
        Err(Fault::new(FaultKind::Conflict, format!("job {:?} is being deleted", self.name))
            .help("deploy it again when it is gone"))
    }

    /// Notes why it does not run.
    pub(super) fn note(&self, fault: Fault) {
        self.state().fault = Some(fault);
    }

    /// Whether its subtasks count: it is to run, and has not finished.
    pub(super) fn is_counted(&self) -> bool {
        let state = self.state();
        state.record.want == Want::Run && state.phase != Phase::Finished
    }

    /// Changes what it is to be: durable when it returns. Whoever calls it holds `changing`.
    pub(super) async fn write(&self, record: JobRecord) -> Result<(), Fault> {
        let number = self.state().number;
        let number = record.write(&self.series, number).await?;
        let mut state = self.state();
        (state.number, state.record) = (number, Arc::new(record));
        Ok(())
    }

    /// The run, if it can be asked.
    pub(super) fn control(&self) -> Result<Control, Fault> {
        let state = self.state();
        state.run.as_ref().and_then(|run| run.control.clone()).ok_or_else(|| {
            Fault::new(FaultKind::Conflict, format!("job {:?} is {} and does not run", self.name, state.phase))
                .help("start it, and see its status: `weir status`")
        })
    }

    /// Tells it to stop, without asking for an answer.
    pub(super) fn tell_to_stop(&self) {
        if let Some(run) = &self.state().run {
            run.stop.send_replace(true);
        }
    }

    /// Waits until nothing of it runs.
    pub(super) async fn ended(&self) {
        let ended = self.state().run.as_ref().map(|run| run.ended.clone());
        if let Some(mut ended) = ended {
            // A sender that is gone has ended, too.
            let _ = ended.wait_for(|ended| *ended).await;
        }
    }

    /// Notes what was counted until now.
    pub(super) fn sample(&self, now: Duration) {
        let mut state = self.state();
        let Some(run) = &state.run else { return };
        let counted = |(node, metrics): (&NodeName, &NodeMetrics)| Counted {
            node: node.clone(),
            read: metrics.records_in.load(Relaxed),
            written: metrics.records_out.load(Relaxed),
            waited_micros: metrics.waited_micros.load(Relaxed),
        };
        let nodes = run.metrics.nodes().map(counted).collect();
        let sample = Sample { at: now, nodes };
        state.samples.before = state.samples.last.replace(sample);
    }

    fn set(&self, phase: Phase, fault: Option<Fault>) {
        let mut state = self.state();
        (state.phase, state.fault) = (phase, fault);
    }
}

/// Starts what is to run of a job, in a task of its own. Whoever calls it holds `changing`, and nothing of the job is active.
pub(super) fn start(inner: &Arc<Inner>, tenant: &Arc<Tenant>, handle: &Arc<JobHandle>, loaded: Option<Loaded>) {
    let (stop, stopped) = watch::channel(false);
    let (end, ended) = watch::channel(false);
    {
        let mut state = handle.state();
        let metrics = loaded.as_ref().map_or_else(
            || Arc::new(JobMetrics::new(std::iter::empty::<NodeName>())),
            |loaded| Arc::clone(&loaded.job.metrics),
        );
        state.run = Some(Run { control: None, metrics, store: None, stop, ended });
        (state.phase, state.fault, state.samples) = (Phase::Starting, None, Samples::default());
        // From now on its own numbers count.
        state.resting_bytes = None;
    }
    let span = Journal::span(&tenant.name, &handle.name);
    let account = tenant.account.clone();
    let (inner, tenant, handle) = (Arc::clone(inner), Arc::clone(tenant), Arc::clone(handle));
    let run = async move {
        // Also if it panics: nobody waits for its end in vain, and it can be started again.
        let _ends = Ends { handle: Arc::clone(&handle), end };
        run(&inner, &tenant, &handle, loaded, stopped).await;
    };
    // All that is done for it is charged to its tenant.
    tokio::spawn(async move { account.run(run).await }.instrument(span));
}

/// Says that a run has ended when it is dropped.
struct Ends {
    handle: Arc<JobHandle>,
    end: watch::Sender<bool>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        {
            let mut state = self.handle.state();
            if let Some(run) = &mut state.run {
                run.control = None;
            }
            if matches!(state.phase, Phase::Starting | Phase::Running | Phase::Stopping | Phase::Waiting) {
                tracing::error!("the job was lost: this is a fault of weir");
                let fault = Fault::new(FaultKind::Internal, "the job was lost by a fault of the server")
                    .help("the server's log has more; start the job again: it goes on from its newest checkpoint");
                (state.phase, state.fault) = (Phase::Failed, Some(fault));
            }
        }
        self.end.send_replace(true);
    }
}

/// Runs a job until it ends for good or is told to stop.
async fn run(
    inner: &Arc<Inner>,
    tenant: &Arc<Tenant>,
    handle: &Arc<JobHandle>,
    mut loaded: Option<Loaded>,
    mut stop: watch::Receiver<bool>,
) {
    let mut pause = PAUSE;
    loop {
        let (fault, may_pass) = match run_once(inner, tenant, handle, loaded.take(), &stop).await {
            Ok(outcome) => {
                let phase = match outcome {
                    Outcome::Finished { .. } => Phase::Finished,
                    Outcome::Stopped { .. } => Phase::Stopped,
                };
                tracing::info!("the job has {phase}");
                return handle.set(phase, None);
            }
            Err(Ended::MayPass(fault)) => (fault, true),
            Err(Ended::ForGood(fault)) => (fault, false),
        };
        tracing::error!(help = fault.help, "{}", fault.message);
        if *stop.borrow() {
            return handle.set(Phase::Stopped, Some(fault));
        }
        if !may_pass {
            let phase = if fault.kind == FaultKind::Conflict { Phase::Superseded } else { Phase::Failed };
            return handle.set(phase, Some(fault));
        }
        handle.set(Phase::Waiting, Some(fault));
        tracing::warn!(?pause, "it is started again after a pause");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => return handle.set(Phase::Stopped, None),
        }
        pause = (pause * 2).min(PAUSE_MAX);
        handle.set(Phase::Starting, None);
    }
}

/// How a run ended badly.
enum Ended {
    /// Starting over may help.
    MayPass(Fault),
    /// It would not.
    ForGood(Fault),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        if fault.kind == FaultKind::Unavailable { Self::MayPass(fault) } else { Self::ForGood(fault) }
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        let may_pass = matches!(error.kind(), ErrorKind::Job | ErrorKind::Store);
        if may_pass { Self::MayPass(error.into()) } else { Self::ForGood(error.into()) }
    }
}

async fn run_once(
    inner: &Arc<Inner>,
    tenant: &Arc<Tenant>,
    handle: &Arc<JobHandle>,
    loaded: Option<Loaded>,
    stop: &watch::Receiver<bool>,
) -> Result<Outcome, Ended> {
    let record = handle.record();
    let loaded = match loaded {
        Some(loaded) => loaded,
        None => {
            let _turn = tenant.starting.acquire().await;
            let record = settled(&tenant.store, &handle.name, &record).await?;
            load::load(inner, tenant, &record.pipeline, Code::Fixed(&record.digests)).await?
        }
    };
    let (start, drop_state) = beginning(&loaded.job, &record).await?;
    let (control, requests) = Control::channel();
    {
        let mut state = handle.state();
        state.subtasks = loaded.subtasks;
        state.plan = Some(Arc::new(loaded.job.plan.clone()));
        if let Some(run) = &mut state.run {
            run.metrics = Arc::clone(&loaded.job.metrics);
            run.store = Some(loaded.job.store.clone());
            run.control = Some(control);
        }
        state.phase = Phase::Running;
    }
    let options = RunOptions { start, drop_state, stop: stop.clone(), requests };
    let ended = loaded.job.run_with(options).await;
    if let Some(run) = &mut handle.state().run {
        run.control = None;
    }
    Ok(ended?)
}

/// Where a job starts, and whose state is given up: what was asked once, unless it is seen to have been done.
async fn beginning(job: &Job, record: &JobRecord) -> Result<(Start, BTreeSet<NodeName>), Fault> {
    let name = &job.spec.name;
    if let Some(Origin::Fresh { histories: before }) = record.origin
        && histories(&job.store, name).await? <= before
    {
        return Ok((Start::Fresh, BTreeSet::new()));
    }
    let asked = matches!(record.origin, Some(Origin::Checkpoint { .. })) || record.drop_state.is_some();
    let newest = if asked { look_for(&job.store, name, None).await? } else { None };
    let is_done = |generation: u64| newest.as_ref().is_some_and(|found| found.manifest.generation.0 > generation);
    let start = match record.origin {
        Some(Origin::Checkpoint { epoch, generation }) if !is_done(generation) => Start::From(Epoch(epoch)),
        _ => Start::Resume,
    };
    let dropped = record.drop_state.as_ref().filter(|dropped| !is_done(dropped.generation));
    let dropped = dropped.map(|dropped| dropped.nodes.iter().map(|name| NodeName::new(name.as_str())).collect());
    Ok((start, dropped.unwrap_or_default()))
}
