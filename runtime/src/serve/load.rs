//! From what a job is to be to something that runs: text, admission, plugins, plan.
//!
//! The same as `weir run` does with a file, but for a tenant: the pipeline is held against its grants and quotas first, plugins come
//! from its part of the store alone, and paths begin at the directory that it was given.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Inner;
use super::catalogue::hex_digest;
use super::fault::{Fault, FaultKind};
use super::tenant::Tenant;
use crate::flow::OperatorCode;
use crate::job::Job;
use crate::metrics::JobMetrics;
use crate::model::{Descriptor, NodeName};
use crate::plan::{
    Diagnostics, Grants, PipelineSpec, Plan, PluginRef, SinkConnector, SourceConnector, guarantees, parse,
};
use crate::plugin::Plugin;
use crate::tenant::{TenantRecord, admit};

/// The name under which a pipeline stands in messages: where it came from is nobody's business here.
const FILE: &str = "pipeline.toml";

/// A job that can run.
pub(super) struct Loaded {
    pub(super) job: Job,
    /// The plugin of each operator.
    pub(super) digests: BTreeMap<String, String>,
    /// How many subtasks it has.
    pub(super) subtasks: u64,
}

/// Where the code of the operators comes from.
pub(super) enum Code<'a> {
    /// The names and digests in the pipeline; for nodes that name a file, these digests.
    Named(&'a BTreeMap<String, String>),
    /// These, whatever the pipeline says.
    Fixed(&'a BTreeMap<String, String>),
}

/// Reads a pipeline and checks it by itself and against the tenant.
pub(super) fn read(tenant: &str, record: &TenantRecord, text: &str) -> Result<PipelineSpec, Fault> {
    let mut spec = parse(text, Path::new(FILE))?;
    Diagnostics::collect(&spec.text, admit(tenant, record, &spec))?;
    // Nothing of a tenant without a directory ever looks at it.
    let directory = record.grants.directory.clone().unwrap_or_else(|| PathBuf::from("/nonexistent"));
    for source in &mut spec.sources {
        if let SourceConnector::File(file) = &mut source.connector {
            file.root = Some(directory.clone());
        }
    }
    for sink in &mut spec.sinks {
        if let SinkConnector::File(file) = &mut sink.connector {
            file.root = Some(directory.clone());
        }
    }
    spec.dir = directory;
    Ok(spec)
}

/// See the module. Compiles what was not compiled before.
pub(super) async fn load(inner: &Inner, tenant: &Tenant, text: &str, code: Code<'_>) -> Result<Loaded, Fault> {
    let record = tenant.record();
    let spec = read(&tenant.name, &record, text)?;
    let mut plugins = BTreeMap::new();
    let mut digests = BTreeMap::new();
    let mut faults = Vec::new();
    for operator in &spec.operators {
        let found = match resolve(tenant, &operator.name, &operator.plugin, &code) {
            Ok(digest) => plugin(inner, tenant, &digest).await.map(|plugin| (digest, plugin)),
            Err(fault) => Err(fault),
        };
        match found {
            Ok((digest, plugin)) => {
                digests.insert(operator.name.to_string(), digest);
                plugins.insert(operator.name.clone(), plugin);
            }
            // The store's trouble is not the pipeline's.
            Err(fault) if fault.kind == FaultKind::Unavailable => return Err(fault),
            Err(fault) => {
                let help = fault.help.unwrap_or_else(|| "see the cause".into());
                faults.push(spec.text.error_at(&operator.plugin_span, fault.message, help));
            }
        }
    }
    Diagnostics::collect(&spec.text, faults)?;
    let descriptors: BTreeMap<NodeName, Descriptor> =
        plugins.iter().map(|(name, plugin)| (name.clone(), plugin.descriptor().clone())).collect();
    let snapshots = plugins.iter().map(|(name, plugin)| (name.clone(), plugin.has_snapshot_code())).collect();
    let plan = Plan::build(&spec, &descriptors)?;
    guarantees(&spec, &plan, &descriptors, &snapshots)?;
    let operators = spec.operators.iter().filter_map(|operator| {
        let plugin = tenant.confined(plugins.get(&operator.name)?.clone(), &record, operator.grants.clone());
        Some((operator.name.clone(), OperatorCode::of(&plugin, operator)))
    });
    let code = operators.collect();
    let subtasks = plan.nodes.iter().map(|node| u64::from(node.parallelism)).sum();
    let metrics = Arc::new(JobMetrics::new(plan.nodes.iter().map(|node| node.name.clone())));
    let (store, clock) = (tenant.store.counted_apart(), inner.clock.clone());
    let job = Job { spec, plan, code, text: text.to_owned(), store, clock, metrics };
    Ok(Loaded { job, digests, subtasks })
}

/// Which plugin an operator runs.
fn resolve(tenant: &Tenant, node: &NodeName, named: &PluginRef, code: &Code<'_>) -> Result<String, Fault> {
    let given = match code {
        Code::Fixed(digests) => {
            return digests.get(node.as_str()).cloned().ok_or_else(|| {
                Fault::new(FaultKind::Internal, format!("nothing is recorded of the plugin of {:?}", node.as_str()))
                    .help("deploy the job again")
            });
        }
        Code::Named(given) => given,
    };
    match named {
        PluginRef::Path(_) => given.get(node.as_str()).cloned().ok_or_else(|| {
            Fault::new(FaultKind::Invalid, "a plugin on a server is named, or given with its digest: this is a path")
                .help("`weir deploy` brings what a path names; or push it, and write \"NAME@VERSION\"")
        }),
        PluginRef::Named { name, version } => tenant.find_plugin(name, version.as_deref()).map(|found| found.digest),
        PluginRef::Digest(digest) => Ok(digest.to_ascii_lowercase()),
    }
}

/// A plugin of the tenant by its digest.
pub(super) async fn plugin(inner: &Inner, tenant: &Tenant, digest: &str) -> Result<Plugin, Fault> {
    let hash = hex_digest(digest)?;
    if !tenant.has_component(digest) {
        return Err(tenant.no_component(digest));
    }
    if let Some(plugin) = inner.host.find(hash) {
        return Ok(plugin);
    }
    let bytes = tenant.store.get_plugin(*hash.as_bytes()).await?;
    Ok(tenant.load(&inner.host, &bytes).await?)
}

impl Tenant {
    /// A plugin as this tenant may use it.
    fn confined(&self, plugin: Plugin, record: &TenantRecord, grants: Grants) -> Plugin {
        plugin
            .with_grants(grants)
            .with_environment(record.grants.environment.clone())
            .with_account(self.account.clone())
    }
}
