//! Looking at a job without claiming it: for the commands that list, show and verify checkpoints.
//!
//! Nothing here writes, so it may run beside a job; what is collected meanwhile is read again. Damage is an answer here,
//! listed by name, and does not stop the rest.

use std::collections::BTreeMap;

use super::error::CheckpointError;
use super::log::{Body, READ_ATTEMPTS_MAX, Span};
use super::manifest::Manifest;
use super::objects::{JobStore, Store};
use super::recover::{contended, look_at};
use super::segment::SegmentRef;
use crate::model::{Epoch, Generation, Timestamp};

/// What an entry of the log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A run began, from this checkpoint or from nothing.
    Claim {
        /// Where it started.
        base: Option<Epoch>,
    },
    /// A checkpoint was completed.
    Checkpoint,
    /// Nothing.
    Void,
    /// Code that had taken over an operator was taken back.
    Refused {
        /// The operator.
        node: String,
        /// The version of the code.
        version: String,
        /// Why.
        reason: String,
    },
    /// It cannot be read.
    Damaged {
        /// Why.
        fault: String,
    },
}

/// One line of a job's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySummary {
    /// Its place in the log.
    pub seq: u64,
    /// What it is.
    pub kind: EntryKind,
    /// Of a checkpoint.
    pub epoch: Option<Epoch>,
    /// The checkpoint that it goes on from.
    pub parent: Option<Epoch>,
    /// The run that wrote it.
    pub generation: Option<Generation>,
    /// When.
    pub created_at: Option<Timestamp>,
    /// A checkpoint whose output is visible.
    pub committed: bool,
    /// A checkpoint with which the job ended.
    pub finished: bool,
    /// How many packs a checkpoint names.
    pub packs: u64,
    /// The bytes of live state in a checkpoint.
    pub bytes: u64,
}

/// The entries of a job's log, the oldest first.
pub async fn history(store: &Store, job: &str) -> Result<Vec<EntrySummary>, CheckpointError> {
    let store = look_at(store, job).await?;
    for _ in 0..READ_ATTEMPTS_MAX {
        let span = store.span().await?;
        if let Some(read) = entries_in(&store, span).await? {
            return Ok(read);
        }
    }
    Err(contended(&store))
}

/// The entries; none if some were collected meanwhile.
async fn entries_in(store: &JobStore, span: Span) -> Result<Option<Vec<EntrySummary>>, CheckpointError> {
    let mut entries = Vec::new();
    for seq in span.boundary + 1..=span.tip {
        let mut summary = EntrySummary {
            seq,
            kind: EntryKind::Void,
            epoch: None,
            parent: None,
            generation: None,
            created_at: None,
            committed: false,
            finished: false,
            packs: 0,
            bytes: 0,
        };
        match store.read_in_span(seq).await {
            Ok(None) => return Ok(None),
            Ok(Some(entry)) => {
                summary.generation = Some(entry.generation);
                match entry.body {
                    Body::Void => {}
                    Body::Refused(refused) => {
                        summary.created_at = Some(refused.created_at);
                        let (node, version) = (refused.node.to_string(), refused.version);
                        summary.kind = EntryKind::Refused { node, version, reason: refused.reason };
                    }
                    Body::Claim(claim) => {
                        summary.kind = EntryKind::Claim { base: claim.base.map(|base| base.manifest.epoch) };
                        summary.created_at = Some(claim.created_at);
                    }
                    Body::Checkpoint(manifest) => {
                        summary.kind = EntryKind::Checkpoint;
                        summary.epoch = Some(manifest.epoch);
                        summary.parent = manifest.parent;
                        summary.created_at = Some(manifest.created_at);
                        summary.committed = store.is_committed(manifest.epoch).await?;
                        summary.finished = manifest.finished;
                        summary.packs = manifest.packs().len() as u64;
                        summary.bytes = manifest.segments().map(|segment| segment.bytes).sum();
                    }
                }
            }
            Err(error @ (CheckpointError::Damaged { .. } | CheckpointError::Missing { .. })) => {
                summary.kind = EntryKind::Damaged { fault: error.to_string() };
            }
            Err(error) => return Err(error),
        }
        entries.push(summary);
    }
    Ok(Some(entries))
}

/// The manifest of a checkpoint, from the log or from a pin.
pub async fn read_manifest(store: &Store, job: &str, epoch: Epoch) -> Result<Manifest, CheckpointError> {
    let store = look_at(store, job).await?;
    for _ in 0..READ_ATTEMPTS_MAX {
        let span = store.span().await?;
        if let Some(read) = manifest_in(&store, span, epoch).await? {
            return Ok(read);
        }
    }
    Err(contended(&store))
}

/// The manifest; none if entries were collected meanwhile.
async fn manifest_in(store: &JobStore, span: Span, epoch: Epoch) -> Result<Option<Manifest>, CheckpointError> {
    let (mut have, mut fault) = (Vec::new(), None);
    for seq in (span.boundary + 1..=span.tip).rev() {
        match store.read_in_span(seq).await {
            Ok(None) => return Ok(None),
            Ok(Some(entry)) => match entry.body {
                Body::Checkpoint(manifest) if manifest.epoch == epoch => return Ok(Some(*manifest)),
                Body::Checkpoint(manifest) => have.push(manifest.epoch),
                _ => {}
            },
            Err(error @ (CheckpointError::Damaged { .. } | CheckpointError::Missing { .. })) => fault = Some(error),
            Err(error) => return Err(error),
        }
    }
    for (_, manifest) in store.pins().await? {
        if manifest.epoch == epoch {
            return Ok(Some(manifest));
        }
        have.push(manifest.epoch);
    }
    // It may be the one that cannot be read.
    if let Some(fault) = fault {
        return Err(fault);
    }
    have.sort_unstable();
    have.dedup();
    let have = have.iter().map(Epoch::to_string).collect::<Vec<_>>().join(", ");
    let have = if have.is_empty() { "none".to_owned() } else { have };
    Err(CheckpointError::NoCheckpoint { job: store.job().to_owned(), epoch, have })
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Packs that were read.
    pub packs: u64,
    /// Chunks that were hashed.
    pub chunks: u64,
    /// Bytes of these chunks.
    pub bytes: u64,
    /// What is wrong, each with the name of the object. Empty: the checkpoint can be restored.
    pub faults: Vec<String>,
}

/// Reads a checkpoint and every pack it names, and hashes every chunk, also those that nothing refers to any more.
///
/// Damage is in the report, also that of the manifest; an error means that it could not be looked at.
pub async fn verify(store: &Store, job: &str, epoch: Epoch) -> Result<Report, CheckpointError> {
    let mut report = Report::default();
    let manifest = match read_manifest(store, job, epoch).await {
        Ok(manifest) => manifest,
        Err(error @ (CheckpointError::Damaged { .. } | CheckpointError::Missing { .. })) => {
            report.faults.push(error.to_string());
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    let store = look_at(store, job).await?;
    let mut packs: BTreeMap<_, Vec<&SegmentRef>> = BTreeMap::new();
    for segment in manifest.segments() {
        packs.entry(&segment.pack).or_default().push(segment);
    }
    for (name, segments) in packs {
        let pack = match store.open_pack(name).await {
            Ok(pack) => pack,
            Err(error @ (CheckpointError::Damaged { .. } | CheckpointError::Missing { .. })) => {
                report.faults.push(error.to_string());
                continue;
            }
            Err(error) => return Err(error),
        };
        report.packs += 1;
        for number in 0..pack.len() {
            match pack.chunk(number) {
                Ok(data) => {
                    report.chunks += 1;
                    report.bytes += data.len() as u64;
                }
                Err(fault) => report.faults.push(store.damaged_pack(name, fault).to_string()),
            }
        }
        for segment in segments {
            if let Err(fault) = pack.index().named_by(segment) {
                report.faults.push(store.damaged_pack(name, fault).to_string());
            }
        }
    }
    Ok(report)
}
