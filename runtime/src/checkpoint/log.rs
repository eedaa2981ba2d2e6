//! The log of a job: the dense sequence of entries that alone decides what happened.
//!
//! Entries are immutable, written with create-if-absent, and carry who wrote them and a nonce, so that a writer can
//! tell its own bytes from another's. This file knows how entries look and how they are found; who may write one is
//! decided in `recover.rs` (claims) and `publish.rs` (checkpoints).
//!
//! A claim carries its base whole, and not a reference to it: the restore point of a job whose tip is a claim is in that one
//! object, and collecting the log cannot take it away.
//!
//! `Refused` is for people and for whoever starts the job next; it decides nothing, and is passed over.
//!
//! `Void` is read, skipped and never written by this version: doubt is resolved by putting the same bytes again.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::decide::{EntryFact, FenceFacts};
use super::envelope::{self, Magic};
use super::error::CheckpointError;
use super::manifest::Manifest;
use super::objects::{JobStore, OBJECT_BYTES_MAX, Store, numbers};
use super::refused::Refused;
use crate::model::{Epoch, Generation, JobId, Timestamp};

const ENTRY: Magic = Magic(b"weirlog\0");
pub(super) const IDENTITY: Magic = Magic(b"weirid\0\0");
const MARK: Magic = Magic(b"weirmark");
pub(super) const PIN: Magic = Magic(b"weirpin\0");
/// How often the log is read anew because it was collected meanwhile.
pub(crate) const READ_ATTEMPTS_MAX: u32 = 16;
/// How many entries may be found beyond what a listing shows.
const PROBES_MAX: u64 = 1 << 16;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) job_id: JobId,
    /// Its place, which is also in its name.
    pub(crate) seq: u64,
    /// The run that wrote it: for a claim its own place.
    pub(crate) generation: Generation,
    pub(crate) nonce: [u8; 16],
    pub(crate) body: Body,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Body {
    Claim(Claim),
    Checkpoint(Box<Manifest>),
    Void,
    /// Passed over, whatever is looked for: see [`Refused`].
    Refused(Box<Refused>),
}

/// A run begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) created_at: Timestamp,
    /// What it starts from; none is the beginning.
    pub(crate) base: Option<Base>,
    /// The highest epoch ever used in this history.
    pub(crate) last_epoch: Epoch,
}

/// What a claim starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Base {
    pub(crate) manifest: Box<Manifest>,
    /// It was known to be committed when the claim was written. Else its marker decides.
    pub(crate) committed: bool,
}

impl Body {
    pub(crate) fn fact(&self) -> EntryFact {
        match self {
            Self::Claim(_) => EntryFact::Claim,
            Self::Checkpoint(_) => EntryFact::Checkpoint,
            Self::Void | Self::Refused(_) => EntryFact::Void,
        }
    }
}

impl Entry {
    pub(crate) fn encode(&self) -> Result<Bytes, CheckpointError> {
        let bytes = envelope::seal(ENTRY, self)?;
        if bytes.len() as u64 > OBJECT_BYTES_MAX {
            let what = format!("entry {} of the log (bytes)", self.seq);
            return Err(CheckpointError::TooLarge { what, value: bytes.len() as u64, limit: OBJECT_BYTES_MAX });
        }
        Ok(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let entry: Self = envelope::open(ENTRY, bytes)?;
        let manifest = match &entry.body {
            Body::Checkpoint(manifest) => Some(manifest),
            Body::Claim(Claim { base: Some(base), .. }) => Some(&base.manifest),
            _ => None,
        };
        match manifest {
            Some(manifest) => manifest.check().map(|()| entry),
            None => Ok(entry),
        }
    }
}

/// Which history of a name is meant by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) job_id: JobId,
    pub(crate) n: u64,
    pub(crate) created_at: Timestamp,
    pub(crate) nonce: [u8; 16],
}

/// The content of markers and boundaries; that they exist is what counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) job_id: JobId,
    pub(crate) generation: Generation,
    pub(crate) number: u64,
}

impl Identity {
    pub(crate) fn encode(&self) -> Result<Bytes, CheckpointError> {
        envelope::seal(IDENTITY, self)
    }

    /// The current history of a job, and its number; none if the job never ran, and then there is no trace of it either (I10).
    pub(crate) async fn current(store: &Store, job: &str) -> Result<Option<Self>, CheckpointError> {
        let mut n = numbers(&store.list(&store.ids(job)).await?).last().copied().unwrap_or(0);
        for _ in 0..PROBES_MAX {
            if !store.exists(&store.id(job, n + 1)).await? {
                break;
            }
            n += 1;
        }
        if n == 0 {
            return match store.evidence(job).await? {
                // Somebody may be making it right now.
                Some(_) if store.exists(&store.id(job, 1)).await? => Box::pin(Self::current(store, job)).await,
                Some(trace) => Err(CheckpointError::Missing { object: store.id(job, 1).to_string(), by: trace }),
                None => Ok(None),
            };
        }
        let path = store.id(job, n);
        let missing = || CheckpointError::Missing { object: path.to_string(), by: format!("job {job}") };
        let bytes = store.read(&path, OBJECT_BYTES_MAX).await?.ok_or_else(missing)?;
        let identity: Self =
            envelope::open(IDENTITY, &bytes).map_err(|fault| CheckpointError::damaged(&path, fault))?;
        if identity.n != n {
            return Err(CheckpointError::damaged(&path, format!("it is of history {}", identity.n)));
        }
        Ok(Some(identity))
    }
}

impl Mark {
    pub(crate) fn encode(&self) -> Result<Bytes, CheckpointError> {
        envelope::seal(MARK, self)
    }
}

/// What a pin holds.
pub(crate) fn encode_pin(manifest: &Manifest) -> Result<Bytes, CheckpointError> {
    envelope::seal(PIN, manifest)
}

/// Where a log begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Entries up to this one are ignored; 0 if none are.
    pub(crate) boundary: u64,
    /// The last entry. At least `boundary + 1`.
    pub(crate) tip: u64,
}

impl JobStore {
    /// Reads an entry and checks that it is one, and this one.
    pub(crate) async fn read_entry(&self, seq: u64) -> Result<Option<Entry>, CheckpointError> {
        let path = self.log(seq);
        let Some(bytes) = self.store().read(&path, OBJECT_BYTES_MAX).await? else { return Ok(None) };
        self.check_entry(seq, &bytes).map(Some)
    }

    pub(crate) fn check_entry(&self, seq: u64, bytes: &[u8]) -> Result<Entry, CheckpointError> {
        let damaged = |fault| CheckpointError::damaged(self.log(seq), fault);
        let entry = Entry::decode(bytes).map_err(damaged)?;
        if (entry.seq, entry.job_id) != (seq, self.id()) {
            return Err(damaged(format!("it is entry {} of history {}", entry.seq, entry.job_id)));
        }
        Ok(entry)
    }

    /// Reads an entry of a span. None: the log was collected up to it meanwhile, so look again from [`span`](Self::span).
    pub(crate) async fn read_in_span(&self, seq: u64) -> Result<Option<Entry>, CheckpointError> {
        match self.read_entry(seq).await? {
            Some(entry) => Ok(Some(entry)),
            None if self.highest_boundary().await? >= seq => Ok(None),
            None => Err(CheckpointError::Missing { object: self.log(seq).to_string(), by: "the log".into() }),
        }
    }

    /// The highest boundary, 0 if there is none.
    pub(crate) async fn highest_boundary(&self) -> Result<u64, CheckpointError> {
        Ok(numbers(&self.store().list(&self.boundary_folder()).await?).last().copied().unwrap_or(0))
    }

    /// Finds the ends of the log. That there is none is an error: a history begins with a claim (I10).
    pub(crate) async fn span(&self) -> Result<Span, CheckpointError> {
        for _ in 0..READ_ATTEMPTS_MAX {
            let boundary = self.highest_boundary().await?;
            // The listing is a hint: the tip is where probing finds nothing.
            let listed = numbers(&self.store().list(&self.log_folder()).await?);
            let mut tip = listed.last().copied().unwrap_or(0).max(boundary);
            for _ in 0..PROBES_MAX {
                if !self.store().exists(&self.log(tip + 1)).await? {
                    break;
                }
                tip += 1;
            }
            if tip > boundary {
                return Ok(Span { boundary, tip });
            }
            if self.highest_boundary().await? == boundary {
                let object = self.log(boundary + 1).to_string();
                return Err(CheckpointError::Missing { object, by: format!("job {}, which ran before,", self.job()) });
            }
        }
        Err(CheckpointError::Contended { job: self.job().to_owned(), attempts: READ_ATTEMPTS_MAX })
    }

    /// Reads what decides whether a writer was superseded, in the order that [`FenceFacts`] asks for.
    pub(crate) async fn fence_facts(&self, history: u64, own: u64) -> Result<FenceFacts, CheckpointError> {
        let next = match self.read_entry(own + 1).await {
            Ok(entry) => entry.map(|entry| entry.generation),
            // It is there, whoever wrote it.
            Err(CheckpointError::Damaged { .. }) => Some(Generation(own + 1)),
            Err(error) => return Err(error),
        };
        let boundary = self.highest_boundary().await?;
        let later_history = self.store().exists(&self.store().id(self.job(), history + 1)).await?;
        Ok(FenceFacts { own, next, boundary, later_history })
    }

    /// Whether a checkpoint has its `committed` marker.
    pub(crate) async fn is_committed(&self, epoch: Epoch) -> Result<bool, CheckpointError> {
        self.store().exists(&self.committed(epoch)).await
    }

    /// The names and manifests of all pins.
    pub(crate) async fn pins(&self) -> Result<Vec<(String, Manifest)>, CheckpointError> {
        let mut pins = Vec::new();
        for name in self.store().list(&self.pins_folder()).await? {
            let path = self.pin(&name);
            // Gone since it was listed: it was deleted.
            let Some(bytes) = self.store().read(&path, OBJECT_BYTES_MAX).await? else { continue };
            let manifest =
                super::savepoint::decode_pin(&bytes).map_err(|fault| CheckpointError::damaged(&path, fault))?;
            pins.push((name, manifest));
        }
        Ok(pins)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::a_manifest;
    use super::*;

    fn entry(body: Body) -> Entry {
        Entry { job_id: JobId([7; 16]), seq: 3, generation: Generation(2), nonce: [9; 16], body }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_an_entry_is_found() {
        let base = Base { manifest: Box::new(a_manifest(2, 1)), committed: true };
        let claim = Claim { created_at: 5, base: Some(base), last_epoch: Epoch(2) };
        let refused = Refused {
            node: crate::model::NodeName::new("count"),
            digest: [7; 32],
            version: "1.2.3".into(),
            epoch: Epoch(3),
            reason: "it trapped".into(),
            created_at: 9,
        };
        let checkpoint = Body::Checkpoint(Box::new(a_manifest(3, 2)));
        for body in [Body::Void, Body::Claim(claim), checkpoint, Body::Refused(Box::new(refused))] {
            let entry = entry(body);
            let whole = entry.encode().unwrap();
            assert_eq!(Entry::decode(&whole), Ok(entry));
            for bit in 0..whole.len() * 8 {
                let mut bytes = whole.to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(Entry::decode(&bytes).is_err(), "bit {bit}");
            }
            for length in 0..whole.len() {
                assert!(Entry::decode(&whole[..length]).is_err(), "cut at {length}");
            }
            assert!(Entry::decode(&[&whole[..], b"x"].concat()).is_err());
        }
    }

    #[test]
    fn an_object_of_another_kind_or_version_is_refused() {
        let pin = encode_pin(&a_manifest(3, 2)).unwrap();
        assert!(Entry::decode(&pin).unwrap_err().contains("does not begin with"));
        let mut bytes = entry(Body::Void).encode().unwrap().to_vec();
        bytes[8] = 2;
        let sealed = bytes.len() - 32;
        let hash = blake3::hash(&bytes[..sealed]);
        bytes[sealed..].copy_from_slice(hash.as_bytes());
        assert_eq!(Entry::decode(&bytes).unwrap_err(), "it is of format version 2, and this program reads 1");
    }

    /// Whole by its hash, and made by a program that was wrong: the limits are checked all the same.
    #[test]
    fn a_manifest_that_is_whole_and_wrong_is_refused() {
        type Change = fn(&mut Manifest);
        let changes: [(&str, Change); 8] = [
            ("two nodes", |m| m.nodes.push(m.nodes[0].clone())),
            ("parallelism", |m| m.nodes[1].parallelism = 9),
            ("node name", |m| m.nodes[0].name = crate::model::NodeName::new("../x")),
            ("key groups", |m| m.key_groups = 0),
            ("not before", |m| m.parent = Some(m.epoch)),
            ("oldest first", |m| m.nodes[2].committables[0].epoch = m.epoch.next()),
            ("a segment of", |m| m.nodes[1].subtasks[0].segments[0].chunks = 0),
            ("with 8 key groups", |m| m.nodes[1].subtasks[0].segments[0].scope = crate::model::Scope::KeyGroup(8)),
        ];
        for (fault, change) in changes {
            let mut manifest = a_manifest(3, 2);
            change(&mut manifest);
            let bytes = entry(Body::Checkpoint(Box::new(manifest))).encode().unwrap();
            let error = Entry::decode(&bytes).unwrap_err();
            assert!(error.contains(fault), "{fault}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_manifest_reads_back(
            epoch in 2..u64::MAX,
            generation in 1..u64::MAX,
            records in any::<u64>(),
            watermark in any::<i64>(),
            progress in prop::collection::vec(any::<u8>(), 0..50),
            groups in prop::collection::vec(0..8_u32, 0..20),
        ) {
            let mut manifest = a_manifest(epoch, generation);
            let subtask = &mut manifest.nodes[1].subtasks[0];
            (subtask.records, subtask.watermark, subtask.progress) = (records, watermark, progress);
            let one = subtask.segments[0].clone();
            let more = groups.into_iter().map(|group| super::super::SegmentRef {
                scope: crate::model::Scope::KeyGroup(group), ..one.clone()
            });
            subtask.segments.extend(more);
            let entry = entry(Body::Checkpoint(Box::new(manifest)));
            prop_assert_eq!(Entry::decode(&entry.encode().unwrap()), Ok(entry));
        }

        /// Under a hash that fits, whatever the body is: an error or an entry, and no panic.
        #[test]
        fn any_body_is_decoded_or_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = [&ENTRY.0[..], &1_u16.to_le_bytes(), &body].concat();
            let hash = blake3::hash(&bytes);
            bytes.extend_from_slice(hash.as_bytes());
            if let Ok(entry) = Entry::decode(&bytes) {
                prop_assert!(entry.encode().is_ok());
            }
        }
    }
}
