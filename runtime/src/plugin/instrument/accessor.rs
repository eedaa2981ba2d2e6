//! The core module that reads and writes the state of one core instance from outside.
//!
//! It imports what `module.rs` exported and has no state that matters between calls.
//!
//! A list that a function returns is described in eight bytes of the same memory, and there is no byte of that memory that may be
//! changed: not at its end, where an allocator may have set up its heap, nor in a page of its own, which some runtimes would take for theirs. So
//! `read` borrows eight bytes outside of what is read, and `settle` puts back what they held. Writing needs none: the list goes straight to
//! where `at` has said.
//!
//! Numbers cross as 64 bits, floats by their bits: a NaN stays the same NaN.

use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, EntityType, ExportKind, ExportSection, Function, FunctionSection, GlobalSection,
    GlobalType, ImportSection, InstructionSink, MemArg, MemoryType, Module, TypeSection, ValType,
};

use super::module::{Number, State, global_name, memory_name};

/// The name of the instance that an accessor imports.
pub(super) const STATE: &str = "state";

/// A function of an accessor, for the component around it.
pub(super) struct Exported {
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// What a function does; `u32` is the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `() -> u32`: its size in Wasm pages.
    Pages(u32),
    /// `(u32) -> u32`: grows it by so many; as `memory.grow` answers.
    Grow(u32),
    /// `(from, len, borrowed: u32) -> list<u8>`: reads it, while eight bytes at `borrowed` are in use.
    Read(u32),
    /// `()`: puts back what was borrowed.
    Settle(u32),
    /// `(u32)`: where the next write goes.
    At(u32),
    /// `(list<u8>)`: writes there.
    Write(u32),
    /// Where a write goes, for the canonical ABI; not lifted.
    Realloc(u32),
    /// `() -> u32`: how many slots its globals take.
    Slots,
    /// `(u32) -> u64`: a slot.
    Get,
    /// `(u32, u64)`: a slot.
    Set,
}

/// What the accessor of such a state exports, in its order.
pub(super) fn exports(state: &State) -> Vec<Exported> {
    let mut all = Vec::new();
    for m in 0..state.memories {
        let kinds = [
            ("pages", Kind::Pages(m)),
            ("grow", Kind::Grow(m)),
            ("read", Kind::Read(m)),
            ("settle", Kind::Settle(m)),
            ("at", Kind::At(m)),
            ("write", Kind::Write(m)),
            ("realloc", Kind::Realloc(m)),
        ];
        all.extend(kinds.into_iter().map(|(name, kind)| Exported { name: format!("m{m}-{name}"), kind }));
    }
    for (name, kind) in [("slots", Kind::Slots), ("get", Kind::Get), ("set", Kind::Set)] {
        all.push(Exported { name: name.to_owned(), kind });
    }
    all
}

/// Each memory has three globals of the accessor: where the write goes, where eight bytes were borrowed, what these held.
const OWN_GLOBALS: u32 = 3;

/// Makes the accessor.
pub(super) fn module(state: &State) -> Vec<u8> {
    let mut imports = ImportSection::new();
    for m in 0..state.memories {
        let any = MemoryType { minimum: 0, maximum: None, memory64: false, shared: false, page_size_log2: None };
        imports.import(STATE, &memory_name(m), EntityType::Memory(any));
    }
    for (n, number) in state.globals.iter().enumerate() {
        let val_type = val_type(*number);
        let ty = GlobalType { val_type, mutable: true, shared: false };
        imports.import(STATE, &global_name(n as u32), EntityType::Global(ty));
    }
    let mut globals = GlobalSection::new();
    let own = |val_type| GlobalType { val_type, mutable: true, shared: false };
    for _ in 0..state.memories {
        globals.global(own(ValType::I32), &ConstExpr::i32_const(0));
        globals.global(own(ValType::I32), &ConstExpr::i32_const(0));
        globals.global(own(ValType::I64), &ConstExpr::i64_const(0));
    }
    let own_global = |m: u32, which: u32| state.globals.len() as u32 + m * OWN_GLOBALS + which;
    let mut types = TypeSection::new();
    let (mut functions, mut exports_section, mut code) =
        (FunctionSection::new(), ExportSection::new(), CodeSection::new());
    for (index, Exported { name, kind }) in exports(state).into_iter().enumerate() {
        use ValType::{I32, I64};
        let (params, results): (&[ValType], &[ValType]) = match kind {
            Kind::Pages(_) | Kind::Slots => (&[], &[I32]),
            Kind::Grow(_) => (&[I32], &[I32]),
            Kind::Read(_) => (&[I32, I32, I32], &[I32]),
            Kind::Settle(_) => (&[], &[]),
            Kind::At(_) => (&[I32], &[]),
            Kind::Write(_) => (&[I32, I32], &[]),
            Kind::Realloc(_) => (&[I32, I32, I32, I32], &[I32]),
            Kind::Get => (&[I32], &[I64]),
            Kind::Set => (&[I32, I64], &[]),
        };
        types.ty().function(params.iter().copied(), results.iter().copied());
        functions.function(index as u32);
        exports_section.export(&name, ExportKind::Func, index as u32);
        let mut function = Function::new([]);
        let mut body = function.instructions();
        let memory = |m: u32, offset: u64| MemArg { offset, align: 0, memory_index: m };
        match kind {
            Kind::Pages(m) => {
                body.memory_size(m);
            }
            Kind::Grow(m) => {
                body.local_get(0).memory_grow(m);
            }
            Kind::Read(m) => {
                body.local_get(2).global_set(own_global(m, 1));
                body.local_get(2).i64_load(memory(m, 0)).global_set(own_global(m, 2));
                body.local_get(2).local_get(0).i32_store(memory(m, 0));
                body.local_get(2).local_get(1).i32_store(memory(m, 4));
                body.local_get(2);
            }
            Kind::Settle(m) => {
                body.global_get(own_global(m, 1)).global_get(own_global(m, 2)).i64_store(memory(m, 0));
            }
            Kind::At(m) => {
                body.local_get(0).global_set(own_global(m, 0));
            }
            Kind::Write(_) => {}
            Kind::Realloc(m) => {
                body.global_get(own_global(m, 0));
            }
            Kind::Slots => {
                body.i32_const(state.globals.iter().map(|global| global.slots() as i32).sum());
            }
            Kind::Get => by_slot(&mut body, state, |body, global, number, high| {
                body.global_get(global);
                match number {
                    Number::I32 => body.i64_extend_i32_u(),
                    Number::I64 => body,
                    Number::F32 => body.i32_reinterpret_f32().i64_extend_i32_u(),
                    Number::F64 => body.i64_reinterpret_f64(),
                    Number::V128 => body.i64x2_extract_lane(high),
                };
                body.return_();
            }),
            Kind::Set => by_slot(&mut body, state, |body, global, number, high| {
                if number == Number::V128 {
                    body.global_get(global);
                }
                body.local_get(1);
                match number {
                    Number::I32 => body.i32_wrap_i64(),
                    Number::I64 => body,
                    Number::F32 => body.i32_wrap_i64().f32_reinterpret_i32(),
                    Number::F64 => body.f64_reinterpret_i64(),
                    Number::V128 => body.i64x2_replace_lane(high),
                };
                body.global_set(global).return_();
            }),
        }
        body.end();
        code.function(&function);
    }
    let mut module = Module::new();
    module
        .section(&types)
        .section(&imports)
        .section(&functions)
        .section(&globals)
        .section(&exports_section)
        .section(&code);
    module.finish()
}

fn val_type(number: Number) -> ValType {
    match number {
        Number::I32 => ValType::I32,
        Number::I64 => ValType::I64,
        Number::F32 => ValType::F32,
        Number::F64 => ValType::F64,
        Number::V128 => ValType::V128,
    }
}

/// A jump by the slot in the first parameter; `each` writes what is done at one: with which global, and with which half of it. Any other
/// slot traps.
fn by_slot(body: &mut InstructionSink<'_>, state: &State, each: impl Fn(&mut InstructionSink<'_>, u32, Number, u8)) {
    let slots: Vec<(u32, Number, u8)> = state
        .globals
        .iter()
        .enumerate()
        .flat_map(|(n, &number)| (0..number.slots()).map(move |high| (n as u32, number, high as u8)))
        .collect();
    // The outermost block is left by what is no slot.
    for _ in 0..=slots.len() {
        body.block(BlockType::Empty);
    }
    let targets: Vec<u32> = (0..slots.len() as u32).collect();
    body.local_get(0).br_table(targets, slots.len() as u32);
    for (global, number, high) in slots {
        body.end();
        each(body, global, number, high);
    }
    body.end().unreachable();
}
