//! The folder of a plugin's sources: which language it is in, and what is to be made of it.
//!
//! A Rust project is a crate. Any other says what it is in `weir-plugin.toml`:
//!
//! ```toml
//! name = "my-operator"              # the component becomes my-operator.wasm
//! lang = "python"
//! world = "stateful-operator"       # or "simple-operator"
//! entry = "my_operator.py"
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::value::{Error as DeError, StrDeserializer};
use toml_span::value::ValueInner;

use super::component::World;
use crate::model::name_fault;

/// The file that describes a project.
pub const MANIFEST: &str = "weir-plugin.toml";

/// The language of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Lang {
    /// Rust
    Rust,
    /// JavaScript
    Js,
    /// TypeScript
    Ts,
    /// Python
    Python,
    /// Go
    Go,
    /// C or C++
    C,
    /// Zig
    Zig,
}

impl Lang {
    /// As it is written in a project's description.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Js => "js",
            Self::Ts => "ts",
            Self::Python => "python",
            Self::Go => "go",
            Self::C => "c",
            Self::Zig => "zig",
        }
    }
}

/// A plugin's sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Where they are.
    pub dir: PathBuf,
    /// The name of the component.
    pub name: String,
    /// What they are written in.
    pub lang: Lang,
    /// Which world they implement; none where the module says it.
    pub world: Option<World>,
    /// The source file that everything begins with, within the folder; for languages that have one.
    pub entry: Option<PathBuf>,
}

/// Why a folder is no project.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// Neither a description nor a crate.
    #[error("no plugin in {}: it has no {MANIFEST} and no Cargo.toml with a [package] name", dir.display())]
    None {
        /// The folder.
        dir: PathBuf,
    },
    /// The description cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The description makes no sense.
    #[error("{}: {fault}", path.display())]
    Manifest {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
}

impl ProjectError {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::None { .. } => "name the folder of a plugin's sources; `weir plugin new NAME` makes one",
            Self::Read { .. } => "check that the file can be read and is text",
            Self::Manifest { .. } => "correct it; `weir plugin new NAME --lang LANG` shows what one looks like",
        }
    }
}

impl Project {
    /// Looks into a folder.
    ///
    /// # Errors
    ///
    /// [`ProjectError`].
    pub fn open(dir: &Path) -> Result<Self, ProjectError> {
        let path = dir.join(MANIFEST);
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(dir, &text).map_err(|fault| ProjectError::Manifest { path, fault }),
            Err(e) if e.kind() == io::ErrorKind::NotFound || !dir.is_dir() => Self::of_crate(dir),
            Err(source) => Err(ProjectError::Read { path, source }),
        }
    }

    fn of_crate(dir: &Path) -> Result<Self, ProjectError> {
        let name = package_name(&dir.join("Cargo.toml")).ok_or_else(|| ProjectError::None { dir: dir.to_owned() })?;
        Ok(Self { dir: dir.to_owned(), name, lang: Lang::Rust, world: None, entry: None })
    }

    /// The world that it implements.
    pub(super) fn world(&self) -> World {
        self.world.unwrap_or(World::StatefulOperator)
    }

    /// The source file that everything begins with, which the languages that ask for it must have.
    pub(super) fn entry(&self) -> Result<&Path, ProjectError> {
        let missing = || ProjectError::Manifest { path: self.dir.join(MANIFEST), fault: "entry is missing".to_owned() };
        let entry = self.entry.as_deref().ok_or_else(missing)?;
        match self.dir.join(entry).metadata() {
            Ok(_) => Ok(entry),
            Err(source) => Err(ProjectError::Read { path: self.dir.join(entry), source }),
        }
    }

    fn parse(dir: &Path, text: &str) -> Result<Self, String> {
        let mut root = toml_span::parse(text).map_err(|e| e.to_string())?;
        let ValueInner::Table(mut table) = root.take() else { return Err("it is no table".to_owned()) };
        let mut text = |key: &str| match table.remove(key).map(|mut value| value.take()) {
            None => Ok(None),
            Some(ValueInner::String(text)) => Ok(Some(text.into_owned())),
            Some(_) => Err(format!("{key} is not a string")),
        };
        let (name, lang, world, entry) = (text("name")?, text("lang")?, text("world")?, text("entry")?);
        if let Some((key, _)) = table.first_key_value() {
            return Err(format!("{:?} is not a key of it; name, lang, world and entry are", key.name));
        }
        let name = name.ok_or("name is missing")?;
        if let Some(fault) = name_fault(&name) {
            return Err(format!("name = {name:?} {fault}"));
        }
        let lang = word::<Lang>("lang", &lang.ok_or("lang is missing")?)?;
        let world = world.map(|world| word::<World>("world", &world)).transpose()?;
        let entry = entry.map(PathBuf::from);
        let is_within = |path: &PathBuf| path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if let Some(entry) = entry.as_ref().filter(|entry| !is_within(entry)) {
            return Err(format!("entry = {:?} is not a path within the folder", entry.display().to_string()));
        }
        Ok(Self { dir: dir.to_owned(), name, lang, world, entry })
    }
}

/// One of the words that a type knows; the error lists them.
fn word<'a, T: Deserialize<'a>>(key: &str, text: &'a str) -> Result<T, String> {
    T::deserialize(StrDeserializer::<DeError>::new(text)).map_err(|e| format!("{key}: {e}"))
}

/// The name of the package in a manifest; none if there is no manifest or no package in it.
fn package_name(manifest: &Path) -> Option<String> {
    let text = fs::read_to_string(manifest).ok()?;
    let value = toml_span::parse(&text).ok()?;
    value.pointer("/package/name")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_package_is_no_project() {
        let dir = tempfile::tempdir().unwrap();
        for manifest in [None, Some("[workspace]\nmembers = []\n"), Some("not toml")] {
            if let Some(text) = manifest {
                fs::write(dir.path().join("Cargo.toml"), text).unwrap();
            }
            let error = Project::open(dir.path()).unwrap_err();
            assert!(matches!(error, ProjectError::None { .. }), "{error}");
        }
        let error = Project::open(&dir.path().join("nowhere")).unwrap_err();
        assert!(matches!(error, ProjectError::None { .. }), "{error}");
    }

    #[test]
    fn a_description_is_read_strictly() {
        let dir = tempfile::tempdir().unwrap();
        let open = |text: &str| {
            fs::write(dir.path().join(MANIFEST), text).unwrap();
            Project::open(dir.path())
        };
        let project = open("name = \"x\"\nlang = \"rust\"\nworld = \"simple-operator\"\nentry = \"src/x.rs\"").unwrap();
        assert_eq!((project.name.as_str(), project.lang), ("x", Lang::Rust));
        assert_eq!((project.world, project.entry), (Some(World::SimpleOperator), Some("src/x.rs".into())));
        for (text, said) in [
            ("name = 1", "name is not a string"),
            ("lang = \"rust\"", "name is missing"),
            ("name = \"x\"", "lang is missing"),
            ("name = \"X\"\nlang = \"rust\"", "name = \"X\""),
            ("name = \"x\"\nlang = \"cobol\"", "unknown variant `cobol`"),
            ("name = \"x\"\nlang = \"rust\"\nworld = \"w\"", "world: unknown variant `w`"),
            ("name = \"x\"\nlang = \"rust\"\nentry = \"../x\"", "not a path within"),
            ("name = \"x\"\nlang = \"rust\"\nwrold = \"w\"", "\"wrold\" is not a key"),
            ("name", "weir-plugin.toml"),
        ] {
            let error = open(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
