//! Asking the user. One thread reads standard input for the whole process: a question that is given up leaves nobody behind who would take the answer
//! to the next.

use std::io::{BufRead, IsTerminal, Write};

use tokio::sync::mpsc;

use crate::cli::progress::LogWriter;

/// Lines that may wait; who types more waits.
const LINES_MAX: usize = 16;

/// The one who may be asked.
#[derive(Debug, Default)]
pub(super) struct Terminal(Option<mpsc::Receiver<String>>);

/// Ends the line of a question that nobody has answered.
struct Asked(bool);

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.0 {
            let _ = writeln!(LogWriter::new());
        }
    }
}

impl Terminal {
    /// Whether somebody is there to be asked.
    pub(super) fn is_there() -> bool {
        std::io::stdin().is_terminal()
    }

    /// Asks for yes or no. What was typed before the question is no answer to it.
    pub(super) async fn confirms(&mut self, question: &str) -> bool {
        // SAFETY: it takes a file descriptor that is open, and forgets what was typed on it and not read.
        unsafe { libc::tcflush(libc::STDIN_FILENO, libc::TCIFLUSH) };
        let lines = self.0.get_or_insert_with(read_lines);
        while lines.try_recv().is_ok() {}
        let _ = write!(LogWriter::new(), "dev: {question} [y/N] ");
        let mut asked = Asked(false);
        let answer = lines.recv().await;
        asked.0 = answer.is_some();
        answer.is_some_and(|answer| matches!(answer.trim(), "y" | "Y" | "yes"))
    }
}

fn read_lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    let read = move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    };
    // Without it nobody answers, and that is a no.
    if let Err(error) = std::thread::Builder::new().name("weir-dev-answers".to_owned()).spawn(read) {
        tracing::warn!(%error, "answers cannot be read");
    }
    receiver
}
