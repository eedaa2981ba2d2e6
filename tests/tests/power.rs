//! The power goes at any moment: what was published and what was checkpointed still fit, and a new run ends as if nothing had
//! happened.
//!
//! A real process is recorded (`tests/power`): every call that changes a file below its folder. From the record of it a model
//! of a disk computes, for many moments, what would be there if the power had gone: nothing that was not synced, or
//! whatever of it chance keeps. That is made real in a new folder, looked at as a reader of the output looks at it, and
//! handed to a new run.

#[path = "power/classics.rs"]
mod classics;
#[path = "power/disk.rs"]
mod disk;
#[path = "power/image.rs"]
mod image;
#[path = "power/loss.rs"]
mod loss;
#[path = "../power/src/record.rs"]
mod record;
#[path = "power/recorder.rs"]
mod recorder;
#[path = "power/subjects.rs"]
mod subjects;
#[path = "power/scenario.rs"]
mod scenario;
