//! Files as a sink, second phase: the parts of one checkpoint appear together, by the rename of one folder.
//!
//! The parts are moved into a folder beside the staging, a `_commit.json` says whose they are, and the folder is
//! renamed into place. The rename is the commit. Before it, each step can be repeated: a part is either where it was
//! staged or where it is to go. After it, `_commit.json` shows that it was done. Every folder that receives something is
//! synced before one that gave something away could be, so a loss of power never costs a part.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::durable::{make_dirs, sync_dir};
use super::file_sink::{Layout, StagedPart};
use super::{Abandoned, Committed, Committer, ConnectorError, Leftover, Looked, StagedFile};
use crate::model::{CommitIdentity, Committable, Epoch, Generation, JobId};
use crate::plan::FileSinkSpec;

const RECORD_NAME: &str = "_commit.json";

/// `_commit.json`: the identity of a published epoch, and what is in it.
#[derive(Debug, Serialize, Deserialize)]
struct CommitRecord {
    job_id: String,
    job: String,
    node: String,
    epoch: u64,
    parts: Vec<PartRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PartRecord {
    name: String,
    bytes: u64,
    records: u64,
    /// Records without a value that the format has no way to write.
    skipped: u64,
    blake3: String,
}

/// What stands at the published name.
enum Place {
    Vacant,
    /// The same identity.
    Mine,
    /// Something else: what, as a clause.
    Other(String),
}

pub(super) struct FileCommitter {
    /// None if only committables say where things go.
    layout: Option<Layout>,
    job: JobId,
    /// How many steps are done before a simulated crash.
    #[cfg(test)]
    steps: Option<std::sync::atomic::AtomicI64>,
    /// What happens meanwhile, after so many steps.
    #[cfg(test)]
    meets: std::sync::Mutex<Option<Meeting>>,
}

#[cfg(test)]
type Meeting = (usize, Box<dyn FnOnce() + Send>);

impl FileCommitter {
    pub(super) fn new(spec: &FileSinkSpec, dir: &Path, job: JobId) -> Result<Self, ConnectorError> {
        Ok(Self {
            layout: Some(Layout::new(&spec.path, dir)?),
            job,
            #[cfg(test)]
            steps: None,
            #[cfg(test)]
            meets: std::sync::Mutex::default(),
        })
    }

    /// One that knows no pipeline.
    pub(super) fn anywhere(job: JobId) -> Self {
        Self {
            layout: None,
            job,
            #[cfg(test)]
            steps: None,
            #[cfg(test)]
            meets: std::sync::Mutex::default(),
        }
    }

    /// Between any two changes of the file system. A test lets the process die here.
    #[cfg_attr(not(test), expect(clippy::unused_self, clippy::unnecessary_wraps))]
    fn step(&self) -> Result<(), ConnectorError> {
        #[cfg(test)]
        if let Some(steps) = &self.steps
            && steps.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) <= 0
        {
            return Err(ConnectorError::new(super::ConnectorErrorKind::Transient, "interrupted"));
        }
        #[cfg(test)]
        {
            let mut meets = self.meets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match meets.take() {
                Some((0, meet)) => meet(),
                Some((steps, meet)) => *meets = Some((steps - 1, meet)),
                None => {}
            }
        }
        Ok(())
    }

    fn commit_now(&self, identity: &CommitIdentity, list: &[Committable]) -> Result<Committed, ConnectorError> {
        let Some(parts) = decode(list)? else { return Ok(Committed::AlreadyApplied) };
        let layout = Layout { path: PathBuf::from(&parts[0].destination) };
        let published = layout.published(identity.epoch);
        match look(&published, identity)? {
            Place::Vacant => {}
            Place::Mine => return self.was_applied(&layout),
            Place::Other(what) => return Err(occupied(&published, &what, identity)),
        }
        let assembly = assembly(&parts, identity.epoch)?;
        let staged = find_parts(&parts, &assembly)?;
        make_dirs(&assembly)?;
        self.step()?;
        for part in staged {
            let to = assembly.join(&part.name);
            fs::rename(&part.staged, &to).map_err(|e| ConnectorError::io("rename", Path::new(&part.staged), e))?;
            self.step()?;
        }
        exactly(&assembly, &parts)?;
        // The parts are durable here before the folders that they come from can forget them.
        sync_dir(&assembly)?;
        self.step()?;
        write_record(&assembly.join(RECORD_NAME), identity, &parts)?;
        self.step()?;
        sync_dir(&assembly)?;
        self.step()?;
        if let Err(error) = fs::rename(&assembly, &published) {
            return match look(&published, identity)? {
                Place::Mine => self.was_applied(&layout),
                Place::Other(what) => Err(occupied(&published, &what, identity)),
                Place::Vacant => Err(ConnectorError::io("rename", &assembly, error)),
            };
        }
        self.step()?;
        sync_dir(&layout.path)?;
        self.step()?;
        for part in &parts {
            // Empty now; what is left over is collected later.
            if let Some(folder) = Path::new(&part.staged).parent() {
                let _ = fs::remove_dir(folder);
            }
        }
        Ok(Committed::Applied)
    }

    /// Whoever applied it may have died before the rename was durable.
    fn was_applied(&self, layout: &Layout) -> Result<Committed, ConnectorError> {
        sync_dir(&layout.path)?;
        self.step()?;
        Ok(Committed::AlreadyApplied)
    }

    /// The folders of runs before `generation`: what they staged, and commits that they did not finish.
    fn old(&self, generation: Generation) -> Result<Vec<PathBuf>, ConnectorError> {
        let Some(layout) = &self.layout else { return Ok(Vec::new()) };
        let folder = layout.job(self.job);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(ConnectorError::io("list", &folder, error)),
        };
        let mut old = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| ConnectorError::io("list", &folder, e))?.path();
            let older = path
                .file_name()
                .and_then(|name| name.to_str())
                .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|name| name.parse().ok())
                .is_some_and(|number: u64| number < generation.0);
            if older {
                old.push(path);
            }
        }
        Ok(old)
    }

    fn collect_now(&self, generation: Generation) -> Result<u64, ConnectorError> {
        let old = self.old(generation)?;
        for path in &old {
            match fs::remove_dir_all(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(ConnectorError::io("remove", path, error));
                }
                _ => {}
            }
        }
        Ok(old.len() as u64)
    }

    fn look_now(&self, identity: &CommitIdentity, list: &[Committable]) -> Result<Looked, ConnectorError> {
        let Some(parts) = decode(list)? else { return Ok(Looked::default()) };
        let layout = Layout { path: PathBuf::from(&parts[0].destination) };
        let published = matches!(look(&layout.published(identity.epoch), identity)?, Place::Mine);
        let assembly = assembly(&parts, identity.epoch)?;
        let mut staged = Vec::with_capacity(parts.len());
        for part in parts {
            let found = match length(&assembly.join(&part.name))? {
                Some(bytes) => Some(bytes),
                None => length(Path::new(&part.staged))?,
            };
            staged.push(StagedFile { name: part.staged, bytes: part.bytes, records: part.records, found });
        }
        // Its staging is removed once it is published: what was given up can be told by that it is gone.
        Ok(Looked { destination: layout.path.display().to_string(), published, given_up: false, staged })
    }

    /// Takes away what a commit needs: one that is under way fails at its next step, and after the rename it has been done.
    fn abandon_now(&self, identity: &CommitIdentity, list: &[Committable]) -> Result<Abandoned, ConnectorError> {
        let Some(parts) = decode(list)? else { return Ok(Abandoned::Done) };
        let layout = Layout { path: PathBuf::from(&parts[0].destination) };
        let published = layout.published(identity.epoch);
        if let Place::Mine = look(&published, identity)? {
            return Ok(Abandoned::AlreadyPublished);
        }
        let gone = |result: io::Result<()>, path: &Path| match result {
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(ConnectorError::io("remove", path, error))
            }
            _ => Ok(()),
        };
        // First what is still staged, so that nothing more is moved in; then what was moved in, under another name at once: whoever is
        // about to rename it does not find it, and whoever is about to move parts finds none.
        for part in &parts {
            gone(fs::remove_file(&part.staged), Path::new(&part.staged))?;
            self.step()?;
        }
        let assembly = assembly(&parts, identity.epoch)?;
        let aside = assembly.with_extension("abandoned");
        gone(fs::remove_dir_all(&aside), &aside)?;
        gone(fs::rename(&assembly, &aside), &assembly)?;
        self.step()?;
        gone(fs::remove_dir_all(&aside), &aside)?;
        if let Some(folder) = assembly.parent().filter(|folder| folder.is_dir()) {
            sync_dir(folder)?;
        }
        match look(&published, identity)? {
            Place::Mine => Ok(Abandoned::AlreadyPublished),
            _ => Ok(Abandoned::Done),
        }
    }
}

/// Where the parts of an epoch are gathered: in the folder of the run that staged them, so that it goes with that, and in a
/// folder of its own there, which nobody else syncs.
fn assembly(parts: &[StagedPart], epoch: Epoch) -> Result<PathBuf, ConnectorError> {
    let run = |part: &StagedPart| Path::new(&part.staged).ancestors().nth(2).map(Path::to_path_buf);
    match parts.first().and_then(run) {
        Some(folder) if parts.iter().all(|part| run(part).as_ref() == Some(&folder)) => {
            Ok(folder.join(format!("commit/epoch-{:012}", epoch.0)))
        }
        _ => Err(ConnectorError::mismatch(format!("the parts of epoch {epoch} were staged by more than one run"))),
    }
}

/// The length of a file; none if there is none.
fn length(path: &Path) -> Result<Option<u64>, ConnectorError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(ConnectorError::io("look at", path, error)),
    }
}

/// Everything below a folder, as files with their lengths.
fn files(folder: &Path, into: &mut Vec<Leftover>) -> Result<(), ConnectorError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|e| ConnectorError::io("list", folder, e))?,
    };
    for entry in entries {
        let entry = entry.map_err(|e| ConnectorError::io("list", folder, e))?;
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files(&path, into)?;
        } else if let Some(bytes) = length(&path)? {
            into.push(Leftover { name: path.display().to_string(), bytes });
        }
    }
    Ok(())
}

/// The parts of a commit; none if there are none.
fn decode(list: &[Committable]) -> Result<Option<Vec<StagedPart>>, ConnectorError> {
    let mut parts: Vec<StagedPart> = Vec::with_capacity(list.len());
    let mut names = BTreeSet::new();
    for committable in list {
        let part: StagedPart = postcard::from_bytes(&committable.data).map_err(|e| {
            ConnectorError::mismatch(format!(
                "the committable of subtask {} and epoch {} does not decode",
                committable.subtask, committable.epoch
            ))
            .caused_by(e)
        })?;
        if let Some(first) = parts.first()
            && first.destination != part.destination
        {
            return Err(ConnectorError::mismatch(format!(
                "the parts of one epoch belong to two folders, {} and {}",
                first.destination, part.destination
            )));
        }
        if !names.insert(part.name.clone()) || part.name.contains('/') || part.name == RECORD_NAME {
            return Err(ConnectorError::mismatch(format!("the part {:?} cannot be in one epoch like this", part.name)));
        }
        parts.push(part);
    }
    Ok((!parts.is_empty()).then_some(parts))
}

/// The parts that are still where they were staged. Each of the others must be in the assembly already.
fn find_parts<'a>(parts: &'a [StagedPart], assembly: &Path) -> Result<Vec<&'a StagedPart>, ConnectorError> {
    let mut staged = Vec::new();
    for part in parts {
        let (path, is_staged) = match length(&assembly.join(&part.name))? {
            Some(bytes) => ((assembly.join(&part.name), bytes), false),
            None => match length(Path::new(&part.staged))? {
                Some(bytes) => ((PathBuf::from(&part.staged), bytes), true),
                None => {
                    return Err(ConnectorError::mismatch(format!(
                        "the prepared part {} is gone, and not in {} either",
                        part.staged,
                        assembly.display()
                    ))
                    .help("put the folder .weir of the sink back as it was, or start from an older checkpoint"));
                }
            },
        };
        let (path, bytes) = path;
        if bytes != part.bytes {
            return Err(ConnectorError::mismatch(format!(
                "the prepared part {} has {bytes} bytes and must have {}",
                path.display(),
                part.bytes
            ))
            .help("somebody has changed it; start from an older checkpoint"));
        }
        if is_staged {
            staged.push(part);
        }
    }
    Ok(staged)
}

fn look(published: &Path, identity: &CommitIdentity) -> Result<Place, ConnectorError> {
    match fs::symlink_metadata(published) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Place::Vacant),
        Err(error) => return Err(ConnectorError::io("look at", published, error)),
    }
    let path = published.join(RECORD_NAME);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Place::Other(format!("something without {RECORD_NAME}")));
        }
        Err(error) => return Err(ConnectorError::io("read", &path, error)),
    };
    let Ok(record) = serde_json::from_slice::<CommitRecord>(&text) else {
        return Ok(Place::Other(format!("something whose {RECORD_NAME} does not decode")));
    };
    let same = record.job_id == identity.job.to_string()
        && record.node == identity.node.as_str()
        && Epoch(record.epoch) == identity.epoch;
    Ok(if same {
        Place::Mine
    } else {
        Place::Other(format!(
            "epoch {} of job {:?}, sink {:?} (job id {})",
            record.epoch, record.job, record.node, record.job_id
        ))
    })
}

fn occupied(published: &Path, what: &str, identity: &CommitIdentity) -> ConnectorError {
    ConnectorError::mismatch(format!(
        "{} is taken by {what}; epoch {} of sink {:?} (job id {}) cannot be published there",
        published.display(),
        identity.epoch,
        identity.node.as_str(),
        identity.job
    ))
    .help("move it away; the commit is repeated by the next run")
}

/// Nothing may be published that no committable names, and all that one does: between the look for the parts and here somebody
/// may have given the epoch up.
fn exactly(assembly: &Path, parts: &[StagedPart]) -> Result<(), ConnectorError> {
    let io = |e| ConnectorError::io("list", assembly, e);
    let mut found = 0;
    for entry in fs::read_dir(assembly).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if parts.iter().any(|part| name == part.name.as_str()) {
            found += 1;
        } else if name != RECORD_NAME {
            return Err(ConnectorError::mismatch(format!(
                "{} is among prepared parts and is none",
                assembly.join(name).display()
            ))
            .help("move it away; the commit is repeated by the next run"));
        }
    }
    if found == parts.len() {
        return Ok(());
    }
    Err(ConnectorError::mismatch(format!("{} holds {found} of {} prepared parts", assembly.display(), parts.len()))
        .help("somebody has taken them away, or given the epoch up: `weir txn list` shows what is open"))
}

fn write_record(path: &Path, identity: &CommitIdentity, parts: &[StagedPart]) -> Result<(), ConnectorError> {
    let record = CommitRecord {
        job_id: identity.job.to_string(),
        job: parts.first().map(|part| part.job.clone()).unwrap_or_default(),
        node: identity.node.to_string(),
        epoch: identity.epoch.0,
        parts: parts
            .iter()
            .map(|part| PartRecord {
                name: part.name.clone(),
                bytes: part.bytes,
                records: part.records,
                skipped: part.skipped,
                blake3: blake3::Hash::from_bytes(part.blake3).to_hex().to_string(),
            })
            .collect(),
    };
    let mut text = serde_json::to_vec_pretty(&record)
        .map_err(|e| ConnectorError::mismatch("a commit record does not encode").caused_by(e))?;
    text.push(b'\n');
    let io = |e| ConnectorError::io("write", path, e);
    let mut file = File::create(path).map_err(io)?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(io)
}

#[async_trait]
impl Committer for FileCommitter {
    async fn commit(
        &self,
        identity: &CommitIdentity,
        committables: &[Committable],
    ) -> Result<Committed, ConnectorError> {
        self.commit_now(identity, committables)
    }

    async fn look(&self, identity: &CommitIdentity, committables: &[Committable]) -> Result<Looked, ConnectorError> {
        self.look_now(identity, committables)
    }

    async fn abandon(
        &self,
        identity: &CommitIdentity,
        committables: &[Committable],
    ) -> Result<Abandoned, ConnectorError> {
        self.abandon_now(identity, committables)
    }

    async fn leftovers(&self, generation: Generation) -> Result<Vec<Leftover>, ConnectorError> {
        let mut leftovers = Vec::new();
        for folder in self.old(generation)? {
            files(&folder, &mut leftovers)?;
        }
        leftovers.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(leftovers)
    }

    async fn collect(&self, generation: Generation) -> Result<u64, ConnectorError> {
        self.collect_now(generation)
    }
}

#[cfg(test)]
mod tests;
