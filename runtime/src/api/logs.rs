//! What a job logs: what is kept of it, and what comes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::{Auth, token};
use super::body::At;
use super::error::{ApiError, Refusals};
use crate::serve::{Fault, FaultKind, LogLine, Ring, Server};
use crate::tenant::Role;

/// The type of lines of JSON.
const LINES: &str = "application/x-ndjson";
/// How often a reader that waits is told that there is nothing: so one that has gone is found out.
const HEARTBEAT: Duration = Duration::from_secs(10);

pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(logs))
}

/// Which lines.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
struct Which {
    /// Only lines with higher numbers.
    after: u64,
    /// Go on with what comes; an empty line says from time to time that nothing came.
    follow: bool,
}

/// What a job logs: the lines that are kept, one JSON object each, oldest first; with `follow` also those that come.
#[utoipa::path(get, operation_id = "logs_logs", path = "/v1/tenants/{tenant}/jobs/{job}/logs", tag = "jobs", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant"), ("job" = String, Path, description = "The job"), Which),
    responses((status = 200, content_type = "application/x-ndjson", body = LogLine), Refusals))]
async fn logs(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, job)): At<(String, String)>,
    headers: HeaderMap,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, ApiError> {
    let tenant = server.tenant(&caller, &tenant, Role::Read)?;
    let ring = Arc::clone(&tenant.job(&job)?.ring);
    let Query(which) = which.map_err(|e| {
        Fault::new(FaultKind::Invalid, format!("the query is not understood: {e}")).help("?after=NUMBER&follow=true")
    })?;
    if !which.follow {
        return Ok(([(CONTENT_TYPE, LINES)], lines(&ring.after(which.after))).into_response());
    }
    let place = Arc::clone(&tenant.followers).try_acquire_owned().map_err(|_| {
        Fault::new(FaultKind::Unavailable, format!("tenant {:?} follows as many logs as it may", tenant.name))
            .help("close one, or read without `follow`")
    })?;
    let token = token(&headers)?.map(str::to_owned);
    let mut follower = Follower { server, ring, after: which.after, tenant: tenant.name.clone(), token };
    // What is there comes at once, so that a reader sees that it is answered.
    let first = lines(&follower.take());
    let rest = stream::unfold((follower, place), |(mut follower, place)| async move {
        let next = follower.next().await?;
        Some((Ok::<_, std::convert::Infallible>(next), (follower, place)))
    });
    let all = futures::StreamExt::chain(stream::iter([Ok(first)]), rest);
    Ok(([(CONTENT_TYPE, LINES)], Body::from_stream(all)).into_response())
}

fn lines(lines: &[LogLine]) -> Bytes {
    let mut text = String::new();
    for line in lines {
        // A line is a plain value.
        text.push_str(&serde_json::to_string(line).unwrap_or_default());
        text.push('\n');
    }
    text.into()
}

/// Somebody who reads on.
struct Follower {
    server: Server,
    ring: Arc<Ring>,
    after: u64,
    tenant: String,
    token: Option<String>,
}

impl Follower {
    fn take(&mut self) -> Vec<LogLine> {
        let lines = self.ring.after(self.after);
        self.after = lines.last().map_or(self.after, |line| line.number);
        lines
    }

    /// The next piece; none when the server stops, or the token is not good for it any more.
    async fn next(&mut self) -> Option<Bytes> {
        let mut newest = self.ring.watch();
        let after = self.after;
        let mut closing = self.server.closing();
        tokio::select! {
            _ = newest.wait_for(|&newest| newest > after) => {}
            () = tokio::time::sleep(HEARTBEAT) => {}
            _ = closing.wait_for(|closing| *closing) => return None,
        }
        let caller = self.server.authenticate(self.token.as_deref()).ok()?;
        self.server.tenant(&caller, &self.tenant, Role::Read).ok()?;
        let lines = self.take();
        Some(if lines.is_empty() { Bytes::from_static(b"\n") } else { self::lines(&lines) })
    }
}
