//! One seed: processes that start, stop, sleep and wake up on one store, then a run in peace, then the books.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::books::JobContent;
use super::connectors::Place;
use super::model::Model;
use super::process::{Ended, Process, Shape};
use super::situations::{Listener, add};
use crate::checkpoint::Start;
use crate::checkpoint::auditor::{Auditor, Content, Counts};
use crate::checkpoint::faulty::{FaultyStore, Pace, World};
use crate::checkpoint::testing::Random;
use crate::error::{Error, ErrorKind};
use crate::job::Outcome;
use crate::model::{Epoch, JobId};

/// When a world is given up that does not come to rest, in virtual milliseconds.
const CHAOS_MAX: u64 = 60_000;
/// How long a run in peace may take.
const PEACE_MAX: u64 = 30_000;

/// What came of a seed.
pub(crate) struct Simulated {
    pub(crate) seen: Counts,
    /// The same for two runs that did the same.
    pub(crate) trace: blake3::Hash,
}

/// Runs a seed.
///
/// # Panics
///
/// If the auditor objects, or if the job does not get done.
pub(crate) fn simulate(seed: u64) -> Simulated {
    let listener = Listener::default();
    let simulated = tracing::subscriber::with_default(listener.clone(), || Universe::new(seed).run());
    let mut seen = simulated.seen;
    add(&mut seen, listener.seen());
    Simulated { seen, trace: simulated.trace }
}

struct Universe {
    random: Random,
    world: World,
    auditor: Auditor<JobContent>,
    model: Arc<Model>,
    shape: Shape,
    processes: Vec<Process>,
    now: u64,
    troubles: u64,
}

impl Universe {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let longest = [12, 60, 150][random.below(3) as usize];
        let splits = (0..1 + random.below(3)).map(|_| random.below(longest) as u32).collect();
        let model = Arc::new(Model::new(random.next(), splits));
        let shape = Shape {
            sources: 1 + random.below(2) as u32,
            operators: 1 + random.below(2) as u32,
            sinks: 1 + random.below(2) as u32,
            retain: 1 + random.below(3) as u32,
            interval: Duration::from_millis(10 + 10 * random.below(3)),
            timeout: Duration::from_millis(60 + 60 * random.below(5)),
        };
        let auditor = Auditor::new(JobContent::new(Arc::clone(&model)), shape.retain);
        let faults = [0, 3, 10, 40][random.below(4) as usize];
        let world = World::new(random.next(), faults, Pace::Time, Box::new(auditor.clone()));
        let troubles = [0, 0, 1, 4][random.below(4) as usize];
        Self { random, world, auditor, model, shape, processes: Vec::new(), now: 1_000, troubles }
    }

    fn run(mut self) -> Simulated {
        let _on = super::On::enter();
        self.chaos();
        self.world.heal();
        self.auditor.check();
        let last = self.peace();
        self.auditor.check();
        self.close_the_books(last);
        self.auditor.check();
        let mut seen = self.auditor.with(|books| books.seen.clone());
        add(&mut seen, self.world.seen());
        Simulated { seen, trace: self.world.trace() }
    }

    fn spawn(&mut self, start: Start, dies_after: Option<u64>, sleeps_after: Option<u64>) {
        let store = self.world.actor(dies_after, sleeps_after);
        self.auditor.started(store.actor(), start);
        let place = self.place(store);
        super::On::add(place.clone());
        let seed = self.random.next();
        self.processes.push(Process::start(&place, self.shape, start, seed, self.now));
    }

    fn place(&self, store: FaultyStore) -> Place {
        Place {
            store,
            auditor: self.auditor.clone(),
            model: Arc::clone(&self.model),
            troubles: self.troubles,
            interval: self.shape.interval,
        }
    }

    fn chaos(&mut self) {
        let runs = 1 + self.random.below(5);
        let (with_from, with_fresh) = (self.random.chance(250), self.random.chance(120));
        let sleepy = self.random.chance(500);
        let lives = [60, 400, 2_000][self.random.below(3) as usize];
        let crowd = [0, 3, 12][self.random.below(3) as usize];
        let outages = [0, 2, 8][self.random.below(3) as usize];
        let mut spawned = 0;
        let mut is_out_until = 0;
        while self.now < CHAOS_MAX {
            let is_due = self.processes.is_empty() || (self.processes.len() < 3 && self.random.chance(crowd));
            if spawned < runs && is_due {
                spawned += 1;
                let start = match self.random.below(10) {
                    0..=3 if with_from => Start::From(self.some_epoch()),
                    4 if with_fresh => Start::Fresh,
                    _ => Start::Resume,
                };
                let dies = self.random.chance(700).then(|| 1 + self.random.below(lives));
                let sleeps = (sleepy && self.random.chance(600)).then(|| 1 + self.random.below(lives.min(300)));
                self.spawn(start, dies, sleeps);
            }
            if self.random.chance(2) && self.processes.len() < 4 {
                let store = self.world.actor(self.random.chance(300).then(|| 1 + self.random.below(60)), None);
                self.auditor.started(store.actor(), Start::Resume);
                super::On::add(self.place(store.clone()));
                let hold = Duration::from_millis(self.random.below(1_000));
                let seed = self.random.next();
                self.processes.push(Process::savepoint(store, hold, seed, self.now));
            }
            if spawned == runs && self.processes.is_empty() {
                return;
            }
            if self.random.chance(30) {
                self.world.deliver_one();
            }
            if self.now >= is_out_until {
                let begins = self.random.chance(outages);
                let longest = if self.random.chance(100) { 1_500 } else { 40 };
                is_out_until = self.now + if begins { 3 + self.random.below(longest) } else { 0 };
                self.world.set_out(begins);
            }
            self.now +=
                if self.processes.iter().filter(|process| process.wakes_at.is_none()).count() > 1 { 1 } else { 3 };
            self.turn();
        }
        panic!("the world does not come to rest");
    }

    /// Mostly one that was committed, and not the newest, as somebody chooses who starts from an older one.
    fn some_epoch(&mut self) -> Epoch {
        let known: Vec<Epoch> = self.auditor.with(|books| {
            let latest = books.latest;
            books.markers.iter().filter(|(id, _)| Some(*id) == latest).map(|(_, epoch)| *epoch).collect()
        });
        if known.is_empty() || self.random.chance(250) {
            return Epoch(1 + self.random.below(10));
        }
        let back = 1 + self.random.below(known.len().min(4) as u64) as usize;
        known[known.len() - back]
    }

    /// Everybody who is awake runs up to now, in an order of chance.
    fn turn(&mut self) {
        let mut order: Vec<usize> = (0..self.processes.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        let mut gone = Vec::new();
        for at in order {
            let process = &mut self.processes[at];
            match process.wakes_at {
                Some(wakes_at) if wakes_at > self.now => continue,
                Some(_) => {
                    process.wakes_at = None;
                    let again = self.random.chance(300).then(|| 1 + self.random.below(300));
                    self.world.wake(&process.store, again);
                    self.auditor.woke(process.store.actor());
                    process.jump_to(self.now);
                }
                None => process.run_to(self.now),
            }
            self.auditor.check();
            if self.world.is_dead(&process.store) {
                self.auditor.died(process.store.actor());
                gone.push(at);
            } else if let Some(ended) = process.ended() {
                let (actor, start) = (process.store.actor(), process.start);
                if let Ended::Job(ended) = ended {
                    self.judge(actor, start, ended);
                }
                gone.push(at);
            } else if self.world.is_asleep(&process.store) {
                process.wakes_at = Some(self.now + 20 + self.random.below(2_000));
                self.auditor.fell_asleep(process.store.actor());
            } else if self.random.chance(1) {
                process.ask_to_stop();
            }
        }
        gone.sort_unstable();
        gone.into_iter().rev().for_each(|at| drop(self.processes.remove(at)));
    }

    /// Whether a process may end like that.
    fn judge(&self, actor: usize, start: Start, ended: Result<Outcome, Error>) {
        let error = match ended {
            Ok(Outcome::Finished { before, .. }) => {
                return self.auditor.count(if before { "finished job restarted" } else { "finished" });
            }
            Ok(Outcome::Stopped { .. }) => return self.auditor.count("stopped"),
            Err(error) => error,
        };
        let was_overtaken = self.auditor.with(|books| books.was_overtaken(actor));
        match error.kind() {
            _ if error.chain().contains("defect of weir") || error.chain().contains("fault in weir") => {
                panic!("a process ended: {}", error.report())
            }
            ErrorKind::Superseded if was_overtaken => self.auditor.count("superseded"),
            ErrorKind::Superseded if error.chain().contains("again and again") => {}
            ErrorKind::Superseded => {
                panic!("I6: a run says that it was superseded, and nobody was: {}", error.report())
            }
            ErrorKind::Usage | ErrorKind::State if matches!(start, Start::From(_)) => {
                self.auditor.count("--from refused");
            }
            // What it was reading was collected by the run that took over.
            ErrorKind::State if was_overtaken => {}
            ErrorKind::Job | ErrorKind::Store => self.auditor.count("given up with an error"),
            kind => panic!("a process ended with {kind:?}: {}", error.report()),
        }
    }

    /// A last run, with nothing in its way.
    fn peace(&mut self) -> JobId {
        (self.troubles, self.processes) = (0, Vec::new());
        self.spawn(Start::Resume, None, None);
        let until = self.now + PEACE_MAX;
        while self.now < until {
            self.now += 10;
            let process = &mut self.processes[0];
            process.run_to(self.now);
            self.auditor.check();
            if let Some(ended) = process.ended() {
                let Ended::Job(ended) = ended else { panic!("a run of the job is no command") };
                match ended {
                    Ok(Outcome::Finished { before, .. }) if before => self.auditor.count("finished job restarted"),
                    Ok(Outcome::Finished { .. }) => self.auditor.count("finished"),
                    Ok(other) => panic!("a run in peace ended with {other:?}"),
                    Err(error) => panic!("a run in peace failed: {}", error.report()),
                }
                return self.auditor.with(|books| books.latest).expect("a job that finished has a history");
            }
        }
        panic!("a run in peace does not end")
    }

    /// Everything is visible that has to be, and nothing is left that nobody needs.
    fn close_the_books(&mut self, id: JobId) {
        let last = self.auditor.with(|books| {
            let history = &books.histories[&id];
            let last = history.restore_point().cloned().expect("a job that finished has a checkpoint");
            assert!(last.finished, "finished, and its last checkpoint does not say so");
            for manifest in history.line(last.epoch) {
                assert!(books.markers.contains(&(id, manifest.epoch)), "I13: {} is not marked", manifest.epoch);
                for node in manifest.nodes.iter().filter(|node| !node.committables.is_empty()) {
                    let is_visible = books.content.is_visible(manifest, &node.name);
                    assert!(is_visible, "I4: what {} prepared for {} is not visible", node.name, manifest.epoch);
                }
            }
            last
        });
        self.auditor.close(&self.world, &last);
    }
}

/// Runs seeds on all cores until one fails or all have passed.
pub(crate) fn simulate_all(
    seeds: std::ops::Range<u64>,
    replay: &str,
    simulate: impl Fn(u64) -> Counts + Sync,
) -> Counts {
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let worker = || {
        let mut seen = BTreeMap::new();
        loop {
            let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if seed >= seeds.end {
                return Ok(seen);
            }
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| simulate(seed))) {
                Ok(counts) => add(&mut seen, counts),
                Err(panic) => {
                    next.store(seeds.end, std::sync::atomic::Ordering::Relaxed);
                    return Err((seed, panic));
                }
            }
        }
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().map(|thread| thread.join().expect("its panics are caught")).collect()
    });
    let mut seen = Counts::new();
    let mut failed = None;
    for result in results {
        match result {
            Ok(counts) => add(&mut seen, counts),
            Err((seed, panic)) => {
                eprintln!("seed {seed} failed; it runs alone with: WEIR_SEED={seed} {replay}");
                failed = Some(panic);
            }
        }
    }
    if let Some(panic) = failed {
        std::panic::resume_unwind(panic);
    }
    seen
}
