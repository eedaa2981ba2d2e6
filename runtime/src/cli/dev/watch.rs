//! Which files have changed since the last look, by their content.
//!
//! Files are looked at again and again: that loses nothing, costs little for the sources of a few plugins, and works on every file system,
//! mounted ones among them, which do not tell of changes. A change counts once nothing has changed for a moment, since editors write in steps.
//!
//! In a folder, what counts are the sources of its language. What `.gitignore` files name, hidden files, and the folders in which tools keep what they
//! made are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ignore::WalkBuilder;

use crate::error::{Error, ErrorKind};
use crate::plugin::project::{Lang, MANIFEST};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);
/// How many files of a folder are watched.
const FILES_MAX: usize = 20_000;
/// A file that is longer is no source that somebody wrote; it is known by its time and length.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Where tools keep what they made, whether `.gitignore` says so or not.
const MADE: &[&str] = &["target", "node_modules", "__pycache__", "venv", "zig-out", "zig-cache"];

/// A folder of sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    /// Where they are.
    pub(super) dir: PathBuf,
    /// In which language; none for all that there are.
    pub(super) lang: Option<Lang>,
}

/// What is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Watched {
    /// Single files.
    pub(super) files: Vec<PathBuf>,
    /// Folders of sources.
    pub(super) trees: Vec<Tree>,
}

/// A file as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    modified: Option<SystemTime>,
    bytes: u64,
    hash: [u8; 32],
}

type Look = BTreeMap<PathBuf, Seen>;

/// Tells what has changed.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    watched: Watched,
    last: Look,
    /// Told to nobody who is done with it.
    pending: BTreeSet<PathBuf>,
}

impl Watcher {
    /// Watches these from now on, in place of what was watched before.
    ///
    /// # Errors
    ///
    /// If there are too many.
    pub(super) fn watch(&mut self, watched: Watched) -> Result<(), Error> {
        let look = look(&watched, &Look::new());
        for tree in &watched.trees {
            let files = look.keys().filter(|path| path.starts_with(&tree.dir)).count();
            if files >= FILES_MAX {
                let message = format!("{} has {FILES_MAX} source files or more: too many to watch", tree.dir.display());
                let help = "name what others made in its .gitignore, or a smaller folder with --source NODE=DIR";
                return Err(Error::new(ErrorKind::Usage, message).help(help));
            }
        }
        // What was watched before may have changed since the last look.
        self.pending.extend(changes(&self.last, &look).into_iter().filter(|path| self.last.contains_key(path)));
        self.pending.retain(|path| look.contains_key(path));
        (self.watched, self.last) = (watched, look);
        Ok(())
    }

    /// The newest time of a source in a folder.
    pub(super) fn newest(&self, dir: &Path) -> Option<SystemTime> {
        let is_source = |path: &PathBuf| path.starts_with(dir) && !self.watched.files.contains(path);
        self.last.iter().filter(|(path, _)| is_source(path)).filter_map(|(_, seen)| seen.modified).max()
    }

    /// What has changed and is not seen to.
    pub(super) fn pending(&self) -> &BTreeSet<PathBuf> {
        &self.pending
    }

    /// Waits until files have changed, and nothing has for a moment. May be dropped half way; the files are told again until
    /// [`done`](Self::done) says that they were seen to.
    pub(super) async fn changed(&mut self) -> BTreeSet<PathBuf> {
        while self.pending.is_empty() {
            let mut now = self.next_look(self.last.clone()).await;
            if changes(&self.last, &now).is_empty() {
                continue;
            }
            loop {
                let again = self.next_look(now.clone()).await;
                if changes(&now, &again).is_empty() {
                    break;
                }
                now = again;
            }
            self.pending = changes(&self.last, &now);
            self.last = now;
        }
        self.pending.clone()
    }

    /// Changes that were told are seen to.
    pub(super) fn done(&mut self) {
        self.pending.clear();
    }

    async fn next_look(&self, before: Look) -> Look {
        tokio::time::sleep(PAUSE).await;
        let (watched, kept) = (self.watched.clone(), before.clone());
        // One that is lost, when the process ends, has seen nothing.
        tokio::task::spawn_blocking(move || look(&watched, &before)).await.unwrap_or(kept)
    }
}

/// Reads what is watched. A file with the time and length that it had `before` is not read again.
fn look(watched: &Watched, before: &Look) -> Look {
    let mut now = Look::new();
    let mut add = |path: &Path| {
        let Ok(data) = fs::metadata(path) else { return };
        let (modified, bytes) = (data.modified().ok(), data.len());
        let known = before.get(path).filter(|seen| seen.modified == modified && seen.bytes == bytes);
        let hash = match known {
            Some(seen) => seen.hash,
            None if bytes > FILE_BYTES_MAX => *blake3::hash(format!("{modified:?} {bytes}").as_bytes()).as_bytes(),
            None => match fs::read(path) {
                Ok(content) => *blake3::hash(&content).as_bytes(),
                Err(_) => return,
            },
        };
        now.insert(path.to_owned(), Seen { modified, bytes, hash });
    };
    watched.files.iter().for_each(|file| add(file));
    for tree in &watched.trees {
        let walk = WalkBuilder::new(&tree.dir)
            .parents(false)
            .ignore(false)
            .require_git(false)
            .git_global(false)
            .git_exclude(false)
            .filter_entry(|entry| {
                let is_made = entry.file_name().to_str().is_some_and(|name| MADE.contains(&name));
                entry.depth() == 0 || !is_made
            })
            .build();
        let files = walk.flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
        let sources = files.filter(|entry| is_source(entry.path(), tree.lang));
        sources.take(FILES_MAX).for_each(|entry| add(entry.path()));
    }
    now
}

/// Files whose content is another, those that came and those that went.
fn changes(old: &Look, new: &Look) -> BTreeSet<PathBuf> {
    let came_or_changed = new.iter().filter(|(path, seen)| old.get(*path).is_none_or(|was| was.hash != seen.hash));
    let went = old.keys().filter(|path| !new.contains_key(*path));
    came_or_changed.map(|(path, _)| path).chain(went).cloned().collect()
}

/// Whether somebody writes such a file in this language.
fn is_source(path: &Path, lang: Option<Lang>) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if name == MANIFEST || ending == "wit" {
        return true;
    }
    let (endings, names): (&[&str], &[&str]) = match lang {
        Some(Lang::Rust) => (&["rs"], &["Cargo.toml"]),
        Some(Lang::Js | Lang::Ts) => (&["js", "mjs", "cjs", "ts", "mts"], &["package.json", "tsconfig.json"]),
        Some(Lang::Python) => (&["py"], &["pyproject.toml", "requirements.txt"]),
        Some(Lang::Go) => (&["go"], &["go.mod", "go.sum", "go.work"]),
        Some(Lang::C) => (&["c", "h", "cc", "cpp", "cxx", "hh", "hpp"], &[]),
        Some(Lang::Zig) => (&["zig", "zon"], &[]),
        None => {
            let all = [Lang::Rust, Lang::Ts, Lang::Python, Lang::Go, Lang::C, Lang::Zig];
            return all.into_iter().any(|lang| is_source(path, Some(lang)));
        }
    };
    endings.contains(&ending) || names.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
        fs::write(&path, text).expect("it can be written");
        path
    }

    #[test]
    fn sources_count_by_their_content_and_what_tools_made_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let (main, manifest) = (write(dir, "src/main.py", "1"), write(dir, MANIFEST, "x"));
        write(dir, ".gitignore", "/generated/\n");
        for left_out in ["data.jsonl", "main.rs", ".venv/a.py", "__pycache__/b.py", "generated/c.py", "out.wasm"] {
            write(dir, left_out, "1");
        }
        let watched =
            Watched { files: Vec::new(), trees: vec![Tree { dir: dir.to_owned(), lang: Some(Lang::Python) }] };
        let first = look(&watched, &Look::new());
        assert_eq!(first.keys().collect::<Vec<_>>(), [&main, &manifest]);

        // Written again with the same bytes: another time, and no change.
        write(dir, "src/main.py", "1");
        let again = look(&watched, &first);
        assert_eq!(changes(&first, &again), BTreeSet::new());
        let new = write(dir, "src/new.py", "");
        write(dir, "src/main.py", "22");
        fs::remove_file(&manifest).unwrap();
        let last = look(&watched, &again);
        assert_eq!(changes(&again, &last), BTreeSet::from([main, manifest, new]));
    }

    #[test]
    fn a_folder_that_others_ignore_is_watched_when_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), ".gitignore", "*\n");
        let source = write(folder.path(), "target/plugin/src/lib.rs", "");
        let trees = vec![Tree { dir: folder.path().join("target/plugin"), lang: Some(Lang::Rust) }];
        let seen = look(&Watched { files: vec![folder.path().join("nowhere")], trees }, &Look::new());
        assert_eq!(seen.into_keys().collect::<Vec<_>>(), [source]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_until_somebody_has_seen_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = write(folder.path(), "pipeline.toml", "a");
        let mut watcher = Watcher::default();
        let watched = Watched { files: vec![file.clone()], trees: Vec::new() };
        watcher.watch(watched.clone()).unwrap();
        write(folder.path(), "pipeline.toml", "bb");
        let changed = BTreeSet::from([file.clone()]);
        assert_eq!(watcher.changed().await, changed);
        assert_eq!(watcher.changed().await, changed);
        watcher.done();
        // A change that comes before something else is watched as well is not lost.
        write(folder.path(), "pipeline.toml", "ccc");
        let other = write(folder.path(), "other", "");
        watcher.watch(Watched { files: vec![file, other], ..watched }).unwrap();
        assert_eq!(watcher.changed().await, changed);
    }
}
