//! Many seeds of the whole job, every situation, and every mutant.

use super::mutants::{Mutant, catch};
use super::situations::table;
use super::world::{simulate, simulate_all};

/// What has to come up in many seeds.
const SITUATIONS: [&str; 45] = [
    "--from refused",
    "abandoned stepwise snapshot",
    "attempt failed while the job lives",
    "checkpoint",
    "claim between put and commit",
    "claim on an older checkpoint",
    "claim while the run before lives",
    "collected to the end",
    "commit applied but reported failed",
    "commit recognised by its identity",
    "commit still open when the next epoch is due",
    "commit tried again",
    "died after its claim",
    "died after the marker",
    "died before any commit",
    "died before the manifest",
    "died before the marker",
    "died between the commits of two sinks",
    "empty epoch",
    "finished",
    "finished job restarted",
    "fresh",
    "given up with an error",
    "listing late",
    "marker in doubt",
    "open checkpoint given up by --from",
    "pack deleted",
    "put after its name was collected",
    "put applied but reported failed",
    "put in doubt",
    "restart after a failure",
    "restart in the same process",
    "restore with an open commit",
    "savepoint held while packs are collected around it",
    "snapshot in several steps",
    "staged output discarded by a restore",
    "stalled run wakes up after collection",
    "start from a savepoint that the log has no more",
    "state of a failed attempt carried",
    "stopped",
    "subsumed attempt",
    "superseded",
    "upgrade given up",
    "upgrade taken back",
    "upgraded",
];

#[test]
fn every_seed_of_the_whole_job_keeps_the_invariants() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let first = number("WEIR_SEED");
    let seeds = if first.is_some() { 1 } else { number("WEIR_JOB_SEEDS").unwrap_or(150) };
    let first = first.unwrap_or(1);
    let seen =
        simulate_all(first..first + seeds, "cargo test --release -p weir --lib every_seed_of_the_whole_job", |seed| {
            simulate(seed).seen
        });
    let (text, missing) = table(&format!("{seeds} seeds of the whole job"), &SITUATIONS, &seen);
    eprintln!("{text}");
    // A simulation in which nothing happens would hold everything.
    assert!(seeds < 2_000 || missing.is_empty(), "never happened: {missing:?}");
}

#[test]
fn a_seed_does_the_same_every_time() {
    for seed in 1..10 {
        assert_eq!(simulate(seed).trace, simulate(seed).trace, "seed {seed}");
    }
}

/// A test for each mutant: that it is caught by so many seeds at most, and that the program itself passes them.
macro_rules! mutants {
    ($($name:ident: $which:ident by $seeds_max:literal,)*) => {
        $(
            #[test]
            fn $name() {
                catch(Mutant::$which, $seeds_max, |seed| drop(simulate(seed)));
            }
        )*
    };
}

mutants! {
    a_manifest_before_its_packs_is_caught: ManifestBeforePack by 50,
    a_commit_before_its_manifest_is_caught: CommitBeforeManifest by 20,
    output_of_a_failed_attempt_discarded_while_the_job_lives_is_caught: FailedOutputDiscarded by 100,
    deltas_of_a_failed_attempt_forgotten_are_caught: FailedDeltasForgotten by 300,
    a_claim_outside_the_log_is_caught: ClaimOutsideTheLog by 50,
    already_exists_taken_for_lost_is_caught: ExistsMeansLost by 600,
    already_exists_taken_for_written_is_caught: ExistsMeansWritten by 300,
    a_second_open_commit_is_caught: SecondOpenCommit by 20,
    deletion_by_age_is_caught: DeletionByAge by 100,
    a_destination_that_forgets_identities_is_caught: ForgetfulDestination by 100,
}
