//! What a component finds that prints, reads, looks for a terminal, for folders, or ends its program, as the runtimes of languages do by themselves.
//!
//! What it prints goes to the log of its job, line by line: standard output as information, standard error as a warning and, when the call
//! traps, as the reason. Standard input is at its end, there is no terminal and no folder, and to end the program is a trap. Streams are
//! told apart by their number alone, so nothing is kept for them; how many handles a component may keep is the engine's limit.

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Linker, LinkerInstance, Lower, Resource, ResourceType, WasmList};

use super::super::bindings::log::Level;
use super::super::host::HostState;
use super::super::limits::{Breach, clean};

/// A longer line is cut in two.
const LINE_BYTES_MAX: usize = 4 << 10;
/// What one call may write to a stream; WASI lets a host say how much it takes.
const WRITE_BYTES_MAX: u64 = 64 << 10;

/// `wasi:io/streams.output-stream`; 1 is standard output, 2 standard error.
struct OutputStream;
/// `wasi:io/streams.input-stream`.
struct InputStream;
/// `wasi:io/error.error`; there never is one.
struct IoError;
/// `wasi:filesystem/types.descriptor`; there never is one.
struct Folder;
/// `wasi:cli/terminal-input.terminal-input` and `terminal-output.terminal-output`; there never is one.
struct Terminal;

/// `wasi:io/streams.stream-error`.
#[derive(ComponentType, Lower)]
#[component(variant)]
enum StreamError {
    #[component(name = "last-operation-failed")]
    #[allow(dead_code)] // The type has it; nothing here fails.
    LastOperationFailed(Resource<IoError>),
    #[component(name = "closed")]
    Closed,
}

/// The lines that have no end yet: of standard output and standard error.
#[derive(Debug, Default)]
pub(in super::super) struct Unfinished([Vec<u8>; 2]);

impl Unfinished {
    /// Takes what is printed, and gives the lines that have an end now.
    fn push(&mut self, stream: usize, bytes: &[u8]) -> Vec<String> {
        let rest = &mut self.0[stream];
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            for part in part.chunks(LINE_BYTES_MAX) {
                rest.extend_from_slice(part);
                if rest.ends_with(b"\n") || rest.len() >= LINE_BYTES_MAX {
                    lines.extend(take(rest));
                }
            }
        }
        lines
    }
}

/// A line as text, without its end; none if it is empty.
fn take(line: &mut Vec<u8>) -> Option<String> {
    let text = clean(String::from_utf8_lossy(line).trim_end_matches(['\r', '\n']), 2 * LINE_BYTES_MAX);
    line.clear();
    (!text.is_empty()).then_some(text)
}

impl HostState {
    fn print(&mut self, stream: usize, bytes: &[u8]) {
        for line in self.outside.unfinished.push(stream, bytes) {
            self.print_line(stream, line);
        }
    }

    fn print_line(&mut self, stream: usize, line: String) {
        let level = if stream == 0 { Level::Info } else { Level::Warn };
        if stream == 1 {
            self.log.note_printed(&line);
        }
        if self.log.admits(level) {
            self.log.write(level, &line);
        }
    }

    /// Prints what a call has left without a line end.
    pub(in super::super) fn finish_lines(&mut self) {
        for stream in 0..2 {
            if let Some(line) = take(&mut self.outside.unfinished.0[stream]) {
                self.print_line(stream, line);
            }
        }
    }
}

/// Which stream a handle stands for: 0 or 1.
fn number(stream: &Resource<OutputStream>) -> usize {
    usize::from(stream.rep() == 2)
}

type Store<'a> = StoreContextMut<'a, HostState>;
type Written<T> = wasmtime::Result<(Result<T, StreamError>,)>;

/// Gives a resource of WASI the type that it has here. An interface has those of others that it uses under their names.
pub(super) fn define(instance: &mut LinkerInstance<'_, HostState>, resource: &str) -> wasmtime::Result<()> {
    let ty = match resource {
        "error" => ResourceType::host::<IoError>(),
        "output-stream" => ResourceType::host::<OutputStream>(),
        "input-stream" => ResourceType::host::<InputStream>(),
        "descriptor" => ResourceType::host::<Folder>(),
        "terminal-input" | "terminal-output" => ResourceType::host::<Terminal>(),
        // Whatever gives one traps.
        _ => return Ok(()),
    };
    instance.resource(resource, ty, |_, _| Ok(()))
}

/// Defines `interface`, which the component imports under `name`, if it is one of these.
pub(super) fn link(linker: &mut Linker<HostState>, name: &str, interface: &str) -> wasmtime::Result<()> {
    let mut instance = linker.instance(name)?;
    match interface {
        "wasi:io/streams" => {
            instance.func_wrap(
                "[method]output-stream.check-write",
                |_: Store<'_>, (_,): (Resource<OutputStream>,)| -> Written<u64> { Ok((Ok(WRITE_BYTES_MAX),)) },
            )?;
            for write in ["[method]output-stream.write", "[method]output-stream.blocking-write-and-flush"] {
                instance.func_wrap(
                    write,
                    |mut store: Store<'_>, (stream, bytes): (Resource<OutputStream>, WasmList<u8>)| -> Written<()> {
                        let all = bytes.as_le_slice(&store);
                        if all.len() as u64 > WRITE_BYTES_MAX {
                            let what = format!(
                                "{} bytes were written to a stream at once; the most is {WRITE_BYTES_MAX}",
                                all.len()
                            );
                            return Err(Breach::Contract(what).into());
                        }
                        let all = all.to_vec();
                        store.data_mut().print(number(&stream), &all);
                        Ok((Ok(()),))
                    },
                )?;
            }
            for flush in ["[method]output-stream.flush", "[method]output-stream.blocking-flush"] {
                instance.func_wrap(flush, |_: Store<'_>, (_,): (Resource<OutputStream>,)| -> Written<()> {
                    Ok((Ok(()),))
                })?;
            }
            for read in ["[method]input-stream.read", "[method]input-stream.blocking-read"] {
                instance.func_wrap(read, |_: Store<'_>, (_, _): (Resource<InputStream>, u64)| -> Written<Vec<u8>> {
                    Ok((Err(StreamError::Closed),))
                })?;
            }
        }
        "wasi:cli/stdout" => {
            instance.func_wrap("get-stdout", |_, ()| Ok((Resource::<OutputStream>::new_own(1),)))?;
        }
        "wasi:cli/stderr" => {
            instance.func_wrap("get-stderr", |_, ()| Ok((Resource::<OutputStream>::new_own(2),)))?;
        }
        "wasi:cli/stdin" => instance.func_wrap("get-stdin", |_, ()| Ok((Resource::<InputStream>::new_own(0),)))?,
        "wasi:cli/terminal-stdin" | "wasi:cli/terminal-stdout" | "wasi:cli/terminal-stderr" => {
            let function = interface.replace("wasi:cli/", "get-");
            instance.func_wrap(&function, |_, ()| Ok((None::<Resource<Terminal>>,)))?;
        }
        "wasi:filesystem/preopens" => {
            instance.func_wrap("get-directories", |_, ()| Ok((Vec::<(Resource<Folder>, String)>::new(),)))?;
        }
        "wasi:cli/exit" => {
            instance.func_wrap("exit", |_, (status,): (Result<(), ()>,)| -> wasmtime::Result<()> {
                let how = if status.is_ok() { "as if all were well" } else { "with a failure" };
                Err(Breach::Contract(format!("it ended its program, {how}: an operator returns from its calls")).into())
            })?;
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_without_their_ends() {
        let mut unfinished = Unfinished::default();
        assert_eq!(unfinished.push(0, b"one\ntw"), ["one"]);
        assert_eq!(unfinished.push(1, b"other\n"), ["other"]);
        assert_eq!(unfinished.push(0, b"o\r\n\n\xffthree\n"), ["two", "\u{fffd}three"]);
        let long = vec![b'x'; LINE_BYTES_MAX + 10];
        assert_eq!(unfinished.push(0, &long), ["x".repeat(LINE_BYTES_MAX)]);
        assert_eq!(take(&mut unfinished.0[0]).as_deref(), Some("xxxxxxxxxx"));
        assert_eq!(take(&mut unfinished.0[0]), None);
    }
}
