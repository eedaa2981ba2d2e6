//! Runs a process with the recorder in it (`tests/power`), and checks that the recorder saw all that the process did.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use crate::disk::Disk;
use crate::image::Image;
use crate::loss::Loss;
use crate::record::Record;

/// The folder with the recorder and its subject. Built once.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = weir_tests::target();
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--quiet", "--release", "--package", "weir-power"])
            .current_dir(weir_tests::root())
            .env("CARGO_TARGET_DIR", target.parent().unwrap_or(Path::new("target")))
            .stdin(Stdio::null())
            .status()
            .expect("cargo can be started");
        assert!(status.success(), "the recorder cannot be built");
        target
    })
}

/// The program that is made to be recorded.
pub(crate) fn subject() -> Command {
    Command::new(built().join("weir-power-subject"))
}

/// What a process did to a folder.
#[derive(Debug)]
pub(crate) struct Recording {
    /// The folder before.
    pub(crate) before: Disk,
    /// What was done, in order.
    pub(crate) records: Vec<Record>,
}

/// Runs a command to its end with the recorder watching a folder. The trace lies beside the folder.
///
/// # Panics
///
/// If the recorder missed something: the folder is not what the trace makes of it.
pub(crate) fn record(command: &mut Command, folder: &Path) -> (Output, Recording) {
    let trace = folder.with_extension("trace");
    let _ = fs::remove_file(&trace);
    let before = Disk::of(folder).expect("the folder can be read");
    let output = command
        .env("LD_PRELOAD", built().join("libweir_power.so"))
        .env("WEIR_POWER_ROOT", folder)
        .env("WEIR_POWER_TRACE", &trace)
        .stdin(Stdio::null())
        .output()
        .expect("the command can be started");
    let trace = fs::read(&trace).unwrap_or_default();
    let records = Record::decode_all(&trace).expect("a trace");
    let processes = records.iter().filter(|record| matches!(record, Record::Begin { .. })).count();
    assert!(processes <= 1, "{processes} processes wrote the trace, and the order of what they did is not known");
    let recording = Recording { before, records };
    let after = recording.at(recording.records.len()).image(Loss::Nothing);
    let real = Image::of(folder).expect("the folder can be read");
    if let Some(difference) = after.difference(&real) {
        panic!("the recorder missed something, by the trace and really: {difference}");
    }
    (output, recording)
}

impl Recording {
    /// The disk after so many records.
    pub(crate) fn at(&self, moment: usize) -> Disk {
        let mut disk = self.before.clone();
        for (index, record) in self.records[..moment].iter().enumerate() {
            disk.apply(record).unwrap_or_else(|fault| panic!("record {index}: {fault}"));
        }
        disk
    }

    /// Each moment, from before the first record to after the last, with the disk as it is then.
    pub(crate) fn moments(&self, mut look: impl FnMut(usize, &Disk)) {
        let mut disk = self.before.clone();
        look(0, &disk);
        for (index, record) in self.records.iter().enumerate() {
            disk.apply(record).unwrap_or_else(|fault| panic!("record {index}: {fault}"));
            look(index + 1, &disk);
        }
    }

    /// The same without the syncs of files and folders that were opened by certain paths, as if they had been forgotten.
    pub(crate) fn without_syncs(&self, forgets: impl Fn(&Path) -> bool) -> Self {
        let mut open: BTreeMap<i32, PathBuf> = BTreeMap::new();
        let is_kept = |record: &&Record| {
            match record {
                Record::Open { fd, path, .. } => {
                    open.insert(*fd, PathBuf::from(String::from_utf8_lossy(path).into_owned()));
                }
                Record::Duplicate { from, to } => {
                    open.insert(*to, open.get(from).cloned().unwrap_or_default());
                }
                Record::Sync { fd } => return !open.get(fd).is_some_and(|path| forgets(path)),
                _ => {}
            }
            true
        };
        Self { before: self.before.clone(), records: self.records.iter().filter(is_kept).cloned().collect() }
    }
}
