//! The crash table (DESIGN §5, `docs/sinks.md`) on the real process: a test for each row, for each sink that promises exactly-once.
//!
//! Checkpoints are on a server in this process, which sees every storage operation and may end, stop or fail the process at any
//! of them: so each row happens at its very place and not by chance. What is on disk is looked at with the command, as a user
//! would; a reader looks at the output after each end and sees whole epochs only; and at the end the output is that of a run
//! that nobody disturbed. (Power that is lost instead of the process: `tests/power.rs`.)

#![allow(clippy::unwrap_used)] // All of it is tests, also what is not in a function of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use weir_tests::s3::{Asked, Fate, S3Server};

const RECORDS: usize = 2_000;
const KEYS: usize = 20;

/// Which sink the pipeline has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    File,
    Object,
}

const SINKS: [Sink; 2] = [Sink::File, Sink::Object];

/// A job in a folder, its store on a server.
struct Case {
    server: S3Server,
    folder: tempfile::TempDir,
    sinks: Vec<(&'static str, Sink)>,
}

/// A process that was started; killed when a test fails.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Run {
    fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits for its end: its exit code, none if it was killed.
    fn end(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

/// Which process the server's decisions are about.
type Process = Arc<AtomicU32>;

impl Case {
    fn new(sinks: &[(&'static str, Sink)], settings: &str) -> Self {
        Self::paced(sinks, settings, 1_000)
    }

    /// `rate` records a second: from start to end `RECORDS / rate` seconds, whatever happens meanwhile.
    fn paced(sinks: &[(&'static str, Sink)], settings: &str, rate: usize) -> Self {
        let server = S3Server::start();
        let folder = tempfile::tempdir().unwrap();
        let options = server.options();
        let mut text = format!(
            r#"
name = "crash"

[checkpoint]
store = "s3://bucket/weir"
{options}
interval = "80ms"
timeout = "10s"
retain = 2
inline = "0B"
{settings}

[restart]
attempts = 0

[source.lines]
connector = "file"
path = "input.jsonl"
format = "json"
rate = {rate}

[operator.count]
plugin = "count"
inputs = [{{ from = "lines", key = "/key" }}]
parallelism = 2
"#
        );
        for (name, sink) in sinks {
            text += &format!("\n[sink.{name}]\ninputs = [\"count\"]\nparallelism = 2\nformat = \"json\"\n");
            text += &match sink {
                Sink::File => format!("connector = \"file\"\npath = \"{name}\"\n"),
                Sink::Object => format!("connector = \"object\"\nurl = \"s3://bucket/{name}\"\n{options}\n"),
            };
        }
        fs::write(folder.path().join("pipeline.toml"), text).unwrap();
        let input: String = (0..RECORDS).map(|n| format!("{{\"key\":\"k{}\",\"n\":{n}}}\n", n * n % KEYS)).collect();
        fs::write(folder.path().join("input.jsonl"), input).unwrap();
        Self { server, folder, sinks: sinks.to_vec() }
    }

    fn one(sink: Sink) -> Self {
        Self::new(&[("out", sink)], "")
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn weir(&self, args: &[&str]) -> (i32, String, String) {
        weir_tests::run(self.path(), args)
    }

    /// The same on another machine: what runs here cannot be asked from there.
    fn weir_elsewhere(&self, args: &[&str]) -> (i32, String) {
        let output = Command::new(weir_tests::weir())
            .args(args)
            .current_dir(self.path())
            .env("XDG_RUNTIME_DIR", tempfile::tempdir().unwrap().path())
            .output()
            .unwrap();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn json(&self, args: &[&str]) -> Value {
        let mut args = args.to_vec();
        args.extend(["pipeline.toml", "--json"]);
        let (code, stdout, stderr) = self.weir(&args);
        assert_eq!(code, 0, "{args:?}: {stderr}");
        serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {stdout}"))
    }

    fn start(&self) -> Run {
        let log = fs::File::options().create(true).append(true).open(self.path().join("log")).unwrap();
        let child = Command::new(weir_tests::weir())
            .args(["run", "--quiet", "pipeline.toml"])
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Run(child)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    /// Starts a run; the `nth` request that `chosen` picks (from 1) meets this fate, and all others work.
    fn start_and(
        &self,
        nth: u32,
        chosen: impl Fn(&Asked) -> bool + Send + 'static,
        fate: impl Fn(u32) -> Fate + Send + 'static,
    ) -> Run {
        let process = Process::default();
        let (mut count, known) = (0, Arc::clone(&process));
        self.server.decide(move |asked| {
            count += u32::from(chosen(asked));
            if count == nth && chosen(asked) { fate(known.load(Ordering::SeqCst)) } else { Fate::Works }
        });
        let run = self.start();
        process.store(run.id(), Ordering::SeqCst);
        run
    }

    /// Runs until it is killed at such a request.
    fn killed(
        &self,
        nth: u32,
        chosen: impl Fn(&Asked) -> bool + Send + 'static,
        fate: impl Fn(u32) -> Fate + Send + 'static,
    ) {
        let code = self.start_and(nth, chosen, fate).end();
        assert_eq!(code, None, "it ended by itself: {}", self.log());
        self.server.heal();
        self.visible();
    }

    /// What a reader sees: the epochs of each sink, whole.
    fn visible(&self) -> BTreeMap<&'static str, Vec<weir_tests::PublishedEpoch>> {
        let of = |(name, sink): &(&'static str, Sink)| {
            let published = match sink {
                Sink::File => weir_tests::published(&self.path().join(name)),
                Sink::Object => weir_tests::published_objects(&self.server, &format!("bucket/{name}")),
            };
            let published = published.unwrap_or_else(|fault| panic!("a reader saw {fault}"));
            (*name, published.into_iter().filter(|epoch| !epoch.parts.is_empty()).collect())
        };
        self.sinks.iter().map(of).collect()
    }

    /// The newest epoch that a sink shows.
    fn newest(&self, sink: &str) -> Option<u64> {
        self.visible()[sink].last().map(|epoch| epoch.epoch)
    }

    /// Runs to the end, and finds that the output is what an undisturbed run gives: each key counted from one, in order, once. Gives what it said.
    fn finish(&self) -> String {
        self.server.heal();
        let (code, _, stderr) = self.weir(&["run", "--quiet", "pipeline.toml"]);
        assert_eq!(code, 0, "{stderr}");
        self.check_output();
        assert_eq!(self.open(), Vec::<(String, String, u64)>::new());
        stderr
    }

    fn check_output(&self) {
        for (sink, epochs) in self.visible() {
            let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
            for part in epochs.iter().flat_map(|epoch| epoch.parts.values()) {
                for line in String::from_utf8_lossy(part).lines() {
                    let line: Value = serde_json::from_str(line).unwrap();
                    counts.entry(line["key"].to_string()).or_default().push(line["count"].as_u64().unwrap());
                }
            }
            assert_eq!(counts.values().map(Vec::len).sum::<usize>(), RECORDS, "{sink}");
            for (key, counts) in counts {
                assert!(counts.iter().copied().eq(1..=counts.len() as u64), "{sink}, {key}: {counts:?}");
            }
        }
    }

    /// What `weir txn list` says: sink, state, epoch.
    fn open(&self) -> Vec<(String, String, u64)> {
        let listed = self.json(&["txn", "list"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let rows = listed.as_array().unwrap().iter();
        rows.map(|row| (text(&row["sink"]), text(&row["state"]), row["epoch"].as_u64().unwrap())).collect()
    }

    fn states(&self) -> Vec<String> {
        self.open().into_iter().map(|(_, state, _)| state).collect()
    }

    /// Epochs of the checkpoints in the log, with whether they are committed.
    fn checkpoints(&self) -> Vec<(u64, bool)> {
        let listed = self.json(&["checkpoint", "list"]);
        let rows = listed.as_array().unwrap().iter();
        rows.map(|row| (row["epoch"].as_u64().unwrap(), row["committed"] == true)).collect()
    }
}

/// A checkpoint on its way into the log: not the claim, which comes first and is the only entry of a first run before any pack.
fn manifest(asked: &Asked) -> bool {
    asked.verb == "PUT" && asked.key.contains("/log/") && !asked.key.ends_with("/log/00000000000000000001")
}

fn marker(asked: &Asked) -> bool {
    asked.verb == "PUT" && asked.key.contains("/committed/")
}

fn record(sink: &'static str) -> impl Fn(&Asked) -> bool + Send {
    move |asked| asked.verb == "PUT" && asked.key.contains(&format!("/{sink}/_weir/commits/"))
}

fn pack(asked: &Asked) -> bool {
    asked.verb == "PUT" && asked.key.contains("/packs/")
}

/// The last look at whether a later run took over, before the commit of a checkpoint: what follows it is the commit.
fn permit(asked: &Asked) -> bool {
    asked.verb == "HEAD" && asked.key.contains("/id/") && asked.key.ends_with("2")
}

/// I4, I5: what was staged for it is never seen.
#[test]
fn dies_before_the_manifest_then_the_checkpoint_before_is_restored_and_the_rest_replayed() {
    for sink in SINKS {
        let case = Case::one(sink);
        case.killed(3, manifest, Fate::KillsBefore);
        let before = case.checkpoints();
        assert_eq!(before.last().map(|(_, committed)| *committed), Some(true), "{sink:?}");
        assert_eq!(case.newest("out"), before.last().map(|(epoch, _)| *epoch), "{sink:?}");
        assert_eq!(case.states(), Vec::<String>::new(), "{sink:?}");
        case.finish();
    }
}

/// I5, and rule 7: an attempt that fails while the job runs on is subsumed.
#[test]
fn an_attempt_fails_and_the_process_lives_then_the_next_carries_what_it_prepared() {
    for sink in SINKS {
        // Long enough that the attempt is not the last one.
        let case = Case::paced(&[("out", sink)], "tolerated_failures = 5", 500);
        let mut packs = 0;
        // All tries of the client and of the store above it, for a few packs in the middle.
        case.server.decide(move |asked| {
            packs += u32::from(pack(asked));
            if pack(asked) && (5..45).contains(&packs) { Fate::FailsBefore } else { Fate::Works }
        });
        let run = case.start();
        assert_eq!(run.end(), Some(0), "{}", case.log());
        assert!(case.log().contains("checkpoint failed; the next one carries"), "{}", case.log());
        case.check_output();
        let carried = case.visible()["out"].iter().any(|epoch| epoch.parts.len() > 2);
        assert!(carried, "{sink:?}: some epoch holds what two attempts prepared");
    }
}

/// I4: the manifest is there, so it is committed before any sink opens.
#[test]
fn dies_after_the_manifest_before_any_commit_then_it_is_restored_and_committed_first() {
    for sink in SINKS {
        let case = Case::one(sink);
        case.killed(3, manifest, Fate::KillsAfter);
        let (tip, committed) = *case.checkpoints().last().unwrap();
        assert!(!committed && case.newest("out") < Some(tip), "{sink:?}");
        assert_eq!(case.open(), [("out".to_owned(), "prepared".to_owned(), tip)], "{sink:?}");
        case.finish();
        assert!(case.visible()["out"].iter().any(|epoch| epoch.epoch == tip), "{sink:?}: {tip} was committed");
    }
}

/// Those already applied are recognised.
#[test]
fn dies_between_commits_of_several_sinks_then_all_commit_again_and_those_that_had_are_recognised() {
    for (first, second) in [(Sink::File, Sink::Object), (Sink::Object, Sink::Object)] {
        let case = Case::new(&[("a", first), ("b", second)], "");
        case.killed(3, record("b"), Fate::KillsBefore);
        let (tip, committed) = *case.checkpoints().last().unwrap();
        assert!(!committed);
        assert_eq!(case.states(), ["published", "prepared"], "{first:?}");
        let (code, _, stderr) = case.weir(&["txn", "abort", "pipeline.toml", "--yes"]);
        assert!(code == 4 && stderr.contains("published") && stderr.contains("weir txn commit"), "{stderr}");
        case.finish();
        for (_, epochs) in case.visible() {
            assert_eq!(epochs.iter().filter(|epoch| epoch.epoch == tip).count(), 1);
        }
    }
    // The other way round: a commit that is a rename comes after the one that is a record.
    let case = Case::new(&[("a", Sink::Object), ("b", Sink::File)], "");
    case.killed(3, record("a"), Fate::KillsAfter);
    assert_eq!(case.states(), ["published", "prepared"]);
    case.finish();
}

/// I6: read the place.
#[test]
fn the_outcome_of_the_manifests_put_is_unknown_then_it_is_found_by_reading() {
    for sink in SINKS {
        for fate in [Fate::FailsAfter, Fate::Drops, Fate::FailsBefore] {
            let case = Case::one(sink);
            let run = case.start_and(3, manifest, move |_| fate);
            assert_eq!(run.end(), Some(0), "{sink:?}, {fate:?}: {}", case.log());
            case.check_output();
        }
        // The process that does not know dies, and so does its knowledge.
        let case = Case::one(sink);
        let process = Process::default();
        let (mut count, known) = (0, Arc::clone(&process));
        case.server.decide(move |asked| {
            count += u32::from(manifest(asked));
            match asked.verb.as_str() {
                "PUT" if manifest(asked) && count == 3 => Fate::FailsAfter,
                // Whatever it asks the log then: whether its manifest is there.
                _ if count >= 3 && asked.key.contains("/log/") => Fate::KillsBefore(known.load(Ordering::SeqCst)),
                _ => Fate::Works,
            }
        });
        let run = case.start();
        process.store(run.id(), Ordering::SeqCst);
        assert_eq!(run.end(), None, "{}", case.log());
        case.server.heal();
        assert_eq!(case.states(), ["prepared"], "{sink:?}");
        case.finish();
    }
}

/// The destination is asked by commit identity. (A rename has no answer that can be lost: it is there, or it is not.)
#[test]
fn the_outcome_of_a_commit_is_unknown_then_the_destination_is_asked() {
    for fate in [Fate::FailsAfter, Fate::Drops, Fate::FailsBefore] {
        let case = Case::one(Sink::Object);
        let run = case.start_and(3, record("out"), move |_| fate);
        assert_eq!(run.end(), Some(0), "{fate:?}: {}", case.log());
        case.check_output();
    }
    let case = Case::one(Sink::Object);
    case.killed(3, record("out"), Fate::KillsAfter);
    assert_eq!(case.states(), ["published"]);
    assert!(case.finish().contains("was committed before"));
}

#[test]
fn dies_after_the_committed_marker_then_there_is_nothing_to_commit() {
    for sink in SINKS {
        let case = Case::one(sink);
        case.killed(3, marker, Fate::KillsAfter);
        let (tip, committed) = *case.checkpoints().last().unwrap();
        assert!(committed && case.newest("out") == Some(tip), "{sink:?}");
        assert_eq!(case.states(), Vec::<String>::new(), "{sink:?}");
        case.finish();
    }
}

/// I7: it is fenced before it commits or deletes.
#[test]
fn an_older_run_wakes_up_then_it_is_fenced_and_changes_nothing() {
    type Chosen = fn(&Asked) -> bool;
    type Asleep = fn(u32) -> Fate;
    let places: [(&str, u32, Chosen, Asleep); 5] = [
        ("before its manifest is there", 3, manifest, Fate::StopsBefore),
        ("when its manifest is there", 3, manifest, Fate::StopsAfter),
        ("with a permit in its hand", 4, permit, Fate::StopsAfter),
        ("before it marks its commit", 3, marker, Fate::StopsBefore),
        ("before a pack of its is there", 7, pack, Fate::StopsBefore),
    ];
    for sink in SINKS {
        for (place, nth, chosen, asleep) in places {
            let case = Case::one(sink);
            let run = case.start_and(nth, chosen, asleep);
            case.server.wait_for_held();
            // The other runs to the end, and collects what is garbage.
            let (code, _, stderr) = case.weir(&["run", "--quiet", "pipeline.toml"]);
            assert_eq!(code, 0, "{sink:?}, {place}: {stderr}");
            case.check_output();
            let before = case.visible();
            case.server.release(run.id());
            assert_eq!(run.end(), Some(6), "{sink:?}, {place}: {}", case.log());
            assert_eq!(case.visible(), before, "{sink:?}, {place}");
            let (code, _, stderr) = case.weir(&["checkpoint", "verify", "pipeline.toml"]);
            assert_eq!(code, 0, "{sink:?}, {place}: {stderr}");
        }
    }
}

/// I5, I7: a run that sleeps with a permit while its checkpoint is given up cannot publish it when it wakes up.
#[test]
fn an_older_run_wakes_up_after_its_checkpoint_was_given_up_then_it_publishes_nothing() {
    for sink in SINKS {
        let case = Case::one(sink);
        let run = case.start_and(4, permit, Fate::StopsAfter);
        case.server.wait_for_held();
        let [(_, state, epoch)] = &case.open()[..] else { panic!("one sink") };
        assert_eq!(state, "prepared");
        // A process that stands still does not answer, and nothing is done behind its back on its own machine.
        let (code, stderr) = case.weir_elsewhere(&["txn", "abort", "pipeline.toml", "--yes"]);
        assert_eq!(code, 0, "{sink:?}: {stderr}");
        case.server.release(run.id());
        assert_eq!(run.end(), Some(6), "{sink:?}: {}", case.log());
        assert!(case.newest("out") < Some(*epoch), "{sink:?}");
        case.finish();
        assert!(case.visible()["out"].iter().all(|shown| shown.epoch != *epoch), "{sink:?}: {epoch} was given up");
    }
}

/// No checkpoint completes; the job goes on until the tolerance is spent, and then fails clearly.
#[test]
fn the_store_is_unreachable_then_the_job_fails_clearly_and_goes_on_when_it_is_back() {
    for sink in SINKS {
        let case = Case::new(&[("out", sink)], "tolerated_failures = 1");
        let mut manifests = 0;
        case.server.decide(move |asked| {
            manifests += u32::from(manifest(asked));
            if manifests >= 3 && asked.key.contains("bucket/weir/") { Fate::FailsBefore } else { Fate::Works }
        });
        let code = case.start().end();
        assert!(matches!(code, Some(1 | 5)), "{sink:?}: {code:?} {}", case.log());
        assert!(case.log().contains("check") && case.log().contains("store"), "{sink:?}: {}", case.log());
        case.visible();
        case.finish();
    }
}

/// I1: that manifest is refused by name; `--from` an older one is the user's choice.
#[test]
fn a_chunk_is_missing_or_corrupt_then_the_checkpoint_is_refused_by_name_and_an_older_one_is_a_choice() {
    for sink in SINKS {
        for garble in [false, true] {
            let case = Case::one(sink);
            case.killed(3, marker, Fate::KillsAfter);
            let checkpoints = case.checkpoints();
            let [.., (older, true), (tip, true)] = checkpoints[..] else { panic!("{checkpoints:?}") };
            // A pack of the tip's own epoch.
            let packs = case.server.keys("bucket/weir/");
            let own = format!("-{tip}-count");
            let own = packs.iter().find(|key| key.contains("/packs/") && key.contains(&own));
            let own = own.unwrap_or_else(|| panic!("no pack of {tip} in {packs:?}"));
            let mut bytes = case.server.get(own).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x20;
            case.server.put(own, garble.then_some(bytes));
            let name = own.rsplit('/').next().unwrap();
            let (code, _, stderr) = case.weir(&["run", "--quiet", "pipeline.toml"]);
            assert!(code == 4 && stderr.contains(name), "{sink:?}, garble {garble}: {code} {stderr}");
            case.visible();
            // The command line names what would come again.
            let from = older.to_string();
            let (code, _, stderr) = case.weir(&["run", "--quiet", "pipeline.toml", "--from", &from]);
            assert!(code == 2 && stderr.contains("--republish") && stderr.contains(&tip.to_string()), "{stderr}");
            let (code, _, stderr) = case.weir(&["run", "--quiet", "pipeline.toml", "--from", &from, "--republish"]);
            assert_eq!(code, 0, "{sink:?}, garble {garble}: {stderr}");
        }
    }
}

/// The same for what a sink prepared: the commit is refused by name, nothing is published in part, and giving it up is a way out.
#[test]
fn a_prepared_part_is_missing_then_the_commit_is_refused_by_name_and_giving_it_up_is_exact() {
    for sink in SINKS {
        let case = Case::one(sink);
        case.killed(3, manifest, Fate::KillsAfter);
        let listed = case.json(&["txn", "list"]);
        let name = listed[0]["staged"][0]["name"].as_str().unwrap().to_owned();
        match sink {
            Sink::File => fs::remove_file(&name).unwrap(),
            Sink::Object => case.server.put(name.strip_prefix("s3://").unwrap(), None),
        }
        assert_eq!(case.states(), ["damaged"], "{sink:?}");
        for command in [&["run", "--quiet", "pipeline.toml"][..], &["txn", "commit", "pipeline.toml"]] {
            let (code, _, stderr) = case.weir(command);
            assert!(code == 4 && stderr.contains(&name), "{sink:?}: {code} {stderr}");
        }
        let (code, _, stderr) = case.weir(&["txn", "abort", "pipeline.toml"]);
        assert!(code == 2 && stderr.contains("--yes"), "{stderr}");
        let (code, _, stderr) = case.weir(&["txn", "abort", "pipeline.toml", "--yes"]);
        assert_eq!(code, 0, "{sink:?}: {stderr}");
        case.finish();
    }
}

/// `weir txn`: either way out of an open checkpoint ends in the same output.
#[test]
fn an_open_checkpoint_is_committed_or_given_up_by_hand_and_the_output_is_exact_either_way() {
    for sink in SINKS {
        for nth in [1, 3] {
            let case = Case::one(sink);
            case.killed(nth, manifest, Fate::KillsAfter);
            let [(_, _, epoch)] = case.open()[..] else { panic!("one sink") };
            let (code, _, stderr) = case.weir(&["txn", "commit", "pipeline.toml"]);
            assert!(code == 0 && stderr.contains(&format!("checkpoint {epoch}")), "{stderr}");
            assert_eq!(case.newest("out"), Some(epoch));
            assert_eq!(case.states(), Vec::<String>::new());
            let (code, _, stderr) = case.weir(&["txn", "commit", "pipeline.toml"]);
            assert!(code == 0 && stderr.contains("nothing open"), "{stderr}");
            case.finish();

            let case = Case::one(sink);
            case.killed(nth, manifest, Fate::KillsAfter);
            let [(_, _, epoch)] = case.open()[..] else { panic!("one sink") };
            let (code, _, stderr) = case.weir(&["txn", "abort", "pipeline.toml", "--yes"]);
            assert_eq!(code, 0, "{sink:?}, {nth}: {stderr}");
            assert!(case.newest("out") < Some(epoch), "{sink:?}, {nth}");
            let (code, _, stderr) = case.weir(&["txn", "abort", "pipeline.toml", "--yes"]);
            assert!(code == 0 && stderr.contains("nothing open"), "{stderr}");
            case.finish();
            assert!(case.visible()["out"].iter().all(|shown| shown.epoch != epoch), "{sink:?}: {epoch} was given up");
        }
    }
}
