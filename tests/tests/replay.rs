//! Show 6: `verify --replay` passes on the examples, through the real binary and with real components, and it finds the node that sees what it
//! must not see, also when nobody says so. I12.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use futures::FutureExt;
use serde_json::Value;
use weir::flow::OperatorCode;
use weir::job::Verdict;
use weir::model::NodeName;
use weir::plan::Grants;
use weir::plugin::{HostOptions, Plugin, PluginHost};
use weir_tests::guests::{component, guest};
use weir_tests::job::code::pass;
use weir_tests::job::{Pipeline, stopped};
use weir_tests::run;

/// Replays every pair of checkpoints that the store has, by the command. Gives the verdicts.
fn verify_all(folder: &Path) -> Vec<Value> {
    let (code, list, stderr) = run(folder, &["checkpoint", "list", "pipeline.toml", "--json"]);
    assert_eq!(code, 0, "{stderr}");
    let list: Vec<Value> = serde_json::from_str(&list).unwrap();
    let epochs: Vec<u64> = list.iter().filter_map(|row| row["epoch"].as_u64()).collect();
    let mut verdicts = Vec::new();
    for from in [0].into_iter().chain(epochs[..epochs.len() - 1].iter().copied()) {
        let args = ["checkpoint", "verify", "pipeline.toml", "--replay", &from.to_string(), "--json"];
        let (code, out, stderr) = run(folder, &args);
        assert_eq!(code, 0, "from {from}: {out}{stderr}");
        let verdict: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(verdict["same"], true, "{verdict}");
        verdicts.push(verdict);
    }
    verdicts
}

fn sum(verdicts: &[Value], field: &str) -> u64 {
    verdicts.iter().map(|verdict| verdict[field].as_u64().unwrap()).sum()
}

/// The example with more and smaller epochs, and with checkpoints that are all kept.
fn flight_delays(folder: &Path) {
    let example = weir_tests::root().join("examples/flight-delays");
    let pipeline = fs::read_to_string(example.join("pipeline.toml")).unwrap();
    let changed = pipeline
        .replace("interval = \"500ms\"", "interval = \"100ms\"\nretain = 1000")
        .replace("rate = 10_000", "rate = 20_000");
    assert!(changed.contains("retain = 1000") && changed.contains("20_000"), "{changed}");
    fs::write(folder.join("pipeline.toml"), changed).unwrap();
    fs::create_dir(folder.join("data")).unwrap();
    fs::copy(weir_tests::january(), folder.join("data/flights-2013-01.csv")).unwrap();
}

#[test]
fn every_epoch_of_the_flight_delays_comes_out_again_and_a_changed_row_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    flight_delays(folder);
    let (code, _, stderr) = run(folder, &["run", "--quiet", "pipeline.toml"]);
    assert_eq!(code, 0, "{stderr}");
    let verdicts = verify_all(folder);
    assert!(verdicts.len() >= 3, "{} epochs", verdicts.len());
    assert_eq!(sum(&verdicts, "records"), 27_004, "every row of the file was read again, in one epoch or another");
    assert!(sum(&verdicts, "chunks") > 100 && sum(&verdicts, "parts") >= 2);
    // Six subtasks; how many epochs there are is a matter of how fast the machine is.
    let schedules = sum(&verdicts, "schedule_bytes");
    assert!(schedules < verdicts.len() as u64 * 6 * 256, "{schedules} bytes of schedules in {} epochs", verdicts.len());

    // What a node received and emitted, for people and for programs.
    let from = verdicts[1]["from"].as_u64().unwrap().to_string();
    let replay = ["replay", "pipeline.toml", "--from", &from, "--node", "delays"];
    let (code, lines, stderr) = run(folder, &[&replay[..], &["--json"]].concat());
    assert_eq!(code, 0, "{stderr}");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let received = lines.iter().filter(|line| line["what"] == "in").count();
    assert_eq!(
        received as u64,
        verdicts[1]["records"].as_u64().unwrap(),
        "each record that was read came to the operator"
    );
    assert!(lines.iter().any(|line| line["kind"] == "advance" && line["watermark"].is_i64()));
    assert!(lines.iter().filter(|line| line["what"] == "in").all(|line| line["key"]["text"].is_string()));
    let (code, text, _) = run(folder, &[&replay[..], &["--subtask", "1", "--limit", "7"]].concat());
    assert_eq!((code, text.lines().count()), (0, 7), "{text}");
    assert!(text.lines().all(|line| line.starts_with("delays[1]")), "{text}");
    let (code, _, stderr) = run(folder, &["replay", "pipeline.toml", "--from", &from, "--node", "delay"]);
    assert!(code == 2 && stderr.contains("no node \"delay\"") && stderr.contains("flights, delays"), "{stderr}");
    let (code, _, stderr) = run(folder, &[&replay[..], &["--subtask", "2"]].concat());
    assert!(code == 2 && stderr.contains("no subtask 2") && stderr.contains("0 to 1"), "{stderr}");

    // One digit of one row, of the same length: far from where the checkpoints stand.
    let path = folder.join("data/flights-2013-01.csv");
    let rows = fs::read_to_string(&path).unwrap();
    let at = rows.match_indices('\n').nth(13_000).unwrap().0 + 1;
    let row = rows[at..].lines().next().unwrap();
    let changed = row.replacen("2013,1,", "2013,2,", 1);
    assert_ne!(row, changed);
    fs::write(&path, format!("{}{changed}{}", &rows[..at], &rows[at + row.len()..])).unwrap();
    let mut found = 0;
    for verdict in &verdicts {
        let from = verdict["from"].as_u64().unwrap_or(0).to_string();
        let (code, out, stderr) = run(folder, &["checkpoint", "verify", "pipeline.toml", "--replay", &from]);
        if code == 7 {
            found += 1;
            assert!(out.contains("node flights\n") && out.contains("its data was changed"), "{out}");
            assert!(stderr.contains("node flights is the first that differs"), "{stderr}");
        }
    }
    assert_eq!(found, 1, "the row is in one epoch");
}

#[test]
fn the_words_are_counted_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let example = weir_tests::root().join("examples/word-count");
    fs::copy(example.join("input.txt"), folder.join("input.txt")).unwrap();
    fs::create_dir(folder.join("split")).unwrap();
    fs::write(folder.join("split/split.wasm"), component(&example.join("split"))).unwrap();
    fs::copy(example.join("pipeline.toml"), folder.join("pipeline.toml")).unwrap();
    let (code, _, stderr) = run(folder, &["run", "--quiet", "pipeline.toml"]);
    assert_eq!(code, 0, "{stderr}");
    // The plugin comes from the store: what is at its path now is another one, and then none.
    fs::write(folder.join("split/split.wasm"), guest("plain")).unwrap();
    verify_all(folder);
    fs::remove_file(folder.join("split/split.wasm")).unwrap();
    let verdicts = verify_all(folder);
    assert!(sum(&verdicts, "records") > 0 && sum(&verdicts, "parts") > 0 && sum(&verdicts, "output_bytes") > 0);

    let (code, out, stderr) = run(folder, &["checkpoint", "verify", "pipeline.toml", "--replay", "0"]);
    assert!(code == 0 && out.contains("comes out again from the beginning"), "{out}{stderr}");
    let last = verdicts.last().unwrap()["to"].as_u64().unwrap().to_string();
    let (code, _, stderr) = run(folder, &["checkpoint", "verify", "pipeline.toml", "--replay", &last]);
    assert!(code == 4 && stderr.contains("goes on from checkpoint"), "{stderr}");
    let both = ["checkpoint", "verify", "pipeline.toml", "--replay", "1", "--epoch", "1"];
    assert_eq!(run(folder, &both).0, 2, "the one or the other");
}

/// A source, a node before, the node that looks, a node after, a sink.
const TEXT: &str = r#"
name = "t"
checkpoint = { interval = "10ms", retain = 1000 }
batch = { records = 16, delay = "1ms" }
[source.numbers]
connector = "generator"
format = "json"
rate = 4000
[operator.before]
plugin = "pass"
inputs = [{ from = "numbers", exchange = "rebalance" }]
parallelism = 2
[operator.looks]
plugin = "sees"
inputs = [{ from = "before", exchange = "rebalance" }]
GRANTS
[operator.after]
plugin = "pass"
inputs = [{ from = "looks", exchange = "rebalance" }]
parallelism = 2
[sink.out]
connector = "file"
inputs = ["after"]
parallelism = 2
path = "out"
format = "json"
"#;

fn code(plugin: &Plugin, grants: Grants, config: Value) -> OperatorCode {
    let plugin = plugin.clone().with_grants(grants);
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(plugin.digest().as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    }
    OperatorCode {
        descriptor: plugin.descriptor().clone(),
        digest,
        image: plugin.takes_images().then_some(weir::plugin::IMAGE_VERSION),
        open: Arc::new(move |task| {
            let (plugin, config) = (plugin.clone(), config.clone());
            async move { plugin.open(&weir::plan::LimitsSpec::default(), &config, &task).await }.boxed()
        }),
    }
}

/// Runs it with a node that sees what `word` says, restarts it half way, and replays every epoch. With `keep` what it sees is in its
/// state, else in what it emits. `shown` are the grants of the pipeline file, `given` those that the instance gets.
async fn verdicts(plugin: &Plugin, word: &str, keep: bool, shown: &str, given: Grants) -> Vec<Verdict> {
    let text = TEXT.replace("GRANTS", shown);
    let config = serde_json::json!({ "see": word, "keep": keep, "say": !keep });
    let pipeline = Pipeline::new(text, [("before", pass()), ("looks", code(plugin, given, config)), ("after", pass())]);
    for _ in 0..2 {
        let mut job = pipeline.start();
        job.until_at_least(3, "checkpoints", |metrics| &metrics.checkpoints).await;
        let records = job.metrics.node(&NodeName::new("out"));
        let seen = records.records_in.load(Relaxed);
        job.until("some records more", |_| records.records_in.load(Relaxed) > seen + 20).await;
        stopped(job.stop().await);
    }
    for node in pipeline.manifests().await.iter().filter_map(|manifest| manifest.node("looks")) {
        assert_eq!(
            node.grants.is_empty(),
            shown.is_empty(),
            "the manifest lists what the file grants: {:?}",
            node.grants
        );
    }
    pipeline.replay_all().await
}

/// Virtual clocks and seeded randomness: DESIGN §6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_that_looks_at_clocks_and_randomness_without_grants_does_the_same_again() {
    let host = PluginHost::new(HostOptions::default()).unwrap();
    let plugin = host.load(&guest("sees")).await.unwrap();
    for word in ["wall", "monotonic", "timers", "random", "bytes", "insecure", "seed", "nothing"] {
        for keep in [false, true] {
            let verdicts = verdicts(&plugin, word, keep, "", Grants::default()).await;
            assert!(verdicts.len() >= 6, "{word}: {} epochs", verdicts.len());
            for verdict in verdicts {
                assert!(verdict.same && verdict.granted.is_empty(), "{word}, keep {keep}: {verdict:#?}");
            }
        }
    }
}

/// "With a guest that reads a granted real clock it finds that node, also when the grant is hidden from it."
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_that_reads_a_real_clock_is_found_whether_the_grant_is_shown_or_hidden() {
    let host = PluginHost::new(HostOptions::default()).unwrap();
    let plugin = host.load(&guest("sees")).await.unwrap();
    let all = Grants { clock: true, random: true, ..Grants::default() };
    for (word, grant) in [("wall", "clock"), ("monotonic", "clock"), ("random", "random"), ("bytes", "random")] {
        for (keep, hidden) in [(false, false), (false, true), (true, false), (true, true)] {
            let case = format!("{word}, keep {keep}, hidden {hidden}");
            let shown = if hidden { String::new() } else { format!("grants = [\"{grant}\"]") };
            let verdicts = verdicts(&plugin, word, keep, &shown, all.clone()).await;
            let mut found = 0;
            // An epoch without a record has nothing that differs.
            for verdict in verdicts.iter().filter(|verdict| verdict.records > 0) {
                let Some(first) = verdict.culprit() else { continue };
                found += 1;
                assert_eq!((first.node.as_str(), first.is_consequence), ("looks", false), "{case}: {verdict:#?}");
                assert_eq!(first.grants.is_empty(), hidden, "{case}: {verdict:#?}");
                assert_eq!(verdict.granted.is_empty(), hidden, "{case}");
                let others = verdict.differences[1..].iter();
                assert!(others.clone().all(|other| other.is_consequence), "{case}: {verdict:#?}");
                assert!(others.clone().all(|other| other.node != "before" && other.node != "numbers"), "{case}");
                if keep {
                    assert_eq!(others.count(), 0, "{case}: its state goes nowhere: {verdict:#?}");
                }
            }
            assert!(found >= 4, "{case}: found in {found} of {} epochs", verdicts.len());
        }
    }
}

/// An image of memory comes out again page by page: the same calls leave the same memory, also after an instance was put back from an image.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn epochs_of_an_operator_without_snapshot_code_come_out_again() {
    let host = PluginHost::new(HostOptions::default()).unwrap();
    let plugin = host.load(&guest("simple-count")).await.unwrap();
    let text = TEXT
        .replace("plugin = \"sees\"\ninputs = [{ from = \"before\", exchange = \"rebalance\" }]\nGRANTS", KEYED)
        .replace("from = \"looks\", exchange = \"rebalance\"", "from = \"looks\"");
    let looks = code(&plugin, Grants::default(), serde_json::json!({ "ballast": 100_000 }));
    let pipeline = Pipeline::new(text, [("before", pass()), ("looks", looks), ("after", pass())]);
    for _ in 0..2 {
        let mut job = pipeline.start();
        job.until_at_least(4, "checkpoints", |metrics| &metrics.checkpoints).await;
        stopped(job.stop().await);
    }
    let manifests = pipeline.manifests().await;
    let images = manifests.iter().filter_map(|manifest| manifest.node("looks")?.plugin.as_ref()?.image).count();
    assert_eq!(images, manifests.len());
    let verdicts = pipeline.replay_all().await;
    assert!(verdicts.len() >= 8 && verdicts.iter().any(|verdict| verdict.state_bytes > 100_000));
    for verdict in verdicts {
        assert!(verdict.same, "{verdict:#?}");
    }
}

const KEYED: &str = "plugin = \"count\"\ninputs = [{ from = \"before\", exchange = \"keyed\" }]\nparallelism = 2";
