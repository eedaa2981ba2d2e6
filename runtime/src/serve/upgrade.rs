//! An operator of a running job, upgraded in place.
//!
//! What is to come is written before it is begun, and what came of it when that is known. A server that died in between finds out from the
//! newest checkpoint which of the two versions wrote it, and goes on with that one.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::desired::{JobRecord, Upgrading};
use super::fault::{Fault, FaultKind};
use super::load::{self, Code};
use super::tenant::Tenant;
use super::{Caller, JobHandle, Server, edit};
use crate::checkpoint::{Store, look_for};
use crate::job::{Answer, Control, Request, Upgrade, UpgradeReport};
use crate::model::NodeName;

/// The longest time that the new version may run beside the old one.
const SHADOW_MS_MAX: u64 = 7 * 86_400_000;

/// What an operator is to become.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpgradeAsked {
    /// Which operator.
    pub node: String,
    /// Its next plugin, `NAME@VERSION`, `NAME` or `blake3:DIGEST`; without one it keeps its own.
    #[serde(default)]
    pub plugin: Option<String>,
    /// Its next configuration; without one it keeps its own.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub config: Option<serde_json::Value>,
    /// How long the new version runs beside the old one at least, in milliseconds; its output is compared and dropped meanwhile.
    #[serde(default)]
    pub shadow_ms: Option<u64>,
    /// On how many of the subtasks first.
    #[serde(default)]
    pub canary: Option<u32>,
    /// How long it may be behind the old one before it is given up as too slow, in milliseconds. Default a minute.
    #[serde(default)]
    pub catch_up_ms: Option<u64>,
}

/// A record in which an upgrade that was on its way is settled: by what wrote the newest checkpoint.
pub(super) async fn settled(store: &Store, name: &str, record: &JobRecord) -> Result<JobRecord, Fault> {
    let Some(upgrading) = &record.upgrading else { return Ok(record.clone()) };
    let newest = look_for(store, name, None).await?;
    let digest =
        newest.as_ref().and_then(|found| found.manifest.node(&upgrading.node)?.plugin.as_ref()).map(|p| p.digest);
    let is_done = digest.is_some_and(|digest| blake3::Hash::from_bytes(digest).to_hex().as_str() == upgrading.digest);
    // With the same code it cannot be told, and nobody was told that it is done.
    let was_other = record.digests.get(&upgrading.node) != Some(&upgrading.digest);
    Ok(if is_done && was_other { done(record, upgrading) } else { JobRecord { upgrading: None, ..record.clone() } })
}

/// Whether a running job makes no upgrade.
async fn is_over(control: &Control) -> Result<bool, Fault> {
    match control.ask(Request::Status).await? {
        Answer::Status(status) => Ok(status.upgrade.is_none()),
        _ => Ok(false),
    }
}

/// The record of a job whose upgrade is done.
fn done(record: &JobRecord, upgrading: &Upgrading) -> JobRecord {
    let mut record = JobRecord { pipeline: upgrading.pipeline.clone(), upgrading: None, ..record.clone() };
    record.digests.insert(upgrading.node.clone(), upgrading.digest.clone());
    record
}

impl Server {
    /// Puts another version of an operator in its place while the job runs, and returns when a checkpoint holds it.
    ///
    /// # Errors
    ///
    /// If it cannot take over, or fails before that: then the old version goes on, and nothing of the new one is published.
    pub async fn upgrade(
        &self,
        tenant: &Arc<Tenant>,
        caller: &Caller,
        name: &str,
        asked: UpgradeAsked,
    ) -> Result<UpgradeReport, Fault> {
        self.check_open()?;
        let handle = tenant.job(name)?;
        if let Some(value) = asked.shadow_ms.max(asked.catch_up_ms).filter(|&ms| ms > SHADOW_MS_MAX) {
            let message = format!("{value} ms is longer than {SHADOW_MS_MAX} ms, a week");
            return Err(Fault::new(FaultKind::Invalid, message).help("give less"));
        }
        let (upgrade, upgrading) = self.begin(tenant, caller, &handle, &asked).await?;
        let control = handle.control();
        let answer = match control {
            Ok(control) => control.upgrade(upgrade).await.map_err(Fault::from),
            Err(fault) => Err(fault),
        };
        let _changing = handle.changing.lock().await;
        // What was deleted meanwhile must not come back.
        handle.check_alive(tenant)?;
        let record = handle.record();
        // Whoever changed the job meanwhile has settled it.
        if record.upgrading.as_ref() == Some(&upgrading) {
            let now = self.inner.clock.now();
            let settle = async {
                let settled = match &answer {
                    Ok(_) => done(&record, &upgrading),
                    Err(_) => settled(&tenant.store, name, &record).await?,
                };
                handle.write(JobRecord { changed_at: now, changed_by: caller.id.clone(), ..settled }).await
            };
            // Whoever reads the record next finds out by the newest checkpoint, as after a loss of the server.
            if let Err(fault) = settle.await {
                tracing::warn!(
                    tenant = tenant.name,
                    job = name,
                    "what came of it is not written yet: {}",
                    fault.message
                );
            }
        }
        match &answer {
            Ok(report) => tracing::info!(
                tenant = tenant.name,
                job = name,
                node = report.node,
                from = report.from.version,
                to = report.to.version,
                by = caller.id,
                "operator upgraded"
            ),
            Err(fault) => tracing::warn!(
                tenant = tenant.name,
                job = name,
                node = asked.node,
                by = caller.id,
                "no upgrade: {}",
                fault.message
            ),
        }
        answer
    }

    /// Loads what is to come and writes it down.
    async fn begin(
        &self,
        tenant: &Arc<Tenant>,
        caller: &Caller,
        handle: &Arc<JobHandle>,
        asked: &UpgradeAsked,
    ) -> Result<(Upgrade, Upgrading), Fault> {
        let _changing = handle.changing.lock().await;
        handle.check_alive(tenant)?;
        // Before anything is written: one that does not run is deployed.
        let control = handle.control()?;
        let mut record = JobRecord::clone(&handle.record());
        if let Some(other) = &record.upgrading
            && !is_over(&control).await?
        {
            let message = format!("node {:?} of job {:?} is being upgraded", other.node, handle.name);
            return Err(Fault::new(FaultKind::Conflict, message)
                .help("wait until that is done: `weir status` says how far it is"));
        }
        // One that is over and could not be written.
        record = settled(&tenant.store, &handle.name, &record).await?;
        let before = record.digests.get(&asked.node).ok_or_else(|| {
            Fault::new(FaultKind::Invalid, format!("job {:?} has no operator {:?}", handle.name, asked.node))
                .help("`weir status` lists its nodes")
        })?;
        if asked.plugin.is_none() && asked.config.is_none() {
            return Err(Fault::new(FaultKind::Invalid, "neither a plugin nor a configuration is named")
                .help("name one of them"));
        }
        let (digest, written) = match &asked.plugin {
            Some(plugin) => {
                let (digest, _) = self.plugin_of(tenant, plugin).await?;
                // A name without a version may mean another one tomorrow.
                let written = if plugin.contains('@') { plugin.clone() } else { format!("blake3:{digest}") };
                (digest, Some(written))
            }
            None => (before.clone(), None),
        };
        let pipeline = edit::set_operator(&record.pipeline, &asked.node, written.as_deref(), asked.config.as_ref())
            .map_err(|fault| Fault::new(FaultKind::Invalid, fault).help("give the configuration as a JSON object"))?;
        let mut digests = record.digests.clone();
        digests.insert(asked.node.clone(), digest.clone());
        let _pins = tenant.pin(digests.values())?;
        let mut loaded = load::load(&self.inner, tenant, &pipeline, Code::Fixed(&digests)).await?;
        let node = NodeName::new(asked.node.as_str());
        let code = loaded.job.code.remove(&node).ok_or_else(|| {
            Fault::new(FaultKind::Internal, format!("the code of operator {:?} was not loaded", asked.node))
        })?;
        let upgrading = Upgrading { node: asked.node.clone(), digest: digest.clone(), pipeline };
        let now = self.inner.clock.now();
        handle
            .write(JobRecord {
                upgrading: Some(upgrading.clone()),
                changed_at: now,
                changed_by: caller.id.clone(),
                ..record
            })
            .await?;
        tenant.plugins().fresh.remove(&digest);
        let millis = |ms: Option<u64>| ms.map(Duration::from_millis);
        let (shadow, catch_up) = (millis(asked.shadow_ms), millis(asked.catch_up_ms));
        Ok((Upgrade { node, code, shadow, canary: asked.canary, catch_up }, upgrading))
    }
}
