//! A first plugin for someone who has this binary and a Rust toolchain and nothing else: what `weir plugin new` writes.
//!
//! In goes a name, out comes a crate that builds, whose tests pass, and that its own pipeline runs. The SDK is part of this
//! binary and is written beside the crate's sources. An existing folder is never touched.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::model::name_fault;

/// The SDK's files, by their path in its folder: what the build script found in `sdk/rust`.
pub const SDK_FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));

/// Where the SDK goes in a new crate.
const SDK_FOLDER: &str = "vendor/weir-sdk";

/// The files of a new crate; `{{name}}` stands for its name.
const TEMPLATE: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("scaffold/Cargo.toml.txt")),
    ("src/lib.rs", include_str!("scaffold/lib.rs.txt")),
    ("README.md", include_str!("scaffold/README.md.txt")),
    ("pipeline.toml", include_str!("scaffold/pipeline.toml.txt")),
    ("readings.jsonl", include_str!("scaffold/readings.jsonl")),
    (".gitignore", include_str!("scaffold/gitignore.txt")),
];

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

/// Why there is no new crate.
#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    /// The name cannot be that of a plugin and of a crate.
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
        /// Where the crate should have gone.
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
                "take 1 to 63 lower-case letters, digits and hyphens, beginning with a letter, and no word of Rust's"
            }
            Self::Exists { .. } => "choose another name, or another folder with --path",
            Self::Write { .. } => "check that the folder exists and is writable",
        }
    }
}

/// Makes a crate called `name` in the new folder `dir`.
///
/// # Errors
///
/// [`ScaffoldError::Name`] and [`ScaffoldError::Exists`] before anything is written; [`ScaffoldError::Write`] leaves
/// what was written until then.
pub fn scaffold(name: &str, dir: &Path) -> Result<(), ScaffoldError> {
    if let Some(fault) = crate_name_fault(name) {
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
    let own = TEMPLATE.iter().map(|(path, text)| (dir.join(path), text.replace("{{name}}", name)));
    let sdk = SDK_FILES.iter().map(|(path, text)| (dir.join(SDK_FOLDER).join(path), (*text).to_owned()));
    for (path, text) in own.chain(sdk) {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed(parent))?;
        }
        fs::write(&path, text).map_err(failed(&path))?;
    }
    Ok(())
}

/// What is wrong with a name for a plugin that is a crate as well.
fn crate_name_fault(name: &str) -> Option<&'static str> {
    if let Some(fault) = name_fault(name) {
        return Some(fault);
    }
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Some("does not begin with a letter");
    }
    RESERVED.contains(&name).then_some("means something else in a Rust crate")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        let embedded: BTreeSet<_> = SDK_FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        let missing: Vec<_> = on_disk.difference(&embedded).collect();
        assert!(missing.is_empty(), "not in the binary: {missing:?}");
        for (path, text) in SDK_FILES {
            assert_eq!(fs::read_to_string(sdk.join(path)).unwrap(), *text, "{path}");
        }
    }

    #[test]
    fn names_that_are_no_crate_are_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        for bad in ["", "A", "a_b", "a/b", "..", "-a", "1st", "fn", "test", "weir-sdk", "ä", &"a".repeat(64)] {
            let error = scaffold(bad, &dir.path().join("x")).unwrap_err();
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
            let error = scaffold(name, &dir.path().join(name)).unwrap_err();
            assert!(matches!(error, ScaffoldError::Exists { .. }), "{error}");
        }
        assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "mine");
        assert_eq!(fs::read_dir(dir.path().join("folder")).unwrap().count(), 0);
    }

    #[test]
    fn no_placeholder_is_left_in_a_new_crate() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("deep/er/my-plugin");
        scaffold("my-plugin", &dir).unwrap();
        for (path, _) in TEMPLATE {
            let text = fs::read_to_string(dir.join(path)).unwrap();
            assert!(!text.contains("{{name}}"), "{path}");
        }
        assert!(dir.join(SDK_FOLDER).join("Cargo.toml").is_file());
    }
}
