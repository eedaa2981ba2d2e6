//! Keyed state against a plain map: whatever is done, in whatever steps a snapshot is taken, what is restored is what was there
//! at the cut, and a restored operator writes the same bytes from then on as one that has run on.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_sdk::state::{KeyedState, Segments};
use weir_sdk::testing::{Checkpoint, Harness, subtask};
use weir_sdk::{
    BatchView, Cut, Descriptor, Failure, Operator, Output, Progress, SnapshotMode, SnapshotReader, SnapshotWriter,
    StateKind, Stateful, TaskInfo,
};

struct Two {
    numbers: KeyedState<u64>,
    texts: KeyedState<Vec<u8>>,
    segments: Segments,
}

impl Operator for Two {
    fn descriptor() -> Descriptor {
        Descriptor::new("two", "1.0.0").keyed_input("in", "").state(StateKind::Keyed, 1)
    }

    fn open(_: &str, task: &TaskInfo) -> Result<Self, Failure> {
        Ok(Self {
            numbers: KeyedState::new("numbers", task),
            texts: KeyedState::new("texts", task),
            segments: Segments::new(task),
        })
    }

    fn process(&mut self, _: u32, batch: BatchView<'_>, _: &mut Output) -> Result<Progress, Failure> {
        self.numbers.update_batch(batch, |_, number| *number += 1);
        Ok(Progress::Done)
    }
}

impl Stateful for Two {
    fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
        self.segments.snapshot(cut, writer, &mut [&mut self.numbers, &mut self.texts])
    }

    fn restore(&mut self, _: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
        self.segments.restore(reader, &mut [&mut self.numbers, &mut self.texts])
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    numbers: BTreeMap<Vec<u8>, u64>,
    texts: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn contents(two: &Two) -> Model {
    let mut model = Model::default();
    two.numbers.for_each(|key, number| assert_eq!(model.numbers.insert(key.to_vec(), *number), None));
    two.texts.for_each(|key, text| assert_eq!(model.texts.insert(key.to_vec(), text.clone()), None));
    assert_eq!(two.numbers.len(), model.numbers.len());
    assert_eq!(two.texts.len(), model.texts.len());
    model
}

#[derive(Clone, Debug)]
enum Step {
    Add(u16, u64),
    RemoveNumber(u16),
    SetText(u16, usize),
    RemoveText(u16),
    Begin,
    Full,
    Advance(usize),
    Restore,
}

/// Keys of all lengths, some long, in few key groups so that tables get crowded.
fn key(number: u16) -> Vec<u8> {
    let length = usize::from(number % 7) * 5;
    let mut key = number.to_le_bytes().to_vec();
    key.resize(2 + length, b'x');
    key
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = 0_u16..60;
    let step = prop_oneof![
        8 => (keys.clone(), 1_u64..9).prop_map(|(key, by)| Step::Add(key, by)),
        4 => keys.clone().prop_map(Step::RemoveNumber),
        3 => (keys.clone(), prop_oneof![9 => 0_usize..40, 1 => 200_000..300_000_usize]).prop_map(|(k, n)| Step::SetText(k, n)),
        2 => keys.prop_map(Step::RemoveText),
        2 => Just(Step::Begin),
        1 => Just(Step::Full),
        4 => (1_usize..20).prop_map(Step::Advance),
        1 => Just(Step::Restore),
    ];
    proptest::collection::vec(step, 0..120)
}

fn change(two: &mut Two, model: &mut Model, step: &Step) {
    match step {
        Step::Add(n, by) => {
            let key = key(*n);
            *two.numbers.value(key.as_slice()) += by;
            *model.numbers.entry(key).or_default() += by;
        }
        Step::RemoveNumber(n) => {
            let key = key(*n);
            assert_eq!(two.numbers.remove(key.as_slice()), model.numbers.remove(&key));
        }
        Step::SetText(n, length) => {
            let (key, text) = (key(*n), vec![*n as u8; *length]);
            assert_eq!(two.texts.insert(key.as_slice(), text.clone()), model.texts.insert(key, text));
        }
        Step::RemoveText(n) => {
            let key = key(*n);
            assert_eq!(two.texts.remove(key.as_slice()), model.texts.remove(&key));
        }
        _ => {}
    }
}

/// Few key groups: two subtasks' worth of keys would not be found, so there is one with all of four groups.
fn few_groups() -> TaskInfo {
    TaskInfo { key_groups: 4, end_key_group: 4, ..subtask(0, 1) }
}

fn restored(checkpoint: &Checkpoint) -> Harness<Two> {
    Harness::restore_task("{}", &few_groups(), &[checkpoint]).expect("what was written can be read")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_restored_state_is_that_of_the_cut_and_goes_on_in_the_same_bytes(steps in steps()) {
        let mut live = Harness::<Two>::with_task("{}", &few_groups()).unwrap();
        let mut model = Model::default();
        // What the open snapshot has to hold; and an operator that was restored from the last one, and has done the same since.
        let mut cut: Option<Model> = None;
        let mut twin: Option<(Harness<Two>, Model)> = None;
        let mut twin_of_cut: Option<Checkpoint> = None;
        // Whether anything was done since the last cut: to set a value that was there counts as a change, too.
        let mut is_touched = false;
        for step in &steps {
            match step {
                Step::Begin | Step::Full => {
                    let lost = cut.is_some();
                    is_touched = false;
                    let mode = if matches!(step, Step::Full) { SnapshotMode::Full } else { SnapshotMode::Incremental };
                    live.begin_snapshot(mode);
                    // A step of no chunks takes the cut.
                    let progress = live.snapshot_step(0).unwrap();
                    // The twin takes the same cut at once; it has not lost anything, so it must be told to write all.
                    twin_of_cut = twin.take().map(|(mut twin, _)| {
                        if lost || mode == SnapshotMode::Full { twin.full_snapshot() } else { twin.snapshot() }.unwrap()
                    });
                    cut = Some(model.clone());
                    if progress == Progress::Done {
                        let cut = cut.take().unwrap();
                        check(&live, &cut, twin_of_cut.take())?;
                        twin = Some((restored(live.checkpoint()), cut));
                    }
                }
                Step::Advance(chunks) => {
                    if cut.is_some() && live.snapshot_step(*chunks).unwrap() == Progress::Done {
                        let cut = cut.take().unwrap();
                        check(&live, &cut, twin_of_cut.take())?;
                        if !is_touched {
                            twin = Some((restored(live.checkpoint()), cut));
                        }
                    }
                }
                Step::Restore => {
                    if live.checkpoint().byte_len() > 0 && cut.is_none() {
                        let checkpoint = live.snapshot().unwrap();
                        live = restored(&checkpoint);
                        prop_assert_eq!(contents(&live.operator), model.clone());
                        twin = None;
                    }
                }
                change_step => {
                    is_touched = true;
                    change(&mut live.operator, &mut model, change_step);
                    if let Some((twin, twin_model)) = &mut twin {
                        change(&mut twin.operator, twin_model, change_step);
                    }
                }
            }
        }
        prop_assert_eq!(contents(&live.operator), model);
    }
}

fn check(live: &Harness<Two>, cut: &Model, twin: Option<Checkpoint>) -> Result<(), TestCaseError> {
    prop_assert_eq!(&contents(&restored(live.checkpoint()).operator), cut);
    if let Some(twin) = twin {
        prop_assert!(twin.contents() == live.checkpoint().contents(), "the twin has written other bytes");
    }
    Ok(())
}

#[test]
fn what_a_group_has_is_written_whole_when_its_changes_outweigh_it_and_not_all_groups_are_at_once() {
    let mut harness = Harness::<Two>::new("{}").unwrap();
    for n in 0..20_000_u32 {
        harness.operator.numbers.insert(&n.to_le_bytes(), 1);
    }
    let base = harness.snapshot().unwrap().byte_len();
    let (mut most, mut most_at_once) = (0, 0);
    for round in 0..400_u32 {
        for n in 0..200_u32 {
            *harness.operator.numbers.value(&(n * 97 + round).to_le_bytes()) += 1;
        }
        let checkpoint = harness.snapshot().unwrap();
        most = most.max(checkpoint.byte_len());
        most_at_once = most_at_once.max(checkpoint.last_snapshot_bytes());
    }
    assert!(most < base * 3, "{most} bytes are stored of a state of {base}");
    assert!(most_at_once < base / 8, "{most_at_once} bytes were written at once of a state of {base}");
    let restored = Harness::<Two>::restore("{}", harness.checkpoint()).unwrap();
    assert_eq!(contents(&restored.operator), contents(&harness.operator));
}

#[test]
fn a_hundredth_changed_writes_about_a_hundredth() {
    let mut harness = Harness::<Two>::new("{}").unwrap();
    for n in 0..50_000_u32 {
        harness.operator.numbers.insert(&n.to_le_bytes(), 1);
    }
    let all = harness.snapshot().unwrap().last_snapshot_bytes();
    for n in (0..50_000_u32).step_by(100) {
        *harness.operator.numbers.value(&n.to_le_bytes()) += 1;
    }
    let changed = harness.snapshot().unwrap().last_snapshot_bytes();
    // The header of a chunk in each of 128 key groups counts here.
    assert!(changed * 30 < all, "{changed} of {all} bytes");
    assert_eq!(harness.snapshot().unwrap().last_snapshot_bytes(), 0, "nothing has changed");
}

#[test]
fn entries_larger_than_a_chunk_come_back() {
    let mut harness = Harness::<Two>::new("{}").unwrap();
    let big = |n: u8, length: usize| vec![n; length];
    let key = big(b'k', 1_500_000);
    harness.operator.texts.insert(key.as_slice(), big(1, 3_000_000));
    harness.operator.texts.insert("small", big(2, 10));
    harness.operator.texts.insert("close", big(3, (1 << 20) - 40));
    harness.operator.texts.insert("over", big(4, 1 << 20));
    harness.snapshot().unwrap();
    let restored = Harness::<Two>::restore("{}", harness.checkpoint()).unwrap();
    assert!(contents(&restored.operator) == contents(&harness.operator));
    harness.operator.texts.remove(key.as_slice());
    harness.snapshot().unwrap();
    let restored = Harness::<Two>::restore("{}", harness.checkpoint()).unwrap();
    assert!(contents(&restored.operator) == contents(&harness.operator));
    assert_eq!(restored.operator.texts.len(), 3);
}

#[test]
fn keys_move_with_their_groups_when_the_parallelism_changes() {
    let mut all = BTreeMap::new();
    let mut checkpoints = Vec::new();
    for number in 0..2 {
        let task = subtask(number, 2);
        let mut harness = Harness::<Two>::with_task("{}", &task).unwrap();
        for n in 0..1000_u32 {
            let key = n.to_le_bytes();
            let group = weir_sdk::key_group(weir_sdk::key_hash(&key), 128);
            if (task.first_key_group..task.end_key_group).contains(&group) {
                harness.operator.numbers.insert(&key, u64::from(n));
                all.insert(key.to_vec(), u64::from(n));
            }
        }
        checkpoints.push(harness.snapshot().unwrap());
    }
    let mut found = BTreeMap::new();
    for number in 0..3 {
        let task = subtask(number, 3);
        let checkpoints: Vec<&Checkpoint> = checkpoints.iter().collect();
        let harness = Harness::<Two>::restore_task("{}", &task, &checkpoints).unwrap();
        harness.operator.numbers.for_each(|key, n| assert_eq!(found.insert(key.to_vec(), *n), None));
    }
    assert_eq!(found, all);
    assert_eq!(all.len(), 1000);
}

#[test]
fn damaged_state_is_refused_and_the_reason_said() {
    let mut harness = Harness::<Two>::new("{}").unwrap();
    harness.operator.numbers.insert("a", 1);
    let good = harness.snapshot().unwrap().chunks().pop_front().unwrap();
    let attempt = |data: Vec<u8>, group: u32| {
        let mut chunk = good.clone();
        chunk.data = data;
        chunk.source.scope = weir_sdk::Scope::KeyGroup(group);
        let mut two = Two::open("{}", &subtask(0, 2)).unwrap();
        two.segments.restore_chunk(&chunk, &mut [&mut two.numbers, &mut two.texts]).map_err(|failure| failure.message)
    };
    assert_eq!(attempt(good.data.clone(), 25), Ok(()));
    for cut in 1..good.data.len() {
        assert!(attempt(good.data[..cut].to_vec(), 25).is_err() || cut == 1, "cut at {cut}");
    }
    assert!(attempt(good.data.clone(), 26).is_err_and(|why| why.contains("a key of group 25")));
    assert!(attempt(good.data.clone(), 64).is_err_and(|why| why.contains("none of this subtask's")));
    let mut renamed = good.data.clone();
    renamed[3] = b'm';
    assert!(attempt(renamed, 25).is_err_and(|why| why.contains("\"mumbers\"")));
    let mut newer = good.data.clone();
    newer[0] = 9;
    assert!(attempt(newer, 25).is_err_and(|why| why.contains("newer weir-sdk")));
}
