//! What tasks tell the coordinator: one report for each epoch and subtask. Plain values, so that it does not matter where
//! a task runs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::inbox::InboxState;
use crate::checkpoint::SubtaskEntry;
use crate::model::{Epoch, TaskId, Timestamp};
use crate::plugin::HostCut;

/// How long the parts of a subtask's cut took. Its parts follow each other, but for the upload, which overlaps with the snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutTimings {
    /// From the first input's barrier to the last one's: how long inputs were held.
    pub align: Duration,
    /// In the operator, while it wrote its state; in a sink, while it made its output durable.
    pub snapshot: Duration,
    /// From the end of the snapshot until what it wrote was durable.
    pub upload: Duration,
}

/// What happened in a task that the coordinator has to know.
#[derive(Clone, Debug)]
pub enum Event {
    /// A subtask has taken its cut of an epoch, and what it wrote is durable.
    Cut {
        /// Which subtask.
        task: TaskId,
        /// Which epoch.
        epoch: Epoch,
        /// What it adds to the manifest.
        entry: Box<SubtaskEntry>,
        /// What a sink staged; none if nothing was written.
        committable: Option<Vec<u8>>,
        /// Bytes that were uploaded for it.
        bytes: u64,
        /// How long the parts of it took.
        timings: CutTimings,
    },
    /// A subtask could not make its cut durable: the attempt has failed, the stream goes on.
    Declined {
        /// Which subtask.
        task: TaskId,
        /// Which epoch.
        epoch: Epoch,
        /// Why.
        reason: String,
    },
    /// A subtask of a source has no more records, and `End` is on its way.
    SourceEnded(TaskId),
}

/// What the data path itself has to remember of a subtask: the opaque `progress` of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    /// Of a source.
    Source {
        /// The largest event time so far.
        newest: Timestamp,
        /// The last watermark that went out.
        watermark: Timestamp,
        /// It has told its receivers that it is idle.
        idle: bool,
        /// It has told its receivers that it has ended.
        ended: bool,
    },
    /// Of an operator or a sink.
    Inbox {
        /// The name of each input, `node[subtask].port -> port`: by it a changed pipeline finds its inputs again.
        inputs: Vec<String>,
        /// What came on them.
        state: InboxState,
        /// The processing time at which the operator asked to be woken.
        wake_at: Option<Timestamp>,
        /// What the operator has had of the host.
        host: HostCut,
    },
}

impl Progress {
    /// The bytes that stand in a manifest.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Reads it back.
    ///
    /// # Errors
    ///
    /// What does not fit, as a clause.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        postcard::from_bytes(bytes).map_err(|e| format!("the progress of a task does not decode: {e}"))
    }
}
