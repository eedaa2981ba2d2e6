//! The binary as a user meets it: exit codes, interrupts, damage, and a run that has been overtaken.
//!
//! Invariants: I1 and I10 (damage is refused, nothing starts empty by itself), I7 (an older run is fenced).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

const RECORDS: usize = 20_000;

/// A folder with a pipeline that counts made-up records by key.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// `rate` is a line of the source's table, or nothing.
    fn new(rate: &str) -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a folder") };
        place.write(rate);
        place
    }

    fn write(&self, rate: &str) {
        let text = format!(
            r#"
name = "place"

[checkpoint]
interval = "50ms"
inline = "0B"

[source.made]
connector = "generator"
records = {RECORDS}
keys = 100
format = "json"
{rate}

[operator.count]
plugin = "count"
inputs = [{{ from = "made", exchange = "keyed" }}]
parallelism = 2

[sink.counts]
connector = "file"
inputs = ["count"]
parallelism = 2
path = "out"
format = "json"
"#
        );
        fs::write(self.path().join("pipeline.toml"), text).expect("the pipeline can be written");
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        weir_tests::run(self.path(), args)
    }

    fn start(&self) -> Running {
        let child = Command::new(weir_tests::weir())
            .args(["run", "pipeline.toml"])
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        Running(Some(child.expect("the binary can be started")))
    }

    /// Checkpoints that `weir checkpoint list` shows.
    fn checkpoints(&self) -> Vec<Value> {
        let (_, stdout, _) = self.run(&["checkpoint", "list", "pipeline.toml", "--json"]);
        serde_json::from_str(&stdout).unwrap_or_default()
    }

    /// Waits until the job has that many more committed checkpoints.
    fn wait_for_checkpoints(&self, more: u64) {
        let newest = || self.checkpoints().iter().filter_map(|row| row["epoch"].as_u64()).max().unwrap_or(0);
        let before = newest();
        wait_until("checkpoints", || newest() >= before + more);
    }

    /// The job's folder in the store.
    fn job(&self) -> PathBuf {
        let jobs = fs::read_dir(self.path().join(".weir/tenants/default/jobs/place")).expect("the job ran");
        let mut folders = jobs.filter_map(Result::ok).map(|entry| entry.path());
        folders.find(|path| path.join("log").is_dir()).expect("a log")
    }

    /// Every key was counted from 1 up, in order, to as many as there are.
    fn assert_output_is_whole(&self) {
        let mut counts = std::collections::BTreeMap::new();
        let mut records = 0;
        for row in weir_tests::json_lines(&self.path().join("out")) {
            let next: &mut u64 = counts.entry(row["key"].to_string()).or_default();
            *next += 1;
            assert_eq!(row["count"], *next, "{row}");
            records += 1;
        }
        assert_eq!(records, RECORDS);
    }
}

/// A process that is killed when the test fails.
struct Running(Option<Child>);

impl Running {
    fn signal(&self, signal: i32) {
        let pid = self.0.as_ref().expect("it runs").id();
        // SAFETY: a signal to a child of this process, which has not been waited for.
        let sent = unsafe { libc::kill(pid.cast_signed(), signal) };
        assert_eq!(sent, 0, "the signal is sent");
    }

    /// Waits for it. Gives its exit code and standard error.
    fn wait(mut self) -> (i32, String) {
        let output = self.0.take().expect("it runs").wait_with_output().expect("it can be waited for");
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Asks again and again. How long that takes decides nothing.
#[allow(clippy::disallowed_methods)]
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited in vain for {what}");
}

#[test]
fn an_interrupt_stops_with_a_last_checkpoint_and_the_next_run_goes_on() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let place = Place::new("rate = 10_000");
        let running = place.start();
        place.wait_for_checkpoints(2);
        running.signal(signal);
        let (code, stderr) = running.wait();
        assert_eq!(code, 0, "{stderr}");
        assert!(stderr.contains("has stopped with checkpoint"), "{stderr}");
        let some = weir_tests::lines(&place.path().join("out")).len();
        assert!(some > 0 && some < RECORDS, "{some} records so far");

        place.write("");
        let (code, _, stderr) = place.run(&["run", "pipeline.toml"]);
        assert_eq!(code, 0, "{stderr}");
        assert!(stderr.contains("restored"), "{stderr}");
        place.assert_output_is_whole();
    }
}

#[test]
fn a_run_that_has_been_overtaken_ends_by_itself_and_publishes_nothing_more() {
    let place = Place::new("rate = 10_000");
    let older = place.start();
    place.wait_for_checkpoints(2);
    // The older run stands still while another takes over, finishes and collects; then it wakes up.
    older.signal(libc::SIGSTOP);
    let fast = fs::read_to_string(place.path().join("pipeline.toml")).expect("the pipeline is there");
    fs::write(place.path().join("fast.toml"), fast.replace("rate = 10_000", "")).expect("another can be written");
    let (code, _, stderr) = place.run(&["run", "fast.toml"]);
    assert_eq!(code, 0, "{stderr}");
    place.assert_output_is_whole();
    older.signal(libc::SIGCONT);
    let (code, stderr) = older.wait();
    assert_eq!(code, 6, "{stderr}");
    assert!(stderr.contains("superseded"), "{stderr}");
    place.assert_output_is_whole();
}

#[test]
fn two_runs_at_once_end_with_one_and_with_every_record_once() {
    let place = Place::new("rate = 10_000");
    let older = place.start();
    place.wait_for_checkpoints(2);
    let newer = place.start();
    let (code, stderr) = older.wait();
    assert_eq!(code, 6, "{stderr}");
    let (code, stderr) = newer.wait();
    assert_eq!(code, 0, "{stderr}");
    place.assert_output_is_whole();
}

#[test]
fn damage_is_found_named_and_refused_and_nothing_starts_empty() {
    let place = Place::new("rate = 10_000");
    let running = place.start();
    place.wait_for_checkpoints(4);
    running.signal(libc::SIGKILL);
    running.wait();
    // What a kill leaves may still have to be committed, which would make a new newest checkpoint: settle it first.
    let running = place.start();
    place.wait_for_checkpoints(2);
    running.signal(libc::SIGTERM);
    assert_eq!(running.wait().0, 0);

    let newest = place.checkpoints().iter().filter_map(|row| row["epoch"].as_u64()).max().expect("a checkpoint");
    let job = place.job();
    let newest_of = |folder: &str, part: &str| {
        let entries = fs::read_dir(job.join(folder)).expect("the folder is there").filter_map(Result::ok);
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(part)));
        paths.sort();
        paths.pop().expect("an object")
    };
    let manifest = newest_of("log", "");
    let pack = newest_of("packs", &format!("-{newest}-"));
    let output = weir_tests::lines(&place.path().join("out"));

    type Damage = fn(&Path, &[u8]);
    let damages: [(&str, Damage); 4] = [
        ("a flipped bit", |path, bytes| {
            let mut bytes = bytes.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
            fs::write(path, bytes).expect("it can be written");
        }),
        ("a cut tail", |path, bytes| fs::write(path, &bytes[..bytes.len() - 7]).expect("it can be written")),
        ("nothing left of it", |path, _| fs::write(path, b"").expect("it can be written")),
        ("a missing file", |path, _| fs::remove_file(path).expect("it can be removed")),
    ];
    for object in [&manifest, &pack] {
        let whole = fs::read(object).expect("the object is there");
        let name = object.file_name().expect("a name").to_string_lossy().into_owned();
        for (what, damage) in damages {
            damage(object, &whole);
            let (code, stdout, stderr) =
                place.run(&["checkpoint", "verify", "pipeline.toml", "-e", &newest.to_string()]);
            assert!(matches!(code, 2 | 4), "verify, {what} in {name}: {code} {stdout}{stderr}");
            let (code, _, stderr) = place.run(&["run", "pipeline.toml"]);
            assert_eq!(code, 4, "run, {what} in {name}: {stderr}");
            if !(object == &manifest && what == "a missing file") {
                assert!(stderr.contains(&name[..20]), "run, {what} in {name}: {stderr}");
            }
            assert_eq!(weir_tests::lines(&place.path().join("out")), output, "nothing was published");
            fs::write(object, &whole).expect("it can be mended");
        }
    }

    // An older checkpoint is the user's choice, and says what it means.
    let (code, _, stderr) = place.run(&["run", "pipeline.toml", "--from", &(newest - 1).to_string()]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("--republish") && stderr.contains(&newest.to_string()), "{stderr}");

    place.write("");
    let (code, _, stderr) = place.run(&["run", "pipeline.toml"]);
    assert_eq!(code, 0, "{stderr}");
    place.assert_output_is_whole();
}

#[test]
fn a_fresh_start_is_explicit_and_does_not_mix_with_what_is_published() {
    let place = Place::new("");
    assert_eq!(place.run(&["run", "-q", "pipeline.toml"]).0, 0);
    let (code, _, stderr) = place.run(&["run", "pipeline.toml"]);
    assert_eq!((code, stderr.contains("has finished before")), (0, true), "{stderr}");
    let (code, _, stderr) = place.run(&["run", "pipeline.toml", "--fresh"]);
    assert_eq!(code, 4, "{stderr}");
    assert!(stderr.contains("out"), "the place belongs to another history: {stderr}");
    fs::remove_dir_all(place.path().join("out")).expect("the output can be removed");
    let (code, _, stderr) = place.run(&["run", "pipeline.toml", "--fresh"]);
    assert_eq!(code, 0, "{stderr}");
    place.assert_output_is_whole();
}

#[test]
fn a_lost_log_is_an_error_and_not_a_beginning() {
    let place = Place::new("");
    assert_eq!(place.run(&["run", "-q", "pipeline.toml"]).0, 0);
    fs::remove_dir_all(place.job().join("log")).expect("the log can be removed");
    let (code, _, stderr) = place.run(&["run", "pipeline.toml"]);
    assert_eq!(code, 4, "{stderr}");
}

#[test]
fn another_shape_than_that_of_the_checkpoint_is_refused_by_name() {
    let place = Place::new("rate = 10_000");
    let running = place.start();
    place.wait_for_checkpoints(2);
    running.signal(libc::SIGTERM);
    assert_eq!(running.wait().0, 0);
    let text = fs::read_to_string(place.path().join("pipeline.toml")).expect("the pipeline is there");
    for (from, to, part) in [
        ("[operator.count]", "key_groups = 64\n[operator.count]", "key groups"),
        ("operator.count]", "operator.tally]", "count"),
    ] {
        let mut changed = text.replace(from, to);
        if part == "key groups" {
            changed = format!("key_groups = 64\n{text}");
        }
        if to.contains("tally") {
            changed = changed.replace("inputs = [\"count\"]", "inputs = [\"tally\"]");
        }
        assert_ne!(changed, text);
        fs::write(place.path().join("pipeline.toml"), changed).expect("the pipeline can be written");
        let (code, _, stderr) = place.run(&["run", "pipeline.toml"]);
        assert_eq!(code, 4, "{to:?}: {stderr}");
        assert!(stderr.contains(part), "{to:?}: {stderr}");
    }
    place.write("");
    assert_eq!(place.run(&["run", "-q", "pipeline.toml"]).0, 0);
    place.assert_output_is_whole();
}

#[test]
fn weir_check_points_at_the_line_and_exits_with_2() {
    let place = Place::new("");
    let (code, stdout, _) = place.run(&["check", "pipeline.toml"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("exactly-once"), "{stdout}");
    let (code, stdout, _) = place.run(&["check", "pipeline.toml", "--json"]);
    assert_eq!(code, 0);
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(report["guarantees"]["paths"][0]["guarantee"], "exactly-once", "{report}");

    place.write("intervall = 3");
    let (code, stdout, stderr) = place.run(&["check", "pipeline.toml"]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("pipeline.toml:13:1") && stderr.contains("help:"), "{stderr}");
    let (code, _, stderr) = place.run(&["run", "pipeline.toml"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(!place.path().join(".weir").exists(), "nothing was made");
    let (code, _, stderr) = place.run(&["run", "nowhere.toml"]);
    assert_eq!(code, 2, "{stderr}");
}
