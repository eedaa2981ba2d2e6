//! What an operator said between two stops, and the first place where two of them differ.
//!
//! Downstream sees each output port as a stream of its own, and so does this: records by port, and those that were put aside with their reasons. In
//! which call they came is noted for people, and not compared.

use std::collections::BTreeMap;

use crate::model::{Batch, ShownBytes, Timestamp};
use crate::plugin::Output;

/// A record, as far as it is compared: event time, key, value, headers, reason.
type Row<'a> = (Timestamp, Option<&'a [u8]>, Option<&'a [u8]>, &'a [u8], Option<&'a str>);

/// What was said between two stops. Grows with each call.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// By output port; the last has what was put aside.
    streams: Vec<Stream>,
}

#[derive(Debug, Default)]
struct Stream {
    records: Batch,
    /// Of records that were put aside.
    reasons: Vec<String>,
    /// The step of each call that added something, and how many records there were after it.
    marks: Vec<(usize, usize)>,
}

impl Said {
    /// Nothing, of an operator with so many output ports.
    pub(super) fn new(output_ports: usize) -> Self {
        Self { streams: (0..=output_ports).map(|_| Stream::default()).collect() }
    }

    /// Adds what a call said.
    pub(super) fn add(&mut self, step: usize, out: &mut Output) {
        let last = self.streams.len().saturating_sub(1);
        for (port, batch) in out.emitted.drain(..) {
            let Some(stream) = self.streams.get_mut((port as usize).min(last)) else { continue };
            (0..batch.len()).for_each(|row| stream.records.push_row(&batch, row));
            stream.mark(step);
        }
        let (batch, reasons) = &mut out.rejected;
        if let Some(stream) = self.streams.last_mut().filter(|_| !batch.is_empty()) {
            (0..batch.len()).for_each(|row| stream.records.push_row(batch, row));
            stream.reasons.append(reasons);
            stream.mark(step);
        }
    }

    /// The memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let reasons = |stream: &Stream| stream.reasons.iter().map(|reason| reason.len() + 24).sum::<usize>();
        self.streams.iter().map(|stream| stream.records.byte_len() + reasons(stream) + stream.marks.len() * 16).sum()
    }

    /// How many records each stream has.
    pub(super) fn lens(&self) -> impl Iterator<Item = usize> {
        self.streams.iter().map(|stream| stream.records.len())
    }

    /// The first record in which `found` differs from what this said in step `from_step` and later.
    pub(super) fn difference(&self, from_step: usize, found: &Self) -> Option<Difference> {
        for (number, (expected, found)) in self.streams.iter().zip(&found.streams).enumerate() {
            let skipped = expected.rows_before(from_step);
            let (mine, theirs) = (expected.records.len() - skipped, found.records.len());
            let rows = mine.max(theirs);
            let Some(row) = (0..rows).find(|&row| expected.row(skipped + row) != found.row(row)) else { continue };
            let order = order(expected, skipped, found);
            return Some(Difference {
                stream: number,
                row: skipped + row,
                expected: expected.shown(skipped + row),
                found: found.shown(row),
                step: expected.step_of(skipped + row).or_else(|| found.step_of(row)),
                order,
            });
        }
        None
    }

    /// The first record that one of them has more often than the other, in whatever order.
    pub(super) fn difference_in_any_order(&self, found: &Self) -> Option<Difference> {
        for (number, (expected, found)) in self.streams.iter().zip(&found.streams).enumerate() {
            let (mine, theirs) = (expected.sorted(), found.sorted());
            let (mut at, mut other) = (0, 0);
            loop {
                let rows = match (mine.get(at), theirs.get(other)) {
                    (None, None) => break,
                    (Some(&row), Some(&with)) => match expected.row(row).cmp(&found.row(with)) {
                        std::cmp::Ordering::Equal => {
                            (at, other) = (at + 1, other + 1);
                            continue;
                        }
                        std::cmp::Ordering::Less => (Some(row), None),
                        std::cmp::Ordering::Greater => (None, Some(with)),
                    },
                    (row, with) => (row.copied(), with.copied()),
                };
                // The one with the same key in its place says more than "none".
                let key = match rows {
                    (Some(row), _) => expected.records.keys.get(row),
                    (_, row) => row.and_then(|row| found.records.keys.get(row)),
                };
                let extra = |of: &Stream, with: &Stream| {
                    let mut left = with.counts();
                    (0..of.records.len()).find(|&row| {
                        let count = left.entry(of.row(row)).or_default();
                        *count -= 1;
                        *count < 0 && of.records.keys.get(row) == key
                    })
                };
                let (only_mine, only_theirs) = (extra(expected, found), extra(found, expected));
                return Some(Difference {
                    stream: number,
                    row: only_mine.or(only_theirs).unwrap_or_default(),
                    expected: only_mine.and_then(|row| expected.shown(row)),
                    found: only_theirs.and_then(|row| found.shown(row)),
                    step: only_mine.and_then(|row| expected.step_of(row)),
                    order: Order::Differs,
                });
            }
        }
        None
    }

    /// Whether the records of each key are the same in the same order.
    pub(super) fn is_same_by_key(&self, found: &Self) -> bool {
        self.streams.iter().zip(&found.streams).all(|(expected, found)| by_key(expected, 0) == by_key(found, 0))
    }
}

impl Stream {
    fn mark(&mut self, step: usize) {
        let rows = self.records.len();
        match self.marks.last_mut() {
            Some(mark) if mark.0 == step => mark.1 = rows,
            _ => self.marks.push((step, rows)),
        }
    }

    fn rows_before(&self, step: usize) -> usize {
        self.marks.iter().rev().find(|mark| mark.0 < step).map_or(0, |mark| mark.1)
    }

    fn step_of(&self, row: usize) -> Option<usize> {
        self.marks.iter().find(|mark| row < mark.1).map(|mark| mark.0)
    }

    fn row(&self, row: usize) -> Option<Row<'_>> {
        let time = *self.records.timestamps.get(row)?;
        let headers = self.records.headers.get(row).unwrap_or_default();
        let reason = self.reasons.get(row).map(String::as_str);
        Some((time, self.records.keys.get(row), self.records.values.get(row), headers, reason))
    }

    fn shown(&self, row: usize) -> Option<ShownRecord> {
        let reason = self.reasons.get(row).cloned();
        (row < self.records.len()).then(|| ShownRecord { reason, ..ShownRecord::new(&self.records, row) })
    }

    /// The numbers of its rows, by what they hold.
    fn sorted(&self) -> Vec<usize> {
        let mut rows: Vec<usize> = (0..self.records.len()).collect();
        rows.sort_by(|&a, &b| self.row(a).cmp(&self.row(b)));
        rows
    }

    fn counts(&self) -> BTreeMap<Option<Row<'_>>, i64> {
        let mut counts = BTreeMap::new();
        (0..self.records.len()).for_each(|row| *counts.entry(self.row(row)).or_default() += 1);
        counts
    }
}

fn by_key(stream: &Stream, from: usize) -> BTreeMap<Option<&[u8]>, Vec<Option<Row<'_>>>> {
    let mut rows: BTreeMap<_, Vec<_>> = BTreeMap::new();
    (from..stream.records.len())
        .for_each(|row| rows.entry(stream.records.keys.get(row)).or_default().push(stream.row(row)));
    rows
}

/// How two streams that are not the same differ.
fn order(expected: &Stream, skipped: usize, found: &Stream) -> Order {
    if expected.records.len() - skipped != found.records.len() {
        return Order::Differs;
    }
    if by_key(expected, skipped) == by_key(found, 0) {
        return Order::AcrossKeys;
    }
    let sorted = |stream: &'_ Stream, from: usize| {
        let mut rows: Vec<_> = (from..stream.records.len()).collect();
        rows.sort_by(|&a, &b| stream.row(a).cmp(&stream.row(b)));
        rows
    };
    let pairs = sorted(expected, skipped).into_iter().zip(sorted(found, 0));
    let mut same = pairs.map(|(mine, theirs)| expected.row(mine) == found.row(theirs));
    if same.all(|same| same) { Order::WithinKeys } else { Order::Differs }
}

/// Whether the same records were said in another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The same records, those of each key in the same order.
    AcrossKeys,
    /// The same records.
    WithinKeys,
    /// Other records.
    Differs,
}

/// The first record that is not the same.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) stream: usize,
    /// Its number in the stream since the last stop.
    pub(super) row: usize,
    pub(super) expected: Option<ShownRecord>,
    pub(super) found: Option<ShownRecord>,
    /// In which step it was said, or is missing.
    pub(super) step: Option<usize>,
    pub(super) order: Order,
}

/// A record for people and programs: text where it is UTF-8, never too long, and nothing that steers a terminal.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ShownRecord {
    /// In microseconds since the Unix epoch; none if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_time: Option<Timestamp>,
    /// None if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<ShownBytes>,
    /// None if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<ShownBytes>,
    /// Encoded as in the contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<ShownBytes>,
    /// Why it was put aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The most bytes of a key or a value in a finding.
const SHOWN_BYTES_MAX: usize = 4 << 10;

impl ShownRecord {
    /// A row of a batch.
    pub(super) fn new(batch: &Batch, row: usize) -> Self {
        let shown = |bytes: &[u8]| ShownBytes::cut(bytes, SHOWN_BYTES_MAX);
        Self {
            event_time: batch.timestamps.get(row).copied().filter(|&time| time != crate::model::NO_TIME),
            key: batch.keys.get(row).map(shown),
            value: batch.values.get(row).map(shown),
            headers: batch.headers.get(row).filter(|headers| !headers.is_empty()).map(shown),
            reason: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(calls: &[&[(&str, &str)]]) -> Said {
        let mut said = Said::new(1);
        for (step, records) in calls.iter().enumerate() {
            let mut batch = Batch::default();
            records.iter().for_each(|(key, value)| batch.push(0, Some(key.as_bytes()), Some(value.as_bytes())));
            let mut out = Output { emitted: vec![(0, batch)], ..Output::default() };
            said.add(step, &mut out);
        }
        said
    }

    #[test]
    fn in_which_calls_something_was_said_makes_no_difference() {
        let one = said(&[&[("a", "1")], &[("b", "2"), ("a", "3")]]);
        let other = said(&[&[("a", "1"), ("b", "2")], &[("a", "3")]]);
        assert!(one.difference(0, &other).is_none());
    }

    #[test]
    fn the_first_record_that_differs_is_found_with_its_step_and_how_it_differs() {
        let expected = said(&[&[("a", "1")], &[("b", "2"), ("a", "3")]]);
        for (found, row, order) in [
            (said(&[&[("a", "1"), ("b", "2"), ("a", "4")]]), 2, Order::Differs),
            (said(&[&[("a", "1"), ("b", "2")]]), 2, Order::Differs),
            (said(&[&[("b", "2"), ("a", "1"), ("a", "3")]]), 0, Order::AcrossKeys),
            (said(&[&[("a", "3"), ("b", "2"), ("a", "1")]]), 0, Order::WithinKeys),
        ] {
            let difference = expected.difference(0, &found).unwrap();
            assert_eq!((difference.stream, difference.row, difference.order), (0, row, order), "{found:?}");
            assert_eq!(difference.step, Some(usize::from(row > 0)));
        }
    }

    #[test]
    fn a_run_that_began_in_the_middle_is_compared_with_what_was_said_from_there() {
        let expected = said(&[&[("a", "1")], &[("b", "2"), ("a", "3")]]);
        assert!(expected.difference(1, &said(&[&[("b", "2"), ("a", "3")]])).is_none());
        let difference = expected.difference(1, &said(&[&[("b", "2")]])).unwrap();
        assert_eq!((difference.row, difference.found), (2, None));
        assert!(difference.expected.is_some_and(|record| record.value == Some(ShownBytes::new(b"3"))));
    }

    #[test]
    fn what_is_missing_is_found_in_any_order_with_what_stands_in_its_place() {
        let expected = said(&[&[("a", "1"), ("b", "2"), ("c", "3")]]);
        assert!(expected.difference_in_any_order(&said(&[&[("c", "3"), ("a", "1"), ("b", "2")]])).is_none());
        let difference = expected.difference_in_any_order(&said(&[&[("c", "3"), ("b", "9"), ("a", "1")]])).unwrap();
        let value = |record: Option<ShownRecord>| record.and_then(|record| record.value);
        assert_eq!(value(difference.expected), Some(ShownBytes::new(b"2")));
        assert_eq!(value(difference.found), Some(ShownBytes::new(b"9")));
        assert!(expected.is_same_by_key(&said(&[&[("c", "3"), ("a", "1"), ("b", "2")]])));
    }

    #[test]
    fn what_was_put_aside_is_compared_with_its_reasons() {
        let rejected = |reason: &str| {
            let mut batch = Batch::default();
            batch.push(0, None, Some(b"x"));
            let mut out = Output { rejected: (batch, vec![reason.to_owned()]), ..Output::default() };
            let mut said = Said::new(1);
            said.add(0, &mut out);
            said
        };
        assert!(rejected("no key").difference(0, &rejected("no key")).is_none());
        let difference = rejected("no key").difference(0, &rejected("no value")).unwrap();
        assert_eq!(difference.stream, 1);
        assert_eq!(difference.found.and_then(|record| record.reason).as_deref(), Some("no value"));
    }
}
