//! What the scenario tests share: the binary and the plugins, built once; pipelines in folders of their own; a reader of
//! published output that is as strict as a reader can be.

pub mod gate;
pub mod guests;
pub mod job;
pub mod openapi;
pub mod s3;
pub mod server;
pub mod store_suite;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Cargo's target folder: the one that this program was built into.
pub fn cargo_target() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let folder = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    folder.map(Path::to_path_buf).unwrap_or_else(|| root().join("target"))
}

/// The `weir` binary with its plugins beside it, as `make build` leaves them. Built if they are missing or old.
pub fn weir() -> &'static Path {
    static WEIR: OnceLock<PathBuf> = OnceLock::new();
    WEIR.get_or_init(|| {
        let status = Command::new("make")
            .args(["--silent", "build"])
            .current_dir(root())
            .env("CARGO_TARGET_DIR", cargo_target())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .expect("make can be started");
        assert!(status.success(), "make build failed");
        cargo_target().join("release/weir")
    })
}

/// Runs the binary in a folder and waits for it. Gives its exit code, standard output and standard error.
pub fn run(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let output = Command::new(weir())
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("the binary can be started");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// The flights of January 2013, as the example has them.
pub fn january() -> PathBuf {
    root().join("examples/flight-delays/data/flights-2013-01.csv")
}

/// Writes the flights of 2013 as one file a month, `2013-01.csv` to `2013-12.csv`, into a folder.
pub fn write_months(folder: &Path) {
    let packed =
        fs::File::open(root().join("examples/flight-delays/data/flights-2013.csv.gz")).expect("the year is there");
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(packed).read_to_string(&mut text).expect("the year unpacks");
    let (header, rows) = text.split_once('\n').expect("a header");
    let mut months: BTreeMap<u32, String> = BTreeMap::new();
    for row in rows.lines() {
        let month = row.split(',').nth(1).and_then(|month| month.parse().ok()).expect("a month");
        let month = months.entry(month).or_insert_with(|| format!("{header}\n"));
        month.push_str(row);
        month.push('\n');
    }
    assert_eq!(months.len(), 12);
    fs::create_dir_all(folder).expect("the folder can be made");
    for (month, text) in months {
        let mut file = fs::File::create(folder.join(format!("2013-{month:02}.csv"))).expect("a file");
        file.write_all(text.as_bytes()).expect("the rows can be written");
    }
}

/// A published epoch, checked against its own record of what it holds.
#[derive(Debug, PartialEq, Eq)]
pub struct PublishedEpoch {
    /// Its number.
    pub epoch: u64,
    /// The content of each part, by name.
    pub parts: BTreeMap<String, Vec<u8>>,
}

/// Everything that a file sink has published, in order of epochs. Anything that is not a whole epoch is reported.
///
/// # Errors
///
/// What a reader must never see.
pub fn published(folder: &Path) -> Result<Vec<PublishedEpoch>, String> {
    let mut epochs = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return Ok(epochs) };
    for entry in entries {
        let entry = entry.map_err(|e| e.to_string())?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let number = name.strip_prefix("epoch-").and_then(|n| n.parse().ok());
        let epoch = number.ok_or_else(|| format!("{name:?} is published and is no epoch"))?;
        epochs.push(published_epoch(&entry.path(), epoch)?);
    }
    epochs.sort_by_key(|epoch| epoch.epoch);
    Ok(epochs)
}

/// One published epoch.
///
/// # Errors
///
/// If it is not whole.
pub fn published_epoch(folder: &Path, epoch: u64) -> Result<PublishedEpoch, String> {
    let fault = |what: String| format!("{}: {what}", folder.display());
    let record = fs::read(folder.join("_commit.json")).map_err(|e| fault(format!("no record of the commit: {e}")))?;
    let record: Value = serde_json::from_slice(&record).map_err(|e| fault(e.to_string()))?;
    if record["epoch"] != epoch {
        return Err(fault(format!("its record is of epoch {}", record["epoch"])));
    }
    let mut parts = BTreeMap::new();
    for part in record["parts"].as_array().ok_or_else(|| fault("its record names no parts".into()))? {
        let name = part["name"].as_str().unwrap_or_default().to_owned();
        let bytes = fs::read(folder.join(&name)).map_err(|e| fault(format!("part {name} is not there: {e}")))?;
        if part["bytes"] != bytes.len() || part["blake3"] != blake3::hash(&bytes).to_hex().as_str() {
            return Err(fault(format!("part {name} is not what its record says")));
        }
        parts.insert(name, bytes);
    }
    let listed = fs::read_dir(folder).map_err(|e| fault(e.to_string()))?.count();
    if listed != parts.len() + 1 {
        return Err(fault(format!("{listed} files, and its record names {} parts", parts.len())));
    }
    Ok(PublishedEpoch { epoch, parts })
}

/// Everything that an object sink on a test's server has published, in order of epochs, by its reader rule: list the commit records, read
/// only what they name. `place` is `bucket/prefix`.
///
/// # Errors
///
/// What a reader must never see.
pub fn published_objects(server: &s3::S3Server, place: &str) -> Result<Vec<PublishedEpoch>, String> {
    let mut epochs = Vec::new();
    for key in server.keys(&format!("{place}/_weir/commits/")) {
        let fault = |what: String| format!("{key}: {what}");
        let record = server.get(&key).ok_or_else(|| fault("is listed and gone".into()))?;
        let record: Value = serde_json::from_slice(&record).map_err(|e| fault(e.to_string()))?;
        let epoch = record["epoch"].as_u64().ok_or_else(|| fault("no epoch".into()))?;
        if !key.ends_with(&format!("/{epoch:020}.json")) || record["format"] != "weir-commit-1" {
            return Err(fault(format!("is the record of epoch {epoch}")));
        }
        let mut parts = BTreeMap::new();
        for object in record["objects"].as_array().ok_or_else(|| fault("no objects".into()))? {
            let name = object["name"].as_str().unwrap_or_default().to_owned();
            let bytes = server.get(&format!("{place}/{name}")).ok_or_else(|| fault(format!("{name} is not there")))?;
            if object["bytes"] != bytes.len() || object["blake3"] != blake3::hash(&bytes).to_hex().as_str() {
                return Err(fault(format!("{name} is not what the record says")));
            }
            parts.insert(name, bytes);
        }
        if record["abandoned"] == true && !parts.is_empty() {
            return Err(fault("was given up and names objects".into()));
        }
        epochs.push(PublishedEpoch { epoch, parts });
    }
    Ok(epochs)
}

/// The lines of everything published, in the order of a reader who goes epoch by epoch and part by part.
pub fn lines(folder: &Path) -> Vec<String> {
    let epochs = published(folder).expect("whole epochs");
    let parts = epochs.iter().flat_map(|epoch| epoch.parts.values());
    parts.flat_map(|part| String::from_utf8_lossy(part).lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The same as JSON.
pub fn json_lines(folder: &Path) -> Vec<Value> {
    lines(folder).iter().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}
