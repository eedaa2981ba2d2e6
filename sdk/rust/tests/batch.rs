//! Batches that are built give back what went in, and keep to the rules of the contract; the harness refuses what the host refuses.

use proptest::prelude::*;
use weir_sdk::batch::ColumnBuilder;
use weir_sdk::testing::{Harness, Row};
use weir_sdk::{BatchBuilder, BatchView, Descriptor, Failure, Operator, Output, Progress, TaskInfo};

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let bytes = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..5));
    let headers = prop_oneof![
        3 => Just(Vec::new()),
        1 => proptest::collection::vec(("[a-zé]{0,4}", proptest::collection::vec(any::<u8>(), 0..4)), 1..3),
    ];
    let row = (proptest::option::of(-9_i64..9), bytes(), bytes(), headers)
        .prop_map(|(time, key, value, headers)| Row { time, key, value, headers });
    proptest::collection::vec(row, 1..40)
}

/// Does with a batch what its configuration says.
struct Hand(String, BatchBuilder);

impl Operator for Hand {
    fn descriptor() -> Descriptor {
        Descriptor::new("hand", "1.0.0").input("in", "").output("out", "").keyed_output("keyed", "")
    }

    fn open(config: &str, _: &TaskInfo) -> Result<Self, Failure> {
        Ok(Self(config.into(), BatchBuilder::new()))
    }

    fn process(&mut self, _: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
        match self.0.as_str() {
            "forward" => out.forward(0, batch),
            "copy" => {
                self.1.clear();
                batch.records().for_each(|record| self.1.push_record(&record));
                out.emit(0, &self.1);
            }
            "keyed" => out.emit(1, batch),
            "port" => out.emit(7, batch),
            "reject" => out.reject(batch.len() as u32, "no such record"),
            "values" => {
                let mut values = ColumnBuilder::new();
                batch.records().for_each(|record| values.push(record.key()));
                out.emit(0, batch.with_values(values.view()));
            }
            "fail" => {
                out.emit(0, batch);
                return Err(Failure::retry("not now"));
            }
            other => unreachable!("{other}"),
        }
        Ok(Progress::Done)
    }

    fn advance(&mut self, _: i64, out: &mut Output) -> Result<Progress, Failure> {
        out.reject(0, "there is no batch");
        Ok(Progress::Done)
    }
}

fn through(config: &str, rows: &[Row]) -> Vec<Row> {
    let mut h = Harness::<Hand>::new(config).expect("it opens with anything");
    h.process(0, rows).expect("it has done what it was told");
    h.take(0)
}

proptest! {
    #[test]
    fn what_is_handed_on_is_what_came(rows in rows()) {
        prop_assert_eq!(&through("forward", &rows), &rows);
        prop_assert_eq!(&through("copy", &rows), &rows);
        let swapped: Vec<Row> = rows.iter().map(|row| Row { value: row.key.clone(), ..row.clone() }).collect();
        prop_assert_eq!(&through("values", &rows), &swapped);
    }

    /// A builder that is used again begins anew in everything.
    #[test]
    fn a_cleared_builder_is_as_good_as_new(first in rows(), second in rows()) {
        let mut h = Harness::<Hand>::new("copy").unwrap();
        h.process(0, &first).unwrap();
        h.process(0, &second).unwrap();
        prop_assert_eq!(h.take(0), [first, second].concat());
    }

    #[test]
    fn a_column_of_equal_widths_is_known_as_such(keys in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..4), 1..6)) {
        let mut column = ColumnBuilder::new();
        keys.iter().for_each(|key| column.push_bytes(key));
        let width = keys[0].len();
        let equal = keys.iter().all(|key| key.len() == width) && width > 0;
        prop_assert_eq!(column.view().fixed_width(), equal.then_some(width));
    }
}

#[test]
fn a_failed_call_has_said_nothing() {
    let mut h = Harness::<Hand>::new("fail").unwrap();
    assert_eq!(h.process(0, &[Row::new("k", "v")]).unwrap_err().message, "not now");
    assert_eq!(h.take(0), []);
}

#[test]
#[should_panic(expected = "is keyed, and a record has no key")]
fn a_record_without_a_key_on_a_keyed_port_is_refused() {
    let _ = Harness::<Hand>::new("keyed").unwrap().process(0, &[Row::of_value("v")]);
}

#[test]
#[should_panic(expected = "there is no output port 7")]
fn a_port_that_does_not_exist_is_refused() {
    let _ = Harness::<Hand>::new("port").unwrap().process(0, &[Row::of_value("v")]);
}

#[test]
#[should_panic(expected = "there is no record 1 in this batch")]
fn rejecting_a_record_that_does_not_exist_is_refused() {
    let _ = Harness::<Hand>::new("reject").unwrap().process(0, &[Row::of_value("v")]);
}

#[test]
#[should_panic(expected = "output.reject is not allowed in this call")]
fn rejecting_a_record_outside_of_process_is_refused() {
    let _ = Harness::<Hand>::new("forward").unwrap().advance(1);
}

#[test]
#[should_panic(expected = "timers.wake-at was called outside of a call from the host")]
fn what_the_host_offers_is_not_there_outside_of_a_call() {
    weir_sdk::time::wake_at(1);
}

#[cfg(all(feature = "json", feature = "postcard"))]
#[test]
fn values_are_read_and_written_by_serde() {
    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Flight<'a> {
        carrier: &'a str,
        delay: Option<f64>,
    }
    let flight = Flight { carrier: "UA", delay: Some(2.5) };
    let mut batch = BatchBuilder::new();
    batch.push_json(5, Some(b"k"), &flight).unwrap();
    batch.push_postcard(None, None, &flight).unwrap();
    // What cannot be written leaves nothing behind.
    let not_text: std::collections::BTreeMap<Vec<u8>, u8> = [(vec![1], 1)].into();
    assert!(batch.push_json(1, None, &not_text).is_err());
    batch.push(None, None, None);
    let view = batch.view();
    assert_eq!(view.len(), 3);
    assert_eq!(view.record(0).json::<Flight<'_>>().unwrap(), flight);
    assert_eq!(view.record(0).value(), Some(br#"{"carrier":"UA","delay":2.5}"#.as_slice()));
    assert_eq!(view.record(1).postcard::<Flight<'_>>().unwrap(), flight);
    assert!(view.record(2).json::<Option<u8>>().unwrap().is_none());
}
