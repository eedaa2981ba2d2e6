//! The keys and values of one key group: an open-addressing table that knows what has changed.
//!
//! `slots` maps the lower 32 bits of a hash, whose position is their own low bits, to an entry; entries lie dense, with short keys inside.
//! A lookup touches one slot line and one entry line, and compares words.
//!
//! **What has changed.** Each entry carries the generation in which it was last changed. The first change of an entry in a generation puts
//! it on the list `dirty`; a snapshot's cut takes that list away and begins the next generation, without a look at the entries.
//!
//! **The cut.** While a snapshot is open, the first change of an entry that it still has to write sets the old
//! version aside, encoded ([`Cut::saved`]). So later steps write the state of the cut, whatever happened since.
//!
//! **Order.** All that is written or shown goes by hash, then key: it depends on what the table holds, not on how it
//! came to hold that.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::chunk::{ChunkWriter, Operation, put_bytes};
use super::codec::State;
use super::key::{INLINE_MAX, LONG, equal_long, words};

/// A generation: the number of cuts that were taken. 24 bits, and never 0, which marks what was restored.
pub(crate) type Generation = u32;

/// After this generation all entries are marked anew, and counting begins again.
pub(crate) const GENERATION_MAX: Generation = (1 << 24) - 1;

const LENGTH: u32 = 0x1f;
/// Of no key: the entry can be used again.
const FREE: u32 = 1 << 5;
/// Its key was removed, which the next snapshot has to say.
const DEAD: u32 = 1 << 6;
/// No snapshot knows it: it came in the generation that its stamp says.
const NEW: u32 = 1 << 7;
const STAMP_SHIFT: u32 = 8;

/// So many places are sorted in passes over them, in a time that grows with their number only: a snapshot's step must not stop the stream.
const RADIX_MIN: usize = 1024;

/// Aligned so that one with a value of up to eight bytes, which then takes 32, never lies across two cache lines: that would be a second
/// access to memory for every other record.
#[repr(align(32))]
struct Entry<V> {
    /// The key, or of a long one its place in the arena and its length.
    k0: u64,
    k1: u64,
    tag: u32,
    /// Length of the key, flags, and the generation of the last change.
    meta: u32,
    value: V,
}

impl<V> Entry<V> {
    #[inline(always)]
    fn stamp(&self) -> Generation {
        self.meta >> STAMP_SHIFT
    }

    #[inline(always)]
    fn is(&self, flags: u32) -> bool {
        self.meta & flags != 0
    }
}

/// A key as the table compares it.
#[derive(Clone, Copy)]
pub(crate) struct Probe<'a> {
    tag: u32,
    length: u32,
    k0: u64,
    k1: u64,
    bytes: &'a [u8],
}

impl<'a> Probe<'a> {
    #[inline(always)]
    pub(crate) fn new(hash: u64, bytes: &'a [u8]) -> Self {
        let (k0, k1) = words(bytes);
        let length = if bytes.len() <= INLINE_MAX { bytes.len() as u32 } else { LONG };
        Self { tag: hash as u32, length, k0, k1, bytes }
    }

    /// One whose words were loaded already, of at most 16 bytes.
    #[inline(always)]
    pub(crate) fn inline(hash: u64, k0: u64, k1: u64, bytes: &'a [u8]) -> Self {
        Self { tag: hash as u32, length: bytes.len() as u32, k0, k1, bytes }
    }
}

/// The keys and values of one key group.
pub(crate) struct Table<V> {
    /// `tag << 32 | index + 1`, or 0. Linear probing; at most three quarters are taken.
    slots: Vec<u64>,
    entries: Vec<Entry<V>>,
    dirty: Vec<u32>,
    live: u32,
    /// How many keys have changed in this generation. Not the length of `dirty`, which may name an entry that was freed.
    changed: u32,
    /// Whether a snapshot holds something of this table.
    pub(crate) stored: bool,
    rare: Option<Box<Rare>>,
}

#[derive(Default)]
struct Rare {
    free: Vec<u32>,
    long_keys: Vec<u8>,
    long_garbage: usize,
    cut: Option<Cut>,
}

/// What an open snapshot still has to write.
#[derive(Default)]
struct Cut {
    base: bool,
    /// What was dirty at the cut.
    touched: Vec<u32>,
    /// The version of the cut of entries that have changed since, encoded.
    saved: HashMap<u32, Saved, BuildHasherDefault<IndexHasher>>,
    saved_bytes: Vec<u8>,
    /// Set when writing begins: tag and index of what is to be removed, and of what is to be set, in order.
    order: Option<Order>,
}

struct Order {
    gone: Vec<u64>,
    live: Vec<u64>,
    next: usize,
}

#[derive(Clone, Copy)]
struct Saved {
    tag: u32,
    start: usize,
    end: usize,
}

/// Hashes entry numbers. Its order is never shown.
#[derive(Default)]
struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only entry numbers are hashed, as u32");
    }

    fn write_u32(&mut self, index: u32) {
        self.0 = u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            entries: Vec::new(),
            dirty: Vec::new(),
            live: 0,
            changed: 0,
            stored: false,
            rare: None,
        }
    }
}

impl<V: State> Table<V> {
    pub(crate) fn len(&self) -> usize {
        self.live as usize
    }

    pub(crate) fn changed(&self) -> usize {
        self.changed as usize
    }

    /// Makes room for so many keys in all.
    pub(crate) fn reserve(&mut self, keys: usize) {
        // A hint from a snapshot: not to be trusted further than this.
        let keys = keys.min(1 << 24);
        let slots = (keys * 4 / 3 + 1).next_power_of_two().max(8);
        if keys > 0 && slots > self.slots.len() {
            self.resize_slots(slots);
        }
        self.entries.reserve_exact(keys.saturating_sub(self.entries.len()));
    }

    /// Makes it as a new one, and keeps its memory where most of that was used.
    pub(crate) fn clear(&mut self) {
        let old = std::mem::take(self);
        if old.slots.len() < (old.live as usize + 8) * 8 {
            (self.slots, self.entries, self.dirty) = (old.slots, old.entries, old.dirty);
            self.slots.fill(0);
            self.entries.clear();
            self.dirty.clear();
        }
    }

    /// The first slot to look at for this hash. It is not looked at here.
    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> &u64 {
        match self.slots.len().checked_sub(1) {
            Some(mask) => &self.slots[hash as u32 as usize & mask],
            None => &0,
        }
    }

    /// The first entry with this hash's tag plus one, or 0: a guess, to be checked by [`at`](Self::at). `home` is what is in its
    /// [`home`](Self::home).
    #[inline(always)]
    pub(crate) fn guess(&self, home: u64, hash: u64) -> u32 {
        let tag = hash as u32;
        if home == 0 || (home >> 32) as u32 == tag {
            return home as u32;
        }
        let mask = self.slots.len() - 1;
        let mut at = tag as usize & mask;
        loop {
            at += 1;
            let slot = self.slots[at & mask];
            if slot == 0 || (slot >> 32) as u32 == tag {
                return slot as u32;
            }
        }
    }

    /// A part of the guessed entry. It is not looked at here.
    #[inline(always)]
    pub(crate) fn first_word(&self, guess: u32) -> &u64 {
        self.entries.get(guess.wrapping_sub(1) as usize).map_or(&0, |entry| &entry.k0)
    }

    /// Checks a guess: the entry of this key, marked as changed. None if the guess was wrong, or the key is long.
    #[inline(always)]
    pub(crate) fn at(&mut self, guess: u32, key: &Probe<'_>, generation: Generation) -> Option<u32> {
        let index = guess.wrapping_sub(1);
        let entry = self.entries.get(index as usize)?;
        // One comparison without a branch between its parts.
        let differs = (entry.k0 ^ key.k0) | (entry.k1 ^ key.k1) | u64::from((entry.meta & LENGTH) ^ key.length);
        if differs != 0 || key.length == LONG {
            return None;
        }
        if entry.stamp() != generation {
            self.first_change(index, generation);
        }
        Some(index)
    }

    /// The value of an entry that [`at`](Self::at) has found.
    #[inline(always)]
    pub(crate) fn value_mut(&mut self, index: u32) -> &mut V {
        &mut self.entries[index as usize].value
    }

    #[inline]
    fn matches(&self, index: u32, key: &Probe<'_>) -> bool {
        let entry = &self.entries[index as usize];
        if entry.meta & LENGTH != key.length {
            return false;
        }
        if key.length == LONG {
            equal_long(self.long_key(entry), key.bytes)
        } else {
            entry.k0 == key.k0 && entry.k1 == key.k1
        }
    }

    fn long_key(&self, entry: &Entry<V>) -> &[u8] {
        match &self.rare {
            Some(rare) => &rare.long_keys[entry.k0 as usize..][..entry.k1 as usize],
            None => &[],
        }
    }

    fn find(&self, key: &Probe<'_>) -> Option<u32> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = key.tag as usize & mask;
        loop {
            let slot = self.slots[at & mask];
            if slot == 0 {
                return None;
            }
            let index = slot as u32 - 1;
            if (slot >> 32) as u32 == key.tag && self.matches(index, key) {
                return Some(index);
            }
            at += 1;
        }
    }

    pub(crate) fn get(&self, key: &Probe<'_>) -> Option<&V> {
        self.find(key).map(|index| &self.entries[index as usize].value)
    }

    /// The value of a key that is there, marked as changed.
    pub(crate) fn get_mut(&mut self, key: &Probe<'_>, generation: Generation) -> Option<&mut V> {
        let index = self.find(key)?;
        if self.entries[index as usize].stamp() != generation {
            self.first_change(index, generation);
        }
        Some(&mut self.entries[index as usize].value)
    }

    /// The value of a key, marked as changed; the default if the key was not there.
    #[inline(never)]
    pub(crate) fn get_or_insert(&mut self, key: &Probe<'_>, generation: Generation) -> &mut V {
        let index = match self.find(key) {
            Some(index) => {
                if self.entries[index as usize].stamp() != generation {
                    self.first_change(index, generation);
                }
                index
            }
            None => {
                let index = self.insert(key, generation << STAMP_SHIFT | NEW);
                self.changed += 1;
                index
            }
        };
        &mut self.entries[index as usize].value
    }

    /// Sets what a snapshot says: a change that no snapshot has to say again.
    pub(crate) fn restore(&mut self, key: &Probe<'_>, value: V) {
        let index = self.find(key).unwrap_or_else(|| self.insert(key, 0));
        self.entries[index as usize].value = value;
    }

    /// Removes what a snapshot says.
    pub(crate) fn restore_removed(&mut self, key: &Probe<'_>) {
        if let Some(index) = self.find(key) {
            self.remove_slot(index);
            self.live -= 1;
            self.free(index);
        }
    }

    fn insert(&mut self, key: &Probe<'_>, flags: u32) -> u32 {
        if (self.live as usize + 1) * 4 > self.slots.len() * 3 {
            self.resize_slots((self.slots.len() * 2).max(8));
        }
        let (k0, k1) = if key.length == LONG {
            let long_keys = &mut self.rare.get_or_insert_default().long_keys;
            let at = long_keys.len() as u64;
            long_keys.extend_from_slice(key.bytes);
            (at, key.bytes.len() as u64)
        } else {
            (key.k0, key.k1)
        };
        let entry = Entry { k0, k1, tag: key.tag, meta: flags | key.length, value: V::default() };
        let stamp = flags >> STAMP_SHIFT;
        let index = match self.rare.as_mut().and_then(|rare| rare.free.pop()) {
            Some(index) => {
                // Freed in this generation: it is on the list already.
                if self.entries[index as usize].stamp() != stamp {
                    self.dirty.push(index);
                }
                self.entries[index as usize] = entry;
                index
            }
            None => {
                let index = self.entries.len() as u32;
                if self.entries.len() == self.entries.capacity() {
                    // Not twice the size: memory counts, and a table is a small part of the state.
                    let more = if index < 64 { index.max(4) } else { index / 4 };
                    self.entries.reserve_exact(more as usize);
                }
                self.entries.push(entry);
                if stamp != 0 {
                    self.dirty.push(index);
                }
                index
            }
        };
        self.live += 1;
        self.place(u64::from(key.tag) << 32 | u64::from(index + 1));
        index
    }

    pub(crate) fn remove(&mut self, key: &Probe<'_>, generation: Generation) -> Option<V> {
        let index = self.find(key)?;
        if self.entries[index as usize].stamp() != generation {
            self.first_change(index, generation);
        }
        self.remove_slot(index);
        self.live -= 1;
        let entry = &mut self.entries[index as usize];
        let value = std::mem::take(&mut entry.value);
        if entry.is(NEW) {
            self.changed -= 1;
            self.free(index);
        } else {
            entry.meta |= DEAD;
        }
        Some(value)
    }

    /// Notes that an entry changes for the first time in this generation; sets its old version aside where an open
    /// snapshot still has to write it.
    #[inline(never)]
    fn first_change(&mut self, index: u32, generation: Generation) {
        let stamp = self.entries[index as usize].stamp();
        // One that came or changed after the cut has the stamp of this generation, and is not seen here.
        let wanted = |cut: &Cut| cut.base || stamp + 1 == generation;
        if self.rare.as_ref().is_some_and(|rare| rare.cut.as_ref().is_some_and(wanted)) {
            let mut bytes = std::mem::take(self.saved_bytes());
            let start = bytes.len();
            self.encode(index, &mut bytes);
            let saved = Saved { tag: self.entries[index as usize].tag, start, end: bytes.len() };
            *self.saved_bytes() = bytes;
            if let Some(cut) = &mut self.rare.get_or_insert_default().cut {
                cut.saved.insert(index, saved);
            }
        }
        let entry = &mut self.entries[index as usize];
        entry.meta = entry.meta & (LENGTH | FREE | DEAD) | generation << STAMP_SHIFT;
        self.dirty.push(index);
        self.changed += 1;
    }

    fn saved_bytes(&mut self) -> &mut Vec<u8> {
        &mut self.rare.get_or_insert_default().cut.get_or_insert_default().saved_bytes
    }

    fn resize_slots(&mut self, length: usize) {
        let old = std::mem::replace(&mut self.slots, vec![0; length]);
        old.into_iter().filter(|slot| *slot != 0).for_each(|slot| self.place(slot));
    }

    #[inline]
    fn place(&mut self, slot: u64) {
        let mask = self.slots.len() - 1;
        let mut at = (slot >> 32) as usize & mask;
        while self.slots[at & mask] != 0 {
            at += 1;
        }
        self.slots[at & mask] = slot;
    }

    /// Takes an entry out of the slots, and moves back what was pushed on by it.
    fn remove_slot(&mut self, index: u32) {
        let mask = self.slots.len() - 1;
        let tag = self.entries[index as usize].tag;
        let slot = u64::from(tag) << 32 | u64::from(index + 1);
        let mut hole = tag as usize & mask;
        while self.slots[hole] != slot {
            hole = (hole + 1) & mask;
        }
        let mut next = hole;
        loop {
            next = (next + 1) & mask;
            let slot = self.slots[next];
            if slot == 0 {
                break;
            }
            let home = (slot >> 32) as usize & mask;
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(hole) & mask {
                self.slots[hole] = slot;
                hole = next;
            }
        }
        self.slots[hole] = 0;
    }

    /// Makes an entry that is in no slot usable again. It keeps its stamp.
    fn free(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        let long = (entry.meta & LENGTH == LONG).then_some(entry.k1 as usize);
        entry.meta = entry.meta & !(LENGTH | DEAD | NEW) | FREE;
        entry.value = V::default();
        let rare = self.rare.get_or_insert_default();
        rare.free.push(index);
        if let Some(length) = long {
            rare.long_garbage += length;
            if rare.long_garbage > 4096 && rare.long_garbage * 2 > rare.long_keys.len() {
                let mut packed = Vec::with_capacity(rare.long_keys.len() - rare.long_garbage);
                for entry in &mut self.entries {
                    if entry.meta & LENGTH == LONG {
                        let at = packed.len() as u64;
                        packed.extend_from_slice(&rare.long_keys[entry.k0 as usize..][..entry.k1 as usize]);
                        entry.k0 = at;
                    }
                }
                rare.long_keys = packed;
                rare.long_garbage = 0;
            }
        }
    }

    /// Gives the key of an entry to `read`.
    #[inline]
    pub(crate) fn with_key<R>(&self, index: u32, read: impl FnOnce(&[u8]) -> R) -> R {
        let entry = &self.entries[index as usize];
        let length = entry.meta & LENGTH;
        if length == LONG {
            return read(self.long_key(entry));
        }
        let mut bytes = [0; INLINE_MAX];
        bytes[..8].copy_from_slice(&entry.k0.to_le_bytes());
        bytes[8..].copy_from_slice(&entry.k1.to_le_bytes());
        read(&bytes[..length as usize])
    }

    /// The value of an entry.
    pub(crate) fn value(&self, index: u32) -> &V {
        &self.entries[index as usize].value
    }

    /// The first eight bytes of an entry's key as a number that orders as they do.
    #[inline]
    pub(crate) fn prefix(&self, index: u32) -> u64 {
        let entry = &self.entries[index as usize];
        if entry.meta & LENGTH == LONG {
            return self.long_key(entry).first_chunk().map_or(0, |eight| u64::from_be_bytes(*eight));
        }
        entry.k0.swap_bytes()
    }

    /// The numbers of all entries that are there, in no order that may be shown.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.entries.len() as u32).filter(|index| !self.entries[*index as usize].is(FREE | DEAD))
    }

    /// The numbers of all entries, by hash, then key.
    pub(crate) fn ordered(&self) -> impl Iterator<Item = u32> + use<V> {
        let mut order: Vec<u64> = self.indices().map(|index| self.sort_key(index)).collect();
        self.sort(&mut order, None);
        order.into_iter().map(|place| place as u32)
    }

    fn sort_key(&self, index: u32) -> u64 {
        u64::from(self.entries[index as usize].tag) << 32 | u64::from(index)
    }

    /// Sorts by tag, and where tags are equal, which is rare, by key.
    fn sort(&self, order: &mut [u64], cut: Option<&Cut>) {
        if order.len() < RADIX_MIN {
            order.sort_unstable();
        } else {
            radsort::sort_by_key(order, |place| (place >> 32) as u32);
        }
        let mut at = 0;
        while let Some(next) = order.get(at + 1) {
            if order[at] >> 32 != next >> 32 {
                at += 1;
                continue;
            }
            let run = order[at..].iter().take_while(|place| *place >> 32 == order[at] >> 32).count();
            order[at..at + run].sort_by_cached_key(|place| self.key_at_cut(*place as u32, cut));
            at += run;
        }
    }

    /// The key that an entry had at the cut.
    fn key_at_cut(&self, index: u32, cut: Option<&Cut>) -> Vec<u8> {
        if let Some(cut) = cut
            && let Some(saved) = cut.saved.get(&index)
        {
            return super::chunk::key_of_item(&cut.saved_bytes[saved.start..saved.end]).to_vec();
        }
        self.with_key(index, <[u8]>::to_vec)
    }

    #[inline]
    fn encode(&self, index: u32, to: &mut Vec<u8>) {
        self.with_key(index, |key| put_bytes(to, |to| to.extend_from_slice(key)));
        put_bytes(to, |to| self.value(index).encode(to));
    }

    /// Takes a cut: what has changed so far, or everything, is what [`write`](Self::write) will write.
    /// The next generation begins with it. `base`: everything.
    pub(crate) fn begin_cut(&mut self, base: bool) {
        let touched = std::mem::take(&mut self.dirty);
        self.changed = 0;
        if touched.is_empty() && (!base || self.live == 0) {
            return;
        }
        self.stored = true;
        self.rare.get_or_insert_default().cut = Some(Cut { base, touched, ..Cut::default() });
    }

    /// Takes a cut of which nothing is to be written: nothing has changed, or nothing is left.
    pub(crate) fn skip_cut(&mut self, generation: Generation) {
        let touched = std::mem::take(&mut self.dirty);
        self.changed = 0;
        self.bury(&touched, generation);
    }

    /// Whether something of the cut is still to be written.
    pub(crate) fn has_cut(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.cut.is_some())
    }

    /// Gives up an open cut: the next one will be a base.
    pub(crate) fn abandon(&mut self, generation: Generation) {
        if let Some(cut) = self.rare.as_mut().and_then(|rare| rare.cut.take()) {
            self.bury(&cut.touched, generation);
        }
    }

    /// What was removed before a cut that has been dealt with is of no use any more.
    fn bury(&mut self, touched: &[u32], generation: Generation) {
        for index in touched {
            let entry = &self.entries[*index as usize];
            if entry.is(DEAD) && entry.stamp() != generation {
                self.free(*index);
            }
        }
    }

    /// Marks all entries anew, when generations have run out. To be called between two cuts, as part of the second.
    pub(crate) fn renumber(&mut self, from: Generation, to: Generation) {
        for entry in &mut self.entries {
            let stamp = if entry.stamp() == from { to } else { 0 };
            entry.meta = entry.meta & ((1 << STAMP_SHIFT) - 1) | stamp << STAMP_SHIFT;
        }
    }

    /// Writes what is left of the cut, until the host asks to stop. True: all of it.
    pub(crate) fn write(
        &mut self,
        generation: Generation,
        name: &str,
        namespace: i64,
        to: &mut ChunkWriter<'_>,
    ) -> bool {
        let Some(mut cut) = self.rare.as_mut().and_then(|rare| rare.cut.take()) else { return true };
        let mut order = match cut.order.take() {
            Some(order) => order,
            None => self.order(&cut, generation),
        };
        let done = self.write_order(&mut order, &cut, generation, name, namespace, to);
        if done {
            self.bury(&cut.touched, generation);
        } else {
            cut.order = Some(order);
            self.rare.get_or_insert_default().cut = Some(cut);
        }
        done
    }

    /// What the cut consists of.
    fn order(&self, cut: &Cut, generation: Generation) -> Order {
        let mut order = Order { gone: Vec::new(), live: Vec::new(), next: 0 };
        if cut.base {
            // The slots say it without a look at the entries, which take far more memory.
            let mut is_dirty = vec![false; self.entries.len()];
            self.dirty.iter().for_each(|index| is_dirty[*index as usize] = true);
            let places = self.slots.iter().filter(|slot| **slot != 0).map(|slot| slot - 1);
            order.live.extend(places.filter(|place| !is_dirty[*place as u32 as usize]));
        } else {
            for index in &cut.touched {
                let entry = &self.entries[*index as usize];
                // Of this generation: either set aside, or one that came after the cut. Free: it came and went before.
                if entry.stamp() == generation || entry.is(FREE) {
                    continue;
                }
                if entry.is(DEAD) { &mut order.gone } else { &mut order.live }.push(self.sort_key(*index));
            }
        }
        order.live.extend(cut.saved.iter().map(|(index, saved)| u64::from(saved.tag) << 32 | u64::from(*index)));
        self.sort(&mut order.gone, None);
        self.sort(&mut order.live, Some(cut));
        order
    }

    fn write_order(
        &self,
        order: &mut Order,
        cut: &Cut,
        generation: Generation,
        name: &str,
        namespace: i64,
        to: &mut ChunkWriter<'_>,
    ) -> bool {
        let gone = order.gone.len();
        let all = gone + order.live.len();
        if order.next < gone {
            to.section(Operation::Delete, name, namespace, 0);
        }
        while order.next < gone {
            let index = order.gone[order.next] as u32;
            order.next += 1;
            let go_on = to.item(|to| self.with_key(index, |key| put_bytes(to, |to| to.extend_from_slice(key))));
            if !go_on && order.next < all {
                return false;
            }
        }
        if order.next < all {
            to.section(Operation::Put, name, namespace, if cut.base { order.live.len() } else { 0 });
        }
        while order.next < all {
            let index = order.live[order.next - gone] as u32;
            order.next += 1;
            let go_on = to.item(|to| {
                if self.entries[index as usize].stamp() == generation {
                    // It changed after the cut, so its version of the cut was set aside.
                    let saved = &cut.saved[&index];
                    to.extend_from_slice(&cut.saved_bytes[saved.start..saved.end]);
                } else {
                    self.encode(index, to);
                }
            });
            if !go_on && order.next < all {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::key::Key;

    fn probe(text: &str) -> (Key<'_>, Probe<'_>) {
        let key = Key::from(text);
        (key, Probe::new(key.hash, key.bytes))
    }

    fn changed(table: &Table<u64>) -> Vec<u64> {
        let Some(cut) = table.rare.as_ref().and_then(|rare| rare.cut.as_ref()) else { return Vec::new() };
        cut.touched.iter().map(|index| *table.value(*index)).collect()
    }

    /// Else an entry that was last changed 16 million snapshots ago would pass for one that has just been.
    #[test]
    fn when_generations_run_out_only_what_has_changed_counts_as_changed() {
        let mut table = Table::<u64>::default();
        for (text, generation) in [("a", 1), ("b", 2), ("c", GENERATION_MAX)] {
            *table.get_or_insert(&probe(text).1, generation) = u64::from(generation);
            if generation != GENERATION_MAX {
                table.begin_cut(false);
                table.abandon(generation + 1);
            }
        }
        table.renumber(GENERATION_MAX, 1);
        table.begin_cut(false);
        assert_eq!(changed(&table), [u64::from(GENERATION_MAX)]);
        table.abandon(2);
        // In generation 2 again: "b", which was changed in the first generation 2, is not taken for changed.
        *table.get_mut(&probe("b").1, 2).expect("it is there") = 7;
        *table.get_mut(&probe("a").1, 2).expect("it is there") = 8;
        assert_eq!(table.changed(), 2);
        table.begin_cut(false);
        assert_eq!(changed(&table), [7, 8]);
    }

    /// Full buckets, wrap-around and removal from the middle of a run: all keys have the same few low bits.
    #[test]
    fn keys_whose_hashes_collide_are_told_apart() {
        let mut table = Table::<u64>::default();
        let keys: Vec<String> = (0..200).map(|n| format!("key {n}")).collect();
        let hash = |n: usize| [7, u64::from(u32::MAX), 6][n % 3];
        let probe = |n: usize| Probe::new(hash(n), keys[n].as_bytes());
        for n in 0..200 {
            *table.get_or_insert(&probe(n), 1) = n as u64;
        }
        for n in (0..200).step_by(2) {
            assert_eq!(table.remove(&probe(n), 1), Some(n as u64));
        }
        for n in 0..200 {
            assert_eq!(table.get(&probe(n)).copied(), (n % 2 == 1).then_some(n as u64), "{n}");
        }
        let order: Vec<u64> = table.ordered().map(|index| *table.value(index)).collect();
        let mut expected: Vec<usize> = (1..200).step_by(2).collect();
        expected.sort_by_key(|n| (hash(*n), keys[*n].clone()));
        assert_eq!(order, expected.iter().map(|n| *n as u64).collect::<Vec<_>>());
    }

    /// Few and many, which are sorted in two ways: what was there at the cut goes by hash, then key, whatever came, went and changed since.
    #[test]
    fn a_base_is_the_state_of_the_cut_in_order() {
        for count in [RADIX_MIN / 2, RADIX_MIN * 3] {
            let mut table = Table::<u64>::default();
            let keys: Vec<String> = (0..count * 2).map(|n| format!("key {n}")).collect();
            let hash = |n: usize| crate::batch::key_hash(keys[n / 3 * 3].as_bytes());
            let probe = |n: usize| Probe::new(hash(n), keys[n].as_bytes());
            for n in 0..count {
                *table.get_or_insert(&probe(n), 1) = n as u64;
            }
            table.begin_cut(true);
            for n in 0..count * 2 {
                match n % 4 {
                    0 => *table.get_or_insert(&probe(n), 2) += 1,
                    1 => drop(table.remove(&probe(n), 2)),
                    _ => {}
                }
            }
            let cut = table.rare.as_mut().and_then(|rare| rare.cut.take()).expect("it is open");
            let order = table.order(&cut, 2);
            assert!(order.gone.is_empty());
            let found: Vec<Vec<u8>> =
                order.live.iter().map(|place| table.key_at_cut(*place as u32, Some(&cut))).collect();
            let mut expected: Vec<usize> = (0..count).collect();
            expected.sort_by_key(|n| (hash(*n) as u32, &keys[*n]));
            let expected: Vec<&[u8]> = expected.iter().map(|n| keys[*n].as_bytes()).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn memory_of_removed_keys_is_used_again() {
        let mut table = Table::<u64>::default();
        for n in 0..10_000_u32 {
            let text = format!("a key of more than sixteen bytes, number {n}");
            let (_, probe) = probe(&text);
            *table.get_or_insert(&probe, 1) = 1;
            table.remove(&probe, 1);
        }
        assert_eq!(table.entries.len(), 1);
        assert!(table.rare.as_ref().is_some_and(|rare| rare.long_keys.len() < 20_000));
        assert_eq!((table.len(), table.changed()), (0, 0));
    }
}
