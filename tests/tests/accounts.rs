//! Accounts that share a process: what one of them does is felt by nobody else, and its quotas name it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;
use weir::checkpoint::Start;
use weir::clock::Clock;
use weir::job::Outcome;
use weir::model::{Batch, TaskInfo};
use weir::plan::LimitsSpec;
use weir::plugin::{Account, AccountLimits, HostOptions, Operator, OperatorError, Output, Plugin, PluginHost};
use weir_tests::guests::guest;
use weir_tests::job::Pipeline;

static CACHE: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fn host(slots: Option<u32>, memory_bytes_max: Option<u64>) -> PluginHost {
    let cache_dir = Some(CACHE.path().join("compiled"));
    let options = HostOptions { cache_dir, instances_max: 32, slots, memory_bytes_max, ..HostOptions::default() };
    PluginHost::new(options).expect("a host")
}

async fn hostile(host: &PluginHost, account: &Account) -> Plugin {
    host.load_for(account, &guest("hostile")).await.expect("the hostile guest is a plugin")
}

fn limits() -> LimitsSpec {
    let hour = Duration::from_secs(3_600);
    LimitsSpec { memory_bytes: 256 << 20, cpu: hour, wall: hour, ..LimitsSpec::default() }
}

fn task() -> TaskInfo {
    let (job, node) = ("job".to_owned(), "node".to_owned());
    TaskInfo { job, node, subtask: 0, parallelism: 2, key_groups: 128, groups: 0..64, seed: 1 }
}

async fn open(plugin: &Plugin, what: &str) -> Result<Box<dyn Operator>, OperatorError> {
    plugin.open(&limits(), &serde_json::json!({ "do": what, "in": "process" }), &task()).await
}

fn records() -> Batch {
    let mut batch = Batch::default();
    batch.push(1, Some(b"a"), Some(b"one"));
    batch.hash_keys();
    batch
}

async fn process(operator: &mut dyn Operator) -> Result<(), OperatorError> {
    operator.process(7, 0, &records(), &mut Output::default()).await
}

#[tokio::test]
async fn memory_beyond_the_quota_of_an_account_ends_the_instance_and_names_the_account() {
    let host = host(None, None);
    let anna = host.account("anna", AccountLimits { memory_bytes: Some(16 << 20), ..AccountLimits::default() });
    let bert = host.account("bert", AccountLimits::default());
    let plugin = hostile(&host, &anna).await;
    let mut neighbour = open(&plugin.clone().with_account(bert.clone()), "nothing").await.expect("it behaves");
    let mut sibling = open(&plugin, "nothing").await.expect("it behaves");
    let before = anna.usage();
    assert!(before.memory_bytes > 0 && before.instances == 1, "{before:?}");
    let mut culprit = open(&plugin, "hoard").await.expect("it opens");
    let error = process(&mut *culprit).await.expect_err("it takes all that there is");
    let OperatorError::Quota { call, account, what, limit, .. } = &error else { panic!("{error:?}") };
    assert_eq!(
        (*call, account.as_str(), *what, limit.as_str()),
        ("process", "anna", "memory of all its instances", "16 MiB")
    );
    assert_eq!(anna.usage().memory_bytes, before.memory_bytes, "its memory goes back before it is dropped");
    process(&mut *sibling).await.expect("another instance of the account goes on");
    process(&mut *neighbour).await.expect("so does another account");
    drop((culprit, sibling, neighbour));
    assert_eq!((anna.usage().memory_bytes, anna.usage().instances, host.memory_bytes()), (0, 0, 0));
}

#[tokio::test]
async fn one_instance_too_many_of_an_account_is_refused_and_other_accounts_have_theirs() {
    let host = host(None, None);
    // One more than it keeps: `describe` has an instance of its own.
    let anna = host.account("anna", AccountLimits { instances: Some(1), ..AccountLimits::default() });
    let plugin = hostile(&host, &anna).await;
    let first = open(&plugin, "nothing").await.expect("the first");
    let error = open(&plugin, "nothing").await.err().expect("one too many").to_string();
    assert_eq!(error, "plugin crossed the quota of anna in open: 1 plugin instances; it came to 2");
    let bert = host.account("bert", AccountLimits::default());
    open(&plugin.clone().with_account(bert), "nothing").await.expect("another account's");
    anna.set_limits(AccountLimits { instances: Some(2), ..AccountLimits::default() });
    open(&plugin, "nothing").await.expect("the quota was raised");
    drop(first);
}

#[tokio::test]
async fn near_the_ceiling_of_the_process_who_takes_more_than_its_share_has_to_go() {
    let host = host(None, Some(64 << 20));
    let anna = host.account("anna", AccountLimits::default());
    let bert = host.account("bert", AccountLimits::default());
    let plugin = hostile(&host, &anna).await;
    let mut modest = open(&plugin.clone().with_account(bert), "nothing").await.expect("it behaves");
    let mut hog = open(&plugin, "hoard").await.expect("it opens");
    let error = process(&mut *hog).await.expect_err("it takes all that there is");
    let OperatorError::Quota { account, limit, .. } = &error else { panic!("{error:?}") };
    assert_eq!((account.as_str(), limit.as_str()), ("anna", "30 MiB"), "{error}");
    process(&mut *modest).await.expect("the other goes on");
}

#[tokio::test]
async fn an_endless_loop_of_one_account_leaves_another_its_turns() {
    let host = host(Some(1), None);
    let anna = host.account("anna", AccountLimits::default());
    let bert = host.account("bert", AccountLimits::default());
    let plugin = hostile(&host, &anna).await;
    let mut spinning = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let mut operator = open(&plugin, "spin").await.expect("it opens");
        spinning.spawn(async move { process(&mut *operator).await });
    }
    let mut operator = open(&plugin.with_account(bert.clone()), "nothing").await.expect("it opens");
    bert.run(async {
        for _ in 0..200 {
            process(&mut *operator).await.expect("it behaves");
            tokio::task::yield_now().await;
        }
    })
    .await;
    spinning.shutdown().await;
    assert_eq!(anna.usage().instances, 0);
    assert!(bert.usage().cpu > Duration::ZERO);
}

#[tokio::test]
async fn plugins_are_compiled_one_at_a_time_for_an_account_and_what_it_takes_is_charged() {
    let options = HostOptions { instances_max: 4, ..HostOptions::default() };
    let host = PluginHost::new(options).expect("a host");
    let anna = host.account("anna", AccountLimits::default());
    let (hostile, plain) = (guest("hostile"), guest("plain"));
    let (one, two) = tokio::join!(host.load_for(&anna, &hostile), host.load_for(&anna, &plain));
    assert_eq!(one.expect("a plugin").account().name(), "anna");
    two.expect("a plugin");
    assert!(anna.usage().cpu > Duration::from_millis(1), "{:?}", anna.usage());
    assert!(anna.usage().waited == Duration::ZERO, "nobody waited for a core");
}

#[tokio::test]
async fn waiting_for_a_slot_is_not_counted_against_the_wall_clock_limit_of_a_call() {
    let host = host(Some(1), None);
    let anna = host.account("anna", AccountLimits::default());
    let bert = host.account("bert", AccountLimits::default());
    let plugin = hostile(&host, &anna).await.with_account(bert.clone());
    let config = serde_json::json!({});
    let wall = LimitsSpec { wall: Duration::from_millis(300), ..limits() };
    let mut operator = plugin.open(&wall, &config, &task()).await.expect("it opens");
    // It has the only slot, wants to go on, and does not.
    let mut holder = Box::pin(anna.run(async {
        loop {
            weir::account::yield_now().await;
        }
    }));
    assert!((&mut holder).now_or_never().is_none());
    let holds = async {
        tokio::time::sleep(wall.wall * 3).await;
        drop(holder);
    };
    let (called, ()) = tokio::join!(process(&mut *operator), holds);
    called.expect("it waited longer than a call may take, and took no time itself");
    assert!(bert.usage().waited >= wall.wall * 2, "{:?}", bert.usage());
}

/// A pipeline whose sources never wait for anything, from the generator to nowhere.
fn generating(sources: usize, records: Option<u64>) -> Pipeline {
    let mut text = String::from("name = \"t\"\ncheckpoint = { interval = \"50ms\", retain = 2 }\n");
    let records = records.map_or(String::new(), |records| format!("records = {records}\n"));
    for n in 0..sources {
        text += &format!(
            "[source.s{n}]\nconnector = \"generator\"\n{records}[sink.o{n}]\n\
             connector = \"blackhole\"\ninputs = [\"s{n}\"]\n"
        );
    }
    Pipeline::new(text, [])
}

/// Two jobs of one name, and one slot: a source that is never at its end gives others their turn after each batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_sources_of_one_account_leave_a_job_of_another_its_turns() {
    let host = host(Some(1), None);
    let many = host.account("many", AccountLimits::default());
    let one = host.account("one", AccountLimits::default());
    let (endless, short) = (generating(100, None), generating(1, Some(100_000)));
    let stop = watch::Sender::new(false);
    let stopped = stop.subscribe();
    let job = endless.job();
    let metrics = Arc::clone(&job.metrics);
    let account = many.clone();
    let crowd = tokio::spawn(async move { account.run(job.run(Start::Resume, stopped)).await });
    while metrics.checkpoints.load(Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut job = short.job();
    job.store = job.store.under(&one);
    let outcome = one.run(job.run(Start::Resume, watch::Sender::new(false).subscribe())).await;
    assert!(matches!(outcome, Ok(Outcome::Finished { .. } | Outcome::Stopped { .. })), "{outcome:?}");
    let usage = one.usage();
    assert!(usage.cpu > Duration::ZERO && usage.store_requests > 0 && usage.store_bytes > 0, "{usage:?}");
    assert_eq!(many.usage().store_requests, 0, "its store was opened outside of it");
    stop.send_replace(true);
    crowd.await.expect("it does not panic").expect("it stops");
}

/// What an account costs a call of its own: nothing is to be shared with anybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn measure_what_an_account_costs_a_call() {
    let host = host(None, None);
    let anna = host.account("anna", AccountLimits::default());
    let held = host.account("held", AccountLimits { cpu_cores: Some(100.0), ..AccountLimits::default() });
    let free = host.load(&guest("hostile")).await.expect("the hostile guest is a plugin");
    let own = free.clone().with_account(anna.clone());
    let with_ceiling = free.clone().with_account(held);
    let mut operators = Vec::new();
    for plugin in [&free, &own, &own, &with_ceiling] {
        operators.push(open(plugin, "nothing").await.expect("it opens"));
    }
    let mut best = [f64::INFINITY; 4];
    for _ in 0..20 {
        for (case, operator) in operators.iter_mut().enumerate() {
            let work = async {
                let (batch, mut out, clock) = (records(), Output::default(), Clock::system());
                for _ in 0..20_000 {
                    out.clear();
                    operator.process(7, 0, &batch, &mut out).await.expect("it behaves");
                }
                clock.elapsed().as_secs_f64() / 20_000.0 * 1e9
            };
            let took = if case == 1 { anna.run(work).await } else { work.await };
            best[case] = best[case].min(took);
        }
    }
    let [free, within, each, ceiling] = best;
    println!(
        "ns a call: without an account {free:.0}, in a task of one {within:.0}, each by itself {each:.0}, with a \
         ceiling {ceiling:.0}"
    );
}

/// CPU time of this process, in seconds.
fn process_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux says it");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    (11..13).map(|field| fields[field].parse::<f64>().expect("a number") / 100.0).sum()
}

/// How a well-behaved account fares beside eight endless loops of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn measure_what_one_account_gets_beside_eight_endless_loops() {
    for (label, loops, cores) in [
        ("alone", 0, None),
        ("beside 1 loop", 1, None),
        ("beside 8 loops", 8, None),
        ("with half a core", 8, Some(0.5)),
    ] {
        let host = host(Some(2), None);
        let hog = host.account("hog", AccountLimits::default());
        let good = host.account("good", AccountLimits { cpu_cores: cores, ..AccountLimits::default() });
        let plugin = hostile(&host, &hog).await;
        let mut spinning = tokio::task::JoinSet::new();
        for _ in 0..loops {
            let mut operator = open(&plugin, "spin").await.expect("it opens");
            spinning.spawn(async move { process(&mut *operator).await });
        }
        let mut operator = open(&plugin.with_account(good.clone()), "nothing").await.expect("it opens");
        let (clock, cpu_before) = (Clock::system(), process_cpu());
        let (account, until) = (good.clone(), clock.clone());
        let calls = tokio::spawn(async move {
            let mut calls = 0u64;
            let work = async {
                while until.elapsed() < Duration::from_secs(3) {
                    for _ in 0..1_000 {
                        process(&mut *operator).await.expect("it behaves");
                    }
                    calls += 1_000;
                    weir::account::yield_now().await;
                }
            };
            account.run(work).await;
            calls
        });
        let calls = calls.await.expect("it ends");
        let took = clock.elapsed().as_secs_f64();
        let (hog, good) = (hog.usage().cpu.as_secs_f64() / took, good.usage().cpu.as_secs_f64() / took);
        let each = calls as f64 / (process_cpu() - cpu_before);
        println!("{label}: {each:.0} calls a second of CPU time of all; cores: good {good:.2}, hog {hog:.2}");
        spinning.shutdown().await;
    }
}

/// What accounts that never have enough get, by weight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn measure_what_weights_come_to() {
    let host = host(Some(2), None);
    let accounts = [("light", 100), ("middle", 200), ("heavy", 500)]
        .map(|(name, weight)| host.account(name, AccountLimits { weight, ..AccountLimits::default() }));
    let plugin = hostile(&host, &accounts[0]).await;
    let mut spinning = tokio::task::JoinSet::new();
    for account in &accounts {
        for _ in 0..4 {
            let mut operator = open(&plugin.clone().with_account(account.clone()), "spin").await.expect("it opens");
            spinning.spawn(async move { process(&mut *operator).await });
        }
    }
    let before = accounts.each_ref().map(|account| account.usage().cpu);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let used: Vec<f64> =
        accounts.iter().zip(before).map(|(account, before)| (account.usage().cpu - before).as_secs_f64()).collect();
    let whole: f64 = used.iter().sum();
    let shares: Vec<String> = used.iter().map(|used| format!("{:.3}", used / whole)).collect();
    println!("shares of weights 100, 200, 500 (0.125, 0.250, 0.625): {}; of {whole:.2} s", shares.join(", "));
    spinning.shutdown().await;
}

/// How long a job of several tasks takes beside endless loops of another account: its tasks wake one another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn measure_a_job_of_several_tasks_beside_endless_loops() {
    for loops in [0, 1, 8] {
        let host = host(Some(2), None);
        let hog = host.account("hog", AccountLimits::default());
        let good = host.account("good", AccountLimits::default());
        let plugin = hostile(&host, &hog).await;
        let mut spinning = tokio::task::JoinSet::new();
        for _ in 0..loops {
            let mut operator = open(&plugin, "spin").await.expect("it opens");
            spinning.spawn(async move { process(&mut *operator).await });
        }
        let text = "name = \"t\"\ncheckpoint = { interval = \"1s\" }\n[source.s]\nconnector = \"generator\"\n\
                    records = 3000000\n[sink.o]\nconnector = \"blackhole\"\ninputs = [\"s\"]\nparallelism = 2\n";
        let pipeline = Pipeline::new(text, []);
        let job = pipeline.job();
        let clock = Clock::system();
        let stopped = watch::Sender::new(false);
        good.run(job.run(Start::Resume, stopped.subscribe())).await.expect("it ends");
        let took = clock.elapsed().as_secs_f64();
        let (cpu, waited) = (good.usage().cpu.as_secs_f64(), good.usage().waited.as_secs_f64());
        println!("beside {loops} loops: {took:.2} s; {cpu:.2} s on a core, {waited:.2} s waited for one");
        spinning.shutdown().await;
    }
}
