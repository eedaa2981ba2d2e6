//! What the checkpoint protocol and the object sink need of a store: a function for each promise, called for every store there is
//! (`tests/store.rs`). Each works below a name of its own, so that all may run on one store.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, WriteMultipart};

/// A store under test.
pub type Objects = Arc<dyn ObjectStore>;

const WRITERS: usize = 16;

fn at(test: &str, name: &str) -> Path {
    Path::from(format!("suite/{test}/{name}"))
}

async fn create(store: &Objects, path: &Path, bytes: String) -> Result<(), Error> {
    store.put_opts(path, bytes.into(), PutMode::Create.into()).await.map(drop)
}

async fn read(store: &Objects, path: &Path) -> Option<Vec<u8>> {
    match store.get(path).await {
        Ok(object) => Some(object.bytes().await.expect("it can be read").to_vec()),
        Err(Error::NotFound { .. }) => None,
        Err(error) => panic!("{path}: {error}"),
    }
}

async fn names(store: &Objects, folder: &Path) -> BTreeSet<String> {
    let listed: Vec<_> = store.list(Some(folder)).try_collect().await.expect("it can be listed");
    listed.into_iter().map(|meta| meta.location.to_string()).collect()
}

/// All of them.
pub async fn all(store: &Objects) {
    all_but_long_names(store).await;
    long_names_come_back_as_they_were_given(store).await;
}

/// For a server that puts the name of an object into the name of a file that it keeps beside it, and so has no room for the longest.
pub async fn all_but_long_names(store: &Objects) {
    one_of_sixteen_who_create_at_once_wins_and_its_bytes_are_there(store).await;
    what_exists_is_not_created_again_and_stays_as_it_is(store).await;
    what_was_written_is_read_and_listed_at_once(store).await;
    what_was_deleted_is_gone_from_reads_and_listings_and_deleting_again_is_no_error(store).await;
    what_is_not_there_is_not_found_and_that_is_no_other_error(store).await;
    listings_are_whole_whatever_their_length_and_hold_nothing_of_neighbours(store).await;
    folders_are_told_apart_from_objects(store).await;
    names_come_back_as_they_were_given(store).await;
    an_object_of_many_megabytes_comes_back_whole_in_one_piece_or_in_parts(store).await;
    an_upload_in_parts_that_is_abandoned_leaves_no_object(store).await;
    an_overwrite_is_seen_whole_or_not_at_all(store).await;
}

/// I6: at each place of the log one writer wins.
pub async fn one_of_sixteen_who_create_at_once_wins_and_its_bytes_are_there(store: &Objects) {
    for round in 0..4 {
        let path = at("race", &format!("{round}"));
        let bytes = move |writer: usize| format!("writer {writer} of round {round}");
        let creates = (0..WRITERS).map(|writer| {
            let (store, path) = (Arc::clone(store), path.clone());
            tokio::spawn(async move { create(&store, &path, bytes(writer)).await })
        });
        let mut winners = Vec::new();
        for (writer, created) in futures::future::join_all(creates).await.into_iter().enumerate() {
            match created.expect("no panic") {
                Ok(()) => winners.push(writer),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(winners.len(), 1, "winners of round {round}: {winners:?}");
        let found = read(store, &path).await.expect("somebody wrote");
        assert_eq!(found, bytes(winners[0]).into_bytes());
    }
}

/// I6.
pub async fn what_exists_is_not_created_again_and_stays_as_it_is(store: &Objects) {
    let path = at("create", "x");
    create(store, &path, "first".into()).await.expect("it is new");
    for _ in 0..3 {
        let again = create(store, &path, "second".into()).await;
        assert!(matches!(again, Err(Error::AlreadyExists { .. } | Error::Precondition { .. })), "{again:?}");
        assert_eq!(read(store, &path).await.as_deref(), Some(&b"first"[..]));
    }
    store.delete(&path).await.expect("it can be deleted");
    create(store, &path, "third".into()).await.expect("it is new again");
    assert_eq!(read(store, &path).await.as_deref(), Some(&b"third"[..]));
}

/// Doubt is resolved by reading (I6), and the tip is found by probing.
pub async fn what_was_written_is_read_and_listed_at_once(store: &Objects) {
    let folder = Path::from("suite/written");
    for number in 0..20 {
        let path = at("written", &format!("{number:020}"));
        let bytes = format!("object {number}");
        if number % 2 == 0 {
            create(store, &path, bytes.clone()).await.expect("it is new");
        } else {
            store.put(&path, bytes.clone().into()).await.expect("it can be put");
        }
        assert_eq!(read(store, &path).await, Some(bytes.clone().into_bytes()));
        assert_eq!(store.head(&path).await.expect("it is there").size, bytes.len() as u64);
        assert!(names(store, &folder).await.contains(path.as_ref()), "{path} is not listed");
    }
    assert_eq!(names(store, &folder).await.len(), 20);
}

/// I9: the collector lists, deletes, and may be repeated.
pub async fn what_was_deleted_is_gone_from_reads_and_listings_and_deleting_again_is_no_error(store: &Objects) {
    let (folder, path, other) = (Path::from("suite/deleted"), at("deleted", "a"), at("deleted", "b"));
    for path in [&path, &other] {
        store.put(path, PutPayload::from_static(b"x")).await.expect("it can be put");
    }
    for _ in 0..2 {
        match store.delete(&path).await {
            Ok(()) | Err(Error::NotFound { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(read(store, &path).await, None);
        assert_eq!(names(store, &folder).await, BTreeSet::from([other.to_string()]));
    }
}

/// An error that is taken for "nothing there" would make a job start empty (I10).
pub async fn what_is_not_there_is_not_found_and_that_is_no_other_error(store: &Objects) {
    let path = at("nothing", "there");
    for missing in [path.clone(), at("nothing", "there/below")] {
        assert!(matches!(store.get(&missing).await, Err(Error::NotFound { .. })), "{missing}");
        assert!(matches!(store.head(&missing).await, Err(Error::NotFound { .. })), "{missing}");
    }
    assert!(names(store, &Path::from("suite/nothing")).await.is_empty());
}

/// Longer than a page of the servers that are tested (1,000 at most).
pub async fn listings_are_whole_whatever_their_length_and_hold_nothing_of_neighbours(store: &Objects) {
    const COUNT: usize = 1_050;
    let put = |folder: &'static str, number: usize| {
        let store = Arc::clone(store);
        async move { store.put(&at(folder, &format!("{number:020}")), PutPayload::from_static(b"x")).await }
    };
    let puts =
        (0..COUNT).map(|number| put("pages", number)).chain((0..3).map(|number| put("pages-of-another", number)));
    futures::stream::iter(puts.collect::<Vec<_>>()).buffer_unordered(16).try_collect::<Vec<_>>().await.expect("puts");
    let listed = names(store, &Path::from("suite/pages")).await;
    assert_eq!(listed.len(), COUNT);
    assert_eq!(listed.first().map(String::as_str), Some("suite/pages/00000000000000000000"));
    let paths = listed.into_iter().map(|name| Ok(Path::from(name)));
    let deleted: Vec<_> =
        store.delete_stream(futures::stream::iter(paths).boxed()).try_collect().await.expect("deletes");
    assert_eq!(deleted.len(), COUNT);
    assert!(names(store, &Path::from("suite/pages")).await.is_empty());
    assert_eq!(names(store, &Path::from("suite/pages-of-another")).await.len(), 3);
}

/// Jobs are found as folders.
pub async fn folders_are_told_apart_from_objects(store: &Objects) {
    for name in ["job-a/id/1", "job-a/id/2", "job-b/id/1", "note"] {
        store.put(&at("jobs", name), PutPayload::from_static(b"x")).await.expect("it can be put");
    }
    let listed = store.list_with_delimiter(Some(&Path::from("suite/jobs"))).await.expect("it can be listed");
    let folders: Vec<_> = listed.common_prefixes.iter().map(|path| path.filename().unwrap_or_default()).collect();
    let objects: Vec<_> = listed.objects.iter().map(|meta| meta.location.filename().unwrap_or_default()).collect();
    assert_eq!((folders, objects), (vec!["job-a", "job-b"], vec!["note"]));
}

/// All characters that weir puts into names.
pub async fn names_come_back_as_they_were_given(store: &Objects) {
    come_back(store, "names", &["00000-00000001.jsonl", "a-b.c_d", "0", "UPPER.wasm"]).await;
}

/// The longest name.
pub async fn long_names_come_back_as_they_were_given(store: &Objects) {
    let long = format!("{:020}-{:020}-{}.{:05}-{}", 1, u64::MAX, "n".repeat(63), 32_767, "f".repeat(64));
    come_back(store, "long-names", &[&long]).await;
}

async fn come_back(store: &Objects, test: &str, given: &[&str]) {
    for name in given {
        store.put(&at(test, name), (*name).to_owned().into()).await.expect("it can be put");
    }
    let expected = given.iter().map(|name| at(test, name).to_string()).collect::<BTreeSet<_>>();
    assert_eq!(names(store, &Path::from(format!("suite/{test}"))).await, expected);
    for name in given {
        assert_eq!(read(store, &at(test, name)).await.as_deref(), Some(name.as_bytes()));
    }
}

/// Packs and the objects of sinks (I1: whole).
pub async fn an_object_of_many_megabytes_comes_back_whole_in_one_piece_or_in_parts(store: &Objects) {
    let bytes: Vec<u8> = (0..20_u32 << 20).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let (one, parts) = (at("large", "one"), at("large", "parts"));
    store.put(&one, bytes.clone().into()).await.expect("it can be put");
    let upload = store.put_multipart(&parts).await.expect("an upload can be begun");
    let mut upload = WriteMultipart::new_with_chunk_size(upload, 8 << 20);
    for piece in bytes.chunks(3 << 20) {
        upload.wait_for_capacity(2).await.expect("parts go up");
        upload.write(piece);
    }
    assert_eq!(read(store, &parts).await, None, "it is not there before it is finished");
    upload.finish().await.expect("it is finished");
    for path in [&one, &parts] {
        assert!(read(store, path).await.as_deref() == Some(&bytes[..]), "{path} is not what was written");
        assert_eq!(store.head(path).await.expect("it is there").size, bytes.len() as u64);
    }
}

/// Nothing half-written is ever seen.
pub async fn an_upload_in_parts_that_is_abandoned_leaves_no_object(store: &Objects) {
    let path = at("abandoned", "x");
    let mut upload = store.put_multipart(&path).await.expect("an upload can be begun");
    upload.put_part(PutPayload::from(vec![7; 6 << 20])).await.expect("a part goes up");
    upload.abort().await.expect("it is abandoned");
    assert_eq!(read(store, &path).await, None);
    assert!(names(store, &Path::from("suite/abandoned")).await.is_empty());
}

/// A pack may be put again under the same name while somebody reads it.
pub async fn an_overwrite_is_seen_whole_or_not_at_all(store: &Objects) {
    let path = at("overwrite", "x");
    let content = |letter: u8| vec![letter; 256 << 10];
    store.put(&path, content(b'a').into()).await.expect("it can be put");
    let writer = {
        let (store, path) = (Arc::clone(store), path.clone());
        tokio::spawn(async move {
            for round in 0..10 {
                store.put(&path, content(b'a' + round % 2).into()).await.expect("it can be put");
            }
        })
    };
    while !writer.is_finished() {
        let found = read(store, &path).await.expect("it is always there");
        assert_eq!(found.len(), 256 << 10);
        assert!(found.iter().all(|byte| *byte == found[0]), "two versions in one");
    }
    writer.await.expect("no panic");
}
