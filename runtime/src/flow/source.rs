//! The source task: asks its source for records, says how far event time has come, and puts in the barriers that the
//! coordinator asks for.
//!
//! A barrier stands between two batches: the position that is reported is exactly what was handed out before it. A
//! source that has ended still answers barriers, until the last one.

use std::time::Duration;

use tokio::sync::mpsc;

use super::TaskError;
use super::context::Seen;
use super::pace::Pace;
use super::report::{CutTimings, Event, Progress};
use super::schedule::{Op, Segment};
use super::stage::{Chain, next_before};
use crate::account;
use crate::checkpoint::SubtaskEntry;
use crate::connector::{Polled, Source};
use crate::metrics::NodeMetrics;
use crate::model::{Barrier, Batch, Element, Epoch, NO_TIME, Timestamp};
use crate::plan::OutPort;

/// What event times of this source mean for watermarks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// How far behind the largest event time the watermark stays, in microseconds.
    pub(super) out_of_orderness: i64,
    /// After how long without a record it counts as idle.
    pub(super) idle_after: Option<Duration>,
    /// How many records a second this subtask hands out at most.
    pub(super) rate: Option<f64>,
}

/// A source at the head of a chain.
pub(super) struct SourceTask {
    source: Box<dyn Source>,
    chain: Chain,
    barriers: mpsc::UnboundedReceiver<Barrier>,
    timing: Timing,
    pace: Option<Pace>,
    newest: Timestamp,
    watermark: Timestamp,
    idle: bool,
    ended: bool,
    last_record: Duration,
    records: u64,
}

impl SourceTask {
    /// A source at its beginning.
    pub(super) fn new(
        source: Box<dyn Source>,
        chain: Chain,
        barriers: mpsc::UnboundedReceiver<Barrier>,
        timing: Timing,
    ) -> Self {
        let last_record = chain.context.clock.elapsed();
        let mut chain = chain;
        if source.may_change() {
            chain.stages[0].course.digest_all();
        }
        chain.begin_segment(0);
        Self {
            source,
            chain,
            barriers,
            pace: timing.rate.map(|rate| Pace::new(rate, last_record)),
            timing,
            newest: NO_TIME,
            watermark: NO_TIME,
            idle: false,
            ended: false,
            last_record,
            records: 0,
        }
    }

    /// Goes on from a cut.
    pub(super) fn restore(&mut self, progress: &Progress, records: u64) {
        if let Progress::Source { newest, watermark, idle, ended } = *progress {
            (self.newest, self.watermark, self.idle, self.ended) = (newest, watermark, idle, ended);
            self.records = records;
        }
    }

    /// Works until the last barrier, or until something fails.
    pub(super) async fn run(mut self) -> Result<(), TaskError> {
        if self.ended {
            self.tell_ended().await;
        }
        let trace = self.source.trace();
        if !trace.is_empty() {
            self.chain.stages[0].course.note(&Op::Traced(0, trace));
        }
        loop {
            // Between two batches, and back to back when there are none.
            self.chain.snapshot_step().await?;
            let barrier = if self.ended {
                match self.wait(None).await {
                    Some(barrier) => barrier.ok_or(TaskError::Closed)?,
                    None => continue,
                }
            } else {
                match self.barriers.try_recv() {
                    Ok(barrier) => barrier,
                    Err(mpsc::error::TryRecvError::Disconnected) => return Err(TaskError::Closed),
                    Err(mpsc::error::TryRecvError::Empty) => {
                        match self.step().await? {
                            // A chain without channels never waits for anything: let others have the thread.
                            None => {
                                account::yield_now().await;
                                continue;
                            }
                            Some(pause) => match self.wait(Some(pause)).await {
                                None => continue,
                                Some(barrier) => barrier.ok_or(TaskError::Closed)?,
                            },
                        }
                    }
                }
            };
            self.cut(barrier).await?;
            if barrier.last {
                return self.chain.settle().await;
            }
        }
    }

    /// The next barrier, if one comes within the pause, before the source has something, and before a snapshot can go on. In it: none if nobody can send one any more.
    async fn wait(&mut self, pause: Option<Duration>) -> Option<Option<Barrier>> {
        let (is_writing, room) = (self.chain.is_writing(), self.chain.room());
        let waits = pause.is_some();
        let next = next_before(is_writing, room, pause, self.barriers.recv());
        tokio::select! {
            biased;
            next = next => next,
            () = self.source.changed(), if waits => None,
        }
    }

    /// Polls once and hands on what came. Says how long to wait if nothing did.
    async fn step(&mut self) -> Result<Option<Duration>, TaskError> {
        let mut limit = self.chain.context.batch.limit;
        let mut now = self.chain.context.clock.elapsed();
        let mut held_back = None;
        if let Some(pace) = &mut self.pace {
            let allowance = pace.allowance(now);
            if allowance == 0 {
                held_back = Some(pace.pause(now));
            }
            limit.records = limit.records.min(usize::try_from(allowance).unwrap_or(usize::MAX));
        }
        let polled = match held_back {
            Some(pause) => {
                self.last_record = now;
                Polled::Pending(pause)
            }
            None => {
                let polled = self.source.poll(limit).await;
                polled.map_err(|e| TaskError::connector(&self.chain.stages[0].task, e))?
            }
        };
        now = now.max(self.chain.context.clock.elapsed());
        let count = match &polled {
            Polled::Records { records, rejected, skipped } => (records.len() + rejected.len()) as u64 + skipped,
            Polled::Pending(_) | Polled::End => 0,
        };
        let trace = if held_back.is_some() { Vec::new() } else { self.source.trace() };
        if !trace.is_empty() {
            self.chain.stages[0].course.note(&Op::Traced(count, trace));
        } else if count > 0 {
            self.chain.stages[0].course.note(&Op::Take(count));
        }
        let pause = match polled {
            Polled::Records { records, rejected, skipped } => {
                self.last_record = now;
                if let Some(pace) = &mut self.pace {
                    pace.note(records.len() as u64 + rejected.len() as u64 + skipped);
                }
                self.idle = false;
                self.hand_on(records, rejected, skipped).await?;
                let delay = self.chain.context.batch.delay;
                if let Some(before) = now.checked_sub(delay) {
                    self.chain.flush(Some(before)).await?;
                }
                None
            }
            Polled::Pending(pause) => {
                self.chain.flush(None).await?;
                let silent = now.saturating_sub(self.last_record);
                if !self.idle && self.timing.idle_after.is_some_and(|after| silent >= after) {
                    self.say_idle().await?;
                }
                let idle_in = self.timing.idle_after.filter(|_| !self.idle).map(|after| after.saturating_sub(silent));
                let wake_in = self.chain.wake_at().map(|at| micros_until(at, self.chain.context.clock.now()));
                Some([idle_in, wake_in].into_iter().flatten().fold(pause, Duration::min))
            }
            Polled::End => {
                self.say_end().await?;
                None
            }
        };
        if self.chain.wake_at().is_some() {
            self.chain.wake().await?;
        }
        Ok(pause)
    }

    async fn say_idle(&mut self) -> Result<(), TaskError> {
        self.idle = true;
        self.chain.stages[0].course.note(&Op::Idle);
        self.chain.control(0, Element::Idle).await
    }

    async fn say_end(&mut self) -> Result<(), TaskError> {
        self.ended = true;
        self.chain.stages[0].course.note(&Op::End);
        self.chain.context.note_activity(1);
        self.chain.control(0, Element::End).await?;
        self.tell_ended().await;
        Ok(())
    }

    /// Does again what is recorded, up to the last cut of it. If that cannot be done, whoever reads it finds its channels closed.
    pub(super) async fn replay(mut self, segments: Vec<Segment>, complete: Option<Epoch>) -> Result<(), TaskError> {
        for segment in segments {
            self.chain.set_turns(&segment.turns);
            for op in segment.ops() {
                match op.map_err(|reason| self.chain.diverged(reason))? {
                    Op::Take(records) => self.take_again(records, &[]).await?,
                    Op::Traced(records, trace) => self.take_again(records, &trace).await?,
                    Op::Idle => self.say_idle().await?,
                    Op::End => self.say_end().await?,
                    op => self.chain.repeat(op).await?,
                }
            }
            self.cut(Barrier { epoch: segment.epoch, last: segment.last, complete }).await?;
        }
        self.chain.settle().await
    }

    async fn take_again(&mut self, count: u64, trace: &[u8]) -> Result<(), TaskError> {
        let polled = self.source.repeat(count, trace).await;
        let polled = polled.map_err(|e| TaskError::connector(&self.chain.stages[0].task, e))?;
        let Polled::Records { records, rejected, skipped } = polled else {
            return if count == 0 { Ok(()) } else { Err(self.chain.diverged(gave(0, count))) };
        };
        let given = (records.len() + rejected.len()) as u64 + skipped;
        if given != count {
            return Err(self.chain.diverged(gave(given, count)));
        }
        let trace = trace.to_vec();
        self.chain.stages[0].course.note(&if trace.is_empty() { Op::Take(count) } else { Op::Traced(count, trace) });
        if count > 0 {
            self.idle = false;
            self.hand_on(records, rejected, skipped).await?;
        }
        Ok(())
    }

    async fn hand_on(&mut self, records: Batch, rejected: Batch, skipped: u64) -> Result<(), TaskError> {
        let count = records.len() as u64;
        let metrics = &self.chain.stages[0].metrics;
        NodeMetrics::add(&metrics.records_in, count + rejected.len() as u64 + skipped);
        NodeMetrics::add(&metrics.records_out, count);
        NodeMetrics::add(&metrics.bytes_in, records.byte_len() as u64);
        NodeMetrics::add(&metrics.skipped, skipped);
        NodeMetrics::add(&metrics.rejected, rejected.len() as u64);
        self.records += count;
        self.chain.context.note_activity(count + rejected.len() as u64 + skipped);
        let newest = records.timestamps.iter().copied().max().unwrap_or(NO_TIME);
        self.newest = self.newest.max(newest);
        if let Some(tap) = &self.chain.context.tap {
            for (port, batch) in [(OutPort::Rejected, &rejected), (OutPort::Data(0), &records)] {
                tap.note(&self.chain.stages[0].task, Seen::Gave(port, batch));
            }
        }
        self.chain.emit(0, OutPort::Rejected, rejected).await?;
        self.chain.emit(0, OutPort::Data(0), records).await?;
        if self.newest > NO_TIME {
            // A record at `newest - out_of_orderness` may still come, one before it may not; and the end of time is told
            // by `End` alone.
            let watermark = self.newest.saturating_sub(self.timing.out_of_orderness).saturating_sub(1);
            if watermark > self.watermark {
                self.watermark = watermark;
                self.chain.stages[0].metrics.advance(watermark);
                self.chain.control(0, Element::Watermark(watermark)).await?;
            }
        }
        Ok(())
    }

    async fn cut(&mut self, barrier: Barrier) -> Result<(), TaskError> {
        let progress =
            Progress::Source { newest: self.newest, watermark: self.watermark, idle: self.idle, ended: self.ended };
        let entry = SubtaskEntry {
            segments: Vec::new(),
            positions: self.source.positions(),
            progress: progress.encode(),
            watermark: self.watermark,
            records: self.records,
            schedule: self.chain.stages[0].course.cut(&barrier),
        };
        let task = self.chain.stages[0].task.clone();
        let event = Event::Cut {
            task,
            epoch: barrier.epoch,
            entry: Box::new(entry),
            committable: None,
            bytes: 0,
            timings: CutTimings::default(),
        };
        self.chain.context.tell(event).await;
        self.chain.control(0, Element::Barrier(barrier)).await?;
        self.chain.begin_segment(0);
        Ok(())
    }

    async fn tell_ended(&mut self) {
        let task = self.chain.stages[0].task.clone();
        self.chain.context.tell(Event::SourceEnded(task)).await;
    }
}

fn gave(given: u64, count: u64) -> String {
    format!("its source gave {given} records where it had given {count}")
}

/// From `now` until `at`, both in microseconds since the Unix epoch; at least a millisecond, so that nobody spins.
pub(super) fn micros_until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::from_micros(at.saturating_sub(now).max(1000).cast_unsigned())
}
