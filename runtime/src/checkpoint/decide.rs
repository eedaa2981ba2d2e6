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
    for pack in &manifest.packs() {
        let is_new = pack.generation() == run.generation && run.tip.is_none_or(|tip| pack.epoch() > tip);
        #[cfg(test)]
        let is_new = is_new || crate::simulation::mutant(crate::simulation::Mutant::ReuseBecauseItExists);
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
    #[cfg(test)]
    if crate::simulation::mutant(crate::simulation::Mutant::DeletionByAge)
        && facts.tip.is_some_and(|tip| pack.epoch().0 + 3 <= tip.0)
    {
        return true;
    }
    let is_past = facts.tip.is_some_and(|tip| pack.epoch() <= tip) || pack.generation() < facts.claim;
    is_past && !facts.named.contains(pack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_decides_a_doubt() {
        assert_eq!(settle(Seen::Own), Settle::Written);
        assert_eq!(settle(Seen::Another), Settle::Lost);
        assert_eq!(settle(Seen::Nothing), Settle::Again);
        assert_eq!(settle(Seen::Unread), Settle::Again);
    }

    #[test]
    fn a_writer_goes_on_only_with_nothing_after_it_above_the_boundary_in_the_last_history() {
        for own in 1..5 {
            for boundary in 0..5 {
                for next in [None, Some(Generation(own + 1))] {
                    for later_history in [false, true] {
                        let by = fence(FenceFacts { own, next, boundary, later_history });
                        let is_clear = next.is_none() && boundary < own && !later_history;
                        assert_eq!(by.is_none(), is_clear, "{own} {boundary} {next:?} {later_history}: {by:?}");
                    }
                }
            }
        }
    }

    const ENTRIES: [EntryFact; 3] = [EntryFact::Claim, EntryFact::Checkpoint, EntryFact::Void];

    /// Every log of up to six entries that begins with a claim, oldest first.
    fn logs() -> Vec<Vec<EntryFact>> {
        let mut logs = vec![vec![EntryFact::Claim]];
        let mut from = 0;
        while logs[from].len() < 6 {
            for entry in ENTRIES {
                let log = [logs[from].as_slice(), &[entry]].concat();
                logs.push(log);
            }
            from += 1;
        }
        logs
    }

    #[test]
    fn the_walk_from_the_tip_finds_the_last_checkpoint_after_the_last_claim_else_its_base() {
        for log in logs() {
            let walked = log.iter().enumerate().rev().find_map(|(place, entry)| match look(*entry) {
                Look::Here => Some((place, false)),
                Look::Base => Some((place, true)),
                Look::Earlier => None,
            });
            let claim = log.iter().rposition(|entry| *entry == EntryFact::Claim).unwrap();
            let after = log.iter().rposition(|entry| *entry == EntryFact::Checkpoint).filter(|place| *place > claim);
            assert_eq!(walked, Some(after.map_or((claim, true), |place| (place, false))), "{log:?}");
        }
    }

    #[test]
    fn the_boundary_is_below_the_retained_checkpoints_and_below_what_the_restore_point_is_in() {
        for log in logs() {
            for retain in 0..5 {
                let walk: Vec<_> = log.iter().enumerate().map(|(i, fact)| (i as u64 + 1, *fact)).rev().collect();
                let checkpoints: Vec<_> =
                    walk.iter().filter(|(_, fact)| *fact == EntryFact::Checkpoint).map(|(seq, _)| *seq).collect();
                let needed = walk.iter().find(|(_, fact)| look(*fact) != Look::Earlier).unwrap().0;
                match boundary(&walk, retain) {
                    None => assert!(checkpoints.len() < retain.max(1) as usize, "{log:?} {retain}"),
                    Some(b) => {
                        assert!(b < needed, "{log:?} {retain}: {b}");
                        let kept = checkpoints.iter().filter(|seq| **seq > b).count();
                        assert_eq!(kept, retain.max(1) as usize, "{log:?} {retain}: {b}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_run_begins_empty_or_with_a_restore_point_or_says_why_not() {
        let points = [(1, false, false), (3, false, true), (3, true, false), (3, true, true)];
        let points: Vec<_> = std::iter::once(None)
            .chain(
                points
                    .map(|(epoch, finished, committed)| Some(PointFacts { epoch: Epoch(epoch), finished, committed })),
            )
            .collect();
        for point in points {
            for last_epoch in (point.map_or(0, |point| point.epoch.0)..5).map(Epoch) {
                for highest_marker in [None, Some(Epoch(1)), Some(Epoch(3)), Some(Epoch(4)), Some(Epoch(9))] {
                    let facts = StartFacts { point, last_epoch, highest_marker, asked: None };
                    let lost = highest_marker.filter(|marker| *marker > last_epoch);
                    let expected = match (lost, point) {
                        (Some(epoch), _) => Begin::Lost(epoch),
                        (None, Some(PointFacts { finished: true, committed: true, .. })) => Begin::Finished,
                        (None, _) => Begin::Point,
                    };
                    assert_eq!(begin(&facts), expected, "{facts:?}");
                    for asked in [Asked::Nowhere, Asked::There { committed: true }, Asked::There { committed: false }] {
                        for epoch in [Epoch(1), Epoch(2), Epoch(3)] {
                            let facts = StartFacts { asked: Some((epoch, asked)), ..facts };
                            let answer = begin(&facts);
                            if point.is_some_and(|point| point.epoch == epoch) {
                                assert!(matches!(answer, Begin::Point | Begin::Finished), "{facts:?}");
                            } else {
                                let expected = match asked {
                                    Asked::Nowhere => Begin::NoSuch,
                                    Asked::There { committed: true } => Begin::Asked,
                                    Asked::There { committed: false } => Begin::NeverCommitted,
                                };
                                assert_eq!(answer, expected, "{facts:?}");
                            }
                        }
                    }
                }
            }
        }
    }

    /// A pack of a generation and an epoch.
    fn pack(generation: u64, epoch: u64) -> PackName {
        format!("{generation}-{epoch}-a.0-{}", "0".repeat(64)).parse().unwrap()
    }

    #[test]
    fn a_pack_is_garbage_when_nothing_names_it_and_nothing_can_any_more() {
        let named = HashSet::from([pack(1, 1), pack(2, 2)]);
        for tip in [None, Some(Epoch(2))] {
            let facts = HeapFacts { tip, claim: Generation(2), named: &named };
            for generation in 1..=3 {
                for epoch in 1..=4 {
                    let pack = pack(generation, epoch);
                    let can_come = generation >= 2 && tip.is_none_or(|tip| epoch > tip.0);
                    let expected = !can_come && !named.contains(&pack);
                    assert_eq!(is_garbage(&facts, &pack), expected, "{pack} at tip {tip:?}");
                }
            }
        }
    }

    fn manifest() -> Manifest {
        let segment = |pack| super::super::segment::SegmentRef {
            scope: crate::model::Scope::Subtask,
            kind: crate::model::SegmentKind::Base,
            origin: 0,
            pack,
            first_chunk: 0,
            chunks: 1,
            bytes: 1,
            layout: super::super::Layout::Chunks,
        };
        let subtask = super::super::manifest::SubtaskEntry {
            segments: vec![segment(pack(1, 1)), segment(pack(7, 4))],
            ..Default::default()
        };
        Manifest {
            job: "job".into(),
            job_id: JobId([1; 16]),
            epoch: Epoch(5),
            generation: Generation(7),
            parent: Some(Epoch(3)),
            created_at: 0,
            finished: false,
            key_groups: 8,
            pipeline: [0; 32],
            nodes: vec![super::super::manifest::NodeEntry {
                name: crate::model::NodeName::new("a"),
                kind: super::super::manifest::NodeKind::Operator,
                parallelism: 1,
                plugin: None,
                subtasks: vec![subtask],
                grants: Vec::new(),
                committables: Vec::new(),
            }],
        }
    }

    #[test]
    fn a_manifest_is_published_only_if_all_that_it_rests_on_holds() {
        let tip_packs = HashSet::from([pack(1, 1)]);
        let facts = RunFacts {
            job: "job",
            job_id: JobId([1; 16]),
            generation: Generation(7),
            tip: Some(Epoch(3)),
            is_tip_committed: true,
            is_tip_finished: false,
            tip_packs: &tip_packs,
            tip_key_groups: Some(8),
            last_epoch: Epoch(4),
        };
        assert_eq!(publishable(&facts, &manifest()), Ok(()));
        let refused = |facts: &RunFacts<'_>, change: &dyn Fn(&mut Manifest)| {
            let mut manifest = manifest();
            change(&mut manifest);
            assert!(matches!(publishable(facts, &manifest), Err(Unpublishable::Refused(_))), "{facts:?} {manifest:?}");
        };
        let nothing: &dyn Fn(&mut Manifest) = &|_| {};
        refused(&facts, &|m| m.job = "other".into());
        refused(&facts, &|m| m.job_id = JobId([2; 16]));
        refused(&facts, &|m| m.generation = Generation(8));
        refused(&facts, &|m| m.parent = None);
        refused(&facts, &|m| m.parent = Some(Epoch(2)));
        refused(&facts, &|m| m.epoch = Epoch(4));
        refused(&facts, &|m| m.key_groups = 9);
        refused(&facts, &|m| m.nodes[0].parallelism = 2);
        refused(&RunFacts { is_tip_finished: true, ..facts }, nothing);
        // I8: of another run, of an epoch that the parent covers, or not the parent's.
        refused(&facts, &|m| m.nodes[0].subtasks[0].segments[1].pack = pack(6, 4));
        refused(&facts, &|m| m.nodes[0].subtasks[0].segments[1].pack = pack(7, 3));
        refused(&RunFacts { tip_packs: &HashSet::new(), ..facts }, nothing);
        let open = RunFacts { is_tip_committed: false, ..facts };
        assert_eq!(publishable(&open, &manifest()), Err(Unpublishable::NotCommitted(Epoch(3))));
    }
}
