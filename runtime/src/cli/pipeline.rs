//! From a pipeline file to something that can run: text, specification, plugins, plan.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::Store;
use crate::error::{Error, ErrorKind};
use crate::flow::OperatorCode;
use crate::model::{Descriptor, NodeName};
use crate::plan::{Diagnostics, PipelineSpec, Plan, PluginRef, parse};
use crate::plugin::{HostOptions, Plugin, PluginHost, Registry};

/// A pipeline file that has been read, with its plugins.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) text: String,
    pub(super) spec: PipelineSpec,
    pub(super) plugins: BTreeMap<NodeName, Plugin>,
    pub(super) plan: Plan,
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

impl From<PipelineFault> for Error {
    fn from(fault: PipelineFault) -> Self {
        match fault {
            PipelineFault::Error(error) => error,
            PipelineFault::Diagnostics(diagnostics) => {
                let count = diagnostics.len();
                eprint!("{diagnostics}");
                Error::new(
                    ErrorKind::Usage,
                    format!("the pipeline file has {count} error{}", if count == 1 { "" } else { "s" }),
                )
            }
        }
    }
}

impl Pipeline {
    /// Reads a pipeline file and everything it names.
    pub(super) async fn load(path: &Path) -> Result<Self, PipelineFault> {
        let (text, spec) = read_spec(path)?;
        let host = PluginHost::new(HostOptions::default())?;
        let registry = Registry::default();
        let mut plugins = BTreeMap::new();
        let mut faults = Vec::new();
        for operator in &spec.operators {
            let bytes = match &operator.plugin {
                PluginRef::Digest(digest) => open_store(&spec)?.get_plugin_hex(digest).await.map_err(Error::from),
                reference => registry.find(reference, &spec.dir).map_err(Error::from),
            };
            let loaded = match bytes {
                Ok(bytes) => host.load(&bytes).await.map_err(Error::from),
                Err(error) => Err(error),
            };
            match loaded {
                Ok(plugin) => {
                    plugins.insert(operator.name.clone(), plugin);
                }
                Err(error) => faults.push((operator.plugin_span.clone(), error)),
            }
        }
        if !faults.is_empty() {
            return Err(PipelineFault::Diagnostics(Diagnostics::of_errors(&spec, faults)));
        }
        let descriptors: BTreeMap<NodeName, Descriptor> =
            plugins.iter().map(|(name, plugin)| (name.clone(), plugin.descriptor().clone())).collect();
        let plan = Plan::build(&spec, &descriptors).map_err(PipelineFault::Diagnostics)?;
        Ok(Self { text, spec, plugins, plan })
    }

    /// The code of each operator, ready to be opened.
    pub(super) fn code(&self) -> BTreeMap<NodeName, OperatorCode> {
        let operators = self.spec.operators.iter().filter_map(|operator| {
            let plugin = self.plugins.get(&operator.name)?.clone();
            let (limits, config) = (operator.limits.clone(), operator.config.clone());
            let code = OperatorCode {
                descriptor: plugin.descriptor().clone(),
                digest: *plugin.digest(),
                open: Arc::new(move |task| {
                    let (plugin, limits, config) = (plugin.clone(), limits.clone(), config.clone());
                    Box::pin(async move { plugin.open(&limits, &config, &task).await })
                }),
            };
            Some((operator.name.clone(), code))
        });
        operators.collect()
    }
}

/// Reads and checks a pipeline file, without its plugins.
pub(super) fn read_spec(path: &Path) -> Result<(String, PipelineSpec), PipelineFault> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::new(ErrorKind::Usage, format!("pipeline file {path:?} cannot be read")).caused_by(e)
    })?;
    let spec = parse(&text, path).map_err(PipelineFault::Diagnostics)?;
    Ok((text, spec))
}

/// The store that a pipeline names.
pub(super) fn open_store(spec: &PipelineSpec) -> Result<Store, Error> {
    Ok(Store::open(&spec.checkpoint.store, &spec.dir)?)
}

/// A path as it is written in messages.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
