//! A sink that counts records and drops them: for benches, and for tests that want to know what would have been
//! written without reading files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use super::{ConnectorError, Sink};
use crate::model::{Batch, Epoch, key_hash};

/// What went into a blackhole: of several subtasks, if they share it.
#[derive(Debug, Default)]
pub struct Tally {
    records: AtomicU64,
    bytes: AtomicU64,
    checksum: AtomicU64,
}

impl Tally {
    /// How many records.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Bytes of keys, values and headers.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Of event times, keys and values, whatever the order of the records; 0 if nobody asked for it.
    pub fn checksum(&self) -> u64 {
        self.checksum.load(Ordering::Relaxed)
    }
}

/// Counts records and drops them.
#[derive(Debug, Default)]
pub struct Blackhole {
    tally: Arc<Tally>,
    with_checksum: bool,
}

impl Blackhole {
    /// One that only counts.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that also keeps a checksum: some 20 ns a record.
    pub fn with_checksum(tally: Arc<Tally>) -> Self {
        Self { tally, with_checksum: true }
    }

    /// The counts.
    pub fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }
}

/// A sum over records is the same in any order; the number of the column and whether it is null go in too.
fn checksum(batch: &Batch) -> u64 {
    let mix = |seed: u64, column: Option<&[u8]>| {
        let hash = column.map_or(0x9e37_79b9_7f4a_7c15, key_hash);
        (seed ^ hash).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29)
    };
    (0..batch.len()).fold(0_u64, |sum, row| {
        let time = mix(1, Some(&batch.timestamps[row].to_le_bytes()));
        sum.wrapping_add(mix(mix(time, batch.keys.get(row)), batch.values.get(row)))
    })
}

#[async_trait]
impl Sink for Blackhole {
    async fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        let bytes = batch.keys.bytes.len() + batch.values.bytes.len() + batch.headers.bytes.len();
        self.tally.records.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.tally.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.with_checksum {
            self.tally.checksum.fetch_add(checksum(batch), Ordering::Relaxed);
        }
        Ok(())
    }

    async fn prepare(&mut self, _epoch: Epoch) -> Result<Option<Vec<u8>>, ConnectorError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_does_not_depend_on_the_order_and_does_on_everything_else() {
        type Row = (i64, Option<&'static [u8]>, Option<&'static [u8]>);
        let sum = |rows: &[Row]| {
            let mut batch = Batch::default();
            rows.iter().for_each(|(time, key, value)| batch.push(*time, *key, *value));
            checksum(&batch)
        };
        let (a, b): (Row, Row) = ((1, Some(b"k"), Some(b"v")), (2, None, Some(b"w")));
        assert_eq!(sum(&[a, b]), sum(&[b, a]));
        for other in [(2, Some(b"k" as &[u8]), Some(b"v" as &[u8])), (1, Some(b"v"), Some(b"k")), (1, Some(b"k"), None)]
        {
            assert_ne!(sum(&[a]), sum(&[other]));
        }
        assert_ne!(sum(&[(1, None, Some(b""))]), sum(&[(1, Some(b""), None)]));
    }
}
