//! The same as `tally`, which keeps the open windows of each key and a timer for each of them. This one keeps the keys of each open window, and so needs
//! no timers.

use std::io::Write as _;

use weir_sdk::state::{KeyedState, Segments, Sorted, Windows};
use weir_sdk::{
    BatchBuilder, BatchView, Cut, Descriptor, Failure, Operator, Output, Progress, SnapshotReader, SnapshotWriter,
    StateKind, Stateful, TaskInfo, Timestamp,
};

const WINDOW: i64 = 60_000_000;

struct Tally {
    /// By the end of an open window and by key: its records.
    counts: Windows<u64>,
    /// By key: the records of the windows that were emitted.
    totals: KeyedState<u64>,
    segments: Segments,
    sorted: Sorted,
    value: Vec<u8>,
    out: BatchBuilder,
}

impl Operator for Tally {
    fn descriptor() -> Descriptor {
        Descriptor::new("tally-windows", env!("CARGO_PKG_VERSION"))
            .summary("Counts records by key in windows of a minute.")
            .keyed_input("in", "what is counted")
            .keyed_output("out", "END COUNT TOTAL KEY")
            .state(StateKind::Keyed, 1)
    }

    fn open(_config: &str, task: &TaskInfo) -> Result<Self, Failure> {
        Ok(Self {
            counts: Windows::new("counts", task),
            totals: KeyedState::new("totals", task),
            segments: Segments::new(task),
            sorted: Sorted::default(),
            value: Vec::new(),
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
            *self.counts.value(time - time.rem_euclid(WINDOW) + WINDOW, key) += 1;
        }
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: Timestamp, out: &mut Output) -> Result<Progress, Failure> {
        self.out.clear();
        while let Some(end) = self.counts.first().filter(|end| *end <= watermark) {
            self.counts.sorted(end, &mut self.sorted);
            self.counts.read(end, &self.sorted, 0..self.sorted.len(), |key, count| {
                let total = self.totals.value(key);
                *total += count;
                self.value.clear();
                // A vector takes all that is written.
                let _ = write!(self.value, "{end} {count} {total} ");
                self.value.extend_from_slice(key);
                self.out.push(end, Some(key), Some(&self.value));
            });
            self.counts.remove(end);
        }
        out.emit(0, &self.out);
        Ok(Progress::Done)
    }
}

impl Stateful for Tally {
    fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
        self.segments.snapshot(cut, writer, &mut [&mut self.counts, &mut self.totals])
    }

    fn restore(&mut self, _state_version: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
        self.segments.restore(reader, &mut [&mut self.counts, &mut self.totals])
    }
}

weir_sdk::export!(Tally);
