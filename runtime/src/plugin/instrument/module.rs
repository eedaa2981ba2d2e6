//! A core module: what of it is state, whether there is state that an image cannot hold, and the same module with its state
//! exported.

use wasmparser::{
    CodeSectionReader, ElementItems, ElementSectionReader, ExportSectionReader, ExternalKind, FunctionBody,
    GlobalSectionReader, GlobalType, ImportSectionReader, MemorySectionReader, MemoryType, Operator, TableInit,
    TableSectionReader, TypeRef, ValType,
};

use super::{HEADER_BYTES, INTERNAL, OWN_CODE, Refusal, Section, push_number, push_section, sections};

/// Slots of the globals of one core instance.
const SLOTS_MAX: usize = 1 << 14;

mod id {
    pub(super) const IMPORT: u8 = 2;
    pub(super) const TABLE: u8 = 4;
    pub(super) const MEMORY: u8 = 5;
    pub(super) const GLOBAL: u8 = 6;
    pub(super) const EXPORT: u8 = 7;
    pub(super) const ELEMENT: u8 = 9;
    pub(super) const CODE: u8 = 10;
    pub(super) const DATA: u8 = 11;
    pub(super) const DATA_COUNT: u8 = 12;
    pub(super) const START: u8 = 8;
}

/// The state of a core module's instances: what it defines itself. What it imports is the state of another.
#[derive(Debug, Default)]
pub(super) struct State {
    /// How many memories, exported as [`memory_name`].
    pub(super) memories: u32,
    /// The types of its mutable globals, exported as [`global_name`].
    pub(super) globals: Vec<Number>,
}

impl State {
    pub(super) fn is_empty(&self) -> bool {
        self.memories == 0 && self.globals.is_empty()
    }
}

/// The type of a global whose value can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    I32,
    I64,
    F32,
    F64,
    V128,
}

impl Number {
    /// How many 64-bit slots it takes in an image.
    pub(super) fn slots(self) -> usize {
        if self == Self::V128 { 2 } else { 1 }
    }
}

/// Under which name a module exports its own memory `n`.
pub(super) fn memory_name(n: u32) -> String {
    format!("{INTERNAL}m{n}")
}

/// Under which name a module exports its own mutable global `n`.
pub(super) fn global_name(n: u32) -> String {
    format!("{INTERNAL}g{n}")
}

/// Looks for a module's state and exports it.
pub(super) fn rewrite(bytes: &[u8]) -> Result<(Vec<u8>, State), Refusal> {
    let sections = sections(bytes)?;
    check_code(&sections)?;
    let (mut memories, mut globals) = (0, 0);
    let mut state = State::default();
    // What is exported in addition: name, kind, index.
    let mut added: Vec<(String, u8, u32)> = Vec::new();
    for section in &sections {
        match section.id {
            id::IMPORT => {
                for import in ImportSectionReader::new(section.reader())?.into_imports() {
                    match import?.ty {
                        TypeRef::Memory(_) => memories += 1,
                        TypeRef::Global(_) => globals += 1,
                        _ => {}
                    }
                }
            }
            id::MEMORY => {
                for memory in MemorySectionReader::new(section.reader())? {
                    check_memory(&memory?)?;
                    added.push((memory_name(state.memories), 2, memories));
                    state.memories += 1;
                    memories += 1;
                }
            }
            id::GLOBAL => {
                for global in GlobalSectionReader::new(section.reader())? {
                    if let Some(number) = number(&global?.ty, globals)? {
                        added.push((global_name(state.globals.len() as u32), 3, globals));
                        state.globals.push(number);
                    }
                    globals += 1;
                }
            }
            id::EXPORT => {
                for export in ExportSectionReader::new(section.reader())? {
                    let name = export?.name;
                    if name.starts_with(INTERNAL) {
                        return Err(Refusal::new(
                            format!("it exports {name:?}, and names that begin with {INTERNAL:?} are weir's own"),
                            "rename the export",
                        ));
                    }
                }
            }
            _ => {}
        }
    }
    let slots: usize = state.globals.iter().map(|global| global.slots()).sum();
    if slots > SLOTS_MAX {
        let what = format!(
            "it has {} mutable globals, which take {slots} slots; the most is {SLOTS_MAX}",
            state.globals.len()
        );
        return Err(Refusal::new(what, OWN_CODE));
    }
    if state.is_empty() {
        return Ok((bytes.to_vec(), state));
    }
    Ok((with_exports(bytes, &sections, &added), state))
}

fn check_memory(memory: &MemoryType) -> Result<(), Refusal> {
    let what = match memory {
        MemoryType { shared: true, .. } => "it has a shared memory, which threads may change at any time",
        MemoryType { memory64: true, .. } => {
            "it has a memory with 64-bit addresses, which the component model cannot hand on"
        }
        MemoryType { page_size_log2: Some(_), .. } => "it has a memory with pages of another size than 64 KiB",
        _ => return Ok(()),
    };
    Err(Refusal::new(
        what,
        "build it for wasm32 without threads, or write the state with snapshot code (world stateful-operator)",
    ))
}

/// What kind of number a global is; none for one that does not change.
fn number(ty: &GlobalType, index: u32) -> Result<Option<Number>, Refusal> {
    if ty.shared {
        return Err(Refusal::new(format!("global {index} is shared, and threads may change it at any time"), OWN_CODE));
    }
    if !ty.mutable {
        return Ok(None);
    }
    Ok(Some(match ty.content_type {
        ValType::I32 => Number::I32,
        ValType::I64 => Number::I64,
        ValType::F32 => Number::F32,
        ValType::F64 => Number::F64,
        ValType::V128 => Number::V128,
        ValType::Ref(kind) => {
            let what = format!(
                "global {index} can change and is a reference ({kind}), which has no form outside of the instance"
            );
            return Err(Refusal::new(what, OWN_CODE));
        }
    }))
}

/// The module with more exports.
fn with_exports(bytes: &[u8], sections: &[Section<'_>], added: &[(String, u8, u32)]) -> Vec<u8> {
    let mut more = Vec::new();
    for (name, kind, index) in added {
        push_number(&mut more, name.len() as u64);
        more.extend_from_slice(name.as_bytes());
        more.push(*kind);
        push_number(&mut more, u64::from(*index));
    }
    let export = |to: &mut Vec<u8>, present: u64, entries: &[u8]| {
        let mut content = Vec::with_capacity(entries.len() + more.len() + 5);
        push_number(&mut content, present + added.len() as u64);
        content.extend_from_slice(entries);
        content.extend_from_slice(&more);
        push_section(to, id::EXPORT, &content);
    };
    let mut to = Vec::with_capacity(bytes.len() + more.len() + 16);
    to.extend_from_slice(&bytes[..HEADER_BYTES]);
    let mut done = false;
    for section in sections {
        if section.id == id::EXPORT {
            let mut reader = section.reader();
            // It was read before, so the number is there.
            let present = reader.read_var_u32().unwrap_or_default();
            export(&mut to, u64::from(present), &section.content[reader.current_position()..]);
            done = true;
            continue;
        }
        let after = [id::START, id::ELEMENT, id::DATA_COUNT, id::CODE, id::DATA].contains(&section.id);
        if after && !done {
            export(&mut to, 0, &[]);
            done = true;
        }
        section.copy(&mut to);
    }
    if !done {
        export(&mut to, 0, &[]);
    }
    to
}

/// The instruction, if it changes a table or drops a segment: state that no accessor reaches.
fn mutation(operator: &Operator<'_>) -> Option<&'static str> {
    Some(match operator {
        Operator::TableSet { .. } => "table.set",
        Operator::TableGrow { .. } => "table.grow",
        Operator::TableFill { .. } => "table.fill",
        Operator::TableCopy { .. } => "table.copy",
        Operator::TableInit { .. } => "table.init",
        Operator::ElemDrop { .. } => "elem.drop",
        Operator::DataDrop { .. } => "data.drop",
        _ => return None,
    })
}

/// Refuses code that changes tables or drops segments after the instance was made. What only the start function does, a
/// fresh instance has done too.
fn check_code(sections: &[Section<'_>]) -> Result<(), Refusal> {
    let mut found = Vec::new();
    each_body(sections, |function, body| {
        for operator in body.get_operators_reader()? {
            if let Some(name) = mutation(&operator?) {
                found.push((function, name));
                break;
            }
        }
        Ok(())
    })?;
    if found.is_empty() {
        return Ok(());
    }
    let reached = reachable_later(sections)?;
    match found.into_iter().find(|(function, _)| reached.contains(function)) {
        None => Ok(()),
        Some((function, name)) => {
            let what = match name {
                "data.drop" => "drops a segment of data",
                "elem.drop" => "drops a segment of elements",
                _ => "changes a table",
            };
            Err(Refusal::new(
                format!(
                    "function {function} {what} while it runs ({name}), and an image holds memories and numbers only"
                ),
                OWN_CODE,
            ))
        }
    }
}

/// The functions that can be called after the instance was made: what is exported or referred to anywhere, and what these call.
fn reachable_later(sections: &[Section<'_>]) -> Result<std::collections::HashSet<u32>, Refusal> {
    let mut open = Vec::new();
    for section in sections {
        match section.id {
            id::EXPORT => {
                for export in ExportSectionReader::new(section.reader())? {
                    let export = export?;
                    if matches!(export.kind, ExternalKind::Func | ExternalKind::FuncExact) {
                        open.push(export.index);
                    }
                }
            }
            id::ELEMENT => {
                for element in ElementSectionReader::new(section.reader())? {
                    match element?.items {
                        ElementItems::Functions(functions) => {
                            for function in functions {
                                open.push(function?);
                            }
                        }
                        ElementItems::Expressions(_, expressions) => {
                            for expression in expressions {
                                references(expression?.get_operators_reader(), &mut open)?;
                            }
                        }
                    }
                }
            }
            id::GLOBAL => {
                for global in GlobalSectionReader::new(section.reader())? {
                    references(global?.init_expr.get_operators_reader(), &mut open)?;
                }
            }
            id::TABLE => {
                for table in TableSectionReader::new(section.reader())? {
                    if let TableInit::Expr(expression) = table?.init {
                        references(expression.get_operators_reader(), &mut open)?;
                    }
                }
            }
            _ => {}
        }
    }
    let mut calls: std::collections::HashMap<u32, Vec<u32>> = std::collections::HashMap::new();
    each_body(sections, |function, body| {
        let to = calls.entry(function).or_default();
        for operator in body.get_operators_reader()? {
            match operator? {
                Operator::Call { function_index } | Operator::ReturnCall { function_index } => to.push(function_index),
                Operator::RefFunc { function_index } => open.push(function_index),
                _ => {}
            }
        }
        Ok(())
    })?;
    let mut reached = std::collections::HashSet::new();
    while let Some(function) = open.pop() {
        if reached.insert(function) {
            open.extend(calls.get(&function).into_iter().flatten());
        }
    }
    Ok(reached)
}

fn references(operators: wasmparser::OperatorsReader<'_>, to: &mut Vec<u32>) -> Result<(), Refusal> {
    for operator in operators {
        if let Operator::RefFunc { function_index } = operator? {
            to.push(function_index);
        }
    }
    Ok(())
}

/// Calls `each` with every function that the module defines, and its index.
fn each_body(
    sections: &[Section<'_>],
    mut each: impl FnMut(u32, FunctionBody<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut function = 0;
    for section in sections {
        match section.id {
            id::IMPORT => {
                for import in ImportSectionReader::new(section.reader())?.into_imports() {
                    function += u32::from(matches!(import?.ty, TypeRef::Func(_) | TypeRef::FuncExact(_)));
                }
            }
            id::CODE => {
                for body in CodeSectionReader::new(section.reader())? {
                    each(function, body?)?;
                    function += 1;
                }
            }
            _ => {}
        }
    }
    Ok(())
}
