//! Large objects of a store on a local disk, written past the page cache.
//!
//! What a checkpoint writes is read again after a failure, or never. Through the page cache it costs a copy into memory
//! that the machine has to find first, pushes out what others use, and is written back whenever the kernel sees fit: a
//! gigabyte of checkpoints takes seconds of a core from everybody, charged to nobody. Written directly (`O_DIRECT`), it
//! costs a copy into a buffer that stays in the processor's cache.
//!
//! Else it is what `object_store` does, step by step (see [`local`](super)): a temporary file `<name>#<n>`, synced, and
//! then renamed or linked to its name; the folder is synced. Small objects, and file systems that cannot do this, go
//! the ordinary way.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::path::{Path as FsPath, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

use super::sync;
use crate::account::Account;
use crate::clock::thread_time;

/// Smaller objects go the ordinary way.
const LARGE_BYTES: usize = 1 << 20;
/// How much is written at once.
const BUFFER_BYTES: usize = 1 << 20;
/// What memory, offsets and lengths of direct writes have to be multiples of: no device that is known asks for more.
const ALIGNMENT: usize = 4 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct LocalObjects(LocalFileSystem);

impl LocalObjects {
    pub(super) fn new(objects: LocalFileSystem) -> Self {
        Self(objects)
    }

    /// Writes a large object; none if this file system cannot do it like that: then nothing was done.
    async fn put_large(
        &self,
        path: &Path,
        payload: &PutPayload,
        is_new: bool,
        account: Option<Account>,
    ) -> Result<Option<PutResult>> {
        let target = self.0.path_to_filesystem(path)?;
        let (payload, name) = (payload.clone(), target.display().to_string());
        let work = move || {
            let before = thread_time();
            let wrote = write(&target, payload.iter(), is_new);
            // Mostly it waits for the disk, and a slot is not for that.
            if let (Some(account), Some(before), Some(after)) = (account, before, thread_time()) {
                account.charge(after.saturating_sub(before));
            }
            wrote
        };
        let wrote = tokio::task::spawn_blocking(work).await;
        let failed = |source| Err(Error::Generic { store: "LocalFileSystem", source });
        match wrote {
            Ok(Ok(())) => Ok(Some(PutResult { e_tag: None, version: None, extensions: Default::default() })),
            Ok(Err(error)) if may_go_otherwise(&error) => Ok(None),
            Ok(Err(error)) if is_new && error.kind() == ErrorKind::AlreadyExists => {
                Err(Error::AlreadyExists { path: name, source: error.into() })
            }
            Ok(Err(error)) => failed(format!("cannot write {name}: {error}").into()),
            Err(lost) => failed(lost.into()),
        }
    }
}

/// Whether the ordinary way may do: direct writes are not known here, or the folder is not there yet.
fn may_go_otherwise(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::NotFound)
}

/// Writes an object so that it is durable, under its name and whole, when this returns. `is_new`: only if there is none.
fn write<'a>(target: &FsPath, parts: impl Iterator<Item = &'a Bytes>, is_new: bool) -> io::Result<()> {
    let (file, staged) = stage(target)?;
    let wrote = fill(file, parts)
        .and_then(|()| if is_new { std::fs::hard_link(&staged, target) } else { std::fs::rename(&staged, target) });
    if is_new || wrote.is_err() {
        // What cannot be removed now is swept later.
        let _ = std::fs::remove_file(&staged);
    }
    wrote?;
    target.parent().map_or(Ok(()), sync)
}

/// Makes a temporary file for an object, named as `object_store` names it.
fn stage(target: &FsPath) -> io::Result<(File, PathBuf)> {
    let mut number = 1_u64;
    loop {
        let mut name = target.as_os_str().to_owned();
        name.push(format!("#{number}"));
        let staged = PathBuf::from(name);
        match open(&staged) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            opened => return Ok((opened?, staged)),
        }
    }
}

#[cfg(target_os = "linux")]
fn open(path: &FsPath) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    let opened = OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_DIRECT).open(path);
    if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidInput) {
        // Some file systems make the file before they say that they cannot write to it like that.
        let _ = std::fs::remove_file(path);
    }
    opened
}

#[cfg(not(target_os = "linux"))]
fn open(_: &FsPath) -> io::Result<File> {
    let _ = OpenOptions::new();
    Err(ErrorKind::Unsupported.into())
}

/// Writes all parts, and makes them durable.
fn fill<'a>(mut file: File, parts: impl Iterator<Item = &'a Bytes>) -> io::Result<()> {
    let mut memory = vec![0; BUFFER_BYTES + ALIGNMENT];
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    let buffer = memory.get_mut(start..start + BUFFER_BYTES).ok_or(ErrorKind::Unsupported)?;
    let (mut filled, mut length) = (0, 0);
    for part in parts {
        length += part.len() as u64;
        let mut rest = &part[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BUFFER_BYTES - filled));
            buffer[filled..filled + now.len()].copy_from_slice(now);
            (filled, rest) = (filled + now.len(), later);
            if filled == BUFFER_BYTES {
                file.write_all(buffer)?;
                filled = 0;
            }
        }
    }
    if filled > 0 {
        // Whole blocks alone; what is too much is cut off.
        let whole = filled.next_multiple_of(ALIGNMENT);
        buffer[filled..whole].fill(0);
        file.write_all(&buffer[..whole])?;
        file.set_len(length)?;
    }
    file.sync_all()
}

impl fmt::Display for LocalObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for LocalObjects {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let is_new = match options.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            PutMode::Update(_) => return self.0.put_opts(path, payload, options).await,
        };
        if payload.content_length() >= LARGE_BYTES
            && options.attributes.is_empty()
            && let Some(put) = self.put_large(path, &payload, is_new, options.extensions.get().cloned()).await?
        {
            return Ok(put);
        }
        self.0.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(path, options).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.0.get_ranges(path, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.0.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;

    use super::*;

    fn store() -> (tempfile::TempDir, LocalObjects) {
        let dir = tempfile::tempdir().expect("a folder");
        let objects = LocalFileSystem::new_with_prefix(dir.path()).expect("it is there").with_fsync(true);
        (dir, LocalObjects::new(objects))
    }

    fn names(dir: &FsPath) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .expect("it is there")
            .map(|entry| entry.expect("it can be read").file_name().into_string().expect("it is text"))
            .collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn an_object_of_any_length_in_any_parts_is_read_as_it_was_written() {
        let (dir, store) = store();
        for length in [
            0,
            1,
            LARGE_BYTES - 1,
            LARGE_BYTES,
            LARGE_BYTES + 1,
            BUFFER_BYTES + ALIGNMENT,
            3 * BUFFER_BYTES - 1,
            3 * BUFFER_BYTES + 17,
        ] {
            let bytes: Bytes = (0..length).map(|n| (n % 251) as u8).collect::<Vec<_>>().into();
            for part in [length.max(1), 4_097, 1 << 19] {
                let parts = bytes.chunks(part).map(|chunk| bytes.slice_ref(chunk));
                store.put(&Path::from("a"), parts.collect()).await.expect("it is written");
                assert_eq!(
                    store.get(&Path::from("a")).await.unwrap().bytes().await.unwrap(),
                    bytes,
                    "{length} by {part}"
                );
            }
        }
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[tokio::test]
    async fn a_large_object_is_created_once_and_what_was_there_stays() {
        let (dir, store) = store();
        let large = |byte: u8| PutPayload::from(vec![byte; LARGE_BYTES + 5]);
        let path = Path::from("a");
        store.put_opts(&path, large(1), PutMode::Create.into()).await.expect("there is none");
        let again = store.put_opts(&path, large(2), PutMode::Create.into()).await.expect_err("there is one");
        assert!(matches!(again, Error::AlreadyExists { .. }), "{again}");
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap()[0], 1);
        assert_eq!(names(dir.path()), ["a"], "nothing is left of the second");
        store.put(&path, large(3)).await.expect("it is replaced");
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap()[0], 3);
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_is_made_and_a_leftover_is_in_nobodys_way() {
        let (dir, store) = store();
        std::fs::create_dir(dir.path().join("b")).expect("it is made");
        std::fs::write(dir.path().join("b/x#1"), b"half").expect("it is written");
        for path in ["new/folder/x", "b/x"] {
            store.put(&Path::from(path), vec![7; LARGE_BYTES].into()).await.expect(path);
            assert_eq!(store.get(&Path::from(path)).await.unwrap().bytes().await.unwrap().len(), LARGE_BYTES);
        }
        assert_eq!(names(&dir.path().join("b")), ["x", "x#1"]);
    }

    #[tokio::test]
    async fn a_name_that_cannot_be_written_is_named() {
        let (dir, store) = store();
        std::fs::create_dir_all(dir.path().join("a/b")).expect("it is made");
        let error = store.put(&Path::from("a"), vec![7; LARGE_BYTES].into()).await.expect_err("it is a folder");
        assert!(error.to_string().contains(&dir.path().join("a").display().to_string()), "{error}");
        assert_eq!(names(dir.path()), ["a"]);
    }
}
