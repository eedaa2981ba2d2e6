//! A whole batch against the tables of all key groups: the fast way through state.
//!
//! Two passes: the first looks only at slots and guesses an entry for each record, the second goes to the entries. In neither does a
//! record wait for the memory that the one before it asked for.

use super::codec::State;
use super::groups::Groups;
use super::key::words;
use super::table::{Generation, Probe, Table};
use crate::batch::{BatchView, key_hash};

/// Memory that is kept from call to call.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    guesses: Vec<Guess>,
    hashes: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Guess {
    group: u32,
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
    let hashes = if batch.hashes().is_empty() {
        scratch.hashes.clear();
        scratch.hashes.extend((0..batch.len()).map(|row| key_hash(keys.get(row).unwrap_or_default())));
        &scratch.hashes
    } else {
        batch.hashes()
    };
    scratch.guesses.clear();
    scratch.guesses.extend(hashes.iter().map(|hash| {
        let group = groups.place(*hash);
        match tables.get(group) {
            Some(table) => Guess { group: group as u32, entry: table.guess(*hash) },
            None => groups.not_ours(*hash),
        }
    }));
    let records = hashes.iter().zip(&scratch.guesses).enumerate();
    match keys.fixed_width() {
        Some(8) => {
            let keys = keys.bytes().as_chunks::<8>().0;
            for ((row, (hash, guess)), key) in records.zip(keys) {
                let probe = Probe::inline(*hash, u64::from_le_bytes(*key), 0, key);
                each(row, value(tables, *guess, &probe, generation));
            }
        }
        Some(16) => {
            let keys = keys.bytes().as_chunks::<16>().0;
            for ((row, (hash, guess)), key) in records.zip(keys) {
                let (k0, k1) = words(key);
                let probe = Probe::inline(*hash, k0, k1, key);
                each(row, value(tables, *guess, &probe, generation));
            }
        }
        _ => {
            for (row, (hash, guess)) in records {
                if let Some(key) = keys.get(row) {
                    each(row, value(tables, *guess, &Probe::new(*hash, key), generation));
                }
            }
        }
    }
}

#[inline(always)]
fn value<'t, V: State>(
    tables: &'t mut [Table<V>],
    guess: Guess,
    probe: &Probe<'_>,
    generation: Generation,
) -> &'t mut V {
    let table = &mut tables[guess.group as usize];
    match table.at(guess.entry, probe, generation) {
        Some(index) => table.value_mut(index),
        None => table.get_or_insert(probe, generation),
    }
}
