use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;

fn grants(words: &[String]) -> Grants {
    let mut grants = Grants::default();
    words.iter().for_each(|word| grants.give(word).unwrap());
    grants
}

fn get(url: &str) -> Request {
    Request { method: "GET".into(), url: url.into(), headers: Vec::new(), body: Vec::new(), timeout: None }
}

fn refused(grants: &Grants, request: Request) -> String {
    let fault = check(grants, request).expect_err("it is refused");
    assert_eq!(fault.kind, ErrorKind::Refused);
    fault.message
}

/// Answers as many connections as there are answers, each with one; gives what it was sent.
fn server(answers: Vec<Vec<u8>>) -> (u16, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let answering = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut got = Vec::new();
            let mut buffer = [0; 4096];
            loop {
                let read = stream.read(&mut buffer).unwrap();
                got.extend_from_slice(&buffer[..read]);
                let text = String::from_utf8_lossy(&got).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length =
                    head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                if body.len() >= length.unwrap_or(0) {
                    asked.push(text);
                    break;
                }
            }
            // Who was told too much may have gone.
            let _ = stream.write_all(&answer);
        }
        asked
    });
    (port, answering)
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn a_request_to_a_granted_host_is_sent_and_its_answer_comes_back() {
    let (port, asked) = server(vec![answer("201 Created\r\nx-made: yes", b"made")]);
    let given = grants(&[format!("http-private:127.0.0.1:{port}")]);
    let request = Request {
        method: "POST".into(),
        headers: vec![Header { name: "X-Token".into(), value: "secret".into() }],
        body: b"hello".to_vec(),
        ..get(&format!("http://127.0.0.1:{port}/things?n=1"))
    };
    let clients = Clients::default();
    let response = send(&clients, check(&given, request).unwrap()).await.unwrap();
    assert_eq!((response.status, response.body.as_slice()), (201, &b"made"[..]));
    assert!(response.headers.contains(&Header { name: "x-made".into(), value: "yes".into() }));
    let asked = asked.join().unwrap();
    assert!(asked[0].starts_with("POST /things?n=1 HTTP/1.1\r\n"), "{asked:?}");
    assert!(asked[0].contains("x-token: secret\r\n") && asked[0].ends_with("\r\n\r\nhello"), "{asked:?}");
}

#[tokio::test]
async fn redirections_are_not_followed_and_an_answer_has_a_size() {
    let moved = answer("302 Found\r\nlocation: http://169.254.169.254/", b"");
    let (port, asked) = server(vec![
        moved,
        answer("200 OK", &vec![7; RESPONSE_BYTES_MAX + 1]),
        [&b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"[..], &vec![7; RESPONSE_BYTES_MAX + 1]].concat(),
        b"not http at all\r\n\r\n".to_vec(),
    ]);
    let given = grants(&[format!("http-private:localhost:{port}")]);
    let clients = Clients::default();
    let ask = || async { send(&clients, check(&given, get(&format!("http://localhost:{port}/"))).unwrap()).await };
    assert_eq!(ask().await.unwrap().status, 302);
    assert_eq!(ask().await.unwrap_err().kind, ErrorKind::TooLarge);
    assert_eq!(ask().await.unwrap_err().kind, ErrorKind::TooLarge);
    assert_eq!(ask().await.unwrap_err().kind, ErrorKind::Failed);
    assert_eq!(asked.join().unwrap().len(), 4);
}

#[tokio::test]
async fn a_granted_name_that_leads_to_a_private_address_gets_no_connection() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let given = grants(&[format!("http:localhost:{port}"), format!("http:127.0.0.1:{port}")]);
    let url = format!("http://localhost:{port}/");
    let fault = send(&Clients::default(), check(&given, get(&url)).unwrap()).await.unwrap_err();
    assert_eq!(fault.kind, ErrorKind::Refused, "{fault:?}");
    assert!(fault.message.contains("which is not public"), "{fault:?}");
    for url in
        [format!("http://127.0.0.1:{port}/"), format!("http://0x7f.1:{port}/"), format!("http://2130706433:{port}/")]
    {
        assert!(refused(&given, get(&url)).contains("which is not public"), "{url}");
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody came");
}

#[tokio::test]
async fn who_does_not_answer_is_not_waited_for_longer_than_was_asked() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let given = grants(&[format!("http-private:127.0.0.1:{port}")]);
    let request = Request { timeout: Some(20), ..get(&format!("http://127.0.0.1:{port}/")) };
    let fault = send(&Clients::default(), check(&given, request).unwrap()).await.unwrap_err();
    assert_eq!((fault.kind, fault.message.as_str()), (ErrorKind::Timeout, "no answer within 20ms"));
}

#[test]
fn what_is_no_request_or_goes_to_no_granted_host_is_refused() {
    let given = grants(&["http:api.example.com".to_owned()]);
    let url = "https://api.example.com/";
    for (request, why) in [
        (get("https://other.example.com/"), "grants = [\"http:other.example.com\"] would"),
        (get("https://api.example.com:8443/"), "grants = [\"http:api.example.com:8443\"] would"),
        (get("ftp://api.example.com/"), "neither http:// nor https://"),
        (get("/relative"), "is no address"),
        (get("https://me:secret@api.example.com/"), "a user or a password"),
        (Request { method: "CONNECT".into(), ..get(url) }, "\"CONNECT\""),
        (Request { method: "G T".into(), ..get(url) }, "\"G T\""),
        (Request { body: vec![0; REQUEST_BYTES_MAX + 1], ..get(url) }, "1048577 bytes; the most is 1 MiB"),
        (
            Request { headers: vec![Header { name: "Host".into(), value: "x".into() }], ..get(url) },
            "belongs to the connection",
        ),
        (Request { headers: vec![Header { name: "x".into(), value: "a\r\nb: c".into() }], ..get(url) }, "malformed"),
        (Request { headers: vec![Header { name: "x".into(), value: "y".into() }; 65], ..get(url) }, "65 headers"),
    ] {
        let said = refused(&given, request);
        assert!(said.contains(why), "{said}");
        assert!(!said.contains("secret"));
    }
    let most = check(&given, Request { timeout: Some(u32::MAX), ..get(url) }).unwrap();
    assert!(!most.private);
    assert_eq!(most.timeout, TIMEOUT_MAX);
}
