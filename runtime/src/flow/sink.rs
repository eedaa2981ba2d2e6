//! The sink's part of a stage: writes what comes, prepares at the barrier, reports what it staged.
//!
//! It never commits: the coordinator does, once for all subtasks, when the manifest exists (I4). What it reported belongs to the
//! coordinator, which keeps it until a manifest names it.

use std::time::Duration;

use super::TaskError;
use super::context::FlowContext;
use super::report::{CutTimings, Event};
use super::stage::{Cutting, progress};
use crate::checkpoint::SubtaskEntry;
use crate::connector::Sink;
use crate::model::{Barrier, Batch, TaskId};
use crate::plugin::HostCut;

/// A sink and what the host keeps for it.
pub(super) struct SinkStage {
    sink: Box<dyn Sink>,
    records: u64,
}

impl SinkStage {
    pub(super) fn new(sink: Box<dyn Sink>, records: u64) -> Self {
        Self { sink, records }
    }

    pub(super) async fn write(&mut self, task: &TaskId, batch: &Batch) -> Result<(), TaskError> {
        self.records += batch.len() as u64;
        self.sink.write(batch).await.map_err(|e| TaskError::connector(task, e))
    }

    pub(super) async fn cut(
        &mut self,
        task: &TaskId,
        barrier: Barrier,
        Cutting { input_names, inbox, align, course }: Cutting<'_>,
        context: &FlowContext,
    ) -> Result<(), TaskError> {
        let began = context.clock.elapsed();
        let committable = self.sink.prepare(barrier.epoch).await.map_err(|e| TaskError::connector(task, e))?;
        let entry = SubtaskEntry {
            segments: Vec::new(),
            positions: Vec::new(),
            watermark: inbox.watermark,
            progress: progress(input_names, inbox, None, HostCut::default()),
            records: self.records,
            schedule: course.cut(&barrier),
        };
        let snapshot = context.clock.elapsed().saturating_sub(began);
        let timings = CutTimings { align, snapshot, upload: Duration::ZERO };
        let (task, epoch) = (task.clone(), barrier.epoch);
        context.tell(Event::Cut { task, epoch, entry: Box::new(entry), committable, bytes: 0, timings }).await;
        Ok(())
    }
}
