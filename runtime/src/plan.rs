//! From text to tasks: what the user asked for, and the physical plan made from it.

mod spec;

pub use spec::*;
