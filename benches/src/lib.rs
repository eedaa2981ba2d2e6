//! What the benches share: operators as native code inside the runtime, and jobs made without files.
//!
//! [`Native`] runs an operator that was written with the SDK as native code behind the very trait that a component is behind: same
//! code, same runtime, no WebAssembly. What a guest costs is the ratio of the two.

mod job;
mod native;
mod pass;
pub mod upgrade;
pub mod w4;

pub use job::{Measured, guest, run, task};
pub use native::{Native, native};
pub use pass::Pass;
pub use weir_tests::guests::component;
pub use weir_tests::root;
