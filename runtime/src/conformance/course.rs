//! The calls that an operator gets for an input, one after the other.
//!
//! ```text
//! records   0 1 2 3 4 5 6 7 8 9 …
//! cut by 1  │•│•│•│•│•‖•│•│•‖•│•     ‖ a stop: the time moves, wake if it is due, advance if there is a new watermark
//! cut by 3  │• • •│• •‖• • •‖• •
//! ```
//!
//! What is not records happens at *stops*, and where these are, and what time it is there, depends on the seed and on the records alone. Between two
//! stops nothing moves but data. So however batches are cut, the same watermark falls between the same two records, and an operator that does
//! not look at the boundaries of its batches says the same up to each stop.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::input::Input;
use crate::model::{END_OF_TIME, NO_TIME, Timestamp};

/// The processing time at which every input begins: 2026-01-01T00:00:00Z.
pub(super) const BEGIN: Timestamp = 1_767_225_600_000_000;

/// How much processing time passes from the first record to the last, in microseconds: an hour.
const SPAN: i64 = 3_600_000_000;

/// The most records between two stops.
const STOP_RECORDS_MAX: usize = 2048;

/// The most bytes of a batch, as a pipeline has it.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// How batches are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cutting {
    /// So many records each.
    Every(usize),
    /// From 1 to 100 records, small ones as often as large ones.
    Mixed,
}

impl std::fmt::Display for Cutting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Every(records) => write!(f, "batches of {records}"),
            Self::Mixed => f.write_str("batches of 1 to 100"),
        }
    }
}

/// A call, or something that leads to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// `process` with these records, from and up to.
    Take(usize, usize),
    /// It is this late now: `wake`, if that was asked for.
    Tick(Timestamp),
    /// `advance`.
    Advance(Timestamp),
    /// A stop is over: what was said up to here can be compared.
    Stop,
    /// `finish`.
    Finish(u32),
}

/// Where the stops of an input are.
#[derive(Debug)]
pub(super) struct Course {
    /// After so many records. The last is after all of them.
    stops: Vec<usize>,
    /// Processing time at the beginning.
    begin: Timestamp,
    seed: u64,
    input_ports: u32,
}

impl Course {
    /// With stops at distances that differ widely, by a seed.
    pub(super) fn new(input: &Input, seed: u64, input_ports: u32) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let longest = STOP_RECORDS_MAX.min(input.len() / 8);
        let mut stops = Vec::new();
        let mut at = 0;
        while at < input.len() {
            at = (at + log_uniform(&mut random, longest)).min(input.len());
            stops.push(at);
        }
        Self { stops, begin: BEGIN, seed, input_ports }
    }

    /// With a stop after each so many records.
    pub(super) fn every(input: &Input, records: usize, input_ports: u32) -> Self {
        let mut stops: Vec<usize> = (1..).map(|n| n * records.max(1)).take_while(|&at| at < input.len()).collect();
        stops.push(input.len());
        Self { stops, begin: BEGIN, seed: 0, input_ports }
    }

    /// The same at another time.
    pub(super) fn later(&self, micros: i64) -> Self {
        Self { stops: self.stops.clone(), begin: self.begin + micros, ..*self }
    }

    /// The processing time at the beginning.
    pub(super) fn begin(&self) -> Timestamp {
        self.begin
    }

    /// How many stops there are.
    pub(super) fn len(&self) -> usize {
        self.stops.len()
    }

    /// All calls, with batches cut like that.
    pub(super) fn steps(&self, input: &Input, cutting: Cutting) -> Steps {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 0x6261_7463_6865_7300);
        let mut steps = Vec::new();
        let (mut from, mut told) = (0, NO_TIME);
        for &stop in &self.stops {
            while from < stop {
                let records = match cutting {
                    Cutting::Every(records) => records.max(1),
                    Cutting::Mixed => log_uniform(&mut random, 100),
                };
                let (mut to, mut bytes) = (from, 0);
                while to < stop && to - from < records && (to == from || bytes < BATCH_BYTES_MAX) {
                    bytes += input.record_bytes(to);
                    to += 1;
                }
                steps.push(Step::Take(from, to));
                from = to;
            }
            let passed = i128::from(SPAN) * stop as i128 / input.len().max(1) as i128;
            steps.push(Step::Tick(self.begin + i64::try_from(passed).unwrap_or(SPAN)));
            if let Some(watermark) = input.watermark(stop)
                && watermark > told
            {
                told = watermark;
                steps.push(Step::Advance(watermark));
            }
            steps.push(Step::Stop);
        }
        let last = steps.len();
        steps.extend((0..self.input_ports).map(Step::Finish));
        steps.extend([Step::Advance(END_OF_TIME), Step::Stop]);
        Steps { steps, last }
    }
}

/// The calls for an input.
#[derive(Debug)]
pub(super) struct Steps {
    pub(super) steps: Vec<Step>,
    /// The number of the step before which all records were taken and no input has ended: where states are compared.
    pub(super) last: usize,
}

impl Steps {
    /// How many records were taken before a step.
    pub(super) fn records_before(&self, step: usize) -> usize {
        let taken = self.steps.iter().take(step).rev().find_map(|step| match step {
            Step::Take(_, to) => Some(*to),
            _ => None,
        });
        taken.unwrap_or(0)
    }

    /// The last watermark that was told before a step.
    pub(super) fn watermark_before(&self, step: usize) -> Option<Timestamp> {
        self.steps.iter().take(step).rev().find_map(|step| match step {
            Step::Advance(watermark) => Some(*watermark),
            _ => None,
        })
    }

    /// Places between two calls, by the number of the step that comes next: so many, by a seed, the first and the last that there are
    /// among them.
    pub(super) fn cuts(&self, count: usize, seed: u64) -> Vec<usize> {
        let mut places: Vec<usize> = (1..self.last).filter(|&step| self.steps[step] != Step::Stop).collect();
        places.push(self.last);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6375_7473);
        let mut chosen = Vec::new();
        if count > 1 {
            chosen.push(places.remove(0));
        }
        if count > 0 {
            chosen.extend(places.pop());
        }
        while chosen.len() < count && !places.is_empty() {
            let at = random.next_u64() % places.len() as u64;
            chosen.push(places.swap_remove(at as usize));
        }
        chosen.sort_unstable();
        chosen
    }
}

/// From 1 to `max`, each order of magnitude as often as any other.
fn log_uniform(random: &mut Xoshiro256PlusPlus, max: usize) -> usize {
    let unit = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let drawn = (max.max(1) as f64 + 1.0).powf(unit);
    (drawn as usize).clamp(1, max.max(1))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::Batch;

    fn input(records: i64) -> Input {
        let mut batch = Batch::default();
        (0..records).for_each(|n| batch.push(n * 10, Some(b"k"), Some(b"v")));
        Input::new(batch, Duration::ZERO, false)
    }

    /// What is not records, with the number of records before it.
    fn skeleton(steps: &Steps) -> Vec<(usize, Step)> {
        let places = steps.steps.iter().enumerate().filter(|(_, step)| !matches!(step, Step::Take(..)));
        places.map(|(at, step)| (steps.records_before(at), *step)).collect()
    }

    #[test]
    fn however_batches_are_cut_everything_else_happens_between_the_same_records() {
        let input = input(500);
        let course = Course::new(&input, 7, 1);
        let one = course.steps(&input, Cutting::Every(1));
        for cutting in [Cutting::Every(7), Cutting::Every(1000), Cutting::Mixed] {
            let other = course.steps(&input, cutting);
            assert_eq!(skeleton(&other), skeleton(&one), "{cutting}");
            assert!(other.steps.len() < one.steps.len(), "{cutting}");
        }
    }

    #[test]
    fn every_record_is_taken_once_and_watermarks_grow() {
        let input = input(300);
        let steps = Course::new(&input, 3, 2).steps(&input, Cutting::Mixed);
        let (mut next, mut watermark) = (0, NO_TIME);
        for step in &steps.steps {
            match *step {
                Step::Take(from, to) => {
                    assert!(from == next && from < to);
                    next = to;
                }
                Step::Advance(time) => {
                    assert!(time > watermark);
                    watermark = time;
                }
                Step::Tick(_) | Step::Stop | Step::Finish(_) => {}
            }
        }
        assert_eq!((next, watermark), (300, END_OF_TIME));
        assert_eq!(steps.records_before(steps.last), 300);
    }

    #[test]
    fn cuts_are_distinct_in_order_and_reach_from_the_first_to_the_last() {
        let input = input(400);
        let steps = Course::new(&input, 1, 1).steps(&input, Cutting::Mixed);
        let cuts = steps.cuts(20, 1);
        assert_eq!(cuts.len(), 20);
        assert!(cuts.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!((cuts.first(), cuts.last()), (Some(&1), Some(&steps.last)));
        assert_ne!(steps.cuts(20, 2), cuts);
        assert_eq!(steps.cuts(1, 1), [steps.last]);
        assert!(steps.cuts(1_000_000, 1).len() < steps.steps.len());
    }
}
