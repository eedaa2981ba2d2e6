//! What people try who mean no good, against the real server: other tenants' doors, names that lead out of their
//! folder, code that wants more than it was given, bodies without end, clients that say nothing, and texts that would
//! write into the log.
//!
//! Of each attack four things are asked: it is refused, in the one shape that refusals have; the log says so, with the
//! tenant; nothing is left in the store; and the server goes on. What is known not to hold yet stands in [`KNOWN`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use weir_tests::guests::guest;
use weir_tests::openapi::{Document, Operation, one_of_everything};
use weir_tests::server::{Answer, Client, Server, list, parse_answer, until};

/// What does not hold yet, and why: part of the name of a case. One that is here and holds all the same is an error,
/// so that the list does not outlive what it is about.
const KNOWN: [(&str, &str); 0] = [];

/// What went wrong, collected over all cases of a test.
#[derive(Default)]
struct Faults {
    found: BTreeMap<String, String>,
    /// Which of [`KNOWN`] were looked at.
    looked: BTreeSet<usize>,
}

fn known(case: &str) -> Option<usize> {
    KNOWN.iter().position(|(known, _)| case.contains(known))
}

impl Faults {
    /// Notes that a case does not hold.
    fn note(&mut self, case: impl Into<String>, fault: impl Into<String>) {
        self.found.entry(case.into()).or_insert_with(|| fault.into());
    }

    /// Notes what has come into the store, or gone from it.
    fn same(&mut self, before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) {
        let new: Vec<_> = after.keys().filter(|object| !before.contains_key(*object)).collect();
        let gone: Vec<_> = before.keys().filter(|object| !after.contains_key(*object)).collect();
        self.check("what is left behind", new.is_empty() && gone.is_empty(), || {
            format!("new: {new:?}, gone: {gone:?}")
        });
        self.check(
            "what is changed",
            after.iter().all(|(object, size)| before.get(object).is_none_or(|was| was == size)),
            || "an object has another size".into(),
        );
    }

    fn check(&mut self, case: &str, holds: bool, fault: impl FnOnce() -> String) {
        self.looked.extend(known(case));
        if !holds {
            self.note(case, fault());
        }
    }
}

impl Drop for Faults {
    /// Fails with what is not known. A test that fails for another reason says that one.
    fn drop(&mut self) {
        let mut new = Vec::new();
        for (case, fault) in &self.found {
            match known(case) {
                Some(at) => {
                    eprintln!("known: {case}: {fault} ({})", KNOWN[at].1);
                    self.looked.remove(&at);
                }
                None => new.push(format!("{case}: {fault}")),
            }
        }
        new.extend(self.looked.iter().map(|&at| format!("{:?} holds now: take it from the list", KNOWN[at].0)));
        if std::thread::panicking() {
            eprintln!("{} faults before that:\n{}", new.len(), new.join("\n"));
        } else {
            assert!(new.is_empty(), "{} faults:\n{}", new.len(), new.join("\n"));
        }
    }
}

fn folder() -> TempDir {
    weir_tests::weir();
    tempfile::tempdir().unwrap()
}

fn plugin(name: &str) -> Vec<u8> {
    fs::read(weir_tests::cargo_target().join(format!("release/plugins/{name}.wasm"))).unwrap()
}

/// Bytes of a component with one text in place of another of the same length.
fn patched(component: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut component = component.to_vec();
    let mut found = 0;
    for at in 0..=component.len() - from.len() {
        if &component[at..at + from.len()] == from.as_bytes() {
            component[at..at + from.len()].copy_from_slice(to.as_bytes());
            found += 1;
        }
    }
    assert!(found > 0, "{from:?} is not in the component");
    component
}

fn ask(client: &Client, document: &Document, operation: &Operation, path: &str) -> Option<Answer> {
    match document.body(operation) {
        Some((kind, body)) => client.try_send(&operation.method, path, &[("Content-Type", &kind)], Some(&body)),
        None => client.try_send(&operation.method, path, &[], None),
    }
}

/// A pipeline that makes ten records and throws them away; `more` stands before its sink.
fn pipeline(name: &str, more: &str) -> String {
    format!(
        "name = \"{name}\"\n[source.made]\nconnector = \"generator\"\nformat = \"json\"\nrecords = 10\n{more}\n\
         [sink.none]\nconnector = \"blackhole\"\ninputs = [\"made\"]\n"
    )
}

/// The texts with which people try to leave a folder, and their relatives: each is part of a path, as it is sent.
fn nasty_segments() -> Vec<String> {
    let mut all: Vec<String> = [
        "%2e%2e",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e%2f%2e%2e%2fvictim",
        "..%5c..%5c",
        "a%2fb",
        "a%00b",
        "%00",
        "%0d%0aX-Evil:%20yes",
        "%0a2026-01-01T00:00:00Z%20INFO%20forged",
        "%ff%fe",
        "%c0%ae%c0%ae",
        "%e2%80%ae",
        "%1b%5b2J",
        "UPPER",
        "a.b",
        "-a",
        "*",
        "%25%32%65",
        "~",
        "con%20",
        "_",
        "{tenant}",
    ]
    .map(str::to_owned)
    .to_vec();
    all.push("a".repeat(64));
    all.push("a".repeat(10_000));
    all
}

#[test]
fn a_token_of_another_tenant_opens_nothing_on_any_route() {
    let dir = folder();
    let server = Server::start(dir.path());
    let values = one_of_everything(&server);
    let mallory = server.tenant("mallory", None);
    let revoked = server.admin().post("/v1/tenants/victim/tokens", &json!({ "role": "admin" })).expect(201);
    let path = format!("/v1/tenants/victim/tokens/{}", revoked["id"].as_str().unwrap());
    server.admin().delete(&path).expect(204);
    let revoked = revoked["token"].as_str().unwrap().to_owned();
    // A token of the victim with another's secret, and one that names the victim.
    let mut forged: Vec<_> = revoked.split('_').collect();
    let theirs: Vec<_> = mallory.splitn(4, '_').collect();
    forged.truncate(3);
    let forged = format!("{}_{}", forged.join("_"), theirs[3]);
    let renamed = mallory.replacen("mallory", "victim", 1);
    let as_server = mallory.replacen("mallory", "SERVER", 1);
    let strangers = [("revoked", revoked), ("forged", forged), ("renamed", renamed), ("as-server", as_server)];

    let mut faults = Faults::default();
    let document = Document::of(&server.nobody());
    let before = server.listing();
    let seen = server.log_lines().len();
    let mut refused = 0;
    let mut missing = values.clone();
    missing.insert("tenant", "no-such-tenant".into());
    for operation in document.operations() {
        let path = operation.at(&values);
        let case = format!("{} {}", operation.method, operation.path);
        if !operation.needs_token {
            // Each of these is known by name, so that nobody forgets to ask for a token.
            let open = ["/healthz", "/readyz", "/openapi.json"];
            faults.check(&case, open.contains(&path.as_str()), || "it is open to everybody".into());
            continue;
        }
        let mut expect = |who: &str, client: &Client, path: &str, status: u16| {
            let case = format!("{case} as {who}");
            match ask(client, &document, &operation, path) {
                None => faults.note(case, "no answer"),
                Some(answer) => {
                    faults.check(&case, answer.status == status, || {
                        format!("{status} was expected: {} {}", answer.status, answer.text())
                    });
                    if let Some(fault) = answer.refusal_fault() {
                        faults.note(case, fault);
                    }
                }
            }
        };
        expect("nobody", &server.nobody(), &path, 401);
        for (who, token) in &strangers {
            expect(who, &server.with(token), &path, 401);
        }
        expect("nonsense", &server.with("weir_victim_000000000000_x"), &path, 401);
        if operation.is_of_tenant() {
            expect("mallory", &server.with(&mallory), &path, 403);
            // Nobody learns which tenants there are.
            expect("mallory", &server.with(&mallory), &operation.at(&missing), 403);
            refused += 2;
        } else if !["/v1/tenants", "/metrics"].contains(&path.as_str()) || operation.method != "GET" {
            expect("mallory", &server.with(&mallory), &path, 403);
        }
    }
    // The two that answer everybody with what is theirs.
    let mine = server.with(&mallory).get("/v1/tenants").expect(200);
    assert_eq!(
        mine.as_array().map(|all| all.iter().map(|one| one["name"].clone()).collect()),
        Some(vec![json!("mallory")])
    );
    let numbers = server.with(&mallory).get("/metrics");
    assert_eq!(numbers.status, 200);
    assert!(!numbers.text().contains("victim"), "{}", numbers.text());
    assert!(server.admin().get("/metrics").text().contains("victim"), "the numbers name tenants");

    assert_eq!(server.listing(), before, "something is left");
    let lines = server.log_lines().split_off(seen);
    let told = lines.iter().filter(|line| {
        let by = line["by"].as_str().unwrap_or_default();
        line["status"] == 403 && by.starts_with("mallory/") && !line["tenant"].as_str().unwrap_or_default().is_empty()
    });
    assert!(told.count() >= refused, "each refusal is logged, with the tenant and by whom");
    assert!(lines.iter().any(|line| line["status"] == 401 && line["tenant"] == "victim" && line["by"] == "-"));
}

#[test]
fn a_token_may_do_what_its_role_says_and_no_more_on_any_route() {
    /// What a token of a tenant with the role `deploy` may not do: the rest of it is for an admin.
    const OF_ADMIN: [&str; 9] = [
        "DELETE /v1/tenants/{tenant}",
        "PUT /v1/tenants/{tenant}/quotas",
        "PUT /v1/tenants/{tenant}/grants",
        "PUT /v1/tenants/{tenant}/keys",
        "GET /v1/tenants/{tenant}/tokens",
        "POST /v1/tenants/{tenant}/tokens",
        "DELETE /v1/tenants/{tenant}/tokens/{id}",
        "POST /v1/tenants/{tenant}/tokens/{id}/rotate",
        // Not even an admin of the tenant.
        "POST /v1/tenants",
    ];
    let dir = folder();
    let server = Server::start(dir.path());
    let values = one_of_everything(&server);
    let (read, deploy) = (server.token("victim", "read"), server.token("victim", "deploy"));
    let admin = server.token("victim", "admin");
    let of_server = server.admin().post("/v1/tokens", &json!({ "role": "read" })).expect(201);
    let of_server = of_server["token"].as_str().unwrap().to_owned();
    let document = Document::of(&server.nobody());
    let before = server.listing();
    let mut faults = Faults::default();
    let paths: Vec<_> = document.operations().iter().map(|o| format!("{} {}", o.method, o.path)).collect();
    for named in OF_ADMIN {
        faults.check(named, paths.iter().any(|path| path == named), || "there is no such route any more".into());
    }
    for operation in document.operations().iter().filter(|operation| operation.needs_token) {
        let named = format!("{} {}", operation.method, operation.path);
        let changes = operation.method != "GET";
        let is_of_admin = OF_ADMIN.contains(&named.as_str());
        let mut refused = |who: &str, token: &str| {
            let answer = ask(&server.with(token), &document, operation, &operation.at(&values));
            let status = answer.as_ref().map(|answer| answer.status);
            let text = answer.map(|answer| answer.text()).unwrap_or_default();
            faults.check(&format!("{named} as {who}"), status == Some(403), || format!("{status:?} {text}"));
        };
        if operation.is_of_tenant() {
            if changes || is_of_admin {
                refused("read", &read);
            }
            if changes {
                refused("a reader of the server", &of_server);
            }
            if is_of_admin {
                refused("deploy", &deploy);
            }
            if ["quotas", "grants"].iter().any(|end| named.ends_with(end)) || named == OF_ADMIN[0] {
                refused("an admin of the tenant", &admin);
            }
        } else if changes {
            for (who, token) in [("read", &read), ("deploy", &deploy), ("an admin of the tenant", &admin)] {
                refused(who, token);
            }
            refused("a reader of the server", &of_server);
        }
    }
    assert_eq!(server.listing(), before, "something is left");
}

#[test]
fn names_in_an_address_that_lead_elsewhere_are_refused_on_every_route_and_leave_nothing_behind() {
    let dir = folder();
    let server = Server::start(dir.path());
    let values = one_of_everything(&server);
    let document = Document::of(&server.nobody());
    let before = server.listing();
    let mut around = BTreeMap::new();
    list(dir.path(), "", &mut around);
    let mut faults = Faults::default();
    for operation in document.operations() {
        for name in &operation.names {
            for nasty in nasty_segments() {
                let mut values = values.clone();
                values.insert(name.as_str(), nasty.clone());
                let path = operation.at(&values);
                let shown: String = nasty.chars().take(60).collect();
                let case = format!("{} {} with {name} = {shown}", operation.method, operation.path);
                match ask(&server.admin(), &document, &operation, &path) {
                    None => faults.note(case, "no answer"),
                    Some(answer) => {
                        faults.check(&case, (400..500).contains(&answer.status), || {
                            format!("{} {}", answer.status, answer.text())
                        });
                        if let Some(fault) = answer.refusal_fault() {
                            faults.note(&case, fault);
                        }
                        faults.check(&case, answer.header("x-evil").is_none(), || {
                            "a header of ours is in the answer".into()
                        });
                    }
                }
            }
        }
    }
    // Segments of dots, sent as they are: nobody takes them out.
    for path in [
        "/v1/tenants/../tenants/victim",
        "/v1/tenants/victim/../../../etc/passwd",
        "//v1/tenants",
        "/v1/tenants/victim/",
    ] {
        let answer = server.admin().get(path);
        faults.check(path, answer.status == 404, || format!("{} {}", answer.status, answer.text()));
    }
    faults.same(&before, &server.listing());
    let mut after = BTreeMap::new();
    list(dir.path(), "", &mut after);
    let gone = |all: BTreeMap<String, u64>| all.into_keys().collect::<Vec<_>>();
    assert_eq!(gone(after), gone(around), "something is left beside it");
    let lines = server.log_lines();
    assert!(lines.iter().all(|line| line.get("message").is_some()), "every line is one of ours");
}

#[test]
fn names_in_a_body_that_lead_elsewhere_are_refused_and_leave_nothing_behind() {
    let dir = folder();
    let server = Server::start(dir.path());
    let _ = one_of_everything(&server);
    server.admin().put("/v1/tenants/victim/grants", &json!({ "directory": made(dir.path(), "granted") })).expect(200);
    let admin = server.admin();
    let job = "/v1/tenants/victim/jobs/steady";
    let before = server.listing();
    let mut faults = Faults::default();
    let nasty = [
        "",
        ".",
        "..",
        "../..",
        "../../victim",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "a\u{0}b",
        "a\nb",
        "\u{1b}[2J",
        "\u{202e}",
        "A",
        "a b",
        "-a",
        "%2e%2e",
        "ä",
    ];
    let mut all: Vec<String> = nasty.map(str::to_owned).to_vec();
    all.push("a".repeat(64));
    all.push("a".repeat(100_000));
    for text in &all {
        let toml = toml_text(text);
        let mut refused = |field: &str, answer: Answer| {
            let shown: String = text.chars().take(40).collect();
            let case = format!("{field} = {shown:?}");
            faults.check(&case, (400..500).contains(&answer.status), || format!("{} {}", answer.status, answer.text()));
            if let Some(fault) = answer.refusal_fault() {
                faults.note(case, fault);
            }
        };
        refused("the name of a tenant", admin.post("/v1/tenants", &json!({ "name": text })));
        refused("a new savepoint", admin.post(&format!("{job}/savepoints"), &json!({ "name": text })));
        refused("the savepoint of a stop", admin.post(&format!("{job}/stop"), &json!({ "savepoint": text })));
        refused("the checkpoint of a start", admin.post(&format!("{job}/start"), &json!({ "from": text })));
        refused("a node whose state goes", admin.post(&format!("{job}/start"), &json!({ "drop_state": [text] })));
        refused(
            "the node of a rescale",
            admin.post(&format!("{job}/rescale"), &json!({ "node": text, "parallelism": 2 })),
        );
        refused(
            "the node of an upgrade",
            admin.post(&format!("{job}/upgrade"), &json!({ "node": text, "config": {} })),
        );
        refused(
            "the plugin of an upgrade",
            admin.post(&format!("{job}/upgrade"), &json!({ "node": "op", "plugin": text })),
        );
        let deploy = |name: &str, pipeline: String, plugins: Value| {
            admin.put(&format!("/v1/tenants/victim/jobs/{name}"), &json!({ "pipeline": pipeline, "plugins": plugins }))
        };
        let one = pipeline("x", "").replacen("\"x\"", &toml, 1);
        refused("the name of a pipeline", deploy("x", one, json!({})));
        let one = format!(
            "name = \"x\"\n[source.{toml}]\nconnector = \"generator\"\n[sink.s]\nconnector = \"blackhole\"\n\
             inputs = [{toml}]\n"
        );
        refused("a node of a pipeline", deploy("x", one, json!({})));
        let operator = |plugin: &str| {
            pipeline("x", &format!("[operator.op]\nplugin = {plugin}\ninputs = [\"made\"]\n"))
                .replace("inputs = [\"made\"]\n\n[sink", "inputs = [\"made\"]\n[sink")
        };
        refused("the plugin of a pipeline", deploy("x", operator(&toml), json!({})));
        let by_path = operator("\"./p.wasm\"");
        refused("the digest of a component", deploy("x", by_path, json!({ "op": text })));
        refused(
            "the store of a pipeline",
            deploy("x", format!("[checkpoint]\nstore = {toml}\n").to_string() + &pipeline("x", ""), json!({})),
        );
    }
    // Paths, of a tenant that has a directory.
    for path in ["../outside", "/etc/passwd", "a/../../outside", "..", "/", "/proc/self/environ", "\u{0}"] {
        if path == "\u{0}" {
            faults.same(&before, &server.listing());
        }
        let toml = toml_text(path);
        let file = format!(
            "[source.f]\nconnector = \"file\"\nformat = \"lines\"\npath = {toml}\n[sink.g]\n\
             connector = \"blackhole\"\ninputs = [\"f\"]\n"
        );
        let sink = format!("[sink.g]\nconnector = \"file\"\npath = {toml}\ninputs = [\"made\"]\n");
        for (what, more) in [("source", file), ("sink", sink)] {
            let asked = json!({ "pipeline": pipeline("x", &more) });
            let answer = admin.put("/v1/tenants/victim/jobs/x", &asked);
            let case = format!("the path {path:?} of a file {what}");
            faults.check(&case, answer.status == 400, || format!("{} {}", answer.status, answer.text()));
        }
    }
    assert_eq!(admin.get("/v1/tenants").json().as_array().map(Vec::len), Some(1), "no tenant was made");
}

/// A directory, made.
fn made(folder: &Path, name: &str) -> String {
    fs::create_dir_all(folder.join(name)).unwrap();
    folder.join(name).display().to_string()
}

/// A text as TOML writes it.
fn toml_text(text: &str) -> String {
    let escape = |c: char| match c {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

#[test]
fn a_link_in_a_tenants_directory_leads_nowhere() {
    let dir = folder();
    let server = Server::start(dir.path());
    server.tenant("mallory", Some("mallory"));
    server.tenant("victim", Some("victim"));
    fs::write(dir.path().join("victim/secret"), "the secret of the victim\n").unwrap();
    symlink("../victim", dir.path().join("mallory/out")).unwrap();
    symlink("../victim/secret", dir.path().join("mallory/file")).unwrap();
    symlink("../store", dir.path().join("mallory/store")).unwrap();
    let mut faults = Faults::default();
    let admin = server.admin();
    let mut before = BTreeMap::new();
    list(&dir.path().join("victim"), "", &mut before);
    let sources = ["file", "out/secret", "out/*", "store/server/*"];
    let source = |path: &str| {
        format!(
            "name = \"x\"\n[restart]\nattempts = 0\n[source.f]\nconnector = \"file\"\nformat = \"lines\"\n\
             path = \"{path}\"\n[sink.g]\nconnector = \"file\"\npath = \"stolen\"\ninputs = [\"f\"]\n"
        )
    };
    let sinks = ["out", "out/new", "store", "store/server"];
    let sink = |path: &str| {
        format!(
            "name = \"x\"\n[restart]\nattempts = 0\n[source.f]\nconnector = \"generator\"\nformat = \"json\"\n\
             records = 10\n[sink.g]\nconnector = \"file\"\npath = \"{path}\"\ninputs = [\"f\"]\n"
        )
    };
    let all = sources.map(|path| (format!("source {path}"), source(path)));
    for (case, text) in all.into_iter().chain(sinks.map(|path| (format!("sink {path}"), sink(path)))) {
        let answer = admin.put("/v1/tenants/mallory/jobs/x", &json!({ "pipeline": text }));
        // It is refused at once, or when the file is to be opened.
        if answer.status == 200 {
            let ended = until("the job has ended", || {
                let seen = admin.job("mallory", "x");
                let state = seen["state"].as_str().unwrap_or_default().to_owned();
                ["failed", "waiting", "finished"].contains(&state.as_str()).then_some(state)
            });
            faults.check(
                &case,
                ended != "finished" || weir_tests::lines(&dir.path().join("mallory/stolen")).is_empty(),
                || "it has run".into(),
            );
            if ended == "finished" && case.starts_with("sink") {
                faults.note(&case, "it has written there");
            }
            admin.post("/v1/tenants/mallory/jobs/x/stop", &json!({})).expect(200);
            let gone = admin.delete("/v1/tenants/mallory/jobs/x");
            assert_eq!(gone.status, 204, "{case}: {}", gone.text());
        }
        assert!(!String::from_utf8_lossy(&everything(&dir.path().join("mallory"))).contains("the secret"), "{case}");
        let _ = fs::remove_dir_all(dir.path().join("mallory/stolen"));
    }
    let mut after = BTreeMap::new();
    list(&dir.path().join("victim"), "", &mut after);
    assert_eq!(after, before, "something was written for the victim");
    assert!(!dir.path().join("store/server/_commit.json").exists());
    // What another tenant has is not given to a second one.
    for directory in ["victim", "victim/below", "store", "."] {
        let grants = json!({ "directory": made(dir.path(), directory) });
        admin.put("/v1/tenants/mallory/grants", &grants).expect(400);
    }
}

/// The bytes of all plain files below a folder; links are not followed.
fn everything(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => bytes.extend(everything(&entry.path())),
            Ok(kind) if kind.is_file() => bytes.extend(fs::read(entry.path()).unwrap_or_default()),
            _ => {}
        }
    }
    bytes
}

#[test]
fn a_plugin_that_is_none_or_wants_what_there_is_not_is_refused_with_the_reason_and_leaves_nothing_behind() {
    let dir = folder();
    let server = Server::start(dir.path());
    let token = server.tenant("mallory", None);
    let mallory = server.with(&token);
    let hostile = guest("hostile");
    let describing =
        |word: &str| patched(&hostile, "hostile-describe=ok             ", &format!("hostile-describe={word:<15}"));
    let gzip = |bytes: &[u8]| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    };
    let mut bomb = b"\0asm\x0d\0\x01\0".to_vec();
    // A section that says that it has four gigabytes.
    bomb.extend([0x01, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    let deep = nested(2_000);
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing", Vec::new(), ""),
        ("a text", b"(component)".to_vec(), ""),
        ("half of one", hostile[..hostile.len() / 2].to_vec(), ""),
        ("a core module", b"\0asm\x01\0\0\0".to_vec(), ""),
        ("an empty component", b"\0asm\x0d\0\x01\0".to_vec(), ""),
        ("a size that is a lie", bomb, ""),
        ("components in components", deep, ""),
        ("a packed one", gzip(&hostile), ""),
        ("zeroes, packed", gzip(&vec![0; 64 << 20]), ""),
        (
            "an import that there is not",
            patched(&hostile, "weir:plugin/log@0.1.0", "evil:plugin/log@0.1.0"),
            "evil:plugin/log",
        ),
        (
            "a version of an import that is none",
            patched(&hostile, "weir:plugin/metrics@0.1.0", "wasi:sockets/network@0.21"),
            "wasi:sockets",
        ),
        ("a panic when it is asked who it is", describing("panic"), ""),
        ("no end when it is asked who it is", describing("spin"), ""),
        ("all memory when it is asked who it is", describing("hoard"), ""),
        ("output when it is asked who it is", describing("emit"), ""),
        ("a name that is none", describing("name"), ""),
    ];
    let before = server.listing();
    let mut faults = Faults::default();
    for (case, bytes, named) in &cases {
        let digest = blake3::hash(bytes).to_hex();
        for path in ["plugins/evil/1.0.0".to_owned(), format!("components/{digest}")] {
            let answer = mallory.put_wasm(&format!("/v1/tenants/mallory/{path}"), bytes);
            faults.check(case, [400, 413, 422].contains(&answer.status), || {
                format!("{} {}", answer.status, answer.text())
            });
            faults.check(case, answer.text().contains(named), || format!("{named} is not named: {}", answer.text()));
            if let Some(fault) = answer.refusal_fault() {
                faults.note(*case, fault);
            }
            let encoded = mallory.send(
                "PUT",
                &format!("/v1/tenants/mallory/{path}"),
                &[("Content-Type", "application/wasm"), ("Content-Encoding", "gzip")],
                Some(&gzip(b"x")),
            );
            faults.check(case, encoded.status == 415, || format!("packed: {} {}", encoded.status, encoded.text()));
        }
    }
    faults.same(&before, &server.listing());
    assert_eq!(mallory.get("/v1/tenants/mallory/plugins").expect(200), json!([]));
    let lines = server.log_lines();
    let told = lines.iter().filter(|line| line["tenant"] == "mallory" && line["status"].as_u64() >= Some(400));
    assert!(told.count() >= cases.len(), "each refusal is logged with the tenant");
    // What is not refused is what it says it is.
    mallory.put_wasm("/v1/tenants/mallory/plugins/fine/1.0.0", &hostile).expect(201);

    // A component may import the files and the sockets of WASI, since toolchains leave such imports in what never uses
    // them: to call one is a trap.
    for import in ["wasi:filesystem/typ@0.2.0", "wasi:sockets/ports@0.2.10", "wasi:http/outgoing@0.2.10"] {
        let reaching = patched(&hostile, "weir:plugin/metrics@0.1.0", import);
        let digest = blake3::hash(&reaching).to_hex();
        mallory.put_wasm(&format!("/v1/tenants/mallory/components/{digest}"), &reaching).expect(200);
        let more = format!(
            "[operator.op]\nplugin = \"blake3:{digest}\"\ninputs = [\"made\"]\nconfig = {{ do = \"metrics\" }}\n\
             [sink.g]\nconnector = \"blackhole\"\ninputs = [\"op\"]\n"
        );
        let text = format!("{}\n[restart]\nattempts = 0\n", pipeline("x", &more));
        mallory.put("/v1/tenants/mallory/jobs/x", &json!({ "pipeline": text })).expect(200);
        let error = until("the job has failed", || {
            let seen = mallory.job("mallory", "x");
            assert_ne!(seen["state"], "finished", "{import}");
            seen["error"]["message"].as_str().map(str::to_owned)
        });
        let (named, _) = import.split_once('@').unwrap();
        faults.check(import, error.contains(named), || format!("it is not named: {error}"));
        mallory.post("/v1/tenants/mallory/jobs/x/stop", &json!({})).expect(200);
        assert_eq!(mallory.delete("/v1/tenants/mallory/jobs/x").status, 204);
    }

    // Grants that the tenant was not given.
    for grant in ["clock", "random", "env:HOME", "http:example.com", "http-private:127.0.0.1:80"] {
        let more = format!(
            "[operator.op]\nplugin = \"fine@1.0.0\"\ninputs = [\"made\"]\ngrants = [\"{grant}\"]\n[sink.g]\n\
             connector = \"blackhole\"\ninputs = [\"op\"]\n"
        );
        let answer = mallory.put("/v1/tenants/mallory/jobs/x", &json!({ "pipeline": pipeline("x", &more) }));
        let details = answer.json()["error"]["details"].as_str().unwrap_or_default().to_owned();
        faults.check(&format!("grant {grant}"), answer.status == 400 && details.contains(grant), || {
            format!("{} {}", answer.status, answer.text())
        });
    }
    assert_eq!(mallory.get("/v1/tenants/mallory/jobs").expect(200), json!([]));
}

/// Components in components, so many deep.
fn nested(depth: usize) -> Vec<u8> {
    let mut inner = b"\0asm\x0d\0\x01\0".to_vec();
    for _ in 0..depth {
        let mut outer = b"\0asm\x0d\0\x01\0\x04".to_vec();
        let mut length = inner.len();
        loop {
            let byte = (length & 0x7f) as u8;
            length >>= 7;
            outer.push(if length > 0 { byte | 0x80 } else { byte });
            if length == 0 {
                break;
            }
        }
        outer.extend(inner);
        inner = outer;
    }
    inner
}

#[test]
fn a_name_and_version_belong_to_who_pushed_them_and_bytes_to_the_tenant_that_brought_them() {
    let dir = folder();
    let server = Server::start(dir.path());
    let (victim, mallory) = (server.tenant("victim", None), server.tenant("mallory", None));
    let (victim, mallory) = (server.with(&victim), server.with(&mallory));
    let (theirs, evil) = (plugin("count"), guest("hostile"));
    let digest = blake3::hash(&theirs).to_hex();
    victim.put_wasm("/v1/tenants/victim/plugins/count/1.0.0", &theirs).expect(201);
    // The same name elsewhere is another plugin.
    mallory.put_wasm("/v1/tenants/mallory/plugins/count/1.0.0", &evil).expect(201);
    let before = server.listing();
    assert_eq!(victim.get("/v1/tenants/victim/plugins/count/1.0.0/content").body, theirs);
    // A name and version never change, for their owner neither.
    let answer = victim.put_wasm("/v1/tenants/victim/plugins/count/1.0.0", &evil);
    assert_eq!(answer.status, 409, "{}", answer.text());
    assert_eq!(victim.get("/v1/tenants/victim/plugins/count/1.0.0/content").body, theirs);
    // Nor by a version that only looks different.
    for version in ["1.0.0+evil", "01.0.0", "1.0", "1.0.0%20", "v1.0.0", "1.0.0-%2e%2e"] {
        let answer = victim.put_wasm(&format!("/v1/tenants/victim/plugins/count/{version}"), &evil);
        assert_eq!(answer.status, 400, "{version}: {}", answer.text());
    }
    // Who knows a digest has not got the bytes, and does not learn that somebody has.
    let unknown = blake3::hash(b"nobody has this").to_hex();
    for digest in [&digest, &unknown] {
        mallory.get(&format!("/v1/tenants/mallory/components/{digest}")).expect(404);
        let more = format!(
            "[operator.op]\nplugin = \"blake3:{digest}\"\ninputs = [\"made\"]\n[sink.g]\n\
             connector = \"blackhole\"\ninputs = [\"op\"]\n"
        );
        let answer = mallory.put("/v1/tenants/mallory/jobs/x", &json!({ "pipeline": pipeline("x", &more) }));
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains("there is no plugin of the tenant"), "{}", answer.text());
    }
    // Bytes under another digest than theirs.
    let answer = mallory.put_wasm(&format!("/v1/tenants/mallory/components/{digest}"), &evil);
    assert_eq!(answer.status, 400, "{}", answer.text());
    mallory.get(&format!("/v1/tenants/mallory/components/{digest}")).expect(404);
    assert_eq!(server.listing(), before, "something is left");

    // Where a signature is required, neither none nor one by another key nor one of other bytes will do.
    let key = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    victim.put("/v1/tenants/victim/keys", &json!({ "keys": [key], "required": true })).expect(200);
    let before = server.listing();
    let path = "/v1/tenants/victim/plugins/count/2.0.0";
    victim.put_wasm(path, &theirs).expect(403);
    let nothing = "A".repeat(86) + "==";
    for signature in ["", "x", "AAAA", nothing.as_str(), "\u{e4}"] {
        let headers = [("Content-Type", "application/wasm"), ("Weir-Signature", signature)];
        let answer = victim.send("PUT", path, &headers, Some(&theirs));
        assert_eq!(answer.status, 400, "{signature:?}: {}", answer.text());
    }
    assert_eq!(server.listing(), before, "something is left");
}

#[test]
fn bodies_beyond_what_is_allowed_are_refused_before_they_are_there_and_nobody_without_a_token_is_read_from() {
    let dir = folder();
    let server = Server::start(dir.path());
    let token = server.tenant("mallory", None);
    server.admin().put("/v1/tenants/mallory/quotas", &json!({ "plugin_bytes": 100_000 })).expect(200);
    let mallory = server.with(&token);
    let before = server.listing();
    let mut faults = Faults::default();
    let mut expect = |case: &str, answer: Option<Answer>, status: u16| match answer {
        None => faults.note(case, "no answer"),
        Some(answer) => {
            faults.check(case, answer.status == status, || {
                format!("{status} was expected: {} {}", answer.status, answer.text())
            });
            if let Some(fault) = answer.refusal_fault() {
                faults.note(case, fault);
            }
        }
    };
    let json_type = [("Content-Type", "application/json")];
    let wasm_type = [("Content-Type", "application/wasm")];
    // A length is said, and not a byte comes.
    let nobody = server.nobody().head("PUT", "/v1/tenants/mallory/plugins/a/1.0.0", &wasm_type, Some(1 << 40));
    expect("a terabyte from nobody", server.nobody().raw(nobody.as_bytes()), 401);
    let nobody = server.nobody().head("POST", "/v1/tenants", &json_type, Some(1 << 40));
    expect("a terabyte of JSON from nobody", server.nobody().raw(nobody.as_bytes()), 401);
    // More comes than is taken.
    let large = vec![b' '; 5 << 20];
    expect("JSON of 5 MiB", mallory.try_send("PUT", "/v1/tenants/mallory/jobs/a", &json_type, Some(&large)), 413);
    let bytes = vec![0; 100_001];
    let path = "/v1/tenants/mallory/plugins/a/1.0.0";
    expect("a plugin beyond the quota", mallory.try_send("PUT", path, &wasm_type, Some(&bytes)), 413);
    // The same without a length.
    let mut chunked = mallory.head("PUT", path, &[wasm_type[0], ("Transfer-Encoding", "chunked")], None).into_bytes();
    for _ in 0..20 {
        chunked.extend_from_slice(b"10000\r\n");
        chunked.extend_from_slice(&[0; 0x10000]);
        chunked.extend_from_slice(b"\r\n");
    }
    expect("a plugin beyond the quota in chunks", mallory.raw(&chunked), 413);
    // JSON that is small and means much.
    let deep = format!("{{\"pipeline\":{}1{}}}", "[".repeat(200_000), "]".repeat(200_000));
    expect(
        "JSON that is deep",
        mallory.try_send("PUT", "/v1/tenants/mallory/jobs/a", &json_type, Some(deep.as_bytes())),
        400,
    );
    let toml = format!("name = \"a\"\nx = {}1{}\n", "[".repeat(50_000), "]".repeat(50_000));
    expect(
        "a pipeline that is deep",
        Some(mallory.put("/v1/tenants/mallory/jobs/a", &json!({ "pipeline": toml }))),
        400,
    );
    let toml = format!("name = \"a\"\n{} = 1\n", vec!["a"; 20_000].join("."));
    expect(
        "a pipeline of dotted keys",
        Some(mallory.put("/v1/tenants/mallory/jobs/a", &json!({ "pipeline": toml }))),
        400,
    );
    let many: String = (0..1_001).map(|n| format!("[source.s{n}]\nconnector = \"generator\"\n")).collect();
    expect(
        "a pipeline of many nodes",
        Some(mallory.put("/v1/tenants/mallory/jobs/a", &json!({ "pipeline": format!("name = \"a\"\n{many}") }))),
        400,
    );
    for encoding in ["gzip", "br", "zstd", "deflate", "x", "gzip, identity"] {
        let headers = [json_type[0], ("Content-Encoding", encoding)];
        expect(encoding, mallory.try_send("PUT", "/v1/tenants/mallory/jobs/a", &headers, Some(b"x")), 415);
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data"] {
        expect(
            kind,
            mallory.try_send("PUT", "/v1/tenants/mallory/jobs/a", &[("Content-Type", kind)], Some(b"{}")),
            415,
        );
    }
    // A pipeline that the job quota does not cover.
    assert_eq!(server.listing(), before, "something is left");
    let told = server.log_lines();
    let told = told.iter().filter(|line| line["tenant"] == "mallory" && line["status"] == 413);
    assert!(told.count() >= 3, "each refusal is logged with the tenant");
}

#[test]
fn heads_that_are_none_or_have_no_end_are_refused_and_nothing_of_them_comes_back() {
    let dir = folder();
    let server = Server::start(dir.path());
    let token = server.tenant("mallory", None);
    let mallory = server.with(&token);
    let before = server.listing();
    let mut faults = Faults::default();
    let auth = format!("Authorization: Bearer {token}\r\nHost: x\r\nConnection: close\r\n");
    // The limit is soft: a head may be read to twice the limit before it is looked at.
    let long = "a".repeat(1_000_000);
    let many: String = (0..5_000).map(|n| format!("X-{n}: a\r\n")).collect();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a line break in a path", format!("GET /v1/tenants/a\r\nX-Evil: yes HTTP/1.1\r\n{auth}\r\n").into_bytes()),
        (
            "a lone line feed in a header",
            format!(
                "GET /v1/tenants HTTP/1.1\r\nX-A: a\nX-Evil\u{0}: yes\r\n\
         {auth}\r\n"
            )
            .into_bytes(),
        ),
        ("a null in a path", format!("GET /v1/tenants/a\0b HTTP/1.1\r\n{auth}\r\n").into_bytes()),
        ("a null in a header", format!("GET /v1/tenants HTTP/1.1\r\nX-A: a\0b\r\n{auth}\r\n").into_bytes()),
        (
            "two lengths",
            format!(
                "POST /v1/tenants HTTP/1.1\r\n{auth}Content-Length: 2\r\nContent-Length: 40\r\n\
         \r\n{{}}"
            )
            .into_bytes(),
        ),
        (
            "a length that is none",
            format!(
                "POST /v1/tenants HTTP/1.1\r\n{auth}Content-Length: -1\r\n\r\n\
         "
            )
            .into_bytes(),
        ),
        (
            "a length that is too large",
            format!(
                "POST /v1/tenants HTTP/1.1\r\n\
         {auth}Content-Length: 99999999999999999999\r\n\r\n"
            )
            .into_bytes(),
        ),
        (
            "an encoding that there is not",
            format!(
                "POST /v1/tenants HTTP/1.1\r\n\
         {auth}Transfer-Encoding: gzip\r\n\r\n"
            )
            .into_bytes(),
        ),
        (
            "a chunk that is none",
            format!(
                "POST /v1/tenants HTTP/1.1\r\n{auth}Content-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\nzz\r\n"
            )
            .into_bytes(),
        ),
        ("a long header", format!("GET /v1/tenants HTTP/1.1\r\nX-A: {long}\r\n{auth}\r\n").into_bytes()),
        ("a long path", format!("GET /{long} HTTP/1.1\r\n{auth}\r\n").into_bytes()),
        ("many headers", format!("GET /v1/tenants HTTP/1.1\r\n{many}{auth}\r\n").into_bytes()),
        ("another protocol", b"SSH-2.0-OpenSSH_9.9\r\n\r\n".to_vec()),
        ("the second version", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("a handshake", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".iter().copied().chain([0; 600]).collect()),
        ("a path that is none", format!("GET v1/tenants HTTP/1.1\r\n{auth}\r\n").into_bytes()),
        ("a method that is none", format!("G@T /v1/tenants HTTP/1.1\r\n{auth}\r\n").into_bytes()),
    ];
    for (case, bytes) in &cases {
        if let Some(answer) = mallory.raw(bytes) {
            faults.check(case, (400..500).contains(&answer.status), || format!("{} {}", answer.status, answer.text()));
            faults.check(case, answer.header("x-evil").is_none(), || "our header is in the answer".into());
            faults.check(case, !answer.text().contains(&long), || "it all comes back".into());
        }
        assert_eq!(server.nobody().get("/healthz").status, 200, "{case}");
    }
    // A tunnel is nothing that is here, nor is another host's address.
    for request in ["CONNECT example.com:443 HTTP/1.1", "GET http://example.com/ HTTP/1.1"] {
        if let Some(answer) = mallory.raw(format!("{request}\r\n{auth}\r\n").as_bytes()) {
            faults
                .check(request, (400..500).contains(&answer.status), || format!("{} {}", answer.status, answer.text()));
        }
    }
    // A second request in the body of a first is a body.
    let smuggled = format!(
        "POST /v1/tenants HTTP/1.1\r\n{}\r\nContent-Length: 2\r\n\r\n{{}}",
        auth.replace("close", "keep-alive")
    );
    let first = format!(
        "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{smuggled}",
        smuggled.len()
    );
    let answer = server.nobody().raw(first.as_bytes()).expect("an answer");
    assert_eq!(answer.status, 200);
    assert!(!answer.text().contains("HTTP/1.1"), "two answers to one request: {}", answer.text());
    assert_eq!(server.listing(), before, "something is left");
    assert!(server.log_lines().iter().all(|line| line["X-Evil"].is_null()));
}

#[test]
fn clients_that_say_nothing_are_let_go_and_take_no_places_from_others() {
    const SILENT: usize = 300;
    let dir = folder();
    let server = Server::start(dir.path());
    let (mallory, victim) = (server.tenant("mallory", None), server.tenant("victim", None));
    let (mallory, victim) = (server.with(&mallory), server.with(&victim));
    let silent: Vec<TcpStream> = (0..SILENT).map(|_| server.nobody().connect()).collect();
    // Some say half of a head.
    let mut half: Vec<TcpStream> = (0..50).map(|_| server.nobody().connect()).collect();
    half.iter_mut().for_each(|stream| stream.write_all(b"GET /v1/tenants HTTP/1.1\r\nX-A: ").unwrap());
    // A body that never comes.
    let mut body = mallory.connect();
    let head = mallory.head("PUT", "/v1/tenants/mallory/jobs/a", &[("Content-Type", "application/json")], Some(100));
    body.write_all(head.as_bytes()).unwrap();
    body.write_all(b"{").unwrap();
    // As many plugins on their way as a tenant may have: a third is told so, and another tenant does not notice.
    let wasm = [("Content-Type", "application/wasm")];
    let mut uploads: Vec<TcpStream> = Vec::new();
    let path = "/v1/tenants/mallory/plugins/a/1.0.0";
    for _ in 0..2 {
        let mut stream = mallory.connect();
        stream.write_all(mallory.head("PUT", path, &wasm, Some(1_000_000)).as_bytes()).unwrap();
        stream.write_all(&[0; 100]).unwrap();
        uploads.push(stream);
    }
    let third = until("a third upload is refused", || {
        let answer = mallory.send("PUT", path, &wasm, Some(b"x"));
        (answer.status != 422 && answer.status != 400).then_some(answer)
    });
    assert_eq!((third.status, third.refusal_fault()), (503, None), "{}", third.text());
    victim.put_wasm("/v1/tenants/victim/plugins/count/1.0.0", &plugin("count")).expect(201);
    // As many logs as a tenant may follow.
    victim.put("/v1/tenants/victim/jobs/x", &json!({ "pipeline": pipeline("x", "") })).expect(200);
    mallory.put("/v1/tenants/mallory/jobs/x", &json!({ "pipeline": pipeline("x", "") })).expect(200);
    let mut followers = Vec::new();
    let refused = until("a follower is refused", || {
        let mut stream = mallory.connect();
        let head = mallory.head("GET", "/v1/tenants/mallory/jobs/x/logs?follow=true", &[], None);
        stream.write_all(head.as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        followers.push(stream);
        (&first != b"HTTP/1.1 200").then(|| String::from_utf8_lossy(&first).into_owned())
    });
    assert_eq!((refused.as_str(), followers.len()), ("HTTP/1.1 503", 65));
    let mut theirs = victim.connect();
    theirs.write_all(victim.head("GET", "/v1/tenants/victim/jobs/x/logs?follow=true", &[], None).as_bytes()).unwrap();
    let mut first = [0; 12];
    theirs.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    // All this while others are answered.
    assert_eq!(server.nobody().get("/healthz").status, 200);
    assert_eq!(victim.get("/v1/tenants").status, 200);

    // In the end each is let go: who said nothing without a word, the body with a reason.
    for mut stream in silent.into_iter().chain(half) {
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        let timed_out = ended
            .as_ref()
            .is_err_and(|e| matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut));
        assert!(!timed_out, "it is held for ever");
    }
    let mut rest = Vec::new();
    let _ = body.read_to_end(&mut rest);
    let answer = parse_answer(&rest).expect("who sends half a body is told");
    assert_eq!((answer.status, answer.refusal_fault()), (408, None), "{}", answer.text());
    // Who goes away makes place.
    drop(followers);
    drop(uploads);
    until("there is place for a plugin again", || {
        let answer = mallory.put_wasm(path, &plugin("count"));
        (answer.status == 201).then_some(())
    });
}

#[test]
fn nothing_that_anybody_sends_becomes_a_line_of_the_log_or_shows_a_secret() {
    let dir = folder();
    // As people read it: there a line break would be a line.
    let server = Server::start_with(dir.path(), &[]);
    let token = server.tenant("mallory", None);
    let mallory = server.with(&token);
    let forged = "2026-01-01T00:00:00Z INFO forged";
    let mut faults = Faults::default();
    for path in [
        "/v1/tenants/a%0a2026-01-01T00:00:00Z%20INFO%20forged",
        "/v1/tenants/%1b%5b2J%1b%5b31m",
        "/v1/tenants/mallory/jobs/%0aforged?x=%0aforged",
    ] {
        mallory.get(path);
    }
    for (name, value) in [("User-Agent", "\u{1b}[2J forged"), ("X-Forwarded-For", forged), ("Weir-Signature", forged)] {
        mallory.send("GET", "/v1/tenants/mallory", &[(name, value)], None);
    }
    let text = format!("a\n{forged}\u{1b}[2J");
    mallory.post("/v1/tenants/mallory/tokens", &json!({ "role": "read", "note": text })).expect(400);
    server.admin().post("/v1/tenants", &json!({ "name": text })).expect(400);
    mallory
        .put("/v1/tenants/mallory/jobs/x", &json!({ "pipeline": format!("name = {}", toml_text(&text)) }))
        .expect(400);
    mallory.put("/v1/tenants/mallory/keys", &json!({ "keys": [text] })).expect(400);

    // What a plugin says goes into the log; it cannot say it in the server's name.
    let hostile = guest("hostile");
    let said = "\n2026 forged\u{1b}[2J  ";
    let evil = patched(&hostile, " was told to panic", said);
    assert_eq!(said.len(), " was told to panic".len());
    mallory.put_wasm("/v1/tenants/mallory/plugins/evil/1.0.0", &evil).expect(201);
    let more = "[operator.op]\nplugin = \"evil@1.0.0\"\ninputs = [\"made\"]\n\
     config = { do = \"panic\", in = \"process\" }\n[sink.g]\nconnector = \"blackhole\"\ninputs = [\"op\"]\n";
    let text = format!("{}\n[restart]\nattempts = 0\n", pipeline("x", more));
    mallory.put("/v1/tenants/mallory/jobs/x", &json!({ "pipeline": text })).expect(200);
    let state = until("the job has failed", || {
        let seen = mallory.job("mallory", "x");
        let state = seen["state"].as_str().unwrap_or_default().to_owned();
        ["failed", "waiting"].contains(&state.as_str()).then_some(state)
    });
    assert!(!state.is_empty());
    let log = server.log();
    assert!(log.contains("mallory"), "{log}");
    for line in log.lines() {
        faults.check("a plugin's text begins a line", !line.starts_with("2026 forged"), || line.to_owned());
        faults.check("a request's text begins a line", !line.starts_with("2026-01-01T00:00:00Z"), || line.to_owned());
        faults.check("the terminal is told something", !line.contains('\u{1b}'), || format!("{line:?}"));
    }
    // Nor does it show who anybody is.
    for secret in [&server.admin, &token] {
        let (_, secret) = secret.rsplit_once('_').unwrap();
        assert!(!log.contains(secret), "the log shows a token");
    }
    // What is kept in the store is no token either.
    let store = String::from_utf8_lossy(&everything(&dir.path().join("store"))).into_owned();
    assert!(!store.contains(server.admin.as_str()) && !store.contains(token.as_str()));
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(dir.path().join("weir-admin-token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "others may read the admin's token");
}
