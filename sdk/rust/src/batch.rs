//! Batches as an operator sees them: views of columns that the host wrote into this component's memory.
//!
//! Nothing is copied: a [`BatchView`] and a [`Record`] borrow the batch for the time of the call. The host has checked all
//! lengths and offsets before.

mod builder;
mod column;
mod headers;

pub use builder::BatchBuilder;
pub use column::{Column, ColumnBuilder};
pub use headers::Headers;

use crate::bindings::types::{BatchParam, BatchResult};

/// A time in microseconds since 1970-01-01T00:00:00Z, leap seconds not counted.
pub type Timestamp = i64;

/// The event time of a record that has none.
pub const NO_TIME: Timestamp = i64::MIN;

/// The last watermark of a stream: nothing will come any more.
pub const END_OF_TIME: Timestamp = i64::MAX;

/// The hash of a key: XXH3-64 with seed 0. A record without a key has the hash of no bytes.
///
/// On a keyed input the host has done this already: see [`BatchView::hashes`].
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The key group of a hash: `(((hash >> 32) & 0xffff) * key_groups) >> 16`, with at most 32,768 key groups.
#[inline]
pub fn key_group(hash: u64, key_groups: u32) -> u32 {
    ((((hash >> 32) & 0xffff) * u64::from(key_groups)) >> 16) as u32
}

/// A batch of records in columns, borrowed for the time of a call. Copying it copies no record.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchView<'a> {
    timestamps: &'a [Timestamp],
    hashes: &'a [u64],
    keys: Column<'a>,
    values: Column<'a>,
    headers: Column<'a>,
}

impl<'a> BatchView<'a> {
    /// The number of records; at least one in a batch that was handed in.
    #[inline]
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// Whether it has no record.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }

    /// The event time of each record, [`NO_TIME`] where it has none.
    #[inline]
    pub fn timestamps(&self) -> &'a [Timestamp] {
        self.timestamps
    }

    /// The hash of each key on a keyed input, otherwise empty. [`BatchView::hash`] answers in either case.
    #[inline]
    pub fn hashes(&self) -> &'a [u64] {
        self.hashes
    }

    /// The hash of a record's key: the host's where it gave one, else computed here.
    ///
    /// # Panics
    ///
    /// If there is no such record and the host gave hashes.
    #[inline]
    pub fn hash(&self, row: usize) -> u64 {
        if self.hashes.is_empty() { key_hash(self.keys.get(row).unwrap_or_default()) } else { self.hashes[row] }
    }

    /// The keys.
    #[inline]
    pub fn keys(&self) -> Column<'a> {
        self.keys
    }

    /// The values.
    #[inline]
    pub fn values(&self) -> Column<'a> {
        self.values
    }

    /// The headers of a record, in order.
    #[inline]
    pub fn headers(&self, row: usize) -> Headers<'a> {
        Headers::new(self.headers.get(row).unwrap_or_default())
    }

    /// One record.
    ///
    /// # Panics
    ///
    /// If there is no such record.
    #[inline]
    pub fn record(&self, row: usize) -> Record<'a> {
        assert!(row < self.len(), "record {row} of a batch of {}", self.len());
        Record { batch: *self, row }
    }

    /// All records, in order.
    #[inline]
    pub fn records(&self) -> impl ExactSizeIterator<Item = Record<'a>> + use<'a> {
        let batch = *self;
        (0..batch.len()).map(move |row| Record { batch, row })
    }

    /// The same records with other values: nothing else is copied. This is how an operator that gives one
    /// record for each hands keys, times and headers on for free.
    ///
    /// # Panics
    ///
    /// If the column has not as many rows as the batch has records.
    #[inline]
    #[must_use]
    pub fn with_values<'b>(&self, values: Column<'b>) -> BatchView<'b>
    where
        'a: 'b,
    {
        values.assert_rows(self.len());
        BatchView { values, ..*self }
    }

    /// The same records with other keys.
    ///
    /// # Panics
    ///
    /// If the column has not as many rows as the batch has records.
    #[inline]
    #[must_use]
    pub fn with_keys<'b>(&self, keys: Column<'b>) -> BatchView<'b>
    where
        'a: 'b,
    {
        keys.assert_rows(self.len());
        BatchView { keys, hashes: &[], ..*self }
    }

    /// The same records with other event times.
    ///
    /// # Panics
    ///
    /// If there are not as many times as records.
    #[inline]
    #[must_use]
    pub fn with_timestamps<'b>(&self, timestamps: &'b [Timestamp]) -> BatchView<'b>
    where
        'a: 'b,
    {
        assert_eq!(timestamps.len(), self.len(), "as many times as records");
        BatchView { timestamps, ..*self }
    }

    /// A batch of columns. It must hold to the rules of `wit/types.wit`: this is for who plays the host, see [`crate::native`].
    #[inline]
    pub fn from_columns(
        timestamps: &'a [Timestamp],
        keys: Column<'a>,
        values: Column<'a>,
        headers: Column<'a>,
    ) -> Self {
        Self { timestamps, hashes: &[], keys, values, headers }
    }

    /// The same records with hashes of their keys, as a keyed input has them.
    ///
    /// # Panics
    ///
    /// If there are some, and not as many as records.
    #[must_use]
    pub fn with_hashes<'b>(&self, hashes: &'b [u64]) -> BatchView<'b>
    where
        'a: 'b,
    {
        assert!(hashes.is_empty() || hashes.len() == self.len(), "as many hashes as records");
        BatchView { hashes, ..*self }
    }

    /// Panics where a batch breaks a rule for which the host would trap.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn check(&self) {
        for (name, column) in [("keys", self.keys), ("values", self.values), ("headers", self.headers)] {
            if let Err(fault) = column.check(self.len()) {
                panic!("column {name:?} of a batch is malformed: {fault}");
            }
        }
    }
}

impl<'a> From<&'a BatchResult> for BatchView<'a> {
    #[inline]
    fn from(batch: &'a BatchResult) -> Self {
        Self {
            timestamps: &batch.timestamps,
            hashes: &batch.hashes,
            keys: Column::new(&batch.key_offsets, &batch.keys, &batch.key_nulls),
            values: Column::new(&batch.value_offsets, &batch.values, &batch.value_nulls),
            headers: Column::new(&batch.header_offsets, &batch.headers, &[]),
        }
    }
}

impl<'a> From<BatchView<'a>> for BatchParam<'a> {
    #[inline]
    fn from(batch: BatchView<'a>) -> Self {
        let (key_offsets, keys, key_nulls) = batch.keys.parts();
        let (value_offsets, values, value_nulls) = batch.values.parts();
        let (header_offsets, headers, _) = batch.headers.parts();
        Self {
            timestamps: batch.timestamps,
            // The host hashes anew what comes out of a plugin.
            hashes: &[],
            key_offsets,
            keys,
            key_nulls,
            value_offsets,
            values,
            value_nulls,
            header_offsets,
            headers,
        }
    }
}

/// One record of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    batch: BatchView<'a>,
    row: usize,
}

impl<'a> Record<'a> {
    /// Its number in the batch: what [`crate::Output::reject`] wants.
    #[inline]
    pub fn index(&self) -> u32 {
        self.row as u32
    }

    /// Its event time, if it has one.
    #[inline]
    pub fn time(&self) -> Option<Timestamp> {
        let time = self.batch.timestamps[self.row];
        (time != NO_TIME).then_some(time)
    }

    /// Its key, if it has one. An empty key is a key.
    #[inline]
    pub fn key(&self) -> Option<&'a [u8]> {
        self.batch.keys.get(self.row)
    }

    /// Its value; a record without one is a tombstone: what was known under its key is gone.
    #[inline]
    pub fn value(&self) -> Option<&'a [u8]> {
        self.batch.values.get(self.row)
    }

    /// The hash of its key.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.batch.hash(self.row)
    }

    /// Its key with its hash, for [`crate::state`], if it has one.
    #[inline]
    pub fn keyed(&self) -> Option<crate::state::Key<'a>> {
        self.key().map(|key| crate::state::Key::with_hash(key, self.hash()))
    }

    /// Its headers, in order; a name may come more than once.
    #[inline]
    pub fn headers(&self) -> Headers<'a> {
        self.batch.headers(self.row)
    }

    /// Its value, parsed as JSON. A record without a value reads as `null`.
    ///
    /// # Errors
    ///
    /// If the value is not JSON of that shape.
    #[cfg(feature = "json")]
    pub fn json<T: serde::Deserialize<'a>>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(self.value().unwrap_or(b"null"))
    }

    /// Its value, decoded from postcard.
    ///
    /// # Errors
    ///
    /// If the value does not decode, or there is none.
    #[cfg(feature = "postcard")]
    pub fn postcard<T: serde::Deserialize<'a>>(&self) -> postcard::Result<T> {
        postcard::from_bytes(self.value().unwrap_or_default())
    }
}
