//! The OpenAPI document of a server against the server: what it describes is there, and what is there is as it is
//! described.
//!
//! Requests are made up by schemathesis, too, thousands of them from the schemas, and whatever is answered is held
//! against the document. It is a program: `WEIR_SCHEMATHESIS` says where it is, and `.ci/run` installs it. Where
//! nobody says it the test is left out, with a line that says so, and on CI that is a failure.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use weir_tests::openapi::{Document, METHODS, one_of_everything};
use weir_tests::server::Server;

/// How many requests are made up for each operation, and from which seed.
const EXAMPLES: &str = "25";
const SEED: &str = "20130101";
/// What is held against the document. Of the others, some do not fit: whether a request that breaks the schema is
/// refused (`negative_data_rejection`), since an address cannot break "any text", and whether a request that keeps it
/// is taken (`positive_data_acceptance`), since a pipeline is more than a text.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,unsupported_method,ignored_auth";

/// Components are bytes; schemathesis has to be told how they are sent.
const HOOKS: &str = r#"
import schemathesis


@schemathesis.serializer("application/wasm")
def component(context, value):
    return value if isinstance(value, bytes) else repr(value).encode("utf-8", "surrogatepass")
"#;

/// What does not hold yet, and why. What is here and holds all the same is an error.
const KNOWN: [(&str, &str); 0] = [];

/// Fails if there are faults and they are not known, or known and there are none.
fn known(what: &str, faults: &[String]) {
    let reason = KNOWN.iter().find(|(known, _)| *known == what).map(|(_, reason)| *reason);
    match reason {
        Some(reason) if !faults.is_empty() => eprintln!("known: {what}: {faults:?} ({reason})"),
        Some(_) => panic!("{what:?} does not hold any more: take it from the list"),
        None => assert!(faults.is_empty(), "{what}: {faults:?}"),
    }
}

#[test]
fn every_reference_resolves_and_every_operation_has_a_name_of_its_own_and_says_who_may_ask_and_what_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let document = Document::of(&server.nobody());
    let is_there = |reference: &String| reference.strip_prefix('#').is_some_and(|at| document.0.pointer(at).is_some());
    let missing: Vec<_> = document.references().into_iter().filter(|reference| !is_there(reference)).collect();
    known("references stand for nothing", &missing);
    let (mut ids, mut twice) = (BTreeSet::new(), Vec::new());
    for operation in document.operations() {
        let named = format!("{} {}", operation.method, operation.path);
        let is = &document.0["paths"][&operation.path][operation.method.to_ascii_lowercase()];
        let id = is["operationId"].as_str().unwrap_or_default();
        if !ids.insert(id.to_owned()) || id.is_empty() {
            twice.push(format!("{id} of {named}"));
        }
        assert!(is["summary"].as_str().or(is["description"].as_str()).is_some_and(|text| !text.is_empty()), "{named}");
        let described: Vec<_> = is["parameters"].as_array().into_iter().flatten().collect();
        for name in &operation.names {
            let parameter = described.iter().find(|parameter| parameter["name"] == **name && parameter["in"] == "path");
            assert!(parameter.is_some_and(|parameter| parameter["required"] == true), "{named}: {name}");
        }
        for status in operation.statuses.iter().filter(|status| **status >= 400) {
            // Whether the server takes changes is told by the status alone.
            let expected = if operation.path == "/readyz" { "Health" } else { "ErrorBody" };
            let answer = document.resolve(&is["responses"][status.to_string()]);
            let schema = answer["content"]["application/json"]["schema"]["$ref"].as_str().unwrap_or_default();
            assert!(schema.ends_with(expected), "{named}: {status} is {schema:?}");
        }
        if operation.needs_token {
            assert!(operation.statuses.is_superset(&[401, 403].into()), "{named}: who is refused?");
        }
    }
    known("operation ids are not unique", &twice);
}

#[test]
fn every_address_and_method_of_the_document_is_there_and_answers_as_it_says_and_no_other_method_does() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let values = one_of_everything(&server);
    let document = Document::of(&server.nobody());
    let admin = server.admin();
    let mut operations = document.operations();
    // What deletes comes last, and the tenant after all that is in it.
    operations.sort_by_key(|operation| (operation.method == "DELETE", std::cmp::Reverse(operation.path.len())));
    let mut methods: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut faults = Vec::new();
    for operation in &operations {
        methods.entry(operation.path.clone()).or_default().insert(operation.method.clone());
        let path = operation.at(&values);
        let named = format!("{} {path}", operation.method);
        let mut check = |holds: bool, fault: String| {
            if !holds {
                faults.push(format!("{named}: {fault}"));
            }
        };
        let answer = match document.body(operation) {
            Some((kind, body)) => admin.send(&operation.method, &path, &[("Content-Type", &kind)], Some(&body)),
            None => admin.send(&operation.method, &path, &[], None),
        };
        let said = format!("{} {}", answer.status, answer.text().chars().take(500).collect::<String>());
        check(answer.status != 405 && !said.contains("nothing at this address"), format!("it is not there: {said}"));
        check(operation.statuses.contains(&answer.status), format!("this is not described: {said}"));
        check(answer.status < 500, said.clone());
        if answer.status >= 400 {
            check(answer.refusal_fault().is_none(), format!("{:?}", answer.refusal_fault()));
        } else if answer.status != 204 {
            let is = &document.0["paths"][&operation.path][operation.method.to_ascii_lowercase()]["responses"];
            let content = is[answer.status.to_string()]["content"].as_object();
            let kind = answer.header("content-type").unwrap_or_default();
            let plain = kind.split(';').next().unwrap_or_default();
            check(content.is_some_and(|content| content.contains_key(plain)), format!("{kind:?} is not described"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for (path, takes) in &methods {
        let operation = operations.iter().find(|operation| operation.path == *path).unwrap();
        for method in METHODS.into_iter().filter(|method| !takes.contains(*method)) {
            let answer = admin.send(method, &operation.at(&values), &[], None);
            assert_eq!((answer.status, answer.refusal_fault()), (405, None), "{method} {path}: {}", answer.text());
            let allowed: BTreeSet<String> =
                answer.header("allow").unwrap_or_default().split(',').map(|method| method.trim().to_owned()).collect();
            assert!(takes.iter().all(|method| allowed.contains(method)), "{method} {path}: allow {allowed:?}");
            assert!(!allowed.contains(method), "{method} {path}: allow {allowed:?}");
        }
    }
    for path in ["/", "/v1", "/v2/tenants", "/v1/tenants/victim/jobs/steady/nothing", "/openapi.yaml"] {
        let answer = admin.get(path);
        assert_eq!((answer.status, answer.refusal_fault()), (404, None), "{path}: {}", answer.text());
    }
    // All of it was done: the tenant is gone that was there, and one has come.
    let names: Vec<Value> =
        admin.get("/v1/tenants").expect(200).as_array().unwrap().iter().map(|t| t["name"].clone()).collect();
    assert_eq!(names, [json!("example")]);
}

/// Where schemathesis is; none if nobody says so, which on CI is a failure.
fn schemathesis() -> Option<OsString> {
    let program = std::env::var_os("WEIR_SCHEMATHESIS").filter(|program| !program.is_empty());
    if program.is_none() {
        assert!(std::env::var_os("CI").is_none(), "WEIR_SCHEMATHESIS does not say where schemathesis is");
        eprintln!("skipped: WEIR_SCHEMATHESIS does not say where schemathesis is");
    }
    program
}

/// A text that stands for something, often enough to get behind the first check, or any other.
fn often(values: &[&str]) -> Value {
    json!({ "anyOf": [{ "type": "string", "enum": values }, { "type": "string" }] })
}

/// The document, so narrowed that what is made up gets somewhere: names often are those of what there is, and what
/// there is is not deleted, unless one request may follow from another (`stateful`).
fn narrowed(server: &Server, pipeline: &str, stateful: bool) -> Value {
    let mut document = Document::of(&server.nobody()).0;
    let paths = document["paths"].as_object_mut().unwrap();
    if stateful {
        // Who takes all tokens back has nothing left to ask with.
        paths.retain(|path, _| !path.contains("/tokens/{id}"));
    }
    let known = [("job", "steady"), ("name", "kept"), ("version", "1.0.0")];
    for (path, item) in paths.iter_mut() {
        for (method, operation) in item.as_object_mut().unwrap() {
            let last = path.rsplit('/').next().unwrap_or_default().trim_matches(['{', '}']).to_owned();
            for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap_or_default().to_owned();
                let is_deleted = method == "delete" && name == last;
                let schema = match known.iter().find(|(known, _)| *known == name) {
                    _ if is_deleted && !(stateful && name != "tenant") => {
                        json!({ "type": "string", "enum": ["nobody"] })
                    }
                    Some((_, value)) => often(&[value]),
                    None if name == "tenant" => json!({ "type": "string", "enum": ["victim"] }),
                    None if name == "id" => often(&["000000000000"]),
                    // A log that is followed has no end.
                    None if name == "follow" => json!({ "type": "boolean", "enum": [false] }),
                    None => continue,
                };
                parameter["schema"] = schema;
            }
        }
    }
    let schemas = document["components"]["schemas"].as_object_mut().unwrap();
    for (schema, property, values) in [
        ("Deployment", "pipeline", &[pipeline][..]),
        ("RescaleRequest", "node", &["op", "made"]),
        ("UpgradeAsked", "node", &["op"]),
        ("UpgradeAsked", "plugin", &["kept@1.0.0", "kept"]),
        ("StartRequest", "from", &["kept", "1"]),
    ] {
        schemas[schema]["properties"][property] = often(values);
    }
    document
}

/// Sends what schemathesis makes up, with a token. Gives how many requests that were.
fn run_schemathesis(program: &OsString, server: &Server, folder: &Path, token: &str, phase: &str) -> u64 {
    let output = Command::new(program)
        .args(["run", "openapi.json", "--url", &format!("http://{}", server.address)])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--checks", CHECKS, "--phases", phase, "--warnings", "off"])
        .args(["--max-examples", EXAMPLES, "--seed", SEED, "--generation-deterministic"])
        .args(["--workers", "1", "--request-timeout", "60", "--suppress-health-check", "all", "--no-shrink"])
        .args(["--continue-on-failure", "--no-color"])
        .current_dir(folder)
        // It speaks to nobody but the server.
        .env("NO_PROXY", "127.0.0.1")
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", ".")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{phase}: {said}\n{}", String::from_utf8_lossy(&output.stderr));
    let (_, cases) = said.split_once("Test cases:").unwrap_or_default();
    cases.split_whitespace().next().and_then(|count| count.parse().ok()).unwrap_or_default()
}

#[test]
fn whatever_is_made_up_from_the_document_is_answered_as_the_document_says_and_never_by_a_server_error() {
    let Some(program) = schemathesis() else { return };
    for phase in ["coverage", "fuzzing", "stateful"] {
        for is_admin in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let server = Server::start(dir.path());
            one_of_everything(&server);
            let admin = server.admin();
            // One that runs, so that more can be asked of it.
            let pipeline =
                admin.job("victim", "steady")["pipeline"].as_str().unwrap().replace("records = 100", "rate = 100");
            admin.put("/v1/tenants/victim/jobs/steady", &json!({ "pipeline": pipeline, "fresh": true })).expect(200);
            admin.until_job("victim", "steady", "running");
            let token = if is_admin { server.admin.clone() } else { server.token("victim", "admin") };
            let document = narrowed(&server, &pipeline, phase == "stateful");
            fs::write(dir.path().join("openapi.json"), document.to_string()).unwrap();
            fs::write(dir.path().join("hooks.py"), HOOKS).unwrap();
            let seen = server.log_lines().len();
            let count = run_schemathesis(&program, &server, dir.path(), &token, phase);
            let lines = server.log_lines().split_off(seen);
            let mut statuses: BTreeMap<u64, u64> = BTreeMap::new();
            for line in &lines {
                *statuses.entry(line["status"].as_u64().unwrap_or_default()).or_default() += 1;
            }
            let who = if is_admin { "an admin of the server" } else { "an admin of the tenant" };
            eprintln!("{phase}, {who}: {count} requests, changes and refusals by status: {statuses:?}");
            let errors: Vec<_> = lines.iter().filter(|line| line["status"].as_u64() >= Some(500)).collect();
            assert!(errors.is_empty(), "{errors:?}");
            assert!(count > 30, "nothing was made up");
            assert_eq!(server.nobody().get("/healthz").status, 200);
            if phase != "stateful" {
                assert_eq!(admin.get("/v1/tenants/victim/jobs/steady").status, 200, "there was nothing to ask about");
            }
        }
    }
}
