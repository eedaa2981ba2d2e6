//! Where one record ends and the next begins: line by line, or row by row with quoted line breaks.
//!
//! A cutter is fed a growing piece of a stream that begins at a record, and remembers how far it has looked, so that
//! no byte is looked at twice. It does not know what the record means.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};

/// What a cutter found at the beginning of what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// A record of `bytes` bytes that `lines` line breaks belong to, its end included; without its end it has `body`.
    Record { bytes: usize, body: usize, lines: u64, closed: bool },
    /// Empty lines between records.
    Blank { bytes: usize, lines: u64 },
    /// The record goes on beyond what was given.
    More,
    /// Nothing was given and nothing will be.
    End,
}

pub(super) enum Cutter {
    Lines(LineCutter),
    Csv(Box<CsvCutter>),
}

impl Cutter {
    pub(super) fn lines() -> Self {
        Self::Lines(LineCutter { scanned: 0 })
    }

    pub(super) fn csv(delimiter: u8) -> Self {
        Self::Csv(Box::new(CsvCutter::new(delimiter)))
    }

    /// Looks at the record at the beginning of `unread`. `last`: nothing comes after it.
    #[inline]
    pub(super) fn cut(&mut self, unread: &[u8], last: bool) -> Cut {
        match self {
            Self::Lines(cutter) => cutter.cut(unread, last),
            Self::Csv(cutter) => cutter.cut(unread, last),
        }
    }

    /// The caller has taken all that the cutter has seen of the record, because it is too long to keep.
    pub(super) fn forget(&mut self) {
        match self {
            Self::Lines(cutter) => cutter.scanned = 0,
            Self::Csv(cutter) => cutter.forget(),
        }
    }
}

pub(super) struct LineCutter {
    scanned: usize,
}

impl LineCutter {
    #[inline]
    fn cut(&mut self, unread: &[u8], last: bool) -> Cut {
        let Some(at) = memchr::memchr(b'\n', &unread[self.scanned..]) else {
            if !last {
                self.scanned = unread.len();
                return Cut::More;
            }
            self.scanned = 0;
            let bytes = unread.len();
            return if bytes == 0 { Cut::End } else { Cut::Record { bytes, body: bytes, lines: 0, closed: true } };
        };
        let end = self.scanned + at;
        self.scanned = 0;
        let body = if end > 0 && unread[end - 1] == b'\r' { end - 1 } else { end };
        Cut::Record { bytes: end + 1, body, lines: 1, closed: true }
    }
}

/// Rows of CSV (RFC 4180; a row ends with CR, LF or both). After a [`Cut::Record`] the fields are here.
pub(super) struct CsvCutter {
    reader: Reader,
    /// How far into the record the reader has looked; 0 at its beginning.
    scanned: usize,
    /// Whether the reader is inside a record, of which the caller may have taken the front already.
    inside: bool,
    /// The reader was told that the file ends.
    ending: bool,
    /// The fields, unquoted, one after the other.
    fields: Vec<u8>,
    /// Where each field ends in `fields`.
    ends: Vec<usize>,
    fields_len: usize,
    ends_len: usize,
}

impl CsvCutter {
    fn new(delimiter: u8) -> Self {
        let mut reader = ReaderBuilder::new().delimiter(delimiter).terminator(Terminator::CRLF).build();
        // The reader drops a byte order mark from the first bytes that it is ever given. Ours may begin anywhere, so
        // that is done where the offset is known, and the reader gets to see something else first.
        let _ = reader.read_record(b"\n", &mut [0], &mut [0]);
        reader.set_line(0);
        Self {
            reader,
            ending: false,
            scanned: 0,
            inside: false,
            fields: vec![0; 4096],
            ends: vec![0; 64],
            fields_len: 0,
            ends_len: 0,
        }
    }

    /// The unquoted bytes of all fields of the last record, with others after them, and where each ends.
    pub(super) fn fields(&self) -> (&[u8], &[usize]) {
        (&self.fields, &self.ends[..self.ends_len])
    }

    fn forget(&mut self) {
        self.scanned = 0;
        self.fields_len = 0;
        self.ends_len = 0;
        self.inside = true;
    }

    #[inline]
    fn cut(&mut self, unread: &[u8], last: bool) -> Cut {
        if !self.inside {
            let blank = unread.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            if blank > 0 {
                let lines = unread[..blank].iter().filter(|byte| **byte == b'\n').count() as u64;
                return Cut::Blank { bytes: blank, lines };
            }
            if unread.is_empty() {
                return if last { Cut::End } else { Cut::More };
            }
            self.inside = true;
            (self.fields_len, self.ends_len) = (0, 0);
        }
        loop {
            let input = &unread[self.scanned..];
            if input.is_empty() && !last {
                return Cut::More;
            }
            // A line break ends the last row as the end of the file does, except inside quotes: those are not closed.
            let at_end = input.is_empty() && !self.ending;
            let input = if at_end { b"\n" } else { input };
            let (result, taken, written, ended) =
                self.reader.read_record(input, &mut self.fields[self.fields_len..], &mut self.ends[self.ends_len..]);
            if at_end {
                self.ending = taken > 0;
            } else {
                self.scanned += taken;
            }
            self.fields_len += written;
            self.ends_len += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.fields.resize(self.fields.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record | ReadRecordResult::End => return self.record(unread, at_end || !self.ending),
            }
        }
    }

    #[inline]
    fn record(&mut self, unread: &[u8], closed: bool) -> Cut {
        let mut bytes = self.scanned;
        let mut lines = self.reader.line();
        let mut body = bytes;
        match unread[..bytes].last() {
            Some(b'\n') => body -= 1,
            Some(b'\r') => {
                body -= 1;
                // The reader stops between CR and LF, and does not mind if it never sees the LF.
                if unread.get(bytes) == Some(&b'\n') {
                    bytes += 1;
                    lines += 1;
                }
            }
            _ => {}
        }
        self.reader.set_line(0);
        self.scanned = 0;
        self.inside = false;
        Cut::Record { bytes, body, lines, closed }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All records of `text`, given to the cutter in pieces that end at `ends`.
    fn cut_all(mut cutter: Cutter, text: &[u8], ends: &[usize]) -> Vec<(String, Vec<String>, u64)> {
        let mut records = Vec::new();
        let (mut start, mut line) = (0, 0);
        let mut ends = ends.iter().copied().chain([text.len()]);
        let mut given = 0;
        loop {
            let last = given == text.len();
            match cutter.cut(&text[start..given], last) {
                Cut::Record { bytes, body, lines, closed } => {
                    let raw = String::from_utf8_lossy(&text[start..start + body]).into_owned();
                    let mut fields = Vec::new();
                    if let Cutter::Csv(csv) = &cutter {
                        let (all, ends) = csv.fields();
                        let mut from = 0;
                        for end in ends {
                            fields.push(String::from_utf8_lossy(&all[from..*end]).into_owned());
                            from = *end;
                        }
                    }
                    records.push((raw, fields, line));
                    assert!(closed || last);
                    start += bytes;
                    line += lines;
                }
                Cut::Blank { bytes, lines } => {
                    start += bytes;
                    line += lines;
                }
                Cut::More => given = ends.find(|end| *end > given).unwrap_or(text.len()),
                Cut::End => return records,
            }
        }
    }

    #[test]
    fn rows_keep_their_quoted_line_breaks_and_count_them() {
        let text = b"a,b\r\n\"x\r\n\"\"y\"\"\",2\n\n\r\n3,\"\"\rlast,4";
        let rows = cut_all(Cutter::csv(b','), text, &[]);
        let fields: Vec<_> = rows.iter().map(|(_, fields, line)| (fields.join("|"), *line)).collect();
        assert_eq!(
            fields,
            [("a|b".into(), 0), ("x\r\n\"y\"|2".into(), 1), ("3|".into(), 5), ("last|4".into(), 5)]
                as [(String, u64); 4]
        );
        assert_eq!(rows[1].0, "\"x\r\n\"\"y\"\"\",2");
    }

    #[test]
    fn a_quote_that_is_never_closed_is_seen_at_the_end() {
        for (text, is_closed) in
            [("a,\"b\nc", false), ("a,\"b\"", true), ("a,b\"", true), ("\"", false), ("\"\"\"", false)]
        {
            match Cutter::csv(b',').cut(text.as_bytes(), true) {
                Cut::Record { closed, .. } => assert_eq!(closed, is_closed, "{text:?}"),
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in "[ab,;\"\r\n\u{feff}]{0,40}", ends in proptest::collection::vec(0..40_usize, 0..6)) {
            let mut ends: Vec<usize> = ends.into_iter().filter(|end| *end < text.len()).collect();
            ends.sort_unstable();
            for cutter in [Cutter::lines, || Cutter::csv(b',')] {
                prop_assert_eq!(cut_all(cutter(), text.as_bytes(), &ends), cut_all(cutter(), text.as_bytes(), &[]));
            }
        }

        #[test]
        fn a_cutter_that_begins_at_any_record_finds_the_same_ones(text in "[ab,\"\r\n\u{feff}]{0,40}") {
            let mut cutter = Cutter::csv(b',');
            let whole = cut_all(Cutter::csv(b','), text.as_bytes(), &[]);
            let (mut start, mut seen) = (0, 0);
            while let Cut::Record { bytes, .. } | Cut::Blank { bytes, .. } = {
                let cut = cutter.cut(&text.as_bytes()[start..], true);
                seen += usize::from(matches!(cut, Cut::Record { .. }));
                cut
            } {
                start += bytes;
                let rest = cut_all(Cutter::csv(b','), &text.as_bytes()[start..], &[]);
                let texts = |rows: &[(String, Vec<String>, u64)]| rows.iter().map(|r| (r.0.clone(), r.1.clone())).collect::<Vec<_>>();
                prop_assert_eq!(texts(&rest), texts(&whole[seen..]));
            }
        }
    }
}
