//! What is logged of each job, kept in memory for `weir logs`: the newest lines, bounded in number and in bytes.
//!
//! Everything of a job runs inside a span with its tenant and its name ([`Journal::span`]); a layer of `tracing` puts each event under it
//! into the ring of that job, and nobody else's. What was forgotten is counted, and told to whoever reads on. The subscriber of `tracing`
//! is one for the process, and so is the journal behind it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::watch;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;
use utoipa::ToSchema;

use crate::clock::Clock;
use crate::model::Timestamp;

/// How many lines of a job are kept, and how many bytes.
const LINES_MAX: usize = 1_000;
const BYTES_MAX: usize = 256 << 10;
/// How long one line may be, in bytes.
const LINE_BYTES_MAX: usize = 8 << 10;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize, ToSchema)]
pub struct LogLine {
    /// Its number in the job since the server started, from 1.
    pub number: u64,
    /// When, in microseconds since the Unix epoch.
    pub at: Timestamp,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// The operator that said it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What it says, with its fields.
    pub message: String,
}

/// The lines of one job.
#[derive(Debug)]
pub struct Ring {
    lines: Mutex<Lines>,
    /// The number of the newest line.
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Lines {
    kept: VecDeque<LogLine>,
    bytes: usize,
    written: u64,
}

/// The rings of all jobs.
#[derive(Debug, Default)]
pub struct Journal {
    rings: Mutex<BTreeMap<(String, String), Arc<Ring>>>,
}

static JOURNAL: LazyLock<Journal> = LazyLock::new(Journal::default);

impl Journal {
    /// That of this process.
    pub fn of_process() -> &'static Self {
        &JOURNAL
    }

    fn rings(&self) -> MutexGuard<'_, BTreeMap<(String, String), Arc<Ring>>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ring of a job, made if there is none.
    pub fn ring(&self, tenant: &str, job: &str) -> Arc<Ring> {
        Arc::clone(self.rings().entry((tenant.to_owned(), job.to_owned())).or_insert_with(|| Arc::new(Ring::new())))
    }

    /// Forgets a job.
    pub fn forget(&self, tenant: &str, job: &str) {
        self.rings().remove(&(tenant.to_owned(), job.to_owned()));
    }

    /// The span in which everything of a job runs.
    pub fn span(tenant: &str, job: &str) -> tracing::Span {
        tracing::error_span!(target: "weir::job", "job", tenant, job)
    }

    /// What fills the rings: a layer of the subscriber.
    pub fn layer<S>(clock: Clock) -> impl Layer<S>
    where
        S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    {
        JournalLayer { clock }
    }
}

impl Ring {
    fn new() -> Self {
        Self { lines: Mutex::default(), newest: watch::Sender::new(0) }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, line: LogLine) {
        let mut lines = self.lines();
        lines.written += 1;
        let line = LogLine { number: lines.written, ..line };
        lines.bytes += line.message.len();
        lines.kept.push_back(line);
        while lines.kept.len() > LINES_MAX || lines.bytes > BYTES_MAX {
            let Some(gone) = lines.kept.pop_front() else { break };
            lines.bytes -= gone.message.len();
        }
        self.newest.send_replace(lines.written);
    }

    /// The kept lines with numbers after `after`, oldest first.
    pub fn after(&self, after: u64) -> Vec<LogLine> {
        self.lines().kept.iter().filter(|line| line.number > after).cloned().collect()
    }

    /// Tells the number of the newest line, as it changes.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

struct JournalLayer {
    clock: Clock,
}

/// What the span of a job carries.
struct OfJob(Arc<Ring>);

impl<S> Layer<S> for JournalLayer
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &tracing::span::Attributes<'_>, id: &tracing::Id, context: Context<'_, S>) {
        if attributes.metadata().name() != "job" || attributes.metadata().target() != "weir::job" {
            return;
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let (Some(span), Some(tenant), Some(job)) = (context.span(id), fields.tenant, fields.job) {
            span.extensions_mut().insert(OfJob(Journal::of_process().ring(&tenant, &job)));
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let Some(mut scope) = context.event_scope(event) else { return };
        let Some(ring) = scope.find_map(|span| span.extensions().get::<OfJob>().map(|of| Arc::clone(&of.0))) else {
            return;
        };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut message = fields.message + &fields.others;
        if message.len() > LINE_BYTES_MAX {
            let cut = (0..=LINE_BYTES_MAX).rev().find(|&at| message.is_char_boundary(at)).unwrap_or(0);
            message.truncate(cut);
            message.push('…');
        }
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        ring.write(LogLine { number: 0, at: self.clock.now(), level, node: fields.node, message });
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: String,
    tenant: Option<String>,
    job: Option<String>,
    node: Option<String>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "tenant" => self.tenant = Some(value.to_owned()),
            "job" => self.job = Some(value.to_owned()),
            "node" => self.node = Some(value.to_owned()),
            "message" => self.message = value.to_owned(),
            name => {
                let _ = write!(self.others, " {name}={value:?}");
            }
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            // What is shown by `%` comes here too, without quotes.
            "tenant" | "job" | "node" => self.record_str(field, &text),
            name => {
                let _ = write!(self.others, " {name}={text}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::prelude::*;

    use super::*;

    #[test]
    fn lines_go_to_their_job_alone_and_old_ones_are_forgotten() {
        let subscriber = tracing_subscriber::registry().with(Journal::layer(Clock::manual(7)));
        tracing::subscriber::with_default(subscriber, || {
            let (one, two) = (Journal::span("t", "journal-one"), Journal::span("t", "journal-two"));
            tracing::info!("nobody's");
            one.in_scope(|| tracing::info!(target: "weir::plugin", job = "other", node = "n", subtask = 1, "a line"));
            two.in_scope(|| (0..2 * LINES_MAX).for_each(|n| tracing::warn!("line {n}")));
        });
        let of = |job: &str| Journal::of_process().ring("t", job).after(0);
        let one = of("journal-one");
        assert_eq!(one.len(), 1);
        let expected = LogLine {
            number: 1,
            at: 7,
            level: "info".into(),
            node: Some("n".into()),
            message: "a line subtask=1".into(),
        };
        assert_eq!(one[0], expected);
        let two = of("journal-two");
        assert_eq!(two.len(), LINES_MAX);
        assert_eq!(two[0].number as usize, LINES_MAX + 1);
        let ring = Journal::of_process().ring("t", "journal-two");
        assert_eq!(*ring.watch().borrow() as usize, 2 * LINES_MAX);
        assert_eq!(ring.after(2 * LINES_MAX as u64 - 1).len(), 1);
        Journal::of_process().forget("t", "journal-two");
        assert!(of("journal-two").is_empty());
    }

    #[test]
    fn a_ring_is_bounded_in_bytes() {
        let ring = Ring::new();
        let line = LogLine { number: 0, at: 0, level: "info".into(), node: None, message: "x".repeat(LINE_BYTES_MAX) };
        (0..100).for_each(|_| ring.write(line.clone()));
        assert_eq!(ring.after(0).len(), BYTES_MAX / LINE_BYTES_MAX);
    }
}
