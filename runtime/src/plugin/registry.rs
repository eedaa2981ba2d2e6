//! From what a pipeline file says of a plugin to the plugin: a path, a name with or without a version, or a digest.
//!
//! Names are looked up in folders of `.wasm` files, in their order; the version is what the plugin says of itself, not what its file is
//! called. The store is asked through a callback: this room does not know it.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use futures::future::BoxFuture;

use super::component::COMPONENT_BYTES_MAX;
use super::{Plugin, PluginError, PluginHost};
use crate::plan::PluginRef;

/// The variable with more plugin folders, separated as in `PATH`.
pub const FOLDERS_VARIABLE: &str = "WEIR_PLUGINS";

/// Asks the store for the component with this digest; none if it does not have it, or why it cannot say.
pub type Fetch<'a> = dyn Fn(&str) -> BoxFuture<'a, Result<Option<Vec<u8>>, String>> + Send + Sync + 'a;

/// A plugin that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The plugin.
    pub plugin: Plugin,
    /// The bytes of its component.
    pub bytes: Vec<u8>,
    /// Its file, if it came from one.
    pub path: Option<PathBuf>,
}

/// The folders in which plugins are looked up by name.
#[derive(Clone, Debug, Default)]
pub struct PluginFolders(Vec<PathBuf>);

impl PluginFolders {
    /// These, in this order.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self(folders)
    }

    /// Those of `WEIR_PLUGINS`, and `plugins` beside the program that runs.
    pub fn standard() -> Self {
        let mut folders: Vec<PathBuf> =
            env::var_os(FOLDERS_VARIABLE).map(|list| env::split_paths(&list).collect()).unwrap_or_default();
        folders.retain(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = env::current_exe().ok().as_deref().and_then(Path::parent) {
            folders.push(folder.join("plugins"));
        }
        Self(folders)
    }

    /// The folders.
    pub fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// Finds a plugin and loads it. A path that is not absolute begins at `dir`, the folder of the pipeline file.
    ///
    /// # Errors
    ///
    /// [`PluginError::NotFound`] and [`PluginError::Version`] say where it was looked for; otherwise why what was found
    /// cannot be used.
    pub async fn find(
        &self,
        host: &PluginHost,
        reference: &PluginRef,
        dir: &Path,
        fetch: &Fetch<'_>,
    ) -> Result<Found, PluginError> {
        match reference {
            PluginRef::Path(path) => {
                let path = dir.join(path);
                let bytes = read(&path)?;
                Ok(Found { plugin: host.load(&bytes).await?, bytes, path: Some(path) })
            }
            PluginRef::Named { name, version } => self.named(host, name, version.as_deref()).await,
            PluginRef::Digest(digest) => {
                let stored = fetch(digest).await.map_err(PluginError::Store)?;
                let bytes = stored
                    .ok_or_else(|| PluginError::Store(format!("the store has no plugin with digest {digest}")))?;
                let is = blake3::hash(&bytes).to_hex();
                if !is.as_str().eq_ignore_ascii_case(digest) {
                    let what = format!("what the store has as plugin {digest} is damaged: its digest is {is}");
                    return Err(PluginError::Store(what));
                }
                Ok(Found { plugin: host.load(&bytes).await?, bytes, path: None })
            }
        }
    }

    async fn named(&self, host: &PluginHost, name: &str, version: Option<&str>) -> Result<Found, PluginError> {
        let mut others = Vec::new();
        for folder in &self.0 {
            for path in candidates(folder, name, version) {
                let bytes = match read(&path) {
                    Ok(bytes) => bytes,
                    Err(PluginError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                };
                let plugin = host.load(&bytes).await?;
                let descriptor = plugin.descriptor();
                let is = (descriptor.name.as_str(), descriptor.version.as_str());
                if is.0 == name && version.is_none_or(|version| version == is.1) {
                    return Ok(Found { plugin, bytes, path: Some(path) });
                }
                others.push(format!("{}@{} in {}", is.0, is.1, path.display()));
            }
        }
        match version {
            _ if others.is_empty() => {
                let searched = self.0.clone();
                Err(PluginError::NotFound { name: format!("{name:?}"), searched })
            }
            Some(version) => Err(PluginError::Version {
                name: name.to_owned(),
                version: version.to_owned(),
                found: others.join(", "),
            }),
            None => Err(PluginError::NotFound {
                name: format!("that calls itself {name:?} (there is {})", others.join(", ")),
                searched: self.0.clone(),
            }),
        }
    }
}

/// The files that could be it. The name has no slash: a reference with one is a path.
fn candidates(folder: &Path, name: &str, version: Option<&str>) -> Vec<PathBuf> {
    let mut files = vec![folder.join(format!("{name}.wasm"))];
    files.extend(version.map(|version| folder.join(format!("{name}@{version}.wasm"))));
    files
}

fn read(path: &Path) -> Result<Vec<u8>, PluginError> {
    let failed = |source| PluginError::Read { path: path.to_owned(), source };
    let bytes = fs::metadata(path).map_err(failed)?.len();
    if bytes > COMPONENT_BYTES_MAX {
        return Err(PluginError::TooLarge { bytes });
    }
    fs::read(path).map_err(failed)
}
