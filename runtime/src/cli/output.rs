//! How the command speaks: tables and JSON on standard output, logs on standard error.

use std::io::{IsTerminal, Write};

use serde::Serialize;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::prelude::*;

use super::serve::LogFormat;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::model::{END_OF_TIME, NO_TIME, Timestamp};
use crate::plan::SIZES;
use crate::serve::Journal;

/// Sends logs to standard error, as `WEIR_LOG` says, and those of jobs on a server to its [journal](Journal) too.
pub fn start_logging(format: Option<LogFormat>) {
    let filter = std::env::var("WEIR_LOG").unwrap_or_else(|_| "info".into());
    let filter = EnvFilter::try_new(&filter).unwrap_or_else(|e| {
        eprintln!("warning: WEIR_LOG={filter:?} is not understood ({e}); logging at level info");
        EnvFilter::new("info")
    });
    let logs = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(format != Some(LogFormat::Json) && std::io::stderr().is_terminal())
        .with_writer(super::progress::LogWriter::new);
    let registry = tracing_subscriber::registry().with(filter).with(Journal::layer(Clock::system()));
    let _ = match format {
        None => registry.with(logs).try_init(),
        Some(LogFormat::Text) => registry.with(logs.fmt_fields(debug_fn(one_line).delimited(" "))).try_init(),
        Some(LogFormat::Json) => registry.with(logs.json().flatten_event(true).with_span_list(false)).try_init(),
    };
}

/// Writes a field so that an event is one line, whatever a plugin has said: nobody can write lines of others.
fn one_line(to: &mut Writer<'_>, field: &Field, value: &dyn std::fmt::Debug) -> std::fmt::Result {
    let mut text = format!("{value:?}");
    if text.contains(char::is_control) {
        text = text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect();
    }
    match field.name() {
        "message" => to.write_str(&text),
        name => write!(to, "{name}={text}"),
    }
}

/// Columns of text under a header, aligned.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    /// Which columns are numbers, and so end on the right.
    right: Vec<bool>,
}

impl Table {
    /// A table with these headers; those that begin with `>` are aligned to the right.
    pub(super) fn new(headers: &[&str]) -> Self {
        let right = headers.iter().map(|header| header.starts_with('>')).collect();
        let headers = headers.iter().map(|header| header.trim_start_matches('>').to_owned()).collect();
        Self { rows: vec![headers], right }
    }

    /// Adds a row, one cell for each header.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &width), &right) in row.iter().zip(&widths).zip(&self.right) {
                let cell = if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
                line.push_str(&cell);
                line.push_str("  ");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Prints to standard output. A reader that has gone is no error.
pub(super) fn print(text: impl std::fmt::Display) -> Result<(), Error> {
    match write!(std::io::stdout().lock(), "{text}") {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(ErrorKind::Store, "standard output cannot be written to").caused_by(e))
        }
        _ => Ok(()),
    }
}

/// Prints a value as JSON, indented.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::new(ErrorKind::State, "the answer cannot be written as JSON").caused_by(e))?;
    print(format_args!("{text}\n"))
}

/// A time for people: RFC 3339 in UTC, to the second.
pub(super) fn time(at: Timestamp) -> String {
    match at {
        NO_TIME => "-".into(),
        END_OF_TIME => "end".into(),
        at => jiff::Timestamp::from_microsecond(at).map_or_else(|_| format!("{at} µs"), |time| format!("{time:.0}")),
    }
}

/// A number of bytes for people.
pub(super) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A number of bytes that was written with one of the larger units: `8GiB`.
pub(super) fn with_unit(text: &str) -> Option<u64> {
    SIZES[1..].iter().find_map(|(unit, size)| text.strip_suffix(unit)?.trim().parse::<u64>().ok()?.checked_mul(*size))
}

/// A count for people: digits in groups of three.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(time(1_357_034_400_000_000), "2013-01-01T10:00:00Z");
        assert_eq!(time(NO_TIME), "-");
    }

    #[test]
    fn a_table_aligns_its_columns() {
        let mut table = Table::new(&["name", ">n"]);
        table.row(vec!["a".into(), "10".into()]);
        table.row(vec!["long".into(), "5".into()]);
        assert_eq!(table.to_string(), "name   n\na     10\nlong   5\n");
    }
}
