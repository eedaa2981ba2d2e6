//! Bytes of records and numbers of bytes, for people and programs.

use serde::{Deserialize, Serialize};

/// How many characters people are shown of a key or a value.
const SHOWN_CHARS_MAX: usize = 160;

/// Bytes of a record: as text where they are UTF-8, else in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShownBytes {
    /// They are UTF-8.
    Text(String),
    /// They are not.
    Hex(String),
}

impl ShownBytes {
    /// All of them.
    pub fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }

    /// The first `max` of them, and how many there are if these are not all.
    pub fn cut(bytes: &[u8], max: usize) -> Self {
        let Some(kept) = bytes.get(..max).filter(|kept| kept.len() < bytes.len()) else { return Self::new(bytes) };
        let more = format!("… ({} bytes)", bytes.len());
        let text = match std::str::from_utf8(kept) {
            Ok(text) => Some(text),
            // A character may have been cut, and only the last.
            Err(error) if error.error_len().is_none() => std::str::from_utf8(&kept[..error.valid_up_to()]).ok(),
            Err(_) => None,
        };
        match (text, Self::new(kept)) {
            (Some(text), _) => Self::Text(format!("{text}{more}")),
            (None, Self::Hex(text) | Self::Text(text)) => Self::Hex(text + &more),
        }
    }

    /// In one line, and not too long.
    pub fn short(&self) -> String {
        let (prefix, text) = match self {
            Self::Text(text) => ("", text),
            Self::Hex(text) => ("0x", text),
        };
        let shown: String = text.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { '␤' } else { c }).collect();
        let more = if text.chars().nth(SHOWN_CHARS_MAX).is_some() { "…" } else { "" };
        format!("{prefix}{shown}{more}")
    }
}

/// A number of bytes as a person writes it, and exact.
pub(crate) fn bytes(n: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if n > 0 && n.trailing_zeros() >= shift {
            return format!("{} {unit}", n >> shift);
        }
    }
    format!("{n} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_says_how_long_it_was_and_cuts_no_character() {
        assert_eq!(ShownBytes::cut("äöü".as_bytes(), 6), ShownBytes::Text("äöü".to_owned()));
        assert_eq!(ShownBytes::cut("äöü".as_bytes(), 3), ShownBytes::Text("ä… (6 bytes)".to_owned()));
        assert_eq!(ShownBytes::cut(&[0xff; 5], 2), ShownBytes::Hex("ffff… (5 bytes)".to_owned()));
    }

    #[test]
    fn bytes_are_written_in_the_largest_unit_that_is_exact() {
        for (n, text) in [
            (0, "0 bytes"),
            (1, "1 bytes"),
            (1024, "1 KiB"),
            (1025, "1025 bytes"),
            (64 << 20, "64 MiB"),
            (3 << 29, "1536 MiB"),
            (4 << 30, "4 GiB"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }
}
