//! What is written down: committables for a manifest, commit records for readers, and who owns a place.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::super::ConnectorError;
use crate::model::{CommitIdentity, Committable, Epoch};
use crate::storage::StoreOptions;

/// How the committables of this sink begin. That of a file sink begins with the length of a job's name, at most 63.
const MAGIC: &[u8] = b"weir-object-1\n";
const FORMAT: &str = "weir-commit-1";

/// Whether a committable is one of this sink's.
pub(in super::super) fn is_committable(data: &[u8]) -> bool {
    data.starts_with(MAGIC)
}

/// What one subtask staged in one epoch: nothing outside it is needed to publish it, but credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Staged {
    /// The name of the job, for the record.
    pub(super) job: String,
    /// The URL of the sink, absolute.
    pub(super) destination: String,
    /// How its store is spoken to.
    pub(super) options: StoreOptions,
    pub(super) objects: Vec<StagedObject>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StagedObject {
    /// Below the URL.
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) records: u64,
    /// Records without a value that the format has no way to write.
    pub(super) skipped: u64,
    pub(super) blake3: [u8; 32],
}

impl Staged {
    pub(super) fn encode(&self) -> Result<Vec<u8>, ConnectorError> {
        postcard::to_extend(self, MAGIC.to_vec())
            .map_err(|e| ConnectorError::mismatch("a committable does not encode").caused_by(e))
    }

    fn decode(committable: &Committable) -> Result<Self, ConnectorError> {
        let fault = || {
            ConnectorError::mismatch(format!(
                "the committable of subtask {} and epoch {} is none of an object sink",
                committable.subtask, committable.epoch
            ))
        };
        let data = committable.data.strip_prefix(MAGIC).ok_or_else(fault)?;
        postcard::from_bytes(data).map_err(|e| fault().caused_by(e))
    }
}

/// What one object holds: records, records that were left out, bytes and their hash.
pub(in super::super) type ObjectContent = (u64, u64, u64, [u8; 32]);

/// What a committable holds, object by object.
pub(in super::super) fn contents(committable: &[u8]) -> Result<Vec<ObjectContent>, ConnectorError> {
    let fault = || ConnectorError::mismatch("it is no committable of an object sink");
    let data = committable.strip_prefix(MAGIC).ok_or_else(fault)?;
    let staged: Staged = postcard::from_bytes(data).map_err(|e| fault().caused_by(e))?;
    Ok(staged.objects.iter().map(|object| (object.records, object.skipped, object.bytes, object.blake3)).collect())
}

/// Where the committables of one checkpoint go, and their record; none if there are none.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) destination: String,
    pub(super) options: StoreOptions,
    pub(super) record: Record,
}

pub(super) fn decode(identity: &CommitIdentity, list: &[Committable]) -> Result<Option<Decoded>, ConnectorError> {
    let mut decoded: Option<Decoded> = None;
    for committable in list {
        let staged = Staged::decode(committable)?;
        let into = decoded.get_or_insert_with(|| Decoded {
            destination: staged.destination.clone(),
            options: staged.options.clone(),
            record: Record::of(identity, &staged.job, false),
        });
        if into.destination != staged.destination {
            return Err(ConnectorError::mismatch(format!(
                "the objects of one epoch belong to two places, {} and {}",
                into.destination, staged.destination
            )));
        }
        into.record.objects.extend(staged.objects.into_iter().map(|object| RecordedObject {
            name: object.name,
            bytes: object.bytes,
            records: object.records,
            skipped: object.skipped,
            blake3: blake3::Hash::from_bytes(object.blake3).to_hex().to_string(),
            subtask: committable.subtask,
            epoch: committable.epoch.0,
        }));
    }
    Ok(decoded)
}

/// The commit record of an epoch, as it stands in `_weir/commits`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    format: String,
    pub(super) job_id: String,
    pub(super) job: String,
    pub(super) node: String,
    pub(super) epoch: u64,
    /// The checkpoint was given up before it was committed: it names nothing, and nobody will publish it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) abandoned: bool,
    /// What this epoch makes visible, in order.
    pub(super) objects: Vec<RecordedObject>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordedObject {
    /// Below the URL of the sink.
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) records: u64,
    /// Records without a value that the format has no way to write.
    #[serde(default)]
    pub(super) skipped: u64,
    pub(super) blake3: String,
    pub(super) subtask: u32,
    /// The attempt that prepared it.
    pub(super) epoch: u64,
}

impl Record {
    pub(super) fn of(identity: &CommitIdentity, job: &str, abandoned: bool) -> Self {
        Self {
            format: FORMAT.into(),
            job_id: identity.job.to_string(),
            job: job.to_owned(),
            node: identity.node.to_string(),
            epoch: identity.epoch.0,
            abandoned,
            objects: Vec::new(),
        }
    }

    pub(super) fn encode(&self) -> Result<Bytes, ConnectorError> {
        encode(self, "a commit record")
    }

    /// Reads one back; a clause if it is none.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(bytes).map_err(|e| format!("is no commit record: {e}"))?;
        match record.format.as_str() {
            FORMAT => Ok(record),
            other => Err(format!("is a record of the format {other:?}, and this program reads {FORMAT:?}")),
        }
    }

    pub(super) fn is_of(&self, identity: &CommitIdentity) -> bool {
        self.job_id == identity.job.to_string()
            && self.node == identity.node.as_str()
            && Epoch(self.epoch) == identity.epoch
    }

    /// Whose it is, for messages.
    pub(super) fn whose(&self) -> String {
        let what = if self.abandoned { "the mark that it was given up of " } else { "" };
        format!("{what}epoch {} of job {:?}, sink {:?} (job id {})", self.epoch, self.job, self.node, self.job_id)
    }
}

/// Whose a place is: two sinks, or two jobs, never write to the same one.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) job_id: String,
    pub(super) job: String,
    pub(super) node: String,
}

impl Owner {
    pub(super) fn encode(&self) -> Result<Bytes, ConnectorError> {
        encode(self, "an owner")
    }
}

fn encode(value: &impl Serialize, what: &str) -> Result<Bytes, ConnectorError> {
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|e| ConnectorError::mismatch(format!("{what} does not encode")).caused_by(e))?;
    text.push(b'\n');
    Ok(text.into())
}
