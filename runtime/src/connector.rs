//! Where records come from and go to: the contracts of sources and sinks.
//!
//! A connector knows records, positions and stages, and nothing of barriers, channels or checkpoints. It is told when
//! to poll, when to prepare and when to commit; what it hands back for a checkpoint is bytes that only it reads.

use async_trait::async_trait;

pub use crate::model::Guarantee;
use crate::model::{Batch, BatchLimit, CommitIdentity, Committable, Epoch, Generation, SplitPosition};

/// What a source has when it is asked.
#[derive(Debug)]
pub enum Polled {
    /// Records, and what became of those that could not be used.
    Records {
        /// Well-formed records. May be empty when all of them were malformed.
        records: Batch,
        /// Malformed records for the port `rejected`: the value is a JSON object that holds the raw record, its
        /// origin and the reason. Empty unless the source's `on_error` asks for it.
        rejected: Batch,
        /// How many malformed records were skipped.
        skipped: u64,
    },
    /// Nothing now: ask again after this time.
    Pending(std::time::Duration),
    /// Nothing, ever again.
    End,
}

/// A subtask of a source.
///
/// A source is opened at the positions of a checkpoint, or at none for its beginning. From the same positions it
/// gives the same records in the same order; how they are cut into batches may differ.
#[async_trait]
pub trait Source: Send {
    /// The next records, up to `limit`, never across its bounds by more than one record.
    ///
    /// Does not wait for records to come: it answers [`Polled::Pending`]. It may block for as long as reading a
    /// megabyte from a local disk takes. After an error the source is not used again.
    async fn poll(&mut self, limit: BatchLimit) -> Result<Polled, ConnectorError>;

    /// Up to where records were handed out by `poll`: opening at these positions gives exactly those that come
    /// after. Ended splits stay in the list, so that they are not read again.
    fn positions(&self) -> Vec<SplitPosition>;
}

/// A subtask of a sink.
///
/// What is written becomes visible by a [`Committer`], or as soon as it is written for a sink whose
/// [`Guarantee`] is not exactly-once.
#[async_trait]
pub trait Sink: Send {
    /// Takes records. They are not visible to anybody yet, unless the sink has no stage.
    async fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError>;

    /// Makes what was written since the last call durable, so that a commit can only fail for reasons outside: when
    /// this has returned it survives a crash and a loss of power. None if nothing was written.
    ///
    /// Called with growing epochs, with or without commits in between.
    async fn prepare(&mut self, epoch: Epoch) -> Result<Option<Vec<u8>>, ConnectorError>;
}

/// Publishes what the subtasks of one sink node prepared.
#[async_trait]
pub trait Committer: Send + Sync {
    /// Makes the committables of one checkpoint visible, as one change: a reader sees all of them or none, in the order
    /// given. They may come from several epochs, the oldest first. An empty list changes nothing.
    ///
    /// Repeating it changes nothing: "already applied" requires that what is there carries the same identity. Any
    /// other occupant is an error that names it. It relies on nothing but its arguments: the run that prepared is
    /// gone when recovery commits.
    async fn commit(
        &self,
        identity: &CommitIdentity,
        committables: &[Committable],
    ) -> Result<Committed, ConnectorError>;

    /// Removes what runs before `generation` staged. Called when the checkpoint that this run starts from has been
    /// committed, so nothing of it will ever be visible.
    async fn collect(&self, generation: Generation) -> Result<(), ConnectorError>;
}

/// What a commit found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It is visible now.
    Applied,
    /// It was visible already.
    AlreadyApplied,
}

/// Which subtask of which run a connector works for.
#[derive(Clone, Debug)]
pub struct TaskContext {
    /// The job's name.
    pub job: String,
    /// The job's history.
    pub job_id: crate::model::JobId,
    /// This run.
    pub generation: Generation,
    /// The node and the number of the subtask.
    pub task: crate::model::TaskId,
    /// How many subtasks the node has.
    pub parallelism: u32,
}

/// Why a connector failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ConnectorError {
    /// What the caller can do.
    pub kind: ConnectorErrorKind,
    /// What is wrong with what: the thing, the value, the limit.
    pub message: String,
    /// The remedy, if there is one to name.
    pub help: Option<String>,
    /// The cause.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What the caller of a connector can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectorErrorKind {
    /// Starting over from the last checkpoint may help: a file system or a network did not answer as it must.
    Transient,
    /// A record is malformed and `on_error` is `fail`.
    Record,
    /// What is there does not fit what the checkpoint knows, or belongs to somebody else: a person must look.
    Mismatch,
}
