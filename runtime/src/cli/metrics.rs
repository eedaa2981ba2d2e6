//! `weir run --metrics ADDRESS`: the numbers of the running job over HTTP, for Prometheus to read.
//!
//! One route, `GET /metrics`, and nothing that changes anything. It listens where it is told to and nowhere else: whoever can reach the address can
//! read the numbers.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::checkpoint::Store;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::metrics::{self, GuestSeries, JobMetrics};
use crate::plugin::PluginHost;

/// Where the numbers of a job come from.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub(super) job: String,
    pub(super) metrics: Arc<JobMetrics>,
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) host: PluginHost,
}

impl Numbers {
    /// As text, in the OpenMetrics format.
    pub(super) fn text(&self) -> String {
        let guests: Vec<GuestSeries> = self.host.metrics().into_iter().map(GuestSeries::from).collect();
        metrics::render((None, &self.job), &self.metrics, self.store.metrics(), &self.clock, &guests)
    }
}

/// Listens before the job starts, so that an address that cannot be had is an error at once.
pub(super) async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|e| {
        Error::new(ErrorKind::Usage, format!("--metrics: address {address} cannot be listened on"))
            .help("give an address and a port of this machine that are free, such as 127.0.0.1:9464")
            .caused_by(e)
    })
}

/// Answers until it is dropped. Never ends, also when it cannot answer any more: the job does not depend on it.
pub(super) async fn serve(listener: TcpListener, numbers: Numbers) {
    let route = get(move || {
        let text = numbers.text();
        async move { ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text) }
    });
    let router = Router::new().route("/metrics", route);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::warn!(%error, "metrics are no longer served");
    }
    std::future::pending::<()>().await;
}
