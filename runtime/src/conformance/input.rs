//! The records that an operator is tried with: read once through the source that pipelines use, keyed as an edge of a pipeline keys them, and
//! kept.
//!
//! All of them are in memory, so both their number and their bytes are bounded; what was left out is told.

use std::path::Path;
use std::time::Duration;

use crate::connector::{ConnectorErrorKind, Polled, TaskContext, open_source};
use crate::error::{Error, ErrorKind};
use crate::flow::Keying;
use crate::model::{
    Batch, BatchLimit, Generation, JobId, KEY_GROUPS_DEFAULT, NO_TIME, NodeName, TaskId, Timestamp, key_group,
    key_hash, subtask_of_group,
};
use crate::plan::SourceSpec;

/// The most bytes of records that are kept.
pub const INPUT_BYTES_MAX: usize = 256 << 20;

/// Records, in their order.
#[derive(Debug)]
pub struct Input {
    pub(super) records: Batch,
    /// Of each record, the largest event time up to it.
    newest: Vec<Timestamp>,
    /// How far watermarks stay behind that, in microseconds.
    out_of_orderness: i64,
    /// There are more than these.
    pub(super) is_cut: bool,
}

impl Input {
    /// Reads a source from its beginning, up to so many records.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or if there is nothing in it.
    pub async fn read(spec: &SourceSpec, dir: &Path, keying: &Keying, records_max: usize) -> Result<Self, Error> {
        let failed = |error: crate::connector::ConnectorError| {
            let kind = match error.kind {
                ConnectorErrorKind::Transient => ErrorKind::Store,
                ConnectorErrorKind::Record | ConnectorErrorKind::Mismatch => ErrorKind::Usage,
            };
            let outer = Error::new(kind, "the input cannot be read");
            let outer = match &error.help {
                Some(help) => outer.help(help.clone()),
                None => outer,
            };
            outer.caused_by(error)
        };
        let context = TaskContext {
            job: "conformance".to_owned(),
            job_id: JobId([0; 16]),
            generation: Generation(0),
            task: TaskId { node: NodeName::new(spec.name.as_str()), subtask: 0 },
            parallelism: 1,
        };
        let mut source = open_source(spec, dir, &context, &[]).map_err(failed)?;
        let (mut records, mut is_cut) = (Batch::default(), false);
        loop {
            let left = records_max.saturating_sub(records.len());
            match source.poll(BatchLimit { records: left.max(1), bytes: 1 << 20 }).await.map_err(failed)? {
                Polled::Records { records: mut more, .. } => {
                    keying.apply(&mut more).map_err(|fault| {
                        Error::new(ErrorKind::Usage, "the key of a record cannot be found").caused_by(fault)
                    })?;
                    for row in 0..more.len() {
                        if records.len() >= records_max || records.byte_len() >= INPUT_BYTES_MAX {
                            is_cut = true;
                            break;
                        }
                        records.push_row(&more, row);
                    }
                    if is_cut {
                        break;
                    }
                }
                Polled::Pending(pause) if pause.is_zero() => {}
                Polled::Pending(_) | Polled::End => break,
            }
        }
        if records.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "the input has no records")
                .help("give a file with records as the operator expects them: the more alike real ones, the better"));
        }
        Ok(Self::new(records, spec.out_of_orderness, is_cut))
    }

    /// These records, keyed already.
    pub fn new(records: Batch, out_of_orderness: Duration, is_cut: bool) -> Self {
        let mut newest = NO_TIME;
        let up_to = records.timestamps.iter().map(|&time| {
            newest = newest.max(time);
            newest
        });
        let out_of_orderness = i64::try_from(out_of_orderness.as_micros()).unwrap_or(i64::MAX);
        Self { newest: up_to.collect(), records, out_of_orderness, is_cut }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The watermark after the first `position` records, as a source would tell it; none while no record has an event time.
    pub(super) fn watermark(&self, position: usize) -> Option<Timestamp> {
        let newest = *self.newest.get(position.checked_sub(1)?)?;
        (newest > NO_TIME).then(|| newest.saturating_sub(self.out_of_orderness).saturating_sub(1))
    }

    /// Forgets all but the first so many.
    pub(super) fn keep(&mut self, records: usize) {
        if records < self.len() {
            self.records = self.slice(0, records, |_| true);
            self.newest.truncate(records);
            self.is_cut = true;
        }
    }

    /// A copy of the rows of a range that `only` lets through.
    pub(super) fn slice(&self, from: usize, to: usize, only: impl Fn(usize) -> bool) -> Batch {
        let mut batch = Batch::default();
        (from..to).filter(|&row| only(row)).for_each(|row| batch.push_row(&self.records, row));
        batch
    }

    /// The subtask to which a record goes on a keyed edge.
    pub(super) fn subtask(&self, row: usize, parallelism: u32) -> u32 {
        let hash = key_hash(self.records.keys.get(row).unwrap_or_default());
        subtask_of_group(key_group(hash, KEY_GROUPS_DEFAULT), parallelism, KEY_GROUPS_DEFAULT)
    }

    /// The bytes of a record: key, value and headers.
    pub(super) fn record_bytes(&self, row: usize) -> usize {
        let records = &self.records;
        [&records.keys, &records.values, &records.headers].iter().filter_map(|c| c.get(row)).map(<[u8]>::len).sum()
    }

    /// How many records have a key.
    pub(super) fn keyed(&self) -> usize {
        (0..self.len()).filter(|&row| self.records.keys.get(row).is_some()).count()
    }

    /// How many records have an event time.
    pub(super) fn timed(&self) -> usize {
        self.records.timestamps.iter().filter(|&&time| time != NO_TIME).count()
    }
}
