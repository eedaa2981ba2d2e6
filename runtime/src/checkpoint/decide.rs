//! Every decision of the protocol, as functions from facts to answers.
//!
//! Nothing here does I/O, waits or remembers. The rooms around it read facts, ask here, and obey; so each
//! rule can be tried on every combination of facts, and a program that stops between any two storage operations finds
//! the same answer again from what is in the store.

use std::collections::HashSet;

use super::error::Superseder;
use super::manifest::Manifest;
use super::pack::PackName;
use crate::model::{Epoch, Generation, JobId};

/// What is at a place after a create-if-absent that was not answered with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The bytes that were sent.
    Own,
    /// Other bytes.
    Another,
    /// Nothing. The request may still arrive.
    Nothing,
    /// It could not be read.
    Unread,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settle {
    /// It is written.
    Written,
    /// It will never be.
    Lost,
    /// Send the same bytes to the same place.
    Again,
}

/// Resolves doubt (I6). Only what is *there* decides, since objects are immutable: "already exists", a time-out and a
/// transport error are not looked at.
pub(crate) fn settle(seen: Seen) -> Settle {
    match seen {
        Seen::Own => Settle::Written,
        Seen::Another => Settle::Lost,
        Seen::Nothing | Seen::Unread => Settle::Again,
    }
}

/// What a writer sees around its last entry, *read in this order*: a later run collects only after it has made a
/// boundary, so if its entry is gone already when `next` is read, the boundary is there when it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FenceFacts {
    /// The sequence number of the writer's last entry.
    pub(crate) own: u64,
    /// Who wrote the entry after it, if there is one.
    pub(crate) next: Option<Generation>,
    /// The highest boundary, 0 if there is none.
    pub(crate) boundary: u64,
    /// The job has a later history.
    pub(crate) later_history: bool,
}

/// Who took over from a writer; nobody: it may commit and delete (I7).
///
/// `own <= boundary` and not `<`: the entry at the boundary is already ignored by every reader.
pub(crate) fn fence(facts: FenceFacts) -> Option<Superseder> {
    if facts.later_history {
        Some(Superseder::Fresh)
    } else if let Some(generation) = facts.next {
        Some(Superseder::Generation(generation))
    } else if facts.own <= facts.boundary {
        Some(Superseder::Collected(facts.boundary))
    } else {
        None
    }
}

/// What an entry of the log is, to one that walks back from the tip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryFact {
    Claim,
    Checkpoint,
    Void,
}

/// Where the restore point is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// This checkpoint.
    Here,
    /// The base of this claim.
    Base,
    /// At an entry before this one.
    Earlier,
}

/// The restore point is the last checkpoint after the last claim, else that claim's base: so, from the tip backwards,
/// whichever of the two comes first.
pub(crate) fn look(entry: EntryFact) -> Look {
    match entry {
        EntryFact::Checkpoint => Look::Here,
        EntryFact::Claim => Look::Base,
        EntryFact::Void => Look::Earlier,
    }
}

/// The restore point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointFacts {
    pub(crate) epoch: Epoch,
    pub(crate) finished: bool,
    pub(crate) committed: bool,
}

/// A checkpoint that was asked for and is not the restore point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nowhere,
    There { committed: bool },
}

/// What is known about a job when a run begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartFacts {
    /// None: no checkpoint was completed since the history began, or the tip cannot be read and another was asked for.
    pub(crate) point: Option<PointFacts>,
    /// The highest epoch that the log knows.
    pub(crate) last_epoch: Epoch,
    /// The highest epoch with a `committed` marker.
    pub(crate) highest_marker: Option<Epoch>,
    /// What `--from` names.
    pub(crate) asked: Option<(Epoch, Asked)>,
}

/// How a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Not at all: the job is done.
    Finished,
    /// With a claim on the restore point, which may be the beginning.
    Point,
    /// With a claim on what was asked for.
    Asked,
    /// Not at all: this checkpoint was committed and its manifest is gone (I10).
    Lost(Epoch),
    /// Not at all: what was asked for is not there.
    NoSuch,
    /// Not at all: what was asked for was never committed, and its staged output may be gone.
    NeverCommitted,
}

/// Decides how a run begins in a history that exists.
pub(crate) fn begin(facts: &StartFacts) -> Begin {
    let is_point = |epoch| facts.point.is_some_and(|point| point.epoch == epoch);
    let at_point = || match facts.point {
        // Not committed: a run has to finish that first.
        Some(point) if point.finished && point.committed => Begin::Finished,
        _ => Begin::Point,
    };
    match facts.asked {
        // Whoever names a checkpoint has chosen: also one that others came after.
        Some((epoch, _)) if is_point(epoch) => at_point(),
        Some((_, Asked::There { committed: true })) => Begin::Asked,
        Some((_, Asked::There { committed: false })) => Begin::NeverCommitted,
        Some((_, Asked::Nowhere)) => Begin::NoSuch,
        None => match facts.highest_marker {
            Some(marker) if marker > facts.last_epoch => Begin::Lost(marker),
            _ => at_point(),
        },
    }
}

/// What a run knows when it is to publish.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunFacts<'a> {
    pub(crate) job: &'a str,
    pub(crate) job_id: JobId,
    pub(crate) generation: Generation,
    /// The last complete checkpoint on its line.
    pub(crate) tip: Option<Epoch>,
    /// That one has its marker. True if there is none.
    pub(crate) is_tip_committed: bool,
    pub(crate) is_tip_finished: bool,
    /// What that one names.
    pub(crate) tip_packs: &'a HashSet<PackName>,
    pub(crate) tip_key_groups: Option<u32>,
    /// The highest epoch ever used in this history before this run, or published by it.
    pub(crate) last_epoch: Epoch,
}

/// Why a manifest cannot be put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unpublishable {
    /// I13.
    NotCommitted(Epoch),
    /// Another invariant.
    Refused(String),
}

/// Whether a manifest may be the next entry of the log.
pub(crate) fn publishable(run: &RunFacts<'_>, manifest: &Manifest) -> Result<(), Unpublishable> {
    let refused = |fault: String| Err(Unpublishable::Refused(fault));
    if let Err(fault) = manifest.check() {
        return refused(fault);
    }
    if (manifest.job.as_str(), manifest.job_id, manifest.generation) != (run.job, run.job_id, run.generation) {
        return refused(format!(
            "it is of generation {} of job {} ({}), and this run is generation {} of job {} ({})",
            manifest.generation, manifest.job, manifest.job_id, run.generation, run.job, run.job_id
        ));
    }
    if manifest.parent != run.tip {
        return refused(format!(
            "its parent is {:?}, and the last complete checkpoint is {:?}",
            manifest.parent, run.tip
        ));
    }
    // `<=`: an epoch is never used twice, also not one that another line of this history used.
    if manifest.epoch <= run.last_epoch {
        return refused(format!("its epoch is not after {}, the last that was used", run.last_epoch));
    }
    if let (true, Some(tip)) = (run.is_tip_finished, run.tip) {
        return refused(format!("the job has finished with checkpoint {tip}"));
    }
    if run.tip_key_groups.is_some_and(|groups| groups != manifest.key_groups) {
        return refused(format!("it has {} key groups, and the job {:?}", manifest.key_groups, run.tip_key_groups));
    }
    if let (false, Some(tip)) = (run.is_tip_committed, run.tip) {
        return Err(Unpublishable::NotCommitted(tip));
    }
    // I8. An epoch after the parent's, and not "this epoch": what a failed attempt wrote is carried by the next.
    for segment in manifest.segments() {
        let pack = &segment.pack;
        let is_new = pack.generation() == run.generation && run.tip.is_none_or(|tip| pack.epoch() > tip);
        if !is_new && !run.tip_packs.contains(pack) {
            return refused(format!("pack {pack} is neither new nor named by the checkpoint before"));
        }
    }
    Ok(())
}

/// The boundary for a log whose entries, from the tip backwards, are these: everything before the last `retain`
/// checkpoints may go, and before a claim that no checkpoint follows yet, since that claim carries the restore point.
/// None if nothing may go.
///
/// `entries` may stop as soon as it has `retain` checkpoints.
pub(crate) fn boundary(entries: &[(u64, EntryFact)], retain: u32) -> Option<u64> {
    let mut checkpoints = entries.iter().filter(|(_, fact)| *fact == EntryFact::Checkpoint);
    let oldest = checkpoints.nth(retain.max(1) as usize - 1)?.0;
    // The tip's own claim may go once a checkpoint follows it; when none does it is the youngest entry that is no void.
    (oldest > 1).then_some(oldest - 1)
}

/// What the collector has to know to judge a pack (I9).
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeapFacts<'a> {
    /// The epoch of the last complete checkpoint.
    pub(crate) tip: Option<Epoch>,
    /// The newest claim.
    pub(crate) claim: Generation,
    /// What retained entries, pins and the claim's base name, read *after* the packs were listed.
    pub(crate) named: &'a HashSet<PackName>,
}

/// Whether a pack can never be named again, without a clock and without counting references.
///
/// Named by nobody is not enough: a task may have put it for a manifest that is still to come. Such a manifest is of the newest
/// claim's generation and of an epoch after the tip.
pub(crate) fn is_garbage(facts: &HeapFacts<'_>, pack: &PackName) -> bool {
    let is_past = facts.tip.is_some_and(|tip| pack.epoch() <= tip) || pack.generation() < facts.claim;
    is_past && !facts.named.contains(pack)
}
