//! The life of a job, in process: operators are native code, input is fed by hand, and the store fails when it is told to. Each
//! test names the invariant or the row of the crash table (DESIGN §5) that it attacks. None depends on how fast
//! anything is: they wait for events, and points at which something happens are counted in records.

mod job {
    mod failures;
    mod flow;
    mod pieces;
    mod store;
}
