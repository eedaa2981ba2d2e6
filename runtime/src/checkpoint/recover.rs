//! The start of a run: find the restore point, claim the log, say what to restore and what to commit.
//!
//! A claim is an entry like any other, so a run that begins and a run that goes on cannot both have the same place: from
//! that moment the earlier one is fenced.
//!
//! **A first run** writes its claim as entry 1 of a new history with a random id, and *then* creates `id/<n>`, which makes
//! that history the job's. So an `id` object always has a log, and a log that cannot be found is damage, never an empty
//! start (I10). A history that no `id` names, from a run that died in between, holds nothing but that claim.
//!
//! **`--fresh`** does the same with the next `n`. A writer looks for `id/<n + 1>` whenever it looks for a later claim, so this
//! fences the runs of the old history, however damaged its log is. What the old one left open is given up: the
//! new one starts from nothing and publishes everything again, which is what was asked for.
//!
//! **`--from`** an older checkpoint pins it first, then looks whether it is still above the boundary, then claims: the
//! collector makes the boundary, then reads the pins, then looks for a claim, then deletes. Whichever of the two comes second
//! sees the other. The pin names the tip that the run has seen: its claim can only be the entry after that, so when there is one,
//! the run has claimed or never will with this pin, and the collector takes it away. An open checkpoint that is left behind by it is not committed: what it staged is produced again.

use futures::future::OptionFuture;

use super::decide::{self, Asked, Look, PointFacts, StartFacts};
use super::error::CheckpointError;
use super::log::{Base, Body, Claim, Entry, Identity, READ_ATTEMPTS_MAX, Span, encode_pin};
use super::manifest::Manifest;
use super::objects::{Created, JobStore, Store, check_name, numbers};
use super::publish::Run;
use crate::clock::Clock;
use crate::model::{Epoch, Generation, JobId};

/// How often a run tries to be the one that begins.
const BEGIN_ATTEMPTS_MAX: u32 = 16;
/// Epoch numbers that are left out when an entry of the log cannot be read: it may have used some.
const EPOCHS_LEFT_OUT: u64 = 1 << 20;
/// How the pins begin that a run makes for itself while it begins: `from-<tip>-<nonce>`.
pub(super) const OWN_PINS: &str = "from-";

/// What a run starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// From the restore point; from the beginning if the job never ran or never completed a checkpoint.
    Resume,
    /// From nothing, in a new history.
    Fresh,
    /// From this checkpoint, whatever came after it.
    From(Epoch),
}

/// How it went.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Begun {
    /// The job ended in an earlier run, and all its output is committed. Nothing was claimed.
    Finished(Manifest),
    /// The run is the job's only one.
    Run {
        /// Its hold on the log.
        run: Run,
        /// What to restore; none: start from nothing.
        restore: Option<Manifest>,
        /// The sinks have to commit what `restore` names, with [`Run::permit_tip`], before any of them opens.
        commit_needed: bool,
    },
}

/// How many histories a job has had under its name: a fresh start makes one more.
pub async fn histories(store: &Store, job: &str) -> Result<u64, CheckpointError> {
    check_name("job", job)?;
    Ok(Identity::current(store, job).await?.map_or(0, |identity| identity.n))
}

/// Begins a run of a job.
///
/// An error means that no run began. After [`CheckpointError::InDoubt`] its claim may still turn up in the log; that fences
/// earlier runs and harms no later one.
pub async fn begin(store: &Store, job: &str, start: Start, clock: &Clock) -> Result<Begun, CheckpointError> {
    check_name("job", job)?;
    for _ in 0..BEGIN_ATTEMPTS_MAX {
        let begun = match (start, Identity::current(store, job).await?) {
            (Start::From(_), None) => return Err(CheckpointError::NeverRan { job: job.to_owned() }),
            (Start::Resume | Start::Fresh, None) => first(store, job, 1, clock).await?,
            (Start::Fresh, Some(identity)) => first(store, job, identity.n + 1, clock).await?,
            (Start::Resume, Some(identity)) => again(store, job, &identity, None, clock).await?,
            (Start::From(epoch), Some(identity)) => again(store, job, &identity, Some(epoch), clock).await?,
        };
        if let Some(begun) = begun {
            return Ok(begun);
        }
    }
    Err(CheckpointError::Contended { job: job.to_owned(), attempts: BEGIN_ATTEMPTS_MAX })
}

/// Begins a new history as the n-th, and a run of it; none if another one took that number.
async fn first(store: &Store, job: &str, n: u64, clock: &Clock) -> Result<Option<Begun>, CheckpointError> {
    let job_store = JobStore::new(store, job, JobId(store.nonce()?));
    job_store.prepare()?;
    let Some(run) = begin_history(job_store, n, None, clock).await? else { return Ok(None) };
    run.check_fence().await?;
    Ok(Some(Begun::Run { run, restore: None, commit_needed: false }))
}

/// Writes the first claim of a new history, from the beginning or from a checkpoint whose packs are there already, and makes it the job's
/// n-th; none if another one took that number.
pub(super) async fn begin_history(
    job_store: JobStore,
    n: u64,
    base: Option<Manifest>,
    clock: &Clock,
) -> Result<Option<Run>, CheckpointError> {
    let store = job_store.store().clone();
    let last_epoch = base.as_ref().map_or(Epoch(0), |manifest| manifest.epoch);
    let claimed = base.clone().map(|manifest| Base { manifest: Box::new(manifest), committed: true });
    let claim = Claim { created_at: clock.now(), base: claimed, last_epoch };
    let claimed = put_claim(&job_store, 1, claim).await?;
    if claimed != Created::Written {
        return Err(CheckpointError::damaged(job_store.log(1), "a history that was just made has an entry"));
    }
    let identity = Identity { job_id: job_store.id(), n, created_at: clock.now(), nonce: store.nonce()? };
    match store.settle(&store.id(job_store.job(), n), &identity.encode()?).await? {
        Created::Written => {}
        Created::Theirs(_) => {
            store.delete(&job_store.log(1)).await?;
            return Ok(None);
        }
    }
    let base = base.as_ref().map(|manifest| (manifest, true));
    Ok(Some(Run::begun(job_store, n, Generation(1), base, last_epoch)))
}

async fn put_claim(store: &JobStore, seq: u64, claim: Claim) -> Result<Created, CheckpointError> {
    let entry = Entry {
        job_id: store.id(),
        seq,
        generation: Generation(seq),
        nonce: store.store().nonce()?,
        body: Body::Claim(claim),
    };
    store.store().settle(&store.log(seq), &entry.encode()?).await
}

/// The restore point of a log, and the highest epoch that it knows.
pub(crate) struct Point {
    /// The entry that it is in.
    pub(crate) seq: u64,
    pub(crate) base: Option<Base>,
    pub(crate) last_epoch: Epoch,
}

/// Finds the restore point; none if the log was collected meanwhile, so that it has to be looked for again.
pub(crate) async fn restore_point(store: &JobStore, span: Span) -> Result<Option<Point>, CheckpointError> {
    for seq in (span.boundary + 1..=span.tip).rev() {
        let Some(entry) = store.read_in_span(seq).await? else { return Ok(None) };
        let point = match (decide::look(entry.body.fact()), entry.body) {
            (Look::Here, Body::Checkpoint(manifest)) => {
                Point { seq, last_epoch: manifest.epoch, base: Some(Base { manifest, committed: false }) }
            }
            (Look::Base, Body::Claim(claim)) => Point { seq, base: claim.base, last_epoch: claim.last_epoch },
            _ => continue,
        };
        return Ok(Some(point));
    }
    let object = store.log(span.boundary + 1).to_string();
    Err(CheckpointError::damaged(object, "the log has neither a claim nor a checkpoint after the boundary"))
}

/// What `--from` names, wherever it is.
struct Wanted {
    manifest: Box<Manifest>,
    place: WantedAt,
    committed: bool,
}

/// Where what `--from` names is.
enum WantedAt {
    /// In this entry of the log.
    Log(u64),
    /// Only in the pin of this name.
    Pin(String),
}

/// Looks for a checkpoint in the log and in the pins. Also gives all epochs that are there. Entries that cannot be read are
/// passed over: what is looked for may be beside them.
async fn find(store: &JobStore, span: Span, epoch: Epoch) -> Result<(Option<Wanted>, Vec<Epoch>), CheckpointError> {
    let (mut wanted, mut have) = (None, Vec::new());
    for seq in span.boundary + 1..=span.tip {
        match store.read_in_span(seq).await {
            Ok(Some(Entry { body: Body::Checkpoint(manifest), .. })) => {
                have.push(manifest.epoch);
                if manifest.epoch == epoch {
                    let committed = store.is_committed(epoch).await?;
                    wanted = Some(Wanted { manifest, place: WantedAt::Log(seq), committed });
                }
            }
            Ok(_) | Err(CheckpointError::Damaged { .. } | CheckpointError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    // Only what is committed can be pinned.
    for (name, manifest) in store.pins().await? {
        have.push(manifest.epoch);
        // A run's own pin protects only until its claim is written: the collector may have counted it out already (I9).
        if manifest.epoch == epoch && wanted.is_none() && !name.starts_with(OWN_PINS) {
            let place = WantedAt::Pin(name);
            wanted = Some(Wanted { manifest: Box::new(manifest), place, committed: true });
        }
    }
    have.sort_unstable();
    have.dedup();
    Ok((wanted, have))
}

/// What a run would start from, looked at without claiming the job.
#[derive(Clone, Debug)]
pub struct Restorable {
    /// The checkpoint.
    pub manifest: Manifest,
    /// All of its output is known to be published.
    pub committed: bool,
    /// Epochs after it of which this history still has a trace, be it only the mark of their commit, ascending. Only if it was asked for by
    /// its epoch.
    pub later: Vec<Epoch>,
}

/// Looks for what [`begin`] would restore: a checkpoint, or the restore point. None if the job starts at its beginning.
pub async fn look_for(store: &Store, job: &str, from: Option<Epoch>) -> Result<Option<Restorable>, CheckpointError> {
    check_name("job", job)?;
    let Some(identity) = Identity::current(store, job).await? else {
        return match from {
            Some(_) => Err(CheckpointError::NeverRan { job: job.to_owned() }),
            None => Ok(None),
        };
    };
    let store = JobStore::new(store, job, identity.job_id);
    for _ in 0..READ_ATTEMPTS_MAX {
        let span = store.span().await?;
        let (wanted, have) = match from {
            Some(epoch) => find(&store, span, epoch).await?,
            None => (None, Vec::new()),
        };
        // The restore point may be an open checkpoint, or the base of a claim; a checkpoint of that number is looked for there first.
        let point = match restore_point(&store, span).await {
            Ok(Some(point)) => point.base,
            Ok(None) => continue,
            Err(CheckpointError::Damaged { .. } | CheckpointError::Missing { .. }) if wanted.is_some() => None,
            Err(error) => return Err(error),
        };
        let point = point.filter(|base| from.is_none_or(|epoch| base.manifest.epoch == epoch));
        let found = match (point, wanted) {
            (Some(base), _) => {
                let committed = base.committed || store.is_committed(base.manifest.epoch).await?;
                Some((*base.manifest, committed))
            }
            (None, Some(wanted)) => Some((*wanted.manifest, wanted.committed)),
            (None, None) => None,
        };
        return match (found, from) {
            (Some((manifest, committed)), None) => Ok(Some(Restorable { manifest, committed, later: Vec::new() })),
            (Some((manifest, committed)), Some(_)) => {
                // A manifest that cannot be read was committed all the same, if it is marked.
                let marked = numbers(&store.store().list(&store.committed_folder()).await?).into_iter().map(Epoch);
                let mut later: Vec<Epoch> =
                    have.into_iter().chain(marked).filter(|epoch| *epoch > manifest.epoch).collect();
                later.sort_unstable();
                later.dedup();
                Ok(Some(Restorable { manifest, committed, later }))
            }
            (None, None) => Ok(None),
            (None, Some(epoch)) => {
                let have = have.iter().map(Epoch::to_string).collect::<Vec<_>>().join(", ");
                let have = if have.is_empty() { "none".to_owned() } else { have };
                Err(CheckpointError::NoCheckpoint { job: job.to_owned(), epoch, have })
            }
        };
    }
    Err(contended(&store))
}

/// Begins a run in a history that exists; none if the log moved on meanwhile.
async fn again(
    store: &Store,
    job: &str,
    identity: &Identity,
    from: Option<Epoch>,
    clock: &Clock,
) -> Result<Option<Begun>, CheckpointError> {
    let store = JobStore::new(store, job, identity.job_id);
    store.prepare()?;
    // Before the log is read: a marker that is seen here has a manifest that is seen there, unless that was lost.
    let highest_marker = numbers(&store.store().list(&store.committed_folder()).await?).last().map(|&n| Epoch(n));
    let span = store.span().await?;
    let found = OptionFuture::from(from.map(|epoch| find(&store, span, epoch))).await.transpose()?;
    let mut is_unreadable = false;
    let mut point = match restore_point(&store, span).await {
        Ok(Some(point)) => point,
        Ok(None) => return Ok(None),
        // A tip that cannot be read stops everything but a start from elsewhere.
        Err(CheckpointError::Damaged { .. } | CheckpointError::Missing { .. }) if from.is_some() => {
            is_unreadable = true;
            Point { seq: 0, base: None, last_epoch: Epoch(0) }
        }
        Err(error) => return Err(error),
    };
    if let Some(base) = &mut point.base {
        base.committed = base.committed || store.is_committed(base.manifest.epoch).await?;
    }
    let (wanted, have) = found.unwrap_or_default();
    let asked = |epoch| match &wanted {
        Some(wanted) => (epoch, Asked::There { committed: wanted.committed }),
        None => (epoch, Asked::Nowhere),
    };
    let facts = StartFacts {
        point: point.base.as_ref().map(|base| PointFacts {
            epoch: base.manifest.epoch,
            finished: base.manifest.finished,
            committed: base.committed,
        }),
        last_epoch: point.last_epoch,
        highest_marker,
        asked: from.map(asked),
    };
    let (base, place) = match decide::begin(&facts) {
        decide::Begin::Finished => return Ok(point.base.map(|base| Begun::Finished(*base.manifest))),
        decide::Begin::Point => (point.base, None),
        decide::Begin::Asked => match wanted {
            Some(wanted) => (Some(Base { manifest: wanted.manifest, committed: true }), Some(wanted.place)),
            None => return Ok(None),
        },
        decide::Begin::Lost(epoch) => {
            let by = store.committed(epoch).to_string();
            return Err(CheckpointError::Missing { object: format!("the manifest of checkpoint {epoch}"), by });
        }
        decide::Begin::NoSuch => {
            let have = have.iter().map(Epoch::to_string).collect::<Vec<_>>().join(", ");
            let have = if have.is_empty() { "none".to_owned() } else { have };
            return Err(CheckpointError::NoCheckpoint { job: job.to_owned(), epoch: from.unwrap_or_default(), have });
        }
        decide::Begin::NeverCommitted => {
            return Err(CheckpointError::NeverCommitted { job: job.to_owned(), epoch: from.unwrap_or_default() });
        }
    };
    // Numbers that were used stay used, also those of entries that are gone or cannot be read.
    let mut last_epoch =
        have.iter().copied().chain(highest_marker).fold(point.last_epoch, |last, epoch| last.max(epoch));
    if is_unreadable {
        last_epoch = Epoch(last_epoch.0 + EPOCHS_LEFT_OUT);
    }
    let pinned = match (&base, place) {
        (Some(base), Some(place)) => Some(pin_for_claim(&store, &base.manifest, &place, span.tip).await?),
        _ => None,
    };
    let seq = span.tip + 1;
    let claim = Claim { created_at: clock.now(), base: base.clone(), last_epoch };
    #[cfg(test)]
    let is_outside = crate::simulation::mutant(crate::simulation::Mutant::ClaimOutsideTheLog);
    #[cfg(not(test))]
    let is_outside = false;
    let claimed = if is_outside { Created::Written } else { put_claim(&store, seq, claim).await? };
    if let Some(pin) = pinned {
        store.store().delete(&store.pin(&pin)).await?;
    }
    if claimed != Created::Written {
        return Ok(None);
    }
    let tip = base.as_ref().map(|base| (&*base.manifest, base.committed));
    let commit_needed = tip.is_some_and(|(_, committed)| !committed);
    let run = Run::begun(store, identity.n, Generation(seq), tip, last_epoch);
    #[cfg(test)]
    let run = if is_outside { run.outside_the_log() } else { run };
    let mut run = run;
    let given_up = given_up(run.store(), span, run.tip()).await?;
    run.note_given_up(given_up);
    // Only an early word: every publication looks again. The claim is made, so trouble with the store does not undo it, and what is
    // not swept now is swept by the next run.
    if let Err(error @ CheckpointError::Superseded { .. }) = run.check_fence().await {
        return Err(error);
    }
    if let Err(error) = run.store().sweep(run.generation()) {
        tracing::warn!(%error, "half-written packs of earlier runs were not removed");
    }
    Ok(Some(Begun::Run { run, restore: base.map(|base| *base.manifest), commit_needed }))
}

/// The checkpoint that was complete, never committed, and is not what a run starts from: the last one in the log, if it is that, since
/// one that another follows was committed (I13). Its output must not become visible any more. What cannot be read is not looked for.
async fn given_up(store: &JobStore, span: Span, base: Option<Epoch>) -> Result<Option<Box<Manifest>>, CheckpointError> {
    for seq in (span.boundary + 1..=span.tip).rev() {
        match store.read_in_span(seq).await {
            Ok(Some(Entry { body: Body::Checkpoint(manifest), .. })) => {
                let is_open = base != Some(manifest.epoch) && !store.is_committed(manifest.epoch).await?;
                return Ok(is_open.then_some(manifest));
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(CheckpointError::Damaged { .. } | CheckpointError::Missing { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The checkpoint that waits for its commit, if one does, without claiming the job.
pub async fn open_tip(store: &Store, job: &str) -> Result<Option<Manifest>, CheckpointError> {
    let store = look_at(store, job).await?;
    for _ in 0..READ_ATTEMPTS_MAX {
        let span = store.span().await?;
        let Some(point) = restore_point(&store, span).await? else { continue };
        let Some(base) = point.base else { return Ok(None) };
        let committed = base.committed || store.is_committed(base.manifest.epoch).await?;
        return Ok((!committed).then_some(*base.manifest));
    }
    Err(contended(&store))
}

/// Gives an open tip up: claims the job with the tip's parent as base, or the beginning if it has none. So its output is not
/// committed by any later run, and what it covered is read again from the parent and published under later epochs. The
/// run that this gives has the tip as [`Run::given_up`]: its sinks have to be told.
pub async fn give_up(store: &Store, job: &str, epoch: Epoch, clock: &Clock) -> Result<Run, CheckpointError> {
    let gone = || CheckpointError::NotOpen { job: job.to_owned(), epoch };
    for _ in 0..BEGIN_ATTEMPTS_MAX {
        let identity = Identity::current(store, job).await?;
        let identity = identity.ok_or_else(|| CheckpointError::NeverRan { job: job.to_owned() })?;
        let job_store = JobStore::new(store, job, identity.job_id);
        job_store.prepare()?;
        let span = job_store.span().await?;
        let Some(point) = restore_point(&job_store, span).await? else { continue };
        let tip = point.base.filter(|base| base.manifest.epoch == epoch && !base.committed).ok_or_else(gone)?.manifest;
        if job_store.is_committed(epoch).await? {
            return Err(gone());
        }
        let (base, place) = match tip.parent {
            None => (None, None),
            Some(parent) => match find(&job_store, span, parent).await? {
                (Some(Wanted { manifest, place, committed: true }), _) => {
                    (Some(Base { manifest, committed: true }), Some(place))
                }
                (_, have) => {
                    let have = have.iter().filter(|have| **have != epoch).map(Epoch::to_string).collect::<Vec<_>>();
                    let have = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
                    return Err(CheckpointError::NoCheckpoint { job: job.to_owned(), epoch: parent, have });
                }
            },
        };
        let pinned = match (&base, &place) {
            (Some(base), Some(place)) => Some(pin_for_claim(&job_store, &base.manifest, place, span.tip).await?),
            _ => None,
        };
        let last_epoch = point.last_epoch.max(epoch);
        let seq = span.tip + 1;
        let claimed =
            put_claim(&job_store, seq, Claim { created_at: clock.now(), base: base.clone(), last_epoch }).await?;
        if let Some(pin) = pinned {
            job_store.store().delete(&job_store.pin(&pin)).await?;
        }
        if claimed != Created::Written {
            continue;
        }
        let base = base.as_ref().map(|base| (&*base.manifest, base.committed));
        let mut run = Run::begun(job_store, identity.n, Generation(seq), base, last_epoch);
        run.note_given_up(Some(tip));
        return Ok(run);
    }
    Err(CheckpointError::Contended { job: job.to_owned(), attempts: BEGIN_ATTEMPTS_MAX })
}

/// Pins a checkpoint under a name of our own until a claim holds it; see the module's comment. A savepoint may be deleted while
/// we begin, as an entry of the log may be collected.
async fn pin_for_claim(
    store: &JobStore,
    manifest: &Manifest,
    place: &WantedAt,
    tip: u64,
) -> Result<String, CheckpointError> {
    let name = format!("{OWN_PINS}{tip}-{}", JobId(store.store().nonce()?));
    store.store().settle(&store.pin(&name), &encode_pin(manifest)?).await?;
    let is_there = match place {
        WantedAt::Log(seq) => store.highest_boundary().await? < *seq,
        WantedAt::Pin(pin) => store.store().exists(&store.pin(pin)).await?,
    };
    if !is_there {
        store.store().delete(&store.pin(&name)).await?;
        let have = "only others: it was collected or deleted just now".to_owned();
        return Err(CheckpointError::NoCheckpoint { job: store.job().to_owned(), epoch: manifest.epoch, have });
    }
    Ok(name)
}

/// Whether a pin was made by a run to begin, and is of no use any more in a log with an entry at `last_seq`.
pub(crate) fn is_spent_pin(name: &str, last_seq: u64) -> bool {
    let tip = name.strip_prefix(OWN_PINS).and_then(|rest| rest.split_once('-')).and_then(|(tip, _)| tip.parse().ok());
    tip.is_some_and(|tip: u64| last_seq > tip)
}

/// Looks at a job without claiming it: its current history.
pub(crate) async fn look_at(store: &Store, job: &str) -> Result<JobStore, CheckpointError> {
    check_name("job", job)?;
    match Identity::current(store, job).await? {
        Some(identity) => Ok(JobStore::new(store, job, identity.job_id)),
        None => Err(CheckpointError::NeverRan { job: job.to_owned() }),
    }
}

/// A log that was collected again and again while it was read.
pub(crate) fn contended(store: &JobStore) -> CheckpointError {
    CheckpointError::Contended { job: store.job().to_owned(), attempts: READ_ATTEMPTS_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_to_begin_with_is_spent_when_there_is_an_entry_where_its_claim_would_be() {
        assert!(!is_spent_pin("from-7-00ff", 7));
        assert!(is_spent_pin("from-7-00ff", 8));
        for name in ["from-7", "from-x-00ff", "nightly", "from-"] {
            assert!(!is_spent_pin(name, u64::MAX), "{name}");
        }
    }
}
