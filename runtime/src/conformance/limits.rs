//! Limits: what the operator used in the undisturbed run, beside what it may use by default.
//!
//! A limit that is crossed has ended a call before: that is told where it happened. What is found here is memory that grows without need:
//! an instance that took over the state has much less of it than the one that came to it.

use serde::Serialize;

use super::fidelity::{Memory, Seen};
use super::finding::{Check, Checked, Finding};
use super::session::Usage;
use super::trial::Trial;
use crate::plan::LimitsSpec;

/// Below this nothing is called a leak, in bytes.
const LEAK_BYTES_MIN: u64 = 1 << 20;

/// What an operator used, beside its limits.
#[derive(Clone, Debug, Serialize)]
pub struct Used {
    /// Calls that were made.
    pub calls: u64,
    /// Records that came in.
    pub records_in: u64,
    /// Records that went out.
    pub records_out: u64,
    /// Records that were put aside.
    pub rejected: u64,
    /// Records out for each that came in, those put aside not counted.
    pub output_ratio: f64,
    /// Bytes that went out for each that came in.
    pub output_bytes_ratio: f64,
    /// Linear memory at its largest, and the limit, in bytes.
    pub memory_bytes: u64,
    /// The limit, in bytes.
    pub memory_bytes_limit: u64,
    /// The most that one call said, in bytes.
    pub call_output_bytes: u64,
    /// The limit, in bytes.
    pub call_output_bytes_limit: u64,
    /// The largest snapshot, in bytes.
    pub state_bytes: u64,
    /// The limit, in bytes.
    pub state_bytes_limit: u64,
    /// The largest piece of one, in bytes.
    pub chunk_bytes: u64,
    /// Nanoseconds for each record that came in, all calls together.
    pub record_nanos: f64,
    /// The longest call, in microseconds.
    pub longest_call_micros: u64,
    /// Which it was.
    pub longest_call: &'static str,
    /// The limit on its processor time, in microseconds.
    pub call_micros_limit: u64,
    /// Whether it looked at the processing time.
    pub looked_at_time: bool,
}

impl Used {
    pub(super) fn new(usage: &Usage, seen: &Seen, limits: &LimitsSpec) -> Self {
        let ratio = |out: u64, of: u64| out as f64 / of.max(1) as f64;
        let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            calls: usage.calls,
            records_in: usage.records_in,
            records_out: usage.records_out,
            rejected: usage.rejected,
            output_ratio: ratio(usage.records_out, usage.records_in),
            output_bytes_ratio: ratio(usage.bytes_out, usage.bytes_in),
            memory_bytes: usage.memory_bytes,
            memory_bytes_limit: limits.memory_bytes,
            call_output_bytes: usage.call_bytes_max,
            call_output_bytes_limit: limits.output_bytes,
            state_bytes: seen.state_bytes,
            state_bytes_limit: limits.state_bytes,
            chunk_bytes: seen.chunk_bytes,
            record_nanos: usage.time.as_nanos() as f64 / usage.records_in.max(1) as f64,
            longest_call_micros: micros(usage.longest.0),
            longest_call: usage.longest.1,
            call_micros_limit: micros(limits.cpu),
            looked_at_time: usage.looked_at_time,
        }
    }
}

/// See the module.
pub(super) fn limits(trial: &Trial<'_>, seen: &Seen, used: &Used) -> Checked {
    let mut notes = Vec::new();
    for (what, value, limit, setting) in [
        ("its memory", used.memory_bytes, used.memory_bytes_limit, "memory"),
        ("the output of a call", used.call_output_bytes, used.call_output_bytes_limit, "output"),
        ("its state", used.state_bytes, used.state_bytes_limit, "state"),
    ] {
        if value > limit / 2 {
            notes.push(format!("{what} has come to {value} bytes of {limit}: limits.{setting} raises that"));
        }
    }
    let leak = leak(&seen.memory);
    if trial.subject.code.image.is_some() {
        notes.push("whether it leaks cannot be told of an image, which holds what leaked too".to_owned());
    }
    let findings: Vec<Finding> = leak
        .map(|leak| {
            let Leak { record_bytes, grown, fresh, records } = leak;
            let left = used.memory_bytes_limit.saturating_sub(grown) as f64 / record_bytes;
            let message = format!("its memory grows by about {record_bytes:.0} bytes with each record, and its state does not need that");
            let hint = "something is taken and never given back: a list that is only pushed to, a cache without a bound, \
                        memory that was forgotten; where a toolchain leaks, limits = { soft_memory = … } lives with it";
            let finding = Finding::new("leak", message, hint).setting(format!(
                "after {records} records it has {grown} bytes, and an instance that was restored there {fresh}; the limit of {} bytes is \
                 reached some {left:.0} records later",
                used.memory_bytes_limit
            ));
            Finding { cut_after: Some(records), ..finding }
        })
        .into_iter()
        .collect();
    let summary =
        if findings.is_empty() { "within the defaults" } else { "within the defaults so far, and not for ever" };
    Checked::new(Check::Limits, summary, findings, notes)
}

/// Memory that grows without need.
#[derive(Debug, PartialEq)]
struct Leak {
    record_bytes: f64,
    grown: u64,
    fresh: u64,
    records: usize,
}

/// What a restored instance does not need is either reserve, which follows the size of the state and stops growing with it, or leaked.
fn leak(memory: &[Memory]) -> Option<Leak> {
    let (first, last) = (memory.first()?, memory.last()?);
    let middle = memory.iter().min_by_key(|at| at.records.abs_diff(last.records / 2))?;
    let late = memory.iter().min_by_key(|at| at.records.abs_diff(last.records - last.records / 4))?;
    let excess = |at: &Memory| at.grown.saturating_sub(at.fresh);
    let needed = last.fresh.saturating_sub(first.fresh);
    let grows = last.grown > late.grown && late.records < last.records && middle.records < late.records;
    let is_leak = excess(last) >= LEAK_BYTES_MIN + 2 * needed && excess(last) >= excess(middle) + excess(middle) / 2;
    (is_leak && grows).then(|| Leak {
        record_bytes: (excess(last) - excess(middle)) as f64 / (last.records - middle.records).max(1) as f64,
        grown: last.grown,
        fresh: last.fresh,
        records: last.records,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(points: impl IntoIterator<Item = (usize, u64, u64)>) -> Vec<Memory> {
        points.into_iter().map(|(records, grown, fresh)| Memory { records, grown, fresh }).collect()
    }

    #[test]
    fn memory_that_grows_with_records_and_not_with_state_is_a_leak() {
        let leaks = memory((1..=20).map(|n| (n * 100, (1 << 20) + n as u64 * 100 * 2000, 1 << 20)));
        let found = leak(&leaks).expect("it leaks");
        assert!((found.record_bytes - 2000.0).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn state_that_grows_reserves_and_what_was_needed_once_are_no_leaks() {
        let grows = memory((1..=20).map(|n| (n * 100, n as u64 * (1 << 20), n as u64 * (1 << 19))));
        assert_eq!(leak(&grows), None);
        let once = memory((1..=20).map(|n| (n * 100, if n > 5 { 8 << 20 } else { 1 << 20 }, 1 << 20)));
        assert_eq!(leak(&once), None);
        let little = memory((1..=20).map(|n| (n * 100, (1 << 20) + n as u64 * (16 << 10), 1 << 20)));
        assert_eq!(leak(&little), None);
        assert_eq!(leak(&[]), None);
        assert_eq!(leak(&memory([(5, 9 << 20, 1 << 20)])), None);
    }
}
