//! One open file of a source: gives its records one by one and knows its position between them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::event_time;
use super::super::{ConnectorError, confined};
use super::csv::Header;
use super::cutter::{Cut, Cutter};
use super::malformed::{RAW_BYTES_MAX, Reason};
use super::splits::{Fingerprint, Offset, Split};
use super::window::Window;
use crate::model::{Batch, NO_TIME, RECORD_BYTES_MAX, Timestamp};
use crate::plan::{Compression, CsvSpec, FileSourceSpec, SourceFormat, SourceSpec, TimeUnit};
use crate::pointer::Pointer;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub(super) struct FileReader {
    path: PathBuf,
    file: File,
    packed_bytes: Option<u64>,
    follow: bool,
    window: Window,
    cutter: Cutter,
    decode: Decode,
    /// The first bytes of the file, as it lies on disk.
    head: Vec<u8>,
    index: Option<u64>,
    /// Line breaks before the reading point.
    lines: u64,
    /// A record that is too long to keep is being passed over.
    oversize: Option<Oversize>,
    /// The first bytes of the last one that was.
    kept: Vec<u8>,
    /// There is a byte order mark.
    marked: bool,
    done: bool,
}

/// How a record becomes a value.
enum Decode {
    Lines {
        time: Option<(Pointer, Option<TimeUnit>)>,
    },
    Json {
        time: Option<(Pointer, Option<TimeUnit>)>,
    },
    /// The header comes first.
    CsvHeader {
        spec: CsvSpec,
        time: Option<(Pointer, Option<TimeUnit>)>,
    },
    Csv(Header),
}

struct Oversize {
    /// Where the record begins: the position until it is over.
    offset: u64,
    lines: u64,
    fingerprint: Fingerprint,
    /// Its first bytes.
    prefix: Vec<u8>,
}

/// A record that cannot be used, and where it stands.
pub(super) struct Raw<'a> {
    pub(super) line: u64,
    pub(super) offset: u64,
    pub(super) body: &'a [u8],
    pub(super) bytes: u64,
}

pub(super) enum Next<'a> {
    /// One was added.
    Record,
    /// Something was passed over that is no record.
    Nothing,
    /// One cannot be used.
    Malformed(Raw<'a>, Reason),
    /// The rest is not a whole record, or nothing, and may grow.
    Wait,
    /// There is nothing more, for good.
    End,
}

/// Whether a file that is followed has more than when it was last looked at.
pub(super) fn has_grown(split: &Split, spec: &FileSourceSpec) -> Result<bool, ConnectorError> {
    let bytes = match confined::length(spec.root.as_deref(), &split.path) {
        Ok(bytes) => bytes,
        Err(error) => return Err(cannot_open(&split.path, split.offset, error)),
    };
    if split.fingerprint.packed_bytes.is_none() && bytes < split.offset.bytes {
        return Err(shorter(&split.path, split.offset.bytes, bytes));
    }
    Ok(bytes > split.seen_bytes)
}

fn cannot_open(path: &Path, offset: Offset, error: io::Error) -> ConnectorError {
    if error.kind() != io::ErrorKind::NotFound {
        return ConnectorError::io("read", path, error);
    }
    let read = if offset.done { "all".into() } else { format!("{} bytes", offset.bytes) };
    ConnectorError::mismatch(format!("file {} is gone, of which {read} had been read", path.display()))
        .caused_by(error)
        .help(REMEDY)
}

fn shorter(path: &Path, expected: u64, found: u64) -> ConnectorError {
    ConnectorError::mismatch(format!(
        "file {} has {found} bytes, and at least {expected} had been read from it",
        path.display()
    ))
    .help(REMEDY)
}

const REMEDY: &str = "put the file back as it was, or start over with --fresh, which reads everything again";

impl FileReader {
    /// Opens a file where its position says, after comparing it with its fingerprint.
    pub(super) fn open(split: &Split, source: &SourceSpec, spec: &FileSourceSpec) -> Result<Self, ConnectorError> {
        let path = split.path.clone();
        let file = confined::open(spec.root.as_deref(), &path).map_err(|e| cannot_open(&path, split.offset, e))?;
        let gzip = match spec.compression {
            Compression::Auto => path.extension().is_some_and(|extension| extension == "gz"),
            Compression::Gzip => true,
            Compression::None => false,
        };
        let io = |e| ConnectorError::io("read", &path, e);
        let bytes = file.metadata().map_err(io)?.len();
        let mut reader = Self {
            packed_bytes: gzip.then_some(bytes),
            follow: spec.follow && !gzip,
            window: Window::new(file.try_clone().map_err(io)?, gzip),
            file,
            cutter: match &spec.format {
                SourceFormat::Csv(csv) => Cutter::csv(csv.delimiter),
                SourceFormat::Lines | SourceFormat::Json => Cutter::lines(),
            },
            decode: {
                let time = source.event_time.clone().map(|pointer| (pointer, source.event_time_unit));
                match &spec.format {
                    SourceFormat::Lines => Decode::Lines { time },
                    SourceFormat::Json => Decode::Json { time },
                    SourceFormat::Csv(csv) => Decode::CsvHeader { spec: csv.clone(), time },
                }
            },
            head: Vec::new(),
            index: split.offset.index,
            lines: 0,
            oversize: None,
            kept: Vec::new(),
            marked: false,
            done: split.offset.done,
            path,
        };
        let begun = split.offset.bytes > 0 || split.offset.done;
        if begun {
            reader.check_file(split, bytes)?;
        }
        if begun && !(split.offset.done && gzip) {
            reader.resume(split)?;
        }
        Ok(reader)
    }

    /// What can be compared without unpacking.
    fn check_file(&mut self, split: &Split, bytes: u64) -> Result<(), ConnectorError> {
        let print = &split.fingerprint;
        match (print.packed_bytes, self.packed_bytes) {
            (None, None) if bytes < split.offset.bytes => return Err(shorter(&self.path, split.offset.bytes, bytes)),
            (Some(expected), Some(found)) if expected != found => {
                return Err(ConnectorError::mismatch(format!(
                    "packed file {} has {found} bytes and had {expected} when it was read",
                    self.path.display()
                ))
                .help(REMEDY));
            }
            (None, Some(_)) | (Some(_), None) => {
                return Err(ConnectorError::mismatch(format!(
                    "file {} was {} when the checkpoint was taken",
                    self.path.display(),
                    if print.packed_bytes.is_some() { "read as gzip" } else { "not read as gzip" }
                ))
                .help("set compression of the source as it was"));
            }
            _ => {}
        }
        self.read_head()?;
        let covered = print.head_bytes as usize;
        if covered > self.head.len() || Fingerprint::hash(&self.head[..covered]) != print.head {
            return Err(self.different(&format!("its first {covered} bytes")));
        }
        Ok(())
    }

    fn different(&self, what: &str) -> ConnectorError {
        ConnectorError::mismatch(format!("file {} is not the one that was read: {what} differ", self.path.display()))
            .help(REMEDY)
    }

    fn resume(&mut self, split: &Split) -> Result<(), ConnectorError> {
        let offset = split.offset;
        if !offset.done {
            while matches!(self.decode, Decode::CsvHeader { .. }) && self.window.offset() < offset.bytes {
                match self.next(&mut Batch::default())? {
                    Next::Nothing => {}
                    _ => return Err(self.different("the header and what follows")),
                }
            }
        }
        if !self.window.skip_to(offset.bytes).map_err(|e| self.unreadable(e))? {
            return Err(shorter(&self.path, offset.bytes, self.window.read_to()));
        }
        self.lines = offset.lines;
        let covered = split.fingerprint.tail_bytes as usize;
        let tail = self.window.tail();
        if covered > tail.len() || Fingerprint::hash(&tail[tail.len() - covered..]) != split.fingerprint.tail {
            return Err(self.different(&format!("the {covered} bytes before byte {}", offset.bytes)));
        }
        Ok(())
    }

    /// Reads as much of the beginning of the file as a fingerprint can cover.
    fn read_head(&mut self) -> Result<(), ConnectorError> {
        while self.head.len() < Fingerprint::BYTES_MAX {
            let mut more = [0; Fingerprint::BYTES_MAX];
            let room = &mut more[self.head.len()..];
            match self.file.read_at(room, self.head.len() as u64) {
                Ok(0) => break,
                Ok(read) => self.head.extend_from_slice(&room[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ConnectorError::io("read", &self.path, error)),
            }
        }
        Ok(())
    }

    fn unreadable(&self, error: io::Error) -> ConnectorError {
        if self.packed_bytes.is_some()
            && matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
            )
        {
            return ConnectorError::mismatch(format!(
                "file {} cannot be unpacked after byte {} of its content",
                self.path.display(),
                self.window.read_to()
            ))
            .caused_by(error)
            .help("check it with `gzip -t`; a file that is still being written belongs under a name that is not read");
        }
        ConnectorError::io("read", &self.path, error)
    }

    /// The offset up to which records and what is between them were taken.
    pub(super) fn consumed(&self) -> u64 {
        self.window.offset()
    }

    /// Where reading would go on: the offset of [`position`](Self::position).
    pub(super) fn offset(&self) -> u64 {
        match (&self.oversize, self.window.offset()) {
            (Some(oversize), _) => oversize.offset,
            // A byte order mark alone is nothing that was read: the header after it must be found again.
            (None, offset) if self.marked && offset == BYTE_ORDER_MARK.len() as u64 => 0,
            (None, offset) => offset,
        }
    }

    /// How much of the file had been seen, as it lies on disk.
    pub(super) fn seen_bytes(&self) -> u64 {
        self.packed_bytes.unwrap_or(self.window.read_to())
    }

    /// Where reading goes on after the last record that was given, and what stood before it.
    pub(super) fn position(&self) -> (Offset, Fingerprint) {
        if let Some(oversize) = &self.oversize {
            let offset = Offset { index: self.index, bytes: oversize.offset, lines: oversize.lines, done: false };
            return (offset, oversize.fingerprint);
        }
        let bytes = self.offset();
        let offset = Offset { index: self.index, bytes, lines: self.lines, done: self.done };
        (offset, self.fingerprint(bytes))
    }

    fn fingerprint(&self, offset: u64) -> Fingerprint {
        // Of a plain file the head covers only what was read: more may have been appended since.
        let head_bytes = match self.packed_bytes {
            Some(_) => self.head.len(),
            None => self.head.len().min(usize::try_from(offset).unwrap_or(usize::MAX)),
        };
        let tail = self.window.tail();
        // What was taken after the offset is not before it: a byte order mark that nothing followed.
        let after = usize::try_from(self.window.offset() - offset).unwrap_or(usize::MAX);
        let tail = &tail[..tail.len().saturating_sub(after)];
        Fingerprint {
            packed_bytes: self.packed_bytes,
            head_bytes: head_bytes as u32,
            head: Fingerprint::hash(&self.head[..head_bytes]),
            tail_bytes: tail.len() as u32,
            tail: Fingerprint::hash(tail),
        }
    }

    /// The next record, added to `out` if it is well-formed.
    #[inline]
    pub(super) fn next(&mut self, out: &mut Batch) -> Result<Next<'_>, ConnectorError> {
        loop {
            if self.window.offset() == 0 && self.oversize.is_none() && !self.begin()? {
                return Ok(Next::Wait);
            }
            let last = self.window.at_end() && !self.follow;
            match self.cutter.cut(self.window.unread(), last) {
                Cut::Record { bytes, body, lines, closed } => return self.record(out, bytes, body, lines, closed),
                Cut::Blank { bytes, lines } => {
                    self.window.take(bytes);
                    self.lines += lines;
                    return Ok(Next::Nothing);
                }
                Cut::More => {
                    let held = self.window.unread().len();
                    if held > RECORD_BYTES_MAX || (held > 0 && self.oversize.is_some()) {
                        self.pass_over();
                        return Ok(Next::Nothing);
                    }
                    let more = self.window.fill().map_err(|e| self.unreadable(e))?;
                    self.read_head()?;
                    if !more && self.follow {
                        return Ok(Next::Wait);
                    }
                }
                Cut::End => {
                    self.done = true;
                    return Ok(Next::End);
                }
            }
        }
    }

    /// At the beginning of a file: false until there is enough of it to know whether it has a byte order mark.
    fn begin(&mut self) -> Result<bool, ConnectorError> {
        loop {
            let unread = self.window.unread();
            if unread.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(unread) {
                if self.window.fill().map_err(|e| self.unreadable(e))? {
                    continue;
                }
                if self.follow {
                    return Ok(false);
                }
                break;
            }
            if unread.starts_with(BYTE_ORDER_MARK) {
                self.window.take(BYTE_ORDER_MARK.len());
                self.marked = true;
            }
            break;
        }
        self.read_head()?;
        Ok(true)
    }

    /// Takes what there is of a record that is longer than any may be, and keeps its first bytes.
    #[cold]
    fn pass_over(&mut self) {
        if self.oversize.is_none() {
            let (offset, fingerprint) = self.position();
            let unread = self.window.unread();
            let prefix = unread[..unread.len().min(RAW_BYTES_MAX)].to_vec();
            self.oversize = Some(Oversize { offset: offset.bytes, lines: self.lines, fingerprint, prefix });
        }
        self.window.take(self.window.unread().len());
        self.cutter.forget();
    }

    #[inline]
    fn record(
        &mut self,
        out: &mut Batch,
        bytes: usize,
        body: usize,
        lines: u64,
        closed: bool,
    ) -> Result<Next<'_>, ConnectorError> {
        let line = self.lines + 1;
        let offset = self.window.offset();
        self.lines += lines;
        if self.oversize.is_some() || body > RECORD_BYTES_MAX {
            return self.too_large(bytes, body, line);
        }
        let outcome = if closed { self.decode(out, body) } else { Err(Refused::Record(Reason::Unclosed)) };
        match outcome {
            Ok(next) => {
                self.window.take(bytes);
                Ok(if next { Next::Record } else { Next::Nothing })
            }
            Err(Refused::Header(why)) => {
                Err(ConnectorError::mismatch(format!("the header of {} cannot be used: {why}", self.path.display()))
                    .help("mend the file or the settings of the source"))
            }
            Err(Refused::Record(reason)) => {
                self.window.take(bytes);
                let taken = self.window.taken(bytes);
                Ok(Next::Malformed(Raw { line, offset, body: &taken[..body], bytes: body as u64 }, reason))
            }
        }
    }

    #[cold]
    fn too_large(&mut self, bytes: usize, body: usize, line: u64) -> Result<Next<'_>, ConnectorError> {
        if matches!(self.decode, Decode::CsvHeader { .. }) {
            return Err(ConnectorError::mismatch(format!(
                "the header of {} takes more than {RECORD_BYTES_MAX} bytes",
                self.path.display()
            ))
            .help("mend the file or the settings of the source"));
        }
        let end = self.window.offset() + body as u64;
        let (offset, line, prefix) = match self.oversize.take() {
            Some(oversize) => (oversize.offset, oversize.lines + 1, oversize.prefix),
            None => (self.window.offset(), line, self.window.unread()[..body.min(RAW_BYTES_MAX)].to_vec()),
        };
        self.window.take(bytes);
        self.kept = prefix;
        Ok(Next::Malformed(Raw { line, offset, body: &self.kept, bytes: end - offset }, Reason::TooLarge))
    }

    /// Adds the record in the first `body` unread bytes. False if it was no record: a header, an empty line.
    #[inline]
    fn decode(&mut self, out: &mut Batch, body: usize) -> Result<bool, Refused> {
        let record = &self.window.unread()[..body];
        let time = match (&self.decode, &self.cutter) {
            (Decode::Csv(header), Cutter::Csv(cutter)) => {
                let (fields, ends) = cutter.fields();
                let begin = out.values.bytes.len();
                match header.write(fields, ends, &mut out.values.bytes) {
                    Ok(time) => {
                        if out.values.offsets.is_empty() {
                            out.values.offsets.push(0);
                        }
                        out.values.offsets.push(out.values.bytes.len() as u32);
                        out.timestamps.push(time.unwrap_or(NO_TIME));
                        return Ok(true);
                    }
                    Err(reason) => {
                        out.values.bytes.truncate(begin);
                        return Err(Refused::Record(reason));
                    }
                }
            }
            (Decode::CsvHeader { spec, time }, Cutter::Csv(cutter)) => {
                let (fields, ends) = cutter.fields();
                let header = Header::new(fields, ends, spec, time.as_ref()).map_err(Refused::Header)?;
                self.decode = Decode::Csv(header);
                return Ok(false);
            }
            (Decode::Json { time }, _) => {
                let text = std::str::from_utf8(record).map_err(|_| Refused::Record(Reason::NotUtf8))?;
                if text.bytes().all(|byte| byte.is_ascii_whitespace()) {
                    return Ok(false);
                }
                match time {
                    Some(time) => find_time(record, time)?,
                    None => {
                        serde_json::from_str::<serde::de::IgnoredAny>(text)
                            .map_err(|e| Refused::Record(Reason::NotJson(e)))?;
                        NO_TIME
                    }
                }
            }
            (Decode::Lines { time: Some(time) }, _) => find_time(record, time)?,
            _ => NO_TIME,
        };
        out.push(time, None, Some(record));
        Ok(true)
    }
}

/// Why there is no record.
enum Refused {
    Record(Reason),
    Header(String),
}

fn find_time(record: &[u8], (pointer, unit): &(Pointer, Option<TimeUnit>)) -> Result<Timestamp, Refused> {
    let found = pointer.find(record).map_err(|e| Refused::Record(Reason::NotJson(e)))?;
    event_time::event_time(&found, *unit).map_err(|fault| Refused::Record(Reason::Time(fault)))
}
