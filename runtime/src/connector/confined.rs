//! Files of somebody who may see one directory and nothing else: opened below it, without following a link.
//!
//! A path that has been looked at may lead elsewhere a moment later, so looking first and opening then is no protection. On Linux the kernel resolves a
//! path below an open directory and refuses links on the way (`openat2` with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`); elsewhere the real path is
//! compared.
//!
//! What a sink writes goes through plain paths. They are looked at when it opens, so whoever can make links in the directory while the sink works can lead it
//! elsewhere: nobody but the server should be able to write there.

use std::fs::File;
use std::io;
use std::path::{Component, Path};

use super::ConnectorError;

const HELP: &str = "use a plain file or directory below the directory that the tenant was given";

/// Opens a file for reading; with a root, only below it.
pub(super) fn open(root: Option<&Path>, path: &Path) -> io::Result<File> {
    let Some(root) = root else { return File::open(path) };
    let below = path.strip_prefix(root).map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))?;
    open_below(root, below)
}

/// How long a file is; with a root, only below it.
pub(super) fn length(root: Option<&Path>, path: &Path) -> io::Result<u64> {
    match root {
        None => Ok(std::fs::metadata(path)?.len()),
        Some(_) => Ok(open(root, path)?.metadata()?.len()),
    }
}

#[cfg(target_os = "linux")]
fn open_below(root: &Path, below: &Path) -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
    let directory = openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // Not waiting for somebody at the other end, if it is a pipe.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(File::from(openat2(&directory, below, flags, Mode::empty(), how)?))
}

#[cfg(not(target_os = "linux"))]
fn open_below(root: &Path, below: &Path) -> io::Result<File> {
    let (root, real) = (root.canonicalize()?, root.join(below).canonicalize()?);
    if !real.starts_with(&root) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    File::open(real)
}

/// Whether there is a plain file. What cannot be reached without following a link is refused; `shown` is what the user wrote, and nothing that was found by
/// following one is repeated.
pub(super) fn is_file(root: Option<&Path>, path: &Path, shown: &str) -> Result<bool, ConnectorError> {
    if root.is_none() {
        return Ok(path.is_file());
    }
    match open(root, path).and_then(|file| file.metadata()) {
        Ok(metadata) => Ok(metadata.is_file()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(_) => Err(refused(shown)),
    }
}

/// The path leads where nobody is to look.
pub(super) fn refused(shown: &str) -> ConnectorError {
    ConnectorError::mismatch(format!(
        "{shown:?} leads through a link or to a file that may not be read, and neither is followed here"
    ))
    .help(HELP)
}

/// Fails if a directory below a root, as far as it is there, is reached through a link.
pub(super) fn check_directory(root: Option<&Path>, directory: &Path, shown: &Path) -> Result<(), ConnectorError> {
    let Some(root) = root else { return Ok(()) };
    let refused = || refused(&shown.display().to_string());
    let below = directory.strip_prefix(root).map_err(|_| refused())?;
    let mut at = root.to_owned();
    for part in below.components() {
        match part {
            Component::Normal(name) => at.push(name),
            Component::CurDir => continue,
            _ => return Err(refused()),
        }
        match std::fs::symlink_metadata(&at) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(refused()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(ConnectorError::io("look at", &at, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_outside_of_the_root_is_opened_by_any_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        fs::create_dir_all(root.join("a")).expect("it is made");
        fs::create_dir_all(&outside).expect("it is made");
        fs::write(root.join("a/fine"), "fine").expect("it is written");
        fs::write(outside.join("secret"), "secret").expect("it is written");
        symlink(outside.join("secret"), root.join("file-link")).expect("it is made");
        symlink(&outside, root.join("folder-link")).expect("it is made");
        symlink("../../outside", root.join("a/relative-link")).expect("it is made");
        symlink(root.join("a"), root.join("inner-link")).expect("it is made");
        let can = |path: &str| open(Some(&root), &root.join(path)).is_ok();
        assert!(can("a/fine"));
        for path in
            ["file-link", "folder-link/secret", "a/relative-link/secret", "../outside/secret", "inner-link/fine"]
        {
            assert!(!can(path), "{path}");
            let found = is_file(Some(&root), &root.join(path), "shown");
            assert!(found.is_err_and(|e| !e.to_string().contains("secret")), "{path}");
        }
        assert!(open(Some(&root), &outside.join("secret")).is_err());
        assert!(open(None, &root.join("file-link")).is_ok(), "without a root links are followed");
        assert!(!is_file(Some(&root), &root.join("a/missing"), "a/missing").expect("it may be looked for"));
        assert!(!is_file(Some(&root), &root.join("a"), "a").expect("it may be looked for"), "a folder is no file");

        let check = |path: &str| check_directory(Some(&root), &root.join(path), Path::new(path)).is_ok();
        assert!(check("a") && check("a/new/deep") && check("new"));
        for path in ["folder-link", "folder-link/new", "a/relative-link/x", "inner-link", "a/fine", "a/../../outside"] {
            assert!(!check(path), "{path}");
        }
        assert!(check_directory(Some(&root), &outside, Path::new("x")).is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .expect("it is made");
        assert!(!is_file(Some(folder.path()), &pipe, "pipe").expect("it may be looked for"));
    }
}
