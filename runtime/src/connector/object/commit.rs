//! Second phase: the commit record, and what becomes of what no record will ever name.
//!
//! The record of an epoch is created if it is absent. So of a commit and of giving the epoch up only one ever happens, also when
//! a run that was asleep wakes up in the middle of its commit; and a commit whose answer was lost is found by reading.

use std::collections::HashSet;
use std::path::{Path as FsPath, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;

use super::super::{Abandoned, Committed, Committer, ConnectorError, Leftover, Looked, StagedFile};
use super::record::{Decoded, Record, RecordedObject, decode};
use super::{Created, Place, absolute, epoch_of, generation_of};
use crate::model::{CommitIdentity, Committable, Generation, JobId};
use crate::plan::ObjectSinkSpec;
use crate::storage::StoreOptions;

/// How many objects are asked for at once.
const LOOKS_AT_ONCE: usize = 8;

pub(in super::super) struct ObjectCommitter {
    /// The URL of the sink, absolute, and how its store is spoken to; none if only committables say where things go.
    spec: Option<(String, StoreOptions)>,
    dir: PathBuf,
    job: JobId,
}

/// What stands at the place of a commit record.
enum Found {
    Nothing,
    /// The same commit.
    Mine,
    /// This epoch of this sink was given up.
    GivenUp,
    /// Something else, as a clause.
    Other(String),
}

impl ObjectCommitter {
    pub(in super::super) fn new(spec: &ObjectSinkSpec, dir: &FsPath, job: JobId) -> Result<Self, ConnectorError> {
        let spec = Some((absolute(&spec.url, dir)?, spec.options.clone()));
        Ok(Self { spec, dir: dir.to_owned(), job })
    }

    /// One that knows no pipeline.
    pub(in super::super) fn anywhere(job: JobId) -> Self {
        Self { spec: None, dir: PathBuf::new(), job }
    }

    fn place(&self, destination: &str, options: &StoreOptions) -> Result<Place, ConnectorError> {
        let place = Place::open(destination, &self.dir, options)?;
        place.make_folders(&[Place::commits(), Place::swept()])?;
        Ok(place)
    }

    /// Puts a record, or finds that it is there.
    async fn put(&self, place: &Place, record: &Record, identity: &CommitIdentity) -> Result<Found, ConnectorError> {
        let bytes = record.encode()?;
        let is_mine = |theirs: &Bytes| Record::decode(theirs).is_ok_and(|theirs| theirs == *record);
        match place.create(&Place::commit(identity.epoch), &bytes, is_mine).await? {
            Created::Written => Ok(Found::Mine),
            Created::Theirs(theirs) => Ok(compare(record, identity, &theirs)),
        }
    }

    async fn commit_decoded(&self, identity: &CommitIdentity, decoded: Decoded) -> Result<Committed, ConnectorError> {
        let place = self.place(&decoded.destination, &decoded.options)?;
        let path = Place::commit(identity.epoch);
        let record = decoded.record;
        let found = match place.read(&path).await? {
            Some(bytes) => compare(&record, identity, &bytes),
            None => Found::Nothing,
        };
        match found {
            Found::Nothing => {}
            Found::Mine => {
                place.make_durable(&path)?;
                return Ok(Committed::AlreadyApplied);
            }
            taken => return Err(occupied(&place, &path, taken, identity)),
        }
        for staged in look(&place, &record).await? {
            match staged.found {
                Some(found) if found == staged.bytes => {}
                None => {
                    return Err(ConnectorError::mismatch(format!("the prepared object {} is gone", staged.name))
                        .help("put it back from a copy, or start from an older checkpoint"));
                }
                Some(found) => {
                    return Err(ConnectorError::mismatch(format!(
                        "the prepared object {} has {found} bytes and must have {}",
                        staged.name, staged.bytes
                    ))
                    .help("somebody has changed it; start from an older checkpoint"));
                }
            }
        }
        match self.put(&place, &record, identity).await? {
            Found::Mine => Ok(Committed::Applied),
            taken => Err(occupied(&place, &path, taken, identity)),
        }
    }

    /// What runs before `generation` staged and no record names, and the first run that was not looked at before.
    async fn unnamed(&self, place: &Place, generation: Generation) -> Result<Vec<Leftover>, ConnectorError> {
        let swept = place.list(&Place::swept()).await?;
        let swept = swept.iter().filter_map(|meta| meta.location.filename()?.parse().ok()).max().unwrap_or(0);
        let mut leftovers: Vec<Leftover> = Vec::new();
        for object in place.list(&Place::data(self.job)).await? {
            let staged_by = generation_of(&object.location, self.job);
            if staged_by.is_some_and(|g| g.0 >= swept && g < generation) {
                leftovers.push(Leftover { name: object.location.to_string(), bytes: object.size });
            }
        }
        if leftovers.is_empty() {
            return Ok(leftovers);
        }
        // From the newest record back to the first whose objects are all of runs that were looked at before.
        let mut named: HashSet<String> = HashSet::new();
        let records = place.list(&Place::commits()).await?;
        for record in records.iter().rev().filter(|record| epoch_of(&record.location).is_some()) {
            let Some(bytes) = place.read(&record.location).await? else { continue };
            let record = Record::decode(&bytes).map_err(|fault| {
                ConnectorError::mismatch(format!("{}/{} {fault}", place.url, record.location))
                    .help("nothing is collected before it is put right: it may name what looks abandoned")
            })?;
            let mut old = !record.objects.is_empty();
            for object in record.objects {
                old &= generation_of(&Path::from(object.name.as_str()), self.job).is_some_and(|g| g.0 < swept);
                named.insert(object.name);
            }
            if old {
                break;
            }
        }
        leftovers.retain(|leftover| !named.contains(&leftover.name));
        Ok(leftovers)
    }
}

fn compare(record: &Record, identity: &CommitIdentity, theirs: &[u8]) -> Found {
    match Record::decode(theirs) {
        Err(fault) => Found::Other(format!("something that {fault}")),
        Ok(theirs) if theirs == *record => Found::Mine,
        Ok(theirs) if theirs.is_of(identity) && theirs.abandoned => Found::GivenUp,
        Ok(theirs) if theirs.is_of(identity) && record.abandoned => Found::Mine,
        Ok(theirs) if theirs.is_of(identity) => Found::Other(format!("{} with other objects", theirs.whose())),
        Ok(theirs) => Found::Other(theirs.whose()),
    }
}

fn occupied(place: &Place, path: &Path, found: Found, identity: &CommitIdentity) -> ConnectorError {
    let epoch = identity.epoch;
    let error = match found {
        Found::GivenUp => {
            return ConnectorError::mismatch(format!(
                "{}/{path} says that epoch {epoch} of sink {:?} was given up, so it cannot be published",
                place.url,
                identity.node.as_str()
            ))
            .help("run the job again: what epoch it held is produced again from the checkpoint before");
        }
        Found::Other(what) => what,
        Found::Nothing | Found::Mine => "nothing".into(),
    };
    ConnectorError::mismatch(format!(
        "{}/{path} is taken by {error}; epoch {epoch} of sink {:?} (job id {}) cannot be published there",
        place.url,
        identity.node.as_str(),
        identity.job
    ))
    .help("move it away; the commit is repeated by the next run")
}

/// What a record names, and what is there of it.
async fn look(place: &Place, record: &Record) -> Result<Vec<StagedFile>, ConnectorError> {
    let looks: Vec<_> = record.objects.iter().map(|object| look_at(place, object)).collect();
    futures::stream::iter(looks).buffered(LOOKS_AT_ONCE).try_collect().await
}

async fn look_at(place: &Place, object: &RecordedObject) -> Result<StagedFile, ConnectorError> {
    let found = place.length(&Path::from(object.name.as_str())).await?;
    let name = format!("{}/{}", place.url, object.name);
    Ok(StagedFile { name, bytes: object.bytes, records: object.records, found })
}

#[async_trait]
impl Committer for ObjectCommitter {
    async fn commit(
        &self,
        identity: &CommitIdentity,
        committables: &[Committable],
    ) -> Result<Committed, ConnectorError> {
        match decode(identity, committables)? {
            Some(decoded) => self.commit_decoded(identity, decoded).await,
            None => Ok(Committed::AlreadyApplied),
        }
    }

    async fn look(&self, identity: &CommitIdentity, committables: &[Committable]) -> Result<Looked, ConnectorError> {
        let Some(decoded) = decode(identity, committables)? else { return Ok(Looked::default()) };
        let place = self.place(&decoded.destination, &decoded.options)?;
        let found = match place.read(&Place::commit(identity.epoch)).await? {
            Some(bytes) => compare(&decoded.record, identity, &bytes),
            None => Found::Nothing,
        };
        let staged = look(&place, &decoded.record).await?;
        Ok(Looked {
            destination: place.url.to_string(),
            published: matches!(found, Found::Mine),
            given_up: matches!(found, Found::GivenUp),
            staged,
        })
    }

    async fn abandon(
        &self,
        identity: &CommitIdentity,
        committables: &[Committable],
    ) -> Result<Abandoned, ConnectorError> {
        let Some(decoded) = decode(identity, committables)? else { return Ok(Abandoned::Done) };
        let place = self.place(&decoded.destination, &decoded.options)?;
        let path = Place::commit(identity.epoch);
        let record = Record::of(identity, &decoded.record.job, true);
        let bytes = record.encode()?;
        let is_mine = |theirs: &Bytes| Record::decode(theirs).is_ok_and(|theirs| theirs == record);
        match place.create(&path, &bytes, is_mine).await? {
            Created::Written => Ok(Abandoned::Done),
            Created::Theirs(theirs) => match compare(&decoded.record, identity, &theirs) {
                Found::Mine => Ok(Abandoned::AlreadyPublished),
                Found::GivenUp => Ok(Abandoned::Done),
                taken => Err(occupied(&place, &path, taken, identity)),
            },
        }
    }

    async fn leftovers(&self, generation: Generation) -> Result<Vec<Leftover>, ConnectorError> {
        let Some((url, options)) = &self.spec else { return Ok(Vec::new()) };
        let place = self.place(url, options)?;
        let mut leftovers = self.unnamed(&place, generation).await?;
        for leftover in &mut leftovers {
            leftover.name = format!("{}/{}", place.url, leftover.name);
        }
        Ok(leftovers)
    }

    async fn collect(&self, generation: Generation) -> Result<u64, ConnectorError> {
        let Some((url, options)) = &self.spec else { return Ok(0) };
        let place = self.place(url, options)?;
        let leftovers = self.unnamed(&place, generation).await?;
        let paths: Vec<_> = leftovers.iter().map(|leftover| Path::from(leftover.name.as_str())).collect();
        let deletes: Vec<_> = paths.iter().map(|path| place.delete(path)).collect();
        futures::stream::iter(deletes).buffer_unordered(LOOKS_AT_ONCE).try_collect::<()>().await?;
        self.sweep_local(&place, generation)?;
        // What was looked at once needs not be looked at again: a prefix with years of epochs opens as quickly as a new one.
        let mark = Path::from(format!("{}/{:020}", Place::swept(), generation.0));
        let old = place.list(&Place::swept()).await?;
        if old.iter().all(|meta| meta.location < mark) {
            place.create(&mark, &Bytes::from_static(b"\n"), |_| true).await?;
            for meta in old {
                place.delete(&meta.location).await?;
            }
        }
        Ok(leftovers.len() as u64)
    }
}

impl ObjectCommitter {
    /// Half-written files of runs that are gone, in a folder.
    fn sweep_local(&self, place: &Place, generation: Generation) -> Result<(), ConnectorError> {
        let Some(local) = &place.store.local else { return Ok(()) };
        let folder = Place::data(self.job);
        let failed = |e| place.failed("sweep", &folder, e);
        for name in local.folders(&folder).map_err(failed)? {
            if name.parse().is_ok_and(|number: u64| number < generation.0) {
                local.sweep(&folder.clone().join(name.as_str()), |_| true).map_err(failed)?;
            }
        }
        Ok(())
    }
}
