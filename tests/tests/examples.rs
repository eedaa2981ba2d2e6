//! The examples as their READMEs say: the commands are taken from the README and typed into a shell.
//!
//! The flights have tests of their own in `flight_delays.rs` and `kill.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Copies a folder, but for what a build or a run of the example would leave there.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let name = from.file_name().unwrap();
        if from.is_dir() {
            if !["target", "out", ".weir"].iter().any(|left| name == *left) {
                copy(&from, &to.join(name));
            }
        } else if from.extension().is_none_or(|ending| ending != "wasm") {
            fs::copy(&from, to.join(name)).unwrap();
        }
    }
}

/// The word count example at a place of its own, the same in every run so that cargo compiles only what has changed.
fn word_count() -> PathBuf {
    let folder = weir_tests::cargo_target().join("tmp/examples/word-count");
    let _ = fs::remove_dir_all(&folder);
    copy(&weir_tests::root().join("examples/word-count"), &folder);
    // The SDK is not where it was, seen from here.
    let manifest = folder.join("split/Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    let sdk = weir_tests::root().join("sdk/rust");
    let moved = text.replace("../../../sdk/rust", sdk.to_str().unwrap());
    assert_ne!(text, moved, "the example depends on the SDK by its path");
    fs::write(&manifest, moved).unwrap();
    folder
}

/// The blocks of shell commands of a README, in order.
fn commands(readme: &Path) -> Vec<String> {
    let text = fs::read_to_string(readme).unwrap();
    let blocks = text.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// Types commands into a shell, with `weir` in its path. Gives what it printed.
fn shell(folder: &Path, commands: &str) -> String {
    let beside = weir_tests::weir().parent().unwrap().to_owned();
    let path = std::env::join_paths(
        [beside].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let output = Command::new("bash")
        .args(["-eu", "-o", "pipefail", "-c", commands])
        .current_dir(folder)
        .env("PATH", path.unwrap())
        .env("CARGO_TARGET_DIR", weir_tests::cargo_target().join("guests"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{commands}\nended with {}:\n{out}\n{err}", output.status);
    out
}

#[test]
fn word_count_runs_as_its_readme_says_and_counts_what_a_plain_program_counts() {
    let folder = word_count();
    let blocks = commands(&folder.join("README.md"));
    assert!(blocks[0].contains("weir run pipeline.toml"), "{blocks:?}");
    let printed: String = blocks.iter().map(|block| shell(&folder, block)).collect();
    assert!(printed.lines().any(|line| line == "same"), "the README compares with expected.txt: {printed}");

    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    let input = fs::read_to_string(folder.join("input.txt")).unwrap();
    for word in input.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *expected.entry(word.to_lowercase()).or_default() += 1;
    }
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for record in weir_tests::json_lines(&folder.join("out")) {
        let (word, count) = (record["key"].as_str().unwrap().to_owned(), record["count"].as_u64().unwrap());
        let before = last.insert(word, count).unwrap_or(0);
        assert_eq!(count, before + 1, "a running count goes up by one: {record}");
    }
    assert!(expected.len() > 30, "the text has some words");
    assert_eq!(last, expected);
}

#[test]
fn the_year_is_split_into_months_and_no_row_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (by_script, plain) = (folder.path().join("by-script"), folder.path().join("plain"));
    let script = weir_tests::root().join("examples/flight-delays/split-year.sh");
    let output = Command::new(&script).arg(&by_script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    weir_tests::write_months(&plain);
    let files = |folder: &Path| -> BTreeMap<PathBuf, Vec<u8>> {
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        paths.map(|path| (path.file_name().unwrap().into(), fs::read(&path).unwrap())).collect()
    };
    let (by_script, plain) = (files(&by_script), files(&plain));
    assert!(by_script.keys().eq(plain.keys()), "{:?}", by_script.keys());
    for (name, expected) in &plain {
        assert!(by_script[name] == *expected, "{} differs", name.display());
    }
    assert_eq!(
        plain[Path::new("2013-01.csv")],
        fs::read(weir_tests::january()).unwrap(),
        "January is in the repository twice"
    );
}
