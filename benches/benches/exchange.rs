//! What does it cost to spread records over subtasks by key?
//!
//! One sender, 1 to 8 receivers, 1,024 records of 100 bytes to a batch: hashing, splitting, and the way through the channels.

use std::future::poll_fn;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use weir::flow::{Exchange, Keying, channel};
use weir::model::{Batch, BatchLimit};
use weir::plan::{ExchangeKind, OnError};

fn keyed(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let mut batch = Batch::default();
    for i in 0..1024_u64 {
        let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        batch.push(i as i64, Some(&key), Some(&[7; 84]));
    }
    let keying = Keying { key: None, hash: true, on_error: OnError::Fail, edge: "a -> b".into() };
    let mut group = criterion.benchmark_group("exchange");
    group.throughput(Throughput::Elements(batch.len() as u64));
    for receivers in [1, 2, 4, 8] {
        group.bench_function(BenchmarkId::new("keyed", receivers), |bencher| {
            bencher.iter_custom(|rounds| {
                let clock = weir::clock::Clock::system();
                runtime.block_on(async {
                    let (senders, ends): (Vec<_>, Vec<_>) = (0..receivers).map(|_| channel(64, 4 << 20)).unzip();
                    let drains: Vec<_> = ends
                        .into_iter()
                        .map(|mut end| {
                            tokio::spawn(async move {
                                let mut elements = 0;
                                while poll_fn(|cx| end.poll_recv(cx)).await.is_some() {
                                    elements += 1;
                                }
                                elements
                            })
                        })
                        .collect();
                    let mut exchange = Exchange::new(ExchangeKind::Keyed, senders, BatchLimit::default(), 128, 0);
                    for _ in 0..rounds {
                        let mut batch = batch.clone();
                        keying.apply(&mut batch).expect("keys are there");
                        exchange.send_batch(batch, Duration::ZERO).await.expect("receivers are there");
                    }
                    exchange.flush().await.expect("receivers are there");
                    drop(exchange);
                    for drain in drains {
                        drain.await.expect("the receiver lives");
                    }
                });
                clock.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, keyed);
criterion_main!(benches);
