//! From what a compiler writes to a component that the host accepts, and what can be said about one without running it.
//!
//! In comes a core module with the metadata that a binding generator left in it, or a component; out comes a component and an
//! [`Inspection`]: digest, size, world, imports, and every way in which it is not what `wit/` asks for. Nothing is run or
//! compiled here, and no file is touched. Whether the host grants what a component imports from elsewhere
//! (WASI) is not decided here either: it is listed.

mod capability;
mod contract;
mod encode;

use serde::Serialize;
use wasmparser::{Parser, Validator};

pub use capability::Capability;
pub use contract::{World, contract_files};
pub use encode::{componentize, empty_operator};

/// The largest file that is taken for a plugin, in bytes. An interpreter with its library is 20 MB.
pub const COMPONENT_BYTES_MAX: u64 = 256 << 20;

/// What can be said about a component without running it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// The blake3 of its bytes in hexadecimal: by this a plugin is known.
    pub digest: String,
    /// Its size in bytes.
    pub size: u64,
    /// Which world of the contract it exports; none when it exports no `processor`.
    pub world: Option<World>,
    /// Every interface and function that it imports, in its order.
    pub imports: Vec<String>,
    /// Those of the imports that are WASI's, of which the host serves little.
    pub wasi: Vec<String>,
    /// What each import lets it do.
    pub capabilities: Vec<Capability>,
    /// What it exports of the contract.
    pub exports: Vec<String>,
    /// What it exports besides: ignored by the host.
    pub extra_exports: Vec<String>,
    /// In what it breaks the contract, a sentence each; empty for a component that can be used.
    pub problems: Vec<String>,
}

/// Why bytes are not a plugin.
#[derive(Debug, thiserror::Error)]
pub enum ComponentError {
    /// Not WebAssembly, or damaged.
    #[error("not a WebAssembly component: {what}")]
    NotWasm {
        /// What is wrong, with the offset.
        what: String,
    },
    /// A core module that does not say which interfaces it implements.
    #[error("a core module that says nothing of the interfaces it implements")]
    NoMetadata,
    /// A core module that does not do what its metadata says.
    #[error("the core module cannot be made a component")]
    Encode(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A component that is not one of weir's.
    #[error("{}", .0.join("; "))]
    Contract(Vec<String>),
}

impl ComponentError {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NotWasm { .. } => "give a file that `weir plugin build` wrote, or a component of another toolchain",
            Self::NoMetadata => {
                "export an operator: `weir_sdk::export!(YourType);` in the crate's root; for a module of another toolchain, `weir plugin componentize --world` says which it is"
            }
            Self::Encode(_) => {
                "build the crate anew with one version of the SDK; a module edited after linking loses its metadata"
            }
            Self::Contract(_) => {
                "build against the contract of this weir (`wit/`, package weir:plugin@0.1): a world of it must be exported whole"
            }
        }
    }
}

/// Looks into a component.
///
/// # Errors
///
/// [`ComponentError::NotWasm`] for bytes that are no valid component, [`ComponentError::NoMetadata`] for a core module.
pub fn inspect(component: &[u8]) -> Result<Inspection, ComponentError> {
    if Parser::is_core_wasm(component) {
        valid(component)?;
        return Err(ComponentError::NoMetadata);
    }
    if !Parser::is_component(component) {
        return Err(ComponentError::NotWasm { what: "it does not begin with the magic bytes".to_owned() });
    }
    valid(component)?;
    let found = contract::compare(component).map_err(|what| ComponentError::NotWasm { what })?;
    Ok(Inspection {
        digest: blake3::hash(component).to_hex().to_string(),
        size: component.len() as u64,
        world: found.world,
        capabilities: found.imports.iter().map(|name| capability::capability(name)).collect(),
        wasi: found.imports.iter().filter(|name| name.starts_with("wasi:")).cloned().collect(),
        imports: found.imports,
        exports: found.exports,
        extra_exports: found.extra_exports,
        problems: found.problems,
    })
}

/// Looks into a component and refuses it unless it fulfils the contract.
///
/// # Errors
///
/// Those of [`inspect`], and [`ComponentError::Contract`] with everything that is wrong.
pub fn validate(component: &[u8]) -> Result<Inspection, ComponentError> {
    let inspection = inspect(component)?;
    if inspection.problems.is_empty() { Ok(inspection) } else { Err(ComponentError::Contract(inspection.problems)) }
}

fn valid(bytes: &[u8]) -> Result<(), ComponentError> {
    match Validator::new().validate_all(bytes) {
        Ok(_) => Ok(()),
        Err(e) => Err(ComponentError::NotWasm { what: e.to_string() }),
    }
}

#[cfg(test)]
pub(super) mod tests;
