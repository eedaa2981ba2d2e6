//! A value for each key in each window: [`Windows`].
//!
//! A window is a namespace of keys with a number that says when it is over; it is dropped as a whole, which a snapshot says in one
//! word for each key group.

use std::collections::BTreeMap;
use std::fmt;

use super::batched::{Scratch, update_batch};
use super::chunk::{ChunkWriter, Operation, Section, corrupt};
use super::codec::State;
use super::groups::Groups;
use super::key::Key;
use super::keyed::read_section;
use super::segments::{Part, Plan, Weight, sealed::Sealed};
use super::table::{GENERATION_MAX, Generation, Probe, Table};
use crate::batch::BatchView;
use crate::operator::{Failure, TaskInfo};

/// Nothing has been closed yet.
const OPEN: i64 = i64::MIN;

/// A value for each key in each window, for this subtask's key groups.
///
/// A window is named by a number, usually its end in event time. [`close_before`](Self::close_before) says up to which number windows are
/// over, which is part of the state: a record that comes late is known as such after a restore, too.
///
/// Each open window takes about 7 KiB beside its keys, at 128 key groups. The memory of the window that was removed last is kept for the next.
pub struct Windows<V> {
    name: String,
    groups: Groups,
    generation: Generation,
    windows: BTreeMap<i64, Vec<Table<V>>>,
    /// By key group: subtasks whose groups come together in a rescale may have come differently far.
    closed: Vec<i64>,
    changes: Vec<Changes<V>>,
    scratch: Scratch,
    /// The memory of the last window that was removed, for the next one: it will be about as large.
    spare: Vec<Table<V>>,
}

/// What there is to say of a key group beside its tables.
struct Changes<V> {
    /// Windows that a snapshot holds and that were removed since the last cut.
    removed: Vec<i64>,
    closed: bool,
    cut: Option<Cut<V>>,
}

struct Cut<V> {
    /// Written before the tables.
    removed: Vec<i64>,
    closed: Option<i64>,
    /// Windows that were removed after the cut, before they were written.
    kept: BTreeMap<i64, Table<V>>,
}

impl<V> fmt::Debug for Windows<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Windows").field("name", &self.name).field("open", &self.windows.len()).finish_non_exhaustive()
    }
}

/// The keys of a window in order, made by [`Windows::sorted`].
#[derive(Clone, Debug, Default)]
pub struct Sorted {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    prefix: u64,
    group: u32,
    index: u32,
}

impl Sorted {
    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<V: State> Windows<V> {
    /// One without windows. It is found again in a snapshot by its name, of at most 255 bytes: never change that.
    pub fn new(name: &str, task: &TaskInfo) -> Self {
        let groups = Groups::new(task);
        let changes = (0..groups.len()).map(|_| Changes { removed: Vec::new(), closed: false, cut: None }).collect();
        Self {
            name: name.into(),
            generation: 1,
            windows: BTreeMap::new(),
            closed: vec![OPEN; groups.len()],
            changes,
            groups,
            scratch: Scratch::default(),
            spare: Vec::new(),
        }
    }

    /// The open windows, in order.
    pub fn windows(&self) -> impl Iterator<Item = i64> + '_ {
        self.windows.keys().copied()
    }

    /// The first open window.
    pub fn first(&self) -> Option<i64> {
        self.windows.keys().next().copied()
    }

    /// The number of keys in a window.
    pub fn len(&self, window: i64) -> usize {
        self.windows.get(&window).map_or(0, |tables| tables.iter().map(Table::len).sum())
    }

    /// Says that windows with a smaller number are over. It does not remove them.
    pub fn close_before(&mut self, window: i64) {
        for (closed, changes) in self.closed.iter_mut().zip(&mut self.changes) {
            if *closed < window {
                *closed = window;
                changes.closed = true;
            }
        }
    }

    /// Whether a window is over for keys with this hash.
    ///
    /// # Panics
    ///
    /// If the hash is of a key group that this subtask does not have.
    #[inline]
    pub fn is_closed(&self, window: i64, hash: u64) -> bool {
        match self.closed.get(self.groups.place(hash)) {
            Some(closed) => window < *closed,
            None => self.groups.not_ours(hash),
        }
    }

    /// Whether a window is over for no key: the quick answer for a whole batch.
    #[inline]
    pub fn is_open_for_all(&self, window: i64) -> bool {
        self.closed.iter().all(|closed| window >= *closed)
    }

    /// The value of a key in a window.
    ///
    /// # Panics
    ///
    /// If the key is of a group that this subtask does not have.
    pub fn get<'k>(&self, window: i64, key: impl Into<Key<'k>>) -> Option<&V> {
        let key = key.into();
        match self.windows.get(&window)?.get(self.groups.place(key.hash)) {
            Some(table) => table.get(&Probe::new(key.hash, key.bytes)),
            None => self.groups.not_ours(key.hash),
        }
    }

    /// The value of a key in a window, to be changed. Window and key are added if they are not there.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    pub fn value<'k>(&mut self, window: i64, key: impl Into<Key<'k>>) -> &mut V {
        let key = key.into();
        let (generation, place) = (self.generation, self.groups.place(key.hash));
        if place >= self.groups.len() {
            self.groups.not_ours(key.hash);
        }
        self.tables(window)[place].get_or_insert(&Probe::new(key.hash, key.bytes), generation)
    }

    /// Gives `each` the number of every record in a batch and the value of its key in a window, in order. Records without a
    /// key are left out.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    #[inline]
    pub fn update_batch(&mut self, window: i64, batch: BatchView<'_>, each: impl FnMut(usize, &mut V)) {
        if !batch.keys().is_full() && (0..batch.len()).all(|row| batch.keys().get(row).is_none()) {
            // No window comes to be by this: an empty one would not be there after a restore.
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let (generation, groups) = (self.generation, self.groups.clone());
        update_batch(self.tables(window), &groups, generation, &mut scratch, batch, each);
        self.scratch = scratch;
    }

    /// Puts the keys of a window in order, byte by byte as unsigned numbers. To be used with [`read`](Self::read), as long as the window is
    /// not changed.
    pub fn sorted(&self, window: i64, into: &mut Sorted) {
        into.entries.clear();
        let Some(tables) = self.windows.get(&window) else { return };
        into.entries.reserve(tables.iter().map(Table::len).sum());
        for (group, table) in (0_u32..).zip(tables) {
            let entry = |index| Entry { prefix: table.prefix(index), group, index };
            into.entries.extend(table.indices().map(entry));
        }
        into.entries.sort_unstable_by_key(|entry| entry.prefix);
        // Keys that begin with the same eight bytes, shorter ones filled up with zeros, are compared whole.
        for run in into.entries.chunk_by_mut(|a, b| a.prefix == b.prefix) {
            if run.len() > 1 {
                run.sort_by_cached_key(|entry| tables[entry.group as usize].with_key(entry.index, <[u8]>::to_vec));
            }
        }
    }

    /// Gives `each` the keys and values of a window in order, from number `from` up to, not including, `to`.
    ///
    /// # Panics
    ///
    /// If the window has been removed since, or `to` is more than there are.
    pub fn read(&self, window: i64, sorted: &Sorted, range: std::ops::Range<usize>, mut each: impl FnMut(&[u8], &V)) {
        let tables = &self.windows[&window];
        for entry in &sorted.entries[range] {
            let table = &tables[entry.group as usize];
            table.with_key(entry.index, |key| each(key, table.value(entry.index)));
        }
    }

    /// Removes a window with all its keys.
    pub fn remove(&mut self, window: i64) {
        let Some(tables) = self.windows.remove(&window) else { return };
        self.spare.clear();
        for (mut table, changes) in tables.into_iter().zip(&mut self.changes) {
            if table.stored {
                changes.removed.push(window);
            }
            match &mut changes.cut {
                Some(cut) if table.has_cut() => {
                    cut.kept.insert(window, table);
                    self.spare.push(Table::default());
                }
                _ => {
                    table.clear();
                    self.spare.push(table);
                }
            }
        }
    }

    fn tables(&mut self, window: i64) -> &mut [Table<V>] {
        let groups = self.groups.len();
        let spare = &mut self.spare;
        self.windows.entry(window).or_insert_with(|| match spare.is_empty() {
            true => (0..groups).map(|_| Table::default()).collect(),
            false => std::mem::take(spare),
        })
    }
}

impl<V: State> Part for Windows<V> {
    fn name(&self) -> &str {
        &self.name
    }
}

#[allow(private_interfaces, reason = "sealed")]
impl<V: State> Sealed for Windows<V> {
    fn weight(&self, group: usize) -> Weight {
        let changes = &self.changes[group];
        let live = usize::from(self.closed[group] != OPEN);
        let changed = changes.removed.len() + usize::from(changes.closed);
        self.windows.values().fold(Weight { live, changed }, |sum, tables| {
            let table = &tables[group];
            Weight { live: sum.live + table.len(), changed: sum.changed + table.changed() }
        })
    }

    fn begin_cut(&mut self, plans: &[Plan]) {
        if self.generation < GENERATION_MAX {
            self.generation += 1;
        } else {
            self.windows.values_mut().flatten().for_each(|table| table.renumber(GENERATION_MAX, 1));
            self.generation = 2;
        }
        for (group, plan) in plans.iter().enumerate() {
            for tables in self.windows.values_mut() {
                match plan {
                    Plan::Keep => tables[group].skip_cut(self.generation),
                    plan => tables[group].begin_cut(*plan == Plan::Base),
                }
            }
            let changes = &mut self.changes[group];
            let removed = std::mem::take(&mut changes.removed);
            let closed = std::mem::take(&mut changes.closed);
            changes.cut = match plan {
                Plan::Keep => None,
                Plan::Delta => {
                    Some(Cut { removed, closed: closed.then_some(self.closed[group]), kept: BTreeMap::new() })
                }
                Plan::Base => {
                    let closed = Some(self.closed[group]).filter(|closed| *closed != OPEN);
                    Some(Cut { removed: Vec::new(), closed, kept: BTreeMap::new() })
                }
            };
        }
    }

    fn write_group(&mut self, group: usize, to: &mut ChunkWriter<'_>) -> bool {
        let (name, generation) = (self.name.as_str(), self.generation);
        let Some(cut) = &mut self.changes[group].cut else { return true };
        let mut removed = std::mem::take(&mut cut.removed);
        removed.sort_unstable();
        removed.dedup();
        removed.iter().for_each(|window| to.mark(Operation::Drop, name, *window));
        if let Some(closed) = cut.closed.take() {
            to.mark(Operation::Close, name, closed);
        }
        // Windows that were removed since and windows that are there, in order; none is both, since what is made anew
        // after the cut is not part of it.
        let mut pending: Vec<i64> = cut.kept.keys().copied().collect();
        pending.extend(self.windows.iter().filter(|(_, tables)| tables[group].has_cut()).map(|(window, _)| *window));
        pending.sort_unstable();
        for window in pending {
            let table = match cut.kept.get_mut(&window) {
                Some(table) => table,
                None => match self.windows.get_mut(&window) {
                    Some(tables) => &mut tables[group],
                    None => continue,
                },
            };
            if !table.write(generation, name, window, to) {
                return false;
            }
            cut.kept.remove(&window);
            if !to.go_on {
                // There may be nothing left: then the next call finds that out, and writes nothing.
                return false;
            }
        }
        self.changes[group].cut = None;
        true
    }

    fn abandon(&mut self) {
        self.windows.values_mut().flatten().for_each(|table| table.abandon(self.generation));
        self.changes.iter_mut().for_each(|changes| changes.cut = None);
    }

    fn read(&mut self, group: usize, section: &Section<'_>) -> Result<(), Failure> {
        match section.operation {
            Operation::Drop => {
                // Only this group's part: other groups may have come from a subtask that still had the window.
                if let Some(tables) = self.windows.get_mut(&section.namespace) {
                    tables[group] = Table::default();
                    if tables.iter().all(|table| table.len() == 0) {
                        self.windows.remove(&section.namespace);
                    }
                }
                Ok(())
            }
            Operation::Close => {
                self.closed[group] = section.namespace;
                Ok(())
            }
            Operation::Put | Operation::Delete => {
                let groups = self.groups.clone();
                read_section(&mut self.tables(section.namespace)[group], &groups, group, section)
            }
            other => Err(corrupt(&format!("{:?} holds {other:?}", self.name))),
        }
    }
}
