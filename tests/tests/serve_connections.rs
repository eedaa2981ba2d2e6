//! A server under attack before any request is read: too many connections, talk that is no TLS, and pages in a browser that reach a server without
//! tokens. Others are served all the while.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use weir_tests::server::{Client, Server, until};

/// How many connections one address may have, as docs/serve.md says.
const OF_ONE_MAX: usize = 512;

/// A connection from another address of this machine.
async fn connect_from(from: [u8; 4], to: SocketAddr) -> tokio::net::TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Whether the server answers on a connection.
async fn is_answered(mut stream: tokio::net::TcpStream) -> bool {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let request = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut answer = Vec::new();
    stream.write_all(request).await.is_ok()
        && stream.read_to_end(&mut answer).await.is_ok()
        && answer.starts_with(b"HTTP/1.1 200")
}

#[test]
fn one_address_that_takes_all_connections_that_it_gets_keeps_nobody_else_out() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let address = server.admin().address;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut held = Vec::new();
        for _ in 0..OF_ONE_MAX {
            held.push(connect_from([127, 0, 0, 1], address).await);
        }
        // All of them have been taken when one more is refused; some may have been let go for their silence by then.
        let mut is_refused = false;
        for _ in 0..OF_ONE_MAX {
            let stream = connect_from([127, 0, 0, 1], address).await;
            if !is_answered(stream).await {
                is_refused = true;
                break;
            }
            held.push(connect_from([127, 0, 0, 1], address).await);
        }
        assert!(is_refused, "one address has as many as it likes");
        assert!(is_answered(connect_from([127, 0, 0, 2], address).await).await);
        drop(held);
    });
    until("there is place again", || {
        (server.nobody().try_send("GET", "/healthz", &[], None)?.status == 200).then_some(())
    });
}

/// What lies in the folder with the certificate of this machine.
fn tls(file: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/tls").join(file).display().to_string()
}

#[test]
fn talk_that_is_no_tls_gets_nothing_and_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (tls("cert.pem"), tls("key.pem"));
    let server =
        Server::start_with(dir.path(), &["--log-format", "json", "--tls-cert", &certificate, "--tls-key", &key]);
    let raw = server.nobody();
    let silent: Vec<_> = (0..100).map(|_| raw.connect()).collect();
    // The beginning of a handshake that is never ended, and one that says that it is longer than any.
    let mut half = raw.connect();
    half.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]).unwrap();
    let plain = b"GET /v1/tenants HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
    for bytes in [plain, vec![0; 70_000], vec![0xff; 70_000], b"\x16\x03\x01\xff\xff\x01".repeat(9_000)] {
        let mut stream = raw.connect();
        let _ = stream.write_all(&bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"), "it is answered in plain text");
        assert!(answer.len() < 100, "an alert at most");
    }
    let ask = |arguments: &[&str]| {
        Command::new(weir_tests::weir())
            .args(["tenant", "list", "--server", &format!("https://{}", raw.address)])
            .args(["--token-file", "weir-admin-token"])
            .args(arguments)
            .current_dir(dir.path())
            .output()
            .unwrap()
    };
    let listed = ask(&["--ca-cert", &tls("ca.pem")]);
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let unknown = ask(&[]);
    assert!(!unknown.status.success(), "a certificate that nobody vouches for is taken");
    assert!(!String::from_utf8_lossy(&unknown.stderr).contains("weir_"), "no token is shown");
    drop((silent, half));
}

#[test]
fn a_server_without_tokens_does_nothing_for_a_page_in_a_browser() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_with(dir.path(), &["--log-format", "json", "--dev"]);
    let client = server.nobody();
    let pipeline =
        "name = \"x\"\n[source.a]\nconnector = \"generator\"\n[sink.b]\nconnector = \"blackhole\"\ninputs = [\"a\"]\n";
    let body = json!({ "pipeline": pipeline }).to_string();
    let path = "/v1/tenants/default/jobs/x";
    let with_host = |host: &str, more: &str| {
        let length = body.len();
        let request = format!(
            "PUT {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n{more}\r\n{body}"
        );
        client.raw(request.as_bytes()).expect("an answer")
    };
    let port = client.address.port();
    for (host, more) in [
        ("evil.example".to_owned(), ""),
        (format!("evil.example:{port}"), ""),
        (format!("127.0.0.1.evil.example:{port}"), ""),
        (format!("localhost.evil.example:{port}"), ""),
        ("192.168.0.1".to_owned(), ""),
        (format!("127.0.0.1:{port}"), "Origin: http://evil.example\r\n"),
        (format!("127.0.0.1:{port}"), "Origin: null\r\n"),
        (format!("127.0.0.1:{port}"), "Origin: http://127.0.0.1\r\n"),
    ] {
        let answer = with_host(&host, more);
        assert_eq!((answer.status, answer.refusal_fault()), (403, None), "{host} {more}: {}", answer.text());
    }
    // What a form can send without asking first.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let answer = client.send("PUT", path, &[("Content-Type", kind)], Some(body.as_bytes()));
        assert_eq!((answer.status, answer.refusal_fault()), (415, None), "{kind}: {}", answer.text());
    }
    assert_eq!(client.get("/v1/tenants/default/jobs").expect(200), json!([]), "nothing was done");
    // Programs of this machine are obeyed.
    client.put(path, &json!({ "pipeline": pipeline })).expect(200);
    Client { address: client.address, token: None }.until_job("default", "x", "running");
}
