//! State by key, as collections that write and read themselves in snapshots.

mod batched;
mod chunk;
mod codec;
mod groups;
mod key;
mod keyed;
mod segments;
mod table;

#[cfg(feature = "postcard")]
pub use codec::Postcard;
pub use codec::State;
pub use key::Key;
pub use keyed::KeyedState;
pub use segments::{Part, Segments};
