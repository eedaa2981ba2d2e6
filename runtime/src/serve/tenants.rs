//! Tenants, their quotas, grants, keys and tokens.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::desired::Want;
use super::fault::{Fault, FaultKind, check_name, shown};
use super::job::Phase;
use super::tenant::Tenant;
use super::{Caller, Inner, Server};
use crate::account::AccountUsage;
use crate::model::Timestamp;
use crate::plan::Diagnostics;
use crate::tenant::{QuotaRefusal, Quotas, Role, TenantGrants, TenantRecord, Token, TokenRecord, check_key};

/// How long a note may be, in bytes.
const NOTE_BYTES_MAX: usize = 200;
/// How many keys a tenant may have.
const KEYS_MAX: usize = 100;
/// How many tokens the server may have.
const SERVER_TOKENS_MAX: usize = 100;
/// How many tenants there may be.
const TENANTS_MAX: usize = 10_000;

/// A tenant, as it is shown.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TenantView {
    /// Its name.
    pub name: String,
    /// When it was made, in microseconds since the Unix epoch.
    pub created_at: Timestamp,
    /// How much it may have.
    pub quotas: Quotas,
    /// What it may see.
    pub grants: TenantGrants,
    /// By which keys its plugins may be signed.
    pub keys: KeysView,
    /// Its jobs.
    pub jobs: u64,
    /// Those of them that are to run.
    pub jobs_wanted: u64,
    /// Subtasks of these.
    pub subtasks: u64,
    /// Its plugins, in bytes.
    pub plugins_bytes: u64,
    /// What it uses of what all tenants share.
    pub usage: UsageView,
    /// It is being deleted.
    pub deleting: bool,
}

/// What a tenant uses, and has used since the server started.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    /// Time on a processor, in microseconds: plugins, the host's work for them, and compilation.
    pub cpu_us: u64,
    /// How long its work has waited for a processor, over all that waited, in microseconds.
    pub waited_us: u64,
    /// Linear memory of all its instances, in bytes.
    pub memory_bytes: u64,
    /// Instances that live.
    pub instances: u32,
    /// Bytes that its operators have emitted.
    pub output_bytes: u64,
    /// Requests to the object store.
    pub store_requests: u64,
    /// Bytes written to and read from it.
    pub store_bytes: u64,
    /// Log lines that were dropped because they were too many.
    pub log_lines_dropped: u64,
}

impl From<AccountUsage> for UsageView {
    fn from(usage: AccountUsage) -> Self {
        let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            cpu_us: micros(usage.cpu),
            waited_us: micros(usage.waited),
            memory_bytes: usage.memory_bytes,
            instances: usage.instances,
            output_bytes: usage.output_bytes,
            store_requests: usage.store_requests,
            store_bytes: usage.store_bytes,
            log_lines_dropped: usage.log_lines_dropped,
        }
    }
}

/// By which keys plugins may be signed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeysView {
    /// ed25519 public keys, 32 bytes each in base64.
    #[serde(default)]
    pub keys: Vec<String>,
    /// A plugin without a signature by one of them is refused.
    #[serde(default)]
    pub required: bool,
}

/// A token that is asked for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// What it is to be good for.
    pub role: Role,
    /// What it is for, in words.
    #[serde(default)]
    pub note: String,
    /// After how many seconds it is good for nothing; by default never.
    #[serde(default)]
    pub expires_in_seconds: Option<u32>,
}

/// A token that was made.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    /// Which one of the tenant's.
    pub id: String,
    /// The token: shown once, and kept nowhere.
    pub token: String,
    /// What it is good for.
    pub role: Role,
}

/// A token, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Which one.
    pub id: String,
    /// What it is good for.
    pub role: Role,
    /// When it was made, in microseconds since the Unix epoch.
    pub created_at: Timestamp,
    /// From when on it is good for nothing.
    pub expires_at: Option<Timestamp>,
    /// What it is for.
    pub note: String,
}

impl std::fmt::Debug for TokenMade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenMade").field("id", &self.id).field("role", &self.role).finish_non_exhaustive()
    }
}

impl From<&TokenRecord> for TokenView {
    fn from(record: &TokenRecord) -> Self {
        let TokenRecord { id, role, created_at, expires_at, note, .. } = record.clone();
        Self { id, role, created_at, expires_at, note }
    }
}

fn invalid(fault: impl Into<String>, help: &str) -> Fault {
    Fault::new(FaultKind::Invalid, fault).help(help)
}

impl NewToken {
    fn make(&self, tenant: Option<&str>, now: Timestamp) -> Result<(TokenMade, TokenRecord), Fault> {
        if self.note.len() > NOTE_BYTES_MAX || self.note.chars().any(char::is_control) {
            return Err(invalid(
                format!(
                    "the note has {} bytes or control characters, and {NOTE_BYTES_MAX} plain bytes are the most",
                    self.note.len()
                ),
                "write a shorter one",
            ));
        }
        if self.expires_in_seconds == Some(0) {
            return Err(invalid(
                "a token that expires after 0 seconds is good for nothing",
                "give more, or leave it out",
            ));
        }
        let expires = self.expires_in_seconds.map(|seconds| now.saturating_add(i64::from(seconds) * 1_000_000));
        let (token, record) = Token::make(tenant, self.role, now, expires, &self.note)
            .map_err(|error| Fault::new(FaultKind::Internal, format!("no random bytes: {error}")))?;
        Ok((TokenMade { id: record.id.clone(), token: token.expose(), role: self.role }, record))
    }
}

/// What stands for a value that is not for whoever asks.
const HIDDEN: &str = "***";

impl Tenant {
    /// As it is shown to somebody: values of variables, which may be secrets, only to who can grant them.
    pub fn view(&self, caller: &Caller) -> TenantView {
        let mut view = self.whole_view();
        if caller.may_server(Role::Admin).is_err() {
            view.grants.environment.values_mut().for_each(|value| HIDDEN.clone_into(value));
        }
        view
    }

    fn whole_view(&self) -> TenantView {
        let record = self.record();
        let jobs = self.jobs();
        let wanted: Vec<_> = jobs.iter().filter(|job| job.is_counted()).collect();
        TenantView {
            name: self.name.clone(),
            created_at: record.created_at,
            quotas: record.quotas.clone(),
            grants: record.grants.clone(),
            keys: KeysView { keys: record.keys.clone(), required: record.require_signature },
            jobs: jobs.len() as u64,
            jobs_wanted: wanted.len() as u64,
            subtasks: wanted.iter().map(|job| job.state().subtasks).sum(),
            plugins_bytes: self.plugins().components.values().sum(),
            usage: self.account.usage().into(),
            deleting: record.deleting,
        }
    }

    /// Its tokens, without their secrets.
    pub fn tokens(&self) -> Vec<TokenView> {
        self.record().tokens.iter().map(TokenView::from).collect()
    }
}

impl Inner {
    pub(super) async fn add_tenant(&self, name: &str, record: TenantRecord) -> Result<Arc<Tenant>, Fault> {
        let store = self.store.of_tenant(name)?;
        // What was left by a tenant of that name that is gone does not count; what is there of one that is not, does.
        if let Some((_, there)) = Tenant::read(&store).await? {
            let what = if there.deleting { "is being deleted" } else { "is there already" };
            return Err(Fault::new(FaultKind::Conflict, format!("tenant {name:?} {what}")).help("choose another name"));
        }
        let tenant =
            Arc::new(Tenant::new(name, &self.host, store, 0, TenantRecord { deleting: true, ..record.clone() }));
        tenant
            .change(|new| {
                *new = record;
                Ok(())
            })
            .await?;
        self.tenants_mut().insert(name.to_owned(), Arc::clone(&tenant));
        Ok(tenant)
    }
}

impl Server {
    /// Makes a tenant with default quotas, no grants, and one token with the role admin.
    ///
    /// # Errors
    ///
    /// If there is one of that name.
    pub async fn create_tenant(&self, caller: &Caller, name: &str, quotas: Option<Quotas>) -> Result<TokenMade, Fault> {
        self.check_open()?;
        caller.may_server(Role::Admin)?;
        check_name("tenant", name)?;
        let quotas = quotas.unwrap_or_default();
        quotas.check().map_err(|fault| invalid(fault, "choose a value in that range"))?;
        let _changing = self.inner.changing.lock().await;
        if self.inner.tenants().len() >= TENANTS_MAX {
            return Err(Fault::new(FaultKind::Quota, format!("a server has at most {TENANTS_MAX} tenants"))
                .help("delete some, or run another server on another store"));
        }
        let now = self.inner.clock.now();
        let first = NewToken { role: Role::Admin, note: "the first".into(), expires_in_seconds: None };
        let (made, token) = first.make(Some(name), now)?;
        let record = TenantRecord { quotas, tokens: vec![token], ..TenantRecord::new(now) };
        self.inner.add_tenant(name, record).await?;
        tracing::info!(tenant = name, by = caller.id, "tenant created");
        Ok(made)
    }

    /// Deletes a tenant with all that it has: its jobs are stopped where they are.
    ///
    /// # Errors
    ///
    /// If there is none, or the store does not answer: then it is deleted when the server starts again, at the latest.
    pub async fn delete_tenant(&self, caller: &Caller, name: &str) -> Result<(), Fault> {
        caller.may_server(Role::Admin)?;
        let tenant = self.tenant(caller, name, Role::Admin)?;
        {
            let _changing = tenant.changing.lock().await;
            tenant
                .change(|record| {
                    (record.deleting, record.tokens) = (true, Vec::new());
                    Ok(())
                })
                .await?;
        }
        tracing::info!(tenant = name, by = caller.id, "tenant is being deleted");
        self.purge_tenant(&tenant).await
    }

    /// Stops and deletes everything of a tenant that is marked to be deleted.
    pub(super) async fn purge_tenant(&self, tenant: &Arc<Tenant>) -> Result<(), Fault> {
        for job in tenant.jobs() {
            let _changing = job.changing.lock().await;
            job.tell_to_stop();
            job.ended().await;
        }
        let _changing = tenant.changing.lock().await;
        // Its record goes last: until then a server that is restarted goes on with this.
        tenant.records.purge_tenant().await?;
        {
            // Between the two nobody makes another of its name.
            let _all = self.inner.changing.lock().await;
            tenant.forget().await?;
            self.inner.tenants_mut().remove(&tenant.name);
        }
        for job in tenant.jobs() {
            super::Journal::of_process().forget(&tenant.name, &job.name);
            self.inner.host.forget_metrics_of(&tenant.name, &job.name);
        }
        tracing::info!(tenant = tenant.name, "tenant deleted");
        Ok(())
    }

    /// Gives a tenant other quotas. What it has already stays, also if it is more.
    ///
    /// # Errors
    ///
    /// If a value is out of its range.
    pub async fn set_quotas(&self, caller: &Caller, name: &str, quotas: Quotas) -> Result<TenantView, Fault> {
        caller.may_server(Role::Admin)?;
        quotas.check().map_err(|fault| invalid(fault, "choose a value in that range"))?;
        let tenant = self.tenant(caller, name, Role::Admin)?;
        let _changing = tenant.changing.lock().await;
        tenant
            .change(|record| {
                record.quotas = quotas;
                Ok(())
            })
            .await?;
        tenant.apply_quotas();
        tracing::info!(tenant = name, by = caller.id, "quotas changed");
        Ok(tenant.view(caller))
    }

    /// Gives a tenant other grants. Jobs that use what is taken away are stopped with a last checkpoint.
    ///
    /// # Errors
    ///
    /// If a grant cannot be given.
    pub async fn set_grants(&self, caller: &Caller, name: &str, grants: TenantGrants) -> Result<TenantView, Fault> {
        caller.may_server(Role::Admin)?;
        let tenant = self.tenant(caller, name, Role::Admin)?;
        // In this order: what one tenant has to wait for keeps nobody else waiting.
        let _changing = tenant.changing.lock().await;
        let _all = self.inner.changing.lock().await;
        let mut taken = self.inner.taken.clone();
        for other in self.tenants().iter().filter(|other| other.name != name) {
            let TenantGrants { directory, objects, .. } = other.record().grants.clone();
            taken.directories.extend(directory);
            taken.objects.extend(objects);
        }
        let help = "mend the entry; grants are set as a whole";
        grants.check(&taken).map_err(|fault| invalid(fault, help))?;
        let record = tenant
            .change(|record| {
                record.grants = grants;
                Ok(())
            })
            .await?;
        tracing::info!(tenant = name, by = caller.id, "grants changed");
        drop(_changing);
        drop(_all);
        self.stop_refused(caller, &tenant, &record).await;
        Ok(tenant.view(caller))
    }

    /// Stops the jobs of a tenant that it may not run any more.
    async fn stop_refused(&self, caller: &Caller, tenant: &Arc<Tenant>, record: &TenantRecord) {
        for job in tenant.jobs() {
            // After whatever is being done to it: what has begun with the old grants is seen.
            drop(job.changing.lock().await);
            let text = job.record().pipeline.clone();
            let Ok(spec) = crate::plan::parse(&text, std::path::Path::new("pipeline.toml")) else { continue };
            let found = crate::tenant::admit(&tenant.name, record, &spec);
            let Err(refused) = Diagnostics::collect(&spec.text, found) else { continue };
            // Also one that is about to start.
            if job.record().want == Want::Run && job.phase() != Phase::Finished {
                tracing::warn!(tenant = tenant.name, job = job.name, "it is stopped: {}", refused.summary());
                if let Err(fault) = self.stop(tenant, caller, &job.name, super::StopRequest::default()).await {
                    tracing::error!(tenant = tenant.name, job = job.name, "it cannot be stopped: {}", fault.message);
                }
            }
        }
    }

    /// Says by which keys plugins of a tenant may be signed, and whether they must.
    ///
    /// # Errors
    ///
    /// If one is no key, or a signature would be asked for that nobody can make.
    pub async fn set_keys(&self, caller: &Caller, name: &str, keys: KeysView) -> Result<KeysView, Fault> {
        let tenant = self.tenant(caller, name, Role::Admin)?;
        if keys.keys.len() > KEYS_MAX {
            return Err(invalid(format!("{} keys, and {KEYS_MAX} are the most", keys.keys.len()), "leave some out"));
        }
        if keys.required && keys.keys.is_empty() {
            return Err(invalid("a signature is required and there is no key", "name at least one key"));
        }
        for key in &keys.keys {
            check_key(key)
                .map_err(|fault| invalid(fault.to_string(), "see `weir plugin push --help` for how keys are made"))?;
        }
        let _changing = tenant.changing.lock().await;
        tenant
            .change(|record| {
                (record.keys, record.require_signature) = (keys.keys.clone(), keys.required);
                Ok(())
            })
            .await?;
        tracing::info!(tenant = name, by = caller.id, "keys changed");
        Ok(keys)
    }

    /// Makes a token of a tenant.
    ///
    /// # Errors
    ///
    /// If it has as many as it may.
    pub async fn make_token(&self, caller: &Caller, name: &str, asked: NewToken) -> Result<TokenMade, Fault> {
        let tenant = self.tenant(caller, name, Role::Admin)?;
        let (made, token) = asked.make(Some(name), self.inner.clock.now())?;
        let _changing = tenant.changing.lock().await;
        let now = self.inner.clock.now();
        tenant
            .change(|record| {
                // Those that have expired are good for nothing.
                record.tokens.retain(|token| token.expires_at.is_none_or(|at| now < at));
                let count = record.tokens.len() as u64 + 1;
                QuotaRefusal::check(name, "tokens", count, record.quotas.tokens.into())?;
                record.tokens.push(token);
                Ok(())
            })
            .await?;
        tracing::info!(tenant = name, token = made.id, role = %made.role, by = caller.id, "token made");
        Ok(made)
    }

    /// Takes a token back: from now on it is good for nothing.
    ///
    /// # Errors
    ///
    /// If there is none such.
    pub async fn revoke_token(&self, caller: &Caller, name: &str, id: &str) -> Result<(), Fault> {
        let tenant = self.tenant(caller, name, Role::Admin)?;
        let _changing = tenant.changing.lock().await;
        tenant
            .change(|record| {
                let before = record.tokens.len();
                record.tokens.retain(|token| token.id != id);
                if record.tokens.len() == before {
                    return Err(no_token(id));
                }
                Ok(())
            })
            .await?;
        tracing::info!(tenant = name, token = id, by = caller.id, "token revoked");
        Ok(())
    }

    /// Makes a token with the role of another, which is revoked in the same moment.
    ///
    /// # Errors
    ///
    /// If there is none such.
    pub async fn rotate_token(&self, caller: &Caller, name: &str, id: &str) -> Result<TokenMade, Fault> {
        let tenant = self.tenant(caller, name, Role::Admin)?;
        let _changing = tenant.changing.lock().await;
        let record = tenant.record();
        let old = record.tokens.iter().find(|token| token.id == id).ok_or_else(|| no_token(id))?;
        let asked = NewToken { role: old.role, note: old.note.clone(), expires_in_seconds: None };
        let (made, new) = asked.make(Some(name), self.inner.clock.now())?;
        let new = TokenRecord { expires_at: old.expires_at, ..new };
        tenant
            .change(|record| {
                record.tokens.retain(|token| token.id != id);
                record.tokens.push(new);
                Ok(())
            })
            .await?;
        tracing::info!(tenant = name, token = id, new = made.id, by = caller.id, "token rotated");
        Ok(made)
    }

    /// The server's own tokens, without their secrets.
    ///
    /// # Errors
    ///
    /// For whoever may not know.
    pub fn server_tokens(&self, caller: &Caller) -> Result<Vec<TokenView>, Fault> {
        caller.may_server(Role::Admin)?;
        Ok(self.inner.server_record().tokens.iter().map(TokenView::from).collect())
    }

    /// Makes a token for all tenants.
    ///
    /// # Errors
    ///
    /// If there are as many as there may be.
    pub async fn make_server_token(&self, caller: &Caller, asked: NewToken) -> Result<TokenMade, Fault> {
        caller.may_server(Role::Admin)?;
        let now = self.inner.clock.now();
        let (made, token) = asked.make(None, now)?;
        let _changing = self.inner.changing.lock().await;
        if self.inner.server_record().tokens.len() >= SERVER_TOKENS_MAX {
            return Err(Fault::new(
                FaultKind::Quota,
                format!("the server has {SERVER_TOKENS_MAX} tokens, and that is the most"),
            )
            .help("revoke one that is not used any more"));
        }
        self.inner
            .change_server(|server| {
                server.tokens.retain(|token| token.expires_at.is_none_or(|at| now < at));
                server.tokens.push(token);
            })
            .await?;
        tracing::info!(token = made.id, role = %made.role, by = caller.id, "token of the server made");
        Ok(made)
    }

    /// Takes a token of the server back. The last one of an admin stays: nobody could make another.
    ///
    /// # Errors
    ///
    /// If there is none such, or it is the last.
    pub async fn revoke_server_token(&self, caller: &Caller, id: &str) -> Result<(), Fault> {
        caller.may_server(Role::Admin)?;
        let _changing = self.inner.changing.lock().await;
        let record = self.inner.server_record();
        if !record.tokens.iter().any(|token| token.id == id) {
            return Err(no_token(id));
        }
        if !record.tokens.iter().any(|token| token.id != id && token.role == Role::Admin && token.expires_at.is_none())
        {
            return Err(Fault::new(FaultKind::Conflict, "it is the last token of an admin that does not expire")
                .help("make another first"));
        }
        self.inner.change_server(|server| server.tokens.retain(|token| token.id != id)).await?;
        tracing::info!(token = id, by = caller.id, "token of the server revoked");
        Ok(())
    }
}

fn no_token(id: &str) -> Fault {
    Fault::not_found("token", &shown(id), "weir tenant token TENANT")
}
