//! What is wrong with a pipeline file, said as a compiler says it: the message, the place, the line with the place
//! marked, and the remedy.
//!
//! All errors of a file come together, in the order of the file. What is printed is bounded whatever the file holds: so
//! many diagnostics, and a window of a line that is too long. Plain text; a door may add colour.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::Span;

/// How many diagnostics of one file are kept; the others are counted.
pub const DIAGNOSTICS_MAX: usize = 100;

/// How much of a line is shown, in characters.
const WINDOW: usize = 120;

/// How much of a value from the file is repeated in a message, in characters.
const QUOTE: usize = 60;

/// The text of a pipeline file and its name, for messages that point into it. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    name: Arc<str>,
    text: Arc<str>,
}

impl SourceText {
    /// Keeps the text of `file`.
    pub fn new(text: &str, file: &Path) -> Self {
        Self { name: file.display().to_string().into(), text: text.into() }
    }

    /// The file's name as it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Line and column of a byte offset, both from 1; a column is a character.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..self.floor(offset)];
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
    }

    /// The next character boundary at or before an offset; offsets come from a parser that is not ours.
    fn floor(&self, offset: usize) -> usize {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    }

    /// The text of a span.
    pub fn slice(&self, span: &Span) -> &str {
        let start = self.floor(span.start);
        &self.text[start..self.floor(span.end).max(start)]
    }

    fn error(&self, severity: Severity, span: Span, message: String, help: String) -> Diagnostic {
        let (line, column) = self.position(span.start);
        Diagnostic { severity, message, help, line, column, span }
    }

    /// An error at a span.
    pub fn error_at(&self, span: &Span, message: impl Into<String>, help: impl Into<String>) -> Diagnostic {
        self.error(Severity::Error, span.clone(), message.into(), help.into())
    }

    /// A warning at a span.
    pub fn warning_at(&self, span: &Span, message: impl Into<String>, help: impl Into<String>) -> Diagnostic {
        self.error(Severity::Warning, span.clone(), message.into(), help.into())
    }

    /// A diagnostic as text: message, place, line, marks and remedy, each on its line and without a newline at the end.
    pub fn render(&self, diagnostic: &Diagnostic) -> String {
        let Diagnostic { severity, message, help, line, column, span } = diagnostic;
        let start = self.floor(span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |at| start + at);
        let shown = self.text[line_start..line_end].trim_end();
        let marked = shown.len().min((self.floor(span.end).max(start) - line_start).min(shown.len()));
        let (lead, place, rest) = {
            let from = (start - line_start).min(marked);
            (&shown[..from], &shown[from..marked], &shown[marked..])
        };
        // A window around the place, so that a line of a megabyte does not fill the screen.
        let lead_length = lead.chars().count();
        let (cut, lead) = match lead_length.checked_sub(WINDOW / 2) {
            Some(skip) if lead_length + place.chars().count() + rest.chars().count() > WINDOW => {
                ("...", lead.chars().skip(skip).collect::<String>())
            }
            _ => ("", lead.to_owned()),
        };
        let after = WINDOW.saturating_sub(lead.chars().count()).max(1);
        let tail = format!("{place}{rest}");
        let visible: String = tail.chars().take(after).collect();
        let dots = if visible.len() < tail.len() { "..." } else { "" };
        let blank: String = lead.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let carets = "^".repeat(place.chars().count().clamp(1, after));

        let number = line.to_string();
        let gutter = " ".repeat(number.len());
        let name = self.name();
        format!(
            "{severity}: {message}\n\
             {gutter}--> {name}:{line}:{column}\n\
             {number} | {cut}{lead}{visible}{dots}\n\
             {gutter} | {pad}{blank}{carets}\n\
             {gutter} = help: {help}",
            pad = " ".repeat(cut.len()),
        )
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The pipeline cannot run.
    Error,
    /// It can, and may not do what was meant.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// One thing that is wrong, at its place in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong: lower case, one clause, with the values.
    pub message: String,
    /// The remedy.
    pub help: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// Byte offsets.
    pub span: Span,
}

/// Everything that is wrong with one file: at least one error, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    source: SourceText,
    list: Vec<Diagnostic>,
    left_out: usize,
}

impl Diagnostics {
    /// Orders what was found; nothing if nothing was.
    ///
    /// # Errors
    ///
    /// All of it, if there is anything.
    pub fn collect(source: &SourceText, mut list: Vec<Diagnostic>) -> Result<(), Self> {
        if list.is_empty() {
            return Ok(());
        }
        list.sort_by_key(|diagnostic| (diagnostic.span.start, diagnostic.span.end));
        list.dedup();
        let left_out = list.len().saturating_sub(DIAGNOSTICS_MAX);
        list.truncate(DIAGNOSTICS_MAX);
        Err(Self { source: source.clone(), list, left_out })
    }

    /// One error.
    pub(super) fn of(source: &SourceText, fault: Diagnostic) -> Self {
        Self { source: source.clone(), list: vec![fault], left_out: 0 }
    }

    /// What is wrong, in the order of the file; at most [`DIAGNOSTICS_MAX`].
    pub fn list(&self) -> &[Diagnostic] {
        &self.list
    }

    /// The file that they are about.
    pub fn source(&self) -> &SourceText {
        &self.source
    }

    /// One line that says how many there are.
    pub fn summary(&self) -> String {
        let name = self.source.name();
        match self.list.len() + self.left_out {
            1 => format!("{name} has an error"),
            count => format!("{name} has {count} errors"),
        }
    }
}

impl fmt::Display for Diagnostics {
    /// Every diagnostic as [`SourceText::render`] gives it, an empty line between two, and a newline at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, diagnostic) in self.list.iter().enumerate() {
            let gap = if at == 0 { "" } else { "\n" };
            writeln!(f, "{gap}{}", self.source.render(diagnostic))?;
        }
        if self.left_out > 0 {
            writeln!(f, "\n{} more errors are not shown", self.left_out)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

impl Serialize for Diagnostics {
    /// `{"file": …, "diagnostics": […], "left_out": …}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("Diagnostics", 3)?;
        fields.serialize_field("file", self.source.name())?;
        fields.serialize_field("diagnostics", &self.list)?;
        fields.serialize_field("left_out", &self.left_out)?;
        fields.end()
    }
}

impl From<Diagnostics> for crate::error::Error {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::new(crate::error::ErrorKind::Usage, diagnostics.summary()).caused_by(diagnostics)
    }
}

/// Repeats a value from the file: in quotes, escaped, and cut where it is too long.
pub(super) fn quote(value: &str) -> String {
    match value.char_indices().nth(QUOTE) {
        Some((end, _)) => format!("{:?}...", &value[..end]),
        None => format!("{value:?}"),
    }
}

/// Lists choices as a person would: `a, b and c`.
pub(super) fn listed<T: AsRef<str>>(items: &[T], last: &str) -> String {
    match items {
        [] => "none".to_owned(),
        [one] => one.as_ref().to_owned(),
        [first @ .., end] => {
            let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
            format!("{} {last} {}", first.join(", "), end.as_ref())
        }
    }
}

/// The choice that was probably meant, if one is near enough.
pub(super) fn nearest<'a>(written: &str, choices: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if written.len() > 64 {
        return None;
    }
    let plain = |name: &str| name.to_ascii_lowercase().replace('_', "-");
    let written = plain(written);
    choices
        .map(|choice| (strsim::jaro_winkler(&written, &plain(choice)), choice))
        .filter(|(likeness, _)| *likeness >= 0.84)
        // Of two that are equally near, the first.
        .fold(None, |best: Option<(f64, &str)>, next| match best {
            Some(best) if best.0 >= next.0 => Some(best),
            _ => Some(next),
        })
        .map(|(_, choice)| choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str, span: Span) -> String {
        let source = SourceText::new(text, Path::new("p.toml"));
        source.render(&source.error_at(&span, "it is wrong", "mend it"))
    }

    #[test]
    fn the_place_is_marked_under_its_line() {
        assert_eq!(
            render("a = 1\n\tb = 'é' # x\n", 11..15),
            "error: it is wrong\n --> p.toml:2:6\n2 | \tb = 'é' # x\n  | \t    ^^^\n  = help: mend it"
        );
    }

    #[test]
    fn a_span_over_several_lines_marks_the_first_of_them() {
        assert_eq!(
            render("x = [\n 1]\r\n", 4..9),
            "error: it is wrong\n --> p.toml:1:5\n1 | x = [\n  |     ^\n  = help: mend it"
        );
    }

    #[test]
    fn an_empty_file_still_has_a_place() {
        assert_eq!(render("", 0..0), "error: it is wrong\n --> p.toml:1:1\n1 | \n  | ^\n  = help: mend it");
    }

    #[test]
    fn a_line_that_is_too_long_is_shown_in_part() {
        let text = "x".repeat(1 << 20);
        for span in [0..5, 500_000..500_009, 0..1 << 20, (1 << 20) - 1..1 << 20, (1 << 20)..(1 << 20)] {
            let shown = render(&text, span.clone());
            assert!(shown.len() < 600, "{span:?}: {} bytes", shown.len());
            assert!(shown.contains('^'));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_span_of_any_text_can_be_shown(text in "[aé\t\r\n𝄞]{0,200}", start in 0usize..900, length in 0usize..900) {
            let shown = render(&text, start..start + length);
            proptest::prop_assert!(shown.starts_with("error: it is wrong\n"));
            proptest::prop_assert!(shown.contains('^'));
        }
    }

    #[test]
    fn the_nearest_name_is_found_and_far_ones_are_not() {
        let names = ["interval", "timeout", "min_pause"];
        assert_eq!(nearest("intervall", names.into_iter()), Some("interval"));
        assert_eq!(nearest("min-pause", names.into_iter()), Some("min_pause"));
        assert_eq!(nearest("Timeout", names.into_iter()), Some("timeout"));
        assert_eq!(nearest("colour", names.into_iter()), None);
    }
}
