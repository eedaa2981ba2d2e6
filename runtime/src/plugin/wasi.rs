//! What a component finds where it imports WASI: enough to start, and nothing of the world outside unless it was granted.
//!
//! Toolchains whose runtime wants WASI 0.2 (`wasm32-wasip2`, for one) leave imports in a component that its operator
//! may never use. Such a component is taken as it is. Without grants the same calls lead to the same (I12): clocks tell
//! the time at which the call began, the environment is empty but for what was granted, randomness comes from the seed
//! of the subtask, and what is printed goes to the log ([`stdio`]). Everything else traps, and the trap names the
//! function.
//!
//! Random bytes are drawn by number: draw `n` of a subtask is the same in every run, and how many were drawn in data calls is part of
//! the cut. `open`, `restore` and `snapshot` draw from streams of their own, each from its first number on: `open` is called anew
//! after every restart, and what it draws must neither differ nor shift what follows. The seed of hash maps is one
//! value for ever: a map that is made anew after a restart has to have the order that it had.
//!
//! With the grant `clock` the clocks are real, with `random` the randomness is. `timers.now` stays the time of the call.

pub(super) mod stdio;

use std::collections::BTreeMap;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentType, Lift, Linker, Lower};

use self::stdio::Unfinished;
use super::HostCut;
use super::host::{Call, HostState};
use super::limits::Breach;
use crate::clock::Clock;
use crate::model::Timestamp;
use crate::plan::Grants;

/// The most random bytes of one call.
const RANDOM_BYTES_MAX: u64 = 1 << 20;

/// `wasi:clocks/wall-clock.datetime`.
#[derive(Clone, Copy, Debug, ComponentType, Lift, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

impl Datetime {
    fn of(micros: u64) -> Self {
        let nanoseconds = u32::try_from(micros % 1_000_000 * 1_000).unwrap_or_default();
        Self { seconds: micros / 1_000_000, nanoseconds }
    }
}

/// What an instance sees of the world outside.
#[derive(Debug)]
pub(super) struct Outside {
    seed: u64,
    pub(super) grants: Grants,
    /// Variables that were granted and have a value.
    environment: Vec<(String, String)>,
    clock: Option<Clock>,
    /// What it asks for is done, and not only for trial.
    pub(super) is_live: bool,
    /// What a cut has to hold.
    pub(super) cut: HostCut,
    /// What was printed and has no line end yet.
    pub(super) unfinished: Unfinished,
    /// The stream from which the running call draws, and the next number of one that begins with each call.
    stream: Stream,
    next: u64,
}

/// From what random bytes are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stream {
    /// Its numbers go on from call to call.
    #[default]
    Data,
    /// It begins anew with each call.
    Call(&'static str),
}

impl Default for Outside {
    /// Of an instance that is only asked what it is.
    fn default() -> Self {
        let (cut, stream) = (HostCut::default(), Stream::default());
        let unfinished = Unfinished::default();
        let (grants, environment) = (Grants::default(), Vec::new());
        Self { seed: 0, grants, environment, clock: None, is_live: false, cut, unfinished, stream, next: 0 }
    }
}

impl Outside {
    /// What an instance with this seed sees with these grants; `clock` is the real one.
    pub(super) fn new(seed: u64, grants: Grants, clock: Clock) -> Self {
        Self { seed, grants, clock: Some(clock), ..Self::default() }
    }

    /// The same with those of the values that were granted.
    pub(super) fn with_environment(mut self, values: &BTreeMap<String, String>) -> Self {
        let granted = self.grants.environment.iter();
        self.environment = granted.filter_map(|name| Some((name.clone(), values.get(name)?.clone()))).collect();
        self
    }

    /// A call begins.
    pub(super) fn begin(&mut self, call: Call) {
        self.stream = match call {
            Call::Describe | Call::Open | Call::Restore | Call::Snapshot => Stream::Call(call.name()),
            Call::Process | Call::Advance | Call::Wake | Call::Finish | Call::Resume => Stream::Data,
        };
        self.next = 0;
    }

    /// The real time, if it was granted, in microseconds since the Unix epoch.
    fn real_now(&self) -> Option<Timestamp> {
        self.clock.as_ref().filter(|_| self.grants.clock).map(Clock::now)
    }

    /// The real monotonic time, if it was granted, in nanoseconds.
    fn real_elapsed(&self) -> Option<u64> {
        let clock = self.clock.as_ref().filter(|_| self.grants.clock)?;
        Some(u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Fills `bytes` from the next draw.
    fn draw(&mut self, bytes: &mut [u8]) -> Result<(), Breach> {
        if self.grants.random {
            return getrandom::fill(bytes)
                .map_err(|error| Breach::Contract(format!("the system gives no random bytes: {error}")));
        }
        let (name, number) = match self.stream {
            Stream::Data => ("data", &mut self.cut.draws),
            Stream::Call(name) => (name, &mut self.next),
        };
        fill(self.seed, name, *number, bytes);
        *number += 1;
        Ok(())
    }
}

/// Draw `number` of a stream.
fn fill(seed: u64, stream: &str, number: u64, bytes: &mut [u8]) {
    let mut hasher = blake3::Hasher::new_derive_key("weir 2026 random bytes of a subtask");
    hasher.update(&seed.to_le_bytes()).update(&number.to_le_bytes()).update(stream.as_bytes());
    hasher.finalize_xof().fill(bytes);
}

/// A linker for a component that imports WASI; none for one that does not.
pub(super) fn link(linker: &Linker<HostState>, component: &Component) -> wasmtime::Result<Option<Linker<HostState>>> {
    let imports = component.component_type();
    let engine = component.engine();
    // Each with the resources in it, its own and those that it uses of others; none for what is no interface.
    let wasi: Vec<(String, Option<Vec<String>>)> = imports
        .imports(engine)
        .filter(|(name, _)| name.starts_with("wasi:"))
        .map(|(name, item)| {
            let resources = match item.ty {
                ComponentItem::ComponentInstance(instance) => {
                    let exports = instance.exports(engine);
                    let resources = exports.filter(|(_, item)| matches!(item.ty, ComponentItem::Resource(_)));
                    Some(resources.map(|(name, _)| name.to_owned()).collect())
                }
                _ => None,
            };
            (name.to_owned(), resources)
        })
        .collect();
    if wasi.is_empty() {
        return Ok(None);
    }
    let mut linker = linker.clone();
    linker.define_unknown_imports_as_traps(component)?;
    linker.allow_shadowing(true);
    for (name, resources) in wasi.iter().filter_map(|(name, resources)| Some((name, resources.as_ref()?))) {
        for resource in resources {
            stdio::define(&mut linker.instance(name)?, resource)?;
        }
        let interface = name.split('@').next().unwrap_or_default();
        match interface {
            "wasi:random/insecure-seed" => {
                linker.instance(name)?.func_wrap("insecure-seed", |store, ()| {
                    let outside = &store.data().outside;
                    let mut bytes = [0; 16];
                    match outside.grants.random {
                        true => getrandom::fill(&mut bytes)
                            .map_err(|error| Breach::Contract(format!("the system gives no random bytes: {error}")))?,
                        false => fill(outside.seed, "seed of hash maps", 0, &mut bytes),
                    }
                    let seed = u128::from_le_bytes(bytes);
                    Ok(((seed as u64, (seed >> 64) as u64),))
                })?;
            }
            "wasi:random/random" => random(&mut linker, name, "get-random-bytes", "get-random-u64")?,
            "wasi:random/insecure" => {
                random(&mut linker, name, "get-insecure-random-bytes", "get-insecure-random-u64")?
            }
            "wasi:clocks/wall-clock" => {
                let mut clock = linker.instance(name)?;
                clock.func_wrap("now", |mut store, ()| {
                    let state: &mut HostState = store.data_mut();
                    let now = state.outside.real_now().unwrap_or_else(|| state.look());
                    Ok((Datetime::of(now.max(0).cast_unsigned()),))
                })?;
                clock.func_wrap("resolution", |_, ()| Ok((Datetime::of(1),)))?;
            }
            "wasi:clocks/monotonic-clock" => {
                let mut clock = linker.instance(name)?;
                clock.func_wrap("now", |mut store, ()| {
                    let state: &mut HostState = store.data_mut();
                    let virtual_now = |state: &mut HostState| state.look().max(0).cast_unsigned().saturating_mul(1_000);
                    Ok((state.outside.real_elapsed().unwrap_or_else(|| virtual_now(state)),))
                })?;
                clock.func_wrap("resolution", |_, ()| Ok((1_000_u64,)))?;
            }
            "wasi:cli/environment" => {
                let mut environment = linker.instance(name)?;
                environment.func_wrap("get-environment", |store, ()| {
                    let state: &HostState = store.data();
                    Ok((state.outside.environment.clone(),))
                })?;
                environment.func_wrap("get-arguments", |_, ()| Ok((Vec::<String>::new(),)))?;
                environment.func_wrap("initial-cwd", |_, ()| Ok((None::<String>,)))?;
            }
            interface => stdio::link(&mut linker, name, interface)?,
        }
    }
    Ok(Some(linker))
}

/// The two functions of an interface that gives random bytes.
fn random(linker: &mut Linker<HostState>, name: &str, bytes: &str, number: &str) -> wasmtime::Result<()> {
    let mut random = linker.instance(name)?;
    random.func_wrap(bytes, |mut store, (length,): (u64,)| {
        if length > RANDOM_BYTES_MAX {
            let what = format!("{length} random bytes were asked for in one call; the most is {RANDOM_BYTES_MAX}");
            return Err(Breach::Contract(what).into());
        }
        let mut drawn = vec![0; usize::try_from(length).unwrap_or_default()];
        store.data_mut().outside.draw(&mut drawn)?;
        Ok((drawn,))
    })?;
    random.func_wrap(number, |mut store, ()| {
        let mut drawn = [0; 8];
        store.data_mut().outside.draw(&mut drawn)?;
        Ok((u64::from_le_bytes(drawn),))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::component::{componentize, tests as made};
    use crate::plugin::{HostOptions, PluginError, PluginHost};

    /// A component whose every function is `unreachable` and that imports this.
    fn importing(import: &str, package: &str) -> Vec<u8> {
        let mut files = made::contract_with("import timers;", &format!("import timers; import {import};"));
        let worlds = files.iter_mut().find(|(name, _)| name == "worlds.wit").unwrap();
        worlds.1.push_str(package);
        componentize(&made::module(&files, "simple-operator", true), None).unwrap()
    }

    #[tokio::test]
    async fn a_component_that_imports_wasi_is_linked_and_only_then_called() {
        let host = PluginHost::new(HostOptions::default()).unwrap();
        for (import, package) in [
            (
                "wasi:random/insecure-seed@0.2.6",
                "\npackage wasi:random@0.2.6 { interface insecure-seed { insecure-seed: func() -> tuple<u64, u64>; } }\n",
            ),
            (
                "wasi:clocks/wall-clock@0.2.3",
                "\npackage wasi:clocks@0.2.3 { interface wall-clock { record datetime { seconds: u64, nanoseconds: u32 } \
                 now: func() -> datetime; } }\n",
            ),
            (
                "wasi:sockets/network@0.2.6",
                "\npackage wasi:sockets@0.2.6 { interface network { resource network; open: func() -> network; } }\n",
            ),
        ] {
            let error = host.load(&importing(import, package)).await.unwrap_err();
            assert!(matches!(error, PluginError::Describe(_)), "{import}: {error:?}");
        }
    }

    /// I11, DESIGN §6: `open` always sees the same, and draws of data calls go on from the cut.
    #[test]
    fn draws_go_on_from_a_cut_and_calls_that_are_made_anew_see_the_same_again() {
        let new = || Outside::new(7, Grants::default(), Clock::manual(0));
        let draw = |outside: &mut Outside, call: Call, times: usize| {
            outside.begin(call);
            let mut drawn = vec![[0; 8]; times];
            drawn.iter_mut().for_each(|bytes| outside.draw(bytes).unwrap());
            drawn
        };
        let mut first = new();
        let opened = draw(&mut first, Call::Open, 3);
        let data = draw(&mut first, Call::Process, 2);
        let saved = draw(&mut first, Call::Snapshot, 2);
        let cut = first.cut;
        assert_eq!(cut.draws, 2);
        let after = draw(&mut first, Call::Advance, 4);

        let mut second = new();
        assert_eq!(draw(&mut second, Call::Open, 3), opened);
        second.cut = cut;
        let restored = draw(&mut second, Call::Restore, 5);
        assert_eq!(draw(&mut second, Call::Process, 4), after);
        assert_eq!(draw(&mut second, Call::Snapshot, 2), saved);

        let mut all: Vec<_> = [opened, data, saved, after, restored].concat();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "no two draws are the same");
        let other = Outside::new(8, Grants::default(), Clock::manual(0));
        assert_ne!(draw(&mut { other }, Call::Open, 1), draw(&mut new(), Call::Open, 1));
    }

    #[test]
    fn only_variables_that_are_granted_and_have_a_value_are_seen() {
        let mut grants = Grants::default();
        for word in ["env:B", "env:A", "env:UNSET"] {
            grants.give(word).unwrap();
        }
        let values = [("A", "1"), ("B", "2"), ("SECRET", "3")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let outside = Outside::new(7, grants, Clock::manual(0)).with_environment(&values.clone().into());
        assert_eq!(outside.environment, [values[1].clone(), values[0].clone()]);
        let nothing = Outside::new(7, Grants::default(), Clock::manual(0)).with_environment(&values.into());
        assert!(nothing.environment.is_empty());
    }

    #[test]
    fn what_is_granted_is_real() {
        let clock = Clock::manual(5_000);
        let granted = Grants { clock: true, random: true, ..Grants::default() };
        let mut outside = Outside::new(7, granted, clock.clone());
        assert_eq!((outside.real_now(), outside.real_elapsed()), (Some(5_000), Some(5_000_000)));
        let (mut one, mut two) = ([0; 16], [0; 16]);
        outside.begin(Call::Open);
        outside.draw(&mut one).unwrap();
        outside.begin(Call::Open);
        outside.draw(&mut two).unwrap();
        assert_ne!(one, two);
        assert_eq!(outside.cut, HostCut::default());
        let plain = Outside::new(7, Grants::default(), clock);
        assert_eq!((plain.real_now(), plain.real_elapsed()), (None, None));
    }
}
