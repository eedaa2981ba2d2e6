//! Makes a batch to emit. One builder is kept and used again for each call: it keeps its memory.

use super::{BatchView, ColumnBuilder, NO_TIME, Record, Timestamp, headers};

/// Makes a batch, record by record.
///
/// Keep one in the operator and [`clear`](Self::clear) it after it was emitted: after a few calls it allocates no more.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    timestamps: Vec<Timestamp>,
    keys: ColumnBuilder,
    values: ColumnBuilder,
    headers: ColumnBuilder,
    any_headers: bool,
}

impl BatchBuilder {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// Whether it has no record.
    pub fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }

    /// The bytes of keys, values and headers so far.
    pub fn byte_len(&self) -> usize {
        self.keys.byte_len() + self.values.byte_len() + self.headers.byte_len()
    }

    /// Adds a record.
    #[inline]
    pub fn push(&mut self, time: impl Into<Option<Timestamp>>, key: Option<&[u8]>, value: Option<&[u8]>) {
        self.keys.push(key);
        self.values.push(value);
        self.end_record(time.into());
    }

    /// Adds a record whose value `write` appends to the bytes it is given.
    #[inline]
    pub fn push_with(
        &mut self,
        time: impl Into<Option<Timestamp>>,
        key: Option<&[u8]>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.keys.push(key);
        self.values.push_with(write);
        self.end_record(time.into());
    }

    /// Adds a record that came in, as it is, headers included.
    #[inline]
    pub fn push_record(&mut self, record: &Record<'_>) {
        self.push(record.time(), record.key(), record.value());
        let from = record.headers().encoded();
        if !from.is_empty() {
            self.begin_headers();
            self.headers.extend_last(|to| to.extend_from_slice(from));
        }
    }

    /// Adds a record whose value is JSON.
    ///
    /// # Errors
    ///
    /// If the value cannot be written as JSON; nothing is added then.
    #[cfg(feature = "json")]
    pub fn push_json<T: serde::Serialize + ?Sized>(
        &mut self,
        time: impl Into<Option<Timestamp>>,
        key: Option<&[u8]>,
        value: &T,
    ) -> serde_json::Result<()> {
        let rows = self.values.len();
        if let Err(error) = self.values.push_with(|to| serde_json::to_writer(to, value)) {
            self.values.truncate(rows);
            return Err(error);
        }
        self.keys.push(key);
        self.end_record(time.into());
        Ok(())
    }

    /// Adds a record whose value is encoded by postcard.
    ///
    /// # Errors
    ///
    /// If the value cannot be encoded; nothing is added then.
    #[cfg(feature = "postcard")]
    pub fn push_postcard<T: serde::Serialize + ?Sized>(
        &mut self,
        time: impl Into<Option<Timestamp>>,
        key: Option<&[u8]>,
        value: &T,
    ) -> postcard::Result<()> {
        let rows = self.values.len();
        if let Err(error) = self.values.push_with(|to| postcard::to_io(value, to).map(|_| ())) {
            self.values.truncate(rows);
            return Err(error);
        }
        self.keys.push(key);
        self.end_record(time.into());
        Ok(())
    }

    /// Adds a header to the record that was added last.
    ///
    /// # Panics
    ///
    /// If there is no record, or the name has more than 65,535 bytes.
    pub fn header(&mut self, name: &str, value: &[u8]) {
        assert!(!self.is_empty(), "a header needs a record before it");
        self.begin_headers();
        self.headers.extend_last(|to| headers::encode(to, name, value));
    }

    /// The batch so far.
    #[inline]
    pub fn view(&self) -> BatchView<'_> {
        BatchView::from_columns(&self.timestamps, self.keys.view(), self.values.view(), self.headers.view())
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.timestamps.clear();
        self.keys.clear();
        self.values.clear();
        self.headers.clear();
        self.any_headers = false;
    }

    #[inline]
    fn end_record(&mut self, time: Option<Timestamp>) {
        self.timestamps.push(time.unwrap_or(NO_TIME));
        if self.any_headers {
            self.headers.push_bytes(&[]);
        }
    }

    /// The header column is empty until a record has headers; then it has a row for each record, none of them null.
    fn begin_headers(&mut self) {
        if !self.any_headers {
            self.any_headers = true;
            for _ in 0..self.len() {
                self.headers.push_bytes(&[]);
            }
        }
    }
}

impl<'a> From<&'a BatchBuilder> for BatchView<'a> {
    fn from(builder: &'a BatchBuilder) -> Self {
        builder.view()
    }
}

impl<'a> From<&'a mut BatchBuilder> for BatchView<'a> {
    fn from(builder: &'a mut BatchBuilder) -> Self {
        builder.view()
    }
}
