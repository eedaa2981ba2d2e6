//! Thousands of epochs of the real process, one after the other: nothing may pile up.
//!
//! What users of such systems have met: checkpoints that fail for ever after the first hundred, stores that grow to terabytes, one failed epoch
//! that poisons the next. The state of this job is of one size from the first thousand records on, so the size of the store and the memory of the process have no
//! reason to grow with the epochs; a slope over the second half of them is a leak. How many there are is set by `WEIR_SOAK_EPOCHS`: 10000 for the long soak.

#![allow(clippy::disallowed_methods, reason = "it watches a process from outside, and gives up on one that is stuck")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const EPOCHS: u64 = 2_000;
/// An epoch that takes longer than this is stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many samples are taken over the run.
const SAMPLES: u64 = 100;

const PIPELINE: &str = r#"
name = "soak"

[checkpoint]
interval = "10ms"
retain = 3

[source.numbers]
connector = "generator"
format = "json"
keys = 500
rate = 5000

[operator.count]
plugin = "count"
inputs = [{ from = "numbers", key = "/key" }]
parallelism = 2

[sink.counts]
connector = "file"
inputs = ["count"]
path = "counts"
format = "json"
"#;

/// A running process, which does not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What was seen at an epoch.
#[derive(Clone, Copy, Debug)]
struct Sample {
    epoch: f64,
    store_bytes: f64,
    store_objects: f64,
    memory_bytes: f64,
}

#[test]
fn thousands_of_epochs_leave_neither_store_nor_memory_larger_and_none_is_stuck() {
    let epochs = std::env::var("WEIR_SOAK_EPOCHS").map_or(EPOCHS, |n| n.parse().expect("WEIR_SOAK_EPOCHS is a number"));
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("pipeline.toml"), PIPELINE).expect("the pipeline is written");
    let child = Command::new(weir_tests::weir())
        .args(["run", "pipeline.toml", "--quiet"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(folder.path().join("stderr")).expect("a file"))
        .spawn()
        .expect("the binary starts");
    let mut running = Running(child);
    let job = folder.path().join(".weir/tenants/default/jobs/soak");
    let mut samples: Vec<Sample> = Vec::new();
    let (mut last, mut since) = (0, Instant::now());
    while last < epochs {
        if let Some(status) = running.0.try_wait().expect("the process can be asked") {
            let said = fs::read_to_string(folder.path().join("stderr")).unwrap_or_default();
            panic!("the process ended with {status} after epoch {last}: {said}");
        }
        let epoch = newest(&job);
        if epoch > last {
            if epoch * SAMPLES / epochs > last * SAMPLES / epochs {
                samples.push(sample(epoch, &job, running.0.id()));
            }
            (last, since) = (epoch, Instant::now());
        }
        assert!(since.elapsed() < PATIENCE, "epoch {} is stuck", last + 1);
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: it is our child, and it has not been waited for.
    assert_eq!(unsafe { libc::kill(running.0.id().cast_signed(), libc::SIGINT) }, 0);
    assert!(running.0.wait().expect("it ends").success(), "it stops with a last checkpoint");

    let settled: Vec<Sample> = samples.iter().copied().filter(|s| s.epoch > epochs as f64 / 2.0).collect();
    assert!(settled.len() as u64 >= SAMPLES / 4, "{} samples are too few to see a slope", settled.len());
    for (what, read, slack) in [
        ("store (bytes)", (|s| s.store_bytes) as fn(&Sample) -> f64, 256e3),
        ("store (objects)", |s| s.store_objects, 100.0),
        ("memory of the process (bytes)", |s| s.memory_bytes, 8e6),
    ] {
        let grown = slope(&settled, read) * (epochs as f64 / 2.0);
        let mean = settled.iter().map(read).sum::<f64>() / settled.len() as f64;
        println!("{what}: {mean:.0} on average, {grown:+.0} over the last {} epochs", epochs / 2);
        assert!(
            grown < f64::max(slack, mean * 0.1),
            "{what} grows: {mean:.0} on average, {grown:+.0} over half the run"
        );
    }
    exact(folder.path());
}

/// The highest epoch whose commit is marked.
fn newest(job: &Path) -> u64 {
    let Ok(mut entries) = fs::read_dir(job) else { return 0 };
    let history = entries.find_map(|e| Some(e.ok()?.path()).filter(|path| path.join("committed").is_dir()));
    let Some(Ok(marks)) = history.map(|path| fs::read_dir(path.join("committed"))) else { return 0 };
    marks.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).max().unwrap_or(0)
}

fn sample(epoch: u64, job: &Path, process: u32) -> Sample {
    let (mut bytes, mut objects) = (0, 0);
    walk(job, &mut bytes, &mut objects);
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let memory =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    let memory: u64 = memory.expect("Linux tells how much memory a process has");
    Sample {
        epoch: epoch as f64,
        store_bytes: bytes as f64,
        store_objects: objects as f64,
        memory_bytes: memory as f64 * 1024.0,
    }
}

/// Files may go while they are counted.
fn walk(folder: &Path, bytes: &mut u64, objects: &mut u64) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => walk(&entry.path(), bytes, objects),
            Ok(meta) => {
                *bytes += meta.len();
                *objects += 1;
            }
            Err(_) => {}
        }
    }
}

/// By least squares, an epoch.
fn slope(samples: &[Sample], read: fn(&Sample) -> f64) -> f64 {
    let n = samples.len() as f64;
    let (x, y) = (samples.iter().map(|s| s.epoch).sum::<f64>() / n, samples.iter().map(read).sum::<f64>() / n);
    let covariance: f64 = samples.iter().map(|s| (s.epoch - x) * (read(s) - y)).sum();
    let variance: f64 = samples.iter().map(|s| (s.epoch - x).powi(2)).sum();
    covariance / variance
}

/// The published output is what the records that the last checkpoint covers lead to: each key's counts, in order, without a gap.
fn exact(folder: &Path) {
    let (code, shown, error) = weir_tests::run(folder, &["checkpoint", "show", "pipeline.toml", "--json"]);
    assert_eq!(code, 0, "{error}");
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let tasks = shown["subtasks"].as_array().expect("subtasks");
    let read = tasks.iter().find(|task| task["kind"] == "source").expect("a source")["records"].as_u64();
    let mut counts: std::collections::BTreeMap<String, u64> = Default::default();
    let mut lines = 0;
    for line in weir_tests::lines(&folder.join("counts")) {
        let value: Value = serde_json::from_str(&line).expect("JSON");
        let key = value["key"].as_str().expect("a key").to_owned();
        let count = counts.entry(key).or_default();
        *count += 1;
        assert_eq!(value["count"], *count, "{line}");
        lines += 1;
    }
    assert_eq!(Some(lines), read, "every record that was read is counted and published once");
}
