//! The running count as a pipeline sees it, and that a restore in the middle changes nothing.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_count::Count;
use weir_sdk::testing::{Harness, Row};
use weir_sdk::{FailureKind, Progress, SnapshotMode};

#[test]
fn each_record_gives_the_count_so_far_and_keeps_time_and_headers() {
    let mut h = Harness::<Count>::new("{}").unwrap();
    h.process(0, &[Row::new("a", "x").at(5), Row::new("b", "y"), Row::tombstone("a").header("h", "1")]).unwrap();
    assert_eq!(
        h.take(0),
        [
            Row::new("a", r#"{"key":"a","count":1}"#).at(5),
            Row::new("b", r#"{"key":"b","count":1}"#),
            Row::new("a", r#"{"key":"a","count":2}"#).header("h", "1"),
        ]
    );
}

#[test]
fn keys_are_escaped_in_json() {
    let mut h = Harness::<Count>::new("{}").unwrap();
    h.process(0, &[Row::new("a\"\n", ""), Row::new([0xff, b'x'], "")]).unwrap();
    let out = h.take(0);
    assert_eq!(out[0].text(), r#"{"key":"a\"\n","count":1}"#);
    assert_eq!(out[1].text(), "{\"key\":\"\u{fffd}x\",\"count\":1}");
}

#[test]
fn a_key_that_is_too_long_for_json_is_rejected_and_the_others_counted() {
    let long = "x".repeat((1 << 20) + 1);
    let rows = || [Row::new("a", ""), Row::new(long.as_str(), ""), Row::new("a", "")];
    let mut h = Harness::<Count>::new("{}").unwrap();
    h.process(0, &rows()).unwrap();
    assert_eq!(
        h.take(0).iter().map(Row::text).collect::<Vec<_>>(),
        [r#"{"key":"a","count":1}"#, r#"{"key":"a","count":2}"#]
    );
    assert!(h.take_rejected()[0].1.contains("more than 1 MiB"));
    let mut h = Harness::<Count>::new(r#"{"format":"binary"}"#).unwrap();
    h.process(0, &rows()).unwrap();
    assert_eq!(h.take(0).len(), 3);
}

#[test]
fn records_without_a_key_are_rejected_and_the_others_counted() {
    let mut h = Harness::<Count>::new(r#"{"format":"binary"}"#).unwrap();
    h.process(0, &[Row::of_value("x"), Row::new("", "y").header("h", "1"), Row::of_value("z")]).unwrap();
    assert_eq!(h.take(0), [Row::new("", 1_u64.to_le_bytes()).header("h", "1")]);
    let rejected = h.take_rejected();
    assert_eq!(rejected.iter().map(|(row, _)| row.text()).collect::<Vec<_>>(), ["x", "z"]);
    assert_eq!(rejected[0].1, "the record has no key to count by");
}

#[test]
fn a_format_that_does_not_exist_is_refused() {
    let refused = Harness::<Count>::new(r#"{"format":"xml"}"#).map(|_| ()).unwrap_err();
    assert_eq!(refused.kind, FailureKind::Invalid);
    assert!(refused.message.contains("xml"), "{}", refused.message);
}

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<u16>),
    Snapshot,
    Steps(usize),
    Restore,
}

proptest! {
    #[test]
    fn counts_go_on_after_a_restore_as_if_nothing_had_happened(
        steps in proptest::collection::vec(prop_oneof![
            4 => proptest::collection::vec(0_u16..50, 1..40).prop_map(Step::Batch),
            2 => Just(Step::Snapshot),
            3 => (1_usize..30).prop_map(Step::Steps),
            1 => Just(Step::Restore),
        ], 0..60)
    ) {
        let config = r#"{"format":"binary"}"#;
        let mut h = Harness::<Count>::new(config).unwrap();
        let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
        let (mut cut, mut restorable) = (None, None);
        for step in steps {
            match step {
                Step::Batch(keys) => {
                    let rows: Vec<Row> = keys.iter().map(|key| Row::new(key.to_le_bytes(), "")).collect();
                    h.process(0, &rows).unwrap();
                    let expected: Vec<Row> = keys.iter().map(|key| {
                        let count = counts.entry(*key).or_default();
                        *count += 1;
                        Row::new(key.to_le_bytes(), count.to_le_bytes())
                    }).collect();
                    prop_assert_eq!(h.take(0), expected);
                }
                Step::Snapshot => {
                    h.begin_snapshot(SnapshotMode::Incremental);
                    cut = Some(counts.clone());
                    if h.snapshot_step(0).unwrap() == Progress::Done {
                        restorable = cut.take().map(|counts| (h.checkpoint().clone(), counts));
                    }
                }
                Step::Steps(chunks) => {
                    if cut.is_some() && h.snapshot_step(chunks).unwrap() == Progress::Done {
                        restorable = cut.take().map(|counts| (h.checkpoint().clone(), counts));
                    }
                }
                Step::Restore => {
                    if let Some((checkpoint, then)) = &restorable {
                        h = Harness::restore(config, checkpoint).unwrap();
                        counts = then.clone();
                        cut = None;
                    }
                }
            }
        }
    }
}
