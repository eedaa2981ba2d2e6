//! `weir checkpoint diff`: what changed between two checkpoints.

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;

use super::inspect::JobArgs;
use super::output::{Table, bytes, print, print_json};
use crate::checkpoint::{Difference, diff};
use crate::error::Error;
use crate::model::{Epoch, Scope};

/// `weir checkpoint diff`.
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    #[command(flatten)]
    job: JobArgs,
    /// The epoch to compare with
    #[arg(long, value_name = "EPOCH")]
    from: u64,
    /// The epoch that is compared
    #[arg(long, value_name = "EPOCH")]
    to: u64,
    /// Show every key group, and not only the sums of nodes
    #[arg(long)]
    groups: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    node: String,
    part: String,
    added: u64,
    removed: u64,
    same: u64,
}

fn part(difference: &Difference) -> String {
    let subtask = difference.subtask.map_or_else(String::new, |subtask| format!(" of subtask {subtask}"));
    match difference.scope {
        Scope::KeyGroup(group) => format!("key group {group}"),
        Scope::Subtask => format!("state{subtask}"),
        Scope::Shared => format!("shared state{subtask}"),
        Scope::Item => "items".into(),
    }
}

pub(super) async fn diff_two(args: DiffArgs) -> Result<(), Error> {
    let (store, job) = args.job.open()?;
    let differences = diff(&store, &job, Epoch(args.from), Epoch(args.to)).await?;
    let rows: Vec<Row> = differences
        .iter()
        .map(|d| Row { node: d.node.to_string(), part: part(d), added: d.added, removed: d.removed, same: d.same })
        .collect();
    if args.job.json {
        return print_json(&rows);
    }
    if rows.is_empty() {
        eprintln!("neither of the checkpoints {} and {} of job {job:?} holds any state", args.from, args.to);
        return Ok(());
    }
    let mut table = Table::new(&["node", "part", ">added", ">removed", ">same"]);
    let mut sums: BTreeMap<&str, (usize, [u64; 3])> = BTreeMap::new();
    for row in &rows {
        if args.groups {
            table.row(vec![row.node.clone(), row.part.clone(), bytes(row.added), bytes(row.removed), bytes(row.same)]);
        }
        let (changed, sum) = sums.entry(&row.node).or_default();
        *changed += usize::from(row.added + row.removed > 0);
        for (sum, bytes) in sum.iter_mut().zip([row.added, row.removed, row.same]) {
            *sum += bytes;
        }
    }
    for (node, (changed, [added, removed, same])) in sums {
        let parts = rows.iter().filter(|row| row.node == node).count();
        let part = format!("{changed} of {parts} parts changed");
        table.row(vec![node.into(), part, bytes(added), bytes(removed), bytes(same)]);
    }
    print(table)
}
