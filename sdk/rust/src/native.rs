//! Runs an operator outside of WebAssembly: whoever calls it plays the host.
//!
//! [`crate::testing`] is the host of unit tests. A program that compares an operator as a component with the same operator as native
//! code brings its own [`Imports`], and calls the operator's methods within [`call`], [`snapshot`] and [`restore`].

use std::cell::Cell;
use std::ptr::NonNull;

use crate::batch::BatchView;
use crate::bindings::log::Level;
use crate::bindings::snapshots::{Chunk, Segment};
use crate::output::Output;
use crate::snapshot::{SnapshotReader, SnapshotWriter};

/// What a host offers: the imports of `wit/`, one method each.
#[allow(missing_docs)]
pub trait Imports {
    fn emit(&mut self, port: u32, batch: BatchView<'_>);
    fn reject(&mut self, index: u32, reason: &str);
    fn reject_batch(&mut self, batch: BatchView<'_>, reason: &str);
    fn log(&mut self, level: Level, message: &str);
    fn log_enabled(&mut self, level: Level) -> bool;
    fn count(&mut self, name: &str, delta: u64);
    fn gauge(&mut self, name: &str, value: f64);
    fn observe(&mut self, name: &str, value: f64);
    fn now(&mut self) -> i64;
    fn wake_at(&mut self, at: i64);
    fn write(&mut self, target: Segment, data: &[u8]) -> bool;
    fn read(&mut self) -> Option<Chunk>;
}

thread_local! {
    static HOST: Cell<Option<NonNull<dyn Imports>>> = const { Cell::new(None) };
}

/// Takes the host away when a call ends, also by a panic.
struct Installed(Option<NonNull<dyn Imports>>);

impl Drop for Installed {
    fn drop(&mut self) {
        HOST.set(self.0);
    }
}

fn install<R>(imports: &mut (dyn Imports + '_), run: impl FnOnce() -> R) -> R {
    // SAFETY: only the lifetime is forgotten. The pointer is used by functions of this module only, on this thread, and `Installed`
    // takes it away before `imports` can be used by anyone else.
    let host: NonNull<dyn Imports + 'static> = unsafe { std::mem::transmute(NonNull::from(imports)) };
    let _installed = Installed(HOST.replace(Some(host)));
    run()
}

/// Runs a call of [`crate::Operator`].
pub fn call<R>(imports: &mut dyn Imports, run: impl FnOnce(&mut Output) -> R) -> R {
    install(imports, || run(&mut Output::new()))
}

/// Runs a call of [`crate::Stateful::snapshot`].
pub fn snapshot<R>(imports: &mut dyn Imports, run: impl FnOnce(&mut SnapshotWriter) -> R) -> R {
    install(imports, || run(&mut SnapshotWriter::new()))
}

/// Runs a call of [`crate::Stateful::restore`].
pub fn restore<R>(imports: &mut dyn Imports, run: impl FnOnce(&mut SnapshotReader) -> R) -> R {
    install(imports, || run(&mut SnapshotReader::new()))
}

/// Gives the host to `use_it`. It is taken away meanwhile: a host that calls back into the operator finds none.
#[track_caller]
pub(crate) fn with_host<R>(function: &str, use_it: impl FnOnce(&mut dyn Imports) -> R) -> R {
    let Some(mut host) = HOST.take() else { panic!("{function} was called outside of a call from the host") };
    let _installed = Installed(Some(host));
    // SAFETY: `install` holds the exclusive borrow behind this pointer for as long as it is in `HOST`, and it was
    // taken out, so there is no second reference.
    use_it(unsafe { host.as_mut() })
}

/// Whether there is a host.
pub(crate) fn has_host() -> bool {
    HOST.get().is_some()
}
