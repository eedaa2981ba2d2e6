//! What a stopped job has prepared and not committed: looked at, finished, or given up, without running the job.
//!
//! Only the tip can be open (I13). *Finishing* it is what recovery does: claim, commit, mark. *Giving it up* is a claim whose
//! base is the tip's parent: that claim is the durable evidence, in the log, by which no later run commits the tip; what
//! it covered is read again from the parent and published under later epochs. So neither loses or doubles anything, as long as
//! no sink had published it; that is looked at first, and refused. After the claim each sink makes sure that a run which is
//! asleep with a permit in its hand cannot publish it either.

use super::commit::{Committers, failed};
use crate::checkpoint::{Begun, Manifest, Start, Store, begin, give_up, open_tip};
use crate::clock::Clock;
use crate::connector::{Abandoned, Looked, committer_of};
use crate::error::{Error, ErrorKind};
use crate::model::{CommitIdentity, Epoch, NodeName};

/// What a checkpoint waits to commit.
#[derive(Debug)]
pub struct Transactions {
    /// The open checkpoint.
    pub manifest: Manifest,
    /// One for each sink that has prepared something.
    pub sinks: Vec<Transaction>,
}

/// What one sink has prepared.
#[derive(Debug)]
pub struct Transaction {
    /// The sink.
    pub node: NodeName,
    /// What is there; or why it could not be looked at.
    pub looked: Result<Looked, Error>,
}

/// Looks at the open checkpoint of a job; none if everything is committed. Changes nothing.
///
/// # Errors
///
/// If the job's log cannot be read. A sink that cannot be looked at is in the answer.
pub async fn open_transactions(store: &Store, job: &str) -> Result<Option<Transactions>, Error> {
    let Some(manifest) = open_tip(store, job).await? else { return Ok(None) };
    let mut sinks = Vec::new();
    for node in manifest.nodes.iter().filter(|node| !node.committables.is_empty()) {
        let identity = CommitIdentity { job: manifest.job_id, node: node.name.clone(), epoch: manifest.epoch };
        let committer = committer_of(&node.committables, manifest.job_id);
        let looked = committer.look(&identity, &node.committables).await.map_err(|e| failed(&node.name, e));
        sinks.push(Transaction { node: node.name.clone(), looked });
    }
    Ok(Some(Transactions { manifest, sinks }))
}

/// Finishes what is open, as recovery does: claims the job, which fences a run that is asleep, commits and marks. Gives the epoch; none
/// if nothing was open, and then nothing was changed.
///
/// # Errors
///
/// If a sink cannot publish; it may be repeated.
pub async fn commit_open(store: &Store, job: &str, clock: &Clock) -> Result<Option<Epoch>, Error> {
    if open_tip(store, job).await?.is_none() {
        return Ok(None);
    }
    match begin(store, job, Start::Resume, clock).await? {
        Begun::Run { mut run, restore: Some(manifest), commit_needed: true } => {
            let permit = run.permit_tip().await?;
            Committers::anywhere(run.job_id(), clock).commit(&mut run, permit, &manifest).await?;
            Ok(Some(manifest.epoch))
        }
        // Somebody else was faster.
        Begun::Run { .. } | Begun::Finished(_) => Ok(None),
    }
}

/// Gives the open checkpoint up.
///
/// # Errors
///
/// If it is not open any more, or a sink has published it already; then nothing was changed. If a sink published it at the very
/// moment, by a run that is fenced now, the error says which.
pub async fn abort_open(store: &Store, job: &str, epoch: Epoch, clock: &Clock) -> Result<(), Error> {
    let open = open_transactions(store, job).await?.filter(|open| open.manifest.epoch == epoch);
    let open = open.ok_or_else(|| {
        Error::new(ErrorKind::Usage, format!("checkpoint {epoch} of job {job:?} does not wait for its commit"))
            .help("`weir txn list` shows what does")
    })?;
    for sink in open.sinks {
        let looked = sink.looked?;
        if looked.published {
            return Err(published(&[sink.node], epoch, "nothing was changed").help(
                "`weir txn commit` finishes the others: giving it up now would publish again what this sink has published",
            ));
        }
    }
    let run = give_up(store, job, epoch, clock).await?;
    let Some(manifest) = run.given_up() else { return Ok(()) };
    let mut late = Vec::new();
    for node in manifest.nodes.iter().filter(|node| !node.committables.is_empty()) {
        let identity = CommitIdentity { job: manifest.job_id, node: node.name.clone(), epoch };
        let committer = committer_of(&node.committables, manifest.job_id);
        // What fails here is done by the next run, before its sinks open.
        let abandoned = committer.abandon(&identity, &node.committables).await.map_err(|e| failed(&node.name, e))?;
        if abandoned == Abandoned::AlreadyPublished {
            late.push(node.name.clone());
        }
    }
    if late.is_empty() {
        return Ok(());
    }
    Err(published(&late, epoch, "the job will produce it again").help(
        "another run committed at the same moment: `weir run --from` this checkpoint instead if all of its sinks have, \
         or remove what they published of it before the next run",
    ))
}

fn published(sinks: &[NodeName], epoch: Epoch, and: &str) -> Error {
    let names = sinks.iter().map(|name| format!("{:?}", name.as_str())).collect::<Vec<_>>().join(", ");
    Error::new(ErrorKind::State, format!("sink {names} has published checkpoint {epoch} already; {and}"))
}
