//! A record as tests write and compare it.

use std::fmt;

use crate::batch::{BatchBuilder, BatchView, Record, Timestamp};

/// A record.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Event time, if it has one.
    pub time: Option<Timestamp>,
    /// Key, if it has one.
    pub key: Option<Vec<u8>>,
    /// Value; none makes a tombstone.
    pub value: Option<Vec<u8>>,
    /// Names and values, in order.
    pub headers: Vec<(String, Vec<u8>)>,
}

impl Row {
    /// A record with key and value and no event time.
    pub fn new(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        Self { key: Some(key.as_ref().into()), ..Self::of_value(value) }
    }

    /// A record without a key.
    pub fn of_value(value: impl AsRef<[u8]>) -> Self {
        Self { value: Some(value.as_ref().into()), ..Self::default() }
    }

    /// A record without a value.
    pub fn tombstone(key: impl AsRef<[u8]>) -> Self {
        Self { key: Some(key.as_ref().into()), ..Self::default() }
    }

    /// The same with an event time.
    #[must_use]
    pub fn at(mut self, time: Timestamp) -> Self {
        self.time = Some(time);
        self
    }

    /// The same with one header more.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.into(), value.as_ref().into()));
        self
    }

    /// The value as text; empty where there is none.
    ///
    /// # Panics
    ///
    /// If it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.value.as_deref().unwrap_or_default()).expect("the value is text")
    }

    pub(crate) fn from_record(record: &Record<'_>) -> Self {
        Self {
            time: record.time(),
            key: record.key().map(<[u8]>::to_vec),
            value: record.value().map(<[u8]>::to_vec),
            headers: record.headers().map(|(name, value)| (name.to_owned(), value.to_vec())).collect(),
        }
    }

    pub(crate) fn from_batch(batch: BatchView<'_>) -> Vec<Self> {
        batch.records().map(|record| Self::from_record(&record)).collect()
    }

    /// A batch of these records.
    pub fn batch(rows: &[Self]) -> BatchBuilder {
        let mut batch = BatchBuilder::new();
        for row in rows {
            batch.push(row.time, row.key.as_deref(), row.value.as_deref());
            row.headers.iter().for_each(|(name, value)| batch.header(name, value));
        }
        batch
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &Option<Vec<u8>>| match bytes {
            Some(bytes) => format!("\"{}\"", bytes.escape_ascii()),
            None => "none".into(),
        };
        write!(f, "{} = {}", text(&self.key), text(&self.value))?;
        if let Some(time) = self.time {
            write!(f, " @ {time}")?;
        }
        if !self.headers.is_empty() {
            write!(f, " {:?}", self.headers)?;
        }
        Ok(())
    }
}
