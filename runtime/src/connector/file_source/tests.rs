//! The file source as a whole: what it reads, what it refuses, and that a position is a position.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use futures::FutureExt;
use proptest::prelude::*;

use super::*;
use crate::connector::ConnectorErrorKind;
use crate::model::{Generation, JobId, NodeName, RECORD_BYTES_MAX, TaskId};
use crate::plan::{Compression, CsvSpec, SourceConnector, SourceFormat};
use crate::pointer::Pointer;

struct Case {
    dir: tempfile::TempDir,
    file: FileSourceSpec,
    spec: SourceSpec,
    parallelism: u32,
}

fn csv() -> SourceFormat {
    SourceFormat::Csv(CsvSpec { delimiter: b',', nulls: vec![String::new(), "NA".into()], text: Vec::new() })
}

impl Case {
    fn new(path: &str, format: SourceFormat) -> Self {
        let file =
            FileSourceSpec { path: path.into(), format, compression: Compression::Auto, follow: false, root: None };
        let spec = SourceSpec {
            name: NodeName::new("in"),
            span: 0..0,
            parallelism: 1,
            connector: SourceConnector::File(file.clone()),
            event_time: None,
            event_time_unit: None,
            out_of_orderness: Duration::ZERO,
            idle_after: None,
            rate: None,
            on_error: OnError::Fail,
        };
        Self { dir: tempfile::tempdir().unwrap(), file, spec, parallelism: 1 }
    }

    fn put(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn append(&self, name: &str, text: &str) {
        let mut file = fs::OpenOptions::new().append(true).open(self.dir.path().join(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn open_as(&self, subtask: u32, positions: &[SplitPosition]) -> Result<FileSource, ConnectorError> {
        let context = TaskContext {
            job: "job".into(),
            job_id: JobId([1; 16]),
            generation: Generation(1),
            task: TaskId { node: self.spec.name.clone(), subtask },
            parallelism: self.parallelism,
        };
        FileSource::open(&self.spec, &self.file, self.dir.path(), &context, positions)
    }

    fn open(&self, positions: &[SplitPosition]) -> FileSource {
        self.open_as(0, positions).unwrap()
    }

    fn read(&self) -> Read {
        drain(&mut self.open(&[]), limit(1000))
    }

    fn error(&self) -> ConnectorError {
        let mut source = match self.open_as(0, &[]) {
            Ok(source) => source,
            Err(error) => return error,
        };
        loop {
            match block_on(source.poll(limit(10))) {
                Ok(Polled::End) => panic!("no error"),
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("a file source does not wait")
}

fn limit(records: usize) -> BatchLimit {
    BatchLimit { records, bytes: 1 << 20 }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    values: Vec<String>,
    times: Vec<i64>,
    rejected: Vec<String>,
    skipped: u64,
}

impl Read {
    fn add(&mut self, polled: Polled) -> bool {
        let Polled::Records { records, rejected, skipped } = polled else { return false };
        records.validate().unwrap();
        rejected.validate().unwrap();
        let text = |batch: &Batch, row| String::from_utf8_lossy(batch.values.get(row).unwrap()).into_owned();
        self.values.extend((0..records.len()).map(|row| text(&records, row)));
        self.times.extend(&records.timestamps);
        self.rejected.extend((0..rejected.len()).map(|row| text(&rejected, row)));
        self.skipped += skipped;
        true
    }
}

/// Everything up to the end, or up to where a source that follows has nothing.
fn drain(source: &mut FileSource, limit: BatchLimit) -> Read {
    let mut read = Read::default();
    loop {
        match block_on(source.poll(limit)).unwrap() {
            Polled::End => return read,
            Polled::Pending(wait) if !wait.is_zero() => return read,
            polled => read.add(polled),
        };
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn lines_are_values_as_they_are() {
    let case = Case::new("in.txt", SourceFormat::Lines);
    case.put("in.txt", "\u{feff}a\r\n\n b\nlast");
    assert_eq!(case.read().values, ["a", "", " b", "last"]);
    case.put("in.txt", "");
    assert_eq!(case.read().values, [] as [&str; 0]);
    case.put("in.txt", "\u{feff}");
    assert_eq!(case.read().values, [] as [&str; 0]);
}

#[test]
fn json_lines_are_checked_and_empty_lines_between_them_are_nothing() {
    let mut case = Case::new("in.json", SourceFormat::Json);
    case.put("in.json", "{\"a\": 1.50}\r\n\n  \n[2]\n{\"a\":}\nnull\n\"\\q\"\n{} {}\n");
    case.spec.on_error = OnError::Skip;
    let read = case.read();
    assert_eq!(read.values, ["{\"a\": 1.50}", "[2]", "null"]);
    assert_eq!(read.skipped, 3);
}

#[test]
fn csv_rows_become_objects_in_the_order_of_the_columns() {
    let mut case = Case::new("in.csv", csv());
    case.put(
        "in.csv",
        "\u{feff}t,\"a b\"\r\n2013-01-01T10:00:00Z,\"x\r\n\"\"y\"\"\"\r\n\r\n1970-01-01T00:00:00.000001Z,NA\n",
    );
    case.spec.event_time = Some(Pointer::parse("/t").unwrap());
    let read = case.read();
    assert_eq!(
        read.values,
        [r#"{"t":"2013-01-01T10:00:00Z","a b":"x\r\n\"y\""}"#, r#"{"t":"1970-01-01T00:00:00.000001Z","a b":null}"#]
    );
    assert_eq!(read.times, [1_357_034_400_000_000, 1]);
}

#[test]
fn files_of_several_gzip_members_are_one_stream_and_globs_are_read_by_name() {
    let case = Case::new("*.txt*", SourceFormat::Lines);
    case.put("b.txt", "b1\nb2");
    case.put("a.txt.gz", [gzip("a1\na"), gzip("2\na3")].concat());
    case.put("c.txt.gz", gzip(""));
    case.put("other", "no");
    assert_eq!(case.read().values, ["a1", "a2", "a3", "b1", "b2"]);
}

#[test]
fn a_gzip_file_that_breaks_off_is_an_error_by_name() {
    let case = Case::new("in.gz", SourceFormat::Lines);
    let packed = gzip(&"some text\n".repeat(1000));
    case.put("in.gz", &packed[..packed.len() - 9]);
    let error = case.error();
    assert_eq!(error.kind, ConnectorErrorKind::Mismatch);
    assert!(error.message.contains("in.gz") && error.source.is_some(), "{error:?}");
}

#[test]
fn what_cannot_be_opened_names_the_glob_and_the_remedy() {
    let case = Case::new("none-*.csv", csv());
    let error = case.error();
    assert!(error.message.contains("none-*.csv") && error.help.is_some(), "{error:?}");
    let mut case = Case::new("in.csv", csv());
    case.put("in.csv", "a,b\n1,2\n");
    case.spec.event_time = Some(Pointer::parse("/time").unwrap());
    let error = case.error();
    assert!(
        error.message.contains("in.csv") && error.message.contains("/time") && error.message.contains("\"a\", \"b\"")
    );
}

#[test]
fn malformed_records_fail_by_name_or_are_counted_or_go_to_dead_letters() {
    let mut case = Case::new("in.csv", csv());
    case.spec.event_time = Some(Pointer::parse("/t").unwrap());
    let bad_utf8 = b"x,2013-01-01T10:00:00Z\n1\n\"a\nb\",late\nok,1970-01-01T00:00:00Z\n\xff,1970-01-01T00:00:00Z\n1,NA\n1,12\nz,\"1970";
    case.put("in.csv", [b"a,t\n" as &[u8], bad_utf8].concat());
    let error = case.error();
    assert_eq!(error.kind, ConnectorErrorKind::Record);
    for part in ["in.csv:3 (byte 27)", "source \"in\"", "it has 1 fields and the header has 2", "\"1\""] {
        assert!(error.message.contains(part), "{}", error.message);
    }
    assert!(error.help.unwrap().contains("on_error"));

    case.spec.on_error = OnError::Skip;
    let read = case.read();
    assert_eq!((read.values.len(), read.skipped, read.rejected.len()), (2, 6, 0));
    assert_eq!(read.times, [1_357_034_400_000_000, 0]);

    case.spec.on_error = OnError::DeadLetter;
    let read = case.read();
    assert_eq!((read.values.len(), read.skipped), (2, 0));
    assert_eq!(
        read.rejected[1],
        r#"{"source":"in","file":"in.csv","line":4,"offset":29,"reason":"its event time \"late\" is not RFC 3339","raw":"\"a\nb\",late"}"#
            .replace("\"late\" is", "\\\"late\\\" is").replace("\"raw\":\"\"a\nb\"", "\"raw\":\"\\\"a\\nb\\\"")
    );
    assert!(
        read.rejected[2].contains("\"reason\":\"it is not UTF-8\",\"raw_base64\":\"/ywxOTcw"),
        "{}",
        read.rejected[2]
    );
    for (row, reason) in [(0, "1 fields"), (3, "no event time"), (4, "without a unit"), (5, "not closed")] {
        let letter: serde_json::Value = serde_json::from_str(&read.rejected[row]).unwrap();
        assert!(letter["reason"].as_str().unwrap().contains(reason), "{letter}");
    }
}

#[test]
fn a_record_that_is_too_large_is_passed_over_without_keeping_it() {
    for (format, header) in [(SourceFormat::Lines, ""), (csv(), "a\n")] {
        let mut case = Case::new("in.gz", format.clone());
        case.spec.on_error = OnError::DeadLetter;
        let long = "x".repeat(3 * RECORD_BYTES_MAX);
        case.put("in.gz", gzip(&format!("{header}1\n{long}\n2\n")));
        let mut source = case.open(&[]);
        let (mut read, mut inside) = (Read::default(), 0);
        loop {
            match block_on(source.poll(limit(10))).unwrap() {
                Polled::End => break,
                Polled::Pending(wait) => {
                    assert!(wait.is_zero());
                    // A position in the middle of it is the one before it.
                    let again = drain(&mut case.open(&source.positions()), limit(10));
                    assert!(again.rejected.len() == 1 && again.values.last().unwrap().contains('2'));
                    inside += 1;
                }
                polled => assert!(read.add(polled)),
            }
        }
        assert!(inside > 3, "reading 48 MiB must not take one poll");
        assert_eq!((read.values.len(), read.rejected.len()), (2, 1));
        let letter: serde_json::Value = serde_json::from_str(&read.rejected[0]).unwrap();
        assert_eq!(letter["raw_bytes"], 3 * RECORD_BYTES_MAX);
        assert_eq!(letter["raw"].as_str().unwrap().len(), malformed::RAW_BYTES_MAX);
        assert_eq!(letter["line"], if header.is_empty() { 2 } else { 3 });
    }
}

#[test]
fn subtasks_share_files_and_together_read_each_once() {
    let mut case = Case::new("*.txt", SourceFormat::Lines);
    for at in 0..7 {
        case.put(&format!("{at}.txt"), format!("{at}\n"));
    }
    case.parallelism = 3;
    let mut first = case.open_as(1, &[]).unwrap();
    assert_eq!(drain(&mut first, limit(1)).values, ["1", "4"]);
    // A file that comes later shifts nothing, for a subtask that is done and for one that never had a file.
    case.put("00.txt", "new\n");
    assert_eq!(drain(&mut case.open_as(1, &first.positions()).unwrap(), limit(1)), Read::default());
    // With another parallelism, each takes its own of all positions.
    let all: Vec<SplitPosition> = (0..3).flat_map(|subtask| case.open_as(subtask, &[]).unwrap().positions()).collect();
    case.parallelism = 2;
    let error = case.open_as(0, &all[..3]).err().unwrap();
    assert_eq!(error.kind, ConnectorErrorKind::Mismatch);
    let mut values: Vec<String> =
        (0..2).flat_map(|subtask| drain(&mut case.open_as(subtask, &all).unwrap(), limit(1)).values).collect();
    values.sort();
    assert_eq!(values, ["0", "1", "2", "3", "4", "5", "6", "new"]);
}

#[test]
fn following_waits_for_whole_records_and_new_files_and_goes_on_where_it_was() {
    for format in [SourceFormat::Lines, csv()] {
        let mut case = Case::new("*.txt", format.clone());
        case.file.follow = true;
        let mut source = case.open(&[]);
        assert_eq!(drain(&mut source, limit(10)), Read::default());
        let (header, cell) = match format {
            SourceFormat::Lines => ("", (|text: &str| text.to_owned()) as fn(&str) -> String),
            _ => ("a\n", (|text: &str| format!("{{\"a\":\"{text}\"}}")) as fn(&str) -> String),
        };
        case.put("b.txt", format!("{header}b1\nb"));
        assert_eq!(drain(&mut source, limit(10)).values, [cell("b1")]);
        let middle = source.positions();
        case.put("a.txt", format!("{header}a1\n"));
        case.append("b.txt", "2\nb3\nb");
        // What comes late is read late: the file that was open first.
        assert_eq!(drain(&mut source, limit(10)).values, [cell("b2"), cell("b3"), cell("a1")]);
        let mut again = case.open(&middle);
        let mut values = drain(&mut again, limit(1)).values;
        values.sort();
        assert_eq!(values, [cell("a1"), cell("b2"), cell("b3")]);
        case.append("b.txt", "4\n");
        case.append("a.txt", "a2\n");
        for source in [&mut source, &mut again] {
            let mut values = drain(source, limit(10)).values;
            values.sort();
            assert_eq!(values, [cell("a2"), cell("b4")]);
        }
        assert_eq!(drain(&mut case.open(&source.positions()), limit(10)), Read::default());
        fs::write(case.dir.path().join("a.txt"), "").unwrap();
        assert!(block_on(source.poll(limit(1))).is_err_and(|e| e.message.contains("a.txt has 0 bytes")));
    }
}

#[test]
fn a_file_that_is_gone_shorter_or_different_is_refused_by_name() {
    for name in ["in.txt", "in.txt.gz"] {
        let text: String = (0..5000).map(|i| format!("line {i}\n")).collect();
        let pack = |text: &str| if name.ends_with("gz") { gzip(text) } else { text.into() };
        for records in [10, 4000, 5001] {
            let case = Case::new("in.*", SourceFormat::Lines);
            let path = case.put(name, pack(&text));
            let mut source = case.open(&[]);
            let mut given = 0;
            while given < records {
                match block_on(source.poll(limit(records - given))).unwrap() {
                    Polled::Records { records, .. } => given += records.len(),
                    _ => break,
                }
            }
            let positions = source.positions();
            assert!(case.open_as(0, &positions).is_ok());
            for (what, change) in [
                ("gone", None),
                ("bytes", Some(pack("line 0\nline"))),
                ("first", Some(pack(&text.replacen("line 3", "LINE 3", 1)))),
                ("before byte", Some(pack(&text.replace(&format!("line {}\n", records.min(4990) - 5), "line   x\n")))),
            ] {
                let _ = fs::remove_file(&path);
                if let Some(change) = change {
                    fs::write(&path, change).unwrap();
                }
                let error = case.open_as(0, &positions).err().unwrap_or_else(|| panic!("{name} {records} {what}"));
                assert_eq!(error.kind, ConnectorErrorKind::Mismatch);
                assert!(error.message.contains("in.txt") && error.help.is_some(), "{error:?}");
            }
        }
    }
}

/// How long it would wait.
fn pause(source: &mut FileSource) -> Duration {
    match block_on(source.poll(limit(10))).unwrap() {
        Polled::Pending(pause) => pause,
        polled => panic!("{polled:?}"),
    }
}

#[tokio::test]
async fn a_source_that_waits_looks_less_and_less_and_is_told_when_there_is_more() {
    let mut case = Case::new("in-*.txt", SourceFormat::Lines);
    case.file.follow = true;
    let mut source = case.open(&[]);
    let pauses: Vec<_> = (0..12).map(|_| pause(&mut source)).collect();
    assert_eq!(pauses[0], LOOK_AGAIN, "what came before it was told is looked for");
    assert!(pauses.is_sorted(), "{pauses:?}");
    if !cfg!(target_os = "linux") {
        return assert_eq!(pauses[11], LOOK_AGAIN_MAX);
    }
    assert_eq!(pauses[11], LOOK_ANYWAY);
    for (write, values) in [
        (&(|| drop(case.put("in-1.txt", "a\n"))) as &dyn Fn(), vec!["a"]),
        (&|| case.append("in-1.txt", "b\nc\n"), vec!["b", "c"]),
        (&|| fs::rename(case.put("other", "d\n"), case.dir.path().join("in-2.txt")).unwrap(), vec!["d"]),
    ] {
        write();
        let mut read = Read::default();
        // It may be told more than once, and too early.
        while read.values.len() < values.len() {
            source.changed().await;
            read.values.extend(drain(&mut source, limit(10)).values);
        }
        assert_eq!(read.values, values);
    }
}

#[cfg(unix)]
#[test]
fn what_may_be_changed_unseen_is_looked_at_at_least_once_a_second() {
    let linked = Case::new("in.txt", SourceFormat::Lines);
    let elsewhere = linked.put("elsewhere", "a\n");
    std::os::unix::fs::symlink(&elsewhere, linked.dir.path().join("in.txt")).unwrap();
    let two_names = Case::new("in.txt", SourceFormat::Lines);
    fs::hard_link(two_names.put("elsewhere", "a\n"), two_names.dir.path().join("in.txt")).unwrap();
    let folders = Case::new("*/in.txt", SourceFormat::Lines);
    for mut case in [linked, two_names, folders] {
        case.file.follow = true;
        let mut source = case.open(&[]);
        drain(&mut source, limit(10));
        let pauses: Vec<_> = (0..12).map(|_| pause(&mut source)).collect();
        assert_eq!(pauses[11], LOOK_AGAIN_MAX, "{}", case.file.path);
    }
}

#[test]
fn a_checkpoint_of_a_source_that_followed_is_not_taken_by_one_that_does_not() {
    let mut case = Case::new("in.txt", SourceFormat::Lines);
    case.put("in.txt", "a\n");
    let positions = case.open(&[]).positions();
    case.file.follow = true;
    assert!(case.open_as(0, &positions).is_err_and(|e| e.help.unwrap().contains("follow = false")));
    let mut damaged = positions;
    damaged[1].offset.clear();
    case.file.follow = false;
    assert!(case.open_as(0, &damaged).is_err_and(|e| e.kind == ConnectorErrorKind::Mismatch));
}

#[test]
fn a_file_of_a_byte_order_mark_alone_is_gone_on_from() {
    for format in [SourceFormat::Lines, SourceFormat::Json, csv()] {
        let case = Case::new("in", format);
        case.put("in", "\u{feff}");
        let mut source = case.open(&[]);
        assert_eq!(drain(&mut source, limit(10)), Read::default());
        let mut again = case.open(&source.positions());
        assert_eq!(drain(&mut again, limit(10)), Read::default());
    }
}

fn formats() -> impl Strategy<Value = (SourceFormat, String)> {
    prop_oneof![
        "[a \r\n\u{feff}é]{0,60}".prop_map(|text| (SourceFormat::Lines, text)),
        "([1{}\n ]|\\{\"a\":1\\}\n){0,30}".prop_map(|text| (SourceFormat::Json, text)),
        "[1a,\"\r\n\u{feff}]{0,60}".prop_map(|text| (csv(), format!("a,b\n{text}"))),
        "(\u{feff})?\"a\n\",b\r\n([x1]{1,3},\"[a,\n]{0,5}\"\r?\n){0,12}".prop_map(|text| (csv(), text)),
    ]
}

proptest! {
    #[test]
    fn any_cut_into_batches_and_any_restarts_give_what_one_reading_gives(
        (format, text) in formats(),
        packed in any::<bool>(),
        steps in proptest::collection::vec((1..5_usize, 1..40_usize, any::<bool>()), 1..20),
    ) {
        let name = if packed { "in.gz" } else { "in" };
        let mut case = Case::new(name, format);
        case.spec.on_error = OnError::DeadLetter;
        case.put(name, if packed { gzip(&text) } else { text.into_bytes() });
        let whole = case.read();
        let mut source = case.open(&[]);
        let mut read = Read::default();
        for (records, bytes, restart) in steps.into_iter().cycle() {
            match block_on(source.poll(BatchLimit { records, bytes })).unwrap() {
                Polled::End => break,
                Polled::Pending(_) => {}
                Polled::Records { records: out, rejected, skipped } => {
                    prop_assert!(out.len() + rejected.len() <= records);
                    read.add(Polled::Records { records: out, rejected, skipped });
                }
            }
            if restart {
                source = case.open(&source.positions());
            }
        }
        prop_assert_eq!(read, whole);
        prop_assert_eq!(drain(&mut case.open(&source.positions()), limit(10)), Read::default());
    }
}
