//! What can be asked of jobs that are there: start, stop, delete, and all that a running one answers itself.
//!
//! Every change runs to its end once it has begun, also when whoever asked has gone: see [`Server::detached`].

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::deploy::check_free_name;
use super::desired::{Dropped, JobRecord, Origin, Want};
use super::fault::{Fault, FaultKind};
use super::job::{self, JobHandle, Phase};
use super::journal::Journal;
use super::load::{self, Code};
use super::status::SavepointView;
use super::tenant::Tenant;
use super::upgrade::settled;
use super::{Caller, Server};
use crate::checkpoint::{
    Restorable, check_savepoint_name, create_savepoint, delete_savepoint, find_savepoint, histories, list_savepoints,
    look_for,
};
use crate::job::{Answer, Change, Changed, Fit, Request};
use crate::model::{Epoch, NodeName};
use crate::tenant::QuotaRefusal;

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

    /// Stops what runs of a job, with a last checkpoint if it can take one, and waits for its end.
    pub(super) async fn halt(&self, handle: &Arc<JobHandle>, savepoint: Option<String>) -> Option<StoppedView> {
        let control = {
            let mut state = handle.state();
            let control = state.run.as_ref().and_then(|run| run.control.clone());
            // One that is about to end takes its control away first, and then says what it is.
            if control.is_some() {
                state.phase = Phase::Stopping;
            }
            control
        };
        if let Some(control) = control {
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
            check_free_name(savepoint)?;
        }
        let _changing = handle.changing.lock().await;
        handle.check_alive(tenant)?;
        let _saving = handle.saving.lock().await;
        if asked.savepoint.is_some() {
            self.check_savepoints(tenant, name).await?;
        }
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
        let before = settled(&tenant.store, name, &handle.record()).await?;
        let is_plain = asked.from.is_none() && !asked.fresh && asked.drop_state.is_empty();
        if handle.is_active() && handle.phase() != Phase::Waiting {
            if is_plain && before.want == Want::Run {
                return Ok(());
            }
            let message = format!("job {name:?} is {}", handle.phase());
            return Err(Fault::new(FaultKind::Conflict, message).help("stop it first: `weir stop`"));
        }
        let loaded = load::load(&self.inner, tenant, &before.pipeline, Code::Fixed(&before.digests)).await?;
        let _subtasks = tenant.reserve_subtasks(name, loaded.subtasks)?;
        let (newest, generation) = newest(tenant, name).await?;
        let mut record = JobRecord {
            want: Want::Run,
            origin: None,
            drop_state: None,
            changed_at: self.inner.clock.now(),
            changed_by: caller.id.clone(),
            ..before
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
        handle.write(record).await?;
        // One that waits for its next try.
        handle.tell_to_stop();
        handle.ended().await;
        handle.state().subtasks = loaded.subtasks;
        tracing::info!(tenant = tenant.name, job = name, by = caller.id, "job started");
        job::start(&self.inner, tenant, &handle, Some(loaded));
        Ok(())
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
        tenant.records.purge_job(&handle.name).await?;
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
        // A job without a history has none.
        let there = match histories(&tenant.store, name).await? {
            0 => 0,
            _ => list_savepoints(&tenant.store, name).await?.len() as u64,
        };
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
        check_free_name(savepoint)?;
        let handle = tenant.job(name)?;
        let _saving = handle.saving.lock().await;
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
pub(super) async fn newest(tenant: &Tenant, name: &str) -> Result<(Option<Restorable>, u64), Fault> {
    let found = look_for(&tenant.store, name, None).await?;
    let generation = found.as_ref().map_or(0, |found| found.manifest.generation.0);
    Ok((found, generation))
}

/// Fails if a checkpoint does not fit, with the whole plan.
pub(super) fn check_fit(fit: &Fit) -> Result<(), Fault> {
    fit.check().and_then(|()| fit.check_dropped()).map_err(|error| {
        let lines = fit.nodes.iter().map(|node| format!("{}: {}: {}\n", node.node, node.verdict.word(), node.reason));
        Fault { details: Some(lines.collect()), ..Fault::from(error) }
    })
}

fn unexpected(answer: &Answer) -> Fault {
    Fault::new(FaultKind::Internal, format!("the job answered something else than it was asked: {answer:?}"))
}
