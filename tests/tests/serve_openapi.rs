//! The OpenAPI document of a server against the server: what it describes is there, and what is there is as it is described.
//!
//! Requests are made up by schemathesis, too, thousands of them from the schemas, and whatever is answered is held against the document. It is a
//! program: `WEIR_SCHEMATHESIS` says where it is, and `.ci/run` installs it. Where nobody says it the test is left out, with a line that says so,
//! and on CI that is a failure.

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
/// What is held against the document. Of the others, some do not fit: whether a request that breaks the schema is refused (`negative_data_rejection`), since an
/// address cannot break "any text", and whether a request that keeps it is taken (`positive_data_acceptance`), since a pipeline is more than a text.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,unsupported_method,ignored_auth";

/// What does not hold yet, and why. What is here and holds all the same is an error.
const KNOWN: [(&str, &str); 2] = [
    ("operation ids are not unique", "they are the names of functions, and OpenAPI asks for unique ones"),
    ("references stand for nothing", "ErrorBody, which every refusal is, is not among the schemas"),
];

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

/// Sends what schemathesis makes up, with a token. `server_too`: also what concerns all tenants.
fn run_schemathesis(program: &OsString, server: &Server, folder: &Path, token: &str) {
    // A log that is followed has no end, and who takes all tokens back or deletes the tenant has nothing left to ask about.
    let mut document = Document::of(&server.nobody()).0;
    let paths = document["paths"].as_object_mut().unwrap();
    paths.remove("/v1/tenants/{tenant}/jobs/{job}/logs");
    paths["/v1/tenants/{tenant}"].as_object_mut().unwrap().remove("delete");
    for path in ["/v1/tokens/{id}", "/v1/tenants/{tenant}/tokens/{id}"] {
        paths.remove(path);
    }
    // Texts that stand for something come up often enough to get behind the first check.
    for (name, value) in [("tenant", "victim"), ("job", "steady"), ("name", "kept"), ("version", "1.0.0")] {
        for item in paths.values_mut().flat_map(|item| item.as_object_mut().unwrap().values_mut()) {
            for parameter in item["parameters"].as_array_mut().into_iter().flatten() {
                if parameter["name"] == name && parameter["in"] == "path" {
                    parameter["schema"] = match name {
                        "tenant" => json!({ "type": "string", "enum": [value] }),
                        _ => json!({ "anyOf": [{ "type": "string", "enum": [value] }, { "type": "string" }] }),
                    };
                }
            }
        }
    }
    // As long as the document leaves it out (see KNOWN), or nothing could be held against it.
    let schemas = document["components"]["schemas"].as_object_mut().unwrap();
    let text = |null: bool| if null { json!({ "type": ["string", "null"] }) } else { json!({ "type": "string" }) };
    let detail = json!({ "type": "object", "additionalProperties": false, "required": ["kind", "message"], "properties":
        { "kind": text(false), "message": text(false), "help": text(true), "details": text(true) } });
    let body = json!({ "type": "object", "required": ["error"], "properties": { "error": detail } });
    schemas.entry("ErrorBody").or_insert(body);
    fs::write(folder.join("openapi.json"), document.to_string()).unwrap();
    let output = Command::new(program)
        .args(["run", "openapi.json", "--url", &format!("http://{}", server.address)])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--checks", CHECKS, "--phases", "examples,coverage,fuzzing,stateful", "--warnings", "off"])
        .args(["--max-examples", EXAMPLES, "--seed", SEED, "--generation-deterministic"])
        .args(["--workers", "1", "--request-timeout", "60", "--suppress-health-check", "all", "--no-shrink"])
        .args(["--continue-on-failure", "--no-color"])
        .current_dir(folder)
        // It speaks to nobody but the server.
        .env("NO_PROXY", "127.0.0.1")
        .env("SCHEMATHESIS_HOOKS", "")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    eprintln!("{}", said.lines().rev().take(12).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n"));
}

#[test]
fn whatever_is_made_up_from_the_document_is_answered_as_the_document_says_and_never_by_a_server_error() {
    let Some(program) = schemathesis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    one_of_everything(&server);
    let tenant = server.token("victim", "admin");
    for token in [&tenant, &server.admin] {
        run_schemathesis(&program, &server, dir.path(), token);
    }
    let errors: Vec<Value> =
        server.log_lines().into_iter().filter(|line| line["status"].as_u64() >= Some(500)).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(server.nobody().get("/healthz").status, 200);
}
