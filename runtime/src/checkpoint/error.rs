//! What can go wrong with a store, in this room's words, and what the caller can do about it.
//!
//! Every variant becomes one of the crate's few kinds at the door: damage and mismatch are `State`, a store that does
//! not answer is `Store`, a newer run is `Superseded`. Nothing here is guessed: an error names the object, and the
//! cause stays in the chain.

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::model::{Epoch, Generation};

/// The cause of an error, from whichever layer it came.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Who took over from this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Superseder {
    /// A later claim in the same history.
    Generation(Generation),
    /// A later run, which has collected the log up to this sequence number.
    Collected(u64),
    /// A run that was started with `--fresh`: the job has a new history.
    Fresh,
}

impl fmt::Display for Superseder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generation(generation) => write!(f, "generation {generation}"),
            Self::Collected(seq) => write!(f, "a later generation, which collected the log up to entry {seq}"),
            Self::Fresh => f.write_str("a fresh start"),
        }
    }
}

/// Why the checkpoint room could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The store did not answer, or not as a store does.
    #[error("cannot {verb} {object}")]
    Unreachable {
        /// What was tried.
        verb: &'static str,
        /// On which object.
        object: String,
        /// What the store said.
        #[source]
        source: Cause,
    },
    /// The store breaks a promise that the protocol rests on.
    #[error("store {store:?} does not {promise}")]
    Unsuitable {
        /// Its address.
        store: String,
        /// What it should do.
        promise: &'static str,
    },
    /// The address of a store cannot be used.
    #[error("store {url:?} {fault}")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        fault: String,
        /// What to write instead.
        help: String,
    },
    /// The name of a job or a pin is not one.
    #[error("{what} {name:?} {fault}")]
    Name {
        /// The name of what.
        what: &'static str,
        /// As it was given.
        name: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// An object is not what was written.
    #[error("{object} is damaged: {fault}")]
    Damaged {
        /// Which object.
        object: String,
        /// How it was found out.
        fault: String,
    },
    /// An object is not there, although another says that it is.
    #[error("{object} is missing, and {by} needs it")]
    Missing {
        /// Which object.
        object: String,
        /// What names it.
        by: String,
    },
    /// The checkpoint that was asked for does not exist.
    #[error("job {job} has no checkpoint {epoch}; it has {have}")]
    NoCheckpoint {
        /// The job.
        job: String,
        /// What was asked for.
        epoch: Epoch,
        /// Those there are.
        have: String,
    },
    /// The checkpoint that was asked for was prepared, never committed, and given up.
    #[error("checkpoint {epoch} of job {job} was never committed, and a later run went on without it")]
    NeverCommitted {
        /// The job.
        job: String,
        /// What was asked for.
        epoch: Epoch,
    },
    /// There is nothing that a savepoint could keep.
    #[error("job {job} has nothing to make a savepoint of: {why}")]
    NothingToPin {
        /// The job.
        job: String,
        /// Why.
        why: String,
    },
    /// A savepoint of that name exists, of another checkpoint.
    #[error("job {job} has a savepoint {name:?} already, of checkpoint {epoch}")]
    NameTaken {
        /// The job.
        job: String,
        /// The name.
        name: String,
        /// What has it.
        epoch: Epoch,
    },
    /// The savepoint that was asked for does not exist.
    #[error("job {job} has no savepoint {name:?}; it has {have}")]
    NoSavepoint {
        /// The job.
        job: String,
        /// What was asked for.
        name: String,
        /// Those there are.
        have: String,
    },
    /// The file of an exported savepoint cannot be used.
    #[error("{file}: {fault}")]
    Export {
        /// Which file.
        file: String,
        /// What is wrong with it.
        fault: String,
        /// What the operating system said, if it is that.
        #[source]
        source: Option<Cause>,
    },
    /// The job has a history here already, and an import would make another one.
    #[error("job {job} has run in this store, and what is in {file} would begin another history of it")]
    Exists {
        /// The job.
        job: String,
        /// Which file.
        file: String,
    },
    /// The checkpoint does not wait for its commit.
    #[error("checkpoint {epoch} of job {job} does not wait for its commit")]
    NotOpen {
        /// The job.
        job: String,
        /// What was asked for.
        epoch: Epoch,
    },
    /// Nothing is known about the job.
    #[error("job {job} never ran in this store")]
    NeverRan {
        /// The job.
        job: String,
    },
    /// A newer run of the job took over.
    #[error("run {generation} of job {job} is superseded by {by}")]
    Superseded {
        /// The job.
        job: String,
        /// This run.
        generation: Generation,
        /// Who took over.
        by: Superseder,
    },
    /// Others kept taking the place in the log that this run wanted.
    #[error("job {job} is being started by others: lost {attempts} times")]
    Contended {
        /// The job.
        job: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// Something is larger than this version of weir stores.
    #[error("{what} is {value}, over the limit of {limit}")]
    TooLarge {
        /// What, with its unit.
        what: String,
        /// How large it is.
        value: u64,
        /// How large it may be.
        limit: u64,
    },
    /// A write was sent and no answer came that says whether it took place.
    #[error("it is not known whether {object} was written")]
    InDoubt {
        /// Which object.
        object: String,
        /// The last thing the store said.
        #[source]
        source: Option<Cause>,
    },
    /// The caller asked for something that would break an invariant.
    #[error("{0}")]
    Refused(String),
    /// The operating system gave no random bytes.
    #[error("cannot make a random identity")]
    NoEntropy(#[source] Cause),
}

impl CheckpointError {
    pub(crate) fn damaged(object: impl fmt::Display, fault: impl fmt::Display) -> Self {
        Self::Damaged { object: object.to_string(), fault: fault.to_string() }
    }

    pub(crate) fn unreachable(verb: &'static str, object: impl fmt::Display, source: impl Into<Cause>) -> Self {
        Self::Unreachable { verb, object: object.to_string(), source: source.into() }
    }

    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreachable { .. } | Self::Unsuitable { .. } | Self::InDoubt { .. } | Self::NoEntropy(_) => {
                ErrorKind::Store
            }
            Self::Url { .. }
            | Self::Name { .. }
            | Self::NoCheckpoint { .. }
            | Self::NameTaken { .. }
            | Self::NotOpen { .. }
            | Self::NoSavepoint { .. }
            | Self::Exists { .. }
            | Self::NeverRan { .. } => ErrorKind::Usage,
            Self::Damaged { .. }
            | Self::Missing { .. }
            | Self::NeverCommitted { .. }
            | Self::NothingToPin { .. }
            | Self::Export { .. }
            | Self::TooLarge { .. }
            | Self::Refused(_) => ErrorKind::State,
            Self::Superseded { .. } | Self::Contended { .. } => ErrorKind::Superseded,
        }
    }

    fn remedy(&self) -> &str {
        match self {
            Self::Unreachable { .. } | Self::InDoubt { .. } => {
                "check that the store is reachable, has room and may be written, then run again: nothing is lost"
            }
            Self::Unsuitable { .. } => {
                "use a store that does: without it two runs of a job could both believe that they have written a \
                 checkpoint; a folder on a POSIX file system, Amazon S3, Google Cloud Storage and Azure Blob Storage do"
            }
            Self::Url { help, .. } => help,
            Self::Name { .. } => "use lower-case letters, digits and hyphens, at most 63",
            Self::Damaged { .. } | Self::Missing { .. } => {
                "`weir checkpoint verify` lists every fault; put the object back from a copy, or start from an older \
                 checkpoint with --from, which publishes again what came after it"
            }
            Self::NoCheckpoint { .. } | Self::NeverCommitted { .. } => {
                "`weir checkpoint list` shows the checkpoints that can be started from"
            }
            Self::NothingToPin { .. } => {
                "run the job once more: it publishes what is open, and takes checkpoints; `weir stop --savepoint` or \
                 `weir savepoint create` beside it makes one of its own"
            }
            Self::NameTaken { .. } => "choose another name, or delete that one with `weir savepoint delete`",
            Self::NoSavepoint { .. } => "`weir savepoint list` shows them",
            Self::Export { source: Some(_), .. } => "check that the file is there and may be read or written",
            Self::Export { .. } => "export the savepoint again, and copy the file whole",
            Self::Exists { .. } => "leave --from out to go on with that history, or add --fresh to leave it for good",
            Self::NotOpen { .. } => "`weir txn list` shows what does",
            Self::NeverRan { .. } => "check the name of the job and the address of the store",
            Self::Superseded { .. } => "nothing to do: the newer run goes on",
            Self::Contended { .. } => "stop the other runs of this job, then run again",
            Self::TooLarge { .. } => "store less in one checkpoint: raise the parallelism or shrink the state",
            Self::Refused(_) => "this is a fault in weir: please report it",
            Self::NoEntropy(_) => "check that the operating system's random source works",
        }
    }
}

impl From<CheckpointError> for Error {
    fn from(error: CheckpointError) -> Self {
        let (kind, message, help) = (error.kind(), error.to_string(), error.remedy().to_owned());
        let source = match error {
            CheckpointError::Unreachable { source, .. } | CheckpointError::NoEntropy(source) => Some(source),
            CheckpointError::InDoubt { source, .. } | CheckpointError::Export { source, .. } => source,
            _ => None,
        };
        let error = Error::new(kind, message).help(help);
        match source {
            Some(source) => error.caused_by(source),
            None => error,
        }
    }
}

/// Why a checkpoint was not published, or not permitted to be committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// Another run took over. This one ends; it does not start again by itself.
    #[error("run {generation} of job {job} is superseded by {by}")]
    Superseded {
        /// The job.
        job: String,
        /// This run.
        generation: Generation,
        /// Who took over.
        by: Superseder,
    },
    /// The manifest was sent, and whether it is there, or whether it may be committed, is not known. Call
    /// [`resolve`](crate::checkpoint::Run::resolve); until it answers, nothing else can be published and the epoch is
    /// neither subsumed nor abandoned.
    #[error("it is not known whether checkpoint {epoch} was written")]
    InDoubt {
        /// Which epoch.
        epoch: Epoch,
        /// The last thing the store said.
        #[source]
        source: Option<Cause>,
    },
    /// The checkpoint before has no `committed` marker (I13).
    #[error("checkpoint {epoch} has to be committed first")]
    NotCommitted {
        /// The open one.
        epoch: Epoch,
    },
    /// The manifest would break an invariant; nothing was written.
    #[error("checkpoint {epoch} is refused: {fault}")]
    Refused {
        /// Which epoch.
        epoch: Epoch,
        /// What is wrong.
        fault: String,
    },
    /// What holds the place in the log cannot be read.
    #[error(transparent)]
    Failed(#[from] CheckpointError),
}

impl From<PublishError> for Error {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Superseded { job, generation, by } => {
                CheckpointError::Superseded { job, generation, by }.into()
            }
            PublishError::InDoubt { epoch, source } => {
                CheckpointError::InDoubt { object: format!("checkpoint {epoch}"), source }.into()
            }
            PublishError::Failed(error) => error.into(),
            PublishError::NotCommitted { .. } | PublishError::Refused { .. } => {
                CheckpointError::Refused(error.to_string()).into()
            }
        }
    }
}
