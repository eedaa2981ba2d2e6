//! Durations and sizes as people write them, in both directions.
//!
//! A number without a unit is refused where a duration is meant, and `MB` where a size is: each has been read in two
//! ways once too often.

use std::time::Duration;

use crate::plan::diagnostic::quote;

/// The longest duration of a pipeline file: a hundred years, so that it fits event time many times over.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(36_500 * 86_400);

/// What is wrong with a value, and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) message: String,
    pub(super) help: String,
}

impl Fault {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }
}

/// Units of time and their microseconds, the smallest first.
const TIMES: [(&str, u64); 6] =
    [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000)];

/// Units of size and their bytes, the smallest first.
pub(crate) const SIZES: [(&str, u64); 5] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

const DURATION_HELP: &str = "write a whole number and one unit of us, ms, s, m, h and d, such as \"250ms\" or \"24h\"";
const SIZE_HELP: &str = "write a number of bytes, or a whole number and one unit of KiB, MiB, GiB and TiB: \"4MiB\"";

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Reads `"250ms"`. The fault's message continues "`key` …".
pub(super) fn parse_duration(text: &str) -> Result<Duration, Fault> {
    let (digits, unit) = split(text);
    let shown = quote(text);
    if digits.is_empty() {
        return Err(Fault::new(format!("is {shown}, which is not a duration"), DURATION_HELP));
    }
    if unit.is_empty() {
        return Err(Fault::new(
            format!("is {shown}, a number without a unit"),
            format!("write \"{digits}s\" for seconds or \"{digits}ms\" for milliseconds"),
        ));
    }
    let Some((_, micros)) = TIMES.iter().find(|(name, _)| *name == unit) else {
        let help = match known_time_word(unit.trim_start()) {
            Some(short) => format!("write \"{digits}{short}\""),
            None => DURATION_HELP.to_owned(),
        };
        return Err(Fault::new(format!("is {shown}, which is not a duration"), help));
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*micros))
        .map(Duration::from_micros)
        .filter(|duration| *duration <= DURATION_MAX)
        .ok_or_else(|| Fault::new(format!("is {shown}, longer than 100 years"), "write a shorter duration"))
}

/// Reads a duration that does not come from a pipeline file.
///
/// # Errors
///
/// What is wrong with it, and the remedy, in one clause each.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|fault| format!("it {}: {}", fault.message, fault.help))
}

fn known_time_word(word: &str) -> Option<&'static str> {
    Some(match word.to_ascii_lowercase().as_str() {
        "us" | "µs" | "micro" | "micros" | "microsecond" | "microseconds" => "us",
        "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        _ => return None,
    })
}

/// Reads `"4MiB"`. The fault's message continues "`key` …".
pub(super) fn parse_size(text: &str) -> Result<u64, Fault> {
    let (digits, unit) = split(text);
    let shown = quote(text);
    let Ok(number) = digits.parse::<u64>() else {
        return Err(Fault::new(format!("is {shown}, which is not a size"), SIZE_HELP));
    };
    if let Some((_, bytes)) = SIZES.iter().find(|(name, _)| *name == unit) {
        return number
            .checked_mul(*bytes)
            .filter(|size| *size <= 1 << 50)
            .ok_or_else(|| Fault::new(format!("is {shown}, more than 1024TiB"), "write a smaller size"));
    }
    let binary = match unit.trim_start().to_ascii_lowercase().as_str() {
        "k" | "kb" | "kib" => Some("KiB"),
        "m" | "mb" | "mib" => Some("MiB"),
        "g" | "gb" | "gib" => Some("GiB"),
        "t" | "tb" | "tib" => Some("TiB"),
        _ => None,
    };
    let help = binary.map_or_else(|| SIZE_HELP.to_owned(), |unit| format!("write \"{digits}{unit}\""));
    Err(Fault::new(format!("is {shown}, which is not a size"), help))
}

/// A duration in the largest unit that holds it exactly.
pub(crate) fn show_duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    let (unit, size) = TIMES
        .iter()
        .rev()
        .find(|(_, size)| micros > 0 && micros.is_multiple_of(u128::from(*size)))
        .unwrap_or(&TIMES[2]);
    format!("{}{unit}", micros / u128::from(*size))
}

/// A size in the largest unit that holds it exactly.
pub(crate) fn show_size(bytes: u64) -> String {
    let (unit, size) =
        SIZES.iter().rev().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size)).unwrap_or(&SIZES[0]);
    format!("{}{unit}", bytes / size)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_have_a_whole_number_and_a_unit() {
        for (text, micros) in [("0s", 0), ("10us", 10), ("250ms", 250_000), ("1m", 60_000_000), ("2d", 172_800_000_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for (text, remedy) in [
            ("", "\"250ms\""),
            ("5", "\"5s\""),
            ("s", "\"250ms\""),
            ("1.5s", "a whole number"),
            ("-1s", "a whole number"),
            ("10 seconds", "write \"10s\""),
            ("3min", "write \"3m\""),
            ("1h30m", "a whole number"),
            ("36501d", "shorter"),
            ("99999999999999999999s", "shorter"),
            ("99999999999999999999999999999999999999999999999d", "shorter"),
        ] {
            let fault = parse_duration(text).expect_err(text);
            assert!(fault.help.contains(remedy), "{text}: {fault:?}");
        }
    }

    #[test]
    fn sizes_are_in_powers_of_two() {
        for (text, bytes) in [("0B", 0), ("64KiB", 65_536), ("4MiB", 4 << 20), ("16GiB", 16 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for (text, remedy) in [
            ("", "a number of bytes"),
            ("4MB", "write \"4MiB\""),
            ("4 mib", "write \"4MiB\""),
            ("64k", "write \"64KiB\""),
            ("1.5GiB", "a whole number"),
            ("12", "a number of bytes"),
            ("99999999TiB", "smaller"),
        ] {
            let fault = parse_size(text).expect_err(text);
            assert!(fault.help.contains(remedy), "{text}: {fault:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(micros in 0u64..=3_153_600_000_000_000, bytes in 0u64..=1 << 50) {
            let duration = Duration::from_micros(micros);
            prop_assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
            prop_assert_eq!(parse_size(&show_size(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_makes_them_panic(text in "\\PC*") {
            let _ = (parse_duration(&text), parse_size(&text));
        }
    }
}
