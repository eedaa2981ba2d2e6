//! Timers in event time: [`EventTimers`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::chunk::{ChunkWriter, Operation, Section, corrupt, put_bytes};
use super::groups::Groups;
use super::key::Key;
use super::segments::{Part, Plan, Weight, check_group, sealed::Sealed};
use crate::batch::{Timestamp, key_hash};
use crate::operator::{Failure, TaskInfo};

/// A timer that is due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    /// When.
    pub time: Timestamp,
    /// Of which key.
    pub key: Box<[u8]>,
}

/// Timers in event time, each a time and a key. They come due in [`crate::Operator::advance`], ordered by time, then by
/// key, and are part of the state.
///
/// A timer that is set twice for the same time and key is one timer.
pub struct EventTimers {
    name: String,
    groups: Groups,
    sets: Vec<Set>,
}

#[derive(Default)]
struct Set {
    timers: BTreeSet<Timer>,
    /// What differs from what is stored: set (true) or gone.
    changes: BTreeMap<Timer, bool>,
    cut: Option<Cut>,
}

/// What an open snapshot still has to write.
struct Cut {
    base: bool,
    changes: BTreeMap<Timer, bool>,
    /// Of a base, the timers of the cut, set aside when they change for the first time after it.
    timers: Option<BTreeSet<Timer>>,
    /// Made when writing begins: what is gone, then what is set (true), each in order.
    list: Option<std::vec::IntoIter<(Timer, bool)>>,
}

impl fmt::Debug for EventTimers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventTimers").field("name", &self.name).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl EventTimers {
    /// No timers. They are found again in a snapshot by their name, of at most 255 bytes: never change that.
    pub fn new(name: &str, task: &TaskInfo) -> Self {
        let groups = Groups::new(task);
        let sets = (0..groups.len()).map(|_| Set::default()).collect();
        Self { name: name.into(), groups, sets }
    }

    /// How many are set.
    pub fn len(&self) -> usize {
        self.sets.iter().map(|set| set.timers.len()).sum()
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.sets.iter().all(|set| set.timers.is_empty())
    }

    /// Sets a timer. False if it was set already.
    ///
    /// # Panics
    ///
    /// If the key is of a group that this subtask does not have.
    pub fn set<'k>(&mut self, time: Timestamp, key: impl Into<Key<'k>>) -> bool {
        let key = key.into();
        self.group(key.hash).insert(Timer { time, key: key.bytes.into() })
    }

    /// Takes a timer back. False if it was not set.
    ///
    /// # Panics
    ///
    /// As [`set`](Self::set).
    pub fn cancel<'k>(&mut self, time: Timestamp, key: impl Into<Key<'k>>) -> bool {
        let key = key.into();
        self.group(key.hash).remove(Timer { time, key: key.bytes.into() })
    }

    /// The time of the earliest timer.
    pub fn earliest(&self) -> Option<Timestamp> {
        self.sets.iter().filter_map(|set| set.timers.first()).map(|timer| timer.time).min()
    }

    /// Takes all timers that are due at a watermark, ordered by time, then by key.
    pub fn due(&mut self, watermark: Timestamp) -> Vec<Timer> {
        let mut due = Vec::new();
        for set in &mut self.sets {
            while set.timers.first().is_some_and(|timer| timer.time <= watermark) {
                set.keep_for_cut();
                if let Some(timer) = set.timers.pop_first() {
                    set.note(&timer, false);
                    due.push(timer);
                }
            }
        }
        due.sort_unstable();
        due
    }

    fn group(&mut self, hash: u64) -> &mut Set {
        match self.sets.get_mut(self.groups.place(hash)) {
            Some(set) => set,
            None => self.groups.not_ours(hash),
        }
    }
}

impl Set {
    fn insert(&mut self, timer: Timer) -> bool {
        if self.timers.contains(&timer) {
            return false;
        }
        self.keep_for_cut();
        self.note(&timer, true);
        self.timers.insert(timer)
    }

    fn remove(&mut self, timer: Timer) -> bool {
        if !self.timers.contains(&timer) {
            return false;
        }
        self.keep_for_cut();
        self.timers.remove(&timer);
        self.note(&timer, false);
        true
    }

    /// Notes a change; one that takes back an earlier one leaves nothing.
    fn note(&mut self, timer: &Timer, set: bool) {
        if self.changes.remove(timer).is_none() {
            self.changes.insert(timer.clone(), set);
        }
    }

    fn keep_for_cut(&mut self) {
        if let Some(cut) = &mut self.cut
            && cut.base
            && cut.timers.is_none()
            && cut.list.is_none()
        {
            cut.timers = Some(self.timers.clone());
        }
    }
}

/// As the key of an entry: the time, so that it orders as a number does, and the key.
fn encode(timer: &Timer, to: &mut Vec<u8>) {
    put_bytes(to, |to| {
        to.extend_from_slice(&(timer.time ^ i64::MIN).to_be_bytes());
        to.extend_from_slice(&timer.key);
    });
}

fn decode(bytes: &[u8]) -> Result<Timer, Failure> {
    match bytes.split_first_chunk::<8>() {
        Some((time, key)) => Ok(Timer { time: i64::from_be_bytes(*time) ^ i64::MIN, key: key.into() }),
        None => Err(corrupt("a timer is cut short")),
    }
}

impl Part for EventTimers {
    fn name(&self) -> &str {
        &self.name
    }
}

#[allow(private_interfaces, reason = "sealed")]
impl Sealed for EventTimers {
    fn weight(&self, group: usize) -> Weight {
        let set = &self.sets[group];
        Weight { live: set.timers.len(), changed: set.changes.len() }
    }

    fn begin_cut(&mut self, plans: &[Plan]) {
        for (set, plan) in self.sets.iter_mut().zip(plans) {
            let changes = std::mem::take(&mut set.changes);
            let base = *plan == Plan::Base;
            let changes = if base { BTreeMap::new() } else { changes };
            set.cut = (*plan != Plan::Keep).then_some(Cut { base, changes, timers: None, list: None });
        }
    }

    fn write_group(&mut self, group: usize, to: &mut ChunkWriter<'_>) -> bool {
        let set = &mut self.sets[group];
        let Some(mut cut) = set.cut.take() else { return true };
        let mut list = cut.list.take().unwrap_or_else(|| {
            let mut list: Vec<(Timer, bool)> = match cut.base {
                true => {
                    cut.timers.take().unwrap_or_else(|| set.timers.clone()).into_iter().map(|t| (t, true)).collect()
                }
                false => std::mem::take(&mut cut.changes).into_iter().collect(),
            };
            list.sort_by_key(|(_, set)| *set);
            list.into_iter()
        });
        let mut section = None;
        for (timer, is_set) in list.by_ref() {
            let operation = if is_set { Operation::Put } else { Operation::Delete };
            if section != Some(operation) {
                section = Some(operation);
                to.section(operation, &self.name, 0, 0);
            }
            let go_on = to.item(|to| {
                encode(&timer, to);
                if is_set {
                    put_bytes(to, |_| ());
                }
            });
            if !go_on {
                break;
            }
        }
        if list.len() == 0 {
            return true;
        }
        cut.list = Some(list);
        set.cut = Some(cut);
        false
    }

    fn abandon(&mut self) {
        self.sets.iter_mut().for_each(|set| set.cut = None);
    }

    fn read(&mut self, group: usize, section: &Section<'_>) -> Result<(), Failure> {
        let set = &mut self.sets[group];
        match section.operation {
            Operation::Put => {
                for entry in section.puts() {
                    let timer = decode(entry?.0)?;
                    check_group(&self.groups, group, key_hash(&timer.key))?;
                    set.timers.insert(timer);
                }
            }
            Operation::Delete => {
                for key in section.deletes() {
                    set.timers.remove(&decode(key?)?);
                }
            }
            other => return Err(corrupt(&format!("{:?} holds {other:?}", self.name))),
        }
        Ok(())
    }
}
