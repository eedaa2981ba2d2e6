//! Merges many channels into one: aligns barriers, takes the minimum watermark, counts who has ended.
//!
//! A pure state machine: what came in on which input goes in, what the task has to do comes out. It does no I/O, reads no
//! clock and holds no records. The task asks [`Inbox::readable`] which inputs it may read from, and obeys the actions.
//!
//! Invariants, each attacked by a test below:
//!
//! 1. (I3) Between an input's barrier and the cut, nothing of that input is read; [`Action::Cut`] comes once all inputs, ended ones
//!    included, have delivered the same barrier.
//! 2. Watermarks that come out grow strictly, and none is beyond the watermark of an input that is neither idle nor ended.
//! 3. A port finishes once, when its last input ends; [`Action::End`] comes once, after every port, and after it only cuts.
//! 4. (I11) A cut's [`InboxState`] and the same inputs afterwards give the same actions as the inbox itself would.

use serde::{Deserialize, Serialize};

use crate::model::{Barrier, END_OF_TIME, Epoch, NO_TIME, Timestamp};

/// What came in, without its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// Records.
    Batch,
    /// A watermark.
    Watermark(Timestamp),
    /// A barrier.
    Barrier(Barrier),
    /// The sender is idle.
    Idle,
    /// The sender has no more records.
    End,
}

/// What the task has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hand the records to this port.
    Pass(u32),
    /// Event time has come to this.
    Advance(Timestamp),
    /// This port has ended.
    Finish(u32),
    /// Take the cut, then send the barrier on.
    Cut(Barrier),
    /// Tell the receivers that there is nothing to wait for.
    Idle,
    /// Every input has ended: tell the receivers.
    End,
}

/// An input broke the order of the protocol: the job fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InboxFault {
    /// Barriers of two epochs met.
    #[error("barrier {came} came while the inputs are being aligned to barrier {waiting}")]
    Gap {
        /// What is waited for.
        waiting: Epoch,
        /// What came.
        came: Epoch,
    },
    /// A barrier came again or went back.
    #[error("barrier {came} came after barrier {last}")]
    Backwards {
        /// The last cut.
        last: Epoch,
        /// What came.
        came: Epoch,
    },
    /// Something other than a barrier came after the end.
    #[error("{0} came on an input that has ended")]
    AfterEnd(&'static str),
    /// Something came from an input that is held.
    #[error("an element was read from an input that is held for barrier {0}")]
    Held(Epoch),
}

/// What of an input is part of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputState {
    /// The last watermark that came.
    pub watermark: Timestamp,
    /// Nothing is expected of it now.
    pub idle: bool,
    /// Nothing is expected of it, ever.
    pub ended: bool,
}

/// What of an inbox is part of a cut. Input `i` is that of the inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxState {
    /// Each input.
    pub inputs: Vec<InputState>,
    /// The last watermark that went out.
    pub watermark: Timestamp,
}

#[derive(Clone, Debug)]
struct Input {
    port: u32,
    state: InputState,
    held: bool,
}

/// Merges many channels into one.
#[derive(Clone, Debug)]
pub struct Inbox {
    inputs: Vec<Input>,
    watermark: Timestamp,
    idle: bool,
    ended: bool,
    aligning: Option<Epoch>,
    last_cut: Option<Epoch>,
}

impl Inbox {
    /// An inbox whose input `i` belongs to port `ports[i]`, at the beginning of a stream.
    pub fn new(ports: &[u32]) -> Self {
        let state = InputState { watermark: NO_TIME, idle: false, ended: false };
        let inputs = ports.iter().map(|&port| Input { port, state, held: false }).collect();
        Self { inputs, watermark: NO_TIME, idle: false, ended: false, aligning: None, last_cut: None }
    }

    /// Takes over the state of a cut. `state` has one entry for each input.
    pub fn restore(&mut self, state: &InboxState) {
        for (input, state) in self.inputs.iter_mut().zip(&state.inputs) {
            input.state = *state;
        }
        self.watermark = state.watermark;
        self.ended = self.inputs.iter().all(|input| input.state.ended);
        self.idle = !self.ended && self.inputs.iter().all(|input| input.state.ended || input.state.idle);
    }

    /// What belongs to the cut that was just taken.
    pub fn state(&self) -> InboxState {
        InboxState { inputs: self.inputs.iter().map(|input| input.state).collect(), watermark: self.watermark }
    }

    /// Whether an input may be read from.
    #[inline]
    pub fn readable(&self, input: usize) -> bool {
        !self.inputs[input].held
    }

    /// Whether no input is held for a barrier: after a barrier came, whether its cut has been taken.
    pub fn is_aligned(&self) -> bool {
        self.aligning.is_none()
    }

    /// Whether nothing is expected of any input now, and of one of them something may come later.
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// Takes one element and appends what the task has to do to `actions`.
    ///
    /// # Errors
    ///
    /// If the input breaks the order of the protocol. The inbox is not used after that.
    pub fn accept(&mut self, input: usize, incoming: Incoming, actions: &mut Vec<Action>) -> Result<(), InboxFault> {
        let from = &mut self.inputs[input];
        if from.held {
            return Err(InboxFault::Held(self.aligning.unwrap_or_default()));
        }
        if from.state.ended {
            match incoming {
                Incoming::Barrier(_) => {}
                Incoming::Batch => return Err(InboxFault::AfterEnd("a batch")),
                Incoming::Watermark(_) => return Err(InboxFault::AfterEnd("a watermark")),
                Incoming::Idle => return Err(InboxFault::AfterEnd("an idle mark")),
                Incoming::End => return Err(InboxFault::AfterEnd("a second end")),
            }
        }
        match incoming {
            Incoming::Batch => {
                from.state.idle = false;
                self.idle = false;
                actions.push(Action::Pass(self.inputs[input].port));
            }
            Incoming::Watermark(time) => {
                from.state.idle = false;
                from.state.watermark = from.state.watermark.max(time);
                self.idle = false;
                self.advance(actions);
            }
            Incoming::Idle => {
                from.state.idle = true;
                self.advance(actions);
            }
            Incoming::End => {
                from.state.ended = true;
                let port = from.port;
                if self.inputs.iter().all(|input| input.port != port || input.state.ended) {
                    actions.push(Action::Finish(port));
                }
                self.advance(actions);
            }
            Incoming::Barrier(barrier) => self.align(input, barrier, actions)?,
        }
        Ok(())
    }

    fn align(&mut self, input: usize, barrier: Barrier, actions: &mut Vec<Action>) -> Result<(), InboxFault> {
        let came = barrier.epoch;
        match (self.aligning, self.last_cut) {
            (Some(waiting), _) if waiting != came => return Err(InboxFault::Gap { waiting, came }),
            // A barrier equal to the last cut's would cut one epoch twice: refused as well.
            (None, Some(last)) if came <= last => return Err(InboxFault::Backwards { last, came }),
            _ => {}
        }
        self.aligning = Some(came);
        self.inputs[input].held = true;
        if self.inputs.iter().all(|input| input.held) {
            self.aligning = None;
            self.last_cut = Some(came);
            for input in &mut self.inputs {
                input.held = false;
            }
            actions.push(Action::Cut(barrier));
        }
        Ok(())
    }

    /// Works out watermark, idleness and end anew.
    fn advance(&mut self, actions: &mut Vec<Action>) {
        let mut minimum = END_OF_TIME;
        let (mut active, mut idle) = (false, false);
        for InputState { watermark, idle: is_idle, ended } in self.inputs.iter().map(|input| input.state) {
            if ended {
                continue;
            }
            if is_idle {
                idle = true;
            } else {
                active = true;
                minimum = minimum.min(watermark);
            }
        }
        if active {
            if minimum > self.watermark {
                self.watermark = minimum;
                actions.push(Action::Advance(minimum));
            }
        } else if idle {
            if !self.idle {
                self.idle = true;
                actions.push(Action::Idle);
            }
        } else if !self.ended {
            self.ended = true;
            if self.watermark < END_OF_TIME {
                self.watermark = END_OF_TIME;
                actions.push(Action::Advance(END_OF_TIME));
            }
            actions.push(Action::End);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn barrier(epoch: u64) -> Incoming {
        Incoming::Barrier(Barrier { epoch: Epoch(epoch), last: false, complete: None })
    }

    fn accept(inbox: &mut Inbox, input: usize, incoming: Incoming) -> Result<Vec<Action>, InboxFault> {
        let mut actions = Vec::new();
        inbox.accept(input, incoming, &mut actions).map(|()| actions)
    }

    /// What an auditor that knows nothing of the implementation remembers of one history.
    #[derive(Clone, Default)]
    struct Audit {
        barrier_from: Vec<bool>,
        ended: Vec<bool>,
        idle: Vec<bool>,
        watermarks: Vec<Timestamp>,
        out: Option<Timestamp>,
        finished: Vec<u32>,
        end: bool,
    }

    impl Audit {
        fn check(&mut self, ports: &[u32], input: usize, incoming: Incoming, actions: &[Action]) {
            match incoming {
                Incoming::Barrier(_) => self.barrier_from[input] = true,
                Incoming::End => self.ended[input] = true,
                Incoming::Idle => self.idle[input] = true,
                Incoming::Watermark(t) => {
                    self.idle[input] = false;
                    self.watermarks[input] = self.watermarks[input].max(t);
                }
                Incoming::Batch => self.idle[input] = false,
            }
            for action in actions {
                match *action {
                    Action::Pass(port) => {
                        assert_eq!(port, ports[input]);
                        assert!(!self.barrier_from[input], "a record of the next epoch before the cut");
                    }
                    Action::Advance(time) => {
                        assert!(self.out.is_none_or(|out| time > out), "watermarks grow");
                        for i in 0..ports.len() {
                            if !self.ended[i] && !self.idle[i] {
                                assert!(time <= self.watermarks[i], "beyond input {i}");
                            }
                        }
                        self.out = Some(time);
                    }
                    Action::Finish(port) => {
                        assert!(!self.finished.contains(&port));
                        assert!((0..ports.len()).all(|i| ports[i] != port || self.ended[i]));
                        self.finished.push(port);
                    }
                    Action::Cut(_) => {
                        assert!(self.barrier_from.iter().all(|&b| b), "a cut before every barrier");
                        self.barrier_from.iter_mut().for_each(|b| *b = false);
                    }
                    Action::Idle => {
                        assert!((0..ports.len()).all(|i| self.ended[i] || self.idle[i]));
                    }
                    Action::End => {
                        assert!(!self.end && self.ended.iter().all(|&e| e));
                        assert_eq!(self.out, Some(END_OF_TIME));
                        self.end = true;
                    }
                }
            }
            assert_eq!(self.end, self.ended.iter().all(|&e| e), "the end is told when it has come");
            assert!(!self.barrier_from.iter().all(|&b| b), "every barrier there and no cut");
        }
    }

    /// Every history of three inputs on two ports, five elements long.
    #[test]
    fn all_short_histories_keep_the_invariants() {
        let ports = [0, 0, 1];
        let audit = Audit {
            barrier_from: vec![false; 3],
            ended: vec![false; 3],
            idle: vec![false; 3],
            watermarks: vec![NO_TIME; 3],
            ..Audit::default()
        };
        let mut seen = 0;
        explore(&Inbox::new(&ports), &audit, &ports, &[1; 3], 5, &mut seen);
        assert!(seen > 100_000, "{seen} histories");
    }

    fn explore(inbox: &Inbox, audit: &Audit, ports: &[u32], next: &[u64; 3], depth: u32, seen: &mut u64) {
        *seen += 1;
        if depth == 0 {
            return;
        }
        for input in 0..ports.len() {
            if !inbox.readable(input) {
                assert!(audit.barrier_from[input], "held without a barrier");
                continue;
            }
            let time = 10 * (audit.watermarks[input].max(0) / 10 + 1) + input as i64;
            for incoming in
                [Incoming::Batch, Incoming::Watermark(time), barrier(next[input]), Incoming::Idle, Incoming::End]
            {
                if audit.ended[input] && !matches!(incoming, Incoming::Barrier(_)) {
                    let mut inbox = inbox.clone();
                    assert!(accept(&mut inbox, input, incoming).is_err());
                    continue;
                }
                let (mut inbox, mut audit, mut next) = (inbox.clone(), audit.clone(), *next);
                let actions = accept(&mut inbox, input, incoming).unwrap();
                audit.check(ports, input, incoming, &actions);
                if matches!(incoming, Incoming::Barrier(_)) {
                    next[input] += 1;
                }
                if actions.iter().any(|a| matches!(a, Action::Cut(_))) {
                    // Invariant 4: what is restored from the cut is what goes on.
                    let mut restored = Inbox::new(ports);
                    restored.restore(&inbox.state());
                    restored.last_cut = inbox.last_cut;
                    assert_eq!(format!("{restored:?}"), format!("{inbox:?}"));
                }
                explore(&inbox, &audit, ports, &next, depth - 1, seen);
            }
        }
    }

    #[test]
    fn an_idle_input_does_not_hold_the_watermark_back_and_counts_again_when_it_speaks() {
        let mut inbox = Inbox::new(&[0, 0]);
        assert_eq!(accept(&mut inbox, 0, Incoming::Watermark(10)), Ok(vec![]));
        assert_eq!(accept(&mut inbox, 1, Incoming::Idle), Ok(vec![Action::Advance(10)]));
        assert_eq!(accept(&mut inbox, 0, Incoming::Watermark(20)), Ok(vec![Action::Advance(20)]));
        assert_eq!(accept(&mut inbox, 1, Incoming::Batch), Ok(vec![Action::Pass(0)]));
        assert_eq!(accept(&mut inbox, 0, Incoming::Watermark(30)), Ok(vec![]));
        assert_eq!(accept(&mut inbox, 1, Incoming::Watermark(25)), Ok(vec![Action::Advance(25)]));
        assert_eq!(accept(&mut inbox, 0, Incoming::Idle), Ok(vec![]));
        assert_eq!(accept(&mut inbox, 1, Incoming::Idle), Ok(vec![Action::Idle]));
    }

    #[test]
    fn a_gap_between_barriers_is_a_fault() {
        let mut inbox = Inbox::new(&[0, 0]);
        accept(&mut inbox, 0, barrier(4)).unwrap();
        assert_eq!(accept(&mut inbox, 1, barrier(5)), Err(InboxFault::Gap { waiting: Epoch(4), came: Epoch(5) }));
        let mut inbox = Inbox::new(&[0]);
        accept(&mut inbox, 0, barrier(4)).unwrap();
        assert!(accept(&mut inbox, 0, barrier(4)).is_err());
    }

    #[test]
    fn a_restored_inbox_ends_no_port_twice() {
        let mut inbox = Inbox::new(&[0, 1]);
        assert_eq!(accept(&mut inbox, 0, Incoming::End), Ok(vec![Action::Finish(0)]));
        let mut restored = Inbox::new(&[0, 1]);
        restored.restore(&inbox.state());
        assert!(accept(&mut restored, 0, Incoming::End).is_err());
        assert_eq!(
            accept(&mut restored, 1, Incoming::End),
            Ok(vec![Action::Finish(1), Action::Advance(END_OF_TIME), Action::End])
        );
    }
}
