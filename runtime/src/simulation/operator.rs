//! The simulated operator: keyed counts, windows that close in event time, a timer in processing time, and snapshots in several
//! steps, in bases and deltas.
//!
//! A delta holds the entries that changed since the last snapshot, with their new values: a host that loses one and does
//! not ask for a full snapshot gets wrong numbers back. A step of a snapshot writes the state of the cut, whatever has happened since. It fails
//! when the world says so: it asks for a call to be repeated, gives a snapshot up, or traps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use async_trait::async_trait;
use futures::FutureExt;
use serde::{Deserialize, Serialize};

use super::connectors::Place;
use super::model::{GROUPS, Out, WINDOW, group, parse_value, window};
use crate::flow::OperatorCode;
use crate::model::{
    Batch, Chunk, Descriptor, Epoch, NO_TIME, Port, Scope, SegmentKind, SnapshotMode, StateKind, TaskInfo, Timestamp,
};
use crate::plugin::{Operator, OperatorError, Output, SnapshotWriter};

/// From a record to the wake-up that it may ask for, in microseconds of processing time.
const WAKE_AFTER: i64 = 15_000;

type Called = Result<(), OperatorError>;

/// An entry of keyed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Slot {
    /// Records of a key in a split.
    Count { key: u8, split: u32 },
    /// Records of a key in a window that is open.
    Window { key: u8, start: Timestamp },
}

impl Slot {
    fn group(self) -> u32 {
        match self {
            Self::Count { key, .. } | Self::Window { key, .. } => group(key),
        }
    }
}

/// The state of a subtask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpState {
    pub(crate) slots: BTreeMap<Slot, u32>,
    pub(crate) own: Own,
}

/// What belongs to the subtask and not to a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Own {
    /// The last watermark that it was told.
    pub(crate) watermark: Timestamp,
    /// How often it was woken.
    pub(crate) ticks: u32,
    /// When it asked to be woken.
    pub(crate) wake_at: Option<Timestamp>,
}

impl Default for Own {
    fn default() -> Self {
        Self { watermark: NO_TIME, ticks: 0, wake_at: None }
    }
}

impl OpState {
    /// Puts a state together from what a snapshot wrote, as a plugin does that is restored.
    pub(crate) fn read(chunks: &[Chunk]) -> Result<Self, String> {
        let mut state = Self::default();
        for chunk in chunks {
            let fault = |e| format!("a chunk of {:?} does not decode: {e}", chunk.scope);
            if chunk.scope == Scope::Subtask {
                state.own = postcard::from_bytes(&chunk.data).map_err(fault)?;
                continue;
            }
            let entries: Vec<(Slot, u32)> = postcard::from_bytes(&chunk.data).map_err(fault)?;
            for (slot, value) in entries {
                // Nought takes an entry away.
                if value == 0 {
                    state.slots.remove(&slot)
                } else {
                    state.slots.insert(slot, value)
                };
            }
        }
        Ok(state)
    }
}

/// A snapshot that is being written.
struct Open {
    epoch: Epoch,
    left: VecDeque<(Scope, SegmentKind, Vec<u8>)>,
}

struct Simulated {
    place: Place,
    task: TaskInfo,
    state: OpState,
    /// Since the last snapshot began.
    changed: BTreeSet<Slot>,
    open: Option<Open>,
    /// A part of a snapshot was lost, so the next has to be full.
    is_lost: bool,
    /// What a call that said `more` still has to say.
    held: Vec<(u32, Batch)>,
}

/// The code of the operator of a program.
pub(crate) fn code(place: &Place) -> OperatorCode {
    let port = |keyed| Port { name: if keyed { "in" } else { "out" }.into(), summary: String::new(), keyed };
    let descriptor = Descriptor {
        name: "simulated".into(),
        version: "0.1.0".into(),
        summary: String::new(),
        inputs: vec![port(true)],
        outputs: vec![port(false)],
        state: StateKind::Keyed,
        state_version: 1,
        oldest_state_version: 1,
        config_schema: None,
    };
    let place = place.clone();
    let open = move |task: TaskInfo| {
        let place = place.clone();
        async move {
            place.pause(100).await;
            let operator = Simulated {
                place,
                task,
                state: OpState::default(),
                changed: BTreeSet::new(),
                open: None,
                is_lost: false,
                held: Vec::new(),
            };
            Ok(Box::new(operator) as Box<dyn Operator>)
        }
        .boxed()
    };
    OperatorCode { descriptor, digest: [0; 32], image: None, open: std::sync::Arc::new(open) }
}

fn encoded(out: &Out) -> Vec<u8> {
    // A first byte that no JSON object begins with: variants have small numbers.
    postcard::to_allocvec(out).expect("plain numbers encode")
}

impl Simulated {
    /// Waits a little, and fails if the world says so.
    async fn fate(&self) -> Called {
        self.place.pause(150).await;
        match self.place.store.world().below(4_000) {
            n if n < self.place.troubles => Err(OperatorError::Fatal("the world says so".into())),
            n if n < 4 * self.place.troubles => Err(OperatorError::Retry("the world says so".into())),
            _ => Ok(()),
        }
    }

    fn add(&mut self, slot: Slot, n: u32) -> u32 {
        let value = self.state.slots.entry(slot).or_default();
        *value += n;
        self.changed.insert(slot);
        *value
    }

    /// Emits, perhaps in two calls.
    fn emit(&mut self, outs: Vec<(Timestamp, u8, Out)>, out: &mut Output) {
        let mut batch = Batch::default();
        for (time, key, said) in outs {
            batch.push(time, Some(&[key]), Some(&encoded(&said)));
        }
        if batch.is_empty() {
            return;
        }
        if self.place.store.world().chance(100) {
            self.held.push((0, batch));
            out.more = true;
        } else {
            out.emitted.push((0, batch));
        }
    }

    fn snapshot_of_now(&mut self, mode: SnapshotMode) -> VecDeque<(Scope, SegmentKind, Vec<u8>)> {
        let changed = std::mem::take(&mut self.changed);
        let mut left = VecDeque::new();
        for group in self.task.groups.clone() {
            let of_group = |slot: &&Slot| slot.group() == group;
            let is_full = mode == SnapshotMode::Full || self.place.store.world().chance(150);
            let mut entries: Vec<(Slot, u32)> = if is_full {
                self.state
                    .slots
                    .iter()
                    .filter(|(slot, _)| of_group(slot))
                    .map(|(slot, value)| (*slot, *value))
                    .collect()
            } else {
                let value = |slot: &Slot| (*slot, self.state.slots.get(slot).copied().unwrap_or(0));
                changed.iter().filter(of_group).map(value).collect()
            };
            if entries.is_empty() && !is_full {
                continue;
            }
            let kind = if is_full { SegmentKind::Base } else { SegmentKind::Delta };
            // In two chunks, of which the second may be missing.
            let second = entries.split_off(entries.len().div_ceil(2));
            for part in [entries, second] {
                if !part.is_empty() {
                    left.push_back((Scope::KeyGroup(group), kind, postcard::to_allocvec(&part).expect("it encodes")));
                } else if kind == SegmentKind::Base {
                    left.push_back((Scope::KeyGroup(group), kind, Vec::new()));
                }
            }
        }
        let own = postcard::to_allocvec(&self.state.own).expect("it encodes");
        left.push_back((Scope::Subtask, SegmentKind::Base, own));
        left
    }
}

#[async_trait]
impl Operator for Simulated {
    async fn process(&mut self, now: Timestamp, _: u32, batch: &Batch, out: &mut Output) -> Called {
        self.fate().await?;
        let mut outs = Vec::new();
        for (row, &time) in batch.timestamps.iter().enumerate() {
            let record = batch.values.get(row).and_then(parse_value);
            let (split, index) = record.ok_or_else(|| OperatorError::Fatal("not a record of ours".into()))?;
            let record = self.place.model.record(split, index);
            if record.is_bad {
                out.rejected.0.push_row(batch, row);
                out.rejected.1.push("it is bad".into());
                continue;
            }
            debug_assert!(self.task.groups.contains(&group(record.key)) && GROUPS == self.task.key_groups);
            let n = self.add(Slot::Count { key: record.key, split }, 1);
            self.add(Slot::Window { key: record.key, start: window(record.time) }, 1);
            outs.push((time, record.key, Out::Counted { split, index, n }));
            if index.is_multiple_of(3) && self.state.own.wake_at.is_none() {
                self.state.own.wake_at = Some(now + WAKE_AFTER);
                out.wake_at = self.state.own.wake_at;
            }
        }
        self.emit(outs, out);
        Ok(())
    }

    async fn advance(&mut self, _: Timestamp, watermark: Timestamp, out: &mut Output) -> Called {
        self.fate().await?;
        let before = self.state.own.watermark;
        if watermark <= before {
            let objection = format!("I11: event time goes from {before} to {watermark} in {:?}", self.task);
            self.place.auditor.object(Err(objection));
        }
        self.state.own.watermark = watermark;
        let is_past = |start: Timestamp| start.saturating_add(WINDOW - 1) <= watermark;
        let closed: Vec<_> = self
            .state
            .slots
            .iter()
            .filter_map(|(slot, count)| match *slot {
                Slot::Window { key, start } if is_past(start) => Some((key, start, *count)),
                _ => None,
            })
            .collect();
        let mut outs = Vec::new();
        for (key, start, count) in closed {
            let slot = Slot::Window { key, start };
            self.state.slots.remove(&slot);
            self.changed.insert(slot);
            outs.push((start, key, Out::Window { key, start, count }));
        }
        self.emit(outs, out);
        Ok(())
    }

    async fn wake(&mut self, now: Timestamp, out: &mut Output) -> Called {
        self.fate().await?;
        let own = &mut self.state.own;
        if own.wake_at.is_none_or(|at| at > now) {
            let objection = format!("I11: woken at {now}, and asked for {:?}, in {:?}", own.wake_at, self.task);
            self.place.auditor.object(Err(objection));
        }
        own.wake_at = None;
        let tick = Out::Tick { subtask: self.task.subtask, number: own.ticks };
        own.ticks += 1;
        self.emit(vec![(now, 0, tick)], out);
        Ok(())
    }

    async fn finish(&mut self, _: Timestamp, _: u32, _: &mut Output) -> Called {
        self.fate().await
    }

    async fn resume(&mut self, _: Timestamp, out: &mut Output) -> Called {
        self.fate().await?;
        out.emitted.append(&mut self.held);
        Ok(())
    }

    async fn snapshot(
        &mut self,
        epoch: Epoch,
        mode: SnapshotMode,
        writer: &mut dyn SnapshotWriter,
    ) -> Result<bool, OperatorError> {
        self.place.pause(150).await;
        if self.open.as_ref().is_some_and(|open| open.epoch != epoch) {
            self.place.auditor.count("abandoned stepwise snapshot");
            (self.open, self.is_lost) = (None, true);
        }
        if self.open.is_none() {
            if self.is_lost && mode == SnapshotMode::Incremental {
                let objection = format!("I8: snapshot {epoch} is incremental after a part of one was lost");
                self.place.auditor.object(Err(objection));
            }
            self.open = Some(Open { epoch, left: self.snapshot_of_now(mode) });
        } else {
            self.place.auditor.count("snapshot in several steps");
        }
        let is_given_up = self.place.store.world().below(1_000) < 4 * self.place.troubles;
        let Some(open) = &mut self.open else { return Ok(true) };
        if is_given_up {
            self.is_lost = true;
            return Err(OperatorError::Retry("the world says so".into()));
        }
        let steps = 1 + self.place.store.world().below(4);
        for _ in 0..steps {
            let Some((scope, kind, data)) = open.left.pop_front() else { break };
            writer.write(scope, kind, &data);
        }
        let is_done = open.left.is_empty();
        if is_done {
            (self.open, self.is_lost) = (None, false);
        }
        Ok(is_done)
    }

    async fn restore(&mut self, _: u32, chunks: Vec<Chunk>) -> Called {
        self.place.pause(300).await;
        self.state = OpState::read(&chunks).map_err(OperatorError::Invalid)?;
        Ok(())
    }
}
