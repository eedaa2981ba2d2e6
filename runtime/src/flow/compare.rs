//! What two versions of an operator said to the same calls, compared: counts and bytes by port, and whether the
//! content is the same.
//!
//! The old version's output goes into the stream; the new one's is looked at here and dropped. A digest of the content
//! is compared only where both cut their batches alike: how a call's output is cut into batches is no difference that
//! a reader could see.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::model::{Batch, Column, key_hash};
use crate::plugin::Output;

/// What one call said, with all that it said in `resume`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    ports: Vec<Port>,
    rejected: Port,
}

/// What was said on one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Port {
    records: u64,
    bytes: u64,
    /// Where batches begin and end.
    cuts: u64,
    content: u64,
}

impl Port {
    fn add(&mut self, batch: &Batch) {
        self.records += batch.len() as u64;
        self.bytes += content_bytes(batch);
        self.cuts = mix(self.cuts, batch.len() as u64);
        let mut content = self.content;
        for time in &batch.timestamps {
            content = mix(content, time.cast_unsigned());
        }
        for column in [&batch.keys, &batch.values, &batch.headers] {
            content = mix(content, key_hash(&column.bytes));
            for offset in &column.offsets {
                content = mix(content, u64::from(*offset));
            }
            content = mix(content, key_hash(&column.nulls));
        }
        self.content = content;
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.records, self.bytes) == (other.records, other.bytes)
            && (self.cuts != other.cuts || self.content == other.content)
    }
}

fn content_bytes(batch: &Batch) -> u64 {
    let bytes = |column: &Column| column.bytes.len() as u64;
    bytes(&batch.keys) + bytes(&batch.values) + bytes(&batch.headers)
}

fn mix(state: u64, value: u64) -> u64 {
    (state.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Said {
    /// Adds what a call said, or one of its `resume`s.
    pub(super) fn add(&mut self, out: &Output) {
        for (port, batch) in &out.emitted {
            let port = *port as usize;
            if self.ports.len() <= port {
                self.ports.resize(port + 1, Port::default());
            }
            self.ports[port].add(batch);
        }
        let (records, reasons) = &out.rejected;
        if !records.is_empty() {
            self.rejected.add(records);
            for reason in reasons {
                self.rejected.content = mix(self.rejected.content, key_hash(reason.as_bytes()));
            }
        }
    }
}

/// What was compared, and what differed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Compared {
    /// Calls that both versions got.
    pub calls: u64,
    /// Records that went in with them.
    pub records: u64,
    /// Calls to which they said something different.
    pub differing_calls: u64,
    /// By output port, as the plugin counts them.
    pub ports: Vec<PortCompared>,
    /// Records that were put aside.
    pub rejected: PortCompared,
    /// The first difference, in words.
    pub first_difference: Option<String>,
}

/// What was said on one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PortCompared {
    /// Records of the old version.
    pub old_records: u64,
    /// Their bytes: keys, values and headers.
    pub old_bytes: u64,
    /// Records of the new version, which were dropped.
    pub new_records: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// Calls in which the two differ.
    pub differing_calls: u64,
}

impl PortCompared {
    fn add(&mut self, old: &Port, new: &Port) -> bool {
        let differs = !old.is_like(new);
        self.old_records += old.records;
        self.old_bytes += old.bytes;
        self.new_records += new.records;
        self.new_bytes += new.bytes;
        self.differing_calls += u64::from(differs);
        differs
    }

    fn merge(&mut self, other: &Self) {
        self.old_records += other.old_records;
        self.old_bytes += other.old_bytes;
        self.new_records += other.new_records;
        self.new_bytes += other.new_bytes;
        self.differing_calls += other.differing_calls;
    }
}

impl Compared {
    /// Compares what was said to one call. `call` puts it into words, if it is the first that differs.
    pub(super) fn note(&mut self, records: u64, (old, new): (&Said, &Said), call: impl FnOnce() -> String) {
        self.calls += 1;
        self.records += records;
        let ports = old.ports.len().max(new.ports.len());
        if self.ports.len() < ports {
            self.ports.resize(ports, PortCompared::default());
        }
        let nothing = Port::default();
        let mut first = None;
        for (number, compared) in self.ports.iter_mut().enumerate() {
            let (old, new) = (old.ports.get(number).unwrap_or(&nothing), new.ports.get(number).unwrap_or(&nothing));
            if compared.add(old, new) {
                first = first.or_else(|| Some((format!("on output port {number}"), *old, *new)));
            }
        }
        if self.rejected.add(&old.rejected, &new.rejected) {
            first = first.or_else(|| Some(("as rejected".to_owned(), old.rejected, new.rejected)));
        }
        let Some((place, old, new)) = first else { return };
        self.differing_calls += 1;
        if self.first_difference.is_none() {
            let mut text = format!("{}: {place} ", call());
            let _ = match (old.records, old.bytes) == (new.records, new.bytes) {
                true => write!(text, "{} records of the same length and other content", old.records),
                false => write!(
                    text,
                    "{} records of {} bytes from the old version, {} of {} from the new",
                    old.records, old.bytes, new.records, new.bytes
                ),
            };
            self.first_difference = Some(text);
        }
    }

    /// Adds what was compared in another subtask.
    pub fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.records += other.records;
        self.differing_calls += other.differing_calls;
        if self.ports.len() < other.ports.len() {
            self.ports.resize(other.ports.len(), PortCompared::default());
        }
        for (port, other) in self.ports.iter_mut().zip(&other.ports) {
            port.merge(other);
        }
        self.rejected.merge(&other.rejected);
        self.first_difference = self.first_difference.take().or_else(|| other.first_difference.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(values: &[&str]) -> Batch {
        let mut batch = Batch::default();
        for value in values {
            batch.push(7, Some(b"k"), Some(value.as_bytes()));
        }
        batch
    }

    fn said(batches: &[&[&str]]) -> Said {
        let mut said = Said::default();
        let emitted = batches.iter().map(|values| (0, batch(values))).collect();
        said.add(&Output { emitted, ..Output::default() });
        said
    }

    fn compare(old: &Said, new: &Said) -> Compared {
        let mut compared = Compared::default();
        compared.note(2, (old, new), || "in a call".into());
        compared
    }

    #[test]
    fn the_same_output_is_no_difference_however_it_is_cut_into_batches() {
        let old = said(&[&["a", "b"]]);
        for new in [said(&[&["a", "b"]]), said(&[&["a"], &["b"]])] {
            let compared = compare(&old, &new);
            assert_eq!((compared.differing_calls, &compared.first_difference), (0, &None));
            assert_eq!((compared.ports[0].old_records, compared.ports[0].new_records), (2, 2));
        }
    }

    #[test]
    fn other_counts_other_content_other_ports_and_other_rejects_are_differences_that_are_named() {
        let old = said(&[&["a", "b"]]);
        let mut rejects = old.clone();
        rejects.add(&Output { rejected: (batch(&["x"]), vec!["no".into()]), ..Output::default() });
        let mut elsewhere = Said::default();
        elsewhere.add(&Output { emitted: vec![(1, batch(&["a", "b"]))], ..Output::default() });
        for (new, word) in [
            (said(&[&["a"]]), "2 records of 4 bytes from the old version, 1 of 2"),
            (said(&[&["a", "c"]]), "other content"),
            (said(&[&["b", "a"]]), "other content"),
            (said(&[&["a", "bb"]]), "2 of 5 from the new"),
            (rejects, "as rejected 0 records"),
            (elsewhere, "output port 0"),
        ] {
            let compared = compare(&old, &new);
            assert_eq!(compared.differing_calls, 1);
            let first = compared.first_difference.unwrap_or_default();
            assert!(first.starts_with("in a call: ") && first.contains(word), "{first}");
        }
    }

    #[test]
    fn subtasks_add_up_and_the_first_difference_stays() {
        let mut one = compare(&said(&[&["a"]]), &said(&[&["a"]]));
        let other = compare(&said(&[&["a"]]), &said(&[&["b"]]));
        one.merge(&other);
        one.merge(&other);
        assert_eq!((one.calls, one.records, one.differing_calls), (3, 6, 2));
        assert_eq!((one.ports[0].old_records, one.ports[0].differing_calls), (3, 2));
        assert!(one.first_difference.is_some());
    }
}
