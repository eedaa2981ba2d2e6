//! The `weir` command: parse, set up logging, call, turn the result into text and an exit code.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = weir::cli::Cli::parse();
    weir::cli::start_logging(cli.log_format());
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.report());
            ExitCode::from(error.kind().exit_code())
        }
    }
}
