//! A source that makes its records up: record `i` depends on nothing but the settings and `i`.
//!
//! With `h = splitmix64(i + mix(seed))`, where `mix(0)` is 0: the key is `h % keys`, or by Zipf
//! `floor((keys + 1)^u) - 1` with `u` the upper 53 bits of `h` as a fraction, or in sequence `i % keys`; the number in the value is `h & 0xffff`; the
//! event time is `i` steps after 1970. Subtask `s` of `p` makes the records `s`, `s + p`, `s + 2p`, …
//!
//! With another parallelism, what the old subtasks had not made yet up to the farthest of them is left to the new ones, each such row of
//! records to one; they make that first. From there on the new subtasks take turns as above.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{ConnectorError, Polled, Source, TaskContext};
use crate::model::{Batch, BatchLimit, Column, END_OF_TIME, SplitPosition, Timestamp};
use crate::plan::{Distribution, GeneratorFormat, GeneratorSpec};

/// The most records and bytes of one batch, whatever its limit says.
const RECORDS_MAX: usize = 1 << 20;
const BYTES_MAX: usize = 1 << 30;

pub(super) struct Generator {
    spec: GeneratorSpec,
    subtask: u32,
    parallelism: u32,
    /// Added to a record's number before it is hashed.
    salt: u64,
    /// For Zipf: ln(keys + 1).
    log_keys: f64,
    /// What other subtasks left to this one, made first.
    left: Vec<Row>,
    /// The next record of this subtask.
    next: u64,
}

/// Where a subtask goes on.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Offset {
    next: u64,
    parallelism: u32,
    left: Vec<Row>,
}

/// The records `next`, `next + step`, … before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    next: u64,
    step: u32,
    end: u64,
}

impl Row {
    /// How many records there are.
    fn len(self) -> u64 {
        self.end.saturating_sub(self.next).div_ceil(u64::from(self.step.max(1)))
    }
}

/// splitmix64: the output of the generator whose state is `state`.
#[inline]
fn splitmix64(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Generator {
    pub(super) fn open(
        spec: &GeneratorSpec,
        context: &TaskContext,
        positions: &[SplitPosition],
    ) -> Result<Self, ConnectorError> {
        if spec.keys == 0 || spec.value_bytes < 8 {
            return Err(ConnectorError::mismatch(format!(
                "a generator with keys = {} and value_bytes = {} makes no records",
                spec.keys, spec.value_bytes
            ))
            .help("let keys be at least 1 and value_bytes at least 8"));
        }
        let parallelism = context.parallelism.max(1);
        let mut generator = Self {
            subtask: context.task.subtask,
            parallelism,
            salt: if spec.seed == 0 { 0 } else { splitmix64(spec.seed) },
            log_keys: (spec.keys as f64 + 1.0).ln(),
            left: Vec::new(),
            next: u64::from(context.task.subtask),
            spec: spec.clone(),
        };
        if !positions.is_empty() {
            generator.restore(positions)?;
        }
        Ok(generator)
    }

    fn restore(&mut self, positions: &[SplitPosition]) -> Result<(), ConnectorError> {
        let now = self.fingerprint();
        let mut offsets = Vec::new();
        for position in positions {
            let name = &position.split;
            let offset: Offset = postcard::from_bytes(&position.offset).map_err(|e| {
                ConnectorError::mismatch(format!("the position of {name} does not decode")).caused_by(e)
            })?;
            if position.fingerprint != now {
                return Err(ConnectorError::mismatch(format!(
                    "the generator made its records with the settings {} when the checkpoint was taken and has {} now",
                    String::from_utf8_lossy(&position.fingerprint),
                    String::from_utf8_lossy(&now)
                ))
                .help("set them as they were, or start over with --fresh"));
            }
            offsets.push((name.as_str(), offset));
        }
        let before = offsets.first().map_or(0, |(_, offset)| offset.parallelism);
        if before == self.parallelism {
            let name = self.split();
            let Some((_, own)) = offsets.into_iter().find(|(split, _)| *split == name) else {
                return Err(ConnectorError::mismatch(format!("the checkpoint has no position of {name}"))
                    .help("set the parallelism of the source as it was"));
            };
            (self.next, self.left) = (own.next, own.left);
            return Ok(());
        }
        let has = |subtask: u32| offsets.iter().any(|(split, _)| *split == format!("generator-{subtask}"));
        if before == 0 || !(0..before).all(has) {
            return Err(ConnectorError::mismatch(format!(
                "the checkpoint has positions of {} of the {before} subtasks of the generator",
                offsets.len()
            ))
            .help(format!("set the parallelism of the source to {before} again")));
        }
        let farthest = offsets.iter().map(|(_, offset)| offset.next).max().unwrap_or(0);
        let rows = offsets.into_iter().flat_map(|(_, Offset { next, parallelism, left })| {
            left.into_iter().chain([Row { next, step: parallelism, end: farthest }])
        });
        let (own, all) = (self.subtask as usize, self.parallelism as usize);
        self.left =
            rows.filter(|row| row.len() > 0).enumerate().filter(|(at, _)| at % all == own).map(|(_, r)| r).collect();
        self.next = farthest.saturating_add(u64::from(self.subtask));
        Ok(())
    }

    fn split(&self) -> String {
        format!("generator-{}", self.subtask)
    }

    /// All settings that a record depends on.
    fn fingerprint(&self) -> Vec<u8> {
        let GeneratorSpec { seed, keys, distribution, value_bytes, format, event_time_step, records: _ } = &self.spec;
        format!("seed {seed}, keys {keys} {distribution:?}, {value_bytes} bytes {format:?}, step {event_time_step}")
            .into_bytes()
    }

    #[inline]
    fn hash(&self, index: u64) -> u64 {
        splitmix64(index.wrapping_add(self.salt))
    }

    #[inline]
    fn key(&self, index: u64, hash: u64) -> u64 {
        match self.spec.distribution {
            Distribution::Sequential => index % self.spec.keys,
            Distribution::Uniform => hash % self.spec.keys,
            Distribution::Zipf => {
                let u = (hash >> 11) as f64 * (1.0 / (1_u64 << 53) as f64);
                // Rounding can bring the power to keys + 1 for the largest u.
                (((u * self.log_keys).exp() as u64).max(1) - 1).min(self.spec.keys - 1)
            }
        }
    }

    /// The row of records that comes next. No record is left in it at the end.
    fn row(&mut self) -> Row {
        let records = self.spec.records.unwrap_or(u64::MAX);
        while let Some(row) = self.left.first() {
            let row = Row { end: row.end.min(records), ..*row };
            if row.len() > 0 {
                return row;
            }
            self.left.remove(0);
        }
        Row { next: self.next, step: self.parallelism, end: records }
    }

    /// How many records of a row come next.
    fn allowed(&self, limit: BatchLimit, row: Row) -> usize {
        let record_bytes = match self.spec.format {
            GeneratorFormat::Binary => 8 + self.spec.value_bytes,
            GeneratorFormat::Json => 80,
        };
        let by_bytes = (limit.bytes.min(BYTES_MAX) / record_bytes).max(1);
        let left = usize::try_from(row.len()).unwrap_or(usize::MAX);
        limit.records.clamp(1, RECORDS_MAX).min(by_bytes).min(left)
    }

    fn time(&self, index: u64) -> Timestamp {
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        index.saturating_mul(self.spec.event_time_step).clamp(Timestamp::MIN + 1, END_OF_TIME - 1)
    }

    /// The next `count` records of a row, columns written in one go.
    fn binary(&self, row: Row, count: usize) -> Batch {
        let width = self.spec.value_bytes;
        let mut timestamps = Vec::with_capacity(count);
        let mut keys = Vec::with_capacity(count * 8);
        let mut values = vec![0; count * width];
        let mut index = row.next;
        for value in values.chunks_exact_mut(width) {
            let hash = self.hash(index);
            timestamps.push(self.time(index));
            keys.extend_from_slice(&self.key(index, hash).to_le_bytes());
            value[..8].copy_from_slice(&(hash & 0xffff).to_le_bytes());
            index += u64::from(row.step);
        }
        let column = |bytes: Vec<u8>, width: usize| Column {
            offsets: (0..=count).map(|row| (row * width) as u32).collect(),
            bytes,
            nulls: Vec::new(),
        };
        Batch {
            timestamps,
            hashes: Vec::new(),
            keys: column(keys, 8),
            values: column(values, width),
            headers: Column::default(),
        }
    }

    fn json(&self, row: Row, count: usize) -> Batch {
        let mut batch = Batch::default();
        let mut index = row.next;
        for _ in 0..count {
            let hash = self.hash(index);
            let key = self.key(index, hash).to_string();
            let value = format!("{{\"sequence\":{index},\"key\":\"{key}\",\"value\":{}}}", hash & 0xffff);
            batch.push(self.time(index), Some(key.as_bytes()), Some(value.as_bytes()));
            index += u64::from(row.step);
        }
        batch
    }
}

#[async_trait]
impl Source for Generator {
    async fn poll(&mut self, limit: BatchLimit) -> Result<Polled, ConnectorError> {
        let row = self.row();
        let count = self.allowed(limit, row);
        if count == 0 {
            return Ok(Polled::End);
        }
        let records = match self.spec.format {
            GeneratorFormat::Binary => self.binary(row, count),
            GeneratorFormat::Json => self.json(row, count),
        };
        let next = self.left.first_mut().map_or(&mut self.next, |row| &mut row.next);
        *next += count as u64 * u64::from(row.step);
        Ok(Polled::Records { records, rejected: Batch::default(), skipped: 0 })
    }

    /// Its settings are in the fingerprint, and nothing else decides.
    fn may_change(&self) -> bool {
        false
    }

    fn positions(&self) -> Vec<SplitPosition> {
        let offset = Offset { next: self.next, parallelism: self.parallelism, left: self.left.clone() };
        vec![SplitPosition {
            split: self.split(),
            // Numbers always encode.
            offset: postcard::to_stdvec(&offset).unwrap_or_default(),
            fingerprint: self.fingerprint(),
        }]
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Generation, JobId, NodeName, TaskId};

    fn spec() -> GeneratorSpec {
        GeneratorSpec {
            seed: 0,
            records: Some(10_000_000),
            keys: 1_000_000,
            distribution: Distribution::Uniform,
            value_bytes: 84,
            format: GeneratorFormat::Binary,
            event_time_step: 10,
        }
    }

    fn open(
        spec: &GeneratorSpec,
        subtask: u32,
        parallelism: u32,
        positions: &[SplitPosition],
    ) -> Result<Generator, ConnectorError> {
        let context = TaskContext {
            job: "job".into(),
            job_id: JobId([1; 16]),
            generation: Generation(1),
            task: TaskId { node: NodeName::new("in"), subtask },
            parallelism,
        };
        Generator::open(spec, &context, positions)
    }

    fn poll(generator: &mut Generator, records: usize) -> Polled {
        let limit = BatchLimit { records, bytes: 1 << 20 };
        generator.poll(limit).now_or_never().expect("a generator does not wait").unwrap()
    }

    fn records(generator: &mut Generator, records: usize) -> Option<Batch> {
        match poll(generator, records) {
            Polled::Records { records, .. } => {
                records.validate().unwrap();
                Some(records)
            }
            _ => None,
        }
    }

    fn number(bytes: Option<&[u8]>) -> u64 {
        u64::from_le_bytes(bytes.unwrap()[..8].try_into().unwrap())
    }

    #[test]
    fn splitmix64_gives_the_published_sequence() {
        // The first outputs of the reference generator with seed 0; its state grows by the golden ratio.
        let golden = 0x9e37_79b9_7f4a_7c15_u64;
        for (at, output) in
            [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f].into_iter().enumerate()
        {
            assert_eq!(splitmix64(golden.wrapping_mul(at as u64)), output);
        }
    }

    /// The workloads of the benches, on all of their records. A separate program with its own splitmix64 and with
    /// `powf` for Zipf gives the same three counts.
    #[test]
    fn the_workloads_have_the_counts_that_are_known() {
        for (distribution, windows_known) in [(Distribution::Uniform, 6_320_294), (Distribution::Zipf, 2_231_505)] {
            let mut generator = open(&GeneratorSpec { distribution, ..spec() }, 0, 1, &[]).unwrap();
            let (mut kept, mut windows) = (0, 0);
            let mut last_window = vec![i64::MIN; 1_000_000];
            while let Some(batch) = records(&mut generator, 10_000) {
                for row in 0..batch.len() {
                    kept += u64::from((number(batch.values.get(row)) * 3 + 1) % 2 == 1);
                    let last = &mut last_window[number(batch.keys.get(row)) as usize];
                    let window = batch.timestamps[row] / 10_000_000;
                    windows += u64::from(*last != window);
                    *last = window;
                }
            }
            assert_eq!((kept, windows), (4_998_763, windows_known), "{distribution:?}");
        }
    }

    #[test]
    fn records_do_not_depend_on_batches_restarts_or_how_many_subtasks_make_them() {
        let spec = GeneratorSpec { records: Some(1001), keys: 7, format: GeneratorFormat::Json, seed: 5, ..spec() };
        let whole = records(&mut open(&spec, 0, 1, &[]).unwrap(), 2000).unwrap();
        assert_eq!(whole.len(), 1001);
        let mut seen = 0;
        for subtask in 0..3 {
            let mut generator = open(&spec, subtask, 3, &[]).unwrap();
            let mut row = subtask as usize;
            for count in (1..20).cycle() {
                let Some(batch) = records(&mut generator, count) else { break };
                for at in 0..batch.len() {
                    assert_eq!(batch.values.get(at), whole.values.get(row));
                    assert_eq!(batch.keys.get(at), whole.keys.get(row));
                    assert_eq!(batch.timestamps[at], row as i64 * 10);
                    row += 3;
                    seen += 1;
                }
                generator = open(&spec, subtask, 3, &generator.positions()).unwrap();
            }
            assert!(matches!(poll(&mut generator, 1), Polled::End));
        }
        assert_eq!(seen, 1001);
        let value: serde_json::Value = serde_json::from_slice(whole.values.get(1000).unwrap()).unwrap();
        assert_eq!(value["sequence"], 1000);
        assert_eq!(value["key"].as_str().map(str::as_bytes), whole.keys.get(1000));
    }

    #[test]
    fn a_seed_makes_other_records_and_every_key_is_in_its_range() {
        for distribution in [Distribution::Uniform, Distribution::Zipf, Distribution::Sequential] {
            for keys in [1, 2, 1000] {
                let one = GeneratorSpec { keys, distribution, ..spec() };
                let batch = records(&mut open(&one, 0, 1, &[]).unwrap(), 5000).unwrap();
                assert!((0..batch.len()).all(|row| number(batch.keys.get(row)) < keys));
                let other = GeneratorSpec { seed: 1, ..one };
                let other = records(&mut open(&other, 0, 1, &[]).unwrap(), 5000).unwrap();
                assert_ne!(batch.values, other.values);
            }
        }
    }

    #[test]
    fn in_sequence_every_key_comes_before_one_comes_again() {
        let one = GeneratorSpec { keys: 7, distribution: Distribution::Sequential, ..spec() };
        let batch = records(&mut open(&one, 0, 1, &[]).unwrap(), 20).unwrap();
        assert!((0..20).all(|row| number(batch.keys.get(row)) == row as u64 % 7));
    }

    #[test]
    fn other_settings_than_those_of_the_checkpoint_are_refused() {
        let positions = open(&spec(), 0, 1, &[]).unwrap().positions();
        let longer = GeneratorSpec { records: None, ..spec() };
        assert!(open(&longer, 0, 1, &positions).is_ok());
        for other in [
            GeneratorSpec { seed: 1, ..spec() },
            GeneratorSpec { keys: 2, ..spec() },
            GeneratorSpec { value_bytes: 8, ..spec() },
            GeneratorSpec { distribution: Distribution::Zipf, ..spec() },
        ] {
            assert!(open(&other, 0, 1, &positions).is_err_and(|e| e.message.contains("seed 0, keys 1000000")));
        }
        let other = SplitPosition { split: "generator-1".into(), ..positions[0].clone() };
        assert!(open(&spec(), 0, 2, &[other]).is_err_and(|e| e.message.contains("of the 1 subtasks")));
    }

    proptest! {
        /// Whatever was made before, and however often the number of subtasks changes: every record once.
        #[test]
        fn another_parallelism_makes_the_records_that_are_missing_and_no_other(
            steps in prop::collection::vec((1..6_u32, prop::collection::vec(0..40_usize, 6)), 1..5),
        ) {
            let spec = GeneratorSpec { records: Some(300), keys: 7, format: GeneratorFormat::Json, ..spec() };
            let mut seen = std::collections::BTreeMap::<u64, u32>::new();
            let mut take = |generator: &mut Generator, count: usize| {
                let Some(batch) = records(generator, count.max(1)) else { return false };
                for at in 0..batch.len() {
                    let value: serde_json::Value = serde_json::from_slice(batch.values.get(at).unwrap()).unwrap();
                    assert_eq!(batch.timestamps[at], value["sequence"].as_i64().unwrap() * 10);
                    *seen.entry(value["sequence"].as_u64().unwrap()).or_default() += 1;
                }
                true
            };
            let mut positions: Vec<SplitPosition> = Vec::new();
            for (parallelism, counts) in &steps {
                let mut next = Vec::new();
                for subtask in 0..*parallelism {
                    let mut generator = open(&spec, subtask, *parallelism, &positions).unwrap();
                    for count in counts.iter().skip(subtask as usize).step_by(2) {
                        take(&mut generator, *count);
                    }
                    next.extend(generator.positions());
                }
                positions = next;
            }
            for subtask in 0..3 {
                let mut generator = open(&spec, subtask, 3, &positions).unwrap();
                while take(&mut generator, 50) {}
            }
            prop_assert_eq!(seen.len(), 300);
            prop_assert!(seen.values().all(|&times| times == 1));
        }
    }
}
