//! The plugins of a tenant: content-addressed components, and names with versions that never change.
//!
//! A component is checked before it is taken: its size, the contract, its imports, its signature where one is asked for, that it compiles
//! within the limits of the child process that compiles, and what it says of itself. Only then is it written, first the bytes, then the
//! name. What was refused leaves nothing behind.

use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use super::fault::{Fault, FaultKind, check_name, shown, written};
use super::load;
use super::tenant::{Pins, Tenant};
use super::{Caller, Inner, Server};
use crate::checkpoint::PLUGIN_BYTES_MAX;
use crate::model::Timestamp;
use crate::offload::offload_for;
use crate::plugin::component;
use crate::tenant::{PluginRecord, QuotaRefusal, RECORD_FORMAT, TenantRecord, check_signature, read_record};

/// How long a version may be.
const VERSION_BYTES_MAX: usize = 64;

/// A plugin, as it is shown.
#[derive(Clone, Debug, Serialize, serde::Deserialize, ToSchema)]
pub struct PluginView {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The blake3 of its bytes, in hexadecimal.
    pub digest: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The world of the contract that it implements.
    pub world: String,
    /// What it says its own name and version are.
    pub describes_itself: String,
    /// The interfaces that it imports.
    pub imports: Vec<String>,
    /// When it was pushed, in microseconds since the Unix epoch.
    pub pushed_at: Timestamp,
    /// By which token.
    pub pushed_by: String,
    /// Whether one of the tenant's keys signed it when it was pushed.
    pub signed: bool,
    /// The jobs that use it.
    pub used_by: Vec<String>,
}

/// What came of a push.
#[derive(Clone, Debug, Serialize, serde::Deserialize, ToSchema)]
pub struct Pushed {
    /// The plugin.
    pub plugin: PluginView,
    /// False: exactly this was there already.
    pub created: bool,
}

/// A component that was brought without a name.
#[derive(Clone, Debug, Serialize, serde::Deserialize, ToSchema)]
pub struct ComponentView {
    /// The blake3 of its bytes, in hexadecimal.
    pub digest: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// What it says its own name and version are.
    pub describes_itself: String,
}

/// Reads a digest.
pub(super) fn hex_digest(digest: &str) -> Result<blake3::Hash, Fault> {
    blake3::Hash::from_hex(digest).map_err(|_| {
        Fault::new(FaultKind::Invalid, format!("{:?} is not the digest of a plugin", shown(digest)))
            .help("a digest is a blake3 in 64 hexadecimal digits: `weir plugin inspect FILE` shows it")
    })
}

/// Reads the version of a plugin.
fn version(text: &str) -> Result<semver::Version, Fault> {
    let fault = |why: String| {
        Fault::new(FaultKind::Invalid, format!("{:?} is not a version: {why}", shown(text)))
            .help("write it as 1.2.3 or 1.2.3-rc.1")
    };
    if text.len() > VERSION_BYTES_MAX {
        return Err(fault(format!("it is longer than {VERSION_BYTES_MAX} bytes")));
    }
    let version = semver::Version::parse(text).map_err(|e| fault(e.to_string()))?;
    // Two versions that differ in this alone count as equal, and the sign means other things in addresses.
    if !version.build.is_empty() {
        return Err(fault("it has build metadata".into()));
    }
    Ok(version)
}

impl Tenant {
    /// Reads which plugins there are.
    pub(super) async fn read_plugins(&self) -> Result<(), Fault> {
        let mut plugins = super::tenant::Plugins::default();
        for (name, text) in self.records.list_names().await? {
            let Ok(version) = version(&name.1) else { continue };
            match read_record::<PluginRecord>(&text) {
                Ok(record) => {
                    plugins.named.insert((name.0, version), record);
                }
                Err(fault) => tracing::error!(tenant = self.name, plugin = name.0, fault, "a plugin is left out"),
            }
        }
        plugins.components = self.records.list_plugins().await?.into_iter().collect();
        *self.plugins() = plugins;
        Ok(())
    }

    /// Whether its part of the store has a component.
    pub(super) fn has_component(&self, digest: &str) -> bool {
        self.plugins().components.contains_key(digest)
    }

    /// A plugin by its name; without a version the newest that is no pre-release.
    pub(super) fn find_plugin(&self, name: &str, wanted: Option<&str>) -> Result<PluginRecord, Fault> {
        let list = format!("weir plugin list --tenant {}", self.name);
        let plugins = self.plugins();
        let mut of_name = plugins.named.iter().filter(|((n, _), _)| n == name);
        let found = match wanted {
            Some(wanted) => {
                let wanted = version(wanted)?;
                of_name.find(|((_, version), _)| *version == wanted)
            }
            None => of_name.rfind(|((_, version), _)| version.pre.is_empty()),
        };
        found.map(|(_, record)| record.clone()).ok_or_else(|| {
            let shown = wanted.map_or_else(|| name.to_owned(), |wanted| format!("{name}@{wanted}"));
            Fault::not_found("plugin", &shown, &list)
        })
    }

    fn view_plugin(&self, name: &str, version: &str, record: &PluginRecord) -> PluginView {
        let jobs = self.jobs();
        let used_by = jobs.iter().filter(|job| job.record().uses(&record.digest)).map(|job| job.name.clone());
        let record = record.clone();
        PluginView {
            name: name.to_owned(),
            version: version.to_owned(),
            digest: record.digest,
            bytes: record.bytes,
            world: record.world,
            describes_itself: record.describes_itself,
            imports: record.imports,
            pushed_at: record.pushed_at,
            pushed_by: record.pushed_by,
            signed: record.signature.is_some(),
            used_by: used_by.collect(),
        }
    }

    /// All its plugins, by name and version.
    pub fn list_plugins(&self) -> Vec<PluginView> {
        let named = self.plugins().named.clone();
        named.iter().map(|((name, version), record)| self.view_plugin(name, &version.to_string(), record)).collect()
    }

    /// One of them.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn plugin(&self, name: &str, version: &str) -> Result<PluginView, Fault> {
        Ok(self.view_plugin(name, version, &self.find_plugin(name, Some(version))?))
    }

    /// The bytes of one of them.
    ///
    /// # Errors
    ///
    /// If there is none, or the store does not answer.
    pub async fn plugin_bytes(&self, name: &str, version: &str) -> Result<Bytes, Fault> {
        let record = self.find_plugin(name, Some(version))?;
        Ok(self.store.get_plugin(*hex_digest(&record.digest)?.as_bytes()).await?)
    }

    /// The largest plugin that it may bring.
    pub fn plugin_bytes_max(&self) -> u64 {
        self.record().quotas.plugin_bytes.min(PLUGIN_BYTES_MAX)
    }

    /// Whether there is room for a component, which is kept.
    fn room(&self, record: &TenantRecord, digest: &str, bytes: u64) -> Result<Pins<'_>, Fault> {
        QuotaRefusal::check(&self.name, "plugin_bytes", bytes, record.quotas.plugin_bytes)?;
        self.make_room((digest, bytes), |plugins| {
            if !plugins.components.contains_key(digest) && !plugins.is_pinned(digest) {
                let (count, all) = plugins.room_taken();
                QuotaRefusal::check(&self.name, "plugins_bytes", all + bytes, record.quotas.plugins_bytes)?;
                QuotaRefusal::check(&self.name, "plugins", count + 1, record.quotas.plugins.into())?;
            }
            Ok(())
        })
    }

    /// Writes a component that there is room for. Others do not wait for it.
    async fn keep_component(&self, _room: &Pins<'_>, record: &PluginRecord, bytes: Bytes) -> Result<(), Fault> {
        if !self.has_component(&record.digest) {
            self.store.put_plugin(bytes).await?;
            if let Err(gone) = self.check_alive() {
                // Whoever deletes the tenant may have looked before it was there.
                self.records.delete_plugin(*hex_digest(&record.digest)?.as_bytes()).await?;
                return Err(gone);
            }
            self.plugins().components.insert(record.digest.clone(), record.bytes);
        }
        Ok(())
    }
}

impl Inner {
    /// Whether a tenant may have a component: everything but its name.
    async fn examine<'a>(
        &self,
        tenant: &'a Tenant,
        bytes: &Bytes,
        signature: Option<&str>,
    ) -> Result<(PluginRecord, Pins<'a>), Fault> {
        let record = tenant.record();
        let digest = blake3::hash(bytes);
        let room = tenant.room(&record, digest.to_hex().as_str(), bytes.len() as u64)?;
        if record.require_signature && signature.is_none() {
            let message = format!("tenant {:?} takes only plugins that one of its keys signed", tenant.name);
            return Err(Fault::new(FaultKind::Forbidden, message)
                .help("`weir plugin push FILE --sign KEY.pem` with the private half of one of them"));
        }
        if let Some(signature) = signature {
            check_signature(&record.keys, digest.as_bytes(), signature)?;
        }
        let copy = bytes.clone();
        let inspected = offload_for(Some(tenant.account.clone()), move || component::validate(&copy));
        let inspection = inspected
            .await
            .map_err(|panic| Fault::new(FaultKind::Refused, format!("the plugin cannot be looked into: {panic}")))?
            .map_err(crate::plugin::PluginError::from)?;
        // Compiles it, links it and asks it what it is.
        let plugin = tenant.load(&self.host, bytes).await?;
        let said = plugin.descriptor();
        let record = PluginRecord {
            format: RECORD_FORMAT,
            digest: inspection.digest,
            bytes: inspection.size,
            world: inspection.world.map_or_else(String::new, |world| world.to_string()),
            describes_itself: format!("{}@{}", said.name, said.version),
            imports: inspection.imports,
            pushed_at: self.clock.now(),
            pushed_by: String::new(),
            signature: signature.map(str::to_owned),
        };
        Ok((record, room))
    }
}

impl Server {
    /// Takes a plugin under a name and a version, which are its for good.
    ///
    /// # Errors
    ///
    /// If the name is taken by other bytes, a quota would be crossed, or the plugin is not one that the tenant may have.
    pub async fn push_plugin(
        &self,
        tenant: &Tenant,
        caller: &Caller,
        (name, version_text): (&str, &str),
        bytes: Bytes,
        signature: Option<&str>,
    ) -> Result<Pushed, Fault> {
        check_name("plugin", name)?;
        let version = version(version_text)?;
        let key = (name.to_owned(), version.clone());
        let version = version.to_string();
        let is = blake3::hash(&bytes).to_hex().to_string();
        let taken = |record: &PluginRecord| {
            if record.digest == is {
                return Ok(Pushed { plugin: tenant.view_plugin(name, &version, record), created: false });
            }
            let message = format!("{name}@{version} is another plugin already: its digest is {}", record.digest);
            Err(Fault::new(FaultKind::Conflict, message).help("a version never changes: push it under another one"))
        };
        let there = tenant.plugins().named.get(&key).cloned();
        if let Some(there) = there {
            return taken(&there);
        }
        let (examined, room) = self.inner.examine(tenant, &bytes, signature).await?;
        let record = PluginRecord { pushed_by: caller.id.clone(), ..examined };
        tenant.check_alive()?;
        tenant.keep_component(&room, &record, bytes).await?;
        let _changing = tenant.changing.lock().await;
        tenant.check_alive()?;
        let text = written(&record)?;
        match tenant.records.put_name(name, &version, &text).await? {
            None => {}
            Some(theirs) => {
                let theirs: PluginRecord =
                    read_record(&theirs).map_err(|fault| Fault::new(FaultKind::Internal, fault))?;
                tenant.plugins().named.insert(key, theirs.clone());
                return taken(&theirs);
            }
        }
        tenant.plugins().named.insert(key, record.clone());
        tracing::info!(
            tenant = tenant.name,
            plugin = name,
            version,
            digest = record.digest,
            by = caller.id,
            "plugin pushed"
        );
        Ok(Pushed { plugin: tenant.view_plugin(name, &version, &record), created: true })
    }

    /// A component that the tenant has.
    ///
    /// # Errors
    ///
    /// If it does not have it.
    pub async fn component(&self, tenant: &Tenant, digest: &str) -> Result<ComponentView, Fault> {
        let digest = digest.to_ascii_lowercase();
        let plugin = load::plugin(&self.inner, tenant, &digest).await?;
        let bytes = tenant.plugins().components.get(&digest).copied().unwrap_or_default();
        let said = plugin.descriptor();
        Ok(ComponentView { digest, bytes, describes_itself: format!("{}@{}", said.name, said.version) })
    }

    /// Takes a component without a name, for a deployment that names it by its digest.
    ///
    /// # Errors
    ///
    /// As [`push_plugin`](Self::push_plugin), and if its digest is not the one that was said.
    pub async fn put_component(
        &self,
        tenant: &Tenant,
        digest: &str,
        bytes: Bytes,
        signature: Option<&str>,
    ) -> Result<ComponentView, Fault> {
        let is = blake3::hash(&bytes);
        if hex_digest(digest)? != is {
            let message = format!("the bytes have the digest {}, and {digest} was said", is.to_hex());
            return Err(Fault::new(FaultKind::Invalid, message).help("send the whole file, unchanged"));
        }
        let (record, room) = self.inner.examine(tenant, &bytes, signature).await?;
        tenant.check_alive()?;
        if !tenant.has_component(&record.digest) {
            tenant.keep_component(&room, &record, bytes).await?;
            tenant.plugins().fresh.insert(record.digest.clone());
        }
        Ok(ComponentView { digest: record.digest, bytes: record.bytes, describes_itself: record.describes_itself })
    }

    /// Deletes a name and version, and its bytes if nothing else has them.
    ///
    /// # Errors
    ///
    /// If a job uses it.
    pub async fn delete_plugin(
        &self,
        tenant: &Tenant,
        caller: &Caller,
        name: &str,
        version_text: &str,
    ) -> Result<(), Fault> {
        let record = tenant.find_plugin(name, Some(version_text))?;
        let version = version(version_text)?;
        let _changing = tenant.changing.lock().await;
        let key = (name.to_owned(), version.clone());
        let others = tenant.plugins().named.iter().any(|(k, r)| *k != key && r.digest == record.digest);
        let used_by = tenant.view_plugin(name, version_text, &record).used_by;
        if !others && !used_by.is_empty() {
            let message = format!("{name}@{version} is in use by {}", used_by.join(", "));
            return Err(Fault::new(FaultKind::Conflict, message).help("upgrade or delete these jobs first"));
        }
        if !others && tenant.plugins().is_pinned(&record.digest) {
            let message = format!("{name}@{version} is just being deployed or pushed");
            return Err(Fault::new(FaultKind::Conflict, message).help("look again when that is done"));
        }
        tenant.records.delete_name(name, &version.to_string()).await?;
        tenant.plugins().named.remove(&key);
        tracing::info!(tenant = tenant.name, plugin = name, %version, by = caller.id, "plugin deleted");
        drop(_changing);
        self.collect_components(tenant).await
    }

    /// Deletes components that have no name and that no job uses, or is about to.
    pub(super) async fn collect_components(&self, tenant: &Tenant) -> Result<(), Fault> {
        let _changing = tenant.changing.lock().await;
        let jobs = tenant.jobs();
        let unused: Vec<(String, u64)> = {
            let mut plugins = tenant.plugins();
            let is_used = |digest: &String| {
                plugins.fresh.contains(digest)
                    || plugins.is_pinned(digest)
                    || plugins.named.values().any(|record| record.digest == *digest)
                    || jobs.iter().any(|job| job.record().uses(digest))
            };
            let unused = plugins.components.iter().filter(|(digest, _)| !is_used(digest));
            let unused: Vec<_> = unused.map(|(digest, bytes)| (digest.clone(), *bytes)).collect();
            // From now on nobody may have them.
            for (digest, _) in &unused {
                plugins.components.remove(digest);
                plugins.going.insert(digest.clone());
            }
            unused
        };
        let mut failed = None;
        for (digest, bytes) in unused {
            let deleted = match hex_digest(&digest) {
                Ok(hash) => tenant.records.delete_plugin(*hash.as_bytes()).await.map_err(Fault::from),
                Err(fault) => Err(fault),
            };
            let mut plugins = tenant.plugins();
            plugins.going.remove(&digest);
            if let Err(fault) = deleted {
                // It is there, as far as is known: the next one tries again.
                plugins.components.insert(digest, bytes);
                failed = Some(fault);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// A plugin by what a command calls it: `NAME`, `NAME@VERSION` or `blake3:DIGEST`.
    pub(super) async fn plugin_of(
        &self,
        tenant: &Tenant,
        named: &str,
    ) -> Result<(String, crate::plugin::Plugin), Fault> {
        let digest = match named.strip_prefix("blake3:") {
            Some(digest) => digest.to_ascii_lowercase(),
            None => {
                let (name, version) =
                    named.split_once('@').map_or((named, None), |(name, version)| (name, Some(version)));
                check_name("plugin", name)?;
                tenant.find_plugin(name, version)?.digest
            }
        };
        let plugin = load::plugin(&self.inner, tenant, &digest).await?;
        Ok((digest, plugin))
    }
}
