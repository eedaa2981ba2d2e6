//! Why bytes did not become a plugin. Each says what a person can do about it.

use std::path::PathBuf;

use super::OperatorError;
use super::component::{COMPONENT_BYTES_MAX, ComponentError};
use crate::error::{Error, ErrorKind};

/// Why there is no plugin.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The engine or its cache could not be set up.
    #[error("cannot set up the plugin host: {0}")]
    Host(String),
    /// It is not where it was looked for.
    #[error("no plugin {name} in {}", folders(.searched))]
    NotFound {
        /// What was looked for.
        name: String,
        /// Where, in this order.
        searched: Vec<PathBuf>,
    },
    /// It is there, but only in other versions.
    #[error("no version {version} of plugin {name}; there is {found}")]
    Version {
        /// The plugin.
        name: String,
        /// The version that was asked for.
        version: String,
        /// The versions that are there, with their files.
        found: String,
    },
    /// A file could not be read.
    #[error("cannot read plugin {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The store does not have it, or something else under its name.
    #[error("{0}")]
    Store(String),
    /// It is too large.
    #[error("plugin has {bytes} bytes, more than {COMPONENT_BYTES_MAX}, the most that is loaded")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// It is not a component that fulfils the contract.
    #[error("not a plugin that this weir can run")]
    Component(#[from] ComponentError),
    /// It imports something that is not granted.
    #[error("plugin needs what the host does not give: {0}")]
    Imports(String),
    /// It could not be compiled.
    #[error("cannot compile plugin: {0}")]
    Compile(String),
    /// Compiling it took too much.
    #[error("compiling the plugin takes more than {limit} of {what}")]
    CompileLimit {
        /// Of what.
        what: &'static str,
        /// The limit, with its unit.
        limit: String,
    },
    /// It keeps state, has no code to save it, and no image of its memory can be taken either.
    #[error("plugin keeps state and has no code to snapshot it, and no image of its memory can be taken: {0}")]
    Image(super::Refusal),
    /// It failed to describe itself.
    #[error("plugin cannot describe itself")]
    Describe(#[source] OperatorError),
    /// What it says about itself cannot be accepted.
    #[error("plugin describes itself in a way that cannot be accepted: {0}")]
    Descriptor(String),
}

fn folders(searched: &[PathBuf]) -> String {
    if searched.is_empty() {
        return "any folder: none is known".to_owned();
    }
    searched.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

impl PluginError {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Host(_) => {
                "check that the cache folder belongs to you, and how much address space this process may have"
            }
            Self::NotFound { .. } | Self::Version { .. } => {
                "give the path of a .wasm file, put the file into one of these folders, or add a folder to WEIR_PLUGINS"
            }
            Self::Read { .. } => "check the path, which is relative to the pipeline file, and its permissions",
            Self::Store(_) => {
                "run the pipeline once with the plugin's file at hand, or restore the object in the store"
            }
            Self::TooLarge { .. } => "build it optimised and without debug information",
            Self::Component(error) => error.remedy(),
            Self::Imports(_) => {
                "build it for wasm32-unknown-unknown with `weir plugin build`: it imports something besides weir and WASI 0.2"
            }
            Self::Compile(_) => {
                "build it anew; if it still fails, its toolchain uses WebAssembly features that are off here"
            }
            Self::CompileLimit { .. } => {
                "build it optimised and with less code: functions that are very large take most, and no plugin needs them"
            }
            Self::Image(refusal) => refusal.remedy(),
            Self::Describe(_) | Self::Descriptor(_) => "correct `describe` in the plugin and build it anew",
        }
    }
}

impl From<PluginError> for Error {
    fn from(error: PluginError) -> Self {
        let remedy = error.remedy();
        let public = Self::new(ErrorKind::Plugin, error.to_string()).help(remedy);
        // What it says itself is in the message; only what lies below it is a cause.
        match error {
            PluginError::Read { source, .. } => public.caused_by(source),
            PluginError::Component(source) => public.caused_by(source),
            PluginError::Describe(source) => public.caused_by(source),
            _ => public,
        }
    }
}
