//! State without snapshot code: real components whose memory is saved and put into fresh instances, again and again, and never make a
//! difference.
//!
//! Invariants: I8, I12.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use weir::model::{Batch, Chunk, Epoch, Scope, SegmentKind, SnapshotMode, TaskInfo};
use weir::plan::LimitsSpec;
use weir::plugin::{HostOptions, Operator, OperatorError, Output, Plugin, PluginError, PluginHost, SnapshotWriter};
use weir_tests::guests::{guest, nested};

static CACHE: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fn host() -> PluginHost {
    let cache_dir = Some(CACHE.path().join("compiled"));
    PluginHost::new(HostOptions { cache_dir, instances_max: 32, ..HostOptions::default() }).expect("a host")
}

fn task() -> TaskInfo {
    let (job, node) = ("job".to_owned(), "node".to_owned());
    TaskInfo { job, node, subtask: 0, parallelism: 1, key_groups: 128, groups: 0..128, seed: 1 }
}

async fn open(plugin: &Plugin, config: serde_json::Value) -> Box<dyn Operator> {
    plugin.open(&LimitsSpec::default(), &config, &task()).await.expect("it opens")
}

type Held = Vec<(SegmentKind, Vec<u8>)>;

#[derive(Default)]
struct Written(Held);

impl SnapshotWriter for Written {
    fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> bool {
        assert_eq!(scope, Scope::Subtask, "an image belongs to its subtask");
        self.0.push((kind, data.to_vec()));
        true
    }
}

async fn save(operator: &mut dyn Operator, epoch: u64, mode: SnapshotMode) -> Held {
    let mut written = Written::default();
    assert!(operator.snapshot(Epoch(epoch), mode, &mut written).await.expect("it is saved"));
    written.0
}

fn apply(held: &mut Held, written: Held) {
    if written.iter().any(|(kind, _)| *kind == SegmentKind::Base) {
        held.clear();
    }
    held.extend(written);
}

fn chunks(held: &Held) -> Vec<Chunk> {
    let chunk = |(kind, data): &(SegmentKind, Vec<u8>)| Chunk {
        scope: Scope::Subtask,
        kind: *kind,
        origin: 0,
        data: data.clone().into(),
    };
    held.iter().map(chunk).collect()
}

fn batch(random: &mut Xoshiro256PlusPlus) -> Batch {
    let mut batch = Batch::default();
    for n in 0..1 + random.next_u64() % 200 {
        let key = format!("key-{}", random.next_u64() % 5_000);
        batch.push(n as i64, Some(key.as_bytes()), Some(b"{}"));
    }
    batch.hash_keys();
    batch
}

async fn process(operator: &mut dyn Operator, batch: &Batch) -> Vec<(u32, Batch)> {
    let mut out = Output::default();
    operator.process(7, 0, batch, &mut out).await.expect("it works");
    out.emitted
}

fn bytes(held: &Held) -> usize {
    held.iter().map(|(_, data)| data.len()).sum()
}

/// One instance runs on; another is replaced by a fresh one at random moments.
async fn is_not_disturbed(plugin: &Plugin, seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let config = serde_json::json!({ "ballast": 1 << 20 });
    let (mut calm, mut moved) = (open(plugin, config.clone()).await, open(plugin, config.clone()).await);
    let mut held = Held::new();
    for epoch in 1..=60 {
        for _ in 0..random.next_u64() % 4 {
            let batch = batch(&mut random);
            let expected = process(&mut *calm, &batch).await;
            assert_eq!(process(&mut *moved, &batch).await, expected, "seed {seed}, epoch {epoch}");
        }
        let full = held.is_empty() || random.next_u64().is_multiple_of(5);
        let mode = if full { SnapshotMode::Full } else { SnapshotMode::Incremental };
        let one = save(&mut *calm, epoch, mode).await;
        let other = save(&mut *moved, epoch, mode).await;
        assert!(one == other, "seed {seed}, epoch {epoch}: images differ");
        apply(&mut held, one);
        if random.next_u64().is_multiple_of(2) {
            drop(moved);
            moved = open(plugin, config.clone()).await;
            moved.restore(1, chunks(&held)).await.expect("it fits");
        }
    }
}

#[tokio::test]
async fn an_operator_without_snapshot_code_goes_on_in_a_fresh_instance_as_if_nothing_had_happened() {
    let host = host();
    let plugin = host.load(&guest("simple-count")).await.expect("it is a plugin");
    assert!(plugin.takes_images() && !plugin.has_snapshot_code());
    for seed in 0..6 {
        is_not_disturbed(&plugin, seed).await;
    }
}

#[tokio::test]
async fn a_component_of_components_does_so_too() {
    let host = host();
    let component = nested(&guest("simple-count"), &[]);
    let plugin = host.load(&component).await.expect("it is a plugin");
    assert_eq!(
        plugin.digest(),
        blake3::hash(&component).to_hex().as_str(),
        "the digest is that of the bytes as they were"
    );
    for seed in 10..13 {
        is_not_disturbed(&plugin, seed).await;
    }
}

/// For components of toolchains that are not at hand in every run: `WEIR_COMPONENT=op.wasm cargo test … -- --ignored another_toolchain`.
#[tokio::test]
#[ignore = "by hand, with a component that counts by key"]
async fn a_component_of_another_toolchain_does_so_too() {
    let path = std::env::var_os("WEIR_COMPONENT").expect("WEIR_COMPONENT names a component");
    let host = host();
    let plugin = host.load(&fs::read(path).expect("it can be read")).await.expect("it is a plugin");
    assert!(plugin.takes_images());
    for seed in 20..22 {
        is_not_disturbed(&plugin, seed).await;
    }
}

#[tokio::test]
async fn after_the_first_an_image_costs_what_has_changed() {
    let host = host();
    let plugin = host.load(&guest("simple-count")).await.expect("it is a plugin");
    let mut operator = open(&plugin, serde_json::json!({ "ballast": 32 << 20 })).await;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    process(&mut *operator, &batch(&mut random)).await;
    let base = save(&mut *operator, 1, SnapshotMode::Full).await;
    assert!(bytes(&base) > 32 << 20, "{}", bytes(&base));
    assert_eq!(save(&mut *operator, 2, SnapshotMode::Incremental).await, [], "nothing has changed");
    process(&mut *operator, &batch(&mut random)).await;
    let delta = save(&mut *operator, 3, SnapshotMode::Incremental).await;
    assert!(bytes(&delta) < 1 << 20, "{}", bytes(&delta));
    assert!(delta.iter().all(|(kind, _)| *kind == SegmentKind::Delta));
}

#[tokio::test]
async fn an_image_of_another_configuration_is_refused_and_open_would_not_be_called() {
    let host = host();
    let plugin = host.load(&guest("simple-count")).await.expect("it is a plugin");
    let held = save(&mut *open(&plugin, serde_json::json!({ "ballast": 8 })).await, 1, SnapshotMode::Full).await;
    let mut other = open(&plugin, serde_json::json!({ "ballast": 16 })).await;
    let error = other.restore(1, chunks(&held)).await.expect_err("memory holds what open made of the other one");
    assert!(matches!(&error, OperatorError::Unfit(what) if what.contains("another `config`")), "{error}");
    let error = process_error(&mut *other).await;
    assert!(error.contains("has ended"), "{error}");
}

async fn process_error(operator: &mut dyn Operator) -> String {
    let batch = batch(&mut Xoshiro256PlusPlus::seed_from_u64(1));
    operator.process(1, 0, &batch, &mut Output::default()).await.expect_err("it has ended").to_string()
}

#[tokio::test]
async fn the_limits_of_a_node_hold_for_its_image_and_the_host_is_not_charged_to_the_guest() {
    let host = host();
    let plugin = host.load(&guest("simple-count")).await.expect("it is a plugin");
    let config = serde_json::json!({ "ballast": 64 << 20 });
    let limits = LimitsSpec { state_bytes: 1 << 20, ..LimitsSpec::default() };
    let mut operator = plugin.open(&limits, &config, &task()).await.expect("it opens");
    let error = operator.snapshot(Epoch(1), SnapshotMode::Full, &mut Written::default()).await.expect_err("too much");
    assert!(matches!(error, OperatorError::Limit { call: "snapshot", setting: "state", .. }), "{error}");
    // A tick of CPU time is charged at most once a piece, and there are more pieces than this allows for.
    let cpu = std::time::Duration::from_millis(20);
    let opened = plugin.open(&LimitsSpec::default(), &config, &task()).await;
    let held = save(&mut *opened.expect("it opens"), 1, SnapshotMode::Full).await;
    let small = serde_json::json!({});
    let limits = LimitsSpec { cpu, ..LimitsSpec::default() };
    let mut operator = plugin.open(&limits, &small, &task()).await.expect("it opens");
    let image = save(&mut *operator, 1, SnapshotMode::Full).await;
    assert!(bytes(&image) < bytes(&held));
    operator.restore(1, chunks(&image)).await.expect("it fits");
    let memory_bytes = 8 << 20;
    let limits = LimitsSpec { memory_bytes, ..LimitsSpec::default() };
    let mut operator = plugin.open(&limits, &small, &task()).await.expect("it opens");
    let error = operator.restore(1, chunks(&held)).await.expect_err("of another config, and too much");
    assert!(matches!(error, OperatorError::Unfit(_) | OperatorError::Limit { .. }), "{error}");
}

#[tokio::test]
async fn a_component_whose_memory_has_no_image_is_refused_only_if_it_keeps_state() {
    // One that says it has state, with a name in it that instrumenting needs for itself.
    let host = host();
    let reserved = nested(&guest("plain"), &["weir-image"]);
    let plugin = host.load(&reserved).await.expect("it has no state, so nothing is needed of its memory");
    assert!(!plugin.takes_images());
    let mut says_state = reserved;
    let marker = b"plain-state=";
    let at = says_state.windows(marker.len()).position(|part| part == marker).expect("the guest has the marker");
    says_state[at + marker.len()..][..4].copy_from_slice(b"some");
    let error = host.load(&says_state).await.expect_err("its state would be lost");
    assert!(matches!(&error, PluginError::Image(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("no image of its memory can be taken") && text.contains("\"weir-image\""), "{text}");
    assert_eq!(error.remedy(), "rename the export");
    // The same answer when its compiled code comes from the cache.
    drop(host);
    let again = self::host().load(&says_state).await.expect_err("its state would be lost");
    assert_eq!(again.to_string(), text);
}

fn pipeline(plugin: &Path, parallelism: u32) -> String {
    format!(
        "name = \"images\"\n[checkpoint]\ninterval = \"20ms\"\n[restart]\nattempts = 0\n\
         [source.flights]\nconnector = \"file\"\npath = {:?}\nformat = \"csv\"\nevent_time = \"/time_hour\"\n\
         out_of_orderness = \"24h\"\nrate = 8000\n\
         [operator.count]\nplugin = {:?}\ninputs = [{{ from = \"flights\", key = \"/tailnum\" }}]\n\
         parallelism = {parallelism}\non_reject = \"skip\"\n\
         [sink.out]\nconnector = \"file\"\ninputs = [\"count\"]\npath = \"out\"\nformat = \"json\"\n",
        weir_tests::january().display().to_string(),
        plugin.display().to_string()
    )
}

/// Every file below a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.display().to_string(), fs::read(&path).expect("a file"));
        }
    }
    found
}

/// I6, I7: what will be refused does not claim the job.
#[test]
fn another_component_or_another_parallelism_is_refused_by_name_before_anything_is_claimed() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let component = guest("simple-count");
    fs::write(root.join("mine.wasm"), &component).expect("a plugin");
    // The same code, and a byte more that nobody looks at.
    fs::write(root.join("other.wasm"), [&component[..], &[0, 2, 1, b'x']].concat()).expect("another");
    let write = |plugin: &str, parallelism| {
        fs::write(root.join("pipeline.toml"), pipeline(&root.join(plugin), parallelism)).expect("a pipeline");
    };
    write("mine.wasm", 2);
    let (code, report, stderr) = weir_tests::run(root, &["check", "pipeline.toml"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(report.contains("keyed state: image of memory (bound to this exact plugin and parallelism 2)"), "{report}");
    assert!(report.contains("exactly-once"), "{report}");

    let mut child = start(root);
    while published(root) < 2 {
        assert_eq!(child.try_wait().expect("it can be asked"), None, "it ended before it was killed");
        std::thread::yield_now();
    }
    child.kill().expect("it can be killed");
    child.wait().expect("it can be waited for");

    let before = files(root);
    for (plugin, parallelism, part) in [
        ("other.wasm", 2, "an image fits only the very component that it was taken of"),
        ("mine.wasm", 3, "parallelism 2, and the pipeline has 3"),
    ] {
        write(plugin, parallelism);
        let (code, _, stderr) = weir_tests::run(root, &["run", "--quiet", "pipeline.toml"]);
        assert_ne!(code, 0);
        assert!(stderr.contains(part) && stderr.contains("\"count\""), "{stderr}");
        write("mine.wasm", 2);
        // The component itself is put into the store by name of its digest, where it disturbs nobody.
        let plugins = root.join(".weir/tenants/default/plugins").display().to_string();
        let jobs = |files: BTreeMap<String, Vec<u8>>| -> BTreeMap<String, Vec<u8>> {
            files.into_iter().filter(|(path, _)| !path.starts_with(&plugins)).collect()
        };
        let (was, is) = (jobs(before.clone()), jobs(files(root)));
        let changed: Vec<&String> =
            is.iter().filter(|(path, data)| was.get(*path) != Some(data)).map(|(path, _)| path).collect();
        assert!(was == is, "{plugin} x {parallelism}: written: {changed:?}");
    }
    let (code, _, stderr) = weir_tests::run(root, &["run", "--quiet", "pipeline.toml"]);
    assert_eq!(code, 0, "{stderr}");
    check_counts(root);
}

/// Every flight with a tail number has been counted once, and in order.
fn check_counts(root: &Path) {
    let csv = fs::read_to_string(weir_tests::january()).expect("the flights");
    let column = csv.lines().next().and_then(|header| header.split(',').position(|name| name == "tailnum"));
    let column = column.expect("a column of tail numbers");
    let named = |row: &&str| row.split(',').nth(column).is_some_and(|name| !name.is_empty() && name != "NA");
    let expected = csv.lines().skip(1).filter(named).count();
    let counted = weir_tests::json_lines(&root.join("out"));
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for line in &counted {
        let count = counts.entry(line["key"].to_string()).or_default();
        *count += 1;
        assert_eq!(line["count"], *count, "{line}");
    }
    assert_eq!(counted.len(), expected);
}

/// I2, I4, I5: the process is killed whenever it has published something more, and counts as if it had not been.
#[test]
fn an_operator_without_snapshot_code_is_exactly_once_however_often_its_process_is_killed() {
    const KILLS: usize = 8;
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    fs::write(root.join("count.wasm"), guest("simple-count")).expect("a plugin");
    fs::write(root.join("pipeline.toml"), pipeline(&root.join("count.wasm"), 2)).expect("a pipeline");
    for kill in 0..KILLS {
        let before = published(root);
        let mut child = start(root);
        while published(root) <= before {
            assert_eq!(child.try_wait().expect("it can be asked"), None, "it ended before kill {kill}");
            std::thread::yield_now();
        }
        child.kill().expect("it can be killed");
        child.wait().expect("it can be waited for");
    }
    let (code, _, stderr) = weir_tests::run(root, &["run", "--quiet", "pipeline.toml"]);
    assert_eq!(code, 0, "{stderr}");
    check_counts(root);
}

fn start(root: &Path) -> std::process::Child {
    let mut weir = std::process::Command::new(weir_tests::weir());
    weir.args(["run", "--quiet", "pipeline.toml"]).current_dir(root).stderr(std::process::Stdio::null());
    weir.spawn().expect("the binary can be started")
}

/// How many epochs are published.
fn published(root: &Path) -> usize {
    let entries = fs::read_dir(root.join("out")).into_iter().flatten().filter_map(Result::ok);
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("epoch-")).count()
}
