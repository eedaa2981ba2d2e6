//! TOML text to a tree of values with their places, and what is to be said when it is not TOML.
//!
//! The parser stops at its first error. A user who has forgotten quotes in two lines should not have to run the check
//! twice, so a faulty line that is a whole `key = value` is blanked and the text parsed again. What is missing
//! afterwards says nothing about the file: the caller must not complain about it.

use toml_span::value::Value;
use toml_span::{Error, ErrorKind};

use super::values::{parse_duration, parse_size};
use crate::plan::Span;
use crate::plan::diagnostic::{Diagnostic, SourceText, quote};

/// How many faulty lines are looked past.
const RECOVERIES_MAX: usize = 20;

/// Finds the syntax errors of a text. The second value is a text of the same length that parses, in which
/// faulty lines are blank; none if the rest cannot be made sense of.
pub(super) fn mend(source: &SourceText) -> (Vec<Diagnostic>, Option<String>) {
    let mut text = source.text().to_owned();
    if text.starts_with('\u{feff}') {
        // A byte order mark, as some editors write it.
        text.replace_range(..3, "   ");
    }
    let mut found = Vec::new();
    for _ in 0..=RECOVERIES_MAX {
        let Err(error) = toml_span::parse(&text) else { return (found, Some(text)) };
        found.push(explain(source, &error));
        let Some(line) = blank_line(&text, &error) else { return (found, None) };
        let blank = " ".repeat(line.len());
        text.replace_range(line, &blank);
    }
    (found, None)
}

/// The line of an error, if leaving it out is sound: it is one `key = value` by itself, and it is the culprit.
fn blank_line(text: &str, error: &Error) -> Option<Span> {
    let at = error.span.start;
    let start = text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
    let end = text.get(at..)?.find('\n').map_or(text.len(), |newline| at + newline);
    let line = text.get(start..end)?;
    let key = line.split_once('=')?.0.trim();
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.\"".contains(&b)) {
        return None;
    }
    if line.contains("\"\"\"") || line.contains("'''") {
        return None;
    }
    let sound = match toml_span::parse(line) {
        // Sound by itself: at fault only if its key is there twice; else something before it is.
        Ok(_) => matches!(error.kind, ErrorKind::DuplicateKey { .. } | ErrorKind::DottedKeyInvalidType { .. }),
        // What is open at its end goes on in the next line.
        Err(alone) => alone.span.start < line.trim_end().len(),
    };
    sound.then_some(start..end)
}

fn explain(source: &SourceText, error: &Error) -> Diagnostic {
    // The parser's end of "wanted" is not one of the text.
    let span = match error.kind {
        ErrorKind::Wanted { .. } => error.span.start..error.span.start + 1,
        _ => Span::from(error.span),
    };
    let line_of = |span: toml_span::Span| source.position(span.start).0;
    let written = word_at(source.text(), span.start);
    let (message, help) = match &error.kind {
        ErrorKind::UnexpectedEof => {
            ("the file ends in the middle of a value".into(), "close the bracket or the brace that is open".into())
        }
        ErrorKind::ExceededDepthLimit => {
            ("values are nested more than 128 deep".into(), "flatten this value".to_owned())
        }
        ErrorKind::UnquotedString => (
            format!("{} is text without quotes", quote(written)),
            format!("write it in quotes: \"{}\"", written.escape_default()),
        ),
        ErrorKind::InvalidNumber | ErrorKind::OutOfRange(_) => {
            let help = if parse_duration(written).is_ok() || parse_size(written).is_ok() {
                format!("a value with a unit is text: write \"{written}\"")
            } else {
                format!("if it is text, such as a time or a name, write it in quotes: \"{}\"", written.escape_default())
            };
            (format!("{} is not a number", quote(written)), help)
        }
        ErrorKind::DuplicateKey { key, first } => (
            format!("key {} is there twice", quote(key)),
            format!("keep one of them; the first is in line {}", line_of(*first)),
        ),
        ErrorKind::DuplicateTable { name, first } => (
            format!("table {} is there twice", quote(name)),
            format!("give this one another name, or merge it with the first, in line {}", line_of(*first)),
        ),
        ErrorKind::DottedKeyInvalidType { first } => (
            "a key with a dot extends something that is not a table".into(),
            format!("write all its keys in one table; the first is in line {}", line_of(*first)),
        ),
        ErrorKind::RedefineAsArray => {
            ("this table is there already, as one table".into(), "write [name] in place of [[name]]".into())
        }
        ErrorKind::UnterminatedString => {
            ("text is not closed".into(), "close it with the quote that it begins with".into())
        }
        ErrorKind::InvalidCharInString('\n') => {
            ("text is not closed in its line".into(), "close it with the quote that it begins with".into())
        }
        ErrorKind::InvalidCharInString(c) => {
            (format!("{c:?} cannot stand in text"), "write it as an escape, such as \\t or \\u0000".into())
        }
        ErrorKind::InvalidEscape(_) | ErrorKind::InvalidHexEscape(_) | ErrorKind::InvalidEscapeValue(_) => (
            "this backslash begins no escape".into(),
            "write \\\\ for a backslash, or put the text in single quotes, where nothing is an escape".into(),
        ),
        ErrorKind::MultilineStringKey => {
            ("a key cannot go over several lines".into(), "write the key in plain letters".into())
        }
        ErrorKind::Unexpected(c) => {
            (format!("{c:?} cannot stand here"), "write `key = value`, a table `[name]`, or a comment after #".into())
        }
        ErrorKind::Wanted { expected, found } => {
            (format!("expected {expected}, found {found}"), wanted_help(expected).into())
        }
        other => (format!("not TOML: {other}"), "see https://toml.io for what is".into()),
    };
    source.error_at(&span, message, help)
}

fn wanted_help(expected: &str) -> &'static str {
    match expected {
        "an equals" => "write `key = value`",
        "a value" => "write a value: text in quotes, a number, true or false, [a list] or { a = \"table\" }",
        "newline" | "a newline" => "write one `key = value` in a line; several values go in [brackets] with commas",
        "a right bracket" => "close the bracket with ], and put commas between the values",
        "a comma" | "a right brace" => "put a comma between the keys, and close the brace with }",
        "a table key" => "write a name of letters, digits, _ and -, or any other in quotes",
        _ => "write `key = value`, or a table `[name]`",
    }
}

/// What is written at a place, up to what ends a value.
fn word_at(text: &str, at: usize) -> &str {
    let rest = text.get(at..).unwrap_or_default();
    let end = rest.find([',', ']', '}', '#', '\n', '\r']).unwrap_or(rest.len());
    rest[..end].trim_end()
}

/// Parses a text that [`mend`] has returned.
pub(super) fn tree(text: &str) -> Option<Value<'_>> {
    toml_span::parse(text).ok()
}
