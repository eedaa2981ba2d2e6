//! An operator that does with each batch what its configuration says, as runtimes of languages do it: `{"do":"print"}`.

use std::cell::RefCell;

use exports::weir::plugin::processor;
use wasi::cli::{environment, exit, stderr, stdin, stdout, terminal_stdout};
use wasi::filesystem::preopens;
use wasi::io::streams::{OutputStream, StreamError};
use wasi::sockets::instance_network;
use weir::plugin::types::{Batch, Descriptor, Failure, FailureKind, Port, Progress, StateKind};
use weir::plugin::{http, output};

wit_bindgen::generate!({ world: "test:prints/prints", path: ["../../../wit", "wit"], generate_all });

thread_local! {
    static TASK: RefCell<String> = const { RefCell::new(String::new()) };
    static URL: RefCell<String> = const { RefCell::new(String::new()) };
}

struct Prints;

export!(Prints);

/// As libraries write: as much as they may, in pieces.
fn print(stream: &OutputStream, mut text: &[u8]) {
    while !text.is_empty() {
        let room = stream.check_write().expect("a stream is not closed") as usize;
        let (now, later) = text.split_at(text.len().min(room).min(7));
        stream.write(now).expect("it takes that");
        text = later;
    }
    stream.blocking_flush().expect("it takes that");
}

fn work(task: &str) {
    match task {
        "print" => {
            print(&stdout::get_stdout(), b"first line\nsecond ");
            print(&stdout::get_stdout(), b"line\r\nno end");
            stderr::get_stderr().blocking_write_and_flush(b"a warning\n").expect("it takes that");
        }
        "look" => {
            assert!(environment::get_environment().is_empty() && environment::get_arguments().is_empty());
            assert_eq!(environment::initial_cwd(), None);
            assert!(preopens::get_directories().is_empty());
            assert!(terminal_stdout::get_terminal_stdout().is_none());
            let input = stdin::get_stdin();
            assert!(matches!(input.read(10), Err(StreamError::Closed)));
            assert!(matches!(input.blocking_read(10), Err(StreamError::Closed)));
            for _ in 0..100_000 {
                drop(stdout::get_stdout());
            }
        }
        "panic" => {
            print(&stderr::get_stderr(), b"thread 'main' panicked at src/lib.rs:1:2:\nthe sky fell\n");
            std::process::abort();
        }
        "boom" => {
            print(&stderr::get_stderr(), b"boom without an end");
            std::process::abort();
        }
        "stray" => {
            print(&stderr::get_stderr(), b"row 5 is \x1b[31mfine\n");
            // SAFETY: it is not; the engine ends the call.
            let stray = unsafe { std::ptr::read_volatile((u32::MAX - 16) as usize as *const u64) };
            assert_ne!(stray, 0);
        }
        "exit" => exit::exit(Err(())),
        "network" => {
            instance_network::instance_network();
        }
        "flood" => {
            let _ = stdout::get_stdout().write(&vec![b'x'; 1 << 20]);
        }
        "environment" => say(&format!("{:?}", environment::get_environment())),
        "fetch" => say(&fetch()),
        other => panic!("{other:?} is nothing to do"),
    }
}

/// Emits a record.
fn say(text: &str) {
    output::emit(
        0,
        &Batch {
            timestamps: vec![1],
            hashes: Vec::new(),
            key_offsets: Vec::new(),
            keys: Vec::new(),
            key_nulls: Vec::new(),
            value_offsets: vec![0, text.len() as u32],
            values: text.as_bytes().to_vec(),
            value_nulls: Vec::new(),
            header_offsets: Vec::new(),
            headers: Vec::new(),
        },
    );
}

/// Asks at the address of the configuration; what came back.
fn fetch() -> String {
    let header = http::Header { name: "accept".to_owned(), value: "text/plain".to_owned() };
    let request = http::Request {
        method: "POST".to_owned(),
        url: URL.with_borrow(String::clone),
        headers: vec![header],
        body: b"ping".to_vec(),
        timeout: Some(10_000),
    };
    match http::send(&request) {
        Ok(answer) => format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body)),
        Err(error) => format!("{:?}: {}", error.kind, error.message),
    }
}

impl processor::Guest for Prints {
    fn describe() -> Descriptor {
        let port = |name: &str| Port { name: name.to_owned(), summary: String::new(), keyed: false };
        Descriptor {
            name: "prints".to_owned(),
            version: "1.0.0".to_owned(),
            summary: "does what runtimes of languages do".to_owned(),
            inputs: vec![port("in")],
            outputs: vec![port("out")],
            state: StateKind::Stateless,
            state_version: 0,
            oldest_state_version: 0,
            config_schema: None,
            attributes: Vec::new(),
        }
    }

    fn open(config: String, _task: processor::TaskInfo) -> Result<(), Failure> {
        let url = config.split_once("\"url\":\"").and_then(|(_, after)| after.split_once('"'));
        URL.set(url.map_or(String::new(), |(url, _)| url.to_owned()));
        if config.contains("\"early\":true") {
            fetch();
        }
        match config.split_once("\"do\":\"").and_then(|(_, after)| after.split_once('"')) {
            Some((task, _)) => TASK.set(task.to_owned()),
            None => return Err(Failure { kind: FailureKind::Fatal, message: "nothing to do".to_owned() }),
        }
        Ok(())
    }

    fn process(_port: u32, input: Batch) -> Result<Progress, Failure> {
        TASK.with_borrow(|task| work(task));
        output::emit(0, &input);
        Ok(Progress::Done)
    }

    fn advance(_watermark: i64) -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }

    fn wake() -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }

    fn finish(_port: u32) -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }

    fn resume() -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }
}
