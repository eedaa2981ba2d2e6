//! Paces a source: so many records a second, and no rush after a pause.
//!
//! Pure: it is told what time it is. What a stalled source did not use of the last second is not made up for.

use std::time::Duration;

/// The longest time whose records may come at once.
const BURST: Duration = Duration::from_secs(1);

/// How many records a source may hand out.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    per_second: f64,
    since: Duration,
    handed_out: u64,
}

impl Pace {
    /// A pace of `per_second` records a second, greater than 0, from `now` on.
    pub(super) fn new(per_second: f64, now: Duration) -> Self {
        Self { per_second, since: now, handed_out: 0 }
    }

    /// How many records may be handed out now.
    pub(super) fn allowance(&mut self, now: Duration) -> u64 {
        let due = self.due(now);
        let burst = (self.per_second * BURST.as_secs_f64()).max(1.0) as u64;
        if due > self.handed_out.saturating_add(burst) {
            // Begin anew with one burst to hand out.
            self.since = now.saturating_sub(BURST);
            self.handed_out = 0;
            return burst;
        }
        due.saturating_sub(self.handed_out)
    }

    /// Notes that records were handed out.
    pub(super) fn note(&mut self, records: u64) {
        self.handed_out += records;
    }

    /// How long until the next record may be handed out; at least a millisecond, so that small rates do not spin.
    pub(super) fn pause(&self, now: Duration) -> Duration {
        let next = (self.handed_out + 1) as f64 / self.per_second;
        let at = self.since.saturating_add(Duration::try_from_secs_f64(next).unwrap_or(Duration::MAX));
        at.saturating_sub(now).clamp(Duration::from_millis(1), Duration::from_secs(1))
    }

    fn due(&self, now: Duration) -> u64 {
        (now.saturating_sub(self.since).as_secs_f64() * self.per_second) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_at_the_pace_and_a_long_pause_is_not_made_up_for() {
        let mut pace = Pace::new(100.0, Duration::from_secs(5));
        assert_eq!(pace.allowance(Duration::from_secs(5)), 0);
        assert_eq!(pace.pause(Duration::from_secs(5)), Duration::from_millis(10));
        assert_eq!(pace.allowance(Duration::from_millis(5500)), 50);
        pace.note(50);
        assert_eq!(pace.allowance(Duration::from_millis(5500)), 0);
        assert_eq!(pace.allowance(Duration::from_millis(6000)), 50);
        assert_eq!(pace.allowance(Duration::from_secs(600)), 100, "one second's worth");
        pace.note(100);
        assert_eq!(pace.allowance(Duration::from_millis(600_100)), 10);
    }

    #[test]
    fn a_pace_of_less_than_a_record_a_second_still_moves() {
        let mut pace = Pace::new(0.1, Duration::ZERO);
        assert_eq!(pace.allowance(Duration::from_secs(9)), 0);
        assert_eq!(pace.allowance(Duration::from_secs(10)), 1);
        pace.note(1);
        assert_eq!(pace.pause(Duration::from_secs(10)), Duration::from_secs(1));
    }
}
