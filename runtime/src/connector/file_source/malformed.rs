//! Records that cannot be used: why, and what is handed on instead.
//!
//! A record is malformed by itself, never by where it was cut from the stream, so the same file gives the same
//! rejected records each time.

use std::path::Path;

use super::super::ConnectorError;
use super::super::event_time::TimeFault;
use base64::prelude::{BASE64_STANDARD, Engine};

use super::super::json_text::{excerpt, push_escaped, push_string};
use crate::model::RECORD_BYTES_MAX;

/// How much of a malformed record an error shows, in bytes.
const EXCERPT_BYTES_MAX: usize = 200;

/// How much of a malformed record goes to the dead letters, in bytes: its JSON text has to fit in a record.
pub(super) const RAW_BYTES_MAX: usize = 1 << 20;

/// What is wrong with a record.
#[derive(Debug)]
pub(super) enum Reason {
    Fields { is: usize, must: usize },
    NotUtf8,
    NotJson(serde_json::Error),
    Time(TimeFault),
    TooLarge,
    Unclosed,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fields { is, must } => write!(f, "it has {is} fields and the header has {must}"),
            Self::NotUtf8 => f.write_str("it is not UTF-8"),
            Self::NotJson(error) => write!(f, "it is not JSON: {error}"),
            Self::Time(fault) => f.write_str(&fault.reason),
            Self::TooLarge => write!(f, "it takes more than {RECORD_BYTES_MAX} bytes, the most that a record may take"),
            Self::Unclosed => f.write_str("a quoted field is not closed before the end of the file"),
        }
    }
}

/// A malformed record and where it stands.
pub(super) struct Malformed<'a> {
    pub(super) source: &'a str,
    /// The file as it is called in positions.
    pub(super) file: &'a str,
    /// The file as it can be opened.
    pub(super) path: &'a Path,
    /// From 1.
    pub(super) line: u64,
    /// Of its first byte in the unpacked stream.
    pub(super) offset: u64,
    pub(super) reason: Reason,
    /// The record without its end, or its first bytes if `bytes` says that there were more.
    pub(super) raw: &'a [u8],
    pub(super) bytes: u64,
}

impl Malformed<'_> {
    /// The error for `on_error = "fail"`.
    pub(super) fn error(self) -> ConnectorError {
        let mut help = match &self.reason {
            Reason::Time(fault) => format!("{}; ", fault.help),
            Reason::Unclosed => "close the quote; ".into(),
            _ => String::new(),
        };
        help.push_str("mend the file, or let on_error of the source skip such records or send them to dead letters");
        ConnectorError::record(format!(
            "record at {}:{} (byte {}) of source {:?} is malformed: {}: {}",
            self.path.display(),
            self.line,
            self.offset,
            self.source,
            self.reason,
            excerpt(self.raw, EXCERPT_BYTES_MAX),
        ))
        .help(help)
    }

    /// The value of the record on the port `rejected`: `source`, `file`, `line`, `offset`, `reason`, and the record as
    /// `raw` if it is text and as `raw_base64` otherwise. Of one longer than 1 MiB they hold the beginning, and
    /// `raw_bytes` its whole length.
    pub(super) fn dead_letter(&self) -> Vec<u8> {
        let mut raw = &self.raw[..self.raw.len().min(RAW_BYTES_MAX)];
        let cut = (raw.len() as u64) < self.bytes;
        if cut
            && let Err(error) = std::str::from_utf8(raw)
            && error.error_len().is_none()
        {
            // It is only the cut that went through a character.
            raw = &raw[..error.valid_up_to()];
        }
        let mut out = Vec::with_capacity(raw.len() + 200);
        out.extend_from_slice(b"{\"source\":");
        push_string(&mut out, self.source.as_bytes());
        out.extend_from_slice(b",\"file\":");
        push_string(&mut out, self.file.as_bytes());
        out.extend_from_slice(format!(",\"line\":{},\"offset\":{},\"reason\":\"", self.line, self.offset).as_bytes());
        push_escaped(&mut out, self.reason.to_string().as_bytes());
        if cut {
            out.extend_from_slice(format!("\",\"raw_bytes\":{}", self.bytes).as_bytes());
        } else {
            out.push(b'"');
        }
        if std::str::from_utf8(raw).is_ok() {
            out.extend_from_slice(b",\"raw\":");
            push_string(&mut out, raw);
        } else {
            out.extend_from_slice(b",\"raw_base64\":\"");
            out.extend_from_slice(BASE64_STANDARD.encode(raw).as_bytes());
            out.push(b'"');
        }
        out.push(b'}');
        out
    }
}
