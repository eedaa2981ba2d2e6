//! Records in columns: the unit in which data moves.
//!
//! A batch is what the plugin contract calls one (`wit/types.wit`): event times, hashes of keys, and three columns of
//! bytes. A column that nobody uses costs nothing. [`Batch::validate`] is the one place where lengths and offsets
//! that came from outside are checked; everything else relies on it.

use serde::{Deserialize, Serialize};

use super::{Timestamp, key_hash};

/// The largest key, value or headers of one record, in bytes.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// When a batch is full: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimit {
    /// Records.
    pub records: usize,
    /// Bytes of keys, values and headers.
    pub bytes: usize,
}

impl Default for BatchLimit {
    fn default() -> Self {
        Self { records: 1024, bytes: 1 << 20 }
    }
}

/// A column of optional byte strings.
///
/// `offsets` is empty while no row has a value, and otherwise has one entry more than there are rows. Bit `i % 8` of
/// byte `i / 8` of `nulls` is set where row `i` has none; `nulls` is empty where every row has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Where each row begins and ends in `bytes`.
    pub offsets: Vec<u32>,
    /// All rows, one after the other.
    pub bytes: Vec<u8>,
    /// Which rows have no value.
    pub nulls: Vec<u8>,
}

impl Column {
    /// The bytes of a row; none if it has none.
    #[inline]
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        let end = *self.offsets.get(row + 1)?;
        if self.is_null(row) {
            return None;
        }
        self.bytes.get(self.offsets[row] as usize..end as usize)
    }

    #[inline]
    fn is_null(&self, row: usize) -> bool {
        !self.nulls.is_empty() && self.nulls[row / 8] & (1 << (row % 8)) != 0
    }

    /// Adds row number `row`, which must be the next one.
    #[inline]
    pub fn push(&mut self, row: usize, value: Option<&[u8]>) {
        match value {
            Some(bytes) => {
                if self.offsets.is_empty() {
                    self.begin(row);
                }
                self.bytes.extend_from_slice(bytes);
                self.offsets.push(self.bytes.len() as u32);
                if !self.nulls.is_empty() && row.is_multiple_of(8) {
                    self.nulls.push(0);
                }
            }
            None if self.offsets.is_empty() => {}
            None => {
                self.offsets.push(self.bytes.len() as u32);
                if self.nulls.is_empty() {
                    self.nulls.resize(row / 8 + 1, 0);
                } else if row.is_multiple_of(8) {
                    self.nulls.push(0);
                }
                self.nulls[row / 8] |= 1 << (row % 8);
            }
        }
    }

    /// The first row that has a value comes after `row` rows that have none.
    #[cold]
    fn begin(&mut self, row: usize) {
        self.offsets.resize(row + 1, 0);
        if row > 0 {
            self.nulls.resize(row.div_ceil(8), 0xff);
            if !row.is_multiple_of(8) {
                self.nulls[row / 8] = (1 << (row % 8)) - 1;
            }
        }
    }

    fn clear(&mut self) {
        self.offsets.clear();
        self.bytes.clear();
        self.nulls.clear();
    }

    fn byte_len(&self) -> usize {
        self.bytes.len() + self.offsets.len() * 4 + self.nulls.len()
    }

    fn validate(&self, column: &'static str, rows: usize) -> Result<(), BatchFault> {
        let fault = |fault| Err(BatchFault { column, fault });
        if self.offsets.is_empty() {
            return match (self.bytes.len(), self.nulls.len()) {
                (0, 0) => Ok(()),
                (0, n) => fault(Fault::Length { what: "null bytes without offsets", is: n, must: 0 }),
                (n, _) => fault(Fault::Length { what: "bytes without offsets", is: n, must: 0 }),
            };
        }
        if self.offsets.len() != rows + 1 {
            return fault(Fault::Length { what: "offsets", is: self.offsets.len(), must: rows + 1 });
        }
        if self.offsets[0] != 0 {
            return fault(Fault::FirstOffset(self.offsets[0]));
        }
        // One pass that compilers turn into vector code; the slow look for the culprit comes only after it.
        if !self.offsets.windows(2).fold(true, |good, pair| good & (pair[0] <= pair[1])) {
            let row = self.offsets.windows(2).position(|p| p[0] > p[1]).unwrap_or(0);
            return fault(Fault::Decreasing { row, from: self.offsets[row], to: self.offsets[row + 1] });
        }
        let end = self.offsets[rows] as usize;
        if end != self.bytes.len() {
            return fault(Fault::Length { what: "bytes", is: self.bytes.len(), must: end });
        }
        if self.bytes.len() > RECORD_BYTES_MAX
            && let Some(row) = self.offsets.windows(2).position(|pair| (pair[1] - pair[0]) as usize > RECORD_BYTES_MAX)
        {
            let bytes = self.offsets[row + 1] - self.offsets[row];
            return fault(Fault::RecordTooLarge { row, bytes: bytes as usize });
        }
        if self.nulls.is_empty() {
            return Ok(());
        }
        if self.nulls.len() != rows.div_ceil(8) {
            return fault(Fault::Length { what: "null bytes", is: self.nulls.len(), must: rows.div_ceil(8) });
        }
        if !rows.is_multiple_of(8) && self.nulls[rows / 8] >> (rows % 8) != 0 {
            return fault(Fault::UnusedNullBits);
        }
        for row in 0..rows {
            if self.is_null(row) && self.offsets[row] != self.offsets[row + 1] {
                return fault(Fault::NullWithBytes { row });
            }
        }
        Ok(())
    }
}

/// Records in columns. Row `i` of each column belongs to record `i`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The event time of each record; [`super::NO_TIME`] where it has none.
    pub timestamps: Vec<Timestamp>,
    /// The hash of each key on a keyed edge, otherwise empty.
    pub hashes: Vec<u64>,
    /// Keys.
    pub keys: Column,
    /// Values; a record without one is a tombstone.
    pub values: Column,
    /// Headers, encoded as the contract says.
    pub headers: Column,
}

impl Batch {
    /// The number of records.
    #[inline]
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// Whether it has no record.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }

    /// The memory it takes, in bytes: what channels count.
    pub fn byte_len(&self) -> usize {
        self.timestamps.len() * 8
            + self.hashes.len() * 8
            + self.keys.byte_len()
            + self.values.byte_len()
            + self.headers.byte_len()
    }

    /// Adds a record without headers and without a hash.
    #[inline]
    pub fn push(&mut self, time: Timestamp, key: Option<&[u8]>, value: Option<&[u8]>) {
        let row = self.timestamps.len();
        self.timestamps.push(time);
        self.keys.push(row, key);
        self.values.push(row, value);
        if !self.headers.offsets.is_empty() {
            self.headers.push(row, Some(&[]));
        }
    }

    /// Adds record `row` of another batch, its hash included where it has one.
    #[inline]
    pub fn push_row(&mut self, from: &Batch, row: usize) {
        let new = self.timestamps.len();
        self.timestamps.push(from.timestamps[row]);
        if let Some(hash) = from.hashes.get(row) {
            self.hashes.push(*hash);
        }
        self.keys.push(new, from.keys.get(row));
        self.values.push(new, from.values.get(row));
        match from.headers.get(row) {
            Some(headers) if !headers.is_empty() => {
                if self.headers.offsets.is_empty() {
                    self.headers.offsets.resize(new + 1, 0);
                }
                self.headers.push(new, Some(headers));
            }
            _ if !self.headers.offsets.is_empty() => self.headers.push(new, Some(&[])),
            _ => {}
        }
    }

    /// Fills `hashes` from the keys.
    pub fn hash_keys(&mut self) {
        self.hashes.clear();
        self.hashes.reserve(self.len());
        for row in 0..self.len() {
            self.hashes.push(key_hash(self.keys.get(row).unwrap_or_default()));
        }
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.timestamps.clear();
        self.hashes.clear();
        self.keys.clear();
        self.values.clear();
        self.headers.clear();
    }

    /// Checks every rule of the contract on lengths, offsets and null bits. For what comes from a guest or from disk;
    /// the rest of the runtime relies on it.
    ///
    /// # Errors
    ///
    /// The first rule that is broken, with the column and the values that disagree.
    pub fn validate(&self) -> Result<(), BatchFault> {
        let rows = self.len();
        if !self.hashes.is_empty() && self.hashes.len() != rows {
            return Err(BatchFault {
                column: "hashes",
                fault: Fault::Length { what: "hashes", is: self.hashes.len(), must: rows },
            });
        }
        self.keys.validate("keys", rows)?;
        self.values.validate("values", rows)?;
        self.headers.validate("headers", rows)?;
        if !self.headers.nulls.is_empty() {
            return Err(BatchFault { column: "headers", fault: Fault::UnusedNullBits });
        }
        for row in 0..if self.headers.bytes.is_empty() { 0 } else { rows } {
            if !headers_are_well_formed(self.headers.get(row).unwrap_or_default()) {
                return Err(BatchFault { column: "headers", fault: Fault::Headers { row } });
            }
        }
        Ok(())
    }
}

fn headers_are_well_formed(mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        let Some((name, after)) =
            rest.split_first_chunk::<2>().and_then(|(n, rest)| rest.split_at_checked(u16::from_le_bytes(*n) as usize))
        else {
            return false;
        };
        let Some((_, after)) =
            after.split_first_chunk::<4>().and_then(|(n, rest)| rest.split_at_checked(u32::from_le_bytes(*n) as usize))
        else {
            return false;
        };
        if std::str::from_utf8(name).is_err() {
            return false;
        }
        rest = after;
    }
    true
}

/// A batch that breaks a rule of the contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column:?} of a batch is malformed: {fault}")]
pub struct BatchFault {
    /// Which column.
    pub column: &'static str,
    fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("it has {is} {what} and must have {must}")]
    Length { what: &'static str, is: usize, must: usize },
    #[error("its first offset is {0} and must be 0")]
    FirstOffset(u32),
    #[error("offsets go down from {from} to {to} at record {row}")]
    Decreasing { row: usize, from: u32, to: u32 },
    #[error("record {row} takes {bytes} bytes, more than {RECORD_BYTES_MAX}, the most that one may take")]
    RecordTooLarge { row: usize, bytes: usize },
    #[error("null bits beyond the last record are set")]
    UnusedNullBits,
    #[error("record {row} is null and has bytes")]
    NullWithBytes { row: usize },
    #[error("the headers of record {row} do not decode")]
    Headers { row: usize },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Row = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let bytes = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..5));
        proptest::collection::vec((any::<i64>(), bytes(), bytes()), 0..40)
    }

    fn build(rows: &[Row]) -> Batch {
        let mut batch = Batch::default();
        for (time, key, value) in rows {
            batch.push(*time, key.as_deref(), value.as_deref());
        }
        batch
    }

    proptest! {
        #[test]
        fn a_batch_gives_back_the_rows_it_was_built_from(rows in rows()) {
            let batch = build(&rows);
            prop_assert_eq!(batch.validate(), Ok(()));
            prop_assert_eq!(batch.len(), rows.len());
            for (i, (time, key, value)) in rows.iter().enumerate() {
                prop_assert_eq!(batch.timestamps[i], *time);
                prop_assert_eq!(batch.keys.get(i), key.as_deref());
                prop_assert_eq!(batch.values.get(i), value.as_deref());
            }
        }

        #[test]
        fn copying_row_by_row_gives_an_equal_batch(rows in rows()) {
            let mut batch = build(&rows);
            batch.hash_keys();
            let mut copy = Batch::default();
            for row in 0..batch.len() {
                copy.push_row(&batch, row);
            }
            prop_assert_eq!(copy.validate(), Ok(()));
            prop_assert_eq!(copy, batch);
        }

        /// Whatever a guest makes of one column is found or harmless: reading every row never panics.
        #[test]
        fn a_batch_that_passes_validation_can_be_read(
            n in 0usize..20,
            offsets in proptest::collection::vec(0u32..12, 0..22),
            bytes in proptest::collection::vec(any::<u8>(), 0..12),
            nulls in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let batch = Batch {
                timestamps: vec![0; n],
                values: Column { offsets, bytes, nulls },
                ..Batch::default()
            };
            if batch.validate().is_ok() {
                for row in 0..n {
                    let _ = batch.values.get(row);
                }
            }
        }
    }

    #[test]
    fn each_broken_rule_is_named() {
        let column = |offsets: &[u32], bytes: &[u8], nulls: &[u8]| Batch {
            timestamps: vec![0; 2],
            values: Column { offsets: offsets.into(), bytes: bytes.into(), nulls: nulls.into() },
            ..Batch::default()
        };
        let message = |b: Batch| b.validate().map_err(|e| e.fault.to_string());
        for (batch, part) in [
            (column(&[0, 1], b"a", &[]), "must have 3"),
            (column(&[1, 1, 1], b"a", &[]), "first offset is 1"),
            (column(&[0, 2, 1], b"a", &[]), "down from 2 to 1"),
            (column(&[0, 1, 9], b"a", &[]), "must have 9"),
            (column(&[], b"a", &[]), "bytes without offsets"),
            (column(&[0, 1, 1], b"a", &[0b100]), "beyond the last record"),
            (column(&[0, 1, 1], b"a", &[0b01]), "is null and has bytes"),
            (column(&[0, 1, 1], b"a", &[0, 0]), "must have 1"),
        ] {
            let message = message(batch).expect_err(part);
            assert!(message.contains(part), "{message:?} should say {part:?}");
        }
    }

    #[test]
    fn headers_must_decode() {
        let mut batch = Batch::default();
        batch.push(0, None, Some(b"v"));
        batch.headers = Column { offsets: vec![0, 3], bytes: vec![9, 0, b'a'], nulls: vec![] };
        assert!(batch.validate().is_err());
        batch.headers = Column { offsets: vec![0, 8], bytes: vec![1, 0, b'a', 1, 0, 0, 0, b'x'], nulls: vec![] };
        assert_eq!(batch.validate(), Ok(()));
    }
}
