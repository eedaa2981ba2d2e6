//! Lines that a guest logs: on to `tracing`, with job, node and subtask, up to so many a second.
//!
//! What is one too many is counted and dropped, and the count is told. The last error of a call is kept in any case: when
//! the call traps, it is the reason.

use std::time::Duration;

use super::bindings::log;
use crate::clock::Clock;

/// How much of what a call prints as errors is kept for the case that it traps.
const PRINTED_BYTES_MAX: usize = 8 << 10;

/// What an instance says to people.
#[derive(Debug)]
pub(super) struct Log {
    job: String,
    node: String,
    subtask: u32,
    clock: Clock,
    lines_max: u32,
    window: Duration,
    lines: u32,
    dropped: u64,
    warned: bool,
    /// Of an instance that works beside the one that counts: its lines say so.
    pub(super) is_aside: bool,
    /// The last error of the current call.
    pub(super) last_error: Option<String>,
    /// What the current call has printed as errors, as far as it is kept.
    pub(super) printed: String,
}

impl Log {
    pub(super) fn new(job: String, node: String, subtask: u32, clock: Clock, lines_max: u32) -> Self {
        let window = clock.elapsed();
        let (last_error, printed) = (None, String::new());
        let is_aside = false;
        Self {
            job,
            node,
            subtask,
            clock,
            lines_max,
            window,
            lines: 0,
            dropped: 0,
            warned: false,
            is_aside,
            last_error,
            printed,
        }
    }

    pub(super) fn enabled(&self, level: log::Level) -> bool {
        match level {
            log::Level::Trace => tracing::enabled!(target: "weir::plugin", tracing::Level::TRACE),
            log::Level::Debug => tracing::enabled!(target: "weir::plugin", tracing::Level::DEBUG),
            log::Level::Info => tracing::enabled!(target: "weir::plugin", tracing::Level::INFO),
            log::Level::Warn => tracing::enabled!(target: "weir::plugin", tracing::Level::WARN),
            log::Level::Error => tracing::enabled!(target: "weir::plugin", tracing::Level::ERROR),
        }
    }

    /// Whether a line of this level would be kept; counts it as dropped if it is one too many.
    pub(super) fn admits(&mut self, level: log::Level) -> bool {
        if !self.enabled(level) {
            return false;
        }
        let now = self.clock.elapsed();
        if now.saturating_sub(self.window) >= Duration::from_secs(1) {
            self.window = now;
            self.lines = 0;
            self.tell_dropped();
        }
        if self.lines < self.lines_max {
            return true;
        }
        self.dropped += 1;
        false
    }

    /// Logs a line that [`Self::admits`] let through, and remembers an error in any case.
    pub(super) fn write(&mut self, level: log::Level, message: String) {
        if self.lines < self.lines_max && self.enabled(level) {
            self.lines += 1;
            let (job, node, subtask) = (&self.job, &self.node, self.subtask);
            let message = Shown { message: &message, is_aside: self.is_aside };
            match level {
                log::Level::Trace => tracing::trace!(target: "weir::plugin", %job, %node, subtask, "{message}"),
                log::Level::Debug => tracing::debug!(target: "weir::plugin", %job, %node, subtask, "{message}"),
                log::Level::Info => tracing::info!(target: "weir::plugin", %job, %node, subtask, "{message}"),
                log::Level::Warn => tracing::warn!(target: "weir::plugin", %job, %node, subtask, "{message}"),
                log::Level::Error => tracing::error!(target: "weir::plugin", %job, %node, subtask, "{message}"),
            }
        }
        if level == log::Level::Error {
            self.last_error = Some(message);
        }
    }

    /// One more line of what the call prints as errors. What is kept of it is the end.
    pub(super) fn note_printed(&mut self, line: &str) {
        if !self.printed.is_empty() {
            self.printed.push('\n');
        }
        self.printed.push_str(line);
        if self.printed.len() > PRINTED_BYTES_MAX {
            let from = self.printed.len() - PRINTED_BYTES_MAX;
            let from = self.printed[from..].find('\n').map_or(self.printed.len(), |at| from + at + 1);
            self.printed.replace_range(..from, "…\n");
        }
    }

    pub(super) fn once(&mut self, message: &str) {
        if !std::mem::replace(&mut self.warned, true) {
            let (job, node, subtask) = (&self.job, &self.node, self.subtask);
            tracing::warn!(target: "weir::plugin", %job, %node, subtask, "{message}");
        }
    }

    fn tell_dropped(&mut self) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let (job, node, subtask) = (&self.job, &self.node, self.subtask);
            tracing::warn!(
                target: "weir::plugin", %job, %node, subtask,
                "{dropped} log lines were dropped: limits.log_lines is {} a second", self.lines_max
            );
        }
    }
}

/// A line, with a mark if it is of a shadow.
struct Shown<'a> {
    message: &'a str,
    is_aside: bool,
}

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_aside {
            f.write_str("(the next version, beside the stream) ")?;
        }
        f.write_str(self.message)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.tell_dropped();
    }
}
