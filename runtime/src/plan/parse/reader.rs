//! Reads typed values out of TOML tables and keeps what is wrong instead of stopping at it.
//!
//! Each reader reports its own fault and returns nothing, so a caller takes a default and goes on: the pipeline is
//! only made when nothing was found. A value is reported once, a missing one only where the text was complete.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use toml_span::value::{Key, Table, Value, ValueInner};

use super::values::{Fault, parse_duration, parse_size, show_duration, show_size};
use crate::plan::Span;
use crate::plan::diagnostic::{DIAGNOSTICS_MAX, Diagnostic, SourceText, listed, nearest, quote};
use crate::pointer::Pointer;

/// Where faults go, and what all readers need.
pub(super) struct Context<'a> {
    pub(super) source: &'a SourceText,
    /// The folder of the file.
    pub(super) dir: &'a Path,
    /// Lines were left out, so nothing can be called missing.
    pub(super) partial: bool,
    pub(super) found: Vec<Diagnostic>,
}

impl Context<'_> {
    /// Whether more faults are only counted as some more.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= 10 * DIAGNOSTICS_MAX
    }

    pub(super) fn error(&mut self, span: impl Into<Span>, message: impl Into<String>, help: impl Into<String>) {
        // More than are shown, so that they can be put in order; not as many as a hostile file can ask for.
        if !self.is_full() {
            self.found.push(self.source.error_at(&span.into(), message, help));
        }
    }
}

/// What a TOML value is, in the words of a message.
pub(super) fn kind_of(value: &Value<'_>) -> &'static str {
    match value.as_ref() {
        ValueInner::String(_) => "text",
        ValueInner::Integer(_) | ValueInner::Float(_) => "a number",
        ValueInner::Boolean(_) => "true or false",
        ValueInner::Array(_) => "a list",
        ValueInner::Table(_) => "a table",
    }
}

/// A table whose keys are known.
pub(super) struct Section<'t, 'de> {
    /// How messages call it, such as `[checkpoint]`.
    pub(super) what: String,
    /// Where a missing key is reported.
    pub(super) place: Span,
    table: Option<&'t Table<'de>>,
    /// Keys that an unknown one probably meant: they are not called missing.
    meant: Vec<String>,
}

impl<'t, 'de> Section<'t, 'de> {
    /// The table under a key of `parent`; one without keys if it is not written or is something else.
    pub(super) fn of(cx: &mut Context<'_>, parent: &Section<'t, 'de>, key: &str, what: String, example: &str) -> Self {
        let Some((name, value)) = parent.get(key) else {
            return Self { what, place: parent.place.clone(), table: None, meant: Vec::new() };
        };
        let table = value.as_table();
        if table.is_none() {
            let message = format!("`{key}` must be a table, not {}", kind_of(value));
            cx.error(value.span, message, format!("write {example}"));
        }
        Self { what, place: name.span.into(), table, meant: Vec::new() }
    }

    pub(super) fn new(what: String, place: Span, table: &'t Table<'de>) -> Self {
        Self { what, place, table: Some(table), meant: Vec::new() }
    }

    pub(super) fn get(&self, key: &str) -> Option<(&'t Key<'de>, &'t Value<'de>)> {
        self.table?.get_key_value(key)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Where a value is written, else where the table is.
    pub(super) fn span_of(&self, key: &str) -> Span {
        self.get(key).map_or_else(|| self.place.clone(), |(_, value)| value.span.into())
    }

    /// The entries in the order of the file.
    pub(super) fn entries(&self) -> Vec<(&'t Key<'de>, &'t Value<'de>)> {
        let mut entries: Vec<_> = self.table.into_iter().flatten().collect();
        entries.sort_by_key(|(key, _)| key.span.start);
        entries
    }

    /// Reports every key that is not one of `keys`. `aliases` are names by which people call some of them;
    /// `elsewhere` says to what other thing a key may belong. To be called before [`Self::require`].
    pub(super) fn allow(
        &mut self,
        cx: &mut Context<'_>,
        keys: &[&str],
        aliases: &[(&str, &str)],
        elsewhere: impl Fn(&str) -> Option<String>,
    ) {
        for (key, _) in self.entries() {
            let name = key.name.as_ref();
            if keys.contains(&name) {
                continue;
            }
            let alias = aliases.iter().find(|(alias, _)| *alias == name).map(|(_, meant)| *meant);
            let elsewhere = if alias.is_none() { elsewhere(name) } else { None };
            let meant = match elsewhere {
                None => alias.or_else(|| nearest(name, keys.iter().copied())),
                Some(_) => None,
            };
            let hint = match (meant, elsewhere) {
                (Some(meant), _) => format!("did you mean `{meant}`?"),
                (None, Some(elsewhere)) => elsewhere,
                (None, None) => "remove it;".into(),
            };
            self.meant.extend(meant.map(str::to_owned));
            let help = format!("{hint} the keys of {} are {}", self.what, listed(keys, "and"));
            cx.error(key.span, format!("unknown key {} in {}", quote(name), self.what), help);
        }
    }

    /// Reports a key that must be there and is not.
    pub(super) fn require(&self, cx: &mut Context<'_>, key: &str, example: &str) {
        if !self.has(key) && !cx.partial && !self.meant.iter().any(|meant| meant == key) {
            cx.error(self.place.clone(), format!("{} has no key `{key}`", self.what), format!("add {example}"));
        }
    }

    fn wrong(&self, cx: &mut Context<'_>, key: &str, value: &Value<'_>, wanted: &str, help: &str) {
        let message = format!("`{key}` of {} must be {wanted}, not {}", self.what, kind_of(value));
        cx.error(value.span, message, help);
    }

    fn fault(&self, cx: &mut Context<'_>, key: &str, value: &Value<'_>, fault: Fault) {
        cx.error(value.span, format!("`{key}` of {} {}", self.what, fault.message), fault.help);
    }

    /// Text.
    pub(super) fn text(&self, cx: &mut Context<'_>, key: &str, example: &str) -> Option<&'t str> {
        let (_, value) = self.get(key)?;
        let text = value.as_str();
        if text.is_none() {
            self.wrong(cx, key, value, "text", &format!("write {example}"));
        }
        text
    }

    /// Text that is not empty.
    pub(super) fn filled(&self, cx: &mut Context<'_>, key: &str, example: &str) -> Option<&'t str> {
        let text = self.text(cx, key, example)?;
        if text.is_empty() {
            cx.error(self.span_of(key), format!("`{key}` of {} is empty", self.what), format!("write {example}"));
            return None;
        }
        Some(text)
    }

    /// True or false.
    pub(super) fn flag(&self, cx: &mut Context<'_>, key: &str, default: bool) -> bool {
        let Some((_, value)) = self.get(key) else { return default };
        value.as_bool().unwrap_or_else(|| {
            self.wrong(
                cx,
                key,
                value,
                "true or false",
                &format!("write {key} = true or {key} = false, without quotes"),
            );
            default
        })
    }

    /// A whole number within limits.
    pub(super) fn integer(&self, cx: &mut Context<'_>, key: &str, limits: RangeInclusive<u64>) -> Option<u64> {
        let (_, value) = self.get(key)?;
        let (low, high) = (*limits.start(), *limits.end());
        let range = if high >= i64::MAX.cast_unsigned() {
            format!("a whole number of at least {low}")
        } else {
            format!("a whole number from {low} to {high}")
        };
        let Some(number) = value.as_integer() else {
            let help = match value.as_str() {
                Some(text) if text.parse::<i64>().is_ok() => format!("write {key} = {text}, without quotes"),
                _ => format!("write {range}"),
            };
            let wanted =
                if value.as_float().is_some() { "a whole number, without a fraction" } else { "a whole number" };
            self.wrong(cx, key, value, wanted, &help);
            return None;
        };
        let found = u64::try_from(number).ok().filter(|number| limits.contains(number));
        if found.is_none() {
            let message = format!("`{key}` of {} is {number}, outside of {low} to {high}", self.what);
            let message = if high >= i64::MAX.cast_unsigned() {
                format!("`{key}` of {} is {number}, less than {low}", self.what)
            } else {
                message
            };
            cx.error(value.span, message, format!("write {range}"));
        }
        found
    }

    /// The same, with a default, for what fits 32 bits.
    pub(super) fn count(&self, cx: &mut Context<'_>, key: &str, default: u32, limits: RangeInclusive<u32>) -> u32 {
        let limits = u64::from(*limits.start())..=u64::from(*limits.end());
        self.integer(cx, key, limits).and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
    }

    /// A duration within limits.
    pub(super) fn duration(
        &self,
        cx: &mut Context<'_>,
        key: &str,
        limits: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let (_, value) = self.get(key)?;
        let duration = match value.as_ref() {
            ValueInner::String(text) => match parse_duration(text) {
                Ok(duration) => duration,
                Err(fault) => {
                    self.fault(cx, key, value, fault);
                    return None;
                }
            },
            ValueInner::Integer(number) if *number >= 0 => {
                let message = format!("`{key}` of {} is {number}, a number without a unit", self.what);
                let help = format!("write \"{number}s\" for seconds or \"{number}ms\" for milliseconds, with quotes");
                cx.error(value.span, message, help);
                return None;
            }
            _ => {
                self.wrong(cx, key, value, "a duration", &format!("write it as text with a unit: {key} = \"250ms\""));
                return None;
            }
        };
        if limits.contains(&duration) {
            return Some(duration);
        }
        let (shown, low, high) =
            (show_duration(duration), show_duration(*limits.start()), show_duration(*limits.end()));
        let (message, help) = if duration < *limits.start() {
            (format!("less than {low}"), format!("write at least \"{low}\""))
        } else {
            (format!("more than {high}"), format!("write at most \"{high}\""))
        };
        cx.error(value.span, format!("`{key}` of {} is {shown}, {message}", self.what), help);
        None
    }

    /// A size within limits, in bytes.
    pub(super) fn size(&self, cx: &mut Context<'_>, key: &str, limits: RangeInclusive<u64>) -> Option<u64> {
        let (_, value) = self.get(key)?;
        let size = match value.as_ref() {
            ValueInner::String(text) => match parse_size(text) {
                Ok(size) => size,
                Err(fault) => {
                    self.fault(cx, key, value, fault);
                    return None;
                }
            },
            ValueInner::Integer(number) if *number >= 0 => number.cast_unsigned(),
            _ => {
                let help = format!("write a number of bytes, or text with a unit: {key} = \"4MiB\"");
                self.wrong(cx, key, value, "a size", &help);
                return None;
            }
        };
        if limits.contains(&size) {
            return Some(size);
        }
        let (shown, low, high) = (show_size(size), show_size(*limits.start()), show_size(*limits.end()));
        let (message, help) = if size < *limits.start() {
            (format!("less than {low}"), format!("write at least \"{low}\""))
        } else {
            (format!("more than {high}"), format!("write at most \"{high}\""))
        };
        cx.error(value.span, format!("`{key}` of {} is {shown}, {message}", self.what), help);
        None
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&self, cx: &mut Context<'_>, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let (_, value) = self.get(key)?;
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let all = listed(&words, "or");
        let Some(text) = value.as_str() else {
            self.wrong(cx, key, value, &all, &format!("write {key} = {}", words[0]));
            return None;
        };
        let found = choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice);
        if found.is_none() {
            let hint = nearest(text, choices.iter().map(|(word, _)| *word))
                .map_or_else(String::new, |meant| format!("did you mean \"{meant}\"? "));
            let message = format!("`{key}` of {} is {}, which is not one of its values", self.what, quote(text));
            cx.error(value.span, message, format!("{hint}write {all}"));
        }
        found
    }

    /// A JSON pointer.
    pub(super) fn pointer(&self, cx: &mut Context<'_>, key: &str) -> Option<Pointer> {
        let text = self.text(cx, key, &format!("a JSON pointer: {key} = \"/user/id\""))?;
        match Pointer::parse(text) {
            Ok(pointer) => Some(pointer),
            Err(_) if !text.starts_with('/') => {
                let message = format!("`{key}` of {} is {}, which does not begin with a slash", self.what, quote(text));
                let steps = text.trim_start_matches("$.").replace('.', "/");
                cx.error(
                    self.span_of(key),
                    message,
                    format!("a JSON pointer is meant: write {}", quote(&format!("/{steps}"))),
                );
                None
            }
            Err(fault) => {
                let help = "write ~0 for a tilde and ~1 for a slash in a member's name";
                cx.error(self.span_of(key), format!("`{key}` of {}: {fault}", self.what), help);
                None
            }
        }
    }

    /// A list of texts.
    pub(super) fn texts(&self, cx: &mut Context<'_>, key: &str, example: &str) -> Option<Vec<String>> {
        let (_, value) = self.get(key)?;
        let list = value.as_array().and_then(|list| list.iter().map(|v| v.as_str().map(str::to_owned)).collect());
        if list.is_none() {
            let message = format!("`{key}` of {} must be a list of texts", self.what);
            cx.error(value.span, message, format!("write {example}"));
        }
        list
    }
}
