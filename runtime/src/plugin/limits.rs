//! Why was my plugin stopped? What a guest may use, and what happens at each limit.
//!
//! | what | where it is watched | setting |
//! | --- | --- | --- |
//! | memory | when memory grows | `memory` |
//! | CPU time of a call | at each tick of the engine | `cpu` |
//! | wall-clock time of a call | around the call | `wall` |
//! | output of a call: emitted, rejected, reasons | when it is handed over | `output` |
//! | state of a snapshot | when a chunk is handed over | `state` |
//! | log lines a second | when a line is logged; the rest is counted and dropped | `log_lines` |
//! | what an account may use in all | `account.rs` | its owner's |
//! | stack, tables, instances, series of metrics, texts | below | fixed |
//!
//! Crossing one ends the instance, but for log lines and metrics. A guest learns nothing of it: whatever it would do
//! then would depend on how fast the machine is.

use std::time::Duration;

use wasmtime::{PoolConcurrencyLimitError, ResourceLimiter, Trap, WasmBacktrace};

use super::OperatorError;
use crate::account::{InstanceMemory, Quota};
pub(super) use crate::model::bytes;
use crate::plan::LimitsSpec;

/// From one tick of the engine to the next: CPU time is counted in these, and a guest gives its thread to others
/// once in each.
pub const TICK: Duration = Duration::from_millis(1);

/// Stack of a guest, in bytes, apart from what it keeps in its own memory.
pub(super) const STACK_BYTES_MAX: usize = 512 << 10;

/// Elements of one table: functions that a guest calls through pointers, in practice.
pub(super) const TABLE_ELEMENTS_MAX: usize = 100_000;

/// Linear memories, tables and core instances of one component.
pub(super) const PARTS_MAX: usize = 64;

/// One chunk of state, in bytes. The contract promises at least 1 MiB.
pub(super) const CHUNK_BYTES_MAX: usize = 16 << 20;

/// The reason of a rejected record is cut at this many bytes.
pub(super) const REASON_BYTES_MAX: usize = 1 << 10;

/// A log line and the message of a failure are cut at this many bytes.
pub(super) const TEXT_BYTES_MAX: usize = 4 << 10;

/// Frames of a guest's backtrace.
pub(super) const FRAMES_MAX: usize = 20;

/// What each batch, rejected record and chunk counts for besides its bytes: what the host itself keeps for it.
pub(super) const ITEM_BYTES: u64 = 256;

/// What one call of an import may hand over, besides the output that a call may have in all. The engine counts it before
/// the host sees any of it.
pub(super) const HOSTCALL_BYTES: u64 = 4 << 20;

/// How the engine says that this was crossed. Its type is not public; a test holds the words.
const HOSTCALL_ERROR: &str = "fuel allocated for hostcalls";

/// What `describe` may use: it is called before any configuration is known.
pub(super) fn describe_limits() -> LimitsSpec {
    LimitsSpec {
        memory_bytes: 256 << 20,
        soft_memory_bytes: None,
        cpu: Duration::from_secs(2),
        wall: Duration::from_secs(20),
        output_bytes: 0,
        state_bytes: 0,
        log_lines: 20,
    }
}

/// What ends a call from the host's side; travels through the guest as the error of a host function.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Breach {
    /// A limit was crossed.
    #[error("limit of {limit} {what}: {value}")]
    Limit { what: &'static str, limit: String, value: String, setting: &'static str },
    /// A limit of the account was crossed, or of the process.
    #[error(transparent)]
    Quota(#[from] Quota),
    /// A rule of the contract was broken.
    #[error("{0}")]
    Contract(String),
}

impl Breach {
    /// A limit on bytes.
    pub(super) fn bytes(what: &'static str, limit: u64, value: u64, setting: &'static str) -> Self {
        Self::Limit { what, limit: bytes(limit), value: bytes(value), setting }
    }
}

/// What a guest has used, and how much it may.
#[derive(Debug)]
pub(super) struct Meter {
    limits: LimitsSpec,
    /// All linear memories together.
    memory_bytes: u64,
    /// In the current call.
    ticks: u64,
    /// In the current call.
    output_bytes: u64,
    /// In the current snapshot.
    state_bytes: u64,
    /// The same memory, as its account counts it. None: nobody counts.
    shared: Option<InstanceMemory>,
}

impl Meter {
    pub(super) fn new(limits: LimitsSpec, shared: Option<InstanceMemory>) -> Self {
        Self { limits, memory_bytes: 0, ticks: 0, output_bytes: 0, state_bytes: 0, shared }
    }

    /// Whether the process can still afford the instance.
    pub(super) fn may_stay(&self) -> Result<(), Breach> {
        Ok(self.shared.as_ref().map_or(Ok(()), InstanceMemory::check)?)
    }

    /// All linear memories together.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// What the current call has emitted and rejected so far.
    pub(super) fn output_bytes(&self) -> u64 {
        self.output_bytes
    }

    /// Forgets what the last call used.
    pub(super) fn begin_call(&mut self) {
        self.ticks = 0;
        self.output_bytes = 0;
    }

    /// Forgets what the last snapshot wrote.
    pub(super) fn begin_snapshot(&mut self) {
        self.state_bytes = 0;
    }

    /// A tick of the engine found the guest running. Counts these and not the engine's epochs: epochs go on while others have
    /// the thread.
    pub(super) fn tick(&mut self) -> Result<(), Breach> {
        self.ticks += 1;
        let used = TICK.saturating_mul(u32::try_from(self.ticks).unwrap_or(u32::MAX));
        if used > self.limits.cpu {
            return Err(Breach::Limit {
                what: "CPU time",
                limit: format!("{:?}", self.limits.cpu),
                value: format!("{used:?}"),
                setting: "cpu",
            });
        }
        self.may_stay()
    }

    /// Takes `bytes` of what this call may hand over.
    pub(super) fn spend_output(&mut self, bytes: u64) -> Result<(), Breach> {
        self.output_bytes = self.output_bytes.saturating_add(bytes);
        if self.output_bytes > self.limits.output_bytes {
            return Err(Breach::bytes("output", self.limits.output_bytes, self.output_bytes, "output"));
        }
        Ok(())
    }

    /// Takes `bytes` of what this snapshot may hold.
    pub(super) fn spend_state(&mut self, bytes: u64) -> Result<(), Breach> {
        self.state_bytes = self.state_bytes.saturating_add(bytes);
        if self.state_bytes > self.limits.state_bytes {
            return Err(Breach::bytes("state", self.limits.state_bytes, self.state_bytes, "state"));
        }
        Ok(())
    }

    /// That the call took too long by the clock on the wall.
    pub(super) fn wall(&self) -> Breach {
        let limit = format!("{:?}", self.limits.wall);
        Breach::Limit { what: "wall-clock time", value: format!("more than {limit}"), limit, setting: "wall" }
    }
}

/// Answers with an error rather than "no": a guest that is told "no" aborts with nothing but `unreachable`.
impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let grown = self.memory_bytes.saturating_add(desired.saturating_sub(current) as u64);
        if grown > self.limits.memory_bytes {
            return Err(Breach::bytes("memory", self.limits.memory_bytes, grown, "memory").into());
        }
        // Its own, which says nothing about the others.
        if let Some(maximum) = maximum
            && desired > maximum
        {
            return Err(Breach::bytes("memory", maximum as u64, desired as u64, "").into());
        }
        if let Some(shared) = &self.shared {
            shared.grow(desired.saturating_sub(current) as u64).map_err(Breach::Quota)?;
        }
        self.memory_bytes = grown;
        Ok(true)
    }

    /// The operating system refused. A guest that would notice could act differently in every run.
    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(Breach::Limit { what: "memory", limit: "this machine's".to_owned(), value: error.to_string(), setting: "" }
            .into())
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        if desired > TABLE_ELEMENTS_MAX {
            return Err(Breach::Limit {
                what: "table elements",
                limit: TABLE_ELEMENTS_MAX.to_string(),
                value: desired.to_string(),
                setting: "",
            }
            .into());
        }
        Ok(true)
    }

    /// Each may have an accessor that the host added.
    fn instances(&self) -> usize {
        2 * PARTS_MAX
    }

    fn tables(&self) -> usize {
        PARTS_MAX
    }

    fn memories(&self) -> usize {
        PARTS_MAX
    }
}

/// What the end of a call means. `output_bytes` is the limit on output; `last_error` the last line that the guest logged as
/// an error in this call: a panic handler's words; `printed` is what it printed as errors, a panic handler's words or not.
pub(super) fn operator_error(
    call: &'static str,
    error: &wasmtime::Error,
    output_bytes: u64,
    last_error: Option<&str>,
    printed: &str,
) -> OperatorError {
    if let Some(breach) = error.downcast_ref::<Breach>() {
        return match breach.clone() {
            Breach::Limit { what, limit, value, setting } => OperatorError::Limit { call, what, limit, value, setting },
            Breach::Quota(Quota::Account { account, what, limit, value }) => {
                OperatorError::Quota { call, account, what, limit, value }
            }
            Breach::Quota(Quota::Process { limit, value }) => {
                let (what, limit, value) = ("memory of all plugins in this process", bytes(limit), bytes(value));
                OperatorError::Limit { call, what, limit, value, setting: "" }
            }
            Breach::Contract(what) => OperatorError::Contract { call, what },
        };
    }
    if let Some(full) = error.downcast_ref::<PoolConcurrencyLimitError>() {
        // A component with several memories takes more of the pool than its place says.
        let (what, limit) = ("memories and tables of plugin instances", "the pool's".to_owned());
        return OperatorError::Limit { call, what, limit, value: full.to_string(), setting: "" };
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => OperatorError::Limit {
            call,
            what: "stack",
            limit: bytes(STACK_BYTES_MAX as u64),
            value: "recursion that went deeper".to_owned(),
            setting: "",
        },
        Some(trap) => {
            let backtrace = backtrace(error);
            let mut reason = match last_error {
                Some(said) => said.to_owned(),
                None if printed.is_empty() => trap.to_string(),
                // Who panics prints why, and then does what cannot be done.
                None if *trap == Trap::UnreachableCodeReached => printed.to_owned(),
                None => format!("{trap}; it had printed: {printed}"),
            };
            if *trap == Trap::MemoryOutOfBounds && last_error.is_none() && is_deep_recursion(&backtrace) {
                reason.push_str("; the backtrace looks like recursion that overflowed the stack in its own memory");
            }
            OperatorError::Trap { call, reason, backtrace }
        }
        // Neither ours nor a trap: what it handed over is too much at once, or does not fit the interface.
        None => {
            let cause = error.root_cause().to_string();
            if cause.contains(HOSTCALL_ERROR) {
                let (limit, value) = (bytes(output_bytes), "more in a single list or text".to_owned());
                return OperatorError::Limit { call, what: "output", limit, value, setting: "output" };
            }
            OperatorError::Contract { call, what: clean(&cause, TEXT_BYTES_MAX) }
        }
    }
}

/// The frames of a guest, one a line, innermost first.
fn backtrace(error: &wasmtime::Error) -> String {
    let Some(trace) = error.downcast_ref::<WasmBacktrace>() else { return String::new() };
    let text = trace.to_string();
    // The first line is a heading.
    let frames: Vec<String> = text.lines().skip(1).map(|line| without_hashes(line.trim_end())).collect();
    clean(&frames.join("\n"), 16 << 10)
}

/// A frame without the hashes that compilers put into names: `std[a543996e6e7dbf1e]::run::h91b36249ca60ac1b` is `std::run`.
fn without_hashes(mut line: &str) -> String {
    let is_hash = |text: &[u8]| text.len() == 16 && text.iter().all(u8::is_ascii_hexdigit);
    if let Some((name, hash)) = line.rsplit_once("::h")
        && is_hash(hash.as_bytes())
    {
        line = name;
    }
    let mut plain = String::with_capacity(line.len());
    while let Some((before, after)) = line.split_once('[') {
        plain.push_str(before);
        match after.as_bytes().get(..17) {
            Some([hash @ .., b']']) if is_hash(hash) => line = &after[17..],
            _ => {
                plain.push('[');
                line = after;
            }
        }
    }
    plain + line
}

/// Whether the innermost frames are one function or two over and over.
fn is_deep_recursion(backtrace: &str) -> bool {
    let mut names: Vec<&str> = backtrace.lines().filter_map(|line| line.split(" - ").nth(1)).collect();
    let frames = names.len();
    names.sort_unstable();
    names.dedup();
    frames >= FRAMES_MAX && names.len() <= 4
}

/// Text of a guest for people: cut at `max` bytes, and without control characters that could change what a terminal
/// shows.
pub(super) fn clean(text: &str, max: usize) -> String {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let bad = |c: char| c.is_control() && c != '\n' && c != '\t';
    let mut kept: String = text[..end].chars().map(|c| if bad(c) { char::REPLACEMENT_CHARACTER } else { c }).collect();
    if end < text.len() {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_freed_of_compilers_hashes_and_otherwise_left_alone() {
        for (frame, plain) in [
            ("0: 0x1 - a.wasm!std[a543996e6e7dbf1e]::run::h91b36249ca60ac1b", "0: 0x1 - a.wasm!std::run"),
            ("core[c5930c85a12de822]::f::<std[a543996e6e7dbf1e]::g, !>", "core::f::<std::g, !>"),
            ("<[u8] as a::B>::c[0]", "<[u8] as a::B>::c[0]"),
            ("a::height", "a::height"),
            ("[", "["),
            ("[a543996e6e7dbf1ä]", "[a543996e6e7dbf1ä]"),
        ] {
            assert_eq!(without_hashes(frame), plain);
        }
    }

    #[test]
    fn text_of_a_guest_is_cut_at_a_character_and_cannot_steer_a_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\tc\n", 100), "a\u{fffd}[2Jb\tc\n");
        assert_eq!(clean("ääää", 5), "ää…");
        assert_eq!(clean("ä", 2), "ä");
    }

    #[test]
    fn memory_is_counted_over_all_memories_and_the_error_names_limit_and_value() {
        let mut meter = Meter::new(LimitsSpec { memory_bytes: 1 << 20, ..LimitsSpec::default() }, None);
        assert!(meter.memory_growing(0, 1 << 19, None).is_ok_and(|grow| grow));
        assert!(meter.memory_growing(0, 1 << 19, None).is_ok_and(|grow| grow));
        let error = meter.memory_growing(1 << 19, (1 << 19) + 65_536, None).expect_err("a third would be too much");
        let error = operator_error("process", &error, 0, None, "");
        assert_eq!(error.to_string(), "plugin crossed its limit of 1 MiB memory in process: 1088 KiB");
    }

    #[test]
    fn the_maximum_of_one_memory_is_not_that_of_all() {
        let mut meter = Meter::new(LimitsSpec::default(), None);
        assert!(meter.memory_growing(0, 2 << 16, Some(2 << 16)).is_ok_and(|grow| grow));
        assert!(meter.memory_growing(0, 2 << 16, Some(2 << 16)).is_ok_and(|grow| grow));
        let error = meter.memory_growing(2 << 16, 3 << 16, Some(2 << 16)).expect_err("more than its own maximum");
        let text = operator_error("process", &error, 0, None, "").to_string();
        assert_eq!(text, "plugin crossed its limit of 128 KiB memory in process: 192 KiB");
    }

    #[test]
    fn a_table_may_not_grow_without_end() {
        let mut meter = Meter::new(LimitsSpec::default(), None);
        assert!(meter.table_growing(0, TABLE_ELEMENTS_MAX, None).is_ok_and(|grow| grow));
        let error = meter.table_growing(0, TABLE_ELEMENTS_MAX + 1, None).expect_err("one too many");
        let text = operator_error("open", &error, 0, None, "").to_string();
        assert_eq!(text, "plugin crossed its limit of 100000 table elements in open: 100001");
    }

    #[test]
    fn output_and_state_are_counted_up_to_their_limits() {
        let limits = LimitsSpec { output_bytes: 10, state_bytes: 20, ..LimitsSpec::default() };
        let mut meter = Meter::new(limits, None);
        assert!(meter.spend_output(10).is_ok());
        assert!(meter.spend_output(1).is_err());
        meter.begin_call();
        assert!(meter.spend_output(10).is_ok());
        assert!(meter.spend_state(20).is_ok());
        assert!(meter.spend_state(1).is_err());
        meter.begin_snapshot();
        assert!(meter.spend_state(20).is_ok());
    }
}
