//! What a user asks for: a pipeline file, checked and with every default filled in.
//!
//! These are plain values. `plan/parse.rs` makes them from TOML and reports every error of a file at once, each at
//! its line; nothing here reads a file or knows what a plugin exports.

use std::path::PathBuf;
use std::time::Duration;

use crate::model::{BatchLimit, NodeName, name_fault};
use crate::pointer::Pointer;
use crate::storage::StoreOptions;

use super::diagnostic::SourceText;

/// Where something stands in the pipeline file: byte offsets.
pub type Span = std::ops::Range<usize>;

/// A whole pipeline.
#[derive(Clone, Debug)]
pub struct PipelineSpec {
    /// The file, for messages that point into it.
    pub text: SourceText,
    /// The name of the job.
    pub name: String,
    /// The folder of the pipeline file: relative paths start here.
    pub dir: PathBuf,
    /// How many key groups the job has.
    pub key_groups: u32,
    /// When and where to checkpoint.
    pub checkpoint: CheckpointSpec,
    /// What to do after a failure.
    pub restart: RestartSpec,
    /// When a batch is full.
    pub batch: BatchSpec,
    /// How much waits between two tasks.
    pub channel: ChannelSpec,
    /// In the order of the file.
    pub sources: Vec<SourceSpec>,
    /// In the order of the file.
    pub operators: Vec<OperatorSpec>,
    /// In the order of the file.
    pub sinks: Vec<SinkSpec>,
}

impl PipelineSpec {
    /// The folder of the store, below that of the pipeline file if it is relative; none if the store is no folder.
    pub fn store_dir(&self) -> Option<PathBuf> {
        self.checkpoint.store.strip_prefix("file://").map(|path| self.dir.join(path))
    }
}

/// `[checkpoint]`.
#[derive(Clone, Debug)]
pub struct CheckpointSpec {
    /// URL of the store; `file://./x` is relative to the pipeline file. Default `file://./.weir`.
    pub store: String,
    /// How the store is spoken to; no secrets. Default nothing.
    pub store_options: StoreOptions,
    /// From the start of one attempt to the start of the next. Default 1 s, at least 10 ms.
    pub interval: Duration,
    /// When an attempt is given up. Default 1 min.
    pub timeout: Duration,
    /// From the end of one attempt to the start of the next. Default 0.
    pub min_pause: Duration,
    /// How many attempts may fail one after the other before the job fails. Default 3.
    pub tolerated_failures: u32,
    /// How many complete checkpoints are kept. Default 3, at least 1.
    pub retain: u32,
    /// How many bytes of snapshots may be in memory on their way to the store. Default 256 MiB, at least 8 MiB.
    pub upload_memory: u64,
    /// How many objects with state are uploaded at once. Default 4, at least 1.
    pub uploads: u32,
    /// How many bytes of a subtask's state may lie in the manifest itself. Default 32 KiB; 0 is none.
    pub inline: u64,
}

impl Default for CheckpointSpec {
    fn default() -> Self {
        Self {
            store: "file://./.weir".into(),
            store_options: StoreOptions::default(),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(60),
            min_pause: Duration::ZERO,
            tolerated_failures: 3,
            retain: 3,
            upload_memory: 256 << 20,
            uploads: 4,
            inline: 32 << 10,
        }
    }
}

impl CheckpointSpec {
    /// What tells this store from others: its URL, and the server where one is named.
    pub fn place(&self) -> String {
        match self.store_options.get("endpoint") {
            Some(endpoint) => format!("{} at {endpoint}", self.store),
            None => self.store.clone(),
        }
    }
}

/// `[restart]`.
#[derive(Clone, Debug)]
pub struct RestartSpec {
    /// How many restarts in a row, without a complete checkpoint in between. Default 5; 0 never restarts.
    pub attempts: u32,
    /// Before the first restart; doubles with each. Default 100 ms.
    pub delay: Duration,
    /// The longest. Default 30 s.
    pub max_delay: Duration,
}

/// `[batch]`: a batch is handed on when one of these is reached.
#[derive(Clone, Debug)]
pub struct BatchSpec {
    /// Records and bytes. Default 1,024 and 1 MiB.
    pub limit: BatchLimit,
    /// How long a record may wait for others. Default 10 ms.
    pub delay: Duration,
}

/// `[channel]`: what a channel between two tasks holds at most.
#[derive(Clone, Debug)]
pub struct ChannelSpec {
    /// Default 4 MiB.
    pub bytes: usize,
    /// Default 64.
    pub batches: usize,
}

/// What is done about a record that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The job fails. The default.
    Fail,
    /// The record is counted and skipped.
    Skip,
    /// The record goes out through the node's port `rejected`, which some sink must read.
    DeadLetter,
}

/// The unit of an event time that is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds; fractions count.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds, rounded down to microseconds.
    Nanos,
}

/// `[source.NAME]`.
#[derive(Clone, Debug)]
pub struct SourceSpec {
    /// Its name.
    pub name: NodeName,
    /// Where its table is.
    pub span: Span,
    /// How many subtasks. Default 1.
    pub parallelism: u32,
    /// Where records come from.
    pub connector: SourceConnector,
    /// Where the event time of a record is in its JSON value; without it records have no event time (the generator
    /// gives its own).
    pub event_time: Option<Pointer>,
    /// Of an event time that is a number. RFC 3339 text needs none. Default none: a number is an error.
    pub event_time_unit: Option<TimeUnit>,
    /// How far behind the largest event time the watermark stays. Default 0.
    pub out_of_orderness: Duration,
    /// After how long without a record the source counts as idle. Default never.
    pub idle_after: Option<Duration>,
    /// How many records a second it hands out at most, over all subtasks. Default as many as it can.
    pub rate: Option<f64>,
    /// What is done about a malformed record.
    pub on_error: OnError,
}

/// Where records come from.
#[derive(Clone, Debug)]
pub enum SourceConnector {
    /// `connector = "file"`.
    File(FileSourceSpec),
    /// `connector = "generator"`.
    Generator(GeneratorSpec),
}

/// Files, one after the other in the order of their names; with several subtasks, file `i` goes to subtask
/// `i % parallelism`.
#[derive(Clone, Debug)]
pub struct FileSourceSpec {
    /// A path or a glob, absolute or below the folder of the pipeline file.
    pub path: String,
    /// What stands in it.
    pub format: SourceFormat,
    /// How it is packed.
    pub compression: Compression,
    /// Wait for more at the end, and for new files; never ends.
    pub follow: bool,
    /// Nothing but what is below this directory is read, and no link is followed. Not said in a file; default none.
    pub root: Option<PathBuf>,
}

/// What stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceFormat {
    /// A line is a value, as it is.
    Lines,
    /// A line is a JSON value, checked.
    Json,
    /// CSV with a header; a row becomes a JSON object.
    Csv(CsvSpec),
}

/// How CSV becomes JSON.
///
/// A field that is one of `nulls` becomes `null`; one that is a JSON number becomes that number, digit for digit;
/// any other a string. A column in `text` is never a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvSpec {
    /// One byte. Default a comma.
    pub delimiter: u8,
    /// Default `["", "NA"]`.
    pub nulls: Vec<String>,
    /// Columns whose fields stay strings. Default none.
    pub text: Vec<String>,
}

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// By the name: `.gz` is gzip. The default.
    Auto,
    /// Not.
    None,
    /// gzip.
    Gzip,
}

/// A seeded source. Record `i` depends on nothing but the seed and `i`.
#[derive(Clone, Debug)]
pub struct GeneratorSpec {
    /// Default 0.
    pub seed: u64,
    /// How many, over all subtasks; none never ends.
    pub records: Option<u64>,
    /// How many different keys. Default 1,000.
    pub keys: u64,
    /// How keys are spread.
    pub distribution: Distribution,
    /// Bytes of a binary value, at least 8. Default 84.
    pub value_bytes: usize,
    /// What a value is.
    pub format: GeneratorFormat,
    /// Event time between two records, in microseconds. Default 10.
    pub event_time_step: i64,
}

/// How keys are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Each as often as any other.
    Uniform,
    /// Few often and many rarely: `floor((keys + 1)^u) - 1` with `u` uniform in [0, 1).
    Zipf,
    /// One after the other, and then again.
    Sequential,
}

/// What a generated value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeneratorFormat {
    /// A 64-bit little-endian number and filling; the key is a 64-bit little-endian number.
    Binary,
    /// `{"sequence":…,"key":"…","value":…}`; the key is its decimal digits.
    Json,
}

/// How an edge spreads records over the subtasks of its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    /// Subtask `i` to subtask `i`; both nodes have the same parallelism.
    Forward,
    /// By the hash of the key.
    Keyed,
    /// Everything to every subtask.
    Broadcast,
    /// In turn.
    Rebalance,
}

impl ExchangeKind {
    /// As it is written in a pipeline.
    pub fn word(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Keyed => "keyed",
            Self::Broadcast => "broadcast",
            Self::Rebalance => "rebalance",
        }
    }
}

/// One entry of `inputs`.
#[derive(Clone, Debug)]
pub struct InputSpec {
    /// Where it is written.
    pub span: Span,
    /// The node that it reads.
    pub from: NodeName,
    /// The output port of that node, by name. Default its first; `rejected` is what it put aside.
    pub port: Option<String>,
    /// Where `port` is written, or the entry.
    pub port_span: Span,
    /// The input port of this node, by name. Default its first.
    pub to: Option<String>,
    /// Where `to` is written, or the entry.
    pub to_span: Span,
    /// Where the key is in the JSON value of a record; replaces the key that it has.
    pub key: Option<Pointer>,
    /// How records are spread. Default keyed with `key`; otherwise forward between nodes of the same
    /// parallelism and rebalance between others.
    pub exchange: Option<ExchangeKind>,
    /// What is done about a record in which the key cannot be found because it is not JSON: fail or skip.
    pub on_error: OnError,
}

/// `[operator.NAME]`.
#[derive(Clone, Debug)]
pub struct OperatorSpec {
    /// Its name.
    pub name: NodeName,
    /// Where its table is.
    pub span: Span,
    /// Which code it runs.
    pub plugin: PluginRef,
    /// Where `plugin` is written.
    pub plugin_span: Span,
    /// What it reads.
    pub inputs: Vec<InputSpec>,
    /// How many subtasks. Default 1.
    pub parallelism: u32,
    /// Its configuration, a JSON object.
    pub config: serde_json::Value,
    /// Where `config` is written, or its table.
    pub config_span: Span,
    /// What it may use.
    pub limits: LimitsSpec,
    /// Where `limits` is written, or the operator's table.
    pub limits_span: Span,
    /// What is done about records that it rejects.
    pub on_reject: OnError,
    /// What of the world outside it may see.
    pub grants: super::Grants,
}

/// Which code an operator runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginRef {
    /// A file: anything with a slash or ending in `.wasm`.
    Path(PathBuf),
    /// One of the plugins that come with weir, or in a plugin folder.
    Named {
        /// Its name.
        name: String,
        /// Its exact version, if it matters.
        version: Option<String>,
    },
    /// A component in the store, by the blake3 of its bytes in hexadecimal.
    Digest(String),
}

impl PluginRef {
    /// Reads one as it is written in a pipeline.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as a clause that begins with "which" or "whose", and what to do.
    pub fn parse(text: &str) -> Result<Self, (String, String)> {
        if let Some(digits) = text.strip_prefix("blake3:") {
            if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                let help = "`weir plugin inspect FILE` prints the digest in full";
                return Err(("which has not 64 hexadecimal digits".into(), help.into()));
            }
            return Ok(Self::Digest(digits.to_ascii_lowercase()));
        }
        if text.contains('/') || text.ends_with(".wasm") {
            return Ok(Self::Path(text.into()));
        }
        let (name, version) = text.split_once('@').map_or((text, None), |(name, version)| (name, Some(version)));
        if let Some(what) = name_fault(name) {
            let help = "a path has a slash or ends in .wasm: \"./my.wasm\"; a name is made of lower-case letters, digits \
                        and hyphens";
            return Err((format!("whose name {what}"), help.into()));
        }
        if let Some(version) = version
            && semver::Version::parse(version).is_err()
        {
            let help = format!("write all three numbers, as in \"{name}@1.2.3\", or leave the version out");
            return Err(("which has no exact version after the @".into(), help));
        }
        Ok(Self::Named { name: name.into(), version: version.map(str::to_owned) })
    }
}

impl std::fmt::Display for PluginRef {
    /// As it is written in a pipeline, but for a path, which is the one that it was resolved to.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Named { name, version: None } => f.write_str(name),
            Self::Named { name, version: Some(version) } => write!(f, "{name}@{version}"),
            Self::Digest(digest) => write!(f, "blake3:{digest}"),
        }
    }
}

/// `limits = { … }`: what a plugin may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsSpec {
    /// Linear memory of one instance, in bytes. Default 1 GiB, at most 4 GiB.
    pub memory_bytes: u64,
    /// Linear memory in bytes above which an instance is replaced by a fresh one with the same state. Default none; less than
    /// `memory_bytes`.
    pub soft_memory_bytes: Option<u64>,
    /// CPU time of one call. Default 10 s.
    pub cpu: Duration,
    /// Wall-clock time of one call. Default 1 min.
    pub wall: Duration,
    /// What one call may emit, in bytes. Default 64 MiB.
    pub output_bytes: u64,
    /// State of one subtask, in bytes. Default 1 GiB, at most 4 GiB.
    pub state_bytes: u64,
    /// Log lines of one subtask a second. Default 100.
    pub log_lines: u32,
}

/// `[sink.NAME]`.
#[derive(Clone, Debug)]
pub struct SinkSpec {
    /// Its name.
    pub name: NodeName,
    /// Where its table is.
    pub span: Span,
    /// What it reads.
    pub inputs: Vec<InputSpec>,
    /// How many subtasks. Default 1.
    pub parallelism: u32,
    /// Where records go to.
    pub connector: SinkConnector,
}

/// Where records go to.
#[derive(Clone, Debug)]
pub enum SinkConnector {
    /// `connector = "file"`: exactly once.
    File(FileSinkSpec),
    /// `connector = "object"`: exactly once.
    Object(ObjectSinkSpec),
    /// `connector = "stdout"`: at least once.
    Stdout(SinkFormat),
    /// `connector = "blackhole"`: counted and dropped; at least once.
    Blackhole,
}

/// One directory an epoch.
#[derive(Clone, Debug)]
pub struct FileSinkSpec {
    /// The folder, absolute or below that of the pipeline file.
    pub path: PathBuf,
    /// How records are written.
    pub format: SinkFormat,
    /// Nothing but what is below this directory is written, and no link is followed to it. Not said in a file; default none.
    pub root: Option<PathBuf>,
}

/// Objects that commit records name.
#[derive(Clone, Debug)]
pub struct ObjectSinkSpec {
    /// The URL of the place, as it is written: all names of the sink are below it.
    pub url: String,
    /// How its store is spoken to; no secrets. Default nothing.
    pub options: StoreOptions,
    /// How records are written.
    pub format: SinkFormat,
}

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkFormat {
    /// The value and a newline.
    Lines,
    /// The value, which must be JSON, on a line of its own.
    Json,
    /// The members of the value, which must be a flat JSON object, under a header taken from the first record of a file.
    Csv,
}

impl Default for LimitsSpec {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            soft_memory_bytes: None,
            cpu: Duration::from_secs(10),
            wall: Duration::from_secs(60),
            output_bytes: 64 << 20,
            state_bytes: 1 << 30,
            log_lines: 100,
        }
    }
}
