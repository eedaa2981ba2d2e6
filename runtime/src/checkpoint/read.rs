//! State on its way back from packs to a guest.
//!
//! The footers of all packs come first, then chunks in the order in which the guest reads them: a few reads are ahead, each of some MiB of one pack, and
//! hashing and decompressing is done aside. What is in memory is bounded however large the state is. Nothing is given that does not match its
//! hash (I1); a pack that is missing or damaged is named.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};

use super::error::CheckpointError;
use super::holdings::Holdings;
use super::objects::JobStore;
use super::pack::{PackBuilder, PackIndex, PackName};
use super::packer::{Piece, Pieces};
use super::segment::{Layout, SegmentRef, reading_order};
use crate::model::{Chunk, Epoch, Generation, Scope, SegmentKind, TaskId};
use crate::offload::offload;

/// How many packs' footers are read at once.
const FOOTERS_AT_ONCE: usize = 8;
/// How many reads are ahead of the guest.
const READS_AHEAD: usize = 6;
/// How many bytes of state one read asks for, unless a chunk has more.
const READ_BYTES: u64 = 4 << 20;

/// The state of a subtask, chunk by chunk.
pub struct SegmentReader {
    parts: BoxStream<'static, Result<Part, CheckpointError>>,
    /// Chunks of the part that is being handed out.
    ready: VecDeque<Chunk>,
    /// Pieces that have not become chunks yet.
    joined: BytesMut,
    /// The chunks that they are to become: how long, and how many.
    runs: VecDeque<(u32, u32)>,
}

/// Chunks of one reference that lie side by side.
struct Part {
    scope: Scope,
    kind: SegmentKind,
    origin: u32,
    layout: Layout,
    chunks: Vec<Bytes>,
}

impl std::fmt::Debug for SegmentReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SegmentReader").finish_non_exhaustive()
    }
}

impl SegmentReader {
    /// Looks at every pack that the segments name, and gets ready to read their chunks. Says what is held with them. `store_of` says in which
    /// store a pack is.
    ///
    /// # Errors
    ///
    /// If a pack is missing or damaged, or does not have what is wanted of it.
    pub async fn open(
        segments: &[SegmentRef],
        store_of: impl Fn(&PackName) -> JobStore,
    ) -> Result<(Self, Holdings), CheckpointError> {
        let packs = open_packs(segments.iter(), store_of).await?;
        let wanted: Vec<SegmentRef> = reading_order(segments).into_iter().cloned().collect();
        let reads = reads(&packs, wanted)?;
        let holdings = Holdings::restored(segments.to_vec(), &packs);
        let packs = Arc::new(packs);
        let parts =
            futures::stream::iter(reads).map(move |read| read.run(Arc::clone(&packs))).buffered(READS_AHEAD).boxed();
        let (ready, runs) = (VecDeque::new(), VecDeque::new());
        Ok((Self { parts, ready, joined: BytesMut::new(), runs }, holdings))
    }

    /// The next chunk, as `wit/snapshots.wit` says; none when there are no more.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not what was written. There is no going on after that.
    pub async fn next(&mut self) -> Result<Option<Chunk>, CheckpointError> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Ok(Some(chunk));
            }
            match self.parts.try_next().await? {
                Some(part) => self.take(part),
                None => return Ok(None),
            }
        }
    }

    fn take(&mut self, part: Part) {
        let Part { scope, kind, origin, layout, chunks } = part;
        let chunk = |data| Chunk { scope, kind, origin, data };
        match layout {
            Layout::Chunks => return self.ready.extend(chunks.into_iter().map(chunk)),
            Layout::Pieces(lengths) => self.runs = lengths.iter().map(|part| (part.bytes, part.count)).collect(),
            Layout::More => {}
        }
        for piece in chunks {
            self.joined.extend_from_slice(&piece);
            while let Some((bytes, count)) = self.runs.front_mut()
                && *bytes as usize <= self.joined.len()
            {
                self.ready.push_back(chunk(self.joined.split_to(*bytes as usize).freeze()));
                *count -= 1;
                if *count == 0 {
                    self.runs.pop_front();
                }
            }
        }
    }
}

/// Reads the chunks of segments, each checked against its hash, in [`reading_order`].
///
/// A pack that is missing or damaged is named in the error, and nothing is given.
pub async fn read_segments(store: &JobStore, segments: &[SegmentRef]) -> Result<Vec<Chunk>, CheckpointError> {
    let (mut reader, _) = SegmentReader::open(segments, |_| store.clone()).await?;
    let mut chunks = Vec::new();
    while let Some(chunk) = reader.next().await? {
        chunks.push(chunk);
    }
    Ok(chunks)
}

/// A pack whose footer was read.
pub(super) struct OpenedPack {
    store: JobStore,
    pub(super) index: PackIndex,
}

pub(super) type OpenedPacks = HashMap<PackName, OpenedPack>;

/// All packs that some segments name.
async fn open_packs(
    segments: impl Iterator<Item = &SegmentRef>,
    store_of: impl Fn(&PackName) -> JobStore,
) -> Result<OpenedPacks, CheckpointError> {
    let mut seen = HashSet::new();
    let names: Vec<_> = segments
        .map(|segment| &segment.pack)
        .filter(|name| seen.insert(*name))
        .map(|name| (name.clone(), store_of(name)))
        .collect();
    futures::stream::iter(names)
        .map(|(name, store)| async move {
            let index = store.pack_index(&name).await?;
            Ok::<_, CheckpointError>((name, OpenedPack { store, index }))
        })
        .buffer_unordered(FOOTERS_AT_ONCE)
        .try_collect()
        .await
}

/// One read of a store: chunks that lie side by side.
struct Read {
    segment: SegmentRef,
    layout: Layout,
    chunks: std::ops::Range<u32>,
}

/// What has to be read for segments, in their order. Every reference is checked against its pack first.
fn reads(packs: &OpenedPacks, segments: Vec<SegmentRef>) -> Result<Vec<Read>, CheckpointError> {
    let mut reads = Vec::new();
    for segment in segments {
        // Every pack was opened.
        let Some(OpenedPack { store, index }) = packs.get(&segment.pack) else { continue };
        let damaged = |fault| store.damaged_pack(&segment.pack, fault);
        let chunks = index.chunks_of(&segment).map_err(damaged)?;
        let (mut start, mut bytes) = (chunks.start, 0);
        let mut layout = segment.layout.clone();
        for number in chunks.clone() {
            let next = u64::from(index.plain_bytes(number).map_err(damaged)?);
            if bytes + next > READ_BYTES && number > start {
                let after = if layout == Layout::Chunks { Layout::Chunks } else { Layout::More };
                let layout = std::mem::replace(&mut layout, after);
                reads.push(Read { segment: segment.clone(), layout, chunks: start..number });
                (start, bytes) = (number, 0);
            }
            bytes += next;
        }
        reads.push(Read { segment, layout, chunks: start..chunks.end });
    }
    Ok(reads)
}

impl Read {
    async fn run(self, packs: Arc<OpenedPacks>) -> Result<Part, CheckpointError> {
        let Self { segment, layout, chunks } = self;
        let SegmentRef { scope, kind, origin, pack, .. } = segment;
        // Every pack was opened, or there would be no read of it.
        let missing = || CheckpointError::Missing { object: pack.to_string(), by: "the checkpoint".into() };
        let opened = packs.get(&pack).ok_or_else(missing)?;
        let damaged = |fault: String| opened.store.damaged_pack(&pack, fault);
        let range = opened.index.range(chunks.clone()).map_err(damaged)?;
        let stored = opened.store.pack_range(&pack, range.clone()).await?;
        let (name, all) = (pack.clone(), Arc::clone(&packs));
        let checked = offload(move || {
            let index = &all.get(&name).ok_or("its footer was not read")?.index;
            chunks.map(|number| index.chunk(number, range.start, &stored)).collect::<Result<Vec<_>, String>>()
        });
        let chunks = checked.await.and_then(|checked| checked).map_err(damaged)?;
        Ok(Part { scope, kind, origin, layout, chunks })
    }
}

/// Writes chunks of old packs again, into one new pack, and says what is then held; nothing if no chunk is to be moved. The pack is durable, and
/// its bytes come with it.
///
/// # Errors
///
/// If a chunk cannot be read or the pack not be written. What is held is then as before.
pub async fn move_chunks(
    store: &JobStore,
    holdings: &Holdings,
    (generation, epoch, task): (Generation, Epoch, &TaskId),
    places: Vec<usize>,
) -> Result<Option<(Holdings, u64)>, CheckpointError> {
    if places.is_empty() {
        return Ok(None);
    }
    let all = holdings.segments().as_slice();
    let old: Vec<SegmentRef> = places.iter().map(|place| all[*place].clone()).collect();
    let packs = open_packs(old.iter(), |_| store.clone()).await?;
    let reads = reads(&packs, old.clone())?;
    let packs = Arc::new(packs);
    let parts: Vec<Part> = futures::stream::iter(reads)
        .map(|read| read.run(Arc::clone(&packs)))
        .buffered(READS_AHEAD)
        .try_collect()
        .await?;
    let mut builder = PackBuilder::new(generation, epoch, task);
    let built = offload(move || {
        let mut chunks = parts.into_iter().flat_map(|part| part.chunks);
        let mut moved = Vec::with_capacity(old.len());
        let mut pieces = Vec::new();
        for segment in old {
            let first_chunk = builder.chunks();
            for data in chunks.by_ref().take(segment.chunks as usize) {
                let hash = blake3::hash(&data);
                if segment.layout != Layout::Chunks {
                    pieces.push((*hash.as_bytes(), builder.chunks(), data.len() as u32));
                }
                let (scope, kind, origin) = (segment.scope, segment.kind, segment.origin);
                builder.write_as(scope, kind, origin, &Layout::Chunks, data, Some(hash))?;
            }
            moved.push(SegmentRef { first_chunk, ..segment });
        }
        Ok::<_, CheckpointError>((builder.finish(), moved, pieces))
    });
    let (pack, mut moved, pieces) = built.await.map_err(CheckpointError::Refused)??;
    let Some(pack) = pack else { return Ok(None) };
    store.put_pack(&pack).await?;
    moved.iter_mut().for_each(|segment| segment.pack = pack.name.clone());
    let pieces: Pieces = pieces
        .into_iter()
        .map(|(hash, number, bytes)| (hash, Piece { pack: pack.name.clone(), number, bytes }))
        .collect();
    let mut holdings = holdings.clone();
    holdings.replace(&places, moved, pieces);
    Ok(Some((holdings, pack.bytes)))
}
