//! How a plugin is found: by path, by name and version in folders, by digest in a store; and what is said when it is not.

use std::path::{Path, PathBuf};

use futures::FutureExt;
use weir::plan::PluginRef;
use weir::plugin::registry::{Fetch, PluginFolders};
use weir::plugin::{HostOptions, PluginError, PluginHost};
use weir_tests::guests::guest;

/// Two folders; the second holds the hostile guest, version 1.0.0, under its own name and under another.
struct Setup {
    dir: tempfile::TempDir,
    host: PluginHost,
    bytes: Vec<u8>,
}

impl Setup {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let bytes = guest("hostile");
        for folder in ["first", "second"] {
            std::fs::create_dir(dir.path().join(folder)).expect("can be made");
        }
        for name in ["hostile", "other"] {
            std::fs::write(dir.path().join(format!("second/{name}.wasm")), &bytes).expect("can be written");
        }
        let host = PluginHost::new(HostOptions { instances_max: 1, ..HostOptions::default() }).expect("a host");
        Self { dir, host, bytes }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn find(&self, reference: PluginRef, store: Option<Vec<u8>>) -> Result<Option<PathBuf>, PluginError> {
        let folders = PluginFolders::new(vec![self.folder("first"), self.folder("second")]);
        let fetch: &Fetch<'_> = &|_| std::future::ready(Ok(store.clone())).boxed();
        let found = folders.find(&self.host, &reference, self.dir.path(), fetch).await?;
        assert_eq!(found.bytes, self.bytes);
        assert_eq!(found.plugin.digest(), blake3::hash(&self.bytes).to_hex().to_string());
        Ok(found.path)
    }
}

fn named(name: &str, version: Option<&str>) -> PluginRef {
    PluginRef::Named { name: name.to_owned(), version: version.map(str::to_owned) }
}

#[tokio::test]
async fn a_path_begins_at_the_folder_of_the_pipeline() {
    let setup = Setup::new();
    let path = Path::new("second/hostile.wasm");
    let found = setup.find(PluginRef::Path(path.to_owned()), None).await.expect("it is there");
    assert_eq!(found, Some(setup.folder("second/hostile.wasm")));
    let error = setup.find(PluginRef::Path("no.wasm".into()), None).await.expect_err("it is not there");
    assert_eq!(error.to_string(), format!("cannot read plugin {}", setup.folder("no.wasm").display()));
}

#[tokio::test]
async fn a_name_is_looked_up_in_the_folders_and_must_be_the_plugins_own() {
    let setup = Setup::new();
    let there = Some(setup.folder("second/hostile.wasm"));
    assert_eq!(setup.find(named("hostile", None), None).await.expect("is there"), there);
    assert_eq!(setup.find(named("hostile", Some("1.0.0")), None).await.expect("is there"), there);

    let error = setup.find(named("hostile", Some("2.0.0")), None).await.expect_err("another version");
    let text = format!(
        "no version 2.0.0 of plugin hostile; there is hostile@1.0.0 in {}",
        setup.folder("second/hostile.wasm").display()
    );
    assert_eq!(error.to_string(), text);

    let (first, second) = (setup.folder("first"), setup.folder("second"));
    let error = setup.find(named("absent", None), None).await.expect_err("it is nowhere");
    assert_eq!(error.to_string(), format!("no plugin \"absent\" in {}, {}", first.display(), second.display()));
    assert!(error.remedy().contains("WEIR_PLUGINS"));

    let error = setup.find(named("other", None), None).await.expect_err("it calls itself something else");
    assert!(error.to_string().contains("there is hostile@1.0.0"), "{error}");
}

#[tokio::test]
async fn a_file_may_carry_its_version_in_its_name() {
    let setup = Setup::new();
    std::fs::write(setup.folder("first/hostile@1.0.0.wasm"), &setup.bytes).expect("can be written");
    let found = setup.find(named("hostile", Some("1.0.0")), None).await.expect("is there");
    assert_eq!(found, Some(setup.folder("first/hostile@1.0.0.wasm")));
}

#[tokio::test]
async fn a_digest_is_asked_of_the_store_and_what_it_gives_is_checked() {
    let setup = Setup::new();
    let digest = PluginRef::Digest(blake3::hash(&setup.bytes).to_hex().to_string());
    let found = setup.find(digest.clone(), Some(setup.bytes.clone())).await.expect("the store has it");
    assert_eq!(found, None);
    let error = setup.find(digest.clone(), None).await.expect_err("the store has it not");
    assert!(error.to_string().starts_with("the store has no plugin with digest"), "{error}");
    let error = setup.find(digest, Some(b"other bytes".to_vec())).await.expect_err("the store has something else");
    assert!(error.to_string().contains("is damaged"), "{error}");
}
