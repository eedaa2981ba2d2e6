//! Numbers about a running job: what each node has taken, given and put aside.
//!
//! Counters are atomics that the data path adds to once a batch; whoever shows them reads them at any time. They
//! start at zero with each run of a job and are not part of a checkpoint. What happens once a checkpoint is in `checkpoint`, what the store does in
//! `store`; `exposition` says all of it as text, and is the one place where metrics have names.

mod checkpoint;
mod exposition;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub use checkpoint::{CheckpointMetrics, FailureReason, Phase};
pub use exposition::{CONTENT_TYPE, GuestSeries, GuestValue, ServerNumbers, join, render, render_server};
pub use store::{StoreMetrics, StoreOperation, StoreOutcome};

use crate::model::{NO_TIME, NodeName, Timestamp};

/// What the values of a label are called.
macro_rules! label_value {
    ($type:ident { $($variant:ident => $name:literal),+ $(,)? }) => {
        impl $type {
            /// As the label says it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }

        impl prometheus_client::encoding::EncodeLabelValue for $type {
            fn encode(
                &self,
                encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
            ) -> Result<(), std::fmt::Error> {
                prometheus_client::encoding::EncodeLabelValue::encode(&self.name(), encoder)
            }
        }
    };
}
use label_value;

/// The numbers of one node, over all its subtasks.
#[derive(Debug)]
pub struct NodeMetrics {
    /// Records that came in; of a source, records that it read.
    pub records_in: AtomicU64,
    /// Records that went out; of a sink, none.
    pub records_out: AtomicU64,
    /// Bytes of the batches that came in.
    pub bytes_in: AtomicU64,
    /// Records that went to the port `rejected`.
    pub rejected: AtomicU64,
    /// Records that were skipped because they could not be used.
    pub skipped: AtomicU64,
    /// Calls that asked to be repeated.
    pub retries: AtomicU64,
    /// Instances that were replaced because of the memory they held.
    pub recycled: AtomicU64,
    /// How long its subtasks have waited for room at their readers, in microseconds.
    pub waited_micros: AtomicU64,
    /// From the moment at which a subtask had the barrier from all its inputs until it had sent it on.
    pub barrier_held: Durations,
    /// How long subtasks stood still because a new version of their operator took over.
    pub upgrade_pause: Durations,
    /// The newest watermark that a subtask has seen.
    watermark: AtomicI64,
}

impl Default for NodeMetrics {
    fn default() -> Self {
        Self {
            records_in: AtomicU64::new(0),
            records_out: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            recycled: AtomicU64::new(0),
            waited_micros: AtomicU64::new(0),
            barrier_held: Durations::default(),
            upgrade_pause: Durations::default(),
            watermark: AtomicI64::new(NO_TIME),
        }
    }
}

impl NodeMetrics {
    /// Adds to a counter.
    #[inline]
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }

    /// Notes a watermark.
    pub fn advance(&self, to: Timestamp) {
        self.watermark.fetch_max(to, Relaxed);
    }

    /// The newest watermark that a subtask has seen; none before the first.
    pub fn watermark(&self) -> Option<Timestamp> {
        Some(self.watermark.load(Relaxed)).filter(|&time| time != NO_TIME)
    }
}

/// How long something took, time after time: a histogram whose buckets grow by a quarter.
#[derive(Debug)]
pub struct Durations([AtomicU64; BUCKETS]);

/// From a microsecond to half an hour.
const BUCKETS: usize = 96;

impl Default for Durations {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Durations {
    /// The most that is counted in a bucket, in microseconds.
    fn limit(bucket: usize) -> f64 {
        1.25_f64.powi(i32::try_from(bucket).unwrap_or(i32::MAX))
    }

    /// Counts one.
    pub fn note(&self, took: Duration) {
        let micros = took.as_micros() as f64;
        let bucket = (0..BUCKETS - 1).find(|bucket| micros <= Self::limit(*bucket)).unwrap_or(BUCKETS - 1);
        self.0[bucket].fetch_add(1, Relaxed);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// What the share `of` of them did not take longer than, at most a quarter too much; zero if there are none.
    pub fn quantile(&self, of: f64) -> Duration {
        let wanted = (self.count() as f64 * of).ceil();
        let mut seen = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            seen += count.load(Relaxed);
            if seen > 0 && seen as f64 >= wanted {
                return Duration::from_micros(Self::limit(bucket) as u64);
            }
        }
        Duration::ZERO
    }
}

/// The numbers of a job.
#[derive(Debug, Default)]
pub struct JobMetrics {
    nodes: BTreeMap<NodeName, Arc<NodeMetrics>>,
    /// What checkpoints cost and how they fail.
    pub checkpoint: CheckpointMetrics,
    /// Records that sources handed out and timers that fired: when it stands still, there is nothing to checkpoint.
    pub activity: AtomicU64,
    /// The newest complete checkpoint of this run; 0 before the first.
    pub epoch: AtomicU64,
    /// How long the newest complete checkpoint took from its start to its manifest, in microseconds.
    pub checkpoint_micros: AtomicU64,
    /// The longest of them.
    pub checkpoint_micros_max: AtomicU64,
    /// All of them together.
    pub checkpoint_micros_sum: AtomicU64,
    /// Checkpoints that this run completed.
    pub checkpoints: AtomicU64,
    /// Checkpoint attempts of this run that failed.
    pub checkpoints_failed: AtomicU64,
    /// Bytes of state that this run wrote.
    pub state_bytes: AtomicU64,
    /// How often the job was restarted.
    pub restarts: AtomicU64,
    /// Upgrades that a checkpoint holds.
    pub upgrades_completed: AtomicU64,
    /// Upgrades that were given up before the new version took over.
    pub upgrades_given_up: AtomicU64,
    /// Upgrades after which the job started over with the old version.
    pub upgrades_taken_back: AtomicU64,
}

impl JobMetrics {
    /// Numbers for these nodes.
    pub fn new(nodes: impl IntoIterator<Item = NodeName>) -> Self {
        let nodes = nodes.into_iter().map(|name| (name, Arc::default())).collect();
        Self { nodes, ..Self::default() }
    }

    /// The numbers of a node; a node that is not part of the job gets some that nobody reads.
    pub fn node(&self, name: &NodeName) -> Arc<NodeMetrics> {
        self.nodes.get(name).cloned().unwrap_or_default()
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeName, &NodeMetrics)> {
        self.nodes.iter().map(|(name, metrics)| (name, metrics.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_at_most_a_quarter_more_than_it_was() {
        let durations = Durations::default();
        assert_eq!(durations.quantile(0.99), Duration::ZERO);
        for millis in 1..=100 {
            durations.note(Duration::from_millis(millis));
        }
        durations.note(Duration::from_secs(1 << 20));
        assert_eq!(durations.count(), 101);
        for (of, millis) in [(0.0, 1.0), (0.5, 51.0), (0.98, 99.0)] {
            let seen = durations.quantile(of).as_secs_f64() * 1e3;
            assert!(seen >= millis * 0.999 && seen <= millis * 1.25, "{of}: {seen} ms");
        }
    }
}
