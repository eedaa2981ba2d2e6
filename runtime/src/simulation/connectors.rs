//! The ends of the simulated job: a source with positions, a sink with two phases, and the destination that outlives every
//! program. They fail, wait, and do what was asked and then report failure, as the world says.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::books::{Books, JobContent};
use super::model::{Model, Out, decode, value};
use crate::checkpoint::auditor::Auditor;
use crate::checkpoint::faulty::{Fate, FaultyStore};
use crate::connector::{Abandoned, Leftover, Looked};
use crate::connector::{Committed, Committer, ConnectorError, ConnectorErrorKind, Polled, Sink, Source, TaskContext};
use crate::model::{Batch, BatchLimit, CommitIdentity, Committable, Epoch, Generation, JobId, SplitPosition};

/// Where a program runs: what it sees of the world.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) store: FaultyStore,
    pub(crate) auditor: Auditor<JobContent>,
    pub(crate) model: Arc<Model>,
    /// How often its own parts fail, per four thousand calls.
    pub(crate) troubles: u64,
    /// From the start of one checkpoint attempt to the next.
    pub(crate) interval: Duration,
}

impl Place {
    /// So often in a thousand, others may run here, and the program may stop here.
    pub(crate) async fn pause(&self, per_thousand: u64) {
        if self.store.world().chance(per_thousand) {
            self.store.step().await;
        } else {
            self.store.stand_still().await;
        }
    }

    fn trouble(&self) -> Result<(), ConnectorError> {
        if self.store.world().below(4_000) < self.troubles { Err(transient()) } else { Ok(()) }
    }

    /// Opens a subtask of a source. I2: at the positions of the checkpoint that its run claimed.
    pub(crate) fn open_source(&self, context: &TaskContext, positions: &[SplitPosition]) -> Box<dyn Source> {
        let (subtask, parallelism) = (context.task.subtask, context.parallelism);
        let split = |position: &SplitPosition| position.split.parse::<u32>().ok();
        let splits: Vec<(u32, u32)> = (0..self.model.splits.len() as u32)
            .filter(|split| split % parallelism == subtask)
            .map(|own| {
                let at = positions.iter().find(|position| split(position) == Some(own));
                (own, at.map_or(0, |position| offset(&position.offset)))
            })
            .collect();
        let opened = self.auditor.with(|books| books.opened(context, &splits));
        self.auditor.object(opened);
        Box::new(SimulatedSource { place: self.clone(), splits })
    }

    pub(crate) fn open_sink(&self, context: &TaskContext) -> Box<dyn Sink> {
        Box::new(SimulatedSink { place: self.clone(), context: context.clone(), buffered: Vec::new() })
    }

    pub(crate) fn committer(&self, job: JobId) -> Box<dyn Committer> {
        Box::new(SimulatedCommitter { place: self.clone(), job })
    }
}

fn transient() -> ConnectorError {
    let (kind, message) = (ConnectorErrorKind::Transient, "the world says so".to_owned());
    ConnectorError { kind, message, help: None, source: None }
}

/// An offset as its source wrote it.
pub(crate) fn offset(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(u32::MAX, u32::from_le_bytes)
}

struct SimulatedSource {
    place: Place,
    /// Each split, and the next record of it.
    splits: Vec<(u32, u32)>,
}

#[async_trait]
impl Source for SimulatedSource {
    async fn poll(&mut self, limit: BatchLimit) -> Result<Polled, ConnectorError> {
        self.place.pause(200).await;
        self.place.trouble()?;
        let world = self.place.store.world();
        let lengths = &self.place.model.splits;
        let open: Vec<usize> =
            (0..self.splits.len()).filter(|&at| self.splits[at].1 < lengths[self.splits[at].0 as usize]).collect();
        if open.is_empty() {
            return Ok(Polled::End);
        }
        if world.chance(550) {
            return Ok(Polled::Pending(Duration::from_millis(1 + world.below(24))));
        }
        let (split, next) = &mut self.splits[open[world.below(open.len() as u64) as usize]];
        let left = lengths[*split as usize] - *next;
        let count = left.min(1 + world.below(3) as u32).min(limit.records as u32);
        let mut records = Batch::default();
        for index in *next..*next + count {
            let record = self.place.model.record(*split, index);
            records.push(record.time, Some(&[record.key]), Some(value(*split, index).as_bytes()));
        }
        *next += count;
        Ok(Polled::Records { records, rejected: Batch::default(), skipped: 0 })
    }

    fn positions(&self) -> Vec<SplitPosition> {
        let position = |&(split, next): &(u32, u32)| SplitPosition {
            split: split.to_string(),
            offset: next.to_le_bytes().into(),
            fingerprint: Vec::new(),
        };
        self.splits.iter().map(position).collect()
    }
}

struct SimulatedSink {
    place: Place,
    context: TaskContext,
    buffered: Vec<Out>,
}

#[async_trait]
impl Sink for SimulatedSink {
    async fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        self.place.pause(50).await;
        self.place.trouble()?;
        match decode(batch) {
            Ok(outs) => self.buffered.extend(outs),
            Err(fault) => self.place.auditor.object(Err(fault)),
        }
        Ok(())
    }

    async fn prepare(&mut self, epoch: Epoch) -> Result<Option<Vec<u8>>, ConnectorError> {
        if self.buffered.is_empty() {
            return Ok(None);
        }
        self.place.pause(500).await;
        self.place.trouble()?;
        let TaskContext { job_id, generation, task, .. } = &self.context;
        let name = format!("{job_id}/{generation}/{epoch}/{task}");
        let staged = std::mem::take(&mut self.buffered);
        self.place.auditor.with(|books| books.content.stage(&name, *job_id, *generation, staged));
        // It is staged, and nobody learns that.
        self.place.trouble()?;
        self.place.pause(300).await;
        Ok(Some(name.into_bytes()))
    }
}

struct SimulatedCommitter {
    place: Place,
    job: JobId,
}

#[async_trait]
impl Committer for SimulatedCommitter {
    async fn commit(
        &self,
        identity: &CommitIdentity,
        committables: &[Committable],
    ) -> Result<Committed, ConnectorError> {
        let store = &self.place.store;
        store.step().await;
        if store.world().chance(30) {
            self.place.auditor.count("commit still open when the next epoch is due");
            tokio::time::sleep(2 * self.place.interval).await;
            store.step().await;
        }
        let fate = store.fate(true);
        if matches!(fate, Fate::FailsBefore | Fate::FailsAndComesLater) {
            return Err(transient());
        }
        self.place.auditor.committing(identity.job, &identity.node, identity.epoch, committables);
        // A run that had its permit when somebody started from an older checkpoint: its output is given up, and is made again.
        let (committed, is_left_behind) = self.place.auditor.with(|books| {
            let history = books.histories.get(&identity.job);
            let is_left_behind = history.is_some_and(|history| history.is_left_behind(identity.epoch));
            (books.content.commit(identity, committables), is_left_behind)
        });
        if is_left_behind {
            self.place.auditor.count("commit of a checkpoint that --from left behind");
        }
        let committed = match committed {
            Ok(committed) => committed,
            Err(fault) => {
                if !is_left_behind {
                    self.place.auditor.object(Err(fault.clone()));
                }
                return Err(ConnectorError { kind: ConnectorErrorKind::Mismatch, message: fault, ..transient() });
            }
        };
        store.step().await;
        if fate == Fate::FailsAfter {
            self.place.auditor.count("commit applied but reported failed");
            return Err(transient());
        }
        Ok(committed)
    }

    async fn look(&self, identity: &CommitIdentity, _: &[Committable]) -> Result<Looked, ConnectorError> {
        self.place.store.step().await;
        Ok(self.place.auditor.with(|books| books.content.look(identity)))
    }

    async fn abandon(&self, identity: &CommitIdentity, _: &[Committable]) -> Result<Abandoned, ConnectorError> {
        let store = &self.place.store;
        store.step().await;
        let fate = store.fate(true);
        if matches!(fate, Fate::FailsBefore | Fate::FailsAndComesLater) {
            return Err(transient());
        }
        let abandoned = self.place.auditor.with(|books| books.content.abandon(identity));
        store.step().await;
        self.place.auditor.count("open checkpoint given up by --from");
        if fate == Fate::FailsAfter { Err(transient()) } else { Ok(abandoned) }
    }

    async fn leftovers(&self, _: Generation) -> Result<Vec<Leftover>, ConnectorError> {
        Ok(Vec::new())
    }

    async fn collect(&self, generation: Generation) -> Result<u64, ConnectorError> {
        self.place.store.step().await;
        let fate = self.place.store.fate(false);
        if fate != Fate::FailsBefore {
            let discarded = self.place.auditor.with(|books: &mut Books| books.discard(self.job, generation));
            self.place.auditor.object(discarded);
        }
        self.place.store.step().await;
        if fate == Fate::Works { Ok(0) } else { Err(transient()) }
    }
}
