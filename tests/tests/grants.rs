//! What a guest sees of the world outside, if it is granted: variables by name, and hosts over HTTP.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use serde_json::{Value, json};
use weir::model::{Batch, TaskInfo};
use weir::plan::{Grants, LimitsSpec};
use weir::plugin::{HostOptions, Operator, OperatorError, Output, Plugin, PluginHost};
use weir_tests::guests::guest;

async fn prints() -> Plugin {
    let host = PluginHost::new(HostOptions::default()).expect("a host");
    host.load(&guest("prints")).await.expect("it is a plugin")
}

fn grants(words: &[&str]) -> Grants {
    let mut grants = Grants::default();
    words.iter().for_each(|word| grants.give(word).expect("a grant"));
    grants
}

async fn open(plugin: &Plugin, config: &Value) -> Result<Box<dyn Operator>, OperatorError> {
    let (job, node) = ("job".to_owned(), "node".to_owned());
    let task = TaskInfo { job, node, subtask: 0, parallelism: 1, key_groups: 128, groups: 0..128, seed: 1 };
    plugin.open(&LimitsSpec::default(), config, &task).await
}

/// What it says to one record.
async fn said(operator: &mut dyn Operator) -> String {
    let (mut batch, mut out) = (Batch::default(), Output::default());
    batch.push(1, None, Some(b"one"));
    operator.process(7, 0, &batch, &mut out).await.expect("it goes well");
    let value = out.emitted[0].1.values.get(0).expect("a value");
    String::from_utf8(value.to_vec()).expect("text")
}

/// Answers one request; gives it.
fn server() -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut asked, mut buffer) = (String::new(), [0; 4096]);
        while !asked.ends_with("ping") {
            let read = stream.read(&mut buffer).expect("a request");
            asked.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npong").expect("it listens");
        asked
    });
    (port, answering)
}

#[tokio::test]
async fn a_variable_is_seen_if_it_is_granted_and_has_a_value() {
    let values = [("GREETING", "hello"), ("SECRET", "no")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let plugin = prints().await.with_environment(BTreeMap::from(values));
    for (words, seen) in
        [(&[][..], "[]"), (&["env:UNSET"], "[]"), (&["env:GREETING", "env:UNSET"], "[(\"GREETING\", \"hello\")]")]
    {
        let plugin = plugin.clone().with_grants(grants(words));
        let mut operator = open(&plugin, &json!({ "do": "environment" })).await.expect("it opens");
        assert_eq!(said(&mut *operator).await, seen);
    }
}

#[tokio::test]
async fn a_request_is_sent_to_a_granted_host_and_by_nobody_who_does_it_over() {
    let (port, asked) = server();
    let plugin = prints().await.with_grants(grants(&[&format!("http-private:127.0.0.1:{port}")]));
    let config = json!({ "do": "fetch", "url": format!("http://127.0.0.1:{port}/a?b=c") });
    let mut operator = open(&plugin, &config).await.expect("it opens");
    let unsent = said(&mut *operator).await;
    assert_eq!(unsent, "ErrorKind::Refused: nothing is sent: this is a replay or a trial");
    operator.go_live();
    assert_eq!(said(&mut *operator).await, "200 pong");
    let asked = asked.join().expect("it was asked once");
    assert!(asked.starts_with("POST /a?b=c HTTP/1.1\r\n") && asked.contains("accept: text/plain"), "{asked}");
}

#[tokio::test]
async fn no_request_goes_elsewhere_or_where_it_is_not_allowed() {
    let plugin = prints().await;
    let config = json!({ "do": "fetch", "url": "http://169.254.169.254/latest" });
    for (words, why) in [
        (&[][..], "no grant names this host: grants = [\"http:169.254.169.254\"] would"),
        (&["http:169.254.169.254"], "which is not public"),
    ] {
        let mut operator = open(&plugin.clone().with_grants(grants(words)), &config).await.expect("it opens");
        operator.go_live();
        let said = said(&mut *operator).await;
        assert!(said.starts_with("ErrorKind::Refused: ") && said.contains(why), "{said}");
    }
    let early = json!({ "do": "fetch", "url": "http://a.b", "early": true });
    let error = open(&plugin, &early).await.err().expect("not in open").to_string();
    assert!(error.contains("http.send may be called only in process"), "{error}");
}
