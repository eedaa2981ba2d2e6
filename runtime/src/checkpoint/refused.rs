//! Code that took over an operator and failed: noted in the log before the job starts over with the code before it.
//!
//! The entry decides nothing about what is restored; it is passed over like a void one. It is there so that whoever
//! starts the job next, from whatever they remember of the upgrade, can ask which code was tried and why it was taken
//! back, and does not try it again by itself. It goes when the log is collected up to it.

use serde::{Deserialize, Serialize};

use super::error::{CheckpointError, Superseder};
use super::log::{Body, Entry, READ_ATTEMPTS_MAX};
use super::manifest::TEXT_BYTES_MAX;
use super::objects::{Created, Store};
use super::publish::Run;
use super::recover::{contended, look_at};
use crate::model::{Epoch, NodeName, Timestamp};

/// Code that took over an operator and failed before a checkpoint held anything of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The operator.
    pub node: NodeName,
    /// The blake3 hash of the component.
    pub digest: [u8; 32],
    /// Its version, as it calls itself.
    pub version: String,
    /// The checkpoint at whose barrier it took over.
    pub epoch: Epoch,
    /// Why it was taken back.
    pub reason: String,
    /// When.
    pub created_at: Timestamp,
}

impl Refused {
    /// Texts are cut to what an entry may hold.
    fn bounded(mut self) -> Self {
        for text in [&mut self.version, &mut self.reason] {
            if text.len() > TEXT_BYTES_MAX {
                let end = (0..=TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
                text.truncate(end);
            }
        }
        self
    }
}

impl Run {
    /// Notes in the log that code was refused. It may be noted twice, if the outcome of a first attempt was not known.
    ///
    /// # Errors
    ///
    /// If it is not certain that it is there, or if somebody took over.
    pub async fn note_refused(&mut self, refused: Refused) -> Result<(), CheckpointError> {
        if let Some(epoch) = self.in_doubt() {
            return Err(CheckpointError::Refused(format!("whether checkpoint {epoch} is complete is not known yet")));
        }
        let body = Body::Refused(Box::new(refused.bounded()));
        loop {
            let store = self.store().clone();
            let seq = self.last_seq() + 1;
            let (job_id, generation) = (store.id(), self.generation());
            let entry = Entry { job_id, seq, generation, nonce: store.store().nonce()?, body: body.clone() };
            match store.store().settle(&store.log(seq), &entry.encode()?).await? {
                Created::Written => {
                    self.note_seq(seq);
                    return self.check_fence().await;
                }
                Created::Theirs(theirs) => {
                    let theirs = store.check_entry(seq, &theirs)?;
                    if theirs.generation != generation {
                        let by = Superseder::Generation(theirs.generation);
                        return Err(CheckpointError::Superseded { job: store.job().to_owned(), generation, by });
                    }
                    // Its own, of an attempt whose outcome it did not learn (I6).
                    self.note_seq(seq);
                    if matches!(&theirs.body, Body::Refused(_)) {
                        return self.check_fence().await;
                    }
                }
            }
        }
    }
}

/// The code that was refused in a job, the oldest first, as far as the log reaches back.
///
/// # Errors
///
/// If the log cannot be read.
pub async fn refused(store: &Store, job: &str) -> Result<Vec<Refused>, CheckpointError> {
    let store = look_at(store, job).await?;
    'again: for _ in 0..READ_ATTEMPTS_MAX {
        let span = store.span().await?;
        let mut found = Vec::new();
        for seq in span.boundary + 1..=span.tip {
            match store.read_in_span(seq).await? {
                Some(Entry { body: Body::Refused(refused), .. }) => found.push(*refused),
                Some(_) => {}
                None => continue 'again,
            }
        }
        return Ok(found);
    }
    Err(contended(&store))
}
