//! Windows as a pipeline sees them: what comes out when, what is late, what is rejected, and that a restore in the middle
//! changes nothing.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_sdk::testing::{Checkpoint, Harness, Row, subtask};
use weir_sdk::{END_OF_TIME, Progress, SnapshotMode};
use weir_window::Window;

const HOUR: i64 = 3_600_000_000;

fn harness(config: &str) -> Harness<Window> {
    Harness::new(config).unwrap_or_else(|failure| panic!("{}", failure.message))
}

fn texts(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(Row::text).collect()
}

#[test]
fn a_window_comes_out_when_the_watermark_is_at_its_last_microsecond() {
    let mut h = harness(r#"{"size":"1h","field":"/delay","key_name":"carrier"}"#);
    h.process(
        0,
        &[
            Row::new("UA", r#"{"delay":10}"#).at(HOUR - 1),
            Row::new("AA", r#"{"delay":-3.5}"#).at(5),
            Row::new("UA", r#"{"delay":20}"#).at(0),
            Row::new("UA", r#"{"delay":null}"#).at(7),
            Row::new("UA", r#"{"delay":99}"#).at(HOUR),
        ],
    )
    .unwrap();
    h.advance(HOUR - 2).unwrap();
    assert_eq!(h.take(0), []);
    h.advance(HOUR - 1).unwrap();
    let out = h.take(0);
    assert_eq!(
        texts(&out),
        [
            r#"{"window_start":"1970-01-01T00:00:00Z","window_end":"1970-01-01T01:00:00Z","carrier":"AA","count":1,"values":1,"sum":-3.5,"mean":-3.5,"min":-3.5,"max":-3.5}"#,
            r#"{"window_start":"1970-01-01T00:00:00Z","window_end":"1970-01-01T01:00:00Z","carrier":"UA","count":3,"values":2,"sum":30.0,"mean":15.0,"min":10.0,"max":20.0}"#,
        ]
    );
    assert!(out.iter().all(|row| row.time == Some(HOUR - 1)));
    assert_eq!(out[1].key.as_deref(), Some(b"UA".as_slice()));
    h.finish(0).unwrap();
    h.advance(END_OF_TIME).unwrap();
    assert_eq!(h.take(0).len(), 1, "the end of time closes the last window");
}

#[test]
fn results_without_values_are_null() {
    let mut h = harness(r#"{"size":"1h","field":"/delay","aggregates":["mean","max","count"]}"#);
    h.process(0, &[Row::new("k", r#"{"delay":null}"#).at(0), Row::new("k", "{}").at(0), Row::tombstone("k").at(0)])
        .unwrap();
    h.advance(END_OF_TIME).unwrap();
    let out = h.take(0);
    assert!(out[0].text().ends_with(r#""key":"k","count":3,"values":0,"mean":null,"max":null}"#), "{}", out[0].text());
}

#[test]
fn without_a_field_records_are_counted_and_values_are_not_looked_at() {
    let mut h = harness(r#"{"size":"10s","format":"binary"}"#);
    h.process(0, &[Row::new("b", "not JSON").at(1), Row::new("a", "").at(2), Row::new("b", "x").at(3)]).unwrap();
    h.advance(10_000_000).unwrap();
    let end = 9_999_999;
    assert_eq!(h.take(0), [Row::new("a", 1_u64.to_le_bytes()).at(end), Row::new("b", 2_u64.to_le_bytes()).at(end)]);
}

#[test]
fn binary_results_are_the_same_numbers() {
    let mut h = harness(r#"{"size":"1s","field":"","format":"binary"}"#);
    h.process(
        0,
        &[
            Row::new("k", "1.5").at(1),
            Row::new("k", "-4").at(1),
            Row::new("k", "null").at(1),
            Row::new("n", "null").at(1),
        ],
    )
    .unwrap();
    h.advance(END_OF_TIME).unwrap();
    let out = h.take(0);
    let words = |row: &Row| {
        row.value.as_deref().unwrap().as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w)).collect::<Vec<_>>()
    };
    let floats: Vec<u64> = [-2.5, -1.25, -4.0, 1.5_f64].map(f64::to_bits).to_vec();
    assert_eq!(words(&out[0]), [vec![3, 2], floats].concat());
    assert_eq!(words(&out[1])[..2], [1, 0]);
    assert!(words(&out[1])[2..].iter().all(|word| f64::from_bits(*word).is_nan()));
}

#[test]
fn records_of_closed_windows_go_to_the_second_port_as_they_came() {
    let mut h = harness(r#"{"size":"1h"}"#);
    h.process(0, &[Row::new("k", "1").at(1)]).unwrap();
    h.advance(HOUR + 5).unwrap();
    assert_eq!(h.take(0).len(), 1);
    let late = Row::new("k", "late").at(HOUR - 1).header("from", "gate 7");
    // Behind the watermark, but its window is still open.
    let in_time = Row::new("k", "in time").at(HOUR);
    h.process(0, &[late.clone(), in_time]).unwrap();
    assert_eq!(h.take(1), std::slice::from_ref(&late));
    assert_eq!(h.metric("late_records"), Some(1.0));
    let checkpoint = h.snapshot().unwrap();
    // Also after a restore, before any watermark has come.
    let mut restored = Harness::<Window>::restore(r#"{"size":"1h"}"#, &checkpoint).unwrap();
    restored.process(0, std::slice::from_ref(&late)).unwrap();
    assert_eq!(restored.take(1), [late]);
    restored.advance(HOUR + 5).unwrap();
    assert_eq!(restored.take(0), []);
    restored.advance(2 * HOUR).unwrap();
    assert!(restored.take(0)[0].text().contains(r#""count":1"#));
}

#[test]
fn what_cannot_be_aggregated_is_rejected_with_the_reason_and_the_rest_is_counted() {
    let mut h = harness(r#"{"size":"1h","field":"/x"}"#);
    h.process(
        0,
        &[
            Row::new("k", r#"{"x":1}"#),
            Row::of_value(r#"{"x":1}"#).at(0),
            Row::new("k", r#"{"x":"NA"}"#).at(0),
            Row::new("k", "{").at(0),
            Row::new("k", r#"{"x":1}"#).at(i64::MAX - 5),
            Row::new("k".repeat((1 << 20) + 1).as_str(), r#"{"x":1}"#).at(0),
            Row::new("k", r#"{"x":1}"#).at(0),
        ],
    )
    .unwrap();
    let reasons: Vec<String> = h.take_rejected().into_iter().map(|(_, reason)| reason).collect();
    for (reason, part) in
        reasons.iter().zip(["event time", "no key", "a string, not a number", "not JSON", "too far", "more than 1 MiB"])
    {
        assert!(reason.contains(part), "{reason:?} should say {part:?}");
    }
    assert_eq!(reasons.len(), 6);
    h.advance(END_OF_TIME).unwrap();
    assert!(h.take(0)[0].text().contains(r#""count":1,"#));
}

#[test]
fn state_of_other_windows_is_refused() {
    let mut h = harness(r#"{"size":"1h"}"#);
    h.process(0, &[Row::new("k", "1").at(1)]).unwrap();
    let checkpoint = h.snapshot().unwrap();
    for other in [r#"{"size":"2h"}"#, r#"{"size":"1h","field":"/x"}"#] {
        let refused = Harness::<Window>::restore(other, &checkpoint).map(|_| ()).unwrap_err();
        assert!(
            refused.message.contains("\"counts/3600000000\", which this plugin does not have"),
            "{}",
            refused.message
        );
    }
    assert!(Harness::<Window>::restore(r#"{"size":"60m"}"#, &checkpoint).is_ok());
}

#[test]
fn many_results_come_in_several_calls_and_in_order() {
    let mut h = harness(r#"{"size":"1s","format":"binary"}"#);
    let rows: Vec<Row> =
        (0..40_000_u32).rev().map(|n| Row::new(n.to_be_bytes(), "").at(i64::from(n % 2) * 1_000_000)).collect();
    for part in rows.chunks(1000) {
        h.process(0, part).unwrap();
    }
    h.advance(END_OF_TIME).unwrap();
    let keys: Vec<u32> =
        h.take(0).iter().map(|row| u32::from_be_bytes(row.key.as_deref().unwrap().try_into().unwrap())).collect();
    let expected: Vec<u32> = (0..40_000).filter(|n| n % 2 == 0).chain((0..40_000).filter(|n| n % 2 == 1)).collect();
    assert_eq!(keys, expected);
}

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<(u8, i64, Option<i16>)>),
    Watermark(i64),
    Snapshot { full: bool },
    Steps(usize),
    Restore,
    Rescale,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let record = (0_u8..12, -3_i64..60, proptest::option::weighted(0.8, any::<i16>()));
    let step = prop_oneof![
        6 => proptest::collection::vec(record, 1..12).prop_map(Step::Batch),
        4 => (-5_i64..70).prop_map(Step::Watermark),
        2 => any::<bool>().prop_map(|full| Step::Snapshot { full }),
        3 => (1_usize..6).prop_map(Step::Steps),
        2 => Just(Step::Restore),
        1 => Just(Step::Rescale),
    ];
    proptest::collection::vec(step, 0..60)
}

/// What windows of ten seconds have to give, as simply as it can be said.
#[derive(Clone, Default)]
struct Model {
    watermark: Option<i64>,
    windows: BTreeMap<(i64, Vec<u8>), Vec<Option<i16>>>,
    out: Vec<Row>,
    late: Vec<Row>,
}

const SECOND: i64 = 1_000_000;

fn key(n: u8) -> Vec<u8> {
    // Some that share their first eight bytes, and a long one.
    if n == 11 { vec![b'z'; 30] } else { [b"carrier ".repeat(usize::from(n % 2)), vec![b'a' + n]].concat() }
}

fn row(n: u8, second: i64, value: Option<i16>) -> Row {
    Row::new(key(n), value.map_or("null".into(), |value| value.to_string())).at(second * SECOND)
}

impl Model {
    fn process(&mut self, records: &[(u8, i64, Option<i16>)]) {
        for (n, second, value) in records {
            let end = (second.div_euclid(10) + 1) * 10;
            if self.watermark.is_some_and(|watermark| watermark >= end * SECOND - 1) {
                self.late.push(row(*n, *second, *value));
            } else {
                self.windows.entry((end, key(*n))).or_default().push(*value);
            }
        }
    }

    fn advance(&mut self, watermark: i64) {
        self.watermark = self.watermark.max(Some(watermark));
        while let Some(first) = self.windows.first_entry().filter(|entry| watermark >= entry.key().0 * SECOND - 1) {
            let ((end, key), values) = first.remove_entry();
            let numbers: Vec<f64> = values.iter().flatten().map(|value| f64::from(*value)).collect();
            let sum: f64 = numbers.iter().sum();
            let words = [values.len() as u64, numbers.len() as u64, sum.to_bits()];
            let value: Vec<u8> = match numbers.is_empty() {
                true => [words[0], words[1], 0x7ff8 << 48].iter().flat_map(|word| word.to_le_bytes()).collect(),
                false => words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            };
            self.out.push(Row::new(key, value).at(end * SECOND - 1));
        }
    }
}

const CONFIG: &str = r#"{"size":"10s","field":"","format":"binary","aggregates":["count","sum"]}"#;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Everything at once: late records, steps of snapshots between calls, deltas on deltas, restores, rescales.
    #[test]
    fn windows_give_what_the_model_gives_whatever_happens_to_the_state(steps in steps()) {
        let mut h = harness(CONFIG);
        let mut model = Model::default();
        let mut at_cut: Option<Model> = None;
        let mut restorable: Option<(Checkpoint, Model)> = None;
        for step in steps {
            match step {
                Step::Batch(records) => {
                    model.process(&records);
                    let rows: Vec<Row> = records.iter().map(|(n, second, value)| row(*n, *second, *value)).collect();
                    h.process(0, &rows).unwrap();
                }
                Step::Watermark(second) if model.watermark.is_none_or(|watermark| watermark < second * SECOND) => {
                    model.advance(second * SECOND);
                    h.advance(second * SECOND).unwrap();
                }
                Step::Watermark(_) => {}
                Step::Snapshot { full } => {
                    h.begin_snapshot(if full { SnapshotMode::Full } else { SnapshotMode::Incremental });
                    at_cut = Some(model.clone());
                    if h.snapshot_step(0).unwrap() == Progress::Done {
                        restorable = at_cut.take().map(|model| (h.checkpoint().clone(), model));
                    }
                }
                Step::Steps(chunks) => {
                    if at_cut.is_some() && h.snapshot_step(chunks).unwrap() == Progress::Done {
                        restorable = at_cut.take().map(|model| (h.checkpoint().clone(), model));
                    }
                }
                Step::Restore => {
                    if let Some((checkpoint, then)) = &restorable {
                        h = Harness::restore(CONFIG, checkpoint).unwrap();
                        model = Model { out: Vec::new(), late: Vec::new(), ..then.clone() };
                        at_cut = None;
                        // What the host says again.
                        if let Some(watermark) = model.watermark {
                            h.advance(watermark).unwrap();
                        }
                    }
                }
                Step::Rescale => {
                    // Into three subtasks and back: nothing of the state is lost on the way.
                    if at_cut.is_none() {
                        let checkpoint = h.snapshot().unwrap();
                        let parts: Vec<Checkpoint> = (0..3)
                            .map(|n| {
                                let mut part = Harness::<Window>::restore_task(CONFIG, &subtask(n, 3), &[&checkpoint]).unwrap();
                                part.full_snapshot().unwrap()
                            })
                            .collect();
                        let parts: Vec<&Checkpoint> = parts.iter().collect();
                        h = Harness::restore_task(CONFIG, &subtask(0, 1), &parts).unwrap();
                        restorable = None;
                        model.out.clear();
                        model.late.clear();
                    }
                }
            }
            prop_assert_eq!(h.take(0), std::mem::take(&mut model.out));
            prop_assert_eq!(h.take(1), std::mem::take(&mut model.late));
        }
        model.advance(END_OF_TIME);
        h.advance(END_OF_TIME).unwrap();
        prop_assert_eq!(h.take(0), model.out);
    }

    /// An operator that was restored writes the same bytes as one that ran on: a checkpoint can be verified by making it again.
    #[test]
    fn a_restored_operator_writes_the_same_snapshot_as_one_that_ran_on(
        before in proptest::collection::vec((0_u8..12, 0_i64..60, Just(Some(1_i16))), 1..60),
        after in proptest::collection::vec((0_u8..12, 0_i64..60, Just(Some(2_i16))), 1..60),
        watermarks in (0_i64..40, 0_i64..60),
    ) {
        let mut h = harness(CONFIG);
        let rows = |records: &[(u8, i64, Option<i16>)]| -> Vec<Row> { records.iter().map(|(n, s, v)| row(*n, *s, *v)).collect() };
        h.process(0, &rows(&before)).unwrap();
        h.advance(watermarks.0 * SECOND).unwrap();
        let checkpoint = h.snapshot().unwrap();
        let mut twin = Harness::<Window>::restore(CONFIG, &checkpoint).unwrap();
        let mut contents = Vec::new();
        for h in [&mut h, &mut twin] {
            h.process(0, &rows(&after)).unwrap();
            h.advance((watermarks.0 + watermarks.1) * SECOND).unwrap();
            h.snapshot().unwrap();
            h.process(0, &rows(&before)).unwrap();
            contents.push(h.snapshot().unwrap().contents());
        }
        prop_assert_eq!(&contents[0], &contents[1]);
    }
}
