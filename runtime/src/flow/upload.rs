//! Off the data path: one task a stage that takes the chunks of its snapshots and makes them durable.
//!
//! ```text
//! stage ── Begin, Chunks, Chunks, …, End ──► packing (aside) ── full packs ──► uploads, several at once ──► report
//! ```
//!
//! Packs leave while the guest still writes. When the last one is durable, the report goes to the coordinator, and only then does what is held change: so
//! nothing that a manifest will name is ever less than durable (I1). When any part is lost, the attempt is declined, and the next
//! snapshot is full (I8); one that has begun in the meantime builds on what was lost and is declined as well.
//!
//! The channel has no bound of its own: chunks are paid for from the [`UploadBudget`](super::budget::UploadBudget) before they are sent, and other
//! messages are two for each snapshot. When the budget is used up, the part of a pack that there is goes on its way, so that memory comes back
//! whoever waits for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::budget::Reservation;
use super::context::FlowContext;
use super::report::{CutTimings, Event};
use crate::checkpoint::{CheckpointError, Holdings, Pack, SnapshotPacker, SubtaskEntry, Written, move_chunks};
use crate::model::{Epoch, Scope, SegmentKind, SnapshotMode, TaskId};
use crate::offload::offload;

/// A part of a pack goes on its way early if it has so many bytes, or if nothing else of its stage is.
const YIELDED_BYTES_MIN: u64 = 8 << 20;

/// A chunk that was copied out of an operator.
pub(super) type CutChunk = (Scope, SegmentKind, Bytes);

/// What a stage tells its uploader.
pub(super) enum Message {
    /// A snapshot begins. Everything of the cut but the segments is in the entry.
    Begin { epoch: Epoch, mode: SnapshotMode, entry: Box<SubtaskEntry>, timings: CutTimings },
    /// What one step wrote, and the bytes that were reserved for it.
    Chunks(Vec<CutChunk>, Reservation),
    /// The snapshot is whole; it took so long from its first step to its last.
    End { took: Duration },
    /// The operator has given the snapshot up.
    Abandon { reason: String },
}

/// How far an uploader is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    /// Snapshots that are durable and reported, declined or abandoned.
    pub(super) finished: u64,
    /// A part of a snapshot was lost since the last full one began.
    pub(super) is_lost: bool,
    /// The next snapshot had better be full.
    pub(super) wants_full: bool,
}

/// Makes the snapshots of one stage durable.
pub(super) struct Uploader {
    context: Arc<FlowContext>,
    task: TaskId,
    messages: mpsc::UnboundedReceiver<Message>,
    status: watch::Sender<Status>,
    holdings: Holdings,
}

/// A snapshot that is being packed and uploaded.
struct Attempt {
    epoch: Epoch,
    mode: SnapshotMode,
    entry: Box<SubtaskEntry>,
    timings: CutTimings,
    /// None after a fault.
    packer: Option<SnapshotPacker>,
    uploads: JoinSet<Result<(), String>>,
    /// Bytes of packs that were sent on their way.
    sent: u64,
    /// What is packed and not on its way.
    memory: Option<Reservation>,
    fault: Option<String>,
}

impl Uploader {
    /// Of a stage that holds this, and what to tell it by.
    pub(super) fn new(
        context: &Arc<FlowContext>,
        task: &TaskId,
        holdings: Holdings,
    ) -> (Self, mpsc::UnboundedSender<Message>, watch::Receiver<Status>) {
        let (sender, messages) = mpsc::unbounded_channel();
        let wants_full = holdings.next_mode() == SnapshotMode::Full;
        let (status, seen) = watch::channel(Status { finished: 0, is_lost: false, wants_full });
        (Self { context: Arc::clone(context), task: task.clone(), messages, status, holdings }, sender, seen)
    }

    /// Works until the stage is gone.
    pub(super) async fn run(mut self) {
        let mut pressure = self.context.uploads.pressure();
        while let Some(message) = self.messages.recv().await {
            let Message::Begin { epoch, mode, entry, timings } = message else { continue };
            if mode == SnapshotMode::Full {
                self.status.send_modify(|status| status.is_lost = false);
            }
            let packer = self.holdings.packer(self.context.generation, epoch, &self.task);
            let is_lost = self.status.borrow().is_lost;
            let mut attempt = Attempt {
                epoch,
                mode,
                entry,
                timings,
                packer: (!is_lost).then_some(packer),
                uploads: JoinSet::new(),
                sent: 0,
                memory: None,
                fault: is_lost.then(|| "the snapshot that it builds on was lost".to_owned()),
            };
            let ended = loop {
                let message = tokio::select! {
                    biased;
                    message = self.messages.recv() => message,
                    Ok(()) = pressure.changed(), if attempt.may_yield() => {
                        attempt.make_room(&self.context);
                        continue;
                    }
                };
                match message {
                    Some(Message::Chunks(chunks, paid)) => attempt.write(&self.context, chunks, paid).await,
                    Some(Message::End { took }) => {
                        attempt.timings.snapshot = took;
                        break Ok(());
                    }
                    Some(Message::Abandon { reason }) => break Err(reason),
                    // A stage ends one before it begins another.
                    Some(Message::Begin { .. }) => break Err("another snapshot began before its end".to_owned()),
                    None => return,
                }
            };
            let Attempt { epoch, .. } = attempt;
            let durable = match ended {
                Ok(()) => self.make_durable(attempt).await,
                Err(reason) => Err(reason),
            };
            let task = self.task.clone();
            let event = match durable {
                Ok(event) => event,
                Err(reason) => {
                    #[cfg(test)]
                    let forgets = crate::simulation::mutant(crate::simulation::Mutant::FailedDeltasForgotten);
                    #[cfg(not(test))]
                    let forgets = false;
                    self.status.send_modify(|status| status.is_lost = !forgets);
                    Event::Declined { task, epoch, reason }
                }
            };
            self.context.tell(event).await;
            let wants_full = self.holdings.segments().wants_full();
            self.status.send_modify(|status| {
                status.finished += 1;
                status.wants_full = wants_full;
            });
        }
    }

    /// Waits for the last byte, then takes over what was written.
    async fn make_durable(&mut self, mut attempt: Attempt) -> Result<Event, String> {
        let ended = self.context.clock.elapsed();
        let written = attempt.finish(&self.context).await?;
        while let Some(uploaded) = attempt.uploads.join_next().await {
            attempt.note(uploaded);
        }
        if let Some(fault) = attempt.fault {
            return Err(fault);
        }
        let mut bytes = attempt.sent;
        let mut holdings = self.holdings.clone();
        holdings.apply(attempt.mode, written);
        let places = holdings.to_move(bytes, self.context.inline_bytes_max);
        let moved: u64 = places.iter().map(|place| holdings.segments().as_slice()[*place].bytes).sum();
        let _paid = self.context.uploads.reserve(moved).await;
        match move_chunks(&self.context.store, &holdings, (self.context.generation, attempt.epoch, &self.task), places)
            .await
        {
            Ok(None) => {}
            Ok(Some((moved, more))) => {
                holdings = moved;
                bytes += more;
            }
            // What was to be moved stays where it is; whether it can still be read is not this attempt's question.
            Err(error) => {
                tracing::warn!(task = %self.task, epoch = %attempt.epoch, %error, "old chunks were not moved into a new pack");
            }
        }
        self.holdings = holdings;
        let Attempt { epoch, mut entry, mut timings, .. } = attempt;
        entry.segments = self.holdings.segments().to_vec();
        timings.upload = self.context.clock.elapsed().saturating_sub(ended);
        Ok(Event::Cut { task: self.task.clone(), epoch, entry, committable: None, bytes, timings })
    }
}

impl Attempt {
    /// Packs chunks; packs that are full go on their way.
    async fn write(&mut self, context: &Arc<FlowContext>, chunks: Vec<CutChunk>, paid: Reservation) {
        match &mut self.memory {
            Some(memory) => memory.join(paid),
            none => *none = Some(paid),
        }
        let Some(mut packer) = self.packer.take() else {
            self.memory = None;
            return;
        };
        let packed = offload(move || {
            let mut packs = Vec::new();
            for (scope, kind, data) in chunks {
                packer.write(scope, kind, data)?;
                packs.extend(packer.take_full());
            }
            Ok::<_, CheckpointError>((packer, packs))
        });
        match packed.await {
            Ok(Ok((packer, packs))) => {
                packs.into_iter().for_each(|pack| self.upload(context, pack));
                self.keep(packer);
            }
            Ok(Err(error)) => self.fail(error.to_string()),
            Err(reason) => self.fail(reason),
        }
    }

    /// Whether there is something that could go on its way.
    fn may_yield(&self) -> bool {
        self.packer.as_ref().is_some_and(|packer| packer.bytes() > 0)
    }

    /// Memory has run short: sends what is packed so far on its way, unless that is little and more is on its way already.
    fn make_room(&mut self, context: &Arc<FlowContext>) {
        while let Some(uploaded) = self.uploads.try_join_next() {
            self.note(uploaded);
        }
        let Some(mut packer) = self.packer.take() else { return };
        if (packer.bytes() >= YIELDED_BYTES_MIN || self.uploads.is_empty())
            && let Some(pack) = packer.take()
        {
            self.upload(context, pack);
        }
        self.keep(packer);
    }

    /// What became of an upload.
    fn note(&mut self, uploaded: Result<Result<(), String>, tokio::task::JoinError>) {
        match uploaded {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => self.fail(reason),
            Err(error) => self.fail(format!("an upload was lost: {error}")),
        }
    }

    /// Goes on with a packer; what is not in its memory any more is given back.
    fn keep(&mut self, packer: SnapshotPacker) {
        if let Some(memory) = &mut self.memory {
            memory.resize(packer.bytes());
        }
        self.packer = Some(packer);
    }

    fn fail(&mut self, reason: String) {
        self.fault.get_or_insert(reason);
        self.packer = None;
        self.memory = None;
        self.uploads.abort_all();
    }

    fn upload(&mut self, context: &Arc<FlowContext>, pack: Pack) {
        let paid = self.memory.as_mut().map(|memory| memory.split(pack.bytes));
        let context = Arc::clone(context);
        self.sent += pack.bytes;
        self.uploads.spawn(async move {
            // Given back at the end, also when this is dropped half way.
            let _paid = paid;
            let _turn = context.uploads.turn().await;
            context.store.put_pack(&pack).await.map_err(|error| error.to_string())
        });
    }

    /// Packs the rest.
    async fn finish(&mut self, context: &Arc<FlowContext>) -> Result<Written, String> {
        let packer = match (self.packer.take(), self.fault.take()) {
            (Some(packer), None) => packer,
            (_, fault) => return Err(fault.unwrap_or_else(|| "its chunks were lost".to_owned())),
        };
        // A few bytes make no object, if the epoch has none.
        let inline = self.sent == 0 && context.inline_bytes_max > 0;
        let finished = offload(move || packer.finish(inline)).await?;
        let (pack, written) = finished.map_err(|error| error.to_string())?;
        if let Some(pack) = pack {
            self.upload(context, pack);
        }
        self.memory = None;
        Ok(written)
    }
}
