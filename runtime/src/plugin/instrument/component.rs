//! A component: finds its core instances, also those below, and adds what reads and writes them at its end.
//!
//! Only the four index spaces that lead to code are followed: core modules and core instances, components and component instances. Of the others it is
//! enough to know how many entries they have, since what is added comes after them.

use std::rc::Rc;

use wasm_encoder::{
    Alias, CanonicalFunctionSection, CanonicalOption, ComponentAliasSection, ComponentExportKind,
    ComponentExportSection, ComponentInstanceSection, ComponentSection, ComponentTypeSection, ComponentValType,
    ExportKind, InstanceSection, ModuleArg, PrimitiveValType, ValType,
};
use wasmparser::{
    CanonicalFunction, ComponentAlias, ComponentAliasSectionReader, ComponentCanonicalSectionReader,
    ComponentExportSectionReader, ComponentExternalKind, ComponentImportSectionReader, ComponentInstance,
    ComponentInstanceSectionReader, ComponentOuterAliasKind, ComponentTypeRef, ComponentTypeSectionReader,
    ExternalKind, Instance, InstanceSectionReader,
};

use super::accessor::{self, Exported, Kind};
use super::module::{self, State, memory_name};
use super::{EXPORT, HEADER_BYTES, OWN_CODE, Refusal, push_section, sections};

/// How deep components may be nested.
const DEPTH_MAX: usize = 64;

mod id {
    pub(super) const CORE_MODULE: u8 = 1;
    pub(super) const CORE_INSTANCE: u8 = 2;
    pub(super) const COMPONENT: u8 = 4;
    pub(super) const INSTANCE: u8 = 5;
    pub(super) const ALIAS: u8 = 6;
    pub(super) const TYPE: u8 = 7;
    pub(super) const CANONICAL: u8 = 8;
    pub(super) const IMPORT: u8 = 10;
    pub(super) const EXPORT: u8 = 11;
}

/// A component, rewritten.
pub(super) struct Rewritten {
    pub(super) bytes: Vec<u8>,
    /// It has state, and so the export.
    has_state: bool,
}

/// What is known of a component while it is read. None is what came from where it cannot be followed.
#[derive(Default)]
pub(super) struct Frame {
    modules: Vec<Option<Rc<State>>>,
    components: Vec<Option<bool>>,
    /// Core instances that have state.
    core_instances: Vec<(u32, Rc<State>)>,
    /// Component instances that have state.
    instances: Vec<u32>,
    core_instance_count: u32,
    core_function_count: u32,
    core_memory_count: u32,
    type_count: u32,
    function_count: u32,
    instance_count: u32,
}

/// Whether a component, or one in it, makes resources. Else no table of handles ever holds anything: a component can only have handles of
/// resources that a component made or that a host function gave it, and of these this host has none; see `plugin/wasi.rs`, where every
/// function that would return one traps.
pub(super) fn makes_resources(bytes: &[u8]) -> Result<bool, Refusal> {
    for section in sections(bytes)? {
        let makes = match section.id {
            id::COMPONENT => makes_resources(section.content)?,
            id::CANONICAL => ComponentCanonicalSectionReader::new(section.reader())?
                .into_iter()
                .any(|function| matches!(function, Ok(CanonicalFunction::ResourceNew { .. }))),
            _ => false,
        };
        if makes {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Rewrites a component that lies within others. `with_tables`: handles may be held, so each component lets its table of handles
/// be looked into.
pub(super) fn rewrite(bytes: &[u8], with_tables: bool, outer: &mut Vec<Frame>) -> Result<Rewritten, Refusal> {
    if outer.len() >= DEPTH_MAX {
        let what = format!("components are nested more than {DEPTH_MAX} deep");
        return Err(Refusal::new(what, "compose it flatter"));
    }
    outer.push(Frame::default());
    let mut to = Vec::with_capacity(bytes.len() + 4096);
    to.extend_from_slice(&bytes[..HEADER_BYTES]);
    for section in sections(bytes)? {
        match section.id {
            id::CORE_MODULE => {
                let number = top(outer).modules.len();
                let within = |refusal: Refusal| refusal.within(format!("core module {number}"));
                let (module, state) = module::rewrite(section.content).map_err(within)?;
                push_section(&mut to, section.id, &module);
                top(outer).modules.push(Some(Rc::new(state)));
                continue;
            }
            id::COMPONENT => {
                let number = top(outer).components.len();
                let inner = rewrite(section.content, with_tables, outer);
                let inner = inner.map_err(|refusal| refusal.within(format!("component {number}")))?;
                push_section(&mut to, section.id, &inner.bytes);
                top(outer).components.push(Some(inner.has_state));
                continue;
            }
            id::CORE_INSTANCE => core_instances(InstanceSectionReader::new(section.reader())?, top(outer))?,
            id::INSTANCE => instances(ComponentInstanceSectionReader::new(section.reader())?, top(outer))?,
            id::ALIAS => {
                for alias in ComponentAliasSectionReader::new(section.reader())? {
                    self::alias(&alias?, outer);
                }
            }
            id::TYPE => top(outer).type_count += ComponentTypeSectionReader::new(section.reader())?.count(),
            id::CANONICAL => {
                for function in ComponentCanonicalSectionReader::new(section.reader())? {
                    canonical(&function?, top(outer))?;
                }
            }
            id::IMPORT => {
                for import in ComponentImportSectionReader::new(section.reader())? {
                    let kind = match import?.ty {
                        ComponentTypeRef::Module(_) => ComponentExternalKind::Module,
                        ComponentTypeRef::Func(_) => ComponentExternalKind::Func,
                        ComponentTypeRef::Value(_) => ComponentExternalKind::Value,
                        ComponentTypeRef::Type(_) => ComponentExternalKind::Type,
                        ComponentTypeRef::Instance(_) => ComponentExternalKind::Instance,
                        ComponentTypeRef::Component(_) => ComponentExternalKind::Component,
                    };
                    top(outer).add(kind);
                }
            }
            id::EXPORT => {
                for export in ComponentExportSectionReader::new(section.reader())? {
                    let export = export?;
                    if export.name.name == EXPORT {
                        let what = format!("it exports {EXPORT:?}, a name that is weir's own");
                        return Err(Refusal::new(what, "rename the export"));
                    }
                    // An export is an entry of its own. Whoever exports a module or a component does not change where it comes from.
                    let frame = top(outer);
                    match export.kind {
                        ComponentExternalKind::Module => {
                            let same = frame.modules.get(export.index as usize).cloned().flatten();
                            frame.modules.push(same);
                        }
                        ComponentExternalKind::Component => {
                            let same = frame.components.get(export.index as usize).copied().flatten();
                            frame.components.push(same);
                        }
                        kind => frame.add(kind),
                    }
                }
            }
            _ => {}
        }
        section.copy(&mut to);
    }
    let frame = outer.pop().unwrap_or_default();
    let has_table = with_tables && frame.core_instance_count > 0;
    let has_state = !frame.core_instances.is_empty() || !frame.instances.is_empty() || has_table;
    if has_state {
        frame.append_accessors(has_table, &mut to);
    }
    Ok(Rewritten { bytes: to, has_state })
}

/// Whether the component itself exports what is to be added.
pub(super) fn exports_reserved(bytes: &[u8]) -> Result<bool, Refusal> {
    for section in sections(bytes)?.iter().filter(|section| section.id == id::EXPORT) {
        for export in ComponentExportSectionReader::new(section.reader())? {
            if export?.name.name == EXPORT {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The frame of the component that is being read. There is one: `rewrite` has pushed it.
fn top(frames: &mut [Frame]) -> &mut Frame {
    frames.last_mut().expect("a component is being read")
}

fn core_instances(reader: InstanceSectionReader<'_>, frame: &mut Frame) -> Result<(), Refusal> {
    for instance in reader {
        if let Instance::Instantiate { module_index, .. } = instance? {
            let number = frame.core_instance_count;
            let Some(state) = frame.modules.get(module_index as usize).cloned().flatten() else {
                return Err(Refusal::new(
                    format!(
                        "core instance {number} is made of a core module that is handed in or on by another component"
                    ),
                    "compose it so that each component has its own modules",
                ));
            };
            if !state.is_empty() {
                frame.core_instances.push((number, state));
            }
        }
        frame.core_instance_count += 1;
    }
    Ok(())
}

fn instances(reader: ComponentInstanceSectionReader<'_>, frame: &mut Frame) -> Result<(), Refusal> {
    for instance in reader {
        if let ComponentInstance::Instantiate { component_index, .. } = instance? {
            let number = frame.instance_count;
            let Some(has_state) = frame.components.get(component_index as usize).copied().flatten() else {
                return Err(Refusal::new(
                    format!("instance {number} is made of a component that is handed in or on by another component"),
                    "compose it so that each component has those that it is made of",
                ));
            };
            if has_state {
                frame.instances.push(number);
            }
        }
        frame.instance_count += 1;
    }
    Ok(())
}

fn alias(alias: &ComponentAlias<'_>, frames: &mut [Frame]) {
    match alias {
        ComponentAlias::InstanceExport { kind, .. } => top(frames).add(*kind),
        ComponentAlias::CoreInstanceExport { kind: ExternalKind::Func | ExternalKind::FuncExact, .. } => {
            top(frames).core_function_count += 1;
        }
        ComponentAlias::CoreInstanceExport { kind: ExternalKind::Memory, .. } => top(frames).core_memory_count += 1,
        ComponentAlias::CoreInstanceExport { .. } => {}
        ComponentAlias::Outer { kind, count, index } => {
            let from = frames.len().checked_sub(1 + *count as usize).and_then(|at| frames.get(at));
            match kind {
                ComponentOuterAliasKind::CoreModule => {
                    let module = from.and_then(|frame| frame.modules.get(*index as usize).cloned().flatten());
                    top(frames).modules.push(module);
                }
                ComponentOuterAliasKind::Component => {
                    let component = from.and_then(|frame| frame.components.get(*index as usize).copied().flatten());
                    top(frames).components.push(component);
                }
                ComponentOuterAliasKind::Type => top(frames).type_count += 1,
                ComponentOuterAliasKind::CoreType => {}
            }
        }
    }
}

/// What a component asks of the host beside its code.
fn canonical(function: &CanonicalFunction, frame: &mut Frame) -> Result<(), Refusal> {
    match function {
        CanonicalFunction::Lift { .. } => {
            frame.function_count += 1;
            return Ok(());
        }
        CanonicalFunction::Lower { .. }
        | CanonicalFunction::ResourceNew { .. }
        | CanonicalFunction::ResourceDrop { .. }
        | CanonicalFunction::ResourceRep { .. } => {}
        other => {
            let name = format!("{other:?}");
            let name = name.split([' ', '{']).next().unwrap_or_default().to_owned();
            return Err(Refusal::new(
                format!(
                    "it uses threads or the component model's async ({name}), whose state lies outside of its memory"
                ),
                OWN_CODE,
            ));
        }
    }
    frame.core_function_count += 1;
    Ok(())
}

impl Frame {
    /// Counts an entry of which nothing else is known.
    fn add(&mut self, kind: ComponentExternalKind) {
        match kind {
            ComponentExternalKind::Module => self.modules.push(None),
            ComponentExternalKind::Func => self.function_count += 1,
            ComponentExternalKind::Value => {}
            ComponentExternalKind::Type => self.type_count += 1,
            ComponentExternalKind::Instance => self.instance_count += 1,
            ComponentExternalKind::Component => self.components.push(None),
        }
    }

    /// Adds the accessors of this component's core instances, and hands on those of the components in it.
    fn append_accessors(mut self, has_table: bool, to: &mut Vec<u8>) {
        let types = Types::append(&mut self, to);
        let mut parts = Vec::new();
        if has_table {
            parts.push(("handles".to_owned(), self.append_table(&types, to)));
        }
        for (number, (instance, state)) in std::mem::take(&mut self.core_instances).into_iter().enumerate() {
            parts.push((format!("i{number}"), self.append_accessor(instance, &state, &types, to)));
        }
        let mut aliases = ComponentAliasSection::new();
        for (number, instance) in std::mem::take(&mut self.instances).into_iter().enumerate() {
            aliases.alias(Alias::InstanceExport { instance, kind: ComponentExportKind::Instance, name: EXPORT });
            parts.push((format!("c{number}"), self.instance_count));
            self.instance_count += 1;
        }
        if !aliases.is_empty() {
            push(to, &aliases);
        }
        let mut all = ComponentInstanceSection::new();
        all.export_items(
            parts.iter().map(|(name, instance)| (name.as_str(), ComponentExportKind::Instance, *instance)),
        );
        push(to, &all);
        let mut exports = ComponentExportSection::new();
        exports.export(EXPORT, ComponentExportKind::Instance, self.instance_count, None);
        push(to, &exports);
    }

    /// Adds what looks into the table of handles: a resource of its own, without a destructor, of which handles are made and dropped.
    fn append_table(&mut self, types: &Types, to: &mut Vec<u8>) -> u32 {
        let mut resource = ComponentTypeSection::new();
        resource.resource(ValType::I32, None);
        push(to, &resource);
        let ty = self.type_count;
        self.type_count += 1;
        let mut functions = CanonicalFunctionSection::new();
        functions.resource_new(ty).resource_drop(ty);
        functions.lift(self.core_function_count, types.first + 2, []);
        functions.lift(self.core_function_count + 1, types.first + 5, []);
        push(to, &functions);
        let (make, drop) = (self.function_count, self.function_count + 1);
        self.core_function_count += 2;
        self.function_count += 2;
        let mut bundle = ComponentInstanceSection::new();
        bundle.export_items([("make", ComponentExportKind::Func, make), ("drop", ComponentExportKind::Func, drop)]);
        push(to, &bundle);
        self.instance_count += 1;
        self.instance_count - 1
    }

    /// Adds the accessor of one core instance. Gives the number of the component instance that has its functions.
    fn append_accessor(&mut self, instance: u32, state: &State, types: &Types, to: &mut Vec<u8>) -> u32 {
        push_section(to, id::CORE_MODULE, &accessor::module(state));
        let mut instances = InstanceSection::new();
        instances.instantiate(self.modules.len() as u32, [(accessor::STATE, ModuleArg::Instance(instance))]);
        push(to, &instances);
        self.modules.push(None);
        let accessor = self.core_instance_count;
        self.core_instance_count += 1;

        let exports = accessor::exports(state);
        let mut aliases = ComponentAliasSection::new();
        for m in 0..state.memories {
            let name = memory_name(m);
            aliases.alias(Alias::CoreInstanceExport { instance, kind: ExportKind::Memory, name: &name });
        }
        for Exported { name, .. } in &exports {
            aliases.alias(Alias::CoreInstanceExport { instance: accessor, kind: ExportKind::Func, name });
        }
        push(to, &aliases);
        let (first_memory, first_function) = (self.core_memory_count, self.core_function_count);
        self.core_memory_count += state.memories;
        self.core_function_count += exports.len() as u32;

        let realloc = |memory: u32| {
            let at = exports.iter().position(|export| export.kind == Kind::Realloc(memory));
            first_function + at.unwrap_or_default() as u32
        };
        let mut lifts = CanonicalFunctionSection::new();
        let mut lifted = Vec::new();
        for (at, Exported { name, kind }) in exports.iter().enumerate() {
            let Some(ty) = types.of(*kind) else { continue };
            let function = first_function + at as u32;
            match *kind {
                Kind::Read(m) => lifts.lift(function, ty, [CanonicalOption::Memory(first_memory + m)]),
                Kind::Write(m) => {
                    let options = [CanonicalOption::Memory(first_memory + m), CanonicalOption::Realloc(realloc(m))];
                    lifts.lift(function, ty, options)
                }
                _ => lifts.lift(function, ty, []),
            };
            lifted.push((name.as_str(), ComponentExportKind::Func, self.function_count));
            self.function_count += 1;
        }
        push(to, &lifts);
        let mut bundle = ComponentInstanceSection::new();
        bundle.export_items(lifted);
        push(to, &bundle);
        self.instance_count += 1;
        self.instance_count - 1
    }
}

/// Where the types of the accessors' functions are.
struct Types {
    /// The list; the functions follow.
    first: u32,
}

impl Types {
    fn append(frame: &mut Frame, to: &mut Vec<u8>) -> Self {
        let types = Self { first: frame.type_count };
        let (u32, u64) = (PrimitiveValType::U32, PrimitiveValType::U64);
        let list = ComponentValType::Type(types.first);
        let none: [(&str, ComponentValType); 0] = [];
        let mut section = ComponentTypeSection::new();
        section.defined_type().list(PrimitiveValType::U8);
        section.function().params(none).result(Some(u32.into()));
        section.function().params([("pages", u32)]).result(Some(u32.into()));
        section.function().params([("start", u32), ("len", u32), ("borrowed", u32)]).result(Some(list));
        section.function().params(none).result(None);
        section.function().params([("to", u32)]).result(None);
        section.function().params([("data", list)]).result(None);
        section.function().params([("slot", u32)]).result(Some(u64.into()));
        section.function().params([("slot", u32), ("value", u64)]).result(None);
        frame.type_count += section.len();
        push(to, &section);
        types
    }

    /// The type of a function; none for one that is not lifted.
    fn of(&self, kind: Kind) -> Option<u32> {
        let at = match kind {
            Kind::Pages(_) | Kind::Slots => 1,
            Kind::Grow(_) => 2,
            Kind::Read(_) => 3,
            Kind::Settle(_) => 4,
            Kind::At(_) => 5,
            Kind::Write(_) => 6,
            Kind::Get => 7,
            Kind::Set => 8,
            Kind::Realloc(_) => return None,
        };
        Some(self.first + at)
    }
}

/// Appends a section. It encodes its own length.
fn push(to: &mut Vec<u8>, section: &impl ComponentSection) {
    to.push(section.id());
    section.encode(to);
}
