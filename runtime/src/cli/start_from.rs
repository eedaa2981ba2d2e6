//! `--from`: what a user names to start from, looked up without touching anything, and how it fits a pipeline.
//!
//! A number is the epoch of a checkpoint, a name a savepoint, and anything that is neither, such as `./old.save`, the file of an exported
//! savepoint.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::output::{Table, bytes};
use super::pipeline::{Pipeline, open_store};
use crate::checkpoint::{ExportFile, Restorable, Store, check_job, find_savepoint, look_for, open_export};
use crate::error::{Error, ErrorKind};
use crate::job::{Facts, Fit, fit};
use crate::model::{Epoch, NodeName, name_fault};

/// What `weir run` and `weir check` take to say where a job starts.
#[derive(Debug, Args)]
pub(super) struct FromArgs {
    /// Start from this instead of the newest checkpoint: a savepoint's name, a checkpoint's epoch, or the file of an exported savepoint
    #[arg(long, value_name = "NAME|EPOCH|FILE")]
    pub(super) from: Option<String>,
    /// Give up the state of an operator, which then starts empty, or of a node that the pipeline has no more; may be repeated
    #[arg(long, value_name = "NODE")]
    drop_state: Vec<String>,
}

/// What was named.
#[derive(Debug)]
pub(super) enum Origin {
    /// A checkpoint of this store, perhaps one that a savepoint keeps.
    Epoch(Epoch),
    /// A file, read once and found whole.
    File(Box<ExportFile>),
}

impl FromArgs {
    pub(super) fn drop_state(&self) -> BTreeSet<NodeName> {
        self.drop_state.iter().map(|name| NodeName::new(name.as_str())).collect()
    }

    /// Whether anything was said about where to start.
    pub(super) fn is_given(&self) -> bool {
        self.from.is_some() || !self.drop_state.is_empty()
    }

    /// Looks up what was named; none if nothing was.
    pub(super) async fn find(&self, store: &Store, job: &str) -> Result<Option<Origin>, Error> {
        let Some(from) = &self.from else { return Ok(None) };
        if let Ok(epoch) = from.parse() {
            return Ok(Some(Origin::Epoch(Epoch(epoch))));
        }
        if name_fault(from).is_none() {
            let found = find_savepoint(store, job, from).await;
            return match found {
                Ok(savepoint) => Ok(Some(Origin::Epoch(savepoint.manifest.epoch))),
                Err(error) if PathBuf::from(from).is_file() => {
                    let error = Error::from(error);
                    let help = format!("write ./{from} if the file of that name is meant");
                    Err(error.help(help))
                }
                Err(error) => Err(error.into()),
            };
        }
        let export = open_export(&PathBuf::from(from)).await?;
        check_job(&export, job)?;
        Ok(Some(Origin::File(Box::new(export))))
    }
}

impl Origin {
    /// The checkpoint to start from, as it would be found now; none if the job would start at its beginning.
    pub(super) async fn look(from: Option<&Self>, store: &Store, job: &str) -> Result<Option<Restorable>, Error> {
        match from {
            Some(Self::File(export)) => {
                Ok(Some(Restorable { manifest: export.manifest.clone(), committed: true, later: Vec::new() }))
            }
            Some(Self::Epoch(epoch)) => Ok(look_for(store, job, Some(*epoch)).await?),
            None => Ok(look_for(store, job, None).await?),
        }
    }
}

/// What `weir check --from` says of the state.
#[derive(Debug, Serialize)]
pub(super) struct StateReport {
    /// As it was named.
    from: String,
    /// Epochs after it whose output is published and would be produced again: `weir run` asks for `--republish` then.
    published_later: Vec<u64>,
    #[serde(flatten)]
    pub(super) fit: Fit,
}

impl StateReport {
    /// Looks how what was named fits a pipeline. Touches nothing.
    pub(super) async fn new(args: &FromArgs, pipeline: &Pipeline) -> Result<Self, Error> {
        let spec = &pipeline.spec;
        let (drop_state, job) = (args.drop_state(), &spec.name);
        // Opening a folder makes it: a store that is not there has nothing to start from.
        let is_file =
            args.from.as_deref().is_some_and(|from| from.parse::<u64>().is_err() && name_fault(from).is_some());
        let found = if is_file {
            let path = PathBuf::from(args.from.as_deref().unwrap_or_default());
            let export = open_export(&path).await?;
            check_job(&export, job)?;
            Some(Restorable { manifest: export.manifest, committed: true, later: Vec::new() })
        } else if spec.store_dir().is_some_and(|dir| !dir.is_dir()) {
            let message = format!("job {job:?} never ran in this store: {}", spec.checkpoint.store);
            return Err(
                Error::new(ErrorKind::Usage, message).help("leave --from out, or check `store` of [checkpoint]")
            );
        } else {
            let store = open_store(spec)?;
            let from = args.find(&store, job).await?;
            Origin::look(from.as_ref(), &store, job).await?
        };
        let Some(found) = found else {
            let message = format!("job {job:?} has no checkpoint to start from");
            return Err(Error::new(ErrorKind::Usage, message).help("leave --drop-state out"));
        };
        let fit = fit(&Facts {
            manifest: &found.manifest,
            open: !found.committed,
            plan: &pipeline.plan,
            key_groups: spec.key_groups,
            code: &pipeline.code(),
            drop_state: &drop_state,
        });
        let from = args.from.clone().unwrap_or_else(|| "the newest checkpoint".into());
        Ok(Self { from, published_later: found.later.iter().map(|epoch| epoch.0).collect(), fit })
    }

    /// For people, after the rest of `weir check`.
    pub(super) fn text(&self) -> String {
        let mut text = format!("\nstate, from checkpoint {}\n", self.fit.epoch);
        let mut table = Table::new(&["  node", ">was", ">is", ">state", "", "reason"]);
        let number = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        for node in &self.fit.nodes {
            table.row(vec![
                format!("  {}", node.node),
                number(node.was),
                number(node.parallelism),
                bytes(node.state_bytes),
                node.verdict.word().to_owned(),
                node.reason.clone(),
            ]);
        }
        text.push_str(&table.to_string());
        if !self.published_later.is_empty() {
            let later: Vec<_> = self.published_later.iter().map(u64::to_string).collect();
            text.push_str(&format!(
                "\noutput of later epochs ({}) is published and would be produced again: weir run asks for --republish\n",
                later.join(", ")
            ));
        }
        text
    }
}
