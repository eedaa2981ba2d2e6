//! Puts into the binary what `weir plugin new`, `build` and `bench` need, so that they work for who has nothing else: the SDKs, the files of a new
//! project in each language, and the core modules that weir itself brings.
//!
//! The lists are made from the folders, so they cannot fall behind them: manifest, README, sources and the contract, not tests.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// A language: its name, the folder of its SDK, what of it goes into a project, and the folder of the project's own files. Rust's is in
/// `src/plugin/scaffold`.
const LANGS: &[(&str, &str, &[&str], &str)] = &[
    ("rust", "rust", &["Cargo.toml", "README.md", "src", "wit"], ""),
    ("js", "js", JS, "template-js"),
    ("ts", "js", JS, "template-ts"),
    ("python", "python/weir", &[""], "../template"),
    ("go", "go", &["README.md", "go.mod", "internal", "state", "weir", "weirtest"], "template"),
    ("c", "c", C, "template"),
    ("zig", "zig", &["README.md", "src", "weir.zig", "worlds"], "template"),
];
const C: &[&str] =
    &["README.md", "bindings", "src", "weir.c", "weir.h", "weir.hpp", "weir_test.c", "weir_test.h", "worlds"];
const JS: &[&str] = &["README.md", "package.json", "src", "typescript.js", "wit"];

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed=build.rs");
    // Each exists: a path that does not would make cargo run this every time.
    println!("cargo::rerun-if-changed={}", root.join("../wit").display());

    let mut list = String::from("&[\n");
    for (lang, sdk, parts, template) in LANGS {
        let sdk = root.join("../sdk").join(sdk);
        let files = |base: &Path, parts: &[&str]| {
            let mut files = Vec::new();
            for part in parts {
                println!("cargo::rerun-if-changed={}", base.join(part).display());
                collect(base, Path::new(part), &mut files);
            }
            files.sort();
            let text = |file: &String| {
                let path = fs::canonicalize(base.join(file)).expect("it was found there");
                format!("({file:?}, include_bytes!({:?})), ", path.display().to_string())
            };
            files.iter().map(text).collect::<String>()
        };
        let template = if template.is_empty() { String::new() } else { files(&sdk.join(template), &[""]) };
        writeln!(list, "    Files {{ lang: {lang:?}, sdk: &[{}], template: &[{template}] }},", files(&sdk, parts))
            .expect("a string grows");
    }
    list.push_str("]\n");
    fs::write(out.join("sdk_files.rs"), list).expect("cargo's output folder is writable");

    for module in ["preview1", "empty"] {
        let text = root.join("src/plugin/component").join(module).with_extension("wat");
        println!("cargo::rerun-if-changed={}", text.display());
        let binary = wat::parse_file(&text).unwrap_or_else(|e| panic!("{e}"));
        fs::write(out.join(module).with_extension("wasm"), binary).expect("cargo's output folder is writable");
    }
}

/// Adds the files at and below `path`, with paths as they will be in a plugin's folder.
fn collect(base: &Path, path: &Path, files: &mut Vec<String>) {
    let full = base.join(path);
    if full.is_dir() {
        for entry in fs::read_dir(&full).expect("the folder was found").flatten() {
            // What Python leaves where a module was imported.
            if entry.file_name() != "__pycache__" {
                collect(base, &path.join(entry.file_name()), files);
            }
        }
    } else if full.is_file() {
        files.push(path.to_str().expect("names in the SDKs are UTF-8").replace('\\', "/"));
    }
}
