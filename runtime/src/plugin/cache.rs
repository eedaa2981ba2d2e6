//! Compiled code on disk, so that a plugin is compiled once and not at every start.
//!
//! Loading an entry is running native code, so an entry is believed only if it carries the right keyed hash: the key lies beside
//! the entries, is made at first use, and only the owner can read it. The folder is the owner's alone. Anything that
//! does not fit (damaged, planted, of another key, of another engine) is no error: the plugin is compiled again, and the
//! entry replaced. The store of a job never holds compiled code.

use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use wasmtime::Engine;
use wasmtime::component::Component;

/// Entries; one more drops the oldest.
const ENTRIES_MAX: usize = 256;

const MAGIC: &[u8; 16] = b"weir-compiled-1\n";
const HASH_BYTES: usize = blake3::OUT_LEN;

/// A folder of compiled plugins.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    key: [u8; HASH_BYTES],
    /// Code of one engine, or for one contract, is nothing to another.
    engine: blake3::Hash,
}

/// Feeds what the engine says of its settings to blake3.
struct EngineHasher(blake3::Hasher);

impl Hasher for EngineHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

impl Cache {
    /// Opens the folder, and makes it and its key if need be.
    ///
    /// # Errors
    ///
    /// If it cannot be made, or belongs to somebody else.
    pub(super) fn open(folder: &Path, engine: &Engine) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let meta = fs::metadata(folder)?;
        // SAFETY: it has no preconditions and cannot fail.
        let me = unsafe { libc::geteuid() };
        if meta.uid() != me {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("it belongs to user {}, and weir runs as user {me}", meta.uid()),
            ));
        }
        if meta.mode() & 0o077 != 0 {
            fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        }
        let mut hasher = EngineHasher(blake3::Hasher::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        // What is in the cache is not checked against the contract again, so it must be this contract.
        super::component::contract_files().hash(&mut hasher);
        // What is compiled is what the instrumenter made of it.
        super::instrument::VERSION.hash(&mut hasher);
        Ok(Self { folder: folder.to_owned(), key: key(folder)?, engine: hasher.0.finalize() })
    }

    fn path(&self, digest: &blake3::Hash) -> PathBuf {
        self.folder.join(format!("{}-{}.bin", digest.to_hex(), &self.engine.to_hex()[..16]))
    }

    /// What makes an entry believable: it is for this plugin and this engine, and whoever wrote it had the key.
    fn seal(&self, digest: &blake3::Hash, code: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(digest.as_bytes()).update(self.engine.as_bytes()).update(code);
        hasher.finalize()
    }

    /// The compiled plugin, if there is an entry that can be believed.
    pub(super) fn get(&self, engine: &Engine, digest: &blake3::Hash) -> Option<Component> {
        let entry = fs::read(self.path(digest)).ok()?;
        let (seal, code) = entry.strip_prefix(MAGIC.as_slice())?.split_first_chunk::<HASH_BYTES>()?;
        // The comparison takes the same time wherever they differ.
        if self.seal(digest, code) != *seal {
            tracing::warn!(plugin = %digest, "compiled code in the cache is damaged or not ours, compiling again");
            return None;
        }
        // SAFETY: the seal says that these bytes came from `Component::serialize` of an engine with the same settings.
        match unsafe { Component::deserialize(engine, code) } {
            Ok(component) => Some(component),
            Err(error) => {
                tracing::debug!(plugin = %digest, error = %format!("{error:#}"), "cached code does not load");
                None
            }
        }
    }

    /// Keeps a compiled plugin.
    pub(super) fn put(&self, digest: &blake3::Hash, code: &[u8]) -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.folder)?;
        file.write_all(MAGIC)?;
        file.write_all(self.seal(digest, code).as_bytes())?;
        file.write_all(code)?;
        // Not synced: after a loss of power the seal does not fit, and the plugin is compiled again.
        file.persist(self.path(digest)).map_err(|error| error.error)?;
        self.prune()
    }

    fn prune(&self) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.path().extension().is_some_and(|ext| ext == "bin") {
                entries.push((entry.metadata()?.modified()?, entry.path()));
            }
        }
        entries.sort();
        let surplus = entries.len().saturating_sub(ENTRIES_MAX);
        for (_, path) in &entries[..surplus] {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// The key of a folder. Two processes that make it at the same time end up with the same.
fn key(folder: &Path) -> io::Result<[u8; HASH_BYTES]> {
    let path = folder.join("key");
    let mut made = false;
    loop {
        match read_key(&path) {
            Ok(Some(key)) => return Ok(key),
            Ok(None) if !made => {
                // Too short, or others could read it: what was sealed with it is worth nothing.
                fs::remove_file(&path)?;
            }
            Ok(None) => return Err(io::Error::other("the key in it does not stay as it was written")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut fresh = [0; HASH_BYTES];
        getrandom::fill(&mut fresh).map_err(|error| io::Error::other(error.to_string()))?;
        let mut file = tempfile::Builder::new().prefix(".key-").tempfile_in(folder)?;
        file.as_file().set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(&fresh)?;
        match file.persist_noclobber(&path) {
            Ok(_) => {}
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.error),
        }
        made = true;
    }
}

/// None: there is one that cannot be used.
fn read_key(path: &Path) -> io::Result<Option<[u8; HASH_BYTES]>> {
    let mut file = File::open(path)?;
    let meta = file.metadata()?;
    let mut key = [0; HASH_BYTES];
    if meta.len() != HASH_BYTES as u64 || meta.mode() & 0o077 != 0 {
        return Ok(None);
    }
    file.read_exact(&mut key)?;
    Ok(Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest component there is: a header and nothing else.
    const EMPTY: &[u8] = &[0, b'a', b's', b'm', 13, 0, 1, 0];

    fn setup() -> (tempfile::TempDir, Engine, Cache, blake3::Hash) {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = Engine::default();
        let cache = Cache::open(&folder.path().join("cache"), &engine).expect("a cache");
        let digest = blake3::hash(EMPTY);
        let code = Component::new(&engine, EMPTY).and_then(|it| it.serialize()).expect("compiles");
        cache.put(&digest, &code).expect("is written");
        (folder, engine, cache, digest)
    }

    #[test]
    fn what_was_put_is_got_again_also_by_another_process() {
        let (_folder, engine, cache, digest) = setup();
        assert!(cache.get(&engine, &digest).is_some());
        let again = Cache::open(&cache.folder, &engine).expect("opens again");
        assert!(again.get(&engine, &digest).is_some());
        assert!(again.get(&engine, &blake3::hash(b"another")).is_none());
    }

    #[test]
    fn folder_and_key_are_the_owners_alone() {
        let (_folder, engine, cache, _) = setup();
        let mode = |path: &Path| fs::metadata(path).map(|meta| meta.mode() & 0o777).expect("exists");
        assert_eq!(mode(&cache.folder), 0o700);
        assert_eq!(mode(&cache.folder.join("key")), 0o600);
        fs::set_permissions(&cache.folder, Permissions::from_mode(0o755)).expect("can be changed");
        Cache::open(&cache.folder, &engine).expect("opens");
        assert_eq!(mode(&cache.folder), 0o700);
    }

    #[test]
    fn a_damaged_a_planted_and_a_moved_entry_are_ignored() {
        let (_folder, engine, cache, digest) = setup();
        let path = cache.path(&digest);
        let good = fs::read(&path).expect("exists");
        for at in [0, MAGIC.len(), MAGIC.len() + HASH_BYTES, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, bad).expect("is written");
            assert!(cache.get(&engine, &digest).is_none(), "byte {at}");
        }
        fs::write(&path, &good[..20]).expect("is written");
        assert!(cache.get(&engine, &digest).is_none());
        // The entry of one plugin under the name of another.
        let other = blake3::hash(b"another");
        fs::write(cache.path(&other), &good).expect("is written");
        assert!(cache.get(&engine, &other).is_none());
        fs::write(&path, &good).expect("is written");
        assert!(cache.get(&engine, &digest).is_some());
    }

    #[test]
    fn a_key_that_others_can_read_is_replaced_and_with_it_all_that_it_sealed() {
        let (_folder, engine, cache, digest) = setup();
        fs::set_permissions(cache.folder.join("key"), Permissions::from_mode(0o644)).expect("can be changed");
        let again = Cache::open(&cache.folder, &engine).expect("opens");
        assert_ne!(again.key, cache.key);
        assert!(again.get(&engine, &digest).is_none());
    }

    #[test]
    fn the_oldest_entries_go_when_there_are_too_many() {
        let (_folder, _engine, cache, _) = setup();
        for i in 0..ENTRIES_MAX + 3 {
            cache.put(&blake3::hash(&i.to_le_bytes()), b"code").expect("is written");
        }
        let entries = fs::read_dir(&cache.folder).expect("is there").count();
        assert_eq!(entries, ENTRIES_MAX + 1, "and the key");
    }
}
