//! Stores: the conformance suite over every kind of store, real S3 servers among them; what a store must be refused for; and a
//! whole job whose checkpoints and output are in one.
//!
//! The servers that others wrote are programs. Where they are is said by `WEIR_S3S_FS`, `WEIR_MOTO_SERVER` and `WEIR_NANIO`; `.ci/run` installs
//! them. Where nobody says it their tests are left out, with a line that says so, and on CI that is a failure.

#![allow(clippy::unwrap_used)] // All of it is tests, also what is not in a function of its own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use weir::checkpoint::{Begun, EntryKind, Start, Store, begin, history};
use weir::clock::Clock;
use weir::storage::{StoreOptions, open};
use weir_tests::gate::Gate;
use weir_tests::job::store::{Fate as StoreFate, FaultyStore, Verb};
use weir_tests::s3::{Fate, Manners, S3Server};
use weir_tests::store_suite::{self, Objects};

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(future)
}

fn options(endpoint: &str) -> StoreOptions {
    let options = [("endpoint", endpoint), ("allow_http", "true"), ("skip_signature", "true"), ("region", "us-east-1")];
    options.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect()
}

fn at(endpoint: &str, url: &str) -> Objects {
    open(url, Path::new("."), &options(endpoint)).unwrap().objects
}

/// The same with a key, for a server that lets nobody in without one.
fn at_with_key(endpoint: &str) -> Objects {
    let builder = AmazonS3Builder::new().with_endpoint(endpoint).with_allow_http(true).with_region("us-east-1");
    let builder = builder.with_bucket_name("bucket").with_access_key_id("key").with_secret_access_key("secret");
    Arc::new(builder.build().unwrap())
}

#[test]
fn a_store_in_memory_keeps_every_promise() {
    run(store_suite::all(&(Arc::new(InMemory::new()) as Objects)));
}

#[test]
fn a_store_in_a_folder_keeps_every_promise() {
    let dir = tempfile::tempdir().unwrap();
    run(store_suite::all(&open("file://./store", dir.path(), &StoreOptions::default()).unwrap().objects));
}

#[test]
fn a_slow_store_keeps_every_promise() {
    let wait = Duration::from_millis(2);
    let config = ThrottleConfig {
        wait_get_per_call: wait,
        wait_put_per_call: wait,
        wait_list_per_call: wait,
        wait_list_with_delimiter_per_call: wait,
        wait_delete_per_call: wait,
        ..ThrottleConfig::default()
    };
    run(store_suite::all(&(Arc::new(ThrottledStore::new(InMemory::new(), config)) as Objects)));
}

#[test]
fn a_server_that_speaks_s3_keeps_every_promise_at_the_top_of_a_bucket_and_below_a_prefix() {
    let server = S3Server::start();
    run(store_suite::all(&at(&server.endpoint(), "s3://bucket")));
    run(store_suite::all(&at(&server.endpoint(), "s3://bucket/some/prefix")));
    assert!(!server.keys("bucket/some/prefix/suite/").is_empty());
}

/// A tenth of all requests fail, before or after they are carried out: the client repeats what it may, and nothing else is lost.
#[test]
fn a_server_that_often_fails_before_it_does_anything_keeps_every_promise() {
    let server = S3Server::start();
    let mut count = 0_u32;
    server.decide(move |_| {
        count += 1;
        if count.is_multiple_of(10) { Fate::FailsBefore } else { Fate::Works }
    });
    run(store_suite::all(&at(&server.endpoint(), "s3://bucket")));
}

/// A program that serves S3, and its folder, behind a gate: both look whether an object exists and write it later, and of several
/// who create it at once more than one may win.
struct Server {
    child: Child,
    gate: Gate,
    _root: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a server is; none if nobody says so, which on CI is a failure.
fn program(variable: &str) -> Option<OsString> {
    let program = std::env::var_os(variable).filter(|program| !program.is_empty());
    if program.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{variable} does not say where the server is");
        eprintln!("skipped: {variable} does not say where the server is");
    }
    program
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

impl Server {
    /// Starts a program and waits until it answers.
    fn start(program: &OsString, arguments: impl Fn(u16, &Path) -> Vec<OsString>) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("bucket")).unwrap();
        let port = free_port();
        let child = Command::new(program)
            .args(arguments(port, root.path()))
            .env("NANIO_ACCESS_KEY", "key")
            .env("NANIO_SECRET_KEY", "secret")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
        let mut server = Self { child, gate: Gate::before(port), _root: root };
        for _ in 0..600 {
            assert!(server.child.try_wait().unwrap().is_none(), "{} has ended", program.display());
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                server.make_bucket(port);
                return server;
            }
            pause(Duration::from_millis(50));
        }
        panic!("{} does not answer", program.display());
    }

    /// A server whose buckets are no folders is asked for one; the other answers that it has it.
    fn make_bucket(&self, port: u16) {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let request = "PUT /bucket HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        drop(stream.read_to_end(&mut Vec::new()));
    }

    fn s3s_fs() -> Option<Self> {
        let program = program("WEIR_S3S_FS")?;
        Some(Self::start(&program, |port, root| {
            let port = port.to_string();
            ["--host", "127.0.0.1", "--port", &port].map(OsString::from).into_iter().chain([root.into()]).collect()
        }))
    }

    fn moto() -> Option<Self> {
        let program = program("WEIR_MOTO_SERVER")?;
        Some(Self::start(&program, |port, _| {
            let port = port.to_string();
            ["-H", "127.0.0.1", "-p", &port].map(OsString::from).into()
        }))
    }

    fn nanio() -> Option<Self> {
        let program = program("WEIR_NANIO")?;
        Some(Self::start(&program, |port, root| {
            let port = port.to_string();
            let arguments = ["serve", "--host", "127.0.0.1", "--port", &port, "--data-dir"].map(OsString::from);
            arguments.into_iter().chain([root.into()]).collect()
        }))
    }
}

/// Waits for something that nobody tells.
#[allow(clippy::disallowed_methods)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[test]
fn s3s_fs_keeps_every_promise_but_that_of_long_names_and_a_job_on_it_is_exact_however_often_it_is_killed() {
    let Some(server) = Server::s3s_fs() else { return };
    run(store_suite::all_but_long_names(&at(&server.gate.endpoint(), "s3://bucket/suite-of-weir")));
    killed_job(&server.gate.endpoint(), ANONYMOUS);
}

#[test]
fn moto_keeps_every_promise_and_a_job_on_it_is_exact_however_often_it_is_killed() {
    let Some(server) = Server::moto() else { return };
    run(store_suite::all(&at_with_key(&server.gate.endpoint())));
    killed_job(&server.gate.endpoint(), &["allow_http", "region"]);
}

/// A server that others wrote, and that ignores the condition of a creation.
#[test]
fn nanio_creates_what_exists_and_is_refused_by_name_with_the_remedy() {
    let Some(server) = Server::nanio() else { return };
    let folder = folder(&pipeline(&server.gate.endpoint(), &["allow_http", "region"]));
    let (code, _, stderr) = weir(folder.path(), &["run", "--quiet", "pipeline.toml"]);
    assert_eq!(code, 5, "{stderr}");
    for said in ["s3://bucket/weir", "create-if-absent", "Amazon S3"] {
        assert!(stderr.contains(said), "{said}: {stderr}");
    }
}

#[test]
fn a_job_on_a_server_that_speaks_s3_is_exact_however_often_it_is_killed() {
    killed_job(&S3Server::start().endpoint(), ANONYMOUS);
}

const RECORDS: usize = 6_000;
const KEYS: usize = 20;

fn pipeline(endpoint: &str, options: &[&str]) -> String {
    let quoted = |option: &&str| format!("{option} = \"{}\"", value(option));
    let options = options.iter().map(quoted).collect::<Vec<_>>().join(", ");
    format!(
        r#"
name = "on-s3"

[checkpoint]
store = "s3://bucket/weir"
store_options = {{ endpoint = "{endpoint}", {options} }}
interval = "100ms"

[restart]
attempts = 0

[source.lines]
connector = "file"
path = "input.jsonl"
format = "json"
rate = 2_000

[operator.count]
plugin = "count"
inputs = [{{ from = "lines", key = "/key" }}]
parallelism = 2

[sink.out]
connector = "object"
inputs = ["count"]
parallelism = 2
url = "s3://bucket/out"
store_options = {{ endpoint = "{endpoint}", {options} }}
format = "json"
"#
    )
}

/// Options of a store, with the values that these tests give them.
const ANONYMOUS: &[&str] = &["allow_http", "region", "skip_signature"];

fn value(option: &str) -> &'static str {
    if option == "region" { "us-east-1" } else { "true" }
}

/// Runs the command with a key in its environment.
fn weir(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let output = command(folder, args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(weir_tests::weir());
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
    command
}

fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("pipeline.toml"), text).unwrap();
    let input: String = (0..RECORDS).map(|n| format!("{{\"key\":\"k{}\",\"n\":{n}}}\n", n * n % KEYS)).collect();
    fs::write(folder.path().join("input.jsonl"), input).unwrap();
    folder
}

/// Counts of each key in the order in which they are read.
fn counts(text: &str) -> BTreeMap<String, Vec<u64>> {
    let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        counts.entry(line["key"].to_string()).or_default().push(line["count"].as_u64().unwrap());
    }
    counts
}

/// Runs a job whose checkpoints and output are on a server, kills it at moments of chance, and reads its output as a user does.
fn killed_job(endpoint: &str, options: &[&str]) {
    let folder = folder(&pipeline(endpoint, options));
    let mut kills = 0;
    loop {
        let mut child = command(folder.path(), &["run", "--quiet", "pipeline.toml"])
            .stderr(fs::File::options().create(true).append(true).open(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        // Whatever it is doing then: nothing that is asserted depends on it.
        pause(Duration::from_millis(400 + 137 * (kills % 7)));
        if kills < 6 && child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
            let (code, _, stderr) = weir(folder.path(), &["txn", "list", "pipeline.toml"]);
            assert!(code == 0 || stderr.contains("never ran"), "{stderr}");
            continue;
        }
        let code = child.wait().unwrap().code();
        assert_eq!(code, Some(0), "{}", fs::read_to_string(folder.path().join("log")).unwrap());
        break;
    }
    let mut options: Vec<_> = options.iter().map(|option| format!("{option}={}", value(option))).collect();
    options.push(format!("endpoint={endpoint}"));
    let mut args = vec!["sink", "read", "s3://bucket/out"];
    options.iter().for_each(|option| args.extend(["--store-option", option]));
    let (code, stdout, stderr) = weir(folder.path(), &args);
    assert_eq!(code, 0, "{stderr}");
    let counts = counts(&stdout);
    assert_eq!(counts.values().map(Vec::len).sum::<usize>(), RECORDS, "after {kills} kills");
    for (key, counts) in counts {
        assert!(counts.iter().copied().eq(1..=counts.len() as u64), "{key} is counted from one: {counts:?}");
    }
    let (code, _, stderr) = weir(folder.path(), &["checkpoint", "verify", "pipeline.toml"]);
    assert_eq!(code, 0, "{stderr}");
}

/// I6, and the claim of another store: it is said before anything is written that counts.
#[test]
fn a_store_that_creates_what_exists_or_lets_several_creators_win_is_refused_by_name_with_the_remedy() {
    for manners in
        [Manners { honours_create: false, ..Manners::default() }, Manners { races_creates: true, ..Manners::default() }]
    {
        let server = S3Server::with(manners);
        let folder = folder(&pipeline(&server.endpoint(), ANONYMOUS));
        let (code, _, stderr) = weir_tests::run(folder.path(), &["run", "--quiet", "pipeline.toml"]);
        assert_eq!(code, 5, "{manners:?}: {stderr}");
        for said in ["s3://bucket/weir", "create-if-absent", "Amazon S3"] {
            assert!(stderr.contains(said), "{manners:?}, {said}: {stderr}");
        }
        assert_eq!(server.keys("bucket/"), Vec::<String>::new(), "the probe leaves nothing behind");
    }
}

#[test]
fn credentials_come_from_the_environment_sign_requests_and_are_shown_nowhere() {
    let server = S3Server::start();
    let unsigned = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&unsigned);
    server.decide(move |asked| {
        count.fetch_add(usize::from(!asked.signed), Ordering::SeqCst);
        Fate::Works
    });
    let folder = folder(&pipeline(&server.endpoint(), &["allow_http"]));
    let trace = |args: &[&str]| {
        let output = Command::new(weir_tests::weir())
            .args(args)
            .current_dir(folder.path())
            .env("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
            .env("AWS_SECRET_ACCESS_KEY", "verysecretverysecret")
            .env("AWS_SESSION_TOKEN", "tokenlikeasecret")
            .env("WEIR_LOG", "trace")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code(), text)
    };
    let (code, log) = trace(&["run", "--quiet", "pipeline.toml"]);
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(unsigned.load(Ordering::SeqCst), 0);
    server.decide(|_| Fate::FailsBefore);
    let (code, failure) = trace(&["checkpoint", "list", "pipeline.toml"]);
    assert_eq!(code, Some(5), "{failure}");
    let stored: String = server
        .keys("bucket/")
        .iter()
        .map(|key| String::from_utf8_lossy(&server.get(key).unwrap()).into_owned())
        .collect();
    for secret in ["verysecretverysecret", "tokenlikeasecret"] {
        assert!(!log.contains(secret) && !failure.contains(secret) && !stored.contains(secret), "{secret} is shown");
    }
}

/// The answer to a claim is lost after it was written: it is found by reading, and there is one (I6).
#[test]
fn a_claim_whose_answer_was_lost_is_found_by_reading_and_not_made_twice() {
    let server = S3Server::start();
    let mut lost = 0;
    server.decide(move |asked| {
        let claim = asked.verb == "PUT" && asked.key.contains("/log/") && lost == 0;
        lost += u32::from(claim);
        if claim { Fate::FailsAfter } else { Fate::Works }
    });
    run(async {
        let store = Store::open_with("s3://bucket/weir", Path::new("."), &options(&server.endpoint())).unwrap();
        store.probe().await.unwrap();
        let begun = begin(&store, "job", Start::Resume, &Clock::system()).await.unwrap();
        let Begun::Run { run, .. } = begun else { panic!("it has not finished") };
        assert_eq!(run.generation().0, 1);
        let entries = history(&store, "job").await.unwrap();
        assert_eq!(entries.len(), 1);
        assert!(matches!(entries[0].kind, EntryKind::Claim { base: None }));
    });
}

/// The store does not answer, or answers with errors: that is an error in time, never an empty start (I10).
#[test]
fn a_store_that_does_not_answer_is_an_error_and_never_an_empty_start() {
    let store = FaultyStore::new();
    run(async {
        let view = Store::new(Arc::new(store.clone()));
        let Begun::Run { .. } = begin(&view, "job", Start::Resume, &Clock::system()).await.unwrap() else { panic!() };
        for verb in [Verb::Get, Verb::List, Verb::Put] {
            store.decide(move |asked, _| if asked == verb { StoreFate::FailsBefore } else { StoreFate::Works });
            let error = begin(&view, "job", Start::Resume, &Clock::system()).await.unwrap_err();
            assert_eq!(error.kind(), weir::error::ErrorKind::Store, "{verb:?}: {error}");
        }
        store.heal();
        let Begun::Run { run, .. } = begin(&view, "job", Start::Resume, &Clock::system()).await.unwrap() else {
            panic!()
        };
        assert!(run.generation().0 > 1);
    });
}

/// Listings that come late, and ones that end early, hide the newest entries: they are hints, and the tip is found by probing.
#[test]
fn a_tip_that_listings_do_not_show_is_found_all_the_same() {
    for late in [1, 3, 40] {
        let store = FaultyStore::new();
        run(async {
            let exact = Store::new(Arc::new(store.clone()));
            for generation in 1..=5 {
                let view = Store::new(Arc::new(weir_tests::job::store::LateStore::new(store.clone(), late)));
                let begun = begin(&view, "job", Start::Resume, &Clock::system()).await.unwrap();
                let Begun::Run { run, .. } = begun else { panic!("it has not finished") };
                assert_eq!(run.generation().0, generation, "listings miss the last {late}");
            }
            assert_eq!(history(&exact, "job").await.unwrap().len(), 5);
        });
    }
}
