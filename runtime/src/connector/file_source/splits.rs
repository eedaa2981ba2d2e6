//! Which files there are, which subtask reads which, and how far each was read.
//!
//! A bounded source fixes its files when it first opens: file `i` in the order of the names goes to subtask
//! `i % parallelism`, and a file that appears later is not read by that job, however often it restarts. So a job that was
//! killed reads exactly what one that was not would have read. A source that follows gives a file to the subtask
//! `hash(name) % parallelism`, which does not depend on what other files there are. In both, `i` or the name decides
//! for good, and a set of positions that a subtask is opened with may contain those of the others.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::{ConnectorError, TaskContext, confined};
use super::window::TAIL_BYTES;
use crate::model::{SplitPosition, key_hash};
use crate::plan::FileSourceSpec;

/// The most files that one source takes.
const FILES_MAX: usize = 65_000;

/// How far a file was read. The offset counts in the unpacked stream and stands between two records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offset {
    /// The number of the file in a bounded source; none in one that follows.
    pub(super) index: Option<u64>,
    pub(super) bytes: u64,
    /// Line breaks before `bytes`.
    pub(super) lines: u64,
    pub(super) done: bool,
}

/// By which a file that is not what it was is found out. Grows with the offset: it covers nothing that was not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fingerprint {
    /// The whole length of a packed file when it was opened; none for a plain one, which may grow.
    pub(super) packed_bytes: Option<u64>,
    /// How much of the beginning of the file, as it lies on disk, `head` covers.
    pub(super) head_bytes: u32,
    pub(super) head: Option<[u8; 32]>,
    /// How much of the stream before the offset `tail` covers.
    pub(super) tail_bytes: u32,
    pub(super) tail: Option<[u8; 32]>,
}

impl Fingerprint {
    /// The most that `head` and `tail` cover, in bytes.
    pub(super) const BYTES_MAX: usize = TAIL_BYTES;

    pub(super) fn hash(bytes: &[u8]) -> Option<[u8; 32]> {
        (!bytes.is_empty()).then(|| *blake3::hash(bytes).as_bytes())
    }
}

/// A file of this subtask.
#[derive(Clone, Debug)]
pub(super) struct Split {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) offset: Offset,
    pub(super) fingerprint: Fingerprint,
    /// How much of it had been seen when it was last looked at, as it lies on disk. Not part of the position.
    pub(super) seen_bytes: u64,
}

/// Says who wrote a set of positions; its own entry in the list, under a name that no file can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    follow: bool,
    parallelism: u32,
    subtask: u32,
}

/// The files of one subtask.
pub(super) struct Splits {
    pattern: String,
    dir: PathBuf,
    /// The one in which the pattern names files.
    folder: PathBuf,
    root: Option<PathBuf>,
    follow: bool,
    parallelism: u32,
    subtask: u32,
    pub(super) list: Vec<Split>,
}

impl Splits {
    pub(super) fn open(
        spec: &FileSourceSpec,
        dir: &Path,
        context: &TaskContext,
        positions: &[SplitPosition],
    ) -> Result<Self, ConnectorError> {
        let full = dir.join(&spec.path);
        let mut splits = Self {
            pattern: spec.path.clone(),
            dir: dir.into(),
            folder: full.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).into(),
            root: spec.root.clone(),
            follow: spec.follow,
            parallelism: context.parallelism.max(1),
            subtask: context.task.subtask,
            list: Vec::new(),
        };
        if positions.is_empty() {
            splits.begin()?;
        } else {
            splits.restore(positions)?;
        }
        Ok(splits)
    }

    fn begin(&mut self) -> Result<(), ConnectorError> {
        let files = self.find()?;
        if files.is_empty() && !self.follow {
            return Err(ConnectorError::mismatch(format!("no file matches {:?}", self.dir.join(&self.pattern)))
                .help("check `path` of the source: it is relative to the pipeline file"));
        }
        for (index, (name, path)) in files.into_iter().enumerate() {
            self.add(name, path, (!self.follow).then_some(index as u64));
        }
        Ok(())
    }

    /// Takes files that appeared since the last look. Only for a source that follows. Gives their names.
    pub(super) fn look_again(&mut self) -> Result<Vec<String>, ConnectorError> {
        let mut found = Vec::new();
        for (name, path) in self.find()? {
            if let Err(at) = self.list.binary_search_by(|split| split.name.as_str().cmp(&name))
                && self.is_mine(&name, None)
            {
                found.push(name.clone());
                self.list.insert(at, Split::new(name, path, None));
            }
        }
        Ok(found)
    }

    /// The folder in which all happens that concerns this source, if it is one: not where the folders, too, are a matter of a pattern, or
    /// where a file may be changed elsewhere, since it is a link or has other names.
    pub(super) fn folder(&self) -> Option<&Path> {
        let at = self.pattern.rfind('/');
        if at.is_some_and(|at| self.pattern[..at].contains(['*', '?', '['])) {
            return None;
        }
        let is_here = |split: &Split| {
            let found = std::fs::symlink_metadata(&split.path);
            found.is_ok_and(|found| found.is_file() && has_one_name(&found))
        };
        self.list.iter().filter(|split| !split.offset.done).all(is_here).then_some(&self.folder)
    }

    /// The files at the beginning, by their names and numbers.
    pub(super) fn begun(&self) -> Vec<(String, Option<u64>)> {
        self.list.iter().map(|split| (split.name.clone(), split.offset.index)).collect()
    }

    /// Begins with the files of then, in a replay: others may have come since.
    pub(super) fn begin_again(&mut self, files: Vec<(String, Option<u64>)>) {
        let split = |(name, index): (String, Option<u64>)| Split::new(name.clone(), self.dir.join(&name), index);
        self.list = files.into_iter().map(split).collect();
    }

    /// Takes a file that was found, in a replay.
    pub(super) fn found_again(&mut self, name: String) {
        if let Err(at) = self.list.binary_search_by(|split| split.name.as_str().cmp(&name)) {
            let path = self.dir.join(&name);
            self.list.insert(at, Split::new(name, path, None));
        }
    }

    fn add(&mut self, name: String, path: PathBuf, index: Option<u64>) {
        if self.is_mine(&name, index) {
            self.list.push(Split::new(name, path, index));
        }
    }

    fn is_mine(&self, name: &str, index: Option<u64>) -> bool {
        let number = index.unwrap_or_else(|| key_hash(name.as_bytes()));
        number % u64::from(self.parallelism) == u64::from(self.subtask)
    }

    /// All files that match now, by name.
    fn find(&self) -> Result<Vec<(String, PathBuf)>, ConnectorError> {
        let full = self.dir.join(&self.pattern);
        // What is special in a glob is so in the pattern alone, not in the folder of the pipeline file.
        let folder = if Path::new(&self.pattern).is_absolute() {
            String::new()
        } else {
            let folder = self
                .dir
                .to_str()
                .ok_or_else(|| ConnectorError::mismatch(format!("the folder {} is not UTF-8", self.dir.display())))?;
            let folder = glob::Pattern::escape(folder);
            if folder.is_empty() || folder.ends_with('/') { folder } else { folder + "/" }
        };
        let mut files = Vec::new();
        // A file that is there under exactly this name is meant, whatever a glob would make of it.
        if confined::is_file(self.root.as_deref(), &full, &self.pattern)? {
            files.push((self.pattern.clone(), full));
            return Ok(files);
        }
        let found = glob::glob(&format!("{folder}{}", self.pattern))
            .map_err(|e| ConnectorError::mismatch(format!("{:?} is not a glob", self.pattern)).caused_by(e))?;
        for path in found {
            let path = path.map_err(|e| {
                if self.root.is_some() {
                    return confined::refused(&self.pattern);
                }
                let path = e.path().to_owned();
                ConnectorError::io("list", &path, e.into())
            })?;
            if !confined::is_file(self.root.as_deref(), &path, &self.pattern)? {
                continue;
            }
            let relative = if folder.is_empty() { &path } else { path.strip_prefix(&self.dir).unwrap_or(&path) };
            let name = relative.to_str().ok_or_else(|| {
                ConnectorError::mismatch(format!("the name of file {} is not UTF-8", path.display()))
                    .help("rename it, or choose a glob that does not match it")
            })?;
            if files.len() == FILES_MAX {
                return Err(ConnectorError::mismatch(format!("more than {FILES_MAX} files match {full:?}"))
                    .help("choose a narrower glob, or put several files into one"));
            }
            files.push((name.to_owned(), path));
        }
        files.sort_unstable();
        Ok(files)
    }

    fn restore(&mut self, positions: &[SplitPosition]) -> Result<(), ConnectorError> {
        let damaged = |split: &str, cause: postcard::Error| {
            ConnectorError::mismatch(format!("the position of {split:?} in the checkpoint does not decode"))
                .caused_by(cause)
        };
        let mut writers = Vec::new();
        for position in positions {
            if position.split.starts_with(MARKER) {
                let marker: Marker = postcard::from_bytes(&position.offset).map_err(|e| damaged(&position.split, e))?;
                if marker.follow != self.follow {
                    return Err(ConnectorError::mismatch(format!(
                        "the checkpoint was taken with follow = {} and the pipeline has follow = {}",
                        marker.follow, self.follow
                    ))
                    .help(format!("set follow = {} again, or start over with --fresh", marker.follow)));
                }
                writers.push(marker);
                continue;
            }
            let offset: Offset = postcard::from_bytes(&position.offset).map_err(|e| damaged(&position.split, e))?;
            if self.is_mine(&position.split, offset.index) {
                self.list.push(Split {
                    path: self.dir.join(&position.split),
                    name: position.split.clone(),
                    offset,
                    fingerprint: postcard::from_bytes(&position.fingerprint)
                        .map_err(|e| damaged(&position.split, e))?,
                    seen_bytes: 0,
                });
            }
        }
        self.check_writers(&writers)?;
        self.list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(())
    }

    /// With the parallelism of the checkpoint, its own positions are all that a subtask needs; with another one it
    /// needs those of every subtask of then.
    fn check_writers(&self, writers: &[Marker]) -> Result<(), ConnectorError> {
        let before = writers.first().map_or(0, |marker| marker.parallelism);
        let has = |subtask| writers.iter().any(|marker| marker.subtask == subtask);
        let complete = if before == self.parallelism { has(self.subtask) } else { before > 0 && (0..before).all(has) };
        if complete {
            return Ok(());
        }
        Err(ConnectorError::mismatch(format!(
            "the checkpoint has positions of {} of {before} subtasks, and the source has {} now",
            writers.len(),
            self.parallelism
        ))
        .help(format!("set the parallelism of the source to {before} again")))
    }

    /// The positions of `list`, with the marker.
    pub(super) fn positions<'a>(
        &self,
        splits: impl Iterator<Item = (&'a str, Offset, Fingerprint)>,
    ) -> Vec<SplitPosition> {
        let encode = |value: Result<Vec<u8>, postcard::Error>| value.unwrap_or_default();
        let marker = Marker { follow: self.follow, parallelism: self.parallelism, subtask: self.subtask };
        let mut positions = vec![SplitPosition {
            split: format!("{MARKER}{}", self.subtask),
            offset: encode(postcard::to_stdvec(&marker)),
            fingerprint: Vec::new(),
        }];
        positions.extend(splits.map(|(name, offset, fingerprint)| SplitPosition {
            split: name.to_owned(),
            offset: encode(postcard::to_stdvec(&offset)),
            fingerprint: encode(postcard::to_stdvec(&fingerprint)),
        }));
        positions
    }
}

/// No path that was listed contains it: it would have lost the double slash.
const MARKER: &str = "*//";

#[cfg(unix)]
fn has_one_name(found: &std::fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(found) == 1
}

#[cfg(not(unix))]
fn has_one_name(_: &std::fs::Metadata) -> bool {
    true
}

impl Split {
    fn new(name: String, path: PathBuf, index: Option<u64>) -> Self {
        Self {
            name,
            path,
            offset: Offset { index, ..Offset::default() },
            fingerprint: Fingerprint::default(),
            seen_bytes: 0,
        }
    }
}
