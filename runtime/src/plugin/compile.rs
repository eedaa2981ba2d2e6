//! Compiling in a process of its own.
//!
//! What a compiler makes of a component of others, and how long and in how much memory, is in the hands of whoever wrote the component. So it works in
//! a child process, which is this very program: with limits on memory, CPU time, wall-clock time and what it may write, without the environment
//! (there may be credentials in it), and in the background of what runs. When it crosses a limit it ends, and nothing else does.
//!
//! ```text
//! parent ── component (a file without a name, as standard input) ──► child: instrument, compile ── code (such a file) ──► parent
//! ```
//!
//! The child is not a sandbox: the code that comes back is run. What the compiler refuses comes back as text.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use wasmtime::Engine;
use wasmtime::component::Component;

use super::limits::{bytes, clean};
use super::{PluginError, engine, instrument};

/// The name of the command that compiles.
pub const COMMAND: &str = "compile-plugin";
/// How much of what the child says is kept.
const TEXT_BYTES_MAX: u64 = 4 << 10;

/// What one compilation may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct CompileLimits {
    /// Memory, in bytes. Default 4 GiB; an interpreter with its library takes 1.
    #[arg(long)]
    pub memory_bytes: u64,
    /// CPU time of all its threads, in seconds; default 900.
    #[arg(long)]
    pub cpu_seconds: u32,
    /// Wall-clock time, in seconds; default 900.
    #[arg(long)]
    pub wall_seconds: u32,
    /// What it may write: the compiled code, in bytes. Default 1 GiB.
    #[arg(long)]
    pub code_bytes: u64,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self { memory_bytes: 4 << 30, cpu_seconds: 900, wall_seconds: 900, code_bytes: 1 << 30 }
    }
}

/// A program that compiles: this one.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// A `weir` of the same build.
    pub program: PathBuf,
    /// For each compilation.
    pub limits: CompileLimits,
}

impl Compiler {
    /// The program that runs now, also when another has taken its place on disk meanwhile. None if it cannot be found.
    pub fn this_program() -> Option<Self> {
        let running = Path::new("/proc/self/exe");
        let program = if running.exists() { running.to_owned() } else { std::env::current_exe().ok()? };
        Some(Self { program, limits: CompileLimits::default() })
    }

    /// Compiled code, as `Component::deserialize` takes it. With `instrumented`, of the component with accessors to its state, if it can
    /// have them. And how much CPU time that took, if it was begun.
    pub(super) fn compile(
        &self,
        component: &[u8],
        instrumented: bool,
    ) -> (Result<Vec<u8>, PluginError>, Option<Duration>) {
        let mut used = None;
        (self.run(component, instrumented, &mut used), used)
    }

    fn run(&self, component: &[u8], instrumented: bool, used: &mut Option<Duration>) -> Result<Vec<u8>, PluginError> {
        let io = |what: &str, error: io::Error| PluginError::Compile(format!("{what}: {error}"));
        let no_file = |error| io("no temporary file", error);
        let mut input = tempfile::tempfile().map_err(no_file)?;
        input.write_all(component).and_then(|()| input.rewind()).map_err(no_file)?;
        let (mut code, mut text) = (tempfile::tempfile().map_err(no_file)?, tempfile::tempfile().map_err(no_file)?);
        let CompileLimits { memory_bytes, cpu_seconds, wall_seconds, code_bytes } = self.limits;
        let mut child = Command::new(&self.program);
        child.arg(COMMAND);
        for (name, value) in [
            ("--memory-bytes", memory_bytes),
            ("--cpu-seconds", cpu_seconds.into()),
            ("--wall-seconds", wall_seconds.into()),
            ("--code-bytes", code_bytes),
        ] {
            child.arg(name).arg(value.to_string());
        }
        child.args(instrumented.then_some("--instrumented"));
        child.env_clear().current_dir("/").stdin(Stdio::from(input));
        child.stdout(Stdio::from(code.try_clone().map_err(no_file)?));
        child.stderr(Stdio::from(text.try_clone().map_err(no_file)?));
        let child = child.spawn().map_err(|error| io("cannot start a process that compiles", error))?;
        let (status, time) = wait(child).map_err(|error| io("cannot wait for the process that compiles", error))?;
        *used = Some(time);
        if status.success() {
            let mut compiled = Vec::new();
            code.rewind().and_then(|()| code.read_to_end(&mut compiled)).map_err(|error| io("code", error))?;
            return Ok(compiled);
        }
        let said = said(&mut text).map_err(|error| io("what the compiler says", error))?;
        Err(self.limits.crossed(status, &said).unwrap_or_else(|| {
            let said = if said.is_empty() { format!("the compiler ended with {status}") } else { said };
            PluginError::Compile(said)
        }))
    }
}

/// Waits for the end of a child. Says how it ended, and how much CPU time it took.
fn wait(child: Child) -> io::Result<(ExitStatus, Duration)> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: every bit pattern is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values that live until the call returns. The child is waited for here and nowhere
    // else.
    while unsafe { libc::wait4(pid, &mut status, 0, &mut usage) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let time = |time: libc::timeval| {
        let whole = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default());
        whole + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or_default())
    };
    Ok((ExitStatus::from_raw(status), time(usage.ru_utime) + time(usage.ru_stime)))
}

/// The end of what the child has said.
fn said(text: &mut File) -> io::Result<String> {
    let length = text.seek(SeekFrom::End(0))?;
    text.seek(SeekFrom::Start(length.saturating_sub(TEXT_BYTES_MAX)))?;
    let mut said = Vec::new();
    text.take(TEXT_BYTES_MAX).read_to_end(&mut said)?;
    Ok(clean(String::from_utf8_lossy(&said).trim(), TEXT_BYTES_MAX as usize))
}

impl CompileLimits {
    /// Which limit ended the child, if one did.
    fn crossed(&self, status: ExitStatus, said: &str) -> Option<PluginError> {
        let crossed = |what, limit| Some(PluginError::CompileLimit { what, limit });
        match status.signal() {
            Some(libc::SIGXCPU) => crossed("CPU time", format!("{} s", self.cpu_seconds)),
            Some(libc::SIGALRM) => crossed("time", format!("{} s", self.wall_seconds)),
            Some(libc::SIGXFSZ) => crossed("code", bytes(self.code_bytes)),
            // The system says no in more than one way.
            _ if ["memory allocation of", "annot allocate memory", "ailed to spawn thread"]
                .iter()
                .any(|no| said.contains(no)) =>
            {
                crossed("memory", bytes(self.memory_bytes))
            }
            _ => None,
        }
    }

    /// Sets them for the process that runs, for good.
    fn set(&self) -> io::Result<()> {
        let set = |resource, most: u64| {
            // At the first the process gets a signal that says which it was; at the second it is killed, whatever it makes of the first.
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most + 1 };
            // SAFETY: the pointer is to a value that lives until the call returns.
            if unsafe { libc::setrlimit(resource, &limit) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        set(libc::RLIMIT_DATA, self.memory_bytes)?;
        set(libc::RLIMIT_CPU, self.cpu_seconds.into())?;
        set(libc::RLIMIT_FSIZE, self.code_bytes)?;
        set(libc::RLIMIT_CORE, 0)?;
        // SAFETY: neither has preconditions. Who cannot be put behind others runs beside them.
        unsafe {
            libc::alarm(self.wall_seconds);
            libc::setpriority(libc::PRIO_PROCESS, 0, 10);
        }
        // SAFETY: as above. When the parent dies nobody waits for the code.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        Ok(())
    }
}

/// The child: limits itself, compiles standard input to standard output.
///
/// # Errors
///
/// Why there is no code, for the parent.
pub fn child(limits: &CompileLimits, instrumented: bool) -> Result<(), String> {
    limits.set().map_err(|error| format!("limits cannot be set: {error}"))?;
    let mut component = Vec::new();
    io::stdin().lock().read_to_end(&mut component).map_err(|error| format!("no component comes: {error}"))?;
    let code = engine::for_compiling().and_then(|engine| code(&engine, &component, instrumented));
    let code = code.map_err(|error| format!("{error:#}"))?;
    io::stdout().lock().write_all(&code).map_err(|error| format!("the code cannot be written: {error}"))
}

/// Compiles with an engine; see [`Compiler::compile`].
pub(super) fn code(engine: &Engine, component: &[u8], instrumented: bool) -> wasmtime::Result<Vec<u8>> {
    // What cannot be instrumented may have no state that an image would have to hold: whoever asks finds out.
    let made = if instrumented { instrument::instrument(component).ok() } else { None };
    Component::from_binary(engine, made.as_deref().unwrap_or(component))?.serialize()
}
