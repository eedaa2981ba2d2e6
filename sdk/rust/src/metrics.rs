//! Numbers for people, for what only the plugin knows: the host counts records, bytes, time and failures by itself.
//!
//! Names are 1 to 64 lower-case letters, digits and underscores; a plugin may have 256 of them. Call once a batch, not once a
//! record.

use crate::host;

/// Adds to a counter.
pub fn count(name: &str, delta: u64) {
    host::count(name, delta);
}

/// Sets a gauge.
pub fn gauge(name: &str, value: f64) {
    host::gauge(name, value);
}

/// Adds an observation to a histogram.
pub fn observe(name: &str, value: f64) {
    host::observe(name, value);
}
