//! Slots: as many as may work at once, handed out by `stride.rs`.
//!
//! A future that runs under an account has a slot while it is polled, and gives it back when it waits for something.
//! Where nobody waits for a slot, taking one and giving it back are one atomic operation each, and the decision is not
//! asked: capacity that nobody else wanted is not counted against anybody.
//!
//! ```text
//!            ┌────────────────── goes on, and nobody is before it ─────────────────┐
//!            ▼                                                                     │
//! Out ─► Waiting ─► granted, woken ─► In: polled ─► waits for something ─► Out     │
//!  └───── nobody waits, one is free ──►┘   └─► yields and wants to go on ──────────┴─► Waiting
//! ```
//!
//! A slot that was granted and is not taken up in [`STALE`] goes to the next: whoever it was for is not being polled,
//! and must not keep others from working.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Sleep;

use super::stride::{AccountId, Rules, Stride, Ticket};
use crate::clock::Clock;

/// After so long a granted slot that nobody takes up goes to the next. Whoever waits looks at it as often.
const STALE: Duration = Duration::from_millis(50);

/// One that waits, in [`Slots::gate`]; the rest of it is how many slots are free.
const ONE_WAITS: u64 = 1 << 32;

/// See the module.
#[derive(Debug)]
pub(super) struct Slots {
    /// How many wait, and how many slots are free. While somebody waits it changes only under the lock.
    gate: AtomicU64,
    book: Mutex<Book>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Book {
    stride: Stride,
    next: Ticket,
    /// Those that wait.
    wakers: HashMap<Ticket, Waker>,
    /// Those that have a slot and have not taken it up, and since when.
    granted: HashMap<Ticket, (AccountId, Duration)>,
}

/// What somebody has of a slot.
#[derive(Debug, Default)]
pub(super) enum Seat {
    /// Nothing.
    #[default]
    Out,
    /// A place in the queue.
    Waiting {
        ticket: Ticket,
        since: Duration,
        /// When it looks whether something has changed that nobody tells.
        look: Pin<Box<Sleep>>,
    },
    /// A slot; `picked`: as a turn that has to be settled.
    In { picked: bool },
}

impl Slots {
    pub(super) fn new(slots: u32, clock: Clock) -> Self {
        Self { gate: AtomicU64::new(slots.max(1).into()), book: Mutex::default(), clock }
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Whether somebody waits.
    pub(super) fn is_contended(&self) -> bool {
        self.gate.load(Ordering::Relaxed) >= ONE_WAITS
    }

    pub(super) fn set(&self, account: AccountId, rules: Rules) {
        self.book().stride.set(account, rules, self.now());
    }

    /// Nobody of it waits or runs any more.
    pub(super) fn remove(&self, account: AccountId) {
        self.book().stride.remove(account);
    }

    /// An account has used so much outside of a slot.
    pub(super) fn charge(&self, account: AccountId, used: Duration) {
        self.book().stride.charge(account, used, self.now());
    }

    /// Takes a slot, or waits for one. `always`: the account has rules that are to be asked also when nobody waits.
    /// Says how long it has waited.
    pub(super) fn poll_enter(
        &self,
        (account, always): (AccountId, bool),
        seat: &mut Seat,
        context: &mut Context<'_>,
    ) -> Poll<Duration> {
        match seat {
            Seat::In { .. } => return Poll::Ready(Duration::ZERO),
            Seat::Out if !always && self.take_free() => {
                *seat = Seat::In { picked: false };
                return Poll::Ready(Duration::ZERO);
            }
            Seat::Out => {
                let now = self.now();
                let mut book = self.book();
                let ticket = self.enqueue(&mut book, account, false);
                let woken = self.hand_out(&mut book, now);
                *seat = self.seat(&mut book, account, ticket, now, context);
                drop(book);
                wake(woken);
            }
            Seat::Waiting { .. } => {}
        }
        let waited = self.poll_waiting(account, seat, context);
        if waited.is_ready() {
            *seat = Seat::In { picked: true };
        }
        waited
    }

    /// A place in the queue, looked at again.
    fn poll_waiting(&self, account: AccountId, seat: &mut Seat, context: &mut Context<'_>) -> Poll<Duration> {
        let Seat::Waiting { ticket, since, look } = seat else { return Poll::Ready(Duration::ZERO) };
        loop {
            let now = self.now();
            let mut book = self.book();
            let mut is_mine = book.granted.remove(ticket).is_some();
            let mut woken = Vec::new();
            if !is_mine {
                if !book.wakers.contains_key(ticket) {
                    // It was granted, and came too late.
                    *ticket = self.enqueue(&mut book, account, true);
                }
                self.take_back(&mut book, now);
                woken = self.hand_out(&mut book, now);
                is_mine = book.granted.remove(ticket).is_some();
            }
            if is_mine {
                book.wakers.remove(ticket);
            } else {
                book.wakers.insert(*ticket, context.waker().clone());
            }
            let next = (!is_mine && look.is_elapsed()).then(|| self.next_look(&mut book, account, now));
            drop(book);
            wake(woken);
            if is_mine {
                return Poll::Ready(now.saturating_sub(*since));
            }
            if let Some(next) = next {
                *look = next;
            }
            if look.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Gives a slot back that was used for so long, or a place in the queue.
    pub(super) fn leave(&self, (account, always): (AccountId, bool), seat: &mut Seat, used: Duration) {
        match std::mem::take(seat) {
            Seat::Out => {}
            Seat::In { picked: false } if !always && self.give_back() => {}
            Seat::In { picked } => {
                let now = self.now();
                let mut book = self.book();
                settle(&mut book, account, picked, used, now);
                self.gate.fetch_add(1, Ordering::SeqCst);
                let woken = self.hand_out(&mut book, now);
                drop(book);
                wake(woken);
            }
            Seat::Waiting { ticket, .. } => {
                let now = self.now();
                let mut book = self.book();
                if book.granted.remove(&ticket).is_some() {
                    book.stride.done(account, Duration::ZERO, now);
                    self.gate.fetch_add(1, Ordering::SeqCst);
                } else if book.wakers.remove(&ticket).is_some() {
                    book.stride.cancel(account, ticket);
                    self.gate.fetch_sub(ONE_WAITS, Ordering::SeqCst);
                }
                let woken = self.hand_out(&mut book, now);
                drop(book);
                wake(woken);
            }
        }
    }

    /// Whoever has a slot has used it for so long, lets others have its thread, and wants to go on: keeps the slot if
    /// nobody is before it, and else waits. It is being woken already.
    pub(super) fn again(
        &self,
        (account, always): (AccountId, bool),
        seat: &mut Seat,
        used: Duration,
        context: &mut Context<'_>,
    ) {
        let Seat::In { picked } = *seat else { return };
        if !always && !self.is_contended() {
            return;
        }
        let now = self.now();
        let mut book = self.book();
        settle(&mut book, account, picked, used, now);
        // First in the queue, then out of the slot: nobody slips past in between.
        let ticket = self.enqueue(&mut book, account, true);
        self.gate.fetch_add(1, Ordering::SeqCst);
        let woken = self.hand_out(&mut book, now);
        *seat = self.seat(&mut book, account, ticket, now, context);
        drop(book);
        wake(woken);
    }

    /// Where somebody with this ticket is after slots were handed out: in one, or waiting.
    fn seat(&self, book: &mut Book, account: AccountId, ticket: Ticket, now: Duration, context: &Context<'_>) -> Seat {
        if book.granted.remove(&ticket).is_some() {
            return Seat::In { picked: true };
        }
        book.wakers.insert(ticket, context.waker().clone());
        Seat::Waiting { ticket, since: now, look: self.next_look(book, account, now) }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a free slot if nobody waits.
    fn take_free(&self) -> bool {
        let take = |gate: u64| (0 < gate && gate < ONE_WAITS).then(|| gate - 1);
        self.gate.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
    }

    /// Gives a slot back if nobody waits.
    fn give_back(&self) -> bool {
        let give = |gate: u64| (gate < ONE_WAITS).then_some(gate + 1);
        self.gate.fetch_update(Ordering::SeqCst, Ordering::SeqCst, give).is_ok()
    }

    fn enqueue(&self, book: &mut Book, account: AccountId, again: bool) -> Ticket {
        self.gate.fetch_add(ONE_WAITS, Ordering::SeqCst);
        let ticket = book.next;
        book.next += 1;
        book.stride.enqueue(account, ticket, again);
        ticket
    }

    /// Hands out slots while there are some, and somebody who may have one. Says whom to wake, without the lock.
    fn hand_out(&self, book: &mut Book, now: Duration) -> Vec<Waker> {
        let mut woken = Vec::new();
        while !self.gate.load(Ordering::SeqCst).is_multiple_of(ONE_WAITS)
            && let Some((account, ticket)) = book.stride.pick(now)
        {
            self.gate.fetch_sub(ONE_WAITS + 1, Ordering::SeqCst);
            book.granted.insert(ticket, (account, now));
            woken.extend(book.wakers.remove(&ticket));
        }
        woken
    }

    /// Takes back what was granted too long ago.
    fn take_back(&self, book: &mut Book, now: Duration) {
        let Book { stride, granted, .. } = book;
        granted.retain(|_, (account, since)| {
            let is_stale = now.saturating_sub(*since) > STALE;
            if is_stale {
                stride.done(*account, Duration::ZERO, now);
                self.gate.fetch_add(1, Ordering::SeqCst);
            }
            !is_stale
        });
    }

    fn next_look(&self, book: &mut Book, account: AccountId, now: Duration) -> Pin<Box<Sleep>> {
        let held_back = book.stride.held_back(account, now);
        let pause = if held_back.is_zero() { STALE } else { held_back.min(STALE) };
        Box::pin(tokio::time::sleep(pause))
    }
}

fn settle(book: &mut Book, account: AccountId, picked: bool, used: Duration, now: Duration) {
    if picked { book.stride.done(account, used, now) } else { book.stride.charge(account, used, now) }
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

/// A slot that is kept over waits, for work that is done elsewhere.
#[derive(Debug)]
pub(super) struct Turn {
    slots: Arc<Slots>,
    account: AccountId,
    seat: Seat,
    /// What it is charged when it ends.
    pub(super) used: Duration,
}

impl Turn {
    /// Waits for one.
    pub(super) async fn wait(slots: &Arc<Slots>, account: AccountId) -> Self {
        let mut turn = Self { slots: Arc::clone(slots), account, seat: Seat::Out, used: Duration::ZERO };
        std::future::poll_fn(|context| turn.slots.poll_enter((account, true), &mut turn.seat, context)).await;
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.slots.leave((self.account, true), &mut self.seat, self.used);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::task::noop_waker;

    use super::*;

    const FREE: (AccountId, bool) = (1, false);
    const RULED: (AccountId, bool) = (2, true);

    fn slots(count: u32) -> Slots {
        let slots = Slots::new(count, Clock::manual(0));
        for account in [1, 2] {
            slots.set(account, Rules { weight: 100, ceiling: None, at_once: u32::MAX });
        }
        slots
    }

    fn gate(slots: &Slots) -> (u64, u64) {
        let gate = slots.gate.load(Ordering::SeqCst);
        (gate / ONE_WAITS, gate % ONE_WAITS)
    }

    #[tokio::test]
    async fn a_slot_goes_to_who_waits_and_back_when_nobody_does() {
        let waker = noop_waker();
        let mut context = Context::from_waker(&waker);
        let slots = slots(1);
        let (mut one, mut two, mut three) = (Seat::Out, Seat::Out, Seat::Out);
        assert!(slots.poll_enter(FREE, &mut one, &mut context).is_ready());
        assert_eq!(gate(&slots), (0, 0));
        assert!(slots.poll_enter(RULED, &mut two, &mut context).is_pending());
        assert!(slots.poll_enter(FREE, &mut three, &mut context).is_pending());
        assert_eq!(gate(&slots), (2, 0));
        slots.leave(FREE, &mut one, Duration::from_millis(3));
        assert_eq!(gate(&slots), (1, 0));
        // The other account has used less.
        assert!(slots.poll_enter(FREE, &mut three, &mut context).is_pending());
        assert!(slots.poll_enter(RULED, &mut two, &mut context).is_ready());
        slots.leave(RULED, &mut two, Duration::from_millis(1));
        slots.leave(FREE, &mut three, Duration::ZERO);
        assert_eq!(gate(&slots), (0, 1));
    }

    #[tokio::test]
    async fn whoever_goes_on_keeps_its_slot_until_another_is_before_it() {
        let waker = noop_waker();
        let mut context = Context::from_waker(&waker);
        let slots = slots(1);
        let (mut one, mut two) = (Seat::Out, Seat::Out);
        assert!(slots.poll_enter(FREE, &mut one, &mut context).is_ready());
        // Alone, it owes nothing for what it has used.
        slots.again(FREE, &mut one, Duration::from_secs(100), &mut context);
        assert!(matches!(one, Seat::In { .. }));
        assert!(slots.poll_enter(RULED, &mut two, &mut context).is_pending());
        slots.again(FREE, &mut one, Duration::from_millis(1), &mut context);
        assert!(matches!(one, Seat::Waiting { .. }));
        assert!(slots.poll_enter(RULED, &mut two, &mut context).is_ready());
        slots.again(RULED, &mut two, Duration::from_micros(1), &mut context);
        assert!(matches!(two, Seat::In { .. }), "one has used more");
        drop(slots);
    }

    #[tokio::test]
    async fn a_slot_that_nobody_takes_up_goes_to_the_next_and_nothing_is_lost() {
        let waker = noop_waker();
        let mut context = Context::from_waker(&waker);
        let slots = slots(1);
        let (mut one, mut two, mut three) = (Seat::Out, Seat::Out, Seat::Out);
        assert!(slots.poll_enter(FREE, &mut one, &mut context).is_ready());
        assert!(slots.poll_enter(RULED, &mut two, &mut context).is_pending());
        assert!(slots.poll_enter(FREE, &mut three, &mut context).is_pending());
        slots.leave(FREE, &mut one, Duration::from_millis(1));
        slots.clock.advance(STALE * 2);
        assert!(
            slots.poll_enter(FREE, &mut three, &mut context).is_ready(),
            "the second was granted it and never came"
        );
        assert!(slots.poll_enter(RULED, &mut two, &mut context).is_pending());
        slots.leave(FREE, &mut three, Duration::ZERO);
        assert!(slots.poll_enter(RULED, &mut two, &mut context).is_ready());
        slots.leave(RULED, &mut two, Duration::ZERO);
        assert_eq!(gate(&slots), (0, 1));
    }

    #[tokio::test]
    async fn a_turn_ends_when_it_is_dropped() {
        let slots = Arc::new(slots(1));
        let turn = Turn::wait(&slots, 1).await;
        let mut second = Box::pin(Turn::wait(&slots, 2));
        assert!((&mut second).now_or_never().is_none());
        drop(turn);
        drop((&mut second).now_or_never().expect("its turn"));
        assert_eq!(gate(&slots), (0, 1));
    }
}
