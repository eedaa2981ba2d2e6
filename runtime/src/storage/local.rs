//! What a store on a local disk needs beyond `object_store` to survive a loss of power.
//!
//! Large objects are written by [`large`]. Read in `object_store` 0.14.2 (`local.rs`), with `with_fsync(true)`:
//!
//! - A put writes a temporary file `<name>#<n>`, syncs it, then renames it (put) or hard-links it (create-if-absent) to its
//!   name and syncs the folder. So Ok means durable, content and entry, for both.
//! - Folders that it makes are synced, up to the first that existed, but *after* they were made: a second writer
//!   that finds the folder goes on without waiting for that, and one that died in between never does it. So folders
//!   are made here, before anybody writes, and synced whether they are new or not.
//! - When the link took place and the sync of the folder failed, the answer is an error, and the object is there. Who then
//!   finds it by reading has to sync the folder: [`LocalRoot::sync_folder_of`].
//! - Deletions are not synced. The protocol does not mind: what comes back is below the boundary or garbage.
//! - A temporary file of a writer that died is hidden from listings and never deleted: [`LocalRoot::sweep`].
//! - On Windows folders cannot be synced, and are not.

mod large;

use std::fs::File;
use std::io;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::path::Path;

use large::LocalObjects;

/// The folder on this machine that a store is in.
#[derive(Clone, Debug)]
pub(crate) struct LocalRoot(Arc<FsPath>);

impl LocalRoot {
    /// Makes the folder, durably, and opens it.
    pub(crate) fn open(path: &FsPath) -> io::Result<(Self, LocalObjects)> {
        std::fs::create_dir_all(path)?;
        let root = path.canonicalize()?;
        // Which of the folders above are new is not known; those that cannot be opened are not ours.
        for folder in root.ancestors() {
            if sync(folder).is_err() {
                break;
            }
        }
        sync(&root)?;
        let objects = LocalFileSystem::new_with_prefix(&root)?.with_fsync(true);
        Ok((Self(root.into()), LocalObjects::new(objects)))
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        path.parts().fold(self.0.to_path_buf(), |folder, part| folder.join(part.as_ref()))
    }

    /// Makes a folder and those above it, and syncs all of them, from the store's own down.
    pub(crate) fn make_folder(&self, folder: &Path) -> io::Result<()> {
        let target = self.resolve(folder);
        std::fs::create_dir_all(&target)?;
        let mut ours: Vec<_> = target.ancestors().take_while(|folder| folder.starts_with(&*self.0)).collect();
        ours.reverse();
        ours.into_iter().try_for_each(sync)
    }

    /// The names of the folders directly under a folder; none if it is not there.
    pub(crate) fn folders(&self, folder: &Path) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.resolve(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                names.extend(entry.file_name().into_string().ok());
            }
        }
        Ok(names)
    }

    /// Makes the entry of an object durable.
    pub(crate) fn sync_folder_of(&self, object: &Path) -> io::Result<()> {
        let object = self.resolve(object);
        object.parent().map_or(Ok(()), sync)
    }

    /// The names and lengths of temporary files, directly under a folder, of objects that `is_old` knows by their names.
    pub(crate) fn half_written(&self, folder: &Path, is_old: impl Fn(&str) -> bool) -> io::Result<Vec<(String, u64)>> {
        let entries = match std::fs::read_dir(self.resolve(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for file in entries {
            let file = file?;
            let name = file.file_name();
            let is_leftover = name.to_str().and_then(|name| name.split_once('#')).is_some_and(|(object, number)| {
                !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && is_old(object)
            });
            if let (true, Some(name)) = (is_leftover, name.to_str()) {
                match file.metadata() {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    metadata => found.push((name.to_owned(), metadata?.len())),
                }
            }
        }
        Ok(found)
    }

    /// Removes them.
    pub(crate) fn sweep(&self, folder: &Path, is_old: impl Fn(&str) -> bool) -> io::Result<()> {
        for (name, _) in self.half_written(folder, is_old)? {
            match std::fs::remove_file(self.resolve(folder).join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn sync(folder: &FsPath) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_store_is_opened_with_fsync() {
        let dir = tempfile::tempdir().unwrap();
        let (_, objects) = LocalRoot::open(&dir.path().join("a/b")).unwrap();
        assert!(format!("{objects:?}").contains("fsync: true"), "{objects:?}");
    }

    #[test]
    fn a_sweep_removes_only_half_written_objects_that_are_old() {
        let dir = tempfile::tempdir().unwrap();
        let (root, _) = LocalRoot::open(dir.path()).unwrap();
        root.make_folder(&Path::from("packs/x")).unwrap();
        for name in ["old#1", "old#12", "old", "new#1", "old#x", "old#"] {
            std::fs::write(dir.path().join("packs/x").join(name), b"").unwrap();
        }
        root.sweep(&Path::from("packs/x"), |name| name == "old").unwrap();
        let mut left: Vec<_> = std::fs::read_dir(dir.path().join("packs/x"))
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["new#1", "old", "old#", "old#x"]);
    }
}
