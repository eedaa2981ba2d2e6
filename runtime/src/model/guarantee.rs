//! What a path from a source to a sink can promise.

use serde::Serialize;

/// What a path through a sink can promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// A record may be seen again after a failure.
    AtLeastOnce,
    /// Every record is seen once.
    ExactlyOnce,
}

impl std::fmt::Display for Guarantee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::AtLeastOnce => "at-least-once",
            Self::ExactlyOnce => "exactly-once",
        })
    }
}
