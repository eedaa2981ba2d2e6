//! A savepoint in one file, and a job that begins from such a file.
//!
//! ```text
//! magic ‖ version ‖ section … ‖ end ‖ blake3 of all that
//! section: kind, length of its name, length of its body, name, body
//!   1 the manifest, under the name of the savepoint; first
//!   2 a plugin, under its digest
//!   3 a pack, under its name
//! ```
//!
//! It is read and written a section at a time. Before anything is imported the whole file is read once against its hash, so a file
//! that was cut or changed is refused, and then each part again against its own: a file that changes meanwhile is found out too.
//!
//! **An import** begins a new history of the job in another store: the packs are copied, then the first claim, whose base is the
//! manifest, then the history's identity makes it the job's. A program that dies in between leaves packs that nothing finds. Packs
//! keep their names but for the generation: it becomes 0, which no run ever has, since the runs of the new history count from 1.
//! What the manifest had prepared for its sinks is published where it comes from, and left out.

use std::io::SeekFrom;
use std::path::{Path as FsPath, PathBuf};

use bytes::Bytes;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufWriter};

use super::error::{Cause, CheckpointError};
use super::log::{Identity, encode_pin};
use super::manifest::Manifest;
use super::objects::{JobStore, OBJECT_BYTES_MAX, PLUGIN_BYTES_MAX, Store};
use super::pack::{PACK_BYTES_MAX, PackName, PackReader};
use super::recover::{begin_history, look_at};
use super::savepoint::{Savepoint, decode_pin, find_savepoint};
use crate::clock::Clock;
use crate::model::{Generation, JobId};

const MAGIC: &[u8; 8] = b"weirsave";
const VERSION: u16 = 1;
const HEAD_BYTES: u64 = 8 + 2;
const HASH_BYTES: u64 = 32;
const SECTION_BYTES: u64 = 1 + 4 + 8;
/// The longest name of a section.
const NAME_BYTES_MAX: u32 = 1024;
/// The most sections of a file.
const SECTIONS_MAX: usize = 1 << 20;
/// How much of a file is hashed at once.
const STEP_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Manifest,
    Plugin,
    Pack,
    End,
}

impl Kind {
    fn byte(self) -> u8 {
        match self {
            Self::Manifest => 1,
            Self::Plugin => 2,
            Self::Pack => 3,
            Self::End => 255,
        }
    }

    fn of(byte: u8) -> Option<Self> {
        [Self::Manifest, Self::Plugin, Self::Pack, Self::End].into_iter().find(|kind| kind.byte() == byte)
    }

    /// The largest body.
    fn bytes_max(self) -> u64 {
        match self {
            Self::Manifest => OBJECT_BYTES_MAX,
            Self::Plugin => PLUGIN_BYTES_MAX,
            Self::Pack => PACK_BYTES_MAX,
            Self::End => 0,
        }
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// How many packs.
    pub packs: u64,
    /// How many plugins.
    pub plugins: u64,
    /// The size of the file.
    pub bytes: u64,
}

/// Writes a file and keeps its hash.
struct Writer {
    file: BufWriter<File>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Writer {
    async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).await
    }

    async fn section(&mut self, kind: Kind, name: &str, body: &[u8]) -> std::io::Result<()> {
        self.write(&[kind.byte()]).await?;
        self.write(&(name.len() as u32).to_le_bytes()).await?;
        self.write(&(body.len() as u64).to_le_bytes()).await?;
        self.write(name.as_bytes()).await?;
        self.write(body).await
    }

    /// Ends the file and makes it durable.
    async fn finish(mut self) -> std::io::Result<u64> {
        self.section(Kind::End, "", &[]).await?;
        let hash = self.hasher.finalize();
        self.file.write_all(hash.as_bytes()).await?;
        self.file.flush().await?;
        self.file.get_ref().sync_all().await?;
        Ok(self.bytes + HASH_BYTES)
    }
}

/// Writes a savepoint to a new file, with everything that it needs elsewhere. The file is there under its name when it is whole.
///
/// # Errors
///
/// If there is a file of that name, if it cannot be written, or if a part of the savepoint is missing or damaged.
pub async fn export_savepoint(
    store: &Store,
    job: &str,
    name: &str,
    file: &FsPath,
) -> Result<Exported, CheckpointError> {
    let failed = |fault: &str, source: std::io::Error| export_error(file, fault, Some(source.into()));
    let Savepoint { manifest, .. } = find_savepoint(store, job, name).await?;
    let job_store = look_at(store, job).await?;
    if tokio::fs::try_exists(file).await.map_err(|e| failed("it cannot be looked at", e))? {
        return Err(export_error(file, "there is a file already, which is not overwritten", None));
    }
    let mut part = file.as_os_str().to_owned();
    part.push(format!(".{}.part", &JobId(store.nonce()?).to_string()[..8]));
    let part = PathBuf::from(part);
    let written = write_all(&job_store, name, &manifest, &part, file).await;
    match written {
        Ok(exported) => {
            // Not over a file that came meanwhile: a link fails where a rename would replace. Some file systems have no links.
            let named = match tokio::fs::hard_link(&part, file).await {
                Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => tokio::fs::rename(&part, file).await,
                linked => {
                    let _ = tokio::fs::remove_file(&part).await;
                    linked
                }
            };
            named.map_err(|e| failed("it cannot be given its name", e))?;
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(FsPath::new("."));
            let synced = async { File::open(folder).await?.sync_all().await };
            synced.await.map_err(|e| failed("its folder cannot be synced", e))?;
            Ok(exported)
        }
        Err(error) => {
            let _ = tokio::fs::remove_file(&part).await;
            Err(error)
        }
    }
}

async fn write_all(
    store: &JobStore,
    name: &str,
    manifest: &Manifest,
    part: &FsPath,
    file: &FsPath,
) -> Result<Exported, CheckpointError> {
    let failed = |source: std::io::Error| export_error(file, "it cannot be written", Some(source.into()));
    let created = File::options().write(true).create_new(true).open(part).await.map_err(failed)?;
    let mut writer = Writer { file: BufWriter::new(created), hasher: blake3::Hasher::new(), bytes: 0 };
    writer.write(MAGIC).await.map_err(failed)?;
    writer.write(&VERSION.to_le_bytes()).await.map_err(failed)?;
    writer.section(Kind::Manifest, name, &encode_pin(manifest)?).await.map_err(failed)?;
    let plugins = digests(manifest);
    for digest in &plugins {
        let bytes = store.store().get_plugin(*digest).await?;
        writer.section(Kind::Plugin, &hex(digest), &bytes).await.map_err(failed)?;
    }
    let packs = sorted_packs(manifest);
    for pack in &packs {
        let content = store.read_pack(pack).await?;
        check_pack(pack, &content).map_err(|fault| store.damaged_pack(pack, fault))?;
        writer.section(Kind::Pack, &pack.to_string(), &content).await.map_err(failed)?;
    }
    let bytes = writer.finish().await.map_err(failed)?;
    Ok(Exported { packs: packs.len() as u64, plugins: plugins.len() as u64, bytes })
}

fn hex(digest: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}

fn sorted_packs(manifest: &Manifest) -> Vec<PackName> {
    let mut packs: Vec<_> = manifest.packs().into_iter().collect();
    packs.sort_unstable();
    packs
}

/// The digests of the plugins that a checkpoint needs, each once. Native code has none.
fn digests(manifest: &Manifest) -> Vec<[u8; 32]> {
    let plugins = manifest.nodes.iter().filter_map(|node| node.plugin.as_ref());
    let mut digests: Vec<_> = plugins.map(|plugin| plugin.digest).filter(|digest| *digest != [0; 32]).collect();
    digests.sort_unstable();
    digests.dedup();
    digests
}

/// Reads a pack to its last chunk.
fn check_pack(name: &PackName, content: &Bytes) -> Result<(), String> {
    let pack = PackReader::open(name, content.clone())?;
    (0..pack.len()).try_for_each(|number| pack.chunk(number).map(|_| ()))
}

fn export_error(file: &FsPath, fault: impl Into<String>, source: Option<Cause>) -> CheckpointError {
    CheckpointError::Export { file: file.display().to_string(), fault: fault.into(), source }
}

/// A file that has been read once, against its hash.
#[derive(Debug)]
pub struct ExportFile {
    path: PathBuf,
    /// The name of the savepoint.
    pub name: String,
    /// The checkpoint.
    pub manifest: Manifest,
    sections: Vec<Section>,
}

#[derive(Debug)]
struct Section {
    kind: Kind,
    name: String,
    offset: u64,
    bytes: u64,
}

/// Reads the file of an exported savepoint, and checks that it is whole and has all that its checkpoint needs.
///
/// # Errors
///
/// What is wrong with it. Nothing was written.
pub async fn open_export(path: &FsPath) -> Result<ExportFile, CheckpointError> {
    let failed = |source: std::io::Error| export_error(path, "it cannot be read", Some(source.into()));
    let refused = |fault: String| export_error(path, fault, None);
    let mut file = File::open(path).await.map_err(failed)?;
    let size = file.metadata().await.map_err(failed)?.len();
    check_hash(&mut file, size).await.map_err(failed)?.map_err(refused)?;
    let sections = read_sections(&mut file, size - HASH_BYTES).await.map_err(failed)?.map_err(refused)?;
    let first = sections.first().filter(|section| section.kind == Kind::Manifest);
    let first = first.ok_or_else(|| refused("it does not begin with a manifest".into()))?;
    let bytes = read_section(&mut file, first).await.map_err(failed)?;
    let manifest = decode_pin(&bytes).map_err(|fault| refused(format!("its manifest is damaged: {fault}")))?;
    let has = |kind: Kind, name: String| sections.iter().any(|section| section.kind == kind && section.name == name);
    if let Some(pack) = sorted_packs(&manifest).iter().find(|pack| !has(Kind::Pack, pack.to_string())) {
        return Err(refused(format!("it lacks pack {pack}")));
    }
    if let Some(digest) = digests(&manifest).iter().find(|digest| !has(Kind::Plugin, hex(digest))) {
        return Err(refused(format!("it lacks the plugin with digest {}", hex(digest))));
    }
    Ok(ExportFile { path: path.to_owned(), name: first.name.clone(), manifest, sections })
}

/// Reads all of a file against the hash at its end.
async fn check_hash(file: &mut File, size: u64) -> std::io::Result<Result<(), String>> {
    if size < HEAD_BYTES + SECTION_BYTES + HASH_BYTES {
        return Ok(Err(format!("it has {size} bytes, fewer than any exported savepoint")));
    }
    let mut head = [0; HEAD_BYTES as usize];
    file.read_exact(&mut head).await?;
    if head[..8] != *MAGIC {
        return Ok(Err("it is no exported savepoint".into()));
    }
    let version = u16::from_le_bytes([head[8], head[9]]);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&head);
    let mut left = size - HEAD_BYTES - HASH_BYTES;
    let mut step = vec![0; STEP_BYTES];
    while left > 0 {
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(STEP_BYTES);
        file.read_exact(&mut step[..take]).await?;
        hasher.update(&step[..take]);
        left -= take as u64;
    }
    let mut hash = [0; HASH_BYTES as usize];
    file.read_exact(&mut hash).await?;
    Ok(if hasher.finalize() != blake3::Hash::from_bytes(hash) {
        Err("its content does not match its hash: it was cut or changed".into())
    } else if version != VERSION {
        Err(format!("it is of format version {version}, and this program reads {VERSION}"))
    } else {
        Ok(())
    })
}

async fn read_sections(file: &mut File, end: u64) -> std::io::Result<Result<Vec<Section>, String>> {
    let mut sections = Vec::new();
    let mut at = HEAD_BYTES;
    loop {
        if sections.len() >= SECTIONS_MAX {
            return Ok(Err(format!("it has more than {SECTIONS_MAX} sections")));
        }
        if at + SECTION_BYTES > end {
            return Ok(Err("its last section is cut".into()));
        }
        file.seek(SeekFrom::Start(at)).await?;
        let kind = file.read_u8().await?;
        let (name_bytes, bytes) = (file.read_u32_le().await?, file.read_u64_le().await?);
        let Some(kind) = Kind::of(kind) else { return Ok(Err(format!("it has a section of kind {kind}"))) };
        if name_bytes > NAME_BYTES_MAX || bytes > kind.bytes_max() {
            return Ok(Err(format!("a section has {bytes} bytes, over the limit of {}", kind.bytes_max())));
        }
        let offset = at + SECTION_BYTES + u64::from(name_bytes);
        if offset + bytes > end {
            return Ok(Err("its last section is cut".into()));
        }
        if kind == Kind::End {
            return Ok(if offset == end { Ok(sections) } else { Err("something follows its end".into()) });
        }
        let mut name = vec![0; name_bytes as usize];
        file.read_exact(&mut name).await?;
        let Ok(name) = String::from_utf8(name) else { return Ok(Err("the name of a section is no text".into())) };
        sections.push(Section { kind, name, offset, bytes });
        at = offset + bytes;
    }
}

async fn read_section(file: &mut File, section: &Section) -> std::io::Result<Bytes> {
    file.seek(SeekFrom::Start(section.offset)).await?;
    // Within its limit, and within the file: both were checked.
    let mut bytes = vec![0; usize::try_from(section.bytes).unwrap_or(usize::MAX)];
    file.read_exact(&mut bytes).await?;
    Ok(bytes.into())
}

/// Begins a history of a job in this store from a file, without running it: the next run goes on from there. With `fresh`, a history
/// that the job has here is left for good, as by a fresh start.
///
/// # Errors
///
/// If the file is of another job, if its parts are not what they were, or if the job has a history here and `fresh` is false.
/// Then the job is as it was.
pub async fn import(
    store: &Store,
    job: &str,
    export: &ExportFile,
    fresh: bool,
    clock: &Clock,
) -> Result<JobId, CheckpointError> {
    let path = &export.path;
    let failed = |source: std::io::Error| export_error(path, "it cannot be read", Some(source.into()));
    let n = check_import(store, job, export, fresh).await?;
    let job_store = JobStore::new(store, job, JobId(store.nonce()?));
    job_store.prepare()?;
    let mut file = File::open(path).await.map_err(failed)?;
    for section in &export.sections {
        let bytes = read_section(&mut file, section).await.map_err(failed)?;
        let changed = |fault: String| export_error(path, format!("{} is damaged: {fault}", section.name), None);
        match section.kind {
            Kind::Plugin => {
                if hex(blake3::hash(&bytes).as_bytes()) != section.name {
                    return Err(changed("its content does not match its digest".into()));
                }
                store.put_plugin(bytes).await?;
            }
            Kind::Pack => {
                let name: PackName = section.name.parse().map_err(changed)?;
                check_pack(&name, &bytes).map_err(changed)?;
                job_store.put_pack_bytes(&name.adopted(), bytes).await?;
            }
            Kind::Manifest | Kind::End => {}
        }
    }
    let manifest = adopted(&export.manifest, job_store.id());
    manifest.check().map_err(|fault| export_error(path, format!("its manifest is damaged: {fault}"), None))?;
    let job_id = job_store.id();
    match begin_history(job_store, n, Some(manifest), clock).await? {
        Some(_) => Ok(job_id),
        None => Err(CheckpointError::Contended { job: job.to_owned(), attempts: 1 }),
    }
}

/// Refuses what [`import`] would refuse: a file of another job, and one that would leave a history that is not to be left. Gives the
/// number of the history that it would begin.
///
/// # Errors
///
/// Those of [`import`].
pub async fn check_import(store: &Store, job: &str, export: &ExportFile, fresh: bool) -> Result<u64, CheckpointError> {
    check_job(export, job)?;
    match Identity::current(store, job).await? {
        None => Ok(1),
        Some(identity) if fresh => Ok(identity.n + 1),
        Some(_) => Err(CheckpointError::Exists { job: job.to_owned(), file: export.path.display().to_string() }),
    }
}

/// Refuses a file of another job.
///
/// # Errors
///
/// If it is, with both names.
pub fn check_job(export: &ExportFile, job: &str) -> Result<(), CheckpointError> {
    if export.manifest.job == job {
        return Ok(());
    }
    let fault = format!("it is a savepoint of job {:?}, and this is job {job:?}", export.manifest.job);
    Err(export_error(&export.path, fault, None))
}

/// The manifest as the base of a history that no run has worked on.
fn adopted(manifest: &Manifest, job_id: JobId) -> Manifest {
    let mut manifest = Manifest { job_id, generation: Generation(0), ..manifest.clone() };
    for node in &mut manifest.nodes {
        node.committables.clear();
        for segment in node.subtasks.iter_mut().flat_map(|subtask| &mut subtask.segments) {
            segment.pack = segment.pack.adopted();
        }
    }
    manifest
}
