//! The host of tests: records what an operator says and refuses what the real one refuses.

use std::collections::{BTreeMap, VecDeque};

use super::row::Row;
use crate::batch::{BatchView, Timestamp};
use crate::bindings::log::Level;
use crate::bindings::snapshots::{Chunk, Segment};
use crate::bindings::types::Descriptor;
use crate::native::Imports;
use crate::operator::TaskInfo;

/// Which kind of call is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Process,
    Data,
    Snapshot,
    Restore,
    Other,
}

const REASON_BYTES: usize = 1024;
const CHUNK_BYTES: usize = 1 << 20;
const METRICS: usize = 256;

#[derive(Debug)]
pub(super) struct Fake {
    call: Call,
    subtask: u32,
    keyed_outputs: Vec<bool>,
    pub(super) input: Vec<Row>,
    pub(super) emitted: Vec<(u32, Vec<Row>)>,
    pub(super) rejected: Vec<(Row, String)>,
    pub(super) log: Vec<String>,
    pub(super) metrics: BTreeMap<String, f64>,
    pub(super) now: Timestamp,
    pub(super) asked_wake: Option<Timestamp>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) written: Vec<(Segment, u32, Vec<u8>)>,
    pub(super) chunk_budget: usize,
    pub(super) chunks: VecDeque<Chunk>,
}

impl Fake {
    pub(super) fn new(descriptor: &Descriptor, task: &TaskInfo) -> Self {
        Self {
            call: Call::Other,
            subtask: task.subtask,
            keyed_outputs: descriptor.outputs.iter().map(|port| port.keyed).collect(),
            input: Vec::new(),
            emitted: Vec::new(),
            rejected: Vec::new(),
            log: Vec::new(),
            metrics: BTreeMap::new(),
            now: 0,
            asked_wake: None,
            wake_at: None,
            written: Vec::new(),
            chunk_budget: 0,
            chunks: VecDeque::new(),
        }
    }

    /// A call begins: what an earlier one left that did not return ok is dropped.
    pub(super) fn begin(&mut self, call: Call) {
        self.call = call;
        self.emitted.clear();
        self.rejected.clear();
        self.asked_wake = None;
    }

    #[track_caller]
    fn allow(&self, function: &str, calls: &[Call]) {
        assert!(calls.contains(&self.call), "{function} is not allowed in this call ({:?}): the host traps", self.call);
    }

    fn metric(&mut self, name: &str, change: impl FnOnce(&mut f64)) {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        assert!(!name.is_empty() && name.len() <= 64 && name.bytes().all(good), "{name:?} is no name of a metric");
        change(self.metrics.entry(name.into()).or_default());
        assert!(self.metrics.len() <= METRICS, "more than {METRICS} metrics: the host drops this one");
    }
}

fn cut(reason: &str) -> String {
    let end = (0..=REASON_BYTES.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
    reason[..end.unwrap_or(0)].to_owned()
}

impl Imports for Fake {
    fn emit(&mut self, port: u32, batch: BatchView<'_>) {
        self.allow("output.emit", &[Call::Process, Call::Data]);
        let Some(keyed) = self.keyed_outputs.get(port as usize) else { panic!("there is no output port {port}") };
        batch.check();
        let rows = Row::from_batch(batch);
        if *keyed && let Some(row) = rows.iter().find(|row| row.key.is_none()) {
            panic!("output port {port} is keyed, and a record has no key: {row:?}");
        }
        self.emitted.push((port, rows));
    }

    fn reject(&mut self, index: u32, reason: &str) {
        self.allow("output.reject", &[Call::Process]);
        let Some(row) = self.input.get(index as usize) else { panic!("there is no record {index} in this batch") };
        self.rejected.push((row.clone(), cut(reason)));
    }

    fn reject_batch(&mut self, batch: BatchView<'_>, reason: &str) {
        self.allow("output.reject-batch", &[Call::Process, Call::Data]);
        batch.check();
        self.rejected.extend(Row::from_batch(batch).into_iter().map(|row| (row, cut(reason))));
    }

    fn log(&mut self, level: Level, message: &str) {
        self.log.push(format!("{level:?}: {message}"));
    }

    fn log_enabled(&mut self, _: Level) -> bool {
        true
    }

    fn count(&mut self, name: &str, delta: u64) {
        self.metric(name, |value| *value += delta as f64);
    }

    fn gauge(&mut self, name: &str, to: f64) {
        self.metric(name, |value| *value = to);
    }

    fn observe(&mut self, name: &str, to: f64) {
        self.metric(name, |value| *value = to);
    }

    fn now(&mut self) -> i64 {
        self.now
    }

    fn wake_at(&mut self, at: i64) {
        self.allow("timers.wake-at", &[Call::Process, Call::Data]);
        self.asked_wake = Some(self.asked_wake.map_or(at, |earlier| earlier.min(at)));
    }

    fn write(&mut self, target: Segment, data: &[u8]) -> bool {
        self.allow("snapshots.write", &[Call::Snapshot]);
        assert!(
            data.len() <= CHUNK_BYTES,
            "a chunk of {} bytes: a host may take no more than {CHUNK_BYTES}",
            data.len()
        );
        self.written.push((target, self.subtask, data.to_vec()));
        self.chunk_budget = self.chunk_budget.saturating_sub(1);
        self.chunk_budget > 0
    }

    fn read(&mut self) -> Option<Chunk> {
        self.allow("snapshots.read", &[Call::Restore]);
        self.chunks.pop_front()
    }
}
