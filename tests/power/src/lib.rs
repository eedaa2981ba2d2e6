//! A recorder of what a process does to a folder, to be loaded into it by `LD_PRELOAD`.
//!
//! It has functions with the names of the C library's that change files. Each calls the real one and, if that succeeded
//! and was about something below `WEIR_POWER_ROOT`, appends a [`record::Record`] to the file `WEIR_POWER_TRACE`. One lock
//! is held around both, so the order of the records is the order of the calls, across all threads. From the trace a test
//! computes what a disk may hold if the power fails at any moment (`tests/tests/power.rs`).
//!
//! What it cannot record it refuses: the process is aborted with the name of the call and of the file. What it cannot
//! see (a system call that does not go through the C library's functions, such as those that open temporary files inside
//! the C library) is found by the test: the folder must be at the end what the trace makes of it.
//!
//! Linux with the GNU C library on a 64-bit machine; elsewhere this library is empty.

#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]

pub mod calls;
pub mod record;
mod watch;
