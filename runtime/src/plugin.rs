//! The plugin host: what an operator is to the data path, and how a component becomes one.
//!
//! [`Operator`] is the contract of `wit/processor.wit` and `wit/checkpoint.wit` in Rust. A component is one; so is native
//! code in the benches, which measure what a guest costs. This room knows no channels and no epochs of its own: it is
//! called, and answers.

pub mod build;
pub mod compile;
pub mod component;
pub mod project;
pub mod registry;
pub mod scaffold;

mod bindings;
mod cache;
mod describe;
mod engine;
mod error;
mod host;
mod http;
mod image;
mod instance;
mod instrument;
mod lent;
mod limits;
mod load;
mod log;
mod metrics;
mod renewable;
mod wasi;

pub use crate::account::{Account, AccountLimits, AccountUsage};
pub use error::PluginError;
pub use instrument::{Refusal, VERSION as IMAGE_VERSION};
pub use limits::TICK;
pub use load::{HostOptions, Plugin, PluginHost};
pub use metrics::{Metric, MetricValue};

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::model::{Batch, Chunk, Epoch, Scope, SegmentKind, SnapshotMode, Timestamp};

/// What a call has to say when it returns ok. Until then nothing of it exists: a call is a transaction.
#[derive(Debug, Default)]
pub struct Output {
    /// Batches by output port, in the order in which they were emitted.
    pub emitted: Vec<(u32, Batch)>,
    /// Records that were put aside, each with its reason: row `i` of the batch belongs to reason `i`.
    pub rejected: (Batch, Vec<String>),
    /// The earliest processing time at which it asked to be woken.
    pub wake_at: Option<Timestamp>,
    /// It has more to emit: call `resume`.
    pub more: bool,
    /// How often a fresh instance took its place afterwards, because its memory was above the soft ceiling.
    pub recycled: u32,
}

impl Output {
    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.emitted.clear();
        self.rejected.0.clear();
        self.rejected.1.clear();
        self.wake_at = None;
        self.more = false;
        self.recycled = 0;
    }
}

/// What an operator has had of the host and a cut has to hold, so that it goes on from there (I11, I12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCut {
    /// How often it drew random bytes.
    pub draws: u64,
    /// The last processing time that it saw, in microseconds since the Unix epoch; 0 before it saw any.
    pub seen: Timestamp,
}

/// How often in a row an operator may say that it has more to do, without emitting or writing anything.
pub const IDLE_STEPS_MAX: u32 = 1_000;

/// Takes the chunks of a snapshot, in the order in which they are written.
pub trait SnapshotWriter: Send {
    /// Takes one chunk. False asks the operator to return soon with `more`: the stream is waiting.
    fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> bool;
}

/// Gives the chunks of a state that is being restored, in the order that `wit/snapshots.wit` promises.
#[async_trait]
pub trait SnapshotReader: Send + std::fmt::Debug {
    /// The next chunk. None when there are no more, or when the next could not be read: whoever made this knows which of the two.
    async fn read(&mut self) -> Option<Chunk>;
}

/// All chunks that are left.
pub(crate) async fn all_chunks(reader: &mut dyn SnapshotReader) -> Vec<Chunk> {
    let mut all = Vec::new();
    while let Some(chunk) = reader.read().await {
        all.push(chunk);
    }
    all
}

#[async_trait]
impl SnapshotReader for std::vec::IntoIter<Chunk> {
    async fn read(&mut self) -> Option<Chunk> {
        self.next()
    }
}

/// One instance that works on one subtask: one call at a time.
///
/// Every call may be followed by `resume` while its output says `more`. `now` is the processing time at which the call
/// begins. After an error the instance is not used again, unless the error is [`OperatorError::Retry`].
#[async_trait]
pub trait Operator: Send {
    /// Takes a batch that came in on an input port. It has at least one record.
    async fn process(
        &mut self,
        now: Timestamp,
        port: u32,
        batch: &Batch,
        out: &mut Output,
    ) -> Result<(), OperatorError>;

    /// Event time has moved.
    async fn advance(&mut self, now: Timestamp, watermark: Timestamp, out: &mut Output) -> Result<(), OperatorError>;

    /// Processing time has come to what was asked for.
    async fn wake(&mut self, now: Timestamp, out: &mut Output) -> Result<(), OperatorError>;

    /// An input port has ended.
    async fn finish(&mut self, now: Timestamp, port: u32, out: &mut Output) -> Result<(), OperatorError>;

    /// Goes on with a call that said `more`.
    async fn resume(&mut self, now: Timestamp, out: &mut Output) -> Result<(), OperatorError>;

    /// Writes the state as it is at the first call with this epoch. True: done; false: call again.
    async fn snapshot(
        &mut self,
        epoch: Epoch,
        mode: SnapshotMode,
        writer: &mut dyn SnapshotWriter,
    ) -> Result<bool, OperatorError>;

    /// Takes over state that a plugin of this state version wrote. Chunks come as `wit/snapshots.wit` says.
    async fn restore(&mut self, state_version: u32, chunks: Vec<Chunk>) -> Result<(), OperatorError>;

    /// The same with chunks that are read as they are wanted, so that a large state is not in memory twice. What reads all of it before it begins
    /// need not have it.
    async fn restore_from(
        &mut self,
        state_version: u32,
        mut chunks: Box<dyn SnapshotReader>,
    ) -> Result<(), OperatorError> {
        let all = all_chunks(&mut *chunks).await;
        self.restore(state_version, all).await
    }
    /// Whether the last of `process`, `advance`, `wake`, `finish` and `resume` looked at the time, so that it has to be recorded.
    /// One that does not know says yes.
    fn looked_at_time(&self) -> bool {
        true
    }

    /// Whether its next snapshot will be a full one whatever is asked for.
    fn owes_full(&self) -> bool {
        false
    }

    /// What it has had of the host so far. An operator without imports has had nothing.
    fn host_cut(&self) -> HostCut {
        HostCut::default()
    }

    /// Goes on from a cut: called on a fresh instance, before `restore`.
    fn resume_from(&mut self, _cut: HostCut) {}

    /// Whether it works beside the one that counts. What it measures is dropped then, and its log lines say so.
    fn set_aside(&mut self, _aside: bool) {}

    /// What it asks for is done in the world outside from now on: a request that it sends is sent. Before, in `open` and
    /// `restore`, and of whoever does it over or tries it out, it is not.
    fn go_live(&mut self) {}

    /// Its memory in bytes, which never shrinks in a component; 0 where nobody knows.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// How long it has spent handing over what it emitted, of an instance that was made [with a stopwatch](Plugin::with_stopwatch).
    fn emitting(&self) -> Duration {
        Duration::ZERO
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The operator asks for the same call later; it changed nothing.
    #[error("plugin asks to retry: {0}")]
    Retry(String),
    /// The configuration or the state is not acceptable: a person has to change something.
    #[error("plugin refuses: {0}")]
    Invalid(String),
    /// The state that it is given was not written by this code in this setting.
    #[error("{0}")]
    Unfit(String),
    /// The operator gives up: start over from the last checkpoint.
    #[error("plugin failed: {0}")]
    Fatal(String),
    /// It trapped: a panic, an abort, an illegal access.
    #[error("plugin trapped in {call}: {reason}")]
    Trap {
        /// Which export was called.
        call: &'static str,
        /// The last error that it logged, else the trap's own words.
        reason: String,
        /// The guest's frames, one a line, innermost first; may be empty.
        backtrace: String,
    },
    /// It crossed a limit.
    #[error("plugin crossed its limit of {limit} {what} in {call}: {value}")]
    Limit {
        /// Which export was called.
        call: &'static str,
        /// What is limited, with its unit.
        what: &'static str,
        /// The limit, as a person writes it.
        limit: String,
        /// How far it came.
        value: String,
        /// The key under `limits` that raises it; empty where nothing does.
        setting: &'static str,
    },
    /// It crossed a limit of the account that it runs under, which others have set.
    #[error("plugin crossed the quota of {account} in {call}: {limit} {what}; it came to {value}")]
    Quota {
        /// Which export was called.
        call: &'static str,
        /// Whose quota it is.
        account: String,
        /// What is limited.
        what: &'static str,
        /// The limit, as a person writes it.
        limit: String,
        /// How far it came.
        value: String,
    },
    /// It broke the contract: a malformed batch, a port that does not exist, a call where it is not allowed.
    #[error("plugin broke the contract in {call}: {what}")]
    Contract {
        /// Which export was called.
        call: &'static str,
        /// What it did.
        what: String,
    },
}

impl OperatorError {
    /// In this call it said `more` too often and nothing else: see [`IDLE_STEPS_MAX`].
    pub fn says_nothing(call: &'static str) -> Self {
        let what = format!("it said `more` {IDLE_STEPS_MAX} times in a row, and nothing else: it has to get done");
        Self::Contract { call, what }
    }
}
