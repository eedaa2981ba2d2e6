//! In which order a task worked: recorded while it does, and followed when an epoch is replayed (I12).
//!
//! A task's work depends on its records and on what timing decided: which input came next, where a source's polls ended, when what
//! an exchange held back was sent, when an operator was woken, what time it was when a guest looked. All else follows. A
//! `Course` goes with each stage and notes the latter; at a cut it becomes part of the subtask's entry in the manifest.
//!
//! - The *order* of a task lives with the stage at its head: [`Op`]s, run-length coded, a byte or two each.
//! - What concerns one stage alone lives with that stage: the times at which its guest looked at the clock, the
//!   mode of its snapshot, and a digest of what it emitted, by which a replay tells a culprit from its consequences.
//!
//! A *segment* ends with a cut. An attempt that fails leaves its segment to the next manifest, so a schedule covers all since
//! the checkpoint that is its parent ([`Barrier::complete`] says which). One that grows beyond [`SCHEDULE_BYTES_MAX`]
//! is dropped and says so: replay is worth less than the checkpoint.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::model::{Barrier, Batch, Epoch, SnapshotMode, Timestamp, key_hash};
use crate::plan::OutPort;

/// The longest schedule of a subtask, in bytes.
pub const SCHEDULE_BYTES_MAX: usize = 1 << 20;

/// Of a schedule as a whole; another one is another format.
const VERSION: u8 = 1;

/// What a task does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// The head takes what comes next: an element of input `n` of its inbox, or `n` records of its source.
    Take(u64),
    /// A source gives this many records, and these are its own words about how.
    Traced(u64, Vec<u8>),
    /// The exchange with this number sends what it holds back.
    Flush(u32),
    /// This stage is woken.
    Wake(u32),
    /// This stage goes on with its snapshot.
    Step(u32),
    /// A source says that it is idle.
    Idle,
    /// A source says that it has ended.
    End,
}

/// The work of one subtask between two cuts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The attempt whose cut ends it.
    pub epoch: Epoch,
    /// That was the last one of the job.
    pub last: bool,
    /// It was too long to be kept.
    pub too_long: bool,
    /// To which receiver each rebalance exchange of the task had sent last; with the head.
    pub turns: Vec<u32>,
    /// What the task did; with the head. See [`Ops`].
    pub order: Vec<u8>,
    /// The snapshot that ends it was a full one.
    pub full: bool,
    /// When the guest looked at the clock: see `Times`.
    pub times: Vec<u8>,
    /// A digest of what was emitted: of all of it for a source whose records somebody may change, else of a sample.
    pub emitted: u64,
}

impl Segment {
    fn bytes(&self) -> usize {
        // The fixed part takes some 20 bytes.
        self.turns.len() * 5 + self.order.len() + self.times.len() + 20
    }

    /// What the task did, one after the other.
    pub fn ops(&self) -> Ops<'_> {
        Ops { bytes: &self.order, again: None }
    }
}

/// Reads the schedule of a subtask out of a manifest.
///
/// # Errors
///
/// Why there is none to follow, as a clause.
pub fn decode(bytes: &[u8]) -> Result<Vec<Segment>, String> {
    let (version, rest) = bytes.split_first().ok_or("its schedule was not recorded")?;
    if *version != VERSION {
        return Err(format!("its schedule has format {version}, and this version follows format {VERSION}"));
    }
    let (segments, rest) =
        postcard::take_from_bytes::<Vec<Segment>>(rest).map_err(|e| format!("its schedule does not decode: {e}"))?;
    if !rest.is_empty() {
        return Err(format!("{} bytes follow its schedule", rest.len()));
    }
    match segments.iter().find(|segment| segment.too_long) {
        Some(segment) => Err(format!(
            "its schedule up to epoch {} was not recorded: too long, more than {SCHEDULE_BYTES_MAX} bytes",
            segment.epoch
        )),
        None => Ok(segments),
    }
}

fn encode(segments: &[Segment]) -> Vec<u8> {
    postcard::to_extend(segments, vec![VERSION]).unwrap_or_default()
}

// A word is a varint: the symbol, and in the lowest bit whether a varint follows that says how often it is repeated. Symbols
// have their kind in the two lowest bits.
const TAKE: u64 = 0;
const FLUSH: u64 = 1;
const WAKE: u64 = 2;
const OTHER: u64 = 3;
const IDLE: u64 = 0;
const END: u64 = 1;
const TRACED: u64 = 2;
const STEP: u64 = 3;

/// Writes ops, one after the other.
#[derive(Debug, Default)]
struct OpWriter {
    bytes: Vec<u8>,
    last: Option<(u64, u64)>,
}

impl OpWriter {
    #[inline]
    fn push(&mut self, op: &Op) {
        let symbol = match op {
            Op::Take(n) => (n & (u64::MAX >> 3)) << 2 | TAKE,
            Op::Flush(n) => u64::from(*n) << 2 | FLUSH,
            Op::Wake(n) => u64::from(*n) << 2 | WAKE,
            Op::Step(n) => (u64::from(*n) + STEP) << 2 | OTHER,
            Op::Idle => IDLE << 2 | OTHER,
            Op::End => END << 2 | OTHER,
            Op::Traced(records, trace) => {
                self.settle();
                put(&mut self.bytes, (TRACED << 2 | OTHER) << 1);
                put(&mut self.bytes, *records);
                put(&mut self.bytes, trace.len() as u64);
                self.bytes.extend_from_slice(trace);
                return;
            }
        };
        match &mut self.last {
            Some((last, times)) if *last == symbol => *times += 1,
            _ => {
                self.settle();
                self.last = Some((symbol, 1));
            }
        }
    }

    fn settle(&mut self) {
        match self.last.take() {
            None => {}
            Some((symbol, 1)) => put(&mut self.bytes, symbol << 1),
            Some((symbol, times)) => {
                put(&mut self.bytes, symbol << 1 | 1);
                put(&mut self.bytes, times - 2);
            }
        }
    }

    fn take(&mut self) -> Vec<u8> {
        self.settle();
        std::mem::take(&mut self.bytes)
    }
}

/// Reads ops, one after the other.
#[derive(Clone, Debug)]
pub struct Ops<'a> {
    bytes: &'a [u8],
    again: Option<(Op, u64)>,
}

impl Ops<'_> {
    fn read(&mut self) -> Option<Op> {
        let word = get(&mut self.bytes)?;
        let times = if word & 1 == 1 { get(&mut self.bytes)?.checked_add(1)? } else { 0 };
        let (kind, n) = (word >> 1 & 3, word >> 3);
        let small = u32::try_from(n).ok();
        let op = match (kind, n) {
            (TAKE, n) => Op::Take(n),
            (FLUSH, _) => Op::Flush(small?),
            (WAKE, _) => Op::Wake(small?),
            (_, IDLE) => Op::Idle,
            (_, END) => Op::End,
            (_, TRACED) => {
                let records = get(&mut self.bytes)?;
                let length = usize::try_from(get(&mut self.bytes)?).ok()?;
                let (trace, rest) = self.bytes.split_at_checked(length)?;
                self.bytes = rest;
                Op::Traced(records, trace.to_vec())
            }
            (_, n) => Op::Step(u32::try_from(n - STEP).ok()?),
        };
        if times > 0 {
            self.again = Some((op.clone(), times));
        }
        Some(op)
    }
}

impl Iterator for Ops<'_> {
    type Item = Result<Op, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((op, times)) = &mut self.again {
            let op = op.clone();
            *times -= 1;
            if *times == 0 {
                self.again = None;
            }
            return Some(Ok(op));
        }
        if self.bytes.is_empty() {
            return None;
        }
        let op = self.read();
        if op.is_none() {
            self.bytes = &[];
        }
        Some(op.ok_or_else(|| "its schedule is cut short".to_owned()))
    }
}

/// Writes when a guest looked at the clock: for each call in which it did, the time since it last did, and how many calls lie
/// between.
#[derive(Debug, Default)]
struct TimeWriter {
    bytes: Vec<u8>,
    unseen: u64,
    last: Timestamp,
}

impl TimeWriter {
    fn push(&mut self, looked: bool, now: Timestamp) {
        if !looked {
            self.unseen += 1;
            return;
        }
        let passed = now.wrapping_sub(self.last);
        let zigzag = (passed << 1 ^ passed >> 63).cast_unsigned();
        // The highest bit is given up: no two times are that far apart.
        put(&mut self.bytes, zigzag << 1 | u64::from(self.unseen > 0));
        if self.unseen > 0 {
            put(&mut self.bytes, self.unseen);
        }
        (self.unseen, self.last) = (0, now);
    }

    fn take(&mut self) -> Vec<u8> {
        (self.unseen, self.last) = (0, 0);
        std::mem::take(&mut self.bytes)
    }
}

/// Reads when a guest looked at the clock.
#[derive(Debug, Default)]
struct Times {
    bytes: VecDeque<u8>,
    next: Option<(u64, Timestamp)>,
    last: Timestamp,
}

impl Times {
    fn new(bytes: Vec<u8>, last: Timestamp) -> Self {
        let mut times = Self { bytes: bytes.into(), next: None, last: 0 };
        times.read();
        // For calls before the first look: any time will do, but it should not go back.
        times.last = last;
        times
    }

    fn read(&mut self) {
        let before = self.next.map_or(0, |(_, at)| at);
        self.next = None;
        let bytes = self.bytes.make_contiguous();
        let mut rest = &*bytes;
        let Some(word) = get(&mut rest) else { return };
        let unseen = if word & 1 == 1 { get(&mut rest).unwrap_or(0) } else { 0 };
        let zigzag = word >> 1;
        let passed = (zigzag >> 1).cast_signed() ^ -((zigzag & 1).cast_signed());
        let left = rest.len();
        self.bytes.drain(..self.bytes.len() - left);
        self.next = Some((unseen, before.wrapping_add(passed)));
    }

    /// The time of the next call: as it was seen then, or any where nobody looked.
    fn call(&mut self) -> Timestamp {
        match &mut self.next {
            Some((0, at)) => {
                self.last = *at;
                self.read();
            }
            Some((unseen, _)) => *unseen -= 1,
            None => {}
        }
        self.last
    }
}

fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn get(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Notes how a stage works, and in a replay says how it worked.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// Since the last checkpoint that is known to be complete.
    closed: Vec<Segment>,
    turns: Vec<u32>,
    order: OpWriter,
    times: TimeWriter,
    full: bool,
    too_long: bool,
    digest: u64,
    /// Every record goes into the digest, not a sample.
    whole: bool,
    script: Option<Script>,
}

/// What a stage follows in a replay.
#[derive(Debug)]
struct Script {
    segments: VecDeque<Segment>,
    times: Times,
}

impl Course {
    /// The course of a replay, which follows these segments.
    pub(super) fn following(segments: Vec<Segment>) -> Self {
        let mut segments = VecDeque::from(segments);
        let times = Times::new(segments.front_mut().map(|s| std::mem::take(&mut s.times)).unwrap_or_default(), 0);
        Self { script: Some(Script { segments, times }), ..Self::default() }
    }

    /// Lets every record count for the digest.
    pub(super) fn digest_all(&mut self) {
        self.whole = true;
    }

    /// Notes what the task does; for the head.
    #[inline]
    pub(super) fn note(&mut self, op: &Op) {
        self.order.push(op);
        if self.order.bytes.len() > SCHEDULE_BYTES_MAX {
            self.give_up();
        }
    }

    /// The rebalance exchanges at the beginning of a segment; for the head.
    pub(super) fn begin(&mut self, turns: Vec<u32>) {
        self.turns = turns;
    }

    /// The time of the next call: `live`, or what it was.
    #[inline]
    pub(super) fn now(&mut self, live: Timestamp) -> Timestamp {
        self.script.as_mut().map_or(live, |script| script.times.call())
    }

    /// Notes whether the call that was made looked at the clock.
    #[inline]
    pub(super) fn called(&mut self, looked: bool, now: Timestamp) {
        self.times.push(looked, now);
        if self.times.bytes.len() > SCHEDULE_BYTES_MAX {
            self.give_up();
        }
    }

    /// The mode of the snapshot that begins: `live`, or what it was. `owes_full`: the operator writes a full one whatever it is asked for, which
    /// comes to the same content.
    pub(super) fn mode(&mut self, live: SnapshotMode, owes_full: bool) -> SnapshotMode {
        match self.script.as_ref().and_then(|script| script.segments.front()) {
            Some(then) => {
                self.full = then.full;
                if then.full { SnapshotMode::Full } else { SnapshotMode::Incremental }
            }
            None => {
                self.full = owes_full || live == SnapshotMode::Full;
                live
            }
        }
    }

    /// Takes what was emitted on a port into the digest.
    pub(super) fn emitted(&mut self, port: OutPort, batch: &Batch) {
        let mut digest = Mixer(self.digest);
        digest.add(match port {
            OutPort::Data(port) => u64::from(port),
            OutPort::Rejected => u64::MAX,
        });
        digest.add(batch.len() as u64);
        if self.whole {
            digest.whole(batch);
        } else {
            digest.sample(batch);
        }
        self.digest = digest.0;
    }

    /// Ends a segment with a cut, and gives all segments since the last complete checkpoint.
    pub(super) fn cut(&mut self, barrier: &Barrier) -> Vec<u8> {
        let segment = Segment {
            epoch: barrier.epoch,
            last: barrier.last,
            too_long: std::mem::take(&mut self.too_long),
            turns: std::mem::take(&mut self.turns),
            order: self.order.take(),
            full: self.full,
            times: self.times.take(),
            emitted: std::mem::take(&mut self.digest),
        };
        self.closed.retain(|segment| Some(segment.epoch) > barrier.complete);
        self.closed.push(match segment {
            Segment { too_long: true, epoch, .. } => Segment { epoch, too_long: true, ..Segment::default() },
            segment => segment,
        });
        if self.closed.iter().map(Segment::bytes).sum::<usize>() > SCHEDULE_BYTES_MAX
            && let Some(longest) = self.closed.iter_mut().max_by_key(|segment| segment.bytes())
        {
            // One that is lost is as bad as all: replay needs the whole way.
            *longest = Segment { epoch: longest.epoch, too_long: true, ..Segment::default() };
        }
        if let Some(script) = &mut self.script {
            script.segments.pop_front();
            let times = script.segments.front_mut().map(|s| std::mem::take(&mut s.times)).unwrap_or_default();
            script.times = Times::new(times, script.times.last);
        }
        encode(&self.closed)
    }

    /// How many cuts were taken since the last complete checkpoint.
    pub(super) fn cuts(&self) -> usize {
        self.closed.len()
    }

    #[cold]
    fn give_up(&mut self) {
        self.too_long = true;
        self.order.take();
        self.times.take();
    }
}

/// Gathers a digest. It tells apart what differs by chance or by time; nobody's safety rests on it.
struct Mixer(u64);

impl Mixer {
    #[inline]
    fn add(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(29) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Columns as they are, with the bounds of their rows.
    fn whole(&mut self, batch: &Batch) {
        self.add(spread(batch.timestamps.iter().map(|time| time.cast_unsigned())));
        for column in [&batch.keys, &batch.values, &batch.headers] {
            self.add(key_hash(&column.bytes));
            self.add(key_hash(&column.nulls));
            self.add(spread(column.offsets.iter().map(|&offset| u64::from(offset))));
        }
    }

    /// Four records, the first and the last among them.
    fn sample(&mut self, batch: &Batch) {
        let rows = batch.len();
        if rows == 0 {
            return;
        }
        for row in [0, rows / 3, rows * 2 / 3, rows - 1] {
            self.add(batch.timestamps[row].cast_unsigned());
            for value in [batch.keys.get(row), batch.values.get(row), batch.headers.get(row)] {
                self.add(value.map_or(1, key_hash));
            }
        }
    }
}

/// A sum that knows the place of each number, and that a compiler can make in several lanes.
fn spread(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.zip(1_u64..).fold(0, |sum, (number, place)| {
        let mixed = (number ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum.wrapping_add(mixed ^ mixed >> 32)
    })
}

/// Drops the longest schedules of a checkpoint until the rest has at most `bytes_max` bytes. Gives the number of those
/// that were dropped: a manifest has a limit of its own, and must not fail because of them.
pub fn fit<'a>(schedules: impl Iterator<Item = &'a mut Vec<u8>>, bytes_max: usize) -> usize {
    let mut schedules: Vec<&mut Vec<u8>> = schedules.collect();
    schedules.sort_by_key(|schedule| schedule.len());
    let mut bytes: usize = schedules.iter().map(|schedule| schedule.len()).sum();
    let mut dropped = 0;
    while bytes > bytes_max
        && let Some(longest) = schedules.pop()
    {
        bytes -= longest.len();
        let epoch = decode(longest).ok().and_then(|segments| segments.last().map(|s| s.epoch)).unwrap_or_default();
        *longest = encode(&[Segment { epoch, too_long: true, ..Segment::default() }]);
        dropped += 1;
    }
    dropped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn an_op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0..3_u64).prop_map(Op::Take),
            2 => (0..=u64::MAX >> 3).prop_map(Op::Take),
            2 => (0..3_u32).prop_map(Op::Flush),
            1 => any::<u32>().prop_map(Op::Wake),
            1 => (0..u32::MAX).prop_map(Op::Step),
            1 => Just(Op::Idle),
            1 => Just(Op::End),
            1 => (any::<u64>(), prop::collection::vec(any::<u8>(), 0..9)).prop_map(|(n, trace)| Op::Traced(n, trace)),
        ]
    }

    fn barrier(epoch: u64, complete: Option<u64>) -> Barrier {
        Barrier { epoch: Epoch(epoch), last: false, complete: complete.map(Epoch) }
    }

    proptest! {
        #[test]
        fn ops_come_back_in_their_order(ops in prop::collection::vec((an_op(), 1..4_usize), 0..60)) {
            let mut course = Course::default();
            let ops: Vec<Op> = ops.into_iter().flat_map(|(op, times)| vec![op; times]).collect();
            ops.iter().for_each(|op| course.note(op));
            let segments = decode(&course.cut(&barrier(1, None))).unwrap();
            let read: Vec<Op> = segments[0].ops().collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(read, ops);
        }

        #[test]
        fn calls_get_the_times_at_which_they_looked(calls in prop::collection::vec((any::<bool>(), -2_000_000_000_000_000_000..2_000_000_000_000_000_000_i64), 0..40)) {
            let mut course = Course::default();
            for (looked, now) in &calls {
                course.called(*looked, *now);
            }
            let mut again = Course::following(decode(&course.cut(&barrier(1, None))).unwrap());
            for (looked, now) in &calls {
                let then = again.now(7);
                if *looked {
                    prop_assert_eq!(then, *now);
                }
                again.called(*looked, then);
            }
        }

        #[test]
        fn bytes_that_are_no_schedule_are_refused_or_end(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let segment = Segment { order: bytes.clone(), times: bytes.clone(), ..Segment::default() };
            let _ = segment.ops().take(1000).count();
            let mut course = Course::following(vec![segment]);
            for _ in 0..100 {
                course.now(0);
            }
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_steady_task_costs_a_few_bytes_an_epoch_and_two_inputs_in_turn_a_byte_an_element() {
        let mut course = Course::default();
        (0..100_000).for_each(|_| course.note(&Op::Take(1024)));
        let steady = course.cut(&barrier(1, None)).len();
        assert!(steady < 40, "{steady}");
        (0..100_000_u64).for_each(|i| course.note(&Op::Take(i % 2)));
        let in_turn = course.cut(&barrier(2, Some(1))).len();
        assert!(in_turn < 100_040, "{in_turn}");
    }

    #[test]
    fn the_next_manifest_carries_the_segments_of_attempts_that_failed_and_no_others() {
        let mut course = Course::default();
        let epochs = |bytes: Vec<u8>| decode(&bytes).unwrap().iter().map(|s| s.epoch.0).collect::<Vec<_>>();
        assert_eq!(epochs(course.cut(&barrier(3, Some(2)))), [3]);
        assert_eq!(epochs(course.cut(&barrier(4, Some(2)))), [3, 4]);
        assert_eq!(epochs(course.cut(&barrier(5, Some(4)))), [5]);
        assert_eq!(epochs(course.cut(&barrier(7, Some(5)))), [7]);
    }

    #[test]
    fn a_schedule_that_is_too_long_is_dropped_and_says_so_until_its_epoch_is_behind() {
        let mut course = Course::default();
        (0..SCHEDULE_BYTES_MAX as u64 * 2).for_each(|i| course.note(&Op::Take(i % 2)));
        let long = course.cut(&barrier(1, None));
        assert!(long.len() < 100);
        assert!(decode(&long).unwrap_err().contains("too long"));
        course.note(&Op::Take(0));
        assert!(decode(&course.cut(&barrier(2, None))).is_err(), "attempt 1 had failed");
        course.note(&Op::Take(0));
        assert_eq!(decode(&course.cut(&barrier(3, Some(2)))).unwrap().len(), 1);
        assert!(decode(&[]).unwrap_err().contains("was not recorded"));
    }

    #[test]
    fn the_longest_schedules_go_when_a_manifest_has_no_room() {
        let mut schedules = [vec![1; 10], vec![1; 500], vec![1; 20], vec![1; 300]];
        assert_eq!(fit(schedules.iter_mut(), 1000), 0);
        assert_eq!(fit(schedules.iter_mut(), 100), 2);
        assert_eq!((schedules[0].len(), schedules[2].len()), (10, 20));
        assert!(decode(&schedules[1]).unwrap_err().contains("too long"));
    }

    #[test]
    fn a_digest_of_a_source_changes_with_every_bit_and_with_the_bounds_of_records() {
        let digest = |values: &[&[u8]]| {
            let mut batch = Batch::default();
            values.iter().for_each(|value| batch.push(1, None, Some(value)));
            let mut course = Course::default();
            course.digest_all();
            course.emitted(OutPort::Data(0), &batch);
            course.digest
        };
        let texts: Vec<Vec<u8>> = (0..50_u8).map(|i| vec![i; 20]).collect();
        let good: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        for row in 0..50 {
            let mut changed = texts.clone();
            changed[row][7] ^= 4;
            assert_ne!(digest(&changed.iter().map(Vec::as_slice).collect::<Vec<_>>()), digest(&good), "row {row}");
        }
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
    }
}
