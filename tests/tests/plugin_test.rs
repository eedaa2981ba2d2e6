//! `weir plugin test` and `weir plugin bench`: operators that are wrong in one way each are caught, with a message that leads to the fault, and those
//! that come with weir pass.
//!
//! All run on small inputs that are made here. Nothing depends on how long anything takes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use weir_tests::guests::guest;
use weir_tests::{cargo_target, january, run};

/// A folder of a test's own with the payments of 23 users, 40 minutes of them, out of order by up to half a minute.
fn folder(name: &str) -> PathBuf {
    let folder = cargo_target().join("tmp/plugin-test").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let mut text = String::new();
    let mut random = 1_u64;
    for n in 0..2_400_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (user, amount, late) = ((random >> 33) % 23, (random >> 40) % 1000, (random >> 50) % 30);
        let at = (n + 60).saturating_sub(late);
        let (minute, second) = (at / 60, at % 60);
        let line = json!({ "user": format!("user-{user}"), "amount": amount, "at": format!("2026-03-01T09:{minute:02}:{second:02}Z") });
        writeln!(text, "{line}").unwrap();
    }
    fs::write(folder.join("payments.jsonl"), text).unwrap();
    folder
}

const PAYMENTS: [&str; 10] = [
    "--input",
    "payments.jsonl",
    "--format",
    "json",
    "--key",
    "/user",
    "--event-time",
    "/at",
    "--out-of-orderness",
    "30s",
];

/// What `weir plugin test` says of a guest: exit code, report, errors.
fn test_guest(name: &str, plugin: &str, also: &[&str]) -> (i32, String, String) {
    let folder = folder(name);
    fs::write(folder.join("guest.wasm"), guest(plugin)).unwrap();
    let args = [&["plugin", "test", "guest.wasm"], &PAYMENTS[..], also].concat();
    run(&folder, &args)
}

/// The guest with this fault is caught by this check, and each of these texts is in the report.
#[track_caller]
fn is_caught(fault: &str, check: &str, texts: &[&str]) {
    let config = json!({ "fault": fault }).to_string();
    let (code, out, err) = test_guest(fault, "wrong", &["--config", &config]);
    assert_eq!(code, 3, "{fault}:\n{out}\n{err}");
    assert!(err.contains("wrong 0.1.0 does not pass:") && err.contains(check), "{err}");
    assert!(out.contains(&format!("\n{check}: ")), "no finding of {check}:\n{out}");
    for text in texts {
        assert!(
            out.replace('\n', " ").split_whitespace().collect::<Vec<_>>().join(" ").contains(text),
            "{text:?} is not in\n{out}"
        );
    }
}

#[test]
fn an_operator_by_hand_without_a_fault_passes() {
    let (code, out, err) = test_guest("none", "wrong", &[]);
    assert_eq!(code, 0, "{out}\n{err}");
    for check in ["run", "snapshot fidelity", "determinism", "rescale", "limits", "manners"] {
        assert!(out.contains(&format!("ok        {check}: ")), "{check} is not ok:\n{out}");
    }
    assert!(!out.contains("FAILED") && !out.contains("every snapshot was written in one call"), "{out}");
}

#[test]
fn a_field_that_is_not_in_the_snapshot_is_found_and_the_first_record_that_differs_is_shown() {
    is_caught(
        "forgotten-field",
        "snapshot fidelity",
        &[
            "a restored instance says something else",
            "full snapshot",
            "of port out",
            "expected 2026-03-01T",
            "\"before\":0}",
            "a field that decides over the output is forgotten",
        ],
    );
}

#[test]
fn an_operator_that_speaks_once_a_batch_is_found() {
    is_caught(
        "batch-boundaries",
        "determinism",
        &[
            "what it says depends on where batches are cut",
            "batches of 1 instead of batches of 1 to 100",
            "done once a batch",
        ],
    );
}

#[test]
fn an_order_of_memory_addresses_is_found() {
    is_caught(
        "address-order",
        "snapshot fidelity",
        &["says the same in another order", "of port settled", "in advance", "of a hash map or of memory addresses"],
    );
}

#[test]
fn an_operator_that_tells_the_time_is_found_unless_it_is_meant_to() {
    is_caught(
        "wall-clock",
        "determinism",
        &[
            "depends on the time at which it runs",
            "37 days",
            "\"at\":",
            "`timers.now` or a WASI clock",
            "--processing-time",
        ],
    );
    let meant = ["--config", r#"{"fault":"wall-clock"}"#, "--processing-time"];
    let (code, out, err) = test_guest("wall-clock-meant", "wrong", &meant);
    assert_eq!(code, 0, "{out}\n{err}");
}

#[test]
fn memory_that_is_never_given_back_is_found() {
    is_caught(
        "leak",
        "limits",
        &[
            "its memory grows by about 20",
            "bytes with each record, and its state does not need that",
            "never given back",
        ],
    );
}

#[test]
fn an_offset_that_is_one_too_large_is_found_with_the_record() {
    is_caught(
        "wrong-offset",
        "run",
        &["it fails on record", "output.emit on port 0: column \"values\"", "key user-", "n + 1 for n records"],
    );
}

#[test]
fn state_in_the_wrong_key_group_is_found() {
    is_caught(
        "wrong-group",
        "rescale",
        &[
            "with its state on other subtasks it says something else for a key",
            "1 subtask, 3 after",
            "the segment of its key's group",
        ],
    );
}

#[test]
fn a_change_that_an_incremental_snapshot_leaves_out_is_found() {
    is_caught(
        "forgotten-change",
        "snapshot fidelity",
        &["a restored instance says something else", "incremental snapshots", "a change that is not noted"],
    );
}

#[test]
fn a_step_of_a_snapshot_that_writes_what_came_after_the_cut_is_found() {
    is_caught(
        "late-step",
        "snapshot fidelity",
        &["written in steps while the stream goes on", "a later step writes what has changed after the cut"],
    );
}

#[test]
fn an_operator_that_cannot_stand_a_record_without_a_value_is_found_with_its_words() {
    is_caught(
        "no-tombstone",
        "manners",
        &[
            "it fails in process",
            "null and empty keys and values",
            "every payment has a value",
            "no value",
            "reject what cannot be processed",
        ],
    );
}

#[test]
fn state_by_key_that_is_written_as_the_subtasks_own_is_found() {
    is_caught(
        "own-state",
        "rescale",
        &["it says that its state is by key, and writes", "bytes that belong to one subtask alone"],
    );
}

#[test]
fn a_snapshot_that_takes_away_what_it_writes_is_found() {
    is_caught(
        "draining-snapshot",
        "snapshot fidelity",
        &["taking snapshots changes", "`snapshot` must not change", "drains, clears or resets"],
    );
}

#[test]
fn an_operator_that_speaks_again_at_a_watermark_that_it_has_seen_is_found() {
    is_caught(
        "each-watermark",
        "manners",
        &[
            "when the last watermark is told again",
            "the first watermark after a restore may be one that the state has seen",
        ],
    );
}

#[test]
fn state_that_a_restore_does_not_read_is_found() {
    is_caught(
        "unread-chunk",
        "snapshot fidelity",
        &[
            "it does not take its own state over",
            "1 chunks of state were read, and there are more",
            "read on until `snapshots.read` gives no chunk",
        ],
    );
}

#[test]
fn operators_that_come_with_weir_pass() {
    let folder = folder("shipped");
    fs::copy(january(), folder.join("flights.csv")).unwrap();
    let flights = ["--input", "flights.csv", "--format", "csv", "--key", "/carrier", "--event-time", "/time_hour"];
    let few = ["--out-of-orderness", "24h", "--records-max", "3000", "--cuts", "8"];
    for (plugin, config) in [
        ("count", "{}"),
        ("count", r#"{"format":"binary"}"#),
        ("window", r#"{"size":"1h","field":"/dep_delay","key_name":"carrier"}"#),
    ] {
        let args = [&["plugin", "test", plugin, "--config", config], &flights[..], &few[..]].concat();
        let (code, out, err) = run(&folder, &args);
        assert_eq!(code, 0, "{plugin} {config}:\n{out}\n{err}");
        assert!(out.contains("3,000 records, 3,000 with a key, 3,000 with an event time; there are more"), "{out}");
    }
}

#[test]
fn operators_without_snapshot_code_pass_and_are_told_what_does_not_apply() {
    let (code, out, err) = test_guest("image", "simple-count", &["--cuts", "5"]);
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(out.contains("note: its state is an image of its memory"), "{out}");
    assert!(out.contains("skipped   rescale: its state is an image of its memory"), "{out}");
    let (code, out, err) = test_guest("stateless", "plain", &["--cuts", "5"]);
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(out.contains("it says that it has no state"), "{out}");
}

#[test]
fn the_same_seed_finds_the_same_and_programs_get_it_as_json() {
    let config = ["--config", r#"{"fault":"forgotten-field"}"#, "--json", "--seed", "7", "--cuts", "6"];
    let report = || -> Value {
        let (code, out, err) = test_guest("json", "wrong", &config);
        assert_eq!(code, 3, "{out}\n{err}");
        serde_json::from_str(&out).unwrap()
    };
    let (mut one, mut other) = (report(), report());
    let used = one["used"].clone();
    assert_eq!((&used["records_in"], &used["records_out"]), (&json!(2400), &other["used"]["records_out"]));
    one["used"] = json!({});
    other["used"] = json!({});
    assert_eq!(one, other);
    assert_eq!((&one["passed"], &one["plugin"], &one["records"]), (&json!(false), &json!("wrong 0.1.0"), &json!(2400)));
    let finding = &one["checks"][1]["findings"][0];
    assert_eq!((&finding["kind"], &finding["port"]), (&json!("output"), &json!("out")), "{one:#}");
    assert!(
        finding["expected"]["value"]["text"].is_string() && finding["found"]["value"]["text"].is_string(),
        "{finding:#}"
    );
    assert!(finding["cut_after"].is_u64() && finding["input"][0].is_u64(), "{finding:#}");
    assert_eq!(one["checks"][3]["outcome"], "skipped", "{one:#}");
}

#[test]
fn what_cannot_be_tried_is_refused_with_the_remedy() {
    let folder = folder("refused");
    let refused = |args: &[&str], code: i32, texts: &[&str]| {
        let (was, out, err) = run(&folder, &[&["plugin", "test"], args].concat());
        assert_eq!(was, code, "{args:?}:\n{out}\n{err}");
        texts.iter().for_each(|text| assert!(err.contains(text), "{text:?} is not in {err}"));
    };
    fs::write(folder.join("empty.jsonl"), "").unwrap();
    fs::create_dir(folder.join("nothing")).unwrap();
    refused(&[&["nowhere.wasm"], &PAYMENTS[..]].concat(), 3, &["cannot read nowhere.wasm"]);
    refused(
        &[&["nothing"], &PAYMENTS[..]].concat(),
        3,
        &["there is no component in nothing", "weir plugin build nothing"],
    );
    refused(&["count", "--input", "empty.jsonl", "--format", "json"], 2, &["the input has no records"]);
    refused(&["count", "--input", "payments.dat"], 2, &["its ending does not say", "add --format"]);
    // The ending says it.
    refused(&["count", "--input", "none.jsonl"], 2, &["the input cannot be read", "none.jsonl"]);
    refused(
        &[&["count", "--port", "left"], &PAYMENTS[..]].concat(),
        2,
        &["no input port \"left\"", "its input ports are in"],
    );
    refused(&[&["count", "--config", "[1]"], &PAYMENTS[..]].concat(), 2, &["not a JSON object"]);
    refused(
        &["count", "--input", "payments.jsonl", "--format", "json", "--key", "user"],
        2,
        &["--key", "write \"/user\""],
    );
    let unopened = [&["window", "--config", "{}"], &PAYMENTS[..]].concat();
    let (code, out, _) = run(&folder, &[&["plugin", "test"], &unopened[..]].concat());
    assert_eq!(code, 3);
    assert!(out.contains("run: it does not open") && out.contains("size"), "{out}");
}

#[test]
fn a_bench_splits_the_time_of_a_record_by_batch_size() {
    let folder = folder("bench");
    let args = [&["plugin", "bench", "count", "--seconds", "0", "--batches", "1,100"], &PAYMENTS[..]].concat();
    let (code, out, err) = run(&folder, &args);
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(
        out.starts_with("count 0.1.0 on 2,400 records of payments.jsonl, 1.000 records out for each in\n"),
        "{out}"
    );
    let header: Vec<&str> = out.lines().nth(2).unwrap_or_default().split_whitespace().collect();
    assert_eq!(header, ["batch", "records/s", "ns/record", "hand-over", "guest", "emit"], "{out}");
    assert!(out.lines().last().is_some_and(|line| line.starts_with("start  ") && line.contains(" ms: ")), "{out}");
    let (code, out, err) = run(&folder, &[&args[..], &["--json"]].concat());
    assert_eq!(code, 0, "{err}");
    let bench: Value = serde_json::from_str(&out).unwrap();
    let start = |name: &str| bench["start"][name].as_f64().unwrap();
    assert!(start("starts") >= 3.0 && start("load_nanos") > 0.0 && start("open_nanos") > 0.0, "{bench:#}");
    assert!(start("start_nanos") >= start("load_nanos").max(start("open_nanos")), "{bench:#}");
    let sizes = bench["sizes"].as_array().unwrap();
    assert_eq!(sizes.iter().map(|size| size["batch"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 100]);
    for size in sizes {
        let nanos = |name: &str| size[name].as_f64().unwrap();
        assert!(nanos("record_nanos") > 0.0 && nanos("hand_over_nanos") > 0.0 && nanos("emit_nanos") > 0.0, "{size:#}");
    }
}
