//! Rust: cargo makes a core module for a target without any system.
//!
//! It honours `CARGO`, `RUSTC` and whatever cargo itself honours.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::{BuildError, BuildOptions, Builder};
use crate::plugin::project::Project;

/// The target of guests: no system interface at all.
pub const TARGET: &str = "wasm32-unknown-unknown";

const GET: &str = "install Rust with rustup, or set CARGO and RUSTC";

/// The script that fills the cache with a toolchain where none can be had otherwise: `weir plugin setup`.
pub const SETUP_SCRIPT: &str = include_str!("../../../../tools/wasm-target.sh");

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
}

impl Builder for Toolchain {
    fn describe(&self) -> String {
        match &self.rustc {
            None => self.version.clone(),
            Some(rustc) => format!("{}, from the cache ({})", self.version, rustc.display()),
        }
    }

    fn build(&self, project: &Project, options: &BuildOptions) -> Result<Vec<u8>, BuildError> {
        let manifest = project.dir.join("Cargo.toml");
        let manifest = fs::canonicalize(&manifest).map_err(|source| BuildError::read(&manifest, source))?;
        let module = run_cargo(&project.dir, &manifest, self, options.target_dir.as_deref())?
            .ok_or_else(|| BuildError::NoArtifact { name: project.name.clone() })?;
        fs::read(&module).map_err(|source| BuildError::read(&module, source))
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
    let failed =
        |source| BuildError::NoProgram { program: rustc.to_string_lossy().into_owned(), get: GET.to_owned(), source };
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
    let failed =
        |source| BuildError::NoProgram { program: cargo.to_string_lossy().into_owned(), get: GET.to_owned(), source };
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
        return Err(BuildError::Failed { tool: "cargo build".to_owned(), status: output.status });
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
}
