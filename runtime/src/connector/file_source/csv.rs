//! A CSV row becomes a JSON object, written straight into a column of values: members in the order of the columns.
//!
//! A field that is one of the `nulls` is `null`, one that is a JSON number stays as it is written, any other is a
//! string; a column named in `text` is never a number. Nothing is built in between, since this runs for every record.

use super::super::event_time::{self, TimeFault};
use super::super::json_text;
use super::malformed::Reason;
use crate::model::{RECORD_BYTES_MAX, Timestamp};
use crate::plan::{CsvSpec, TimeUnit};
use crate::pointer::{Found, Pointer};

/// What is known of a file once its header has been read.
pub(super) struct Header {
    columns: Vec<Column>,
    nulls: Vec<Box<[u8]>>,
    /// Bit `n` is set if a null has `n` bytes; bit 63 also for longer ones.
    null_lengths: u64,
    /// The column that holds the event time, and the unit of a number in it.
    time: Option<(usize, Option<TimeUnit>)>,
}

struct Column {
    /// What comes before the value: a brace or a comma, the name, a colon. With zeros after it, up to a multiple of
    /// [`SHORT`].
    prefix: Box<[u8]>,
    prefix_len: usize,
    text: bool,
}

/// Bytes that are copied at once. Names and fields are mostly shorter: copying a fixed number and cutting off what was
/// too much costs a fraction of a call for every length.
const SHORT: usize = 32;

/// Adds `len` bytes of `all` from `from` on; what comes after them in `all` makes it faster.
#[inline(always)]
fn push_short(out: &mut Vec<u8>, all: &[u8], from: usize, len: usize) {
    match all[from..].first_chunk::<SHORT>() {
        Some(chunk) if len <= SHORT => {
            let end = out.len() + len;
            out.extend_from_slice(chunk);
            out.truncate(end);
        }
        _ => out.extend_from_slice(&all[from..from + len]),
    }
}

enum Kind {
    Null,
    Number,
    Text,
}

impl Header {
    /// Makes it from the fields of the first row. An error is a clause about the header.
    pub(super) fn new(
        fields: &[u8],
        ends: &[usize],
        spec: &CsvSpec,
        time: Option<&(Pointer, Option<TimeUnit>)>,
    ) -> Result<Self, String> {
        let mut names = Vec::with_capacity(ends.len());
        let mut from = 0;
        for end in ends {
            let name = std::str::from_utf8(&fields[from..*end])
                .map_err(|_| format!("the name of column {} is not UTF-8", names.len() + 1))?;
            names.push(name);
            from = *end;
        }
        let mut sorted = names.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two columns are called {:?}", pair[0]));
        }
        let known = || names.iter().take(50).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        if let Some(name) = spec.text.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(format!("no column is called {name:?}, which stands in `text`; there are {}", known()));
        }
        let time = match time {
            None => None,
            Some((pointer, unit)) => {
                let column = column_name(pointer).and_then(|name| names.iter().position(|n| **n == name));
                let column = column.ok_or_else(|| {
                    format!("event_time = {:?} names no column; there are {}", pointer.as_str(), known())
                })?;
                Some((column, *unit))
            }
        };
        let columns = names
            .iter()
            .enumerate()
            .map(|(at, name)| {
                let mut prefix = vec![if at == 0 { b'{' } else { b',' }];
                json_text::push_string(&mut prefix, name.as_bytes());
                prefix.push(b':');
                let prefix_len = prefix.len();
                prefix.resize(prefix_len.next_multiple_of(SHORT), 0);
                Column { prefix: prefix.into(), prefix_len, text: spec.text.iter().any(|text| text == name) }
            })
            .collect();
        let nulls = spec.nulls.iter().map(|null| null.as_bytes().into()).collect();
        let null_lengths = spec.nulls.iter().fold(0, |bits, null| bits | 1 << null.len().min(63));
        Ok(Self { columns, nulls, null_lengths, time })
    }

    /// Writes the object for a row at the end of `out`, and gives the event time if one is asked for. What it has
    /// written of a malformed row is for the caller to take back. `room` begins with the fields and may go on after the
    /// last of them.
    #[inline]
    pub(super) fn write(&self, room: &[u8], ends: &[usize], out: &mut Vec<u8>) -> Result<Option<Timestamp>, Reason> {
        let fields = &room[..ends.last().copied().unwrap_or(0)];
        if ends.len() != self.columns.len() {
            return Err(Reason::Fields { is: ends.len(), must: self.columns.len() });
        }
        // The fields stand without what was between them: two that are no text could make one that is.
        if !fields.is_ascii() {
            let text = std::str::from_utf8(fields).map_err(|_| Reason::NotUtf8)?;
            if ends.iter().any(|end| !text.is_char_boundary(*end)) {
                return Err(Reason::NotUtf8);
            }
        }
        let begin = out.len();
        let mut from = 0;
        let mut time = None;
        for (at, (column, end)) in self.columns.iter().zip(ends).enumerate() {
            let field = &fields[from..*end];
            from = *end;
            push_short(out, &column.prefix, 0, column.prefix_len);
            let kind = self.kind(column, field);
            match kind {
                Kind::Null => out.extend_from_slice(b"null"),
                Kind::Number => push_short(out, room, *end - field.len(), field.len()),
                Kind::Text if json_text::is_plain(field) => {
                    out.push(b'"');
                    push_short(out, room, *end - field.len(), field.len());
                    out.push(b'"');
                }
                Kind::Text => json_text::push_string(out, field),
            }
            if let Some((_, unit)) = self.time.filter(|(column, _)| *column == at) {
                time = Some(self.time(&kind, field, unit).map_err(Reason::Time)?);
            }
        }
        out.push(b'}');
        if out.len() - begin > RECORD_BYTES_MAX {
            return Err(Reason::TooLarge);
        }
        Ok(time)
    }

    #[inline]
    fn kind(&self, column: &Column, field: &[u8]) -> Kind {
        if self.null_lengths >> field.len().min(63) & 1 != 0 && self.nulls.iter().any(|null| **null == *field) {
            Kind::Null
        } else if !column.text && json_text::is_number(field) {
            Kind::Number
        } else {
            Kind::Text
        }
    }

    fn time(&self, kind: &Kind, field: &[u8], unit: Option<TimeUnit>) -> Result<Timestamp, TimeFault> {
        // The caller has checked that it is UTF-8.
        let text = std::str::from_utf8(field).unwrap_or_default();
        match kind {
            Kind::Null => event_time::event_time(&Found::Nothing, unit),
            Kind::Number => event_time::from_json(text, unit),
            Kind::Text => event_time::from_text(text),
        }
    }
}

/// The column that a pointer of one step names.
fn column_name(pointer: &Pointer) -> Option<String> {
    let step = pointer.as_str().strip_prefix('/')?;
    (!step.contains('/')).then(|| step.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> CsvSpec {
        CsvSpec { delimiter: b',', nulls: vec![String::new(), "NA".into()], text: vec!["zip".into()] }
    }

    fn row(fields: &[&str]) -> (Vec<u8>, Vec<usize>) {
        let mut ends = Vec::new();
        let mut all = Vec::new();
        for field in fields {
            all.extend_from_slice(field.as_bytes());
            ends.push(all.len());
        }
        (all, ends)
    }

    fn header(names: &[&str], time: Option<&str>) -> Result<Header, String> {
        let (fields, ends) = row(names);
        Header::new(&fields, &ends, &spec(), time.map(|t| (Pointer::parse(t).unwrap(), None)).as_ref())
    }

    fn json(fields: &[&str]) -> Result<String, Reason> {
        let header = header(&["a", "q\"uote", "zip"], None).unwrap();
        let (fields, ends) = row(fields);
        let mut out = Vec::new();
        header.write(&fields, &ends, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn fields_become_null_numbers_or_text() {
        for (fields, object) in [
            (["1", "NA", "NA"], r#"{"a":1,"q\"uote":null,"zip":null}"#),
            (["-0.50", "007", "007"], r#"{"a":-0.50,"q\"uote":"007","zip":"007"}"#),
            (["1e5", "", "12"], r#"{"a":1e5,"q\"uote":null,"zip":"12"}"#),
            (["é\n", " 1", "NaN"], r#"{"a":"é\n","q\"uote":" 1","zip":"NaN"}"#),
        ] {
            assert_eq!(json(&fields).unwrap(), object);
        }
        assert!(matches!(json(&["1", "2"]), Err(Reason::Fields { is: 2, must: 3 })));
    }

    #[test]
    fn two_halves_of_a_character_in_two_fields_are_no_text() {
        let header = header(&["a", "zip"], None).unwrap();
        assert!(matches!(header.write("é".as_bytes(), &[1, 2], &mut Vec::new()), Err(Reason::NotUtf8)));
    }

    #[test]
    fn headers_that_cannot_be_used_say_why() {
        let names = |names: &[&str]| header(names, Some("/t~1x")).err();
        assert_eq!(names(&["t/x", "zip"]), None);
        assert!(names(&["t/x", "a", "a", "zip"]).is_some_and(|e| e.contains("\"a\"")));
        assert!(names(&["a", "zip"]).is_some_and(|e| e.contains("\"/t~1x\"") && e.contains("\"zip\"")));
        assert!(names(&["t/x"]).is_some_and(|e| e.contains("`text`")));
    }
}
