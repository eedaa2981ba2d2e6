//! The image of an instance: its memories and globals read out between two calls, and put into a fresh instance.
//!
//! It is how an operator without snapshot code has exactly-once state. The component was rewritten so that it can be read
//! (`instrument.rs`); here its accessors are called. Memory is read where it lies, a piece at a time. A hash of each 4 KiB page is kept, and
//! what an incremental snapshot writes are the pages whose hash has changed since the snapshot before: I8 is then the data
//! path's, as with any other operator.
//!
//! Refuses to put an image into an instance that it does not fit: of another instrumenter, another configuration, other memories. What it cannot see is
//! the digest of the plugin and the parallelism; these are compared before a run claims its job.

mod format;
mod pages;
#[cfg(test)]
mod tests;

use wasmtime::Store;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentExportIndex, Func, Instance, TypedFunc, WasmList};

use self::format::{Header, PAGE_BYTES, PageWriter, Part, Run, decode};
use self::pages::{Hashes, PageSet};
use super::SnapshotWriter;
use super::host::HostState;
use super::instrument::{EXPORT, VERSION};
use super::limits::{ITEM_BYTES, TEXT_BYTES_MAX, clean};
use crate::model::{Chunk, Scope, SegmentKind, SnapshotMode};

/// A page of WebAssembly in bytes, and in pages of an image.
const WASM_PAGE_BYTES: u64 = 64 << 10;
const PAGES_PER_WASM_PAGE: u64 = WASM_PAGE_BYTES / PAGE_BYTES as u64;

/// How much is read with one call: below what a call may hand over at the least (`HOSTCALL_BYTES`).
const PIECE_BYTES: u64 = 1 << 20;

/// Bytes that an accessor borrows while it reads.
const BORROWED_BYTES: u64 = 8;

/// Why an image was not taken or not put back.
#[derive(Debug)]
pub(super) enum ImageFault {
    /// A limit was crossed, or an accessor failed.
    Host(wasmtime::Error),
    /// The image does not fit the instance.
    Unfit(String),
}

impl From<wasmtime::Error> for ImageFault {
    fn from(error: wasmtime::Error) -> Self {
        Self::Host(error)
    }
}

fn unfit<T>(what: impl Into<String>) -> Result<T, ImageFault> {
    Err(ImageFault::Unfit(clean(&what.into(), TEXT_BYTES_MAX)))
}

/// Where a component's accessors are. None of it is looked up by name again.
#[derive(Clone, Default)]
pub(super) struct Accessors {
    cells: Vec<CellIndex>,
    /// Of each component that may hold handles of resources: `make` and `drop`.
    tables: Vec<(ComponentExportIndex, ComponentExportIndex)>,
}

/// The accessor of one core instance.
#[derive(Clone)]
struct CellIndex {
    memories: Vec<MemoryIndex>,
    slots: ComponentExportIndex,
    get: ComponentExportIndex,
    set: ComponentExportIndex,
}

#[derive(Clone)]
struct MemoryIndex {
    pages: ComponentExportIndex,
    grow: ComponentExportIndex,
    read: ComponentExportIndex,
    settle: ComponentExportIndex,
    at: ComponentExportIndex,
    write: ComponentExportIndex,
}

impl Accessors {
    /// Looks for them; none in a component that was not instrumented, or has no state at all.
    pub(super) fn find(component: &Component) -> Option<Self> {
        let (item, root) = component.get_export(None, EXPORT)?;
        if !matches!(item, ComponentItem::ComponentInstance(_)) {
            return None;
        }
        let mut found = Self::default();
        found.walk(component, &root);
        Some(found)
    }

    /// In the order in which they are numbered, which is that of an image.
    fn walk(&mut self, component: &Component, bundle: &ComponentExportIndex) {
        let within = |of: &ComponentExportIndex, name: &str| component.get_export_index(Some(of), name);
        for cell in (0..).map_while(|n| within(bundle, &format!("i{n}"))) {
            let memory = |m: u32| {
                let function = |name: &str| within(&cell, &format!("m{m}-{name}"));
                Some(MemoryIndex {
                    pages: function("pages")?,
                    grow: function("grow")?,
                    read: function("read")?,
                    settle: function("settle")?,
                    at: function("at")?,
                    write: function("write")?,
                })
            };
            let function = |name: &str| within(&cell, name);
            if let (Some(slots), Some(get), Some(set)) = (function("slots"), function("get"), function("set")) {
                self.cells.push(CellIndex { memories: (0..).map_while(memory).collect(), slots, get, set });
            }
        }
        if let Some(handles) = within(bundle, "handles")
            && let (Some(make), Some(drop)) = (within(&handles, "make"), within(&handles, "drop"))
        {
            self.tables.push((make, drop));
        }
        for child in (0..).map_while(|n| within(bundle, &format!("c{n}"))) {
            self.walk(component, &child);
        }
    }
}

/// The memories and globals of one instance.
pub(super) struct Image {
    memories: Vec<Memory>,
    globals: Vec<Globals>,
    tables: Vec<HandleTable>,
    config: [u8; 32],
    /// What was last written or put back; none before.
    known: Option<Known>,
}

struct Known {
    header: Header,
    hashes: Hashes,
}

struct Memory {
    pages: TypedFunc<(), (u32,)>,
    grow: TypedFunc<(u32,), (u32,)>,
    read: TypedFunc<(u32, u32, u32), (WasmList<u8>,)>,
    settle: TypedFunc<(), ()>,
    at: TypedFunc<(u32,), ()>,
    /// Its type has the lifetime of the bytes, so it is made anew for each call.
    write: Func,
}

struct Globals {
    slots: TypedFunc<(), (u32,)>,
    get: TypedFunc<(u32,), (u64,)>,
    set: TypedFunc<(u32, u64), ()>,
}

/// So many handles are made to find out whether any is held: more than a component had at once since the image before.
const HANDLES: u32 = 1 << 10;

/// A component's table of handles. What is in it lies outside of all memories.
struct HandleTable {
    make: TypedFunc<(u32,), (u32,)>,
    drop: TypedFunc<(u32,), ()>,
}

impl HandleTable {
    /// Refuses a table that holds anything. What it holds cannot be seen, but what is free can be taken: if nothing is held, the first
    /// 1,024 handles that are made have just these numbers, since a new number is given only when no other is free; one that is held is
    /// not among them, and a higher one is. They are dropped from the last to the first, so that the next ones will be 1, 2, 3 as in a
    /// fresh table: which numbers a guest gets does not depend on whether it was restored.
    async fn check_empty(&self, store: &mut Store<HostState>) -> Result<(), ImageFault> {
        let mut taken = Vec::with_capacity(HANDLES as usize);
        for _ in 0..HANDLES {
            taken.push(self.make.call_async(&mut *store, (0,)).await?.0);
        }
        taken.sort_unstable();
        let held = taken.last().map_or(0, |highest| highest.saturating_sub(HANDLES));
        for handle in taken.into_iter().rev() {
            self.drop.call_async(&mut *store, (handle,)).await?;
        }
        store.data_mut().meter.begin_call();
        match held {
            0 => Ok(()),
            n => unfit(format!(
                "it holds {n} handles of resources between two calls, and these lie outside of its memory: no image can hold \
                 them. Let it drop them, or write its state with snapshot code (world stateful-operator)"
            )),
        }
    }
}

impl Image {
    /// Of an instance that was or would be opened with this configuration.
    pub(super) fn new(
        accessors: &Accessors,
        store: &mut Store<HostState>,
        instance: &Instance,
        config: [u8; 32],
    ) -> wasmtime::Result<Self> {
        let (memories, globals, tables) = (Vec::new(), Vec::new(), Vec::new());
        let mut image = Self { memories, globals, tables, config, known: None };
        for (make, drop) in &accessors.tables {
            image.tables.push(HandleTable {
                make: instance.get_typed_func(&mut *store, make)?,
                drop: instance.get_typed_func(&mut *store, drop)?,
            });
        }
        for cell in &accessors.cells {
            for memory in &cell.memories {
                let write = instance.get_func(&mut *store, memory.write);
                image.memories.push(Memory {
                    pages: instance.get_typed_func(&mut *store, memory.pages)?,
                    grow: instance.get_typed_func(&mut *store, memory.grow)?,
                    read: instance.get_typed_func(&mut *store, memory.read)?,
                    settle: instance.get_typed_func(&mut *store, memory.settle)?,
                    at: instance.get_typed_func(&mut *store, memory.at)?,
                    write: write.ok_or_else(|| wasmtime::Error::msg("an accessor cannot write"))?,
                });
            }
            image.globals.push(Globals {
                slots: instance.get_typed_func(&mut *store, cell.slots)?,
                get: instance.get_typed_func(&mut *store, cell.get)?,
                set: instance.get_typed_func(&mut *store, cell.set)?,
            });
        }
        Ok(image)
    }

    /// Writes what the mode asks for: everything as a base, or what has changed as a delta. Nothing at all if nothing has.
    ///
    /// After an error the instance is not used again: what is known of its pages is then not what was written.
    pub(super) async fn snapshot(
        &mut self,
        store: &mut Store<HostState>,
        mode: SnapshotMode,
        writer: &mut dyn SnapshotWriter,
    ) -> Result<(), ImageFault> {
        for table in &self.tables {
            table.check_empty(store).await?;
        }
        let header = self.header(store).await?;
        // Before the first there is nothing that a delta could lie on.
        let known = self.known.take().filter(|_| mode == SnapshotMode::Incremental);
        let (kind, header_changed, mut hashes) = match known {
            Some(known) => (SegmentKind::Delta, known.header != header, known.hashes),
            None => (SegmentKind::Base, true, Hashes::new(self.memories.len())),
        };
        let is_base = kind == SegmentKind::Base;
        let mut sink = Sink { kind, header: Some(header.encode()), pages: PageWriter::new(is_base) };
        for (number, memory) in self.memories.iter().enumerate() {
            for (start, len) in pieces(header.memories[number]) {
                let list = memory.read(store, start, len, header.memories[number]).await?;
                let bytes = list.as_le_slice(&*store);
                for (page, bytes) in (page_of(start)..).zip(bytes.chunks_exact(PAGE_BYTES)) {
                    let noted = hashes.note(number, page, bytes);
                    let wanted = if is_base { !noted.zero } else { noted.changed };
                    if wanted {
                        sink.pages.push(number as u32, page, bytes);
                    }
                }
                memory.settle(store).await?;
                sink.hand_over(store, writer)?;
            }
        }
        if header_changed {
            sink.hand_over_header(store, writer)?;
        }
        sink.pages.close();
        sink.hand_over(store, writer)?;
        self.known = Some(Known { header, hashes });
        Ok(())
    }

    /// Puts an image into a fresh instance: the chunks of a base, and of the deltas that came after it.
    pub(super) async fn restore(&mut self, store: &mut Store<HostState>, chunks: &[Chunk]) -> Result<(), ImageFault> {
        let fresh = self.header(store).await?;
        let mut header = None;
        let mut written = PageSet::new(self.memories.len());
        for (number, chunk) in chunks.iter().enumerate() {
            if chunk.scope != Scope::Subtask {
                return unfit(format!("chunk {number} of its state is of {:?}, which no image writes", chunk.scope));
            }
            let part = decode(&chunk.data);
            match part
                .map_err(|fault| ImageFault::Unfit(format!("chunk {number} of its state is no image: {fault}")))?
            {
                Part::Header(of) => {
                    self.make_room(store, &of, header.as_ref().unwrap_or(&fresh)).await?;
                    header = Some(of);
                }
                Part::Pages(runs) => {
                    let Some(header) = &header else {
                        return unfit(format!(
                            "chunk {number} of its state holds pages of an image that has not begun"
                        ));
                    };
                    for run in runs {
                        self.put(store, header, run, &mut written).await?;
                    }
                }
            }
        }
        let Some(header) = header else { return unfit("its state holds no image") };
        let hashes = self.clear_the_rest(store, &header, &written).await?;
        self.put_globals(store, &header.globals).await?;
        self.known = Some(Known { header, hashes });
        Ok(())
    }

    /// How large the memories are and what the globals hold, now.
    async fn header(&self, store: &mut Store<HostState>) -> wasmtime::Result<Header> {
        let (mut memories, mut globals) = (Vec::with_capacity(self.memories.len()), Vec::new());
        for memory in &self.memories {
            memories.push(memory.pages.call_async(&mut *store, ()).await?.0);
        }
        for cell in &self.globals {
            for slot in 0..cell.slots.call_async(&mut *store, ()).await?.0 {
                globals.push(cell.get.call_async(&mut *store, (slot,)).await?.0);
            }
        }
        store.data_mut().meter.begin_call();
        Ok(Header { version: VERSION, config: self.config, memories, globals })
    }

    /// Checks that an image with this header fits, and grows the memories to the sizes that it has.
    async fn make_room(&self, store: &mut Store<HostState>, of: &Header, now: &Header) -> Result<(), ImageFault> {
        if of.version != VERSION {
            let version = of.version;
            return unfit(format!(
                "its image is of version {version}, and this weir takes and puts back images of version {VERSION}: use \
                 the weir that took it, or start anew with --fresh"
            ));
        }
        if of.config != self.config {
            return unfit(
                "its image was taken with another `config`: memory holds what `open` made of that one, and `open` is not \
                 called again; set config back, or start anew with --fresh",
            );
        }
        let shape = |header: &Header| (header.memories.len(), header.globals.len());
        if shape(of) != shape(now) {
            let ((memories, globals), (own_memories, own_globals)) = (shape(of), shape(now));
            return unfit(format!(
                "its image has {memories} memories and {globals} globals, and the plugin has {own_memories} and \
                 {own_globals}: it is of another plugin"
            ));
        }
        for (number, memory) in self.memories.iter().enumerate() {
            let (want, have) = (of.memories[number], now.memories[number]);
            if want < have {
                return unfit(format!(
                    "memory {number} of its image has {want} pages of 64 KiB, and the instance has {have} already: \
                     memory cannot shrink"
                ));
            }
            if want > have && memory.grow.call_async(&mut *store, (want - have,)).await?.0 == u32::MAX {
                return unfit(format!(
                    "memory {number} of its image has {want} pages of 64 KiB, and that of the plugin does not grow \
                     beyond {have}"
                ));
            }
        }
        Ok(())
    }

    /// Writes pages that lie side by side, in place.
    async fn put(
        &self,
        store: &mut Store<HostState>,
        header: &Header,
        run: Run<'_>,
        written: &mut PageSet,
    ) -> Result<(), ImageFault> {
        let Run { memory: number, first_page, bytes } = run;
        let pages = (bytes.len() / PAGE_BYTES) as u64;
        let size = header.memories.get(number as usize).map(|&size| u64::from(size) * PAGES_PER_WASM_PAGE);
        let (Some(size), Some(memory)) = (size, self.memories.get(number as usize)) else {
            return unfit(format!("its image has pages of memory {number}, and there are {}", self.memories.len()));
        };
        if u64::from(first_page) + pages > size {
            return unfit(format!(
                "its image has {pages} pages from page {first_page} of memory {number}, which has {size} pages of 4 KiB"
            ));
        }
        memory.write(store, u64::from(first_page) * PAGE_BYTES as u64, bytes).await?;
        (first_page..).take(pages as usize).for_each(|page| written.insert(number as usize, page));
        Ok(())
    }

    /// Clears the pages that the image does not mention, which a fresh instance may have filled, and notes what all pages
    /// are now.
    async fn clear_the_rest(
        &self,
        store: &mut Store<HostState>,
        header: &Header,
        written: &PageSet,
    ) -> wasmtime::Result<Hashes> {
        let mut hashes = Hashes::new(self.memories.len());
        for (number, memory) in self.memories.iter().enumerate() {
            for (start, len) in pieces(header.memories[number]) {
                let list = memory.read(store, start, len, header.memories[number]).await?;
                let mut filled = Vec::new();
                let bytes = list.as_le_slice(&*store);
                for (page, bytes) in (page_of(start)..).zip(bytes.chunks_exact(PAGE_BYTES)) {
                    if !hashes.note(number, page, bytes).zero && !written.contains(number, page) {
                        filled.push(page);
                    }
                }
                memory.settle(store).await?;
                for page in filled {
                    let zeros = &[0; PAGE_BYTES];
                    memory.write(store, u64::from(page) * PAGE_BYTES as u64, zeros).await?;
                    hashes.note(number, page, zeros);
                }
            }
        }
        Ok(hashes)
    }

    async fn put_globals(&self, store: &mut Store<HostState>, values: &[u64]) -> wasmtime::Result<()> {
        let mut values = values.iter();
        for cell in &self.globals {
            let slots = cell.slots.call_async(&mut *store, ()).await?.0;
            for (slot, &value) in (0..slots).zip(values.by_ref()) {
                cell.set.call_async(&mut *store, (slot, value)).await?;
            }
        }
        Ok(())
    }
}

impl Memory {
    /// Lends what lies there, until `settle`. The eight bytes that this borrows are elsewhere.
    async fn read(
        &self,
        store: &mut Store<HostState>,
        start: u64,
        len: u64,
        wasm_pages: u32,
    ) -> wasmtime::Result<WasmList<u8>> {
        let size = u64::from(wasm_pages) * WASM_PAGE_BYTES;
        let borrowed = if start >= BORROWED_BYTES { 0 } else { size - BORROWED_BYTES };
        // Addresses are of 32 bits, and a piece is shorter.
        let call = (start as u32, len as u32, borrowed as u32);
        let (list,) = self.read.call_async(&mut *store, call).await?;
        // That the host reads is not charged to the guest.
        store.data_mut().meter.begin_call();
        Ok(list)
    }

    async fn settle(&self, store: &mut Store<HostState>) -> wasmtime::Result<()> {
        self.settle.call_async(&mut *store, ()).await
    }

    async fn write(&self, store: &mut Store<HostState>, to: u64, bytes: &[u8]) -> wasmtime::Result<()> {
        self.at.call_async(&mut *store, (to as u32,)).await?;
        let write = self.write.typed::<(&[u8],), ()>(&*store)?;
        write.call_async(&mut *store, (bytes,)).await?;
        store.data_mut().meter.begin_call();
        Ok(())
    }
}

/// The pieces in which a memory is read, by start and length. The first is a page alone, so that what is borrowed for it lies behind it,
/// and for all others before them.
fn pieces(wasm_pages: u32) -> impl Iterator<Item = (u64, u64)> {
    let (size, page) = (u64::from(wasm_pages) * WASM_PAGE_BYTES, PAGE_BYTES as u64);
    let mut start = 0;
    std::iter::from_fn(move || {
        let end = if start == 0 { page } else { (start / PIECE_BYTES + 1) * PIECE_BYTES }.min(size);
        let piece = (start, end - start);
        (start < size).then(|| {
            start = end;
            piece
        })
    })
}

/// The number of the page that begins at an address.
fn page_of(address: u64) -> u32 {
    (address / PAGE_BYTES as u64) as u32
}

/// What a snapshot is written to.
struct Sink {
    kind: SegmentKind,
    /// Until it was written.
    header: Option<Vec<u8>>,
    pages: PageWriter,
}

impl Sink {
    /// Hands over the chunks that are full, after the header.
    fn hand_over(&mut self, store: &mut Store<HostState>, writer: &mut dyn SnapshotWriter) -> Result<(), ImageFault> {
        let chunks = self.pages.take();
        if !chunks.is_empty() {
            self.hand_over_header(store, writer)?;
        }
        chunks.iter().try_for_each(|chunk| self.write(store, writer, chunk))
    }

    fn hand_over_header(
        &mut self,
        store: &mut Store<HostState>,
        writer: &mut dyn SnapshotWriter,
    ) -> Result<(), ImageFault> {
        match self.header.take() {
            Some(header) => self.write(store, writer, &header),
            None => Ok(()),
        }
    }

    /// An image is a cut only if all of it is taken at once, so "soon" is not possible when the writer asks for it.
    fn write(
        &self,
        store: &mut Store<HostState>,
        writer: &mut dyn SnapshotWriter,
        chunk: &[u8],
    ) -> Result<(), ImageFault> {
        let spent = store.data_mut().meter.spend_state(chunk.len() as u64 + ITEM_BYTES);
        spent.map_err(|breach| ImageFault::Host(breach.into()))?;
        writer.write(Scope::Subtask, self.kind, chunk);
        Ok(())
    }
}
