//! Many jobs that have nothing to do, of several tenants, in one server: all of them run, the next server has them
//! all, and what they take is printed: memory for each, and time on a processor while nothing comes. Nothing is
//! asserted of times.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use weir_tests::server::{Server, until};

const TENANTS: usize = 4;
const JOBS_EACH: usize = 50;
/// How long nothing comes.
const IDLE: Duration = Duration::from_secs(10);

/// How often it is looked that nothing new is written.
const STILL_LOOKS: u32 = 100;

/// A job that waits for a file to grow.
fn waiting(name: &str) -> String {
    format!(
        r#"
name = "{name}"
[checkpoint]
interval = "1s"
[source.lines]
connector = "file"
path = "lines"
format = "json"
follow = true
[operator.op]
plugin = "count"
inputs = [{{ from = "lines", key = "/key" }}]
[sink.out]
connector = "file"
path = "out-{name}"
inputs = ["op"]
format = "json"
"#
    )
}

/// Resident memory of a process in bytes, and its time on a processor in clock ticks of a hundredth of a second.
fn usage(process: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, after) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = after.split_whitespace().collect();
    (resident << 10, fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
}

/// Waits until every job of every tenant runs.
fn until_all_run(server: &Server) {
    for tenant in 0..TENANTS {
        until(&format!("all jobs of tenant {tenant} run"), || {
            let jobs = server.admin().get(&format!("/v1/tenants/dense-{tenant}/jobs")).expect(200);
            let jobs = jobs.as_array().unwrap().clone();
            assert_eq!(jobs.len(), JOBS_EACH);
            let failed = jobs.iter().find(|job| job["state"] == "failed" || job["state"] == "waiting");
            assert!(failed.is_none(), "{failed:?}");
            jobs.iter().all(|job: &Value| job["state"] == "running").then_some(())
        });
    }
}

/// Waits until every job has published so many counts, and no others.
fn until_all_counted(dir: &TempDir, records: usize) {
    for tenant in 0..TENANTS {
        for job in 0..JOBS_EACH {
            let out = dir.path().join(format!("dense-{tenant}/out-job-{job}"));
            until(&format!("what came is counted in {}", out.display()), || {
                (weir_tests::lines(&out).len() >= records).then_some(())
            });
            let counts: Vec<_> = weir_tests::json_lines(&out).iter().map(|line| line["count"].as_u64()).collect();
            assert!(counts.iter().copied().eq((1..=records as u64).map(Some)), "{}: {counts:?}", out.display());
        }
    }
}

#[test]
fn two_hundred_jobs_of_four_tenants_run_idle_in_one_server_and_the_next_one_has_them_all() {
    weir_tests::weir();
    let dir = tempfile::tempdir().unwrap();
    let component = fs::read(weir_tests::cargo_target().join("release/plugins/count.wasm")).unwrap();
    let mut server = Server::start(dir.path());
    let (empty, _) = usage(server.id());
    for tenant in 0..TENANTS {
        let name = format!("dense-{tenant}");
        let token = server.tenant(&name, Some(&name));
        fs::write(dir.path().join(&name).join("lines"), "{\"key\":\"a\"}\n").unwrap();
        let client = server.with(&token);
        client.put_wasm(&format!("/v1/tenants/{name}/plugins/count/1.0.0"), &component).expect(201);
        for job in 0..JOBS_EACH {
            let text = waiting(&format!("job-{job}"));
            client.put(&format!("/v1/tenants/{name}/jobs/job-{job}"), &json!({ "pipeline": text })).expect(200);
        }
    }
    // The one record that each has is through: from here on there is nothing to do.
    until_all_counted(&dir, 1);
    for round in ["deployed", "after a kill", "after a stop"] {
        until_all_run(&server);
        // Whoever has just started still writes that it has.
        let mut still = (0, server.listing().len());
        until("nothing is written any more", || {
            let objects = server.listing().len();
            still = if objects == still.1 { (still.0 + 1, objects) } else { (0, objects) };
            (still.0 == STILL_LOOKS).then_some(())
        });
        let (resident, before) = usage(server.id());
        let objects = server.listing().len();
        #[allow(clippy::disallowed_methods, reason = "how much is done while nothing comes is measured by the clock")]
        std::thread::sleep(IDLE);
        let (_, after) = usage(server.id());
        let jobs = (TENANTS * JOBS_EACH) as u64;
        eprintln!(
            "{round}: {} KiB a job over {} KiB of an empty server; \
             {} ms on a processor in {} s of nothing; {} new objects",
            (resident.saturating_sub(empty) / jobs) >> 10,
            empty >> 10,
            (after - before) * 10,
            IDLE.as_secs(),
            server.listing().len() as i64 - objects as i64
        );
        if round == "deployed" {
            server.again();
        } else if round == "after a kill" {
            assert_eq!(server.stop(), 0, "{}", server.log());
            server.again();
        }
    }
    // Each still does what it is there for, once something comes.
    for tenant in 0..TENANTS {
        let path = dir.path().join(format!("dense-{tenant}/lines"));
        // Grown, and at no time shorter.
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"{\"key\":\"a\"}\n").unwrap();
    }
    until_all_counted(&dir, 2);
    assert_eq!(server.stop(), 0);
}
