//! Whose turn is it? The decision, without clock, lock or task.
//!
//! Stride scheduling over time that was used: each account has a *pass*, which moves on by what it uses, divided by its
//! weight; whoever waits with the lowest pass is next. What a turn will use is not known when it begins, so a slice is
//! charged at once and put right at the end of the turn. Three rules keep the past from mattering:
//!
//! - An account that comes back from doing nothing starts at the virtual time, which is the pass of whoever had the
//!   last turn: no credit for having been idle.
//! - One that has something to do, but cannot use all that it may, is at most [`LEAD`] behind the virtual time: a
//!   bounded credit.
//! - One that has used a lot at once is at most [`DEBT`] ahead of it: nobody is shut out for what it did long ago.
//!
//! A *ceiling* is a bucket of time that fills at so many cores. An account whose bucket is empty waits, also when
//! nobody else wants anything. Its bucket may go below zero, since a turn is charged when it ends; what is owed is
//! waited for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What a turn is charged for when it begins.
pub(super) const SLICE: Duration = Duration::from_millis(1);

/// How far an account that is not idle may be behind the virtual time, in time that it could have used.
const LEAD: Duration = Duration::from_millis(10);

/// How far an account may be ahead of the virtual time, in time that it has used.
const DEBT: Duration = Duration::from_secs(1);

/// A ceiling's bucket holds what flows in during this time, and never less than two slices.
pub(super) const BURST: Duration = Duration::from_millis(100);

/// A pass counts nanoseconds in these parts: the heaviest weight still moves it.
const SCALE: i128 = 1 << 16;

/// The heaviest weight.
pub(super) const WEIGHT_MAX: u32 = 10_000;

/// An account, by number.
pub(super) type AccountId = u64;

/// Something that waits for a turn, by number.
pub(super) type Ticket = u64;

/// What an account may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rules {
    /// Its share beside those of others; at least 1.
    pub(super) weight: u32,
    /// Cores; none for no ceiling.
    pub(super) ceiling: Option<f64>,
    /// Turns at once.
    pub(super) at_once: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Stride {
    accounts: BTreeMap<AccountId, Entry>,
    /// Accounts with somebody waiting, the lowest pass first.
    waiting: BTreeSet<(i128, AccountId)>,
    virtual_time: i128,
}

#[derive(Debug)]
struct Entry {
    rules: Rules,
    pass: i128,
    running: u32,
    queue: VecDeque<Ticket>,
    bucket: Option<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    cores: f64,
    /// Nanoseconds that may be used; below zero, that are owed.
    left: f64,
    filled_at: Duration,
}

impl Bucket {
    fn new(cores: f64, now: Duration) -> Self {
        Self { cores, left: Self::capacity(cores), filled_at: now }
    }

    fn capacity(cores: f64) -> f64 {
        (cores * BURST.as_nanos() as f64).max(2.0 * SLICE.as_nanos() as f64)
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled_at).as_nanos() as f64;
        self.filled_at = self.filled_at.max(now);
        self.left = (self.left + passed * self.cores).min(Self::capacity(self.cores));
    }

    /// How long until something may be used.
    fn wait(&self) -> Duration {
        if self.left > 0.0 {
            return Duration::ZERO;
        }
        Duration::from_nanos((1.0 - self.left / self.cores).ceil().min(1e18) as u64)
    }
}

impl Entry {
    fn cost(&self, used: Duration) -> i128 {
        used.as_nanos().min(1 << 80).cast_signed() * SCALE / i128::from(self.rules.weight.max(1))
    }

    fn may_run(&mut self, now: Duration) -> bool {
        if let Some(bucket) = &mut self.bucket {
            bucket.fill(now);
            if bucket.left <= 0.0 {
                return false;
            }
        }
        self.running < self.rules.at_once
    }
}

impl Stride {
    /// Sets what an account may use; a new one begins without credit.
    pub(super) fn set(&mut self, account: AccountId, rules: Rules, now: Duration) {
        let pass = self.virtual_time;
        let new = || Entry { rules, pass, running: 0, queue: VecDeque::new(), bucket: None };
        let entry = self.accounts.entry(account).or_insert_with(new);
        entry.rules = rules;
        entry.bucket = rules.ceiling.map(|cores| match entry.bucket.take() {
            Some(mut bucket) => {
                bucket.fill(now);
                Bucket { cores, left: bucket.left.min(Bucket::capacity(cores)), ..bucket }
            }
            None => Bucket::new(cores, now),
        });
    }

    /// Forgets an account. Nobody of it waits or runs any more.
    pub(super) fn remove(&mut self, account: AccountId) {
        if let Some(entry) = self.accounts.remove(&account) {
            self.waiting.remove(&(entry.pass, account));
        }
    }

    /// Somebody waits for a turn. `again`: it had one until now, so its account was not idle.
    pub(super) fn enqueue(&mut self, account: AccountId, ticket: Ticket, again: bool) {
        let virtual_time = self.virtual_time;
        self.change(account, |entry| {
            let is_idle = !again && entry.running == 0 && entry.queue.is_empty();
            let lead = if is_idle { 0 } else { entry.cost(LEAD) };
            entry.pass = entry.pass.max(virtual_time - lead);
            entry.queue.push_back(ticket);
        });
    }

    /// Somebody does not wait any more.
    pub(super) fn cancel(&mut self, account: AccountId, ticket: Ticket) {
        self.change(account, |entry| entry.queue.retain(|other| *other != ticket));
    }

    /// Whose turn begins; none if nobody waits that may have one.
    pub(super) fn pick(&mut self, now: Duration) -> Option<(AccountId, Ticket)> {
        let may_run =
            |(_, account): &&(i128, AccountId)| self.accounts.get_mut(account).is_some_and(|entry| entry.may_run(now));
        let &(pass, account) = self.waiting.iter().find(may_run)?;
        self.virtual_time = self.virtual_time.max(pass);
        let mut ticket = None;
        self.change(account, |entry| {
            ticket = entry.queue.pop_front();
            entry.running += 1;
            entry.pass += entry.cost(SLICE);
        });
        Some((account, ticket?))
    }

    /// A turn that [`pick`](Self::pick) began has ended, and took so long.
    pub(super) fn done(&mut self, account: AccountId, used: Duration, now: Duration) {
        self.change(account, |entry| {
            entry.running = entry.running.saturating_sub(1);
            entry.pass -= entry.cost(SLICE);
        });
        self.charge(account, used, now);
    }

    /// An account has used so much outside of a turn.
    pub(super) fn charge(&mut self, account: AccountId, used: Duration, now: Duration) {
        let virtual_time = self.virtual_time;
        self.change(account, |entry| {
            let most = entry.pass.max(virtual_time + entry.cost(DEBT));
            entry.pass = (entry.pass + entry.cost(used)).min(most);
            if let Some(bucket) = &mut entry.bucket {
                bucket.fill(now);
                bucket.left -= used.as_nanos() as f64;
            }
        });
    }

    /// How long the ceiling of an account keeps it from having a turn.
    pub(super) fn held_back(&mut self, account: AccountId, now: Duration) -> Duration {
        let bucket = self.accounts.get_mut(&account).and_then(|entry| entry.bucket.as_mut());
        bucket.map_or(Duration::ZERO, |bucket| {
            bucket.fill(now);
            bucket.wait()
        })
    }

    /// Changes an account, and keeps its place among those that wait.
    fn change(&mut self, account: AccountId, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.accounts.get_mut(&account) else { return };
        let (before, waited) = (entry.pass, !entry.queue.is_empty());
        change(entry);
        let waits = !entry.queue.is_empty();
        if waited && (!waits || entry.pass != before) {
            self.waiting.remove(&(before, account));
        }
        if waits {
            self.waiting.insert((entry.pass, account));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rules(weight: u32) -> Rules {
        Rules { weight, ceiling: None, at_once: u32::MAX }
    }

    /// Cores that hand out turns to tasks which always want one: what each account has used, and how long somebody
    /// waited at most.
    struct World {
        stride: Stride,
        now: Duration,
        /// When a core is free again, and who has it: account, ticket, when it began.
        cores: Vec<Option<(Duration, AccountId, Ticket, Duration)>>,
        used: BTreeMap<AccountId, Duration>,
        waits_since: BTreeMap<Ticket, Duration>,
        waited_most: Duration,
        seed: u64,
    }

    impl World {
        fn new(cores: usize) -> Self {
            Self {
                stride: Stride::default(),
                now: Duration::ZERO,
                cores: vec![None; cores],
                used: BTreeMap::new(),
                waits_since: BTreeMap::new(),
                waited_most: Duration::ZERO,
                seed: 7,
            }
        }

        fn add(&mut self, account: AccountId, rules: Rules, tasks: u64) {
            self.stride.set(account, rules, self.now);
            for task in 0..tasks {
                self.enqueue(account, account * 1000 + task, false);
            }
        }

        fn enqueue(&mut self, account: AccountId, ticket: Ticket, again: bool) {
            self.stride.enqueue(account, ticket, again);
            self.waits_since.insert(ticket, self.now);
        }

        fn random(&mut self) -> u64 {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.seed >> 33
        }

        /// Runs on for so long; `slice` is how long a turn of an account is, for a random number.
        fn run(&mut self, time: Duration, slice: impl Fn(AccountId, u64) -> Duration) {
            let end = self.now + time;
            while self.now < end {
                for core in 0..self.cores.len() {
                    if self.cores[core].is_none()
                        && let Some((account, ticket)) = self.stride.pick(self.now)
                    {
                        let waited = self.now - self.waits_since[&ticket];
                        self.waited_most = self.waited_most.max(waited);
                        let random = self.random();
                        let until = self.now + slice(account, random);
                        self.cores[core] = Some((until, account, ticket, self.now));
                    }
                }
                let next = self.cores.iter().flatten().map(|turn| turn.0).min();
                // Nobody runs: all are held back by their ceilings.
                self.now = next.unwrap_or(self.now + MS / 10);
                for core in 0..self.cores.len() {
                    if let Some((until, account, ticket, began)) = self.cores[core]
                        && until <= self.now
                    {
                        self.cores[core] = None;
                        *self.used.entry(account).or_default() += until - began;
                        self.stride.done(account, until - began, self.now);
                        self.enqueue(account, ticket, true);
                    }
                }
            }
        }

        fn used(&self, account: AccountId) -> f64 {
            self.used.get(&account).copied().unwrap_or_default().as_secs_f64()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn accounts_that_always_want_more_get_their_shares_in_the_long_run(
            weights in prop::collection::vec(1u32..=20, 2..6), cores in 1usize..4, tasks in 4u64..9,
        ) {
            let mut world = World::new(cores);
            for (account, weight) in weights.iter().enumerate() {
                world.add(account as u64, rules(*weight), tasks);
            }
            // Whoever takes longer turns gets no more for it.
            world.run(Duration::from_secs(60), |account, random| {
                Duration::from_micros(100 + random % 1_000) * (1 + account as u32 % 3)
            });
            let (whole, all) = (60.0 * cores as f64, f64::from(weights.iter().sum::<u32>()));
            for (account, weight) in weights.iter().enumerate() {
                let fair = (f64::from(*weight) / all * whole).min(60.0 * tasks as f64);
                let used = world.used(account as u64);
                prop_assert!((used - fair).abs() <= 0.03 * fair + 0.05, "{account}: {used} of {fair}, {weights:?}");
            }
        }

        #[test]
        fn nobody_starves(weights in prop::collection::vec(prop::sample::select(vec![1u32, 100, 10_000]), 2..5)) {
            let mut world = World::new(2);
            for (account, weight) in weights.iter().enumerate() {
                world.add(account as u64, rules(*weight), 1);
            }
            world.run(Duration::from_secs(100), |_, random| Duration::from_micros(random % 1_500));
            for account in 0..weights.len() as u64 {
                prop_assert!(world.used(account) > 0.0, "{account} of {weights:?}");
            }
        }

        #[test]
        fn an_account_that_was_idle_gets_no_credit_for_it(idle_seconds in 1u64..50, weight in 1u32..10) {
            let mut world = World::new(2);
            world.add(1, rules(weight), 4);
            world.stride.set(2, rules(weight), Duration::ZERO);
            world.run(Duration::from_secs(idle_seconds), |_, _| MS);
            let before = world.used(1);
            for task in 0..4 {
                world.enqueue(2, 2000 + task, false);
            }
            world.run(Duration::from_secs(1), |_, _| MS);
            let (one, two) = (world.used(1) - before, world.used(2));
            prop_assert!((one - two).abs() <= 0.03, "{one} and {two}");
        }

        #[test]
        fn a_ceiling_holds_in_every_stretch_of_time(
            cores in 0.05f64..1.5, slice in 50u64..3_000, others in 0u64..3,
        ) {
            let mut world = World::new(2);
            world.add(1, Rules { ceiling: Some(cores), ..rules(100) }, 3);
            world.add(2, rules(100), others);
            let mut before = 0.0;
            for stretch in 0..10 {
                world.run(Duration::from_secs(2), |_, _| Duration::from_micros(slice));
                let used = world.used(1) - before;
                before = world.used(1);
                // What was saved up, and what was running at both ends.
                let most = 2.0 * cores + (cores * BURST.as_secs_f64()).max(0.002) + 4.0 * slice as f64 / 1e6;
                prop_assert!(used <= most, "{used} of {most} in stretch {stretch}");
                let fair = if others == 0 { 2.0 * cores } else { (2.0 * cores).min(2.0) };
                prop_assert!(used >= 0.9 * fair - 0.02, "{used} of {fair} in stretch {stretch}");
            }
        }
    }

    #[test]
    fn one_task_among_many_of_another_account_has_a_core_for_itself() {
        let mut world = World::new(2);
        world.add(1, rules(100), 8);
        world.add(2, rules(100), 1);
        world.run(Duration::from_secs(10), |_, _| MS);
        assert!(world.used(2) > 9.0, "{}", world.used(2));
    }

    #[test]
    fn what_was_used_at_once_is_owed_for_a_bounded_time() {
        let mut world = World::new(1);
        world.add(1, rules(100), 1);
        world.add(2, rules(100), 1);
        world.run(Duration::from_secs(1), |_, _| MS);
        world.stride.charge(1, Duration::from_secs(3_600), world.now);
        let before = world.used(1);
        world.run(Duration::from_secs(3), |_, _| MS);
        let used = world.used(1) - before;
        assert!((0.9..1.1).contains(&used), "{used}");
    }

    #[test]
    fn so_many_turns_at_once_and_no_more() {
        let mut stride = Stride::default();
        stride.set(1, Rules { at_once: 1, ..rules(1) }, MS);
        stride.set(2, Rules { at_once: 1, ..rules(1) }, MS);
        for (account, ticket) in [(1, 10), (1, 11), (2, 20)] {
            stride.enqueue(account, ticket, false);
        }
        let mut picked = [stride.pick(MS), stride.pick(MS)];
        picked.sort_unstable();
        assert_eq!(picked, [Some((1, 10)), Some((2, 20))]);
        assert_eq!(stride.pick(MS), None);
        stride.done(1, MS, MS);
        assert_eq!(stride.pick(MS), Some((1, 11)));
    }

    #[test]
    fn what_waits_no_more_is_not_picked() {
        let mut stride = Stride::default();
        stride.set(1, rules(1), MS);
        stride.enqueue(1, 10, false);
        stride.enqueue(1, 11, false);
        stride.cancel(1, 10);
        assert_eq!(stride.pick(MS), Some((1, 11)));
        assert_eq!(stride.pick(MS), None);
        stride.enqueue(1, 12, false);
        stride.remove(1);
        assert_eq!(stride.pick(MS), None);
    }
}
