//! Processing time. For event time see [`crate::Operator::advance`] and [`crate::state::EventTimers`].

use crate::batch::Timestamp;
use crate::host;

/// The time at which the host began this call. It stands still within a call, never goes back, and is the same when the
/// call is re-executed.
pub fn now() -> Timestamp {
    host::now()
}

/// Asks for a call of [`crate::Operator::wake`] at that time, or at once if it has passed. The host keeps one such time, the
/// earliest asked for, and forgets it when it calls.
pub fn wake_at(at: Timestamp) {
    host::wake_at(at);
}
