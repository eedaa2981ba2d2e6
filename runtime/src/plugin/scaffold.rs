//! A first plugin for someone who has this binary, the tools of a language and nothing else: what `weir plugin new` writes.
//!
//! In goes a name, out comes a project that builds, whose tests pass, and that its own pipeline runs. The SDK is part of this
//! binary and is written beside the project's sources. An existing folder is never touched.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::project::Lang;
use crate::model::name_fault;

/// What the build script found in `sdk/` of a language.
#[derive(Debug)]
struct Files {
    lang: &'static str,
    /// The SDK, by path in its folder.
    sdk: &'static [(&'static str, &'static [u8])],
    /// The project's own files, by path; `{{name}}` stands for its name, and `gitignore` is called `.gitignore` there.
    template: &'static [(&'static str, &'static [u8])],
}

const FILES: &[Files] = include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));

/// The files of a new crate.
const RUST_TEMPLATE: &[(&str, &[u8])] = &[
    ("Cargo.toml", include_bytes!("scaffold/Cargo.toml.txt")),
    ("src/lib.rs", include_bytes!("scaffold/lib.rs.txt")),
    ("README.md", include_bytes!("scaffold/README.md.txt")),
    ("pipeline.toml", include_bytes!("scaffold/pipeline.toml.txt")),
    ("readings.jsonl", include_bytes!("scaffold/readings.jsonl")),
    ("gitignore", include_bytes!("scaffold/gitignore.txt")),
];

/// Where the SDK goes in a new project.
fn sdk_folder(lang: Lang) -> &'static str {
    if lang == Lang::Rust { "vendor/weir-sdk" } else { "vendor/weir" }
}

/// Names that cargo, rustc or this scaffold give a meaning of their own.
const RESERVED: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "weir-sdk",
    "where",
    "while",
    "yield",
];

/// Why there is no new project.
#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    /// The name cannot be that of a plugin and of a project in its language.
    #[error("the name {name:?} {fault}")]
    Name {
        /// What was asked for.
        name: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// Something is there already.
    #[error("{} exists", dir.display())]
    Exists {
        /// Where the project should have gone.
        dir: PathBuf,
    },
    /// A file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl ScaffoldError {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Name { .. } => {
                "take 1 to 63 lower-case letters, digits and hyphens, beginning with a letter; for a crate no word of Rust's"
            }
            Self::Exists { .. } => "choose another name, or another folder with --path",
            Self::Write { .. } => "check that the folder exists and is writable",
        }
    }
}

/// Makes a project called `name` in the new folder `dir`.
///
/// # Errors
///
/// [`ScaffoldError::Name`] and [`ScaffoldError::Exists`] before anything is written; [`ScaffoldError::Write`] leaves
/// what was written until then.
pub fn scaffold(name: &str, lang: Lang, dir: &Path) -> Result<(), ScaffoldError> {
    if let Some(fault) = project_name_fault(name, lang) {
        return Err(ScaffoldError::Name { name: name.to_owned(), fault });
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| ScaffoldError::Write { path, source }
    };
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(failed(parent))?;
    }
    // Whoever makes the folder owns it: there is no moment between looking and making.
    match fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(ScaffoldError::Exists { dir: dir.to_owned() });
        }
        made => made.map_err(failed(dir))?,
    }
    for (path, bytes) in project_files(name, lang) {
        let path = dir.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed(parent))?;
        }
        fs::write(&path, bytes).map_err(failed(&path))?;
    }
    Ok(())
}

/// Everything that a new project consists of.
fn project_files(name: &str, lang: Lang) -> Vec<(PathBuf, Vec<u8>)> {
    let Some(files) = FILES.iter().find(|files| files.lang == lang.name()) else { return Vec::new() };
    let template = if lang == Lang::Rust { RUST_TEMPLATE } else { files.template };
    let own = template.iter().map(|(path, bytes)| {
        let bytes = match std::str::from_utf8(bytes) {
            Ok(text) => text.replace("{{name}}", name).into_bytes(),
            Err(_) => bytes.to_vec(),
        };
        (PathBuf::from(if *path == "gitignore" { ".gitignore" } else { path }), bytes)
    });
    let sdk = files.sdk.iter().map(|(path, bytes)| (Path::new(sdk_folder(lang)).join(path), bytes.to_vec()));
    own.chain(sdk).collect()
}

/// What is wrong with a name for a plugin that is a project of its language as well.
fn project_name_fault(name: &str, lang: Lang) -> Option<&'static str> {
    if let Some(fault) = name_fault(name) {
        return Some(fault);
    }
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Some("does not begin with a letter");
    }
    (lang == Lang::Rust && RESERVED.contains(&name)).then_some("means something else in a Rust crate")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_file_of_the_sdk_is_in_the_binary_as_it_is() {
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/rust");
        let mut on_disk = BTreeSet::new();
        let mut folders = vec![PathBuf::from("src"), PathBuf::from("wit")];
        on_disk.insert("Cargo.toml".to_owned());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(sdk.join(&folder)).unwrap() {
                let path = folder.join(entry.unwrap().file_name());
                if sdk.join(&path).is_dir() {
                    folders.push(path);
                } else {
                    on_disk.insert(path.to_str().unwrap().to_owned());
                }
            }
        }
        let rust = FILES.iter().find(|files| files.lang == "rust").unwrap();
        let embedded: BTreeSet<_> = rust.sdk.iter().map(|(path, _)| (*path).to_owned()).collect();
        let missing: Vec<_> = on_disk.difference(&embedded).collect();
        assert!(missing.is_empty(), "not in the binary: {missing:?}");
        for (path, bytes) in rust.sdk {
            assert_eq!(fs::read(sdk.join(path)).unwrap(), *bytes, "{path}");
        }
    }

    #[test]
    fn names_that_are_no_crate_are_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        for bad in ["", "A", "a_b", "a/b", "..", "-a", "1st", "fn", "test", "weir-sdk", "ä", &"a".repeat(64)] {
            let error = scaffold(bad, Lang::Rust, &dir.path().join("x")).unwrap_err();
            assert!(matches!(error, ScaffoldError::Name { .. }), "{bad}: {error}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_existing_folder_or_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "mine").unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        for name in ["file", "folder"] {
            let error = scaffold(name, Lang::Rust, &dir.path().join(name)).unwrap_err();
            assert!(matches!(error, ScaffoldError::Exists { .. }), "{error}");
        }
        assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "mine");
        assert_eq!(fs::read_dir(dir.path().join("folder")).unwrap().count(), 0);
    }

    #[test]
    fn no_placeholder_is_left_in_a_new_project() {
        for lang in Lang::value_variants() {
            let files = project_files("my-plugin", *lang);
            assert!(files.iter().any(|(path, _)| path == Path::new(".gitignore")), "{lang:?}");
            assert!(files.iter().any(|(path, _)| path.starts_with(sdk_folder(*lang))), "{lang:?} lacks the SDK");
            for (path, bytes) in files.iter().filter(|(path, _)| !path.starts_with("vendor")) {
                assert!(!String::from_utf8_lossy(bytes).contains("{{name}}"), "{}", path.display());
            }
        }
    }
}
