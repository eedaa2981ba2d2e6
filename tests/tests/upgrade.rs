//! `weir upgrade` against the real process and real components: exact output over versions that are good, that trap,
//! that do not take the state over and that are slow; and over processes that are killed in the middle of an upgrade.
//!
//! The operator counts all records and says the count and its version, in two subtasks of which each has its own
//! input. So what comes out says of each record whether it was lost, repeated or taken out of order, and who had it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::Value;
use tempfile::TempDir;
use weir::checkpoint::{Store, look_for, refused};

/// How often it is looked before the test is given up, a fiftieth of a second apart at least.
const LOOKS_MAX: u32 = 3_000;

/// A version of the counting component: a test writes another digit over the one that it holds.
fn version(digit: u8) -> Vec<u8> {
    let mut component = weir_tests::guests::guest("versioned");
    let word = b"versioned-version1";
    let at = component.windows(word.len()).position(|window| window == word).expect("the word is in the component");
    component[at + word.len() - 1] = b'0' + digit;
    component
}

#[allow(clippy::disallowed_methods, reason = "another process is watched, which has a clock of its own")]
fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

struct Place(TempDir);

impl Place {
    /// `end` is a rate, or how many records there are.
    fn new(end: &str) -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        for digit in 1..=6 {
            fs::write(place.path().join(format!("v{digit}.wasm")), version(digit)).expect("it can be written");
        }
        place.write(1, end);
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, digit: u8, end: &str) {
        let text = format!(
            r#"
name = "place"
restart = {{ attempts = 0 }}
[checkpoint]
interval = "100ms"
retain = 1000
[source.made]
connector = "generator"
format = "json"
parallelism = 2
{end}
[operator.op]
plugin = "./v{digit}.wasm"
inputs = ["made"]
parallelism = 2
[operator.keyed]
plugin = "count"
inputs = [{{ from = "op", key = "/version" }}]
[sink.out]
connector = "file"
inputs = ["op"]
parallelism = 2
path = "out"
format = "json"
[sink.counts]
connector = "file"
inputs = ["keyed"]
path = "counts"
format = "json"
"#
        );
        fs::write(self.path().join("pipeline.toml"), text).expect("it can be written");
    }

    fn weir(&self, args: &[&str]) -> (i32, String, String) {
        weir_tests::run(self.path(), args)
    }

    fn ok(&self, args: &[&str]) -> String {
        let (code, out, log) = self.weir(args);
        assert_eq!(code, 0, "{args:?}: {out}{log}");
        out
    }

    fn fails(&self, code: i32, args: &[&str]) -> String {
        let (is, out, log) = self.weir(args);
        assert_eq!(is, code, "{args:?}: {out}{log}");
        log
    }

    fn start(&self) -> Weir {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path().join("log")).expect("a log");
        let child = Command::new(weir_tests::weir())
            .args(["run", "--quiet", "pipeline.toml"])
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Weir(child.expect("the binary can be started"))
    }

    /// Starts an upgrade that nobody waits for.
    fn upgrade_aside(&self, args: &[&str]) -> Weir {
        let child = Command::new(weir_tests::weir())
            .args(["upgrade", "pipeline.toml", "op"])
            .args(args)
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Weir(child.expect("the binary can be started"))
    }

    /// What the running process says of itself, if it can be asked.
    fn status(&self) -> Option<Value> {
        let (code, out, _) = self.weir(&["status", "pipeline.toml", "--json"]);
        (code == 0).then(|| serde_json::from_str(&out).ok())?
    }

    /// Waits until so many more checkpoints are complete.
    fn more_checkpoints(&self, more: u64) {
        let count = || self.status().and_then(|status| status["checkpoints"].as_u64());
        let mut begun = None;
        for _ in 0..LOOKS_MAX {
            if let Some(count) = count() {
                let begun = *begun.get_or_insert(count);
                if count >= begun + more {
                    return;
                }
            }
            pause(20);
        }
        panic!("no checkpoints: {}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    fn stop(&self, mut running: Weir) {
        self.ok(&["stop", "pipeline.toml"]);
        assert_eq!(running.end(), Some(0), "{}", self.log());
    }

    fn store(&self) -> Store {
        Store::open("file://./.weir", self.path()).expect("the store opens")
    }

    /// The version that the newest checkpoint names: what the owner of the job starts it with.
    fn version_in_the_tip(&self) -> u8 {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let found = runtime.block_on(look_for(&self.store(), "place", None)).unwrap();
        let plugin = found.and_then(|found| found.manifest.node("op")?.plugin.clone());
        plugin.map_or(1, |plugin| plugin.version.as_bytes()[0] - b'0')
    }

    fn refused(&self) -> Vec<String> {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let all = runtime.block_on(refused(&self.store(), "place")).unwrap();
        all.into_iter().map(|refused| format!("{} {}", refused.node, refused.version)).collect()
    }

    /// Checks all that is published, record by record. Gives how many records each version had.
    fn check(&self) -> BTreeMap<u64, u64> {
        let mut by_version = BTreeMap::new();
        // The parts of a subtask, `part-SUBTASK-NUMBER`, follow each other over the epochs.
        let mut by_part: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        for epoch in weir_tests::published(&self.path().join("out")).expect("whole epochs") {
            for (part, bytes) in epoch.parts {
                for line in String::from_utf8_lossy(&bytes).lines() {
                    let record: Value = serde_json::from_str(line).expect("a record");
                    let (total, version) = (record["total"].as_u64().unwrap(), record["version"].as_u64().unwrap());
                    *by_version.entry(version).or_default() += 1;
                    by_part.entry(part.chars().take("part-00000".len()).collect()).or_default().push((total, version));
                }
            }
        }
        assert!(by_part.len() <= 2, "{:?}", by_part.keys());
        for (part, seen) in &by_part {
            let totals = seen.iter().map(|(total, _)| *total);
            assert!(totals.eq(1..=seen.len() as u64), "{part}: a record is lost, repeated or out of order");
        }
        // What is after the operator agrees.
        let mut counts: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for record in weir_tests::json_lines(&self.path().join("counts")) {
            let is_new = counts.entry(record["key"].to_string()).or_default().insert(record["count"].as_u64().unwrap());
            assert!(is_new, "{record} came twice");
        }
        let counted: u64 = counts.values().map(|counts| counts.len() as u64).sum();
        assert_eq!(counted, by_version.values().sum::<u64>());
        by_version
    }
}

/// A process; killed when the test fails.
struct Weir(Child);

impl Weir {
    fn end(&mut self) -> Option<i32> {
        self.0.wait().expect("it can be waited for").code()
    }

    fn kill(&mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it can be waited for");
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_operator_is_upgraded_while_it_runs_and_bad_versions_leave_no_trace_in_the_output() {
    let place = Place::new("rate = 20_000");
    let mut running = place.start();
    place.more_checkpoints(2);

    // Nothing happens where something is wrong with the wish.
    for (code, args, part) in [
        (2, &["nobody", "v2.wasm"][..], "has no operator \"nobody\"; its operators are: keyed, op"),
        (2, &["op", "./v9.wasm"], "cannot be found"),
        (2, &["op", "v2.wasm", "--canary", "1"], "not possible yet"),
        (3, &["op", "count"], "runs plugin \"versioned\", and the new one is plugin \"count\""),
        (2, &["op", "--config", "[]"], "not a JSON object"),
        (3, &["op", "v4.wasm"], "this is not its state"),
    ] {
        let said = place.fails(code, &[&["upgrade", "pipeline.toml"], args].concat());
        assert!(said.contains(part), "{args:?}: {said}");
    }

    // One that traps after it has taken over is taken back, and the process goes on.
    let said = place.fails(3, &["upgrade", "pipeline.toml", "op", "v3.wasm"]);
    assert!(said.contains("taken back") && said.contains("trapped in snapshot"), "{said}");
    assert_eq!(place.refused(), ["op 3.0.0"]);
    place.more_checkpoints(2);
    assert_eq!(place.status().unwrap()["restarts"], 1);
    let listed = place.ok(&["checkpoint", "list", "pipeline.toml"]);
    assert!(!listed.is_empty());

    // A slow one is given up: two records in one batch take it a tenth of a second.
    let said = place.fails(3, &["upgrade", "pipeline.toml", "op", "v5.wasm", "--catch-up", "300ms"]);
    assert!(said.contains("too slow"), "{said}");

    // A good one takes over, after its output was compared.
    let out = place.ok(&["upgrade", "pipeline.toml", "op", "v2.wasm", "--shadow", "300ms", "--json"]);
    let report: Value = serde_json::from_str(&out).expect("a report");
    assert_eq!((&report["from"]["version"], &report["to"]["version"]), (&"1.0.0".into(), &"2.0.0".into()), "{out}");
    assert_eq!(report["pauses_us"].as_array().map(Vec::len), Some(2), "{out}");
    // Each record says another version.
    assert!(report["compared"]["differing_calls"].as_u64() > Some(0), "{out}");
    assert_eq!(report["compared"]["ports"][0]["old_bytes"], report["compared"]["ports"][0]["new_bytes"], "{out}");
    // Another configuration goes the same way, and so does one that the operator refuses.
    let said = place.ok(&["upgrade", "pipeline.toml", "keyed", "--config", "{\"format\":\"json\"}"]);
    assert!(said.contains("differed in 0") && said.contains("its new config"), "{said}");
    let said = place.fails(3, &["upgrade", "pipeline.toml", "keyed", "--config", "{\"fromat\":\"json\"}"]);
    assert!(said.contains("fromat"), "{said}");
    place.more_checkpoints(2);
    assert_eq!(place.status().unwrap()["restarts"], 1);
    assert!(running.0.try_wait().unwrap().is_none(), "{}", place.log());

    // The file still names version 1, which does not read the state of version 2.
    place.stop(running);
    assert_eq!(place.version_in_the_tip(), 2);
    // Each epoch is done again by the version that its checkpoint names, the first of the new one among them.
    for from in [&report["restored"], &report["swapped"], &report["confirmed"]] {
        place.ok(&["checkpoint", "verify", "pipeline.toml", "--replay", &from.to_string()]);
    }
    let said = place.fails(4, &["run", "pipeline.toml"]);
    assert!(said.contains("its state has version 2"), "{said}");
    place.write(2, "rate = 20_000");
    running = place.start();
    place.more_checkpoints(2);
    place.stop(running);
    let by_version = place.check();
    assert_eq!(by_version.keys().copied().collect::<Vec<_>>(), [1, 2], "{by_version:?}");
}

/// Killed at moments of chance while upgrades are made, to the next version and back; in the end nothing is lost or
/// repeated.
#[test]
fn a_process_that_is_killed_in_any_phase_of_an_upgrade_goes_on_with_the_code_that_its_checkpoint_names() {
    const PHASES: [&str; 4] = ["recording", "restoring", "shadowing", "watched"];
    let seed = std::env::var("WEIR_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("seed {seed}; WEIR_TEST_SEED sets another one");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let place = Place::new("rate = 10_000");
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut wins: BTreeMap<u8, u64> = BTreeMap::new();
    for round in 0..16 {
        let is = place.version_in_the_tip();
        place.write(is, "rate = 10_000");
        let mut running = place.start();
        place.more_checkpoints(1);
        // Back and forth: both write the same format.
        let next = if is == 2 { "v6.wasm" } else { "v2.wasm" };
        let shadow = if round % 4 == 2 { "1s" } else { "0s" };
        let mut asked = place.upgrade_aside(&[next, "--shadow", shadow]);
        let wanted = PHASES[round % PHASES.len()];
        let mut phase = "none".to_owned();
        // Where that phase does not show, it is killed in another.
        for _ in 0..40 {
            let status = place.status().expect("it runs");
            match status["upgrade"]["phase"].as_str() {
                Some(is) => phase = is.to_owned(),
                None if phase != "none" => phase = "confirmed".to_owned(),
                None => {}
            }
            if phase == wanted || phase == "confirmed" {
                break;
            }
        }
        pause(u64::from(random.next_u32() % 40));
        running.kill();
        asked.kill();
        *seen.entry(phase).or_default() += 1;
        *wins.entry(place.version_in_the_tip()).or_default() += 1;
    }
    println!("killed while the upgrade was {seen:?}; the newest checkpoint was of version {wins:?}");
    place.write(place.version_in_the_tip(), "rate = 10_000");
    let running = place.start();
    place.more_checkpoints(2);
    place.stop(running);
    let by_version = place.check();
    assert!(by_version[&1] > 0, "{by_version:?}");
    assert_eq!(place.refused(), Vec::<String>::new());
}
