//! Linear memory of all instances: counted by account and for the process.
//!
//! An account that is over its own limit is refused what it asks for. When the *process* comes near its ceiling,
//! somebody has to go, and it is never whoever asks last by accident: of the accounts that have more than their fair
//! share of the ceiling the one that is most above it loses its heaviest instance. That instance is told why, at its
//! next tick or call, and its memory goes back then. At the ceiling itself nothing grows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::stride::AccountId;
use super::{Account, Quota};
use crate::model::bytes;

/// The memory of every instance.
#[derive(Debug)]
pub(super) struct Pool {
    ceiling: Option<u64>,
    total: AtomicU64,
    next: AtomicU64,
    instances: Mutex<BTreeMap<u64, Arc<Held>>>,
}

/// What one instance holds.
#[derive(Debug)]
struct Held {
    account: AccountId,
    weight: Arc<AtomicU64>,
    bytes: AtomicU64,
    /// The share that its account has more than, if it has to go for that; else 0.
    doomed: AtomicU64,
}

impl Pool {
    pub(super) fn new(ceiling: Option<u64>) -> Self {
        Self { ceiling, total: AtomicU64::new(0), next: AtomicU64::new(0), instances: Mutex::default() }
    }

    pub(super) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    fn instances(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Held>>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks who has to go so that `wanted` more bytes fit below the ceiling, with some room.
    fn make_room(&self, ceiling: u64, wanted: u64) {
        let instances = self.instances();
        let all: Vec<Part> = instances.iter().map(|(number, held)| Part::of(*number, held)).collect();
        let going: u64 = all.iter().filter(|part| part.doomed).map(|part| part.bytes).sum();
        if self.total().saturating_sub(going).saturating_add(wanted) <= soft(ceiling) {
            return;
        }
        if let Some((number, share)) = heaviest(&all, ceiling)
            && let Some(held) = instances.get(&number)
        {
            held.doomed.store(share.max(1), Ordering::SeqCst);
        }
    }
}

/// From here on there is pressure.
fn soft(ceiling: u64) -> u64 {
    ceiling - ceiling / 16
}

/// One instance, for the decision.
#[derive(Clone, Copy, Debug)]
struct Part {
    number: u64,
    account: AccountId,
    weight: u64,
    bytes: u64,
    doomed: bool,
}

impl Part {
    fn of(number: u64, held: &Held) -> Self {
        Self {
            number,
            account: held.account,
            weight: held.weight.load(Ordering::Relaxed),
            bytes: held.bytes.load(Ordering::Relaxed),
            doomed: held.doomed.load(Ordering::Relaxed) > 0,
        }
    }
}

/// Who has to go: the heaviest instance of the account that is most above its share of the ceiling, and that share.
/// None if no account is.
fn heaviest(all: &[Part], ceiling: u64) -> Option<(u64, u64)> {
    let mut accounts: BTreeMap<AccountId, (u64, u64)> = BTreeMap::new();
    for part in all.iter().filter(|part| !part.doomed) {
        let (weight, held) = accounts.entry(part.account).or_default();
        *weight = part.weight.max(1);
        *held += part.bytes;
    }
    let weights: u64 = accounts.values().map(|(weight, _)| weight).sum();
    let share = |weight: u64| u128::from(soft(ceiling)) * u128::from(weight) / u128::from(weights.max(1));
    let above = |(account, (weight, held)): (&AccountId, &(u64, u64))| {
        let share = share(*weight);
        let above = u128::from(*held).saturating_sub(share);
        (above > 0).then_some((above, *account, share))
    };
    let (_, account, share) = accounts.iter().filter_map(above).max()?;
    let parts = all.iter().filter(|part| part.account == account && !part.doomed);
    let part = parts.max_by_key(|part| (part.bytes, part.number))?;
    Some((part.number, u64::try_from(share).unwrap_or(u64::MAX)))
}

/// The memory of one instance. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct InstanceMemory {
    account: Account,
    number: u64,
    held: Arc<Held>,
}

impl InstanceMemory {
    /// Of an instance of an account, which has none yet.
    pub(crate) fn new(account: Account) -> Self {
        let pool = &account.0.shared.memory;
        let number = pool.next.fetch_add(1, Ordering::Relaxed);
        let (bytes, doomed) = (AtomicU64::new(0), AtomicU64::new(0));
        let held = Arc::new(Held { account: account.0.id, weight: Arc::clone(&account.0.weight), bytes, doomed });
        pool.instances().insert(number, Arc::clone(&held));
        Self { account, number, held }
    }

    /// Takes so much more.
    pub(crate) fn grow(&self, more: u64) -> Result<(), Quota> {
        let account = &self.account.0;
        let limit = account.memory_max.load(Ordering::Relaxed);
        let took = account.memory.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |held| {
            held.checked_add(more).filter(|sum| *sum <= limit)
        });
        if let Err(held) = took {
            let what = "memory of all its instances";
            return Err(self.account.quota(what, bytes(limit), bytes(held.saturating_add(more))));
        }
        if let Err(breach) = self.fit(more) {
            account.memory.fetch_sub(more, Ordering::SeqCst);
            return Err(breach);
        }
        self.held.bytes.fetch_add(more, Ordering::SeqCst);
        Ok(())
    }

    /// Takes it from what the process has.
    fn fit(&self, more: u64) -> Result<(), Quota> {
        let pool = &self.account.0.shared.memory;
        let before = pool.total.fetch_add(more, Ordering::SeqCst);
        let Some(ceiling) = pool.ceiling else { return Ok(()) };
        let after = before.saturating_add(more);
        if after <= soft(ceiling) {
            return Ok(());
        }
        // It counts itself as it will be.
        self.held.bytes.fetch_add(more, Ordering::SeqCst);
        pool.make_room(ceiling, 0);
        self.held.bytes.fetch_sub(more, Ordering::SeqCst);
        let room = if after <= ceiling { Ok(()) } else { Err(Quota::Process { limit: ceiling, value: after }) };
        let fits = self.check().and(room);
        if fits.is_err() {
            pool.total.fetch_sub(more, Ordering::SeqCst);
        }
        fits
    }

    /// Whether it may stay.
    pub(crate) fn check(&self) -> Result<(), Quota> {
        let share = self.held.doomed.load(Ordering::Relaxed);
        if share == 0 {
            return Ok(());
        }
        let what = "memory, its share while this process is short of it";
        Err(self.account.quota(what, bytes(share), bytes(self.account.0.memory.load(Ordering::Relaxed))))
    }
}

impl Drop for InstanceMemory {
    fn drop(&mut self) {
        let pool = &self.account.0.shared.memory;
        pool.instances().remove(&self.number);
        let held = self.held.bytes.load(Ordering::SeqCst);
        pool.total.fetch_sub(held, Ordering::SeqCst);
        self.account.0.memory.fetch_sub(held, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::AccountLimits;
    use super::super::tests::accounts;
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn an_account_is_refused_more_than_its_limit_over_all_instances_and_the_error_names_it() {
        let accounts = accounts(2, None);
        let limits = AccountLimits { memory_bytes: Some(3 * MIB), ..AccountLimits::default() };
        let account = accounts.account("anna", limits);
        let (one, two) = (InstanceMemory::new(account.clone()), InstanceMemory::new(account.clone()));
        assert!(one.grow(2 * MIB).is_ok());
        let error = two.grow(2 * MIB).expect_err("too much");
        assert_eq!(error.to_string(), "quota of anna, 3 MiB memory of all its instances: 4 MiB");
        assert!(two.grow(MIB).is_ok());
        drop(one);
        assert_eq!(account.usage().memory_bytes, MIB);
        assert!(two.grow(2 * MIB).is_ok());
        drop(two);
        assert_eq!((account.usage().memory_bytes, accounts.memory_bytes()), (0, 0));
    }

    #[test]
    fn near_the_ceiling_the_heaviest_instance_of_whoever_is_most_above_its_share_has_to_go() {
        let accounts = accounts(2, Some(160 * MIB));
        let new = |name: &str| accounts.account(name, AccountLimits::default());
        let (hog, small) = (new("hog"), new("small"));
        let hogs: Vec<_> = [30, 60, 40].map(|mib| (InstanceMemory::new(hog.clone()), mib * MIB)).into();
        for (memory, size) in &hogs {
            assert!(memory.grow(*size).is_ok());
        }
        let modest = InstanceMemory::new(small.clone());
        assert!(modest.grow(19 * MIB).is_ok(), "it is above no share, so it may");
        assert!(modest.grow(MIB).is_ok());
        assert!(modest.grow(2 * MIB).is_ok(), "somebody has to go, and it is another");
        assert!(modest.check().is_ok());
        let going: Vec<bool> = hogs.iter().map(|(memory, _)| memory.check().is_err()).collect();
        assert_eq!(going, [false, true, false]);
        let error = hogs[1].0.check().expect_err("it has to go").to_string();
        assert!(error.starts_with("quota of hog, 75 MiB memory, its share while"), "{error}");
        // While that has not gone, nobody else has to.
        assert!(modest.grow(MIB).is_ok());
        assert!(hogs[0].0.check().is_ok() && hogs[2].0.check().is_ok());
        // And nothing grows beyond the ceiling.
        let error = modest.grow(44 * MIB).expect_err("it is full").to_string();
        assert!(error.contains("memory of all plugins in this process"), "{error}");
        assert!(modest.check().is_ok());
        assert_eq!(accounts.memory_bytes(), 153 * MIB);
    }

    proptest! {
        #[test]
        fn who_has_to_go_is_above_its_share_and_the_heaviest_of_its_account(
            parts in prop::collection::vec((0u64..5, 0u64..1000, prop::bool::weighted(0.2)), 0..20),
            weights in prop::collection::vec(1u64..10, 5),
            ceiling in 1u64..10_000,
        ) {
            let all: Vec<Part> = parts.iter().enumerate().map(|(number, (account, bytes, doomed))| Part {
                number: number as u64,
                account: *account,
                weight: weights[*account as usize],
                bytes: *bytes,
                doomed: *doomed,
            }).collect();
            let live = || all.iter().filter(|part| !part.doomed);
            match heaviest(&all, ceiling) {
                None => {
                    let total: u64 = live().map(|part| part.bytes).sum();
                    prop_assert!(total <= soft(ceiling), "{total} of {ceiling}");
                }
                Some((number, _)) => {
                    let gone = all[number as usize];
                    prop_assert!(!gone.doomed);
                    let own: u64 = live().filter(|part| part.account == gone.account).map(|part| part.bytes).sum();
                    let there: std::collections::BTreeSet<_> = live().map(|part| part.account).collect();
                    let sum: u64 = there.iter().map(|account| weights[*account as usize]).sum();
                    prop_assert!(own as f64 > soft(ceiling) as f64 * gone.weight as f64 / sum as f64 - 1.0);
                    prop_assert!(live().all(|part| part.account != gone.account || part.bytes <= gone.bytes));
                }
            }
        }
    }
}
