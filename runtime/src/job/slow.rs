//! Says when checkpoints take nearly as long as the interval between them, and which part of them does.
//!
//! A pure judge: how long the parts of a checkpoint took goes in, a warning comes out, at most one in [`QUIET`]. The slowest subtask
//! counts in each part, since a checkpoint waits for all of them.

use std::time::Duration;

use crate::flow::CutTimings;
use crate::model::TaskId;

/// How long after a warning there is no other.
const QUIET: Duration = Duration::from_secs(60);

/// How long the parts of one checkpoint took.
#[derive(Clone, Debug, Default)]
pub(super) struct Phases {
    /// The slowest subtask in each part but the last.
    align: (Duration, Option<TaskId>),
    snapshot: (Duration, Option<TaskId>),
    upload: (Duration, Option<TaskId>),
    /// The manifest, and sinks publishing.
    pub(super) commit: Duration,
    /// All of it, from the start of the attempt.
    pub(super) whole: Duration,
}

impl Phases {
    /// Takes in a subtask's report.
    pub(super) fn note(&mut self, task: &TaskId, timings: CutTimings) {
        for (phase, took) in [
            (&mut self.align, timings.align),
            (&mut self.snapshot, timings.snapshot),
            (&mut self.upload, timings.upload),
        ] {
            if phase.1.is_none() || took > phase.0 {
                *phase = (took, Some(task.clone()));
            }
        }
    }

    /// Of each part the longest.
    pub(super) fn slowest(&self) -> CutTimings {
        CutTimings { align: self.align.0, snapshot: self.snapshot.0, upload: self.upload.0 }
    }

    /// The part that took longest, how long, and whose it was.
    fn longest(&self) -> (&'static str, Duration, Option<&TaskId>) {
        let parts = [
            ("alignment", self.align.0, self.align.1.as_ref()),
            ("snapshot", self.snapshot.0, self.snapshot.1.as_ref()),
            ("upload", self.upload.0, self.upload.1.as_ref()),
            ("commit", self.commit, None),
        ];
        parts.into_iter().max_by_key(|(_, took, _)| *took).unwrap_or(("commit", Duration::ZERO, None))
    }
}

/// Remembers when it warned.
#[derive(Debug, Default)]
pub(super) struct Slow {
    quiet_until: Duration,
}

impl Slow {
    /// The warning about a checkpoint that is complete, if one is due.
    pub(super) fn judge(&mut self, now: Duration, interval: Duration, phases: &Phases) -> Option<String> {
        if now < self.quiet_until || phases.whole.saturating_mul(5) < interval.saturating_mul(4) {
            return None;
        }
        self.quiet_until = now + QUIET;
        let (part, took, task) = phases.longest();
        let whose = task.map_or_else(String::new, |task| format!(" of {task}"));
        let help = match part {
            "alignment" => {
                "a path through the pipeline is slow, or its load is uneven: raise the parallelism of what is slow"
            }
            "snapshot" => "operators write much state, or sinks much output: raise their parallelism or the interval",
            "upload" => "the store is slow or far: look at it, or raise the interval",
            _ => "the store or the sinks are slow to commit: look at them, or raise the interval",
        };
        Some(format!(
            "a checkpoint took {:.0} ms of an interval of {:.0} ms, most of it {part}{whose} ({:.0} ms): {help}",
            phases.whole.as_secs_f64() * 1e3,
            interval.as_secs_f64() * 1e3,
            took.as_secs_f64() * 1e3
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NodeName;

    const MS: Duration = Duration::from_millis(1);

    fn task(subtask: u32) -> TaskId {
        TaskId { node: NodeName::new("op"), subtask }
    }

    fn phases(align: u32, snapshot: u32, upload: u32, commit: u32) -> Phases {
        let mut phases = Phases { commit: commit * MS, whole: 90 * MS, ..Phases::default() };
        phases.note(&task(0), CutTimings::default());
        phases.note(&task(1), CutTimings { align: align * MS, snapshot: snapshot * MS, upload: upload * MS });
        phases.note(&task(2), CutTimings { align: MS, snapshot: MS, upload: MS });
        phases
    }

    #[test]
    fn the_part_that_took_longest_is_named_with_its_subtask() {
        for (phases, named) in [
            (phases(50, 2, 3, 4), "alignment of op[1] (50 ms)"),
            (phases(5, 60, 3, 4), "snapshot of op[1] (60 ms)"),
            (phases(5, 2, 70, 4), "upload of op[1] (70 ms)"),
            (phases(5, 2, 3, 40), "commit (40 ms)"),
        ] {
            let said = Slow::default().judge(Duration::from_secs(1), 100 * MS, &phases).expect("it is slow");
            assert!(said.contains(named) && said.contains("took 90 ms of an interval of 100 ms"), "{said}");
        }
    }

    #[test]
    fn it_warns_from_four_fifths_of_the_interval_on_and_once_a_minute() {
        let mut slow = Slow::default();
        let now = Duration::from_secs(5);
        assert!(slow.judge(now, 113 * MS, &phases(1, 1, 1, 1)).is_none());
        assert!(slow.judge(now, 112 * MS, &phases(1, 1, 1, 1)).is_some());
        assert!(slow.judge(now + QUIET - MS, 10 * MS, &phases(1, 1, 1, 1)).is_none());
        assert!(slow.judge(now + QUIET, 10 * MS, &phases(1, 1, 1, 1)).is_some());
    }
}
