//! An operator that hands every batch on: what the runtime itself costs.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use weir::flow::OperatorCode;
use weir::model::{Batch, Chunk, Descriptor, Epoch, Port, SnapshotMode, StateKind, Timestamp};
use weir::plugin::{Operator, OperatorError, Output, SnapshotWriter};

/// Hands every batch on, copied once, as what a guest emits is.
#[derive(Debug)]
pub struct Pass;

impl Pass {
    /// The code of a node that does this.
    pub fn code(keyed: bool) -> OperatorCode {
        let port = |name: &str| Port { name: name.into(), summary: String::new(), keyed };
        OperatorCode {
            descriptor: Descriptor {
                name: "pass".into(),
                version: "0.1.0".into(),
                summary: String::new(),
                inputs: vec![port("in")],
                outputs: vec![port("out")],
                state: StateKind::Stateless,
                state_version: 1,
                oldest_state_version: 1,
                config_schema: None,
            },
            digest: [0; 32],
            image: None,
            open: Arc::new(|_| async { Ok(Box::new(Self) as Box<dyn Operator>) }.boxed()),
        }
    }
}

#[async_trait]
impl Operator for Pass {
    async fn process(
        &mut self,
        _now: Timestamp,
        _port: u32,
        batch: &Batch,
        out: &mut Output,
    ) -> Result<(), OperatorError> {
        out.emitted.push((0, batch.clone()));
        Ok(())
    }

    async fn advance(&mut self, _: Timestamp, _: Timestamp, _: &mut Output) -> Result<(), OperatorError> {
        Ok(())
    }

    async fn wake(&mut self, _: Timestamp, _: &mut Output) -> Result<(), OperatorError> {
        Ok(())
    }

    async fn finish(&mut self, _: Timestamp, _: u32, _: &mut Output) -> Result<(), OperatorError> {
        Ok(())
    }

    async fn resume(&mut self, _: Timestamp, _: &mut Output) -> Result<(), OperatorError> {
        Ok(())
    }

    async fn snapshot(&mut self, _: Epoch, _: SnapshotMode, _: &mut dyn SnapshotWriter) -> Result<bool, OperatorError> {
        Ok(true)
    }

    async fn restore(&mut self, _: u32, _: Vec<Chunk>) -> Result<(), OperatorError> {
        Ok(())
    }
}
