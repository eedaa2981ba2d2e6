//! What must hold of every image of a run, whatever of it survived; and which row of the crash table an image is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::image::{Entry, Image};
use crate::place::SINKS;
use crate::record::Record;

/// The rows of the crash table (`runtime/src/checkpoint.rs`) that a loss of power can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    BeforeTheManifest,
    AfterTheManifestBeforeAnyCommit,
    BetweenCommitsOfSeveralSinks,
    AfterTheCommitsBeforeTheMarker,
    AfterTheCommittedMarker,
}

/// All of them.
pub(crate) const ROWS: [Row; 5] = [
    Row::BeforeTheManifest,
    Row::AfterTheManifestBeforeAnyCommit,
    Row::BetweenCommitsOfSeveralSinks,
    Row::AfterTheCommitsBeforeTheMarker,
    Row::AfterTheCommittedMarker,
];

/// What is known of a run that was recorded to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The epoch of each checkpoint in the log, by its number there: the next marker after it is its own (I13).
    epochs: BTreeMap<u64, u64>,
    /// Each epoch that was ever published, as it was at the end: they never change.
    published: BTreeMap<PathBuf, BTreeMap<PathBuf, Vec<u8>>>,
}

/// What an image shows of checkpoints and commits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The epoch of the newest checkpoint.
    manifest: Option<u64>,
    /// The newest epoch of each sink.
    sinks: [Option<u64>; SINKS.len()],
    /// The newest epoch whose commit is marked.
    marked: Option<u64>,
}

/// The number that a path below a folder of the store ends with.
pub(crate) fn number(path: &Path, folder: &str) -> Option<u64> {
    path.parent().filter(|parent| parent.ends_with(folder))?;
    path.file_name()?.to_str()?.parse().ok()
}

/// Whether it is an object of the store that never changes: it is made under a name with a `#`, and is whole when it gets its
/// own.
fn is_object(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy()).unwrap_or_default();
    let immutable = ["boundary", "committed", "id", "log", "packs", "pins", "plugins"];
    path.starts_with(".weir") && immutable.contains(&&*folder) && !path.to_string_lossy().contains('#')
}

/// The number of a published epoch.
fn epoch(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("epoch-")?.parse().ok()
}

/// The files of each published epoch, by its folder.
fn published(image: &Image) -> BTreeMap<PathBuf, BTreeMap<PathBuf, &[u8]>> {
    let mut epochs: BTreeMap<PathBuf, BTreeMap<PathBuf, &[u8]>> = BTreeMap::new();
    for (path, entry) in &image.entries {
        let names: Vec<_> = path.iter().take(2).map(|name| name.to_string_lossy()).collect();
        let [sink, name] = &names[..] else { continue };
        if SINKS.contains(&&**sink) && !name.starts_with('.') {
            let files = epochs.entry(Path::new(&**sink).join(&**name)).or_default();
            if let Entry::File { content, .. } = entry {
                files.insert(path.clone(), content);
            }
        }
    }
    epochs
}

/// The folders of the published epochs.
pub(crate) fn visible(image: &Image) -> BTreeSet<PathBuf> {
    published(image).into_keys().collect()
}

impl Known {
    /// Adds a run that went on from what is known already.
    pub(crate) fn extend(&mut self, records: &[Record], end: &Image) {
        let mut checkpoint = None;
        for record in records {
            let Record::Link { to, .. } = record else { continue };
            let path = PathBuf::from(String::from_utf8_lossy(to).into_owned());
            checkpoint = number(&path, "log").or(checkpoint);
            if let (Some(seq), Some(epoch)) = (checkpoint, number(&path, "committed")) {
                self.epochs.insert(seq, epoch);
            }
        }
        for (epoch, files) in published(end) {
            let files = files.into_iter().map(|(path, content)| (path, content.to_vec()));
            self.published.insert(epoch, files.collect());
        }
    }

    /// The numbers of the epochs that were published.
    pub(crate) fn epochs(&self) -> BTreeSet<u64> {
        self.published.keys().filter_map(|path| epoch(path)).collect()
    }

    /// What an image shows.
    pub(crate) fn shown(&self, image: &Image) -> Shown {
        let paths = || image.entries.keys();
        let visible = visible(image);
        Shown {
            manifest: paths().filter_map(|path| self.epochs.get(&number(path, "log")?)).copied().max(),
            sinks: SINKS
                .map(|sink| visible.iter().filter(|path| path.starts_with(sink)).filter_map(|path| epoch(path)).max()),
            marked: paths().filter_map(|path| number(path, "committed")).max(),
        }
    }

    /// What must hold. `seen` is what the processes saw at that moment, `promised` what was durable before.
    ///
    /// # Errors
    ///
    /// What does not hold.
    pub(crate) fn check(&self, image: &Image, seen: &Image, promised: &BTreeSet<PathBuf>) -> Result<(), String> {
        let visible = published(image);
        for (path, files) in &visible {
            let whole = self.published.get(path).is_some_and(|known| {
                known.len() == files.len() && known.iter().all(|(path, content)| files.get(path) == Some(&&**content))
            });
            if !whole {
                return Err(format!("{} is published in part", path.display()));
            }
        }
        if let Some(path) = promised.iter().find(|path| !visible.contains_key(*path)) {
            return Err(format!("{} was durable and is gone", path.display()));
        }
        let shown = self.shown(image);
        if let Some(newest) = shown.sinks.iter().copied().max().flatten().filter(|epoch| shown.manifest < Some(*epoch))
        {
            return Err(format!("epoch {newest} is published and the newest checkpoint is {:?}", shown.manifest));
        }
        let marked = image.entries.keys().filter_map(|path| number(path, "committed")).collect::<BTreeSet<_>>();
        let missing =
            |path: &&PathBuf| epoch(path).is_some_and(|n| marked.contains(&n)) && !visible.contains_key(*path);
        if let Some(path) = self.published.keys().find(missing) {
            return Err(format!("{} is marked as committed and is not there", path.display()));
        }
        for (path, entry) in image.entries.iter().filter(|(path, _)| is_object(path)) {
            if let (Entry::File { content, .. }, Some(seen)) = (entry, seen.file(path))
                && **content != *seen
            {
                return Err(format!("{} has {} bytes and had {}", path.display(), content.len(), seen.len()));
            }
        }
        Ok(())
    }
}

impl Shown {
    /// Which row of the crash table it is. An open attempt cannot be told from none.
    pub(crate) fn row(&self) -> Row {
        match self.manifest {
            None => Row::BeforeTheManifest,
            Some(tip) if self.marked == Some(tip) => Row::AfterTheCommittedMarker,
            tip => match self.sinks.iter().filter(|&&newest| newest == tip).count() {
                0 => Row::AfterTheManifestBeforeAnyCommit,
                SINKS_ALL => Row::AfterTheCommitsBeforeTheMarker,
                _ => Row::BetweenCommitsOfSeveralSinks,
            },
        }
    }
}

const SINKS_ALL: usize = SINKS.len();
