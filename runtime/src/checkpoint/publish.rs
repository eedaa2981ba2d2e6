//! A run: the one writer of a job, from its claim until it ends or is superseded.
//!
//! [`Run::publish`] puts a manifest as the next entry of the log, and hands out a [`CommitPermit`] when it is sure that it is there
//! and that nobody took over. With the permit every sink commits; then [`Run::mark_committed`] takes it back. So the
//! order manifest, commit, marker, next manifest (I4, I13) is an order of values, not of good intentions.
//!
//! When the outcome of a put is not known, the run is *in doubt* and does nothing else until it is: it never guesses,
//! and never moves on to another place in the log.

use std::collections::HashSet;

use bytes::Bytes;

use super::decide::{self, FenceFacts, RunFacts, Unpublishable};
use super::error::{CheckpointError, PublishError, Superseder};
use super::log::{Body, Entry, Mark};
use super::manifest::Manifest;
use super::objects::{Created, JobStore};
use super::pack::PackName;
use crate::model::{Epoch, Generation, JobId};

/// The right to make one checkpoint's output visible. It comes only from a run that has its manifest in the log and
/// was not superseded when it looked (I4, I7). Committing is idempotent: a permit that is lost can be had again by
/// [`Run::permit_tip`].
#[derive(Debug)]
#[must_use = "the output of this checkpoint is not visible until its sinks have committed"]
pub struct CommitPermit {
    job_id: JobId,
    generation: Generation,
    epoch: Epoch,
}

impl CommitPermit {
    /// The checkpoint that may be committed.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The job's history, for the commit identity.
    pub fn job_id(&self) -> JobId {
        self.job_id
    }

    /// The run that may commit it.
    pub fn generation(&self) -> Generation {
        self.generation
    }
}

/// One run of a job.
#[derive(Debug)]
pub struct Run {
    store: JobStore,
    /// The number of the job's history under its name.
    history: u64,
    generation: Generation,
    /// Its last entry.
    last_seq: u64,
    tip: Option<Tip>,
    /// The highest epoch used before this run or published by it.
    last_epoch: Epoch,
    /// The next one to hand out.
    next_epoch: Epoch,
    pending: Option<Pending>,
    given_up: Option<Box<Manifest>>,
}

/// The last complete checkpoint on the line of this run.
#[derive(Debug)]
struct Tip {
    epoch: Epoch,
    committed: bool,
    finished: bool,
    key_groups: u32,
    packs: HashSet<PackName>,
}

impl Tip {
    fn new(manifest: &Manifest, committed: bool) -> Self {
        Self {
            epoch: manifest.epoch,
            committed,
            finished: manifest.finished,
            key_groups: manifest.key_groups,
            packs: manifest.packs(),
        }
    }
}

/// A manifest that was sent and has no permit yet.
#[derive(Debug)]
struct Pending {
    seq: u64,
    bytes: Bytes,
    manifest: Manifest,
    /// It is known to be there; what is not known is whether somebody took over.
    written: bool,
}

impl Run {
    /// A run whose claim is in the log, on a base with the knowledge of whether it was committed.
    pub(super) fn begun(
        store: JobStore,
        history: u64,
        generation: Generation,
        base: Option<(&Manifest, bool)>,
        last_epoch: Epoch,
    ) -> Self {
        let tip = base.map(|(manifest, committed)| Tip::new(manifest, committed));
        let next_epoch = last_epoch.next();
        Self {
            store,
            history,
            generation,
            last_seq: generation.0,
            tip,
            last_epoch,
            next_epoch,
            pending: None,
            given_up: None,
        }
    }

    /// A run in the middle of its life, as the auditor of the simulation needs one.
    #[cfg(test)]
    pub(super) fn resumed_for_tests(
        store: JobStore,
        history: u64,
        generation: Generation,
        tip: &Manifest,
        last_seq: u64,
    ) -> Self {
        let run = Self::begun(store, history, generation, Some((tip, true)), tip.epoch);
        Self { last_seq, ..run }
    }

    /// A run that has no entry in the log: see [`Mutant::ClaimOutsideTheLog`](crate::simulation::Mutant).
    #[cfg(test)]
    pub(super) fn outside_the_log(self) -> Self {
        Self { last_seq: self.last_seq - 1, ..self }
    }

    /// This run's number.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The job's history.
    pub fn job_id(&self) -> JobId {
        self.store.id()
    }

    /// Where tasks put their packs.
    pub fn store(&self) -> &JobStore {
        &self.store
    }

    /// A checkpoint that was complete and never committed, and that this run left behind when it began: its sinks have to make sure
    /// that its output never becomes visible, before they stage anything.
    pub fn given_up(&self) -> Option<&Manifest> {
        self.given_up.as_deref()
    }

    pub(super) fn note_given_up(&mut self, manifest: Option<Box<Manifest>>) {
        self.given_up = manifest;
    }

    /// Hands out the number of a new checkpoint attempt. Each is handed out once.
    pub fn next_epoch(&mut self) -> Epoch {
        let epoch = self.next_epoch;
        self.next_epoch = epoch.next();
        epoch
    }

    /// The last complete checkpoint on this run's line: the parent of the next.
    pub fn tip(&self) -> Option<Epoch> {
        self.tip.as_ref().map(|tip| tip.epoch)
    }

    /// Whether the last complete checkpoint waits for its commit.
    pub fn is_open(&self) -> bool {
        self.tip.as_ref().is_some_and(|tip| !tip.committed)
    }

    /// The epoch whose outcome is not known, if one is.
    pub fn in_doubt(&self) -> Option<Epoch> {
        self.pending.as_ref().map(|pending| pending.manifest.epoch)
    }

    /// Puts a manifest as the next entry of the log: this completes the checkpoint.
    ///
    /// Every pack that it names must have been put ([`JobStore::put_pack`] returned). On
    /// [`PublishError::InDoubt`] call [`resolve`](Self::resolve) or publish the same manifest again; anything else is refused with
    /// the same error until then. On every other error but [`PublishError::Superseded`] nothing was written, and the
    /// epoch can be subsumed by a later one.
    pub async fn publish(&mut self, manifest: Manifest) -> Result<CommitPermit, PublishError> {
        if let Some(pending) = &self.pending {
            if pending.manifest == manifest {
                return self.resolve().await;
            }
            return Err(PublishError::InDoubt { epoch: pending.manifest.epoch, source: None });
        }
        let epoch = manifest.epoch;
        let nothing = HashSet::new();
        let tip_packs = self.tip.as_ref().map_or(&nothing, |tip| &tip.packs);
        let facts = RunFacts {
            job: self.store.job(),
            job_id: self.store.id(),
            generation: self.generation,
            tip: self.tip(),
            is_tip_committed: !self.is_open(),
            is_tip_finished: self.tip.as_ref().is_some_and(|tip| tip.finished),
            tip_packs,
            tip_key_groups: self.tip.as_ref().map(|tip| tip.key_groups),
            last_epoch: self.last_epoch,
        };
        decide::publishable(&facts, &manifest).map_err(|fault| match fault {
            Unpublishable::NotCommitted(epoch) => PublishError::NotCommitted { epoch },
            Unpublishable::Refused(fault) => PublishError::Refused { epoch, fault },
        })?;
        // I1: what the checkpoint before names was checked then; what is new is checked now.
        for pack in manifest.packs().difference(tip_packs) {
            if !self.store.has_pack(pack).await? {
                let fault = format!("pack {pack} was not put");
                return Err(PublishError::Refused { epoch, fault });
            }
        }
        let seq = self.last_seq + 1;
        let entry = Entry {
            job_id: self.store.id(),
            seq,
            generation: self.generation,
            nonce: self.store.store().nonce()?,
            body: Body::Checkpoint(Box::new(manifest.clone())),
        };
        let bytes = entry.encode()?;
        self.pending = Some(Pending { seq, bytes, manifest, written: false });
        self.resolve().await
    }

    /// Goes on with a publication that is in doubt: the same bytes at the same place. May be repeated for as long as the
    /// caller has patience.
    pub async fn resolve(&mut self) -> Result<CommitPermit, PublishError> {
        let Some(pending) = &mut self.pending else { return self.permit_tip().await };
        let epoch = pending.manifest.epoch;
        #[cfg(test)]
        let early = match pending.written {
            false if crate::simulation::mutant(crate::simulation::Mutant::FenceBeforePut) => {
                self.store.fence_facts(self.history, pending.seq - 1).await.ok()
            }
            _ => None,
        };
        if !pending.written {
            match self.store.store().settle(&self.store.log(pending.seq), &pending.bytes).await {
                Ok(Created::Written) => pending.written = true,
                Ok(Created::Theirs(theirs)) => {
                    // Damaged or not, the place is taken; a writer of the same generation cannot have been there (I6).
                    let theirs = self.store.check_entry(pending.seq, &theirs)?;
                    return Err(self.superseded(Superseder::Generation(theirs.generation)));
                }
                Err(CheckpointError::InDoubt { source, .. }) => return Err(PublishError::InDoubt { epoch, source }),
                Err(error) => return Err(error.into()),
            }
        }
        let seq = pending.seq;
        let facts = match self.store.fence_facts(self.history, seq).await {
            Ok(facts) => facts,
            Err(error) => return Err(PublishError::InDoubt { epoch, source: Some(error.into()) }),
        };
        #[cfg(test)]
        let facts = early.unwrap_or(facts);
        if let Some(by) = decide::fence(facts) {
            return Err(self.superseded(by));
        }
        if let Some(pending) = self.pending.take() {
            self.tip = Some(Tip::new(&pending.manifest, false));
            self.last_seq = seq;
            self.last_epoch = epoch;
            self.next_epoch = self.next_epoch.max(epoch.next());
            self.store.forget_packs(epoch);
        }
        Ok(self.permit(epoch))
    }

    /// The permit for the last complete checkpoint, if that has no `committed` marker: for recovery, and after a
    /// permit was lost to an error. Looks again whether somebody took over.
    pub async fn permit_tip(&mut self) -> Result<CommitPermit, PublishError> {
        if let Some(epoch) = self.in_doubt() {
            return Err(PublishError::InDoubt { epoch, source: None });
        }
        let Some(tip) = self.tip.as_ref().filter(|tip| !tip.committed) else {
            let epoch = self.tip().unwrap_or_default();
            return Err(PublishError::Refused { epoch, fault: "nothing waits for a commit".into() });
        };
        let epoch = tip.epoch;
        match decide::fence(self.store.fence_facts(self.history, self.last_seq).await?) {
            Some(by) => Err(self.superseded(by)),
            None => Ok(self.permit(epoch)),
        }
    }

    /// Notes that every sink has committed. Only now can the next checkpoint be published (I13).
    ///
    /// On an error take a new permit from [`permit_tip`](Self::permit_tip) and mark again; the sinks need not commit again, but
    /// may.
    pub async fn mark_committed(&mut self, permit: CommitPermit) -> Result<(), CheckpointError> {
        let Some(tip) = self.tip.as_mut().filter(|tip| tip.epoch == permit.epoch) else {
            return Err(CheckpointError::Refused(format!(
                "the permit is for checkpoint {}, which is not open",
                permit.epoch
            )));
        };
        if (permit.job_id, permit.generation) != (self.store.id(), self.generation) {
            return Err(CheckpointError::Refused(format!("the permit is of generation {}", permit.generation)));
        }
        #[cfg(test)]
        if crate::simulation::mutant(crate::simulation::Mutant::SecondOpenCommit) {
            tip.committed = true;
            return Ok(());
        }
        let mark = Mark { job_id: permit.job_id, generation: permit.generation, number: permit.epoch.0 };
        // Whoever wrote it: that it is there is what counts.
        self.store.store().settle(&self.store.committed(permit.epoch), &mark.encode()?).await?;
        tip.committed = true;
        Ok(())
    }

    /// Fails if somebody took over.
    ///
    /// What this run itself put and never learned the outcome of, because its call was dropped, does not count: an entry of its own
    /// generation is its own (I6).
    pub async fn check_fence(&self) -> Result<(), CheckpointError> {
        let mut own = self.last_seq;
        loop {
            let facts = self.store.fence_facts(self.history, own).await?;
            // A claim that was put after its place had been collected has the generation of the one that was there before: what
            // follows is not our own, and the boundary tells.
            if facts.next == Some(self.generation) && facts.boundary < self.last_seq {
                own += 1;
                continue;
            }
            return match decide::fence(FenceFacts { own: self.last_seq, ..facts }) {
                None => Ok(()),
                Some(by) => Err(CheckpointError::Superseded {
                    job: self.store.job().to_owned(),
                    generation: self.generation,
                    by,
                }),
            };
        }
    }

    /// Its last entry in the log is this one.
    pub(super) fn note_seq(&mut self, seq: u64) {
        self.last_seq = seq;
    }

    /// Its last entry in the log.
    pub(crate) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    fn permit(&self, epoch: Epoch) -> CommitPermit {
        CommitPermit { job_id: self.store.id(), generation: self.generation, epoch }
    }

    fn superseded(&self, by: Superseder) -> PublishError {
        PublishError::Superseded { job: self.store.job().to_owned(), generation: self.generation, by }
    }
}
