//! Makes the memory of a component readable and writable from outside, so that a host can take an image of it.
//!
//! Between two calls, all that a component remembers lies in the linear memories and mutable globals of its core instances. The
//! component model lets nobody look there, so the component's bytes are rewritten before they are compiled:
//!
//! 1. each core module exports its own memories and mutable globals, under reserved names (`module.rs`);
//! 2. for each core instance with any of these, also of a module that is instantiated twice, a small *accessor* module is added that reads and writes
//!    them (`accessor.rs`);
//! 3. the accessors' functions are lifted and exported, through every level of nesting, as the instance [`EXPORT`] (`component.rs`).
//!
//! ```text
//! weir-image                the export of every component that has state, itself or below
//! ├── i0, i1, …             its core instances with state: m0-pages, m0-grow, m0-read, …, slots, get, set
//! ├── c0, c1, …             its component instances with state: their weir-image
//! └── handles               where resources are made: looks into this component's table of handles
//! ```
//!
//! What is there is only added to: no index of the original changes, and its code stays as it is, byte for byte. The result is validated
//! like any other component. Refused, with the reason and what to do about it: whatever keeps state where this does not reach, or comes from where it
//! cannot be followed ([`Refusal`]).

mod accessor;
mod component;
mod module;
#[cfg(test)]
mod tests;

use wasmparser::{BinaryReader, BinaryReaderError};

/// The version of what is added here, and of how an image is written. An image is bound to it.
pub const VERSION: u32 = 1;

/// The export through which an instrumented component is read and written.
pub(super) const EXPORT: &str = "weir-image";

/// What the names begin with under which a core module exports what it kept to itself.
const INTERNAL: &str = "weir-image:";

/// Why no image can be taken of a component.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct Refusal {
    /// From the outside in: `component 0`, `core module 2`.
    place: Vec<String>,
    what: String,
    remedy: &'static str,
}

impl Refusal {
    fn new(what: impl Into<String>, remedy: &'static str) -> Self {
        Self { place: Vec::new(), what: what.into(), remedy }
    }

    /// It lies within this.
    fn within(mut self, place: String) -> Self {
        self.place.insert(0, place);
        self
    }

    fn text(&self) -> String {
        match self.place.as_slice() {
            [] => self.what.clone(),
            place => format!("{}: {}", place.join(", "), self.what),
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        self.remedy
    }
}

/// What a component that is valid cannot lead to. Whoever calls has validated it.
impl From<BinaryReaderError> for Refusal {
    fn from(error: BinaryReaderError) -> Self {
        Self::new(format!("it cannot be read: {error}"), "build it anew; if it stays so, tell weir's developers")
    }
}

/// What to do about a part that only snapshot code can save.
const OWN_CODE: &str = "write the state with snapshot code (world stateful-operator)";

/// Rewrites a valid component. One without any state comes back as it is.
///
/// # Errors
///
/// If an image could not hold all of its state.
pub(super) fn instrument(component: &[u8]) -> Result<Vec<u8>, Refusal> {
    let with_tables = component::makes_resources(component)?;
    let rewritten = component::rewrite(component, with_tables, &mut Vec::new())?;
    let mut validator = wasmparser::Validator::new();
    match validator.validate_all(&rewritten.bytes) {
        Ok(_) => Ok(rewritten.bytes),
        Err(error) => Err(Refusal::new(
            format!("what was added to it is not valid, which is a defect of weir: {error}"),
            "tell weir's developers, and write the state with snapshot code (world stateful-operator) meanwhile",
        )),
    }
}

/// Whether a component has the export of its own that instrumenting adds.
pub(super) fn exports_reserved(component: &[u8]) -> bool {
    component::exports_reserved(component).unwrap_or(true)
}

/// A section of a module or a component: its number, and its content with its place.
struct Section<'a> {
    id: u8,
    content: &'a [u8],
    offset: usize,
}

impl<'a> Section<'a> {
    fn reader(&self) -> BinaryReader<'a> {
        BinaryReader::new(self.content, self.offset)
    }

    /// Copies it as it is.
    fn copy(&self, to: &mut Vec<u8>) {
        push_section(to, self.id, self.content);
    }
}

/// The bytes of magic and version.
const HEADER_BYTES: usize = 8;

/// The sections of a module or a component, without looking into them.
fn sections(bytes: &[u8]) -> Result<Vec<Section<'_>>, Refusal> {
    let mut reader = BinaryReader::new(bytes, 0);
    reader.read_bytes(HEADER_BYTES)?;
    let mut sections = Vec::new();
    while !reader.eof() {
        let id = reader.read_u8()?;
        let len = reader.read_var_u32()?;
        let offset = reader.original_position();
        sections.push(Section { id, content: reader.read_bytes(len as usize)?, offset });
    }
    Ok(sections)
}

fn push_section(to: &mut Vec<u8>, id: u8, content: &[u8]) {
    to.push(id);
    push_number(to, content.len() as u64);
    to.extend_from_slice(content);
}

/// Unsigned LEB128.
fn push_number(to: &mut Vec<u8>, mut n: u64) {
    loop {
        let byte = (n & 0x7f) as u8;
        n >>= 7;
        if n == 0 {
            to.push(byte);
            return;
        }
        to.push(byte | 0x80);
    }
}
