//! Every connector against the promises of its contract (`connector.rs`): a function a promise, which takes what the
//! contract names and knows nothing of the connector behind it.

#![allow(clippy::unwrap_used)] // In a test, a result that is not there is a failure.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use weir::connector::{
    Abandoned, Blackhole, Committed, Committer, ConnectorError, ConnectorErrorKind, Guarantee, ObjectReader, Polled,
    Sink, Source, StdoutSink, Tally, TaskContext, committer, guarantee, open_sink, open_source,
};
use weir::model::{
    Batch, BatchLimit, CommitIdentity, Committable, Epoch, Generation, JobId, NO_TIME, NodeName, SplitPosition, TaskId,
};
use weir::plan::{
    Compression, CsvSpec, Distribution, FileSinkSpec, FileSourceSpec, GeneratorFormat, GeneratorSpec, ObjectSinkSpec,
    OnError, SinkConnector, SinkFormat, SinkSpec, SourceConnector, SourceFormat, SourceSpec,
};
use weir::pointer::Pointer;
use weir::storage::StoreOptions;

fn now<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn context(node: &str, job: u8, generation: u64, subtask: u32, parallelism: u32) -> TaskContext {
    TaskContext {
        job: "job".into(),
        job_id: JobId([job; 16]),
        generation: Generation(generation),
        task: TaskId { node: NodeName::new(node), subtask },
        parallelism,
    }
}

// --- sources ---------------------------------------------------------------------------------------------------

type OpenSource<'a> = &'a dyn Fn(&[SplitPosition]) -> Result<Box<dyn Source>, ConnectorError>;
type Row = (bool, i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// What a poll gave: rows (rejected ones marked), or none at the end. Skipped records count as rows of nothing.
fn poll(source: &mut dyn Source, limit: BatchLimit) -> Option<Vec<Row>> {
    loop {
        match now(source.poll(limit)).unwrap() {
            Polled::End => return None,
            Polled::Pending(wait) => assert!(wait.is_zero(), "a source that ends has nothing to wait for"),
            Polled::Records { records, rejected, skipped } => {
                let mut rows = Vec::new();
                for (batch, is_rejected) in [(&records, false), (&rejected, true)] {
                    batch.validate().unwrap();
                    rows.extend((0..batch.len()).map(|row| {
                        let copy = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
                        (is_rejected, batch.timestamps[row], copy(batch.keys.get(row)), copy(batch.values.get(row)))
                    }));
                }
                rows.extend((0..skipped).map(|_| (true, NO_TIME, None, None)));
                return Some(rows);
            }
        }
    }
}

/// Rows in the two orders that the contract keeps: those of the records and those of what was rejected.
fn in_order(rows: Vec<Row>) -> Vec<Row> {
    let (rejected, mut rows): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| row.0);
    rows.extend(rejected);
    rows
}

fn read_all(source: &mut dyn Source) -> Vec<Row> {
    let mut rows = Vec::new();
    while let Some(more) = poll(source, BatchLimit::default()) {
        rows.extend(more);
    }
    in_order(rows)
}

/// From the same positions come the same records, however they are cut into batches.
fn batches_make_no_difference(open: OpenSource<'_>) {
    let whole = read_all(open(&[]).unwrap().as_mut());
    assert!(whole.len() > 20, "a test needs records");
    for (records, bytes) in [(1, 1 << 20), (7, 1 << 20), (1000, 1), (1000, 100), (3, 50)] {
        let mut source = open(&[]).unwrap();
        let mut rows = Vec::new();
        while let Some(more) = poll(source.as_mut(), BatchLimit { records, bytes }) {
            assert!(more.len() <= records, "{} records, {records} allowed", more.len());
            let size = |row: &Row| row.2.as_ref().map_or(0, Vec::len) + row.3.as_ref().map_or(0, Vec::len);
            let without_last: usize = more.iter().rev().skip(1).map(size).sum();
            assert!(more.iter().any(|row| row.0) || without_last <= bytes, "more than one record beyond {bytes} bytes");
            rows.extend(more);
        }
        assert_eq!(in_order(rows), whole, "{records} records, {bytes} bytes");
    }
}

/// Opening at the positions after any batch gives exactly what comes after it.
fn positions_are_exact_after_every_batch(open: OpenSource<'_>) {
    let whole = read_all(open(&[]).unwrap().as_mut());
    let mut source = open(&[]).unwrap();
    let mut before = Vec::new();
    loop {
        let positions = source.positions();
        let mut rows = before.clone();
        rows.extend(read_all(open(&positions).unwrap().as_mut()));
        assert_eq!(in_order(rows), whole, "after {} records", before.len());
        // Asking twice gives the same, and so does a source that was only opened.
        assert_eq!(source.positions(), positions);
        assert_eq!(open(&positions).unwrap().positions(), positions);
        match poll(source.as_mut(), BatchLimit { records: 3, bytes: 1 << 20 }) {
            Some(rows) => before.extend(rows),
            None => break,
        }
    }
}

/// After the end there is only the end, also for a source that is opened there.
fn the_end_stays_the_end(open: OpenSource<'_>) {
    let mut source = open(&[]).unwrap();
    read_all(source.as_mut());
    assert_eq!(poll(source.as_mut(), BatchLimit::default()), None);
    let positions = source.positions();
    assert!(!positions.is_empty(), "splits that ended stay in the list");
    assert_eq!(poll(open(&positions).unwrap().as_mut(), BatchLimit::default()), None);
}

/// Positions that do not decode are refused, not taken for the beginning.
fn damaged_positions_are_refused(open: OpenSource<'_>) {
    let mut source = open(&[]).unwrap();
    poll(source.as_mut(), BatchLimit { records: 3, bytes: 1 << 20 });
    for at in 0..source.positions().len() {
        let mut positions = source.positions();
        positions[at].offset.clear();
        let error = open(&positions).err().expect("a position without an offset");
        assert_eq!(error.kind, ConnectorErrorKind::Mismatch);
    }
}

fn conforms_as_a_source(open: OpenSource<'_>) {
    batches_make_no_difference(open);
    positions_are_exact_after_every_batch(open);
    the_end_stays_the_end(open);
    damaged_positions_are_refused(open);
}

fn source_spec(connector: SourceConnector) -> SourceSpec {
    SourceSpec {
        name: NodeName::new("in"),
        span: 0..0,
        parallelism: 1,
        connector,
        event_time: None,
        event_time_unit: None,
        out_of_orderness: Duration::ZERO,
        idle_after: None,
        rate: None,
        on_error: OnError::DeadLetter,
    }
}

fn file_source(path: &str, format: SourceFormat) -> SourceSpec {
    source_spec(SourceConnector::File(FileSourceSpec {
        path: path.into(),
        format,
        compression: Compression::Auto,
        follow: false,
        root: None,
    }))
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn the_file_source_conforms_in_every_format_plain_and_packed() {
    let dir = tempfile::tempdir().unwrap();
    let csv = SourceFormat::Csv(CsvSpec { delimiter: b';', nulls: vec!["NA".into()], text: vec!["b".into()] });
    let row = |i: usize| format!("1970-01-01T00:00:{:02}Z;\"x;\r\n{i}\"\r\n", i % 60);
    for (name, format, texts) in [
        (
            "lines",
            SourceFormat::Lines,
            (0..3).map(|f| format!("a{f}\r\n\nb\n").repeat(5 + f) + "last").collect::<Vec<_>>(),
        ),
        ("json", SourceFormat::Json, (0..3).map(|f| format!("{{\"f\":{f}}}\n\n[1]\n{{\n\"x\"\n").repeat(5)).collect()),
        (
            "csv",
            csv,
            (0..3).map(|f| "t;b\n".to_owned() + &(0..9 + f).map(row).collect::<String>() + "\nbad row\n").collect(),
        ),
    ] {
        for (at, text) in texts.iter().enumerate() {
            fs::write(dir.path().join(format!("{name}-{at}.txt")), text).unwrap();
            fs::write(dir.path().join(format!("{name}-{at}.txt.gz")), gzip(text)).unwrap();
        }
        for glob in ["*.txt", "*.gz"] {
            let mut spec = file_source(&format!("{name}-{glob}"), format.clone());
            if name == "csv" {
                spec.event_time = Some(Pointer::parse("/t").unwrap());
            }
            for on_error in [OnError::DeadLetter, OnError::Skip] {
                spec.on_error = on_error;
                let open: OpenSource<'_> =
                    &|positions| open_source(&spec, dir.path(), &context("in", 1, 1, 0, 1), positions);
                conforms_as_a_source(open);
            }
        }
    }
}

#[test]
fn the_generator_conforms_in_every_format_and_distribution() {
    for format in [GeneratorFormat::Binary, GeneratorFormat::Json] {
        for distribution in [Distribution::Uniform, Distribution::Zipf] {
            let spec = source_spec(SourceConnector::Generator(GeneratorSpec {
                seed: 7,
                records: Some(100),
                keys: 10,
                distribution,
                value_bytes: 20,
                format,
                event_time_step: 10,
            }));
            let open: OpenSource<'_> =
                &|positions| open_source(&spec, Path::new("."), &context("in", 1, 1, 1, 3), positions);
            conforms_as_a_source(open);
        }
    }
}

// --- sinks with two phases -------------------------------------------------------------------------------------

/// A sink node with a place to write to. `visible` is what a reader sees: for each change that was published, the
/// records in their order.
trait Stage {
    fn sink(&self, context: &TaskContext) -> Result<Box<dyn Sink>, ConnectorError>;
    fn committer(&self, job: JobId) -> Box<dyn Committer>;
    fn visible(&self) -> Vec<Vec<String>>;
    /// How many files or the like wait to be published or removed.
    fn staged(&self) -> usize;
}

fn batch(values: &[&str]) -> Batch {
    let mut batch = Batch::default();
    values.iter().for_each(|value| batch.push(NO_TIME, None, Some(value.as_bytes())));
    batch
}

fn prepare(sink: &mut dyn Sink, subtask: u32, epoch: u64, values: &[&str]) -> Committable {
    now(sink.write(&batch(values))).unwrap();
    let data = now(sink.prepare(Epoch(epoch))).unwrap().expect("something was written");
    Committable { epoch: Epoch(epoch), subtask, data }
}

fn identity(node: &str, job: u8, epoch: u64) -> CommitIdentity {
    CommitIdentity { job: JobId([job; 16]), node: NodeName::new(node), epoch: Epoch(epoch) }
}

fn nothing_is_visible_before_a_commit_and_all_of_it_after(stage: &dyn Stage) {
    let mut sinks: Vec<_> = (0..2).map(|subtask| stage.sink(&context("out", 1, 1, subtask, 2)).unwrap()).collect();
    let list = [prepare(sinks[0].as_mut(), 0, 1, &["1", "2"]), prepare(sinks[1].as_mut(), 1, 1, &["3"])];
    now(sinks[0].write(&batch(&["4"]))).unwrap();
    assert!(stage.visible().is_empty());
    let committer = stage.committer(JobId([1; 16]));
    assert_eq!(now(committer.commit(&identity("out", 1, 1), &list)).unwrap(), Committed::Applied);
    assert_eq!(stage.visible(), [["1", "2", "3"]]);
}

fn what_was_written_after_a_prepare_belongs_to_the_next(stage: &dyn Stage) {
    let mut sink = stage.sink(&context("out", 1, 1, 0, 1)).unwrap();
    let committer = stage.committer(JobId([1; 16]));
    let first = prepare(sink.as_mut(), 0, 1, &["1"]);
    let second = prepare(sink.as_mut(), 0, 2, &["2"]);
    now(committer.commit(&identity("out", 1, 1), &[first])).unwrap();
    assert_eq!(stage.visible(), [["1"]]);
    now(committer.commit(&identity("out", 1, 2), &[second])).unwrap();
    assert_eq!(stage.visible(), [["1"], ["2"]]);
}

fn an_epoch_without_records_prepares_and_publishes_nothing(stage: &dyn Stage) {
    let mut sink = stage.sink(&context("out", 1, 1, 0, 1)).unwrap();
    assert_eq!(now(sink.prepare(Epoch(1))).unwrap(), None);
    now(sink.write(&Batch::default())).unwrap();
    assert_eq!(now(sink.prepare(Epoch(2))).unwrap(), None);
    now(stage.committer(JobId([1; 16])).commit(&identity("out", 1, 2), &[])).unwrap();
    assert!(stage.visible().is_empty());
}

fn a_commit_takes_the_epochs_of_failed_attempts_with_it(stage: &dyn Stage) {
    let mut sink = stage.sink(&context("out", 1, 1, 0, 1)).unwrap();
    let list: Vec<_> = (1..=3_u64).map(|n| prepare(sink.as_mut(), 0, n, &[&n.to_string()])).collect();
    now(stage.committer(JobId([1; 16])).commit(&identity("out", 1, 3), &list)).unwrap();
    assert_eq!(stage.visible(), [["1", "2", "3"]]);
}

fn a_repeated_commit_changes_nothing_and_says_so(stage: &dyn Stage) {
    let mut sink = stage.sink(&context("out", 1, 1, 0, 1)).unwrap();
    let list = [prepare(sink.as_mut(), 0, 1, &["1"])];
    drop(sink);
    for again in 0..3 {
        // A new committer each time: it knows nothing but its arguments.
        let committed = now(stage.committer(JobId([1; 16])).commit(&identity("out", 1, 1), &list)).unwrap();
        assert_eq!(committed, if again == 0 { Committed::Applied } else { Committed::AlreadyApplied });
        assert_eq!(stage.visible(), [["1"]]);
    }
}

fn a_commit_over_the_output_of_another_identity_is_refused(stage: &dyn Stage) {
    let mut sink = stage.sink(&context("out", 1, 1, 0, 1)).unwrap();
    let committer = stage.committer(JobId([1; 16]));
    let list = [prepare(sink.as_mut(), 0, 1, &["1"])];
    now(committer.commit(&identity("out", 1, 1), &list)).unwrap();
    let list = [prepare(sink.as_mut(), 0, 2, &["2"])];
    let error = now(committer.commit(&identity("else", 1, 1), &list)).unwrap_err();
    assert_eq!(error.kind, ConnectorErrorKind::Mismatch);
    assert!(error.message.contains("\"out\"") && error.message.contains("\"else\""), "{error}");
    assert_eq!(stage.visible(), [["1"]]);
}

fn another_job_or_node_on_the_same_place_is_refused(stage: &dyn Stage) {
    drop(stage.sink(&context("out", 1, 1, 0, 1)).unwrap());
    for (node, job) in [("out", 2), ("else", 1)] {
        let error = stage.sink(&context(node, job, 9, 0, 1)).err().expect("the place is taken");
        assert_eq!(error.kind, ConnectorErrorKind::Mismatch);
        assert!(error.help.is_some() && error.message.contains("\"out\""), "{error}");
    }
    assert!(stage.sink(&context("out", 1, 2, 0, 1)).is_ok(), "the next run of the same job");
}

fn collecting_removes_what_earlier_runs_staged_and_nothing_else(stage: &dyn Stage) {
    let committer = stage.committer(JobId([1; 16]));
    now(committer.collect(Generation(1))).unwrap();
    let mut old = stage.sink(&context("out", 1, 1, 0, 1)).unwrap();
    let published = [prepare(old.as_mut(), 0, 1, &["1"])];
    now(committer.commit(&identity("out", 1, 1), &published)).unwrap();
    prepare(old.as_mut(), 0, 2, &["-1"]);
    now(old.write(&batch(&["-2"]))).unwrap();
    let mut new = stage.sink(&context("out", 1, 10, 0, 1)).unwrap();
    let kept = [prepare(new.as_mut(), 0, 2, &["2"])];
    let before = stage.staged();
    let leftovers = now(committer.leftovers(Generation(10))).unwrap();
    assert!(leftovers.iter().any(|leftover| leftover.bytes > 0), "{leftovers:?}");
    assert_eq!(stage.staged(), before, "looking removes nothing");
    now(committer.collect(Generation(10))).unwrap();
    assert!(stage.staged() < before);
    assert_eq!(now(committer.leftovers(Generation(10))).unwrap(), []);
    now(committer.collect(Generation(10))).unwrap();
    now(committer.commit(&identity("out", 1, 2), &kept)).unwrap();
    assert_eq!(stage.visible(), [["1"], ["2"]]);
    now(committer.collect(Generation(11))).unwrap();
    assert_eq!(stage.staged(), 0);
    assert_eq!(stage.visible(), [["1"], ["2"]]);
}

fn what_was_given_up_is_never_published_and_what_was_published_is_not_given_up(stage: &dyn Stage) {
    let mut sink = stage.sink(&context("out", 1, 1, 0, 1)).unwrap();
    let committer = stage.committer(JobId([1; 16]));
    let [first, second] = [1, 2].map(|epoch| [prepare(sink.as_mut(), 0, epoch, &[&epoch.to_string()])]);
    let [one, two] = [1, 2].map(|epoch| identity("out", 1, epoch));
    let looked = now(committer.look(&one, &first)).unwrap();
    assert!(!looked.published && looked.staged.len() == 1 && looked.staged[0].found == Some(looked.staged[0].bytes));
    assert_eq!(now(committer.commit(&one, &first)).unwrap(), Committed::Applied);
    assert!(now(committer.look(&one, &first)).unwrap().published);
    for _ in 0..2 {
        assert_eq!(now(committer.abandon(&one, &first)).unwrap(), Abandoned::AlreadyPublished);
        assert_eq!(now(committer.abandon(&two, &second)).unwrap(), Abandoned::Done);
        let error = now(committer.commit(&two, &second)).unwrap_err();
        assert_eq!(error.kind, ConnectorErrorKind::Mismatch);
        assert_eq!(stage.visible(), [["1"]]);
    }
    assert!(!now(committer.look(&two, &second)).unwrap().published);
    // What comes after it goes on.
    let third = [prepare(sink.as_mut(), 0, 3, &["3"])];
    now(committer.commit(&identity("out", 1, 3), &third)).unwrap();
    assert_eq!(stage.visible(), [["1"], ["3"]]);
}

/// One after the other, each in a place of its own.
fn conforms_as_a_sink_with_a_stage(new: &dyn Fn() -> Box<dyn Stage>) {
    for promise in [
        nothing_is_visible_before_a_commit_and_all_of_it_after,
        what_was_written_after_a_prepare_belongs_to_the_next,
        an_epoch_without_records_prepares_and_publishes_nothing,
        a_commit_takes_the_epochs_of_failed_attempts_with_it,
        a_repeated_commit_changes_nothing_and_says_so,
        a_commit_over_the_output_of_another_identity_is_refused,
        another_job_or_node_on_the_same_place_is_refused,
        collecting_removes_what_earlier_runs_staged_and_nothing_else,
        what_was_given_up_is_never_published_and_what_was_published_is_not_given_up,
    ] {
        promise(new().as_ref());
    }
}

struct Files {
    dir: tempfile::TempDir,
    spec: SinkSpec,
}

impl Files {
    fn new(format: SinkFormat) -> Self {
        let connector = SinkConnector::File(FileSinkSpec { path: "a/b/out".into(), format, root: None });
        Self { dir: tempfile::tempdir().unwrap(), spec: sink_spec(connector) }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("a/b/out")
    }
}

fn sink_spec(connector: SinkConnector) -> SinkSpec {
    SinkSpec { name: NodeName::new("out"), span: 0..0, inputs: Vec::new(), parallelism: 1, connector }
}

fn sorted(dir: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(dir).map(|entries| entries.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
}

impl Stage for Files {
    fn sink(&self, context: &TaskContext) -> Result<Box<dyn Sink>, ConnectorError> {
        now(open_sink(&self.spec, self.dir.path(), context))
    }

    fn committer(&self, job: JobId) -> Box<dyn Committer> {
        committer(&self.spec, self.dir.path(), job).unwrap().expect("a file sink publishes")
    }

    fn visible(&self) -> Vec<Vec<String>> {
        let mut epochs = Vec::new();
        for epoch in sorted(&self.path()) {
            let name = epoch.file_name().unwrap().to_str().unwrap().to_owned();
            if name == ".weir" {
                continue;
            }
            assert!(name.starts_with("epoch-"), "{name}");
            let mut lines = Vec::new();
            for part in sorted(&epoch) {
                if part.extension().is_some_and(|extension| extension != "json") {
                    lines.extend(fs::read_to_string(part).unwrap().lines().map(str::to_owned));
                }
            }
            epochs.push(lines);
        }
        epochs
    }

    fn staged(&self) -> usize {
        let runs = sorted(&self.path().join(".weir").join(JobId([1; 16]).to_string()));
        runs.iter().filter(|run| !run.ends_with("commit")).flat_map(|run| sorted(run)).count()
    }
}

#[test]
fn the_file_sink_conforms() {
    for format in [SinkFormat::Lines, SinkFormat::Json] {
        conforms_as_a_sink_with_a_stage(&|| Box::new(Files::new(format)));
    }
}

struct Objects {
    dir: tempfile::TempDir,
    spec: SinkSpec,
}

impl Objects {
    fn new(format: SinkFormat) -> Self {
        let url = "file://./a/b/out".to_owned();
        let connector = SinkConnector::Object(ObjectSinkSpec { url, options: StoreOptions::default(), format });
        Self { dir: tempfile::tempdir().unwrap(), spec: sink_spec(connector) }
    }

    /// By the reader rule: for each commit record its objects' bytes.
    fn published(&self) -> Vec<Vec<Vec<u8>>> {
        now(async {
            let reader = ObjectReader::open("file://./a/b/out", self.dir.path(), &StoreOptions::default());
            let Ok(reader) = reader else { return Vec::new() };
            let mut epochs = Vec::new();
            for epoch in reader.epochs(Epoch(0)).await.unwrap() {
                let mut objects = Vec::new();
                for object in reader.objects(epoch).await.unwrap() {
                    let pieces: Vec<_> = reader.read(&object).await.unwrap().collect().await;
                    let bytes: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.unwrap().to_vec()).collect();
                    assert_eq!(bytes.len() as u64, object.bytes);
                    objects.push(bytes);
                }
                epochs.push(objects);
            }
            epochs
        })
    }
}

impl Stage for Objects {
    fn sink(&self, context: &TaskContext) -> Result<Box<dyn Sink>, ConnectorError> {
        now(open_sink(&self.spec, self.dir.path(), context))
    }

    fn committer(&self, job: JobId) -> Box<dyn Committer> {
        committer(&self.spec, self.dir.path(), job).unwrap().expect("an object sink publishes")
    }

    fn visible(&self) -> Vec<Vec<String>> {
        let epochs = self.published().into_iter().filter(|objects| !objects.is_empty());
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let lines = |object: Vec<u8>| text(object).lines().map(str::to_owned).collect::<Vec<_>>();
        epochs.map(|objects| objects.into_iter().flat_map(lines).collect()).collect()
    }

    fn staged(&self) -> usize {
        let runs = sorted(&self.dir.path().join("a/b/out/data").join(JobId([1; 16]).to_string()));
        let staged = runs.iter().flat_map(|run| sorted(run)).count();
        staged - self.published().iter().map(Vec::len).sum::<usize>()
    }
}

#[test]
fn the_object_sink_conforms() {
    for format in [SinkFormat::Lines, SinkFormat::Json] {
        conforms_as_a_sink_with_a_stage(&|| Box::new(Objects::new(format)));
    }
}

/// Larger than one part, so that it goes up while it is written.
#[test]
fn an_epoch_of_many_megabytes_becomes_one_object_that_is_read_back_as_it_was() {
    let place = Objects::new(SinkFormat::Lines);
    let mut sink = place.sink(&context("out", 1, 1, 0, 1)).unwrap();
    let value = "x".repeat(1 << 20);
    let list = now(async {
        for n in 0..20 {
            sink.write(&batch(&[&format!("{n}{value}")])).await.unwrap();
        }
        let data = sink.prepare(Epoch(1)).await.unwrap().unwrap();
        [Committable { epoch: Epoch(1), subtask: 0, data }]
    });
    now(place.committer(JobId([1; 16])).commit(&identity("out", 1, 1), &list)).unwrap();
    let visible = place.visible();
    let whole = visible[0].iter().enumerate().all(|(n, line)| *line == format!("{n}{value}"));
    assert!(visible.len() == 1 && visible[0].len() == 20 && whole);
    assert_eq!(place.published()[0].len(), 1);
}

#[test]
fn an_object_that_is_not_what_its_record_says_is_refused_by_name() {
    let place = Objects::new(SinkFormat::Lines);
    let mut sink = place.sink(&context("out", 1, 1, 0, 1)).unwrap();
    let list = [prepare(sink.as_mut(), 0, 1, &["1"])];
    now(place.committer(JobId([1; 16])).commit(&identity("out", 1, 1), &list)).unwrap();
    let runs = sorted(&place.dir.path().join("a/b/out/data").join(JobId([1; 16]).to_string()));
    let file = runs.iter().flat_map(|run| sorted(run)).next().unwrap();
    fs::write(&file, "2\n").unwrap();
    now(async {
        let reader = ObjectReader::open("file://./a/b/out", place.dir.path(), &StoreOptions::default()).unwrap();
        let objects = reader.objects(Epoch(1)).await.unwrap();
        let pieces: Vec<_> = reader.read(&objects[0]).await.unwrap().collect().await;
        let error = pieces.into_iter().find_map(Result::err).expect("it was changed");
        assert!(error.message.contains(&objects[0].name), "{error}");
    });
}

#[test]
fn the_file_sink_publishes_to_where_it_was_prepared_for_even_if_the_pipeline_says_otherwise_now() {
    let files = Files::new(SinkFormat::Lines);
    let mut sink = files.sink(&context("out", 1, 1, 0, 1)).unwrap();
    let list = [prepare(sink.as_mut(), 0, 1, &["1"])];
    let elsewhere = tempfile::tempdir().unwrap();
    let other =
        sink_spec(SinkConnector::File(FileSinkSpec { path: "else".into(), format: SinkFormat::Csv, root: None }));
    let committer = committer(&other, elsewhere.path(), JobId([1; 16])).unwrap().unwrap();
    now(committer.commit(&identity("out", 1, 1), &list)).unwrap();
    assert_eq!(files.visible(), [["1"]]);
    assert!(sorted(elsewhere.path()).is_empty());
}

#[test]
fn csv_parts_have_a_header_each_and_come_back_through_the_file_source_as_they_were() {
    let files = Files::new(SinkFormat::Csv);
    let mut sink = files.sink(&context("out", 1, 1, 0, 1)).unwrap();
    let values = [
        r#"{"name":"a \"quoted\", name","n":1.50,"none":null}"#,
        r#"{"name":"two\r\nlines","n":-7,"none":null}"#,
        r#"{"name":"é","n":1e3,"none":null}"#,
    ];
    let list = [prepare(sink.as_mut(), 0, 1, &values), prepare(sink.as_mut(), 0, 2, &values[..1])];
    now(files.committer(JobId([1; 16])).commit(&identity("out", 1, 2), &list)).unwrap();
    let csv = CsvSpec { delimiter: b',', nulls: vec![String::new()], text: Vec::new() };
    let spec = file_source("epoch-*/part-*.csv", SourceFormat::Csv(csv));
    let mut source = open_source(&spec, &files.path(), &context("in", 1, 1, 0, 1), &[]).unwrap();
    let read: Vec<String> =
        read_all(source.as_mut()).into_iter().map(|row| String::from_utf8(row.3.unwrap()).unwrap()).collect();
    assert_eq!(read, [&values[..], &values[..1]].concat());
}

// --- sinks without a stage -------------------------------------------------------------------------------------

fn conforms_as_a_sink_without_a_stage(connector: SinkConnector, sink: &mut dyn Sink) {
    assert_eq!(guarantee(&connector), Guarantee::AtLeastOnce);
    assert!(committer(&sink_spec(connector), Path::new("."), JobId([1; 16])).unwrap().is_none());
    assert_eq!(now(sink.prepare(Epoch(1))).unwrap(), None);
    now(sink.write(&batch(&["1", "2"]))).unwrap();
    assert_eq!(now(sink.prepare(Epoch(2))).unwrap(), None);
    now(sink.write(&batch(&["3"]))).unwrap();
}

#[test]
fn standard_output_shows_what_is_written_at_once_and_says_that_it_is_at_least_once() {
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let out = Shared::default();
    let mut sink = StdoutSink::new(SinkFormat::Lines, Box::new(out.clone()));
    conforms_as_a_sink_without_a_stage(SinkConnector::Stdout(SinkFormat::Lines), &mut sink);
    assert_eq!(out.0.lock().unwrap().as_slice(), b"1\n2\n3\n");
}

#[test]
fn a_blackhole_counts_and_says_that_it_is_at_least_once() {
    let tally = Arc::new(Tally::default());
    let mut sink = Blackhole::with_checksum(Arc::clone(&tally));
    conforms_as_a_sink_without_a_stage(SinkConnector::Blackhole, &mut sink);
    assert_eq!((tally.records(), tally.bytes()), (3, 3));
    let mut other = Blackhole::with_checksum(Arc::default());
    now(other.write(&batch(&["3", "2", "1"]))).unwrap();
    assert_eq!(other.tally().checksum(), tally.checksum());
    let exactly = SinkConnector::File(FileSinkSpec { path: "out".into(), format: SinkFormat::Json, root: None });
    assert_eq!(guarantee(&exactly), Guarantee::ExactlyOnce);
}
