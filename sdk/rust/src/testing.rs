//! Runs an operator in plain `cargo test`, as the host would: no WebAssembly, no runtime.
//!
//! ```
//! # use weir_sdk::*;
//! # struct Upper;
//! # impl Operator for Upper {
//! #     fn descriptor() -> Descriptor { Descriptor::new("upper", "1.0.0").input("in", "").output("out", "") }
//! #     fn open(_: &str, _: &TaskInfo) -> Result<Self, Failure> { Ok(Self) }
//! #     fn process(&mut self, _: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
//! #         let mut upper = BatchBuilder::new();
//! #         for record in batch.records() {
//! #             upper.push(record.time(), record.key(), record.value().map(|v| v.to_ascii_uppercase()).as_deref());
//! #         }
//! #         out.emit(0, &upper);
//! #         Ok(Progress::Done)
//! #     }
//! # }
//! use weir_sdk::testing::{Harness, Row};
//!
//! let mut harness = Harness::<Upper>::new("{}").unwrap();
//! harness.process(0, &[Row::new("k", "some text").at(5)]).unwrap();
//! assert_eq!(harness.take(0), [Row::new("k", "SOME TEXT").at(5)]);
//! ```
//!
//! What the host refuses panics here: an emit outside of a call, a port that does not exist, a record without key on a keyed port, a chunk
//! that is too large.

mod checkpoint;
mod fake;
mod row;

pub use checkpoint::Checkpoint;
pub use row::Row;

use fake::{Call, Fake};

use crate::batch::{BatchView, Timestamp, key_hash};
use crate::bindings::SnapshotMode;
use crate::bindings::types::Descriptor;
use crate::native;
use crate::operator::{Cut, Failure, Operator, Progress, Stateful, TaskInfo};

/// A task that has all 128 key groups to itself.
pub fn task() -> TaskInfo {
    subtask(0, 1)
}

/// One of several subtasks, with its part of 128 key groups.
pub fn subtask(number: u32, parallelism: u32) -> TaskInfo {
    let first = |subtask: u32| (subtask * 128).div_ceil(parallelism);
    TaskInfo {
        job: "test".into(),
        node: "operator".into(),
        subtask: number,
        parallelism,
        key_groups: 128,
        first_key_group: first(number),
        end_key_group: first(number + 1),
        seed: 0x5eed + u64::from(number),
        attributes: Vec::new(),
    }
}

/// An operator with a host around it.
#[derive(Debug)]
pub struct Harness<O> {
    /// The operator itself, for looking into it.
    pub operator: O,
    descriptor: Descriptor,
    fake: Fake,
    outputs: Vec<Vec<Row>>,
    rejected: Vec<(Row, String)>,
    checkpoint: Checkpoint,
    epoch: u64,
    open: Option<SnapshotMode>,
}

impl<O: Operator> Harness<O> {
    /// Opens an operator that has all key groups.
    ///
    /// # Errors
    ///
    /// What `open` fails with.
    pub fn new(config: &str) -> Result<Self, Failure> {
        Self::with_task(config, &task())
    }

    /// Opens an operator for a given task.
    ///
    /// # Errors
    ///
    /// What `open` fails with.
    pub fn with_task(config: &str, task: &TaskInfo) -> Result<Self, Failure> {
        let descriptor = O::descriptor().into_wit();
        let mut fake = Fake::new(&descriptor, task);
        fake.begin(Call::Other);
        let operator = native::call(&mut fake, |_| O::open(config, task))?;
        Ok(Self {
            operator,
            outputs: vec![Vec::new(); descriptor.outputs.len()],
            descriptor,
            fake,
            rejected: Vec::new(),
            checkpoint: Checkpoint::default(),
            epoch: 0,
            open: None,
        })
    }

    /// Hands a batch to an input port, and calls `resume` until the operator has no more to say.
    ///
    /// # Errors
    ///
    /// What the operator fails with; what it emitted in the failed call is dropped.
    ///
    /// # Panics
    ///
    /// If there is no such port, or no record.
    pub fn process(&mut self, port: u32, rows: &[Row]) -> Result<(), Failure> {
        let batch = Row::batch(rows);
        let input = self.descriptor.inputs.get(port as usize);
        let input = input.unwrap_or_else(|| panic!("there is no input port {port}"));
        let hashes: Vec<u64> = match input.keyed {
            true => rows.iter().map(|row| key_hash(row.key.as_deref().unwrap_or_default())).collect(),
            false => Vec::new(),
        };
        self.process_batch(port, batch.view().with_hashes(&hashes))
    }

    /// Hands a batch to an input port as it is.
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process).
    ///
    /// # Panics
    ///
    /// If it has no record.
    pub fn process_batch(&mut self, port: u32, batch: BatchView<'_>) -> Result<(), Failure> {
        assert!(!batch.is_empty(), "a batch that is handed to an operator has at least one record");
        self.fake.input = batch.records().map(|record| Row::from_record(&record)).collect();
        self.run(Call::Process, |operator, out| operator.process(port, batch, out))
    }

    /// Event time moves.
    ///
    /// # Errors
    ///
    /// What the operator fails with.
    pub fn advance(&mut self, watermark: Timestamp) -> Result<(), Failure> {
        self.run(Call::Data, |operator, out| operator.advance(watermark, out))
    }

    /// Processing time moves; if it comes to what the operator asked for, it is woken.
    ///
    /// # Errors
    ///
    /// What the operator fails with.
    pub fn set_time(&mut self, now: Timestamp) -> Result<(), Failure> {
        self.fake.now = now.max(self.fake.now);
        match self.fake.wake_at {
            Some(at) if at <= now => {
                self.fake.wake_at = None;
                self.run(Call::Data, |operator, out| operator.wake(out))
            }
            _ => Ok(()),
        }
    }

    /// When the operator has asked to be woken.
    pub fn wake_time(&self) -> Option<Timestamp> {
        self.fake.wake_at
    }

    /// An input port ends.
    ///
    /// # Errors
    ///
    /// What the operator fails with.
    pub fn finish(&mut self, port: u32) -> Result<(), Failure> {
        self.run(Call::Data, |operator, out| operator.finish(port, out))
    }

    /// Takes what was emitted on a port so far.
    ///
    /// # Panics
    ///
    /// If there is no such port.
    pub fn take(&mut self, port: u32) -> Vec<Row> {
        std::mem::take(&mut self.outputs[port as usize])
    }

    /// Takes the records that were rejected so far, with the reasons.
    pub fn take_rejected(&mut self) -> Vec<(Row, String)> {
        std::mem::take(&mut self.rejected)
    }

    /// Takes what was logged so far.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.fake.log)
    }

    /// A counter or gauge, or the last observation of a histogram.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.fake.metrics.get(name).copied()
    }

    fn run(
        &mut self,
        call: Call,
        first: impl FnOnce(&mut O, &mut crate::Output) -> Result<Progress, Failure>,
    ) -> Result<(), Failure> {
        self.fake.begin(call);
        let mut progress = native::call(&mut self.fake, |out| first(&mut self.operator, out))?;
        self.commit();
        while progress == Progress::More {
            self.fake.begin(Call::Data);
            progress = native::call(&mut self.fake, |out| self.operator.resume(out))?;
            self.commit();
        }
        self.fake.begin(Call::Other);
        Ok(())
    }

    /// The call has returned ok: what it said takes effect.
    fn commit(&mut self) {
        for (port, rows) in self.fake.emitted.drain(..) {
            self.outputs[port as usize].extend(rows);
        }
        self.rejected.append(&mut self.fake.rejected);
        if let Some(at) = self.fake.asked_wake.take() {
            self.fake.wake_at = Some(self.fake.wake_at.map_or(at, |earlier| earlier.min(at)));
        }
    }
}

impl<O: Stateful> Harness<O> {
    /// Opens an operator and lets it take over a checkpoint.
    ///
    /// # Errors
    ///
    /// What `open` or `restore` fails with.
    pub fn restore(config: &str, checkpoint: &Checkpoint) -> Result<Self, Failure> {
        Self::restore_task(config, &task(), &[checkpoint])
    }

    /// Opens one subtask and lets it take over its part of the checkpoints of all subtasks of an earlier run, which may have
    /// been more or fewer.
    ///
    /// # Errors
    ///
    /// What `open` or `restore` fails with.
    pub fn restore_task(config: &str, task: &TaskInfo, checkpoints: &[&Checkpoint]) -> Result<Self, Failure> {
        let mut harness = Self::with_task(config, task)?;
        harness.checkpoint = Checkpoint::merge(checkpoints, task);
        let version = checkpoints.first().map_or(harness.descriptor.state_version, |first| first.state_version);
        harness.fake.begin(Call::Restore);
        harness.fake.chunks = harness.checkpoint.chunks();
        native::restore(&mut harness.fake, |reader| harness.operator.restore(version, reader))?;
        harness.fake.begin(Call::Other);
        Ok(harness)
    }

    /// Takes a whole snapshot at once, incremental where that is possible, and returns the checkpoint after it.
    ///
    /// # Errors
    ///
    /// What `snapshot` fails with.
    pub fn snapshot(&mut self) -> Result<Checkpoint, Failure> {
        self.begin_snapshot(SnapshotMode::Incremental);
        while self.snapshot_step(usize::MAX)? == Progress::More {}
        Ok(self.checkpoint.clone())
    }

    /// As [`snapshot`](Self::snapshot), but of everything.
    ///
    /// # Errors
    ///
    /// What `snapshot` fails with.
    pub fn full_snapshot(&mut self) -> Result<Checkpoint, Failure> {
        self.begin_snapshot(SnapshotMode::Full);
        while self.snapshot_step(usize::MAX)? == Progress::More {}
        Ok(self.checkpoint.clone())
    }

    /// Begins a snapshot that is taken in steps. One that is open is abandoned; then, and the first time, this one is full.
    pub fn begin_snapshot(&mut self, mode: SnapshotMode) {
        self.epoch += 1;
        let full = self.open.is_some() || !self.checkpoint.exists;
        self.open = Some(if full { SnapshotMode::Full } else { mode });
        self.fake.written.clear();
    }

    /// One step: after `chunks` chunks the operator is asked to stop. When it is done, [`checkpoint`](Self::checkpoint) has
    /// it.
    ///
    /// # Errors
    ///
    /// What `snapshot` fails with; the next one is full then.
    ///
    /// # Panics
    ///
    /// If no snapshot was begun.
    pub fn snapshot_step(&mut self, chunks: usize) -> Result<Progress, Failure> {
        let mode = self.open.expect("begin_snapshot comes before snapshot_step");
        let cut = Cut { epoch: self.epoch, mode };
        self.fake.begin(Call::Snapshot);
        self.fake.chunk_budget = chunks;
        let progress = native::snapshot(&mut self.fake, |writer| self.operator.snapshot(cut, writer))?;
        self.fake.begin(Call::Other);
        if progress == Progress::Done {
            self.open = None;
            self.checkpoint.state_version = self.descriptor.state_version;
            self.checkpoint.apply(mode, std::mem::take(&mut self.fake.written));
        }
        Ok(progress)
    }

    /// The last snapshot that was done, as it would be restored.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }
}
