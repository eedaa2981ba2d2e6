//! `weir sink`: what an object sink has published, read as its reader rule says: list the commit records, read only what they
//! name.

use std::io::Write;

use clap::{Args, Subcommand};
use futures::StreamExt;

use super::inspect::parse_option;
use super::output::{Table, bytes, count, print, print_json};
use crate::connector::{CommittedObject, ConnectorError, ConnectorErrorKind, ObjectReader};
use crate::error::{Error, ErrorKind};
use crate::model::Epoch;

/// `weir sink`.
#[derive(Debug, Subcommand)]
pub(super) enum SinkCommand {
    /// List the objects that an object sink has published
    List(SinkArgs),
    /// Print what an object sink has published, in the order of its epochs
    Read(SinkArgs),
}

/// Which sink, and from where on.
#[derive(Debug, Args)]
pub(super) struct SinkArgs {
    /// The url of the sink, as in its pipeline file
    url: String,
    /// Only epochs after this one
    #[arg(long, default_value_t = 0, value_name = "EPOCH")]
    after: u64,
    /// An option of the store, as in store_options; may be repeated
    #[arg(long = "store-option", value_name = "KEY=VALUE", value_parser = parse_option)]
    store_options: Vec<(String, String)>,
    /// Answer in JSON (list)
    #[arg(long)]
    json: bool,
}

impl SinkCommand {
    pub(super) fn run(self) -> Result<(), Error> {
        super::run::block_on(async {
            match self {
                Self::List(args) => list(args).await,
                Self::Read(args) => read(args).await,
            }
        })
    }
}

fn failed(error: ConnectorError) -> Error {
    let kind = match error.kind {
        ConnectorErrorKind::Transient => ErrorKind::Store,
        ConnectorErrorKind::Record | ConnectorErrorKind::Mismatch => ErrorKind::State,
    };
    let outer = Error::new(kind, error.message.clone());
    let outer = match &error.help {
        Some(help) => outer.help(help.clone()),
        None => outer,
    };
    match error.source {
        Some(source) => outer.caused_by(source),
        None => outer,
    }
}

impl SinkArgs {
    fn open(&self) -> Result<ObjectReader, Error> {
        let here = std::env::current_dir().unwrap_or_default();
        let options = self.store_options.iter().cloned().collect();
        ObjectReader::open(&self.url, &here, &options).map_err(failed)
    }
}

async fn list(args: SinkArgs) -> Result<(), Error> {
    let reader = args.open()?;
    let mut objects: Vec<CommittedObject> = Vec::new();
    for epoch in reader.epochs(Epoch(args.after)).await.map_err(failed)? {
        objects.extend(reader.objects(epoch).await.map_err(failed)?);
    }
    if args.json {
        return print_json(&objects);
    }
    let mut table = Table::new(&[">epoch", "object", ">records", ">bytes"]);
    for object in objects {
        table.row(vec![object.epoch.to_string(), object.name, count(object.records), bytes(object.bytes)]);
    }
    print(table)
}

async fn read(args: SinkArgs) -> Result<(), Error> {
    let reader = args.open()?;
    let mut out = std::io::stdout().lock();
    for epoch in reader.epochs(Epoch(args.after)).await.map_err(failed)? {
        for object in reader.objects(epoch).await.map_err(failed)? {
            let mut pieces = reader.read(&object).await.map_err(failed)?;
            while let Some(piece) = pieces.next().await {
                match out.write_all(&piece.map_err(failed)?) {
                    // A reader that has gone is no error.
                    Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                    Err(e) => {
                        return Err(Error::new(ErrorKind::Store, "standard output cannot be written to").caused_by(e));
                    }
                    Ok(()) => {}
                }
            }
        }
    }
    out.flush().map_err(|e| Error::new(ErrorKind::Store, "standard output cannot be written to").caused_by(e))
}
