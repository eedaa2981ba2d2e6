//! From bytes to a plugin, and from a plugin to an instance.
//!
//! Bytes are checked against the contract, compiled (or their compiled code is taken from the cache), linked, and asked once what they
//! are. What comes out is a [`Plugin`]: cheap to copy, and good for any number of instances. Refuses whatever does
//! not fulfil the contract, before any of it runs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use wasmtime::component::{Component, Linker};

use super::bindings::{checkpoint, processor};
use super::cache::Cache;
use super::compile::{self, Compiler};
use super::engine::SharedEngine;
use super::host::{Call, HostState, link};
use super::image::Accessors;
use super::instance::{Code, Instance};
use super::limits::{clean, describe_limits};
use super::log::Log;
use super::metrics::{Metric, Registry, TaskMetrics};
use super::renewable::{Maker, Renewable};
use super::wasi::Outside;
use super::{Operator, OperatorError, PluginError, component, describe, http, instrument, wasi};
use crate::account::{Account, AccountLimits, Accounts};
use crate::clock::Clock;
use crate::model::{Descriptor, StateKind, TaskInfo};
use crate::plan::{Grants, LimitsSpec};

/// How the plugin host is set up.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Where compiled code is kept; made if it is not there, for its owner alone. None: compile at every start.
    pub cache_dir: Option<PathBuf>,
    /// How many instances may live at once. Each reserves 4 GiB of address space, not of memory. Default 1,000.
    pub instances_max: u32,
    /// The most linear memory of all instances together, in bytes. Near it, whoever is most above its share loses its
    /// heaviest instance. None: the system's own limit, at which the process ends. Default none.
    pub memory_bytes_max: Option<u64>,
    /// How many tasks of accounts may work at once. None: as many as there are cores. Default none.
    pub slots: Option<u32>,
    /// What log lines are counted against.
    pub clock: Clock,
    /// The program that compiles, in a process of its own. None: this process does, without a limit.
    pub compiler: Option<Compiler>,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            cache_dir: None,
            instances_max: 1_000,
            memory_bytes_max: None,
            slots: None,
            clock: Clock::system(),
            compiler: None,
        }
    }
}

/// Runs plugins. One a process; cheap to copy.
#[derive(Clone)]
pub struct PluginHost(Arc<Inner>);

struct Inner {
    engine: Arc<SharedEngine>,
    linker: Linker<HostState>,
    cache: Option<Cache>,
    metrics: Registry,
    accounts: Accounts,
    clock: Clock,
    compiler: Option<Compiler>,
    /// By digest, as long as somebody has them: two nodes with one plugin share its code.
    loaded: Mutex<HashMap<blake3::Hash, Weak<Loaded>>>,
}

/// A component that can be instantiated. Cheap to copy.
#[derive(Clone)]
pub struct Plugin {
    loaded: Arc<Loaded>,
    account: Account,
    grants: Grants,
    /// Values of variables, of which an instance sees those that were granted.
    environment: Arc<BTreeMap<String, String>>,
    /// Whether its instances note how long they emit.
    stopwatch: bool,
}

struct Loaded {
    digest: blake3::Hash,
    descriptor: Descriptor,
    code: Code,
    host: PluginHost,
}

impl fmt::Debug for PluginHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginHost").field("instances", &self.instances()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Descriptor { name, version, .. } = self.descriptor();
        f.debug_struct("Plugin").field("name", name).field("version", version).field("digest", &self.digest()).finish()
    }
}

impl PluginHost {
    /// Sets up the engine, its ticks, its pool of instances and its cache.
    ///
    /// # Errors
    ///
    /// [`PluginError::Host`].
    pub fn new(options: HostOptions) -> Result<Self, PluginError> {
        let failed = |error: wasmtime::Error| PluginError::Host(format!("{error:#}"));
        let engine = SharedEngine::new(options.instances_max).map_err(failed)?;
        let mut linker = Linker::new(engine.engine());
        link(&mut linker).map_err(failed)?;
        http::link(&mut linker, &Arc::default()).map_err(failed)?;
        let cache = match &options.cache_dir {
            None => None,
            Some(folder) => Some(
                Cache::open(folder, engine.engine())
                    .map_err(|error| PluginError::Host(format!("cache folder {}: {error}", folder.display())))?,
            ),
        };
        let (metrics, loaded) = (Registry::default(), Mutex::default());
        let HostOptions { clock, compiler, slots, memory_bytes_max, .. } = options;
        let cores = || std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
        let accounts = Accounts::new(slots.unwrap_or_else(cores), memory_bytes_max, Clock::system());
        Ok(Self(Arc::new(Inner { engine, linker, cache, metrics, accounts, clock, compiler, loaded })))
    }

    /// The account of this name: the one that lives, with these limits from now on, or a new one. It ends when nobody
    /// has it any more, and nothing works under it.
    pub fn account(&self, name: &str, limits: AccountLimits) -> Account {
        self.0.accounts.account(name, limits)
    }

    /// The accounts that live, by name.
    pub fn accounts(&self) -> Vec<Account> {
        self.0.accounts.all()
    }

    /// Linear memory of all instances, of accounts and of nobody, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.0.accounts.memory_bytes()
    }

    /// Makes a plugin of a component. The same bytes give the same plugin, compiled once.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it, and what to do about it: [`PluginError::remedy`].
    pub async fn load(&self, bytes: &[u8]) -> Result<Plugin, PluginError> {
        self.load_for(self.0.accounts.free(), bytes).await
    }

    /// The same for an account: it waits for its turn to compile (one at a time for each account), is charged for it
    /// and for what the plugin says about itself, and the plugin [runs under it](Plugin::with_account).
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub async fn load_for(&self, account: &Account, bytes: &[u8]) -> Result<Plugin, PluginError> {
        if bytes.len() as u64 > component::COMPONENT_BYTES_MAX {
            return Err(PluginError::TooLarge { bytes: bytes.len() as u64 });
        }
        let digest = blake3::hash(bytes);
        if let Some(loaded) = self.loaded().get(&digest).and_then(Weak::upgrade) {
            return Ok(Plugin::new(loaded, account));
        }
        let compiled = self.compile(account, digest, bytes).await?;
        let imports = |error: wasmtime::Error| PluginError::Imports(format!("{error:#}"));
        let wasi = wasi::link(&self.0.linker, &compiled).map_err(imports)?;
        let pre = wasi.as_ref().unwrap_or(&self.0.linker).instantiate_pre(&compiled).map_err(imports)?;
        let processor = processor::GuestIndices::new(&pre);
        let mut code = Code {
            engine: Arc::clone(&self.0.engine),
            processor: processor.map_err(|error| PluginError::Imports(format!("{error:#}")))?,
            checkpoint: checkpoint::GuestIndices::new(&pre).ok(),
            accessors: Accessors::find(&compiled),
            pre,
        };
        let short = digest.to_hex();
        let limits = describe_limits();
        let task = ("-".to_owned(), short[..8].to_owned(), 0);
        let log = Log::new(account, task, self.0.clock.clone(), limits.log_lines);
        let instance = Instance::new(&code, account, Call::Describe, limits, log, TaskMetrics::default()).await;
        let said = instance.map_err(PluginError::Describe)?.describe().await.map_err(PluginError::Describe)?;
        let descriptor = describe::check(said).map_err(PluginError::Descriptor)?;
        let needs_images = descriptor.state != StateKind::Stateless && code.checkpoint.is_none();
        if needs_images && (code.accessors.is_none() || instrument::exports_reserved(bytes)) {
            // It was compiled as it is: either this cannot be instrumented, or there is nothing in it that could be state. What
            // looks like accessors and was in it before is not ours.
            match instrument::instrument(bytes) {
                Ok(_) => code.accessors = Some(Accessors::default()),
                Err(refusal) => return Err(PluginError::Image(refusal)),
            }
        }
        let loaded = Arc::new(Loaded { digest, descriptor, code, host: self.clone() });
        let mut all = self.loaded();
        all.retain(|_, weak| weak.strong_count() > 0);
        all.insert(digest, Arc::downgrade(&loaded));
        Ok(Plugin::new(loaded, account))
    }

    /// A plugin that somebody has already.
    pub fn find(&self, digest: blake3::Hash) -> Option<Plugin> {
        let loaded = self.loaded().get(&digest).and_then(Weak::upgrade)?;
        Some(Plugin::new(loaded, self.0.accounts.free()))
    }

    fn loaded(&self) -> std::sync::MutexGuard<'_, HashMap<blake3::Hash, Weak<Loaded>>> {
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks and compiles, on a thread where that disturbs nobody. What is in the cache was checked before it got there. A
    /// cache that cannot be written costs time, not the plugin.
    async fn compile(&self, account: &Account, digest: blake3::Hash, bytes: &[u8]) -> Result<Component, PluginError> {
        let (host, bytes) = (self.clone(), bytes.to_vec());
        let turn = if account.is_free() { None } else { Some(account.compiling().await) };
        let account = account.clone();
        let compiled = tokio::task::spawn_blocking(move || {
            let engine = host.0.engine.engine();
            if let Some(component) = host.0.cache.as_ref().and_then(|cache| cache.get(engine, &digest)) {
                return Ok(component);
            }
            let inspection = component::validate(&bytes)?;
            // What has no snapshot code may have state all the same. If no image of it can be taken, that matters only once it
            // has said that it has.
            let instrumented = inspection.world == Some(component::World::SimpleOperator);
            let failed = |error: wasmtime::Error| PluginError::Compile(clean(&format!("{error:#}"), 4 << 10));
            let began = host.0.clock.elapsed();
            let (code, used) = match &host.0.compiler {
                Some(compiler) => compiler.compile(&bytes, instrumented),
                None => (compile::code(engine, &bytes, instrumented).map_err(failed), None),
            };
            let used = used.unwrap_or_else(|| host.0.clock.elapsed().saturating_sub(began));
            account.charge(used);
            // Also the turn: who compiles a lot is behind who compiles little. It ends when the work does, whoever
            // waits for it.
            if let Some(turn) = turn {
                turn.end(used);
            }
            let code = code?;
            // SAFETY: the bytes come from `Component::serialize`, here or in a process that runs this very program. Others of its settings, if it
            // had them, would be refused.
            let component = unsafe { Component::deserialize(engine, &code) }.map_err(failed)?;
            if let Some(cache) = &host.0.cache
                && let Err(error) = cache.put(&digest, &code)
            {
                tracing::warn!(plugin = %digest, %error, "compiled code cannot be kept");
            }
            Ok(component)
        });
        compiled.await.unwrap_or_else(|panic| Err(PluginError::Compile(panic.to_string())))
    }

    /// How many instances live now.
    pub fn instances(&self) -> u32 {
        self.0.engine.live()
    }

    /// What plugins have reported, by account, job, node, subtask and name.
    pub fn metrics(&self) -> Vec<Metric> {
        self.0.metrics.read()
    }

    /// Forgets what the plugins of a job have reported that is nobody's.
    pub fn forget_metrics(&self, job: &str) {
        self.0.metrics.forget("", job);
    }

    /// Forgets what the plugins of a job of an account have reported.
    pub fn forget_metrics_of(&self, account: &str, job: &str) {
        self.0.metrics.forget(account, job);
    }
}

impl Plugin {
    fn new(loaded: Arc<Loaded>, account: &Account) -> Self {
        Self {
            loaded,
            account: account.clone(),
            grants: Grants::default(),
            environment: Arc::default(),
            stopwatch: false,
        }
    }

    /// The blake3 of the component's bytes, in hexadecimal.
    pub fn digest(&self) -> String {
        self.loaded.digest.to_hex().to_string()
    }

    /// The same as bytes.
    pub fn digest_bytes(&self) -> [u8; 32] {
        *self.loaded.digest.as_bytes()
    }

    /// What it says about itself.
    pub fn descriptor(&self) -> &Descriptor {
        &self.loaded.descriptor
    }

    /// Whether its state is saved as an image of its memory: it has state, and no code that writes it.
    pub fn takes_images(&self) -> bool {
        self.loaded.descriptor.state != StateKind::Stateless && !self.has_snapshot_code()
    }

    /// The same plugin, whose instances may see this of the world outside. A new one has no grants. Whoever gives some says so
    /// in the manifest: a replay cannot come to the same.
    #[must_use]
    pub fn with_grants(self, grants: Grants) -> Self {
        Self { grants, ..self }
    }

    /// The same plugin with values of variables. Of these its instances see what was [granted](Self::with_grants), and
    /// nothing else. They are not shown anywhere; a component whose state is saved as an image of its memory may have
    /// them in that.
    #[must_use]
    pub fn with_environment(self, values: BTreeMap<String, String>) -> Self {
        Self { environment: Arc::new(values), ..self }
    }

    /// The same plugin, whose instances run under this account of the same host: they wait for its turn, count in its
    /// memory and its instances, and their numbers and lines carry its name.
    #[must_use]
    pub fn with_account(self, account: Account) -> Self {
        Self { account, ..self }
    }

    /// The account under which its instances run. Without a name: nobody's.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The same plugin, whose instances note how long they [emit](Operator::emitting): for measuring, since it takes time.
    #[must_use]
    pub fn with_stopwatch(self) -> Self {
        Self { stopwatch: true, ..self }
    }

    /// Whether it writes and reads its state itself.
    pub fn has_snapshot_code(&self) -> bool {
        self.loaded.code.checkpoint.is_some()
    }

    /// A fresh instance that is open for work. `config` is a JSON object, or null for none.
    ///
    /// # Errors
    ///
    /// [`OperatorError::Invalid`] for a configuration that is not acceptable, [`OperatorError::Limit`] when there is no place for
    /// another instance, and whatever `open` came to.
    pub async fn open(
        &self,
        limits: &LimitsSpec,
        config: &serde_json::Value,
        task: &TaskInfo,
    ) -> Result<Box<dyn Operator>, OperatorError> {
        let config = match config {
            serde_json::Value::Null => "{}".to_owned(),
            serde_json::Value::Object(_) => config.to_string(),
            other => return Err(OperatorError::Invalid(format!("config must be an object and is {other}"))),
        };
        let maker = Maker::new(self.clone(), limits.clone(), config, task.clone());
        let instance = maker.opened().await?;
        if self.takes_images() || limits.soft_memory_bytes.is_some() {
            return Ok(Box::new(Renewable::new(maker, instance)));
        }
        Ok(Box::new(instance))
    }

    /// A fresh instance on which nothing was called; `first` is the call that it is made for.
    pub(super) async fn instance(
        &self,
        first: Call,
        limits: &LimitsSpec,
        config: &str,
        task: &TaskInfo,
    ) -> Result<Instance, OperatorError> {
        let Loaded { descriptor, code, host, .. } = &*self.loaded;
        let Inner { clock, metrics, .. } = &*host.0;
        let account = &self.account;
        let of = (task.job.clone(), task.node.clone(), task.subtask);
        let log = Log::new(account, of, clock.clone(), limits.log_lines);
        let metrics = metrics.task(account.name(), &task.job, &task.node, task.subtask);
        let mut instance = Instance::new(code, account, first, limits.clone(), log, metrics).await?;
        let output_keyed = descriptor.outputs.iter().map(|port| port.keyed).collect();
        let outside = Outside::new(task.seed, self.grants.clone(), clock.clone()).with_environment(&self.environment);
        instance.bind(code, config, task, descriptor.state, output_keyed, outside)?;
        if self.stopwatch {
            instance.start_stopwatch(clock.clone());
        }
        Ok(instance)
    }
}
