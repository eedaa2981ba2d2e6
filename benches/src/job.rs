//! Runs a pipeline with whatever code its operators are, and says what that cost.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use futures::FutureExt;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use weir::checkpoint::{Start, Store};
use weir::clock::Clock;
use weir::flow::OperatorCode;
use weir::job::{Job, Outcome};
use weir::metrics::JobMetrics;
use weir::model::NodeName;
use weir::plan::{LimitsSpec, Plan, parse};
use weir::plugin::{HostOptions, PluginHost};

/// What a run cost.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Records that the sources made.
    pub records: u64,
    /// Records that came to the sinks.
    pub output: u64,
    /// User and system time of all threads, in microseconds.
    pub cpu_micros: u64,
    /// Wall-clock time, in microseconds.
    pub wall_micros: u64,
    /// The most memory that the process ever had, in bytes.
    pub peak_bytes: u64,
    /// Checkpoints that were completed, the last one included.
    pub checkpoints: u64,
    /// From the start of a checkpoint to its manifest, in microseconds: the longest, and all together.
    pub checkpoint_micros_max: u64,
    /// See above.
    pub checkpoint_micros_sum: u64,
    /// Bytes of state that were written.
    pub state_bytes: u64,
}

impl Measured {
    /// CPU time for each record, in microseconds.
    pub fn cpu_per_record(&self) -> f64 {
        self.cpu_micros as f64 / self.records.max(1) as f64
    }
}

/// The only subtask of a node, for benches that call an operator without a job.
pub fn task() -> weir::model::TaskInfo {
    weir::model::TaskInfo {
        job: "bench".into(),
        node: "op".into(),
        subtask: 0,
        parallelism: 1,
        key_groups: 128,
        groups: 0..128,
        seed: 0,
    }
}

/// The code of a component, with a configuration.
///
/// # Panics
///
/// If it cannot be loaded.
pub async fn guest(component: &[u8], config: &str) -> OperatorCode {
    guest_with(component, config, LimitsSpec::default()).await
}

/// The same with other limits.
pub(crate) async fn guest_with(component: &[u8], config: &str, limits: LimitsSpec) -> OperatorCode {
    let cache_dir = std::env::temp_dir().join("weir-benches-compiled");
    let host = PluginHost::new(HostOptions { cache_dir: Some(cache_dir), ..HostOptions::default() }).expect("a host");
    let plugin = host.load(component).await.expect("the component loads");
    let config: serde_json::Value = serde_json::from_str(config).expect("a configuration");
    OperatorCode {
        descriptor: plugin.descriptor().clone(),
        digest: *blake3::hash(component).as_bytes(),
        image: plugin.takes_images().then_some(weir::plugin::IMAGE_VERSION),
        open: Arc::new(move |task| {
            let (plugin, config, limits) = (plugin.clone(), config.clone(), limits.clone());
            async move { plugin.open(&limits, &config, &task).await }.boxed()
        }),
    }
}

/// Runs a pipeline to its end in a folder, with this code for its operators.
///
/// # Panics
///
/// If it does not end well.
pub async fn run(text: &str, folder: &Path, code: BTreeMap<NodeName, OperatorCode>) -> Measured {
    let spec = parse(text, &folder.join("bench.toml")).unwrap_or_else(|e| panic!("{e}"));
    let descriptors = code.iter().map(|(name, code)| (name.clone(), code.descriptor.clone())).collect();
    let plan = Plan::build(&spec, &descriptors).unwrap_or_else(|e| panic!("{e}"));
    let store = Store::open(&spec.checkpoint.store, folder).expect("a store");
    let metrics = Arc::new(JobMetrics::new(plan.nodes.iter().map(|node| node.name.clone())));
    let clock = Clock::system();
    let job = Job { spec, plan, code, text: text.to_owned(), store, clock: clock.clone(), metrics };
    let (_stop, stopped) = watch::channel(false);
    let (cpu, wall) = (cpu_micros(), clock.elapsed());
    let outcome = job.run(Start::Fresh, stopped).await.unwrap_or_else(|e| panic!("{}", e.report()));
    let (cpu_micros, wall) = (cpu_micros() - cpu, clock.elapsed() - wall);
    assert!(matches!(outcome, Outcome::Finished { before: false, .. }), "{outcome:?}");
    let sum = |nodes: &mut dyn Iterator<Item = &NodeName>| {
        nodes.map(|name| job.metrics.node(name).records_in.load(Relaxed)).sum::<u64>()
    };
    Measured {
        records: sum(&mut job.spec.sources.iter().map(|source| &source.name)),
        output: sum(&mut job.spec.sinks.iter().map(|sink| &sink.name)),
        cpu_micros,
        wall_micros: u64::try_from(wall.as_micros()).unwrap_or(u64::MAX),
        peak_bytes: peak_bytes(),
        checkpoints: job.metrics.checkpoints.load(Relaxed),
        checkpoint_micros_max: job.metrics.checkpoint_micros_max.load(Relaxed),
        checkpoint_micros_sum: job.metrics.checkpoint_micros_sum.load(Relaxed),
        state_bytes: job.metrics.state_bytes.load(Relaxed),
    }
}

fn usage() -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::zeroed();
    // SAFETY: the pointer is valid for a whole `rusage`, and all-zero bytes are one, should the call fail.
    unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    }
}

fn cpu_micros() -> u64 {
    let usage = usage();
    let micros = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
    (micros(usage.ru_utime) + micros(usage.ru_stime)).cast_unsigned()
}

/// Linux counts in KiB.
pub(crate) fn peak_bytes() -> u64 {
    usage().ru_maxrss.cast_unsigned() * 1024
}
