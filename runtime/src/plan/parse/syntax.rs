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
    if let Some(open) = unclosed(source.text(), error) {
        let bracket = source.slice(&open);
        let close = if bracket == "[" { "]" } else { "}" };
        return source.error_at(&open, format!("this {bracket} is not closed"), format!("close it with {close}"));
    }
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
        ErrorKind::Wanted { expected: "newline", .. } => (
            format!("{} stands after the value", quote(written)),
            "write one `key = value` in a line; a value with a unit is text in quotes, several go in [brackets] with \
             commas"
                .into(),
        ),
        ErrorKind::Wanted { expected, found } => {
            let wanted = match *expected {
                "a right bracket" => "a comma or ]",
                "a comma" | "a right brace" => "a comma or }",
                other => other,
            };
            (format!("expected {wanted}, found {found}"), wanted_help(expected).into())
        }
        other => (format!("not TOML: {other}"), "see https://toml.io for what is".into()),
    };
    source.error_at(&span, message, help)
}

fn wanted_help(expected: &str) -> &'static str {
    match expected {
        "an equals" => "write `key = value`",
        "a value" => "write a value: text in quotes, a number, true or false, [a list] or { a = \"table\" }",
        "a right bracket" => "put commas between the values, and close the list with ]",
        "a comma" | "a right brace" => "put commas between the keys, and close the table with }",
        "a table key" => "write a name of letters, digits, _ and -, or any other in quotes",
        _ => "write `key = value`, or a table `[name]`",
    }
}

/// The bracket that is open where something begins that cannot be inside of it: a table, the next key, the end of the file.
fn unclosed(text: &str, error: &Error) -> Option<Span> {
    let at = error.span.start.min(text.len());
    let begins = match error.kind {
        ErrorKind::UnexpectedEof | ErrorKind::Wanted { found: "eof", .. } => true,
        ErrorKind::Wanted { found: "a left bracket" | "an identifier" | "an equals", .. } => {
            let line = text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
            text.get(line..at)?.bytes().all(|b| b.is_ascii_whitespace() || b.is_ascii_alphanumeric() || b == b'_')
        }
        _ => false,
    };
    let mut open = Vec::new();
    let mut rest = text.get(..at)?.char_indices();
    while let Some((place, c)) = rest.next() {
        match c {
            '[' | '{' => open.push(place),
            ']' | '}' => drop(open.pop()),
            '#' => drop(rest.find(|(_, c)| *c == '\n')),
            '\'' => drop(rest.find(|(_, c)| *c == '\'')),
            '"' => {
                while let Some((_, c)) = rest.next() {
                    match c {
                        '\\' => drop(rest.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    // An open bracket in the same line is not what the parser stumbled over, unless the file ends there.
    let last = open.pop().filter(|_| begins)?;
    (text.get(last..at)?.contains('\n') || at >= text.trim_end().len()).then_some(last..last + 1)
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
