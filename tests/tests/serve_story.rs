//! The whole story of a server, told twice: once through the commands, with two tenants whose jobs run under load
//! while the server is killed, stopped and started again, and once as a list of answers each of which has to hold
//! although the server is killed the moment after.
//!
//! At the end the visible output of each job is that of an undisturbed `weir run` of the same pipeline: nothing lost,
//! nothing twice, and in order for each key. Jobs are held by a rate until the story is over; the last deployment of
//! each takes it away.
//!
//! Invariants: I1, I2, I4, I5, I10, I11, I13.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use tempfile::TempDir;
use weir_tests::guests::guest;
use weir_tests::server::{Server, until};

/// How many records each of the made-up jobs has: more than a held job can have seen when the story is over.
const RECORDS: u64 = 300_000;
const KILLS: usize = 8;

/// A version of the counting component: another digit over the one that it holds.
fn versioned(digit: u8) -> Vec<u8> {
    let mut component = guest("versioned");
    let word = b"versioned-version1";
    let at = component.windows(word.len()).position(|window| window == word).expect("the word is in the component");
    component[at + word.len() - 1] = b'0' + digit;
    component
}

fn count_component() -> Vec<u8> {
    fs::read(weir_tests::cargo_target().join("release/plugins/count.wasm")).unwrap()
}

/// A rate, or none.
fn held(rate: Option<u32>) -> String {
    rate.map_or(String::new(), |rate| format!("rate = {rate}"))
}

/// Counts made-up records by key.
fn counts(rate: Option<u32>, parallelism: u32) -> String {
    format!(
        r#"
name = "counts"
[checkpoint]
interval = "150ms"
[source.made]
connector = "generator"
records = {RECORDS}
keys = 50
format = "json"
parallelism = 2
{}
[operator.op]
plugin = "count"
inputs = [{{ from = "made", exchange = "keyed" }}]
parallelism = {parallelism}
[sink.out]
connector = "file"
inputs = [{{ from = "op", exchange = "rebalance" }}]
path = "counts"
format = "json"
"#,
        held(rate)
    )
}

/// Flights by the hour, from a file.
fn hours(rate: Option<u32>) -> String {
    format!(
        r#"
name = "hours"
[checkpoint]
interval = "150ms"
[source.flights]
connector = "file"
path = "flights.csv"
format = "csv"
event_time = "/time_hour"
out_of_orderness = "24h"
{}
[operator.op]
plugin = "window"
inputs = [{{ from = "flights", key = "/carrier" }}]
parallelism = 2
config = {{ size = "1h", field = "/dep_delay", key_name = "carrier" }}
[sink.out]
connector = "file"
inputs = ["op"]
parallelism = 2
path = "hours"
format = "json"
"#,
        held(rate)
    )
}

/// Counts all records, and says which version it was.
fn totals(rate: Option<u32>, version: &str) -> String {
    format!(
        r#"
name = "totals"
[checkpoint]
interval = "150ms"
[restart]
attempts = 1
[source.made]
connector = "generator"
records = {RECORDS}
format = "json"
{}
[operator.op]
plugin = "{version}"
inputs = ["made"]
[sink.out]
connector = "file"
inputs = ["op"]
path = "totals"
format = "json"
"#,
        held(rate)
    )
}

/// A job that fails at its first batch, unless `what` is nothing: then it hands on.
fn mended(what: &str) -> String {
    format!(
        r#"
name = "mended"
[restart]
attempts = 1
[source.made]
connector = "generator"
records = 20_000
format = "json"
[operator.op]
plugin = "hostile"
inputs = ["made"]
config = {{ do = "{what}" }}
[sink.out]
connector = "file"
inputs = ["op"]
path = "mended"
format = "json"
"#
    )
}

/// The server, and the commands in its folder.
struct Place {
    dir: TempDir,
    server: Server,
    chance: Xoshiro256PlusPlus,
}

impl Place {
    fn new() -> Self {
        weir_tests::weir();
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(dir.path());
        Self { dir, server, chance: Xoshiro256PlusPlus::seed_from_u64(20_130_101) }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A command with a token. Gives its exit code and all that it said.
    fn weir(&self, token: &str, args: &[&str]) -> (i32, String) {
        let output = Command::new(weir_tests::weir())
            .args(args)
            .current_dir(self.path())
            .env("WEIR_SERVER", format!("http://{}", self.server.address))
            .env("WEIR_TOKEN", token)
            .env_remove("WEIR_TENANT")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
    }

    fn ok(&self, token: &str, args: &[&str]) -> String {
        let (code, said) = self.weir(token, args);
        assert_eq!(code, 0, "{args:?}: {said}");
        said
    }

    /// Writes a pipeline and deploys it.
    fn deploy(&self, token: &str, text: &str, more: &[&str]) -> String {
        fs::write(self.path().join("pipeline.toml"), text).unwrap();
        self.ok(token, &[&["deploy", "pipeline.toml"], more].concat())
    }

    /// Dies at a moment of chance, and is started again.
    #[allow(clippy::disallowed_methods, reason = "another process is watched, which has a clock of its own")]
    fn kill(&mut self) {
        std::thread::sleep(std::time::Duration::from_millis(self.chance.next_u64() % 400));
        self.server.again();
    }

    /// The lines of what a job has published.
    fn published(&self, tenant: &str, job: &str) -> Vec<String> {
        weir_tests::lines(&self.path().join(tenant).join(job))
    }
}

/// What `weir run` makes of a pipeline that nobody disturbs, sorted.
fn undisturbed(job: &str, text: &str, plugins: &[(&str, Vec<u8>)]) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(weir_tests::january(), dir.path().join("flights.csv")).unwrap();
    let mut text = text.to_owned();
    for (name, bytes) in plugins {
        fs::write(dir.path().join(format!("{name}.wasm")), bytes).unwrap();
        text = text.replace(&format!("plugin = \"{name}\""), &format!("plugin = \"./{name}.wasm\""));
    }
    fs::write(dir.path().join("pipeline.toml"), text).unwrap();
    let (code, said, log) = weir_tests::run(dir.path(), &["run", "--quiet", "pipeline.toml"]);
    assert_eq!(code, 0, "{said}{log}");
    let mut lines = weir_tests::lines(&dir.path().join(job));
    lines.sort_unstable();
    lines
}

/// Fails where two lists of lines begin to differ.
fn same_lines(what: &str, mut seen: Vec<String>, expected: &[String]) {
    seen.sort_unstable();
    let differs = seen.iter().zip(expected).position(|(seen, expected)| seen != expected);
    assert!(
        seen.len() == expected.len() && differs.is_none(),
        "{what}: {} lines, {} expected; the first that differs: {:?}",
        seen.len(),
        expected.len(),
        differs.map(|at| (&seen[at], &expected[at]))
    );
}

#[test]
fn two_tenants_work_through_kills_stops_upgrades_and_mistakes_and_their_output_is_that_of_undisturbed_runs() {
    let mut place = Place::new();
    let admin = place.server.admin.clone();

    // Two tenants, each with its directory, by the commands.
    for tenant in ["alpha", "beta"] {
        place.ok(&admin, &["tenant", "create", tenant, "--token-out", &format!("{tenant}.token")]);
        fs::create_dir(place.path().join(tenant)).unwrap();
        let directory = place.path().join(tenant).display().to_string();
        place.ok(&admin, &["tenant", "grants", tenant, "--directory", &directory]);
    }
    let token =
        |tenant: &str| fs::read_to_string(place.path().join(format!("{tenant}.token"))).unwrap().trim().to_owned();
    let (alpha, beta) = (token("alpha"), token("beta"));
    fs::copy(weir_tests::january(), place.path().join("beta/flights.csv")).unwrap();

    // Plugins, under their names.
    let plugins = weir_tests::cargo_target().join("release/plugins");
    for (token, name) in [(&alpha, "count"), (&beta, "window")] {
        let file = plugins.join(format!("{name}.wasm")).display().to_string();
        place.ok(token, &["plugin", "push", &file, "--name", name, "--version", "1.0.0"]);
    }
    for digit in [1, 2, 3, 4, 6] {
        fs::write(place.path().join(format!("v{digit}.wasm")), versioned(digit)).unwrap();
        let (file, version) = (format!("v{digit}.wasm"), format!("{digit}.0.0"));
        place.ok(&beta, &["plugin", "push", &file, "--name", "versioned", "--version", &version]);
    }
    fs::write(place.path().join("hostile.wasm"), guest("hostile")).unwrap();
    place.ok(&alpha, &["plugin", "push", "hostile.wasm", "--name", "hostile", "--version", "1.0.0"]);

    // Jobs, held by a rate; the server dies right after the last one was answered.
    place.deploy(&alpha, &counts(Some(1_000), 2), &[]);
    place.deploy(&beta, &hours(Some(100)), &[]);
    place.deploy(&beta, &totals(Some(1_000), "versioned@1.0.0"), &["--no-wait"]);
    place.server.again();
    for (token, tenant, job) in [(&alpha, "alpha", "counts"), (&beta, "beta", "hours"), (&beta, "beta", "totals")] {
        place.server.with(token).until_job(tenant, job, "running");
        place.server.with(token).more_checkpoints(tenant, job, 2);
    }
    // They can be watched.
    assert!(place.ok(&alpha, &["list"]).contains("counts"));
    assert!(!place.ok(&alpha, &["list"]).contains("totals"), "of another tenant");
    assert!(place.ok(&beta, &["status", "totals"]).contains("running"));
    let same = place.deploy(&alpha, &counts(Some(1_000), 2), &["--dry-run", "--json"]);
    assert!(same.contains("\"unchanged\""), "{same}");
    assert_ne!(place.weir(&alpha, &["status", "totals", "--tenant", "beta"]).0, 0, "of another tenant");

    // Killed, again and again; between two kills each job gets on.
    for _ in 0..KILLS {
        place.kill();
        place.server.with(&alpha).more_checkpoints("alpha", "counts", 1);
        place.server.with(&beta).more_checkpoints("beta", "totals", 1);
    }
    // Stopped as it should be, and started.
    assert_eq!(place.server.stop(), 0, "{}", place.server.log());
    place.server.again();
    place.server.with(&beta).until_job("beta", "hours", "running");

    // More subtasks, and a kill right after the answer.
    place.server.with(&alpha).until_job("alpha", "counts", "running");
    place.ok(&alpha, &["rescale", "counts", "op", "3"]);
    place.server.again();
    let seen = place.server.with(&alpha).until_job("alpha", "counts", "running");
    let op = seen["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "op").unwrap().clone();
    assert_eq!(op["parallelism"], 3, "{op}");

    // An upgrade under load, a kill right after the answer, and one that is bad.
    let digest = |place: &Place| {
        let seen = place.server.with(&beta).until_job("beta", "totals", "running");
        seen["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "op").unwrap()["digest"].clone()
    };
    place.server.with(&beta).until_job("beta", "totals", "running");
    place.server.with(&beta).more_checkpoints("beta", "totals", 1);
    place.ok(&beta, &["upgrade", "totals", "op", "versioned@2.0.0"]);
    place.server.again();
    let second = blake3::hash(&versioned(2)).to_hex().to_string();
    assert_eq!(digest(&place), second.as_str());
    place.server.with(&beta).more_checkpoints("beta", "totals", 1);
    let (code, said) = place.weir(&beta, &["upgrade", "totals", "op", "versioned@3.0.0"]);
    assert!(code != 0 && said.contains("taken back"), "{code} {said}");
    assert_eq!(digest(&place), second.as_str());
    place.server.with(&beta).more_checkpoints("beta", "totals", 2);
    // The same mistake by a deployment, which nobody can take back but its author: it fails, and the next one mends it.
    place.deploy(&beta, &totals(Some(1_000), "versioned@4.0.0"), &["--no-wait"]);
    until("the job that cannot be restored says so", || {
        let seen = place.server.with(&beta).job("beta", "totals");
        seen["error"].to_string().contains("this is not its state").then_some(())
    });
    place.kill();
    place.deploy(&beta, &totals(Some(1_000), "versioned@6.0.0"), &[]);
    place.server.with(&beta).more_checkpoints("beta", "totals", 2);

    // A job that fails at once, and is mended.
    place.deploy(&alpha, &mended("panic"), &["--no-wait"]);
    until("the job that fails says so", || {
        let seen = place.server.with(&alpha).job("alpha", "mended");
        seen["error"].to_string().contains("told to panic").then_some(())
    });
    place.deploy(&alpha, &mended(""), &["--no-wait"]);
    place.server.with(&alpha).until_job("alpha", "mended", "finished");

    // Stopped with a savepoint; what was answered holds, and it goes on from there.
    place.ok(&alpha, &["stop", "counts", "--savepoint", "half"]);
    place.server.again();
    let seen = place.server.with(&alpha).job("alpha", "counts");
    assert_eq!((seen["state"].as_str(), seen["want"].as_str()), (Some("stopped"), Some("stop")));
    let savepoints = place.server.with(&alpha).get("/v1/tenants/alpha/jobs/counts/savepoints").expect(200);
    assert!(savepoints.as_array().unwrap().iter().any(|savepoint| savepoint["name"] == "half"), "{savepoints}");
    let before = place.published("alpha", "counts").len() as u64;
    assert!(before > 0 && before < RECORDS, "{before} records before the savepoint");
    place.ok(&alpha, &["start", "counts", "--from", "half"]);
    place.server.with(&alpha).more_checkpoints("alpha", "counts", 1);

    // The end of the story: nothing holds them any more. The server dies once in the middle of it.
    place.deploy(&alpha, &counts(None, 3), &["--no-wait"]);
    place.deploy(&beta, &hours(None), &["--no-wait"]);
    place.deploy(&beta, &totals(None, "versioned@6.0.0"), &["--no-wait"]);
    place.kill();
    place.server.with(&alpha).until_job("alpha", "counts", "finished");
    place.server.with(&beta).until_job("beta", "hours", "finished");
    place.server.with(&beta).until_job("beta", "totals", "finished");

    let mut totals_seen = Vec::new();
    let mut versions = BTreeMap::new();
    for line in place.published("beta", "totals") {
        let record: Value = serde_json::from_str(&line).unwrap();
        totals_seen.push(record["total"].as_u64().unwrap());
        *versions.entry(record["version"].as_u64().unwrap()).or_insert(0_u64) += 1;
    }
    assert!(totals_seen.iter().copied().eq(1..=RECORDS), "a record is lost, repeated or out of order");
    assert_eq!(versions.keys().copied().collect::<Vec<_>>(), [1, 2, 6], "{versions:?}");
    let mut by_key: BTreeMap<String, u64> = BTreeMap::new();
    for line in place.published("alpha", "counts") {
        let record: Value = serde_json::from_str(&line).unwrap();
        let count = by_key.entry(record["key"].to_string()).or_default();
        *count += 1;
        assert_eq!(record["count"].as_u64(), Some(*count), "{line}: lost, repeated or out of order");
    }
    same_lines("counts", place.published("alpha", "counts"), &undisturbed("counts", &counts(None, 2), &[]));
    same_lines("hours", place.published("beta", "hours"), &undisturbed("hours", &hours(None), &[]));
    let alone = undisturbed("mended", &mended(""), &[("hostile", guest("hostile"))]);
    same_lines("mended", place.published("alpha", "mended"), &alone);

    // A tenant that is deleted leaves nothing, and what it has published stays where it is.
    place.server.with(&admin).delete("/v1/tenants/beta").expect(204);
    place.server.again();
    let left: Vec<_> = place.server.listing().into_keys().filter(|object| object.contains("/beta/")).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(place.server.with(&beta).get("/v1/tenants").status, 401);
    place.server.with(&alpha).until_job("alpha", "counts", "finished");
    place.server.with(&alpha).until_job("alpha", "mended", "finished");
    assert_eq!(place.published("alpha", "counts").len() as u64, RECORDS);
    assert_eq!(place.published("beta", "totals").len() as u64, RECORDS);
    assert_eq!(place.server.stop(), 0);
    for line in place.server.log_lines() {
        let message = line["message"].as_str().unwrap_or_default();
        assert!(!message.contains("panicked at runtime"), "{line}");
    }
}

#[test]
fn what_was_answered_holds_although_the_server_is_killed_the_moment_after() {
    let mut place = Place::new();
    let server = &mut place.server;
    let alpha = server.tenant("alpha", Some("alpha"));
    server.again();
    let job = "/v1/tenants/alpha/jobs/counts";
    assert_eq!(server.with(&alpha).get("/v1/tenants/alpha").status, 200, "the tenant and its token");

    let made =
        server.with(&alpha).post("/v1/tenants/alpha/tokens", &json!({ "role": "deploy", "note": "ci" })).expect(201);
    server.again();
    let (ci, id) = (made["token"].as_str().unwrap().to_owned(), made["id"].as_str().unwrap().to_owned());
    assert_eq!(server.with(&ci).get("/v1/tenants/alpha").status, 200, "a token that was made");
    let rotated = server.with(&alpha).post(&format!("/v1/tenants/alpha/tokens/{id}/rotate"), &json!({})).expect(201);
    server.again();
    assert_eq!(server.with(&ci).get("/v1/tenants/alpha").status, 401, "a token that was rotated");
    let ci = rotated["token"].as_str().unwrap().to_owned();
    assert_eq!(server.with(&ci).get("/v1/tenants/alpha").status, 200, "the one in its place");

    let mut quotas = server.admin().get("/v1/tenants/alpha").expect(200)["quotas"].clone();
    quotas["jobs"] = json!(1);
    server.admin().put("/v1/tenants/alpha/quotas", &quotas).expect(200);
    server.again();
    assert_eq!(server.admin().get("/v1/tenants/alpha").expect(200)["quotas"], quotas);

    server.with(&ci).put_wasm("/v1/tenants/alpha/plugins/count/1.0.0", &count_component()).expect(201);
    server.again();
    assert_eq!(server.with(&ci).get("/v1/tenants/alpha/plugins/count/1.0.0/content").body, count_component());

    server.with(&ci).put(job, &json!({ "pipeline": counts(Some(1_000), 1) })).expect(200);
    server.again();
    server.with(&ci).until_job("alpha", "counts", "running");
    let second = counts(Some(1_000), 1).replace("\"counts\"", "\"second\"");
    let refused = server.with(&ci).put("/v1/tenants/alpha/jobs/second", &json!({ "pipeline": second }));
    assert_eq!((refused.status, refused.json()["error"]["kind"].as_str()), (403, Some("quota")), "{}", refused.text());

    server.with(&ci).more_checkpoints("alpha", "counts", 1);
    let made = server.with(&ci).post(&format!("{job}/savepoints"), &json!({ "name": "kept" })).expect(201);
    server.again();
    let all = server.with(&ci).get(&format!("{job}/savepoints")).expect(200);
    assert_eq!(all, json!([made]));
    server.with(&ci).until_job("alpha", "counts", "running");

    let changed =
        server.with(&ci).post(&format!("{job}/rescale"), &json!({ "node": "op", "parallelism": 2 })).expect(200);
    assert_eq!(changed["outcome"], "changed");
    server.again();
    let seen = server.with(&ci).until_job("alpha", "counts", "running");
    assert!(seen["pipeline"].as_str().unwrap().contains("parallelism = 2"));
    server.with(&ci).more_checkpoints("alpha", "counts", 1);

    let stopped = server.with(&ci).post(&format!("{job}/stop"), &json!({ "savepoint": "last" })).expect(200);
    server.again();
    let seen = server.with(&ci).job("alpha", "counts");
    assert_eq!((seen["state"].as_str(), seen["want"].as_str()), (Some("stopped"), Some("stop")));
    let all = server.with(&ci).get(&format!("{job}/savepoints")).expect(200);
    let last = all.as_array().unwrap().iter().find(|savepoint| savepoint["name"] == "last").expect("the savepoint");
    assert_eq!(last["epoch"], stopped["epoch"]);

    server.with(&ci).post(&format!("{job}/start"), &json!({ "from": "last" })).expect(200);
    server.again();
    server.with(&ci).until_job("alpha", "counts", "running");
    server.with(&ci).more_checkpoints("alpha", "counts", 1);
    server.with(&ci).delete(&format!("{job}/savepoints/kept")).expect(204);
    server.again();
    let all = server.with(&ci).get(&format!("{job}/savepoints")).expect(200);
    assert!(!all.as_array().unwrap().iter().any(|savepoint| savepoint["name"] == "kept"), "{all}");

    server.with(&ci).until_job("alpha", "counts", "running");
    let in_use = server.with(&ci).delete("/v1/tenants/alpha/plugins/count/1.0.0");
    assert_eq!(in_use.status, 409, "{}", in_use.text());
    server.with(&ci).post(&format!("{job}/stop"), &json!({})).expect(200);
    server.with(&ci).delete(job).expect(204);
    server.again();
    assert_eq!(server.with(&ci).get(job).status, 404);
    assert!(!server.listing().keys().any(|object| object.contains("/counts/")), "{:?}", server.listing());
    server.with(&ci).delete("/v1/tenants/alpha/plugins/count/1.0.0").expect(204);
    server.again();
    assert_eq!(server.with(&ci).get("/v1/tenants/alpha/plugins").expect(200), json!([]));
    assert!(!server.listing().keys().any(|object| object.contains("/plugins/")), "{:?}", server.listing());
    server.with(&alpha).delete(&format!("/v1/tenants/alpha/tokens/{}", rotated["id"].as_str().unwrap())).expect(204);
    server.again();
    assert_eq!(server.with(&ci).get("/v1/tenants/alpha").status, 401);
    server.admin().delete("/v1/tenants/alpha").expect(204);
    server.again();
    assert_eq!(server.admin().get("/v1/tenants").expect(200), json!([]));
    assert!(!server.listing().keys().any(|object| object.contains("alpha")), "{:?}", server.listing());
    // The name is free, and nothing of the one before is in it.
    server.tenant("alpha", None);
    assert_eq!(server.admin().get("/v1/tenants/alpha/jobs").expect(200), json!([]));
    assert_eq!(server.with(&alpha).get("/v1/tenants/alpha").status, 401, "a token of the tenant before");
}

#[test]
fn a_deletion_that_the_server_did_not_survive_is_finished_by_the_next_one() {
    let mut place = Place::new();
    let server = &mut place.server;
    for round in 0..6_u64 {
        let name = format!("gone-{round}");
        let token = server.tenant(&name, None);
        server
            .with(&token)
            .put_wasm(&format!("/v1/tenants/{name}/plugins/count/1.0.0"), &count_component())
            .expect(201);
        let pipeline = counts(Some(1_000), 2).replace("connector = \"file\"", "connector = \"blackhole\"");
        let pipeline = pipeline.replace("path = \"counts\"\nformat = \"json\"\n", "");
        server
            .with(&token)
            .put(&format!("/v1/tenants/{name}/jobs/counts"), &json!({ "pipeline": pipeline }))
            .expect(200);
        server.with(&token).more_checkpoints(&name, "counts", 2);
        // The request is sent, and whatever it has come to then.
        let admin = server.admin();
        let path = format!("/v1/tenants/{name}");
        let asked = std::thread::spawn(move || admin.try_send("DELETE", &path, &[], None).map(|answer| answer.status));
        #[allow(clippy::disallowed_methods, reason = "another process is watched, which has a clock of its own")]
        std::thread::sleep(std::time::Duration::from_millis(round * 3));
        server.again();
        let answered = asked.join().unwrap();
        // Either it never came to it, or it comes to an end.
        until("the tenant is there as it was, or gone", || {
            let seen = server.admin().get(&format!("/v1/tenants/{name}"));
            match seen.status {
                404 => Some(()),
                200 if seen.json()["deleting"] == false => {
                    assert_ne!(answered, Some(204), "it was answered");
                    server.admin().delete(&format!("/v1/tenants/{name}")).expect(204);
                    None
                }
                _ => None,
            }
        });
        assert!(!server.listing().keys().any(|object| object.contains(&name)), "{:?}", server.listing());
    }
    // Not objects, so nobody finds them: see `Server::half_written`.
    eprintln!("known: left of writes that were cut off: {:?}", server.half_written());
}
