//! The host: many tenants in one process, each with its plugins and its jobs.
//!
//! ```text
//!   api ──► Server ──► Tenant ──► JobHandle ──► Job          asks ──► is allowed ──► writes what is to be ──► does it
//!                        │            │
//!                        └────────────┴──► store              tenants/<t>/{tenant,desired,names,plugins,jobs}
//! ```
//!
//! What tenants, plugins and jobs are to be lies in the object store, a numbered revision for each change; what runs is derived from it.
//! A server that was killed at any moment finds all of it, and goes on with every job from its last checkpoint. Tenants share the plugin
//! host and the processors, and nothing else: no name, lock or queue of one is waited for by another.

mod catalogue;
mod deploy;
mod desired;
mod edit;
mod fault;
mod job;
mod jobs;
mod journal;
mod load;
mod numbers;
mod status;
mod tenant;
mod tenants;
mod upgrade;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::watch;

pub use catalogue::{ComponentView, PluginView, Pushed};
pub use deploy::{Deployed, Deployment, RescaleRequest};
pub use desired::{JobRecord, Want};
pub(crate) use fault::shown;
pub use fault::{Fault, FaultKind};
pub use job::{JobHandle, Phase};
pub use jobs::{StartRequest, StopRequest, StoppedView};
pub use journal::{Journal, LogLine, Ring};
pub use status::{EdgeView, FaultView, JobSummary, JobView, NodePlan, NodeView, RunView, SavepointView};
pub use tenant::Tenant;
pub use tenants::{KeysView, NewToken, TenantView, TokenMade, TokenView, UsageView};
pub use upgrade::UpgradeAsked;

use crate::checkpoint::{DEFAULT_TENANT, Revision, Series, Store};
use crate::clock::Clock;
use crate::job::Request;
use crate::plugin::PluginHost;
use crate::tenant::{
    QuotaRefusal, RECORD_FORMAT, Role, ServerRecord, Taken, TenantGrants, TenantRecord, Token, read_record,
};

/// How many tenants or jobs are read from the store at once.
const STARTS_AT_ONCE: usize = 16;
/// How often rates are taken.
const SAMPLE_EVERY: Duration = Duration::from_secs(2);

/// How often the server's own tokens are read again: somebody may have reset them with a server of their own.
const REFRESH_EVERY: Duration = Duration::from_secs(60);

/// How a server is set up.
#[derive(Debug)]
pub struct ServeOptions {
    /// The whole store.
    pub store: Store,
    /// What runs plugins.
    pub host: PluginHost,
    /// Time.
    pub clock: Clock,
    /// One tenant, which needs no tokens, with these grants. Only for somebody who is alone on the machine.
    pub dev: Option<TenantGrants>,
    /// What no grant may touch.
    pub taken: Taken,
}

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Server {
    inner: Arc<Inner>,
}

/// What all parts of a server share.
#[derive(Debug)]
pub(crate) struct Inner {
    store: Store,
    host: PluginHost,
    clock: Clock,
    dev: bool,
    taken: Taken,
    series: Series,
    record: RwLock<(u64, Arc<ServerRecord>)>,
    /// One change of the set of tenants and of the server's tokens at a time.
    changing: tokio::sync::Mutex<()>,
    tenants: RwLock<BTreeMap<String, Arc<Tenant>>>,
    /// It is about to stop.
    closing: watch::Sender<bool>,
}

/// Who asks, and what they may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose token it is; none: the server's.
    pub tenant: Option<String>,
    /// What it is good for.
    pub role: Role,
    /// Which token it is, for the log.
    pub id: String,
}

impl Server {
    /// Reads everything from the store and starts what is to run. If the store has never been served, or `reset` says so, a token for all tenants is
    /// made, and `keep` puts it where its owner finds it, before anybody knows it: no token is lost half way.
    ///
    /// # Errors
    ///
    /// If the store does not answer or does not keep its promises, or what it has is damaged.
    pub async fn open(
        options: ServeOptions,
        reset: bool,
        keep: impl FnOnce(&Token) -> Result<(), Fault>,
    ) -> Result<Self, Fault> {
        let ServeOptions { store, host, clock, dev, taken } = options;
        store.probe().await?;
        let series = Series::of_server(&store);
        let none = || (0, ServerRecord { format: RECORD_FORMAT, tokens: Vec::new() });
        let (number, record) = newest_of_server(&series).await?.unwrap_or_else(none);
        let inner = Arc::new(Inner {
            store,
            host,
            clock,
            dev: dev.is_some(),
            taken,
            series,
            record: RwLock::new((number, Arc::new(record))),
            changing: tokio::sync::Mutex::default(),
            tenants: RwLock::default(),
            closing: watch::Sender::new(false),
        });
        let server = Self { inner };
        if (number == 0 || reset) && dev.is_none() {
            server.first_token(keep).await?;
        }
        server.find_tenants().await?;
        if let Some(grants) = dev {
            server.open_dev(grants).await?;
        }
        tokio::spawn(server.clone().take_samples());
        Ok(server)
    }

    /// Makes the token with which everything begins.
    async fn first_token(&self, keep: impl FnOnce(&Token) -> Result<(), Fault>) -> Result<(), Fault> {
        let no_entropy = |error| Fault::new(FaultKind::Internal, format!("no random bytes: {error}"));
        let now = self.inner.clock.now();
        let (token, record) = Token::make(None, Role::Admin, now, None, "the first").map_err(no_entropy)?;
        keep(&token)?;
        // Whoever holds the store says who its admin is: tokens of others are good for nothing from now on.
        self.inner.change_server(|server| server.tokens = vec![record]).await
    }

    async fn open_dev(&self, grants: TenantGrants) -> Result<(), Fault> {
        grants.check(&self.inner.taken).map_err(|fault| Fault::new(FaultKind::Invalid, fault))?;
        let there = self.inner.tenants().get(DEFAULT_TENANT).cloned();
        let tenant = match there {
            Some(tenant) => tenant,
            None => self.inner.add_tenant(DEFAULT_TENANT, TenantRecord::new(self.inner.clock.now())).await?,
        };
        let _changing = tenant.changing.lock().await;
        tenant
            .change(|record| {
                record.grants = grants;
                Ok(())
            })
            .await?;
        drop(_changing);
        Ok(())
    }

    /// Finds all tenants with their plugins and jobs, and starts what is to run.
    async fn find_tenants(&self) -> Result<(), Fault> {
        let names = self.inner.store.list_tenants().await?;
        let found: Vec<_> = futures::stream::iter(names)
            .map(|name| async move { (name.clone(), self.find_tenant(&name).await) })
            .buffered(STARTS_AT_ONCE)
            .collect()
            .await;
        let mut tenants = Vec::new();
        for (name, found) in found {
            match found {
                Ok(Some(tenant)) => tenants.push(tenant),
                Ok(None) => {}
                // One that is damaged must not keep the others from their work.
                Err(fault) if fault.kind != FaultKind::Unavailable => {
                    tracing::error!(tenant = name, help = fault.help, "a tenant is left out: {}", fault.message);
                }
                Err(fault) => return Err(fault),
            }
        }
        for tenant in tenants {
            self.inner.tenants_mut().insert(tenant.name.clone(), Arc::clone(&tenant));
            if tenant.record().deleting {
                let server = self.clone();
                tokio::spawn(async move {
                    if let Err(fault) = server.purge_tenant(&tenant).await {
                        tracing::error!(tenant = tenant.name, "a tenant is not deleted yet: {}", fault.message);
                    }
                });
                continue;
            }
            for handle in tenant.jobs() {
                if handle.record().deleting {
                    let (server, tenant) = (self.clone(), Arc::clone(&tenant));
                    tokio::spawn(async move {
                        let _changing = handle.changing.lock().await;
                        if let Err(fault) = server.purge(&tenant, &handle).await {
                            tracing::error!(
                                tenant = tenant.name,
                                job = handle.name,
                                "a job is not deleted yet: {}",
                                fault.message
                            );
                        }
                    });
                } else if handle.record().upgrading.is_some() {
                    let (server, tenant) = (self.clone(), Arc::clone(&tenant));
                    tokio::spawn(async move { server.settle(&tenant, &handle).await });
                } else if handle.record().want == Want::Run {
                    job::start(&self.inner, &tenant, &handle, None);
                }
            }
        }
        Ok(())
    }

    /// Settles an upgrade that was on its way when the server before died, and starts the job if it is to run.
    async fn settle(&self, tenant: &Arc<Tenant>, handle: &Arc<JobHandle>) {
        let _changing = handle.changing.lock().await;
        if handle.check_alive(tenant).is_err() {
            return;
        }
        let record = handle.record();
        let settle = async { handle.write(upgrade::settled(&tenant.store, &handle.name, &record).await?).await };
        // What is not settled now is at the next start; until then each start looks for itself.
        if let Err(fault) = settle.await {
            tracing::warn!(tenant = tenant.name, job = handle.name, "an upgrade is not settled yet: {}", fault.message);
        }
        if record.want == Want::Run {
            job::start(&self.inner, tenant, handle, None);
        }
    }

    async fn find_tenant(&self, name: &str) -> Result<Option<Arc<Tenant>>, Fault> {
        let store = self.inner.store.of_tenant(name)?;
        let Some((number, record)) = Tenant::read(&store).await? else { return Ok(None) };
        let tenant = Tenant::new(name, &self.inner.host, store, number, record);
        tenant.read_plugins().await?;
        let store = &tenant.records;
        let jobs: Vec<_> = futures::stream::iter(store.list_desired().await?)
            .map(|job| async move {
                let series = Series::of_job(store, &job)?;
                let newest = JobRecord::newest(&series).await?;
                Ok::<_, Fault>(newest.map(|(number, record)| JobHandle::new(name, &job, series, number, record)))
            })
            .buffered(STARTS_AT_ONCE)
            .collect()
            .await;
        for job in jobs {
            match job {
                Ok(Some(handle)) => drop(tenant.jobs_mut().insert(handle.name.clone(), handle)),
                Ok(None) => {}
                Err(fault) if fault.kind != FaultKind::Unavailable => {
                    tracing::error!(tenant = name, "a job is left out: {}", fault.message);
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(Some(Arc::new(tenant)))
    }

    async fn take_samples(self) {
        let mut closing = self.inner.closing.subscribe();
        let mut refreshed = self.inner.clock.elapsed();
        loop {
            tokio::select! {
                () = tokio::time::sleep(SAMPLE_EVERY) => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
            let now = self.inner.clock.elapsed();
            for tenant in self.tenants() {
                let jobs = tenant.jobs();
                jobs.iter().for_each(|job| job.sample(now));
                self.check_state(&tenant, &jobs);
            }
            self.weigh().await;
            if now.saturating_sub(refreshed) >= REFRESH_EVERY {
                refreshed = now;
                if let Err(fault) = self.inner.refresh().await {
                    tracing::warn!("the tokens of the server cannot be read again: {}", fault.message);
                }
            }
        }
    }

    /// Looks how much state jobs have that stand still: some of them each time, so that a start with many is not slow.
    async fn weigh(&self) {
        let tenants = self.tenants();
        let jobs = tenants.iter().flat_map(|tenant| tenant.jobs().into_iter().map(move |job| (tenant, job)));
        for (tenant, job) in jobs.filter(|(_, job)| job.is_unweighed()).take(STARTS_AT_ONCE) {
            if let Err(fault) = job.weigh(&tenant.records).await {
                tracing::debug!(tenant = tenant.name, job = job.name, "its state is not known: {}", fault.message);
            }
        }
    }

    /// Stops the job with the most state of a tenant whose jobs have more than it may: with a last checkpoint, so that nothing is lost.
    fn check_state(&self, tenant: &Arc<Tenant>, jobs: &[Arc<JobHandle>]) {
        let limit = tenant.record().quotas.state_bytes;
        let all = jobs.iter().map(|job| job.state_bytes()).fold(0_u64, u64::saturating_add);
        let Err(refusal) = QuotaRefusal::check(&tenant.name, "state_bytes", all, limit) else { return };
        // Only what runs grows.
        let running = jobs.iter().filter(|job| job.phase() == Phase::Running);
        let Some(job) = running.max_by_key(|job| job.state_bytes()) else { return };
        tracing::warn!(tenant = tenant.name, job = job.name, "it is stopped: {refusal}");
        let (server, tenant, job) = (self.clone(), Arc::clone(tenant), Arc::clone(job));
        let caller = Caller { tenant: Some(tenant.name.clone()), role: Role::Admin, id: "quota".into() };
        tokio::spawn(async move {
            match server.stop(&tenant, &caller, &job.name, StopRequest::default()).await {
                Ok(_) => job.note(refusal.into()),
                Err(fault) => {
                    tracing::error!(tenant = tenant.name, job = job.name, "it cannot be stopped: {}", fault.message)
                }
            }
        });
    }

    /// Who sends this token; without one, in a server for one developer, that tenant.
    ///
    /// # Errors
    ///
    /// If it is no token, or not one that is known.
    pub fn authenticate(&self, token: Option<&str>) -> Result<Caller, Fault> {
        let Some(token) = token else {
            if self.inner.dev {
                let tenant = Some(DEFAULT_TENANT.to_owned());
                return Ok(Caller { tenant, role: Role::Admin, id: "dev".into() });
            }
            return Err(Fault::new(FaultKind::Unauthenticated, "this needs a token")
                .help("send `Authorization: Bearer TOKEN`; the commands take it from WEIR_TOKEN or --token-file"));
        };
        let token = Token::parse(token)?;
        let now = self.inner.clock.now();
        let role = match &token.tenant {
            None => token.role(&self.inner.server_record().tokens, now)?,
            Some(name) => {
                let tenant = self.inner.tenants().get(name).cloned();
                // Nobody learns which tenants there are.
                let record = tenant.map(|tenant| tenant.record());
                let records = record.as_ref().map_or(&[][..], |record| &record.tokens);
                token.role(records, now)?
            }
        };
        Ok(Caller { tenant: token.tenant, role, id: token.id })
    }

    /// A tenant, for somebody who may do this there.
    ///
    /// # Errors
    ///
    /// If they may not, or there is none of that name and they may know.
    pub fn tenant(&self, caller: &Caller, name: &str, least: Role) -> Result<Arc<Tenant>, Fault> {
        caller.may(name, least)?;
        let found = self.inner.tenants().get(name).cloned();
        found.ok_or_else(|| Fault::not_found("tenant", &shown(name), "weir tenant list"))
    }

    /// All tenants, by name.
    pub fn tenants(&self) -> Vec<Arc<Tenant>> {
        self.inner.tenants().values().cloned().collect()
    }

    /// What runs plugins.
    pub fn host(&self) -> &PluginHost {
        &self.inner.host
    }

    /// Time.
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Whether it is for one developer, without tokens.
    pub fn is_dev(&self) -> bool {
        self.inner.dev
    }

    /// Whether it takes requests that change something.
    pub fn is_open(&self) -> bool {
        !*self.inner.closing.borrow()
    }

    /// Tells when it is about to stop.
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.inner.closing.subscribe()
    }

    fn check_open(&self) -> Result<(), Fault> {
        if self.is_open() {
            return Ok(());
        }
        Err(Fault::new(FaultKind::Unavailable, "the server is about to stop").help("ask again when it is back"))
    }

    /// Stops every job with a last checkpoint, and gives up on those that take longer than `grace`: they go on from the one before. What they are to be stays as
    /// it is, so the next server starts them again. Gives the number of those that were given up.
    pub async fn close(&self, grace: Duration) -> usize {
        self.inner.closing.send_replace(true);
        let jobs: Vec<_> =
            self.tenants().iter().flat_map(|tenant| tenant.jobs()).filter(|job| job.is_active()).collect();
        let all = jobs.iter().map(|job| async {
            if let Ok(control) = job.control() {
                let _ = control.ask(Request::Stop { savepoint: None }).await;
            }
            job.tell_to_stop();
            job.ended().await;
        });
        let _ = tokio::time::timeout(grace, futures::future::join_all(all)).await;
        jobs.iter().filter(|job| job.is_active()).count()
    }
}

impl Inner {
    fn tenants(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, Arc<Tenant>>> {
        self.tenants.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn tenants_mut(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<String, Arc<Tenant>>> {
        self.tenants.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn server_record(&self) -> Arc<ServerRecord> {
        Arc::clone(&self.record.read().unwrap_or_else(PoisonError::into_inner).1)
    }

    /// Reads again what the server knows of itself.
    async fn refresh(&self) -> Result<(), Fault> {
        let Some((number, record)) = newest_of_server(&self.series).await? else { return Ok(()) };
        let mut held = self.record.write().unwrap_or_else(PoisonError::into_inner);
        if number > held.0 {
            tracing::info!(number, "the server's tokens were changed by another server");
            *held = (number, Arc::new(record));
        }
        Ok(())
    }

    /// Changes what the server knows of itself. Whoever calls it holds `changing`, or is alone.
    async fn change_server(&self, change: impl FnOnce(&mut ServerRecord)) -> Result<(), Fault> {
        let (number, before) = self.record.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut record = ServerRecord::clone(&before);
        change(&mut record);
        let text = fault::written(&record)?;
        let Some(written) = self.series.append(number, text).await? else {
            self.refresh().await?;
            return Err(Fault::changed("the server"));
        };
        *self.record.write().unwrap_or_else(PoisonError::into_inner) = (written.number, Arc::new(record));
        Ok(())
    }
}

/// The newest revision of what a server knows of itself.
async fn newest_of_server(series: &Series) -> Result<Option<(u64, ServerRecord)>, Fault> {
    let Some(Revision { number, text }) = series.newest().await? else { return Ok(None) };
    let record = read_record(&text).map_err(|fault| {
        let message = format!("what the server knows of itself, revision {number}, cannot be read: {fault}");
        Fault::new(FaultKind::Internal, message)
    })?;
    Ok(Some((number, record)))
}

impl Caller {
    /// Whether they may do this at a tenant. The server's admin may do everything, its readers look at everything.
    ///
    /// # Errors
    ///
    /// If not: the same whether there is such a tenant or not.
    pub fn may(&self, tenant: &str, least: Role) -> Result<(), Fault> {
        if self.tenant.as_deref().is_some_and(|own| own != tenant) {
            let own = self.tenant.as_deref().unwrap_or_default();
            return Err(Fault::new(
                FaultKind::Forbidden,
                format!("this token is good for tenant {own:?} and no other"),
            )
            .help("use a token of the tenant that is meant"));
        }
        if self.role < least {
            return Err(Fault::new(
                FaultKind::Forbidden,
                format!("this needs the role {least}, and the token has {}", self.role),
            )
            .help("use another token, or ask an admin of the tenant for one: `weir tenant token TENANT --role ROLE`"));
        }
        Ok(())
    }

    /// Whether they may do what concerns all tenants.
    ///
    /// # Errors
    ///
    /// If not.
    pub fn may_server(&self, least: Role) -> Result<(), Fault> {
        if self.tenant.is_some() || self.role < least {
            return Err(Fault::new(
                FaultKind::Forbidden,
                format!("this needs a token of the server with the role {least}"),
            )
            .help("ask whoever runs this server"));
        }
        Ok(())
    }
}
