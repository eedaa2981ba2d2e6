//! Operators in every language that has an SDK: the three of `sdk/conformance` are built by the function behind `weir plugin build`, run by the real
//! binary, killed at moments of chance, and give what is expected, byte for byte. One whose language leaks is run for long.
//!
//! Where the tools of a language are not installed its test is left out, with a line that says what is missing; on CI that is a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use weir::plugin::build::{BuildError, BuildOptions, build};
use weir::plugin::project::Lang;
use weir::plugin::scaffold::scaffold;

fn sdk() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk")
}

/// Waits for something that nobody tells.
#[allow(clippy::disallowed_methods)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Builds a project. None where a tool is missing.
fn built(project: &Path, output: &Path) -> Option<()> {
    let target = weir_tests::cargo_target().join("guests");
    let options = BuildOptions { output: Some(output.to_owned()), target_dir: Some(target) };
    match build(project, &options) {
        Ok(_) => Some(()),
        Err(error @ (BuildError::NoProgram { .. } | BuildError::Version { .. })) => {
            assert!(std::env::var_os("CI").is_none(), "{error}: {}", error.remedy());
            eprintln!("skipped {}: {error}; {}", project.display(), error.remedy());
            None
        }
        Err(error) => panic!("{} does not build: {error}; {}", project.display(), error.remedy()),
    }
}

/// What `weir plugin new` makes in each language is the same operator with the same input: it builds, runs, and says the same. Its own unit tests are run by
/// `tools/test-sdks.sh`, and those of the one in Rust by `plugin_cli.rs`.
#[test]
fn a_new_project_in_each_language_builds_runs_and_says_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut said = Vec::new();
    for lang in [Lang::Rust, Lang::Js, Lang::Ts, Lang::Python, Lang::Go, Lang::C, Lang::Zig] {
        let project = folder.path().join(lang.name());
        scaffold("fresh", lang, &project).expect("it can be written");
        if matches!(lang, Lang::Js | Lang::Ts) {
            // As `npm install` would put them.
            let packages = sdk().join("js/node_modules");
            std::os::unix::fs::symlink(packages, project.join("node_modules")).expect("a link");
        }
        if built(&project, &project.join("fresh.wasm")).is_none() {
            continue;
        }
        let status = command(&project, &["run", "--quiet", "pipeline.toml"]).status().expect("it can be started");
        assert!(status.success(), "{lang:?}: {}", log(&project));
        let test =
            ["plugin", "test", "fresh.wasm", "--input", "readings.jsonl", "--key", "/sensor", "--event-time", "/time"];
        let (code, report, fault) = weir_tests::run(&project, &test);
        assert_eq!(code, 0, "{lang:?}: {report}{fault}");
        said.push((lang, output(&project)));
    }
    let (first, expected) = &said[0];
    assert!(expected.len() > 2, "{first:?} says {expected:?}");
    for (lang, lines) in &said {
        assert_eq!(lines, expected, "{lang:?} says something else than {first:?}");
    }
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(weir_tests::weir());
    command.args(args).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(fs::File::options().create(true).append(true).open(folder.join("log")).expect("a log"));
    command
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// All lines of the output, sorted.
fn output(folder: &Path) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for epoch in fs::read_dir(folder.join("out")).expect("there is output").flatten() {
        if !epoch.file_name().to_string_lossy().starts_with("epoch-") {
            continue;
        }
        for part in fs::read_dir(epoch.path()).expect("an epoch is a folder").flatten() {
            if part.file_name().to_string_lossy().starts_with("part-") {
                let bytes = fs::read(part.path()).expect("a part can be read");
                lines.extend(bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec));
            }
        }
    }
    lines.sort();
    lines
}

fn conforms(project: &Path, operator: &str, parallelism: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    if built(project, &folder.join("operator.wasm")).is_none() {
        return;
    }
    fs::copy(sdk().join("conformance/input.jsonl"), folder.join("input.jsonl")).expect("the input is there");
    let pipeline = format!(
        r#"
name = "conformance"

[checkpoint]
store = "file://./.weir"
interval = "50ms"

[restart]
attempts = 0

[source.lines]
connector = "file"
path = "input.jsonl"
format = "json"
event_time = "/at"
out_of_orderness = "5m"
rate = 2_000

[operator.work]
plugin = "operator.wasm"
inputs = [{{ from = "lines", key = "/key" }}]
on_reject = "skip"
parallelism = {parallelism}

[sink.out]
connector = "file"
inputs = ["work"]
path = "out"
format = "lines"
"#
    );
    fs::write(folder.join("pipeline.toml"), pipeline).expect("a pipeline");
    // Compiled once, and kept: an interpreter takes seconds.
    let status = command(folder, &["check", "pipeline.toml"]).status().expect("the binary can be started");
    assert!(status.success(), "{operator} in {}: {}", project.display(), log(folder));
    let mut kills = 0;
    loop {
        let mut child = command(folder, &["run", "--quiet", "pipeline.toml"]).spawn().expect("it can be started");
        // Whatever it is doing then: nothing that is asserted depends on it.
        pause(Duration::from_millis(700 + 213 * (kills % 4)));
        if kills < 4 && child.try_wait().expect("it is a child").is_none() {
            child.kill().expect("it can be killed");
            child.wait().expect("it is a child");
            kills += 1;
            continue;
        }
        assert_eq!(child.wait().expect("it is a child").code(), Some(0), "{}: {}", project.display(), log(folder));
        break;
    }
    let expected = fs::read(sdk().join(format!("conformance/expected/{operator}.txt"))).expect("it is there");
    let expected: Vec<&[u8]> = expected.split_inclusive(|byte| *byte == b'\n').collect();
    let found = output(folder);
    let differs = expected.iter().zip(&found).find(|(expected, found)| *expected != found);
    let shown = differs.map(|(a, b)| (String::from_utf8_lossy(a), String::from_utf8_lossy(b)));
    assert_eq!(shown, None, "{operator} in {}", project.display());
    assert_eq!(found.len(), expected.len(), "lines of {operator} in {}", project.display());
}

/// Its operators, each at another parallelism.
fn all(language: &str, operators: &[(&str, &str)]) {
    for ((operator, folder), parallelism) in operators.iter().zip([2, 3, 2, 1]) {
        conforms(&sdk().join(language).join("examples").join(folder), operator, parallelism);
    }
}

const THREE: &[(&str, &str)] = &[("upper", "upper"), ("tally", "tally"), ("visits", "visits")];

#[test]
fn operators_in_rust_conform() {
    all("rust", &[("upper", "upper"), ("tally", "tally"), ("visits", "visits"), ("tally", "tally-windows")]);
}

/// Two are in JavaScript, `visits` is in TypeScript.
#[test]
fn operators_in_javascript_and_typescript_conform() {
    all("js", THREE);
}

#[test]
fn operators_in_python_conform() {
    all("python", THREE);
}

#[test]
fn operators_in_go_conform() {
    all("go", THREE);
}

#[test]
fn operators_in_c_and_cpp_conform() {
    all("c", &[("upper", "upper"), ("tally", "tally"), ("visits", "visits"), ("tally", "tally-cpp")]);
}

#[test]
fn operators_in_zig_conform() {
    all("zig", THREE);
}

/// What a call hands to the host leaks in Python, here 300 bytes a record and more: an operator that is not recycled crosses `memory` before a quarter
/// of the records.
#[test]
fn a_python_operator_runs_for_a_million_records_under_a_ceiling_and_is_recycled_again_and_again_with_exact_output() {
    const RECORDS: usize = 1_000_000;
    const KEYS: usize = 1_000;
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("guests/leaky-python");
    if built(&project, &folder.join("operator.wasm")).is_none() {
        return;
    }
    let pipeline = format!(
        r#"
name = "leaky"

[checkpoint]
store = "file://./.weir"
interval = "500ms"

[restart]
attempts = 0

[source.made]
connector = "generator"
records = {RECORDS}
keys = {KEYS}
distribution = "sequential"
format = "json"

[operator.numbered]
plugin = "operator.wasm"
inputs = ["made"]
limits = {{ soft_memory = "64MiB", memory = "80MiB" }}

[sink.out]
connector = "file"
inputs = ["numbered"]
path = "out"
format = "lines"
"#
    );
    fs::write(folder.join("pipeline.toml"), pipeline).expect("a pipeline");
    let mut run = command(folder, &["run", "--quiet", "pipeline.toml"]);
    let status = run.env("WEIR_LOG", "info").status().expect("it can be started");
    assert!(status.success(), "{}", log(folder));
    let recycled = log(folder).matches("recycled: a fresh instance has taken over the state").count();
    assert!(recycled >= 2, "recycled {recycled} times: {}", log(folder));
    let found = weir_tests::lines(&folder.join("out"));
    let expected = (0..RECORDS).map(|record| format!("{} {}", record % KEYS, record / KEYS + 1));
    let differs = expected.zip(&found).find(|(expected, found)| expected != *found);
    assert_eq!(differs, None);
    assert_eq!(found.len(), RECORDS);
}
