//! What the simulated job reads, and what has to come of it: every record and every expectation is a function of a seed and of
//! positions.
//!
//! A record of a split has an event time, a key, and perhaps a fault for which it is put aside. The job counts records by key and
//! split, and by key and window of event time; so state and output at given positions can be told without running anything, in
//! whatever order tasks merged their inputs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::checkpoint::auditor::{Audited, ensure};
use crate::checkpoint::testing::Random;
use crate::model::{Batch, Timestamp, key_group, key_hash};

/// Key groups of the job.
pub(crate) const GROUPS: u32 = 4;
/// The length of a window in event time, in microseconds.
pub(crate) const WINDOW: Timestamp = 4_000;

/// The shape and the input of a job.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    seed: u64,
    /// How many records each split has.
    pub(crate) splits: Vec<u32>,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) time: Timestamp,
    pub(crate) key: u8,
    pub(crate) is_bad: bool,
}

/// What the job publishes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Out {
    /// Of each record: the how many-th it is of its key and split.
    Counted { split: u32, index: u32, n: u32 },
    /// Of each window, perhaps in several parts.
    Window { key: u8, start: Timestamp, count: u32 },
    /// A subtask was woken; it numbers that.
    Tick { subtask: u32, number: u32 },
    /// A record was put aside.
    Dead { split: u32, index: u32 },
}

impl Model {
    pub(crate) fn new(seed: u64, splits: Vec<u32>) -> Self {
        Self { seed, splits }
    }

    pub(crate) fn record(&self, split: u32, index: u32) -> Record {
        let mut random = Random(self.seed ^ (u64::from(split) << 32 | u64::from(index)));
        // A split goes on in event time; how far differs from record to record.
        let time = i64::from(index) * 1_000 + random.below(900) as i64;
        Record { time, key: random.below(6) as u8, is_bad: random.chance(80) }
    }

    /// What comes of the records of each split before `positions`.
    pub(crate) fn at(&self, positions: &BTreeMap<u32, u32>) -> Expected {
        let mut expected = Expected::default();
        for (&split, &position) in positions {
            for index in 0..position {
                let record = self.record(split, index);
                if record.is_bad {
                    expected.dead.insert((split, index));
                    continue;
                }
                let n = expected.counts.entry((record.key, split)).or_default();
                *n += 1;
                expected.counted.insert((split, index), *n);
                *expected.windows.entry((record.key, window(record.time))).or_default() += 1;
            }
        }
        expected
    }
}

/// The window of a time.
pub(crate) fn window(time: Timestamp) -> Timestamp {
    time.div_euclid(WINDOW) * WINDOW
}

/// The key group of a key.
pub(crate) fn group(key: u8) -> u32 {
    key_group(key_hash(&[key]), GROUPS)
}

/// A record's value, as it goes through the job: also as text in a dead letter.
pub(crate) fn value(split: u32, index: u32) -> String {
    format!("{split}:{index}")
}

/// Which record a value is of.
pub(crate) fn parse_value(value: &[u8]) -> Option<(u32, u32)> {
    let (split, index) = std::str::from_utf8(value).ok()?.split_once(':')?;
    Some((split.parse().ok()?, index.parse().ok()?))
}

/// What comes of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    /// By key and split.
    pub(crate) counts: BTreeMap<(u8, u32), u32>,
    /// By key and start of the window.
    pub(crate) windows: BTreeMap<(u8, Timestamp), u32>,
    /// The number that each good record gets.
    pub(crate) counted: BTreeMap<(u32, u32), u32>,
    pub(crate) dead: BTreeSet<(u32, u32)>,
}

/// All that was published along a line of checkpoints.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    counted: BTreeMap<(u32, u32), u32>,
    dead: BTreeSet<(u32, u32)>,
    windows: BTreeMap<(u8, Timestamp), u32>,
    ticks: BTreeMap<u32, BTreeSet<u32>>,
}

impl Published {
    /// Adds what one commit publishes.
    pub(crate) fn add(&mut self, outs: &[Out]) -> Audited {
        for out in outs {
            let is_new = match *out {
                Out::Counted { split, index, n } => self.counted.insert((split, index), n).is_none(),
                Out::Dead { split, index } => self.dead.insert((split, index)),
                Out::Tick { subtask, number } => self.ticks.entry(subtask).or_default().insert(number),
                Out::Window { key, start, count } => {
                    *self.windows.entry((key, start)).or_default() += count;
                    true
                }
            };
            ensure!(is_new, "I5: {out:?} is published twice");
        }
        Ok(())
    }

    /// Whether it is all that has to be published at a cut whose state has these windows open and has seen so many ticks.
    pub(crate) fn check(
        &self,
        expected: &Expected,
        open: &BTreeMap<(u8, Timestamp), u32>,
        ticks: &BTreeMap<u32, u32>,
    ) -> Audited {
        if let Some(lost) = expected.counted.iter().find(|(record, _)| !self.counted.contains_key(record)) {
            return Err(format!("I5: record {lost:?} is before the position, and nothing of it is published"));
        }
        for (record, n) in &self.counted {
            let right = expected.counted.get(record);
            ensure!(
                right == Some(n),
                "I2: record {record:?} is published as number {n} of its key and split, and at these positions it is {right:?}"
            );
        }
        ensure!(
            self.dead == expected.dead,
            "I11: the dead letters are {:?} and have to be {:?}",
            self.dead,
            expected.dead
        );
        let mut windows = self.windows.clone();
        for (window, count) in open {
            *windows.entry(*window).or_default() += count;
        }
        windows.retain(|_, count| *count > 0);
        ensure!(
            windows == expected.windows,
            "I11: windows, published or open, are {windows:?} and have to be {:?}",
            expected.windows
        );
        for (subtask, &seen) in ticks {
            let published = self.ticks.get(subtask).cloned().unwrap_or_default();
            ensure!(
                published.iter().copied().eq(0..seen),
                "I11: subtask {subtask} was woken {seen} times, and published are {published:?}"
            );
        }
        Ok(())
    }
}

/// Reads what the job gave to a sink.
pub(crate) fn decode(batch: &Batch) -> Result<Vec<Out>, String> {
    (0..batch.len())
        .map(|row| {
            let value = batch.values.get(row).ok_or("a record without a value")?;
            if value.first() == Some(&b'{') {
                let letter: serde_json::Value = serde_json::from_slice(value).map_err(|e| e.to_string())?;
                let record = letter["value"].as_str().and_then(|value| parse_value(value.as_bytes()));
                let (split, index) = record.ok_or_else(|| format!("a dead letter of no record: {letter}"))?;
                return Ok(Out::Dead { split, index });
            }
            postcard::from_bytes(value).map_err(|e| format!("an output that does not decode: {e}"))
        })
        .collect()
}
