//! Native operators for tests: a running count that snapshots in bases and deltas, one that hands on, and a frame for others. Any of
//! them can be hooked: the hook is told of each call before it is made, may wait, and may make it fail.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use weir::flow::OperatorCode;
use weir::model::{
    Batch, Chunk, Descriptor, Epoch, Port, Scope, SegmentKind, SnapshotMode, StateKind, TaskInfo, Timestamp, key_group,
    key_hash,
};
use weir::plugin::{Operator, OperatorError, Output, SnapshotWriter};

type Called = Result<(), OperatorError>;

fn code(
    (inputs, keyed): (&[&str], bool),
    state: StateKind,
    open: impl Fn(TaskInfo) -> Box<dyn Operator> + Send + Sync + 'static,
) -> OperatorCode {
    let port = |name: &str, keyed| Port { name: name.into(), summary: String::new(), keyed };
    let descriptor = Descriptor {
        name: "native".into(),
        version: "0.1.0".into(),
        summary: String::new(),
        inputs: inputs.iter().map(|name| port(name, keyed)).collect(),
        outputs: vec![port("out", keyed)],
        state,
        state_version: 1,
        oldest_state_version: 1,
        config_schema: None,
    };
    let open = move |task| {
        let operator = open(task);
        async move { Ok(operator) }.boxed()
    };
    OperatorCode { descriptor, digest: [0; 32], image: None, open: Arc::new(open) }
}

/// The sequence number in a record's value; `u64::MAX` without one.
pub fn sequence(batch: &Batch, row: usize) -> u64 {
    let value: Value = serde_json::from_slice(batch.values.get(row).unwrap_or_default()).unwrap_or_default();
    value["sequence"].as_u64().unwrap_or(u64::MAX)
}

/// A running count by key: of each record it makes `{"sequence":…,"key":…,"count":…}`.
///
/// Its full snapshots are bases of its key groups, its incremental ones deltas with the keys that changed since the last: a
/// host that loses a delta and does not ask for a base gets wrong counts back.
pub fn count() -> OperatorCode {
    code((&["in"], true), StateKind::Keyed, |task| Box::new(Count::new(&task, 1, "")))
}

/// The same in another version: it writes its state in a format of its own and reads that of version 1 as well, and adds `tag` to what it says.
pub fn count_version(version: u32, tag: &'static str) -> OperatorCode {
    let mut next = code((&["in"], true), StateKind::Keyed, move |task| Box::new(Count::new(&task, version, tag)));
    next.descriptor.version = format!("0.{version}.0");
    next.descriptor.state_version = version;
    next.digest = [version as u8; 32];
    next
}

struct Count {
    groups: u32,
    counts: BTreeMap<String, u64>,
    changed: BTreeSet<String>,
    version: u32,
    tag: &'static str,
}

impl Count {
    fn new(task: &TaskInfo, version: u32, tag: &'static str) -> Self {
        Self { groups: task.key_groups, counts: BTreeMap::new(), changed: BTreeSet::new(), version, tag }
    }
}

#[async_trait]
impl Operator for Count {
    async fn process(&mut self, _: Timestamp, _: u32, batch: &Batch, out: &mut Output) -> Called {
        let mut counted = Batch::default();
        for (row, &time) in batch.timestamps.iter().enumerate() {
            let key = batch.keys.get(row).unwrap_or_default();
            let name = String::from_utf8_lossy(key).into_owned();
            let count = self.counts.entry(name.clone()).or_default();
            *count += 1;
            let sequence = sequence(batch, row);
            let tag = self.tag;
            let value = format!("{{\"sequence\":{sequence},\"key\":{name:?},\"count\":{count}{tag}}}");
            self.changed.insert(name);
            counted.push(time, Some(key), Some(value.as_bytes()));
        }
        out.emitted.push((0, counted));
        Ok(())
    }

    async fn advance(&mut self, _: Timestamp, _: Timestamp, _: &mut Output) -> Called {
        Ok(())
    }

    async fn wake(&mut self, _: Timestamp, _: &mut Output) -> Called {
        Ok(())
    }

    async fn finish(&mut self, _: Timestamp, _: u32, _: &mut Output) -> Called {
        Ok(())
    }

    async fn resume(&mut self, _: Timestamp, _: &mut Output) -> Called {
        Ok(())
    }

    async fn snapshot(
        &mut self,
        _: Epoch,
        mode: SnapshotMode,
        writer: &mut dyn SnapshotWriter,
    ) -> Result<bool, OperatorError> {
        let changed = std::mem::take(&mut self.changed);
        let mut by_group: BTreeMap<u32, Vec<(&String, u64)>> = BTreeMap::new();
        for (key, &count) in &self.counts {
            if mode == SnapshotMode::Full || changed.contains(key) {
                by_group.entry(key_group(key_hash(key.as_bytes()), self.groups)).or_default().push((key, count));
            }
        }
        let kind = if mode == SnapshotMode::Full { SegmentKind::Base } else { SegmentKind::Delta };
        for (group, counts) in by_group {
            let mut data = serde_json::to_vec(&counts).expect("texts and numbers encode");
            if self.version > 1 {
                data.splice(0..0, format!("v{} ", self.version).into_bytes());
            }
            writer.write(Scope::KeyGroup(group), kind, &data);
        }
        Ok(true)
    }

    async fn restore(&mut self, version: u32, chunks: Vec<Chunk>) -> Called {
        for chunk in chunks {
            let prefix = if version > 1 { format!("v{version} ") } else { String::new() };
            let data = chunk.data.strip_prefix(prefix.as_bytes());
            let data = data.ok_or_else(|| OperatorError::Fatal(format!("it is not state of version {version}")))?;
            let counts: Vec<(String, u64)> =
                serde_json::from_slice(data).map_err(|e| OperatorError::Fatal(e.to_string()))?;
            self.counts.extend(counts);
        }
        Ok(())
    }
}

/// A running count as [`count`] makes it, whose state is large: with each key go `weight` bytes that are made of the key and its count. Each key is a chunk of
/// its own, snapshots are written in steps as long as the host says, and later steps write the state of the cut.
///
/// It checks what comes back, and fails where a host asks for less than everything after a snapshot that was not done.
pub fn heavy_count(weight: usize) -> OperatorCode {
    code((&["in"], true), StateKind::Keyed, move |task| {
        let count = Count::new(&task, 1, "");
        Box::new(Heavy { count, weight, open: None })
    })
}

struct Heavy {
    count: Count,
    weight: usize,
    /// The epoch, and what is left to be written of it.
    open: Option<(Epoch, VecDeque<(String, u64)>)>,
}

impl Heavy {
    fn chunk(&self, key: &str, count: u64) -> Vec<u8> {
        let mut chunk = [&count.to_le_bytes(), &[key.len() as u8][..], key.as_bytes()].concat();
        let mut noise = key_hash(&chunk);
        while chunk.len() < self.weight {
            noise = noise.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            chunk.extend_from_slice(&(noise ^ noise >> 31).to_le_bytes());
        }
        chunk
    }
}

#[async_trait]
impl Operator for Heavy {
    async fn process(&mut self, now: Timestamp, port: u32, batch: &Batch, out: &mut Output) -> Called {
        self.count.process(now, port, batch, out).await
    }

    async fn advance(&mut self, _: Timestamp, _: Timestamp, _: &mut Output) -> Called {
        Ok(())
    }

    async fn wake(&mut self, _: Timestamp, _: &mut Output) -> Called {
        Ok(())
    }

    async fn finish(&mut self, _: Timestamp, _: u32, _: &mut Output) -> Called {
        Ok(())
    }

    async fn resume(&mut self, _: Timestamp, _: &mut Output) -> Called {
        Ok(())
    }

    async fn snapshot(
        &mut self,
        epoch: Epoch,
        mode: SnapshotMode,
        writer: &mut dyn SnapshotWriter,
    ) -> Result<bool, OperatorError> {
        let is_full = mode == SnapshotMode::Full;
        let mut left = match self.open.take() {
            Some((open, left)) if open == epoch => left,
            Some((open, _)) if !is_full => {
                return Err(OperatorError::Fatal(format!("snapshot {open} was given up, and {epoch} is not full")));
            }
            _ => {
                let changed = std::mem::take(&mut self.count.changed);
                let counts = self.count.counts.iter().filter(|(key, _)| is_full || changed.contains(*key));
                counts.map(|(key, count)| (key.clone(), *count)).collect()
            }
        };
        let kind = if is_full { SegmentKind::Base } else { SegmentKind::Delta };
        while let Some((key, count)) = left.pop_front() {
            let group = key_group(key_hash(key.as_bytes()), self.count.groups);
            if !writer.write(Scope::KeyGroup(group), kind, &self.chunk(&key, count)) && !left.is_empty() {
                self.open = Some((epoch, left));
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn restore(&mut self, _: u32, chunks: Vec<Chunk>) -> Called {
        for chunk in chunks {
            let damaged = || OperatorError::Fatal("a chunk is not what was written".into());
            let (count, rest) = chunk.data.split_first_chunk::<8>().ok_or_else(damaged)?;
            let count = u64::from_le_bytes(*count);
            let (length, rest) = rest.split_first().ok_or_else(damaged)?;
            let key = String::from_utf8_lossy(&rest[..usize::from(*length)]).into_owned();
            if self.chunk(&key, count) != chunk.data {
                return Err(damaged());
            }
            self.count.counts.insert(key, count);
        }
        Ok(())
    }
}

/// An operator of a test's own. Its state is one piece of bytes.
#[async_trait]
pub trait Script: Send + 'static {
    /// Takes a batch.
    async fn process(&mut self, now: Timestamp, port: u32, batch: &Batch, out: &mut Output) -> Called;

    /// Event time has moved.
    async fn advance(&mut self, _watermark: Timestamp, _out: &mut Output) -> Called {
        Ok(())
    }

    /// It asked to be woken.
    async fn wake(&mut self, _now: Timestamp, _out: &mut Output) -> Called {
        Ok(())
    }

    /// A port has ended.
    async fn finish(&mut self, _port: u32, _out: &mut Output) -> Called {
        Ok(())
    }

    /// It said `more`.
    async fn resume(&mut self, _out: &mut Output) -> Called {
        Ok(())
    }

    /// Its state, at a cut.
    fn save(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes its state back.
    fn load(&mut self, _state: &[u8]) {}
}

/// The code of a node that runs a script with these input ports, an instance for each subtask.
pub fn script<S: Script>(inputs: &[&str], make: impl Fn(TaskInfo) -> S + Send + Sync + 'static) -> OperatorCode {
    code((inputs, false), StateKind::Whole, move |task| Box::new(Scripted(make(task))))
}

struct Scripted<S>(S);

#[async_trait]
impl<S: Script> Operator for Scripted<S> {
    async fn process(&mut self, now: Timestamp, port: u32, batch: &Batch, out: &mut Output) -> Called {
        self.0.process(now, port, batch, out).await
    }

    async fn advance(&mut self, _: Timestamp, watermark: Timestamp, out: &mut Output) -> Called {
        self.0.advance(watermark, out).await
    }

    async fn wake(&mut self, now: Timestamp, out: &mut Output) -> Called {
        self.0.wake(now, out).await
    }

    async fn finish(&mut self, _: Timestamp, port: u32, out: &mut Output) -> Called {
        self.0.finish(port, out).await
    }

    async fn resume(&mut self, _: Timestamp, out: &mut Output) -> Called {
        self.0.resume(out).await
    }

    async fn snapshot(
        &mut self,
        _: Epoch,
        _: SnapshotMode,
        writer: &mut dyn SnapshotWriter,
    ) -> Result<bool, OperatorError> {
        writer.write(Scope::Subtask, SegmentKind::Base, &self.0.save());
        Ok(true)
    }

    async fn restore(&mut self, _: u32, chunks: Vec<Chunk>) -> Called {
        for chunk in chunks {
            self.0.load(&chunk.data);
        }
        Ok(())
    }
}

/// Hands every batch on.
#[derive(Debug)]
pub struct Pass;

#[async_trait]
impl Script for Pass {
    async fn process(&mut self, _: Timestamp, _: u32, batch: &Batch, out: &mut Output) -> Called {
        out.emitted.push((0, Batch { hashes: Vec::new(), ..batch.clone() }));
        Ok(())
    }
}

/// The code of a node that hands every batch on.
pub fn pass() -> OperatorCode {
    script(&["in"], |_| Pass)
}

/// A call that is about to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// With the sequence numbers of its records.
    Process(Vec<u64>),
    /// With the watermark.
    Advance(Timestamp),
    /// Woken.
    Wake,
    /// With the port.
    Finish(u32),
    /// After `more`.
    Resume,
    /// With the epoch.
    Snapshot(Epoch),
    /// State comes back.
    Restore,
}

/// Is told of a call of a subtask before it is made.
pub type Hook = dyn Fn(u32, Call) -> BoxFuture<'static, Called> + Send + Sync;

/// The same code with a hook that waits for nothing.
pub fn hooked(code: OperatorCode, hook: impl Fn(u32, Call) -> Called + Send + Sync + 'static) -> OperatorCode {
    hooked_async(code, move |subtask, call| std::future::ready(hook(subtask, call)).boxed())
}

/// The same code with a hook.
pub fn hooked_async(
    code: OperatorCode,
    hook: impl Fn(u32, Call) -> BoxFuture<'static, Called> + Send + Sync + 'static,
) -> OperatorCode {
    let hook: Arc<Hook> = Arc::new(hook);
    let open = code.open;
    let open = move |task: TaskInfo| {
        let (hook, subtask, opening) = (Arc::clone(&hook), task.subtask, open(task));
        async move { Ok(Box::new(Hooked { operator: opening.await?, hook, subtask }) as Box<dyn Operator>) }.boxed()
    };
    OperatorCode { open: Arc::new(open), ..code }
}

struct Hooked {
    operator: Box<dyn Operator>,
    hook: Arc<Hook>,
    subtask: u32,
}

#[async_trait]
impl Operator for Hooked {
    async fn process(&mut self, now: Timestamp, port: u32, batch: &Batch, out: &mut Output) -> Called {
        let sequences = (0..batch.len()).map(|row| sequence(batch, row)).collect();
        (self.hook)(self.subtask, Call::Process(sequences)).await?;
        self.operator.process(now, port, batch, out).await
    }

    async fn advance(&mut self, now: Timestamp, watermark: Timestamp, out: &mut Output) -> Called {
        (self.hook)(self.subtask, Call::Advance(watermark)).await?;
        self.operator.advance(now, watermark, out).await
    }

    async fn wake(&mut self, now: Timestamp, out: &mut Output) -> Called {
        (self.hook)(self.subtask, Call::Wake).await?;
        self.operator.wake(now, out).await
    }

    async fn finish(&mut self, now: Timestamp, port: u32, out: &mut Output) -> Called {
        (self.hook)(self.subtask, Call::Finish(port)).await?;
        self.operator.finish(now, port, out).await
    }

    async fn resume(&mut self, now: Timestamp, out: &mut Output) -> Called {
        (self.hook)(self.subtask, Call::Resume).await?;
        self.operator.resume(now, out).await
    }

    async fn snapshot(
        &mut self,
        epoch: Epoch,
        mode: SnapshotMode,
        writer: &mut dyn SnapshotWriter,
    ) -> Result<bool, OperatorError> {
        (self.hook)(self.subtask, Call::Snapshot(epoch)).await?;
        self.operator.snapshot(epoch, mode, writer).await
    }

    async fn restore(&mut self, state_version: u32, chunks: Vec<Chunk>) -> Called {
        (self.hook)(self.subtask, Call::Restore).await?;
        self.operator.restore(state_version, chunks).await
    }
}
