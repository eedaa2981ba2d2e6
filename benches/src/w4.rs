//! W4: a state of 10,000,000 keys with 100 bytes each, in one subtask: what its checkpoints cost, and how soon it is back.
//!
//! Each phase is a process of its own, on a durable store in a local folder:
//!
//! 1. *fill*: every key comes once, then the job is stopped: its last checkpoint is a full one.
//! 2. *encode*: the operator alone writes the same state into nothing; *raw*: as many bytes as the checkpoint put are written to files of 64 MiB and
//!    synced. Neither can be undercut, so the full checkpoint is compared with the larger of the two.
//! 3. *updates*: from that checkpoint, 100,000 updates of random keys a second and a checkpoint each second.
//! 4. *barriers*: the same twice as fast, 240 times, for how long the operator holds a barrier.
//! 5. *recover*: the state of two subtasks, from the start of the process until the first record is through.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use weir::checkpoint::{Start, Store};
use weir::clock::Clock;
use weir::job::{Job, Outcome};
use weir::metrics::JobMetrics;
use weir::model::{Batch, Epoch, NodeName, Scope, SegmentKind, SnapshotMode};
use weir::plan::{LimitsSpec, Plan, parse};
use weir::plugin::{Output, SnapshotWriter};

/// The memory limit of the operator.
pub const MEMORY: &str = "3GiB";
/// How often it is looked whether something has happened.
const LOOK: Duration = Duration::from_micros(500);

/// What one process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Phase {
    /// See the module's text.
    Fill,
    /// See the module's text.
    Encode,
    /// See the module's text.
    Updates,
    /// See the module's text.
    Barriers,
    /// See the module's text.
    Recover,
}

/// What a phase came to. Times are in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Each checkpoint: time, bytes that were put.
    pub checkpoints: Vec<(u64, u64)>,
    /// From the start of the process to the first record that was through.
    pub first_record_micros: u64,
    /// Writing all of the state into nothing.
    pub encode_micros: u64,
    /// The bytes of the state.
    pub state_bytes: u64,
    /// How long the operator held a barrier: how many barriers, and three quantiles.
    pub barriers: u64,
    /// See above.
    pub held_micros: [u64; 3],
    /// Records that were processed in the phase.
    pub records: u64,
    /// The most memory that the process ever had.
    pub peak_bytes: u64,
}

/// What a phase is to be done on.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The folder of the job.
    pub folder: PathBuf,
    /// The component.
    pub component: PathBuf,
    /// How many keys.
    pub keys: u64,
    /// How many subtasks.
    pub parallelism: u32,
    /// Since the process began.
    pub clock: Clock,
}

fn limits() -> LimitsSpec {
    let (cpu, wall) = (Duration::from_secs(60), Duration::from_secs(120));
    LimitsSpec { memory_bytes: 3 << 30, state_bytes: 4 << 30, cpu, wall, ..LimitsSpec::default() }
}

fn pipeline(setting: &Setting, interval: &str, rate: u64) -> String {
    let Setting { keys, parallelism, .. } = setting;
    format!(
        r#"
name = "w4"

[checkpoint]
interval = "{interval}"
timeout = "10m"

[source.fill]
connector = "generator"
records = {keys}
keys = {keys}
distribution = "sequential"
value_bytes = 8

[source.updates]
connector = "generator"
seed = 1
keys = {keys}
value_bytes = 8
rate = {rate}

[operator.work]
plugin = "bench"
inputs = [{{ from = "fill", exchange = "keyed" }}, {{ from = "updates", exchange = "keyed" }}]
parallelism = {parallelism}
limits = {{ memory = "{MEMORY}", state = "4GiB", cpu = "1m", wall = "2m" }}

[sink.dropped]
connector = "blackhole"
inputs = ["work"]
"#
    )
}

/// A job in the background.
struct Running {
    handle: tokio::task::JoinHandle<Result<Outcome, weir::error::Error>>,
    stop: watch::Sender<bool>,
    metrics: Arc<JobMetrics>,
}

impl Running {
    async fn start(setting: &Setting, interval: &str, rate: u64) -> Self {
        let component = std::fs::read(&setting.component).expect("the component is there");
        let code = crate::job::guest_with(&component, "{}", limits()).await;
        let text = pipeline(setting, interval, rate);
        let spec = parse(&text, &setting.folder.join("w4.toml")).unwrap_or_else(|e| panic!("{e}"));
        let code = BTreeMap::from([(NodeName::new("work"), code)]);
        let descriptors = code.iter().map(|(name, code)| (name.clone(), code.descriptor.clone())).collect();
        let plan = Plan::build(&spec, &descriptors).unwrap_or_else(|e| panic!("{e}"));
        let store = Store::open(&spec.checkpoint.store, &setting.folder).expect("a store");
        let metrics = Arc::new(JobMetrics::new(plan.nodes.iter().map(|node| node.name.clone())));
        let clock = Clock::system();
        let job = Job { spec, plan, code, text, store, clock, metrics: Arc::clone(&metrics) };
        let (stop, stopped) = watch::channel(false);
        let handle = tokio::spawn(async move { job.run(Start::Resume, stopped).await });
        Self { handle, stop, metrics }
    }

    async fn until(&mut self, is_so: impl Fn(&JobMetrics) -> bool) {
        while !is_so(&self.metrics) {
            assert!(!self.handle.is_finished(), "the job has ended: {:?}", (&mut self.handle).await);
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        match self.handle.await.expect("the job does not panic") {
            Ok(Outcome::Stopped { .. }) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => panic!("{}", error.report()),
        }
    }
}

fn records(metrics: &JobMetrics, node: &str) -> u64 {
    metrics.node(&NodeName::new(node)).records_in.load(Relaxed)
}

/// Does a phase in this process.
///
/// # Panics
///
/// If it does not go well.
pub async fn run(phase: Phase, setting: &Setting) -> Figures {
    let mut figures = match phase {
        Phase::Fill => fill(setting).await,
        Phase::Encode => encode(setting).await,
        Phase::Updates => checkpoints(setting, "1s", setting.keys / 100, 13).await,
        Phase::Barriers => checkpoints(setting, "500ms", setting.keys / 50, 240).await,
        Phase::Recover => checkpoints(setting, "1h", 1000, 0).await,
    };
    figures.peak_bytes = crate::job::peak_bytes();
    figures
}

async fn fill(setting: &Setting) -> Figures {
    let mut job = Running::start(setting, "1h", 1000).await;
    job.until(|metrics| records(metrics, "fill") >= setting.keys).await;
    // What was read is on its way; the barrier comes after it.
    let metrics = Arc::clone(&job.metrics);
    job.stop().await;
    let checkpoint = (metrics.checkpoint_micros.load(Relaxed), metrics.state_bytes.load(Relaxed));
    Figures { checkpoints: vec![checkpoint], records: records(&metrics, "work"), ..Figures::default() }
}

/// From the checkpoint before, so many checkpoints.
async fn checkpoints(setting: &Setting, interval: &str, rate: u64, count: u64) -> Figures {
    let mut job = Running::start(setting, interval, rate).await;
    job.until(|metrics| records(metrics, "dropped") > 0).await;
    let first_record_micros = micros(setting.clock.elapsed());
    let mut figures = Figures { first_record_micros, ..Figures::default() };
    let mut bytes = 0;
    for number in 1..=count {
        job.until(|metrics| metrics.checkpoints.load(Relaxed) >= number).await;
        let all = job.metrics.state_bytes.load(Relaxed);
        figures.checkpoints.push((job.metrics.checkpoint_micros.load(Relaxed), all - bytes));
        bytes = all;
    }
    let held = &job.metrics.node(&NodeName::new("work")).barrier_held;
    figures.barriers = held.count();
    figures.held_micros = [0.5, 0.99, 1.0].map(|of| micros(held.quantile(of)));
    figures.records = records(&job.metrics, "work");
    job.stop().await;
    figures
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Takes what is written and keeps nothing of it.
#[derive(Default)]
struct Nowhere(u64);

impl SnapshotWriter for Nowhere {
    fn write(&mut self, _: Scope, _: SegmentKind, data: &[u8]) -> bool {
        self.0 += data.len() as u64;
        true
    }
}

async fn encode(setting: &Setting) -> Figures {
    let component = std::fs::read(&setting.component).expect("the component is there");
    let code = crate::job::guest_with(&component, "{}", limits()).await;
    let mut operator = (code.open)(crate::task()).await.expect("the operator opens");
    let (mut batch, mut out) = (Batch::default(), Output::default());
    for first in (0..setting.keys).step_by(1024) {
        batch.clear();
        for key in first..(first + 1024).min(setting.keys) {
            batch.push(0, Some(&key.to_le_bytes()), Some(&[0; 8]));
        }
        batch.hash_keys();
        out.clear();
        operator.process(0, 0, &batch, &mut out).await.expect("the operator takes it");
    }
    let clock = Clock::system();
    let mut written = Nowhere::default();
    while !operator.snapshot(Epoch(1), SnapshotMode::Full, &mut written).await.expect("the operator writes") {}
    Figures { encode_micros: micros(clock.elapsed()), state_bytes: written.0, ..Figures::default() }
}

/// Writes so many bytes into files of 64 MiB in a folder, and syncs each and the folder. In microseconds.
///
/// # Panics
///
/// If they cannot be written.
pub fn raw(folder: &Path, bytes: u64) -> u64 {
    std::fs::create_dir_all(folder).expect("a folder");
    let mut noise = vec![0_u8; 1 << 20];
    let mut state = 1_u64;
    for eight in noise.chunks_exact_mut(8) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        eight.copy_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    let clock = Clock::system();
    let mut left = bytes;
    let mut number = 0;
    while left > 0 {
        let mut file = std::fs::File::create(folder.join(format!("{number}"))).expect("a file");
        let mut room = left.min(64 << 20);
        left -= room;
        while room > 0 {
            let part = room.min(noise.len() as u64);
            file.write_all(&noise[..part as usize]).expect("there is room");
            room -= part;
        }
        file.sync_all().expect("the file is synced");
        number += 1;
    }
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).expect("the folder is synced");
    let took = micros(clock.elapsed());
    std::fs::remove_dir_all(folder).expect("the files go");
    took
}

/// How often the full checkpoint is measured, with its floor.
const FULL_ROUNDS: usize = 5;

/// One full checkpoint, and what it cannot be faster than.
#[derive(Clone, Copy)]
struct Full {
    micros: u64,
    bytes: u64,
    raw_micros: u64,
    encode_micros: u64,
    state_bytes: u64,
    peak_bytes: u64,
}

impl Full {
    /// To the larger of a raw synced write of as many bytes and the encoding alone.
    fn ratio(&self) -> f64 {
        self.micros as f64 / self.raw_micros.max(self.encode_micros) as f64
    }
}

/// What all phases come to.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    keys: u64,
    state_bytes: u64,
    full_millis: f64,
    full_bytes: u64,
    raw_millis: f64,
    encode_millis: f64,
    /// Of the full checkpoint to the larger of the two before, in each round, from the least. The figures before are of the median.
    full_ratios: Vec<f64>,
    /// Of the checkpoints after 1 % of updates: medians, and the largest.
    update_millis: [f64; 2],
    update_bytes: [u64; 2],
    update_share_percent: f64,
    barriers: u64,
    held_millis: [f64; 3],
    barrier_records: u64,
    recover_one_seconds: f64,
    recover_two_seconds: f64,
    recover_two_seconds_per_gib: f64,
    peak_bytes: u64,
}

/// Goes through all phases. `child` does one in a process of its own.
pub fn measure(folder: &Path, keys: u64, child: impl Fn(Phase, &Path, u32) -> Figures) -> Summary {
    let (one, two) = (folder.join("one"), folder.join("two"));
    for folder in [&one, &two] {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    let say =
        |phase: &str, figures: &Figures| eprintln!("W4 {phase}: {}", serde_json::to_string(figures).expect("numbers"));
    // What is compared is measured one right after the other, some times: the machine is not the same from minute to minute.
    let mut fulls: Vec<Full> = (1..=FULL_ROUNDS)
        .map(|round| {
            // What follows goes on from the last.
            let place = if round == FULL_ROUNDS { one.clone() } else { folder.join("spare") };
            std::fs::create_dir_all(&place).expect("a folder");
            let encode = child(Phase::Encode, &place, 1);
            say("encode", &encode);
            let fill = child(Phase::Fill, &place, 1);
            say("fill", &fill);
            let (micros, bytes) = fill.checkpoints[0];
            let raw_micros = raw(&folder.join("raw"), bytes);
            eprintln!("W4 raw: {raw_micros} µs");
            if place != one {
                std::fs::remove_dir_all(&place).expect("the folder goes");
            }
            let (encode_micros, state_bytes, peak_bytes) = (encode.encode_micros, encode.state_bytes, fill.peak_bytes);
            Full { micros, bytes, raw_micros, encode_micros, state_bytes, peak_bytes }
        })
        .collect();
    fulls.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let full_ratios: Vec<f64> = fulls.iter().map(Full::ratio).collect();
    let full = fulls[fulls.len() / 2];
    let updates = child(Phase::Updates, &one, 1);
    say("updates", &updates);
    let barriers = child(Phase::Barriers, &one, 1);
    say("barriers", &barriers);
    say("fill in two", &child(Phase::Fill, &two, 2));
    let recover = child(Phase::Recover, &two, 2);
    say("recover", &recover);
    // The first is of a moment's records only.
    let later = &updates.checkpoints[1..];
    let mut times: Vec<u64> = later.iter().map(|checkpoint| checkpoint.0).collect();
    let mut bytes: Vec<u64> = later.iter().map(|checkpoint| checkpoint.1).collect();
    times.sort_unstable();
    bytes.sort_unstable();
    let millis = |micros: u64| micros as f64 / 1e3;
    let middle_and_last = |all: &[u64]| [all[all.len() / 2], all[all.len() - 1]];
    let update_bytes = middle_and_last(&bytes);
    let gib = full.state_bytes as f64 / f64::from(1 << 30);
    let recover_two_seconds = recover.first_record_micros as f64 / 1e6;
    Summary {
        keys,
        state_bytes: full.state_bytes,
        full_millis: millis(full.micros),
        full_bytes: full.bytes,
        raw_millis: millis(full.raw_micros),
        encode_millis: millis(full.encode_micros),
        full_ratios,
        update_millis: middle_and_last(&times).map(millis),
        update_bytes,
        update_share_percent: update_bytes[1] as f64 / full.bytes as f64 * 100.0,
        barriers: barriers.barriers,
        held_millis: barriers.held_micros.map(millis),
        barrier_records: barriers.records,
        recover_one_seconds: updates.first_record_micros as f64 / 1e6,
        recover_two_seconds,
        recover_two_seconds_per_gib: recover_two_seconds / gib,
        peak_bytes: full.peak_bytes.max(updates.peak_bytes).max(barriers.peak_bytes),
    }
}

impl Summary {
    /// The table for people.
    pub fn print(&self) {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "| W4: {} keys of 100 bytes, {:.0} MiB of state, memory limit {MEMORY} | |",
            self.keys,
            mib(self.state_bytes)
        );
        println!("| --- | --- |");
        println!("| full checkpoint | {:.0} ms, {:.0} MiB |", self.full_millis, mib(self.full_bytes));
        println!("| raw synced write of as many bytes | {:.0} ms |", self.raw_millis);
        println!("| encoding alone | {:.0} ms |", self.encode_millis);
        let ratios: Vec<_> = self.full_ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        println!("| full checkpoint ÷ the larger of the two, of {FULL_ROUNDS} rounds | {} |", ratios.join(", "));
        println!(
            "| checkpoint after 1 % of updates, median / largest | {:.0} / {:.0} ms, {:.1} / {:.1} MiB ({:.2} % of the full) |",
            self.update_millis[0],
            self.update_millis[1],
            mib(self.update_bytes[0]),
            mib(self.update_bytes[1]),
            self.update_share_percent,
        );
        println!(
            "| barrier in to barrier out, {} barriers, {} records between them: median / 99th percentile / longest | {:.1} / {:.1} / {:.1} ms |",
            self.barriers, self.barrier_records, self.held_millis[0], self.held_millis[1], self.held_millis[2],
        );
        println!("| start of the process to first record, 1 subtask | {:.1} s |", self.recover_one_seconds);
        println!(
            "| the same, 2 subtasks | {:.1} s, {:.1} s a GiB |",
            self.recover_two_seconds, self.recover_two_seconds_per_gib
        );
        println!("| most memory of the process | {:.0} MiB |", mib(self.peak_bytes));
    }
}
