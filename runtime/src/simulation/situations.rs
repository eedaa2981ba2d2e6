//! What happened, counted by name: a simulation in which nothing happens would hold every invariant.
//!
//! Most situations are seen by the auditor and the store; those inside of the program are told by what it logs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::checkpoint::auditor::Counts;

/// What the program says, and which situation that is.
const SAID: [(&str, &str); 9] = [
    ("whether the manifest was written is not known yet", "put in doubt"),
    ("checkpoint failed; the next one carries", "attempt failed while the job lives"),
    ("restarting from the last checkpoint", "restart after a failure"),
    ("the commit is tried again", "commit tried again"),
    ("was committed before", "commit recognised by its identity"),
    ("the mark of the commit is tried again", "marker in doubt"),
    ("the upgrade is confirmed", "upgraded"),
    ("the upgrade is given up", "upgrade given up"),
    ("the upgrade is taken back", "upgrade taken back"),
];

/// Counts the situations that the program logs.
#[derive(Clone, Default)]
pub(crate) struct Listener(Arc<Mutex<Counts>>);

impl Listener {
    pub(crate) fn seen(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        if std::env::var_os("WEIR_SIMULATION_LOG").is_some() {
            eprintln!("  {}", message.0);
        }
        for (said, what) in SAID {
            if message.0.contains(said) {
                *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
            }
        }
    }

    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Adds counts to others.
pub(crate) fn add(to: &mut Counts, counts: Counts) {
    for (what, count) in counts {
        *to.entry(what).or_default() += count;
    }
}

/// A table for people, and the names of those that never came up.
pub(crate) fn table(title: &str, wanted: &[&'static str], counts: &Counts) -> (String, Vec<&'static str>) {
    let mut rows: BTreeMap<&str, u64> = wanted.iter().map(|what| (*what, 0)).collect();
    rows.extend(counts.iter().map(|(what, count)| (*what, *count)));
    let width = rows.keys().map(|what| what.len()).max().unwrap_or(0);
    let mut text = format!("{title}\n");
    for (what, count) in &rows {
        let _ = writeln!(text, "  {what:width$}  {count:>8}");
    }
    let missing = wanted.iter().copied().filter(|what| rows[what] == 0).collect();
    (text, missing)
}
