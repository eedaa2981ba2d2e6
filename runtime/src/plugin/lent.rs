//! The snapshot writer of a call, lent to the store of an instance while the call lasts.
//!
//! The data of a store cannot borrow, and a snapshot's bytes must not be copied once more only for that. So the store holds a
//! pointer, and the borrow is kept by a [`Loan`], which the future of the call holds: the pointer is gone from the store
//! before the borrow ends, also when the future is dropped half way.

use std::ptr::NonNull;

use wasmtime::Store;

use super::SnapshotWriter;
use super::host::HostState;
use crate::model::{Scope, SegmentKind};

/// A store that has been lent a snapshot writer; see [`Lent`].
pub(super) struct Loan<'a>(&'a mut Store<HostState>);

impl<'a> Loan<'a> {
    pub(super) fn new(store: &'a mut Store<HostState>, writer: &'a mut dyn SnapshotWriter) -> Self {
        // SAFETY: the borrow of the writer lasts as long as this does, and `drop` takes the pointer out.
        store.data_mut().writer = unsafe { Lent::new(writer) };
        Self(store)
    }

    /// The store, to make the call on.
    pub(super) fn store(&mut self) -> &mut Store<HostState> {
        self.0
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.0.data_mut().writer = Lent::default();
    }
}

/// The snapshot writer of a call, lent to the store while the call lasts.
///
/// A pointer; [`Loan`] has the borrow.
#[derive(Debug, Default)]
pub(super) struct Lent(Option<NonNull<dyn SnapshotWriter>>);

// SAFETY: a `SnapshotWriter` is `Send`, and this is the only pointer to it while it is lent.
unsafe impl Send for Lent {}

impl Lent {
    /// # Safety
    ///
    /// The pointer must be taken out again, by dropping this, before `writer`'s borrow ends, and `writer` not be used until
    /// then.
    unsafe fn new(writer: &mut dyn SnapshotWriter) -> Self {
        let writer: NonNull<dyn SnapshotWriter + '_> = NonNull::from(writer);
        // SAFETY: only the lifetime changes, and the caller vouches for that.
        Self(Some(unsafe {
            std::mem::transmute::<NonNull<dyn SnapshotWriter + '_>, NonNull<dyn SnapshotWriter + 'static>>(writer)
        }))
    }

    pub(super) fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> bool {
        // Without a writer there is no snapshot; `write_chunk` has asked before.
        let Some(mut writer) = self.0 else { return true };
        // SAFETY: `new`'s caller keeps the writer alive and to itself while it is lent.
        unsafe { writer.as_mut() }.write(scope, kind, data)
    }
}
