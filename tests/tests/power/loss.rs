//! What of the things that were not synced a disk keeps: nothing, everything, or what chance decides.

use std::rc::Rc;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::disk::Edit;

/// How much is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Nothing: this is what the processes saw.
    Nothing,
    /// All that was not synced.
    Everything,
    /// Changes of folders survive in order up to some moment, as with one journal for all; content by itself.
    Journal(u64),
    /// In each folder and each file changes survive in order, up to one of them.
    Prefixes(u64),
    /// Each change survives or not, by itself.
    Parts(u64),
}

/// Decides by a seed.
#[derive(Debug)]
pub(crate) struct Chance {
    loss: Loss,
    random: Xoshiro256PlusPlus,
    /// For a journal: the last change that is in it.
    last: u64,
}

impl Chance {
    /// For a disk that has seen so many calls.
    pub(crate) fn new(loss: Loss, clock: u64) -> Self {
        let seed = match loss {
            Loss::Nothing | Loss::Everything => 0,
            Loss::Journal(seed) | Loss::Prefixes(seed) | Loss::Parts(seed) => seed,
        };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        // Most of what is pending is young.
        let back = random.next_u64() % (1 + clock.min(1 << (random.next_u64() % 12)));
        Self { loss, random, last: clock.saturating_sub(back) }
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.random.next_u64() % bound.max(1) as u64) as usize
    }

    /// Which of a folder's changes survive.
    pub(crate) fn changes(&mut self, times: impl ExactSizeIterator<Item = u64>) -> Vec<bool> {
        let len = times.len();
        let times = times.enumerate();
        match self.loss {
            Loss::Nothing => times.map(|_| true).collect(),
            Loss::Everything => times.map(|_| false).collect(),
            Loss::Journal(_) => times.map(|(_, time)| time <= self.last).collect(),
            Loss::Prefixes(_) => {
                let survive = self.below(len + 1);
                times.map(|(index, _)| index < survive).collect()
            }
            Loss::Parts(_) => times.map(|_| self.below(2) == 0).collect(),
        }
    }

    /// What a file's content is.
    pub(crate) fn content(&mut self, durable: &Rc<Vec<u8>>, pending: &[Edit]) -> Rc<Vec<u8>> {
        if pending.is_empty() {
            return Rc::clone(durable);
        }
        let mut content = durable.to_vec();
        match self.loss {
            Loss::Nothing => pending.iter().for_each(|edit| edit.apply(&mut content)),
            Loss::Everything => {}
            Loss::Prefixes(_) => {
                let survive = self.below(pending.len() + 1);
                pending[..survive].iter().for_each(|edit| edit.apply(&mut content));
                if let Some(edit) = pending.get(survive) {
                    self.torn(edit).apply(&mut content);
                }
            }
            Loss::Journal(_) | Loss::Parts(_) => {
                for edit in pending {
                    match self.below(4) {
                        0 => {}
                        1 => self.torn(edit).apply(&mut content),
                        2 => zeros(edit).apply(&mut content),
                        _ => edit.apply(&mut content),
                    }
                }
            }
        }
        Rc::new(content)
    }

    /// The first part of a write.
    fn torn(&mut self, edit: &Edit) -> Edit {
        match edit {
            Edit::Write(at, data) => Edit::Write(*at, data[..self.below(data.len() + 1)].to_vec()),
            Edit::Truncate(len) => Edit::Truncate(*len),
        }
    }
}

/// A write of which the length survived and the bytes did not.
fn zeros(edit: &Edit) -> Edit {
    match edit {
        Edit::Write(at, data) => Edit::Write(*at, vec![0; data.len()]),
        Edit::Truncate(len) => Edit::Truncate(*len),
    }
}
