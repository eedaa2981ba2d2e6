//! The whole job under a seed: the real supervisor, coordinator, tasks, channels, publisher and collector, in virtual time, on a store and between
//! connectors that fail, wait, and do what was asked and report failure.
//!
//! ```text
//!   world ── seed ──► processes, each on a runtime of its own: started, killed, put to sleep, woken up
//!                        │ source ─► count ─► two sinks            │ every object, every commit
//!                        ▼                                         ▼
//!                     faulty store, destination ─────────────► auditor: I1 … I13
//! ```
//!
//! A process is a tokio runtime with one thread and a clock that stands still while there is work, so nothing in it
//! depends on the machine; two processes take turns of a millisecond. Dropping the runtime is what a `kill -9` is: no task
//! gets another poll. A process that is not run while the world's clock goes on is what a long pause of a machine is: it goes on in the middle of
//! whatever it was doing, and finds its clock ahead.
//!
//! `checkpoint/simulation.rs` drives the same log, publisher, recovery and collector with a toy in place of the job; its seeds are a hundred times cheaper,
//! and reach rare orders of operations. Both share the store (`checkpoint/faulty.rs`) and the auditor
//! (`checkpoint/auditor.rs`), and both are run as mutants ([`mutants`]).

use std::cell::{Cell, RefCell};

pub(crate) mod books;
pub(crate) mod connectors;
pub(crate) mod model;
pub(crate) mod mutants;
pub(crate) mod operator;
pub(crate) mod process;
pub(crate) mod situations;
pub(crate) mod world;

#[cfg(test)]
mod tests;

pub(crate) use mutants::{Mutant, mutant};

use connectors::Place;

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    /// Of each program.
    static PLACES: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
    /// The program that is run now.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// This thread is simulating.
pub(crate) struct On(());

impl On {
    /// Until it is dropped.
    pub(crate) fn enter() -> Self {
        IS_ON.set(true);
        Self(())
    }

    /// A program begins at a place; its number is how many there were before.
    pub(crate) fn add(place: Place) {
        PLACES.with_borrow_mut(|places| places.push(place));
    }

    /// From now on this program is run.
    pub(crate) fn turn_of(actor: usize) {
        CURRENT.set(actor);
    }
}

impl Drop for On {
    fn drop(&mut self) {
        IS_ON.set(false);
        PLACES.with_borrow_mut(Vec::clear);
    }
}

/// The place of the program that is run now, if this thread is simulating.
pub(crate) fn place() -> Option<Place> {
    if !IS_ON.get() {
        return None;
    }
    PLACES.with_borrow(|places| places.get(CURRENT.get()).cloned())
}
