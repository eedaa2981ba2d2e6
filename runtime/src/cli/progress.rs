//! The progress line of a running job: rewritten in place on a terminal, a plain line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::output::{count, time};
use crate::clock::Clock;
use crate::metrics::JobMetrics;
use crate::plan::{NodeKind, Plan};

const ON_TERMINAL: Duration = Duration::from_millis(250);
const ELSEWHERE: Duration = Duration::from_secs(10);

/// A progress line stands on the terminal now: whoever logs must clear it first.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// Whoever holds it, as often as it is counted here, has the terminal: no progress is shown.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Keeps progress from the terminal until it is dropped: for tools that write there by themselves, and for questions.
#[derive(Debug)]
pub(super) struct Held(());

/// See [`Held`].
pub(super) fn hold() -> Held {
    HELD.fetch_add(1, Relaxed);
    // What stands there is cleared.
    let _ = LogWriter::new().write(b"");
    Held(())
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Relaxed);
    }
}

/// Standard error for logs: clears a progress line before it writes.
#[derive(Debug)]
pub(super) struct LogWriter;

impl LogWriter {
    pub(super) fn new() -> Self {
        Self
    }
}

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut stderr = std::io::stderr().lock();
        if SHOWN.swap(false, Relaxed) {
            stderr.write_all(b"\r\x1b[2K")?;
        }
        stderr.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// Shows how a job is getting on, until it is dropped.
#[derive(Debug)]
pub(super) struct Progress {
    metrics: Arc<JobMetrics>,
    sources: Vec<crate::model::NodeName>,
    others: Vec<crate::model::NodeName>,
    clock: Clock,
    terminal: bool,
}

impl Progress {
    pub(super) fn new(plan: &Plan, metrics: &Arc<JobMetrics>, clock: &Clock) -> Self {
        let names = |source: bool| {
            let nodes = plan.nodes.iter().filter(|node| matches!(node.kind, NodeKind::Source(_)) == source);
            nodes.map(|node| node.name.clone()).collect()
        };
        Self {
            metrics: Arc::clone(metrics),
            sources: names(true),
            others: names(false),
            clock: clock.clone(),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Shows a line from time to time. Never ends.
    pub(super) async fn show(&self) {
        let mut last = (self.clock.elapsed(), self.read());
        let pause = if self.terminal { ON_TERMINAL } else { ELSEWHERE };
        loop {
            tokio::time::sleep(pause).await;
            let (now, read) = (self.clock.elapsed(), self.read());
            let seconds = now.saturating_sub(last.0).as_secs_f64().max(1e-3);
            let rate = (read.saturating_sub(last.1)) as f64 / seconds;
            last = (now, read);
            if HELD.load(Relaxed) > 0 {
                continue;
            }
            let line = self.line(read, rate);
            if self.terminal {
                SHOWN.store(true, Relaxed);
                let _ = write!(std::io::stderr().lock(), "\r\x1b[2K{line}");
            } else {
                let _ = writeln!(std::io::stderr().lock(), "{line}");
            }
        }
    }

    fn read(&self) -> u64 {
        self.sources.iter().map(|name| self.metrics.node(name).records_in.load(Relaxed)).sum()
    }

    fn line(&self, read: u64, rate: f64) -> String {
        let checkpoint = match self.metrics.epoch.load(Relaxed) {
            0 => "no checkpoint yet".to_owned(),
            epoch => {
                let took = Duration::from_micros(self.metrics.checkpoint_micros.load(Relaxed));
                format!("checkpoint {epoch} in {:.0} ms", took.as_secs_f64() * 1e3)
            }
        };
        let watermark = self.others.iter().filter_map(|name| self.metrics.node(name).watermark()).min();
        let watermark = watermark.map_or_else(|| "-".to_owned(), time);
        format!("{} records, {}/s | {checkpoint} | watermark {watermark}", count(read), count(rate as u64))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if SHOWN.swap(false, Relaxed) {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K");
        }
    }
}
