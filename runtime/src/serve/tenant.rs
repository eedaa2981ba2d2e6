//! A tenant while the server runs: its record, its plugins and its jobs.
//!
//! The record is what the store has; it is replaced as a whole after its new revision is durable. Changes of one tenant come one after the
//! other, and never wait for those of another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::sync::Semaphore;

use super::fault::{Fault, FaultKind, written};
use super::job::JobHandle;
use crate::account::{Account, AccountLimits};
use crate::checkpoint::{Series, Store};
use crate::plugin::{Plugin, PluginError, PluginHost};
use crate::tenant::{PluginRecord, QuotaRefusal, Quotas, TenantRecord, read_record};

/// How many jobs of a tenant are loaded at once.
const STARTS_AT_ONCE: usize = 4;
/// How many plugins a tenant may send at once: they are in memory meanwhile.
const UPLOADS_AT_ONCE: usize = 2;
/// How many logs a tenant may follow.
const FOLLOWERS_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its part of the store; it pays for its use.
    pub(super) store: Store,
    /// The same for what the server writes down of it: nobody waits for a budget to change that, or to delete what is there.
    pub(super) records: Store,
    /// What it uses of what all share.
    pub(super) account: Account,
    series: Series,
    record: RwLock<(u64, Arc<TenantRecord>)>,
    /// One change of the record, of the plugins or of the set of jobs at a time.
    pub(super) changing: tokio::sync::Mutex<()>,
    jobs: Mutex<BTreeMap<String, Arc<JobHandle>>>,
    pub(super) plugins: Mutex<Plugins>,
    /// Subtasks of jobs that are about to start, by job.
    reserved: Mutex<BTreeMap<String, u64>>,
    /// Turns at loading a job.
    pub(super) starting: Semaphore,
    /// Turns at sending a plugin.
    pub uploads: Semaphore,
    /// Turns at following a log.
    pub followers: Arc<Semaphore>,
}

/// What is known of the plugins of a tenant.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    /// By name and version.
    pub(super) named: BTreeMap<(String, semver::Version), PluginRecord>,
    /// The size of each component that the store has, by its digest.
    pub(super) components: BTreeMap<String, u64>,
    /// Components that were brought since the server started and that no job has used yet.
    pub(super) fresh: BTreeSet<String>,
    /// Components that are on their way into the store, or that somebody is about to use: how often, and their size.
    pinned: BTreeMap<String, (u32, u64)>,
    /// Components that are being deleted.
    pub(super) going: BTreeSet<String>,
}

impl Plugins {
    /// Whether somebody is about to use a component.
    pub(super) fn is_pinned(&self, digest: &str) -> bool {
        self.pinned.contains_key(digest)
    }

    /// How many components there are with those that are on their way, and their bytes.
    pub(super) fn room_taken(&self) -> (u64, u64) {
        let coming = self.pinned.iter().filter(|(digest, _)| !self.components.contains_key(*digest));
        let coming = coming.map(|(_, (_, bytes))| *bytes);
        self.components.values().copied().chain(coming).fold((0, 0), |(count, all), bytes| (count + 1, all + bytes))
    }
}

/// Components that stay while this lives, also without a job that uses them.
#[derive(Debug)]
pub(super) struct Pins<'a> {
    tenant: &'a Tenant,
    digests: Vec<String>,
}

impl Drop for Pins<'_> {
    fn drop(&mut self) {
        let mut plugins = self.tenant.plugins();
        for digest in &self.digests {
            if let Some((count, _)) = plugins.pinned.get_mut(digest) {
                *count -= 1;
                if *count == 0 {
                    plugins.pinned.remove(digest);
                }
            }
        }
    }
}

/// Subtasks that count for a job while this lives.
#[derive(Debug)]
pub(super) struct ReservedSubtasks<'a> {
    tenant: &'a Tenant,
    job: String,
}

impl Drop for ReservedSubtasks<'_> {
    fn drop(&mut self) {
        self.tenant.reserved.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.job);
    }
}

impl Tenant {
    pub(super) fn new(name: &str, host: &PluginHost, store: Store, revision: u64, record: TenantRecord) -> Self {
        let account = host.account(name, limits(&record.quotas));
        Self {
            name: name.to_owned(),
            series: Series::of_tenant(&store),
            records: store.clone(),
            store: store.under(&account),
            account,
            record: RwLock::new((revision, Arc::new(record))),
            changing: tokio::sync::Mutex::default(),
            jobs: Mutex::default(),
            plugins: Mutex::default(),
            reserved: Mutex::default(),
            starting: Semaphore::new(STARTS_AT_ONCE),
            uploads: Semaphore::new(UPLOADS_AT_ONCE),
            followers: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
        }
    }

    /// Reads the record of a tenant; none if it has none.
    pub(super) async fn read(store: &Store) -> Result<Option<(u64, TenantRecord)>, Fault> {
        let Some(revision) = Series::of_tenant(store).newest().await? else { return Ok(None) };
        let record = read_record(&revision.text).map_err(|fault| {
            let message = format!("the record of a tenant, revision {}, cannot be read: {fault}", revision.number);
            Fault::new(FaultKind::Internal, message)
        })?;
        Ok(Some((revision.number, record)))
    }

    /// What it may do now.
    pub fn record(&self) -> Arc<TenantRecord> {
        Arc::clone(&self.record.read().unwrap_or_else(PoisonError::into_inner).1)
    }

    /// Changes its record: durable when it returns, and in force from then on. Whoever calls it holds `changing`.
    pub(super) async fn change(
        &self,
        change: impl FnOnce(&mut TenantRecord) -> Result<(), Fault>,
    ) -> Result<Arc<TenantRecord>, Fault> {
        let (revision, before) = self.record.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut record = TenantRecord::clone(&before);
        change(&mut record)?;
        if record == *before {
            return Ok(before);
        }
        let text = written(&record)?;
        let revision = self.series.append(revision, text).await?;
        let revision = revision.ok_or_else(|| Fault::changed(&format!("tenant {:?}", self.name)))?;
        let record = Arc::new(record);
        *self.record.write().unwrap_or_else(PoisonError::into_inner) = (revision.number, Arc::clone(&record));
        Ok(record)
    }

    /// Whether it is still there for whoever has waited for their turn.
    pub(super) fn check_alive(&self) -> Result<(), Fault> {
        if self.record().deleting {
            return Err(Fault::not_found("tenant", &self.name, "weir tenant list"));
        }
        Ok(())
    }

    /// Deletes its record.
    pub(super) async fn forget(&self) -> Result<(), Fault> {
        Ok(self.series.delete().await?)
    }

    pub(super) fn jobs_mut(&self) -> MutexGuard<'_, BTreeMap<String, Arc<JobHandle>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its jobs, by name.
    pub fn jobs(&self) -> Vec<Arc<JobHandle>> {
        self.jobs_mut().values().cloned().collect()
    }

    /// A job.
    ///
    /// # Errors
    ///
    /// If there is none of that name.
    pub fn job(&self, name: &str) -> Result<Arc<JobHandle>, Fault> {
        let found = self.jobs_mut().get(name).cloned();
        found.ok_or_else(|| Fault::not_found("job", name, &format!("weir list --tenant {}", self.name)))
    }

    pub(super) fn plugins(&self) -> MutexGuard<'_, Plugins> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps components that it has: none of them is deleted meanwhile.
    ///
    /// # Errors
    ///
    /// If it does not have one of them any more.
    pub(super) fn pin<'a>(&self, digests: impl IntoIterator<Item = &'a String>) -> Result<Pins<'_>, Fault> {
        let mut pins = Pins { tenant: self, digests: Vec::new() };
        let mut missing = None;
        {
            let mut plugins = self.plugins();
            for digest in digests {
                let Some(&bytes) = plugins.components.get(digest) else {
                    missing = Some(digest);
                    break;
                };
                plugins.pinned.entry(digest.clone()).or_insert((0, bytes)).0 += 1;
                pins.digests.push(digest.clone());
            }
        }
        match missing {
            Some(digest) => Err(self.no_component(digest)),
            None => Ok(pins),
        }
    }

    /// Keeps room for a component that is to come; `check` says whether there is any.
    ///
    /// # Errors
    ///
    /// If there is none, or the same is just being deleted.
    pub(super) fn make_room(
        &self,
        (digest, bytes): (&str, u64),
        check: impl FnOnce(&Plugins) -> Result<(), Fault>,
    ) -> Result<Pins<'_>, Fault> {
        let mut plugins = self.plugins();
        check(&plugins)?;
        if plugins.going.contains(digest) {
            return Err(Fault::new(FaultKind::Conflict, format!("the plugin {digest} is being deleted"))
                .help("bring it again when that is done"));
        }
        plugins.pinned.entry(digest.to_owned()).or_insert((0, bytes)).0 += 1;
        Ok(Pins { tenant: self, digests: vec![digest.to_owned()] })
    }

    /// Keeps so many subtasks for a job that is about to start, if it may have them with those of all others. One change of a job is made at
    /// a time.
    ///
    /// # Errors
    ///
    /// If it may not.
    pub(super) fn reserve_subtasks(&self, job: &str, subtasks: u64) -> Result<ReservedSubtasks<'_>, Fault> {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = reserved.clone();
        for handle in self.jobs().iter().filter(|handle| handle.is_counted()) {
            let counted = all.entry(handle.name.clone()).or_default();
            *counted = (*counted).max(handle.state().subtasks);
        }
        all.insert(job.to_owned(), subtasks);
        let sum = all.values().fold(0_u64, |sum, subtasks| sum.saturating_add(*subtasks));
        QuotaRefusal::check(&self.name, "subtasks", sum, self.record().quotas.subtasks.into())?;
        reserved.insert(job.to_owned(), subtasks);
        Ok(ReservedSubtasks { tenant: self, job: job.to_owned() })
    }

    /// It does not have a component.
    pub(super) fn no_component(&self, digest: &str) -> Fault {
        let list = format!("weir plugin list --tenant {}", self.name);
        Fault::not_found("plugin of the tenant with the digest", digest, &list)
    }

    /// Makes a plugin of bytes, charged to the tenant.
    pub(super) async fn load(&self, host: &PluginHost, bytes: &[u8]) -> Result<Plugin, PluginError> {
        host.load_for(&self.account, bytes).await
    }

    /// Brings quotas into force where they are enforced while jobs run.
    pub(super) fn apply_quotas(&self) {
        self.account.set_limits(limits(&self.record().quotas));
    }
}

/// What of the quotas is enforced while jobs run.
fn limits(quotas: &Quotas) -> AccountLimits {
    AccountLimits {
        weight: quotas.cpu_weight,
        cpu_cores: quotas.cpu_cores,
        memory_bytes: Some(quotas.memory_bytes),
        instances: None,
        output_bytes_per_second: quotas.output_bytes_per_second,
        store_requests_per_second: quotas.store_requests_per_second,
        store_bytes_per_second: quotas.store_bytes_per_second,
        log_lines_per_second: Some(quotas.log_lines_per_second),
    }
}
