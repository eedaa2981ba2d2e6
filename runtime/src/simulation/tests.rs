//! Many seeds of the whole job, every situation, and every mutant.

use super::mutants::{Mutant, catch};
use super::situations::table;
use super::world::{simulate, simulate_all};

#[test]
fn every_seed_of_the_whole_job_keeps_the_invariants() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let first = number("WEIR_SEED");
    let seeds = if first.is_some() { 1 } else { number("WEIR_JOB_SEEDS").unwrap_or(200) };
    let first = first.unwrap_or(1);
    let seen =
        simulate_all(first..first + seeds, "cargo test --release -p weir --lib every_seed_of_the_whole_job", |seed| {
            simulate(seed).seen
        });
    let (text, missing) = table(&format!("{seeds} seeds of the whole job"), &[], &seen);
    eprintln!("{text}");
    assert!(missing.is_empty(), "never happened: {missing:?}");
}

#[test]
fn a_seed_does_the_same_every_time() {
    for seed in 1..10 {
        assert_eq!(simulate(seed).trace, simulate(seed).trace, "seed {seed}");
    }
}

#[test]
fn each_mutant_of_the_whole_job_is_caught() {
    for (which, seeds_max) in [
        (Mutant::ManifestBeforePack, 50),
        (Mutant::CommitBeforeManifest, 20),
        (Mutant::FailedOutputDiscarded, 100),
        (Mutant::FailedDeltasForgotten, 300),
        (Mutant::ClaimOutsideTheLog, 50),
        (Mutant::ExistsMeansLost, 300),
        (Mutant::ExistsMeansWritten, 300),
        (Mutant::SecondOpenCommit, 20),
        (Mutant::DeletionByAge, 100),
        (Mutant::ForgetfulDestination, 100),
    ] {
        catch(which, seeds_max, |seed| drop(simulate(seed)));
    }
}
