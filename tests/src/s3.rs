//! A small S3 server on the loopback interface, in this process: over real HTTP, and as good or as bad as a test wants it.
//!
//! It keeps objects in memory and speaks what `object_store` speaks: PUT with `If-None-Match: *`, GET with a range, HEAD, DELETE
//! of one or of many, list version 2 in short pages, uploads in parts. A test says of each request what becomes of it: it may
//! fail before or after it was carried out, wait, or end another process first ([`Fate`]). It is a stand-in for tests that must
//! always run; that weir gets on with servers that others wrote is another test's business (`tests/store.rs`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out and answered.
    Works,
    /// It is answered with 503 and was not carried out.
    FailsBefore,
    /// It was carried out, and the connection ends without an answer.
    FailsAfter,
    /// It is not carried out, and the connection ends without an answer.
    Drops,
    /// A process is killed; the request was not carried out.
    KillsBefore(u32),
    /// It was carried out; then a process is killed.
    KillsAfter(u32),
    /// A process is put to sleep, and the request is on its way until [`S3Server::release`].
    StopsBefore(u32),
    /// It was carried out; then a process is put to sleep, and the answer waits until [`S3Server::release`].
    StopsAfter(u32),
}

/// A request, as far as a test wants to tell it from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `PUT`, `GET`, …; `LIST` for a listing, `DELETES` for many at once.
    pub verb: String,
    /// The key, or the prefix of a listing.
    pub key: String,
    /// Only if nothing is there.
    pub create: bool,
    /// It carried a signature.
    pub signed: bool,
}

type Decide = dyn FnMut(&Asked) -> Fate + Send;

/// How a server is.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// It refuses to create what exists.
    pub honours_create: bool,
    /// It looks whether something exists and writes later, so that several creates at once may win.
    pub races_creates: bool,
    /// How many names a page of a listing has.
    pub page: usize,
}

impl Default for Manners {
    fn default() -> Self {
        Self { honours_create: true, races_creates: false, page: 7 }
    }
}

struct State {
    objects: BTreeMap<String, Vec<u8>>,
    uploads: BTreeMap<String, BTreeMap<u32, Vec<u8>>>,
    next_upload: u64,
    decide: Box<Decide>,
    /// Requests that wait.
    held: usize,
    released: bool,
}

/// The server. It ends with the test's process.
pub struct S3Server {
    address: SocketAddr,
    state: Arc<Shared>,
    manners: Manners,
}

/// What the connections share.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl std::ops::Deref for Shared {
    type Target = Mutex<State>;

    fn deref(&self) -> &Mutex<State> {
        &self.state
    }
}

impl Shared {
    /// Holds a request until the test lets it go.
    fn hold(&self) {
        let mut state = lock(self);
        state.held += 1;
        self.changed.notify_all();
        while !state.released {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.held -= 1;
    }
}

/// Sends a signal to a process that a test has started.
fn signal(process: u32, signal: libc::c_int) {
    // 0 is every process of the group.
    assert_ne!(process, 0, "the process is not known yet");
    // SAFETY: asks the kernel; a process that has gone is no error here.
    unsafe { libc::kill(process as libc::pid_t, signal) };
}

impl std::fmt::Debug for S3Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Server").field("address", &self.address).finish_non_exhaustive()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl S3Server {
    /// Starts one that behaves.
    pub fn start() -> Self {
        Self::with(Manners::default())
    }

    /// Starts one with these manners.
    pub fn with(manners: Manners) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = State {
            objects: BTreeMap::new(),
            uploads: BTreeMap::new(),
            next_upload: 0,
            decide: Box::new(|_| Fate::Works),
            held: 0,
            released: false,
        };
        let state = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || drop(serve(stream, &state, manners)));
            }
        });
        Self { address, state, manners }
    }

    /// Where it answers.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The lines of a `store_options` table, or of a sink, by which it is reached without credentials.
    pub fn options(&self) -> String {
        format!("store_options = {{ endpoint = \"{}\", allow_http = true, skip_signature = true }}", self.endpoint())
    }

    /// How it is.
    pub fn manners(&self) -> Manners {
        self.manners
    }

    /// From now on `decide` says what becomes of each request.
    pub fn decide(&self, decide: impl FnMut(&Asked) -> Fate + Send + 'static) {
        lock(&self.state).decide = Box::new(decide);
    }

    /// From now on it works.
    pub fn heal(&self) {
        self.decide(|_| Fate::Works);
    }

    /// Waits until a request waits.
    pub fn wait_for_held(&self) {
        let mut state = lock(&self.state);
        while state.held == 0 {
            state = self.state.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets a process that was put to sleep wake up, and its request go on.
    pub fn release(&self, process: u32) {
        signal(process, libc::SIGCONT);
        lock(&self.state).released = true;
        self.state.changed.notify_all();
    }

    /// The keys that begin with `prefix`, with the bucket in front.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        lock(&self.state).objects.keys().filter(|key| key.starts_with(prefix)).cloned().collect()
    }

    /// The bytes of an object, by its key with the bucket in front.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        lock(&self.state).objects.get(key).cloned()
    }

    /// Changes what is there.
    pub fn put(&self, key: &str, bytes: Option<Vec<u8>>) {
        let objects = &mut lock(&self.state).objects;
        match bytes {
            Some(bytes) => drop(objects.insert(key.to_owned(), bytes)),
            None => drop(objects.remove(key)),
        }
    }
}

struct Request {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Response {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Response {
    fn new(status: &'static str) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    fn error(status: &'static str, code: &str) -> Self {
        let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}</Message></Error>");
        Self { body: body.into_bytes(), ..Self::new(status) }
    }

    fn xml(body: String) -> Self {
        Self { body: format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{body}").into_bytes(), ..Self::new("200 OK") }
    }
}

/// Answers requests until the connection ends.
fn serve(stream: TcpStream, state: &Shared, manners: Manners) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    while let Some(request) = read_request(&mut reader)? {
        let asked = asked(&request);
        let fate = {
            let mut state = lock(state);
            (state.decide)(&asked)
        };
        let response = match fate {
            Fate::Drops => return Ok(()),
            Fate::FailsBefore => Response::error("503 Service Unavailable", "SlowDown"),
            Fate::Works => answer(&request, state, manners),
            Fate::FailsAfter => {
                drop(answer(&request, state, manners));
                return Ok(());
            }
            Fate::KillsBefore(process) => {
                signal(process, libc::SIGKILL);
                return Ok(());
            }
            Fate::KillsAfter(process) => {
                drop(answer(&request, state, manners));
                signal(process, libc::SIGKILL);
                return Ok(());
            }
            Fate::StopsBefore(process) => {
                signal(process, libc::SIGSTOP);
                state.hold();
                answer(&request, state, manners)
            }
            Fate::StopsAfter(process) => {
                let response = answer(&request, state, manners);
                signal(process, libc::SIGSTOP);
                state.hold();
                response
            }
        };
        let mut head = format!("HTTP/1.1 {}\r\n", response.status);
        let sized = response.headers.iter().any(|(name, _)| *name == "Content-Length");
        for (name, value) in &response.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if !sized {
            let _ = write!(head, "Content-Length: {}\r\n", response.body.len());
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        if request.method != "HEAD" {
            stream.write_all(&response.body)?;
        }
        stream.flush()?;
    }
    Ok(())
}

fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (decode(k), decode(v)));
    let path = decode(path.trim_start_matches('/'));
    Ok(Some(Request { method, query: query.collect(), path, headers, body }))
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'").replace("&amp;", "&")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn asked(request: &Request) -> Asked {
    let create = request.headers.get("if-none-match").is_some_and(|value| value == "*");
    let signed = request.headers.contains_key("authorization");
    let listing = request.query.contains_key("list-type");
    let verb = match request.method.as_str() {
        "GET" if listing => "LIST",
        "POST" if request.query.contains_key("delete") => "DELETES",
        method => method,
    };
    let key = if listing {
        format!("{}/{}", request.path.trim_end_matches('/'), request.query.get("prefix").cloned().unwrap_or_default())
    } else {
        request.path.clone()
    };
    Asked { verb: verb.to_owned(), key, create, signed }
}

fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", &blake3::hash(bytes).to_hex()[..32])
}

const MODIFIED: &str = "Mon, 30 Nov 2026 12:00:00 GMT";

fn answer(request: &Request, state: &Mutex<State>, manners: Manners) -> Response {
    let key = &request.path;
    let upload = request.query.get("uploadId");
    match request.method.as_str() {
        "PUT" if upload.is_some() => {
            let number = request.query.get("partNumber").and_then(|n| n.parse().ok()).unwrap_or(0);
            let mut state = lock(state);
            let Some(parts) = upload.and_then(|id| state.uploads.get_mut(id)) else {
                return Response::error("404 Not Found", "NoSuchUpload");
            };
            parts.insert(number, request.body.clone());
            Response { headers: vec![("ETag", etag(&request.body))], ..Response::new("200 OK") }
        }
        "PUT" => put(request, state, manners),
        "POST" if request.query.contains_key("uploads") => {
            let mut state = lock(state);
            state.next_upload += 1;
            let id = format!("upload-{}", state.next_upload);
            state.uploads.insert(id.clone(), BTreeMap::new());
            Response::xml(format!(
                "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
            ))
        }
        "POST" if request.query.contains_key("delete") => {
            let body = String::from_utf8_lossy(&request.body);
            let mut deleted = String::new();
            let mut state = lock(state);
            for piece in body.split("<Key>").skip(1) {
                let name = piece.split("</Key>").next().unwrap_or_default();
                state.objects.remove(&format!("{}/{}", key.trim_end_matches('/'), unescape(name)));
                let _ = write!(deleted, "<Deleted><Key>{name}</Key></Deleted>");
            }
            Response::xml(format!("<DeleteResult>{deleted}</DeleteResult>"))
        }
        "POST" => {
            let mut state = lock(state);
            let Some(parts) = upload.and_then(|id| state.uploads.remove(id)) else {
                return Response::error("404 Not Found", "NoSuchUpload");
            };
            let bytes: Vec<u8> = parts.into_values().flatten().collect();
            let tag = escape(&etag(&bytes));
            state.objects.insert(key.clone(), bytes);
            Response::xml(format!("<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>"))
        }
        "DELETE" => {
            let mut state = lock(state);
            match upload {
                Some(id) => drop(state.uploads.remove(id)),
                None => drop(state.objects.remove(key)),
            }
            Response::new("204 No Content")
        }
        "GET" if request.query.contains_key("list-type") => list(request, &lock(state), manners),
        "GET" | "HEAD" => get(request, &lock(state)),
        _ => Response::error("501 Not Implemented", "NotImplemented"),
    }
}

fn put(request: &Request, state: &Mutex<State>, manners: Manners) -> Response {
    let create = request.headers.get("if-none-match").is_some_and(|value| value == "*");
    if create && manners.honours_create {
        let exists = lock(state).objects.contains_key(&request.path);
        if exists {
            return Response::error("412 Precondition Failed", "PreconditionFailed");
        }
        if manners.races_creates {
            // Others look as well before this one writes.
            pause();
        }
    }
    let mut state = lock(state);
    if create && manners.honours_create && !manners.races_creates && state.objects.contains_key(&request.path) {
        return Response::error("412 Precondition Failed", "PreconditionFailed");
    }
    state.objects.insert(request.path.clone(), request.body.clone());
    Response { headers: vec![("ETag", etag(&request.body))], ..Response::new("200 OK") }
}

/// Long enough that whoever comes at the same time has looked.
#[allow(clippy::disallowed_methods)]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(200));
}

fn get(request: &Request, state: &State) -> Response {
    let Some(bytes) = state.objects.get(&request.path) else {
        return Response::error("404 Not Found", "NoSuchKey");
    };
    let headers = vec![("ETag", etag(bytes)), ("Last-Modified", MODIFIED.to_owned())];
    if request.method == "HEAD" {
        let mut headers = headers;
        headers.push(("Content-Length", bytes.len().to_string()));
        return Response { headers, ..Response::new("200 OK") };
    }
    let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes="));
    let Some((from, to)) = range.and_then(|range| range.split_once('-')) else {
        return Response { headers, body: bytes.clone(), ..Response::new("200 OK") };
    };
    let (from, to) = match (from.parse::<usize>(), to.parse::<usize>()) {
        (Ok(from), Ok(to)) => (from, to.min(bytes.len().saturating_sub(1))),
        (Ok(from), Err(_)) => (from, bytes.len().saturating_sub(1)),
        (Err(_), Ok(suffix)) => (bytes.len().saturating_sub(suffix), bytes.len().saturating_sub(1)),
        _ => return Response::error("416 Range Not Satisfiable", "InvalidRange"),
    };
    let Some(part) = bytes.get(from..=to) else {
        return Response::error("416 Range Not Satisfiable", "InvalidRange");
    };
    let mut headers = headers;
    headers.push(("Content-Range", format!("bytes {from}-{to}/{}", bytes.len())));
    Response { headers, body: part.to_vec(), ..Response::new("206 Partial Content") }
}

/// A page of names, in order; what lies below a delimiter is told once.
fn list(request: &Request, state: &State, manners: Manners) -> Response {
    let bucket = format!("{}/", request.path.trim_end_matches('/'));
    let text = |name: &str| request.query.get(name).cloned().unwrap_or_default();
    let (prefix, delimiter) = (text("prefix"), text("delimiter"));
    let after = request.query.get("continuation-token").or_else(|| request.query.get("start-after"));
    let (mut contents, mut folders, mut last) = (String::new(), Vec::<String>::new(), None);
    let (mut count, mut truncated) = (0, false);
    for (key, bytes) in &state.objects {
        let Some(name) = key.strip_prefix(&bucket).filter(|name| name.starts_with(&prefix)) else { continue };
        if after.is_some_and(|after| name <= after.as_str()) {
            continue;
        }
        let folder = (!delimiter.is_empty())
            .then(|| name[prefix.len()..].find(&delimiter))
            .flatten()
            .map(|end| name[..prefix.len() + end + delimiter.len()].to_owned());
        // All of a folder comes at once: its last name is where the next page starts.
        if folder.as_ref().is_some_and(|folder| folders.last() == Some(folder)) {
            last = Some(name.to_owned());
            continue;
        }
        if count == manners.page {
            truncated = true;
            break;
        }
        count += 1;
        last = Some(name.to_owned());
        match folder {
            Some(folder) => folders.push(folder),
            None => {
                let (name, tag, size) = (escape(name), escape(&etag(bytes)), bytes.len());
                let _ = write!(
                    contents,
                    "<Contents><Key>{name}</Key><Size>{size}</Size><ETag>{tag}</ETag>\
                     <LastModified>2026-11-30T12:00:00.000Z</LastModified></Contents>"
                );
            }
        }
    }
    for folder in folders {
        let _ = write!(contents, "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", escape(&folder));
    }
    let next = match last.filter(|_| truncated) {
        Some(last) => format!("<NextContinuationToken>{}</NextContinuationToken>", escape(&last)),
        None => String::new(),
    };
    Response::xml(format!(
        "<ListBucketResult><IsTruncated>{truncated}</IsTruncated><KeyCount>{count}</KeyCount>{contents}{next}</ListBucketResult>"
    ))
}
