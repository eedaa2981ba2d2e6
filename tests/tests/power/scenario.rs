//! `weir run`, recorded to its end; the power goes at many moments of it, and once more while the next run recovers.
//!
//! Invariants: I1, I2, I4, I5, I10, I13, and the last row of the crash table (`runtime/src/checkpoint.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::image::Image;
use crate::loss::Loss;
use crate::place::{KEYS, Output, Place, RECORDS};
use crate::promises::{Known, ROWS, Row, number, visible};
use crate::record::Record;
use crate::recorder::Recording;

const SEED: u64 = 0x90e4_0ff5;
const EPOCHS_MIN: usize = 5;
/// Runs from images of chance, beside those of every durable step of some commits.
const CHANCES: usize = 60;
const CHANCES_IN_RECOVERY: usize = 12;

fn chance(random: &mut Xoshiro256PlusPlus) -> Loss {
    let seed = random.next_u64();
    match random.next_u64() % 4 {
        0 => Loss::Everything,
        1 => Loss::Journal(seed),
        2 => Loss::Prefixes(seed),
        _ => Loss::Parts(seed),
    }
}

/// The first fault in images of all moments: the worst of each, and one of chance.
fn first_fault(recording: &Recording, known: &Known, random: &mut Xoshiro256PlusPlus) -> Option<String> {
    let mut promised = BTreeSet::new();
    let mut fault = None;
    recording.moments(|moment, disk| {
        if fault.is_some() {
            return;
        }
        let (seen, worst) = (disk.image(Loss::Nothing), disk.image(Loss::Everything));
        let loss = chance(random);
        for (loss, image) in [(Loss::Everything, &worst), (loss, &disk.image(loss))] {
            if let Err(found) = known.check(image, &seen, &promised) {
                fault.get_or_insert(format!("moment {moment}, {loss:?}: {found}"));
            }
        }
        promised.extend(visible(&worst));
    });
    fault
}

/// The moments from the checkpoint of an epoch, as it gets its name in the log, to the marker of its commit and a little
/// after.
fn commit_of(recording: &Recording, epoch: u64) -> std::ops::Range<usize> {
    let links = recording.records.iter().enumerate().filter_map(|(index, record)| match record {
        Record::Link { to, .. } => Some((index, PathBuf::from(String::from_utf8_lossy(to).into_owned()))),
        _ => None,
    });
    let mut begin = 0;
    for (index, path) in links {
        if number(&path, "log").is_some() {
            begin = index;
        } else if number(&path, "committed") == Some(epoch) {
            return begin..(index + 6).min(recording.records.len() + 1);
        }
    }
    panic!("epoch {epoch} was never marked")
}

/// Moments that are worth a run: most of them in commits, some anywhere.
fn moment_of_chance(recording: &Recording, known: &Known, random: &mut Xoshiro256PlusPlus) -> usize {
    let epochs: Vec<u64> = known.epochs().into_iter().collect();
    if random.next_u64().is_multiple_of(3) || epochs.is_empty() {
        return random.next_u64() as usize % (recording.records.len() + 1);
    }
    let commit = commit_of(recording, epochs[random.next_u64() as usize % epochs.len()]);
    commit.start + random.next_u64() as usize % commit.len()
}

/// Runs on from images, and says which rows they were.
struct Recoveries<'a> {
    place: &'a Place,
    expected: &'a Output,
    rows: BTreeMap<Row, usize>,
}

impl Recoveries<'_> {
    fn run(&mut self, known: &Known, image: &Image, moment: impl std::fmt::Display) {
        let fault = match self.place.run(image) {
            Ok(output) if output == *self.expected => {
                *self.rows.entry(known.shown(image).row()).or_default() += 1;
                return;
            }
            Ok(output) => format!("{} records instead of {}", output.mirror.len(), self.expected.mirror.len()),
            Err(fault) => fault,
        };
        panic!("the power went at {moment} ({:?}), {}: {fault}", known.shown(image), self.place.keep(image).display());
    }

    /// From each different worst image of some moments.
    fn run_all(&mut self, recording: &Recording, known: &Known, moments: impl Iterator<Item = usize>) {
        let mut last = None;
        for moment in moments {
            let image = recording.at(moment).image(Loss::Everything);
            if last.as_ref().is_none_or(|last| image.difference(last).is_some()) {
                self.run(known, &image, format_args!("moment {moment}, with all that was not synced"));
                last = Some(image);
            }
        }
    }
}

/// What a run comes to that nobody disturbs.
fn undisturbed(place: &Place) -> Output {
    let output = place.run(&Image::default()).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!((output.mirror.len(), output.counts.len()), (RECORDS, KEYS));
    for counts in output.counts.values() {
        assert!(counts.iter().copied().eq(1..=counts.len() as u64), "each key is counted from one: {counts:?}");
    }
    output
}

#[test]
fn output_is_that_of_an_undisturbed_run_when_the_power_goes_at_any_moment() {
    let place = Place::new(SEED);
    let expected = undisturbed(&place);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);

    // 2 seconds, with a checkpoint in each tenth.
    let (output, recording) = place.record(&Image::default(), "rate = 3_000");
    assert!(output == expected);
    let len = recording.records.len();
    let end = recording.at(len).image(Loss::Everything);
    assert_eq!(visible(&end), visible(&recording.at(len).image(Loss::Nothing)), "all that is published is durable");
    let mut known = Known::default();
    known.extend(&recording.records, &end);
    let epochs: Vec<u64> = known.epochs().into_iter().collect();
    assert!(epochs.len() >= EPOCHS_MIN, "{epochs:?}");
    assert_eq!(first_fault(&recording, &known, &mut random), None);

    let mut recoveries = Recoveries { place: &place, expected: &expected, rows: BTreeMap::new() };
    // Each step by which something becomes durable: in the first start, in a commit, and from the last commit to the end.
    let first = commit_of(&recording, epochs[0]).start;
    recoveries.run_all(&recording, &known, (0..first).step_by(first / 20));
    recoveries.run_all(&recording, &known, commit_of(&recording, epochs[epochs.len() / 2]));
    recoveries.run_all(&recording, &known, commit_of(&recording, epochs[epochs.len() - 1]).start..len + 1);
    for _ in 0..CHANCES {
        let (moment, loss) = (moment_of_chance(&recording, &known, &mut random), chance(&mut random));
        recoveries.run(&known, &recording.at(moment).image(loss), format_args!("moment {moment}, {loss:?}"));
    }

    // And again while the run recovers that found a checkpoint without its commit.
    let open = commit_of(&recording, epochs[epochs.len() / 2]).find_map(|moment| {
        let image = recording.at(moment).image(Loss::Everything);
        (known.shown(&image).row() == Row::AfterTheManifestBeforeAnyCommit).then_some(image)
    });
    let (output, again) = place.record(&open.expect("a commit begins with a checkpoint"), "");
    assert!(output == expected);
    known.extend(&again.records, &again.at(again.records.len()).image(Loss::Everything));
    assert_eq!(first_fault(&again, &known, &mut random), None);
    for _ in 0..CHANCES_IN_RECOVERY {
        let (moment, loss) = (random.next_u64() as usize % (again.records.len() + 1), chance(&mut random));
        recoveries.run(&known, &again.at(moment).image(loss), format_args!("moment {moment} of a recovery, {loss:?}"));
    }

    println!("{len} calls, {} epochs, {:?}", epochs.len(), recoveries.rows);
    for row in ROWS {
        assert!(recoveries.rows.contains_key(&row), "no loss hit the row {row:?}: {:?}", recoveries.rows);
    }
    mutants(&place, &recording, &known, &expected);
}

/// The same run, had it forgotten to sync one kind of file or folder: each is found out, so the test can fail.
fn mutants(place: &Place, recording: &Recording, known: &Known, expected: &Output) {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let parent = |path: &Path| path.parent().map(name).unwrap_or_default();
    type Kind<'a> = (&'a str, Box<dyn Fn(&Path) -> bool + 'a>);
    let kinds: [Kind<'_>; 7] = [
        ("the parts", Box::new(|path| name(path) == "open")),
        ("_commit.json", Box::new(|path| name(path) == "_commit.json")),
        ("the assembly", Box::new(|path| name(path).starts_with("epoch-"))),
        ("the folder of a sink", Box::new(|path| path == Path::new("counts"))),
        ("the entries of the log", Box::new(|path| parent(path) == "log")),
        ("the folder of the log", Box::new(|path| name(path) == "log")),
        ("the packs", Box::new(|path| parent(path) == "packs")),
    ];
    for (kind, forgets) in kinds {
        let mutant = recording.without_syncs(forgets);
        assert!(mutant.records.len() < recording.records.len(), "{kind} were never synced");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let fault = first_fault(&mutant, known, &mut random);
        // What is in a pack only the next run knows.
        let epoch = known.epochs().into_iter().nth(EPOCHS_MIN / 2).unwrap_or_default();
        let image = || mutant.at(commit_of(&mutant, epoch).end - 1).image(Loss::Everything);
        let found = fault.or_else(|| match place.run(&image()) {
            Ok(output) => (output != *expected).then(|| "another output".into()),
            Err(fault) => Some(fault),
        });
        assert!(found.is_some(), "nobody noticed that {kind} were not synced");
    }
}
