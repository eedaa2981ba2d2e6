//! Folders whose changes are told by the operating system, so that thousands of sources that wait for more take no time.
//!
//! One watcher serves the process: file systems allow few of them, and each source has its own bell. A bell that rings says that something may
//! have changed, never what; and one that does not ring says little: changes made on another machine, through
//! another name of a file or by writing to mapped memory are not told. So whoever waits for it looks by itself, too, from time to time.
//!
//! Where there is no such service, as outside of Linux, nothing is covered, and nothing rings.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::Notify;

/// Whether the changes of a folder are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    /// They are not.
    None,
    /// From now on: what came before has to be looked for once more.
    Begins,
    /// They have been since it was last asked.
    Full,
}

/// What one source watches: a folder. Ends when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Watch {
    bell: Arc<Notify>,
    #[cfg(target_os = "linux")]
    place: Option<linux::Place>,
}

impl Watch {
    /// Watches this folder from now on, and no other. To be asked again now and then: a folder may be replaced by another of its name.
    pub(super) fn look(&mut self, folder: &Path) -> Coverage {
        #[cfg(target_os = "linux")]
        {
            let before = self.place.take();
            self.place = linux::Place::of(folder, &self.bell);
            match (&before, &self.place) {
                (_, None) => Coverage::None,
                (Some(before), Some(now)) if before == now => Coverage::Full,
                _ => Coverage::Begins,
            }
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = folder;
            Coverage::None
        }
    }

    /// Watches nothing any more.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Waits until something may have changed.
    pub(super) async fn changed(&self) {
        self.bell.notified().await;
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashMap;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
    use std::time::Duration;

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
    use tokio::sync::Notify;

    /// After some changes were told the next ones are gathered for so long: a file that is written to all the time rings a hundred times a second.
    const GATHER: Duration = Duration::from_millis(10);
    /// File systems that others change, too, by the numbers that the kernel gives them: NFS, SMB (three), FUSE, 9P, Ceph, AFS.
    const SHARED: [u64; 8] =
        [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997, 0x00c3_6400, 0x5346_414f];

    struct Watcher {
        inotify: OwnedFd,
        /// Who listens to each folder, by the number that it was given.
        folders: Mutex<HashMap<i32, Vec<Arc<Notify>>>>,
    }

    /// The only one; none where it cannot be made.
    fn watcher() -> Option<&'static Watcher> {
        static WATCHER: OnceLock<Option<Watcher>> = OnceLock::new();
        let watcher = WATCHER.get_or_init(|| {
            let inotify = inotify::init(CreateFlags::CLOEXEC);
            let inotify = inotify.inspect_err(|error| tracing::debug!(%error, "folders cannot be watched")).ok()?;
            Some(Watcher { inotify, folders: Mutex::default() })
        });
        let watcher = watcher.as_ref()?;
        static THREAD: OnceLock<bool> = OnceLock::new();
        let begin = || std::thread::Builder::new().name("weir-watch".into()).spawn(|| watcher.work()).is_ok();
        THREAD.get_or_init(begin).then_some(watcher)
    }

    impl Watcher {
        fn folders(&self) -> MutexGuard<'_, HashMap<i32, Vec<Arc<Notify>>>> {
            self.folders.lock().unwrap_or_else(PoisonError::into_inner)
        }

        // It does not wait for anything to happen: it lets some of it gather.
        #[allow(clippy::disallowed_methods)]
        fn work(&self) {
            let mut buffer = [MaybeUninit::uninit(); 16 << 10];
            let mut events = Reader::new(&self.inotify, &mut buffer);
            loop {
                let event = match events.next() {
                    Ok(event) => event,
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(error) => {
                        tracing::error!(%error, "changes of folders are not told any more; they are looked for");
                        return self.folders().drain().for_each(|(_, bells)| ring(&bells));
                    }
                };
                let what = event.events();
                let number = event.wd();
                if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                    self.folders().values().for_each(|bells| ring(bells));
                } else if what.contains(ReadFlags::IGNORED) {
                    // The folder is gone, and its number with it.
                    self.folders().remove(&number).iter().for_each(|bells| ring(bells));
                } else if let Some(bells) = self.folders().get(&number) {
                    ring(bells);
                }
                if events.is_buffer_empty() {
                    std::thread::sleep(GATHER);
                }
            }
        }
    }

    fn ring(bells: &[Arc<Notify>]) {
        bells.iter().for_each(|bell| bell.notify_one());
    }

    /// A bell at a folder.
    #[derive(Debug)]
    pub(super) struct Place {
        number: i32,
        bell: Arc<Notify>,
    }

    impl PartialEq for Place {
        fn eq(&self, other: &Self) -> bool {
            self.number == other.number && Arc::ptr_eq(&self.bell, &other.bell)
        }
    }

    impl Place {
        pub(super) fn of(folder: &Path, bell: &Arc<Notify>) -> Option<Self> {
            let watcher = watcher()?;
            let kind = rustix::fs::statfs(folder).ok()?.f_type;
            if SHARED.contains(&(kind as u64 & 0xffff_ffff)) {
                return None;
            }
            let flags = WatchFlags::MODIFY
                | WatchFlags::CLOSE_WRITE
                | WatchFlags::CREATE
                | WatchFlags::MOVED_TO
                | WatchFlags::MOVE_SELF
                | WatchFlags::DELETE_SELF
                | WatchFlags::ONLYDIR;
            // Under the lock: nobody takes the number away that is given now.
            let mut folders = watcher.folders();
            let number = inotify::add_watch(&watcher.inotify, folder, flags).ok()?;
            folders.entry(number).or_default().push(Arc::clone(bell));
            Some(Self { number, bell: Arc::clone(bell) })
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let Some(watcher) = watcher() else { return };
            let mut folders = watcher.folders();
            let Some(bells) = folders.get_mut(&self.number) else { return };
            if let Some(at) = bells.iter().position(|bell| Arc::ptr_eq(bell, &self.bell)) {
                bells.swap_remove(at);
            }
            if bells.is_empty() {
                folders.remove(&self.number);
                // One that is gone by itself needs no more.
                let _ = inotify::remove_watch(&watcher.inotify, self.number);
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bell_rings_for_what_happens_in_its_folder_and_covers_one_that_takes_its_place() {
        let dir = tempfile::tempdir().expect("a folder");
        let (mine, other) = (dir.path().join("mine"), dir.path().join("other"));
        std::fs::create_dir(&mine).expect("it is made");
        std::fs::create_dir(&other).expect("it is made");
        let (mut watch, mut second) = (Watch::default(), Watch::default());
        assert_eq!(watch.look(&dir.path().join("missing")), Coverage::None);
        assert_eq!(watch.look(&mine), Coverage::Begins);
        assert_eq!(watch.look(&mine), Coverage::Full);
        assert_eq!(second.look(&other), Coverage::Begins);
        std::fs::write(mine.join("a"), b"1").expect("it is written");
        watch.changed().await;
        // Both listen to one folder; one that goes takes nothing from the other.
        assert_eq!(second.look(&mine), Coverage::Begins);
        drop(watch);
        assert_eq!(second.look(&mine), Coverage::Full);
        std::fs::rename(&mine, dir.path().join("moved")).expect("it is moved");
        second.changed().await;
        assert_eq!(second.look(&mine), Coverage::None);
        std::fs::create_dir(&mine).expect("it is made");
        assert_eq!(second.look(&mine), Coverage::Begins);
        second.end();
        assert_eq!(second.look(&mine), Coverage::Begins);
    }
}
