//! Hot upgrade of an operator: under load, record by record; given up beside the stream; taken back after the swap.
//!
//! Input is fed while the upgrade is made, so that there are calls between any two of its steps. What came out is
//! checked for each record and key; which version said it is in the record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::FutureExt;
use weir::checkpoint::{EntryKind, history, look_for, refused};
use weir::flow::OperatorCode;
use weir::job::{Job, Pair, Refusal, Request, Upgrade, UpgradeReport};
use weir::model::{NodeName, StateKind};
use weir::plugin::OperatorError;
use weir_tests::job::code::{Call, count, count_version, heavy_count, hooked, hooked_async, pass};
use weir_tests::job::store::{Fate, FaultyStore, Verb};
use weir_tests::job::{Pipeline, check_counts, stopped};

const TEXT: &str = r#"
name = "t"
checkpoint = { interval = "10ms", retain = 1000, tolerated_failures = 1000 }
restart = { attempts = 0 }
batch = { records = 16, delay = "1ms" }
[source.in]
connector = "file"
path = "in/a.jsonl"
format = "json"
follow = true
event_time = "/time"
event_time_unit = "ms"
[operator.pass]
plugin = "pass"
inputs = [{ from = "in", key = "/key" }]
[operator.count]
plugin = "count"
inputs = [{ from = "pass", key = "/key" }]
parallelism = 2
[sink.out]
connector = "file"
inputs = ["count"]
parallelism = 2
path = "out"
format = "json"
"#;

fn pipeline(code: OperatorCode) -> Pipeline {
    Pipeline::new(TEXT, [("pass", pass()), ("count", code)])
}

fn to(code: OperatorCode) -> Upgrade {
    Upgrade { node: NodeName::new("count"), code, shadow: None, canary: None, catch_up: None }
}

/// Feeds a few records every millisecond while something is done. Gives how many there are then.
async fn under_load<T>(pipeline: &Pipeline, fed: &mut u64, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    loop {
        pipeline.feed("a", *fed..*fed + 40);
        *fed += 40;
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
}

/// Waits until all that was fed is published, stops the job, and checks each record.
async fn check(pipeline: &Pipeline, mut running: weir_tests::job::Running, fed: u64) {
    running.until("all is published", |_| pipeline.out_len("out") == fed).await;
    stopped(running.stop().await);
    // Two subtasks write to two files an epoch: within a key, the order is that of the counts.
    let mut output = pipeline.out("out");
    let by_key = |record: &serde_json::Value| record["key"].as_str().unwrap_or_default().to_owned();
    output.sort_by_key(by_key);
    check_counts(&output, fed, true);
}

/// How many records of the output say this version; 1 says nothing.
fn said_by(pipeline: &Pipeline, version: u64) -> usize {
    pipeline.out("out").iter().filter(|record| record["version"].as_u64().unwrap_or(1) == version).count()
}

/// Replays every epoch with the code that its checkpoint names.
async fn replay(pipeline: &Pipeline, versions: &[OperatorCode]) -> (usize, Vec<String>) {
    let manifests = pipeline.manifests().await;
    let (mut same, mut refusals) = (0, Vec::new());
    for to in &manifests {
        let from = manifests.iter().find(|manifest| Some(manifest.epoch) == to.parent).cloned();
        if from.is_none() && to.parent.is_some() {
            continue;
        }
        let digest = to.node("count").unwrap().plugin.as_ref().unwrap().digest;
        let code = versions.iter().find(|code| code.digest == digest).unwrap().clone();
        let mut job: Job = pipeline.job();
        job.code.insert(NodeName::new("count"), code);
        match job.verify_replay(&Pair { from, to: to.clone() }).await {
            Ok(verdict) => {
                assert!(verdict.same, "epoch {}: {verdict:#?}", to.epoch);
                same += 1;
            }
            Err(error) => refusals.push(error.report()),
        }
    }
    (same, refusals)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_under_load_lose_repeat_and_reorder_nothing_and_their_epochs_are_replayed_each_with_its_code() {
    let versions = [count(), count_version(2, ",\"version\":2"), count_version(3, ",\"version\":3")];
    let pipeline = pipeline(versions[0].clone());
    let (mut running, control) = pipeline.start_asked();
    let mut fed = 0;
    under_load(&pipeline, &mut fed, running.until_at_least(3, "checkpoints", |m| &m.checkpoints)).await;
    let mut reports: Vec<UpgradeReport> = Vec::new();
    for code in &versions[1..] {
        let report = under_load(&pipeline, &mut fed, control.upgrade(to(code.clone()))).await.unwrap();
        assert!(report.restored < report.swapped && report.swapped < report.confirmed, "{report:?}");
        assert_eq!(report.pauses_us.len(), 2, "{report:?}");
        assert_eq!(
            (report.to.state_version, &report.to.version),
            (code.descriptor.state_version, &code.descriptor.version)
        );
        reports.push(report);
    }
    // The same code again, as for another configuration.
    let report = under_load(&pipeline, &mut fed, control.upgrade(to(versions[2].clone()))).await.unwrap();
    assert_eq!((report.compared.differing_calls, report.from.digest), (0, report.to.digest));
    let more = running.metrics.checkpoints.load(Relaxed) + 3;
    under_load(&pipeline, &mut fed, running.until_at_least(more, "checkpoints", |m| &m.checkpoints)).await;
    assert_eq!(running.restarts(), 0);
    check(&pipeline, running, fed).await;
    for version in 1..=3 {
        assert!(said_by(&pipeline, version) > 0, "version {version} said something");
    }
    // A checkpoint names the code of the epoch that it ends.
    for manifest in pipeline.manifests().await {
        let digest = manifest.node("count").unwrap().plugin.as_ref().unwrap().digest[0];
        let is = 1 + reports.iter().filter(|report| manifest.epoch > report.swapped).count();
        assert_eq!(u32::from(digest.max(1)), is as u32, "epoch {}: {reports:?}", manifest.epoch);
    }
    let (same, refusals) = replay(&pipeline, &versions).await;
    assert!(same > 5 && refusals.is_empty(), "{same} replayed: {refusals:#?}");
}

/// It works beside the stream, and fails when its state is asked for: after the swap.
fn fails_when_asked_for_its_state() -> OperatorCode {
    hooked(count_version(2, ",\"version\":2"), |_, call| match call {
        Call::Snapshot(_) => Err(OperatorError::Fatal("it cannot write its state".into())),
        _ => Ok(()),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_fails_after_the_swap_is_taken_back_and_refused_in_the_log_and_its_output_is_not_published() {
    let pipeline = pipeline(count());
    // `attempts = 0`: the job would end at the first failure. That of an upgrade is undone all the same.
    let (mut running, control) = pipeline.start_asked();
    let mut fed = 0;
    under_load(&pipeline, &mut fed, running.until_at_least(2, "checkpoints", |m| &m.checkpoints)).await;
    let refusal =
        under_load(&pipeline, &mut fed, control.upgrade(to(fails_when_asked_for_its_state()))).await.unwrap_err();
    assert!(
        refusal.message.contains("taken back") && refusal.message.contains("cannot write its state"),
        "{refusal:?}"
    );
    let entries = refused(&pipeline.store(), "t").await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].node.as_str(), entries[0].digest, entries[0].version.as_str()), ("count", [2; 32], "0.2.0"));
    assert!(entries[0].reason.contains("cannot write its state"), "{entries:?}");
    assert_eq!(running.restarts(), 1);
    // The refusal stands before the claim of the restart.
    let kinds: Vec<_> = history(&pipeline.store(), "t").await.unwrap().into_iter().map(|entry| entry.kind).collect();
    let at = kinds.iter().position(|kind| matches!(kind, EntryKind::Refused { .. })).unwrap();
    let more = running.metrics.checkpoints.load(Relaxed) + 2;
    under_load(&pipeline, &mut fed, running.until_at_least(more, "checkpoints", |m| &m.checkpoints)).await;
    let kinds: Vec<_> = history(&pipeline.store(), "t").await.unwrap().into_iter().map(|entry| entry.kind).collect();
    assert!(matches!(kinds[at + 1], EntryKind::Claim { .. }), "{kinds:?}");
    check(&pipeline, running, fed).await;
    assert_eq!(said_by(&pipeline, 2), 0, "nothing of the refused version is visible");
    let (same, _) = replay(&pipeline, &[count()]).await;
    assert!(same > 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_upgrade_goes_well_after_one_was_taken_back_and_restarts_keep_what_was_confirmed() {
    let text = TEXT.replace("attempts = 0", "attempts = 9, delay = \"1ms\"");
    let is_to_fail = Arc::new(AtomicBool::new(false));
    let fails = Arc::clone(&is_to_fail);
    let once = hooked(pass(), move |_, call| match call {
        Call::Process(_) if fails.swap(false, Relaxed) => Err(OperatorError::Fatal("once".into())),
        _ => Ok(()),
    });
    let pipeline = Pipeline::new(text, [("pass", once), ("count", count())]);
    let (mut running, control) = pipeline.start_asked();
    let mut fed = 0;
    under_load(&pipeline, &mut fed, running.until_at_least(2, "checkpoints", |m| &m.checkpoints)).await;
    under_load(&pipeline, &mut fed, control.upgrade(to(fails_when_asked_for_its_state()))).await.unwrap_err();
    let good = count_version(2, ",\"version\":2");
    loop {
        // While it starts over it takes no upgrade, and says so.
        match under_load(&pipeline, &mut fed, control.upgrade(to(good.clone()))).await {
            Ok(_) => break,
            Err(Refusal { message, .. }) => assert!(message.contains("start"), "{message}"),
        }
    }
    // A failure that has nothing to do with it: the job goes on with what was confirmed.
    let restarts = running.restarts();
    is_to_fail.store(true, Relaxed);
    under_load(&pipeline, &mut fed, running.until_at_least(restarts + 1, "restarts", |m| &m.restarts)).await;
    check(&pipeline, running, fed).await;
    let tip = look_for(&pipeline.store(), "t", None).await.unwrap().unwrap();
    assert_eq!(tip.manifest.node("count").unwrap().plugin.as_ref().unwrap().digest, [2; 32]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_of_another_node_after_the_swap_takes_the_upgrade_back_and_refuses_nothing() {
    let has_state = Arc::new(AtomicBool::new(false));
    let fails = Arc::clone(&has_state);
    let times = Arc::new(AtomicU64::new(0));
    // The other node fails once the new version is asked for its state.
    let other = hooked(pass(), move |_, call| match call {
        Call::Process(_) if fails.load(Relaxed) && times.fetch_add(1, Relaxed) == 0 => {
            Err(OperatorError::Fatal("another fault".into()))
        }
        _ => Ok(()),
    });
    let next = hooked_async(count_version(2, ",\"version\":2"), move |_, call| {
        let has_state = Arc::clone(&has_state);
        async move {
            if matches!(call, Call::Snapshot(_)) && !has_state.swap(true, Relaxed) {
                // It is not done before the other has failed.
                std::future::pending::<()>().await;
            }
            Ok(())
        }
        .boxed()
    });
    let pipeline = Pipeline::new(TEXT, [("pass", other), ("count", count())]);
    let (mut running, control) = pipeline.start_asked();
    let mut fed = 0;
    under_load(&pipeline, &mut fed, running.until_at_least(2, "checkpoints", |m| &m.checkpoints)).await;
    let refusal = under_load(&pipeline, &mut fed, control.upgrade(to(next))).await.unwrap_err();
    assert!(refusal.message.contains("for another reason") && refusal.message.contains("another fault"), "{refusal:?}");
    assert_eq!(refused(&pipeline.store(), "t").await.unwrap(), []);
    check(&pipeline, running, fed).await;
    assert_eq!(said_by(&pipeline, 2), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_cannot_take_the_state_over_or_fails_beside_the_old_one_changes_nothing() {
    let next = || count_version(2, ",\"version\":2");
    let broken = |when: fn(&Call) -> bool| {
        hooked(next(), move |subtask, call| match when(&call) && subtask == 1 {
            true => Err(OperatorError::Fatal("a fault of version 2".into())),
            false => Ok(()),
        })
    };
    let pipeline = pipeline(count());
    let (mut running, control) = pipeline.start_asked();
    let mut fed = 0;
    under_load(&pipeline, &mut fed, running.until_at_least(2, "checkpoints", |m| &m.checkpoints)).await;
    for code in [broken(|call| *call == Call::Restore), broken(|call| matches!(call, Call::Process(_)))] {
        let wish = Upgrade { shadow: Some(Duration::from_secs(3600)), ..to(code) };
        let refusal = under_load(&pipeline, &mut fed, control.upgrade(wish)).await.unwrap_err();
        assert!(
            refusal.message.contains("count[1]") && refusal.message.contains("a fault of version 2"),
            "{refusal:?}"
        );
    }
    assert_eq!(running.restarts(), 0);
    assert_eq!(refused(&pipeline.store(), "t").await.unwrap(), []);
    // One that is slower than the stream for good is given up as well.
    let slow = hooked_async(next(), |_, call| {
        let wait = matches!(call, Call::Process(_)).then_some(Duration::from_millis(50));
        async move {
            if let Some(wait) = wait {
                tokio::time::sleep(wait).await;
            }
            Ok(())
        }
        .boxed()
    });
    let wish = Upgrade { catch_up: Some(Duration::from_millis(200)), ..to(slow) };
    let refusal = under_load(&pipeline, &mut fed, control.upgrade(wish)).await.unwrap_err();
    assert!(refusal.message.contains("too slow"), "{refusal:?}");
    assert_eq!(running.restarts(), 0);
    check(&pipeline, running, fed).await;
    assert_eq!(said_by(&pipeline, 2), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_runs_beside_the_old_version_and_what_differs_is_reported() {
    let pipeline = pipeline(count());
    let (mut running, control) = pipeline.start_asked();
    let mut fed = 0;
    under_load(&pipeline, &mut fed, running.until_at_least(2, "checkpoints", |m| &m.checkpoints)).await;
    let shadow = Some(Duration::from_millis(150));
    let wish = Upgrade { shadow, ..to(count_version(2, ",\"version\":2")) };
    let asked = control.clone();
    let watched = tokio::spawn(async move {
        let mut phases: BTreeMap<String, u64> = BTreeMap::new();
        while let Ok(weir::job::Answer::Status(status)) = asked.ask(Request::Status).await {
            match status.upgrade {
                Some(upgrade) => *phases.entry(upgrade.phase).or_default() += 1,
                None if phases.contains_key("shadowing") => break,
                None => {}
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        phases
    });
    let report = under_load(&pipeline, &mut fed, control.upgrade(wish)).await.unwrap();
    let phases = watched.await.unwrap();
    assert!(phases.contains_key("shadowing"), "{phases:?}");
    let compared = &report.compared;
    assert!(compared.calls > 0 && compared.records > 0, "{compared:?}");
    // Each batch of it differs: the new version says twelve bytes more of each record.
    assert!(compared.differing_calls > 0 && compared.differing_calls <= compared.calls, "{compared:?}");
    let port = compared.ports[0];
    assert_eq!((port.old_records, port.new_records), (compared.records, compared.records));
    assert_eq!(port.new_bytes, port.old_bytes + 12 * compared.records);
    assert!(compared.first_difference.as_ref().unwrap().contains("on output port 0"), "{compared:?}");
    check(&pipeline, running, fed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_that_does_not_fit_is_refused_with_the_reason_and_changes_nothing() {
    let pipeline = pipeline(count());
    let (mut running, control) = pipeline.start_asked();
    let mut fed = 0;
    under_load(&pipeline, &mut fed, running.until_at_least(2, "checkpoints", |m| &m.checkpoints)).await;
    type Change = fn(&mut Upgrade);
    let changes: [(&str, Change); 9] = [
        ("has no operator \"nobody\"; its operators are: count, pass", |wish| wish.node = NodeName::new("nobody")),
        ("not possible yet", |wish| wish.canary = Some(1)),
        ("runs plugin \"native\", and the new one is plugin \"other\"", |wish| {
            wish.code.descriptor.name = "other".into()
        }),
        ("input ports differ: \"in\" is \"left\" now", |wish| wish.code.descriptor.inputs[0].name = "left".into()),
        ("\"in\" was keyed and is not keyed now", |wish| wish.code.descriptor.inputs[0].keyed = false),
        ("output ports differ: out are  now", |wish| wish.code.descriptor.outputs.clear()),
        ("an image of its memory", |wish| wish.code.image = Some(1)),
        ("it keeps state by key, and the new version keeps one state", |wish| {
            wish.code.descriptor.state = StateKind::Whole
        }),
        ("its state has version 1, and version 0.2.0 of the plugin reads versions 2 to 2", |wish| {
            wish.code.descriptor.oldest_state_version = 2;
        }),
    ];
    for (reason, change) in changes {
        let mut wish = to(count_version(2, ""));
        change(&mut wish);
        let refusal = control.upgrade(wish).await.expect_err(reason);
        assert!(refusal.message.contains(reason) && refusal.help.is_some(), "{reason}: {refusal:?}");
    }
    // Without code there is nothing to upgrade to, and one is made at a time.
    let text = r#"{"request":"upgrade","node":"count"}"#;
    let refusal = control.ask(serde_json::from_str(text).unwrap()).await.unwrap_err();
    assert!(refusal.message.contains("without code"), "{refusal:?}");
    let long = Upgrade { shadow: Some(Duration::from_secs(3600)), ..to(count_version(2, "")) };
    let first = tokio::spawn({
        let control = control.clone();
        async move { control.upgrade(long).await }
    });
    let refusal = loop {
        if let weir::job::Answer::Status(status) = control.ask(Request::Status).await.unwrap()
            && status.upgrade.is_some()
        {
            break control.upgrade(to(count_version(2, ""))).await.unwrap_err();
        }
    };
    assert!(refusal.message.contains("one upgrade is made at a time"), "{refusal:?}");
    // A job that ends answers whoever waits.
    let entries = history(&pipeline.store(), "t").await.unwrap();
    assert!(entries.iter().all(|entry| !matches!(entry.kind, EntryKind::Refused { .. })));
    check(&pipeline, running, fed).await;
    let refusal = first.await.unwrap().unwrap_err();
    assert!(refusal.message.contains("the job ends"), "{refusal:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_may_send_requests_is_not_upgraded_while_it_runs() {
    let text = TEXT.replace("plugin = \"count\"", "plugin = \"count\"\ngrants = [\"http:example.com\"]");
    let pipeline = Pipeline::new(text, [("pass", pass()), ("count", count())]);
    let (mut running, control) = pipeline.start_asked();
    let mut fed = 0;
    under_load(&pipeline, &mut fed, running.until_at_least(1, "checkpoints", |m| &m.checkpoints)).await;
    let refusal = control.upgrade(to(count_version(2, ""))).await.unwrap_err();
    assert!(refusal.message.contains("may send requests over HTTP") && refusal.help.is_some(), "{refusal:?}");
    control.upgrade(Upgrade { node: NodeName::new("pass"), ..to(pass()) }).await.unwrap();
    check(&pipeline, running, fed).await;
}

/// The state is large, its snapshots take many steps, and the store fails now and then: also at the barrier of the
/// swap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_of_large_state_hold_when_snapshots_are_long_and_fail() {
    let puts = Arc::new(AtomicU64::new(0));
    let fails = Arc::new(AtomicBool::new(false));
    let (counted, failing) = (Arc::clone(&puts), Arc::clone(&fails));
    let store = FaultyStore::new();
    store.decide(move |verb, path| {
        let is_pack = verb == Verb::Put && path.contains("/packs/");
        let fails = is_pack && failing.load(Relaxed) && counted.fetch_add(1, Relaxed) % 3 == 0;
        if fails { Fate::FailsBefore } else { Fate::Works }
    });
    let weight = 200_000;
    let version = |digest: u8| {
        let mut code = heavy_count(weight);
        code.digest = [digest; 32];
        code
    };
    let text = TEXT.replace("interval = \"10ms\"", "interval = \"10ms\", inline = \"0B\"");
    let pipeline = Pipeline::new(text, [("pass", pass()), ("count", version(1))]).on(store);
    let (mut running, control) = pipeline.start_asked();
    let mut fed = 0;
    under_load(&pipeline, &mut fed, running.until_at_least(2, "checkpoints", |m| &m.checkpoints)).await;
    fails.store(true, Relaxed);
    let mut done = 0;
    for digest in 2..12 {
        match under_load(&pipeline, &mut fed, control.upgrade(to(version(digest)))).await {
            Ok(report) => {
                assert_eq!(report.compared.differing_calls, 0, "{report:?}");
                done += 1;
            }
            Err(refusal) => assert!(refusal.message.contains("was to begin with, failed"), "{refusal:?}"),
        }
    }
    fails.store(false, Relaxed);
    assert!(done > 0);
    assert_eq!(running.restarts(), 0);
    check(&pipeline, running, fed).await;
    let versions: Vec<_> = (1..12).map(version).collect();
    let (same, refusals) = replay(&pipeline, &versions).await;
    assert!(same > 0);
    // What two versions have done between two checkpoints cannot be done again by one.
    assert!(refusals.iter().all(|refusal| refusal.contains("was not recorded")), "{refusals:#?}");
}
