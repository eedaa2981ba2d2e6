//! What a plugin may call: output, log, metrics, timers, and the chunks of its state.
//!
//! Each function reads what the guest hands over where it lies in the guest's memory, checks it once, and copies what is kept.
//! Nothing takes effect here: output is gathered in the state of the instance until `instance.rs` has seen the
//! call return ok. What breaks the contract or a limit is an error, which ends the instance.
//!
//! Refuses: any import that is not in `wit/`. What of WASI there is, is in `wasi.rs`.

use std::time::Duration;

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, WasmList, WasmStr};

use super::SnapshotReader;
use super::bindings::{self, log, snapshots};
use super::engine::Place;
use super::lent::Lent;
use super::limits::{Breach, CHUNK_BYTES_MAX, ITEM_BYTES, Meter, REASON_BYTES_MAX, TEXT_BYTES_MAX, clean};
use super::log::Log;
use super::metrics::{Change, NAME_BYTES_MAX, Refused, TaskMetrics};
use super::wasi::Outside;
use crate::clock::Clock;
use crate::model::{Batch, Column, SegmentKind, SnapshotMode, Timestamp};

/// An export that is being called, which decides what may be imported meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Describe,
    Open,
    Process,
    Advance,
    Wake,
    Finish,
    Resume,
    Snapshot,
    Restore,
}

impl Call {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Describe => "describe",
            Self::Open => "open",
            Self::Process => "process",
            Self::Advance => "advance",
            Self::Wake => "wake",
            Self::Finish => "finish",
            Self::Resume => "resume",
            Self::Snapshot => "snapshot",
            Self::Restore => "restore",
        }
    }

    /// Whether output and `wake-at` are allowed.
    fn has_output(self) -> bool {
        matches!(self, Self::Process | Self::Advance | Self::Wake | Self::Finish | Self::Resume)
    }
}

/// What one call has said so far.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) emitted: Vec<(u32, Batch)>,
    pub(super) rejected: Vec<Rejected>,
    pub(super) wake_at: Option<Timestamp>,
}

impl Said {
    pub(super) fn clear(&mut self) {
        self.emitted.clear();
        self.rejected.clear();
        self.wake_at = None;
    }
}

/// Records that were put aside.
#[derive(Debug)]
pub(super) enum Rejected {
    /// A row of the batch that is being processed.
    Row(usize, String),
    /// Rows that came earlier.
    Batch(Box<Batch>, String),
}

/// What the data of a store is: everything that belongs to one instance outside its memory.
#[derive(Debug)]
pub(super) struct HostState {
    pub(super) meter: Meter,
    pub(super) call: Call,
    pub(super) now: Timestamp,
    /// The running call looked at the time.
    pub(super) looked: bool,
    pub(super) outside: Outside,
    pub(super) said: Said,
    /// Rows of the batch that is being processed.
    rows: usize,
    /// Which of these were rejected, a bit each; empty while none was.
    rejected_rows: Vec<u64>,
    /// Of each output port, whether every record must have a key.
    output_keyed: Vec<bool>,
    pub(super) groups: std::ops::Range<u32>,
    pub(super) snapshot_mode: SnapshotMode,
    pub(super) writer: Lent,
    /// Where the state comes from that is being restored, and how many chunks of it have been given.
    pub(super) reader: Option<Box<dyn SnapshotReader>>,
    pub(super) chunks_given: u64,
    pub(super) log: Log,
    metrics: TaskMetrics,
    /// How long it has emitted, where somebody wants to know.
    pub(super) stopwatch: Option<Stopwatch>,
    _place: Place,
}

/// The time spent handing over output.
#[derive(Debug)]
pub(super) struct Stopwatch {
    pub(super) clock: Clock,
    pub(super) emitting: Duration,
}

impl HostState {
    pub(super) fn new(meter: Meter, log: Log, metrics: TaskMetrics, place: Place) -> Self {
        Self {
            meter,
            call: Call::Describe,
            now: 0,
            looked: false,
            outside: Outside::default(),
            said: Said::default(),
            rows: 0,
            rejected_rows: Vec::new(),
            output_keyed: Vec::new(),
            groups: 0..0,
            snapshot_mode: SnapshotMode::Full,
            writer: Lent::default(),
            reader: None,
            chunks_given: 0,
            log,
            metrics,
            stopwatch: None,
            _place: place,
        }
    }

    /// What the descriptor and the task say about output and state.
    pub(super) fn bind(&mut self, output_keyed: Vec<bool>, groups: std::ops::Range<u32>) {
        self.output_keyed = output_keyed;
        self.groups = groups;
    }

    /// A call begins: nothing of the last one is left.
    pub(super) fn begin(&mut self, call: Call, now: Option<Timestamp>, rows: usize) {
        self.finish_lines();
        self.call = call;
        // A call that has no time of its own sees the last that was seen: that is the same after a restore.
        self.now = now.unwrap_or(self.outside.cut.seen);
        self.looked = false;
        self.outside.begin(call);
        self.rows = rows;
        self.rejected_rows.clear();
        self.said.clear();
        self.meter.begin_call();
        self.log.last_error = None;
        self.log.printed.clear();
    }

    /// The time of the call, noted as seen.
    pub(super) fn look(&mut self) -> Timestamp {
        self.looked = true;
        self.outside.cut.seen = self.outside.cut.seen.max(self.now);
        self.now
    }

    fn allow(&self, allowed: bool, function: &str, when: &str) -> Result<(), Breach> {
        if allowed {
            return Ok(());
        }
        Err(Breach::Contract(format!("{function} may be called only in {when}, not in {}", self.call.name())))
    }

    pub(super) fn allow_output(&self, function: &str) -> Result<(), Breach> {
        self.allow(self.call.has_output(), function, "process, advance, wake, finish and resume")
    }

    fn emit(&mut self, port: u32, batch: Batch) -> Result<(), Breach> {
        let Some(keyed) = self.output_keyed.get(port as usize) else {
            let ports = self.output_keyed.len();
            return Err(Breach::Contract(format!(
                "output.emit on port {port}, but the plugin has {ports} output ports"
            )));
        };
        batch.validate().map_err(|fault| Breach::Contract(format!("output.emit on port {port}: {fault}")))?;
        let without_key = || batch.keys.offsets.is_empty() || batch.keys.nulls.iter().any(|&bits| bits != 0);
        if batch.is_empty() {
            return Ok(());
        }
        if *keyed && without_key() {
            return Err(Breach::Contract(format!(
                "output.emit on port {port}: the port is declared as keyed, and a record has no key"
            )));
        }
        self.said.emitted.push((port, batch));
        Ok(())
    }

    fn reject(&mut self, index: u32, reason: String) -> Result<(), Breach> {
        let (row, rows) = (index as usize, self.rows);
        if row >= rows {
            return Err(Breach::Contract(format!("output.reject of record {row} in a batch of {rows} records")));
        }
        self.meter.spend_output(reason.len() as u64 + ITEM_BYTES)?;
        if self.rejected_rows.is_empty() {
            self.rejected_rows.resize(rows.div_ceil(64), 0);
        }
        let (word, bit) = (&mut self.rejected_rows[row / 64], 1 << (row % 64));
        if *word & bit != 0 {
            return Err(Breach::Contract(format!("output.reject of record {row} twice")));
        }
        *word |= bit;
        self.said.rejected.push(Rejected::Row(row, reason));
        Ok(())
    }

    fn metric(&mut self, name: &str, change: Change) -> Result<(), Breach> {
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(good) {
            let name = clean(name, NAME_BYTES_MAX);
            return Err(Breach::Contract(format!(
                "a metric is called {name:?}; a name has 1 to {NAME_BYTES_MAX} lower-case letters, digits and underscores"
            )));
        }
        // The series of a subtask are those of the instance that counts.
        if self.log.is_aside {
            return Ok(());
        }
        match self.metrics.change(name, change) {
            Ok(()) => {}
            Err(Refused::TooMany) => self.log.once(&format!("metric {name:?} is dropped: too many series")),
            Err(Refused::Kind) => self.log.once(&format!("metric {name:?} is dropped: it is of another kind already")),
        }
        Ok(())
    }
}

/// A batch as a guest hands it over: where its columns lie, in the order of `wit/types.wit`.
#[derive(ComponentType, Lift)]
#[component(record)]
struct BatchList {
    timestamps: WasmList<i64>,
    #[allow(dead_code, reason = "what a guest says of hashes is not used")]
    hashes: WasmList<u64>,
    #[component(name = "key-offsets")]
    key_offsets: WasmList<u32>,
    keys: WasmList<u8>,
    #[component(name = "key-nulls")]
    key_nulls: WasmList<u8>,
    #[component(name = "value-offsets")]
    value_offsets: WasmList<u32>,
    values: WasmList<u8>,
    #[component(name = "value-nulls")]
    value_nulls: WasmList<u8>,
    #[component(name = "header-offsets")]
    header_offsets: WasmList<u32>,
    headers: WasmList<u8>,
}

type Store<'a> = StoreContextMut<'a, HostState>;

impl BatchList {
    /// What it counts for.
    fn cost(&self) -> u64 {
        let offsets = self.key_offsets.len() + self.value_offsets.len() + self.header_offsets.len();
        let bytes = [&self.keys, &self.key_nulls, &self.values, &self.value_nulls, &self.headers];
        let bytes: usize = bytes.iter().map(|list| list.len()).sum();
        (self.timestamps.len() * 8 + offsets * 4 + bytes) as u64 + ITEM_BYTES
    }

    /// The one copy. Hashes are left out: the host makes its own.
    fn read(&self, store: &Store<'_>) -> Batch {
        let bytes = |list: &WasmList<u8>| list.as_le_slice(store).to_vec();
        let offsets = |list: &WasmList<u32>| from_le(list.as_le_slice(store), u32::from_le);
        Batch {
            timestamps: from_le(self.timestamps.as_le_slice(store), i64::from_le),
            hashes: Vec::new(),
            keys: Column {
                offsets: offsets(&self.key_offsets),
                bytes: bytes(&self.keys),
                nulls: bytes(&self.key_nulls),
            },
            values: Column {
                offsets: offsets(&self.value_offsets),
                bytes: bytes(&self.values),
                nulls: bytes(&self.value_nulls),
            },
            headers: Column { offsets: offsets(&self.header_offsets), bytes: bytes(&self.headers), nulls: Vec::new() },
        }
    }
}

/// A plain copy where the host is little-endian.
fn from_le<T: Copy>(list: &[T], native: impl Fn(T) -> T) -> Vec<T> {
    if cfg!(target_endian = "little") { list.to_vec() } else { list.iter().map(|&n| native(n)).collect() }
}

/// Text of a guest, cut at `max` bytes.
fn text(store: &Store<'_>, list: &WasmStr, function: &str, max: usize) -> Result<String, Breach> {
    match list.to_str(store) {
        Ok(text) => Ok(clean(&text, max)),
        Err(error) => Err(Breach::Contract(format!("{function}: {}", error.root_cause()))),
    }
}

/// Defines every import of the contract.
pub(super) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    let mut output = linker.instance("weir:plugin/output@0.1.0")?;
    output.func_wrap("emit", |mut store: Store<'_>, (port, list): (u32, BatchList)| {
        let state = store.data_mut();
        let began = state.stopwatch.as_ref().map(|watch| watch.clock.elapsed());
        state.allow_output("output.emit")?;
        state.meter.spend_output(list.cost())?;
        let batch = list.read(&store);
        let state = store.data_mut();
        state.emit(port, batch)?;
        if let (Some(watch), Some(began)) = (&mut state.stopwatch, began) {
            watch.emitting += watch.clock.elapsed().saturating_sub(began);
        }
        Ok(())
    })?;
    output.func_wrap("reject", |mut store: Store<'_>, (index, reason): (u32, WasmStr)| {
        let state = store.data();
        state.allow(state.call == Call::Process, "output.reject", "process")?;
        let reason = text(&store, &reason, "output.reject", REASON_BYTES_MAX)?;
        Ok(store.data_mut().reject(index, reason)?)
    })?;
    output.func_wrap("reject-batch", |mut store: Store<'_>, (list, reason): (BatchList, WasmStr)| {
        store.data().allow_output("output.reject-batch")?;
        let reason = text(&store, &reason, "output.reject-batch", REASON_BYTES_MAX)?;
        let each = (reason.len() as u64 + ITEM_BYTES).saturating_mul(list.timestamps.len() as u64);
        store.data_mut().meter.spend_output(list.cost().saturating_add(each))?;
        let batch = list.read(&store);
        batch.validate().map_err(|fault| Breach::Contract(format!("output.reject-batch: {fault}")))?;
        if !batch.is_empty() {
            store.data_mut().said.rejected.push(Rejected::Batch(Box::new(batch), reason));
        }
        Ok(())
    })?;

    let mut timers = linker.instance("weir:plugin/timers@0.1.0")?;
    timers.func_wrap("now", |mut store: Store<'_>, (): ()| Ok((store.data_mut().look(),)))?;
    timers.func_wrap("wake-at", |mut store: Store<'_>, (at,): (Timestamp,)| {
        let state = store.data_mut();
        state.allow_output("timers.wake-at")?;
        state.said.wake_at = Some(state.said.wake_at.map_or(at, |earlier| earlier.min(at)));
        Ok(())
    })?;

    let mut log = linker.instance("weir:plugin/log@0.1.0")?;
    log.func_wrap("write", |mut store: Store<'_>, (level, message): (log::Level, WasmStr)| {
        // What is dropped anyway is not looked at, but for errors, of which the last may be the reason of a trap.
        let admits = store.data_mut().log.admits(level);
        if admits || level == log::Level::Error {
            let message = text(&store, &message, "log.write", TEXT_BYTES_MAX)?;
            let log = &mut store.data_mut().log;
            if admits {
                log.write(level, &message);
            }
            if level == log::Level::Error {
                log.last_error = Some(message);
            }
        }
        Ok(())
    })?;
    log.func_wrap("enabled", |store: Store<'_>, (level,): (log::Level,)| Ok((store.data().log.enabled(level),)))?;

    let mut metrics = linker.instance("weir:plugin/metrics@0.1.0")?;
    metrics.func_wrap("count", |store: Store<'_>, (name, delta): (WasmStr, u64)| {
        metric(store, &name, Change::Count(delta))
    })?;
    metrics.func_wrap("gauge", |store: Store<'_>, (name, value): (WasmStr, f64)| {
        metric(store, &name, Change::Gauge(value))
    })?;
    metrics.func_wrap("observe", |store: Store<'_>, (name, value): (WasmStr, f64)| {
        metric(store, &name, Change::Observe(value))
    })?;

    let mut snapshots = linker.instance("weir:plugin/snapshots@0.1.0")?;
    snapshots.func_wrap("write", |store: Store<'_>, (target, data): (snapshots::Segment, WasmList<u8>)| {
        Ok((write_chunk(store, &target, &data)?,))
    })?;
    snapshots.func_wrap_async("read", |mut store: Store<'_>, (): ()| {
        Box::new(async move {
            let state = store.data_mut();
            state.allow(state.call == Call::Restore, "snapshots.read", "restore")?;
            let chunk = match &mut state.reader {
                Some(reader) => reader.read().await,
                None => None,
            };
            state.chunks_given += u64::from(chunk.is_some());
            Ok((chunk.map(bindings::chunk),))
        })
    })
}

fn metric(mut store: Store<'_>, name: &WasmStr, change: Change) -> wasmtime::Result<()> {
    let name = text(&store, name, "metrics", NAME_BYTES_MAX + 1)?;
    Ok(store.data_mut().metric(&name, change)?)
}

fn write_chunk(mut store: Store<'_>, target: &snapshots::Segment, data: &WasmList<u8>) -> Result<bool, Breach> {
    let state = store.data_mut();
    state.allow(state.call == Call::Snapshot, "snapshots.write", "snapshot")?;
    let (scope, kind) = bindings::segment(target);
    let refuse = |what: String| Err(Breach::Contract(format!("snapshots.write: {what}")));
    if let crate::model::Scope::KeyGroup(group) = scope
        && !state.groups.contains(&group)
    {
        let std::ops::Range { start, end } = state.groups;
        return refuse(format!("key group {group} is not one of this subtask's, {start} up to, not including, {end}"));
    }
    if kind == SegmentKind::Delta && state.snapshot_mode == SnapshotMode::Full {
        return refuse("a delta in a full snapshot, which has to be made of bases".to_owned());
    }
    if data.len() > CHUNK_BYTES_MAX {
        return refuse(format!("a chunk of {} bytes; the most is {CHUNK_BYTES_MAX}", data.len()));
    }
    state.meter.spend_state(data.len() as u64 + ITEM_BYTES)?;
    let mut writer = std::mem::take(&mut state.writer);
    let more = writer.write(scope, kind, data.as_le_slice(&store));
    store.data_mut().writer = writer;
    Ok(more)
}
