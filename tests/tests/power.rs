//! The power goes at any moment: what was published and what was checkpointed still fit, and a new run ends as if nothing had
//! happened.
//!
//! A real process is recorded (`tests/power`): every call that changes a file below its folder. From the record of it a model
//! of a disk computes, for many moments, what would be there if the power had gone: nothing that was not synced, or
//! whatever of it chance keeps. That is made real in a new folder, looked at as a reader of the output looks at it, and
//! handed to a new run.

#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]

#[path = "power/classics.rs"]
mod classics;
#[path = "power/disk.rs"]
mod disk;
#[path = "power/image.rs"]
mod image;
#[path = "power/loss.rs"]
mod loss;
#[path = "power/objects.rs"]
mod objects;
#[path = "power/place.rs"]
mod place;
#[path = "power/promises.rs"]
mod promises;
#[allow(unreachable_pub, reason = "it is public in the recorder, where it is the whole of the library")]
#[path = "../power/src/record.rs"]
mod record;
#[path = "power/recorder.rs"]
mod recorder;
#[path = "power/scenario.rs"]
mod scenario;
#[path = "power/subjects.rs"]
mod subjects;
