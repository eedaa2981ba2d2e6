//! Pieces of JSON written straight into a buffer: strings, and numbers as they stand.
//!
//! Records go through here one by one, so nothing builds a document. What is written is always valid JSON if the rest
//! around it is.

/// For each byte: 0 if a JSON string may hold it as it is, otherwise the letter after the backslash (`u` for a code).
const ESCAPE: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    table[b'\n' as usize] = b'n';
    table[b'\r' as usize] = b'r';
    table[b'\t' as usize] = b't';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

/// Writes `text`, which must be UTF-8, as a JSON string with its quotes.
#[inline]
pub(super) fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    push_escaped(out, text);
    out.push(b'"');
}

/// Whether a JSON string may hold `text` as it is.
#[inline]
pub(super) fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| ESCAPE[*byte as usize] == 0)
}

/// Writes `text` as the inside of a JSON string.
#[inline]
pub(super) fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| ESCAPE[*byte as usize] != 0) {
        out.extend_from_slice(&rest[..at]);
        let byte = rest[at];
        match ESCAPE[byte as usize] {
            b'u' => {
                let digit = |nibble: u8| b"0123456789abcdef"[nibble as usize];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            }
            letter => out.extend_from_slice(&[b'\\', letter]),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Whether `text` is a JSON number, digit for digit: `-0.5e3` is one; `007`, `+1`, `.5`, `1.` and `NaN` are none.
#[inline]
pub(super) fn is_number(text: &[u8]) -> bool {
    if !matches!(text.first(), Some(b'0'..=b'9' | b'-')) {
        return false;
    }
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(text);
    if whole == 0 || (whole > 1 && text[0] == b'0') {
        return false;
    }
    let mut rest = &text[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let length = digits(fraction);
        if length == 0 {
            return false;
        }
        rest = &fraction[length..];
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = exponent.strip_prefix(b"-").or_else(|| exponent.strip_prefix(b"+")).unwrap_or(exponent);
        let length = digits(exponent);
        if length == 0 {
            return false;
        }
        rest = &exponent[length..];
    }
    rest.is_empty()
}

/// Writes JSON without the white space between its parts; `json` must be valid. Numbers and strings stay as they are.
pub(super) fn push_compact(out: &mut Vec<u8>, json: &[u8]) {
    let mut in_string = false;
    let mut escaped = false;
    for byte in json {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
        } else if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            continue;
        } else {
            in_string = *byte == b'"';
        }
        out.push(*byte);
    }
}

/// At most `limit` bytes of a record for a message, with what cannot be printed escaped.
pub(super) fn excerpt(record: &[u8], limit: usize) -> String {
    let shown = &record[..record.len().min(limit)];
    let dots = if shown.len() < record.len() { "…" } else { "" };
    format!("{:?}{dots}", String::from_utf8_lossy(shown))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_string_is_read_back_as_it_was(text in any::<String>()) {
            let mut out = Vec::new();
            push_string(&mut out, text.as_bytes());
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn what_counts_as_a_number_is_what_a_json_parser_takes_for_one(text in "[-+0-9.eE]{0,9}|[ -~]{0,3}") {
            let parsed = serde_json::from_str::<&serde_json::value::RawValue>(&text);
            let number = parsed.is_ok_and(|raw| raw.get() == text && text.starts_with(|c: char| c == '-' || c.is_ascii_digit()));
            prop_assert_eq!(is_number(text.as_bytes()), number, "{:?}", text);
        }

        #[test]
        fn compact_json_means_the_same_and_has_no_line_break(
            names in proptest::collection::vec(any::<String>(), 0..5), number in any::<i64>()
        ) {
            let value = serde_json::json!({"names": names, "n": [number, null, {"q\"\\": "\\"}]});
            let mut out = Vec::new();
            push_compact(&mut out, serde_json::to_string_pretty(&value).unwrap().as_bytes());
            prop_assert!(!out.contains(&b'\n'));
            prop_assert_eq!(out, serde_json::to_vec(&value).unwrap());
        }
    }
}
