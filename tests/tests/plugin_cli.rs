//! `weir plugin` as a user types it: the real command in real folders, with real cargo builds.
//!
//! Every crate lies at a fixed place below the target folder and shares one target folder for guests, so that a second run compiles only what has
//! changed and nothing piles up.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What a command did.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e} in {self:#?}"))
    }

    /// It failed with this code, and said each of these.
    #[track_caller]
    fn refused(&self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for text in texts {
            assert!(self.err.contains(text), "{text:?} was not said: {self:#?}");
        }
    }

    #[track_caller]
    fn done(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }
}

fn run(command: &mut Command) -> Ran {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Cargo's target folder: this test lies in `<target>/<profile>/deps`.
fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().to_owned()
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The command, built from the sources as they are: cargo builds the binary of another package for no test.
fn weir() -> &'static Path {
    static WEIR: OnceLock<PathBuf> = OnceLock::new();
    WEIR.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut build = cargo();
        build.args(["build", "--release", "--package", "weir", "--bin", "weir", "--target-dir"]).arg(target());
        run(build.current_dir(root)).done();
        target().join("release").join("weir")
    })
}

fn plugin<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(weir());
    command.arg("plugin").args(args);
    command
}

/// `weir plugin build`, into the target folder that all guests share.
fn build(dir: &Path) -> Command {
    let mut command = plugin(["build"]);
    command.arg(dir).arg("--target-dir").arg(guests());
    command
}

fn guests() -> PathBuf {
    target().join("guests")
}

/// An empty folder of a test's own, at the same place in every run.
fn folder(name: &str) -> PathBuf {
    let folder = target().join("tmp").join("plugin-cli").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A crate with these sources; `dependencies` stands under that header.
fn krate(test: &str, crate_type: &str, dependencies: &str, source: &str) -> PathBuf {
    let dir = folder(test);
    fs::create_dir_all(dir.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"{test}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"{crate_type}\"]\n\
         [dependencies]\n{dependencies}\n[workspace]\n"
    );
    fs::write(dir.join("Cargo.toml"), manifest).unwrap();
    fs::write(dir.join("src/lib.rs"), source).unwrap();
    dir
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_new_plugin_is_made_tested_built_and_looked_into_as_the_tutorial_says() {
    let dir = folder("tutorial");
    let made = run(plugin(["new", "first-steps"]).current_dir(&dir)).done();
    assert_eq!(made.out, "first-steps\n");
    assert!(made.err.contains("weir plugin build first-steps"), "{made:#?}");
    let dir = dir.join("first-steps");

    let tests = run(cargo().args(["test", "--release", "--target-dir"]).arg(guests()).current_dir(&dir)).done();
    assert!(tests.out.contains("test result: ok."), "{tests:#?}");
    assert!(!tests.err.contains("warning"), "a first plugin should not begin with warnings: {tests:#?}");
    // The defaults, not those of the repository around the target folder.
    let defaults = "max_width=100,use_small_heuristics=Default";
    run(cargo().args(["fmt", "--check", "--", "--config", defaults]).current_dir(&dir)).done();

    let built = run(build(Path::new(".")).current_dir(&dir)).done();
    let component = fs::read(dir.join("first-steps.wasm")).unwrap();
    let digest = blake3::hash(&component).to_hex();
    for text in
        [digest.as_str(), &format!("{} bytes", component.len()), "stateful-operator", "weir:plugin/output@0.1.0"]
    {
        assert!(built.out.contains(text), "{text}: {built:#?}");
    }
    assert!(built.err.contains("building with rustc 1."), "{built:#?}");

    // The same sources, the same plugin; elsewhere if asked.
    let other = dir.join("other.wasm");
    let again = run(build(&dir).arg("--output").arg(&other).arg("--json")).done().json();
    assert_eq!(again["digest"], digest.as_str());
    assert_eq!(again["path"], other.to_str().unwrap());
    assert_eq!(fs::read(&other).unwrap(), component);

    let seen = run(plugin(["inspect", "--json"]).arg(&other)).done().json();
    assert_eq!((&seen["digest"], &seen["world"]), (&again["digest"], &"stateful-operator".into()));
    assert_eq!(seen["size"], component.len());
    assert_eq!(seen["wasi"], serde_json::json!([]));
    let exports = seen["exports"].as_array().unwrap();
    for export in ["weir:plugin/processor@0.1.0", "weir:plugin/checkpoint@0.1.0"] {
        assert!(exports.contains(&export.into()), "{seen:#}");
    }
    assert_eq!(seen["problems"], serde_json::json!([]));
}

#[test]
fn names_that_cannot_be_a_crate_are_refused_and_nothing_is_made() {
    let dir = folder("bad-names");
    for (name, fault) in [
        ("Upper", "has characters other than"),
        ("with/slash", "has characters other than"),
        ("1st", "does not begin with a letter"),
        ("match", "means something else"),
        ("", "is empty"),
    ] {
        run(plugin(["new", name]).current_dir(&dir))
            .refused(2, &[&format!("the name {name:?}"), fault, "help: take 1 to 63"]);
    }
    assert_eq!(files(&dir).len(), 0);
}

#[test]
fn an_existing_folder_is_left_as_it_is() {
    let dir = folder("existing");
    fs::create_dir(dir.join("mine")).unwrap();
    fs::write(dir.join("mine/thesis.txt"), "ten years of work").unwrap();
    let before = files(&dir);
    run(plugin(["new", "mine", "--path"]).arg(&dir)).refused(2, &["mine exists", "choose another name"]);
    assert_eq!(files(&dir), before);
}

#[test]
fn a_folder_that_is_no_crate_is_refused_by_name() {
    let dir = folder("no-crate");
    run(&mut build(&dir)).refused(3, &["no-crate", "no Cargo.toml with a [package] name", "weir plugin new"]);
    run(&mut build(&dir.join("nowhere"))).refused(3, &["nowhere", "no Cargo.toml with a [package] name"]);
}

#[test]
fn what_the_compiler_says_about_a_mistake_is_shown_and_no_file_appears() {
    let dir = krate("mistaken", "cdylib", "", "pub fn f() -> u32 { \"text\" }\n");
    run(&mut build(&dir)).refused(3, &["error[E0308]", "cargo build failed with exit status: 101"]);
    assert!(!dir.join("mistaken.wasm").exists());
}

#[test]
fn a_library_that_makes_no_module_is_told_which_line_is_missing() {
    let dir = krate("just-a-library", "rlib", "", "");
    run(&mut build(&dir)).refused(3, &["makes no WebAssembly module", "crate-type = [\"cdylib\""]);
}

#[test]
fn a_module_without_an_operator_is_refused_also_when_it_is_looked_into() {
    let dir = krate("silent", "cdylib", "", "#[unsafe(no_mangle)]\npub extern \"C\" fn f() {}\n");
    run(&mut build(&dir)).refused(3, &["a core module that says nothing", "weir_sdk::export!"]);
    assert!(!dir.join("silent.wasm").exists());
    let module = guests().join("wasm32-unknown-unknown/release/silent.wasm");
    run(plugin(["inspect"]).arg(&module))
        .refused(3, &["silent.wasm is not a plugin", "a core module that says nothing"]);
}

#[test]
fn a_component_of_another_world_is_refused_with_what_was_expected() {
    let source = r#"
wit_bindgen::generate!({ inline: "package other:thing@1.2.3; interface greeter { hello: func() -> string; } world w { export greeter; }" });
struct Greeter;
impl exports::other::thing::greeter::Guest for Greeter {
    fn hello() -> String { "hello".into() }
}
export!(Greeter);
"#;
    let dependencies =
        "wit-bindgen = { version = \"0.60\", default-features = false, features = [\"macros\", \"realloc\"] }";
    let dir = krate("greeter", "cdylib", dependencies, source);
    run(&mut build(&dir)).refused(
        3,
        &[
            "what greeter makes is not a plugin",
            "lacks the export weir:plugin/processor@0.1.0; it exports other:thing/greeter@1.2.3",
        ],
    );
    assert!(!dir.join("greeter.wasm").exists());
}

#[test]
fn a_file_that_is_no_component_is_refused_by_name() {
    let dir = folder("no-component");
    let text = dir.join("text.wasm");
    fs::write(&text, "not wasm").unwrap();
    run(plugin(["inspect"]).arg(&text)).refused(3, &["text.wasm is not a plugin", "magic bytes"]);
    run(plugin(["inspect"]).arg(dir.join("none.wasm"))).refused(3, &["cannot read", "none.wasm"]);
}

#[cfg(unix)]
#[test]
fn a_compiler_without_the_target_is_named_with_the_commands_that_mend_it() {
    use std::os::unix::fs::PermissionsExt;
    let dir = krate("no-target", "cdylib", "", "");
    let rustc = dir.join("rustc");
    fs::write(&rustc, "#!/bin/sh\n[ \"$1\" = -V ] && echo rustc 1.2.3 && exit 0\necho /nonexistent\n").unwrap();
    fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = run(build(&dir).env("RUSTC", &rustc).env("WEIR_CACHE", dir.join("empty-cache")));
    ran.refused(
        3,
        &[
            "rustc 1.2.3 cannot build for wasm32-unknown-unknown",
            "rustup target add wasm32-unknown-unknown",
            "weir plugin setup",
        ],
    );
}
