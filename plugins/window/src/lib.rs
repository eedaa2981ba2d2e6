//! Aggregates records by key in tumbling windows of event time.
//!
//! In: keyed records. Out, when the watermark passes the end of a window: one record for each key in it, ordered by key; on
//! a second port, records that came after that. A record without a key or an event time is rejected, and so is one
//! whose field is neither a number nor `null`.
//!
//! A window holds event times from its start up to, not including, its end; windows are aligned to 1970-01-01T00:00:00Z. It is over when
//! the watermark is at its last microsecond.
//!
//! The sum is that of 64-bit floats in the order of arrival for each key, so the same input gives the same bits.

mod aggregate;
mod config;
mod field;
mod time;

use aggregate::Aggregate;
use config::{Config, Format};
use field::Pointer;
use weir_sdk::state::{Segments, Sorted, State, Windows};
use weir_sdk::{
    BatchBuilder, BatchView, Cut, Descriptor, END_OF_TIME, Failure, Operator, Output, Progress, Record, SnapshotReader,
    SnapshotWriter, StateKind, Stateful, TaskInfo, Timestamp, json, metrics,
};

/// How many records a call emits before it returns `more`.
const RECORDS_A_CALL: usize = 16 << 10;

const OUT: u32 = 0;
const LATE: u32 = 1;

/// Tumbling windows.
#[derive(Debug)]
pub struct Window {
    config: Config,
    /// Counting alone needs a fifth of the memory.
    state: Tumbling,
    segments: Segments,
    out: BatchBuilder,
    firing: Firing,
}

#[derive(Debug)]
enum Tumbling {
    Counts(Windows<u64>),
    Values(Windows<Aggregate>, Pointer),
}

/// Windows that are over, and how much of the first of them has been emitted.
#[derive(Debug, Default)]
struct Firing {
    until: Timestamp,
    sorted: Sorted,
    next: usize,
}

impl Operator for Window {
    fn descriptor() -> Descriptor {
        Descriptor::new("window", env!("CARGO_PKG_VERSION"))
            .summary("Aggregates records by key in tumbling windows of event time.")
            .keyed_input("in", "what is aggregated")
            .keyed_output("out", "one record for each key and window, when the window is over")
            .keyed_output("late", "records whose window was over when they came, as they came")
            .state(StateKind::Keyed, 1)
            .config_schema(config::SCHEMA)
    }

    fn open(config: &str, task: &TaskInfo) -> Result<Self, Failure> {
        let config = Config::parse(json::config(config)?)?;
        let state = match &config.field {
            // With another size, windows that are open would not be what their results say: that is another state.
            None => Tumbling::Counts(Windows::new(&format!("counts/{}", config.size), task)),
            Some(field) => Tumbling::Values(Windows::new(&format!("values/{}", config.size), task), field.clone()),
        };
        Ok(Self { config, state, segments: Segments::new(task), out: BatchBuilder::new(), firing: Firing::default() })
    }

    fn process(&mut self, _: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
        let size = self.config.size;
        self.out.clear();
        match &mut self.state {
            Tumbling::Counts(windows) => {
                if !count_batch(windows, size, batch) {
                    each_record(windows, size, batch, &mut self.out, out, |_| Ok(()), |count, ()| *count += 1);
                }
            }
            Tumbling::Values(windows, pointer) => {
                let number = |record: &Record<'_>| pointer.number(record.value());
                each_record(windows, size, batch, &mut self.out, out, number, Aggregate::add);
            }
        }
        if !self.out.is_empty() {
            metrics::count("late_records", self.out.len() as u64);
            out.emit(LATE, &self.out);
        }
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: Timestamp, out: &mut Output) -> Result<Progress, Failure> {
        // The end of the last window of which nothing can come any more.
        self.firing.until = match watermark {
            END_OF_TIME => END_OF_TIME,
            watermark => {
                time::window_end(watermark.saturating_add(1), self.config.size).saturating_sub(self.config.size)
            }
        };
        self.fire(out)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress, Failure> {
        self.fire(out)
    }
}

impl Window {
    /// Emits windows that are over, first those that end first, until there is enough for one call.
    fn fire(&mut self, out: &mut Output) -> Result<Progress, Failure> {
        let Self { config, state, out: to, firing, .. } = self;
        to.clear();
        let done = match state {
            Tumbling::Counts(windows) => firing.fire(windows, |end, key, count| match config.format {
                Format::Binary => to.push_with(end - 1, Some(key), |to| aggregate::write_count(to, *count)),
                Format::Json => {
                    to.push_with(end - 1, Some(key), |to| config.write_json(to, key, end, *count, None));
                }
            }),
            Tumbling::Values(windows, _) => firing.fire(windows, |end, key, values| match config.format {
                Format::Binary => to.push_with(end - 1, Some(key), |to| values.write_binary(to, config.aggregates)),
                Format::Json => {
                    to.push_with(end - 1, Some(key), |to| config.write_json(to, key, end, values.count, Some(values)));
                }
            }),
        };
        out.emit(OUT, &*to);
        Ok(if done { Progress::Done } else { Progress::More })
    }
}

impl Firing {
    /// Gives `each` the end of a window, and a key with its value. True: all have been given.
    fn fire<V: State>(&mut self, windows: &mut Windows<V>, mut each: impl FnMut(Timestamp, &[u8], &V)) -> bool {
        let mut left = RECORDS_A_CALL;
        while let Some(end) = windows.first().filter(|end| *end <= self.until) {
            if self.next == 0 {
                windows.sorted(end, &mut self.sorted);
            }
            let to = (self.next + left).min(self.sorted.len());
            windows.read(end, &self.sorted, self.next..to, |key, value| each(end, key, value));
            left -= to - self.next;
            if to < self.sorted.len() {
                self.next = to;
                return false;
            }
            self.next = 0;
            windows.remove(end);
        }
        // A window is closed when its end is at or before `until`: when it is smaller than the next possible one.
        windows.close_before(self.until.saturating_add(1));
        true
    }
}

/// The longest key, in bytes: with everything in it escaped it fits a JSON value.
const KEY_BYTES_MAX: usize = 1 << 20;

/// Counts a batch that lies in one open window and whose records all have keys, which is the usual case. False: it is not such a batch.
fn count_batch(windows: &mut Windows<u64>, size: i64, batch: BatchView<'_>) -> bool {
    let times = batch.timestamps();
    let (first, last) = times.iter().fold((i64::MAX, i64::MIN), |(min, max), time| (min.min(*time), max.max(*time)));
    let end = time::window_end(first, size);
    let keys = batch.keys();
    if !keys.is_full()
        || keys.bytes().len() > KEY_BYTES_MAX
        || !time::is_valid(first, size)
        || last >= end
        || !windows.is_open_for_all(end)
    {
        return false;
    }
    windows.update_batch(end, batch, |_, count| *count += 1);
    true
}

/// Goes through a batch record by record: `read` looks into one, or says why it is rejected; `add` adds what was read. Late ones go to `late`.
fn each_record<V: State, T>(
    windows: &mut Windows<V>,
    size: i64,
    batch: BatchView<'_>,
    late: &mut BatchBuilder,
    out: &mut Output,
    read: impl Fn(&Record<'_>) -> Result<T, String>,
    add: impl Fn(&mut V, T),
) {
    for record in batch.records() {
        let (Some(key), Some(time)) = (record.keyed(), record.time()) else {
            let what = if record.key().is_none() { "key" } else { "event time" };
            out.reject(record.index(), &format!("the record has no {what}"));
            continue;
        };
        if record.key().is_some_and(|key| key.len() > KEY_BYTES_MAX) {
            out.reject(record.index(), "the key has more than 1 MiB");
            continue;
        }
        if !time::is_valid(time, size) {
            out.reject(record.index(), "the event time is too far from 1970 for a window");
            continue;
        }
        let end = time::window_end(time, size);
        if windows.is_closed(end, key.hash()) {
            late.push_record(&record);
            continue;
        }
        match read(&record) {
            Ok(found) => add(windows.value(end, key), found),
            Err(reason) => out.reject(record.index(), &reason),
        }
    }
}

impl Stateful for Window {
    fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
        match &mut self.state {
            Tumbling::Counts(windows) => self.segments.snapshot(cut, writer, &mut [windows]),
            Tumbling::Values(windows, _) => self.segments.snapshot(cut, writer, &mut [windows]),
        }
    }

    fn restore(&mut self, _: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
        match &mut self.state {
            Tumbling::Counts(windows) => self.segments.restore(reader, &mut [windows]),
            Tumbling::Values(windows, _) => self.segments.restore(reader, &mut [windows]),
        }
    }
}

weir_sdk::export!(Window);
