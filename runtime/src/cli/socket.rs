//! The socket by which a running `weir run` is asked: found by the store and the name of the job, open to its owner only.
//!
//! A request is one line of JSON, `{"v":1,"request":"status"}`; so is the answer, `{"v":1,"ok":{…}}` or `{"v":1,"error":{…}}`. Everything is
//! bounded: lines, connections, the time until a request has come. Whatever goes wrong here is logged and costs the job nothing.
//!
//! Each process has a socket of its own, `<hash of store and job>-<random>.sock`, so two runs of a job never take each other's. Whoever
//! asks tries all of a job and takes the run with the highest generation. A socket on which nobody answers is what a dead process left,
//! and is removed by the next that sees it. It is put in place by a rename when it listens already: one in place is never half made.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::upgrade::Loader;
use crate::error::{Error, ErrorKind};
use crate::job::{Answer, Control, Refusal, Request, Status};

/// The version of the protocol.
const VERSION: u32 = 1;
/// The longest request and the longest answer, in bytes.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Who may be connected at once.
const CONNECTIONS_MAX: usize = 16;
/// How long a request may take to come, and a status to be answered.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a process that ends waits for its answers to be written.
const GRACE: Duration = Duration::from_secs(2);
/// What a path of a socket may have on Linux, in bytes.
const PATH_BYTES_MAX: usize = 107;
/// How many files of the folder are looked at.
const FILES_MAX: usize = 65_536;

#[derive(Debug, Serialize, Deserialize)]
struct RequestLine {
    v: u32,
    #[serde(flatten)]
    request: serde_json::Value,
}

#[derive(Debug, Serialize, Deserialize)]
struct AnswerLine {
    v: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<Answer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refusal>,
}

/// Which job it is: the store's place and the job's name, hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobKey(String);

impl JobKey {
    /// `dir` is where a relative path in the store's address starts.
    pub(super) fn new(store: &str, dir: &Path, job: &str) -> Self {
        let place = match store.strip_prefix("file://") {
            Some(path) => {
                let path = dir.join(path);
                let path = path.canonicalize().or_else(|_| std::path::absolute(&path)).unwrap_or(path);
                format!("file://{}", path.display())
            }
            None => store.trim_end_matches('/').to_owned(),
        };
        let hash = blake3::Hasher::new().update(place.as_bytes()).update(&[0]).update(job.as_bytes()).finalize();
        Self(hash.to_hex()[..24].to_owned())
    }
}

/// The folder of the sockets of this user: owner-only, made if it is not there.
fn folder() -> io::Result<PathBuf> {
    // SAFETY: it has no preconditions and cannot fail.
    let user = unsafe { libc::geteuid() };
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let given = given.filter(|path| path.is_absolute() && path.is_dir()).map(|path| path.join("weir"));
    let temporary = || std::env::temp_dir().join(format!("weir-{user}"));
    // A path that is too long for a socket is no use, wherever it is.
    let fits = |path: &PathBuf| path.as_os_str().len() + 1 + 24 + 1 + 16 + 5 <= PATH_BYTES_MAX;
    let path = given.filter(fits).unwrap_or_else(temporary);
    match std::fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    // Not through a link, and nobody else's: whoever owns the folder would own the conversation.
    let found = std::fs::symlink_metadata(&path)?;
    if !found.is_dir() || found.uid() != user || found.permissions().mode() & 0o077 != 0 {
        let what = format!("{} is not a folder of user {user} that nobody else may enter", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(path)
}

/// The sockets of a job.
fn sockets(key: &JobKey) -> io::Result<Vec<PathBuf>> {
    let prefix = format!("{}-", key.0);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder()?)?.take(FILES_MAX) {
        let path = entry?.path();
        let is_ours = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.strip_prefix(&prefix).is_some_and(|rest| rest.ends_with(".sock")));
        if is_ours {
            found.push(path);
        }
    }
    Ok(found)
}

/// A process that can be asked. Dropping it takes the socket away.
#[derive(Debug)]
pub(super) struct Server {
    path: PathBuf,
    accepting: JoinHandle<()>,
    connections: Arc<Semaphore>,
}

impl Server {
    /// Listens for a job. That it cannot is no reason not to run.
    ///
    /// `loader` loads what upgrades name; without one they are refused.
    pub(super) async fn start(key: &JobKey, control: Control, loader: Option<Loader>) -> Option<Self> {
        match Self::listen(key, Front { control, loader: loader.map(Arc::new) }).await {
            Ok(server) => Some(server),
            Err(error) => {
                tracing::warn!(%error, "this run cannot be asked: no socket for it");
                None
            }
        }
    }

    async fn listen(key: &JobKey, front: Front) -> io::Result<Self> {
        for stale in sockets(key)? {
            // It answers to nobody: what a dead process left.
            let _ = connect(&stale).await;
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string()))?;
        let random = u64::from_le_bytes(random);
        let path = folder()?.join(format!("{}-{random:016x}.sock", key.0));
        // Short names, so that neither is too long for a socket.
        let made = path.with_file_name(format!("new-{random:016x}"));
        let listener = UnixListener::bind(&made)?;
        let placed = std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o600))
            .and_then(|()| std::fs::rename(&made, &path));
        if let Err(e) = placed {
            let _ = std::fs::remove_file(&made);
            return Err(e);
        }
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let accepting = tokio::spawn(accept(listener, front, Arc::clone(&connections)));
        Ok(Self { path, accepting, connections })
    }

    /// Waits until the answers that are on their way are written, for a moment, and ends.
    pub(super) async fn close(self) {
        self.accepting.abort();
        let all = self.connections.acquire_many(CONNECTIONS_MAX as u32);
        let _ = tokio::time::timeout(GRACE, all).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Who answers requests.
#[derive(Clone)]
struct Front {
    control: Control,
    loader: Option<Arc<Loader>>,
}

impl Front {
    async fn answer(&self, request: Request) -> Result<Answer, Refusal> {
        match (request, &self.loader) {
            (Request::Upgrade(wish), Some(loader)) => loader.upgrade(&self.control, wish).await,
            (Request::Upgrade(_), None) => Err(Refusal {
                code: ErrorKind::Usage.exit_code(),
                message: "this process takes no upgrades".into(),
                help: Some("`weir dev` replaces plugins by itself; run the pipeline with `weir run`".into()),
            }),
            (request, _) => self.control.ask(request).await,
        }
    }
}

async fn accept(listener: UnixListener, front: Front, connections: Arc<Semaphore>) {
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let front = front.clone();
                tokio::spawn(async move {
                    if let Err(error) = serve(stream, &front).await {
                        tracing::debug!(%error, "a request was not answered");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                // Out of files, perhaps: not at once again.
                tracing::debug!(%error, "a request could not be taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// One request, one answer.
async fn serve(stream: UnixStream, front: &Front) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader.take(REQUEST_BYTES_MAX));
    let mut line = String::new();
    tokio::time::timeout(PATIENCE, reader.read_line(&mut line)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let answer = match parse(&line) {
        // Whoever asked may have gone when the answer comes: writing it fails then, and that is all.
        Ok(request) => front.answer(request).await,
        Err(refusal) => Err(refusal),
    };
    let line = match answer {
        Ok(answer) => AnswerLine { v: VERSION, ok: Some(answer), error: None },
        Err(refusal) => AnswerLine { v: VERSION, ok: None, error: Some(refusal) },
    };
    let mut text = serde_json::to_string(&line).map_err(io::Error::other)?;
    text.push('\n');
    tokio::time::timeout(PATIENCE, writer.write_all(text.as_bytes())).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Reads a request, or says what is wrong with it.
fn parse(line: &str) -> Result<Request, Refusal> {
    let wrong = |message: String| {
        let help = "one line such as {\"v\":1,\"request\":\"status\"}; see docs/savepoints.md".to_owned();
        Refusal { code: ErrorKind::Usage.exit_code(), message, help: Some(help) }
    };
    if !line.ends_with('\n') {
        return Err(wrong(format!("the request is not a line of at most {REQUEST_BYTES_MAX} bytes")));
    }
    let RequestLine { v, request } =
        serde_json::from_str(line).map_err(|e| wrong(format!("the request is not understood: {e}")))?;
    if v != VERSION {
        return Err(wrong(format!("the request is of version {v} of the protocol, and this process speaks {VERSION}")));
    }
    serde_json::from_value(request).map_err(|e| wrong(format!("the request is not understood: {e}")))
}

/// Connects; removes a socket on which nobody listens.
async fn connect(path: &Path) -> Option<UnixStream> {
    match tokio::time::timeout(PATIENCE, UnixStream::connect(path)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionRefused => {
            let _ = std::fs::remove_file(path);
            None
        }
        _ => None,
    }
}

async fn ask_at(path: &Path, request: &Request) -> Option<io::Result<AnswerLine>> {
    let stream = connect(path).await?;
    let exchange = async {
        let (reader, mut writer) = stream.into_split();
        let request = serde_json::to_value(request).map_err(io::Error::other)?;
        let mut text = serde_json::to_string(&RequestLine { v: VERSION, request }).map_err(io::Error::other)?;
        text.push('\n');
        writer.write_all(text.as_bytes()).await?;
        let mut line = String::new();
        BufReader::new(reader.take(ANSWER_BYTES_MAX)).read_line(&mut line).await?;
        serde_json::from_str(&line).map_err(io::Error::other)
    };
    Some(exchange.await)
}

/// A process that runs a job, and how it is getting on.
#[derive(Debug)]
pub(super) struct Found {
    path: PathBuf,
    pub(super) status: Status,
}

/// Finds the process that runs a job: of several, the one with the highest generation. None if there is none on this machine.
pub(super) async fn find(key: &JobKey) -> Result<Option<Found>, Error> {
    let failed = |e| Error::new(ErrorKind::Store, "running jobs cannot be looked for").caused_by(e);
    let mut found: Option<Found> = None;
    let mut silent = false;
    for path in sockets(key).map_err(failed)? {
        let answer = tokio::time::timeout(PATIENCE, ask_at(&path, &Request::Status)).await;
        let status = match answer {
            Ok(Some(Ok(AnswerLine { ok: Some(Answer::Status(status)), .. }))) => status,
            Err(_) => {
                silent = true;
                continue;
            }
            Ok(_) => continue,
        };
        if found.as_ref().is_none_or(|other| other.status.generation < status.generation) {
            found = Some(Found { path, status: *status });
        }
    }
    if found.is_none() && silent {
        let message = format!("a process runs the job here and does not answer within {PATIENCE:?}");
        return Err(Error::new(ErrorKind::Job, message).help("it may be waiting for its store or a sink: ask again"));
    }
    Ok(found)
}

impl Found {
    /// Asks it, and waits for as long as that takes.
    pub(super) async fn ask(&self, request: &Request) -> Result<Answer, Error> {
        let job = &self.status.job;
        let gone = || {
            Error::new(ErrorKind::Job, format!("job {job:?} ended before it answered"))
                .help("look at its log; `weir checkpoint list` shows what it completed")
        };
        match ask_at(&self.path, request).await {
            Some(Ok(AnswerLine { ok: Some(answer), .. })) => Ok(answer),
            Some(Ok(AnswerLine { error: Some(refusal), .. })) => Err(refused(refusal)),
            Some(Ok(_)) | None => Err(gone()),
            Some(Err(e)) => Err(gone().caused_by(e)),
        }
    }
}

fn refused(refusal: Refusal) -> Error {
    let kinds = [ErrorKind::Usage, ErrorKind::Plugin, ErrorKind::State, ErrorKind::Store, ErrorKind::Superseded];
    let kind = kinds.into_iter().find(|kind| kind.exit_code() == refusal.code).unwrap_or(ErrorKind::Job);
    let error = Error::new(kind, refusal.message);
    match refusal.help {
        Some(help) => error.help(help),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Call;

    #[test]
    fn a_job_is_found_by_its_store_however_that_is_written() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(dir.path().join("store")).expect("a folder");
        let key = |store: &str, job: &str| JobKey::new(store, dir.path(), job);
        let absolute = format!("file://{}/store", dir.path().display());
        assert_eq!(key("file://./store", "a"), key(&absolute, "a"));
        assert_eq!(key("file://./store/../store", "a"), key(&absolute, "a"));
        assert_eq!(key("s3://bucket/x/", "a"), key("s3://bucket/x", "a"));
        assert_ne!(key("file://./store", "a"), key("file://./store", "b"));
        assert_ne!(key("file://./store", "a"), key("file://./other", "a"));
    }

    #[test]
    fn what_is_no_request_is_refused_and_says_how_one_looks() {
        for line in [
            "",
            "{}\n",
            "nonsense\n",
            "{\"v\":1}\n",
            "{\"v\":2,\"request\":\"status\"}\n",
            "{\"v\":1,\"request\":\"x\"}\n",
        ] {
            let refusal = parse(line).expect_err(line);
            assert!(refusal.code == 2 && refusal.help.is_some_and(|help| help.contains("\"v\":1")), "{line}");
        }
        assert_eq!(parse("{\"v\":1,\"request\":\"status\"}\n"), Ok(Request::Status));
    }

    /// A job of its own name, so that tests do not meet.
    fn key(job: &str) -> JobKey {
        JobKey::new(&format!("test://{}", std::process::id()), Path::new("/"), job)
    }

    /// Answers every status with this generation, until nobody can ask.
    async fn answering(mut requests: tokio::sync::mpsc::Receiver<Call>, generation: u64) {
        while let Some(call) = requests.recv().await {
            let status = Status {
                job: "t".into(),
                state: "running".into(),
                pid: 1,
                job_id: None,
                generation: Some(generation),
                epoch: None,
                checkpoint_us: 0,
                checkpoints: 0,
                failed: 0,
                restarts: 0,
                settings: Vec::new(),
                upgrade: None,
                nodes: Vec::new(),
            };
            let _ = call.answer.send(Ok(Answer::Status(Box::new(status))));
        }
    }

    #[tokio::test]
    async fn two_runs_do_not_take_each_others_socket_and_the_newer_is_asked() {
        let key = key("two");
        assert!(find(&key).await.expect("it can be looked").is_none());
        let mut servers = Vec::new();
        for generation in [7, 9, 8] {
            let (control, requests) = Control::channel();
            tokio::spawn(answering(requests, generation));
            servers.push(Server::start(&key, control, None).await.expect("a socket"));
        }
        let found = find(&key).await.expect("it can be looked").expect("it runs");
        assert_eq!(found.status.generation, Some(9));
        assert!(matches!(found.ask(&Request::Status).await, Ok(Answer::Status(_))));
        servers.swap_remove(1).close().await;
        let found = find(&key).await.expect("it can be looked").expect("it runs");
        assert_eq!(found.status.generation, Some(8));
        drop(servers);
        assert!(find(&key).await.expect("it can be looked").is_none());
        assert!(sockets(&key).expect("a folder").is_empty());
    }

    #[tokio::test]
    async fn what_a_dead_process_left_is_removed_and_a_long_line_is_refused() {
        let key = key("stale");
        let stale = folder().expect("a folder").join(format!("{}-dead.sock", key.0));
        // A listener that is gone leaves its file.
        drop(std::os::unix::net::UnixListener::bind(&stale).expect("a socket"));
        assert!(stale.exists());
        let (control, requests) = Control::channel();
        tokio::spawn(answering(requests, 1));
        let server = Server::start(&key, control, None).await.expect("a socket");
        assert!(!stale.exists());
        assert_eq!(std::fs::metadata(&server.path).expect("it is there").permissions().mode() & 0o777, 0o600);

        let mut stream = UnixStream::connect(&server.path).await.expect("it listens");
        stream.write_all(&vec![b'x'; REQUEST_BYTES_MAX as usize]).await.expect("it takes a line");
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).await.expect("an answer");
        assert!(answer.contains("not a line of at most 65536 bytes"), "{answer}");
        server.close().await;
    }
}
