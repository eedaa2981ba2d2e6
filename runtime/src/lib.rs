//! weir, a stream runtime whose operators are WebAssembly components.
//!
//! ```text
//!      ┌────────────────────────────────────────────────────────────────────┐
//!      │                            coordinator                             ├──► manifest n
//!      └──┬───────────────────────────────▲──────────────────────────────┬──┘    (object store)
//!         │ barrier n                     │ report n            commit n │
//!         ▼                               │                              ▼
//!       source ─► exchange ═► inbox ─► operator ─► exchange ═► inbox ─► sink
//! ```
//!
//! The modules, in the order of their dependencies; none uses one that comes after it:
//! [`model`], [`error`], [`mod@pointer`], [`clock`], [`account`], [`storage`]; [`plan`]; `checkpoint`, [`plugin`] and
//! [`connector`], which do not know one another; `flow`, the data path; `job`, the ring of coordinator and supervisor;
//! [`conformance`], which tries an operator alone; [`tenant`] and [`serve`], the host of many; [`api`] and `cli`, the doors.

pub mod account;
pub mod api;
pub mod checkpoint;
pub mod cli;
pub mod clock;
pub mod conformance;
pub mod connector;
pub mod error;
pub mod flow;
pub mod job;
pub mod metrics;
pub mod model;
mod offload;
pub mod plan;
pub mod plugin;
pub mod pointer;
pub mod serve;
#[cfg(test)]
pub(crate) mod simulation;
pub mod storage;
pub mod tenant;
