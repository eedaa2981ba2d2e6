//! Lines that a guest logs: on to `tracing`, with account, job, node and subtask, up to so many a second.
//!
//! What is one too many is counted and dropped, and the count is told. The last error of a call is kept in any case: when
//! the call traps, it is the reason.

use std::time::Duration;

use super::bindings::log;
use crate::account::Account;
use crate::clock::Clock;

/// How much of what a call prints as errors is kept for the case that it traps.
const PRINTED_BYTES_MAX: usize = 8 << 10;

/// What an instance says to people.
#[derive(Debug)]
pub(super) struct Log {
    account: Account,
    job: String,
    node: String,
    subtask: u32,
    clock: Clock,
    lines_max: u32,
    window: Duration,
    lines: u32,
    dropped: u64,
    /// The same, of those that were too many for the account.
    dropped_of_account: u64,
    warned: bool,
    /// Of an instance that works beside the one that counts: its lines say so.
    pub(super) is_aside: bool,
    /// The last error of the current call.
    pub(super) last_error: Option<String>,
    /// What the current call has printed as errors, as far as it is kept.
    pub(super) printed: String,
}

/// A line with whose it is; the account's name only where there is one.
macro_rules! line {
    ($level:ident, $log:expr, $($text:tt)+) => {{
        let (job, node, subtask) = (&$log.job, &$log.node, $log.subtask);
        match $log.account.name() {
            "" => tracing::event!(target: "weir::plugin", tracing::Level::$level, %job, %node, subtask, $($text)+),
            account => {
                tracing::event!(target: "weir::plugin", tracing::Level::$level, account, %job, %node, subtask, $($text)+)
            }
        }
    }};
}

impl Log {
    pub(super) fn new(
        account: &Account,
        (job, node, subtask): (String, String, u32),
        clock: Clock,
        lines_max: u32,
    ) -> Self {
        Self {
            account: account.clone(),
            job,
            node,
            subtask,
            window: clock.elapsed(),
            clock,
            lines_max,
            lines: 0,
            dropped: 0,
            dropped_of_account: 0,
            warned: false,
            is_aside: false,
            last_error: None,
            printed: String::new(),
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
        if self.lines >= self.lines_max {
            self.dropped += 1;
            return false;
        }
        let admits = self.account.admits_line();
        self.dropped_of_account += u64::from(!admits);
        admits
    }

    /// Logs a line that [`Self::admits`] let through.
    pub(super) fn write(&mut self, level: log::Level, message: &str) {
        self.lines += 1;
        let message = Shown { message, is_aside: self.is_aside };
        match level {
            log::Level::Trace => line!(TRACE, self, "{message}"),
            log::Level::Debug => line!(DEBUG, self, "{message}"),
            log::Level::Info => line!(INFO, self, "{message}"),
            log::Level::Warn => line!(WARN, self, "{message}"),
            log::Level::Error => line!(ERROR, self, "{message}"),
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
            line!(WARN, self, "{message}");
        }
    }

    fn tell_dropped(&mut self) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            line!(WARN, self, "{dropped} log lines were dropped: limits.log_lines is {} a second", self.lines_max);
        }
        let dropped = std::mem::take(&mut self.dropped_of_account);
        if dropped > 0 {
            line!(WARN, self, "{dropped} log lines were dropped: they are too many for {}", self.account.name());
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
