//! Sessions by key with a gap of 30 seconds. See `sdk/conformance`.

use weir_sdk::state::{EventTimers, KeyedState, Postcard, Segments};
use weir_sdk::{
    BatchBuilder, BatchView, Cut, Descriptor, Failure, Operator, Output, Progress, SnapshotReader, SnapshotWriter,
    StateKind, Stateful, TaskInfo, Timestamp,
};

const GAP: i64 = 30_000_000;

/// From when to when, and how many records.
type Session = (Timestamp, Timestamp, u64);

struct Visits {
    /// The open sessions of each key, in the order of time.
    sessions: KeyedState<Postcard<Vec<Session>>>,
    /// The end of each open session.
    ends: EventTimers,
    segments: Segments,
    out: BatchBuilder,
}

impl Operator for Visits {
    fn descriptor() -> Descriptor {
        Descriptor::new("visits", env!("CARGO_PKG_VERSION"))
            .summary("Sessions by key with a gap of 30 seconds.")
            .keyed_input("in", "what visitors do")
            .keyed_output("out", "START END COUNT KEY")
            .state(StateKind::Keyed, 1)
    }

    fn open(_config: &str, task: &TaskInfo) -> Result<Self, Failure> {
        Ok(Self {
            sessions: KeyedState::new("sessions", task),
            ends: EventTimers::new("ends", task),
            segments: Segments::new(task),
            out: BatchBuilder::new(),
        })
    }

    fn process(&mut self, _port: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
        for record in batch.records() {
            let Some(key) = record.keyed() else {
                out.reject(record.index(), "no key");
                continue;
            };
            let Some(time) = record.time() else {
                out.reject(record.index(), "no time");
                continue;
            };
            let Postcard(sessions) = self.sessions.value(key);
            let (mut start, mut end, mut count) = (time, time, 1);
            sessions.retain(|&(first, last, records)| {
                let is_near = first.saturating_sub(time) <= GAP && time.saturating_sub(last) <= GAP;
                if is_near {
                    self.ends.cancel(last, key);
                    (start, end, count) = (start.min(first), end.max(last), count + records);
                }
                !is_near
            });
            let place = sessions.partition_point(|session| session.0 < start);
            sessions.insert(place, (start, end, count));
            self.ends.set(end, key);
        }
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: Timestamp, out: &mut Output) -> Result<Progress, Failure> {
        self.out.clear();
        // At the end of time all end.
        let due = if watermark == Timestamp::MAX { watermark } else { watermark.saturating_sub(GAP) };
        for due in self.ends.due(due) {
            let Postcard(sessions) = self.sessions.value(&*due.key);
            let Some(place) = sessions.iter().position(|session| session.1 == due.time) else { continue };
            let (start, end, count) = sessions.remove(place);
            if sessions.is_empty() {
                self.sessions.remove(&*due.key);
            }
            let mut value = format!("{start} {end} {count} ").into_bytes();
            value.extend_from_slice(&due.key);
            self.out.push(end, Some(&due.key), Some(&value));
        }
        out.emit(0, &self.out);
        Ok(Progress::Done)
    }
}

impl Stateful for Visits {
    fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
        self.segments.snapshot(cut, writer, &mut [&mut self.sessions, &mut self.ends])
    }

    fn restore(&mut self, _state_version: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
        self.segments.restore(reader, &mut [&mut self.sessions, &mut self.ends])
    }
}

weir_sdk::export!(Visits);
