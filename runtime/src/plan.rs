//! From text to tasks: what the user asked for, and the physical plan made from it.
//!
//! ```text
//!   pipeline.toml ─ parse ─► PipelineSpec ─┬─ Plan::build ─► Plan ─ guarantees ─► CheckReport
//!                              plugins ────┘
//! ```
//!
//! Each step either succeeds or gives [`Diagnostics`]: all that is wrong, at its line, with the remedy. Nothing here reads a
//! file, loads a plugin or starts a task.

mod diagnostic;
mod grants;
mod guarantee;
mod parse;
mod physical;
mod report;
mod spec;

pub use diagnostic::{DIAGNOSTICS_MAX, Diagnostic, Diagnostics, Severity, SourceText};
pub use grants::{GRANTS_MAX, Grants, HttpHost};
pub use guarantee::{Guarantees, PATHS_MAX, PathGuarantee, guarantees};
pub(crate) use parse::values::{DURATION_MAX, SIZES, duration, show_duration};
pub use parse::{NODES_MAX, TEXT_BYTES_MAX, parse};
pub use physical::{CHANNELS_MAX, Edge, NodeKind, OutPort, Plan, PlanNode, REJECTED, SOURCE_PORT};
pub use report::{CheckReport, render_check};
pub use spec::*;
