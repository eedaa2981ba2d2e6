//! The life of a job, in process: operators are native code, input is fed by hand, and the store fails when it is told to. Each
//! test names the invariant or the row of the crash table (DESIGN §5) that it attacks. None depends on how fast
//! anything is: they wait for events, and points at which something happens are counted in records.

#![allow(clippy::unwrap_used)] // All of it is tests, also what is not in a function of its own.

mod job {
    mod failures;
    mod flow;
    mod pieces;
    mod replay;
    mod snapshots;
    mod store;
    mod upgrade;
}
