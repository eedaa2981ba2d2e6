//! Deployments that meet something else at the same moment, or that do not fit: what was answered holds, and what ran goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use weir_tests::server::{Client, Server, until};

/// Counts the lines of a file that grows. Its first checkpoint is far away.
fn counting(name: &str, operator: &str, plugin: &str) -> String {
    format!(
        r#"
name = "{name}"
[checkpoint]
interval = "1h"
[source.lines]
connector = "file"
path = "lines"
format = "json"
follow = true
[operator.{operator}]
plugin = "{plugin}"
inputs = [{{ from = "lines", key = "/key" }}]
[sink.out]
connector = "file"
path = "out-{name}"
inputs = ["{operator}"]
format = "json"
"#
    )
}

/// A server with one tenant that has the plugin `count` in one version.
fn host(folder: &Path) -> (Server, Client) {
    weir_tests::weir();
    let server = Server::start(folder);
    let token = server.tenant("acme", Some("acme"));
    fs::write(folder.join("acme/lines"), "").unwrap();
    let client = server.with(&token);
    push(&client, "1.0.0").expect(201);
    (server, client)
}

fn push(client: &Client, version: &str) -> weir_tests::server::Answer {
    let component = fs::read(weir_tests::cargo_target().join("release/plugins/count.wasm")).unwrap();
    client.put_wasm(&format!("/v1/tenants/acme/plugins/count/{version}"), &component)
}

fn add_line(folder: &Path, key: &str) {
    let mut file = fs::OpenOptions::new().append(true).open(folder.join("acme/lines")).unwrap();
    writeln!(file, "{{\"key\":\"{key}\"}}").unwrap();
}

/// Waits until a node of a job has read so many records.
fn until_read(client: &Client, job: &str, node: &str, records: u64) {
    until(&format!("{node} of {job} has read {records} records"), || {
        let seen = client.job("acme", job);
        let nodes = seen["nodes"].as_array()?.clone();
        let node = nodes.into_iter().find(|found| found["node"] == node)?;
        (node["records_in"].as_u64()? >= records).then_some(())
    });
}

#[test]
fn what_does_not_fit_the_checkpoint_that_the_old_version_makes_is_refused_and_the_old_version_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = host(dir.path());
    let job = "/v1/tenants/acme/jobs/counts";
    let old = counting("counts", "op", "count@1.0.0");
    client.put(job, &json!({ "pipeline": old })).expect(200);
    add_line(dir.path(), "a");
    until_read(&client, "counts", "op", 1);
    assert_eq!(client.job("acme", "counts")["run"]["epoch"], Value::Null, "there is no checkpoint yet");

    // The state of `op` would be lost; that there is some is known only once the old version has stopped.
    let new = counting("counts", "other", "count@1.0.0");
    let refused = client.put(job, &json!({ "pipeline": new }));
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("op"), "{}", refused.text());
    let seen = client.until_job("acme", "counts", "running");
    assert_eq!(seen["pipeline"], old);
    assert_eq!(client.get(&format!("{job}/savepoints")).expect(200), json!([]), "nothing is left of it");
    add_line(dir.path(), "a");
    until_read(&client, "counts", "op", 1);

    // With that state given up it fits: it is given up although the checkpoint came after the question.
    client.put(job, &json!({ "pipeline": new, "drop_state": ["op"] })).expect(200);
    client.until_job("acme", "counts", "running");
    add_line(dir.path(), "a");
    until_read(&client, "counts", "other", 1);
    client.post(&format!("{job}/stop"), &json!({})).expect(200);
    let counts: Vec<_> = weir_tests::json_lines(&dir.path().join("acme/out-counts"));
    let counts: Vec<_> = counts.iter().map(|line| line["count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [1, 2, 1], "the old version had counted on, the new one began anew");
    drop(server);
}

#[test]
fn a_plugin_is_never_deleted_under_a_job_that_was_just_deployed_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut server, client) = host(dir.path());
    let (mut deployed, mut deleted) = (Vec::new(), 0);
    for round in 0..12 {
        push(&client, "1.0.0");
        let name = format!("job-{round}");
        let text = counting(&name, "op", "count@1.0.0");
        let (put, gone) = std::thread::scope(|scope| {
            let put =
                scope.spawn(|| client.put(&format!("/v1/tenants/acme/jobs/{name}"), &json!({ "pipeline": text })));
            let gone = scope.spawn(|| client.delete("/v1/tenants/acme/plugins/count/1.0.0"));
            (put.join().unwrap(), gone.join().unwrap())
        });
        assert!(matches!(put.status, 200 | 400 | 404), "{}", put.text());
        assert!(matches!(gone.status, 204 | 409), "{}", gone.text());
        deleted += usize::from(gone.status == 204);
        if put.status == 200 {
            client.delete("/v1/tenants/acme/plugins/count/1.0.0").expect(if gone.status == 204 { 404 } else { 409 });
            deployed.push(name.clone());
            // So that the plugin is free again in the next round.
            if round % 2 == 0 {
                client.post(&format!("/v1/tenants/acme/jobs/{name}/stop"), &json!({})).expect(200);
                client.delete(&format!("/v1/tenants/acme/jobs/{name}")).expect(204);
                deployed.pop();
            }
        }
    }
    assert!(deleted + deployed.len() > 0);
    // The next server reads the code of all of them from the store.
    server.again();
    let client = Client { address: server.admin().address, ..client };
    for name in deployed {
        client.until_job("acme", &name, "running");
    }
}

#[test]
fn of_jobs_that_start_in_one_moment_only_those_run_for_whose_subtasks_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = host(dir.path());
    for name in ["one", "two"] {
        let job = format!("/v1/tenants/acme/jobs/{name}");
        client.put(&job, &json!({ "pipeline": counting(name, "op", "count@1.0.0") })).expect(200);
        client.post(&format!("{job}/stop"), &json!({})).expect(200);
    }
    let mut quotas = server.admin().get("/v1/tenants/acme").expect(200)["quotas"].clone();
    quotas["subtasks"] = json!(5);
    server.admin().put("/v1/tenants/acme/quotas", &quotas).expect(200);
    for _ in 0..8 {
        let answers = std::thread::scope(|scope| {
            let start = |name: &'static str| {
                let client = &client;
                scope.spawn(move || client.post(&format!("/v1/tenants/acme/jobs/{name}/start"), &json!({})))
            };
            [start("one"), start("two")].map(|start| start.join().unwrap())
        });
        let mut statuses = answers.each_ref().map(|answer| answer.status);
        statuses.sort_unstable();
        assert!(statuses[0] < 300 && statuses[1] == 403, "{statuses:?}");
        let refused = answers.iter().find(|answer| answer.status == 403).unwrap().text();
        assert!(refused.contains("subtasks") && refused.contains('6') && refused.contains('5'), "{refused}");
        for name in ["one", "two"] {
            client.post(&format!("/v1/tenants/acme/jobs/{name}/stop"), &json!({})).expect(200);
        }
    }
}

#[test]
fn what_belongs_to_the_server_is_not_granted_nor_shown_nor_named() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = host(dir.path());
    let grants = "/v1/tenants/acme/grants";
    let directory = dir.path().join("acme");
    // The file of the admin's token lies in it.
    let refused = server.admin().put(grants, &json!({ "directory": dir.path() }));
    assert_eq!(refused.status, 400, "{}", refused.text());
    server.tenant("other", None);
    let objects = json!([{ "url": "s3://bucket/other" }]);
    server.admin().put("/v1/tenants/other/grants", &json!({ "objects": objects })).expect(200);
    let objects = json!([{ "url": "s3://bucket/other/below" }]);
    let refused = server.admin().put(grants, &json!({ "directory": directory, "objects": objects }));
    assert!(refused.status == 400 && refused.text().contains("another tenant"), "{}", refused.text());

    let granted = json!({ "directory": directory, "environment": { "KEY": "a-secret-value" } });
    let shown = server.admin().put(grants, &granted).expect(200);
    assert_eq!(shown["grants"]["environment"]["KEY"], "a-secret-value");
    let reader = server.with(&server.token("acme", "read"));
    for client in [&reader, &client] {
        for path in ["/v1/tenants/acme", "/v1/tenants"] {
            let shown = client.get(path);
            assert!(shown.status == 200 && shown.text().contains("KEY"), "{}", shown.text());
            assert!(!shown.text().contains("a-secret-value"), "{}", shown.text());
        }
    }

    client
        .put("/v1/tenants/acme/jobs/counts", &json!({ "pipeline": counting("counts", "op", "count@1.0.0") }))
        .expect(200);
    let refused = client.post("/v1/tenants/acme/jobs/counts/savepoints", &json!({ "name": "deploy-2" }));
    assert!(refused.status == 400 && refused.text().contains("deploy-"), "{}", refused.text());
    let refused = client.post("/v1/tenants/acme/jobs/counts/stop", &json!({ "savepoint": "deploy-2" }));
    assert_eq!(refused.status, 400, "{}", refused.text());
    client.until_job("acme", "counts", "running");
    client.post("/v1/tenants/acme/jobs/counts/savepoints", &json!({ "name": "deploy-day" })).expect(201);
}
