//! A future that is polled under an account: the slot that it has meanwhile, and what the thread knows of it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use super::slots::Seat;
use super::stride::SLICE;
use super::{Account, nanos};

/// What is being polled on this thread.
struct Current {
    account: Account,
    /// When the poll began.
    began: Duration,
    /// How long it has waited for slots, over all polls.
    waited: Duration,
    /// It wants to go on as soon as others have had the thread.
    goes_on: bool,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// The account under which this thread polls.
pub(super) fn current() -> Option<Account> {
    CURRENT.with_borrow(|current| current.as_ref().map(|current| current.account.clone()))
}

/// Takes the note of what is being polled away again, also when that panics.
struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.take();
    }
}

/// Something that is polled under an account, or as it is without one.
pub(crate) struct Place<'a> {
    account: Option<&'a Account>,
    seat: Seat,
    waited: Duration,
}

impl<'a> Place<'a> {
    /// Of work that has not begun.
    pub(crate) fn new(account: Option<&'a Account>) -> Self {
        Self { account: account.filter(|account| !account.0.is_free), seat: Seat::Out, waited: Duration::ZERO }
    }

    /// How long it has waited for slots, or whoever polls it.
    pub(crate) fn waited(&self) -> Duration {
        let waiting = match (&self.seat, self.account) {
            (Seat::Waiting { since, .. }, Some(account)) => account.0.shared.cpu.now().saturating_sub(*since),
            _ => Duration::ZERO,
        };
        let outer = CURRENT.with_borrow(|current| current.as_ref().map_or(Duration::ZERO, |current| current.waited));
        self.waited + waiting + outer
    }

    /// Polls `work` with a slot.
    pub(crate) fn poll<F: Future>(&mut self, context: &mut Context<'_>, work: Pin<&mut F>) -> Poll<F::Output> {
        let Some(account) = self.account else { return work.poll(context) };
        if CURRENT.with_borrow(Option::is_some) {
            return work.poll(context);
        }
        let slots = &account.0.shared.cpu;
        let Poll::Ready(waited) = slots.poll_enter(account.key(), &mut self.seat, context) else {
            return Poll::Pending;
        };
        if !waited.is_zero() {
            self.waited += waited;
            account.0.waited_nanos.fetch_add(nanos(waited), Ordering::Relaxed);
        }
        let began = slots.now();
        let current = Current { account: account.clone(), began, waited: self.waited, goes_on: false };
        CURRENT.set(Some(current));
        let entered = Entered;
        let polled = work.poll(context);
        let goes_on = CURRENT.with_borrow(|current| current.as_ref().is_some_and(|current| current.goes_on));
        drop(entered);
        let used = slots.now().saturating_sub(began);
        account.add_cpu(used);
        if polled.is_pending() && goes_on {
            slots.again(account.key(), &mut self.seat, used, context);
        } else {
            slots.leave(account.key(), &mut self.seat, used);
        }
        polled
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(account) = self.account {
            account.0.shared.cpu.leave(account.key(), &mut self.seat, Duration::ZERO);
        }
    }
}

/// Says that the task that is being polled is about to yield and wants to go on.
pub(crate) fn goes_on() {
    CURRENT.with_borrow_mut(|current| {
        if let Some(current) = current {
            current.goes_on = true;
        }
    });
}

/// Lets other tasks have the thread, and others the slot if they are before this one.
pub async fn yield_now() {
    goes_on();
    tokio::task::yield_now().await;
}

/// Lets others have the slot if somebody waits and this task has had it for a slice: for loops that never wait for
/// anything.
pub async fn breathe() {
    let is_over = CURRENT.with_borrow(|current| {
        current.as_ref().is_some_and(|Current { account, began, .. }| {
            let slots = &account.0.shared.cpu;
            (account.key().1 || slots.is_contended()) && slots.now().saturating_sub(*began) >= SLICE
        })
    });
    if is_over {
        yield_now().await;
    }
}
