//! A value for each key: [`KeyedState`], the collection that most operators need.

use std::fmt;

use super::batched::{Scratch, update_batch};
use super::chunk::{ChunkWriter, Operation, Section, corrupt};
use super::codec::State;
use super::groups::Groups;
use super::key::Key;
use super::segments::{Part, Plan, Weight, check_group, sealed::Sealed};
use super::table::{GENERATION_MAX, Generation, Probe, Table};
use crate::batch::{BatchView, key_hash};
use crate::operator::{Failure, TaskInfo};

/// A value for each key of this subtask's key groups.
///
/// It knows what has changed since the last snapshot: a `&mut V` that it hands out counts as a change. Write and read it with
/// [`Segments`](super::Segments).
///
/// Keys are found by the hash that the host gives with each record of a keyed input. A key of a group that
/// this subtask does not have is a mistake in the plugin (its input port is not declared as keyed) and panics.
///
/// A key of up to 16 bytes and a value of up to 8 take 32 bytes, with a value of up to 40 they take 64, and the slots 11 to 21 more; a longer
/// key is kept beside. Memory of removed keys is used again, but not given back.
pub struct KeyedState<V> {
    name: String,
    groups: Groups,
    generation: Generation,
    tables: Vec<Table<V>>,
    scratch: Scratch,
}

impl<V> fmt::Debug for KeyedState<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedState").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<V: State> KeyedState<V> {
    /// An empty one. It is found again in a snapshot by its name, of at most 255 bytes: never change that.
    pub fn new(name: &str, task: &TaskInfo) -> Self {
        let groups = Groups::new(task);
        let tables = (0..groups.len()).map(|_| Table::default()).collect();
        Self { name: name.into(), groups, generation: 1, tables, scratch: Scratch::default() }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.tables.iter().map(Table::len).sum()
    }

    /// Whether it has no key.
    pub fn is_empty(&self) -> bool {
        self.tables.iter().all(|table| table.len() == 0)
    }

    /// The value of a key.
    ///
    /// # Panics
    ///
    /// If the key is of a group that this subtask does not have.
    pub fn get<'k>(&self, key: impl Into<Key<'k>>) -> Option<&V> {
        let key = key.into();
        match self.tables.get(self.groups.place(key.hash)) {
            Some(table) => table.get(&Probe::new(key.hash, key.bytes)),
            None => self.groups.not_ours(key.hash),
        }
    }

    /// The value of a key, to be changed.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    pub fn get_mut<'k>(&mut self, key: impl Into<Key<'k>>) -> Option<&mut V> {
        let key = key.into();
        let generation = self.generation;
        self.table(key.hash).get_mut(&Probe::new(key.hash, key.bytes), generation)
    }

    /// The value of a key, to be changed; the key is added with the default if it is not there.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    #[inline]
    pub fn value<'k>(&mut self, key: impl Into<Key<'k>>) -> &mut V {
        let key = key.into();
        let generation = self.generation;
        self.table(key.hash).get_or_insert(&Probe::new(key.hash, key.bytes), generation)
    }

    /// Sets the value of a key and returns the old one.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    pub fn insert<'k>(&mut self, key: impl Into<Key<'k>>, value: V) -> Option<V> {
        let key = key.into();
        let generation = self.generation;
        let table = self.table(key.hash);
        let probe = Probe::new(key.hash, key.bytes);
        match table.get_mut(&probe, generation) {
            Some(old) => Some(std::mem::replace(old, value)),
            None => {
                *table.get_or_insert(&probe, generation) = value;
                None
            }
        }
    }

    /// Removes a key and returns its value.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    pub fn remove<'k>(&mut self, key: impl Into<Key<'k>>) -> Option<V> {
        let key = key.into();
        let generation = self.generation;
        self.table(key.hash).remove(&Probe::new(key.hash, key.bytes), generation)
    }

    /// Gives `each` the number of every record in a batch and the value of its key, in order; the default where the key was not
    /// there. Records without a key are left out.
    ///
    /// The fastest way by far, since one record's way to memory does not wait for another's.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    #[inline]
    pub fn update_batch(&mut self, batch: BatchView<'_>, each: impl FnMut(usize, &mut V)) {
        update_batch(&mut self.tables, &self.groups, self.generation, &mut self.scratch, batch, each);
    }

    /// Gives `each` all keys with their values, by key group, then by hash and key: an order that depends on what there is
    /// alone, and not on how it came there.
    pub fn for_each(&self, mut each: impl FnMut(&[u8], &V)) {
        for table in &self.tables {
            for index in table.ordered() {
                table.with_key(index, |key| each(key, table.value(index)));
            }
        }
    }

    #[inline]
    fn table(&mut self, hash: u64) -> &mut Table<V> {
        match self.tables.get_mut(self.groups.place(hash)) {
            Some(table) => table,
            None => self.groups.not_ours(hash),
        }
    }
}

impl<V: State> Part for KeyedState<V> {
    fn name(&self) -> &str {
        &self.name
    }
}

#[allow(private_interfaces, reason = "sealed")]
impl<V: State> Sealed for KeyedState<V> {
    fn weight(&self, group: usize) -> Weight {
        let table = &self.tables[group];
        Weight { live: table.len(), changed: table.changed() }
    }

    fn begin_cut(&mut self, plans: &[Plan]) {
        let ended = self.generation;
        self.generation = next_generation(&mut self.tables, ended);
        for (table, plan) in self.tables.iter_mut().zip(plans) {
            match plan {
                Plan::Keep => table.skip_cut(self.generation),
                plan => table.begin_cut(*plan == Plan::Base),
            }
        }
    }

    fn write_group(&mut self, group: usize, to: &mut ChunkWriter<'_>) -> bool {
        self.tables[group].write(self.generation, &self.name, 0, to)
    }

    fn abandon(&mut self) {
        self.tables.iter_mut().for_each(|table| table.abandon(self.generation));
    }

    fn read(&mut self, group: usize, section: &Section<'_>) -> Result<(), Failure> {
        if section.namespace != 0 {
            return Err(corrupt(&format!("{:?} holds windows, not keys alone", self.name)));
        }
        read_section(&mut self.tables[group], &self.groups, group, section)
    }
}

/// The generation after this one. When numbers run out, all stamps are made small again.
pub(crate) fn next_generation<V: State>(tables: &mut [Table<V>], ended: Generation) -> Generation {
    if ended < GENERATION_MAX {
        return ended + 1;
    }
    tables.iter_mut().for_each(|table| table.renumber(ended, 1));
    2
}

/// Takes over the entries of a section into a table.
pub(crate) fn read_section<V: State>(
    table: &mut Table<V>,
    groups: &Groups,
    group: usize,
    section: &Section<'_>,
) -> Result<(), Failure> {
    match section.operation {
        Operation::Put => {
            if section.hint > table.len() {
                table.reserve(section.hint);
            }
            for entry in section.puts() {
                let (key, value) = entry?;
                let hash = key_hash(key);
                check_group(groups, group, hash)?;
                let value =
                    V::decode(value).map_err(|why| corrupt(&format!("a value of {:?}: {why}", section.name)))?;
                table.restore(&Probe::new(hash, key), value);
            }
        }
        Operation::Delete => {
            for key in section.deletes() {
                let key = key?;
                table.restore_removed(&Probe::new(key_hash(key), key));
            }
        }
        other => return Err(corrupt(&format!("{:?} holds {other:?}", section.name))),
    }
    table.stored = true;
    Ok(())
}
