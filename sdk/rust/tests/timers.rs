//! Event-time timers against a plain set, with snapshots in steps and restores between.

use std::collections::BTreeSet;

use proptest::prelude::*;
use weir_sdk::state::{EventTimers, Segments};
use weir_sdk::testing::Harness;
use weir_sdk::{
    BatchView, Cut, Descriptor, Failure, Operator, Output, Progress, SnapshotMode, SnapshotReader, SnapshotWriter,
    StateKind, Stateful, TaskInfo,
};

struct Alarm {
    timers: EventTimers,
    segments: Segments,
}

impl Operator for Alarm {
    fn descriptor() -> Descriptor {
        Descriptor::new("alarm", "1.0.0").keyed_input("in", "").state(StateKind::Keyed, 1)
    }

    fn open(_: &str, task: &TaskInfo) -> Result<Self, Failure> {
        Ok(Self { timers: EventTimers::new("timers", task), segments: Segments::new(task) })
    }

    fn process(&mut self, _: u32, _: BatchView<'_>, _: &mut Output) -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }
}

impl Stateful for Alarm {
    fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
        self.segments.snapshot(cut, writer, &mut [&mut self.timers])
    }

    fn restore(&mut self, _: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
        self.segments.restore(reader, &mut [&mut self.timers])
    }
}

type Set = BTreeSet<(i64, Vec<u8>)>;

#[derive(Clone, Debug)]
enum Step {
    Set(i64, u8),
    Cancel(i64, u8),
    Due(i64),
    Snapshot,
    Steps(usize),
    Restore,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn timers_come_due_in_order_whatever_happens_to_the_state(
        steps in proptest::collection::vec(prop_oneof![
            8 => (-20_i64..20, 0_u8..5).prop_map(|(time, key)| Step::Set(time, key)),
            3 => (-20_i64..20, 0_u8..5).prop_map(|(time, key)| Step::Cancel(time, key)),
            2 => (-20_i64..10).prop_map(Step::Due),
            2 => Just(Step::Snapshot),
            3 => (1_usize..5).prop_map(Step::Steps),
            1 => Just(Step::Restore),
        ], 0..80)
    ) {
        let mut h = Harness::<Alarm>::new("{}").unwrap();
        let mut model = Set::new();
        let (mut cut, mut restorable) = (None, None);
        for step in steps {
            let timers = &mut h.operator.timers;
            match step {
                Step::Set(time, key) => prop_assert_eq!(timers.set(time, &[key]), model.insert((time, vec![key]))),
                Step::Cancel(time, key) => prop_assert_eq!(timers.cancel(time, &[key]), model.remove(&(time, vec![key]))),
                Step::Due(watermark) => {
                    let due: Vec<(i64, Vec<u8>)> = timers.due(watermark).into_iter().map(|t| (t.time, t.key.into_vec())).collect();
                    let later = model.split_off(&(watermark + 1, Vec::new()));
                    prop_assert_eq!(due, std::mem::replace(&mut model, later).into_iter().collect::<Vec<_>>());
                }
                Step::Snapshot => {
                    h.begin_snapshot(SnapshotMode::Incremental);
                    cut = Some(model.clone());
                    if h.snapshot_step(0).unwrap() == Progress::Done {
                        restorable = cut.take().map(|model| (h.checkpoint().clone(), model));
                    }
                }
                Step::Steps(chunks) => {
                    if cut.is_some() && h.snapshot_step(chunks).unwrap() == Progress::Done {
                        restorable = cut.take().map(|model| (h.checkpoint().clone(), model));
                    }
                }
                Step::Restore => {
                    if let Some((checkpoint, then)) = &restorable {
                        h = Harness::restore("{}", checkpoint).unwrap();
                        model = then.clone();
                        cut = None;
                    }
                }
            }
            prop_assert_eq!(h.operator.timers.len(), model.len());
            prop_assert_eq!(h.operator.timers.earliest(), model.first().map(|(time, _)| *time));
        }
    }
}

#[test]
fn many_timers_of_one_key_are_written_in_several_steps() {
    let mut h = Harness::<Alarm>::new("{}").unwrap();
    for time in 0..50_000 {
        h.operator.timers.set(time, "one key");
    }
    h.begin_snapshot(SnapshotMode::Full);
    let mut steps = 1;
    while h.snapshot_step(1).unwrap() == Progress::More {
        steps += 1;
        // After the cut: must not show.
        h.operator.timers.cancel(49_999 - steps, "one key");
        h.operator.timers.set(100_000 + steps, "one key");
    }
    assert!(steps > 2, "{steps} steps");
    let restored = Harness::<Alarm>::restore("{}", h.checkpoint()).unwrap();
    let due: Vec<i64> = { restored }.operator.timers.due(i64::MAX).into_iter().map(|timer| timer.time).collect();
    assert_eq!(due, (0..50_000).collect::<Vec<i64>>());
}
