//! A real `weir serve` in a folder of its own, and a client that sends what it is told to, well-formed or not.
//!
//! The server listens on a port that the system chooses and says which in its log; so each start may have another one,
//! and a [`Client`] is asked for anew after each. Whatever it logs goes to one file, which tests read: what is refused
//! has to be there.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// How often it is looked before a test is given up, a fiftieth of a second apart at least.
const LOOKS_MAX: u32 = 6_000;
/// How long an answer may take. Something is wrong with a server that needs longer, and the test says so.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(180);

#[allow(clippy::disallowed_methods, reason = "another process is watched, which has a clock of its own")]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Looks until there is something to see.
///
/// # Panics
///
/// If that is never so.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(seen) = look() {
            return seen;
        }
        pause();
    }
    panic!("it never came to this: {what}");
}

/// A server. It is killed when the test ends.
#[derive(Debug)]
pub struct Server {
    child: Child,
    folder: PathBuf,
    args: Vec<String>,
    /// Where it listens, until it is started again.
    pub address: SocketAddr,
    /// The token of its admin.
    pub admin: String,
}

/// Who speaks to a server: with a token, or without one.
#[derive(Clone, Debug)]
pub struct Client {
    /// Where it is.
    pub address: SocketAddr,
    /// Who asks.
    pub token: Option<String>,
}

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, put together.
    pub body: Vec<u8>,
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("serve.log")
}

impl Server {
    /// Starts one with logs in JSON, so that tests can look into them.
    pub fn start(folder: &Path) -> Self {
        Self::start_with(folder, &["--log-format", "json"])
    }

    /// Starts one with these arguments. Its store is `store` in the folder.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start_with(folder: &Path, args: &[&str]) -> Self {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let (child, address) = launch(folder, &args);
        let admin = fs::read_to_string(folder.join("weir-admin-token")).unwrap_or_default().trim().to_owned();
        Self { child, folder: folder.to_owned(), args, address, admin }
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it as a power cut would, but for the disk.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to stop and waits until it has. Gives its exit code.
    ///
    /// # Panics
    ///
    /// If it does not stop.
    pub fn stop(&mut self) -> i32 {
        let told = Command::new("kill").args(["-TERM", &self.id().to_string()]).status();
        assert!(told.is_ok_and(|status| status.success()), "the server cannot be told to stop");
        until("the server has stopped", || self.child.try_wait().ok().flatten()).code().unwrap_or(-1)
    }

    /// Starts it again on what it left.
    pub fn again(&mut self) {
        self.kill();
        (self.child, self.address) = launch(&self.folder, &self.args);
    }

    /// Somebody with a token.
    pub fn with(&self, token: &str) -> Client {
        Client { address: self.address, token: Some(token.to_owned()) }
    }

    /// Its admin.
    pub fn admin(&self) -> Client {
        self.with(&self.admin)
    }

    /// Somebody without a token.
    pub fn nobody(&self) -> Client {
        Client { address: self.address, token: None }
    }

    /// Makes a tenant, with a directory of this name if one is given, and gives the token of its admin.
    pub fn tenant(&self, name: &str, directory: Option<&str>) -> String {
        let made = self.admin().post("/v1/tenants", &json!({ "name": name })).expect(201);
        if let Some(directory) = directory {
            let directory = self.folder.join(directory);
            fs::create_dir_all(&directory).expect("a directory");
            let grants = json!({ "directory": directory });
            self.admin().put(&format!("/v1/tenants/{name}/grants"), &grants).expect(200);
        }
        made["token"].as_str().expect("a token").to_owned()
    }

    /// Makes a token of a tenant.
    pub fn token(&self, tenant: &str, role: &str) -> String {
        let made = self.admin().post(&format!("/v1/tenants/{tenant}/tokens"), &json!({ "role": role })).expect(201);
        made["token"].as_str().expect("a token").to_owned()
    }

    /// Everything that it has logged, since it was started for the first time.
    pub fn log(&self) -> String {
        fs::read_to_string(log_file(&self.folder)).unwrap_or_default()
    }

    /// The lines of its log, of a server that logs in JSON.
    ///
    /// # Panics
    ///
    /// If one is not a JSON object: then somebody has written into it.
    pub fn log_lines(&self) -> Vec<Value> {
        let line =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("a line of the log, {line:?}: {e}"));
        self.log().lines().map(line).collect()
    }

    /// Each object in its store, with its size.
    pub fn listing(&self) -> BTreeMap<String, u64> {
        self.files().into_iter().filter(|(file, _)| !is_half_written(file)).collect()
    }

    /// What is in the folder of its store and is no object: what was being written when the process was killed. A
    /// store in a bucket has none.
    pub fn half_written(&self) -> Vec<String> {
        self.files().into_keys().filter(|file| is_half_written(file)).collect()
    }

    fn files(&self) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        list(&self.folder.join("store"), "", &mut found);
        found
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A file is written under its name with `#` and a number, and then renamed.
fn is_half_written(file: &str) -> bool {
    file.rsplit_once('#').is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

/// What is in a folder and below.
pub fn list(folder: &Path, prefix: &str, found: &mut BTreeMap<String, u64>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        match entry.metadata() {
            Ok(what) if what.is_dir() => list(&entry.path(), &format!("{name}/"), found),
            Ok(what) => drop(found.insert(name, what.len())),
            // It has just gone.
            Err(_) => {}
        }
    }
}

/// Starts the process and waits until it says where it listens.
fn launch(folder: &Path, args: &[String]) -> (Child, SocketAddr) {
    let path = log_file(folder);
    let before = fs::metadata(&path).map_or(0, |file| file.len() as usize);
    let log = fs::OpenOptions::new().create(true).append(true).open(&path).expect("a log");
    let child = Command::new(crate::weir())
        .args(["serve", "--store", "file://./store", "--listen", "127.0.0.1:0"])
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let mut child = child.expect("the binary can be started");
    let address = until("the server listens", || {
        let log = fs::read(&path).unwrap_or_default();
        let log = String::from_utf8_lossy(&log[before.min(log.len())..]).into_owned();
        let ended = child.try_wait().ok().flatten();
        assert!(ended.is_none(), "the server ended at once ({ended:?}): {log}");
        // Whole lines only.
        let (lines, _) = log.rsplit_once('\n')?;
        let line = lines.lines().find(|line| line.contains("serving ") && line.contains(" on http"))?;
        let (_, rest) = line.rsplit_once("://")?;
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').unwrap_or(rest.len());
        rest[..end].parse().ok()
    });
    (child, address)
}

impl Client {
    /// Opens a connection.
    ///
    /// # Panics
    ///
    /// If the server does not take one.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the server takes connections");
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).expect("a time limit");
        stream.set_write_timeout(Some(ANSWER_TIMEOUT)).expect("a time limit");
        stream
    }

    /// The head of a request, to its empty line. `length`: of the body that follows.
    pub fn head(&self, method: &str, path: &str, headers: &[(&str, &str)], length: Option<u64>) -> String {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        if let Some(token) = &self.token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if let Some(length) = length {
            head += &format!("Content-Length: {length}\r\n");
        }
        head + "\r\n"
    }

    /// Sends bytes as they are and reads what comes. None: the server hung up without a word, or nobody listens.
    pub fn raw(&self, request: &[u8]) -> Option<Answer> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT)).ok()?;
        // A server may answer and hang up before it has read everything.
        let _ = stream.write_all(request);
        read_answer(&mut stream)
    }

    /// Asks for something. None: there was no answer.
    pub fn try_send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Option<Answer> {
        let mut request = self.head(method, path, headers, body.map(|body| body.len() as u64)).into_bytes();
        request.extend_from_slice(body.unwrap_or_default());
        self.raw(&request)
    }

    /// Asks for something.
    ///
    /// # Panics
    ///
    /// If there is no answer.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Answer {
        let answer = self.try_send(method, path, headers, body);
        answer.unwrap_or_else(|| panic!("{method} {path}: no answer"))
    }

    /// Asks with a JSON body.
    pub fn send_json(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.send(method, path, &[("Content-Type", "application/json")], Some(body.to_string().as_bytes()))
    }

    /// GET.
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], None)
    }

    /// PUT with a JSON body.
    pub fn put(&self, path: &str, body: &Value) -> Answer {
        self.send_json("PUT", path, body)
    }

    /// POST with a JSON body.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send_json("POST", path, body)
    }

    /// DELETE.
    pub fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], None)
    }

    /// PUT with a component.
    pub fn put_wasm(&self, path: &str, component: &[u8]) -> Answer {
        self.send("PUT", path, &[("Content-Type", "application/wasm")], Some(component))
    }

    /// The job, as the server shows it.
    pub fn job(&self, tenant: &str, job: &str) -> Value {
        self.get(&format!("/v1/tenants/{tenant}/jobs/{job}")).expect(200)
    }

    /// Waits until a job is in a state.
    ///
    /// # Panics
    ///
    /// If it never is, or it fails and that is not waited for.
    pub fn until_job(&self, tenant: &str, job: &str, state: &str) -> Value {
        until(&format!("job {job} of {tenant} is {state}"), || {
            let seen = self.job(tenant, job);
            assert!(seen["state"] != "failed" || state == "failed", "{tenant}/{job}: {}", seen["error"]);
            (seen["state"] == state).then_some(seen)
        })
    }

    /// Waits until a running job has completed so many more checkpoints.
    pub fn more_checkpoints(&self, tenant: &str, job: &str, more: u64) {
        let epoch = |seen: &Value| seen["run"]["epoch"].as_u64();
        let before = until("the job has a checkpoint", || epoch(&self.job(tenant, job)));
        until("there are more checkpoints", || {
            let seen = self.job(tenant, job);
            assert!(seen["state"] != "failed", "{tenant}/{job}: {}", seen["error"]);
            (epoch(&seen)? >= before + more || seen["state"] == "finished").then_some(())
        });
    }
}

impl Answer {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The body as JSON, of an answer that has to have this status.
    ///
    /// # Panics
    ///
    /// If it has another.
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// What is wrong with it as a refusal: nothing, if it has the shape that all have.
    pub fn refusal_fault(&self) -> Option<String> {
        const KINDS: [(&str, u16); 13] = [
            ("unauthenticated", 401),
            ("forbidden", 403),
            ("not-found", 404),
            ("method", 405),
            ("conflict", 409),
            ("invalid", 400),
            ("quota", 403),
            ("too-large", 413),
            ("media-type", 415),
            ("too-slow", 408),
            ("refused", 422),
            ("unavailable", 503),
            ("internal", 500),
        ];
        if self.header("content-type") != Some("application/json") {
            return Some(format!("it is {:?} and not JSON: {:?}", self.header("content-type"), self.text()));
        }
        let body = self.json();
        let Some(error) = body["error"].as_object() else { return Some(format!("it has no error: {body}")) };
        if body.as_object().map(|body| body.len()) != Some(1) {
            return Some(format!("it has more than an error: {body}"));
        }
        let kind = error.get("kind").and_then(Value::as_str).unwrap_or_default();
        if !KINDS.contains(&(kind, self.status)) {
            return Some(format!("its kind {kind:?} does not go with status {}", self.status));
        }
        let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
        if message.is_empty() || message.contains('\n') {
            return Some(format!("its message is {message:?} and not one clause"));
        }
        let known = ["kind", "message", "help", "details"];
        error.keys().find(|key| !known.contains(&key.as_str())).map(|key| format!("it has {key:?}"))
    }
}

/// Reads an answer to its end: its length, its last chunk, or until the server hangs up.
///
/// A connection that is cut after the head gives what came until then.
pub fn read_answer(stream: &mut TcpStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    // What came before a reset counts: a server that refuses a body hangs up while it is sent.
    let _ = stream.read_to_end(&mut bytes);
    parse_answer(&bytes)
}

/// Takes an answer apart.
pub fn parse_answer(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let rest = &bytes[end + 4..];
    let is_chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = if is_chunked { unchunk(rest) } else { rest.to_vec() };
    Some(Answer { status, headers, body })
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = String::from_utf8_lossy(&rest[..end]).into_owned();
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { break };
        let from = end + 2;
        if size == 0 || rest.len() < from + size {
            break;
        }
        body.extend_from_slice(&rest[from..from + size]);
        rest = rest.get(from + size + 2..).unwrap_or_default();
    }
    body
}
