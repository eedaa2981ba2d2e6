//! What can be asked of jobs: deploy, start, stop, rescale, delete, and all that a running one answers itself.
//!
//! Every change runs to its end once it has begun, also when whoever asked has gone: see [`Server::detached`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::desired::{Dropped, JobRecord, Origin, Want};
use super::fault::{Fault, FaultKind, check_name};
use super::job::{self, JobHandle, Phase};
use super::journal::Journal;
use super::load::{self, Code, Loaded};
use super::status::{NodePlan, SavepointView};
use super::tenant::Tenant;
use super::{Caller, Server, edit};
use crate::checkpoint::{
    Restorable, Series, check_savepoint_name, create_savepoint, delete_savepoint, find_savepoint, histories,
    list_savepoints, look_for,
};
use crate::job::{Answer, Change, Changed, Fit, Request};
use crate::model::{Epoch, NodeName};
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

/// Where a job is to start.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StartRequest {
    /// The number of a checkpoint or the name of a savepoint; by default the newest checkpoint.
    pub from: Option<String>,
    /// With `from`: output of later epochs, which is published already, may be produced again.
    pub republish: bool,
    /// Begin anew, and forget every checkpoint that the job has.
    pub fresh: bool,
    /// Nodes whose state is given up.
    pub drop_state: BTreeSet<String>,
}

/// How a job is to stop.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StopRequest {
    /// Keep the last checkpoint under this name.
    pub savepoint: Option<String>,
}

/// How a job stopped.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct StoppedView {
    /// Its newest checkpoint; none if it never had one.
    pub epoch: Option<u64>,
    /// The savepoint that was asked for.
    pub savepoint: Option<String>,
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
    /// Does something to its end, also when whoever asked for it has gone.
    ///
    /// # Errors
    ///
    /// What it comes to.
    pub async fn detached<T: Send + 'static>(
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        tokio::spawn(work).await.unwrap_or_else(|panic| {
            tracing::error!(%panic, "a request was not carried out");
            Err(Fault::new(FaultKind::Internal, "the server failed; its log has the reason"))
        })
    }

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
        if loaded.job.spec.name != name {
            let message = format!("the pipeline is named {:?}, and job {name:?} is deployed", loaded.job.spec.name);
            return Err(Fault::new(FaultKind::Invalid, message).help("deploy it under its own name"));
        }
        let there = tenant.jobs_mut().get(name).cloned();
        match there {
            Some(handle) => self.redeploy(tenant, caller, &handle, asked, loaded).await,
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
        self.check_subtasks(tenant, name, loaded.subtasks)?;
        if asked.dry_run {
            return Ok(deployed);
        }
        let series = Series::of_job(&tenant.store, name)?;
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

    /// Whether a tenant may have so many subtasks in one job.
    fn check_subtasks(&self, tenant: &Tenant, name: &str, subtasks: u64) -> Result<(), Fault> {
        let others = tenant.jobs();
        let others = others.iter().filter(|job| job.name != name && job.is_counted());
        let all = others.map(|job| job.state().subtasks).sum::<u64>().saturating_add(subtasks);
        Ok(QuotaRefusal::check(&tenant.name, "subtasks", all, tenant.record().quotas.subtasks.into())?)
    }

    async fn redeploy(
        &self,
        tenant: &Arc<Tenant>,
        caller: &Caller,
        handle: &Arc<JobHandle>,
        asked: Deployment,
        loaded: Loaded,
    ) -> Result<Deployed, Fault> {
        let _changing = handle.changing.lock().await;
        let before = handle.record();
        handle.check_alive(tenant)?;
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
        self.check_subtasks(tenant, &handle.name, loaded.subtasks)?;
        let (newest, generation) = newest(tenant, &handle.name).await?;
        let drop_state: BTreeSet<NodeName> = asked.drop_state.iter().map(|name| NodeName::new(name.as_str())).collect();
        (deployed.outcome, deployed.want) = ("changed".into(), Want::Run);
        if let (Some(found), false) = (&newest, asked.fresh) {
            let fit = loaded.job.fit(&found.manifest, false, &drop_state);
            (deployed.plan, deployed.epoch) = (NodePlan::of(&fit), Some(found.manifest.epoch.0));
            if !asked.dry_run {
                check_fit(&fit)?;
            }
        } else if let (None, Some(name), false) = (&newest, asked.drop_state.first(), asked.fresh) {
            let message = format!("the state of node {name:?} is to be given up, and the job has no checkpoint");
            return Err(Fault::new(FaultKind::Invalid, message).help("leave it out"));
        }
        if asked.dry_run {
            return Ok(deployed);
        }
        let mut record = JobRecord::new(asked.pipeline, loaded.digests.clone(), self.inner.clock.now(), &caller.id);
        if asked.fresh {
            loaded.job.check_unowned().await?;
            record.origin = Some(Origin::Fresh { histories: histories(&tenant.store, &handle.name).await? });
        } else if !asked.drop_state.is_empty() {
            record.drop_state = Some(Dropped { nodes: asked.drop_state, generation });
        }
        let was_active = handle.is_active();
        let savepoint = was_active.then(|| format!("{DEPLOY_PREFIX}{}", handle.state().number + 1));
        handle.write(record).await?;
        if was_active {
            deployed.savepoint = self.halt(handle, savepoint).await.and_then(|stopped| stopped.savepoint);
        }
        {
            let mut plugins = tenant.plugins();
            plugins.fresh.retain(|digest| !loaded.digests.values().any(|used| used == digest));
        }
        tracing::info!(tenant = tenant.name, job = handle.name, by = caller.id, "job changed");
        job::start(&self.inner, tenant, handle, Some(loaded));
        self.forget_deploy_savepoints(tenant, handle).await;
        Ok(deployed)
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

    /// Stops what runs of a job, with a last checkpoint if it can take one, and waits for its end.
    async fn halt(&self, handle: &Arc<JobHandle>, savepoint: Option<String>) -> Option<StoppedView> {
        let control = handle.control().ok();
        if let Some(control) = control {
            handle.state().phase = Phase::Stopping;
            let answer = control.ask(Request::Stop { savepoint: savepoint.clone() }).await;
            if let Ok(Answer::Stopped { epoch, savepoint, .. }) = answer {
                handle.ended().await;
                return Some(StoppedView { epoch: Some(epoch.0), savepoint });
            }
        }
        // It is about to start over, or fails: it ends as it is, and goes on from its newest checkpoint.
        handle.tell_to_stop();
        handle.ended().await;
        None
    }

    /// Stops a job with a last checkpoint.
    ///
    /// # Errors
    ///
    /// If a savepoint was asked for and cannot be made; the job has stopped all the same.
    pub async fn stop(
        &self,
        tenant: &Arc<Tenant>,
        caller: &Caller,
        name: &str,
        asked: StopRequest,
    ) -> Result<StoppedView, Fault> {
        let handle = tenant.job(name)?;
        if let Some(savepoint) = &asked.savepoint {
            check_savepoint_name(savepoint)?;
            self.check_savepoints(tenant, name).await?;
        }
        let _changing = handle.changing.lock().await;
        handle.check_alive(tenant)?;
        let record = handle.record();
        if record.want != Want::Stop {
            let now = self.inner.clock.now();
            handle
                .write(JobRecord {
                    want: Want::Stop,
                    changed_at: now,
                    changed_by: caller.id.clone(),
                    ..JobRecord::clone(&record)
                })
                .await?;
        }
        let was_active = handle.is_active();
        let stopped = if was_active { self.halt(&handle, asked.savepoint.clone()).await } else { None };
        if !was_active && handle.phase() != Phase::Finished {
            handle.state().phase = Phase::Stopped;
        }
        tracing::info!(tenant = tenant.name, job = name, by = caller.id, "job stopped");
        if let Some(stopped) = stopped {
            return Ok(stopped);
        }
        if let Some(savepoint) = asked.savepoint {
            let made = create_savepoint(&tenant.store, name, &savepoint).await?;
            return Ok(StoppedView { epoch: Some(made.manifest.epoch.0), savepoint: Some(savepoint) });
        }
        let newest = look_for(&tenant.store, name, None).await?;
        Ok(StoppedView { epoch: newest.map(|found| found.manifest.epoch.0), savepoint: None })
    }

    /// Starts a job that does not run.
    ///
    /// # Errors
    ///
    /// If it runs, or cannot start from there.
    pub async fn start(
        &self,
        tenant: &Arc<Tenant>,
        caller: &Caller,
        name: &str,
        asked: StartRequest,
    ) -> Result<(), Fault> {
        self.check_open()?;
        let handle = tenant.job(name)?;
        let _changing = handle.changing.lock().await;
        handle.check_alive(tenant)?;
        let before = handle.record();
        let is_plain = asked.from.is_none() && !asked.fresh && asked.drop_state.is_empty();
        if handle.is_active() && handle.phase() != Phase::Waiting {
            if is_plain && before.want == Want::Run {
                return Ok(());
            }
            let message = format!("job {name:?} is {}", handle.phase());
            return Err(Fault::new(FaultKind::Conflict, message).help("stop it first: `weir stop`"));
        }
        let loaded = load::load(&self.inner, tenant, &before.pipeline, Code::Fixed(&before.digests)).await?;
        self.check_subtasks(tenant, name, loaded.subtasks)?;
        let (newest, generation) = newest(tenant, name).await?;
        let mut record = JobRecord {
            want: Want::Run,
            origin: None,
            drop_state: None,
            changed_at: self.inner.clock.now(),
            changed_by: caller.id.clone(),
            ..JobRecord::clone(&before)
        };
        match (&asked.from, asked.fresh) {
            (Some(_), true) => {
                let message = "`fresh` forgets every checkpoint, and `from` names one";
                return Err(Fault::new(FaultKind::Invalid, message).help("leave one of the two out"));
            }
            (None, true) => {
                loaded.job.check_unowned().await?;
                record.origin = Some(Origin::Fresh { histories: histories(&tenant.store, name).await? });
            }
            (Some(from), false) => {
                let epoch = match from.parse() {
                    Ok(epoch) => epoch,
                    Err(_) => find_savepoint(&tenant.store, name, from).await?.manifest.epoch.0,
                };
                let found = look_for(&tenant.store, name, Some(Epoch(epoch))).await?;
                let later = found.as_ref().map(|found| found.later.clone()).unwrap_or_default();
                if !later.is_empty() && !asked.republish {
                    let later: Vec<_> = later.iter().map(Epoch::to_string).collect();
                    let message = format!(
                        "output of epochs {} is published and would be produced again from checkpoint {epoch}",
                        later.join(", ")
                    );
                    return Err(Fault::new(FaultKind::Conflict, message)
                        .help("add `republish` if whoever reads the output can take that"));
                }
                record.origin = Some(Origin::Checkpoint { epoch, generation });
            }
            (None, false) => {}
        }
        if !asked.drop_state.is_empty() {
            record.drop_state = Some(Dropped { nodes: asked.drop_state, generation });
        }
        // What would be refused is refused now, to whoever asks, and not in a log.
        if let (Some(found), true, false) = (&newest, asked.from.is_none(), asked.fresh) {
            let drop_state = record.drop_state.iter().flat_map(|dropped| &dropped.nodes);
            let drop_state = drop_state.map(|name| NodeName::new(name.as_str())).collect();
            check_fit(&loaded.job.fit(&found.manifest, !found.committed, &drop_state))?;
        }
        handle.tell_to_stop();
        handle.ended().await;
        handle.write(record).await?;
        tracing::info!(tenant = tenant.name, job = name, by = caller.id, "job started");
        job::start(&self.inner, tenant, &handle, Some(loaded));
        Ok(())
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
        let record = handle.record();
        let pipeline = edit::set_parallelism(&record.pipeline, &asked.node, asked.parallelism)
            .map_err(|fault| Fault::new(FaultKind::Invalid, fault).help("`weir status` lists the nodes"))?;
        let loaded = load::load(&self.inner, tenant, &pipeline, Code::Fixed(&record.digests)).await?;
        self.redeploy(tenant, caller, &handle, Deployment { pipeline, ..Deployment::default() }, loaded).await
    }

    /// Deletes a job that does not run, with all its state.
    ///
    /// # Errors
    ///
    /// If it runs, or has output that is prepared and not published.
    pub async fn delete_job(&self, tenant: &Arc<Tenant>, caller: &Caller, name: &str) -> Result<(), Fault> {
        let handle = tenant.job(name)?;
        {
            let _changing = handle.changing.lock().await;
            tenant.check_alive()?;
            // One whose deletion was begun is deleted to its end.
            if handle.record().deleting {
                self.purge(tenant, &handle).await?;
                return self.collect_components(tenant).await;
            }
            if handle.is_active() {
                let message = format!("job {name:?} is {}", handle.phase());
                return Err(Fault::new(FaultKind::Conflict, message).help("stop it first: `weir stop`"));
            }
            // What is damaged has nothing that could be published; a store that does not answer may have.
            let newest = match look_for(&tenant.store, name, None).await.map_err(Fault::from) {
                Err(fault) if fault.kind == FaultKind::Unavailable => return Err(fault),
                found => found.ok().flatten(),
            };
            if newest.is_some_and(|found| !found.committed) {
                let message = format!("job {name:?} has output that is prepared and not published");
                return Err(
                    Fault::new(FaultKind::Conflict, message).help("start it and stop it once, so that it is published")
                );
            }
            let record = JobRecord { deleting: true, want: Want::Stop, ..JobRecord::clone(&handle.record()) };
            handle.write(record).await?;
            self.purge(tenant, &handle).await?;
        }
        tracing::info!(tenant = tenant.name, job = name, by = caller.id, "job deleted");
        self.collect_components(tenant).await
    }

    /// Deletes everything of a job that is marked to be deleted.
    pub(super) async fn purge(&self, tenant: &Tenant, handle: &JobHandle) -> Result<(), Fault> {
        tenant.store.purge_job(&handle.name).await?;
        handle.series.delete().await?;
        tenant.jobs_mut().remove(&handle.name);
        Journal::of_process().forget(&tenant.name, &handle.name);
        self.inner.host.forget_metrics_of(&tenant.name, &handle.name);
        Ok(())
    }

    /// Has a running job take a checkpoint.
    ///
    /// # Errors
    ///
    /// If it does not run, or the checkpoint fails.
    pub async fn checkpoint(&self, tenant: &Tenant, name: &str) -> Result<u64, Fault> {
        match tenant.job(name)?.control()?.ask(Request::Checkpoint).await? {
            Answer::Checkpoint { epoch, .. } => Ok(epoch.0),
            other => Err(unexpected(&other)),
        }
    }

    /// Changes settings of a running job, until it is started again.
    ///
    /// # Errors
    ///
    /// If it does not run, or a value is out of its range.
    pub async fn set(&self, tenant: &Tenant, name: &str, change: Change) -> Result<Vec<Changed>, Fault> {
        let least = tenant.record().quotas.checkpoint_interval_ms;
        if let Some(interval) = change.interval_us.filter(|us| *us < least.saturating_mul(1_000)) {
            let (limit, value) = (format!("every {least} ms"), format!("every {} ms", interval / 1_000));
            let refusal = QuotaRefusal { tenant: tenant.name.clone(), quota: "checkpoint_interval_ms", limit, value };
            return Err(refusal.into());
        }
        match tenant.job(name)?.control()?.ask(Request::Set(change)).await? {
            Answer::Set { changed } => Ok(changed),
            other => Err(unexpected(&other)),
        }
    }

    async fn check_savepoints(&self, tenant: &Tenant, name: &str) -> Result<(), Fault> {
        let there = list_savepoints(&tenant.store, name).await.map_or(0, |all| all.len() as u64);
        Ok(QuotaRefusal::check(&tenant.name, "savepoints", there + 1, tenant.record().quotas.savepoints.into())?)
    }

    /// The savepoints of a job.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn savepoints(&self, tenant: &Tenant, name: &str) -> Result<Vec<SavepointView>, Fault> {
        tenant.job(name)?;
        if histories(&tenant.store, name).await? == 0 {
            return Ok(Vec::new());
        }
        Ok(list_savepoints(&tenant.store, name).await?.iter().map(SavepointView::new).collect())
    }

    /// Keeps a checkpoint under a name: a fresh one of a running job, else the newest.
    ///
    /// # Errors
    ///
    /// If there is none, or the name is taken.
    pub async fn make_savepoint(&self, tenant: &Tenant, name: &str, savepoint: &str) -> Result<SavepointView, Fault> {
        check_savepoint_name(savepoint)?;
        let handle = tenant.job(name)?;
        self.check_savepoints(tenant, name).await?;
        match handle.control() {
            Ok(control) => {
                control.ask(Request::Savepoint { name: savepoint.to_owned() }).await?;
            }
            Err(_) => drop(create_savepoint(&tenant.store, name, savepoint).await?),
        }
        Ok(SavepointView::new(&find_savepoint(&tenant.store, name, savepoint).await?))
    }

    /// Deletes a savepoint.
    ///
    /// # Errors
    ///
    /// If there is none of that name.
    pub async fn delete_savepoint(&self, tenant: &Tenant, name: &str, savepoint: &str) -> Result<(), Fault> {
        tenant.job(name)?;
        delete_savepoint(&tenant.store, name, savepoint).await?;
        Ok(())
    }
}

/// The newest checkpoint of a job, and the generation that wrote it: 0 if there is none.
async fn newest(tenant: &Tenant, name: &str) -> Result<(Option<Restorable>, u64), Fault> {
    let found = look_for(&tenant.store, name, None).await?;
    let generation = found.as_ref().map_or(0, |found| found.manifest.generation.0);
    Ok((found, generation))
}

/// Fails if a checkpoint does not fit, with the whole plan.
fn check_fit(fit: &Fit) -> Result<(), Fault> {
    fit.check().and_then(|()| fit.check_dropped()).map_err(|error| {
        let lines = fit.nodes.iter().map(|node| format!("{}: {}: {}\n", node.node, node.verdict.word(), node.reason));
        Fault { details: Some(lines.collect()), ..Fault::from(error) }
    })
}

fn unexpected(answer: &Answer) -> Fault {
    Fault::new(FaultKind::Internal, format!("the job answered something else than it was asked: {answer:?}"))
}
