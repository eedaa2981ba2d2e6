//! A file system that may lose its power: what a process sees, and what of it would be there again.
//!
//! In: records of calls, in order. Out: an [`Image`] for each [`Loss`], at any moment. The promises are those of POSIX and no more:
//! - a sync of a file makes its content and length durable, not its name;
//! - a sync of a folder makes its entries durable as they are, not what is in the files;
//! - a rename in one folder is there wholly or not at all. One from folder to folder is durable when both are synced: after a
//!   sync of the new one alone a file may have both names, after a sync of the old one alone nothing is lost. A folder
//!   never has two names;
//! - what is not durable may be there or not, each part by itself.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use crate::image::{Entry, Image};
use crate::loss::{Chance, Loss};
use crate::record::Record;

/// The number of a file or folder; those of what is gone are not used again.
pub(crate) type Id = usize;
type Name = Vec<u8>;

/// The file system.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    nodes: Vec<Node>,
    open: BTreeMap<i32, Id>,
    /// Counts calls; orders what happened to folders.
    clock: u64,
}

#[derive(Clone, Debug)]
enum Node {
    File(File),
    Folder(Folder),
}

#[derive(Clone, Debug, Default)]
struct File {
    durable: Rc<Vec<u8>>,
    volatile: Vec<u8>,
    /// What was done since the last sync.
    pending: Vec<Edit>,
}

/// A change of a file's content.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// So many bytes at an offset.
    Write(usize, Vec<u8>),
    /// A new length.
    Truncate(usize),
}

#[derive(Clone, Debug, Default)]
struct Folder {
    /// With the time at which each entry was made.
    durable: BTreeMap<Name, (Id, u64)>,
    volatile: BTreeMap<Name, Id>,
    /// What was done since the last sync, and removals that wait for another folder's.
    pending: Vec<Change>,
}

/// A change of a folder's entries, which happens as a whole.
#[derive(Clone, Debug)]
struct Change {
    time: u64,
    entries: Vec<(Name, Step)>,
    /// The entry that must be durable before this one is: what a rename removes is there under its new name.
    needs: Option<(Id, u64)>,
    /// The folder was synced since.
    synced: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The name is that of this node.
    Set(Id),
    /// The name is no longer that of this node.
    Clear(Id),
}

impl Edit {
    /// Does it.
    pub(crate) fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write(at, data) => {
                let end = at + data.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*at..end].copy_from_slice(data);
            }
            Self::Truncate(len) => content.resize(*len, 0),
        }
    }
}

impl Change {
    fn apply(&self, to: &mut BTreeMap<Name, (Id, u64)>) {
        for (name, step) in &self.entries {
            match *step {
                Step::Set(id) => {
                    to.insert(name.clone(), (id, self.time));
                }
                Step::Clear(id) => {
                    if to.get(name).is_some_and(|(there, _)| *there == id) {
                        to.remove(name);
                    }
                }
            }
        }
    }

    fn is_about(&self, other: &Self) -> bool {
        self.entries.iter().any(|(name, _)| other.entries.iter().any(|(other, _)| name == other))
    }
}

const ROOT: Id = 0;

impl Disk {
    /// An empty folder.
    pub(crate) fn new() -> Self {
        Self { nodes: vec![Node::Folder(Folder::default())], open: BTreeMap::new(), clock: 0 }
    }

    /// A folder as it is, all of it durable.
    pub(crate) fn of(folder: &Path) -> io::Result<Self> {
        let mut disk = Self::new();
        disk.take_in(folder, ROOT)?;
        Ok(disk)
    }

    fn take_in(&mut self, folder: &Path, id: Id) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let child = if entry.file_type()?.is_dir() {
                let child = self.add(Node::Folder(Folder::default()));
                self.take_in(&entry.path(), child)?;
                child
            } else {
                let content = fs::read(entry.path())?;
                self.add(Node::File(File { durable: Rc::new(content.clone()), volatile: content, pending: Vec::new() }))
            };
            let name = entry.file_name().as_bytes().to_vec();
            let Node::Folder(parent) = &mut self.nodes[id] else { unreachable!("only folders have entries") };
            parent.volatile.insert(name.clone(), child);
            parent.durable.insert(name, (child, 0));
        }
        Ok(())
    }

    fn add(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn folder(&mut self, id: Id) -> Result<&mut Folder, String> {
        match &mut self.nodes[id] {
            Node::Folder(folder) => Ok(folder),
            Node::File(_) => Err(format!("node {id} is no folder")),
        }
    }

    fn file(&mut self, fd: i32) -> Result<&mut File, String> {
        let id = *self.open.get(&fd).ok_or_else(|| format!("descriptor {fd} is not open"))?;
        match &mut self.nodes[id] {
            Node::File(file) => Ok(file),
            Node::Folder(_) => Err(format!("descriptor {fd} is of a folder")),
        }
    }

    /// What a path names now.
    fn find(&self, path: &[u8]) -> Option<Id> {
        let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(ROOT, |id, name| match &self.nodes[id] {
            Node::Folder(folder) => folder.volatile.get(name).copied(),
            Node::File(_) => None,
        })
    }

    /// The folder that a path is in, and the last name.
    fn parent(&self, path: &[u8]) -> Result<(Id, Name), String> {
        let slash = path.iter().rposition(|&byte| byte == b'/');
        let (parent, name) = slash.map_or((&b""[..], path), |slash| (&path[..slash], &path[slash + 1..]));
        let id = self.find(parent).ok_or_else(|| format!("there is no folder for {}", text(path)))?;
        Ok((id, name.to_vec()))
    }

    fn change(&mut self, folder: Id, entries: Vec<(Name, Step)>, needs: Option<(Id, u64)>) -> Result<(), String> {
        let time = self.clock;
        let folder = self.folder(folder)?;
        for (name, step) in &entries {
            match step {
                Step::Set(id) => folder.volatile.insert(name.clone(), *id),
                Step::Clear(_) => folder.volatile.remove(name),
            };
        }
        folder.pending.push(Change { time, entries, needs, synced: false });
        Ok(())
    }

    /// Does what a process did.
    ///
    /// # Errors
    ///
    /// The record does not fit what was recorded before: something was done that is not in the trace.
    pub(crate) fn apply(&mut self, record: &Record) -> Result<(), String> {
        self.clock += 1;
        match record {
            Record::Begin { .. } => {}
            Record::Open { fd, path, create, truncate } => {
                let id = match self.find(path) {
                    Some(id) => id,
                    None if *create => {
                        let (folder, name) = self.parent(path)?;
                        let id = self.add(Node::File(File::default()));
                        self.change(folder, vec![(name, Step::Set(id))], None)?;
                        id
                    }
                    None => return Err(format!("{} was opened and is not there", text(path))),
                };
                self.open.insert(*fd, id);
                if *truncate {
                    self.edit(*fd, Edit::Truncate(0))?;
                }
            }
            Record::Write { fd, offset, data } => self.edit(*fd, Edit::Write(*offset as usize, data.clone()))?,
            Record::Truncate { fd, len } => self.edit(*fd, Edit::Truncate(*len as usize))?,
            Record::Sync { fd } => {
                let id = *self.open.get(fd).ok_or_else(|| format!("descriptor {fd} is not open"))?;
                self.sync(id);
            }
            Record::SyncAll => {
                // Twice: a removal waits for the folder into which something moved.
                (0..2).for_each(|_| (0..self.nodes.len()).for_each(|id| self.sync(id)));
            }
            Record::Close { fd } => {
                self.open.remove(fd).ok_or_else(|| format!("descriptor {fd} was closed and is not open"))?;
            }
            Record::Duplicate { from, to } => {
                let id = *self.open.get(from).ok_or_else(|| format!("descriptor {from} is not open"))?;
                self.open.insert(*to, id);
            }
            Record::Rename { from, to } => self.rename(from, to)?,
            Record::Link { from, to } => {
                let id = self.find(from).ok_or_else(|| format!("{} was linked and is not there", text(from)))?;
                let (folder, name) = self.parent(to)?;
                self.change(folder, vec![(name, Step::Set(id))], None)?;
            }
            Record::MakeFolder { path } => {
                let (folder, name) = self.parent(path)?;
                let id = self.add(Node::Folder(Folder::default()));
                self.change(folder, vec![(name, Step::Set(id))], None)?;
            }
            Record::Unlink { path } | Record::RemoveFolder { path } => {
                let id = self.find(path).ok_or_else(|| format!("{} was removed and is not there", text(path)))?;
                let (folder, name) = self.parent(path)?;
                self.change(folder, vec![(name, Step::Clear(id))], None)?;
            }
        }
        Ok(())
    }

    fn edit(&mut self, fd: i32, edit: Edit) -> Result<(), String> {
        let file = self.file(fd)?;
        edit.apply(&mut file.volatile);
        file.pending.push(edit);
        Ok(())
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), String> {
        let id = self.find(from).ok_or_else(|| format!("{} was renamed and is not there", text(from)))?;
        if self.find(to) == Some(id) {
            // Two names of one file: POSIX says that nothing happens.
            return Ok(());
        }
        let (old, old_name) = self.parent(from)?;
        let (new, new_name) = self.parent(to)?;
        if old == new {
            return self.change(old, vec![(old_name, Step::Clear(id)), (new_name, Step::Set(id))], None);
        }
        self.change(new, vec![(new_name, Step::Set(id))], None)?;
        self.change(old, vec![(old_name, Step::Clear(id))], Some((new, self.clock)))
    }

    /// Whether a change has become durable.
    fn is_durable(&self, folder: Id, time: u64) -> bool {
        match &self.nodes[folder] {
            Node::Folder(folder) => folder.pending.iter().all(|change| change.time != time),
            Node::File(_) => true,
        }
    }

    fn sync(&mut self, id: Id) {
        let pending = match &mut self.nodes[id] {
            Node::File(file) => {
                if !file.pending.is_empty() {
                    file.durable = Rc::new(file.volatile.clone());
                    file.pending.clear();
                }
                return;
            }
            Node::Folder(folder) => std::mem::take(&mut folder.pending),
        };
        let mut held: Vec<Change> = Vec::new();
        let mut done = Vec::new();
        for mut change in pending {
            if change.needs.is_some_and(|(folder, time)| !self.is_durable(folder, time)) {
                change.synced = true;
                held.push(change);
            } else {
                held.retain(|earlier| !earlier.is_about(&change));
                done.push(change);
            }
        }
        if let Node::Folder(folder) = &mut self.nodes[id] {
            done.iter().for_each(|change| change.apply(&mut folder.durable));
            folder.pending = held;
        }
    }

    /// What is there when the power comes back.
    pub(crate) fn image(&self, loss: Loss) -> Image {
        let mut chance = Chance::new(loss, self.clock);
        // Which changes survive is decided for all folders first, since some need others.
        let survive = self.nodes.iter().map(|node| match node {
            Node::Folder(folder) => chance.changes(folder.pending.iter().map(|change| change.time)),
            Node::File(_) => Vec::new(),
        });
        let survive: Vec<Vec<bool>> = survive.collect();
        let survived = |folder: Id, time: u64| match &self.nodes[folder] {
            Node::Folder(changes) => {
                let mut changes = changes.pending.iter().zip(&survive[folder]);
                changes.all(|(change, survives)| change.time != time || *survives)
            }
            Node::File(_) => true,
        };
        let entries = |id: Id| match &self.nodes[id] {
            Node::File(_) => None,
            Node::Folder(folder) => {
                let mut entries = folder.durable.clone();
                for (change, survives) in folder.pending.iter().zip(&survive[id]) {
                    let possible = change.needs.is_none_or(|(folder, time)| survived(folder, time));
                    if possible && (*survives || change.synced) {
                        change.apply(&mut entries);
                    }
                }
                Some(entries)
            }
        };
        let folders: Vec<Option<BTreeMap<Name, (Id, u64)>>> = (0..self.nodes.len()).map(entries).collect();
        // A folder that moved is where it went last.
        let mut newest: BTreeMap<Id, u64> = BTreeMap::new();
        for (id, time) in folders.iter().flatten().flat_map(BTreeMap::values) {
            let newest = newest.entry(*id).or_default();
            *newest = (*newest).max(*time);
        }
        let contents = self.nodes.iter().map(|node| match node {
            Node::File(file) => Some(chance.content(&file.durable, &file.pending)),
            Node::Folder(_) => None,
        });
        let contents: Vec<Option<Rc<Vec<u8>>>> = contents.collect();

        let mut image = Image::default();
        let mut left = vec![(Path::new("").to_path_buf(), ROOT)];
        while let Some((path, id)) = left.pop() {
            for (name, (child, time)) in folders[id].iter().flatten() {
                let path = path.join(OsStr::from_bytes(name));
                match &contents[*child] {
                    Some(content) => {
                        image.entries.insert(path, Entry::File { id: *child, content: Rc::clone(content) });
                    }
                    None if newest[child] == *time => {
                        image.entries.insert(path.clone(), Entry::Folder);
                        left.push((path, *child));
                    }
                    None => {}
                }
            }
        }
        image
    }
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
