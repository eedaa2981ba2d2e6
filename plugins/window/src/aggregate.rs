//! What is kept of a key in a window, and how it is written as a result.

use weir_sdk::json;
use weir_sdk::state::State;

/// Which results are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Aggregates {
    pub(crate) count: bool,
    /// Whether values are looked at.
    values: bool,
    sum: bool,
    mean: bool,
    min: bool,
    max: bool,
}

impl Aggregates {
    /// All that there are, with a field or without.
    pub(crate) fn all(field: bool) -> Self {
        Self { count: true, values: field, sum: field, mean: field, min: field, max: field }
    }

    pub(crate) fn parse(names: &[String], field: bool) -> Result<Self, String> {
        if names.is_empty() {
            return Err("aggregates is empty; name some of count, sum, mean, min, max, or leave it out".into());
        }
        let mut asked = Self { count: false, values: field, sum: false, mean: false, min: false, max: false };
        for name in names {
            let one = match name.as_str() {
                "count" => &mut asked.count,
                "sum" => &mut asked.sum,
                "mean" => &mut asked.mean,
                "min" => &mut asked.min,
                "max" => &mut asked.max,
                _ => return Err(format!("aggregate {name:?} is none of count, sum, mean, min, max")),
            };
            if name != "count" && !field {
                return Err(format!("aggregate {name:?} needs a field"));
            }
            *one = true;
        }
        Ok(asked)
    }
}

/// What is kept of a key in a window. `min` and `max` mean nothing while there are no values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Aggregate {
    /// Records.
    pub(crate) count: u64,
    /// Records with a number at the field.
    values: u64,
    sum: f64,
    min: f64,
    max: f64,
}

impl Aggregate {
    /// Adds a record with its number, or without one.
    pub(crate) fn add(&mut self, number: Option<f64>) {
        self.count += 1;
        let Some(number) = number else { return };
        if self.values == 0 {
            (self.min, self.max) = (number, number);
        } else {
            // Not f64::min, whose choice between 0 and -0 is open.
            self.min = if number < self.min { number } else { self.min };
            self.max = if number > self.max { number } else { self.max };
        }
        self.values += 1;
        self.sum += number;
    }

    fn results(&self, asked: Aggregates) -> [(bool, &'static str, f64); 4] {
        [
            (asked.sum, "sum", self.sum),
            (asked.mean, "mean", self.sum / self.values as f64),
            (asked.min, "min", self.min),
            (asked.max, "max", self.max),
        ]
    }

    /// As fields of a JSON object; null where there was no value, or where a sum is beyond what a float holds.
    pub(crate) fn write_json(&self, to: &mut Vec<u8>, asked: Aggregates) {
        to.extend_from_slice(b",\"values\":");
        json::push_number(to, self.values);
        for (_, name, number) in self.results(asked).into_iter().filter(|(asked, ..)| *asked) {
            to.extend_from_slice(b",\"");
            to.extend_from_slice(name.as_bytes());
            to.extend_from_slice(b"\":");
            json::push_number(to, (self.values > 0).then_some(number));
        }
    }

    /// 8 bytes each, little-endian; NaN where there was no value.
    pub(crate) fn write_binary(&self, to: &mut Vec<u8>, asked: Aggregates) {
        if asked.count {
            write_count(to, self.count);
        }
        write_count(to, self.values);
        for (_, _, number) in self.results(asked).into_iter().filter(|(asked, ..)| *asked) {
            // One NaN: which one a division gives depends on the machine.
            let bits = if self.values > 0 && !number.is_nan() { number.to_bits() } else { 0x7ff8_0000_0000_0000 };
            to.extend_from_slice(&bits.to_le_bytes());
        }
    }
}

pub(crate) fn write_count(to: &mut Vec<u8>, count: u64) {
    to.extend_from_slice(&count.to_le_bytes());
}

impl State for Aggregate {
    fn encode(&self, to: &mut Vec<u8>) {
        let words = [self.count, self.values, self.sum.to_bits(), self.min.to_bits(), self.max.to_bits()];
        words.encode(to);
    }

    fn decode(from: &[u8]) -> Result<Self, String> {
        let [count, values, sum, min, max] = <[u64; 5]>::decode(from)?;
        let float = f64::from_bits;
        Ok(Self { count, values, sum: float(sum), min: float(min), max: float(max) })
    }
}
