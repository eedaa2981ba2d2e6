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
    let mut guesses = [0; BLOCK];
    for (block, hashes) in hashes.chunks(BLOCK).enumerate() {
        guess(tables, groups, hashes, &mut guesses);
        apply(tables, groups, generation, block * BLOCK, hashes, &guesses, &probe, each);
    }
}

/// Guesses an entry for each hash, and sees that slots and entries are near when they are looked at.
#[inline(never)]
fn guess<V: State>(tables: &[Table<V>], groups: &Groups, hashes: &[u64], guesses: &mut [u32; BLOCK]) {
    let Some(any) = tables.first() else { return };
    let mut chosen = [any; BLOCK];
    let mut words = [&0; BLOCK];
    let mut homes = [0; BLOCK];
    for ((hash, table), word) in hashes.iter().zip(&mut chosen).zip(&mut words) {
        match tables.get(groups.place(*hash)) {
            Some(found) => (*table, *word) = (found, found.home(*hash)),
            None => groups.not_ours(*hash),
        }
    }
    load(&words, &mut homes);
    for ((((hash, table), home), word), guess) in hashes.iter().zip(chosen).zip(&homes).zip(&mut words).zip(guesses) {
        *guess = table.guess(*home, *hash);
        *word = table.first_word(*guess);
    }
    load(&words, &mut homes);
}

/// As many loads as a processor can have on their way, and nothing else.
#[inline(never)]
fn load(from: &[&u64; BLOCK], to: &mut [u64; BLOCK]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = **from;
    }
}

/// Gives `each` the value of each key.
#[allow(clippy::too_many_arguments, reason = "one loop, made for each kind of key")]
#[inline(never)]
fn apply<'k, V: State>(
    tables: &mut [Table<V>],
    groups: &Groups,
    generation: Generation,
    first: usize,
    hashes: &[u64],
    guesses: &[u32; BLOCK],
    probe: &impl Fn(usize, u64) -> Option<Probe<'k>>,
    each: &mut impl FnMut(usize, &mut V),
) {
    for ((row, hash), guess) in (first..).zip(hashes).zip(guesses) {
        let Some(probe) = probe(row, *hash) else { continue };
        let table = &mut tables[groups.place(*hash)];
        let value = match table.at(*guess, &probe, generation) {
            Some(index) => table.value_mut(index),
            None => table.get_or_insert(&probe, generation),
        };
        each(row, value);
    }
}
