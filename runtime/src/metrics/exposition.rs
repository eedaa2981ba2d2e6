//! The numbers of a job as text, in the OpenMetrics format that Prometheus reads.
//!
//! Every metric of weir is named here and nowhere else, with its unit and what it means; `docs/metrics.md` lists them, and a test holds the two
//! together. What guests count has the guest's name in a label, never in the name of a metric: a guest cannot invent metrics of ours.

use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};

use super::checkpoint::NodeLabel;
use super::{Durations, JobMetrics, NodeMetrics, StoreMetrics};
use crate::clock::Clock;

/// The media type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A series that a plugin reports.
#[derive(Clone, Debug, PartialEq)]
pub struct GuestSeries {
    /// The node.
    pub node: String,
    /// The subtask.
    pub subtask: u32,
    /// The plugin's own name for it.
    pub name: String,
    /// What it says.
    pub value: GuestValue,
}

/// What a plugin's series says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GuestValue {
    /// A sum of what was counted.
    Counter(u64),
    /// What was set last.
    Gauge(f64),
    /// What was observed: how often, and all of it together.
    Observed(u64, f64),
}

/// A gauge that is no whole number.
type FloatGauge = Gauge<f64, std::sync::atomic::AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GuestLabel {
    node: String,
    subtask: u32,
    name: String,
}

/// The text for one job; on a server with the name of its tenant.
pub fn render(
    (tenant, job): (Option<&str>, &str),
    metrics: &JobMetrics,
    store: &StoreMetrics,
    clock: &Clock,
    guests: &[GuestSeries],
) -> String {
    let labels = tenant.map(|tenant| ("tenant".into(), tenant.to_owned().into()));
    let labels = labels.into_iter().chain([("job".into(), job.to_owned().into())]);
    let mut registry = Registry::with_prefix_and_labels("weir", labels);
    nodes(&mut registry, metrics);
    checkpoints(&mut registry, metrics, clock);
    registry.register_with_unit(
        "store_request_duration",
        "How long the object store took to answer, by operation and outcome",
        Unit::Seconds,
        store.requests.clone(),
    );
    plugins(&mut registry, guests);
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = encode(&mut text, &registry);
    text
}

/// What a server counts beside its jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerNumbers {
    /// Tenants.
    pub tenants: u64,
    /// Jobs, by tenant and by where they are.
    pub jobs: Vec<(String, &'static str, u64)>,
    /// Instances of plugins that live.
    pub instances: u64,
    /// Each tenant with its time on a processor, in seconds, its linear memory and what it wrote to and read from the store, in bytes.
    pub usage: Vec<(String, f64, u64, u64)>,
}

/// The text for the server itself.
pub fn render_server(numbers: &ServerNumbers) -> String {
    #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
    struct StateLabel {
        tenant: String,
        state: &'static str,
    }
    let mut registry = Registry::with_prefix("weir");
    let gauge = |n: u64| ConstGauge::new(i64::try_from(n).unwrap_or(i64::MAX));
    registry.register("server_tenants", "Tenants of the server", gauge(numbers.tenants));
    registry.register("server_instances", "Instances of plugins that live", gauge(numbers.instances));
    let jobs = Family::<StateLabel, Gauge>::default();
    for (tenant, state, count) in &numbers.jobs {
        let label = StateLabel { tenant: tenant.clone(), state };
        jobs.get_or_create(&label).set(i64::try_from(*count).unwrap_or(i64::MAX));
    }
    registry.register("server_jobs", "Jobs of the server, by where they are", jobs);
    #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
    struct TenantLabel {
        tenant: String,
    }
    let cpu = Family::<TenantLabel, Counter<f64, std::sync::atomic::AtomicU64>>::default();
    let memory = Family::<TenantLabel, Gauge>::default();
    let store = Family::<TenantLabel, Counter>::default();
    for (tenant, seconds, memory_bytes, store_bytes) in &numbers.usage {
        let label = TenantLabel { tenant: tenant.clone() };
        cpu.get_or_create(&label).inc_by(*seconds);
        memory.get_or_create(&label).set(i64::try_from(*memory_bytes).unwrap_or(i64::MAX));
        store.get_or_create(&label).inc_by(*store_bytes);
    }
    registry.register_with_unit(
        "tenant_cpu",
        "Time on a processor: plugins, the host's work for them, and compilation",
        Unit::Seconds,
        cpu,
    );
    registry.register_with_unit("tenant_memory", "Linear memory of all instances", Unit::Bytes, memory);
    registry.register_with_unit(
        "tenant_store",
        "What was written to and read from the object store",
        Unit::Bytes,
        store,
    );
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = encode(&mut text, &registry);
    text
}

/// One text of several, in each of which a family comes in one piece: so it does in the whole.
pub fn join(texts: impl IntoIterator<Item = String>) -> String {
    let mut order: Vec<String> = Vec::new();
    let mut families: std::collections::HashMap<String, (String, String)> = std::collections::HashMap::new();
    for text in texts {
        let mut current = String::new();
        for line in text.lines() {
            if let Some(meta) = line.strip_prefix("# ") {
                // `# HELP name …`, `# TYPE name …`, `# UNIT name …`; `# EOF` ends it.
                let Some(name) = meta.split(' ').nth(1) else { continue };
                if name != current {
                    current = name.to_owned();
                    if !families.contains_key(name) {
                        order.push(current.clone());
                    }
                }
                let (head, samples) = families.entry(current.clone()).or_default();
                if samples.is_empty() && !head.lines().any(|known| known == line) {
                    head.push_str(line);
                    head.push('\n');
                }
            } else if let Some((_, samples)) = families.get_mut(&current) {
                samples.push_str(line);
                samples.push('\n');
            }
        }
    }
    let mut text = String::new();
    for name in order {
        if let Some((head, samples)) = families.remove(&name) {
            text.push_str(&head);
            text.push_str(&samples);
        }
    }
    text.push_str("# EOF\n");
    text
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuantileLabel {
    node: String,
    quantile: &'static str,
}

type Read = fn(&NodeMetrics) -> u64;

fn nodes(registry: &mut Registry, metrics: &JobMetrics) {
    let counters: [(&str, &str, Read); 7] = [
        ("node_records_in", "Records that came in; of a source, records that it read", |m| m.records_in.load(Relaxed)),
        ("node_records_out", "Records that went out", |m| m.records_out.load(Relaxed)),
        ("node_bytes_in", "Bytes of the batches that came in", |m| m.bytes_in.load(Relaxed)),
        ("node_records_rejected", "Records that went to the port `rejected`", |m| m.rejected.load(Relaxed)),
        ("node_records_skipped", "Records that were skipped because they could not be used", |m| {
            m.skipped.load(Relaxed)
        }),
        ("node_retries", "Calls that a plugin asked to be repeated", |m| m.retries.load(Relaxed)),
        ("node_recycled", "Instances that were replaced because of their memory", |m| m.recycled.load(Relaxed)),
    ];
    for (name, help, read) in counters {
        let family = Family::<NodeLabel, Counter>::default();
        for (node, numbers) in metrics.nodes() {
            family.get_or_create(&NodeLabel::new(node)).inc_by(read(numbers));
        }
        registry.register(name, help, family);
    }
    let waited = Family::<NodeLabel, Counter<f64, std::sync::atomic::AtomicU64>>::default();
    for (node, numbers) in metrics.nodes() {
        waited.get_or_create(&NodeLabel::new(node)).inc_by(numbers.waited_micros.load(Relaxed) as f64 / 1e6);
    }
    registry.register_with_unit(
        "node_backpressure",
        "How long subtasks have waited for room at their readers",
        Unit::Seconds,
        waited,
    );
    let watermarks = Family::<NodeLabel, FloatGauge>::default();
    for (node, numbers) in metrics.nodes() {
        if let Some(time) = numbers.watermark() {
            watermarks.get_or_create(&NodeLabel::new(node)).set(time as f64 / 1e6);
        }
    }
    let held = quantiles(metrics, |numbers| &numbers.barrier_held);
    registry.register_with_unit(
        "node_barrier_held",
        "From the barrier of all inputs to the barrier sent on, by quantile, at most a quarter too much",
        Unit::Seconds,
        held,
    );
    registry.register_with_unit(
        "node_upgrade_pause",
        "How long subtasks stood still while a new version took over, by quantile, at most a quarter too much",
        Unit::Seconds,
        quantiles(metrics, |numbers| &numbers.upgrade_pause),
    );
    registry.register_with_unit(
        "node_watermark",
        "The newest watermark that a subtask has seen, since the Unix epoch",
        Unit::Seconds,
        watermarks,
    );
}

/// What was counted in a node, by quantile; nothing for a node in which nothing was.
fn quantiles(metrics: &JobMetrics, read: fn(&NodeMetrics) -> &Durations) -> Family<QuantileLabel, FloatGauge> {
    let family = Family::<QuantileLabel, FloatGauge>::default();
    for (node, numbers) in metrics.nodes().filter(|(_, numbers)| read(numbers).count() > 0) {
        for (quantile, of) in [("0.5", 0.5), ("0.99", 0.99), ("1", 1.0)] {
            let label = QuantileLabel { node: node.to_string(), quantile };
            family.get_or_create(&label).set(read(numbers).quantile(of).as_secs_f64());
        }
    }
    family
}

fn checkpoints(registry: &mut Registry, metrics: &JobMetrics, clock: &Clock) {
    let numbers = &metrics.checkpoint;
    let now = u64::try_from(clock.elapsed().as_micros()).unwrap_or(u64::MAX);
    let age = now.saturating_sub(numbers.complete_at.load(Relaxed)) as f64 / 1e6;
    registry.register_with_unit(
        "checkpoint_age",
        "Time since the last complete checkpoint, or since the run began",
        Unit::Seconds,
        ConstGauge::new(age),
    );
    let epoch = i64::try_from(metrics.epoch.load(Relaxed)).unwrap_or(i64::MAX);
    registry.register("checkpoint_epoch", "The newest complete checkpoint", ConstGauge::new(epoch));
    let counters = [
        ("upgrades_completed", "Upgrades that a checkpoint holds", metrics.upgrades_completed.load(Relaxed)),
        (
            "upgrades_given_up",
            "Upgrades that were given up before the new version took over",
            metrics.upgrades_given_up.load(Relaxed),
        ),
        (
            "upgrades_taken_back",
            "Upgrades after which the job started over with the old version",
            metrics.upgrades_taken_back.load(Relaxed),
        ),
        ("checkpoints_completed", "Checkpoints that were completed", metrics.checkpoints.load(Relaxed)),
        ("restarts", "How often the job was restarted from its last checkpoint", metrics.restarts.load(Relaxed)),
        (
            "replayed_records",
            "Records that were read before a failure and again after it",
            numbers.replayed.load(Relaxed),
        ),
        ("collected_packs", "Packs that the collector deleted", numbers.collected_packs.load(Relaxed)),
        (
            "collected_staging",
            "Stages of sinks that were abandoned and deleted",
            numbers.collected_staging.load(Relaxed),
        ),
    ];
    for (name, help, value) in counters {
        registry.register(name, help, ConstCounter::new(value));
    }
    registry.register("checkpoint_failures", "Checkpoint attempts that failed, by reason", numbers.failures.clone());
    registry.register_with_unit(
        "checkpoint_duration",
        "How long complete checkpoints took, by phase; align, snapshot and upload are those of the slowest subtask",
        Unit::Seconds,
        numbers.durations.clone(),
    );
    registry.register_with_unit(
        "node_alignment",
        "How long a subtask held inputs whose barrier had come",
        Unit::Seconds,
        numbers.alignment.clone(),
    );
    registry.register_with_unit(
        "sink_prepare_duration",
        "How long a subtask of a sink took to make its output durable",
        Unit::Seconds,
        numbers.prepare.clone(),
    );
    registry.register_with_unit(
        "sink_commit_duration",
        "How long a sink took to make a checkpoint's output visible",
        Unit::Seconds,
        numbers.commit.clone(),
    );
    registry.register_with_unit(
        "recovery_duration",
        "From the start of a run until it was restored and worked",
        Unit::Seconds,
        numbers.recovery.clone(),
    );
    registry.register_with_unit(
        "node_state",
        "State in the newest complete checkpoint",
        Unit::Bytes,
        numbers.state_bytes.clone(),
    );
    registry.register_with_unit(
        "node_state_changed",
        "State that checkpoints wrote",
        Unit::Bytes,
        numbers.changed_bytes.clone(),
    );
}

fn plugins(registry: &mut Registry, guests: &[GuestSeries]) {
    let counters = Family::<GuestLabel, Counter>::default();
    let gauges = Family::<GuestLabel, FloatGauge>::default();
    let (counts, sums) = (Family::<GuestLabel, Counter>::default(), Family::<GuestLabel, FloatGauge>::default());
    for series in guests {
        let label = GuestLabel { node: series.node.clone(), subtask: series.subtask, name: series.name.clone() };
        match series.value {
            GuestValue::Counter(value) => {
                counters.get_or_create(&label).inc_by(value);
            }
            GuestValue::Gauge(value) => {
                gauges.get_or_create(&label).set(value);
            }
            GuestValue::Observed(count, sum) => {
                counts.get_or_create(&label).inc_by(count);
                sums.get_or_create(&label).set(sum);
            }
        }
    }
    registry.register("plugin_counter", "What a plugin counted, under the plugin's own name", counters);
    registry.register("plugin_gauge", "What a plugin set last, under its own name", gauges);
    registry.register("plugin_observations", "How often a plugin observed something, under its own name", counts);
    registry.register("plugin_observed_sum", "All that a plugin observed together, under its own name", sums);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;
    use crate::metrics::{FailureReason, Phase, StoreOperation};
    use crate::model::NodeName;

    /// Everything that there is, once.
    fn full() -> String {
        let metrics = JobMetrics::new([NodeName::new("count")]);
        metrics.node(&NodeName::new("count")).advance(1_500_000);
        NodeMetrics::add(&metrics.node(&NodeName::new("count")).records_in, 7);
        metrics.node(&NodeName::new("count")).barrier_held.note(Duration::from_micros(1));
        metrics.node(&NodeName::new("count")).upgrade_pause.note(Duration::from_micros(1));
        let checkpoint = &metrics.checkpoint;
        checkpoint.took(Phase::Total, Duration::from_millis(20));
        checkpoint.failed(FailureReason::Timeout);
        checkpoint.aligned("count", Duration::from_millis(3));
        checkpoint.prepared("out", Duration::from_millis(3));
        checkpoint.committed("out", Duration::from_millis(3));
        checkpoint.recovered(Duration::from_millis(3));
        checkpoint.state("count", 1_000, 10);
        let clock = Clock::manual(5_000_000);
        checkpoint.complete(Duration::from_secs(2));
        let guest = |name: &str, value| GuestSeries { node: "count".into(), subtask: 1, name: name.into(), value };
        let guests = [
            guest("late", GuestValue::Counter(4)),
            guest("open\"\n", GuestValue::Gauge(0.5)),
            guest("size", GuestValue::Observed(2, 3.0)),
        ];
        let store = StoreMetrics::default();
        let answered = store.timed(StoreOperation::Put, async { Ok(()) }).now_or_never();
        assert!(matches!(answered, Some(Ok(()))));
        render((None, "job"), &metrics, &store, &clock, &guests)
    }

    #[test]
    fn the_text_says_each_number_with_its_labels_and_unit() {
        let text = full();
        for line in [
            "weir_node_records_in_total{job=\"job\",node=\"count\"} 7",
            "weir_node_barrier_held_seconds{job=\"job\",node=\"count\",quantile=\"0.99\"} 0.000001",
            "weir_node_watermark_seconds{job=\"job\",node=\"count\"} 1.5",
            "weir_checkpoint_age_seconds{job=\"job\"} 3.0",
            "weir_checkpoint_duration_seconds_count{job=\"job\",phase=\"total\"} 1",
            "weir_checkpoint_failures_total{job=\"job\",reason=\"timeout\"} 1",
            "weir_node_state_bytes{job=\"job\",node=\"count\"} 1000",
            "weir_plugin_counter_total{job=\"job\",node=\"count\",subtask=\"1\",name=\"late\"} 4",
            "weir_plugin_gauge{job=\"job\",node=\"count\",subtask=\"1\",name=\"open\\\"\\n\"} 0.5",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn the_texts_of_several_jobs_become_one_in_which_each_family_comes_once() {
        let text = join([full(), full().replace("job=\"job\"", "job=\"other\"")]);
        let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let distinct: BTreeSet<&str> = types.iter().copied().collect();
        assert_eq!(types.len(), distinct.len());
        let samples = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(samples(&text), 2 * samples(&full()));
        assert_eq!(text.matches("# EOF").count(), 1);
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn every_metric_is_documented_and_every_documented_metric_exists() {
        let (jobs, usage) = (vec![("t".into(), "running", 1)], vec![("t".into(), 1.5, 2, 3)]);
        let server = ServerNumbers { jobs, usage, ..ServerNumbers::default() };
        let text = join([full(), render_server(&server)]);
        let said: BTreeSet<&str> = text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        let docs = include_str!("../../../docs/metrics.md");
        let documented: BTreeSet<&str> = docs
            .lines()
            .filter_map(|l| l.strip_prefix("| `")?.split('`').next())
            .filter(|n| n.starts_with("weir_"))
            .collect();
        assert_eq!(said, documented);
    }
}
