//! A folder with all that is in it, as values: what a disk holds, to be compared, looked at, or made real.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A file or folder.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A folder; what is in it has entries of its own.
    Folder,
    /// A file.
    File {
        /// The same for all names of one file.
        id: usize,
        /// What is in it.
        content: Rc<Vec<u8>>,
    },
}

/// A folder. Parents come before what is in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    /// By path below the folder.
    pub(crate) entries: BTreeMap<PathBuf, Entry>,
}

impl Image {
    /// What is really there.
    pub(crate) fn of(folder: &Path) -> io::Result<Self> {
        let mut image = Self::default();
        let mut left = vec![PathBuf::new()];
        while let Some(path) = left.pop() {
            for entry in fs::read_dir(folder.join(&path))? {
                let entry = entry?;
                let path = path.join(entry.file_name());
                if entry.file_type()?.is_dir() {
                    image.entries.insert(path.clone(), Entry::Folder);
                    left.push(path);
                } else {
                    let id = image.entries.len();
                    image.entries.insert(path, Entry::File { id, content: Rc::new(fs::read(entry.path())?) });
                }
            }
        }
        Ok(image)
    }

    /// Makes it real in an empty folder. The names of one file are links to one file.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let mut made: BTreeMap<usize, &Path> = BTreeMap::new();
        for (path, entry) in &self.entries {
            match entry {
                Entry::Folder => fs::create_dir(folder.join(path))?,
                Entry::File { id, content } => match made.get(id) {
                    Some(first) => fs::hard_link(folder.join(first), folder.join(path))?,
                    None => {
                        fs::write(folder.join(path), &**content)?;
                        made.insert(*id, path);
                    }
                },
            }
        }
        Ok(())
    }

    /// The content of a file.
    pub(crate) fn file(&self, path: impl AsRef<Path>) -> Option<&[u8]> {
        match self.entries.get(path.as_ref())? {
            Entry::File { content, .. } => Some(content),
            Entry::Folder => None,
        }
    }

    /// Whether something has this name.
    pub(crate) fn has(&self, path: impl AsRef<Path>) -> bool {
        self.entries.contains_key(path.as_ref())
    }

    /// The first thing in which two folders differ.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let kind = |image: &Self, path: &Path| match image.entries.get(path) {
            None => "nothing".to_owned(),
            Some(Entry::Folder) => "a folder".to_owned(),
            Some(Entry::File { content, .. }) => format!("{} bytes", content.len()),
        };
        let differs = |path: &&PathBuf| match (self.entries.get(*path), other.entries.get(*path)) {
            (Some(Entry::Folder), Some(Entry::Folder)) => false,
            (Some(Entry::File { content: a, .. }), Some(Entry::File { content: b, .. })) => a != b,
            _ => true,
        };
        let path = self.entries.keys().chain(other.entries.keys()).find(differs)?;
        Some(format!("{}: {} and {}", path.display(), kind(self, path), kind(other, path)))
    }
}
