//! The functions that stand before those of the C library.
//!
//! Each has the name and the arguments of the real one, calls it and gives back what it gave. The arguments that C
//! passes as variable ones (`open`'s mode, `fcntl`'s and `ioctl`'s last) are declared as plain ones: on the machines that this
//! library is for, both are passed the same way. Only calls that succeed are noted.
//!
//! # Safety
//!
//! Of each function: what its namesake asks for.

#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{AT_FDCWD, iovec, mode_t, off_t, size_t, ssize_t};

use crate::record::Record;
use crate::watch::{recorded, recorded_on, refuse};

/// Looks a function up in the libraries that come after this one, once.
fn next(name: &std::ffi::CStr, known: &AtomicPtr<c_void>) -> *mut c_void {
    let found = known.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        refuse("a call that the C library does not have", name.to_bytes());
    }
    known.store(found, Ordering::Relaxed);
    found
}

/// Declares functions that are called like the C library's. In the body, `real` is a closure that makes the real call with
/// the arguments as they came.
macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = |$real:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            const NAME: &str = concat!(stringify!($name), "\0");
            let $real = || {
                let name = std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()).unwrap_or_default();
                // SAFETY: the C library's function of this name has this type, and the caller gave what it asks for.
                unsafe {
                    let function = std::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C" fn($($type),*) -> $result,
                    >(next(name, &KNOWN));
                    function($($arg),*)
                }
            };
            $body
        }
    )*};
}

/// The bytes of a buffer that a call has taken.
fn taken(buffer: *const c_void, len: ssize_t) -> Vec<u8> {
    match usize::try_from(len) {
        // SAFETY: the kernel has read so many bytes from there.
        Ok(len) if len > 0 => unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), len) }.to_vec(),
        _ => Vec::new(),
    }
}

/// The same of several buffers.
fn taken_vectored(buffers: *const iovec, count: c_int, len: ssize_t) -> Vec<u8> {
    let mut left = usize::try_from(len).unwrap_or(0);
    let mut bytes = Vec::with_capacity(left);
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the kernel has read so many buffers.
        let buffer = unsafe { *buffers.add(index) };
        let here = left.min(buffer.iov_len);
        bytes.extend_from_slice(&taken(buffer.iov_base, here as ssize_t));
        left -= here;
    }
    bytes
}

/// What a copy's explicit offset was before the kernel moved it on.
fn offset_before(offset: *const off_t, copied: ssize_t) -> Option<u64> {
    // SAFETY: the kernel has written there.
    (!offset.is_null()).then(|| unsafe { *offset }.saturating_sub(copied as off_t) as u64)
}

fn make_folder(path: Vec<u8>) -> Record {
    Record::MakeFolder { path }
}

fn unlinked(path: Vec<u8>) -> Record {
    Record::Unlink { path }
}

fn folder_removed(path: Vec<u8>) -> Record {
    Record::RemoveFolder { path }
}

fn renamed(from: Vec<u8>, to: Vec<u8>) -> Record {
    Record::Rename { from, to }
}

fn linked(from: Vec<u8>, to: Vec<u8>) -> Record {
    Record::Link { from, to }
}

const CREATE: c_int = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;

// Opening and closing.
calls! {
    /// `open(2)`
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        |real| recorded(real, |watch, &fd| watch.opened(fd, flags));
    /// `open(2)`
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        |real| recorded(real, |watch, &fd| watch.opened(fd, flags));
    /// `openat(2)`
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        |real| recorded(real, |watch, &fd| watch.opened(fd, flags));
    /// `openat(2)`
    fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        |real| recorded(real, |watch, &fd| watch.opened(fd, flags));
    /// `creat(2)`
    fn creat(path: *const c_char, mode: mode_t) -> c_int =
        |real| recorded(real, |watch, &fd| watch.opened(fd, CREATE));
    /// `creat(2)`
    fn creat64(path: *const c_char, mode: mode_t) -> c_int =
        |real| recorded(real, |watch, &fd| watch.opened(fd, CREATE));
    /// `close(2)`, which gives the number back even where it fails.
    fn close(fd: c_int) -> c_int = |real| recorded_on(fd, real, |watch, _| watch.closed(fd));
    /// `closedir(3)`
    fn closedir(folder: *mut libc::DIR) -> c_int = |real| {
        // SAFETY: it is open until the real call.
        let fd = unsafe { libc::dirfd(folder) };
        recorded_on(fd, real, |watch, _| watch.closed(fd))
    };
    /// `dup(2)`
    fn dup(fd: c_int) -> c_int = |real| recorded(real, |watch, &second| watch.duplicated(fd, second));
    /// `dup2(2)`
    fn dup2(fd: c_int, to: c_int) -> c_int = |real| recorded(real, |watch, &second| watch.duplicated(fd, second));
    /// `dup3(2)`
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int =
        |real| recorded(real, |watch, &second| watch.duplicated(fd, second));
    /// `fcntl(2)`: noted if it duplicates.
    fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int = |real| match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => recorded(real, |watch, &second| watch.duplicated(fd, second)),
        _ => real(),
    };
    /// `fcntl(2)`: noted if it duplicates.
    fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int = |real| match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => recorded(real, |watch, &second| watch.duplicated(fd, second)),
        _ => real(),
    };
}

// Content.
calls! {
    /// `write(2)`
    fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t =
        |real| recorded_on(fd, real, |watch, &wrote| watch.wrote(fd, taken(buffer, wrote)));
    /// `writev(2)`
    fn writev(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t =
        |real| recorded_on(fd, real, |watch, &wrote| watch.wrote(fd, taken_vectored(buffers, count, wrote)));
    /// `pwrite(2)`
    fn pwrite(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t =
        |real| recorded_on(fd, real, |watch, &wrote| watch.wrote_at(fd, offset as u64, taken(buffer, wrote)));
    /// `pwrite(2)`
    fn pwrite64(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t =
        |real| recorded_on(fd, real, |watch, &wrote| watch.wrote_at(fd, offset as u64, taken(buffer, wrote)));
    /// `pwritev(2)`, refused.
    fn pwritev(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t =
        |real| recorded_on(fd, real, |watch, _| watch.refuse_on("pwritev", fd));
    /// `pwritev(2)`, refused.
    fn pwritev64(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t =
        |real| recorded_on(fd, real, |watch, _| watch.refuse_on("pwritev", fd));
    /// `pwritev2(2)`, refused.
    fn pwritev2(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =
        |real| recorded_on(fd, real, |watch, _| watch.refuse_on("pwritev2", fd));
    /// `pwritev2(2)`, refused.
    fn pwritev64v2(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =
        |real| recorded_on(fd, real, |watch, _| watch.refuse_on("pwritev2", fd));
    /// `ftruncate(2)`
    fn ftruncate(fd: c_int, len: off_t) -> c_int = |real| recorded_on(fd, real, |watch, &result| {
        if result == 0 { watch.truncated(fd, len as u64) }
    });
    /// `ftruncate(2)`
    fn ftruncate64(fd: c_int, len: off_t) -> c_int = |real| recorded_on(fd, real, |watch, &result| {
        if result == 0 { watch.truncated(fd, len as u64) }
    });
    /// `truncate(2)`, refused.
    fn truncate(path: *const c_char, len: off_t) -> c_int =
        |real| recorded(real, |watch, _| watch.refuse_at("truncate", AT_FDCWD, path));
    /// `truncate(2)`, refused.
    fn truncate64(path: *const c_char, len: off_t) -> c_int =
        |real| recorded(real, |watch, _| watch.refuse_at("truncate", AT_FDCWD, path));
    /// `fallocate(2)`, refused.
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int =
        |real| recorded_on(fd, real, |watch, _| watch.refuse_on("fallocate", fd));
    /// `fallocate(2)`, refused.
    fn fallocate64(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int =
        |real| recorded_on(fd, real, |watch, _| watch.refuse_on("fallocate", fd));
    /// `posix_fallocate(3)`, refused.
    fn posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int =
        |real| recorded_on(fd, real, |watch, _| watch.refuse_on("posix_fallocate", fd));
    /// `posix_fallocate(3)`, refused.
    fn posix_fallocate64(fd: c_int, offset: off_t, len: off_t) -> c_int =
        |real| recorded_on(fd, real, |watch, _| watch.refuse_on("posix_fallocate", fd));
    /// `copy_file_range(2)`
    fn copy_file_range(
        from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t = |real| recorded_on(to, real, |watch, &copied| if copied > 0 {
        watch.copied(to, offset_before(to_offset, copied), copied as usize);
    });
    /// `splice(2)`
    fn splice(
        from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t = |real| recorded_on(to, real, |watch, &copied| if copied > 0 {
        watch.copied(to, offset_before(to_offset, copied), copied as usize);
    });
    /// `sendfile(2)`
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t =
        |real| recorded_on(to, real, |watch, &copied| if copied > 0 { watch.copied(to, None, copied as usize) });
    /// `sendfile(2)`
    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t =
        |real| recorded_on(to, real, |watch, &copied| if copied > 0 { watch.copied(to, None, copied as usize) });
    /// `mmap(2)`, refused if the file can be written through it.
    fn mmap(
        address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void = |real| {
        if fd < 0 || flags & libc::MAP_SHARED == 0 || protection & libc::PROT_WRITE == 0 { real() } else {
            recorded_on(fd, real, |watch, _| watch.refuse_on("a shared writable map", fd))
        }
    };
    /// `mmap(2)`, refused if the file can be written through it.
    fn mmap64(
        address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void = |real| {
        if fd < 0 || flags & libc::MAP_SHARED == 0 || protection & libc::PROT_WRITE == 0 { real() } else {
            recorded_on(fd, real, |watch, _| watch.refuse_on("a shared writable map", fd))
        }
    };
    /// `ioctl(2)`, refused if it makes a file share another's content.
    fn ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int = |real| match request {
        // FICLONE, FICLONERANGE, FIDEDUPERANGE.
        0x4004_9409 | 0x4020_940d | 0xc018_9436 => recorded_on(fd, real, |watch, _| watch.refuse_on("a clone", fd)),
        _ => real(),
    };
}

// Promises.
calls! {
    /// `fsync(2)`
    fn fsync(fd: c_int) -> c_int = |real| recorded_on(fd, real, |watch, &result| if result == 0 { watch.synced(fd) });
    /// `fdatasync(2)`
    fn fdatasync(fd: c_int) -> c_int =
        |real| recorded_on(fd, real, |watch, &result| if result == 0 { watch.synced(fd) });
    /// `syncfs(2)`
    fn syncfs(fd: c_int) -> c_int =
        |real| recorded_on(fd, real, |watch, &result| if result == 0 { watch.synced_all() });
    /// `sync(2)`
    fn sync() -> () = |real| recorded(real, |watch, ()| watch.synced_all());
}

// Names.
calls! {
    /// `rename(2)`
    fn rename(from: *const c_char, to: *const c_char) -> c_int = |real| recorded(real, |watch, &result| {
        if result == 0 { watch.named_twice((AT_FDCWD, from), (AT_FDCWD, to), renamed) }
    });
    /// `renameat(2)`
    fn renameat(from_folder: c_int, from: *const c_char, to_folder: c_int, to: *const c_char) -> c_int =
        |real| recorded(real, |watch, &result| {
            if result == 0 { watch.named_twice((from_folder, from), (to_folder, to), renamed) }
        });
    /// `renameat2(2)`, refused if it exchanges.
    fn renameat2(
        from_folder: c_int, from: *const c_char, to_folder: c_int, to: *const c_char, flags: c_uint
    ) -> c_int = |real| recorded(real, |watch, &result| if result == 0 {
        if flags & !libc::RENAME_NOREPLACE != 0 {
            watch.refuse_at("an exchange", to_folder, to);
        }
        watch.named_twice((from_folder, from), (to_folder, to), renamed);
    });
    /// `link(2)`
    fn link(from: *const c_char, to: *const c_char) -> c_int = |real| recorded(real, |watch, &result| {
        if result == 0 { watch.named_twice((AT_FDCWD, from), (AT_FDCWD, to), linked) }
    });
    /// `linkat(2)`, refused if it follows or names no source.
    fn linkat(
        from_folder: c_int, from: *const c_char, to_folder: c_int, to: *const c_char, flags: c_int
    ) -> c_int = |real| recorded(real, |watch, &result| if result == 0 {
        if flags != 0 {
            watch.refuse_at("a link to a link's target", to_folder, to);
        }
        watch.named_twice((from_folder, from), (to_folder, to), linked);
    });
    /// `symlink(2)`, refused.
    fn symlink(target: *const c_char, path: *const c_char) -> c_int =
        |real| recorded(real, |watch, _| watch.refuse_at("symlink", AT_FDCWD, path));
    /// `symlinkat(2)`, refused.
    fn symlinkat(target: *const c_char, folder: c_int, path: *const c_char) -> c_int =
        |real| recorded(real, |watch, _| watch.refuse_at("symlinkat", folder, path));
    /// `unlink(2)`
    fn unlink(path: *const c_char) -> c_int = |real| recorded(real, |watch, &result| {
        if result == 0 { watch.named(AT_FDCWD, path, unlinked) }
    });
    /// `unlinkat(2)`
    fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int = |real| recorded(real, |watch, &result| {
        if result == 0 {
            watch.named(folder, path, if flags & libc::AT_REMOVEDIR == 0 { unlinked } else { folder_removed });
        }
    });
    /// `rmdir(2)`
    fn rmdir(path: *const c_char) -> c_int = |real| recorded(real, |watch, &result| {
        if result == 0 { watch.named(AT_FDCWD, path, folder_removed) }
    });
    /// `mkdir(2)`
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int = |real| recorded(real, |watch, &result| {
        if result == 0 { watch.named(AT_FDCWD, path, make_folder) }
    });
    /// `mkdirat(2)`
    fn mkdirat(folder: c_int, path: *const c_char, mode: mode_t) -> c_int = |real| recorded(real, |watch, &result| {
        if result == 0 { watch.named(folder, path, make_folder) }
    });
}
