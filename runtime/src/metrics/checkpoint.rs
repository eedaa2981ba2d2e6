//! What checkpoints cost and how they fail: durations by phase, failures by reason, state by node.
//!
//! Written by the coordinator once a checkpoint, so a lock inside each family does not matter.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// Upper bounds of the buckets of every duration, in seconds.
const SECONDS: [f64; 15] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// A family of durations, by labels.
pub(super) type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

/// An empty family of durations.
pub(super) fn durations<L: Clone + std::hash::Hash + Eq>() -> Durations<L> {
    Family::new_with_constructor(seconds as fn() -> Histogram)
}

/// A part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The longest time for which a subtask held inputs that had delivered their barrier.
    Align,
    /// The longest time for which a subtask wrote its state or prepared its output.
    Snapshot,
    /// The longest time from the end of a snapshot until it was durable.
    Upload,
    /// From the last report until the manifest was in the log.
    Publish,
    /// From the manifest until every sink had committed and the marker was written.
    Commit,
    /// All of it, from the first barrier to the marker.
    Total,
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureReason {
    /// Not every subtask reported in time.
    Timeout,
    /// A subtask could not store its state.
    Declined,
    /// The store did not take the manifest.
    Publish,
}

super::label_value!(Phase {
    Align => "align",
    Snapshot => "snapshot",
    Upload => "upload",
    Publish => "publish",
    Commit => "commit",
    Total => "total",
});

super::label_value!(FailureReason { Timeout => "timeout", Declined => "declined", Publish => "publish" });

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PhaseLabel {
    pub(super) phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReasonLabel {
    pub(super) reason: FailureReason,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct NodeLabel {
    pub(super) node: String,
}

impl NodeLabel {
    pub(super) fn new(node: impl ToString) -> Self {
        Self { node: node.to_string() }
    }
}

/// The numbers of a job's checkpoints.
#[derive(Debug)]
pub struct CheckpointMetrics {
    pub(super) durations: Durations<PhaseLabel>,
    pub(super) failures: Family<ReasonLabel, Counter>,
    pub(super) alignment: Durations<NodeLabel>,
    pub(super) prepare: Durations<NodeLabel>,
    pub(super) commit: Durations<NodeLabel>,
    pub(super) recovery: Histogram,
    pub(super) state_bytes: Family<NodeLabel, Gauge>,
    pub(super) changed_bytes: Family<NodeLabel, Counter>,
    /// When the newest complete checkpoint was complete, or the run began, in microseconds of [`Clock::elapsed`](crate::clock::Clock::elapsed).
    pub(super) complete_at: AtomicU64,
    pub(super) replayed: AtomicU64,
    /// Records that the sources had handed out in all: the first number is what runs of this process add up to, the second what that
    /// is in the life of the job. None before the first run.
    read: Mutex<Option<(u64, u64)>>,
    pub(super) collected_packs: AtomicU64,
    pub(super) collected_staging: AtomicU64,
}

impl Default for CheckpointMetrics {
    fn default() -> Self {
        Self {
            durations: durations(),
            failures: Family::default(),
            alignment: durations(),
            prepare: durations(),
            commit: durations(),
            recovery: seconds(),
            state_bytes: Family::default(),
            changed_bytes: Family::default(),
            complete_at: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
            read: Mutex::new(None),
            collected_packs: AtomicU64::new(0),
            collected_staging: AtomicU64::new(0),
        }
    }
}

impl CheckpointMetrics {
    /// A phase of a complete checkpoint took this long.
    pub fn took(&self, phase: Phase, time: Duration) {
        self.durations.get_or_create(&PhaseLabel { phase }).observe(time.as_secs_f64());
    }

    /// An attempt failed.
    pub fn failed(&self, reason: FailureReason) {
        self.failures.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// A subtask of a node held its inputs for this long.
    pub fn aligned(&self, node: impl ToString, time: Duration) {
        self.alignment.get_or_create(&NodeLabel::new(node)).observe(time.as_secs_f64());
    }

    /// A subtask of a sink made its output durable.
    pub fn prepared(&self, node: impl ToString, time: Duration) {
        self.prepare.get_or_create(&NodeLabel::new(node)).observe(time.as_secs_f64());
    }

    /// A sink made its output visible.
    pub fn committed(&self, node: impl ToString, time: Duration) {
        self.commit.get_or_create(&NodeLabel::new(node)).observe(time.as_secs_f64());
    }

    /// The state of a node in the newest complete checkpoint, and how much of it was written for that one.
    pub fn state(&self, node: impl ToString, bytes: u64, changed: u64) {
        let label = NodeLabel::new(node);
        self.state_bytes.get_or_create(&label).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.changed_bytes.get_or_create(&label).inc_by(changed);
    }

    /// The state of a node in the newest complete checkpoint; 0 before the first.
    pub fn state_bytes_of(&self, node: impl ToString) -> u64 {
        self.state_bytes.get(&NodeLabel::new(node)).map_or(0, |gauge| gauge.get().max(0).cast_unsigned())
    }

    /// A checkpoint was complete, or a run began, at this time of [`Clock::elapsed`](crate::clock::Clock::elapsed).
    pub fn complete(&self, at: Duration) {
        self.complete_at.store(u64::try_from(at.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// A run was restored in this time and works again.
    pub fn recovered(&self, time: Duration) {
        self.recovery.observe(time.as_secs_f64());
    }

    /// A run begins where its sources have handed out `restored` records in the life of the job, after `here` in this process: what was
    /// read beyond that is read again.
    pub fn begins(&self, here: u64, restored: u64) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((then, position)) = *read {
            let reached = position + here.saturating_sub(then);
            self.replayed.fetch_add(reached.saturating_sub(restored), Relaxed);
        }
        *read = Some((here, restored));
    }

    /// What the collector removed: packs, and stages that sinks had abandoned.
    pub fn collected(&self, packs: u64, staging: u64) {
        self.collected_packs.fetch_add(packs, Relaxed);
        self.collected_staging.fetch_add(staging, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_beyond_the_restored_checkpoint_counts_as_replayed_once() {
        let metrics = CheckpointMetrics::default();
        metrics.begins(0, 100);
        assert_eq!(metrics.replayed.load(Relaxed), 0);
        // 50 more were read, and the checkpoint that is restored holds 20 of them.
        metrics.begins(50, 120);
        assert_eq!(metrics.replayed.load(Relaxed), 30);
        // 10 of these 30 were read again before the next failure.
        metrics.begins(60, 120);
        assert_eq!(metrics.replayed.load(Relaxed), 40);
        metrics.begins(90, 150);
        assert_eq!(metrics.replayed.load(Relaxed), 40);
    }
}
