//! Messages for people. The host adds job, node, subtask and time, cuts a line at 4 KiB and drops what is too much.

use crate::host;

pub use crate::bindings::log::Level;

/// Logs a line.
pub fn write(level: Level, message: &str) {
    host::log_write(level, message);
}

/// Whether a message of this level would be kept: ask before you spend time on making one.
pub fn enabled(level: Level) -> bool {
    host::log_enabled(level)
}

/// Logs a line, made as by `format!` and only where it would be kept: `log!(Info, "{} keys", n)`.
#[macro_export]
macro_rules! log {
    ($level:ident, $($message:tt)+) => {
        if $crate::log::enabled($crate::log::Level::$level) {
            $crate::log::write($crate::log::Level::$level, &::std::format!($($message)+));
        }
    };
}
