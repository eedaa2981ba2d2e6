//! Counts records by key in windows of a minute of event time. See `sdk/conformance`.

use std::collections::BTreeMap;

use weir_sdk::state::{EventTimers, KeyedState, Postcard, Segments};
use weir_sdk::{
    BatchBuilder, BatchView, Cut, Descriptor, Failure, Operator, Output, Progress, SnapshotReader, SnapshotWriter,
    StateKind, Stateful, TaskInfo, Timestamp,
};

const WINDOW: i64 = 60_000_000;

struct Tally {
    /// By key: the records of the windows that were emitted, and those of the open windows by their ends.
    counts: KeyedState<Postcard<(u64, BTreeMap<Timestamp, u64>)>>,
    /// The end of each open window.
    ends: EventTimers,
    segments: Segments,
    out: BatchBuilder,
}

impl Operator for Tally {
    fn descriptor() -> Descriptor {
        Descriptor::new("tally", env!("CARGO_PKG_VERSION"))
            .summary("Counts records by key in windows of a minute.")
            .keyed_input("in", "what is counted")
            .keyed_output("out", "END COUNT TOTAL KEY")
            .state(StateKind::Keyed, 1)
    }

    fn open(_config: &str, task: &TaskInfo) -> Result<Self, Failure> {
        Ok(Self {
            counts: KeyedState::new("counts", task),
            ends: EventTimers::new("ends", task),
            segments: Segments::new(task),
            out: BatchBuilder::new(),
        })
    }

    fn process(&mut self, _port: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
        for record in batch.records() {
            let Some(key) = record.keyed() else {
                out.reject(record.index(), "no key");
                continue;
            };
            let Some(time) = record.time() else {
                out.reject(record.index(), "no time");
                continue;
            };
            let end = time - time.rem_euclid(WINDOW) + WINDOW;
            let Postcard((_, windows)) = self.counts.value(key);
            let count = windows.entry(end).or_default();
            *count += 1;
            if *count == 1 {
                self.ends.set(end, key);
            }
        }
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: Timestamp, out: &mut Output) -> Result<Progress, Failure> {
        self.out.clear();
        for due in self.ends.due(watermark) {
            let Postcard((total, windows)) = self.counts.value(&*due.key);
            let count = windows.remove(&due.time).unwrap_or_default();
            *total += count;
            let mut value = format!("{} {count} {total} ", due.time).into_bytes();
            value.extend_from_slice(&due.key);
            self.out.push(due.time, Some(&due.key), Some(&value));
        }
        out.emit(0, &self.out);
        Ok(Progress::Done)
    }
}

impl Stateful for Tally {
    fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
        self.segments.snapshot(cut, writer, &mut [&mut self.counts, &mut self.ends])
    }

    fn restore(&mut self, _state_version: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
        self.segments.restore(reader, &mut [&mut self.counts, &mut self.ends])
    }
}

weir_sdk::export!(Tally);
