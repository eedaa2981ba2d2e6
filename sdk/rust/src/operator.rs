//! What an operator is: the contract of `wit/processor.wit` and `wit/checkpoint.wit` as two Rust traits.

use crate::batch::{BatchView, Timestamp};
use crate::bindings::{SnapshotMode, types};
use crate::descriptor::Descriptor;
use crate::output::Output;
use crate::snapshot::{SnapshotReader, SnapshotWriter};

pub use types::{Failure, FailureKind, Progress, TaskInfo};

/// What an operator does with data.
///
/// A call is a transaction: what it emits takes effect when it returns `Ok`. The host makes one call at a time. What an
/// operator remembers between calls lies in `self`, and nowhere else.
///
/// The same calls must lead to the same results: take time from [`crate::time::now`] and randomness from
/// [`TaskInfo::seed`], and do not let the order of a `HashMap` with a random seed reach the output.
pub trait Operator: Sized {
    /// Says what this plugin is; always the same.
    fn descriptor() -> Descriptor;

    /// Makes an operator that is ready to work. `config` is a JSON object, `{}` where the pipeline gives none; it satisfies the
    /// schema of the descriptor. See [`crate::json::config`].
    ///
    /// # Errors
    ///
    /// [`Failure::invalid`] where the configuration makes no sense: a person has to change something.
    fn open(config: &str, task: &TaskInfo) -> Result<Self, Failure>;

    /// Takes a batch that came in on an input port. It has at least one record. Records may be out of order in event
    /// time, and late.
    ///
    /// A record that cannot be processed is not a failure: [`Output::reject`] it and go on.
    ///
    /// # Errors
    ///
    /// [`Failure::retry`] if the operator's state is as it was; [`Failure::fatal`] to start over from the last
    /// checkpoint.
    fn process(&mut self, port: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure>;

    /// Event time has moved: all records at or before `watermark` have come, but for late ones. Emit what was waiting
    /// for that. After a restore the first watermark may be one that the state has already seen.
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process).
    fn advance(&mut self, watermark: Timestamp, out: &mut Output) -> Result<Progress, Failure> {
        let _ = (watermark, out);
        Ok(Progress::Done)
    }

    /// Processing time has come to what [`crate::time::wake_at`] asked for, or later; it may also be called when nothing is
    /// due.
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process).
    fn wake(&mut self, out: &mut Output) -> Result<Progress, Failure> {
        let _ = out;
        Ok(Progress::Done)
    }

    /// An input port has ended. Not called when a job is stopped before its end.
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process).
    fn finish(&mut self, port: u32, out: &mut Output) -> Result<Progress, Failure> {
        let _ = (port, out);
        Ok(Progress::Done)
    }

    /// Goes on with a call that returned [`Progress::More`]. No other call comes in between. An operator that never
    /// returns `More` need not have it.
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process).
    fn resume(&mut self, out: &mut Output) -> Result<Progress, Failure> {
        let _ = out;
        Ok(Progress::Done)
    }
}

/// An operator that writes and reads its state itself, so that it can be upgraded, rescaled and stored incrementally.
///
/// With the collections of [`crate::state`] both methods are one line: see [`crate::state::Segments`].
pub trait Stateful: Operator {
    /// Writes the state as it is at the first call with this epoch. Returning [`Progress::More`] lets the stream go on and asks for
    /// another call; what changes in between must not show in this snapshot.
    ///
    /// # Errors
    ///
    /// [`Failure::retry`]: what was written is thrown away and the next snapshot is a new, full one.
    fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure>;

    /// Takes over state, on a fresh operator after [`Operator::open`]. `state_version` is that of the plugin which wrote it.
    ///
    /// # Errors
    ///
    /// [`Failure::invalid`] where the state cannot be read.
    fn restore(&mut self, state_version: u32, reader: &mut SnapshotReader) -> Result<(), Failure>;
}

/// Which snapshot a call of [`Stateful::snapshot`] is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The epoch that ends with this cut. Another one than in the last call begins a new snapshot.
    pub epoch: u64,
    /// Everything, or what has changed.
    pub mode: SnapshotMode,
}

impl Failure {
    /// The same call may be made again later: nothing has changed in the operator.
    pub fn retry(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Retry, message: message.into() }
    }

    /// The configuration or the state is not acceptable: a person has to change something.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Invalid, message: message.into() }
    }

    /// Start over from the last checkpoint.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Fatal, message: message.into() }
    }
}
