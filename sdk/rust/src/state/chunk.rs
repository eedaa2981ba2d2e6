//! The bytes of keyed state in a snapshot: chunks, each of which can be decoded alone.
//!
//! ```text
//! chunk    = format (1)  section*
//! section  = operation, name length, name, namespace (zigzag varint), entries in all (varint, a hint), body length (u32), body
//! body     = item*                        for PUT: key length (varint), key, value length (varint), value
//!                                         for DELETE: key length (varint), key
//! ```
//!
//! An entry that is too large for one chunk goes as FRAGMENTs, which are joined before they are read.

use crate::bindings::snapshots::{Scope, SegmentKind};
use crate::operator::Failure;
use crate::snapshot::SnapshotWriter;

/// A chunk is written when it has reached this many bytes.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// No chunk is longer: what every host takes.
pub(crate) const CHUNK_BYTES_MAX: usize = 1 << 20;

const FORMAT: u8 = 1;
const LENGTH_BYTES: usize = 4;

/// What a section does to the state that was read before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Operation {
    /// Sets entries.
    Put = 0,
    /// Removes entries.
    Delete = 1,
    /// Removes a namespace and all that is in it.
    Drop = 2,
    /// Namespaces below this one are closed.
    Close = 3,
    /// A part of the body of a Put or Delete; more follow.
    Fragment = 4,
    /// The last part of a Put.
    LastOfPut = 5,
    /// The last part of a Delete.
    LastOfDelete = 6,
}

/// Writes the sections of one segment. Sections are opened when they get their first item.
pub(crate) struct ChunkWriter<'w> {
    writer: &'w mut SnapshotWriter,
    buffer: &'w mut Vec<u8>,
    scope: Scope,
    kind: SegmentKind,
    header: Vec<u8>,
    /// Where the body of the open section begins in the buffer; 0 when there is none.
    body: usize,
    pub(crate) bytes: u64,
    pub(crate) chunks: u64,
    /// Becomes false when the host asks to stop soon.
    pub(crate) go_on: bool,
}

impl<'w> ChunkWriter<'w> {
    pub(crate) fn new(
        writer: &'w mut SnapshotWriter,
        buffer: &'w mut Vec<u8>,
        group: u32,
        kind: SegmentKind,
    ) -> ChunkWriter<'w> {
        buffer.clear();
        let scope = Scope::KeyGroup(group);
        Self { writer, buffer, scope, kind, header: Vec::new(), body: 0, bytes: 0, chunks: 0, go_on: true }
    }

    /// What comes next belongs to this section.
    pub(crate) fn section(&mut self, operation: Operation, name: &str, namespace: i64, hint: usize) {
        self.close();
        self.header.clear();
        self.header.push(operation as u8);
        self.header.push(name.len() as u8);
        self.header.extend_from_slice(name.as_bytes());
        varint(&mut self.header, zigzag(namespace));
        varint(&mut self.header, hint as u64);
    }

    /// A section that has no items.
    pub(crate) fn mark(&mut self, operation: Operation, name: &str, namespace: i64) {
        self.section(operation, name, namespace, 0);
        self.open();
        self.close();
    }

    /// Adds an item, which `write` appends. False: return soon.
    pub(crate) fn item(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.body == 0 {
            self.open();
        }
        let start = self.buffer.len();
        write(self.buffer);
        if self.buffer.len() > CHUNK_BYTES_MAX {
            self.split_off(start);
        } else if self.buffer.len() >= CHUNK_BYTES {
            self.flush();
        }
        self.go_on
    }

    /// Writes what is left.
    pub(crate) fn flush(&mut self) {
        self.close();
        if !self.buffer.is_empty() {
            let go_on = self.writer.write(self.scope, self.kind, self.buffer);
            self.go_on &= go_on;
            self.bytes += self.buffer.len() as u64;
            self.chunks += 1;
            self.buffer.clear();
        }
    }

    /// Clears the segment.
    pub(crate) fn clear_segment(&mut self) {
        let go_on = self.writer.write(self.scope, SegmentKind::Base, &[]);
        self.go_on &= go_on;
    }

    fn open(&mut self) {
        if self.buffer.is_empty() {
            self.buffer.push(FORMAT);
        }
        self.buffer.extend_from_slice(&self.header);
        self.buffer.extend_from_slice(&[0; LENGTH_BYTES]);
        self.body = self.buffer.len();
    }

    fn close(&mut self) {
        if self.body > 0 {
            let length = (self.buffer.len() - self.body) as u32;
            self.buffer[self.body - LENGTH_BYTES..self.body].copy_from_slice(&length.to_le_bytes());
            self.body = 0;
        }
    }

    /// The item from `start` on does not fit into a chunk with the others, or not at all.
    #[cold]
    fn split_off(&mut self, start: usize) {
        let item = self.buffer.split_off(start);
        let header = self.header.clone();
        let alone = 1 + header.len() + LENGTH_BYTES + item.len();
        if start > self.body {
            self.flush();
        } else {
            // The section had nothing before the item: take its header back.
            self.buffer.truncate(self.body - LENGTH_BYTES - header.len());
            self.body = 0;
            if self.buffer.len() > 1 {
                self.flush();
            } else {
                self.buffer.clear();
            }
        }
        if alone <= CHUNK_BYTES_MAX {
            self.open();
            self.buffer.extend_from_slice(&item);
            return self.flush();
        }
        let last = if header[0] == Operation::Delete as u8 { Operation::LastOfDelete } else { Operation::LastOfPut };
        let mut parts = item.chunks(CHUNK_BYTES_MAX / 2).peekable();
        while let Some(part) = parts.next() {
            let operation = if parts.peek().is_some() { Operation::Fragment } else { last };
            self.header[0] = operation as u8;
            self.open();
            self.buffer.extend_from_slice(part);
            self.flush();
        }
        self.header = header;
    }
}

/// A section as it is read.
#[derive(Clone, Debug)]
pub(crate) struct Section<'c> {
    pub(crate) operation: Operation,
    pub(crate) name: &'c str,
    pub(crate) namespace: i64,
    pub(crate) hint: usize,
    pub(crate) body: &'c [u8],
}

impl<'c> Section<'c> {
    /// Takes the next section off a chunk, whose format byte is `chunk[0]`.
    pub(crate) fn read_all(chunk: &'c [u8]) -> Result<Vec<Section<'c>>, Failure> {
        let Some((format, mut rest)) = chunk.split_first() else { return Ok(Vec::new()) };
        if *format != FORMAT {
            return Err(Failure::invalid(format!(
                "state is in chunk format {format}, this plugin's SDK reads {FORMAT}: build it with a newer weir-sdk"
            )));
        }
        let mut sections = Vec::new();
        while !rest.is_empty() {
            sections.push(Self::read(&mut rest).ok_or_else(|| corrupt("a section is cut short"))?);
        }
        Ok(sections)
    }

    fn read(rest: &mut &'c [u8]) -> Option<Self> {
        let operation = match take(rest, 1)?[0] {
            0 => Operation::Put,
            1 => Operation::Delete,
            2 => Operation::Drop,
            3 => Operation::Close,
            4 => Operation::Fragment,
            5 => Operation::LastOfPut,
            6 => Operation::LastOfDelete,
            _ => return None,
        };
        let length = take(rest, 1)?[0];
        let name = std::str::from_utf8(take(rest, length.into())?).ok()?;
        let namespace = unzigzag(read_varint(rest)?);
        let hint = usize::try_from(read_varint(rest)?).ok()?;
        let length = u32::from_le_bytes(*take(rest, LENGTH_BYTES)?.first_chunk()?);
        let body = take(rest, length as usize)?;
        Some(Self { operation, name, namespace, hint, body })
    }

    /// The entries of a Put.
    pub(crate) fn puts(&self) -> impl Iterator<Item = Result<(&'c [u8], &'c [u8]), Failure>> {
        let mut rest = self.body;
        std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| {
                let entry = read_bytes(&mut rest).and_then(|key| Some((key, read_bytes(&mut rest)?)));
                if entry.is_none() {
                    rest = &[];
                }
                entry.ok_or_else(|| corrupt("an entry is cut short"))
            })
        })
    }

    /// The keys of a Delete.
    pub(crate) fn deletes(&self) -> impl Iterator<Item = Result<&'c [u8], Failure>> {
        let mut rest = self.body;
        std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| {
                let key = read_bytes(&mut rest);
                if key.is_none() {
                    rest = &[];
                }
                key.ok_or_else(|| corrupt("a key is cut short"))
            })
        })
    }
}

#[cold]
pub(crate) fn corrupt(what: &str) -> Failure {
    Failure::invalid(format!("state cannot be read: {what}"))
}

fn take<'c>(rest: &mut &'c [u8], length: usize) -> Option<&'c [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn read_bytes<'c>(rest: &mut &'c [u8]) -> Option<&'c [u8]> {
    let length = usize::try_from(read_varint(rest)?).ok()?;
    take(rest, length)
}

#[inline]
pub(crate) fn varint(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

#[inline]
fn read_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// Appends a byte string with its length, made by `write`.
#[inline]
pub(crate) fn put_bytes(to: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = to.len();
    to.push(0);
    write(to);
    let length = to.len() - at - 1;
    if length < 0x80 {
        to[at] = length as u8;
    } else {
        let mut prefix = Vec::with_capacity(10);
        varint(&mut prefix, length as u64);
        to.splice(at..=at, prefix);
    }
}

/// The key of an encoded entry.
pub(crate) fn key_of_item(mut item: &[u8]) -> &[u8] {
    read_bytes(&mut item).unwrap_or_default()
}
