//! A component that imports WASI 0.2 as the runtimes of languages do, in the real binary: what it prints is in the log, it finds no terminal, no
//! folder and no input, and what there is not traps by name.

use std::fs;

use weir_tests::guests::guest;

/// Runs it on one record. Gives the exit code and the log.
fn run(task: &str) -> (i32, String) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("prints.wasm"), guest("prints")).expect("there is room");
    let pipeline = format!(
        r#"
name = "prints"

[restart]
attempts = 0

[source.made]
connector = "generator"
records = 1

[operator.work]
plugin = "prints.wasm"
inputs = ["made"]
config = {{ do = "{task}" }}

[sink.nowhere]
connector = "blackhole"
inputs = ["work"]
"#
    );
    fs::write(folder.path().join("pipeline.toml"), pipeline).expect("there is room");
    let (code, _, log) = weir_tests::run(folder.path(), &["run", "--quiet", "pipeline.toml"]);
    (code, log)
}

#[test]
fn what_is_printed_goes_to_the_log_line_by_line() {
    let (code, log) = run("print");
    assert_eq!(code, 0, "{log}");
    for (level, line) in [("INFO", "first line"), ("INFO", "second line"), ("INFO", "no end"), ("WARN", "a warning")] {
        let is_it = |logged: &&str| logged.contains(level) && logged.contains(line) && logged.contains("node=work");
        assert_eq!(log.lines().filter(is_it).count(), 1, "{level} {line}:\n{log}");
    }
}

#[test]
fn there_is_no_terminal_no_folder_no_input_and_handles_do_not_run_out() {
    let (code, log) = run("look");
    assert_eq!(code, 0, "{log}");
}

#[test]
fn what_traps_says_why() {
    for (task, said) in [
        ("panic", "the sky fell"),
        ("boom", "plugin trapped in process: boom without an end"),
        ("stray", "out of bounds memory access; it had printed: row 5 is \u{fffd}[31mfine"),
        ("exit", "it ended its program, with a failure"),
        ("network", "wasi:sockets/instance-network"),
        ("flood", "1048576 bytes were written to a stream at once; the most is 65536"),
    ] {
        let (code, log) = run(task);
        assert!(code == 1 && log.contains(said), "{task}: {code}: {log}");
    }
}

#[test]
fn what_a_plugin_imports_is_told_in_plain_words() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("prints.wasm"), guest("prints")).expect("there is room");
    let (code, told, log) = weir_tests::run(folder.path(), &["plugin", "inspect", "prints.wasm"]);
    assert_eq!(code, 0, "{log}");
    for (import, meaning) in [
        ("weir:plugin/output@0.1.0", "emits records"),
        ("wasi:cli/stdout@0.2.6", "prints: each line goes to the log"),
        ("wasi:filesystem/preopens@0.2.6", "asks which folders it may use: none"),
        ("wasi:sockets/instance-network@0.2.6", "speaks to the network: a call traps"),
    ] {
        assert!(told.lines().any(|line| line.contains(import) && line.contains(meaning)), "{import}:\n{told}");
    }
    let (_, json, _) = weir_tests::run(folder.path(), &["plugin", "inspect", "--json", "prints.wasm"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let capabilities = json["capabilities"].as_array().expect("a list");
    assert!(capabilities.iter().any(|one| one["import"] == "wasi:cli/exit@0.2.6"), "{json:#}");
}
