//! A component of a core module.

use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::contract::{Contract, World};
use super::{ComponentError, valid};

/// The interface of C libraries to a system, and what it is here: `preview1.wat`.
const PREVIEW1: &str = "wasi_snapshot_preview1";
const ADAPTER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preview1.wasm"));
/// What the adapter asks of the host.
const ADAPTER_WIT: &str = "package weir:preview1;\nworld adapter { import weir:plugin/log@0.1.0; }\n";

/// Makes a component of a core module. What is a component already comes back as it is.
///
/// `world` is for a module that does not say by itself which interfaces it implements, as most binding generators have it said.
/// A module that imports `wasi_snapshot_preview1` gets an adapter that imports nothing but `weir:plugin/log`: what it
/// prints is logged, its clock and random bytes are the same in every run, and it has no files.
///
/// The result is valid WebAssembly; whether it fulfils the contract says [`validate`](super::validate).
///
/// # Errors
///
/// [`ComponentError::NotWasm`], [`ComponentError::NoMetadata`] and [`ComponentError::Encode`].
pub fn componentize(module: &[u8], world: Option<World>) -> Result<Vec<u8>, ComponentError> {
    if Parser::is_component(module) {
        valid(module)?;
        return Ok(module.to_vec());
    }
    if !Parser::is_core_wasm(module) {
        return Err(ComponentError::NotWasm { what: "it does not begin with the magic bytes".to_owned() });
    }
    valid(module)?;
    let facts = Facts::of(module);
    let described;
    let module = match (facts.has_metadata, world) {
        (true, _) => module,
        (false, Some(world)) => {
            described = describe(module, Contract::read().into_resolve(), &world.to_string())?;
            &described
        }
        (false, None) => return Err(ComponentError::NoMetadata),
    };
    let encoded = ComponentEncoder::default().validate(true).module(module).and_then(|encoder| {
        let mut encoder = match facts.needs_preview1 {
            true => encoder.adapter(PREVIEW1, &adapter()?)?,
            false => encoder,
        };
        encoder.encode()
    });
    encoded.map_err(|e| ComponentError::Encode(e.into()))
}

/// A component that does nothing, to measure beside one that does something.
///
/// # Errors
///
/// None: a test makes it.
pub fn empty_operator() -> Result<Vec<u8>, ComponentError> {
    componentize(include_bytes!(concat!(env!("OUT_DIR"), "/empty.wasm")), Some(World::SimpleOperator))
}

/// What matters of a core module.
#[derive(Default)]
struct Facts {
    /// A binding generator left the description of a world in a custom section.
    has_metadata: bool,
    needs_preview1: bool,
}

impl Facts {
    fn of(module: &[u8]) -> Self {
        let mut facts = Self::default();
        for payload in Parser::new(0).parse_all(module).flatten() {
            match payload {
                Payload::CustomSection(section) => facts.has_metadata |= section.name().starts_with("component-type"),
                Payload::ImportSection(imports) => {
                    let mut imports = imports.into_imports().flatten();
                    facts.needs_preview1 |= imports.any(|import| import.module == PREVIEW1);
                }
                _ => {}
            }
        }
        facts
    }
}

/// A module with the description of a world in it.
fn describe(module: &[u8], resolve: Resolve, world: &str) -> Result<Vec<u8>, ComponentError> {
    let mut module = module.to_vec();
    let id = resolve.worlds.iter().find(|(_, known)| known.name == world).map(|(id, _)| id);
    let id = id.ok_or(ComponentError::NoMetadata)?;
    embed_component_metadata(&mut module, &resolve, id, StringEncoding::UTF8)
        .map_err(|e| ComponentError::Encode(e.into()))?;
    Ok(module)
}

fn adapter() -> Result<Vec<u8>, ComponentError> {
    let mut resolve = Contract::read().into_resolve();
    resolve.push_str("adapter.wit", ADAPTER_WIT).map_err(|e| ComponentError::Encode(e.into()))?;
    describe(ADAPTER, resolve, "adapter")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wasmtime::{Caller, Engine, Extern, Instance, Linker, Memory, MemoryType, Module, Store};

    use super::*;
    use crate::plugin::component::validate;

    #[test]
    fn the_operator_that_does_nothing_fulfils_the_contract() {
        let inspection = validate(&empty_operator().unwrap()).unwrap();
        assert_eq!(inspection.world, Some(World::SimpleOperator));
        assert_eq!(inspection.imports, ["weir:plugin/types@0.1.0"], "it has types, and calls nothing");
    }

    /// The adapter as a core module, with what it has logged.
    struct Adapter {
        store: Store<Vec<(i32, Vec<u8>)>>,
        instance: Instance,
        memory: Memory,
    }

    impl Adapter {
        fn new() -> Self {
            let engine = Engine::default();
            let mut store = Store::new(&engine, Vec::new());
            let memory = Memory::new(&mut store, MemoryType::new(1, None)).unwrap();
            let mut linker = Linker::new(&engine);
            linker.define(&store, "env", "memory", memory).unwrap();
            let log = move |mut caller: Caller<'_, Vec<(i32, Vec<u8>)>>, level: i32, at: i32, length: i32| {
                let bytes = memory.data(&caller)[at as usize..][..length as usize].to_vec();
                caller.data_mut().push((level, bytes));
            };
            linker.func_wrap("weir:plugin/log@0.1.0", "write", log).unwrap();
            let module = Module::new(&engine, ADAPTER).unwrap();
            let instance = linker.instantiate(&mut store, &module).unwrap();
            Self { store, instance, memory }
        }

        /// Writes slices that lie one after the other at 4,096; how many bytes it says were written.
        fn write(&mut self, fd: i32, slices: &[&[u8]]) -> Result<u32, i32> {
            let mut at = 4096;
            for (i, slice) in slices.iter().enumerate() {
                let place = [(at as u32).to_le_bytes(), (slice.len() as u32).to_le_bytes()].concat();
                self.memory.write(&mut self.store, 64 + 8 * i, &place).unwrap();
                self.memory.write(&mut self.store, at, slice).unwrap();
                at += slice.len();
            }
            let write = self.instance.get_typed_func::<(i32, i32, i32, i32), i32>(&mut self.store, "fd_write").unwrap();
            let error = write.call(&mut self.store, (fd, 64, slices.len() as i32, 0)).unwrap();
            if error != 0 {
                return Err(error);
            }
            Ok(u32::from_le_bytes(*self.memory.data(&self.store).first_chunk().unwrap()))
        }

        fn logged(&mut self) -> Vec<(i32, String)> {
            let logged = std::mem::take(self.store.data_mut());
            logged.into_iter().map(|(level, bytes)| (level, String::from_utf8(bytes).unwrap())).collect()
        }
    }

    #[test]
    fn what_is_printed_is_logged_a_message_a_line() {
        let mut adapter = Adapter::new();
        assert_eq!(adapter.write(1, &[b"one\ntwo\n\n", "drei \u{fc}\n".as_bytes(), b"rest"]), Ok(21));
        let expected = ["one", "two", "drei \u{fc}", "rest"].map(|line| (2, line.to_owned()));
        assert_eq!(adapter.logged(), expected);
        assert_eq!(adapter.write(2, &[b"oh"]), Ok(2));
        assert_eq!(adapter.logged(), [(3, "oh".to_owned())]);
        for fd in [-1, 0, 3, i32::MAX] {
            assert_eq!(adapter.write(fd, &[b"nowhere"]), Err(8));
        }
        assert_eq!(adapter.logged(), []);
    }

    proptest! {
        /// The host traps a guest that hands over a string which is none.
        #[test]
        fn only_utf8_is_logged_and_all_of_it(bytes in prop::collection::vec(prop_oneof![
            any::<u8>(),
            prop::sample::select(&[b'\n', b'a', 0x80, 0xbf, 0xc1, 0xc2, 0xe0, 0xa0, 0xed, 0x9f, 0xef, 0xf0, 0x90, 0xf4, 0x8f, 0xf5][..]),
        ], 0..24)) {
            let mut adapter = Adapter::new();
            prop_assert_eq!(adapter.write(1, &[&bytes]), Ok(bytes.len() as u32));
            let chunks = bytes.utf8_chunks().flat_map(|chunk| chunk.valid().split('\n'));
            let expected: Vec<_> = chunks.filter(|line| !line.is_empty()).map(|line| (2, line.to_owned())).collect();
            prop_assert_eq!(adapter.logged(), expected);
        }
    }

    /// So that a C library that links something it never calls can be made a component; those that exist are in `preview1.wat`.
    #[test]
    fn every_function_of_preview1_is_there() {
        let exported = Parser::new(0).parse_all(ADAPTER).flatten().filter_map(|payload| match payload {
            Payload::ExportSection(exports) => Some(exports.into_iter().flatten().count()),
            _ => None,
        });
        assert_eq!(exported.sum::<usize>(), 46);
    }

    #[test]
    fn clock_and_random_bytes_are_the_same_in_every_run() {
        let run = || {
            let mut adapter = Adapter::new();
            let (instance, memory) = (adapter.instance, adapter.memory);
            let store = &mut adapter.store;
            let clock = instance.get_typed_func::<(i32, i64, i32), i32>(&mut *store, "clock_time_get").unwrap();
            let random = instance.get_typed_func::<(i32, i32), i32>(&mut *store, "random_get").unwrap();
            for at in 0..4 {
                assert_eq!(clock.call(&mut *store, (0, 1, at * 8)).unwrap(), 0);
            }
            assert_eq!(random.call(&mut *store, (32, 100)).unwrap(), 0);
            assert!(matches!(instance.get_export(&mut *store, "proc_exit"), Some(Extern::Func(_))));
            memory.data(&*store)[..132].to_vec()
        };
        let (one, two) = (run(), run());
        assert_eq!(one, two);
        let times: Vec<u64> = one[..32].chunks(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap())).collect();
        assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
        assert!(one[32..].iter().collect::<std::collections::BTreeSet<_>>().len() > 50);
    }
}
