//! What does it cost to take state out of a guest, to make it durable, and to put it back?
//!
//! The operator `count` with a number of keys of 8 bytes: a full snapshot into memory; one after 1 % of the keys changed; and a restore
//! into a fresh instance. As a guest, and as the same code natively.
//!
//! And what does it cost where the guest has no code for it, and images of its memory are taken: one of 256 MiB, of which all is new, nothing
//! has changed, or has changed what a batch changes.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use weir::flow::OperatorCode;
use weir::model::{Batch, Chunk, Epoch, Scope, SegmentKind, SnapshotMode};
use weir::plugin::{Operator, Output, SnapshotWriter};

#[derive(Default)]
struct Written(Vec<Chunk>);

impl SnapshotWriter for Written {
    fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> bool {
        self.0.push(Chunk { scope, kind, origin: 0, data: data.to_vec().into() });
        true
    }
}

impl Written {
    fn bytes(&self) -> u64 {
        self.0.iter().map(|chunk| chunk.data.len() as u64).sum()
    }
}

async fn count(operator: &mut dyn Operator, keys: impl Iterator<Item = u64>) {
    let mut out = Output::default();
    let mut batch = Batch::default();
    let keys: Vec<u64> = keys.collect();
    for some in keys.chunks(1024) {
        batch.clear();
        for key in some {
            batch.push(0, Some(&key.to_le_bytes()), Some(b""));
        }
        batch.hash_keys();
        out.clear();
        operator.process(0, 0, &batch, &mut out).await.expect("the operator counts");
    }
}

async fn snapshot(operator: &mut dyn Operator, epoch: u64, mode: SnapshotMode) -> Written {
    let mut written = Written::default();
    while !operator.snapshot(Epoch(epoch), mode, &mut written).await.expect("the operator writes") {}
    written
}

fn snapshots(criterion: &mut Criterion) {
    const KEYS: u64 = 1_000_000;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let component = weir_benches::component(&weir_benches::root().join("plugins/count"));
    let config = r#"{"format":"binary"}"#;
    let guest: OperatorCode = runtime.block_on(weir_benches::guest(&component, config));
    let native: OperatorCode = weir_benches::native::<weir_count::Count>(config);
    let mut group = criterion.benchmark_group("snapshot");
    group.sample_size(10);
    for (name, code) in [("guest", guest), ("native", native)] {
        let mut operator = runtime.block_on((code.open)(weir_benches::task())).expect("the operator opens");
        runtime.block_on(count(operator.as_mut(), 0..KEYS));
        let mut epoch = 0;
        let full = runtime.block_on(snapshot(operator.as_mut(), 0, SnapshotMode::Full));
        group.throughput(Throughput::Bytes(full.bytes()));
        group.bench_function(BenchmarkId::new("full", name), |bencher| {
            bencher.iter(|| {
                epoch += 1;
                runtime.block_on(snapshot(operator.as_mut(), epoch, SnapshotMode::Full)).0.len()
            });
        });
        group.throughput(Throughput::Elements(KEYS / 100));
        group.bench_function(BenchmarkId::new("one_percent", name), |bencher| {
            bencher.iter_custom(|rounds| {
                let mut spent = std::time::Duration::ZERO;
                for _ in 0..rounds {
                    epoch += 1;
                    let keys = (0..KEYS / 100).map(|i| (i * 100 + epoch) % KEYS);
                    runtime.block_on(count(operator.as_mut(), keys));
                    let clock = weir::clock::Clock::system();
                    runtime.block_on(snapshot(operator.as_mut(), epoch, SnapshotMode::Incremental));
                    spent += clock.elapsed();
                }
                spent
            });
        });
        group.throughput(Throughput::Bytes(full.bytes()));
        group.bench_function(BenchmarkId::new("restore", name), |bencher| {
            bencher.iter_custom(|rounds| {
                let mut spent = std::time::Duration::ZERO;
                for _ in 0..rounds {
                    let chunks = full.0.clone();
                    runtime.block_on(async {
                        let mut operator = (code.open)(weir_benches::task()).await.expect("the operator opens");
                        let clock = weir::clock::Clock::system();
                        operator.restore(1, chunks).await.expect("the operator takes it");
                        spent += clock.elapsed();
                    });
                }
                spent
            });
        });
    }
    group.finish();
}

fn images(criterion: &mut Criterion) {
    const BALLAST: u64 = 256 << 20;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let component = weir_benches::component(&weir_benches::root().join("tests/guests/simple-count"));
    let config = format!(r#"{{"ballast":{BALLAST}}}"#);
    let code = runtime.block_on(weir_benches::guest(&component, &config));
    let mut operator = runtime.block_on((code.open)(weir_benches::task())).expect("the operator opens");
    runtime.block_on(count(operator.as_mut(), 0..100_000));
    let mut epoch = 0;
    let full = runtime.block_on(snapshot(operator.as_mut(), epoch, SnapshotMode::Full));
    let mut group = criterion.benchmark_group("image");
    group.sample_size(10).throughput(Throughput::Bytes(full.bytes()));
    let modes = [
        ("full", SnapshotMode::Full, 0),
        ("unchanged", SnapshotMode::Incremental, 0),
        ("a_batch", SnapshotMode::Incremental, 1024),
    ];
    for (name, mode, keys) in modes {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                let mut spent = std::time::Duration::ZERO;
                for _ in 0..rounds {
                    epoch += 1;
                    runtime.block_on(count(operator.as_mut(), 0..keys));
                    let clock = weir::clock::Clock::system();
                    runtime.block_on(snapshot(operator.as_mut(), epoch, mode));
                    spent += clock.elapsed();
                }
                spent
            });
        });
    }
    group.bench_function("restore", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut spent = std::time::Duration::ZERO;
            for _ in 0..rounds {
                let chunks = full.0.clone();
                runtime.block_on(async {
                    let mut operator = (code.open)(weir_benches::task()).await.expect("the operator opens");
                    let clock = weir::clock::Clock::system();
                    operator.restore(1, chunks).await.expect("it fits");
                    spent += clock.elapsed();
                });
            }
            spent
        });
    });
    group.finish();
}

criterion_group!(benches, snapshots, images);
criterion_main!(benches);
