//! Numbers that plugins report, kept for whoever wants to read them.
//!
//! One table for each subtask of each account; a restarted instance goes on with the table of its predecessor. A
//! subtask has at most 256 series: what a guest names is not allowed to fill the host's memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Series of one subtask.
pub(super) const SERIES_MAX: usize = 256;

/// The longest name of a series, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 64;

/// What a series says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue {
    /// A sum of what was counted.
    Counter(u64),
    /// What was set last.
    Gauge(f64),
    /// What was observed.
    Histogram {
        /// How often.
        count: u64,
        /// All of it together.
        sum: f64,
        /// The smallest.
        min: f64,
        /// The largest.
        max: f64,
    },
}

/// One series of one subtask.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The name of the account; empty for nobody's.
    pub account: String,
    /// The job.
    pub job: String,
    /// The node.
    pub node: String,
    /// The subtask.
    pub subtask: u32,
    /// The plugin's own name for it.
    pub name: String,
    /// What it says.
    pub value: MetricValue,
}

impl From<Metric> for crate::metrics::GuestSeries {
    fn from(metric: Metric) -> Self {
        use crate::metrics::GuestValue;
        let value = match metric.value {
            MetricValue::Counter(value) => GuestValue::Counter(value),
            MetricValue::Gauge(value) => GuestValue::Gauge(value),
            MetricValue::Histogram { count, sum, .. } => GuestValue::Observed(count, sum),
        };
        Self { node: metric.node, subtask: metric.subtask, name: metric.name, value }
    }
}

/// What a guest did to a series.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Count(u64),
    Gauge(f64),
    Observe(f64),
}

/// Why a change was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// There are as many series as there may be.
    TooMany,
    /// The name belongs to a series of another kind.
    Kind,
}

type Table = BTreeMap<String, MetricValue>;
/// Account, job, node, subtask.
type TaskKey = (String, String, String, u32);

/// The series of one subtask.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskMetrics(Arc<Mutex<Table>>);

impl TaskMetrics {
    pub(super) fn change(&self, name: &str, change: Change) -> Result<(), Refused> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = match change {
            Change::Count(_) => MetricValue::Counter(0),
            Change::Gauge(_) => MetricValue::Gauge(0.0),
            Change::Observe(_) => {
                MetricValue::Histogram { count: 0, sum: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY }
            }
        };
        if !table.contains_key(name) {
            if table.len() >= SERIES_MAX {
                return Err(Refused::TooMany);
            }
            table.insert(name.to_owned(), first);
        }
        match (table.get_mut(name), change) {
            (Some(MetricValue::Counter(sum)), Change::Count(delta)) => *sum = sum.wrapping_add(delta),
            (Some(MetricValue::Gauge(last)), Change::Gauge(value)) => *last = value,
            (Some(MetricValue::Histogram { count, sum, min, max }), Change::Observe(value)) => {
                *count += 1;
                *sum += value;
                *min = min.min(value);
                *max = max.max(value);
            }
            _ => return Err(Refused::Kind),
        }
        Ok(())
    }
}

/// The series of every subtask.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<BTreeMap<TaskKey, TaskMetrics>>);

impl Registry {
    /// The table of a subtask, made when it is first asked for.
    pub(super) fn task(&self, account: &str, job: &str, node: &str, subtask: u32) -> TaskMetrics {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.entry((account.to_owned(), job.to_owned(), node.to_owned(), subtask)).or_default().clone()
    }

    /// Drops what a job of an account has reported.
    pub(super) fn forget(&self, account: &str, job: &str) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|(whose, of, _, _), _| whose != account || of != job);
    }

    /// Every series, by account, job, node, subtask and name.
    pub(super) fn read(&self) -> Vec<Metric> {
        let tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        for ((account, job, node, subtask), metrics) in tasks.iter() {
            let table = metrics.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(table.iter().map(|(name, value)| Metric {
                account: account.clone(),
                job: job.clone(),
                node: node.clone(),
                subtask: *subtask,
                name: name.clone(),
                value: *value,
            }));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_add_up_and_a_restarted_subtask_goes_on_with_them() {
        let registry = Registry::default();
        for _ in 0..2 {
            let task = registry.task("", "job", "node", 0);
            assert_eq!(task.change("seen", Change::Count(3)), Ok(()));
            assert_eq!(task.change("level", Change::Gauge(0.5)), Ok(()));
            assert_eq!(task.change("size", Change::Observe(2.0)), Ok(()));
            assert_eq!(task.change("seen", Change::Gauge(1.0)), Err(Refused::Kind));
        }
        let values: Vec<_> = registry.read().into_iter().map(|metric| (metric.name, metric.value)).collect();
        let expected = [
            ("level".to_owned(), MetricValue::Gauge(0.5)),
            ("seen".to_owned(), MetricValue::Counter(6)),
            ("size".to_owned(), MetricValue::Histogram { count: 2, sum: 4.0, min: 2.0, max: 2.0 }),
        ];
        assert_eq!(values, expected);
        let other = registry.task("anna", "job", "node", 0);
        assert_eq!(other.change("seen", Change::Count(1)), Ok(()));
        registry.forget("", "job");
        let left: Vec<_> = registry.read().into_iter().map(|metric| (metric.account, metric.name)).collect();
        assert_eq!(left, [("anna".to_owned(), "seen".to_owned())], "jobs of one name are not one job");
        registry.forget("anna", "job");
        assert!(registry.read().is_empty());
    }

    #[test]
    fn one_series_too_many_is_refused_and_the_others_go_on() {
        let task = TaskMetrics::default();
        for i in 0..SERIES_MAX {
            assert_eq!(task.change(&format!("series_{i}"), Change::Count(1)), Ok(()));
        }
        assert_eq!(task.change("another", Change::Count(1)), Err(Refused::TooMany));
        assert_eq!(task.change("series_0", Change::Count(1)), Ok(()));
    }
}
