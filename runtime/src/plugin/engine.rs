//! The one wasmtime engine: its settings, its ticks, and how many instances it can hold.
//!
//! Ticks come from a thread that rests while no guest runs, so an idle process costs nothing. At each tick a running guest
//! stops for a moment, is charged for it, and lets others have its thread: `instance.rs`.
//!
//! The engine refuses an instance before the operating system would: one memory mapping too many ends the process
//! from within an ordinary allocation, and no error handling helps then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};

use wasmtime::{Config, Engine, EngineWeak, InstanceAllocationStrategy, PoolingAllocationConfig, WasmBacktraceDetails};

use super::limits::{self, Breach, FRAMES_MAX, STACK_BYTES_MAX, TABLE_ELEMENTS_MAX};
use crate::account::{Account, InstancePlace};

/// Memory mappings that one instance takes: 4 were measured, the rest is for its stack and what the allocator splits.
const MAPPINGS_PER_INSTANCE: usize = 8;

/// Memory mappings kept for everything else in the process.
const MAPPINGS_RESERVE: usize = 8_192;

/// How many mappings the process has is counted anew at every so many instances: reading the list takes milliseconds
/// when it is long.
const RECOUNT_EVERY: u32 = 64;

/// Address space that one instance takes where there is no pool: one memory of 4 GiB with its guards, and its stack.
const ADDRESSES_PER_INSTANCE: u64 = (4 << 30) + (64 << 20) + (4 << 20);

/// Address space kept for everything else in the process.
const ADDRESSES_RESERVE: u64 = 64 << 30;

/// After this many ticks without a call the ticker rests.
const IDLE_TICKS: u32 = 100;

/// Builds the engine. `pool` is how many instances are reserved for; without one, each takes its memory from the operating system as it comes.
fn build(pool: Option<u32>) -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    // Calls cost 0.2 µs instead of 0.9, in exchange for the component model's own async, which the contract has not.
    config.concurrency_support(false);
    config.epoch_interruption(true);
    // One 4 GiB reservation for each memory: bounds checks cost nothing, and memory never moves.
    config.memory_reservation(4 << 30).memory_guard_size(32 << 20).memory_may_move(false).memory_init_cow(true);
    // Results must not depend on the processor.
    config.wasm_relaxed_simd(false);
    config.max_wasm_stack(STACK_BYTES_MAX).async_stack_size(STACK_BYTES_MAX + (512 << 10));
    config.wasm_backtrace_max_frames(FRAMES_MAX.try_into().ok());
    config.wasm_backtrace_details(WasmBacktraceDetails::Enable);
    if let Some(instances) = pool {
        let mut pool = PoolingAllocationConfig::new();
        // A component is a handful of core modules (a dozen in Python), most of them without a memory of their own; each with state may
        // have an accessor.
        pool.total_component_instances(instances)
            .total_core_instances(instances.saturating_mul(32))
            .total_memories(instances)
            .total_tables(instances.saturating_mul(2))
            .total_stacks(instances)
            .max_memory_size(4 << 30)
            .max_memories_per_module(4)
            .max_tables_per_module(4)
            .max_component_instance_size(4 << 20)
            .table_elements(TABLE_ELEMENTS_MAX)
            .max_unused_warm_slots(instances.min(100));
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    }
    Engine::new(&config)
}

/// The engine, and who uses it.
#[derive(Debug)]
pub(super) struct SharedEngine {
    engine: Engine,
    ticker: Ticker,
    live: AtomicU32,
    /// How many may live: by the pool, and by mappings when they were last counted.
    instances_max: u32,
    mappings_allow: AtomicU32,
    mappings_max: Option<usize>,
    /// The same by address space, where each takes its own.
    addresses_allow: AtomicU32,
    is_pooled: bool,
    opened: AtomicU32,
}

/// An engine that compiles what the others run, and runs nothing.
pub(super) fn for_compiling() -> wasmtime::Result<Engine> {
    build(None)
}

impl SharedEngine {
    /// An engine for at most `instances_max` instances. Where address space is scarce there is no pool, and opening an
    /// instance takes twice as long.
    pub(super) fn new(instances_max: u32) -> wasmtime::Result<Arc<Self>> {
        let (engine, is_pooled) = match build(Some(instances_max)) {
            Ok(engine) => (engine, true),
            Err(error) => {
                tracing::warn!(%error, instances_max, "no pool for plugin instances, each takes memory as it comes");
                (build(None)?, false)
            }
        };
        let shared = Self {
            ticker: Ticker::start(engine.weak())?,
            engine,
            live: AtomicU32::new(0),
            instances_max,
            mappings_allow: AtomicU32::new(u32::MAX),
            mappings_max: mappings_max(),
            addresses_allow: AtomicU32::new(u32::MAX),
            is_pooled,
            opened: AtomicU32::new(0),
        };
        Ok(Arc::new(shared))
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// How many instances live.
    pub(super) fn live(&self) -> u32 {
        self.live.load(Ordering::SeqCst)
    }

    /// A place for one instance of an account.
    pub(super) fn place(self: &Arc<Self>, account: &Account) -> Result<Place, Breach> {
        let account = account.instance()?;
        let live = self.live.fetch_add(1, Ordering::SeqCst) + 1;
        let place = Place { engine: Arc::clone(self), _account: account };
        if self.opened.fetch_add(1, Ordering::Relaxed).is_multiple_of(RECOUNT_EVERY) {
            let allow = |more: u32| (live - 1).saturating_add(more);
            if let (Some(max), Some(used)) = (self.mappings_max, mappings_used()) {
                self.mappings_allow.store(allow(instances_for(max, used)), Ordering::Relaxed);
            }
            if !self.is_pooled
                && let Some(used) = addresses_used()
            {
                self.addresses_allow.store(allow(instances_in(addresses_max(), used)), Ordering::Relaxed);
            }
        }
        let refuse = |limit: u32, what| {
            let (limit, value) = (limit.to_string(), live.to_string());
            Err(Breach::Limit { what, limit, value, setting: "" })
        };
        if live > self.instances_max {
            return refuse(self.instances_max, "plugin instances in one process");
        }
        let allow = self.mappings_allow.load(Ordering::Relaxed);
        if live > allow {
            return refuse(allow, "plugin instances that the memory mappings of this process (vm.max_map_count) allow");
        }
        let allow = self.addresses_allow.load(Ordering::Relaxed);
        if live > allow {
            return refuse(allow, "plugin instances that the address space of this process (ulimit -v) allows");
        }
        Ok(place)
    }

    /// Says that a guest runs, until the answer is dropped.
    pub(super) fn running(&self) -> Running<'_> {
        self.ticker.begin();
        Running(&self.ticker)
    }
}

/// How many more instances fit.
fn instances_for(mappings_max: usize, used: usize) -> u32 {
    let free = mappings_max.saturating_sub(used).saturating_sub(MAPPINGS_RESERVE.min(mappings_max / 4));
    u32::try_from(free / MAPPINGS_PER_INSTANCE).unwrap_or(u32::MAX)
}

/// How many more instances fit into the address space.
fn instances_in(addresses_max: u64, used: u64) -> u32 {
    let free = addresses_max.saturating_sub(used).saturating_sub(ADDRESSES_RESERVE.min(addresses_max / 4));
    u32::try_from(free / ADDRESSES_PER_INSTANCE).unwrap_or(u32::MAX)
}

/// What the system lets the process have, and what the processor can address for it.
fn addresses_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a value that lives until the call returns.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    // What it is on the smallest of the processors that there are.
    (1 << 47).min(if known { limit.rlim_cur } else { u64::MAX })
}

fn addresses_used() -> Option<u64> {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').next()?.parse().ok()?;
    // SAFETY: there are no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages.saturating_mul(u64::try_from(page).ok()?))
}

fn mappings_max() -> Option<usize> {
    std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?.trim().parse().ok()
}

fn mappings_used() -> Option<usize> {
    Some(memchr::memchr_iter(b'\n', &std::fs::read("/proc/self/maps").ok()?).count())
}

/// The place of one instance; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    engine: Arc<SharedEngine>,
    _account: InstancePlace,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.engine.live.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A guest runs.
#[derive(Debug)]
pub(super) struct Running<'a>(&'a Ticker);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Moves the engine's epoch on, while a guest runs.
#[derive(Debug)]
struct Ticker {
    running: Arc<AtomicUsize>,
    resting: Arc<AtomicBool>,
    /// Wakes the thread; dropping it ends the thread.
    wake: SyncSender<()>,
}

impl Ticker {
    fn start(engine: EngineWeak) -> std::io::Result<Self> {
        let running = Arc::new(AtomicUsize::new(0));
        let resting = Arc::new(AtomicBool::new(false));
        let (wake, woken) = sync_channel::<()>(1);
        let (thread_running, thread_resting) = (Arc::clone(&running), Arc::clone(&resting));
        std::thread::Builder::new().name("weir-plugin-ticks".to_owned()).spawn(move || {
            let mut idle = 0;
            loop {
                match woken.recv_timeout(limits::TICK) {
                    Err(RecvTimeoutError::Disconnected) => return,
                    Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                }
                let Some(engine) = engine.upgrade() else { return };
                engine.increment_epoch();
                drop(engine);
                idle = if thread_running.load(Ordering::SeqCst) == 0 { idle + 1 } else { 0 };
                if idle < IDLE_TICKS {
                    continue;
                }
                // Whoever begins a call after this sees it resting; whoever began before is seen here.
                thread_resting.store(true, Ordering::SeqCst);
                if thread_running.load(Ordering::SeqCst) == 0 && woken.recv().is_err() {
                    return;
                }
                thread_resting.store(false, Ordering::SeqCst);
                idle = 0;
            }
        })?;
        Ok(Self { running, resting, wake })
    }

    fn begin(&self) {
        self.running.fetch_add(1, Ordering::SeqCst);
        if self.resting.load(Ordering::SeqCst) {
            // A full channel has a wake-up in it already.
            match self.wake.try_send(()) {
                Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Accounts;

    #[test]
    fn instances_are_refused_before_the_mappings_run_out() {
        assert_eq!(instances_for(65_530, 530), 7_101);
        assert_eq!(instances_for(65_530, 60_000), 0);
        assert_eq!(instances_for(1_000, 500), 31);
        assert_eq!(instances_for(usize::MAX, 0), u32::MAX);
        assert_eq!(instances_in(1 << 47, 1 << 40), 31_965);
        assert_eq!(instances_in(1 << 40, 1 << 40), 0);
        assert_eq!(instances_in(8 << 30, 0), 1);
    }

    #[test]
    fn a_place_goes_back_when_it_is_dropped_and_one_too_many_is_refused() {
        let shared = SharedEngine::new(2).expect("a small engine");
        let accounts = Accounts::new(1, None, crate::clock::Clock::system());
        let account = accounts.free();
        let one = shared.place(account).expect("the first");
        let _two = shared.place(account).expect("the second");
        let Err(Breach::Limit { limit, value, .. }) = shared.place(account) else { panic!("a third was given") };
        assert_eq!((limit.as_str(), value.as_str()), ("2", "3"));
        assert_eq!(shared.live(), 2);
        drop(one);
        shared.place(account).expect("the first one's place");
    }

    #[test]
    fn the_ticker_wakes_up_for_every_call_and_rests_in_between() {
        let shared = SharedEngine::new(1).expect("a small engine");
        for _ in 0..2 {
            while !shared.ticker.resting.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let running = shared.running();
            while shared.ticker.resting.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            drop(running);
        }
    }
}
