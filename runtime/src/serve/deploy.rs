//! Deployments: a job that is made, or changed with its state taken over.
//!
//! ```text
//! loaded ─► fits the newest checkpoint? ─► stopped with a savepoint ─► fits that? ─► written ─► started
//!              no: nothing happened                                   no: the old version goes on
//! ```
//!
//! The plugins that it names stay until the record does that says so, and its subtasks count from the moment when they are allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::desired::{Dropped, JobRecord, Origin, Want};
use super::fault::{Fault, FaultKind, check_name};
use super::job::{self, JobHandle};
use super::jobs::{check_fit, newest};
use super::load::{self, Code, Loaded};
use super::status::NodePlan;
use super::tenant::Tenant;
use super::upgrade::settled;
use super::{Caller, Server, edit};
use crate::checkpoint::{Restorable, Series, delete_savepoint, histories, list_savepoints};
use crate::model::NodeName;
use crate::tenant::QuotaRefusal;

/// How many of the savepoints that deployments make are kept of a job.
const DEPLOY_SAVEPOINTS: usize = 3;
/// How they begin.
const DEPLOY_PREFIX: &str = "deploy-";

/// What is deployed.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Deployment {
    /// The pipeline file. Its `name` is the job's.
    pub pipeline: String,
    /// The plugins of operators that name a file in it: by node, the blake3 of a component that was brought before, in hexadecimal.
    #[serde(default)]
    pub plugins: BTreeMap<String, String>,
    /// Nodes whose state is given up.
    #[serde(default)]
    pub drop_state: BTreeSet<String>,
    /// Say what would happen, and do nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Begin anew, and forget every checkpoint that the job has.
    #[serde(default)]
    pub fresh: bool,
}

/// What came of it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Deployed {
    /// The job.
    pub job: String,
    /// `created`, `changed` or `unchanged`; of a dry run, what it would be.
    pub outcome: String,
    /// What becomes of the state of each node; empty for a job that has none.
    pub plan: Vec<NodePlan>,
    /// The checkpoint that the plan is about.
    pub epoch: Option<u64>,
    /// The savepoint from which the new version goes on, if the old one ran.
    pub savepoint: Option<String>,
    /// Whether it runs afterwards.
    pub want: Want,
}

/// A node in another number of subtasks.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RescaleRequest {
    /// Which node.
    pub node: String,
    /// How many subtasks.
    pub parallelism: u32,
}

impl Server {
    /// Makes a job, or changes one.
    ///
    /// # Errors
    ///
    /// If the pipeline is not one that the tenant may run, or the job's state does not fit it. Then nothing was changed.
    pub async fn deploy(
        &self,
        tenant: &Arc<Tenant>,
        caller: &Caller,
        name: &str,
        asked: Deployment,
    ) -> Result<Deployed, Fault> {
        self.check_open()?;
        check_name("job", name)?;
        let loaded = {
            let _turn = tenant.starting.acquire().await;
            load::load(&self.inner, tenant, &asked.pipeline, Code::Named(&asked.plugins)).await?
        };
        let _pins = tenant.pin(loaded.digests.values())?;
        if loaded.job.spec.name != name {
            let message = format!("the pipeline is named {:?}, and job {name:?} is deployed", loaded.job.spec.name);
            return Err(Fault::new(FaultKind::Invalid, message).help("deploy it under its own name"));
        }
        let there = tenant.jobs_mut().get(name).cloned();
        match there {
            Some(handle) => {
                let _changing = handle.changing.lock().await;
                handle.check_alive(tenant)?;
                self.redeploy(tenant, caller, &handle, asked, loaded).await
            }
            None => self.create(tenant, caller, name, asked, loaded).await,
        }
    }

    async fn create(
        &self,
        tenant: &Arc<Tenant>,
        caller: &Caller,
        name: &str,
        asked: Deployment,
        loaded: Loaded,
    ) -> Result<Deployed, Fault> {
        let record = JobRecord::new(asked.pipeline, loaded.digests.clone(), self.inner.clock.now(), &caller.id);
        let deployed = Deployed {
            job: name.to_owned(),
            outcome: "created".into(),
            plan: Vec::new(),
            epoch: None,
            savepoint: None,
            want: Want::Run,
        };
        let changing = tenant.changing.lock().await;
        tenant.check_alive()?;
        // Grants may have been taken away while it was loaded.
        load::read(&tenant.name, &tenant.record(), &record.pipeline)?;
        let jobs = tenant.jobs();
        if jobs.iter().any(|job| job.name == name) {
            return Err(Fault::changed(&format!("job {name:?}")));
        }
        let quotas = &tenant.record().quotas;
        QuotaRefusal::check(&tenant.name, "jobs", jobs.len() as u64 + 1, quotas.jobs.into())?;
        let _subtasks = tenant.reserve_subtasks(name, loaded.subtasks)?;
        if asked.dry_run {
            return Ok(deployed);
        }
        let series = Series::of_job(&tenant.records, name)?;
        let number = record.write(&series, 0).await?;
        let handle = JobHandle::new(&tenant.name, name, series, number, record);
        handle.state().subtasks = loaded.subtasks;
        // Whoever finds it from now on waits until it has been started.
        let _changing = handle.changing.lock().await;
        {
            let mut plugins = tenant.plugins();
            plugins.fresh.retain(|digest| !loaded.digests.values().any(|used| used == digest));
        }
        tenant.jobs_mut().insert(name.to_owned(), Arc::clone(&handle));
        drop(changing);
        tracing::info!(tenant = tenant.name, job = name, by = caller.id, "job created");
        job::start(&self.inner, tenant, &handle, Some(loaded));
        Ok(deployed)
    }

    /// Changes a job. Whoever calls it holds its `changing`.
    async fn redeploy(
        &self,
        tenant: &Arc<Tenant>,
        caller: &Caller,
        handle: &Arc<JobHandle>,
        asked: Deployment,
        loaded: Loaded,
    ) -> Result<Deployed, Fault> {
        let before = handle.record();
        load::read(&tenant.name, &tenant.record(), &asked.pipeline)?;
        let mut deployed = Deployed {
            job: handle.name.clone(),
            outcome: "unchanged".into(),
            plan: Vec::new(),
            epoch: None,
            savepoint: None,
            want: before.want,
        };
        let is_same = before.pipeline == asked.pipeline && before.digests == loaded.digests;
        if is_same && asked.drop_state.is_empty() && !asked.fresh {
            return Ok(deployed);
        }
        let _subtasks = tenant.reserve_subtasks(&handle.name, loaded.subtasks)?;
        (deployed.outcome, deployed.want) = ("changed".into(), Want::Run);
        // What would be refused is refused before anything stops.
        let was_active = handle.is_active();
        let (found, _) = newest(tenant, &handle.name).await?;
        let fits = fits(&loaded, found.as_ref(), &asked, &mut deployed);
        if asked.dry_run {
            return Ok(deployed);
        }
        if found.is_some() || !was_active {
            fits?;
        }
        let number = handle.state().number + 1;
        let savepoint = was_active.then(|| format!("{DEPLOY_PREFIX}{number}"));
        if was_active {
            deployed.savepoint = self.halt(handle, savepoint).await.and_then(|stopped| stopped.savepoint);
        }
        if let Err(fault) = self.take_over(tenant, caller, handle, asked, &loaded, &mut deployed).await {
            if was_active {
                tracing::warn!(tenant = tenant.name, job = handle.name, "not changed, it goes on: {}", fault.message);
                if let Some(savepoint) = &deployed.savepoint
                    && let Err(error) = delete_savepoint(&tenant.store, &handle.name, savepoint).await
                {
                    tracing::warn!(tenant = tenant.name, job = handle.name, %error, "savepoint {savepoint:?} is left");
                }
                job::start(&self.inner, tenant, handle, None);
            }
            return Err(fault);
        }
        {
            let mut plugins = tenant.plugins();
            plugins.fresh.retain(|digest| !loaded.digests.values().any(|used| used == digest));
        }
        tracing::info!(tenant = tenant.name, job = handle.name, by = caller.id, "job changed");
        handle.state().subtasks = loaded.subtasks;
        job::start(&self.inner, tenant, handle, Some(loaded));
        self.forget_deploy_savepoints(tenant, handle).await;
        Ok(deployed)
    }

    /// Writes down what a job is to be that stands still, if that can take its state over.
    async fn take_over(
        &self,
        tenant: &Tenant,
        caller: &Caller,
        handle: &JobHandle,
        asked: Deployment,
        loaded: &Loaded,
        deployed: &mut Deployed,
    ) -> Result<(), Fault> {
        let (found, generation) = newest(tenant, &handle.name).await?;
        fits(loaded, found.as_ref(), &asked, deployed)?;
        let mut record = JobRecord::new(asked.pipeline, loaded.digests.clone(), self.inner.clock.now(), &caller.id);
        if asked.fresh {
            loaded.job.check_unowned().await?;
            record.origin = Some(Origin::Fresh { histories: histories(&tenant.store, &handle.name).await? });
        } else if !asked.drop_state.is_empty() {
            record.drop_state = Some(Dropped { nodes: asked.drop_state, generation });
        }
        handle.write(record).await
    }

    /// Keeps the newest savepoints of deployments, and deletes the others.
    async fn forget_deploy_savepoints(&self, tenant: &Tenant, handle: &JobHandle) {
        let forget = async {
            let mut ours: Vec<(u64, String)> = list_savepoints(&tenant.store, &handle.name)
                .await?
                .into_iter()
                .filter_map(|s| Some((s.name.strip_prefix(DEPLOY_PREFIX)?.parse().ok()?, s.name)))
                .collect();
            ours.sort_unstable();
            let old = ours.len().saturating_sub(DEPLOY_SAVEPOINTS);
            for (_, name) in ours.drain(..old) {
                delete_savepoint(&tenant.store, &handle.name, &name).await?;
            }
            Ok::<_, crate::checkpoint::CheckpointError>(())
        };
        if let Err(error) = forget.await {
            tracing::warn!(tenant = tenant.name, job = handle.name, %error, "old savepoints of deployments are left");
        }
    }

    /// Gives a node another number of subtasks, by a stop with a savepoint and a start from it.
    ///
    /// # Errors
    ///
    /// If there is no such node, or its state cannot be dealt out again.
    pub async fn rescale(
        &self,
        tenant: &Arc<Tenant>,
        caller: &Caller,
        name: &str,
        asked: RescaleRequest,
    ) -> Result<Deployed, Fault> {
        self.check_open()?;
        let handle = tenant.job(name)?;
        let _changing = handle.changing.lock().await;
        handle.check_alive(tenant)?;
        let record = settled(&tenant.store, name, &handle.record()).await?;
        let pipeline = edit::set_parallelism(&record.pipeline, &asked.node, asked.parallelism)
            .map_err(|fault| Fault::new(FaultKind::Invalid, fault).help("`weir status` lists the nodes"))?;
        let loaded = load::load(&self.inner, tenant, &pipeline, Code::Fixed(&record.digests)).await?;
        self.redeploy(tenant, caller, &handle, Deployment { pipeline, ..Deployment::default() }, loaded).await
    }
}

/// Whether what was asked can take over the newest checkpoint, with what becomes of it.
fn fits(loaded: &Loaded, found: Option<&Restorable>, asked: &Deployment, deployed: &mut Deployed) -> Result<(), Fault> {
    match (found, asked.drop_state.first()) {
        _ if asked.fresh => Ok(()),
        (Some(found), _) => {
            let drop_state = asked.drop_state.iter().map(|name| NodeName::new(name.as_str())).collect();
            let fit = loaded.job.fit(&found.manifest, !found.committed, &drop_state);
            (deployed.plan, deployed.epoch) = (NodePlan::of(&fit), Some(found.manifest.epoch.0));
            check_fit(&fit)
        }
        (None, Some(name)) => {
            let message = format!("the state of node {name:?} is to be given up, and the job has no checkpoint");
            Err(Fault::new(FaultKind::Invalid, message).help("leave it out"))
        }
        (None, None) => Ok(()),
    }
}

/// Fails for the name of a savepoint that a deployment might make.
pub(super) fn check_free_name(savepoint: &str) -> Result<(), Fault> {
    if savepoint.strip_prefix(DEPLOY_PREFIX).is_none_or(|rest| rest.parse::<u64>().is_err()) {
        return Ok(());
    }
    let message = format!("savepoints named {DEPLOY_PREFIX}NUMBER are made, and deleted, by deployments");
    Err(Fault::new(FaultKind::Invalid, message).help("choose another name"))
}
