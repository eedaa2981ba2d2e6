//! Accounts: who shares this process, and what each of them may use.
//!
//! The host of plugins knows nothing of tenants. It knows accounts: names with numbers. What works under an account is
//! charged to it: time, linear memory, instances, output, log lines. What nobody put under an account is nobody's: it
//! is neither limited nor made to wait.
//!
//! *CPU time* is shared by turns. [`Account::run`] wraps a future: whenever the future is polled it holds one of as
//! many slots as there are cores, so that guests and what the host does for them between their calls (parsing, hashing,
//! packing) are one and the same to whoever shares out (`slots.rs`, `stride.rs`). A guest stops at each tick, a source
//! after each batch: there the slot goes to who has used less for its weight. A slot is never held over a wait, so
//! there is nothing to deadlock on. What runs elsewhere, on another thread or in another process, is
//! [charged](Account::charge) when it is over.
//!
//! A future that is polled under an account and polls another under one is charged as a whole to the outer one.

mod memory;
mod place;
mod rate;
mod slots;
mod stride;

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

pub(crate) use self::memory::InstanceMemory;
use self::memory::Pool;
pub(crate) use self::place::{Place, goes_on};
pub use self::place::{breathe, yield_now};
pub(crate) use self::rate::Rate;
use self::slots::{Slots, Turn};
use self::stride::{AccountId, Rules, WEIGHT_MAX};
use crate::clock::Clock;
use crate::model::bytes;

/// The smallest ceiling on CPU time, in cores.
const CORES_MIN: f64 = 0.001;

/// What an account may use. Every number may be changed while it lives.
#[derive(Clone, Debug, PartialEq)]
pub struct AccountLimits {
    /// Its share of the CPU, and of memory under pressure, beside those of others: 1 to 10,000. Default 100.
    pub weight: u32,
    /// The most CPU time, in cores: 0.5 is half of one. It may be exceeded for a tenth of a second, which is then paid
    /// back. Default: no ceiling.
    pub cpu_cores: Option<f64>,
    /// Linear memory of all its instances together, in bytes. Default: no limit.
    pub memory_bytes: Option<u64>,
    /// How many instances it may have at once. Default: no limit.
    pub instances: Option<u32>,
    /// How many bytes its operators may emit a second, all together. Beyond that their next call waits. Default: no
    /// limit.
    pub output_bytes_per_second: Option<u64>,
    /// How many requests it may send to object stores a second, over all stores that were opened under it. Beyond that
    /// they wait. Default: no limit.
    pub store_requests_per_second: Option<u32>,
    /// How many bytes it may write to and read from them a second. Default: no limit.
    pub store_bytes_per_second: Option<u64>,
    /// How many lines its operators may log a second, all together. The rest is counted and dropped. Default: no limit.
    pub log_lines_per_second: Option<u32>,
}

impl Default for AccountLimits {
    fn default() -> Self {
        Self {
            weight: 100,
            cpu_cores: None,
            memory_bytes: None,
            instances: None,
            output_bytes_per_second: None,
            store_requests_per_second: None,
            store_bytes_per_second: None,
            log_lines_per_second: None,
        }
    }
}

/// A limit of an account was crossed, or the ceiling of the process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Quota {
    /// Of the account.
    #[error("quota of {account}, {limit} {what}: {value}")]
    Account {
        /// Its name.
        account: String,
        /// What is limited.
        what: &'static str,
        /// The limit, as a person writes it.
        limit: String,
        /// How far it came.
        value: String,
    },
    /// Of the process; in bytes.
    #[error("{} memory of all plugins in this process: {}", bytes(*limit), bytes(*value))]
    Process {
        /// The ceiling.
        limit: u64,
        /// How far it would have come.
        value: u64,
    },
}

/// What an account uses and has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountUsage {
    /// Time on a core, since the account was made: guests, the host's work for them, and compilation.
    pub cpu: Duration,
    /// How long its work has waited for a slot, since the account was made, over all that waited.
    pub waited: Duration,
    /// Linear memory of all its instances, in bytes.
    pub memory_bytes: u64,
    /// Instances that live.
    pub instances: u32,
    /// Bytes that its operators have emitted.
    pub output_bytes: u64,
    /// Requests to object stores.
    pub store_requests: u64,
    /// Bytes written to and read from them.
    pub store_bytes: u64,
    /// How long requests have waited for its budget, over all that waited.
    pub store_waited: Duration,
    /// Lines that were not logged, because they were too many for the account.
    pub log_lines_dropped: u64,
}

/// Somebody who shares this process with others. Cheap to clone; it ends with its last clone.
#[derive(Clone)]
pub struct Account(Arc<Inner>);

struct Inner {
    id: AccountId,
    name: Arc<str>,
    /// Nobody's: it is not made to wait.
    is_free: bool,
    limits: Mutex<AccountLimits>,
    /// It has a ceiling, which is to be asked also when nobody waits.
    always: AtomicBool,
    weight: Arc<AtomicU64>,
    memory_max: AtomicU64,
    instances_max: AtomicU32,
    /// It has a limit on output, which is to be asked.
    has_output_limit: AtomicBool,
    output: Rate,
    store_requests: Budget,
    store_bytes: Budget,
    store_waited_nanos: AtomicU64,
    log: Rate,
    cpu_nanos: AtomicU64,
    waited_nanos: AtomicU64,
    memory: AtomicU64,
    instances: AtomicU32,
    output_bytes: AtomicU64,
    log_lines_dropped: AtomicU64,
    shared: Arc<Shared>,
}

/// A rate, and all that was ever taken of it.
#[derive(Debug, Default)]
struct Budget {
    rate: Rate,
    taken: AtomicU64,
}

impl Budget {
    fn reserve(&self, n: u64, now: Duration) -> Duration {
        self.taken.fetch_add(n, Ordering::Relaxed);
        self.rate.reserve(n, now)
    }
}

/// What all accounts share.
#[derive(Debug)]
struct Shared {
    cpu: Arc<Slots>,
    compiling: Arc<Slots>,
    memory: Pool,
    clock: Clock,
}

/// Every account of a host.
#[derive(Debug)]
pub(crate) struct Accounts {
    shared: Arc<Shared>,
    /// Whatever belongs to nobody.
    free: Account,
    named: Mutex<Named>,
}

#[derive(Debug)]
struct Named {
    next: AccountId,
    accounts: BTreeMap<Arc<str>, Weak<Inner>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Account").field(&self.name()).finish()
    }
}

impl Accounts {
    /// For so many cores, and so much memory in all.
    pub(crate) fn new(cores: u32, memory_bytes_max: Option<u64>, clock: Clock) -> Self {
        let shared = Arc::new(Shared {
            cpu: Arc::new(Slots::new(cores, clock.clone())),
            compiling: Arc::new(Slots::new(cores, clock.clone())),
            memory: Pool::new(memory_bytes_max),
            clock,
        });
        let free = Account::new(&shared, (0, "".into(), true), AccountLimits::default());
        Self { shared, free, named: Mutex::new(Named { next: 1, accounts: BTreeMap::new() }) }
    }

    /// Nobody's.
    pub(crate) fn free(&self) -> &Account {
        &self.free
    }

    /// The account of this name, made if there is none that lives; with these limits from now on.
    pub(crate) fn account(&self, name: &str, limits: AccountLimits) -> Account {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let Named { next, accounts } = &mut *named;
        if let Some(inner) = accounts.get(name).and_then(Weak::upgrade) {
            drop(named);
            let account = Account(inner);
            account.set_limits(limits);
            return account;
        }
        accounts.retain(|_, inner| inner.strong_count() > 0);
        let name: Arc<str> = name.into();
        let account = Account::new(&self.shared, (*next, Arc::clone(&name), false), limits);
        *next += 1;
        accounts.insert(name, Arc::downgrade(&account.0));
        account
    }

    /// Those that live, by name.
    pub(crate) fn all(&self) -> Vec<Account> {
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.accounts.values().filter_map(Weak::upgrade).map(Account).collect()
    }

    /// Linear memory of all instances.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.shared.memory.total()
    }
}

impl Account {
    fn new(shared: &Arc<Shared>, (id, name, is_free): (AccountId, Arc<str>, bool), limits: AccountLimits) -> Self {
        let account = Self(Arc::new(Inner {
            id,
            name,
            is_free,
            limits: Mutex::default(),
            always: false.into(),
            weight: Arc::default(),
            memory_max: AtomicU64::new(u64::MAX),
            instances_max: AtomicU32::new(u32::MAX),
            has_output_limit: AtomicBool::new(false),
            output: Rate::default(),
            store_requests: Budget::default(),
            store_bytes: Budget::default(),
            store_waited_nanos: AtomicU64::new(0),
            log: Rate::default(),
            cpu_nanos: AtomicU64::new(0),
            waited_nanos: AtomicU64::new(0),
            memory: AtomicU64::new(0),
            instances: AtomicU32::new(0),
            output_bytes: AtomicU64::new(0),
            log_lines_dropped: AtomicU64::new(0),
            shared: Arc::clone(shared),
        }));
        account.set_limits(limits);
        account
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What it may use.
    pub fn limits(&self) -> AccountLimits {
        self.0.limits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what it may use, from now on. Numbers out of range are taken as the nearest in range. What it has
    /// already is not taken away: less memory or fewer instances are felt by the next that asks.
    pub fn set_limits(&self, limits: AccountLimits) {
        let inner = &*self.0;
        let mut held = inner.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let now = inner.shared.clock.elapsed();
        let weight = limits.weight.clamp(1, WEIGHT_MAX);
        let ceiling = limits.cpu_cores.filter(|cores| cores.is_finite()).map(|cores| cores.max(CORES_MIN));
        inner.weight.store(weight.into(), Ordering::Relaxed);
        inner.always.store(ceiling.is_some(), Ordering::Relaxed);
        inner.memory_max.store(limits.memory_bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
        inner.instances_max.store(limits.instances.unwrap_or(u32::MAX), Ordering::Relaxed);
        inner.output.set(limits.output_bytes_per_second, now);
        inner.has_output_limit.store(limits.output_bytes_per_second.is_some(), Ordering::Relaxed);
        inner.store_requests.rate.set(limits.store_requests_per_second.map(u64::from), now);
        inner.store_bytes.rate.set(limits.store_bytes_per_second, now);
        inner.log.set(limits.log_lines_per_second.map(u64::from), now);
        inner.shared.cpu.set(inner.id, Rules { weight, ceiling, at_once: u32::MAX });
        let at_once = if inner.is_free { u32::MAX } else { 1 };
        inner.shared.compiling.set(inner.id, Rules { weight, ceiling: None, at_once });
        *held = limits;
    }

    /// What it uses and has used.
    pub fn usage(&self) -> AccountUsage {
        let inner = &*self.0;
        AccountUsage {
            cpu: Duration::from_nanos(inner.cpu_nanos.load(Ordering::Relaxed)),
            waited: Duration::from_nanos(inner.waited_nanos.load(Ordering::Relaxed)),
            memory_bytes: inner.memory.load(Ordering::Relaxed),
            instances: inner.instances.load(Ordering::Relaxed),
            output_bytes: inner.output_bytes.load(Ordering::Relaxed),
            store_requests: inner.store_requests.taken.load(Ordering::Relaxed),
            store_bytes: inner.store_bytes.taken.load(Ordering::Relaxed),
            store_waited: Duration::from_nanos(inner.store_waited_nanos.load(Ordering::Relaxed)),
            log_lines_dropped: inner.log_lines_dropped.load(Ordering::Relaxed),
        }
    }

    /// The account under which the task that is being polled runs, if one.
    pub fn current() -> Option<Self> {
        place::current()
    }

    /// Does `work` under this account: it is polled only while it holds a slot, and what it takes is charged.
    /// Everything that a job does belongs in one; tasks that it spawns do not follow by themselves.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut place = Place::new(Some(self));
        poll_fn(|context| place.poll(context, work.as_mut())).await
    }

    /// Does `work` under an account, or as it is without one.
    pub async fn run_under<T>(account: Option<Self>, work: impl Future<Output = T>) -> T {
        match account {
            Some(account) => account.run(work).await,
            None => work.await,
        }
    }

    /// Charges it for work that was done elsewhere: on a thread for long work, or in another process.
    pub fn charge(&self, used: Duration) {
        self.add_cpu(used);
        if !self.0.is_free {
            self.0.shared.cpu.charge(self.0.id, used);
        }
    }

    fn add_cpu(&self, used: Duration) {
        self.0.cpu_nanos.fetch_add(nanos(used), Ordering::Relaxed);
    }

    /// By which its slots are asked for.
    fn key(&self) -> (AccountId, bool) {
        (self.0.id, self.0.always.load(Ordering::Relaxed))
    }

    /// A slot for work on a thread for such. Not for whoever is polled with one: where there is one slot in all, that
    /// would wait for itself.
    pub(crate) async fn turn(&self) -> CpuTurn {
        let (shared, account) = (&self.0.shared, self.clone());
        let asked = shared.cpu.now();
        let slot = if self.0.is_free { None } else { Some(Turn::wait(&shared.cpu, self.0.id).await) };
        let began = shared.cpu.now();
        self.0.waited_nanos.fetch_add(nanos(began.saturating_sub(asked)), Ordering::Relaxed);
        CpuTurn { slot, account, began }
    }

    /// A turn to compile: one at a time for each account, as many as there are cores in all.
    pub(crate) async fn compiling(&self) -> CompilingTurn {
        CompilingTurn(Turn::wait(&self.0.shared.compiling, self.0.id).await)
    }

    /// That a quota was crossed.
    fn quota(&self, what: &'static str, limit: String, value: String) -> Quota {
        let account = if self.0.is_free { "what runs under no account" } else { self.name() }.to_owned();
        Quota::Account { account, what, limit, value }
    }

    /// A place for one more instance.
    pub(crate) fn instance(&self) -> Result<InstancePlace, Quota> {
        let limit = self.0.instances_max.load(Ordering::Relaxed);
        let place = InstancePlace(self.clone());
        let live = self.0.instances.fetch_add(1, Ordering::SeqCst) + 1;
        if live > limit {
            return Err(self.quota("plugin instances", limit.to_string(), live.to_string()));
        }
        Ok(place)
    }

    /// Waits until what its operators have emitted is paid for.
    pub(crate) async fn paid(&self) {
        while self.0.has_output_limit.load(Ordering::Relaxed) {
            let wait = self.0.output.wait(self.0.shared.clock.elapsed());
            if wait.is_zero() {
                return;
            }
            // In steps: the rate may be raised meanwhile.
            tokio::time::sleep(wait.min(Duration::from_secs(1))).await;
        }
    }

    /// Its operators have emitted so much.
    pub(crate) fn emitted(&self, bytes: u64) {
        self.0.output_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.0.has_output_limit.load(Ordering::Relaxed) {
            self.0.output.take(bytes, self.0.shared.clock.elapsed());
        }
    }

    /// Waits until a request with so many bytes may be sent to a store.
    pub(crate) async fn store_request(&self, bytes: u64) {
        let inner = &*self.0;
        let now = inner.shared.clock.elapsed();
        let wait = inner.store_requests.reserve(1, now).max(inner.store_bytes.reserve(bytes, now));
        if !wait.is_zero() {
            inner.store_waited_nanos.fetch_add(nanos(wait), Ordering::Relaxed);
            tokio::time::sleep(wait).await;
        }
    }

    /// So many bytes have come from a store; the next request waits for them.
    pub(crate) fn store_bytes(&self, bytes: u64) {
        self.0.store_bytes.reserve(bytes, self.0.shared.clock.elapsed());
    }

    /// Whether one of its operators may log another line now.
    pub(crate) fn admits_line(&self) -> bool {
        let admits = self.0.log.try_take(self.0.shared.clock.elapsed());
        if !admits {
            self.0.log_lines_dropped.fetch_add(1, Ordering::Relaxed);
        }
        admits
    }

    /// Whether it has limits on what flows, which have to be asked.
    pub(crate) fn is_free(&self) -> bool {
        self.0.is_free
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.cpu.remove(self.id);
        self.shared.compiling.remove(self.id);
    }
}

/// The place of one instance in its account; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct InstancePlace(Account);

impl Drop for InstancePlace {
    fn drop(&mut self) {
        self.0.0.instances.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A slot, and what is done with it. Charged when it is dropped.
#[derive(Debug)]
pub(crate) struct CpuTurn {
    slot: Option<Turn>,
    account: Account,
    began: Duration,
}

impl Drop for CpuTurn {
    fn drop(&mut self) {
        let used = self.account.0.shared.cpu.now().saturating_sub(self.began);
        self.account.add_cpu(used);
        if let Some(slot) = &mut self.slot {
            slot.used = used;
        }
    }
}

/// A turn to compile.
#[derive(Debug)]
pub(crate) struct CompilingTurn(Turn);

impl CompilingTurn {
    /// It has taken so long on a core.
    pub(crate) fn end(mut self, used: Duration) {
        self.0.used = used;
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
