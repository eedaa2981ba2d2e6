//! From a folder with a plugin's sources to a component beside it: what `weir plugin build` does.
//!
//! The tools of the language do the work and speak to the user on standard error by themselves; this finds them, makes a component of
//! what they made, and refuses to write one that the host would refuse. The result is put in place
//! by a rename, so a pipeline that starts meanwhile reads the old component or the new one.

mod c;
mod go;
mod js;
mod python;
mod rust;
mod tool;
mod zig;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

pub use rust::{SETUP_SCRIPT, TARGET, Toolchain};

use super::component::{self, ComponentError, Inspection};
use super::project::{Lang, Project, ProjectError};

/// What may be chosen about a build.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// Where the component goes; by default `<name>.wasm` in the project's folder.
    pub output: Option<PathBuf>,
    /// Cargo's target folder; by default cargo's choice. Crates that share one compile their dependencies once.
    pub target_dir: Option<PathBuf>,
}

/// What a build made.
#[derive(Clone, Debug)]
pub struct Built {
    /// Where the component is.
    pub path: PathBuf,
    /// What it is.
    pub inspection: Inspection,
}

/// Why there is no component.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The folder holds no plugin's sources.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// A program is not there.
    #[error("cannot run {program}")]
    NoProgram {
        /// Its name or path.
        program: String,
        /// How to get it.
        get: String,
        /// Why.
        source: io::Error,
    },
    /// A tool of another version than what the language needs.
    #[error("{program} is version {found}; {needed} is needed")]
    Version {
        /// Its path.
        program: PathBuf,
        /// What it says of itself.
        found: String,
        /// Which versions will do.
        needed: String,
        /// How to get one.
        get: String,
    },
    /// No toolchain for the target.
    #[error("{rustc} cannot build for {TARGET}")]
    NoTarget {
        /// The active compiler, with its version.
        rustc: String,
    },
    /// A tool failed, and has said why.
    #[error("{tool} failed with {status}")]
    Failed {
        /// Which.
        tool: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// The crate makes no library that could be a plugin.
    #[error("crate {name} makes no WebAssembly module")]
    NoArtifact {
        /// Its name.
        name: String,
    },
    /// What was built is not a plugin.
    #[error("what {name} makes is not a plugin")]
    Component {
        /// Its name.
        name: String,
        /// Why not.
        source: ComponentError,
    },
    /// A file could not be read or written.
    #[error("cannot {verb} {}", path.display())]
    File {
        /// "read" or "write".
        verb: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl BuildError {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Project(error) => error.remedy().to_owned(),
            Self::NoProgram { get, .. } => get.clone(),
            Self::Version { get, .. } => get.clone(),
            Self::NoTarget { .. } => format!(
                "run `rustup target add {TARGET}`; where that cannot be had, `weir plugin setup` gets a toolchain from Debian's packages"
            ),
            Self::Failed { .. } => "see its messages above".to_owned(),
            Self::NoArtifact { .. } => "put crate-type = [\"cdylib\"] under [lib] in its Cargo.toml".to_owned(),
            Self::Component { source, .. } => source.remedy().to_owned(),
            Self::File { .. } => "check that the folder exists and is writable".to_owned(),
        }
    }

    fn read(path: &Path, source: io::Error) -> Self {
        Self::File { verb: "read", path: path.to_owned(), source }
    }

    fn write(path: &Path, source: io::Error) -> Self {
        Self::File { verb: "write", path: path.to_owned(), source }
    }
}

/// The tools of a language, found and of a version that will do.
pub trait Builder: fmt::Debug {
    /// One line that says which they are, for people.
    fn describe(&self) -> String;

    /// The bytes of a core module or of a component made of a project whose `dir` is absolute. What the tools say goes to standard error.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when a tool fails or its result cannot be read.
    fn build(&self, project: &Project, options: &BuildOptions) -> Result<Vec<u8>, BuildError>;
}

/// Finds the tools for a project.
///
/// # Errors
///
/// [`BuildError::NoProgram`], [`BuildError::Version`] and [`BuildError::NoTarget`], with what to do about it.
pub fn builder(project: &Project) -> Result<Box<dyn Builder>, BuildError> {
    Ok(match project.lang {
        Lang::Rust => Box::new(Toolchain::find(&project.dir)?),
        Lang::Js | Lang::Ts => Box::new(js::Js::find(project)?),
        Lang::Python => Box::new(python::Python::find(project)?),
        Lang::Go => Box::new(go::Go::find(project)?),
        Lang::C => Box::new(c::C::find(project)?),
        Lang::Zig => Box::new(zig::Zig::find(project)?),
    })
}

/// Builds the project in a folder and writes its component.
///
/// # Errors
///
/// [`BuildError`]; then no file was written.
pub fn build(dir: &Path, options: &BuildOptions) -> Result<Built, BuildError> {
    let project = Project::open(dir)?;
    let builder = builder(&project)?;
    build_with(&project, builder.as_ref(), options)
}

/// The same with tools that were found.
///
/// # Errors
///
/// [`BuildError`]; then no file was written.
pub fn build_with(project: &Project, builder: &dyn Builder, options: &BuildOptions) -> Result<Built, BuildError> {
    // Tools are run in other folders than ours.
    let dir = std::path::absolute(&project.dir).map_err(|source| BuildError::read(&project.dir, source))?;
    let bytes = builder.build(&Project { dir, ..project.clone() }, options)?;
    let name = &project.name;
    let not_a_plugin = |source| BuildError::Component { name: name.clone(), source };
    let component = component::componentize(&bytes, project.world).map_err(not_a_plugin)?;
    let inspection = component::validate(&component).map_err(not_a_plugin)?;

    let path = options.output.clone().unwrap_or_else(|| project.dir.join(format!("{name}.wasm")));
    replace(&path, &component).map_err(|source| BuildError::File { verb: "write", path: path.clone(), source })?;
    Ok(Built { path, inspection })
}

/// A folder for what a tool writes, gone when it is dropped.
fn scratch() -> Result<tempfile::TempDir, BuildError> {
    tempfile::tempdir().map_err(|source| BuildError::write(&std::env::temp_dir(), source))
}

/// The files of the contract in a folder of their own, for tools that read them.
fn contract_folder() -> Result<tempfile::TempDir, BuildError> {
    let folder = scratch()?;
    for (name, text) in component::contract_files() {
        let path = folder.path().join(name);
        fs::write(&path, text).map_err(|source| BuildError::write(&path, source))?;
    }
    Ok(folder)
}

/// Writes a file so that others see the old content or the new.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut staged = path.as_os_str().to_owned();
    staged.push(format!(".{}.tmp", std::process::id()));
    let staged = PathBuf::from(staged);
    let written = fs::write(&staged, bytes).and_then(|()| fs::rename(&staged, path));
    if written.is_err() {
        // What is left of it would only puzzle; the error that matters is the first.
        let _ = fs::remove_file(&staged);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_when_that_fails() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.wasm");
        replace(&file, b"one").unwrap();
        replace(&file, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        let folder = dir.path().join("folder");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("x"), "x").unwrap();
        assert!(replace(&folder, b"three").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
