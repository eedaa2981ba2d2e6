//! A process of the simulated world: one run of the real job on a runtime of its own, so that it can be stopped for good between any two
//! operations, or be asleep while its clock falls behind and others go on.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::connectors::Place;
use crate::checkpoint::faulty::FaultyStore;
use crate::checkpoint::testing::{Random, keep_savepoint};
use crate::checkpoint::{Start, Store};
use crate::clock::Clock;
use crate::error::Error;
use crate::job::{Control, Job, Outcome, RunOptions, Upgrade};
use crate::metrics::JobMetrics;
use crate::model::NodeName;
use crate::plan::{PipelineSpec, Plan, parse};

/// The shape of a job: the same for all its runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) sources: u32,
    pub(crate) operators: u32,
    pub(crate) sinks: u32,
    pub(crate) retain: u32,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
}

/// How a process ended that was not killed.
pub(crate) enum Ended {
    /// A run of the job.
    Job(Result<Outcome, Error>),
    /// A command beside it.
    Command,
}

/// One process.
pub(crate) struct Process {
    /// None when it is dead.
    runtime: Option<Runtime>,
    handle: JoinHandle<Ended>,
    stop: watch::Sender<bool>,
    pub(crate) store: FaultyStore,
    pub(crate) start: Start,
    /// Up to where it has run, in virtual milliseconds of the world.
    ran_to: u64,
    /// When it wakes up, if it sleeps.
    pub(crate) wakes_at: Option<u64>,
}

impl Shape {
    fn text(&self) -> String {
        let Self { sources, operators, sinks, retain, interval, timeout } = self;
        let (interval, timeout) = (interval.as_millis(), timeout.as_millis());
        // All state is small here: in most jobs it makes packs all the same.
        let inline = if *retain == 3 { "32KiB" } else { "0B" };
        format!(
            r#"name = "job"
key_groups = {groups}
[checkpoint]
interval = "{interval}ms"
timeout = "{timeout}ms"
tolerated_failures = 2
retain = {retain}
inline = "{inline}"
[restart]
attempts = 4
delay = "10ms"
max_delay = "80ms"
[batch]
records = 3
delay = "3ms"
[channel]
batches = 2
[source.read]
connector = "generator"
parallelism = {sources}
[operator.count]
plugin = "simulated"
parallelism = {operators}
inputs = ["read"]
on_reject = "dead-letter"
[sink.main]
connector = "blackhole"
parallelism = {sinks}
inputs = ["count"]
[sink.dead]
connector = "blackhole"
inputs = [{{ from = "count", port = "rejected" }}]
"#,
            groups = super::model::GROUPS,
        )
    }

    fn spec(&self) -> PipelineSpec {
        parse(&self.text(), Path::new("pipeline.toml")).unwrap_or_else(|faults| panic!("{faults}"))
    }
}

impl Process {
    /// Starts one at `now`, in virtual milliseconds.
    pub(crate) fn start(place: &Place, shape: Shape, start: Start, seed: u64, now: u64) -> Self {
        let spec = shape.spec();
        let code = [(NodeName::new(super::books::OPERATOR), super::operator::code(place))].into();
        let code: std::collections::BTreeMap<_, crate::flow::OperatorCode> = code;
        let descriptors = code.iter().map(|(name, code)| (name.clone(), code.descriptor.clone())).collect();
        let plan = Plan::build(&spec, &descriptors).unwrap_or_else(|faults| panic!("{faults}"));
        let metrics = Arc::new(JobMetrics::new(plan.nodes.iter().map(|node| node.name.clone())));
        let runtime = runtime();
        let clock = {
            let _inside = runtime.enter();
            Clock::paused(1_000 * now as i64)
        };
        let job = Job {
            text: shape.text(),
            spec,
            plan,
            code,
            store: Store::new(Arc::new(place.store.clone())).seeded(seed),
            clock,
            metrics,
        };
        let (stop, stopped) = watch::channel(false);
        let (control, requests) = Control::channel();
        let upgrades = upgrades(control, place.clone(), Random(seed ^ UPGRADES));
        let handle = runtime.spawn(async move {
            let options = RunOptions { start, drop_state: BTreeSet::new(), stop: stopped, requests };
            tokio::select! {
                biased;
                outcome = job.run_with(options) => Ended::Job(outcome),
                () = upgrades => Ended::Command,
            }
        });
        Self { runtime: Some(runtime), handle, stop, store: place.store.clone(), start, ran_to: now, wakes_at: None }
    }

    /// Starts a command that makes a savepoint at `now`, holds it so long, and deletes it.
    pub(crate) fn savepoint(store: FaultyStore, hold: Duration, seed: u64, now: u64) -> Self {
        let runtime = runtime();
        let (stop, _) = watch::channel(false);
        let view = Store::new(Arc::new(store.clone())).seeded(seed);
        let name = format!("nightly-{}", store.actor());
        let handle = runtime.spawn(async move {
            drop(keep_savepoint(&view, &name, tokio::time::sleep(hold)).await);
            Ended::Command
        });
        Self { runtime: Some(runtime), handle, stop, store, start: Start::Resume, ran_to: now, wakes_at: None }
    }

    /// Lets it run until the world's clock shows `now`. After a sleep its own clock jumps.
    pub(crate) fn run_to(&mut self, now: u64) {
        let behind = Duration::from_millis(now.saturating_sub(self.ran_to));
        self.ran_to = now;
        super::On::turn_of(self.store.actor());
        if let Some(runtime) = &self.runtime {
            runtime.block_on(async { tokio::time::sleep(behind).await });
        }
    }

    /// The time that passed without it is over, and it has not run: its clock jumps.
    pub(crate) fn jump_to(&mut self, now: u64) {
        let behind = Duration::from_millis(now.saturating_sub(self.ran_to));
        self.ran_to = now;
        super::On::turn_of(self.store.actor());
        if let Some(runtime) = &self.runtime {
            runtime.block_on(async { tokio::time::advance(behind).await });
        }
    }

    /// Asks it to stop.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.send_replace(true);
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<Ended> {
        if !self.handle.is_finished() {
            return None;
        }
        let runtime = self.runtime.as_ref()?;
        Some(runtime.block_on(&mut self.handle).unwrap_or_else(|panic| panic!("the supervisor broke: {panic}")))
    }
}

/// Makes the random numbers of upgrades others than those of the store.
const UPGRADES: u64 = 0x7570_6772_6164_6573;

/// In some processes, now and then: the operator gets its next version, which does the same.
async fn upgrades(control: Control, place: Place, mut random: Random) {
    if !random.chance(350) {
        std::future::pending::<()>().await;
    }
    for number in 1_u64.. {
        tokio::time::sleep(Duration::from_millis(5 + random.below(200))).await;
        let mut code = super::operator::code(&place);
        code.digest[..8].copy_from_slice(&number.to_le_bytes());
        let node = NodeName::new(super::books::OPERATOR);
        let shadow = random.chance(300).then(|| Duration::from_millis(random.below(100)));
        let catch_up = Some(Duration::from_millis(500));
        drop(control.upgrade(Upgrade { node, code, shadow, canary: None, catch_up }).await);
    }
}

fn runtime() -> Runtime {
    let built = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    built.expect("a runtime without threads or I/O can be made")
}
