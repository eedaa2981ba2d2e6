//! An SDK operator as native code behind the host's `Operator`.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use weir::flow::OperatorCode;
use weir::model::{self, Batch, Chunk, Column, Descriptor, Epoch, Port, TaskInfo, Timestamp};
use weir::plugin::{Operator, OperatorError, Output, SnapshotWriter};
use weir_sdk::Stateful;
use weir_sdk::batch::{BatchView, Column as View};
use weir_sdk::bindings::log::Level;
use weir_sdk::bindings::snapshots;
use weir_sdk::native::{self, Imports};

/// An operator that was written with the SDK, called natively.
#[derive(Debug)]
pub struct Native<O>(O);

/// The code of a node that runs `O` natively.
///
/// # Panics
///
/// If the operator describes itself in a way that a component could not.
pub fn native<O: Stateful + Send + 'static>(config: &str) -> OperatorCode {
    let config: Arc<str> = config.into();
    let wit = O::descriptor().into_wit();
    let port = |port: &weir_sdk::bindings::types::Port| Port {
        name: port.name.clone(),
        summary: port.summary.clone(),
        keyed: port.keyed,
    };
    let descriptor = Descriptor {
        name: wit.name.clone(),
        version: wit.version.clone(),
        summary: wit.summary.clone(),
        inputs: wit.inputs.iter().map(port).collect(),
        outputs: wit.outputs.iter().map(port).collect(),
        state: match wit.state {
            weir_sdk::bindings::types::StateKind::Stateless => model::StateKind::Stateless,
            weir_sdk::bindings::types::StateKind::Whole => model::StateKind::Whole,
            weir_sdk::bindings::types::StateKind::Keyed => model::StateKind::Keyed,
        },
        state_version: wit.state_version,
        oldest_state_version: wit.oldest_state_version,
        config_schema: wit.config_schema.clone(),
    };
    let open = move |task: TaskInfo| {
        let config = Arc::clone(&config);
        async move {
            let info = weir_sdk::TaskInfo {
                job: task.job,
                node: task.node,
                subtask: task.subtask,
                parallelism: task.parallelism,
                key_groups: task.key_groups,
                first_key_group: task.groups.start,
                end_key_group: task.groups.end,
                seed: task.seed,
                attributes: Vec::new(),
            };
            let operator = O::open(&config, &info).map_err(failure)?;
            Ok(Box::new(Native(operator)) as Box<dyn Operator>)
        }
        .boxed()
    };
    OperatorCode { descriptor, digest: [0; 32], image: None, open: Arc::new(open) }
}

fn failure(failure: weir_sdk::Failure) -> OperatorError {
    match failure.kind {
        weir_sdk::FailureKind::Retry => OperatorError::Retry(failure.message),
        weir_sdk::FailureKind::Invalid => OperatorError::Invalid(failure.message),
        weir_sdk::FailureKind::Fatal => OperatorError::Fatal(failure.message),
    }
}

fn view(batch: &Batch) -> BatchView<'_> {
    fn column(column: &Column) -> View<'_> {
        View::new(&column.offsets, &column.bytes, &column.nulls)
    }
    BatchView::from_columns(&batch.timestamps, column(&batch.keys), column(&batch.values), column(&batch.headers))
        .with_hashes(&batch.hashes)
}

/// Copies what is emitted, as the host copies it out of a guest.
fn copy(batch: BatchView<'_>) -> Batch {
    fn column(column: View<'_>) -> Column {
        Column { offsets: column.offsets().to_vec(), bytes: column.bytes().to_vec(), nulls: column.nulls().to_vec() }
    }
    Batch {
        timestamps: batch.timestamps().to_vec(),
        hashes: Vec::new(),
        keys: column(batch.keys()),
        values: column(batch.values()),
        headers: Column::default(),
    }
}

/// The host of one call.
struct Host<'a> {
    now: Timestamp,
    out: Option<&'a mut Output>,
    batch: Option<&'a Batch>,
    writer: Option<&'a mut dyn SnapshotWriter>,
    chunks: VecDeque<Chunk>,
}

impl Host<'_> {
    fn new(now: Timestamp) -> Self {
        Self { now, out: None, batch: None, writer: None, chunks: VecDeque::new() }
    }
}

impl Imports for Host<'_> {
    fn emit(&mut self, port: u32, batch: BatchView<'_>) {
        let batch = copy(batch);
        if let Some(out) = self.out.as_mut().filter(|_| !batch.is_empty()) {
            out.emitted.push((port, batch));
        }
    }

    fn reject(&mut self, index: u32, reason: &str) {
        if let (Some(out), Some(batch)) = (&mut self.out, self.batch) {
            out.rejected.0.push_row(batch, index as usize);
            out.rejected.1.push(reason.to_owned());
        }
    }

    fn reject_batch(&mut self, batch: BatchView<'_>, reason: &str) {
        let batch = copy(batch);
        if let Some(out) = &mut self.out {
            for row in 0..batch.len() {
                out.rejected.0.push_row(&batch, row);
                out.rejected.1.push(reason.to_owned());
            }
        }
    }

    fn log(&mut self, _level: Level, _message: &str) {}

    fn log_enabled(&mut self, _level: Level) -> bool {
        false
    }

    fn count(&mut self, _name: &str, _delta: u64) {}

    fn gauge(&mut self, _name: &str, _value: f64) {}

    fn observe(&mut self, _name: &str, _value: f64) {}

    fn now(&mut self) -> i64 {
        self.now
    }

    fn wake_at(&mut self, at: i64) {
        if let Some(out) = &mut self.out {
            out.wake_at = Some(out.wake_at.map_or(at, |asked| asked.min(at)));
        }
    }

    fn write(&mut self, target: snapshots::Segment, data: &[u8]) -> bool {
        let scope = match target.scope {
            snapshots::Scope::KeyGroup(group) => model::Scope::KeyGroup(group),
            snapshots::Scope::Subtask => model::Scope::Subtask,
            snapshots::Scope::Shared => model::Scope::Shared,
            snapshots::Scope::Item => model::Scope::Item,
        };
        let kind = match target.kind {
            snapshots::SegmentKind::Base => model::SegmentKind::Base,
            snapshots::SegmentKind::Delta => model::SegmentKind::Delta,
        };
        self.writer.as_mut().is_none_or(|writer| writer.write(scope, kind, data))
    }

    fn read(&mut self) -> Option<snapshots::Chunk> {
        let chunk = self.chunks.pop_front()?;
        let scope = match chunk.scope {
            model::Scope::KeyGroup(group) => snapshots::Scope::KeyGroup(group),
            model::Scope::Subtask => snapshots::Scope::Subtask,
            model::Scope::Shared => snapshots::Scope::Shared,
            model::Scope::Item => snapshots::Scope::Item,
        };
        let kind = match chunk.kind {
            model::SegmentKind::Base => snapshots::SegmentKind::Base,
            model::SegmentKind::Delta => snapshots::SegmentKind::Delta,
        };
        let source = snapshots::Segment { scope, kind };
        Some(snapshots::Chunk { source, origin: chunk.origin, data: chunk.data.to_vec() })
    }
}

impl<O: Stateful + Send> Native<O> {
    fn call(
        &mut self,
        now: Timestamp,
        out: &mut Output,
        batch: Option<&Batch>,
        run: impl FnOnce(&mut O, &mut weir_sdk::Output) -> Result<weir_sdk::Progress, weir_sdk::Failure>,
    ) -> Result<(), OperatorError> {
        let mut host = Host { out: Some(out), batch, ..Host::new(now) };
        let progress = native::call(&mut host, |output| run(&mut self.0, output)).map_err(failure)?;
        out.more = progress == weir_sdk::Progress::More;
        Ok(())
    }
}

#[async_trait]
impl<O: Stateful + Send> Operator for Native<O> {
    async fn process(
        &mut self,
        now: Timestamp,
        port: u32,
        batch: &Batch,
        out: &mut Output,
    ) -> Result<(), OperatorError> {
        self.call(now, out, Some(batch), |operator, output| operator.process(port, view(batch), output))
    }

    async fn advance(&mut self, now: Timestamp, watermark: Timestamp, out: &mut Output) -> Result<(), OperatorError> {
        self.call(now, out, None, |operator, output| operator.advance(watermark, output))
    }

    async fn wake(&mut self, now: Timestamp, out: &mut Output) -> Result<(), OperatorError> {
        self.call(now, out, None, |operator, output| operator.wake(output))
    }

    async fn finish(&mut self, now: Timestamp, port: u32, out: &mut Output) -> Result<(), OperatorError> {
        self.call(now, out, None, |operator, output| operator.finish(port, output))
    }

    async fn resume(&mut self, now: Timestamp, out: &mut Output) -> Result<(), OperatorError> {
        self.call(now, out, None, |operator, output| operator.resume(output))
    }

    async fn snapshot(
        &mut self,
        epoch: Epoch,
        mode: model::SnapshotMode,
        writer: &mut dyn SnapshotWriter,
    ) -> Result<bool, OperatorError> {
        let mode = match mode {
            model::SnapshotMode::Full => weir_sdk::SnapshotMode::Full,
            model::SnapshotMode::Incremental => weir_sdk::SnapshotMode::Incremental,
        };
        let cut = weir_sdk::Cut { epoch: epoch.0, mode };
        let mut host = Host { writer: Some(writer), ..Host::new(0) };
        let progress = native::snapshot(&mut host, |writer| self.0.snapshot(cut, writer)).map_err(failure)?;
        Ok(progress == weir_sdk::Progress::Done)
    }

    async fn restore(&mut self, state_version: u32, chunks: Vec<Chunk>) -> Result<(), OperatorError> {
        let mut host = Host { chunks: chunks.into(), ..Host::new(0) };
        native::restore(&mut host, |reader| self.0.restore(state_version, reader)).map_err(failure)
    }
}
