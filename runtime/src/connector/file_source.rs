//! Files as a source: lines, JSON lines or CSV, plain or gzip, read to their end or followed as they grow.
//!
//! ```text
//! splits ──► window ──► cutter ──► one record ──► values, event times
//! (files)    (bytes)    (bounds)       └── malformed ──► fail, skip, dead letter
//! ```
//!
//! A position stands between two records of the unpacked stream and carries a fingerprint of what was read up to
//! there. A file that is gone, shorter or different is refused at open, never read from its beginning again. Files are
//! read one after the other in the order of their names; one that is followed is gone back to when it has grown, and
//! packed files are taken as complete even then.
//!
//! Of lines, each is a value as it is. Empty lines are values among lines, and nothing between JSON values and CSV
//! rows. CR before LF belongs to the line break, and a byte order mark at the beginning of a file to nobody.

mod csv;
mod cutter;
mod malformed;
mod reader;
mod splits;
mod window;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use self::malformed::Malformed;
use self::reader::{FileReader, Next, Raw};
use self::splits::{Fingerprint, Offset, Splits};
use super::watch::{Coverage, Watch};
use super::{ConnectorError, Polled, Source, TaskContext};
use crate::model::{Batch, BatchLimit, NO_TIME, SplitPosition};
use crate::plan::{FileSourceSpec, OnError, SourceSpec};

/// How long a source that follows waits before it looks for more. Twice as long each time that there is nothing.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The longest time.
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(1);
/// The longest time where the operating system tells what changes.
const LOOK_ANYWAY: Duration = Duration::from_secs(10);

/// The most bytes of values in one batch, whatever its limit says: offsets have 32 bits.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// How much is read in one poll that finds hardly any records, in bytes.
const POLL_BYTES_MAX: u64 = 4 << 20;

pub(super) struct FileSource {
    spec: SourceSpec,
    file: FileSourceSpec,
    splits: Splits,
    /// The file that is being read, by its number in `splits`.
    current: Option<(usize, FileReader)>,
    /// Tells when there may be more.
    watch: Watch,
    /// How often in a row there was nothing.
    vain_looks: u32,
    /// How many bytes of values the last batch had: about what the next one will have.
    last_bytes: usize,
    /// What the last poll did, where the number of its records does not say it.
    trace: Vec<Step>,
}

/// A step of a poll, for a replay. Which files there are, which of them has grown and where a file ended for now depends on when
/// one looks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Step {
    /// It began at its beginning, with these files and their numbers.
    Began(Vec<(String, Option<u64>)>),
    /// A file was found.
    Found(String),
    /// A file was read.
    Read {
        /// Its number in the list of then.
        file: u32,
        /// Up to here, in bytes from where it had been.
        bytes: u64,
        /// Whether it was left, and if so, whether for good.
        left: Option<bool>,
    },
}

/// What one poll gathers.
#[derive(Default)]
struct Gathered {
    records: Batch,
    rejected: Batch,
    skipped: u64,
}

impl Gathered {
    fn len(&self) -> usize {
        self.records.len() + self.rejected.len() + self.skipped as usize
    }

    fn bytes(&self) -> usize {
        self.records.values.bytes.len() + self.rejected.values.bytes.len()
    }
}

impl FileSource {
    pub(super) fn open(
        spec: &SourceSpec,
        file: &FileSourceSpec,
        dir: &Path,
        context: &TaskContext,
        positions: &[SplitPosition],
    ) -> Result<Self, ConnectorError> {
        let splits = Splits::open(file, dir, context, positions)?;
        let mut source = Self {
            spec: spec.clone(),
            file: file.clone(),
            splits,
            current: None,
            watch: Watch::default(),
            vain_looks: 0,
            last_bytes: 0,
            trace: Vec::new(),
        };
        if positions.is_empty() {
            source.trace.push(Step::Began(source.splits.begun()));
        }
        // Every file that was begun is compared with its fingerprint, before anything is read from any.
        for at in 0..source.splits.list.len() {
            let offset = source.splits.list[at].offset;
            if offset.bytes == 0 && !offset.done {
                continue;
            }
            let reader = source.open_reader(at)?;
            if !offset.done && source.current.is_none() {
                source.current = Some((at, reader));
            }
        }
        Ok(source)
    }

    fn open_reader(&self, at: usize) -> Result<FileReader, ConnectorError> {
        FileReader::open(&self.splits.list[at], &self.spec, &self.file)
    }

    /// Puts the position of the current file back in the list.
    fn leave(&mut self, done: bool) {
        if let Some((at, reader)) = self.current.take() {
            let (mut offset, fingerprint) = reader.position();
            offset.done = done;
            let split = &mut self.splits.list[at];
            (split.offset, split.fingerprint, split.seen_bytes) = (offset, fingerprint, reader.seen_bytes());
        }
    }

    /// Opens the next file that has something; false if none has.
    fn advance(&mut self) -> Result<bool, ConnectorError> {
        for look in 0..=usize::from(self.file.follow) {
            if look > 0 {
                let found = self.splits.look_again()?;
                self.trace.extend(found.into_iter().map(Step::Found));
            }
            for at in 0..self.splits.list.len() {
                let split = &self.splits.list[at];
                if split.offset.done {
                    continue;
                }
                if self.file.follow && !reader::has_grown(split, &self.file)? {
                    continue;
                }
                let reader = self.open_reader(at)?;
                self.current = Some((at, reader));
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn malformed(
        &self,
        raw: &Raw<'_>,
        reason: malformed::Reason,
        at: usize,
        out: &mut Gathered,
    ) -> Result<(), ConnectorError> {
        let split = &self.splits.list[at];
        let malformed = Malformed {
            source: self.spec.name.as_str(),
            file: &split.name,
            path: &split.path,
            line: raw.line,
            offset: raw.offset,
            reason,
            raw: raw.body,
            bytes: raw.bytes,
        };
        match self.spec.on_error {
            OnError::Fail => return Err(malformed.error()),
            OnError::Skip => out.skipped += 1,
            OnError::DeadLetter => out.rejected.push(NO_TIME, None, Some(&malformed.dead_letter())),
        }
        Ok(())
    }

    fn gather(&mut self, limit: BatchLimit) -> Result<Polled, ConnectorError> {
        let mut out = Gathered::default();
        self.trace.clear();
        out.records.values.bytes.reserve(self.last_bytes);
        let mut budget = POLL_BYTES_MAX.max(limit.bytes as u64);
        let (records_max, bytes_max) = (limit.records.max(1), limit.bytes.clamp(1, BATCH_BYTES_MAX));
        let nothing_more = loop {
            let (at, mut reader) = match self.current.take() {
                Some(current) => current,
                None if self.advance()? => continue,
                None => break true,
            };
            let begin = reader.consumed();
            let from = reader.offset();
            let mut full = false;
            let ended = loop {
                if out.len() >= records_max || out.bytes() >= bytes_max {
                    full = true;
                    break None;
                }
                if reader.consumed() - begin >= budget {
                    break None;
                }
                match reader.next(&mut out.records)? {
                    Next::Record | Next::Nothing => {}
                    Next::Malformed(raw, reason) => self.malformed(&raw, reason, at, &mut out)?,
                    Next::Wait => break Some(false),
                    Next::End => break Some(true),
                }
            };
            budget = budget.saturating_sub(reader.consumed() - begin);
            let bytes = reader.offset() - from;
            // A poll that is full stands behind its last record, and in a bounded source nothing but the end of a file leads on.
            let is_plain = full && !self.file.follow && self.trace.is_empty();
            if !is_plain && (bytes > 0 || ended == Some(true)) {
                self.trace.push(Step::Read { file: at as u32, bytes, left: ended });
            }
            self.current = Some((at, reader));
            match ended {
                Some(done) => self.leave(done),
                None => break false,
            }
        };
        if out.len() > 0 {
            self.vain_looks = 0;
            self.last_bytes = out.records.values.bytes.len();
            let Gathered { records, rejected, skipped } = out;
            return Ok(Polled::Records { records, rejected, skipped });
        }
        Ok(match (nothing_more, self.file.follow) {
            (true, true) => Polled::Pending(self.look_again_in()),
            (true, false) => Polled::End,
            // Much was read and no record came of it yet.
            (false, _) => Polled::Pending(Duration::ZERO),
        })
    }

    /// How long to wait before the next look, after there was nothing.
    fn look_again_in(&mut self) -> Duration {
        let coverage = match self.splits.folder() {
            Some(folder) => self.watch.look(folder),
            None => {
                self.watch.end();
                Coverage::None
            }
        };
        let longest = match coverage {
            // What came while nobody told it.
            Coverage::Begins => LOOK_AGAIN,
            Coverage::None => LOOK_AGAIN_MAX,
            Coverage::Full => LOOK_ANYWAY,
        };
        let pause = LOOK_AGAIN.saturating_mul(1 << self.vain_looks.min(16));
        self.vain_looks = self.vain_looks.saturating_add(1);
        pause.min(longest)
    }

    /// Does the steps of a poll again.
    fn repeat_steps(&mut self, steps: Vec<Step>) -> Result<Polled, ConnectorError> {
        let mut out = Gathered::default();
        for step in steps {
            let (file, bytes, left) = match step {
                Step::Began(files) => {
                    self.current = None;
                    self.splits.begin_again(files);
                    continue;
                }
                Step::Found(name) => {
                    self.splits.found_again(name);
                    continue;
                }
                Step::Read { file, bytes, left } => (file as usize, bytes, left),
            };
            if self.splits.list.get(file).is_none() {
                let files = self.splits.list.len();
                return Err(ConnectorError::mismatch(format!(
                    "file number {file} was read in the recorded epoch, and there are {files} now"
                ))
                .help("put the files back as they were"));
            }
            if self.current.as_ref().is_some_and(|(at, _)| *at != file) {
                self.leave(false);
            }
            let mut reader = match self.current.take() {
                Some((_, reader)) => reader,
                None => self.open_reader(file)?,
            };
            let end = reader.offset().saturating_add(bytes);
            while reader.offset() < end {
                match reader.next(&mut out.records)? {
                    Next::Record | Next::Nothing => {}
                    Next::Malformed(raw, reason) => self.malformed(&raw, reason, file, &mut out)?,
                    Next::Wait | Next::End => break,
                }
            }
            if reader.offset() != end {
                let path = self.splits.list[file].path.display();
                return Err(ConnectorError::mismatch(format!(
                    "file {path} has no record that ends at byte {end}, where one had ended: it was changed"
                ))
                .help("put the file back as it was"));
            }
            self.current = Some((file, reader));
            if let Some(done) = left {
                self.leave(done);
            }
        }
        let Gathered { records, rejected, skipped } = out;
        Ok(Polled::Records { records, rejected, skipped })
    }
}

#[async_trait]
impl Source for FileSource {
    async fn poll(&mut self, limit: BatchLimit) -> Result<Polled, ConnectorError> {
        self.gather(limit)
    }

    async fn changed(&mut self) {
        self.watch.changed().await;
        self.vain_looks = 0;
    }

    fn trace(&mut self) -> Vec<u8> {
        match self.trace.is_empty() {
            true => Vec::new(),
            false => postcard::to_stdvec(&std::mem::take(&mut self.trace)).unwrap_or_default(),
        }
    }

    async fn repeat(&mut self, count: u64, trace: &[u8]) -> Result<Polled, ConnectorError> {
        if trace.is_empty() {
            return super::poll_count(self, count).await;
        }
        let steps = postcard::from_bytes(trace)
            .map_err(|e| ConnectorError::mismatch("what is recorded of a file source does not decode").caused_by(e))?;
        self.repeat_steps(steps)
    }

    fn positions(&self) -> Vec<SplitPosition> {
        let current = self.current.as_ref().map(|(at, reader)| (*at, reader.position()));
        self.splits.positions(self.splits.list.iter().enumerate().map(|(at, split)| {
            let (offset, fingerprint): (Offset, Fingerprint) = match current {
                Some((number, position)) if number == at => position,
                _ => (split.offset, split.fingerprint),
            };
            (split.name.as_str(), offset, fingerprint)
        }))
    }
}

#[cfg(test)]
mod tests;
