//! Event times: from what a record says to microseconds since the Unix epoch.
//!
//! Text is RFC 3339; a number needs a unit, because none can be guessed from its size. Fractions below a microsecond
//! are rounded down, for times before 1970 too. Anything outside the years -9999 to 9999 is refused: it is far more
//! likely the wrong unit than a time, and it would push the watermark beyond everything.

use crate::model::Timestamp;
use crate::plan::TimeUnit;
use crate::pointer::Found;

/// -9999-01-01 and 9999-12-31, as far as a calendar date is understood.
const TIME_MIN: i128 = -377_705_116_800_000_000;
const TIME_MAX: i128 = 253_402_300_799_999_999;

/// Why there is no event time, as a clause, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TimeFault {
    pub(super) reason: String,
    pub(super) help: &'static str,
}

/// The event time that was found.
pub(super) fn event_time(found: &Found<'_>, unit: Option<TimeUnit>) -> Result<Timestamp, TimeFault> {
    match found {
        Found::Nothing => Err(missing()),
        Found::Text(text) => from_text(text),
        Found::Raw(raw) => from_json(raw, unit),
    }
}

/// There is nothing, or null.
pub(super) fn missing() -> TimeFault {
    TimeFault { reason: "it has no event time".into(), help: "check the pointer in event_time" }
}

/// An event time written as something else than a string.
pub(super) fn from_json(raw: &str, unit: Option<TimeUnit>) -> Result<Timestamp, TimeFault> {
    if !super::json_text::is_number(raw.as_bytes()) {
        return Err(TimeFault {
            reason: format!("its event time {} is neither text nor a number", short(raw)),
            help: "let event_time point to RFC 3339 text or to a number",
        });
    }
    let Some(unit) = unit else {
        return Err(TimeFault {
            reason: format!("its event time {} is a number without a unit", short(raw)),
            help: "set event_time_unit to \"s\", \"ms\", \"us\" or \"ns\"",
        });
    };
    from_number(raw, unit).and_then(in_range).ok_or_else(|| TimeFault {
        reason: format!("its event time {} is outside the years -9999 to 9999", short(raw)),
        help: "check event_time_unit",
    })
}

/// RFC 3339 text.
pub(super) fn from_text(text: &str) -> Result<Timestamp, TimeFault> {
    if let Some(time) = from_plain_text(text.as_bytes()) {
        return Ok(time);
    }
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => Ok(time.as_nanosecond().div_euclid(1000) as Timestamp),
        Err(_) => Err(TimeFault {
            reason: format!("its event time {} is not RFC 3339", short(text)),
            help: "write event times like 2013-01-01T10:00:00Z, with an offset or a Z",
        }),
    }
}

fn short(text: &str) -> String {
    super::json_text::excerpt(text.as_bytes(), 60)
}

/// `2013-01-01T10:00:00Z` and the like, whole seconds in UTC: what most data has, without a general parser.
fn from_plain_text(text: &[u8]) -> Option<Timestamp> {
    let text: &[u8; 20] = text.try_into().ok()?;
    if (text[4], text[7], text[10], text[13], text[16], text[19]) != (b'-', b'-', b'T', b':', b':', b'Z') {
        return None;
    }
    let number = |at: usize, length: usize| {
        text[at..at + length].iter().try_fold(0_i64, |sum, byte| {
            let digit = byte.wrapping_sub(b'0');
            (digit < 10).then_some(sum * 10 + i64::from(digit))
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_in_month = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if day == 0 || day > days_in_month || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Days since 1970-01-01 with years that begin in March, so that the leap day is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day
            - 719_469;
    Some(((days * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000)
}

/// A JSON number to microseconds, in decimal arithmetic: a float would not hold today's microseconds in seconds.
fn from_number(raw: &str, unit: TimeUnit) -> Option<i128> {
    let (mantissa, exponent) = match raw.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?.clamp(-10_000, 10_000)),
        None => (raw, 0),
    };
    let (negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let to_micros = match unit {
        TimeUnit::Seconds => 6,
        TimeUnit::Millis => 3,
        TimeUnit::Micros => 0,
        TimeUnit::Nanos => -3,
    };
    // The digits before the point once the number is in microseconds.
    let point = i32::try_from(whole.len()).ok()?.checked_add(exponent)?.checked_add(to_micros)?;
    let mut value: i128 = 0;
    let mut below = false;
    for (at, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let digit = i128::from(digit - b'0');
        if (at as i64) < i64::from(point) {
            value = value.checked_mul(10)?.checked_add(digit)?;
        } else {
            below |= digit != 0;
        }
    }
    let written = i64::try_from(whole.len() + fraction.len()).ok()?;
    if value != 0 {
        for _ in written..i64::from(point) {
            value = value.checked_mul(10)?;
        }
    }
    Some(if negative { -value - i128::from(below) } else { value })
}

fn in_range(time: i128) -> Option<Timestamp> {
    (TIME_MIN..=TIME_MAX).contains(&time).then_some(time as Timestamp)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_fast_path_agrees_with_the_calendar(seconds in -62_167_219_200_i64..253_402_207_200) {
            let text = jiff::Timestamp::from_second(seconds).unwrap().to_string();
            prop_assert_eq!(from_plain_text(text.as_bytes()), Some(seconds * 1_000_000), "{}", text);
        }

        #[test]
        fn the_fast_path_takes_nothing_that_the_calendar_refuses(text in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]Z") {
            if let Some(time) = from_plain_text(text.as_bytes()) {
                prop_assert_eq!(text.parse::<jiff::Timestamp>().unwrap().as_microsecond(), time);
            }
        }

        #[test]
        fn a_number_is_exact_in_every_unit(micros in -377_705_116_800_000_000_i64..253_402_300_800_000_000) {
            let sign = if micros < 0 { "-" } else { "" };
            let (whole, part) = (micros.unsigned_abs() / 1_000_000, micros.unsigned_abs() % 1_000_000);
            let seconds = format!("{sign}{whole}.{part:06}");
            prop_assert_eq!(from_json(&seconds, Some(TimeUnit::Seconds)), Ok(micros));
            prop_assert_eq!(from_json(&micros.to_string(), Some(TimeUnit::Micros)), Ok(micros));
            prop_assert_eq!(from_json(&format!("{micros}e3"), Some(TimeUnit::Nanos)), Ok(micros));
            prop_assert_eq!(from_json(&format!("{micros}E-3"), Some(TimeUnit::Millis)), Ok(micros));
        }
    }

    #[test]
    fn times_are_rounded_down_on_both_sides_of_1970() {
        assert_eq!(from_json("1999", Some(TimeUnit::Nanos)), Ok(1));
        assert_eq!(from_json("-1", Some(TimeUnit::Nanos)), Ok(-1));
        assert_eq!(from_json("-0.0000001", Some(TimeUnit::Seconds)), Ok(-1));
        assert_eq!(from_text("1969-12-31T23:59:59.9999999Z"), Ok(-1));
        assert_eq!(from_text("2013-01-01T10:00:00+02:00"), from_text("2013-01-01T08:00:00Z"));
        assert_eq!(from_text("2016-12-31T23:59:60Z"), from_text("2016-12-31T23:59:59Z"), "leap seconds do not count");
    }

    #[test]
    fn what_is_no_time_says_what_to_do() {
        for (fault, reason, help) in [
            (from_json("12", None), "a number without a unit", "event_time_unit"),
            (from_json("1e300", Some(TimeUnit::Seconds)), "outside the years", "event_time_unit"),
            (from_json("1356998400000000", Some(TimeUnit::Millis)), "outside the years", "event_time_unit"),
            (from_json("true", None), "neither text nor a number", "event_time"),
            (from_text("yesterday"), "not RFC 3339", "2013-01-01T10:00:00Z"),
            (from_text("2013-01-01T10:00:00"), "not RFC 3339", "offset"),
            (event_time(&Found::Nothing, None), "no event time", "event_time"),
        ] {
            let fault = fault.unwrap_err();
            assert!(fault.reason.contains(reason) && fault.help.contains(help), "{fault:?}");
        }
    }
}
