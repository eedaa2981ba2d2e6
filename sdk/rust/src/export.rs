//! Makes a component of an operator: the one instance, the calls from the host, and a panic hook that logs.
//!
//! The macros only name the operator's type; what they expand to lies here. On other targets than WebAssembly they check the
//! type and do nothing else, so that the same crate has plain tests.

/// Exports an operator that writes its state itself, as the world `stateful-operator`. Once a crate.
#[macro_export]
macro_rules! export {
    ($operator:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Component;
            $crate::__instance!(Component, $operator);
    $crate::bindings::stateful::export!(Component with_types_in $crate::bindings::stateful);
        };
        #[cfg(not(target_arch = "wasm32"))]
        const _: fn() = || {
            fn is_stateful<T: $crate::Stateful>() {}
            is_stateful::<$operator>();
        };
    };
}

/// Exports an operator that leaves its state to the host, as the world `simple-operator`. Once a crate.
#[macro_export]
macro_rules! export_simple {
    ($operator:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Component;
            $crate::__instance!(Component, $operator);
            #[used]
            static WORLD: fn() = $crate::bindings::simple::__link_custom_section_describing_imports;
            $crate::bindings::stateful::exports::weir::plugin::processor::__export_weir_plugin_processor_0_1_0_cabi!(
                Component with_types_in $crate::bindings::stateful::exports::weir::plugin::processor
            );
        };
        #[cfg(not(target_arch = "wasm32"))]
        const _: fn() = || {
            fn is_operator<T: $crate::Operator>() {}
            is_operator::<$operator>();
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __instance {
    ($component:ident, $operator:ty) => {
        impl $crate::export::Instance for $component {
            type Operator = $operator;

            fn slot() -> &'static $crate::export::Slot<$operator> {
                static SLOT: $crate::export::Slot<$operator> = $crate::export::Slot::new();
                &SLOT
            }
        }
    };
}

#[cfg(target_arch = "wasm32")]
pub use wasm::{Instance, Slot};

#[cfg(target_arch = "wasm32")]
mod wasm {
    use std::cell::RefCell;

    use crate::batch::{BatchView, Timestamp};
    use crate::bindings::types::{BatchResult, Descriptor, Failure, Progress, TaskInfo};
    use crate::bindings::{SnapshotMode, stateful};
    use crate::host;
    use crate::log::Level;
    use crate::operator::{Cut, Operator, Stateful};
    use crate::output::Output;
    use crate::snapshot::{SnapshotReader, SnapshotWriter};

    /// Holds the one operator of a component.
    #[allow(missing_debug_implementations, reason = "only the macros see it")]
    pub struct Slot<T>(RefCell<Option<T>>);

    // SAFETY: a component has one thread, and weir's contract one call at a time.
    unsafe impl<T> Sync for Slot<T> {}

    impl<T> Slot<T> {
        #[allow(clippy::new_without_default, reason = "only the macro makes one, in a static")]
        pub const fn new() -> Self {
            Self(RefCell::new(None))
        }

        #[inline]
        fn with<R>(&self, call: impl FnOnce(&mut T) -> R) -> R {
            call(self.0.borrow_mut().as_mut().expect("the host calls open before anything else"))
        }
    }

    /// What the macros implement: which operator a component is.
    pub trait Instance: 'static {
        type Operator: Operator;
        fn slot() -> &'static Slot<Self::Operator>;
    }

    /// A trap says no more than "unreachable": this says why, before it.
    fn log_panics() {
        std::panic::set_hook(Box::new(|panic| host::log_write(Level::Error, &panic.to_string())));
    }

    impl<I: Instance> stateful::exports::weir::plugin::processor::Guest for I {
        fn describe() -> Descriptor {
            log_panics();
            I::Operator::descriptor().into_wit()
        }

        fn open(config: String, task: TaskInfo) -> Result<(), Failure> {
            log_panics();
            let operator = I::Operator::open(&config, &task)?;
            *I::slot().0.borrow_mut() = Some(operator);
            Ok(())
        }

        fn process(port: u32, input: BatchResult) -> Result<Progress, Failure> {
            I::slot().with(|op| op.process(port, BatchView::from(&input), &mut Output::new()))
        }

        fn advance(watermark: Timestamp) -> Result<Progress, Failure> {
            I::slot().with(|op| op.advance(watermark, &mut Output::new()))
        }

        fn wake() -> Result<Progress, Failure> {
            I::slot().with(|op| op.wake(&mut Output::new()))
        }

        fn finish(port: u32) -> Result<Progress, Failure> {
            I::slot().with(|op| op.finish(port, &mut Output::new()))
        }

        fn resume() -> Result<Progress, Failure> {
            I::slot().with(|op| op.resume(&mut Output::new()))
        }
    }

    impl<I: Instance<Operator: Stateful>> stateful::exports::weir::plugin::checkpoint::Guest for I {
        fn snapshot(epoch: u64, mode: SnapshotMode) -> Result<Progress, Failure> {
            I::slot().with(|op| op.snapshot(Cut { epoch, mode }, &mut SnapshotWriter::new()))
        }

        fn restore(state_version: u32) -> Result<(), Failure> {
            I::slot().with(|op| op.restore(state_version, &mut SnapshotReader::new()))
        }
    }
}
