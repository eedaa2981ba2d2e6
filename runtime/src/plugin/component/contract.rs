//! The contract of `wit/`, and how a component differs from it.
//!
//! Exports must be there whole: every function of the interface, with the types of the contract, by structure and by the names
//! of fields and cases, since that is what the host's calls are made of. Imports may be fewer than the contract
//! offers, never other. A patch version is not compared: 0.1.x fits 0.1.y (`wit/worlds.wit`, "How this package grows").
//!
//! Comparing walks along the contract's types, which are few: how large a component's types are does not matter.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Function, Handle, InterfaceId, Resolve, SourceMap, Type, TypeDefKind, WorldItem};

/// The files of `wit/`, by name: the contract of this build.
pub fn contract_files() -> [(&'static str, &'static str); 10] {
    [
        ("checkpoint.wit", include_str!("../../../../wit/checkpoint.wit")),
        ("http.wit", include_str!("../../../../wit/http.wit")),
        ("log.wit", include_str!("../../../../wit/log.wit")),
        ("metrics.wit", include_str!("../../../../wit/metrics.wit")),
        ("output.wit", include_str!("../../../../wit/output.wit")),
        ("processor.wit", include_str!("../../../../wit/processor.wit")),
        ("snapshots.wit", include_str!("../../../../wit/snapshots.wit")),
        ("timers.wit", include_str!("../../../../wit/timers.wit")),
        ("types.wit", include_str!("../../../../wit/types.wit")),
        ("worlds.wit", include_str!("../../../../wit/worlds.wit")),
    ]
}

/// Which world of the contract a component exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// `processor` alone: the host takes images of its memory.
    SimpleOperator,
    /// `processor` and `checkpoint`: it writes its state itself.
    StatefulOperator,
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SimpleOperator => "simple-operator",
            Self::StatefulOperator => "stateful-operator",
        })
    }
}

/// How a component relates to the contract.
pub(super) struct Comparison {
    pub(super) world: Option<World>,
    pub(super) imports: Vec<String>,
    pub(super) exports: Vec<String>,
    pub(super) extra_exports: Vec<String>,
    pub(super) problems: Vec<String>,
}

/// The namespace and name of the package.
const PACKAGE: (&str, &str) = ("weir", "plugin");
/// The interface that every operator exports.
const PROCESSOR: &str = "processor";
/// The interface that an operator with state of its own exports.
const CHECKPOINT: &str = "checkpoint";

/// Compares a valid component with the contract.
///
/// # Errors
///
/// What the decoder says about a component whose types it cannot express.
pub(super) fn compare(component: &[u8]) -> Result<Comparison, String> {
    // The decoder asserts what it takes for granted about valid components. Bytes come from outside: a component that it did
    // not think of is refused like any other.
    let decoded = catch_unwind(AssertUnwindSafe(|| decode(component)));
    let (found, world) = match decoded {
        Ok(Ok(DecodedWasm::Component(resolve, world))) => (resolve, world),
        Ok(Ok(DecodedWasm::WitPackage(..))) => return Err("it is a WIT package, not a plugin".to_owned()),
        Ok(Err(e)) => return Err(format!("{e:#}")),
        Err(_) => return Err("its types cannot be decoded".to_owned()),
    };
    let contract = Contract::read();
    let world = &found.worlds[world];
    let mut comparison =
        Comparison { world: None, imports: vec![], exports: vec![], extra_exports: vec![], problems: vec![] };

    for (key, item) in &world.imports {
        let name = found.name_world_key(key);
        match item {
            WorldItem::Interface { id, .. } => {
                comparison.problems.extend(contract.import_problems(&found, *id, &name));
                comparison.imports.push(name);
            }
            WorldItem::Function(_) => {
                comparison.problems.push(format!("imports the function {name}, which no host of this contract offers"));
                comparison.imports.push(name);
            }
            // A type at the top level is only a name for another.
            WorldItem::Type { .. } => {}
        }
    }

    let mut has_processor = false;
    let mut has_checkpoint = false;
    for (key, item) in &world.exports {
        let name = found.name_world_key(key);
        let WorldItem::Interface { id, .. } = item else {
            comparison.extra_exports.push(name);
            continue;
        };
        match contract.interface(&found, *id) {
            Place::Ours(interface @ (PROCESSOR | CHECKPOINT)) => {
                *(if interface == PROCESSOR { &mut has_processor } else { &mut has_checkpoint }) = true;
                comparison.problems.extend(contract.export_problems(&found, *id, interface, &name));
                comparison.exports.push(name);
            }
            Place::OtherVersion => {
                comparison.problems.push(format!("exports {name}, but this weir serves {}", contract.package));
                comparison.exports.push(name);
            }
            Place::Ours(_) | Place::Elsewhere => comparison.extra_exports.push(name),
        }
    }
    if has_processor {
        comparison.world = Some(if has_checkpoint { World::StatefulOperator } else { World::SimpleOperator });
    } else if comparison.problems.is_empty() || comparison.exports.is_empty() {
        let exports = comparison.extra_exports.join(", ");
        let exports = if exports.is_empty() { "nothing".to_owned() } else { exports };
        comparison
            .problems
            .insert(0, format!("lacks the export {}; it exports {exports}", contract.package_item(PROCESSOR)));
    }
    Ok(comparison)
}

/// Where an interface belongs.
enum Place {
    /// To this version of the contract, under this name.
    Ours(&'static str),
    /// To a version of the contract that this host does not serve.
    OtherVersion,
    /// To another package, or to none.
    Elsewhere,
}

pub(super) struct Contract {
    resolve: Resolve,
    /// As `weir:plugin@0.1.0`.
    package: String,
}

impl Contract {
    pub(super) fn read() -> Self {
        let mut sources = SourceMap::default();
        for (name, text) in contract_files() {
            sources.push_str(name, text);
        }
        let mut resolve = Resolve::default();
        // The text is part of this build, and a test parses it.
        let group = sources.parse().map_err(|(_, e)| e).expect("the contract in wit/ parses");
        let package = resolve.push_group(group).expect("the contract in wit/ resolves");
        let package = resolve.packages[package].name.to_string();
        Self { resolve, package }
    }

    pub(super) fn into_resolve(self) -> Resolve {
        self.resolve
    }

    fn package_item(&self, interface: &str) -> String {
        match self.package.split_once('@') {
            Some((package, version)) => format!("{package}/{interface}@{version}"),
            None => format!("{}/{interface}", self.package),
        }
    }

    fn id(&self, name: &str) -> Option<InterfaceId> {
        self.resolve.interfaces.iter().find(|(_, interface)| interface.name.as_deref() == Some(name)).map(|(id, _)| id)
    }

    /// Names the interface of a component.
    fn interface(&self, found: &Resolve, id: InterfaceId) -> Place {
        let interface = &found.interfaces[id];
        let (Some(name), Some(package)) = (&interface.name, interface.package) else { return Place::Elsewhere };
        let package = &found.packages[package].name;
        if (package.namespace.as_str(), package.name.as_str()) != PACKAGE {
            return Place::Elsewhere;
        }
        if package.version.as_ref().is_none_or(|version| (version.major, version.minor) != (0, 1)) {
            return Place::OtherVersion;
        }
        let known = contract_files().map(|(file, _)| file.trim_end_matches(".wit"));
        known.into_iter().find(|known| known == name).map_or(Place::Elsewhere, Place::Ours)
    }

    fn import_problems(&self, found: &Resolve, id: InterfaceId, name: &str) -> Vec<String> {
        let interface = match self.interface(found, id) {
            Place::Ours(interface) => interface,
            Place::OtherVersion => return vec![format!("imports {name}, but this weir serves {}", self.package)],
            Place::Elsewhere if name.starts_with("wasi:") => return vec![],
            Place::Elsewhere => return vec![format!("imports {name}, which no host of this contract offers")],
        };
        let Some(ours) = self.id(interface) else { return vec![] };
        let ours = &self.resolve.interfaces[ours].functions;
        let mut problems = Vec::new();
        for (function, theirs) in &found.interfaces[id].functions {
            match ours.get(function) {
                None => problems.push(format!("imports {name} with a function {function} that {} lacks", self.package)),
                Some(ours) => problems.extend(self.difference(found, ours, theirs, &format!("the import {name}"))),
            }
        }
        problems
    }

    fn export_problems(&self, found: &Resolve, id: InterfaceId, interface: &str, name: &str) -> Vec<String> {
        let Some(ours) = self.id(interface) else { return vec![] };
        let mut problems = Vec::new();
        for (function, ours) in &self.resolve.interfaces[ours].functions {
            match found.interfaces[id].functions.get(function) {
                None => {
                    problems.push(format!("the export {name} lacks {function}: {}", signature(&self.resolve, ours)));
                }
                Some(theirs) => problems.extend(self.difference(found, ours, theirs, &format!("the export {name}"))),
            }
        }
        problems
    }

    fn difference(&self, found: &Resolve, ours: &Function, theirs: &Function, place: &str) -> Option<String> {
        let same_kind = ours.kind == theirs.kind;
        let same_names = ours.params.iter().map(|p| &p.name).eq(theirs.params.iter().map(|p| &p.name));
        let what = if same_kind && same_names {
            let pairs = ours.params.iter().zip(&theirs.params);
            let difference = pairs
                .map(|(ours, theirs)| same(&self.resolve, &ours.ty, found, &theirs.ty))
                .chain(std::iter::once(same_optional(&self.resolve, ours.result, found, theirs.result)))
                .find_map(Result::err)?;
            format!(" ({difference})")
        } else {
            String::new()
        };
        let (expected, actual) = (signature(&self.resolve, ours), signature(found, theirs));
        let name = &ours.name;
        Some(if expected == actual {
            format!("{place} has another {name}: {expected}{what}")
        } else {
            format!("{place} has {name}: {actual} where {expected} is expected{what}")
        })
    }
}

/// Follows names to what they stand for.
fn resolved<'a>(resolve: &'a Resolve, ty: &Type) -> Result<&'a TypeDefKind, Type> {
    let mut ty = *ty;
    loop {
        match ty {
            Type::Id(id) => match &resolve.types[id].kind {
                TypeDefKind::Type(inner) => ty = *inner,
                kind => return Ok(kind),
            },
            plain => return Err(plain),
        }
    }
}

/// Whether two types are the same by structure and by the names of their parts; else the first difference. Its depth is that
/// of `ours`.
fn same(ours: &Resolve, a: &Type, theirs: &Resolve, b: &Type) -> Result<(), String> {
    let differ = || Err(format!("{} where {} is expected", text(theirs, b), text(ours, a)));
    let (a_kind, b_kind) = match (resolved(ours, a), resolved(theirs, b)) {
        (Err(a), Err(b)) if a == b => return Ok(()),
        (Ok(a), Ok(b)) => (a, b),
        _ => return differ(),
    };
    match (a_kind, b_kind) {
        (TypeDefKind::Record(x), TypeDefKind::Record(y)) => {
            names(text(ours, a), x.fields.iter().map(|f| &*f.name), y.fields.iter().map(|f| &*f.name))?;
            for (x, y) in x.fields.iter().zip(&y.fields) {
                same(ours, &x.ty, theirs, &y.ty).map_err(|e| format!("field {} of {}: {e}", x.name, text(ours, a)))?;
            }
            Ok(())
        }
        (TypeDefKind::Variant(x), TypeDefKind::Variant(y)) => {
            names(text(ours, a), x.cases.iter().map(|c| &*c.name), y.cases.iter().map(|c| &*c.name))?;
            for (x, y) in x.cases.iter().zip(&y.cases) {
                same_optional(ours, x.ty, theirs, y.ty)
                    .map_err(|e| format!("case {} of {}: {e}", x.name, text(ours, a)))?;
            }
            Ok(())
        }
        (TypeDefKind::Enum(x), TypeDefKind::Enum(y)) => {
            names(text(ours, a), x.cases.iter().map(|c| &*c.name), y.cases.iter().map(|c| &*c.name))
        }
        (TypeDefKind::Flags(x), TypeDefKind::Flags(y)) => {
            names(text(ours, a), x.flags.iter().map(|f| &*f.name), y.flags.iter().map(|f| &*f.name))
        }
        (TypeDefKind::Tuple(x), TypeDefKind::Tuple(y)) if x.types.len() == y.types.len() => {
            x.types.iter().zip(&y.types).try_for_each(|(x, y)| same(ours, x, theirs, y))
        }
        (TypeDefKind::List(x), TypeDefKind::List(y)) | (TypeDefKind::Option(x), TypeDefKind::Option(y)) => {
            same(ours, x, theirs, y)
        }
        (TypeDefKind::Result(x), TypeDefKind::Result(y)) => {
            same_optional(ours, x.ok, theirs, y.ok)?;
            same_optional(ours, x.err, theirs, y.err)
        }
        // The contract has no resources, futures, streams or maps, and no lists of a fixed length.
        _ => differ(),
    }
}

fn same_optional(ours: &Resolve, a: Option<Type>, theirs: &Resolve, b: Option<Type>) -> Result<(), String> {
    match (a, b) {
        (None, None) => Ok(()),
        (Some(a), Some(b)) => same(ours, &a, theirs, &b),
        (a, b) => Err(format!("{} where {} is expected", optional(theirs, b), optional(ours, a))),
    }
}

fn names<'a>(
    of: String,
    ours: impl Iterator<Item = &'a str>,
    theirs: impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    let (ours, theirs): (Vec<_>, Vec<_>) = (ours.collect(), theirs.collect());
    if ours == theirs {
        return Ok(());
    }
    Err(format!("{of} is made of {} where {} is expected", theirs.join(", "), ours.join(", ")))
}

/// A function as WIT writes it.
fn signature(resolve: &Resolve, function: &Function) -> String {
    let params: Vec<_> = function.params.iter().map(|p| format!("{}: {}", p.name, text(resolve, &p.ty))).collect();
    let result = function.result.map(|ty| format!(" -> {}", text(resolve, &ty))).unwrap_or_default();
    let kind = if function.kind.is_async() { "async func" } else { "func" };
    format!("{kind}({}){result}", params.join(", "))
}

fn optional(resolve: &Resolve, ty: Option<Type>) -> String {
    ty.map_or_else(|| "nothing".to_owned(), |ty| text(resolve, &ty))
}

/// A type as WIT writes it: by its name where it has one.
fn text(resolve: &Resolve, ty: &Type) -> String {
    let id = match ty {
        Type::Id(id) => *id,
        Type::ErrorContext => return "error-context".to_owned(),
        plain => return format!("{plain:?}").to_lowercase(),
    };
    let definition = &resolve.types[id];
    if let Some(name) = &definition.name {
        return name.clone();
    }
    let of = |ty: &Option<Type>| ty.map_or_else(|| "_".to_owned(), |ty| text(resolve, &ty));
    match &definition.kind {
        TypeDefKind::List(ty) => format!("list<{}>", text(resolve, ty)),
        TypeDefKind::Option(ty) => format!("option<{}>", text(resolve, ty)),
        TypeDefKind::Result(r) => match (r.ok, r.err) {
            (None, None) => "result".to_owned(),
            (Some(ok), None) => format!("result<{}>", text(resolve, &ok)),
            _ => format!("result<{}, {}>", of(&r.ok), of(&r.err)),
        },
        TypeDefKind::Tuple(t) => {
            let types: Vec<_> = t.types.iter().take(8).map(|ty| text(resolve, ty)).collect();
            format!("tuple<{}>", types.join(", "))
        }
        TypeDefKind::Handle(Handle::Own(id)) => text(resolve, &Type::Id(*id)),
        TypeDefKind::Handle(Handle::Borrow(id)) => format!("borrow<{}>", text(resolve, &Type::Id(*id))),
        TypeDefKind::Type(ty) => text(resolve, ty),
        other => other.as_str().to_owned(),
    }
}
