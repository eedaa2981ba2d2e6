//! The real process, killed with SIGKILL at moments of chance, until it has finished all the same.
//!
//! A year of flights, one file a month, at parallelism 2, paced so that an undisturbed run takes more than 30 seconds; six
//! sinks, dead letters among them, so that a commit has places to die between. The same counts are made twice: by an operator that writes its
//! state, and by one without snapshot code, of whose memory images are taken. After each kill the test looks at what is on disk and says which
//! row of the crash table (`runtime/src/checkpoint.rs`) it was. At the end the visible output is that of an undisturbed run: as a
//! multiset, and in order for each key. All the while a reader lists the output folders and never sees part of an epoch.
//!
//! Invariants: I1, I2, I4, I5, I10, I11, I13.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::Value;

const KILLS_MIN: usize = 40;
const EPOCHS_MIN: usize = 20;
const SINKS: [&str; 6] = ["counts", "hourly", "images", "mirror", "nameless", "worst"];

/// The rows of the crash table that a kill can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    BeforeTheManifest,
    AfterTheManifestBeforeAnyCommit,
    BetweenCommitsOfSeveralSinks,
    AfterTheCommittedMarker,
}

const ROWS: [Row; 4] = [
    Row::BeforeTheManifest,
    Row::AfterTheManifestBeforeAnyCommit,
    Row::BetweenCommitsOfSeveralSinks,
    Row::AfterTheCommittedMarker,
];

fn pipeline(months: &Path, simple: &Path, rate: &str) -> String {
    format!(
        r#"
name = "year"

[checkpoint]
interval = "150ms"
inline = "0B"

[restart]
attempts = 0

[source.flights]
connector = "file"
path = "{}/2013-*.csv"
format = "csv"
event_time = "/time_hour"
out_of_orderness = "24h"
{rate}

[operator.hours]
plugin = "window"
inputs = [{{ from = "flights", key = "/carrier" }}]
parallelism = 2
config = {{ size = "1h", field = "/dep_delay", key_name = "carrier" }}

[operator.days]
plugin = "window"
inputs = [{{ from = "flights", key = "/origin" }}]
parallelism = 2
config = {{ size = "24h", field = "/arr_delay", key_name = "origin" }}

[operator.count]
plugin = "count"
inputs = [{{ from = "flights", key = "/tailnum" }}]
parallelism = 2
on_reject = "dead-letter"

[operator.simple]
plugin = "{}"
inputs = [{{ from = "flights", key = "/tailnum" }}]
parallelism = 2
on_reject = "skip"

[sink.images]
connector = "file"
inputs = ["simple"]
parallelism = 2
path = "images"
format = "json"

[sink.hourly]
connector = "file"
inputs = ["hours"]
parallelism = 2
path = "hourly"
format = "json"

[sink.worst]
connector = "file"
inputs = ["days"]
path = "worst"
format = "json"

[sink.counts]
connector = "file"
inputs = ["count"]
parallelism = 2
path = "counts"
format = "json"

[sink.nameless]
connector = "file"
inputs = [{{ from = "count", port = "rejected" }}]
path = "nameless"
format = "json"

[sink.mirror]
connector = "file"
inputs = [{{ from = "flights", exchange = "rebalance" }}]
parallelism = 2
path = "mirror"
format = "json"
"#,
        months.display(),
        simple.display()
    )
}

/// The process under test; killed when the test fails.
struct Weir(Child);

impl Weir {
    fn start(folder: &Path) -> Self {
        let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).expect("a log");
        let child = Command::new(weir_tests::weir())
            .args(["run", "--quiet", "pipeline.toml"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Self(child.expect("the binary can be started"))
    }

    /// Its exit code, if it has ended.
    fn ended(&mut self) -> Option<i32> {
        self.0.try_wait().expect("the process can be asked").map(|status| status.code().unwrap_or(-1))
    }

    /// Kills it. False if it had ended by itself.
    fn kill(&mut self) -> bool {
        self.0.kill().expect("the process can be killed");
        self.0.wait().expect("the process can be waited for").code().is_none()
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is on disk: the newest checkpoint in the log, and what became of it.
#[derive(Clone, Debug, Default, PartialEq)]
struct OnDisk {
    manifest: Option<u64>,
    committed: Option<u64>,
    /// The newest epoch of each sink.
    sinks: Vec<Option<u64>>,
}

/// Numbers at the end of file names in a folder.
fn newest(folder: &Path, prefix: &str) -> Option<u64> {
    let names = fs::read_dir(folder).ok()?.filter_map(Result::ok).map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).max()
}

struct Folders {
    root: PathBuf,
}

impl Folders {
    /// The job's folder in the store, once the first run has made it.
    fn job(&self) -> Option<PathBuf> {
        let jobs = self.root.join(".weir/tenants/default/jobs/year");
        let mut ids = fs::read_dir(jobs).ok()?.filter_map(Result::ok).map(|e| e.path());
        ids.find(|path| path.join("log").is_dir())
    }

    /// How many entries the log has: cheap to ask, again and again.
    fn log_entries(&self) -> usize {
        self.job().and_then(|job| fs::read_dir(job.join("log")).ok()).map_or(0, Iterator::count)
    }

    /// The newest epoch for which a task has stored its state.
    fn newest_pack(&self) -> Option<u64> {
        let packs = fs::read_dir(self.job()?.join("packs")).ok()?.filter_map(Result::ok);
        let names = packs.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter_map(|name| name.split('-').nth(1)?.parse().ok()).max()
    }

    fn on_disk(&self, runtime: &tokio::runtime::Runtime) -> OnDisk {
        let store = weir::checkpoint::Store::open("file://./.weir", &self.root).expect("the store opens");
        let history = runtime.block_on(weir::checkpoint::history(&store, "year")).unwrap_or_default();
        let manifest = history.iter().filter_map(|entry| entry.epoch).max().map(|epoch| epoch.0);
        let committed = self.job().and_then(|job| newest(&job.join("committed"), ""));
        let sinks = SINKS.iter().map(|sink| newest(&self.root.join(sink), "epoch-")).collect();
        OnDisk { manifest, committed, sinks }
    }
}

/// Which row of the crash table it is. `begun` says that the next attempt was under way: something was prepared, or packed, that
/// no manifest names.
fn row(disk: &OnDisk, begun: bool) -> Row {
    match disk.manifest {
        Some(tip) if disk.committed != Some(tip) => {
            let published = disk.sinks.iter().filter(|&&epoch| epoch == Some(tip)).count();
            match published {
                0 => Row::AfterTheManifestBeforeAnyCommit,
                _ => Row::BetweenCommitsOfSeveralSinks,
            }
        }
        Some(_) if !begun => Row::AfterTheCommittedMarker,
        _ => Row::BeforeTheManifest,
    }
}

/// The names of files that sinks have staged: `open` is one that is being written, any other was prepared.
fn staged(root: &Path) -> Vec<String> {
    fn walk(folder: &Path, names: &mut Vec<String>) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.filter_map(Result::ok) {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                walk(&entry.path(), names);
            } else {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    let mut names = Vec::new();
    for sink in SINKS {
        let Ok(entries) = fs::read_dir(root.join(sink).join(".weir")) else { continue };
        // Folders of job ids; the file beside them says whom the place belongs to.
        for entry in entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir())) {
            walk(&entry.path(), &mut names);
        }
    }
    names
}

/// When to kill.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// After so much time.
    Any(Duration),
    /// After so many more entries of the log, and a moment more.
    Manifest(usize, Duration),
    /// When this sink has published one more epoch.
    Published(usize),
    /// When one more commit was marked.
    Marked,
}

fn choose(random: &mut Xoshiro256PlusPlus, missing: &BTreeSet<Row>) -> Moment {
    let micros = |random: &mut Xoshiro256PlusPlus, max: u64| Duration::from_micros(random.next_u64() % max);
    // Most kills aim at a row that none has hit yet: some rows last no longer than a few syncs.
    let aimed = !missing.is_empty() && !random.next_u64().is_multiple_of(4);
    if !aimed {
        return Moment::Any(Duration::from_millis(150) + micros(random, 1_200_000));
    }
    let wanted: Vec<Row> = missing.iter().copied().collect();
    match wanted[random.next_u64() as usize % wanted.len()] {
        Row::BeforeTheManifest => Moment::Any(micros(random, 1_200_000)),
        Row::AfterTheManifestBeforeAnyCommit => {
            Moment::Manifest(2 + random.next_u64() as usize % 3, micros(random, 1500))
        }
        Row::BetweenCommitsOfSeveralSinks => Moment::Published(random.next_u64() as usize % SINKS.len()),
        Row::AfterTheCommittedMarker => Moment::Marked,
    }
}

/// Waits for the moment, or for the end of the process.
fn wait_for(moment: Moment, weir: &mut Weir, folders: &Folders) {
    let polls = |pause: Duration, weir: &mut Weir, done: &mut dyn FnMut() -> bool| {
        while weir.ended().is_none() && !done() {
            pause_for(pause);
        }
    };
    let short = Duration::from_micros(100);
    match moment {
        Moment::Any(pause) => pause_for(pause),
        Moment::Manifest(more, pause) => {
            let before = folders.log_entries();
            polls(short, weir, &mut || folders.log_entries() >= before + more);
            pause_for(pause);
        }
        Moment::Published(sink) => {
            let folder = folders.root.join(SINKS[sink]);
            let before = newest(&folder, "epoch-");
            polls(short, weir, &mut || newest(&folder, "epoch-") > before);
        }
        Moment::Marked => {
            let marker = || folders.job().and_then(|job| newest(&job.join("committed"), ""));
            let before = marker();
            polls(short, weir, &mut || marker() > before);
        }
    }
}

/// The kill is at a moment of chance: this is what the test is about, and nothing that it asserts depends on how long it takes.
#[allow(clippy::disallowed_methods)]
fn pause_for(pause: Duration) {
    std::thread::sleep(pause);
}

/// What a key's records are, in order: the part of the output that must not change.
fn by_key(folder: &Path, key: &str) -> BTreeMap<String, Vec<String>> {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in weir_tests::lines(folder) {
        let value: Value = serde_json::from_str(&line).expect("JSON");
        keys.entry(value[key].to_string()).or_default().push(line);
    }
    keys
}

fn multiset(folder: &Path) -> Vec<String> {
    let mut lines = weir_tests::lines(folder);
    lines.sort_unstable();
    lines
}

/// Lists the output folders again and again, and keeps the first thing that it must not see.
fn watch(root: PathBuf, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<Result<usize, String>> {
    std::thread::spawn(move || {
        let mut seen: BTreeMap<(usize, u64), usize> = BTreeMap::new();
        let mut looks = 0;
        while !stop.load(Ordering::Relaxed) {
            for (index, sink) in SINKS.iter().enumerate() {
                let Ok(entries) = fs::read_dir(root.join(sink)) else { continue };
                for entry in entries.filter_map(Result::ok) {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    if name.starts_with('.') {
                        continue;
                    }
                    let epoch: u64 = name
                        .strip_prefix("epoch-")
                        .and_then(|n| n.parse().ok())
                        .ok_or_else(|| format!("{sink}/{name} is published and is no epoch"))?;
                    // An epoch is checked whole when it is first seen, and its files are counted ever after.
                    let files = fs::read_dir(entry.path()).map_err(|e| format!("{sink}/{name}: {e}"))?.count();
                    match seen.get(&(index, epoch)) {
                        Some(&before) if before != files => {
                            return Err(format!("{sink}/{name} had {before} files and has {files}"));
                        }
                        Some(_) => {}
                        None => {
                            weir_tests::published_epoch(&entry.path(), epoch)?;
                            seen.insert((index, epoch), files);
                        }
                    }
                }
            }
            looks += 1;
            pause_for(Duration::from_millis(2));
        }
        Ok(looks)
    })
}

#[test]
fn output_is_that_of_an_undisturbed_run_however_often_the_process_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let months = folder.path().join("months");
    weir_tests::write_months(&months);
    let simple = folder.path().join("simple-count.wasm");
    fs::write(&simple, weir_tests::guests::guest("simple-count")).expect("a plugin");

    let calm = folder.path().join("calm");
    fs::create_dir(&calm).expect("a folder");
    fs::write(calm.join("pipeline.toml"), pipeline(&months, &simple, "")).expect("the pipeline can be written");
    let (code, _, stderr) = weir_tests::run(&calm, &["run", "--quiet", "pipeline.toml"]);
    assert_eq!(code, 0, "{stderr}");

    // 336,776 records at 8,000 a second: 42 seconds without a kill.
    let root = folder.path().join("killed");
    fs::create_dir(&root).expect("a folder");
    fs::write(root.join("pipeline.toml"), pipeline(&months, &simple, "rate = 8_000"))
        .expect("the pipeline can be written");
    let folders = Folders { root: root.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let stop = Arc::new(AtomicBool::new(false));
    let reader = watch(root.clone(), Arc::clone(&stop));

    let seed = 0x77e1_2013;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut rows: BTreeMap<Row, usize> = BTreeMap::new();
    let mut missing: BTreeSet<Row> = ROWS.into();
    let mut kills = 0;
    let lives = loop {
        let mut weir = Weir::start(&root);
        wait_for(choose(&mut random, &missing), &mut weir, &folders);
        if let Some(code) = weir.ended() {
            let log = fs::read_to_string(root.join("log")).unwrap_or_default();
            assert_eq!(code, 0, "seed {seed:#x}, after {kills} kills:\n{log}");
            break kills + 1;
        }
        if weir.kill() {
            kills += 1;
            let disk = folders.on_disk(&runtime);
            let begun = staged(&root).iter().any(|name| name != "open") || folders.newest_pack() > disk.manifest;
            let row = row(&disk, begun);
            missing.remove(&row);
            *rows.entry(row).or_default() += 1;
        }
    };
    stop.store(true, Ordering::Relaxed);
    let looks = reader.join().expect("the reader lives").unwrap_or_else(|fault| panic!("a reader saw {fault}"));
    assert!(looks > 100, "the reader looked {looks} times");

    let epochs: BTreeSet<u64> = SINKS
        .iter()
        .flat_map(|sink| weir_tests::published(&root.join(sink)).expect("whole epochs"))
        .map(|epoch| epoch.epoch)
        .collect();
    println!("{lives} lives, {kills} kills, {} epochs, rows {rows:?}, {looks} looks", epochs.len());
    assert!(kills >= KILLS_MIN, "{kills} kills hit a live process");
    assert!(epochs.len() >= EPOCHS_MIN, "{} epochs completed", epochs.len());
    for row in ROWS {
        assert!(rows.contains_key(&row), "no kill hit the row {row:?}: {rows:?}");
    }

    for sink in SINKS {
        let (expected, got) = (multiset(&calm.join(sink)), multiset(&root.join(sink)));
        assert_eq!(expected.len(), got.len(), "{sink}: how many records");
        assert!(expected == got, "{sink}: the same records");
    }
    assert_eq!(multiset(&root.join("mirror")).len(), 336_776);
    for (sink, key) in [("hourly", "carrier"), ("worst", "origin"), ("counts", "key"), ("images", "key")] {
        assert!(by_key(&calm.join(sink), key) == by_key(&root.join(sink), key), "{sink}: the order by {key}");
    }
    assert!(multiset(&root.join("images")) == multiset(&root.join("counts")), "both count the same");
    assert_eq!(staged(&root), Vec::<String>::new(), "staged leftovers were collected");
}
