//! What a component finds where it imports WASI: enough to start, nothing of the world outside.
//!
//! Toolchains whose runtime wants WASI 0.2 (`wasm32-wasip2`, for one) leave imports in a component that its operator may never use. Such a
//! component is taken as it is. Clocks answer with the time at which the call began, the seed of hash maps is always the same, the environment is
//! empty: what the same calls lead to stays the same. Everything else traps, and the trap names the function: files, sockets and
//! randomness are grants, and this version has none to give.

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentType, Lift, Linker, Lower};

use super::host::HostState;

/// Of hash maps. They are to be the same after a restore, so it is nobody's secret.
const SEED: (u64, u64) = (0x7765_6972_0000_0001, 0x7765_6972_0000_0002);

/// `wasi:clocks/wall-clock.datetime`.
#[derive(Clone, Copy, Debug, ComponentType, Lift, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

/// A linker for a component that imports WASI; none for one that does not.
pub(super) fn link(linker: &Linker<HostState>, component: &Component) -> wasmtime::Result<Option<Linker<HostState>>> {
    let imports = component.component_type();
    let wasi: Vec<(String, bool)> = imports
        .imports(component.engine())
        .filter(|(name, _)| name.starts_with("wasi:"))
        .map(|(name, item)| (name.to_owned(), matches!(item.ty, ComponentItem::ComponentInstance(_))))
        .collect();
    if wasi.is_empty() {
        return Ok(None);
    }
    let mut linker = linker.clone();
    linker.define_unknown_imports_as_traps(component)?;
    linker.allow_shadowing(true);
    for (name, _) in wasi.iter().filter(|(_, is_instance)| *is_instance) {
        let interface = name.split('@').next().unwrap_or_default();
        match interface {
            "wasi:random/insecure-seed" => {
                linker.instance(name)?.func_wrap("insecure-seed", |_, ()| Ok((SEED,)))?;
            }
            "wasi:clocks/wall-clock" => {
                linker.instance(name)?.func_wrap("now", |store, ()| {
                    let now = store.data().now.max(0).cast_unsigned();
                    let nanoseconds = u32::try_from(now % 1_000_000 * 1_000).unwrap_or_default();
                    Ok((Datetime { seconds: now / 1_000_000, nanoseconds },))
                })?;
            }
            "wasi:clocks/monotonic-clock" => {
                linker.instance(name)?.func_wrap("now", |store, ()| {
                    Ok((store.data().now.max(0).cast_unsigned().saturating_mul(1_000),))
                })?;
            }
            "wasi:cli/environment" => {
                let mut environment = linker.instance(name)?;
                environment.func_wrap("get-environment", |_, ()| Ok((Vec::<(String, String)>::new(),)))?;
                environment.func_wrap("get-arguments", |_, ()| Ok((Vec::<String>::new(),)))?;
            }
            _ => {}
        }
    }
    Ok(Some(linker))
}

#[cfg(test)]
mod tests {
    use crate::plugin::component::{componentize, tests as made};
    use crate::plugin::{HostOptions, PluginError, PluginHost};

    /// A component whose every function is `unreachable` and that imports this.
    fn importing(import: &str, package: &str) -> Vec<u8> {
        let mut files = made::contract_with("import timers;", &format!("import timers; import {import};"));
        let worlds = files.iter_mut().find(|(name, _)| name == "worlds.wit").unwrap();
        worlds.1.push_str(package);
        componentize(&made::module(&files, "simple-operator", true)).unwrap()
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
}
