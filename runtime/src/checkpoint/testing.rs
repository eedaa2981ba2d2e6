//! What the tests of this room share: numbers from a seed, a way to run futures by hand, and small objects.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn chance(&mut self, per_thousand: u64) -> bool {
        self.below(1000) < per_thousand
    }
}

/// A store that takes everything for new: what `probe` has to find out.
#[derive(Debug)]
pub(crate) struct Overwriting(pub(crate) InMemory);

impl fmt::Display for Overwriting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Overwriting")
    }
}

#[async_trait]
impl ObjectStore for Overwriting {
    async fn put_opts(&self, path: &Path, payload: PutPayload, mut options: PutOptions) -> Result<PutResult> {
        options.mode = PutMode::Overwrite;
        self.0.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, o: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, o).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

/// A program of an actor.
pub(crate) type Program = Pin<Box<dyn Future<Output = ()>>>;

/// Runs a future that never waits for anything but [`FaultyStore::step`](super::faulty::FaultyStore::step) or a store in memory.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    for _ in 0..10_000_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
    panic!("the program does not end");
}

/// Polls a program once. True: it has ended.
pub(crate) fn poll(program: &mut Program) -> bool {
    program.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// What commands do that make a savepoint beside whoever runs the job, and delete it after a while.
pub(crate) async fn keep_savepoint(
    store: &super::Store,
    name: &str,
    hold: impl Future<Output = ()>,
) -> Result<(), super::CheckpointError> {
    super::create_savepoint(store, "job", name).await?;
    hold.await;
    super::delete_savepoint(store, "job", name).await.map(drop)
}

/// An empty history in a store in memory.
pub(crate) fn job_store() -> super::JobStore {
    let store = super::Store::new(Arc::new(InMemory::new())).seeded(1);
    super::JobStore::new(&store, "job", crate::model::JobId([7; 16]))
}

/// Flips a bit of an object.
pub(crate) fn flip(store: &super::JobStore, path: &Path, byte: usize) {
    let found = run(store.store().read(path, u64::MAX)).expect("memory answers").expect("it is there");
    let mut bytes = found.to_vec();
    bytes[byte] ^= 1;
    run(store.store().delete(path)).expect("memory answers");
    run(store.store().settle(path, &bytes.into())).expect("memory answers");
}

/// A manifest with a source, an operator with state and a sink with a committable.
pub(crate) fn a_manifest(epoch: u64, generation: u64) -> super::Manifest {
    use crate::model::{Committable, Epoch, Generation, JobId, NodeName, Scope, SegmentKind, SplitPosition};
    let segment = super::SegmentRef {
        scope: Scope::KeyGroup(7),
        kind: SegmentKind::Base,
        origin: 0,
        pack: format!("{generation}-{epoch}-count.0-{}", "ab".repeat(32)).parse().expect("it is a name"),
        first_chunk: 0,
        chunks: 2,
        bytes: 10,
        layout: super::Layout::Chunks,
    };
    let position = SplitPosition { split: "a.csv".into(), offset: vec![1, 2], fingerprint: vec![3] };
    let node = |name: &str, kind, subtask| super::NodeEntry {
        name: NodeName::new(name),
        kind,
        parallelism: 1,
        plugin: None,
        subtasks: vec![subtask],
        grants: Vec::new(),
        committables: Vec::new(),
    };
    let mut nodes = vec![
        node(
            "read",
            super::NodeKind::Source,
            super::SubtaskEntry { positions: vec![position], ..super::SubtaskEntry::default() },
        ),
        node(
            "count",
            super::NodeKind::Operator,
            super::SubtaskEntry { segments: vec![segment], ..super::SubtaskEntry::default() },
        ),
        node("write", super::NodeKind::Sink, super::SubtaskEntry::default()),
    ];
    nodes[1].plugin = Some(super::PluginEntry {
        digest: [4; 32],
        name: "count".into(),
        version: "0.1.0".into(),
        state_version: 1,
        image: None,
    });
    for data in [vec![1], vec![2]] {
        nodes[2].committables.push(Committable { epoch: Epoch(epoch), subtask: 0, data });
    }
    super::Manifest {
        job: "job".into(),
        job_id: JobId([7; 16]),
        epoch: Epoch(epoch),
        generation: Generation(generation),
        parent: Some(Epoch(epoch - 1)),
        created_at: 1,
        finished: false,
        key_groups: 8,
        pipeline: [5; 32],
        nodes,
    }
}
