//! `weir dev` on an operator in C that is edited while it runs: its counts go on from where they were, whatever is wrong with an edit.
//!
//! Where the tools for C are not installed this is left out, with a line that says what is missing; on CI that is a failure.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use weir::plugin::build::{BuildError, builder};
use weir::plugin::project::Project;

/// How often something that has to come is looked for, and how long the pause is in between.
const LOOKS: u32 = 1200;
const PAUSE: Duration = Duration::from_millis(100);

/// The operator `tally`, a pipeline that follows a file, and the process.
struct Place {
    folder: tempfile::TempDir,
    process: Option<Child>,
    /// How far the log has been read.
    read: usize,
}

impl Place {
    /// None where a tool is missing.
    fn new(world: &str) -> Option<Self> {
        let example = weir_tests::root().join("sdk/c/examples/tally");
        let project = Project::open(&example).expect("it is a project");
        if let Err(error @ (BuildError::NoProgram { .. } | BuildError::Version { .. })) = builder(&project) {
            assert!(std::env::var_os("CI").is_none(), "{error}: {}", error.remedy());
            eprintln!("skipped: {error}; {}", error.remedy());
            return None;
        }
        let place = Self { folder: tempfile::tempdir().expect("a folder"), process: None, read: 0 };
        fs::create_dir(place.path("vendor")).expect("a folder");
        std::os::unix::fs::symlink(weir_tests::root().join("sdk/c"), place.path("vendor/weir")).expect("a link");
        place.write("tally.c", &fs::read_to_string(example.join("tally.c")).expect("it is there"));
        let project = format!("name = \"tally\"\nlang = \"c\"\nworld = \"{world}\"\nentry = \"tally.c\"\n");
        place.write("weir-plugin.toml", &project);
        place.write("in.jsonl", "");
        place.write(
            "pipeline.toml",
            r#"
name = "tally"

[checkpoint]
store = "file://./.weir"
interval = "50ms"

[source.lines]
connector = "file"
path = "in.jsonl"
format = "json"
event_time = "/at"
out_of_orderness = "5m"
follow = true

[operator.work]
plugin = "tally.wasm"
inputs = [{ from = "lines", key = "/key" }]
on_reject = "skip"

[sink.out]
connector = "file"
inputs = ["work"]
path = "out"
format = "lines"
"#,
        );
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("it can be written");
    }

    /// Edits the operator: puts `new` where `old` was.
    fn edit(&self, old: &str, new: &str) {
        let text = fs::read_to_string(self.path("tally.c")).expect("it is there");
        assert!(text.contains(old), "{old} is not in\n{text}");
        self.write("tally.c", &text.replacen(old, new, 1));
    }

    fn start(&mut self, args: &[&str]) {
        self.start_on(args, Stdio::null());
    }

    fn start_on(&mut self, args: &[&str], input: Stdio) {
        let log = fs::File::options().create(true).append(true).open(self.path("log")).expect("a log");
        let mut command = Command::new(weir_tests::weir());
        command.args(["dev", "pipeline.toml", "--quiet"]).args(args).current_dir(self.folder.path());
        command.stdin(input).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().expect("it can be started"));
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits until the log says this, after what was waited for before.
    fn until_it_says(&mut self, text: &str) {
        let at = self.until(text, |place| place.log().get(place.read..)?.find(text));
        self.read += at + text.len();
    }

    /// Waits until there is an answer.
    fn until<T>(&mut self, what: &str, look: impl Fn(&Self) -> Option<T>) -> T {
        for _ in 0..LOOKS {
            if let Some(found) = look(self) {
                return found;
            }
            let ended = self.process.as_mut().and_then(|process| process.try_wait().expect("it is a child"));
            assert_eq!(ended, None, "waiting for {what}; its log:\n{}", self.log());
            pause(PAUSE);
        }
        panic!("{what} does not come; its log:\n{}", self.log());
    }

    /// Hands more of the input of the conformance test to the pipeline.
    fn feed(&self, lines: std::ops::Range<usize>) {
        let input = fs::read_to_string(weir_tests::root().join("sdk/conformance/input.jsonl")).expect("it is there");
        let mut file = fs::File::options().append(true).open(self.path("in.jsonl")).expect("it is there");
        let text: String = input.split_inclusive('\n').skip(lines.start).take(lines.len()).collect();
        file.write_all(text.as_bytes()).expect("there is room");
    }

    /// What was published, in the order of epochs.
    fn output(&self) -> Vec<String> {
        let epochs = fs::read_dir(self.path("out")).into_iter().flatten().flatten();
        let is_one = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("epoch-"));
        let mut epochs: Vec<PathBuf> = epochs.map(|epoch| epoch.path()).filter(is_one).collect();
        epochs.sort();
        let mut lines = Vec::new();
        for part in epochs.iter().flat_map(|epoch| fs::read_dir(epoch).expect("a folder").flatten()) {
            if part.file_name().to_string_lossy().starts_with("part-") {
                let text = fs::read_to_string(part.path()).expect("a part can be read");
                lines.extend(text.lines().map(str::to_owned));
            }
        }
        lines
    }

    /// Interrupts it, and waits for its end.
    fn stop(&mut self) {
        let mut process = self.process.take().expect("it runs");
        // SAFETY: a plain call; the process is a child that was not waited for.
        assert_eq!(unsafe { libc::kill(process.id().cast_signed(), libc::SIGINT) }, 0);
        let status = process.wait().expect("it is a child");
        assert!(status.success(), "{status}: {}", self.log());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Waits for something that nobody tells.
#[allow(clippy::disallowed_methods)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// The lines of the conformance test for windows that end by then.
fn expected(until: i64) -> Vec<String> {
    let path = weir_tests::root().join("sdk/conformance/expected/tally.txt");
    let text = fs::read_to_string(path).expect("it is there");
    text.lines().filter(|line| end_of(line) <= until).map(str::to_owned).collect()
}

/// When the window of a line ends.
fn end_of(line: &str) -> i64 {
    line.split(' ').next().and_then(|end| end.parse().ok()).unwrap_or_else(|| panic!("{line:?} begins with no time"))
}

const WRITES_THE_TIME: &str = "weir_buffer_decimal(&op->text, due.time);";

#[test]
fn an_edited_operator_goes_on_with_its_counts_and_an_edit_that_is_wrong_costs_nothing() {
    let Some(mut place) = Place::new("stateful-operator") else { return };
    place.feed(0..400);
    place.start(&[]);
    place.until_it_says("building tally.wasm");
    place.until_it_says("started at the beginning");
    let first = place.until("output", |place| Some(place.output().len()).filter(|lines| *lines > 0));

    // What the new code says is marked; before it comes the old code's.
    let marked = format!("weir_buffer_push(&op->text, \"2 \", 2); {WRITES_THE_TIME}");
    place.edit(WRITES_THE_TIME, &marked);
    place.until_it_says("the new code of work is live");
    place.feed(400..800);
    let second = place.until("output of the new code", |place| {
        Some(place.output()).filter(|lines| lines.iter().any(|line| line.starts_with("2 "))).map(|lines| lines.len())
    });
    assert!(second > first);

    // The compiler refuses it.
    place.edit("static weir_status tally_process", "nonsense static weir_status tally_process");
    place.until_it_says("unknown type name 'nonsense'");
    place.until_it_says("no plugin was built");
    place.until_it_says("going on with the code that runs");
    place.edit("nonsense ", "");
    place.until_it_says("nothing has changed in what runs");

    // It fails on the first record.
    place.edit("++*count;", "++*count; __builtin_trap();");
    place.until_it_says("the new code of work is live");
    place.feed(800..1200);
    place.until_it_says("tally_process");
    place.until_it_says("going back to the code before");
    let third = place.until("more output", |place| Some(place.output().len()).filter(|lines| *lines > second));
    assert!(third > second);

    // The pipeline file is wrong, when the operator is mended at the same moment; then it is right again, with something else in it.
    let pipeline = fs::read_to_string(place.path("pipeline.toml")).expect("it is there");
    place.write("pipeline.toml", &pipeline.replace("on_reject", "on_regret"));
    place.edit("++*count; __builtin_trap();", "++*count;  ++*count; --*count;");
    place.until_it_says("on_regret");
    place.until_it_says("going on with the code that runs");
    place.write("pipeline.toml", &pipeline.replace("50ms", "60ms"));
    place.until_it_says("built tally.wasm");
    place.until_it_says("is live");
    place.feed(1200..1600);
    place.until("the last output", |place| Some(place.output().len()).filter(|lines| *lines > third));
    place.stop();

    // Each window once, with the counts that one operator would have come to that nobody touched.
    let mut lines: Vec<String> = place.output();
    let marked = lines.iter().filter(|line| line.starts_with("2 ")).count();
    assert!(marked > 0 && marked < lines.len(), "{marked} of {}", lines.len());
    lines.iter_mut().for_each(|line| *line = line.trim_start_matches("2 ").to_owned());
    let until = lines.iter().map(|line| end_of(line)).max().expect("there is output");
    let mut expected = expected(until);
    lines.sort();
    expected.sort();
    let differs = expected.iter().zip(&lines).find(|(expected, found)| expected != found);
    assert_eq!(differs, None);
    assert_eq!(lines.len(), expected.len());
}

#[test]
fn a_node_whose_state_is_an_image_starts_empty_only_if_somebody_says_so() {
    let Some(mut place) = Place::new("simple-operator") else { return };
    place.feed(0..400);
    place.start(&[]);
    place.until_it_says("started at the beginning");
    place.until("output", |place| Some(place.output().len()).filter(|lines| *lines > 0));
    place.edit(WRITES_THE_TIME, &format!("weir_buffer_push(&op->text, \"2 \", 2); {WRITES_THE_TIME}"));
    place.until_it_says("the state of \"work\" cannot go on");
    place.until_it_says("image");
    place.until_it_says("--start-empty says so");
    place.until_it_says("going on with the code that runs");
    // The old code is at work still.
    let before = place.output().len();
    place.feed(400..800);
    place.until("more output", |place| Some(place.output().len()).filter(|lines| *lines > before));
    place.stop();
    assert!(place.output().iter().all(|line| !line.starts_with("2 ")));

    // What lies there is the new code, which cannot have the old state.
    place.start(&["--start-empty"]);
    place.until_it_says("the state of \"work\" cannot go on");
    place.until_it_says("its state is dropped");
    place.feed(800..1200);
    let lines = place.until("output of the new code", |place| {
        let new = place.output().into_iter().filter(|line| line.starts_with("2 ")).collect::<Vec<_>>();
        Some(new).filter(|lines| !lines.is_empty())
    });
    // It counts from nothing: the total of a key is the count of its first window.
    let parts: Vec<&str> = lines[0].split(' ').collect();
    assert_eq!(parts[2], parts[3], "{}", lines[0]);
    // And a second stop and start keeps what it has counted since.
    place.stop();
    place.start(&[]);
    place.until_it_says("restored");
    place.stop();
}

/// A terminal: what types, and what reads.
fn terminal() -> (fs::File, Stdio) {
    use std::os::fd::{FromRawFd, OwnedFd};
    let (mut types, mut reads) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: the pointers are to two integers, and to nothing where nothing is to be set.
    let made = unsafe { libc::openpty(&mut types, &mut reads, null, null.cast(), null.cast()) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both were opened just now, and nobody else has them.
    unsafe { (fs::File::from_raw_fd(types), OwnedFd::from_raw_fd(reads).into()) }
}

#[test]
fn a_question_is_answered_by_what_is_typed_after_it() {
    let Some(mut place) = Place::new("simple-operator") else { return };
    let (mut keyboard, input) = terminal();
    place.feed(0..400);
    place.start_on(&[], input);
    place.until_it_says("started at the beginning");
    place.until("output", |place| Some(place.output().len()).filter(|lines| *lines > 0));
    keyboard.write_all(b"y\n").expect("it takes that");
    place.edit(WRITES_THE_TIME, &format!("weir_buffer_push(&op->text, \"2 \", 2); {WRITES_THE_TIME}"));
    place.until_it_says("give this state up? [y/N]");
    keyboard.write_all(b"n\n").expect("it takes that");
    place.until_it_says("going on with the code that runs");
    place.edit("\"2 \"", "\"3 \"");
    place.until_it_says("give this state up? [y/N]");
    keyboard.write_all(b"y\n").expect("it takes that");
    place.until_it_says("the new code of work is live");
    place.stop();
    assert_eq!(place.log().matches("is live").count(), 1, "{}", place.log());
}

/// I7: a job that another run has taken over is not taken back.
#[test]
fn a_newer_run_takes_the_job_over_and_weir_dev_ends() {
    let Some(mut place) = Place::new("stateful-operator") else { return };
    place.feed(0..100);
    place.start(&[]);
    place.until_it_says("started at the beginning");
    place.edit(WRITES_THE_TIME, &format!("weir_buffer_push(&op->text, \"2 \", 2); {WRITES_THE_TIME}"));
    place.until_it_says("the new code of work is live");
    let mut dev = place.process.take().expect("it runs");
    let log = fs::File::create(place.path("newer-log")).expect("a log");
    let mut newer = Command::new(weir_tests::weir());
    newer.args(["run", "pipeline.toml", "--quiet"]).current_dir(place.folder.path());
    newer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    place.process = Some(newer.spawn().expect("it can be started"));
    // Whoever is fenced learns of it at its next checkpoint.
    let mut fed = 100;
    let status = loop {
        if let Some(status) = dev.try_wait().expect("it is a child") {
            break status;
        }
        assert!(fed < 4_000, "weir dev does not end; its log:\n{}", place.log());
        place.feed(fed..fed + 10);
        fed += 10;
        pause(PAUSE);
    };
    assert_eq!(status.code(), Some(6), "{}", place.log());
    place.stop();
}

#[test]
fn what_weir_dev_cannot_work_with_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |args: &[&str]| weir_tests::run(folder.path(), &[&["dev"], args].concat());
    let (code, _, said) = run(&["nowhere.toml"]);
    assert!(code == 2 && said.contains("nowhere.toml"), "{code}: {said}");
    let pipeline = "name = \"t\"\n[source.s]\nconnector = \"generator\"\n[operator.o]\nplugin = \"o.wasm\"\ninputs = [\"s\"]\n[sink.k]\nconnector = \"blackhole\"\ninputs = [\"o\"]\n";
    fs::write(folder.path().join("pipeline.toml"), pipeline).expect("it can be written");
    for (args, named) in [
        (["pipeline.toml", "--source", "x=."], "\"x\", which is no operator"),
        (["pipeline.toml", "--source", "o=nowhere"], "--source o=nowhere is no plugin's sources"),
        (["pipeline.toml", "--source", "o"], "the name of an operator, =, and a folder"),
        (["pipeline.toml", "--watch", "nowhere"], "--watch names nowhere, which is no folder"),
    ] {
        let (code, _, said) = run(&args);
        assert!(code == 2 && said.contains(named), "{args:?}: {code}: {said}");
    }
}
