//! What does it cost to hand a batch to a guest?
//!
//! By batch size: a guest that takes a batch and says nothing; the same batch copied natively, for scale; and the empty call. Records
//! have a key of 16 bytes and a value of 100, and interrupts are on, as in a job.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use weir::model::Batch;
use weir::plugin::Output;

fn batch(records: usize) -> Batch {
    let mut batch = Batch::default();
    for i in 0..records {
        batch.push(i as i64, Some(format!("key-{i:012}").as_bytes()), Some(&[7; 100]));
    }
    batch.hash_keys();
    batch
}

fn hand_over(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let component = weir_benches::component(&weir_benches::root().join("benches/guests/map"));
    let mut operator = runtime.block_on(async {
        let code = weir_benches::guest(&component, r#"{"drop":true}"#).await;
        (code.open)(weir_benches::task()).await.expect("the guest opens")
    });
    let mut group = criterion.benchmark_group("plugin_call");
    let mut out = Output::default();
    for records in [1, 16, 64, 256, 1024, 4096] {
        let batch = batch(records);
        group.throughput(Throughput::Elements(records as u64));
        group.bench_function(BenchmarkId::new("hand_over", records), |bencher| {
            bencher.iter_custom(|rounds| {
                let clock = weir::clock::Clock::system();
                runtime.block_on(async {
                    for _ in 0..rounds {
                        out.clear();
                        operator.process(0, 0, &batch, &mut out).await.expect("the guest takes it");
                    }
                });
                clock.elapsed()
            });
        });
        group.bench_function(BenchmarkId::new("native_copy", records), |bencher| {
            bencher.iter(|| std::hint::black_box(batch.clone()));
        });
    }
    group.throughput(Throughput::Elements(1));
    group.bench_function("empty_call", |bencher| {
        let mut watermark = 0;
        bencher.iter_custom(|rounds| {
            let clock = weir::clock::Clock::system();
            runtime.block_on(async {
                for _ in 0..rounds {
                    watermark += 1;
                    out.clear();
                    operator.advance(0, watermark, &mut out).await.expect("the guest answers");
                }
            });
            clock.elapsed()
        });
    });
    group.finish();
}

criterion_group!(benches, hand_over);
criterion_main!(benches);
