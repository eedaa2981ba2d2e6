//! Sums amounts by key, and does one thing wrong when its configuration says so (`{"fault":"forgotten-field"}`): each fault is one that
//! people make. Without a fault it is right, by hand: it writes its own segments, incrementally and in steps.
//!
//! For each record one goes out with the count, the sum and the amount before it. When the watermark passes the newest record of a key, one goes
//! out through the port `settled`.

use std::collections::{BTreeMap, BTreeSet};

use weir_sdk::bindings::output;
use weir_sdk::bindings::types::BatchParam;
use weir_sdk::{
    BatchBuilder, BatchView, Cut, Descriptor, Failure, Operator, Output, Progress, Scope, SegmentKind, SnapshotMode,
    SnapshotReader, SnapshotWriter, StateKind, Stateful, TaskInfo, Timestamp, json, key_group, key_hash, time,
};

/// What is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fault {
    /// Nothing.
    #[default]
    None,
    /// The amount before is not in the snapshot.
    ForgottenField,
    /// Speaks once a batch, not once a record.
    BatchBoundaries,
    /// What is settled goes out in the order of memory addresses.
    AddressOrder,
    /// Says what time it is.
    WallClock,
    /// Takes memory with each record and never gives it back.
    Leak,
    /// The last offset of a batch is one too large, at the seventh record of a key.
    WrongOffset,
    /// All state lies in one key group.
    WrongGroup,
    /// An incremental snapshot has only key groups that got a new key.
    ForgottenChange,
    /// A step of a snapshot writes what is there when it is taken, not what was there at the cut.
    LateStep,
    /// Expects that each record has a value.
    NoTombstone,
    /// State by key is written as the subtask's own.
    OwnState,
    /// What a snapshot has written is gone.
    DrainingSnapshot,
    /// Speaks whenever a watermark comes, also when it has come before.
    EachWatermark,
    /// Reads the first chunk of its state, and no other.
    UnreadChunk,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    fault: Fault,
}

#[derive(serde::Deserialize)]
struct Payment {
    amount: u64,
}

/// The largest key that is kept: an entry has to fit a chunk.
const KEY_BYTES_MAX: usize = 64 << 10;

/// Chunks are closed when they have become so large.
const CHUNK_BYTES: usize = 4 << 10;

#[derive(Clone, Copy, Default)]
struct Entry {
    count: u64,
    sum: u64,
    last: u64,
    /// The newest event time that is not settled.
    unsettled: Option<Timestamp>,
}

struct Wrong {
    fault: Fault,
    task: TaskInfo,
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Keys that are not settled, for who orders them by address.
    places: Vec<Box<[u8]>>,
    changed: BTreeSet<u32>,
    open: Option<Open>,
}

/// A snapshot that is being written.
struct Open {
    epoch: u64,
    groups: Vec<(u32, Vec<Vec<u8>>)>,
}

impl Operator for Wrong {
    fn descriptor() -> Descriptor {
        Descriptor::new("wrong", env!("CARGO_PKG_VERSION"))
            .summary("Sums amounts by key, and does one thing wrong.")
            .keyed_input("in", "payments")
            .keyed_output("out", "one record for each that came in")
            .keyed_output("settled", "one for each key that the watermark has passed")
            .state(StateKind::Keyed, 1)
    }

    fn open(config: &str, task: &TaskInfo) -> Result<Self, Failure> {
        let Config { fault } = json::config(config)?;
        let (entries, places) = (BTreeMap::new(), Vec::new());
        Ok(Self { fault, task: task.clone(), entries, places, changed: BTreeSet::new(), open: None })
    }

    fn process(&mut self, _: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
        let mut said = BatchBuilder::new();
        for record in batch.records() {
            if self.fault == Fault::NoTombstone {
                record.value().expect("every payment has a value");
            }
            let Some(key) = record.key().filter(|key| key.len() <= KEY_BYTES_MAX) else {
                out.reject(record.index(), "no key, or one that is too long to be kept");
                continue;
            };
            let Ok(Payment { amount }) = record.json() else {
                out.reject(record.index(), "not a payment");
                continue;
            };
            if self.fault == Fault::Leak {
                std::mem::forget(std::hint::black_box(vec![0x5a_u8; 2048]));
            }
            let is_new = !self.entries.contains_key(key);
            if is_new || self.fault != Fault::ForgottenChange {
                self.changed.insert(self.group(key));
            }
            let entry = self.entries.entry(key.to_vec()).or_default();
            entry.count += 1;
            entry.sum = entry.sum.wrapping_add(amount);
            let before = std::mem::replace(&mut entry.last, amount);
            if entry.unsettled.is_none() && record.time().is_some() && self.fault == Fault::AddressOrder {
                self.places.push(key.into());
            }
            entry.unsettled = entry.unsettled.max(record.time());
            let Entry { count, sum, .. } = *entry;
            if self.fault == Fault::BatchBoundaries && record.index() as usize + 1 < batch.len() {
                continue;
            }
            let mut value = format!("{{\"count\":{count},\"sum\":{sum},\"before\":{before}");
            if self.fault == Fault::WallClock {
                value.push_str(&format!(",\"at\":{}", time::now()));
            }
            value.push('}');
            if self.fault == Fault::WrongOffset && count == 7 {
                emit_beyond(key, value.as_bytes());
                continue;
            }
            said.push(record.time(), Some(key), Some(value.as_bytes()));
        }
        out.emit(0, &said);
        Ok(Progress::Done)
    }

    fn advance(&mut self, watermark: Timestamp, out: &mut Output) -> Result<Progress, Failure> {
        let mut said = BatchBuilder::new();
        if self.fault == Fault::EachWatermark {
            said.push(watermark, Some(b"watermark"), None);
        }
        let is_over = |entry: &Entry| entry.unsettled.is_some_and(|time| time <= watermark);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        if self.fault == Fault::AddressOrder {
            self.places.sort_by_key(|place| place.as_ptr() as usize);
            let entries = &self.entries;
            self.places.retain(|place| {
                let over = entries.get(&**place).is_some_and(is_over);
                if over {
                    keys.push(place.to_vec());
                }
                !over
            });
        } else {
            keys.extend(self.entries.iter().filter(|(_, entry)| is_over(entry)).map(|(key, _)| key.clone()));
        }
        for key in keys {
            self.changed.insert(self.group(&key));
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let time = entry.unsettled.take();
            said.push(time, Some(&key), Some(format!("{{\"sum\":{}}}", entry.sum).as_bytes()));
        }
        out.emit(1, &said);
        Ok(Progress::Done)
    }
}

/// A batch of one record whose value ends one byte behind all values.
fn emit_beyond(key: &[u8], value: &[u8]) {
    let batch = BatchParam {
        timestamps: &[0],
        hashes: &[],
        key_offsets: &[0, key.len() as u32],
        keys: key,
        key_nulls: &[],
        value_offsets: &[0, value.len() as u32 + 1],
        values: value,
        value_nulls: &[],
        header_offsets: &[],
        headers: &[],
    };
    output::emit(0, batch);
}

impl Wrong {
    fn group(&self, key: &[u8]) -> u32 {
        match self.fault {
            Fault::WrongGroup => self.task.first_key_group,
            _ => key_group(key_hash(key), self.task.key_groups),
        }
    }

    /// The chunks of a key group as they are now.
    fn chunks(&self, group: u32) -> Vec<Vec<u8>> {
        let mut chunks = vec![Vec::new()];
        for (key, entry) in self.entries.iter().filter(|(key, _)| self.group(key) == group) {
            if chunks.last().is_some_and(|chunk| chunk.len() > CHUNK_BYTES) {
                chunks.push(Vec::new());
            }
            let Some(chunk) = chunks.last_mut() else { continue };
            chunk.extend_from_slice(&(key.len() as u32).to_le_bytes());
            chunk.extend_from_slice(key);
            let last = if self.fault == Fault::ForgottenField { 0 } else { entry.last };
            for number in [entry.count, entry.sum, last, entry.unsettled.unwrap_or(weir_sdk::NO_TIME) as u64] {
                chunk.extend_from_slice(&number.to_le_bytes());
            }
        }
        chunks
    }

    fn read(&mut self, mut rest: &[u8]) -> Option<()> {
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let (key, mut after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            let mut numbers = [0; 4];
            for number in &mut numbers {
                let (bytes, behind) = after.split_first_chunk::<8>()?;
                *number = u64::from_le_bytes(*bytes);
                after = behind;
            }
            rest = after;
            let [count, sum, last, unsettled] = numbers;
            let unsettled = Some(unsettled as Timestamp).filter(|&time| time != weir_sdk::NO_TIME);
            if unsettled.is_some() && self.fault == Fault::AddressOrder {
                self.places.push(key.into());
            }
            self.entries.insert(key.to_vec(), Entry { count, sum, last, unsettled });
        }
        Some(())
    }
}

impl Stateful for Wrong {
    fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
        if self.open.as_ref().is_none_or(|open| open.epoch != cut.epoch) {
            let own = self.task.first_key_group..self.task.end_key_group;
            let changed = std::mem::take(&mut self.changed);
            // What lies in one segment is written whole or not at all.
            let mode = if self.fault == Fault::OwnState { SnapshotMode::Full } else { cut.mode };
            let groups: Vec<u32> = match mode {
                SnapshotMode::Full => {
                    own.filter(|group| self.entries.keys().any(|key| self.group(key) == *group)).collect()
                }
                SnapshotMode::Incremental => changed.into_iter().collect(),
            };
            let chunks = |group: u32| match self.fault {
                Fault::LateStep => Vec::new(),
                _ => self.chunks(group),
            };
            // From the last on, since it is taken from the end.
            let groups = groups.into_iter().rev().map(|group| (group, chunks(group))).collect();
            self.open = Some(Open { epoch: cut.epoch, groups });
        }
        while let Some((group, mut chunks)) = self.open.as_mut().and_then(|open| open.groups.pop()) {
            if self.fault == Fault::LateStep {
                chunks = self.chunks(group);
            }
            let scope = if self.fault == Fault::OwnState { Scope::Subtask } else { Scope::KeyGroup(group) };
            let mut go_on = true;
            for chunk in &chunks {
                go_on = writer.write(scope, SegmentKind::Base, chunk);
            }
            if self.fault == Fault::DrainingSnapshot {
                self.entries.pop_first();
            }
            if !go_on {
                return Ok(Progress::More);
            }
        }
        self.open = None;
        Ok(Progress::Done)
    }

    fn restore(&mut self, _: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
        for chunk in reader {
            self.read(&chunk.data).ok_or_else(|| Failure::invalid("a chunk is not one of its own"))?;
            if self.fault == Fault::UnreadChunk {
                break;
            }
        }
        Ok(())
    }
}

weir_sdk::export!(Wrong);
