//! Making files and folders survive a loss of power.
//!
//! A file is durable when it is synced *and* every folder on the way to it is: a folder that exists may still be
//! forgotten if it was made by a process that died before it synced the parent. So folders are made from the top down,
//! each parent synced before anything is made in the child, and by that order a folder that exists has durable
//! ancestors, up to its own entry, which is synced again.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::ConnectorError;

/// Syncs the entries of a folder.
pub(super) fn sync_dir(dir: &Path) -> Result<(), ConnectorError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| ConnectorError::io("sync folder", dir, e))
}

/// Makes a folder and what is missing above it, all durable. The entry of `dir` is synced also if it was there.
pub(super) fn make_dirs(dir: &Path) -> Result<(), ConnectorError> {
    let mut missing = Vec::new();
    let mut at = dir;
    loop {
        match fs::metadata(at) {
            Ok(metadata) if metadata.is_dir() => break,
            Ok(_) => {
                return Err(ConnectorError::mismatch(format!("{} is there and not a folder", at.display()))
                    .help("choose another path for the sink, or move it away"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(at),
            Err(error) => return Err(ConnectorError::io("look at", at, error)),
        }
        match at.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => at = parent,
            _ => break,
        }
    }
    if missing.is_empty() {
        return sync_parent(dir);
    }
    // The lowest folder that exists may be one that nobody has synced yet.
    if let Some(parent) = missing.last().and_then(|top| top.parent()) {
        sync_parent(parent)?;
    }
    for dir in missing.into_iter().rev() {
        match fs::create_dir(dir) {
            Ok(()) => {}
            // A sibling subtask was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(ConnectorError::io("make folder", dir, error)),
        }
        sync_parent(dir)?;
    }
    Ok(())
}

/// Syncs the folder that holds `path`. Nothing is above the root.
pub(super) fn sync_parent(path: &Path) -> Result<(), ConnectorError> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
        _ => Ok(()),
    }
}
