//! Hot upgrades under load: how long the stream stands still while an operator with 100 MB of keyed state gets its
//! next version.
//!
//! One process: every key comes once, then updates of random keys come at a rate, or as fast as they are taken; a
//! checkpoint a second. Then the operator is upgraded again and again, each time when the last is confirmed, to the
//! same component, which is all the same to the mechanism: it is opened anew, restored from a checkpoint, works off
//! what came since, and takes over at a barrier. The pause is what the stage measures, from the barrier sent on until
//! the new instance has taken over.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use weir::checkpoint::{Start, Store};
use weir::clock::Clock;
use weir::job::{Control, Job, RunOptions, Upgrade};
use weir::metrics::JobMetrics;
use weir::model::NodeName;
use weir::plan::{LimitsSpec, Plan, parse};

/// How often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(5);
/// The rate of the paced load, in records a second.
const RATE: u64 = 100_000;

/// What upgrades under one load came to. Times are in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    load: String,
    keys: u64,
    state_bytes: u64,
    upgrades: usize,
    /// Median, 99th percentile and longest.
    pause_millis: [f64; 3],
    /// From the request until it was confirmed: median and longest.
    took_millis: [f64; 2],
    /// Records a second that went through meanwhile.
    records_per_second: f64,
    /// The same before the first upgrade.
    undisturbed_per_second: f64,
    /// Records that both versions worked on.
    compared_records: u64,
    differing_calls: u64,
    /// The most memory that the process ever had.
    peak_bytes: u64,
}

fn pipeline(keys: u64, rate: Option<u64>) -> String {
    let rate = rate.map_or_else(String::new, |rate| format!("rate = {rate}"));
    format!(
        r#"
name = "upgrade"

[checkpoint]
interval = "1s"
timeout = "10m"

[source.fill]
connector = "generator"
records = {keys}
keys = {keys}
distribution = "sequential"
value_bytes = 8

[source.updates]
connector = "generator"
seed = 1
keys = {keys}
value_bytes = 8
{rate}

[operator.work]
plugin = "bench"
inputs = [{{ from = "fill", exchange = "keyed" }}, {{ from = "updates", exchange = "keyed" }}]
limits = {{ memory = "1GiB", state = "1GiB", cpu = "1m", wall = "2m" }}

[sink.dropped]
connector = "blackhole"
inputs = ["work"]
"#
    )
}

/// Upgrades an operator with so many keys of 100 bytes so many times, once under a paced load and once under all that
/// it takes.
///
/// # Panics
///
/// If an upgrade does not go well.
pub async fn measure(folder: &Path, component: &[u8], keys: u64, upgrades: usize) -> Vec<Summary> {
    let mut summaries = Vec::new();
    for rate in [Some(RATE), None] {
        let place = folder.join(if rate.is_some() { "paced" } else { "full" });
        std::fs::create_dir_all(&place).expect("a folder");
        summaries.push(under(&place, component, keys, upgrades, rate).await);
    }
    summaries
}

async fn under(folder: &Path, component: &[u8], keys: u64, upgrades: usize, rate: Option<u64>) -> Summary {
    let (cpu, wall) = (Duration::from_secs(60), Duration::from_secs(120));
    let limits = LimitsSpec { memory_bytes: 1 << 30, state_bytes: 1 << 30, cpu, wall, ..LimitsSpec::default() };
    let next = crate::job::guest_with(component, "{}", limits).await;
    let node = NodeName::new("work");
    let text = pipeline(keys, rate);
    let spec = parse(&text, &folder.join("pipeline.toml")).unwrap_or_else(|e| panic!("{e}"));
    let code = BTreeMap::from([(node.clone(), next.clone())]);
    let descriptors = code.iter().map(|(name, code)| (name.clone(), code.descriptor.clone())).collect();
    let plan = Plan::build(&spec, &descriptors).unwrap_or_else(|e| panic!("{e}"));
    let store = Store::open(&spec.checkpoint.store, folder).expect("a store");
    let metrics = Arc::new(JobMetrics::new(plan.nodes.iter().map(|node| node.name.clone())));
    let clock = Clock::system();
    let job = Job { spec, plan, code, text, store, clock: clock.clone(), metrics: Arc::clone(&metrics) };
    let (stop, stopped) = watch::channel(false);
    let (control, requests) = Control::channel();
    let handle = tokio::spawn(async move {
        let (start, drop_state) = (Start::Fresh, BTreeSet::new());
        job.run_with(RunOptions { start, drop_state, stop: stopped, requests }).await
    });
    let records = |name: &str| metrics.node(&NodeName::new(name)).records_in.load(Relaxed);
    while records("fill") < keys || metrics.checkpoints.load(Relaxed) < 2 {
        assert!(!handle.is_finished(), "the job has ended");
        tokio::time::sleep(LOOK).await;
    }
    // What the operator takes when nothing disturbs it.
    let (before, began) = (records("work"), clock.elapsed());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let undisturbed_per_second = per_second(records("work") - before, clock.elapsed() - began);
    let (before, began) = (records("work"), clock.elapsed());
    let (mut pauses, mut took) = (Vec::new(), Vec::new());
    let (mut compared_records, mut differing_calls) = (0, 0);
    for number in 1..=upgrades {
        let wish = Upgrade { node: node.clone(), code: next.clone(), shadow: None, canary: None, catch_up: None };
        let report = control.upgrade(wish).await.unwrap_or_else(|refusal| panic!("upgrade {number}: {refusal:?}"));
        eprintln!("upgrade {number}: pause {} µs, took {} µs", report.pauses_us[0], report.took_us);
        pauses.extend(report.pauses_us);
        took.push(report.took_us);
        compared_records += report.compared.records;
        differing_calls += report.compared.differing_calls;
    }
    let records_per_second = per_second(records("work") - before, clock.elapsed() - began);
    stop.send_replace(true);
    let outcome = handle.await.expect("the job does not panic");
    assert!(outcome.is_ok(), "{outcome:?}");
    let state_bytes = crate::upgrade::state_bytes(folder).await;
    pauses.sort_unstable();
    took.sort_unstable();
    Summary {
        load: rate.map_or_else(|| "as fast as it is taken".into(), |rate| format!("{rate} records a second")),
        keys,
        state_bytes,
        upgrades,
        pause_millis: [0.5, 0.99, 1.0].map(|of| quantile(&pauses, of)),
        took_millis: [0.5, 1.0].map(|of| quantile(&took, of)),
        records_per_second,
        undisturbed_per_second,
        compared_records,
        differing_calls,
        peak_bytes: crate::job::peak_bytes(),
    }
}

/// The state in the newest checkpoint.
async fn state_bytes(folder: &Path) -> u64 {
    let store = Store::open("file://./.weir", folder).expect("a store");
    let found = weir::checkpoint::look_for(&store, "upgrade", None).await.expect("the log can be read");
    found.map_or(0, |found| found.manifest.segments().map(|segment| segment.bytes).sum())
}

fn per_second(records: u64, time: Duration) -> f64 {
    records as f64 / time.as_secs_f64()
}

/// In milliseconds; the values are in microseconds and sorted.
fn quantile(sorted: &[u64], of: f64) -> f64 {
    let place = ((sorted.len() as f64 * of).ceil() as usize).clamp(1, sorted.len());
    sorted[place - 1] as f64 / 1e3
}

/// The table for people.
pub fn print(summaries: &[Summary]) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for summary in summaries {
        println!(
            "| {} upgrades of {} keys of 100 bytes, {:.0} MiB of state, {} | |",
            summary.upgrades,
            summary.keys,
            mib(summary.state_bytes),
            summary.load
        );
        println!("| --- | --- |");
        let [median, p99, longest] = summary.pause_millis;
        println!(
            "| pause of the stream, median / 99th percentile / longest | {median:.1} / {p99:.1} / {longest:.1} ms |"
        );
        let [median, longest] = summary.took_millis;
        println!("| from the request until it was confirmed, median / longest | {median:.0} / {longest:.0} ms |");
        println!(
            "| records a second meanwhile / before | {:.0} / {:.0} |",
            summary.records_per_second, summary.undisturbed_per_second
        );
        println!(
            "| records that both versions worked on, calls that differed | {}, {} |",
            summary.compared_records, summary.differing_calls
        );
        println!("| most memory of the process | {:.0} MiB |\n", mib(summary.peak_bytes));
    }
}
