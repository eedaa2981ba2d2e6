//! State by key, as collections that know what has changed and write and read themselves in snapshots.
//!
//! - [`KeyedState`]: a value for each key.
//! - [`Windows`]: a value for each key in each window, dropped window by window.
//! - [`EventTimers`]: times in event time, each with a key.
//!
//! What they hold is made of values that implement [`State`]: numbers, bytes, text, and any serde type in a [`Postcard`]. [`Segments`] takes
//! their snapshots, all together, and restores them.
//!
//! **Incremental.** A snapshot writes what has changed since the last one, until the changes of a key group outweigh the group, which is then
//! written whole. **Stepwise.** When the host asks to stop, the stream goes on, and later steps still write the state of the cut.
//! **By key group.** So state follows its keys when the parallelism changes. **In an order of its own.** Iteration and snapshots depend on what a
//! collection holds alone: one that grew and one that was restored agree, to the byte.

mod batched;
mod chunk;
mod codec;
mod groups;
mod key;
mod keyed;
mod segments;
mod table;
mod timers;
mod windows;

#[cfg(feature = "postcard")]
pub use codec::Postcard;
pub use codec::State;
pub use key::Key;
pub use keyed::KeyedState;
pub use segments::{Part, Segments};
pub use timers::{EventTimers, Timer};
pub use windows::{Sorted, Windows};
