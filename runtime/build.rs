//! Puts the Rust SDK's sources and the core modules that weir itself brings into the binary, so that `weir plugin new`, `build` and `bench` work
//! for who has nothing else.
//!
//! The list is made from the folder, so it cannot fall behind it: manifest, README, sources and the contract, not tests.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let sdk = root.join("../sdk/rust");
    println!("cargo::rerun-if-changed=build.rs");
    // Whole folders, which exist: a path that does not would make cargo run this every time.
    println!("cargo::rerun-if-changed={}", sdk.display());
    println!("cargo::rerun-if-changed={}", root.join("../wit").display());
    let mut files = Vec::new();
    for part in ["Cargo.toml", "README.md", "src", "wit"] {
        collect(&sdk, Path::new(part), &mut files);
    }
    files.sort();
    let mut list = String::from("&[\n");
    for file in &files {
        let path = fs::canonicalize(sdk.join(file)).expect("it was found there");
        writeln!(list, "    ({file:?}, include_str!({:?})),", path.display().to_string()).expect("a string grows");
    }
    list.push_str("]\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    for module in ["preview1", "empty"] {
        let text = root.join("src/plugin/component").join(module).with_extension("wat");
        println!("cargo::rerun-if-changed={}", text.display());
        let binary = wat::parse_file(&text).unwrap_or_else(|e| panic!("{e}"));
        fs::write(out.join(module).with_extension("wasm"), binary).expect("cargo's output folder is writable");
    }
    fs::write(out.join("sdk_files.rs"), list).expect("cargo's output folder is writable");
}

/// Adds the files at and below `path`, with paths as they will be in a plugin's folder.
fn collect(sdk: &Path, path: &Path, files: &mut Vec<String>) {
    let full = sdk.join(path);
    if full.is_dir() {
        for entry in fs::read_dir(&full).expect("the folder was found").flatten() {
            collect(sdk, &path.join(entry.file_name()), files);
        }
    } else if full.is_file() {
        files.push(path.to_str().expect("names in the SDK are ASCII").replace('\\', "/"));
    }
}
