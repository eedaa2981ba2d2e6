//! How the store answers: every request, by what was asked and how it ended.

use std::future::Future;

use prometheus_client::encoding::EncodeLabelSet;

use super::checkpoint::{Durations, durations};
use crate::clock::Clock;

/// What a store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreOperation {
    /// Create-if-absent.
    Create,
    /// Write.
    Put,
    /// Read.
    Get,
    /// Look whether it is there.
    Head,
    /// List a folder.
    List,
    /// Delete.
    Delete,
}

/// How a request ended. "Not there" and "there already" are answers, not errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreOutcome {
    /// With an answer.
    Ok,
    /// Without: what became of it is not known.
    Error,
}

super::label_value!(StoreOperation {
    Create => "create",
    Put => "put",
    Get => "get",
    Head => "head",
    List => "list",
    Delete => "delete",
});

super::label_value!(StoreOutcome { Ok => "ok", Error => "error" });

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StoreLabel {
    pub(super) operation: StoreOperation,
    pub(super) outcome: StoreOutcome,
}

/// The numbers of one store. Clones share them.
#[derive(Clone, Debug)]
pub struct StoreMetrics {
    clock: Clock,
    pub(super) requests: Durations<StoreLabel>,
}

impl Default for StoreMetrics {
    fn default() -> Self {
        Self { clock: Clock::system(), requests: durations() }
    }
}

impl StoreMetrics {
    /// Waits for a request and notes how long it took. Answers that an [`object_store::Error`] gives are none to this count.
    pub async fn timed<T>(
        &self,
        operation: StoreOperation,
        request: impl Future<Output = Result<T, object_store::Error>>,
    ) -> Result<T, object_store::Error> {
        use object_store::Error::{AlreadyExists, NotFound, NotModified, Precondition};
        let began = self.clock.elapsed();
        let answer = request.await;
        let outcome = match &answer {
            Ok(_) | Err(AlreadyExists { .. } | NotFound { .. } | NotModified { .. } | Precondition { .. }) => {
                StoreOutcome::Ok
            }
            Err(_) => StoreOutcome::Error,
        };
        let took = self.clock.elapsed().saturating_sub(began);
        self.requests.get_or_create(&StoreLabel { operation, outcome }).observe(took.as_secs_f64());
        answer
    }
}
