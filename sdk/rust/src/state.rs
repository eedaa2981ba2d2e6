//! State by key, as collections that write and read themselves in snapshots.

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
