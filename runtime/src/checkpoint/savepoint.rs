//! Savepoints: a completed and committed checkpoint, and a pin that keeps it until it is deleted.
//!
//! A pin is a copy of the manifest under a name. It is written first, and then it is looked whether what it pins was still
//! there: the collector makes its boundary, then reads the pins, then deletes. Whichever of the two comes second sees the other (I9).
//! Only what is committed is pinned, so a savepoint never carries output that somebody has yet to publish (I13).
//!
//! Nothing here claims a job. Beside a running one, ask that (`job/control.rs`): it takes a checkpoint for the purpose.

use super::envelope;
use super::error::CheckpointError;
use super::log::{Body, Claim, PIN, READ_ATTEMPTS_MAX, Span, encode_pin};
use super::manifest::Manifest;
use super::objects::{Created, JobStore, OBJECT_BYTES_MAX, Store, check_name};
use super::recover::{OWN_PINS, contended, is_spent_pin, look_at, restore_point};
use crate::model::{Epoch, NodeName};

/// A savepoint.
#[derive(Clone, Debug)]
pub struct Savepoint {
    /// Its name.
    pub name: String,
    /// The checkpoint that it keeps.
    pub manifest: Manifest,
}

/// Says what is wrong with the name of a savepoint.
///
/// # Errors
///
/// [`CheckpointError::Name`] if it is none, or one that runs use for themselves.
pub fn check_savepoint_name(name: &str) -> Result<(), CheckpointError> {
    check_name("savepoint", name)?;
    if name.starts_with(OWN_PINS) {
        let fault = "begins with \"from-\", which is for the runs of a job";
        return Err(CheckpointError::Name { what: "savepoint", name: name.to_owned(), fault });
    }
    // `--from 12` is a checkpoint.
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        let fault = "is a number, which would be taken for that of a checkpoint";
        return Err(CheckpointError::Name { what: "savepoint", name: name.to_owned(), fault });
    }
    Ok(())
}

/// Pins the newest checkpoint of a job that does not run. May be repeated with the same name and outcome.
///
/// # Errors
///
/// If the job has no checkpoint, if its newest is not committed yet (what to do about it is in the error), or if the name is taken.
pub async fn create_savepoint(store: &Store, job: &str, name: &str) -> Result<Savepoint, CheckpointError> {
    check_savepoint_name(name)?;
    let store = look_at(store, job).await?;
    for _ in 0..READ_ATTEMPTS_MAX {
        let span = store.span().await?;
        let Some(tip) = tip(&store, span).await? else { continue };
        let Some(tip) = tip else {
            return Err(CheckpointError::NothingToPin {
                job: job.to_owned(),
                why: "it has no complete checkpoint yet".into(),
            });
        };
        if !tip.committed {
            let epoch = tip.manifest.epoch;
            let before = match tip.manifest.parent {
                Some(parent) => format!(", the one before it is {parent}"),
                None => String::new(),
            };
            let why = format!("the output of its newest checkpoint {epoch} is not published yet{before}");
            return Err(CheckpointError::NothingToPin { job: job.to_owned(), why });
        }
        return pin(&store, name, tip.manifest, tip.seq).await;
    }
    Err(contended(&store))
}

/// What a job would go on from, and the entry of the log that has it.
struct Tip {
    manifest: Manifest,
    committed: bool,
    seq: u64,
}

/// The restore point and its entry. None: the log was collected meanwhile; none in it: there is no checkpoint.
async fn tip(store: &JobStore, span: Span) -> Result<Option<Option<Tip>>, CheckpointError> {
    let Some(point) = restore_point(store, span).await? else { return Ok(None) };
    let Some(base) = point.base else { return Ok(Some(None)) };
    let committed = base.committed || store.is_committed(base.manifest.epoch).await?;
    Ok(Some(Some(Tip { manifest: *base.manifest, committed, seq: point.seq })))
}

/// Pins a committed checkpoint that is in entry `seq` of the log, as itself or as the base of a claim.
///
/// # Errors
///
/// If the name is taken by another checkpoint, or if what was to be pinned has been collected meanwhile.
pub(crate) async fn pin(
    store: &JobStore,
    name: &str,
    manifest: Manifest,
    seq: u64,
) -> Result<Savepoint, CheckpointError> {
    check_savepoint_name(name)?;
    let path = store.pin(name);
    if let Created::Theirs(theirs) = store.store().settle(&path, &encode_pin(&manifest)?).await? {
        let taken = decode_pin(&theirs).map_err(|fault| CheckpointError::damaged(&path, fault))?;
        return Err(CheckpointError::NameTaken {
            job: store.job().to_owned(),
            name: name.to_owned(),
            epoch: taken.epoch,
        });
    }
    // `>=`: the entry at the boundary is already ignored by every reader.
    if store.highest_boundary().await? >= seq {
        store.store().delete(&path).await?;
        let why = format!("checkpoint {} was collected while it was pinned", manifest.epoch);
        return Err(CheckpointError::NothingToPin { job: store.job().to_owned(), why });
    }
    Ok(Savepoint { name: name.to_owned(), manifest })
}

pub(super) fn decode_pin(bytes: &[u8]) -> Result<Manifest, String> {
    let manifest: Manifest = envelope::open(PIN, bytes)?;
    manifest.check()?;
    Ok(manifest)
}

/// The savepoints of a job, by name. Pins that runs make for themselves are not among them.
pub async fn list_savepoints(store: &Store, job: &str) -> Result<Vec<Savepoint>, CheckpointError> {
    let pins = look_at(store, job).await?.pins().await?;
    let own = |name: &str| !name.starts_with(OWN_PINS);
    Ok(pins.into_iter().filter(|(name, _)| own(name)).map(|(name, manifest)| Savepoint { name, manifest }).collect())
}

/// A savepoint.
///
/// # Errors
///
/// [`CheckpointError::NoSavepoint`] if there is none of that name.
pub async fn find_savepoint(store: &Store, job: &str, name: &str) -> Result<Savepoint, CheckpointError> {
    check_savepoint_name(name)?;
    let store = look_at(store, job).await?;
    let path = store.pin(name);
    match store.store().read(&path, OBJECT_BYTES_MAX).await? {
        Some(bytes) => {
            let manifest = decode_pin(&bytes).map_err(|fault| CheckpointError::damaged(&path, fault))?;
            Ok(Savepoint { name: name.to_owned(), manifest })
        }
        None => {
            let names = store.store().list(&store.pins_folder()).await?;
            let names: Vec<_> = names.into_iter().filter(|name| !name.starts_with(OWN_PINS)).collect();
            let have = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(CheckpointError::NoSavepoint { job: store.job().to_owned(), name: name.to_owned(), have })
        }
    }
}

/// What the deletion of a savepoint frees: the next collection takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Which checkpoint it kept.
    pub epoch: Epoch,
    /// Packs that nothing else names.
    pub packs: u64,
    /// Their state in this checkpoint, in bytes.
    pub bytes: u64,
}

/// Deletes a savepoint, whole or damaged. Its packs stay until a run of the job collects what nothing names any more.
///
/// # Errors
///
/// If there is none of that name.
pub async fn delete_savepoint(store: &Store, job: &str, name: &str) -> Result<Freed, CheckpointError> {
    let deleted = match find_savepoint(store, job, name).await {
        Ok(savepoint) => Some(savepoint.manifest),
        Err(CheckpointError::Damaged { .. }) => None,
        Err(error) => return Err(error),
    };
    let store = look_at(store, job).await?;
    store.store().delete(&store.pin(name)).await?;
    let Some(manifest) = deleted else { return Ok(Freed::default()) };
    let mut named = std::collections::HashSet::new();
    let span = store.span().await?;
    for seq in span.boundary + 1..=span.tip {
        match store.read_in_span(seq).await {
            Ok(Some(entry)) => match entry.body {
                Body::Checkpoint(manifest) => named.extend(manifest.packs()),
                Body::Claim(Claim { base: Some(base), .. }) => named.extend(base.manifest.packs()),
                _ => {}
            },
            Ok(None) | Err(CheckpointError::Damaged { .. } | CheckpointError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    for (name, manifest) in store.pins().await? {
        if !is_spent_pin(&name, span.tip) {
            named.extend(manifest.packs());
        }
    }
    let freed = manifest.packs().difference(&named).count() as u64;
    let bytes = manifest.segments().filter(|segment| !named.contains(&segment.pack)).map(|segment| segment.bytes).sum();
    Ok(Freed { epoch: manifest.epoch, packs: freed, bytes })
}

/// Plugins that a checkpoint needs and the store does not have, by node. Native code has none.
pub async fn missing_plugins(store: &Store, manifest: &Manifest) -> Result<Vec<(NodeName, [u8; 32])>, CheckpointError> {
    let mut missing = Vec::new();
    for node in &manifest.nodes {
        let Some(plugin) = &node.plugin else { continue };
        if plugin.digest == [0; 32] {
            continue;
        }
        match store.get_plugin(plugin.digest).await {
            Ok(_) => {}
            // Damaged bytes are as good as none: putting them again mends them.
            Err(CheckpointError::Missing { .. } | CheckpointError::Damaged { .. }) => {
                missing.push((node.name.clone(), plugin.digest));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests;
