//! Savepoints on the real process: made beside a running job and at its stop, started from with another shape, and moved elsewhere.
//!
//! Output is compared with a plain program that makes the same records and counts them.
//!
//! Invariants: I2 and I11 (a job goes on whole in another shape), I9 (what is pinned is kept), I10 and I13.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

const KEYS: u64 = 100;
/// The most subtasks of a source here.
const SOURCE_SUBTASKS_MAX: u64 = 3;

/// A folder with a pipeline that counts made-up records by key.
struct Place {
    folder: tempfile::TempDir,
}

/// How a pipeline differs from the plain one.
#[derive(Clone, Copy)]
struct Shape<'a> {
    /// Subtasks of the source, the operator and the sink.
    parallelism: (u32, u32, u32),
    /// How many records there are; none: no end, so that a test decides where a run stops and not how fast it is.
    records: Option<u64>,
    /// Records a second; none: as fast as it goes.
    rate: Option<u32>,
    /// More tables.
    more: &'a str,
    retain: u32,
}

const PLAIN: Shape<'_> = Shape { parallelism: (2, 2, 2), records: None, rate: Some(8_000), more: "", retain: 3 };

impl Place {
    fn new(shape: Shape<'_>) -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a folder") };
        place.write(shape);
        place
    }

    fn write(&self, shape: Shape<'_>) {
        let rate = shape.rate.map_or(String::new(), |rate| format!("rate = {rate}"));
        let records = shape.records.map_or(String::new(), |records| format!("records = {records}"));
        let (source, operator, sink) = shape.parallelism;
        let text = format!(
            r#"
name = "place"

[checkpoint]
interval = "50ms"
retain = {}

[source.made]
connector = "generator"
{records}
keys = {KEYS}
format = "json"
parallelism = {source}
{rate}

[operator.count]
plugin = "count"
inputs = [{{ from = "made", exchange = "keyed" }}]
parallelism = {operator}

[sink.counts]
connector = "file"
inputs = [{{ from = "count", exchange = "rebalance" }}]
parallelism = {sink}
path = "out"
format = "json"
{}
"#,
            shape.retain, shape.more
        );
        fs::write(self.path().join("pipeline.toml"), text).expect("the pipeline can be written");
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        weir_tests::run(self.path(), args)
    }

    /// Runs a command that must succeed, and gives its standard output.
    fn ok(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(args);
        assert_eq!(code, 0, "{args:?}: {stderr}");
        stdout
    }

    /// Runs a command that must fail with this code, and gives its standard error.
    fn fails(&self, code: i32, args: &[&str]) -> String {
        let (got, stdout, stderr) = self.run(args);
        assert_eq!(got, code, "{args:?}: {stdout}{stderr}");
        stderr
    }

    fn start(&self, more: &[&str]) -> Running {
        let child = Command::new(weir_tests::weir())
            .args(["run", "--quiet", "pipeline.toml"])
            .args(more)
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        Running(Some(child.expect("the binary can be started")))
    }

    /// Checkpoints that `weir checkpoint list` shows, by epoch.
    fn epochs(&self) -> Vec<u64> {
        let (_, stdout, _) = self.run(&["checkpoint", "list", "pipeline.toml", "--json"]);
        let rows: Vec<Value> = serde_json::from_str(&stdout).unwrap_or_default();
        rows.iter().filter_map(|row| row["epoch"].as_u64()).collect()
    }

    fn wait_for_checkpoints(&self, more: u64) {
        let newest = || self.epochs().into_iter().max().unwrap_or(0);
        let before = newest();
        wait_until("checkpoints", || newest() >= before + more);
    }

    /// Stops the job with a savepoint, and waits for its process.
    fn stop(&self, running: Running, savepoint: &str) {
        let said = self.ok(&["stop", "pipeline.toml", "--savepoint", savepoint]);
        assert!(said.contains(&format!("kept as savepoint {savepoint}")), "{said}");
        let (code, stderr) = running.wait();
        assert_eq!(code, 0, "{stderr}");
    }

    /// The records that were published.
    fn out(&self) -> Vec<Value> {
        weir_tests::json_lines(&self.path().join("out"))
    }

    /// An end that is after every record that was made up to the newest checkpoint: of n records that the subtasks of a run make none is farther
    /// than `subtasks * (n + 1)` from where it began.
    fn end(&self) -> u64 {
        let shown: Value =
            serde_json::from_str(&self.ok(&["checkpoint", "show", "pipeline.toml", "--json"])).expect("JSON");
        let subtasks = shown["subtasks"].as_array().expect("subtasks").iter();
        let made: u64 =
            subtasks.filter(|task| task["kind"] == "source").filter_map(|task| task["records"].as_u64()).sum();
        SOURCE_SUBTASKS_MAX * (made + 10) + 200
    }
}

/// A process that is killed when the test fails.
struct Running(Option<Child>);

impl Running {
    /// Waits for it. Gives its exit code and standard error.
    fn wait(mut self) -> (i32, String) {
        let output = self.0.take().expect("it runs").wait_with_output().expect("it can be waited for");
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn kill(mut self) -> String {
        let mut child = self.0.take().expect("it runs");
        child.kill().expect("it can be killed");
        String::from_utf8_lossy(&child.wait_with_output().expect("it can be waited for").stderr).into_owned()
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

/// The plain program: how often each key is made. The generator's key of record `i` is `splitmix64(i) % keys`.
fn plain(records: u64) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for i in 0..records {
        let mut z = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        *counts.entry(((z ^ (z >> 31)) % KEYS).to_string()).or_default() += 1;
    }
    counts
}

/// The counts of each key are 1 to as many as the plain program makes, each once.
fn assert_whole(out: &[Value], records: u64) {
    let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for row in out {
        let key = row["key"].as_str().unwrap_or_else(|| panic!("{row}")).to_owned();
        seen.entry(key).or_default().push(row["count"].as_u64().unwrap_or_else(|| panic!("{row}")));
    }
    let plain = plain(records);
    assert_eq!(seen.len(), plain.len());
    for (key, mut counts) in seen {
        counts.sort_unstable();
        assert!(counts.into_iter().eq(1..=plain[&key]), "key {key}");
    }
    assert_eq!(out.len() as u64, records);
}

/// The table of `weir check --from`, without what differs from run to run: the epoch, how much state there is and how wide that is.
fn state_table(said: &str) -> String {
    let (_, table) =
        said.split_once("\nstate, from checkpoint ").unwrap_or_else(|| panic!("no table of state: {said}"));
    let (_, table) = table.split_once('\n').expect("rows");
    let mut text = String::from("state, from checkpoint EPOCH\n");
    for line in table.lines() {
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        let cells: Vec<&str> =
            cells.iter().map(|cell| if cell.ends_with("iB") || cell.ends_with(" B") { "SIZE" } else { cell }).collect();
        text.push_str(&cells.join(" | "));
        text.push('\n');
    }
    text
}

/// Compares with a golden file; `UPDATE_GOLDEN=1` rewrites it.
fn golden(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/savepoints").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        fs::write(&file, text).expect("the golden file can be written");
    }
    assert_eq!(
        fs::read_to_string(&file).unwrap_or_default(),
        text,
        "{name}: not as expected (UPDATE_GOLDEN=1 rewrites)"
    );
}

#[test]
fn a_job_goes_from_2_to_5_to_1_subtasks_under_load_and_its_output_is_exact() {
    let place = Place::new(PLAIN);
    let running = place.start(&[]);
    place.wait_for_checkpoints(3);
    place.stop(running, "two");
    let some = place.out().len();
    assert!(some > 0);

    place.write(Shape { parallelism: (3, 5, 3), ..PLAIN });
    let said = place.ok(&["check", "pipeline.toml", "--from", "two"]);
    assert!(said.contains("moved") && said.contains("from 2 to 5 subtasks"), "{said}");
    // Killed at once, perhaps before a checkpoint of the new shape: the next run carries the same savepoint over again.
    let running = place.start(&["--from", "two"]);
    wait_until("the claim", || {
        place.ok(&["checkpoint", "list", "pipeline.toml", "--all"]).matches("claim").count() >= 2
    });
    running.kill();
    let running = place.start(&[]);
    place.wait_for_checkpoints(3);
    // Killed in the new shape, and restored in it: what was snapshot after the move is whole.
    running.kill();
    let running = place.start(&[]);
    place.wait_for_checkpoints(3);
    place.stop(running, "five");
    assert!(place.out().len() > some);

    let records = place.end();
    place.write(Shape { parallelism: (1, 1, 1), records: Some(records), rate: None, ..PLAIN });
    let running = place.start(&["--from", "five"]);
    let (code, stderr) = running.wait();
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("its state is moved"), "{stderr}");
    assert_whole(&place.out(), records);
}

#[test]
fn a_savepoint_beside_a_running_job_is_kept_while_its_packs_are_collected_around_it() {
    let place = Place::new(Shape { retain: 1, rate: Some(2_000), ..PLAIN });
    let running = place.start(&[]);
    place.wait_for_checkpoints(2);
    let said = place.ok(&["savepoint", "create", "pipeline.toml", "kept"]);
    assert!(said.starts_with("savepoint kept of job place keeps checkpoint "), "{said}");
    let listed: Vec<Value> =
        serde_json::from_str(&place.ok(&["savepoint", "list", "pipeline.toml", "--json"])).expect("JSON");
    let epoch = listed[0]["epoch"].as_u64().expect("an epoch");
    assert_eq!(listed[0]["name"], "kept");
    // More checkpoints than lie between two collections, and only one is retained.
    wait_until("a collection", || place.epochs().iter().all(|&retained| retained > epoch + 20));
    // The log has it no more, the pin has, and every byte that it names is there.
    let said = place.ok(&["checkpoint", "verify", "pipeline.toml", "-e", &epoch.to_string()]);
    assert!(said.contains("is sound"), "{said}");
    place.stop(running, "last");

    let newest = place.epochs().into_iter().max().expect("a checkpoint");
    let said = place.fails(2, &["run", "pipeline.toml", "--from", "kept"]);
    assert!(said.contains("--republish") && said.contains(&newest.to_string()), "{said}");
    let said = place.fails(2, &["run", "pipeline.toml", "--from", "nothing-like-it"]);
    assert!(said.contains("no savepoint \"nothing-like-it\"; it has kept, last"), "{said}");
    // Started from, it produces again what came after it: the same records, and nothing is missing.
    let before = place.out();
    let records = place.end();
    place.write(Shape { retain: 1, records: Some(records), rate: None, ..PLAIN });
    place.ok(&["run", "--quiet", "pipeline.toml", "--from", "kept", "--republish"]);
    let all = place.out();
    let repeated = all.len() - records as usize;
    assert!(repeated > 0 && repeated <= before.len(), "{repeated} of {}", before.len());
    let once = [&all[..before.len() - repeated], &all[before.len()..]].concat();
    assert_whole(&once, records);

    let said = place.ok(&["savepoint", "delete", "pipeline.toml", "kept"]);
    assert!(said.contains("is deleted"), "{said}");
    let said = place.fails(2, &["savepoint", "delete", "pipeline.toml", "kept"]);
    assert!(said.contains("it has last"), "{said}");
}

#[test]
fn a_job_is_stopped_with_a_savepoint_and_runs_on_elsewhere_from_one_file() {
    let place = Place::new(PLAIN);
    let running = place.start(&[]);
    place.wait_for_checkpoints(3);
    place.stop(running, "move");
    let said = place.ok(&["savepoint", "export", "pipeline.toml", "move", "move.save"]);
    assert!(said.contains("1 plugins"), "{said}");
    let said = place.fails(4, &["savepoint", "export", "pipeline.toml", "move", "move.save"]);
    assert!(said.contains("there is a file already"), "{said}");

    let records = place.end();
    let there = Place::new(Shape { records: Some(records), rate: None, parallelism: (1, 3, 1), ..PLAIN });
    let file = place.path().join("move.save");
    let file = file.to_str().expect("UTF-8");
    // A damaged file, and one of another job, leave nothing.
    let whole = fs::read(file).expect("the file");
    let bad = there.path().join("bad.save");
    for change in [whole.len() / 3, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[change] ^= 1;
        fs::write(&bad, bytes).expect("it can be written");
        let said = there.fails(4, &["run", "pipeline.toml", "--from", "./bad.save"]);
        assert!(said.contains("does not match its hash"), "{said}");
    }
    fs::write(&bad, &whole[..whole.len() / 2]).expect("it can be written");
    there.fails(4, &["run", "pipeline.toml", "--from", "bad.save"]);
    let text = fs::read_to_string(there.path().join("pipeline.toml")).expect("the pipeline");
    fs::write(there.path().join("other.toml"), text.replace("name = \"place\"", "name = \"other\"")).expect("written");
    let said = there.fails(4, &["run", "other.toml", "--from", file]);
    assert!(said.contains("a savepoint of job \"place\", and this is job \"other\""), "{said}");
    let said = there.fails(4, &["run", "pipeline.toml", "--from", "missing.save"]);
    assert!(said.contains("missing.save"), "{said}");
    let said = there.ok(&["check", "pipeline.toml", "--from", file]);
    assert!(said.contains("from 2 to 3 subtasks"), "{said}");
    assert!(!there.path().join(".weir/tenants/default/jobs").exists(), "nothing was imported");

    there.ok(&["run", "--quiet", "pipeline.toml", "--from", file]);
    let mut out = place.out();
    assert!(!out.is_empty());
    out.extend(there.out());
    assert_whole(&out, records);
    // It has a history there now, which the file would leave.
    let said = there.fails(2, &["run", "pipeline.toml", "--from", file]);
    assert!(said.contains("has run in this store") && said.contains("--fresh"), "{said}");
    let said = there.fails(4, &["run", "pipeline.toml", "--from", file, "--fresh"]);
    assert!(said.contains("cannot start afresh"), "{said}");
}

#[test]
fn nodes_come_with_nothing_and_go_only_when_they_are_named() {
    let more =
        "[sink.copy]\nconnector = \"file\"\ninputs = [\"count\"]\nparallelism = 2\npath = \"copy\"\nformat = \"json\"";
    let place = Place::new(PLAIN);
    let running = place.start(&[]);
    place.wait_for_checkpoints(2);
    place.stop(running, "without");
    let before = place.out().len();

    // A sink that is new gets what comes from now on.
    place.write(Shape { more, ..PLAIN });
    let said = place.ok(&["check", "pipeline.toml", "--from", "without"]);
    assert!(said.lines().any(|line| line.contains("copy") && line.contains("new")), "{said}");
    let running = place.start(&["--from", "without"]);
    place.wait_for_checkpoints(3);
    place.stop(running, "with");
    let copied = weir_tests::lines(&place.path().join("copy")).len();
    assert_eq!(copied, place.out().len() - before);
    assert!(copied > 0);

    // It goes only when it is named; a name that is wrong says so.
    let records = place.end();
    place.write(Shape { records: Some(records), rate: None, ..PLAIN });
    for args in [&["run", "pipeline.toml"][..], &["run", "pipeline.toml", "--from", "with"]] {
        let said = place.fails(4, args);
        assert!(said.contains("\"copy\"") && said.contains("--drop-state copy"), "{said}");
    }
    let said = place.fails(2, &["run", "pipeline.toml", "--drop-state", "copy", "--drop-state", "cpoy"]);
    assert!(said.contains("\"cpoy\""), "{said}");
    let said = place.fails(2, &["run", "pipeline.toml", "--drop-state", "copy", "--drop-state", "made"]);
    assert!(said.contains("which is no operator"), "{said}");
    let said = place.fails(4, &["check", "pipeline.toml", "--from", "with"]);
    assert!(said.contains("\"copy\""), "{said}");
    let said = place.ok(&["check", "pipeline.toml", "--from", "with", "--drop-state", "copy"]);
    assert!(said.lines().any(|line| line.contains("copy") && line.contains("dropped")), "{said}");
    // The whole answer, as people and as programs get it.
    place.write(Shape { records: Some(records), rate: None, parallelism: (2, 5, 3), ..PLAIN });
    let args = ["check", "pipeline.toml", "--from", "with", "--drop-state", "copy"];
    golden("check-from.txt", &state_table(&place.ok(&args)));
    let (_, refused, _) = place.run(&args[..4]);
    golden("check-from-refused.txt", &state_table(&refused));
    let report: Value = serde_json::from_str(&place.ok(&[&args[..], &["--json"]].concat())).expect("JSON");
    let node = |name: &str| {
        let nodes = report["state"]["nodes"].as_array().expect("nodes");
        nodes.iter().find(|node| node["node"] == name).unwrap_or_else(|| panic!("{name}: {report}")).clone()
    };
    assert_eq!((&node("count")["verdict"], &node("count")["parallelism"]), (&Value::from("moved"), &Value::from(5)));
    assert_eq!((&node("copy")["verdict"], &node("copy")["parallelism"]), (&Value::from("dropped"), &Value::Null));
    place.ok(&["run", "--quiet", "pipeline.toml", "--drop-state", "copy"]);
    assert_whole(&place.out(), records);
}

#[test]
fn another_version_of_a_plugin_takes_over_the_state_that_it_reads_and_no_other() {
    let place = Place { folder: tempfile::tempdir().expect("a folder") };
    let one = weir_tests::guests::guest("versioned");
    let word = b"versioned-version1";
    let at = one.windows(word.len()).position(|window| window == word).expect("the word is in the component");
    let mut two = one.clone();
    two[at + word.len() - 1] = b'2';
    let write = |plugin: &[u8], parallelism: u32, end: &str| {
        fs::write(place.path().join("op.wasm"), plugin).expect("it can be written");
        let text = format!(
            r#"
name = "place"
[checkpoint]
interval = "50ms"
[source.made]
connector = "generator"
format = "json"
{end}
[operator.op]
plugin = "op.wasm"
inputs = [{{ from = "made", exchange = "rebalance" }}]
parallelism = {parallelism}
[sink.out]
connector = "file"
inputs = [{{ from = "op", exchange = "rebalance" }}]
path = "out"
format = "json"
"#
        );
        fs::write(place.path().join("pipeline.toml"), text).expect("it can be written");
    };
    write(&one, 1, "rate = 8_000");
    let running = place.start(&[]);
    place.wait_for_checkpoints(2);
    place.stop(running, "old");
    let counted = place.out().len() as u64;

    // State of a subtask alone is not split.
    write(&one, 2, "rate = 8_000");
    let said = place.fails(4, &["run", "pipeline.toml"]);
    assert!(said.contains("\"op\"") && said.contains("belong to subtask 0 alone and cannot be split"), "{said}");

    write(&two, 1, "rate = 8_000");
    let said = place.ok(&["check", "pipeline.toml", "--from", "old"]);
    assert!(said.contains("versioned 2.0.0 takes over the state of 1.0.0, from state version 1 to 2"), "{said}");
    let running = place.start(&["--from", "old"]);
    place.wait_for_checkpoints(3);
    place.stop(running, "new");
    let two_counted = place.out().len() as u64;
    assert!(two_counted > counted);

    // Back again it cannot, and says why.
    write(&one, 1, "");
    let said = place.fails(4, &["run", "pipeline.toml"]);
    assert!(said.contains("its state has version 2, and plugin versioned 1.0.0 reads versions 1 to 1"), "{said}");
    let records = place.end();
    write(&two, 1, &format!("records = {records}"));
    place.ok(&["run", "--quiet", "pipeline.toml"]);
    let mut totals = place.out();
    assert!(totals.iter().enumerate().all(|(at, row)| row["version"] == if (at as u64) < counted { 1 } else { 2 }));
    totals.sort_by_key(|row| row["total"].as_u64());
    let totals: Vec<_> = totals.iter().filter_map(|row| row["total"].as_u64()).collect();
    assert!(totals.into_iter().eq(1..=records));
}

#[test]
fn a_running_job_is_asked_changed_and_stopped_by_its_owner() {
    let place = Place::new(Shape { rate: Some(4_000), ..PLAIN });
    let said = place.fails(2, &["stop", "pipeline.toml"]);
    assert!(said.contains("job \"place\" does not run here"), "{said}");
    let said = place.fails(2, &["status", "pipeline.toml"]);
    assert!(said.contains("never ran"), "{said}");
    assert!(!place.path().join(".weir").exists(), "nothing was made");
    let running = place.start(&[]);
    place.wait_for_checkpoints(1);

    let status: Value = serde_json::from_str(&place.ok(&["status", "pipeline.toml", "--json"])).expect("JSON");
    assert_eq!((&status["job"], &status["generation"]), (&Value::from("place"), &Value::from(1)));
    let said = place.ok(&["status", "pipeline.toml"]);
    assert!(said.contains("job place is ") && said.contains("interval 50ms") && said.contains("counts"), "{said}");
    // By the name of the store as well.
    let said = place.ok(&["status", "place", "--store", "file://./.weir"]);
    assert!(said.contains("job place is "), "{said}");

    let said = place.ok(&["checkpoint", "set", "pipeline.toml", "--interval", "1h", "--retain", "9"]);
    assert!(said.contains("interval: 50ms -> 1h\nretain: 3 -> 9\n") && said.contains("pipeline file"), "{said}");
    let said = place.fails(2, &["checkpoint", "set", "pipeline.toml", "--interval", "1ms"]);
    assert!(said.contains("interval is 1ms, and it has to be from 10ms"), "{said}");
    let said = place.fails(2, &["checkpoint", "set", "pipeline.toml"]);
    assert!(said.contains("no setting is named"), "{said}");
    place.fails(2, &["checkpoint", "set", "pipeline.toml", "--interval", "soon"]);

    // With an hour between checkpoints, one comes when it is asked for.
    let newest = || place.epochs().into_iter().max().unwrap_or(0);
    let said = place.ok(&["checkpoint", "now", "pipeline.toml"]);
    let one = newest();
    assert_eq!(said, format!("checkpoint {one} of job place is complete and committed\n"));
    assert_eq!(
        place.ok(&["checkpoint", "now", "pipeline.toml"]),
        format!("checkpoint {} of job place is complete and committed\n", one + 1)
    );
    let said = place.ok(&["checkpoint", "set", "pipeline.toml", "--interval", "20ms"]);
    assert!(said.contains("1h -> 20ms"), "{said}");
    wait_until("checkpoints by themselves", || newest() > one + 3);

    let said = place.fails(2, &["savepoint", "create", "pipeline.toml", "Not-A-Name"]);
    assert!(said.contains("lower-case"), "{said}");
    place.ok(&["savepoint", "create", "pipeline.toml", "a"]);
    let said = place.fails(2, &["savepoint", "create", "pipeline.toml", "a"]);
    assert!(said.contains("has a savepoint \"a\" already"), "{said}");
    let said = place.ok(&["stop", "pipeline.toml"]);
    assert!(said.starts_with("job place has stopped with checkpoint "), "{said}");
    let (code, stderr) = running.wait();
    assert_eq!(code, 0, "{stderr}");
    let said = place.ok(&["status", "pipeline.toml"]);
    assert!(said.contains("does not run here; it goes on from checkpoint"), "{said}");
    let records = place.end();
    place.write(Shape { records: Some(records), rate: None, ..PLAIN });
    place.ok(&["run", "--quiet", "pipeline.toml"]);
    let said = place.ok(&["status", "pipeline.toml"]);
    assert!(said.contains("it finished with checkpoint"), "{said}");
    assert_whole(&place.out(), records);
}
