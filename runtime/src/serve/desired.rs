//! What a job of a server is to be: the pipeline, its code, and whether it runs. The truth is in the store, a revision for each change,
//! written before anything is done about it; so a server that is restarted at any moment carries on with what was asked last.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::fault::{Fault, FaultKind, written};
use crate::checkpoint::{Revision, Series};
use crate::model::Timestamp;
use crate::tenant::RECORD_FORMAT;

/// Whether it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Want {
    /// It is to run, until it finishes.
    Run,
    /// It is to stand still.
    Stop,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRecord {
    /// [`RECORD_FORMAT`].
    pub format: u32,
    /// The pipeline file.
    pub pipeline: String,
    /// The code of each operator node: the blake3 of its plugin in hexadecimal.
    pub digests: BTreeMap<String, String>,
    /// Whether it runs.
    pub want: Want,
    /// From where it starts, if not from its newest checkpoint.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// Nodes whose state is given up.
    #[serde(default)]
    pub drop_state: Option<Dropped>,
    /// When it was changed, in microseconds since the Unix epoch.
    pub changed_at: Timestamp,
    /// By which token.
    pub changed_by: String,
    /// An upgrade that has begun and is not known to be over: which node, and what it is to be.
    #[serde(default)]
    pub upgrading: Option<Upgrading>,
    /// It is being deleted.
    #[serde(default)]
    pub deleting: bool,
}

/// A start from elsewhere than the newest checkpoint, which is done once: each says by what it is seen that it has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Origin {
    /// At the beginning, in a new history.
    Fresh {
        /// How many there were when this was asked.
        histories: u64,
    },
    /// From an earlier checkpoint.
    Checkpoint {
        /// Which one.
        epoch: u64,
        /// The generation that wrote the newest checkpoint when this was asked.
        generation: u64,
    },
}

/// Nodes whose state is given up once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropped {
    /// Which.
    pub nodes: BTreeSet<String>,
    /// The generation that wrote the newest checkpoint when this was asked: as in [`Origin::Checkpoint`].
    pub generation: u64,
}

/// An upgrade on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upgrading {
    /// Which node.
    pub node: String,
    /// The plugin that it is to run.
    pub digest: String,
    /// The pipeline as it is when that is done.
    pub pipeline: String,
}

impl JobRecord {
    /// A job that is to run.
    pub(super) fn new(pipeline: String, digests: BTreeMap<String, String>, at: Timestamp, by: &str) -> Self {
        Self {
            format: RECORD_FORMAT,
            pipeline,
            digests,
            want: Want::Run,
            origin: None,
            drop_state: None,
            changed_at: at,
            changed_by: by.to_owned(),
            upgrading: None,
            deleting: false,
        }
    }

    /// Whether it needs a plugin, now or after an upgrade that is on its way.
    pub(super) fn uses(&self, digest: &str) -> bool {
        self.digests.values().any(|d| d == digest) || self.upgrading.as_ref().is_some_and(|u| u.digest == digest)
    }

    /// The newest one of a job, with its number.
    pub(super) async fn newest(series: &Series) -> Result<Option<(u64, Self)>, Fault> {
        let Some(Revision { number, text }) = series.newest().await? else { return Ok(None) };
        let record = crate::tenant::read_record(&text).map_err(|fault| {
            Fault::new(FaultKind::Internal, format!("what a job is to be, revision {number}, cannot be read: {fault}"))
        })?;
        Ok(Some((number, record)))
    }

    /// Writes it after the revision that was read. Gives the new number.
    pub(super) async fn write(&self, series: &Series, after: u64) -> Result<u64, Fault> {
        let text = written(self)?;
        match series.append(after, text).await? {
            Some(revision) => Ok(revision.number),
            None => Err(Fault::changed("the job")),
        }
    }
}
