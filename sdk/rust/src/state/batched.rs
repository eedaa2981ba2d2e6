//! A whole batch against the tables of all key groups: the fast way through state.
//!
//! Records are taken in blocks, and a block goes through the tables in passes, each of which makes one kind of access to memory and nothing
//! else: to slots, then to entries, then to values. So a processor has many of them on their way at once. A branch that depends on
//! what was loaded would end that, and so would too many instructions for each record: that is why the first accesses decide nothing.

use super::codec::State;
use super::groups::Groups;
use super::key::words;
use super::table::{Generation, Probe, Table};
use crate::batch::{BatchView, key_hash};

/// Records that go through the tables together: what a block touches stays in the nearest caches from pass to pass.
const BLOCK: usize = 256;

/// Memory that is kept from call to call.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    hashes: Vec<u64>,
}

/// Where a record's key may be.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    group: u32,
    /// The number of an entry plus one, or 0.
    entry: u32,
}

/// Gives `each` the value of each record's key, in order; the default where the key was not there. Records without a key are left out.
#[inline]
pub(crate) fn update_batch<V: State>(
    tables: &mut [Table<V>],
    groups: &Groups,
    generation: Generation,
    scratch: &mut Scratch,
    batch: BatchView<'_>,
    mut each: impl FnMut(usize, &mut V),
) {
    let keys = batch.keys();
    let Scratch { hashes } = scratch;
    let hashes: &[u64] = if batch.hashes().is_empty() {
        hashes.clear();
        hashes.extend((0..batch.len()).map(|row| key_hash(keys.get(row).unwrap_or_default())));
        hashes
    } else {
        batch.hashes()
    };
    match keys.fixed_width() {
        Some(8) => {
            let keys = keys.bytes().as_chunks::<8>().0;
            let probe = |row: usize, hash| Some(Probe::inline(hash, u64::from_le_bytes(keys[row]), 0, &keys[row]));
            update(tables, groups, generation, hashes, probe, &mut each);
        }
        Some(16) => {
            let keys = keys.bytes().as_chunks::<16>().0;
            let probe = |row: usize, hash| {
                let (k0, k1) = words(&keys[row]);
                Some(Probe::inline(hash, k0, k1, &keys[row]))
            };
            update(tables, groups, generation, hashes, probe, &mut each);
        }
        _ => {
            let probe = |row, hash| keys.get(row).map(|key| Probe::new(hash, key));
            update(tables, groups, generation, hashes, probe, &mut each);
        }
    }
}

#[inline(always)]
fn update<'k, V: State>(
    tables: &mut [Table<V>],
    groups: &Groups,
    generation: Generation,
    hashes: &[u64],
    probe: impl Fn(usize, u64) -> Option<Probe<'k>>,
    each: &mut impl FnMut(usize, &mut V),
) {
    let mut homes = [0; BLOCK];
    let mut places = [Place::default(); BLOCK];
    for (block, hashes) in hashes.chunks(BLOCK).enumerate() {
        let first = block * BLOCK;
        load_homes(tables, groups, hashes, &mut homes);
        for ((hash, home), place) in hashes.iter().zip(&homes).zip(&mut places) {
            let group = groups.place(*hash);
            *place = Place { group: group as u32, entry: tables[group].guess(*home, *hash) };
        }
        load_entries(tables, &places[..hashes.len()], &mut homes);
        for ((row, hash), place) in (first..).zip(hashes).zip(&places) {
            let Some(probe) = probe(row, *hash) else { continue };
            let table = &mut tables[place.group as usize];
            let value = match table.at(place.entry, &probe, generation) {
                Some(index) => table.value_mut(index),
                None => table.get_or_insert(&probe, generation),
            };
            each(row, value);
        }
    }
}

/// Loads the first slot for each hash.
#[inline(always)]
fn load_homes<V: State>(tables: &[Table<V>], groups: &Groups, hashes: &[u64], homes: &mut [u64; BLOCK]) {
    let mut refs: [&u64; BLOCK] = [&0; BLOCK];
    for (hash, to) in hashes.iter().zip(&mut refs) {
        match tables.get(groups.place(*hash)) {
            Some(table) => *to = table.home(*hash),
            None => groups.not_ours(*hash),
        }
    }
    for (to, from) in homes.iter_mut().zip(refs) {
        *to = *from;
    }
}

/// Loads what is at each place, so that it is near when it is needed.
#[inline(always)]
fn load_entries<V: State>(tables: &[Table<V>], places: &[Place], loaded: &mut [u64; BLOCK]) {
    let mut refs: [&u64; BLOCK] = [&0; BLOCK];
    for (place, to) in places.iter().zip(&mut refs) {
        *to = tables[place.group as usize].first_word(place.entry);
    }
    for (to, from) in loaded.iter_mut().zip(refs) {
        *to = *from;
    }
    std::hint::black_box(loaded);
}
