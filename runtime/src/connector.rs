//! Where records come from and go to: the contracts of sources and sinks.
//!
//! A connector knows records, positions and stages, and nothing of barriers, channels or checkpoints. It is told when
//! to poll, when to prepare and when to commit; what it hands back for a checkpoint is bytes that only it reads.

mod blackhole;
mod confined;
mod durable;
mod encode;
mod event_time;
mod file_commit;
mod file_sink;
mod file_source;
mod generator;
mod json_text;
mod object;
mod replay;
mod stdout;
mod watch;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

pub use crate::model::Guarantee;
pub use blackhole::{Blackhole, Tally};
pub use object::{CommittedObject, Reader as ObjectReader};
pub use replay::{Content, content, open_replayed_sink};
pub use stdout::StdoutSink;

use crate::model::{Batch, BatchLimit, CommitIdentity, Committable, Epoch, Generation, JobId, SplitPosition};
use crate::plan::{SinkConnector, SinkSpec, SourceConnector, SourceSpec};

/// Opens a subtask of a source: at `positions`, or at its beginning where there are none.
///
/// `dir` is the folder of the pipeline file, where relative paths start. `positions` may hold those of all subtasks of the node: each takes its own.
///
/// # Errors
///
/// [`ConnectorErrorKind::Mismatch`] if what is there does not fit the positions, or if there is nothing to read;
/// [`ConnectorErrorKind::Transient`] if it could not be looked at.
pub fn open_source(
    spec: &SourceSpec,
    dir: &Path,
    context: &TaskContext,
    positions: &[SplitPosition],
) -> Result<Box<dyn Source>, ConnectorError> {
    #[cfg(test)]
    if let Some(place) = crate::simulation::place() {
        return Ok(place.open_source(context, positions));
    }
    Ok(match &spec.connector {
        SourceConnector::File(file) => {
            Box::new(file_source::FileSource::open(spec, file, dir, context, positions)?) as Box<dyn Source>
        }
        SourceConnector::Generator(generator) => Box::new(generator::Generator::open(generator, context, positions)?),
    })
}

/// Opens a subtask of a sink. `dir` is the folder of the pipeline file, where relative paths start.
///
/// # Errors
///
/// [`ConnectorErrorKind::Mismatch`] if the destination belongs to another job or node;
/// [`ConnectorErrorKind::Transient`] if it could not be made ready.
pub async fn open_sink(spec: &SinkSpec, dir: &Path, context: &TaskContext) -> Result<Box<dyn Sink>, ConnectorError> {
    #[cfg(test)]
    if let Some(place) = crate::simulation::place() {
        return Ok(place.open_sink(context));
    }
    Ok(match &spec.connector {
        SinkConnector::File(file) => Box::new(file_sink::FileSink::open(file, dir, context)?) as Box<dyn Sink>,
        SinkConnector::Object(object) => Box::new(object::ObjectSink::open(object, dir, context).await?),
        SinkConnector::Stdout(format) => Box::new(StdoutSink::new(*format, Box::new(std::io::stdout()))),
        SinkConnector::Blackhole => Box::new(Blackhole::new()),
    })
}

/// What publishes the output of a sink node; none for a sink without a stage, where writing is publishing.
///
/// It can be made before any sink is opened, and on a path where none ever was: recovery commits first.
///
/// # Errors
///
/// [`ConnectorErrorKind::Transient`] if the path of the sink cannot be made absolute.
pub fn committer(spec: &SinkSpec, dir: &Path, job: JobId) -> Result<Option<Box<dyn Committer>>, ConnectorError> {
    #[cfg(test)]
    if let Some(place) = crate::simulation::place() {
        return Ok(Some(place.committer(job)));
    }
    Ok(match &spec.connector {
        SinkConnector::File(file) => Some(Box::new(file_commit::FileCommitter::new(file, dir, job)?)),
        SinkConnector::Object(object) => Some(Box::new(object::ObjectCommitter::new(object, dir, job)?)),
        SinkConnector::Stdout(_) | SinkConnector::Blackhole => None,
    })
}

/// What publishes committables, or gives them up, without knowing the pipeline that made them: they say themselves where they
/// go. It collects nothing.
pub fn committer_of(committables: &[Committable], job: JobId) -> Box<dyn Committer> {
    #[cfg(test)]
    if let Some(place) = crate::simulation::place() {
        return place.committer(job);
    }
    if committables.iter().any(|committable| object::is_committable(&committable.data)) {
        Box::new(object::ObjectCommitter::anywhere(job))
    } else {
        Box::new(file_commit::FileCommitter::anywhere(job))
    }
}

/// Finds out whether a new history of a job could write to a sink: before the old one is left.
///
/// # Errors
///
/// [`ConnectorErrorKind::Mismatch`] if the destination holds the output of another history.
pub async fn check_unowned(spec: &SinkSpec, dir: &Path) -> Result<(), ConnectorError> {
    match &spec.connector {
        SinkConnector::File(file) => file_sink::check_unowned(file, dir),
        SinkConnector::Object(object) => object::check_unowned(object, dir).await,
        SinkConnector::Stdout(_) | SinkConnector::Blackhole => Ok(()),
    }
}

/// What a sink can promise.
pub fn guarantee(connector: &SinkConnector) -> Guarantee {
    match connector {
        SinkConnector::File(_) | SinkConnector::Object(_) => Guarantee::ExactlyOnce,
        SinkConnector::Stdout(_) | SinkConnector::Blackhole => Guarantee::AtLeastOnce,
    }
}

/// What a source has when it is asked.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // One a batch, taken apart at once.
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

    /// Waits until there may be something, after it had nothing: to be asked before the time is over that
    /// [`Polled::Pending`] names. May be dropped and asked again. A source that cannot tell never comes back.
    async fn changed(&mut self) {
        std::future::pending().await
    }

    /// Up to where records were handed out by `poll`: opening at these positions gives exactly those that come
    /// after. Ended splits stay in the list, so that they are not read again.
    fn positions(&self) -> Vec<SplitPosition>;

    /// How the last poll came to what it gave, in the source's own words for [`repeat`](Self::repeat): whatever its
    /// position depends on beyond the number of records. Empty where that number says it all. Asked once after each poll, and once
    /// before the first.
    fn trace(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Polls again as it did then: gives the same records, well-formed or not, and is at the same position afterwards. `count` is how many
    /// there were with those that were rejected or skipped, `trace` what [`trace`](Self::trace) said. Whoever calls checks the
    /// number. A source that never says anything in `trace` need not write this.
    async fn repeat(&mut self, count: u64, _trace: &[u8]) -> Result<Polled, ConnectorError> {
        poll_count(self, count).await
    }

    /// Whether somebody else could change what stands at a position. Then a replay looks at every byte.
    fn may_change(&self) -> bool {
        true
    }
}

/// Polls until there are so many records, or no more come.
async fn poll_count<S: Source + ?Sized>(source: &mut S, count: u64) -> Result<Polled, ConnectorError> {
    let (mut records, mut rejected, mut skipped) = (Batch::default(), Batch::default(), 0);
    loop {
        let given = (records.len() + rejected.len()) as u64 + skipped;
        let left = usize::try_from(count.saturating_sub(given)).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(Polled::Records { records, rejected, skipped });
        }
        match source.poll(BatchLimit { records: left, bytes: usize::MAX }).await? {
            Polled::Records { records: more, rejected: more_rejected, skipped: more_skipped } => {
                append(&mut records, more);
                append(&mut rejected, more_rejected);
                skipped += more_skipped;
            }
            Polled::Pending(Duration::ZERO) => {}
            Polled::Pending(_) | Polled::End => return Ok(Polled::Records { records, rejected, skipped }),
        }
    }
}

fn append(batch: &mut Batch, more: Batch) {
    if batch.is_empty() {
        *batch = more;
    } else {
        (0..more.len()).for_each(|row| batch.push_row(&more, row));
    }
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

    /// Looks at what a commit would do, and changes nothing.
    async fn look(&self, identity: &CommitIdentity, committables: &[Committable]) -> Result<Looked, ConnectorError>;

    /// Makes sure that the committables never become visible, also not by a run that has a permit to commit them and was asleep
    /// since: one of the two happens, and this says which. Repeating it changes nothing.
    async fn abandon(
        &self,
        identity: &CommitIdentity,
        committables: &[Committable],
    ) -> Result<Abandoned, ConnectorError>;

    /// What [`collect`](Self::collect) would remove.
    async fn leftovers(&self, generation: Generation) -> Result<Vec<Leftover>, ConnectorError>;

    /// Removes what runs before `generation` staged. Called when the checkpoint that this run starts from has been
    /// committed, so nothing of it will ever be visible. Says how many stages (folders or objects) it removed.
    async fn collect(&self, generation: Generation) -> Result<u64, ConnectorError>;
}

/// What a commit would find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Where the output goes.
    pub destination: String,
    /// It is visible already.
    pub published: bool,
    /// It was given up, and never will be.
    pub given_up: bool,
    /// What was staged; once it is published, where it was.
    pub staged: Vec<StagedFile>,
}

/// A file or an object that was staged.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct StagedFile {
    /// Where it is.
    pub name: String,
    /// How long it has to be.
    pub bytes: u64,
    /// How many records it holds.
    pub records: u64,
    /// How long it is; none if it is not there.
    pub found: Option<u64>,
}

/// Something staged that nobody will ever publish.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Leftover {
    /// Where it is.
    pub name: String,
    /// How long it is.
    pub bytes: u64,
}

/// How giving up went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// It will never be visible.
    Done,
    /// It is visible already.
    AlreadyPublished,
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

impl ConnectorError {
    fn new(kind: ConnectorErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), help: None, source: None }
    }

    fn mismatch(message: impl Into<String>) -> Self {
        Self::new(ConnectorErrorKind::Mismatch, message)
    }

    fn record(message: impl Into<String>) -> Self {
        Self::new(ConnectorErrorKind::Record, message)
    }

    /// What could not be done to which path, because the file system said no.
    fn io(what: &str, path: &Path, cause: std::io::Error) -> Self {
        Self::new(ConnectorErrorKind::Transient, format!("cannot {what} {}", path.display())).caused_by(cause)
    }

    #[must_use]
    fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    #[must_use]
    fn caused_by(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(cause.into());
        self
    }
}
