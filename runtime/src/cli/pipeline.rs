//! From a pipeline file to something that can run: text, specification, plugins, plan, guarantees.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use futures::FutureExt;

use super::progress::LogWriter;
use crate::checkpoint::Store;
use crate::error::{Error, ErrorKind};
use crate::flow::OperatorCode;
use crate::model::{Descriptor, NodeName};
use crate::plan::{Diagnostics, Grants, Guarantees, OperatorSpec, PipelineSpec, Plan, PluginRef, guarantees, parse};
use crate::plugin::compile::Compiler;
use crate::plugin::registry::{Found, PluginFolders};
use crate::plugin::{HostOptions, PluginHost};

/// A pipeline file that has been read, with its plugins.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) text: String,
    pub(super) spec: PipelineSpec,
    pub(super) plugins: BTreeMap<NodeName, Found>,
    pub(super) plan: Plan,
    pub(super) guarantees: Guarantees,
    pub(super) host: PluginHost,
}

/// Why a pipeline cannot run.
#[derive(Debug)]
pub(super) enum PipelineFault {
    /// The file has errors, each with its place.
    Diagnostics(Diagnostics),
    /// Something else.
    Error(Error),
}

impl From<Error> for PipelineFault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Diagnostics> for PipelineFault {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Diagnostics(diagnostics)
    }
}

impl From<PipelineFault> for Error {
    /// Prints what is wrong with the file, and keeps one line of it.
    fn from(fault: PipelineFault) -> Self {
        match fault {
            PipelineFault::Error(error) => error,
            PipelineFault::Diagnostics(diagnostics) => {
                // Nobody may be looking any more.
                let _ = write!(LogWriter::new(), "{diagnostics}");
                Error::new(ErrorKind::Usage, diagnostics.summary())
            }
        }
    }
}

impl Pipeline {
    /// Reads a pipeline file and everything it names.
    pub(super) async fn load(path: &Path) -> Result<Self, PipelineFault> {
        Self::load_with(path, &BTreeMap::new()).await
    }

    /// The same, but nodes with a digest run the plugin that the store has under it, whatever the file says, if it has it.
    pub(super) async fn load_with(path: &Path, digests: &BTreeMap<NodeName, [u8; 32]>) -> Result<Self, PipelineFault> {
        let (text, spec) = read_spec(path)?;
        let host = plugin_host()?;
        let folders = PluginFolders::standard();
        let mut plugins = BTreeMap::new();
        let mut faults = Vec::new();
        for operator in &spec.operators {
            let fetch = |digest: &str| {
                let (store, digest) = (open_store(&spec), digest.to_owned());
                async move { fetch(store, &digest).await }.boxed()
            };
            let mut found = None;
            if let Some(digest) = digests.get(&operator.name) {
                let reference = PluginRef::Digest(blake3::Hash::from_bytes(*digest).to_hex().to_string());
                found = folders.find(&host, &reference, &spec.dir, &fetch).await.ok();
            }
            let found = match found {
                Some(found) => Ok(found),
                None => folders.find(&host, &operator.plugin, &spec.dir, &fetch).await,
            };
            match found {
                Ok(found) => {
                    plugins.insert(operator.name.clone(), found);
                }
                Err(error) => {
                    let error = Error::from(error);
                    let help = error.remedy().unwrap_or("see the cause").to_owned();
                    faults.push(spec.text.error_at(&operator.plugin_span, error.chain(), help));
                }
            }
        }
        Diagnostics::collect(&spec.text, faults)?;
        let descriptors = descriptors(&plugins);
        let plan = Plan::build(&spec, &descriptors)?;
        let guarantees = guarantees(&spec, &plan, &descriptors, &snapshot_code(&plugins))?;
        Ok(Self { text, spec, plugins, plan, guarantees, host })
    }

    /// What each plugin says about itself.
    pub(super) fn descriptors(&self) -> BTreeMap<NodeName, Descriptor> {
        descriptors(&self.plugins)
    }

    /// Which plugins write their state themselves.
    pub(super) fn snapshot_code(&self) -> BTreeMap<NodeName, bool> {
        snapshot_code(&self.plugins)
    }

    /// The code of each operator, ready to be opened.
    pub(super) fn code(&self) -> BTreeMap<NodeName, OperatorCode> {
        let operators = self.spec.operators.iter().filter_map(|operator| {
            let found = self.plugins.get(&operator.name)?;
            Some((operator.name.clone(), code_of(operator, found)))
        });
        operators.collect()
    }
}

/// The code of an operator that runs this plugin, ready to be opened.
pub(super) fn code_of(operator: &OperatorSpec, found: &Found) -> OperatorCode {
    let values = environment(&operator.name, &operator.grants);
    let plugin = found.plugin.clone().with_grants(operator.grants.clone()).with_environment(values);
    OperatorCode::of(&plugin, operator)
}

/// The values of the variables that an operator is granted, from the environment of this program.
fn environment(node: &NodeName, grants: &Grants) -> BTreeMap<String, String> {
    let value = |name: &String| match std::env::var(name) {
        Ok(value) => Some((name.clone(), value)),
        Err(error) => {
            tracing::warn!(%node, "it is granted the variable {name}, and has it not: {error}");
            None
        }
    };
    grants.environment.iter().filter_map(value).collect()
}

fn descriptors(plugins: &BTreeMap<NodeName, Found>) -> BTreeMap<NodeName, Descriptor> {
    plugins.iter().map(|(name, found)| (name.clone(), found.plugin.descriptor().clone())).collect()
}

fn snapshot_code(plugins: &BTreeMap<NodeName, Found>) -> BTreeMap<NodeName, bool> {
    plugins.iter().map(|(name, found)| (name.clone(), found.plugin.has_snapshot_code())).collect()
}

/// A plugin of the store, by the digest that the pipeline names.
pub(super) async fn fetch(store: Result<Store, Error>, digest: &str) -> Result<Option<Vec<u8>>, String> {
    let store = store.map_err(|e| e.chain())?;
    let hash = blake3::Hash::from_hex(digest).map_err(|e| format!("digest {digest:?} is not one: {e}"))?;
    let bytes = store.get_plugin(*hash.as_bytes()).await.map_err(|e| e.to_string())?;
    Ok(Some(bytes.to_vec()))
}

/// A plugin host that keeps compiled code in the user's cache folder.
pub(super) fn plugin_host() -> Result<PluginHost, Error> {
    plugin_host_for(HostOptions::default().instances_max, None)
}

/// The same, for so many instances.
pub(super) fn plugin_host_for(instances_max: u32, memory_bytes_max: Option<u64>) -> Result<PluginHost, Error> {
    let cache_dir = cache_dir().map(|cache| cache.join("compiled"));
    let compiler = Compiler::this_program();
    Ok(PluginHost::new(HostOptions { cache_dir, compiler, instances_max, memory_bytes_max, ..HostOptions::default() })?)
}

/// `$WEIR_CACHE`, or `weir` in the user's cache folder; none where there is neither.
pub(super) fn cache_dir() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    folder("WEIR_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("weir")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/weir")))
}

/// Reads and checks a pipeline file, without its plugins.
pub(super) fn read_spec(path: &Path) -> Result<(String, PipelineSpec), PipelineFault> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::new(ErrorKind::Usage, format!("pipeline file {} cannot be read", path.display())).caused_by(e)
    })?;
    let spec = parse(&text, path)?;
    Ok((text, spec))
}

/// The store that a pipeline names.
pub(super) fn open_store(spec: &PipelineSpec) -> Result<Store, Error> {
    Ok(Store::open_with(&spec.checkpoint.store, &spec.dir, &spec.checkpoint.store_options)?)
}
