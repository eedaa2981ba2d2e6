//! What is watched: the root, the descriptors that are open below it, and the trace.
//!
//! In: the outcome of each call. Out: records. Nothing here may call an interposed function of this library under the lock
//! and wait for it: the flag `INSIDE` makes such calls go straight through, and files are opened by bare system calls.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::record::Record;

/// The folder to watch.
const ROOT: &str = "WEIR_POWER_ROOT";
/// The file for the trace; outside the root.
const TRACE: &str = "WEIR_POWER_TRACE";

thread_local! {
    /// This thread is in the recorder.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Which file a descriptor is open on, to notice when a number was closed and used again behind our back.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: libc::dev_t,
    inode: libc::ino_t,
}

/// The state of the recorder.
pub(crate) struct Watch {
    root: Vec<u8>,
    trace: c_int,
    process: u32,
    open: BTreeMap<c_int, Identity>,
}

/// None if this process is not watched.
fn watch() -> Option<&'static Mutex<Watch>> {
    static WATCH: OnceLock<Option<Mutex<Watch>>> = OnceLock::new();
    WATCH.get_or_init(|| Watch::begin().map(Mutex::new)).as_ref()
}

/// Makes a call and takes note of its outcome, both under the lock. `errno` is that of the call.
pub(crate) fn recorded<T>(call: impl FnOnce() -> T, note: impl FnOnce(&mut Watch, &T)) -> T {
    inside(|_| true, call, note)
}

/// The same for a call on a descriptor: if that is not watched, the call is made without the lock, since it may block.
pub(crate) fn recorded_on<T>(fd: c_int, call: impl FnOnce() -> T, note: impl FnOnce(&mut Watch, &T)) -> T {
    inside(|watch| lock(watch).is_open(fd), call, note)
}

fn lock(watch: &Mutex<Watch>) -> std::sync::MutexGuard<'_, Watch> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}

fn inside<T>(
    concerns: impl FnOnce(&Mutex<Watch>) -> bool,
    call: impl FnOnce() -> T,
    note: impl FnOnce(&mut Watch, &T),
) -> T {
    if INSIDE.replace(true) {
        return call();
    }
    let Some(watch) = watch().filter(|watch| concerns(watch)) else {
        INSIDE.set(false);
        return call();
    };
    let mut watch = lock(watch);
    let outcome = call();
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    note(&mut watch, &outcome);
    drop(watch);
    INSIDE.set(false);
    // SAFETY: the location of errno is valid for the life of the thread.
    unsafe { *libc::__errno_location() = errno };
    outcome
}

/// Ends the process with a reason: what cannot be recorded must not be done.
pub(crate) fn refuse(what: &str, path: &[u8]) -> ! {
    let text =
        format!("weir-power: {what} of {} is not supported in a watched folder\n", String::from_utf8_lossy(path));
    write_all(2, text.as_bytes());
    // SAFETY: always allowed.
    unsafe { libc::abort() }
}

/// Writes by bare system calls.
fn write_all(fd: c_int, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        // SAFETY: the buffer is valid for its length.
        let wrote = unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
        match usize::try_from(wrote) {
            Ok(wrote) => bytes = &bytes[wrote..],
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

/// The path of an open file, as the kernel names it.
fn path_of(fd: c_int) -> Option<Vec<u8>> {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    Some(link.as_os_str().as_bytes().to_vec())
}

fn identity(fd: c_int) -> Option<Identity> {
    // SAFETY: all zeros is a valid `stat`, and the pointer is valid.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some(Identity { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// The path of an entry that a call names, with the links on the way to it resolved, and not its own. None if there is
/// no such folder.
fn resolve(folder: c_int, path: *const c_char) -> Option<Vec<u8>> {
    // SAFETY: the kernel has accepted it as a path.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let end = path.iter().rposition(|&byte| byte != b'/')? + 1;
    let path = &path[..end];
    let (parent, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..=slash], &path[slash + 1..]),
        None => (&b"."[..], path),
    };
    let parent = if parent[0] == b'/' || folder == libc::AT_FDCWD {
        parent.to_vec()
    } else {
        [format!("/proc/self/fd/{folder}/").as_bytes(), parent].concat()
    };
    let parent = std::fs::canonicalize(std::ffi::OsStr::from_bytes(&parent)).ok()?;
    Some(parent.join(std::ffi::OsStr::from_bytes(name)).into_os_string().as_bytes().to_vec())
}

impl Watch {
    fn begin() -> Option<Self> {
        let root = std::env::var_os(ROOT)?;
        let trace = std::env::var_os(TRACE)?;
        let root = match std::fs::canonicalize(&root) {
            Ok(root) => root.into_os_string().as_bytes().to_vec(),
            Err(_) => refuse("watching", root.as_bytes()),
        };
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        let fd = CString::new(trace.as_bytes()).map_or(-1, |path| {
            // SAFETY: the path ends with a zero.
            unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o644) as c_int }
        });
        let process = std::process::id();
        let mut watch = Self { root, trace: fd, process, open: BTreeMap::new() };
        if fd < 0 || path_of(fd).is_none_or(|path| watch.below(&path).is_some()) {
            refuse("keeping the trace", trace.as_bytes());
        }
        watch.write(&Record::Begin { process });
        Some(watch)
    }

    /// The path below the root, if it is.
    fn below(&self, path: &[u8]) -> Option<Vec<u8>> {
        let rest = path.strip_prefix(&self.root[..])?;
        match rest.split_first() {
            None => Some(Vec::new()),
            Some((b'/', rest)) => Some(rest.to_vec()),
            Some(_) => None,
        }
    }

    fn write(&mut self, record: &Record) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        if self.process != std::process::id() || !write_all(self.trace, &bytes) {
            refuse("recording a call", b"the trace");
        }
    }

    /// Whether this is open below the root. A number that was used again since is forgotten.
    fn is_open(&mut self, fd: c_int) -> bool {
        let Some(&known) = self.open.get(&fd) else { return false };
        if identity(fd) == Some(known) {
            return true;
        }
        self.closed(fd);
        false
    }

    /// Refuses a call on this descriptor if it is watched.
    pub(crate) fn refuse_on(&mut self, what: &str, fd: c_int) {
        if self.is_open(fd) {
            refuse(what, &path_of(fd).unwrap_or_default());
        }
    }

    /// Refuses a call on this path if it is watched.
    pub(crate) fn refuse_at(&mut self, what: &str, folder: c_int, path: *const c_char) {
        if let Some(path) = resolve(folder, path).filter(|path| self.below(path).is_some()) {
            refuse(what, &path);
        }
    }

    pub(crate) fn opened(&mut self, fd: c_int, flags: c_int) {
        if fd < 0 {
            return;
        }
        self.closed(fd);
        let Some(path) = path_of(fd) else { return };
        let Some(below) = self.below(&path) else { return };
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if flags & libc::O_TMPFILE == libc::O_TMPFILE || writes && flags & (libc::O_SYNC | libc::O_DIRECT) != 0 {
            refuse("opening, unnamed or for writing past the cache,", &path);
        }
        let Some(identity) = identity(fd) else { return };
        self.open.insert(fd, identity);
        let (create, truncate) = (flags & libc::O_CREAT != 0, flags & libc::O_TRUNC != 0);
        self.write(&Record::Open { fd, path: below, create, truncate });
    }

    pub(crate) fn closed(&mut self, fd: c_int) {
        if self.open.remove(&fd).is_some() {
            self.write(&Record::Close { fd });
        }
    }

    pub(crate) fn duplicated(&mut self, from: c_int, to: c_int) {
        if to < 0 || from == to {
            return;
        }
        self.closed(to);
        if let Some(&identity) = self.open.get(&from) {
            self.open.insert(to, identity);
            self.write(&Record::Duplicate { from, to });
        }
    }

    /// After so many bytes were written at the file's own position.
    pub(crate) fn wrote(&mut self, fd: c_int, data: Vec<u8>) {
        // SAFETY: asks for a position.
        let end = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
        match u64::try_from(end).ok().and_then(|end| end.checked_sub(data.len() as u64)) {
            Some(offset) => self.note_write(fd, offset, data),
            None => self.refuse_on("writing without a position", fd),
        }
    }

    pub(crate) fn wrote_at(&mut self, fd: c_int, offset: u64, data: Vec<u8>) {
        // SAFETY: asks for flags. (What appends does not write where `pwrite` says.)
        if unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_APPEND != 0 {
            self.refuse_on("writing at an offset to what appends,", fd);
        }
        self.note_write(fd, offset, data);
    }

    fn note_write(&mut self, fd: c_int, offset: u64, data: Vec<u8>) {
        if self.is_open(fd) && !data.is_empty() {
            self.write(&Record::Write { fd, offset, data });
        }
    }

    /// After the kernel copied so many bytes to a file: they are read back.
    pub(crate) fn copied(&mut self, fd: c_int, offset: Option<u64>, len: usize) {
        if !self.is_open(fd) || len == 0 {
            return;
        }
        // SAFETY: asks for a position.
        let position = u64::try_from(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }).unwrap_or(0);
        let offset = offset.unwrap_or(position.saturating_sub(len as u64));
        let mut data = vec![0; len];
        // The descriptor may be open for writing only.
        let path = format!("/proc/self/fd/{fd}\0");
        // SAFETY: the path ends with a zero, and the buffer is valid for its length.
        let read = unsafe {
            let again =
                libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            let read = libc::pread(again as c_int, data.as_mut_ptr().cast(), len, offset as libc::off_t);
            libc::syscall(libc::SYS_close, again);
            read
        };
        if usize::try_from(read) != Ok(len) {
            self.refuse_on("copying, where the copy cannot be read,", fd);
        }
        self.note_write(fd, offset, data);
    }

    pub(crate) fn truncated(&mut self, fd: c_int, len: u64) {
        if self.is_open(fd) {
            self.write(&Record::Truncate { fd, len });
        }
    }

    pub(crate) fn synced(&mut self, fd: c_int) {
        if self.is_open(fd) {
            self.write(&Record::Sync { fd });
        }
    }

    pub(crate) fn synced_all(&mut self) {
        self.write(&Record::SyncAll);
    }

    /// After a call that is about one name.
    pub(crate) fn named(&mut self, folder: c_int, path: *const c_char, record: impl FnOnce(Vec<u8>) -> Record) {
        if let Some(path) = resolve(folder, path).and_then(|path| self.below(&path)) {
            self.write(&record(path));
        }
    }

    /// After a call that is about two names.
    pub(crate) fn named_twice(
        &mut self,
        from: (c_int, *const c_char),
        to: (c_int, *const c_char),
        record: impl FnOnce(Vec<u8>, Vec<u8>) -> Record,
    ) {
        let (from, to) = (resolve(from.0, from.1), resolve(to.0, to.1));
        let below = |path: &Option<Vec<u8>>| path.as_ref().and_then(|path| self.below(path));
        match (below(&from), below(&to)) {
            (Some(from), Some(to)) => self.write(&record(from, to)),
            (None, None) => {}
            _ => refuse(
                "moving across the border",
                &[from.unwrap_or_default(), b" to ".into(), to.unwrap_or_default()].concat(),
            ),
        }
    }
}
