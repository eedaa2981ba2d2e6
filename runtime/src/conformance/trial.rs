//! The undisturbed run, and how another run is compared with it.
//!
//! The undisturbed run goes first, through the whole input, and what it says is kept, stop by stop. Every other run is compared
//! while it goes, one stop at a time, and ends at the first difference: so there is never more in memory than one run and
//! a half.

use super::course::{Course, Cutting, Step, Steps};
use super::finding::Finding;
use super::input::Input;
use super::said::{Difference, Order, Said, ShownRecord};
use super::session::{Session, Share, Subject, Usage};
use super::state::{State, StateDifference};
use crate::plugin::OperatorError;

/// The most bytes of what the undisturbed run says that are kept.
const SAID_BYTES_MAX: usize = 256 << 20;

/// What an undisturbed run came to.
#[derive(Debug)]
pub(super) struct Baseline {
    pub(super) steps: Steps,
    /// By stop.
    said: Vec<Said>,
    /// By stop, how many records each stream had before.
    before: Vec<Vec<usize>>,
    /// After all records, before the end was told; none if it has no state.
    pub(super) state: State,
    pub(super) usage: Usage,
    /// The memory at each cut.
    pub(super) memory: Vec<u64>,
}

/// Why there is no undisturbed run.
#[derive(Debug)]
pub(super) enum Unfinished {
    /// After so many records it had said more than is kept.
    TooMuch(usize),
    /// It failed.
    Failed(Box<Finding>),
}

impl Baseline {
    /// Runs through the input.
    pub(super) async fn run(
        subject: &Subject,
        input: &Input,
        course: &Course,
        steps: Steps,
        cuts: &[usize],
    ) -> Result<Self, Unfinished> {
        let failed = |finding: Finding| Unfinished::Failed(Box::new(finding));
        let mut session = Session::open(subject, Share::ALL, course.begin())
            .await
            .map_err(|error| failed(Finding::failed("open", "it does not open", &error)))?;
        let outputs = subject.outputs();
        let (mut said, mut all, mut bytes) = (Said::new(outputs), Vec::new(), 0);
        let (mut before, mut rows) = (Vec::new(), vec![0; outputs + 1]);
        let (mut state, mut memory) = (State::default(), Vec::new());
        for (number, &step) in steps.steps.iter().enumerate() {
            if cuts.contains(&number) {
                memory.push(session.memory_bytes());
            }
            if number == steps.last {
                state = session.full_state().await.map_err(|error| {
                    failed(Finding::failed("snapshot", "it does not write its state after all records", &error))
                })?;
            }
            if let Err(error) = session.step(number, step, input, &mut said).await {
                return Err(failed(culprit(subject, input, course, &steps, number, error).await));
            }
            if step == Step::Stop {
                bytes += said.bytes();
                if bytes > SAID_BYTES_MAX && number < steps.last {
                    return Err(Unfinished::TooMuch(steps.records_before(number)));
                }
                before.push(rows.clone());
                rows.iter_mut().zip(said.lens()).for_each(|(rows, len)| *rows += len);
                all.push(std::mem::replace(&mut said, Said::new(outputs)));
            }
        }
        if let Err(error) = session.full_state().await {
            return Err(failed(Finding::failed(
                "snapshot",
                "it does not write its state after the end of time",
                &error,
            )));
        }
        Ok(Self { steps, said: all, before, state, usage: session.usage, memory })
    }

    /// What was said up to a stop, by its number.
    pub(super) fn said(&self, stop: usize) -> Option<&Said> {
        self.said.get(stop)
    }
}

/// Which record it was that made a run fail: the same again with batches of one record.
async fn culprit(
    subject: &Subject,
    input: &Input,
    course: &Course,
    steps: &Steps,
    number: usize,
    error: OperatorError,
) -> Finding {
    let step = steps.steps[number];
    let Step::Take(from, to) = step else {
        return Finding {
            input: Some((steps.records_before(number), steps.records_before(number))),
            ..Finding::failed("call", format!("it fails in {}", call(step)), &error)
        };
    };
    let single = course.steps(input, Cutting::Every(1));
    let mut said = Said::new(subject.outputs());
    if let Ok(mut session) = Session::open(subject, Share::ALL, course.begin()).await {
        for (number, &step) in single.steps.iter().enumerate() {
            let Err(error) = session.step(number, step, input, &mut said).await else {
                said = Said::new(subject.outputs());
                if matches!(step, Step::Take(_, at) if at >= to) { break } else { continue }
            };
            let Step::Take(row, _) = step else { break };
            let message = format!("it fails on record {} of the input", row + 1);
            let given = Some(ShownRecord::new(&input.records, row));
            return Finding { input: Some((row + 1, row + 1)), given, ..Finding::failed("call", message, &error) };
        }
    }
    let message = format!("it fails on records {} to {to} of the input together, and on none of them alone", from + 1);
    let given = Some(ShownRecord::new(&input.records, from));
    Finding { input: Some((from + 1, to)), given, ..Finding::failed("call", message, &error) }
}

/// Something to compare with, and what with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial<'a> {
    pub(super) subject: &'a Subject,
    pub(super) input: &'a Input,
    pub(super) course: &'a Course,
    pub(super) baseline: &'a Baseline,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strictness {
    /// Records of different keys may come in another order between two stops.
    pub(super) any_order_across_keys: bool,
    /// The state after all records has to be the same.
    pub(super) state: bool,
}

/// How a run compares with the undisturbed one.
#[derive(Debug)]
pub(super) enum Verdict {
    /// They are the same; the states differ where that was not asked for, and so does the order across keys.
    Same { state: Option<StateDifference>, order: Option<Box<Finding>> },
    /// It says something else.
    Said(Box<Finding>),
    /// It says the same and writes another state.
    State(StateDifference),
    /// It failed at a step.
    Failed(usize, OperatorError),
}

impl Trial<'_> {
    /// Takes a session from a step to the end.
    pub(super) async fn follow(
        &self,
        session: &mut Session,
        steps: &Steps,
        from: usize,
        strictness: Strictness,
    ) -> Verdict {
        let outputs = self.subject.outputs();
        let mut stop = steps.steps.iter().take(from).filter(|step| **step == Step::Stop).count();
        let (mut said, mut begins) = (Said::new(outputs), from);
        let (mut state_note, mut order) = (None, None);
        for (number, &step) in steps.steps.iter().enumerate().skip(from) {
            if number == steps.last {
                match session.full_state().await {
                    Err(error) => return Verdict::Failed(number, error),
                    Ok(state) => match self.baseline.state.difference(&state) {
                        Some(difference) if strictness.state => return Verdict::State(difference),
                        difference => state_note = difference,
                    },
                }
            }
            if let Err(error) = session.step(number, step, self.input, &mut said).await {
                return Verdict::Failed(number, error);
            }
            if step == Step::Stop {
                if let Some(difference) = self.baseline.said(stop).and_then(|with| with.difference(begins, &said)) {
                    let tolerated = strictness.any_order_across_keys && difference.order == Order::AcrossKeys;
                    let finding = self.describe(stop, difference);
                    if !tolerated {
                        return Verdict::Said(Box::new(finding));
                    }
                    order.get_or_insert(Box::new(finding));
                }
                said = Said::new(outputs);
                (begins, stop) = (0, stop + 1);
            }
        }
        Verdict::Same { state: state_note, order }
    }

    /// A difference, with its place in both the output and the input. What is wrong is for the caller to say.
    pub(super) fn describe(&self, stop: usize, difference: Difference) -> Finding {
        let Difference { stream, row, expected, found, step, order } = difference;
        let steps = &self.baseline.steps;
        let before = self.baseline.before.get(stop).and_then(|rows| rows.get(stream)).copied().unwrap_or_default();
        let step = step.filter(|&step| step < steps.steps.len());
        let input = step.map(|number| match steps.steps[number] {
            Step::Take(from, to) => (from + 1, to),
            _ => (steps.records_before(number), steps.records_before(number)),
        });
        Finding {
            kind: match order {
                Order::Differs => "output",
                Order::AcrossKeys | Order::WithinKeys => "order",
            },
            port: Some(self.subject.stream(stream)),
            record: Some(before + row + 1),
            input,
            call: step.map(|number| call(steps.steps[number])),
            expected,
            found,
            ..Finding::default()
        }
    }
}

/// A step for people.
pub(super) fn call(step: Step) -> String {
    match step {
        Step::Take(..) => "process".to_owned(),
        Step::Tick(_) => "wake".to_owned(),
        Step::Advance(crate::model::END_OF_TIME) => "advance to the end of time".to_owned(),
        Step::Advance(_) => "advance".to_owned(),
        Step::Finish(port) => format!("finish of port {port}"),
        Step::Stop => "a stop".to_owned(),
    }
}
