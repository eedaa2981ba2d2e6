//! Mutants: what the program would be with one of its rules left out. Each is a switch at the one place that keeps the rule, compiled
//! for tests alone; the auditor has to object to every one of them, or it does not see what it is there to see.

use std::cell::Cell;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A pack counts as durable before it is (I1).
    ManifestBeforePack,
    /// Sinks commit what the manifest is going to name (I4).
    CommitBeforeManifest,
    /// What sinks staged for an attempt that failed is dropped while the job lives (I5).
    FailedOutputDiscarded,
    /// After a lost snapshot the next one is not full (I8).
    FailedDeltasForgotten,
    /// A run begins without an entry in the log (I7).
    ClaimOutsideTheLog,
    /// A writer looks for claims and boundaries before its put, and not after it (I7).
    FenceBeforePut,
    /// "Already exists" means that somebody else was there (I6).
    ExistsMeansLost,
    /// "Already exists" means that the own bytes are there (I6).
    ExistsMeansWritten,
    /// The next manifest does not wait until the last one is committed (I13).
    SecondOpenCommit,
    /// The collector goes by the age of a pack and not by who names it (I9).
    DeletionByAge,
    /// A pack is not written if one with the same content is there; the manifest names that one (I8).
    ReuseBecauseItExists,
    /// A destination does not know what it has committed (I4).
    ForgetfulDestination,
}

impl Mutant {
    /// By the number of which invariant the auditor has to object.
    pub(crate) fn breaks(self) -> &'static [&'static str] {
        match self {
            Self::ManifestBeforePack => &["I1"],
            Self::CommitBeforeManifest => &["I4"],
            Self::FailedOutputDiscarded => &["I5", "I11"],
            Self::FailedDeltasForgotten => &["I2", "I8"],
            Self::ClaimOutsideTheLog => &["I5", "I6", "I7", "I9"],
            Self::FenceBeforePut => &["I4", "I7"],
            Self::ExistsMeansLost => &["I6", "I9"],
            Self::ExistsMeansWritten => &["I4", "I6", "I7"],
            Self::SecondOpenCommit => &["I13"],
            Self::DeletionByAge => &["I1", "I9"],
            Self::ReuseBecauseItExists => &["I8", "I9"],
            Self::ForgetfulDestination => &["I4"],
        }
    }
}

thread_local! {
    static MUTANT: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Whether the program of this thread is this mutant.
pub(crate) fn mutant(which: Mutant) -> bool {
    MUTANT.get() == Some(which)
}

/// Runs seeds as a mutant until the auditor objects; then the same seeds as the program is.
///
/// # Panics
///
/// If nobody objects in time, or for another reason than the one that the mutant gives.
pub(crate) fn catch(which: Mutant, seeds_max: u64, simulate: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let caught = (1..=seeds_max).find_map(|seed| {
        let ended = std::panic::catch_unwind(|| with_mutant(Some(which), || simulate(seed)));
        Some((seed, ended.err()?))
    });
    let (seed, objection) = caught.unwrap_or_else(|| panic!("{which:?} was not caught by {seeds_max} seeds"));
    let objection = objection.downcast_ref::<String>().cloned().unwrap_or_default();
    let is_right = which.breaks().iter().any(|invariant| objection.contains(&format!("{invariant}:")));
    assert!(is_right, "{which:?} breaks {:?}, and seed {seed} ended with: {objection}", which.breaks());
    (1..=seed).for_each(simulate);
    eprintln!("{which:?} is caught by seed {seed}: {objection}");
}

/// Runs something as a mutant.
pub(crate) fn with_mutant<T>(which: Option<Mutant>, run: impl FnOnce() -> T) -> T {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            MUTANT.set(None);
        }
    }
    let _reset = Reset;
    MUTANT.set(which);
    run()
}
