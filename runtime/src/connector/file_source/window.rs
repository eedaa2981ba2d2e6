//! A window on the unpacked stream of one file: what has been read and not yet taken, and the last bytes that were.
//!
//! It grows only as far as a caller refuses to take what is in it, and knows nothing of records. The bytes kept
//! behind the reading point let a position carry a hash of what stood before it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use flate2::read::MultiGzDecoder;

/// How much stays behind the reading point, in bytes.
pub(super) const TAIL_BYTES: usize = 4096;

/// How much is asked of the file at a time, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// The unpacked stream.
enum Stream {
    Plain(File),
    Gzip(Box<MultiGzDecoder<io::BufReader<File>>>),
}

pub(super) struct Window {
    stream: Stream,
    buffer: Vec<u8>,
    /// The reading point, an index into `buffer`.
    start: usize,
    /// The end of what was read, an index into `buffer`.
    end: usize,
    /// The offset in the stream of the first byte in `buffer`.
    base: u64,
    at_end: bool,
}

impl Window {
    pub(super) fn new(file: File, gzip: bool) -> Self {
        let stream = if gzip {
            Stream::Gzip(Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(64 << 10, file))))
        } else {
            Stream::Plain(file)
        };
        Self { stream, buffer: Vec::new(), start: 0, end: 0, base: 0, at_end: false }
    }

    /// What has been read and not yet taken.
    #[inline]
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Takes `bytes` of what is unread.
    #[inline]
    pub(super) fn take(&mut self, bytes: usize) {
        debug_assert!(self.start + bytes <= self.end);
        self.start += bytes;
    }

    /// The last `bytes` that were taken; they stay until the next `fill`.
    pub(super) fn taken(&self, bytes: usize) -> &[u8] {
        &self.buffer[self.start - bytes..self.start]
    }

    /// The offset of the reading point in the stream.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// The offset up to which the stream was read.
    pub(super) fn read_to(&self) -> u64 {
        self.base + self.end as u64
    }

    /// Up to [`TAIL_BYTES`] before the reading point.
    pub(super) fn tail(&self) -> &[u8] {
        &self.buffer[self.start.saturating_sub(TAIL_BYTES)..self.start]
    }

    /// Whether the last `fill` found the end of the stream. A file that grows may have more later.
    pub(super) fn at_end(&self) -> bool {
        self.at_end
    }

    /// Reads on. Returns whether there was anything.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        if self.buffer.len() - self.end < CHUNK_BYTES / 2 {
            let keep = self.start.saturating_sub(TAIL_BYTES);
            self.buffer.copy_within(keep..self.end, 0);
            self.base += keep as u64;
            self.start -= keep;
            self.end -= keep;
            let wanted = self.end + CHUNK_BYTES;
            if self.buffer.len() < wanted {
                // Twice as long when a long record is being collected, so that its bytes are moved few times.
                self.buffer.resize(wanted.max(self.end * 2), 0);
            } else if self.buffer.len() > 4 * wanted {
                self.buffer.truncate(wanted);
                self.buffer.shrink_to_fit();
            }
        }
        let room_end = self.buffer.len().min(self.end + CHUNK_BYTES);
        let room = &mut self.buffer[self.end..room_end];
        let read = loop {
            let read = match &mut self.stream {
                Stream::Plain(file) => file.read(room),
                Stream::Gzip(decoder) => decoder.read(room),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.end += read;
        self.at_end = read == 0;
        Ok(read > 0)
    }

    /// Moves the reading point on to `offset`, and makes sure that the bytes before it are there for `tail`. Returns
    /// whether the stream goes that far.
    pub(super) fn skip_to(&mut self, offset: u64) -> io::Result<bool> {
        let from = offset.saturating_sub(TAIL_BYTES as u64);
        let read_to = self.read_to();
        if let Stream::Plain(file) = &mut self.stream
            && from > read_to
        {
            file.seek(SeekFrom::Start(from))?;
            (self.start, self.end, self.base) = (0, 0, from);
        }
        while self.read_to() < offset {
            self.start = self.end;
            if !self.fill()? {
                return Ok(false);
            }
        }
        self.start = (offset - self.base) as usize;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_bytes_before_any_offset_are_found_again_in_plain_and_packed_files() {
        let text: Vec<u8> = (0..700_000_u32).map(|i| (i % 251) as u8).collect();
        let mut plain = tempfile::tempfile().unwrap();
        plain.write_all(&text).unwrap();
        let mut packed = tempfile::tempfile().unwrap();
        // Two members, as `cat a.gz b.gz` makes them.
        for half in text.chunks(400_000) {
            let mut encoder = flate2::write::GzEncoder::new(&packed, flate2::Compression::fast());
            encoder.write_all(half).unwrap();
            encoder.finish().unwrap();
        }
        for (file, gzip) in [(&mut plain, false), (&mut packed, true)] {
            for offset in [0_usize, 1, 4095, 4096, 4097, 262_144, 399_999, 600_000, 700_000] {
                file.seek(SeekFrom::Start(0)).unwrap();
                let mut window = Window::new(file.try_clone().unwrap(), gzip);
                window.fill().unwrap();
                assert!(window.skip_to(offset as u64).unwrap());
                assert_eq!(window.offset(), offset as u64);
                assert_eq!(window.tail(), &text[offset.saturating_sub(TAIL_BYTES)..offset]);
                let mut rest = Vec::new();
                loop {
                    rest.extend_from_slice(window.unread());
                    window.take(window.unread().len());
                    if !window.fill().unwrap() {
                        break;
                    }
                }
                assert_eq!(rest, &text[offset..]);
            }
            file.seek(SeekFrom::Start(0)).unwrap();
            assert!(!Window::new(file.try_clone().unwrap(), gzip).skip_to(700_001).unwrap());
        }
    }
}
