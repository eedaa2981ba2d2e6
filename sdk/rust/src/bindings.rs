//! What wit-bindgen makes of `wit/`, for both worlds. The rest of the crate wraps it; only the `export!` macros name it
//! from outside.
//!
//! Batches go out as slices (`BatchParam`) and come in owned (`BatchResult`): a column crosses without a copy of ours.

#![allow(
    missing_docs,
    unused_macros,
    unused_imports,
    dead_code,
    missing_debug_implementations,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

pub mod stateful {
    wit_bindgen::generate!({
        path: "wit",
        world: "stateful-operator",
        ownership: Borrowing { duplicate_if_necessary: true },
        pub_export_macro: true,
        default_bindings_module: "weir_sdk::bindings::stateful",
    });
}

/// Only for its description of the world, which `export_simple!` links into a component; the export itself is that of the
/// other world, of which this one is a part. Its macros could not be public: they have the same names.
pub mod simple {
    wit_bindgen::generate!({
        path: "wit",
        world: "simple-operator",
        ownership: Borrowing { duplicate_if_necessary: true },
        with: {
            "weir:plugin/types@0.1.0": crate::bindings::stateful::weir::plugin::types,
            "weir:plugin/output@0.1.0": crate::bindings::stateful::weir::plugin::output,
            "weir:plugin/log@0.1.0": crate::bindings::stateful::weir::plugin::log,
            "weir:plugin/metrics@0.1.0": crate::bindings::stateful::weir::plugin::metrics,
            "weir:plugin/timers@0.1.0": crate::bindings::stateful::weir::plugin::timers,
        },
    });
}

pub use stateful::exports::weir::plugin::checkpoint::SnapshotMode;
pub use stateful::weir::plugin::{log, metrics, output, snapshots, timers, types};
