//! The collector: deletes what can never be needed again, without a clock and without counting references (I9).
//!
//! The order is the proof:
//!
//! 1. walk back from the tip to the last `retain` checkpoints;
//! 2. create `boundary/<b>`: from here on nobody reads, pins or starts from an entry ≤ b, and a writer that was asleep
//!    since before b is fenced even where its successors' entries are gone;
//! 3. list the packs;
//! 4. read the pins (what a run that is starting with `--from` holds is among them) and the claim's base;
//! 5. look for a later claim: there is none, so whoever claims after this saw the boundary of step 2 (I7);
//! 6. delete pins that runs made to begin with and that have served; then packs that nothing of 1 and 4 names and that are of an epoch up to the tip's or of an earlier generation;
//!    then entries ≤ b, markers and boundaries that no longer matter.
//!
//! A run collects its own job as it goes ([`collect`]); a command may do so beside it or when nothing runs ([`sweep`]), since all that
//! it needs to know is in the log: the generation of the last entry is that of the newest claim, and what is garbage by an
//! older tip is garbage by every later one. Instead of 5 it looks whether the newest claim is still the same, and begins again if
//! it is not. While the tip is open its parent is kept, whatever `retain` says: giving the tip up starts from there.
//!
//! A run that falls asleep between 5 and 6 does no harm when it wakes up: what it deletes was garbage already, and a name
//! is never used again for something else.

use std::collections::HashSet;

use object_store::path::Path;

use super::decide::{self, HeapFacts};
use super::error::CheckpointError;
use super::log::{Body, Claim, Mark, READ_ATTEMPTS_MAX};
use super::objects::{JobStore, Store, numbers};
use super::pack::PackName;
use super::publish::Run;
use super::recover::{contended, is_spent_pin, look_at};
use crate::model::{Epoch, Generation, JobId};

/// What was collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Entries of the log.
    pub entries: u64,
    /// Packs.
    pub packs: u64,
    /// Markers and boundaries.
    pub marks: u64,
}

/// Deletes what the last `retain` checkpoints (at least one), the pins, the base of this run's claim and attempts under way do not
/// need. May be repeated, and may fail at any point: the next call goes on.
///
/// Tasks may put packs meanwhile. An entry or a pin that is damaged stops it: what it names cannot be known.
pub async fn collect(run: &mut Run, retain: u32) -> Result<Collected, CheckpointError> {
    if let Some(epoch) = run.in_doubt() {
        return Err(CheckpointError::InDoubt { object: format!("checkpoint {epoch}"), source: None });
    }
    let store = run.store().clone();
    let view = View {
        store: &store,
        generation: run.generation(),
        last_seq: run.last_seq(),
        tip: run.tip(),
        is_open: run.is_open(),
    };
    let found = view.look(retain, true).await?;
    // 5
    run.check_fence().await?;
    found.delete(&store).await
}

/// What a sweep found that nobody needs, and deleted unless it was only asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Each with its length, in the order in which they go.
    pub objects: Vec<(String, u64)>,
    /// The job's history.
    pub job_id: JobId,
    /// The newest run: what sinks staged for earlier ones will not be published any more, unless `open` says otherwise.
    pub generation: Generation,
    /// The tip is not committed: what was staged for it is needed.
    pub open: Option<Epoch>,
}

/// The same as [`collect`] without being the job's run: beside one, or when nothing runs. Half-written uploads of earlier runs go, too. With
/// `dry_run` it writes and deletes nothing.
pub async fn sweep(store: &Store, job: &str, retain: u32, dry_run: bool) -> Result<Swept, CheckpointError> {
    let store = look_at(store, job).await?;
    for _ in 0..READ_ATTEMPTS_MAX {
        let Some(view) = View::of_log(&store).await? else { continue };
        let found = view.look(retain, !dry_run).await?;
        let mut swept = Swept {
            objects: found.sizes(&store).await?,
            job_id: store.id(),
            generation: view.generation,
            open: view.tip.filter(|_| view.is_open),
        };
        swept.objects.extend(store.half_written(view.generation)?);
        if dry_run {
            return Ok(swept);
        }
        // 5
        if View::of_log(&store).await?.is_none_or(|now| now.generation != view.generation) {
            continue;
        }
        found.delete(&store).await?;
        store.sweep(view.generation)?;
        return Ok(swept);
    }
    Err(contended(&store))
}

/// A job as the collector sees it.
struct View<'a> {
    store: &'a JobStore,
    /// The newest claim.
    generation: Generation,
    /// The last entry.
    last_seq: u64,
    /// The last complete checkpoint of the line that goes on.
    tip: Option<Epoch>,
    /// That one is not committed.
    is_open: bool,
}

/// What can go, and in this order.
struct Found {
    spent: Vec<Path>,
    packs: Vec<Path>,
    entries: Vec<Path>,
    marks: Vec<Path>,
}

impl<'a> View<'a> {
    /// As the log shows it; none if it was collected meanwhile, so that it has to be looked at again.
    async fn of_log(store: &'a JobStore) -> Result<Option<Self>, CheckpointError> {
        let span = store.span().await?;
        let mut newest = None;
        for seq in (span.boundary + 1..=span.tip).rev() {
            let Some(entry) = store.read_in_span(seq).await? else { return Ok(None) };
            // A writer is fenced by a later claim, so the last entry is of the newest.
            let generation = *newest.get_or_insert(entry.generation);
            let (tip, committed) = match entry.body {
                Body::Void | Body::Refused(_) => continue,
                Body::Checkpoint(manifest) => (Some(manifest.epoch), false),
                Body::Claim(Claim { base, .. }) => match base {
                    Some(base) => (Some(base.manifest.epoch), base.committed),
                    None => (None, true),
                },
            };
            let is_open = match tip {
                Some(epoch) if !committed => !store.is_committed(epoch).await?,
                _ => false,
            };
            return Ok(Some(Self { store, generation, last_seq: span.tip, tip, is_open }));
        }
        let object = store.log(span.boundary + 1).to_string();
        Err(CheckpointError::damaged(object, "the log has neither a claim nor a checkpoint after the boundary"))
    }

    /// Steps 1 to 4; 2 only if it is to be `carried_out`.
    async fn look(&self, retain: u32, carried_out: bool) -> Result<Found, CheckpointError> {
        let store = self.store;
        let retain = retain.max(1).saturating_add(u32::from(self.is_open));
        // 1
        let old_boundary = store.highest_boundary().await?;
        let (mut walked, mut named, mut kept, mut checkpoints) = (Vec::new(), HashSet::new(), Vec::new(), 0);
        for seq in (old_boundary + 1..=self.last_seq).rev() {
            let Some(entry) = store.read_in_span(seq).await? else { break };
            walked.push((seq, entry.body.fact()));
            match entry.body {
                Body::Checkpoint(manifest) => {
                    checkpoints += 1;
                    kept.push(manifest.epoch);
                    named.extend(manifest.packs());
                }
                // Also of older claims: what they name is at worst kept a little longer.
                Body::Claim(Claim { base: Some(base), .. }) => {
                    kept.push(base.manifest.epoch);
                    named.extend(base.manifest.packs());
                }
                _ => {}
            }
            if checkpoints == retain {
                break;
            }
        }
        // 2
        let boundary = decide::boundary(&walked, retain).unwrap_or(0).max(old_boundary);
        if boundary > old_boundary && carried_out {
            let mark = Mark { job_id: store.id(), generation: self.generation, number: boundary };
            store.store().settle(&store.boundary(boundary), &mark.encode()?).await?;
        }
        // 3
        let packs: Vec<PackName> =
            store.store().list(&store.packs_folder()).await?.iter().filter_map(|name| name.parse().ok()).collect();
        // 4
        let mut spent = Vec::new();
        for (name, manifest) in store.pins().await? {
            if is_spent_pin(&name, self.last_seq) {
                spent.push(store.pin(&name));
            } else {
                named.extend(manifest.packs());
            }
        }
        let facts = HeapFacts { tip: self.tip, claim: self.generation, named: &named };
        let packs = packs.iter().filter(|pack| decide::is_garbage(&facts, pack)).map(|pack| store.pack(pack)).collect();
        let entries = numbers(&store.store().list(&store.log_folder()).await?)
            .into_iter()
            .filter(|seq| *seq <= boundary)
            .map(|seq| store.log(seq))
            .collect();
        // The marker of the oldest checkpoint that can still be read, and all after it, also of those that are gone: they tell of a
        // manifest that was lost.
        let oldest = kept.into_iter().chain(self.tip).min();
        let is_past = |epoch: &u64| oldest.is_some_and(|oldest| Epoch(*epoch) < oldest);
        let marks = numbers(&store.store().list(&store.committed_folder()).await?)
            .into_iter()
            .filter(is_past)
            .map(|epoch| store.committed(Epoch(epoch)))
            .chain(
                numbers(&store.store().list(&store.boundary_folder()).await?)
                    .into_iter()
                    .filter(|b| *b < boundary)
                    .map(|b| store.boundary(b)),
            )
            .collect();
        Ok(Found { spent, packs, entries, marks })
    }
}

impl Found {
    /// Step 6.
    async fn delete(self, store: &JobStore) -> Result<Collected, CheckpointError> {
        let (entries, packs, marks) = (self.entries.len() as u64, self.packs.len() as u64, self.marks.len() as u64);
        for paths in [self.spent, self.packs, self.entries, self.marks] {
            store.store().delete_all(paths).await?;
        }
        Ok(Collected { entries, packs, marks })
    }

    /// How long each of them is.
    async fn sizes(&self, store: &JobStore) -> Result<Vec<(String, u64)>, CheckpointError> {
        let mut sizes = Vec::new();
        for path in [&self.spent, &self.packs, &self.entries, &self.marks].into_iter().flatten() {
            sizes.push((path.to_string(), store.store().length(path).await?.unwrap_or(0)));
        }
        Ok(sizes)
    }
}
