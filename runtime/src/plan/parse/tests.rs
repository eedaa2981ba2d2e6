//! What the golden files of `tests/golden/check` do not show: values, defaults, folders, and that no text makes it panic.

use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::plan::*;

const SMALL: &str = "name = \"a\"\n\
    [source.s]\nconnector = \"file\"\npath = \"in/*.json\"\nformat = \"json\"\n\
    [operator.o]\nplugin = \"o.wasm\"\ninputs = [\"s\"]\n\
    [sink.k]\nconnector = \"file\"\ninputs = [\"o\"]\npath = \"out\"\n";

fn sound(text: &str) -> PipelineSpec {
    parse(text, Path::new("a/b/p.toml")).unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

/// Lines and messages of what is wrong.
fn faults(text: &str) -> Vec<(usize, String)> {
    let diagnostics = parse(text, Path::new("p.toml")).expect_err("it is wrong");
    diagnostics.list().iter().map(|fault| (fault.line, fault.message.clone())).collect()
}

#[test]
fn what_is_not_written_has_the_default_that_the_specification_promises() {
    let spec = sound(SMALL);
    assert_eq!((spec.name.as_str(), spec.key_groups), ("a", 128));
    assert_eq!(spec.checkpoint.store, "file://./.weir");
    assert_eq!(spec.checkpoint.interval, Duration::from_secs(1));
    assert_eq!(spec.checkpoint.timeout, Duration::from_secs(60));
    assert_eq!(spec.checkpoint.min_pause, Duration::ZERO);
    assert_eq!((spec.checkpoint.tolerated_failures, spec.checkpoint.retain), (3, 3));
    assert_eq!((spec.restart.attempts, spec.restart.delay), (5, Duration::from_millis(100)));
    assert_eq!(spec.restart.max_delay, Duration::from_secs(30));
    assert_eq!((spec.batch.limit.records, spec.batch.limit.bytes), (1024, 1 << 20));
    assert_eq!(spec.batch.delay, Duration::from_millis(10));
    assert_eq!((spec.channel.bytes, spec.channel.batches), (4 << 20, 64));
    let source = &spec.sources[0];
    assert_eq!((source.parallelism, source.on_error), (1, OnError::Fail));
    assert_eq!((&source.event_time, source.event_time_unit), (&None, None));
    assert_eq!((source.out_of_orderness, source.idle_after), (Duration::ZERO, None));
    let operator = &spec.operators[0];
    assert_eq!(operator.config, serde_json::json!({}));
    assert_eq!(operator.limits, LimitsSpec::default());
    assert_eq!((operator.on_reject, operator.inputs[0].on_error), (OnError::Fail, OnError::Fail));
    assert!(matches!(&spec.sinks[0].connector, SinkConnector::File(file) if file.format == SinkFormat::Lines));
    let generated = sound(
        "name = \"a\"\n[source.s]\nconnector = \"generator\"\n[sink.k]\nconnector = \"blackhole\"\ninputs = [\"s\"]\n",
    );
    let SourceConnector::Generator(generator) = &generated.sources[0].connector else { panic!("a generator") };
    assert_eq!((generator.seed, generator.records, spec.sources[0].rate), (0, None, None));
    assert_eq!((generator.keys, generator.distribution), (1_000, Distribution::Uniform));
    assert_eq!((generator.value_bytes, generator.format), (84, GeneratorFormat::Binary));
    assert_eq!(generator.event_time_step, 10);
}

#[test]
fn relative_paths_stay_as_written_beside_the_folder_of_the_file() {
    let spec = sound(SMALL);
    let SourceConnector::File(file) = &spec.sources[0].connector else { panic!("a file") };
    assert_eq!(file.path, "in/*.json");
    assert_eq!(spec.operators[0].plugin, PluginRef::Path(PathBuf::from("o.wasm")));
    assert!(matches!(&spec.sinks[0].connector, SinkConnector::File(file) if file.path == Path::new("out")));
    assert_eq!(spec.store_dir(), Some(PathBuf::from("a/b/./.weir")));
    assert_eq!(spec.dir, Path::new("a/b"));
    let absolute = sound(&SMALL.replace("in/", "/in/"));
    assert!(matches!(&absolute.sources[0].connector, SourceConnector::File(file) if file.path == "/in/*.json"));
}

#[test]
fn a_source_that_reads_what_a_sink_writes_is_found_also_below_a_folder_with_brackets() {
    let text = SMALL.replace("\"in/*.json\"", "\"out/epoch-*/*.json\"");
    assert_ne!(text, SMALL);
    let faults = parse(&text, Path::new("x[1]/p.toml")).expect_err("it reads its own output");
    assert!(faults.list().iter().any(|fault| fault.message.contains("reads what sink")), "{faults}");
}

#[test]
fn plugins_are_told_apart_by_how_they_are_written() {
    let digest = "AF1349B9F5F9A1A6A0404DEA36DCC9499BCB25C9ADC112B7CC9A93CAE41F3262";
    for (text, plugin) in [
        ("o.wasm".to_owned(), PluginRef::Path("o.wasm".into())),
        ("../o".to_owned(), PluginRef::Path("../o".into())),
        ("/x/o".to_owned(), PluginRef::Path("/x/o".into())),
        ("count".to_owned(), PluginRef::Named { name: "count".into(), version: None }),
        ("count@1.0.0".to_owned(), PluginRef::Named { name: "count".into(), version: Some("1.0.0".into()) }),
        (format!("blake3:{digest}"), PluginRef::Digest(digest.to_ascii_lowercase())),
    ] {
        assert_eq!(sound(&SMALL.replace("o.wasm", &text)).operators[0].plugin, plugin, "{text}");
    }
}

#[test]
fn configuration_becomes_json() {
    let text = SMALL.replace("plugin =", "config = { a = 1, b = [true, 2.5, \"x\"], c.d = { e = \"f\" } }\nplugin =");
    let json = serde_json::json!({ "a": 1, "b": [true, 2.5, "x"], "c": { "d": { "e": "f" } } });
    assert_eq!(sound(&text).operators[0].config, json);
}

#[test]
fn nodes_and_inputs_keep_the_order_of_the_file() {
    let text = SMALL.to_owned()
        + "[sink.z]\nconnector = \"stdout\"\ninputs = [\"o\", \"s\"]\n[sink.b]\nconnector = \"stdout\"\ninputs = [\"s\"]\n";
    let spec = sound(&text);
    let names: Vec<&str> = spec.sinks.iter().map(|sink| sink.name.as_str()).collect();
    assert_eq!(names, ["k", "z", "b"]);
    let from: Vec<&str> = spec.sinks[1].inputs.iter().map(|input| input.from.as_str()).collect();
    assert_eq!(from, ["o", "s"]);
}

#[test]
fn places_are_those_of_the_text_also_with_a_mark_or_other_line_ends() {
    let text = format!("\u{feff}{}", SMALL.replace('\n', "\r\n").replace("format =", "formatt ="));
    let faults = faults(&text);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(faults[0].0, 5);
}

#[test]
fn what_follows_from_a_fault_is_not_reported() {
    for (from, to, line) in [
        ("[operator.o]", "[operator.o", 6),
        ("inputs = [\"s\"]", "inputs = [\"S\"]", 8),
        ("inputs = [\"s\"]", "inputs = s", 8),
        ("inputs = [\"s\"]", "inputs = [s]", 8),
        ("name = \"a\"", "name = a", 1),
        ("name = \"a\"", "nam = \"a\"", 1),
        ("connector = \"file\"\npath = \"in", "conector = \"file\"\npath = \"in", 3),
        ("plugin = \"o.wasm\"", "plugin = o.wasm", 7),
    ] {
        let faults = faults(&SMALL.replacen(from, to, 1));
        assert_eq!(faults.iter().map(|fault| fault.0).collect::<Vec<_>>(), [line], "{to}: {faults:?}");
    }
}

#[test]
fn an_open_bracket_does_not_make_the_rest_of_the_file_wrong() {
    let faults = faults(&SMALL.replace("inputs = [\"s\"]", "inputs = [\"s\""));
    assert_eq!(faults, [(8, "this [ is not closed".to_owned())]);
}

#[test]
fn a_file_that_is_too_large_is_not_shown() {
    let diagnostics = parse(&"#".repeat(TEXT_BYTES_MAX + 1), Path::new("p.toml")).expect_err("too large");
    assert!(diagnostics.to_string().len() < 300);
    assert!(diagnostics.list()[0].message.contains("262145 bytes"));
}

#[test]
fn more_faults_than_can_be_read_are_counted() {
    let text: String = (0..5_000).map(|n| format!("k{n} = 1\n")).collect();
    let diagnostics = parse(&text, Path::new("p.toml")).expect_err("all of them are unknown");
    assert_eq!(diagnostics.list().len(), DIAGNOSTICS_MAX);
    assert!(diagnostics.to_string().contains("more errors are not shown"));
}

#[test]
fn more_nodes_than_can_run_are_refused() {
    let sinks: String =
        (0..NODES_MAX).map(|n| format!("[sink.n{n}]\nconnector = \"blackhole\"\ninputs = [\"o\"]\n")).collect();
    let faults = faults(&(SMALL.to_owned() + &sinks));
    assert!(faults.iter().any(|(_, message)| message.contains("nodes, more than 1000")), "{faults:?}");
}

#[test]
fn every_cycle_is_found_once() {
    // Two cycles with a bridge, a tail, and a node that reads itself.
    let edges = [("a", "sb"), ("b", "a"), ("c", "bd"), ("d", "c"), ("e", "d"), ("f", "sf")];
    let mut text = SMALL.to_owned();
    for (node, from) in edges {
        let inputs: Vec<String> = from.chars().map(|from| format!("\"{from}\"")).collect();
        text += &format!("[operator.{node}]\nplugin = \"x\"\ninputs = [{}]\n", inputs.join(", "));
    }
    let messages: Vec<String> = faults(&text).into_iter().map(|fault| fault.1).collect();
    let cycle = "nodes read each other in a cycle:";
    assert_eq!(
        messages,
        [format!("{cycle} a -> b -> a"), format!("{cycle} c -> d -> c"), "\"f\" reads itself".to_owned()]
    );
}

/// Pieces of pipeline files: random sequences of them come much nearer to a sound file than random characters do.
fn piece() -> impl Strategy<Value = String> {
    let word =
        "(name|source|operator|sink|inputs|from|key|port|connector|path|a|b|s|csv|config|limits|cpu|rate|-|\"\")";
    let value =
        "([0-9]{1,3}|\"[a-z/~$.0-9é]{0,6}\"|1e9|inf|-1|true|\\[\\]|\\{\\}|\\[\"s\"\\]|\\{ a = 1 \\}|'''|\"\"\"|@)";
    prop_oneof![
        4 => (word, value).prop_map(|(key, value)| format!("{key} = {value}\n")),
        2 => (word, word, value).prop_map(|(table, key, value)| format!("{table}.{key} = {value}\n")),
        3 => (word, word).prop_map(|(kind, name)| format!("[{kind}.{name}]\n")),
        1 => word.prop_map(|name| format!("[[{name}]]\n")),
        1 => (word, word, word).prop_map(|(a, b, c)| format!("[[{a}.{b}.{c}]]\n")),
        1 => "[\\[\\]{}\"'=,.#\\\\\n\ta-c1é]{1,6}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_text_makes_it_panic(pieces in prop::collection::vec(piece(), 0..24)) {
        let text = pieces.concat();
        if let Err(diagnostics) = parse(&text, Path::new("p.toml")) {
            let lines = text.matches('\n').count() + 1;
            prop_assert!(!diagnostics.list().is_empty());
            for fault in diagnostics.list() {
                prop_assert!((1..=lines).contains(&fault.line), "{fault:?}");
                prop_assert!(!fault.help.is_empty() && !fault.message.contains('\n'));
            }
            prop_assert!(diagnostics.to_string().ends_with('\n'));
        }
    }
}
