use std::sync::atomic::AtomicBool;

use futures::FutureExt;

use super::*;

pub(super) fn accounts(cores: u32, memory_bytes_max: Option<u64>) -> Accounts {
    Accounts::new(cores, memory_bytes_max, Clock::system())
}

fn limits(weight: u32) -> AccountLimits {
    AccountLimits { weight, ..AccountLimits::default() }
}

#[test]
fn an_account_is_the_same_for_everybody_who_asks_while_it_lives() {
    let accounts = accounts(2, None);
    let one = accounts.account("anna", limits(1));
    let two = accounts.account("anna", limits(7));
    assert_eq!(one.limits().weight, 7);
    one.charge(Duration::from_secs(1));
    assert_eq!(two.usage().cpu, Duration::from_secs(1));
    assert_eq!(accounts.all().len(), 1);
    drop((one, two));
    assert!(accounts.all().is_empty());
    assert_eq!(accounts.account("anna", limits(1)).usage(), AccountUsage::default());
}

#[tokio::test]
async fn what_runs_under_an_account_knows_it_and_is_charged_for_it() {
    let accounts = accounts(1, None);
    let account = accounts.account("anna", limits(1));
    assert!(Account::current().is_none());
    let name = account
        .run(async {
            tokio::task::yield_now().await;
            account.run(async { Account::current().map(|account| account.name().to_owned()) }).await
        })
        .await;
    assert_eq!(name.as_deref(), Some("anna"));
    assert!(Account::current().is_none());
    assert!(account.usage().cpu > Duration::ZERO);
}

#[tokio::test]
async fn more_tasks_than_slots_all_come_to_their_end() {
    let accounts = accounts(2, None);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20u32 {
        let ceiling = AccountLimits { cpu_cores: Some(0.5), ..limits(number % 3) };
        let account = accounts.account(["a", "b", "c"][number as usize % 3], ceiling);
        tasks.spawn(async move {
            account
                .run(async {
                    for _ in 0..100 {
                        yield_now().await;
                        tokio::task::yield_now().await;
                        breathe().await;
                    }
                })
                .await;
        });
    }
    assert_eq!(tasks.join_all().await.len(), 20);
}

#[tokio::test]
async fn a_slot_comes_back_from_who_is_dropped_and_from_who_panics() {
    let accounts = accounts(1, None);
    let account = accounts.account("anna", limits(1));
    // Goes on and is never polled again.
    let mut lost = Box::pin(account.run(async {
        loop {
            yield_now().await;
        }
    }));
    assert!((&mut lost).now_or_never().is_none());
    let ran = AtomicBool::new(false);
    let mut next = Box::pin(account.run(async { ran.store(true, Ordering::SeqCst) }));
    assert!((&mut next).now_or_never().is_none());
    drop(lost);
    next.await;
    assert!(ran.load(Ordering::SeqCst));
    let panics = std::panic::AssertUnwindSafe(account.run(async { panic!("on purpose") })).catch_unwind();
    assert!(panics.await.is_err());
    account.run(async {}).await;
}

#[test]
fn instances_are_counted_by_account() {
    let accounts = accounts(1, None);
    let account = accounts.account("anna", AccountLimits { instances: Some(1), ..limits(1) });
    let place = account.instance().expect("the first");
    let error = account.instance().expect_err("one too many").to_string();
    assert_eq!(error, "quota of anna, 1 plugin instances: 2");
    assert_eq!(account.usage().instances, 1);
    drop(place);
    account.instance().expect("the first one's place");
}

#[test]
fn lines_beyond_the_rate_of_an_account_are_counted() {
    let accounts = accounts(1, None);
    let account = accounts.account("anna", AccountLimits { log_lines_per_second: Some(2), ..limits(1) });
    let admitted = (0..50).filter(|_| account.admits_line()).count();
    assert!((2..4).contains(&admitted), "{admitted}");
    assert_eq!(account.usage().log_lines_dropped, 50 - admitted as u64);
}
