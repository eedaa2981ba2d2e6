//! From a folder with a Rust crate to a component beside it: what `weir plugin build` does.
//!
//! Cargo does the work and speaks to the user on standard error by itself; this finds a toolchain that has the target, finds what
//! cargo made, turns it into a component, and refuses to write one that the host would refuse. The result is put in place
//! by a rename, so a pipeline that starts meanwhile reads the old component or the new one.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use serde::Deserialize;

use super::component::{self, ComponentError, Inspection};

/// The target of guests: no system interface at all.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// The script that fills the cache with a toolchain where none can be had otherwise: `weir plugin setup`.
pub const SETUP_SCRIPT: &str = include_str!("../../../tools/wasm-target.sh");

/// What may be chosen about a build.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// Where the component goes; by default `<package>.wasm` in the crate's folder.
    pub output: Option<PathBuf>,
    /// Cargo's target folder; by default cargo's choice. Crates that share one compile their dependencies once.
    pub target_dir: Option<PathBuf>,
    /// The toolchain; by default [`Toolchain::find`] looks for one.
    pub toolchain: Option<Toolchain>,
}

/// What a build made.
#[derive(Clone, Debug)]
pub struct Built {
    /// Where the component is.
    pub path: PathBuf,
    /// What it is.
    pub inspection: Inspection,
    /// What it was built with.
    pub toolchain: Toolchain,
}

/// Why there is no component.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The folder holds no crate.
    #[error("no crate in {}: it has no Cargo.toml with a [package] name", dir.display())]
    NoCrate {
        /// The folder.
        dir: PathBuf,
    },
    /// A program is not there.
    #[error("cannot run {program}")]
    NoProgram {
        /// Its name or path.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// No toolchain for the target.
    #[error("{rustc} cannot build for {TARGET}")]
    NoTarget {
        /// The active compiler, with its version.
        rustc: String,
    },
    /// Cargo failed, and has said why.
    #[error("cargo build failed with {status}")]
    Cargo {
        /// How it ended.
        status: ExitStatus,
    },
    /// The crate makes no library that could be a plugin.
    #[error("crate {package} makes no WebAssembly module")]
    NoArtifact {
        /// Its name.
        package: String,
    },
    /// What was built is not a plugin.
    #[error("what crate {package} makes is not a plugin")]
    Component {
        /// Its name.
        package: String,
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
            Self::NoCrate { .. } => "name the folder of a crate; `weir plugin new NAME` makes one".to_owned(),
            Self::NoProgram { .. } => "install Rust with rustup, or set CARGO and RUSTC".to_owned(),
            Self::NoTarget { .. } => format!(
                "run `rustup target add {TARGET}`; where that cannot be had, `weir plugin setup` gets a toolchain from Debian's packages"
            ),
            Self::Cargo { .. } => "see cargo's messages above".to_owned(),
            Self::NoArtifact { .. } => "put crate-type = [\"cdylib\"] under [lib] in its Cargo.toml".to_owned(),
            Self::Component { source, .. } => source.remedy().to_owned(),
            Self::File { .. } => "check that the folder exists and is writable".to_owned(),
        }
    }
}

/// A compiler that has the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// The compiler; none for the active one.
    pub rustc: Option<PathBuf>,
    /// What it says about itself, as "rustc 1.95.0 (…)".
    pub version: String,
}

impl Toolchain {
    /// The active compiler of a folder (`RUSTC`, else `rustc`) if it has the target, else the one that `weir plugin setup` put into
    /// the cache.
    ///
    /// # Errors
    ///
    /// [`BuildError::NoProgram`] without a compiler, [`BuildError::NoTarget`] when neither has the target.
    pub fn find(dir: &Path) -> Result<Self, BuildError> {
        let active = env::var_os("RUSTC").filter(|rustc| !rustc.is_empty()).unwrap_or_else(|| "rustc".into());
        let version = version(&active, dir)?;
        if has_target(&active, dir) {
            return Ok(Self { rustc: None, version });
        }
        // Only the script's last step writes `env`: without it the folder is half-filled.
        if let Some(folder) = cached_toolchain().filter(|folder| folder.join("env").is_file()) {
            let rustc = folder.join("bin").join("rustc");
            if has_target(rustc.as_os_str(), dir) {
                let version = self::version(rustc.as_os_str(), dir)?;
                return Ok(Self { rustc: Some(rustc), version });
            }
        }
        Err(BuildError::NoTarget { rustc: version })
    }

    /// One line that says which it is, for standard error.
    pub fn describe(&self) -> String {
        match &self.rustc {
            None => self.version.clone(),
            Some(rustc) => format!("{}, from the cache ({})", self.version, rustc.display()),
        }
    }
}

/// Where `tools/wasm-target.sh` puts a toolchain.
fn cached_toolchain() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let weir = set("WEIR_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("weir")))
        .or_else(|| set("HOME").map(|home| home.join(".cache").join("weir")))?;
    std::path::absolute(weir.join("wasm-toolchain")).ok()
}

fn version(rustc: &std::ffi::OsStr, dir: &Path) -> Result<String, BuildError> {
    let output = Command::new(rustc).arg("-V").current_dir(dir).stderr(Stdio::inherit()).output();
    let failed = |source| BuildError::NoProgram { program: rustc.to_string_lossy().into_owned(), source };
    let output = output.map_err(failed)?;
    if !output.status.success() {
        return Err(failed(io::Error::other(format!("`-V` ended with {}", output.status))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether the standard library for the target lies where the compiler looks for it.
fn has_target(rustc: &std::ffi::OsStr, dir: &Path) -> bool {
    let output = Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]).current_dir(dir).output();
    let Ok(output) = output else { return false };
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libstd-") && name.ends_with(".rlib")
    })
}

/// Builds the crate in a folder and writes its component.
///
/// Cargo's progress and messages go to standard error. It honours `CARGO`, `RUSTC` and whatever cargo itself honours.
///
/// # Errors
///
/// [`BuildError`]; then no file was written.
pub fn build(dir: &Path, options: &BuildOptions) -> Result<Built, BuildError> {
    let manifest = dir.join("Cargo.toml");
    let package = package_name(&manifest).ok_or_else(|| BuildError::NoCrate { dir: dir.to_owned() })?;
    let manifest = fs::canonicalize(&manifest).map_err(|source| BuildError::File {
        verb: "read",
        path: manifest.clone(),
        source,
    })?;
    let toolchain = match &options.toolchain {
        Some(toolchain) => toolchain.clone(),
        None => Toolchain::find(dir)?,
    };

    let module = run_cargo(dir, &manifest, &toolchain, options.target_dir.as_deref())?
        .ok_or_else(|| BuildError::NoArtifact { package: package.clone() })?;
    let bytes = fs::read(&module).map_err(|source| BuildError::File { verb: "read", path: module.clone(), source })?;

    let not_a_plugin = |source| BuildError::Component { package: package.clone(), source };
    let component = component::componentize(&bytes, None).map_err(not_a_plugin)?;
    let inspection = component::validate(&component).map_err(not_a_plugin)?;

    let path = options.output.clone().unwrap_or_else(|| dir.join(format!("{package}.wasm")));
    replace(&path, &component).map_err(|source| BuildError::File { verb: "write", path: path.clone(), source })?;
    Ok(Built { path, inspection, toolchain })
}

/// One line of cargo's JSON messages, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

/// Runs cargo; the module that the crate at `manifest` made, if it made one.
fn run_cargo(
    dir: &Path,
    manifest: &Path,
    toolchain: &Toolchain,
    target_dir: Option<&Path>,
) -> Result<Option<PathBuf>, BuildError> {
    let cargo: OsString = env::var_os("CARGO").filter(|cargo| !cargo.is_empty()).unwrap_or_else(|| "cargo".into());
    let failed = |source| BuildError::NoProgram { program: cargo.to_string_lossy().into_owned(), source };
    let mut command = Command::new(&cargo);
    command.args(["build", "--lib", "--release", "--target", TARGET, "--message-format", "json-render-diagnostics"]);
    command.arg("--manifest-path").arg(manifest).current_dir(dir);
    if let Some(target_dir) = target_dir {
        // Cargo is run in another folder than ours.
        command.arg("--target-dir").arg(std::path::absolute(target_dir).map_err(failed)?);
    }
    if let Some(rustc) = &toolchain.rustc {
        command.env("RUSTC", rustc);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(failed)?;
    if !output.status.success() {
        return Err(BuildError::Cargo { status: output.status });
    }
    Ok(module_among(&output.stdout, manifest))
}

/// The WebAssembly file among cargo's messages that belongs to a crate.
fn module_among(messages: &[u8], manifest: &Path) -> Option<PathBuf> {
    messages
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Message>(line).ok())
        .filter(|message| message.reason == "compiler-artifact" && message.manifest_path == manifest)
        .flat_map(|message| message.filenames)
        .find(|file| file.extension().is_some_and(|extension| extension == "wasm"))
}

/// The name of the package in a manifest; none if there is no manifest or no package in it.
fn package_name(manifest: &Path) -> Option<String> {
    let text = fs::read_to_string(manifest).ok()?;
    let value = toml_span::parse(&text).ok()?;
    value.pointer("/package/name")?.as_str().map(str::to_owned)
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
    fn the_module_is_found_among_messages_of_other_crates_and_lines_that_are_no_json() {
        let messages = br#"{"reason":"compiler-artifact","manifest_path":"/dep/Cargo.toml","filenames":["/t/dep.wasm"]}
warning: not json
{"reason":"build-script-executed","package_id":"x"}
{"reason":"compiler-artifact","manifest_path":"/mine/Cargo.toml","filenames":["/t/mine.rlib","/t/mine.wasm"]}
{"reason":"build-finished","success":true}"#;
        assert_eq!(module_among(messages, Path::new("/mine/Cargo.toml")), Some("/t/mine.wasm".into()));
        assert_eq!(module_among(messages, Path::new("/other/Cargo.toml")), None);
    }

    #[test]
    fn a_folder_without_a_package_is_no_crate() {
        let dir = tempfile::tempdir().unwrap();
        for manifest in [None, Some("[workspace]\nmembers = []\n"), Some("not toml")] {
            if let Some(text) = manifest {
                fs::write(dir.path().join("Cargo.toml"), text).unwrap();
            }
            let error = build(dir.path(), &BuildOptions::default()).unwrap_err();
            assert!(matches!(error, BuildError::NoCrate { .. }), "{error}");
        }
    }

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
