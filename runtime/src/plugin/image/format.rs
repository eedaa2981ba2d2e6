//! How an image is written: chunks of state, which are made of a header and of pages.
//!
//! ```text
//! header   0x01, postcard: instrumenter version, digest of the configuration, size of each memory, every global
//! pages    0x02, then runs: memory u32, first page u32, number of pages u32, their bytes     (little-endian)
//! ```
//!
//! A snapshot is one header and then its pages. As a base it holds every page that is not all zeros, and pages that it does not mention are
//! zeros; as a delta it holds those that have changed. In a base a chunk holds the pages of one aligned block, so that blocks which
//! stay the same are the same chunk again.

use serde::{Deserialize, Serialize};

/// The unit of change, in bytes: what memory is managed in by the machines that this runs on.
pub(super) const PAGE_BYTES: usize = 4096;

/// The most pages of a chunk: 256 KiB, as `wit/snapshots.wit` recommends.
pub(super) const CHUNK_PAGES: u32 = 64;

const HEADER: u8 = 1;
const PAGES: u8 = 2;

/// What an image holds besides pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// The instrumenter that made the accessors: in which order memories and globals come.
    pub(super) version: u32,
    /// The blake3 of the configuration that the instance was opened with.
    pub(super) config: [u8; 32],
    /// The size of each memory in Wasm pages of 64 KiB.
    pub(super) memories: Vec<u32>,
    /// The bits of each global.
    pub(super) globals: Vec<u64>,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        // Numbers and lists of numbers always encode.
        postcard::to_extend(self, vec![HEADER]).unwrap_or_default()
    }
}

/// Pages that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run<'a> {
    pub(super) memory: u32,
    pub(super) first_page: u32,
    pub(super) bytes: &'a [u8],
}

/// What a chunk holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Header(Header),
    Pages(Vec<Run<'a>>),
}

/// Reads a chunk, and believes nothing of it.
pub(super) fn decode(chunk: &[u8]) -> Result<Part<'_>, String> {
    match chunk.split_first() {
        Some((&HEADER, rest)) => match postcard::take_from_bytes(rest) {
            Ok((header, [])) => Ok(Part::Header(header)),
            Ok((_, left)) => Err(format!("its header has {} bytes too many", left.len())),
            Err(error) => Err(format!("its header cannot be read: {error}")),
        },
        Some((&PAGES, mut rest)) => {
            let mut runs = Vec::new();
            while !rest.is_empty() {
                let mut number = || -> Result<u32, String> {
                    let (bytes, after) = rest.split_first_chunk::<4>().ok_or("a run of its pages is cut short")?;
                    rest = after;
                    Ok(u32::from_le_bytes(*bytes))
                };
                let (memory, first_page, pages) = (number()?, number()?, number()?);
                let len = (pages as usize).saturating_mul(PAGE_BYTES);
                if pages == 0 || len > rest.len() {
                    return Err(format!("a run of {pages} pages, and {} bytes follow", rest.len()));
                }
                let (bytes, after) = rest.split_at(len);
                rest = after;
                runs.push(Run { memory, first_page, bytes });
            }
            Ok(Part::Pages(runs))
        }
        Some((kind, _)) => Err(format!("it begins with {kind}, which is no part of an image")),
        None => Err("it is empty".to_owned()),
    }
}

/// Gathers pages into chunks.
#[derive(Debug)]
pub(super) struct PageWriter {
    /// A chunk ends with its block of [`CHUNK_PAGES`] pages, and not only when it is full.
    aligned: bool,
    done: Vec<Vec<u8>>,
    chunk: Vec<u8>,
    pages: u32,
    /// The last run: its memory, the page after it, and where its number of pages stands.
    run: Option<(u32, u32, usize)>,
}

impl PageWriter {
    pub(super) fn new(aligned: bool) -> Self {
        Self { aligned, done: Vec::new(), chunk: Vec::new(), pages: 0, run: None }
    }

    /// Adds a page. Memories and the pages in them come in ascending order.
    pub(super) fn push(&mut self, memory: u32, page: u32, bytes: &[u8]) {
        let other_block = |(of, next, _): (u32, u32, usize)| {
            of != memory || next.saturating_sub(1) / CHUNK_PAGES != page / CHUNK_PAGES
        };
        if self.pages == CHUNK_PAGES || self.aligned && self.run.is_some_and(other_block) {
            self.close();
        }
        if self.chunk.is_empty() {
            self.chunk.push(PAGES);
        }
        let count_at = match self.run {
            Some((of, next, count_at)) if of == memory && next == page => count_at,
            _ => {
                self.chunk.extend_from_slice(&memory.to_le_bytes());
                self.chunk.extend_from_slice(&page.to_le_bytes());
                self.chunk.extend_from_slice(&0_u32.to_le_bytes());
                self.chunk.len() - 4
            }
        };
        if let Some((count, _)) = self.chunk[count_at..].split_first_chunk_mut::<4>() {
            *count = (u32::from_le_bytes(*count) + 1).to_le_bytes();
        }
        self.chunk.extend_from_slice(bytes);
        self.run = Some((memory, page + 1, count_at));
        self.pages += 1;
    }

    /// Ends the chunk that is being filled, if there is one.
    pub(super) fn close(&mut self) {
        if self.pages > 0 {
            self.done.push(std::mem::take(&mut self.chunk));
        }
        (self.pages, self.run) = (0, None);
    }

    /// The chunks that have ended since this was last asked.
    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.done)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(byte: u8) -> Vec<u8> {
        vec![byte; PAGE_BYTES]
    }

    #[test]
    fn a_header_comes_back_as_it_was_written() {
        let header = Header { version: 7, config: [3; 32], memories: vec![1, 65_536], globals: vec![0, u64::MAX] };
        assert_eq!(decode(&header.encode()), Ok(Part::Header(header)));
    }

    proptest! {
        #[test]
        fn pages_come_back_where_they_were(
            pages in prop::collection::btree_set((0..2_u32, 0..300_u32), 1..200),
            aligned in any::<bool>(),
        ) {
            let mut writer = PageWriter::new(aligned);
            for &(memory, number) in &pages {
                writer.push(memory, number, &page(number as u8));
            }
            writer.close();
            let chunks = writer.take();
            let mut found = std::collections::BTreeSet::new();
            for chunk in &chunks {
                let Ok(Part::Pages(runs)) = decode(chunk) else { panic!("no pages") };
                let mut in_chunk = Vec::new();
                for run in &runs {
                    for (offset, bytes) in run.bytes.chunks(PAGE_BYTES).enumerate() {
                        let number = run.first_page + offset as u32;
                        prop_assert_eq!(bytes, &page(number as u8)[..]);
                        in_chunk.push((run.memory, number));
                    }
                }
                // Runs are as long as they can be, and a chunk of a base stays within its block.
                for (run, next) in runs.iter().zip(&runs[1..]) {
                    let end = run.first_page + (run.bytes.len() / PAGE_BYTES) as u32;
                    prop_assert!((run.memory, end) != (next.memory, next.first_page));
                }
                let block = |&(memory, number): &(u32, u32)| (memory, number / CHUNK_PAGES);
                prop_assert!(!aligned || in_chunk.iter().all(|at| block(at) == block(&in_chunk[0])));
                prop_assert!(in_chunk.len() <= CHUNK_PAGES as usize);
                found.extend(in_chunk);
            }
            prop_assert_eq!(found, pages);
        }

        #[test]
        fn no_bytes_make_reading_a_chunk_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), cut in 2..4_000_usize) {
            let _ = decode(&bytes);
            let mut writer = PageWriter::new(false);
            writer.push(0, 3, &page(1));
            writer.close();
            prop_assert!(decode(&writer.take()[0][..cut]).is_err());
        }
    }

    #[test]
    fn what_is_no_part_of_an_image_is_named() {
        for (chunk, text) in [
            (&[][..], "it is empty"),
            (&[9, 1], "it begins with 9, which is no part of an image"),
            (&[HEADER, 1], "its header cannot be read"),
            (&[PAGES, 0, 0, 0], "cut short"),
            (&[PAGES, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1], "a run of 2 pages, and 1 bytes follow"),
        ] {
            let error = decode(chunk).expect_err("it is no chunk");
            assert!(error.contains(text), "{error}");
        }
    }
}
