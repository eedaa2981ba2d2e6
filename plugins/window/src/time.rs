//! Windows on the time line, and times as RFC 3339 writes them.

use weir_sdk::Timestamp;

/// The end of the window that holds a time. Windows of `size` microseconds are aligned to 1970-01-01T00:00:00Z.
#[inline]
pub(crate) fn window_end(time: Timestamp, size: i64) -> Timestamp {
    time.saturating_sub(time.rem_euclid(size)).saturating_add(size)
}

/// Whether the window of a time lies on the time line as a whole.
#[inline]
pub(crate) fn is_valid(time: Timestamp, size: i64) -> bool {
    // Without a time: the smallest number there is.
    time >= i64::MIN + size && time <= i64::MAX - 2 * size
}

/// Appends a time as RFC 3339, in UTC, with as many decimals as it needs: none, three or six. Years beyond 9999, which RFC 3339 does
/// not have, are written with more digits and a sign, as ISO 8601 does.
pub(crate) fn write_rfc3339(to: &mut Vec<u8>, time: Timestamp) {
    let (seconds, micros) = (time.div_euclid(1_000_000), time.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    if (0..=9999).contains(&year) {
        digits(to, year.unsigned_abs(), 4);
    } else {
        to.push(if year < 0 { b'-' } else { b'+' });
        digits(to, year.unsigned_abs(), 6);
    }
    for (separator, number) in
        [(b'-', month), (b'-', day), (b'T', second / 3600), (b':', second / 60 % 60), (b':', second % 60)]
    {
        to.push(separator);
        digits(to, number.unsigned_abs(), 2);
    }
    if micros != 0 {
        to.push(b'.');
        match micros % 1000 {
            0 => digits(to, (micros / 1000).unsigned_abs(), 3),
            _ => digits(to, micros.unsigned_abs(), 6),
        }
    }
    to.push(b'Z');
}

fn digits(to: &mut Vec<u8>, number: u64, width: u32) {
    (0..width).rev().for_each(|place| to.push(b'0' + (number / 10_u64.pow(place) % 10) as u8));
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar extended both ways.
///
/// Years are counted from March, so that the leap day is the last one; 146,097 days are 400 years.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(time: Timestamp) -> String {
        let mut bytes = Vec::new();
        write_rfc3339(&mut bytes, time);
        String::from_utf8(bytes).expect("digits are text")
    }

    #[test]
    fn times_are_written_as_rfc_3339() {
        for (time, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00Z"),
            (1_356_998_400_000_000, "2013-01-01T00:00:00Z"),
            (1_357_034_399_500_000, "2013-01-01T09:59:59.500Z"),
            (4_107_542_400_000_001, "2100-03-01T00:00:00.000001Z"),
            (-62_167_219_200_000_000, "0000-01-01T00:00:00Z"),
            (253_402_300_799_000_000, "9999-12-31T23:59:59Z"),
            (253_402_300_800_000_000, "+010000-01-01T00:00:00Z"),
        ] {
            assert_eq!(text(time), expected);
        }
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut last = civil(-200_001);
        for day in -200_000..200_000 {
            let (year, month, date) = civil(day);
            let leap = last.0 % 4 == 0 && (last.0 % 100 != 0 || last.0 % 400 == 0);
            let length = match last.1 {
                2 => 28 + i64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            let next = match last {
                (y, 12, 31) => (y + 1, 1, 1),
                (y, m, d) if d == length => (y, m + 1, 1),
                (y, m, d) => (y, m, d + 1),
            };
            assert_eq!((year, month, date), next, "day {day}");
            last = next;
        }
    }

    #[test]
    fn a_window_holds_its_start_and_not_its_end() {
        for (time, end) in [(0, 10), (9, 10), (10, 20), (-1, 0), (-10, 0), (-11, -10)] {
            assert_eq!(window_end(time, 10), end, "{time}");
        }
        assert!(!is_valid(i64::MIN, 10) && !is_valid(i64::MAX - 1, 10) && is_valid(-5, 10));
    }
}
