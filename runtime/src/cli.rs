//! The command line: one arm for each command.
//!
//! Data goes to standard output, everything else to standard error. Exit codes are those of
//! [`crate::error::ErrorKind::exit_code`]; 0 is success, 2 also what the argument parser answers to a wrong call.

use clap::{Args, Parser, Subcommand};

use crate::error::{Error, ErrorKind};
use crate::plugin::compile::{self, CompileLimits};

mod control;
mod dev;
mod diff;
mod gc;
mod inspect;
mod metrics;
mod output;
mod pipeline;
mod plugin;
mod progress;
mod remote;
mod replay;
mod run;
mod savepoint;
mod serve;
mod sink;
mod socket;
mod start_from;
mod txn;
mod upgrade;

pub use output::start_logging;
pub use serve::LogFormat;

/// A stream runtime whose operators are WebAssembly components, with exactly-once state.
#[derive(Debug, Parser)]
#[command(name = "weir", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 the job failed; 2 wrong call or pipeline file; 3 a plugin cannot be used, or does not pass its test; 4 what is stored cannot be used; \
5 the store or a file system does not answer; 6 a newer run of the job took over; 7 a replay differs from what is recorded.

WEIR_LOG sets what is logged to standard error: error, warn, info (the default), debug, trace; or by module, \
as in WEIR_LOG=weir::job=debug.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a pipeline until it finishes; an interrupt stops it with a last checkpoint
    Run(run::RunArgs),
    /// Run a pipeline while its plugins are written: what changes is built and takes over at a barrier, with its state
    Dev(dev::DevArgs),
    /// Check a pipeline: its plan, and the guarantee of each path from source to sink
    Check(run::CheckArgs),
    /// Make, build, look into, try and measure plugins
    #[command(subcommand)]
    Plugin(plugin::PluginCommand),
    /// Look at checkpoints, take one, change their settings
    #[command(subcommand)]
    Checkpoint(inspect::CheckpointCommand),
    /// Do a past epoch again and print what one node received and emitted, record by record
    Replay(replay::ReplayArgs),
    /// Keep checkpoints under a name, to start from them later or elsewhere
    #[command(subcommand)]
    Savepoint(savepoint::SavepointCommand),
    /// Serve many tenants over HTTP
    Serve(serve::ServeArgs),
    /// Make and manage the tenants of a server
    #[command(subcommand)]
    Tenant(remote::TenantCommand),
    /// Bring a pipeline to a server, or change it there: its state goes on
    Deploy(remote::DeployArgs),
    /// List the jobs of a tenant on a server
    List(remote::ListArgs),
    /// Start a job on a server that does not run
    Start(remote::StartArgs),
    /// Give a node of a job on a server another number of subtasks
    Rescale(remote::RescaleArgs),
    /// Show what a job on a server logs
    Logs(remote::LogsArgs),
    /// Delete a job on a server that does not run, with all its state
    Delete(remote::DeleteArgs),
    /// Say how a job is getting on, here or on a server
    Status(control::StatusArgs),
    /// Stop a running job with a last checkpoint, here or on a server
    Stop(control::StopArgs),
    /// Put another version of an operator, or another configuration of it, in place of the one that runs
    Upgrade(upgrade::UpgradeArgs),
    /// Look at, finish or give up what a stopped job has prepared and not committed
    #[command(subcommand)]
    Txn(txn::TxnCommand),
    /// Read what an object sink has published
    #[command(subcommand)]
    Sink(sink::SinkCommand),
    /// Compile standard input to standard output, within limits: what this program starts for itself
    #[command(name = compile::COMMAND, hide = true)]
    CompilePlugin(CompileArgs),
}

#[derive(Debug, Args)]
struct CompileArgs {
    #[command(flatten)]
    limits: CompileLimits,
    #[arg(long)]
    instrumented: bool,
}

impl CompileArgs {
    /// What goes wrong is for the parent to read, who makes an error of it.
    fn run(self) -> Result<(), Error> {
        if let Err(text) = compile::child(&self.limits, self.instrumented) {
            eprint!("{text}");
            std::process::exit(ErrorKind::Plugin.exit_code().into());
        }
        Ok(())
    }
}

impl Cli {
    /// How logs of a server are to be written; none for other commands.
    pub fn log_format(&self) -> Option<LogFormat> {
        match &self.command {
            Command::Serve(args) => Some(args.log_format),
            _ => None,
        }
    }

    /// Carries the command out.
    ///
    /// # Errors
    ///
    /// Whatever stops it, with the remedy.
    pub fn run(self) -> Result<(), Error> {
        match self.command {
            Command::Run(args) => args.run(),
            Command::Dev(args) => args.run(),
            Command::Check(args) => args.run(),
            Command::Plugin(command) => command.run(),
            Command::Checkpoint(command) => command.run(),
            Command::Replay(args) => args.run(),
            Command::Savepoint(command) => command.run(),
            Command::Serve(args) => args.run(),
            Command::Tenant(command) => command.run(),
            Command::Deploy(args) => args.run(),
            Command::List(args) => args.run(),
            Command::Start(args) => args.run(),
            Command::Rescale(args) => args.run(),
            Command::Logs(args) => args.run(),
            Command::Delete(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Stop(args) => args.run(),
            Command::Upgrade(args) => args.run(),
            Command::Txn(command) => command.run(),
            Command::Sink(command) => command.run(),
            Command::CompilePlugin(args) => args.run(),
        }
    }
}
