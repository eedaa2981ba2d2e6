//! The workloads W1, W2 and W3, end to end: the generator, an operator, and a sink that drops, in one process each. And W4, which is about
//! checkpoints: see `w4.rs`.
//!
//! Each is run with its operator as a guest, as the same code natively inside the same runtime, and with an operator that hands
//! batches on (the runtime's own cost). What is compared is CPU time a record, user and system, over all threads: wall-clock rates
//! move with the neighbours. Every run is a process of its own, and the three kinds take turns, so that a busy moment of the machine
//! hits all of them. What comes out is counted and checked.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

use clap::{Parser, ValueEnum};
use serde::Serialize;
use weir::clock::Clock;
use weir::model::NodeName;
use weir_bench_map::Map;
use weir_benches::upgrade;
use weir_benches::w4::{self, Phase, Setting};
use weir_benches::{Measured, Pass, guest, native, run};
use weir_count::Count;
use weir_window::Window;

/// Keys of the operator that is upgraded: 100 MB of state.
const UPGRADE_KEYS: u64 = 1_000_000;

/// Run W1, W2 and W3 and compare guests with native code; with `--w4`, measure checkpoints of a large state
#[derive(Debug, Parser)]
struct Args {
    /// Records of each run
    #[arg(long, default_value_t = 10_000_000)]
    records: u64,
    /// Runs of each kind; medians are shown
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Only these workloads
    #[arg(long, value_enum)]
    only: Vec<Workload>,
    /// Only W4: checkpoints of 10,000,000 keys with 100 bytes each
    #[arg(long)]
    w4: bool,
    /// Only hot upgrades under load: of an operator with 1,000,000 keys of 100 bytes each
    #[arg(long)]
    upgrade: bool,
    /// How many of them
    #[arg(long, default_value_t = 40)]
    upgrades: usize,
    /// Of W4
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    /// One phase of W4, in this process
    #[arg(long, hide = true, value_enum, requires = "folder")]
    phase: Option<Phase>,
    /// Where W4 is done: on the disk that is to be measured. A temporary folder if not given
    #[arg(long)]
    folder: Option<std::path::PathBuf>,
    #[arg(long, hide = true, default_value_t = 1)]
    parallelism: u32,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    /// One run, in this process
    #[arg(long, hide = true, value_enum, requires = "kind")]
    one: Option<Workload>,
    #[arg(long, hide = true, value_enum)]
    kind: Option<Kind>,
    /// Keep the components in this folder, to run one with `--one WORKLOAD --kind KIND --components FOLDER` under a profiler
    #[arg(long)]
    components: Option<std::path::PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Workload {
    /// Stateless: value x 3 + 1, odd ones kept
    W1,
    /// W1 with an exchange before the operator
    W1s,
    /// Running count by key, uniform
    W2Uniform,
    /// Running count by key, Zipf
    W2Zipf,
    /// W2 uniform with a checkpoint each second
    W2UniformCheckpoints,
    /// W2 Zipf with a checkpoint each second
    W2ZipfCheckpoints,
    /// Tumbling windows of 10 s, count by key, uniform
    W3Uniform,
    /// W3 with Zipf
    W3Zipf,
    /// W3 uniform with a checkpoint each second
    W3UniformCheckpoints,
    /// W3 Zipf with a checkpoint each second
    W3ZipfCheckpoints,
    /// W2 uniform from a file of JSON lines to files of JSON lines, of a fifth of the records
    W2Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// The operator as a component
    Guest,
    /// The same code natively
    Native,
    /// An operator that hands batches on
    Pass,
}

const KINDS: [Kind; 3] = [Kind::Guest, Kind::Native, Kind::Pass];

impl Workload {
    fn is_zipf(self) -> bool {
        matches!(self, Self::W2Zipf | Self::W2ZipfCheckpoints | Self::W3Zipf | Self::W3ZipfCheckpoints)
    }

    fn has_checkpoints(self) -> bool {
        use Workload::{W2UniformCheckpoints, W2ZipfCheckpoints, W3UniformCheckpoints, W3ZipfCheckpoints};
        matches!(self, W2UniformCheckpoints | W2ZipfCheckpoints | W3UniformCheckpoints | W3ZipfCheckpoints)
    }

    fn is_keyed(self) -> bool {
        !matches!(self, Self::W1 | Self::W1s)
    }

    /// Of the operator.
    fn config(self) -> &'static str {
        match self {
            Self::W1 | Self::W1s | Self::W2Json => "{}",
            Self::W2Uniform | Self::W2Zipf | Self::W2UniformCheckpoints | Self::W2ZipfCheckpoints => {
                r#"{"format":"binary"}"#
            }
            _ => r#"{"size":"10s","format":"binary"}"#,
        }
    }

    /// How many records come out of 10,000,000. Those of W1 and W3 were found by a separate program; see `connector/generator.rs`.
    fn expected(self, records: u64) -> Option<u64> {
        match self {
            _ if records != 10_000_000 => None,
            Self::W2Json => Some(self.scaled(records)),
            Self::W1 | Self::W1s => Some(4_998_763),
            Self::W3Uniform | Self::W3UniformCheckpoints => Some(6_320_294),
            Self::W3Zipf | Self::W3ZipfCheckpoints => Some(2_231_505),
            _ => Some(records),
        }
    }

    /// A fifth where each record takes five times as long.
    fn scaled(self, records: u64) -> u64 {
        if self == Self::W2Json { records / 5 } else { records }
    }

    fn pipeline(self, records: u64) -> String {
        if self == Self::W2Json {
            return JSON_PIPELINE.to_owned();
        }
        let distribution = if self.is_zipf() { "zipf" } else { "uniform" };
        let interval = if self.has_checkpoints() { "1s" } else { "1h" };
        let inputs = match self {
            Self::W1 => r#"["made"]"#,
            // At parallelism 1 nothing but this makes weir put a channel between two nodes.
            Self::W1s => r#"[{ from = "made", exchange = "rebalance" }]"#,
            _ => r#"[{ from = "made", exchange = "keyed" }]"#,
        };
        format!(
            r#"
name = "bench"

[checkpoint]
interval = "{interval}"

[source.made]
connector = "generator"
records = {records}
keys = 1_000_000
distribution = "{distribution}"
value_bytes = 84

[operator.work]
plugin = "bench"
inputs = {inputs}

[sink.dropped]
connector = "blackhole"
inputs = ["work"]
"#
        )
    }
}

/// Its input is made by [`write_json`].
const JSON_PIPELINE: &str = r#"
name = "bench"

[checkpoint]
interval = "1h"

[source.made]
connector = "file"
path = "in.jsonl"
format = "json"

[operator.work]
plugin = "bench"
inputs = [{ from = "made", key = "/key" }]

[sink.kept]
connector = "file"
inputs = ["work"]
path = "out"
format = "json"
"#;

/// The records of W2 as JSON lines of about 100 bytes.
fn write_json(folder: &Path, records: u64) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join("in.jsonl"))?);
    for i in 0..records {
        let hash = splitmix64(i);
        let (time, key, value) = (i * 10, hash % 1_000_000, hash & 0xffff);
        writeln!(file, r#"{{"time":{time},"key":"{key}","value":{value},"text":"{:040x}"}}"#, hash >> 16)?;
    }
    file.flush()
}

fn splitmix64(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn main() -> ExitCode {
    let clock = Clock::system();
    let args = Args::parse();
    if let (Some(phase), Some(folder), Some(components)) = (args.phase, &args.folder, &args.components) {
        let component = components.join("state.wasm");
        let (folder, keys, parallelism) = (folder.clone(), args.keys, args.parallelism);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let figures = runtime.block_on(w4::run(phase, &Setting { folder, component, keys, parallelism, clock }));
        println!("{}", serde_json::to_string(&figures).expect("numbers"));
        return ExitCode::SUCCESS;
    }
    if args.w4 {
        measure_w4(&args);
        return ExitCode::SUCCESS;
    }
    if args.upgrade {
        measure_upgrades(&args);
        return ExitCode::SUCCESS;
    }
    if let (Some(workload), Some(kind)) = (args.one, args.kind) {
        let components = args.components.expect("the parent names the folder of the components");
        let measured = one(workload, kind, workload.scaled(args.records), &components);
        println!("{}", serde_json::to_string(&measured).expect("numbers"));
        return ExitCode::SUCCESS;
    }
    all(&args);
    ExitCode::SUCCESS
}

/// One run, in this process.
fn one(workload: Workload, kind: Kind, records: u64, components: &Path) -> Measured {
    let folder = tempfile::tempdir().expect("a folder");
    if workload == Workload::W2Json {
        write_json(folder.path(), records).expect("the input can be written");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let config = workload.config();
        let name = match workload {
            Workload::W1 | Workload::W1s => "map",
            _ if config.contains("size") => "window",
            _ => "count",
        };
        let code = match (kind, name) {
            (Kind::Guest, _) => {
                let component = std::fs::read(components.join(format!("{name}.wasm"))).expect("the component is there");
                guest(&component, config).await
            }
            (Kind::Native, "map") => native::<Map>(config),
            (Kind::Native, "count") => native::<Count>(config),
            (Kind::Native, _) => native::<Window>(config),
            (Kind::Pass, _) => Pass::code(workload.is_keyed()),
        };
        let code = BTreeMap::from([(NodeName::new("work"), code)]);
        run(&workload.pipeline(records), folder.path(), code).await
    })
}

/// What all runs of one workload come to: medians.
#[derive(Debug, Serialize)]
struct Summary {
    workload: Workload,
    records: u64,
    guest_cpu_micros_per_record: f64,
    native_cpu_micros_per_record: f64,
    pass_cpu_micros_per_record: f64,
    /// Native / guest, all in all: 1 is as fast as native code.
    ratio_end_to_end: f64,
    /// The same with the runtime's own cost subtracted from both.
    ratio_operator: f64,
    guest_records_per_second: f64,
    guest_peak_bytes: u64,
    checkpoints: u64,
    checkpoint_millis_mean: f64,
    checkpoint_millis_max: f64,
    state_bytes: u64,
}

fn all(args: &Args) {
    let temporary = tempfile::tempdir().expect("a folder");
    let components = args.components.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(components).expect("the folder for the components");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the root of the repository");
    for (name, crate_dir) in [("map", "benches/guests/map"), ("count", "plugins/count"), ("window", "plugins/window")] {
        eprintln!("building {crate_dir}");
        let component = weir_benches::component(&root.join(crate_dir));
        std::fs::write(components.join(format!("{name}.wasm")), component).expect("the component is written");
    }
    let workloads: Vec<Workload> =
        if args.only.is_empty() { Workload::value_variants().to_vec() } else { args.only.clone() };
    let mut summaries = Vec::new();
    for workload in workloads {
        let mut measured: BTreeMap<Kind, Vec<Measured>> = BTreeMap::new();
        for round in 0..args.runs {
            for kind in KINDS {
                let one = child(args, workload, kind, components);
                if let (Some(expected), true) = (workload.expected(args.records), kind != Kind::Pass) {
                    assert_eq!(one.output, expected, "{workload:?} as {kind:?} let out another number of records");
                }
                eprintln!("{workload:?} {kind:?} {round}: {:.3} µs a record", one.cpu_per_record());
                measured.entry(kind).or_default().push(one);
            }
        }
        summaries.push(summarise(workload, workload.scaled(args.records), &measured));
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&summaries).expect("numbers"));
    } else {
        table(&summaries);
    }
}

fn measure_w4(args: &Args) {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = args.folder.as_deref().unwrap_or(temporary.path());
    let components = args.components.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(components).expect("the folder for the components");
    let component = weir_benches::component(&weir_benches::root().join("benches/guests/state"));
    std::fs::write(components.join("state.wasm"), component).expect("the component is written");
    let summary = w4::measure(folder, args.keys, |phase, folder, parallelism| {
        let name = phase.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let output = Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["--phase", &name, "--keys", &args.keys.to_string(), "--parallelism", &parallelism.to_string()])
            .arg("--folder")
            .arg(folder)
            .arg("--components")
            .arg(components)
            .output()
            .expect("this program can be started");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("numbers")
    });
    if args.json {
        println!("{}", serde_json::to_string_pretty(&summary).expect("numbers"));
    } else {
        summary.print();
    }
}

fn measure_upgrades(args: &Args) {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = args.folder.as_deref().unwrap_or(temporary.path());
    let component = weir_benches::component(&weir_benches::root().join("benches/guests/state"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let summaries = runtime.block_on(upgrade::measure(folder, &component, UPGRADE_KEYS, args.upgrades));
    if args.json {
        println!("{}", serde_json::to_string_pretty(&summaries).expect("numbers"));
    } else {
        upgrade::print(&summaries);
    }
}

fn child(args: &Args, workload: Workload, kind: Kind, components: &Path) -> Measured {
    let name = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
        value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    };
    let output = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--one", &name(&|| workload.to_possible_value()), "--kind", &name(&|| kind.to_possible_value())])
        .args(["--records", &args.records.to_string()])
        .arg("--components")
        .arg(components)
        .output()
        .expect("this program can be started");
    assert!(output.status.success(), "{workload:?} as {kind:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("numbers")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn summarise(workload: Workload, records: u64, measured: &BTreeMap<Kind, Vec<Measured>>) -> Summary {
    let of = |kind: Kind, value: &dyn Fn(&Measured) -> f64| median(measured[&kind].iter().map(value).collect());
    let cpu = |kind| of(kind, &Measured::cpu_per_record);
    let (guest, native, pass) = (cpu(Kind::Guest), cpu(Kind::Native), cpu(Kind::Pass));
    let guests = |value: &dyn Fn(&Measured) -> f64| of(Kind::Guest, value);
    Summary {
        workload,
        records,
        guest_cpu_micros_per_record: guest,
        native_cpu_micros_per_record: native,
        pass_cpu_micros_per_record: pass,
        ratio_end_to_end: native / guest,
        ratio_operator: (native - pass).max(0.0) / (guest - pass),
        guest_records_per_second: guests(&|m| m.records as f64 / m.wall_micros as f64 * 1e6),
        guest_peak_bytes: guests(&|m| m.peak_bytes as f64) as u64,
        checkpoints: guests(&|m| m.checkpoints as f64) as u64,
        checkpoint_millis_mean: guests(&|m| m.checkpoint_micros_sum as f64 / m.checkpoints.max(1) as f64 / 1e3),
        checkpoint_millis_max: guests(&|m| m.checkpoint_micros_max as f64 / 1e3),
        state_bytes: guests(&|m| m.state_bytes as f64) as u64,
    }
}

fn table(summaries: &[Summary]) {
    println!(
        "| workload | guest µs | native µs | pass µs | native ÷ guest, end to end | operator alone | records/s | peak MiB | checkpoints | mean / max ms | state MiB |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for s in summaries {
        let name = s.workload.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        println!(
            "| {name} | {:.3} | {:.3} | {:.3} | {:.2} | {:.2} | {:.2} M | {:.0} | {} | {:.0} / {:.0} | {:.1} |",
            s.guest_cpu_micros_per_record,
            s.native_cpu_micros_per_record,
            s.pass_cpu_micros_per_record,
            s.ratio_end_to_end,
            s.ratio_operator,
            s.guest_records_per_second / 1e6,
            s.guest_peak_bytes as f64 / 1_048_576.0,
            s.checkpoints,
            s.checkpoint_millis_mean,
            s.checkpoint_millis_max,
            s.state_bytes as f64 / 1_048_576.0,
        );
    }
}
