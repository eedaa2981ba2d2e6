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
//! A run that falls asleep between 5 and 6 does no harm when it wakes up: what it deletes was garbage already, and a name
//! is never used again for something else.

use std::collections::HashSet;

use super::decide::{self, HeapFacts};
use super::error::CheckpointError;
use super::log::{Body, Claim, Mark};
use super::objects::numbers;
use super::pack::PackName;
use super::publish::Run;
use super::recover::is_spent_pin;
use crate::model::Epoch;

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
    // 1
    let old_boundary = store.highest_boundary().await?;
    let (mut walked, mut named, mut kept, mut checkpoints) = (Vec::new(), HashSet::new(), Vec::new(), 0);
    for seq in (old_boundary + 1..=run.last_seq()).rev() {
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
        if checkpoints == retain.max(1) {
            break;
        }
    }
    // 2
    let boundary = decide::boundary(&walked, retain).unwrap_or(0).max(old_boundary);
    if boundary > old_boundary {
        let mark = Mark { job_id: run.job_id(), generation: run.generation(), number: boundary };
        store.store().settle(&store.boundary(boundary), &mark.encode()?).await?;
    }
    // 3
    let packs: Vec<PackName> =
        store.store().list(&store.packs_folder()).await?.iter().filter_map(|name| name.parse().ok()).collect();
    // 4
    let mut spent = Vec::new();
    for (name, manifest) in store.pins().await? {
        if is_spent_pin(&name, run.last_seq()) {
            spent.push(store.pin(&name));
        } else {
            named.extend(manifest.packs());
        }
    }
    // 5
    run.check_fence().await?;
    // 6
    let facts = HeapFacts { tip: run.tip(), claim: run.generation(), named: &named };
    let packs: Vec<_> =
        packs.iter().filter(|pack| decide::is_garbage(&facts, pack)).map(|pack| store.pack(pack)).collect();
    let entries: Vec<_> = numbers(&store.store().list(&store.log_folder()).await?)
        .into_iter()
        .filter(|seq| *seq <= boundary)
        .map(|seq| store.log(seq))
        .collect();
    // The marker of the oldest checkpoint that can still be read, and all after it, also of those that are gone: they tell of a
    // manifest that was lost.
    let oldest = kept.into_iter().chain(run.tip()).min();
    let is_past = |epoch: &u64| oldest.is_some_and(|oldest| Epoch(*epoch) < oldest);
    let marks: Vec<_> = numbers(&store.store().list(&store.committed_folder()).await?)
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
    let collected = Collected { entries: entries.len() as u64, packs: packs.len() as u64, marks: marks.len() as u64 };
    for paths in [spent, packs, entries, marks] {
        store.store().delete_all(paths).await?;
    }
    Ok(collected)
}
