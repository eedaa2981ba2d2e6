//! The mistakes and the promises that everybody knows, to see that the model has them.

use std::collections::BTreeSet;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::disk::Disk;
use crate::image::{Entry, Image};
use crate::loss::Loss;
use crate::record::Record;

/// Calls, as short as they can be written.
struct Shell {
    disk: Disk,
    next: i32,
}

impl Shell {
    fn new() -> Self {
        Self { disk: Disk::new(), next: 3 }
    }

    fn call(&mut self, record: Record) -> &mut Self {
        self.disk.apply(&record).expect("the call is possible");
        self
    }

    fn open(&mut self, path: &str, create: bool, truncate: bool) -> i32 {
        self.next += 1;
        self.call(Record::Open { fd: self.next, path: path.into(), create, truncate });
        self.next
    }

    fn write(&mut self, path: &str, content: &str) -> &mut Self {
        let fd = self.open(path, true, true);
        self.call(Record::Write { fd, offset: 0, data: content.into() }).call(Record::Close { fd })
    }

    fn sync(&mut self, path: &str) -> &mut Self {
        let fd = self.open(path, false, false);
        self.call(Record::Sync { fd }).call(Record::Close { fd })
    }

    fn folder(&mut self, path: &str) -> &mut Self {
        self.call(Record::MakeFolder { path: path.into() })
    }

    fn rename(&mut self, from: &str, to: &str) -> &mut Self {
        self.call(Record::Rename { from: from.into(), to: to.into() })
    }

    fn link(&mut self, from: &str, to: &str) -> &mut Self {
        self.call(Record::Link { from: from.into(), to: to.into() })
    }

    fn unlink(&mut self, path: &str) -> &mut Self {
        self.call(Record::Unlink { path: path.into() })
    }

    /// What is left if all that was not synced is lost, as `name=content`, folders as `name/`.
    fn worst(&self) -> String {
        list(&self.disk.image(Loss::Everything))
    }

    /// Everything that may be left.
    fn possible(&self) -> BTreeSet<String> {
        let losses = (0..400).flat_map(|seed| [Loss::Journal(seed), Loss::Prefixes(seed), Loss::Parts(seed)]);
        let losses = losses.chain([Loss::Nothing, Loss::Everything]);
        losses.map(|loss| list(&self.disk.image(loss))).collect()
    }
}

fn list(image: &Image) -> String {
    let entries = image.entries.iter().map(|(path, entry)| match entry {
        Entry::Folder => format!("{}/", path.display()),
        Entry::File { content, .. } => {
            format!("{}={}", path.display(), String::from_utf8_lossy(content).replace('\0', "0"))
        }
    });
    entries.collect::<Vec<_>>().join(" ")
}

fn set<const N: usize>(texts: [&str; N]) -> BTreeSet<String> {
    texts.into_iter().map(str::to_owned).collect()
}

#[test]
fn what_was_never_synced_may_be_lost_torn_or_zeros() {
    let mut shell = Shell::new();
    shell.write("f", "ab");
    assert_eq!(shell.worst(), "");
    assert_eq!(shell.possible(), set(["", "f=", "f=a", "f=ab", "f=00"]));
}

#[test]
fn a_synced_file_whose_folder_was_not_may_have_no_name_and_has_all_of_its_content_otherwise() {
    let mut shell = Shell::new();
    shell.write("f", "ab").sync("f");
    assert_eq!(shell.worst(), "");
    assert_eq!(shell.possible(), set(["", "f=ab"]));
}

#[test]
fn a_synced_folder_has_its_names_with_nothing_in_the_files() {
    let mut shell = Shell::new();
    shell.write("f", "ab").sync("");
    assert_eq!(shell.worst(), "f=");
}

#[test]
fn what_is_synced_with_its_folder_stays() {
    let mut shell = Shell::new();
    shell.write("f", "ab").sync("f").sync("");
    assert_eq!(shell.possible(), set(["f=ab"]));
}

#[test]
fn a_write_after_the_sync_may_be_lost() {
    let mut shell = Shell::new();
    shell.write("f", "ab").sync("f").sync("");
    let fd = shell.open("f", false, false);
    shell.call(Record::Write { fd, offset: 2, data: b"cd".into() });
    assert_eq!(shell.worst(), "f=ab");
    assert_eq!(shell.possible(), set(["f=ab", "f=abc", "f=abcd", "f=ab00"]));
}

#[test]
fn a_later_write_may_survive_an_earlier_one() {
    let mut shell = Shell::new();
    let fd = shell.open("f", true, false);
    shell.sync("");
    for (offset, data) in [(0, b"a"), (1, b"b")] {
        shell.call(Record::Write { fd, offset, data: data.into() });
    }
    assert!(shell.possible().contains("f=0b"), "{:?}", shell.possible());
}

#[test]
fn emptying_a_file_to_write_it_again_may_lose_both_contents() {
    let mut shell = Shell::new();
    shell.write("f", "old").sync("f").sync("").write("f", "new");
    assert_eq!(shell.worst(), "f=old");
    assert!(shell.possible().contains("f="));
}

#[test]
fn write_and_rename_without_a_sync_of_the_file_gives_an_empty_file() {
    let mut shell = Shell::new();
    shell.write("f", "old").sync("f").sync("").write("t", "new").rename("t", "f").sync("");
    assert_eq!(shell.worst(), "f=");
}

#[test]
fn write_sync_and_rename_gives_the_old_content_or_the_new_and_never_anything_else() {
    let mut shell = Shell::new();
    shell.write("f", "old").sync("f").sync("").write("t", "new").sync("t").rename("t", "f");
    assert_eq!(shell.worst(), "f=old");
    assert_eq!(shell.possible(), set(["f=old", "f=new", "f=old t=new"]));
    shell.sync("");
    assert_eq!(shell.possible(), set(["f=new"]));
}

#[test]
fn a_rename_in_one_folder_happens_as_a_whole() {
    let mut shell = Shell::new();
    shell.write("a", "x").sync("a").sync("").rename("a", "b");
    assert_eq!(shell.possible(), set(["a=x", "b=x"]));
}

#[test]
fn a_folder_that_nobody_synced_is_lost_with_what_was_synced_in_it() {
    let mut shell = Shell::new();
    shell.folder("d").write("d/f", "ab").sync("d/f").sync("d");
    assert_eq!(shell.worst(), "");
    assert_eq!(shell.possible(), set(["", "d/ d/f=ab"]));
    shell.sync("");
    assert_eq!(shell.worst(), "d/ d/f=ab");
}

fn moved() -> Shell {
    let mut shell = Shell::new();
    shell.folder("p").folder("q").write("p/f", "x").sync("p/f").sync("p").sync("");
    shell.rename("p/f", "q/g");
    shell
}

#[test]
fn a_file_that_moved_to_another_folder_is_never_lost() {
    let both = "p/ p/f=x q/ q/g=x";
    let mut shell = moved();
    assert_eq!(shell.worst(), "p/ p/f=x q/");
    assert_eq!(shell.possible(), set(["p/ p/f=x q/", both, "p/ q/ q/g=x"]));
    shell.sync("p");
    assert_eq!(shell.worst(), "p/ p/f=x q/", "the old name stays until the new one is durable");
    assert_eq!(shell.possible(), set(["p/ p/f=x q/", "p/ q/ q/g=x"]));
    shell.sync("q");
    assert_eq!(shell.possible(), set(["p/ q/ q/g=x"]));

    let mut shell = moved();
    shell.sync("q");
    assert_eq!(shell.possible(), set([both, "p/ q/ q/g=x"]));
    shell.sync("p");
    assert_eq!(shell.possible(), set(["p/ q/ q/g=x"]));
}

#[test]
fn a_name_that_was_given_again_is_not_taken_away_by_an_older_removal() {
    let mut shell = moved();
    shell.sync("p").rename("q/g", "p/f").sync("p").sync("q");
    assert_eq!(shell.possible(), set(["p/ p/f=x q/"]));
}

#[test]
fn a_folder_that_moved_is_in_one_place() {
    let mut shell = Shell::new();
    shell.folder("s").folder("s/e").write("s/e/f", "x").sync("s/e/f").sync("s/e").sync("s").sync("");
    shell.rename("s/e", "e");
    assert_eq!(shell.worst(), "s/ s/e/ s/e/f=x");
    assert_eq!(shell.possible(), set(["s/ s/e/ s/e/f=x", "e/ e/f=x s/"]));
    shell.sync("");
    assert_eq!(shell.possible(), set(["e/ e/f=x s/"]));
}

#[test]
fn what_was_removed_may_come_back_until_its_folder_is_synced() {
    let mut shell = Shell::new();
    shell.write("f", "x").sync("f").sync("").unlink("f");
    assert_eq!(shell.possible(), set(["", "f=x"]));
    shell.sync("");
    assert_eq!(shell.possible(), set([""]));
}

#[test]
fn two_names_of_one_file_share_what_is_synced() {
    let mut shell = Shell::new();
    shell.write("t", "x").link("t", "f").unlink("t").sync("").sync("f");
    assert_eq!(shell.possible(), set(["f=x"]));
    let mut shell = Shell::new();
    shell.write("t", "x").sync("t").link("t", "f").sync("").unlink("t");
    assert_eq!(shell.possible(), set(["f=x", "f=x t=x"]));
}

#[test]
fn a_rename_between_two_names_of_one_file_does_nothing() {
    let mut shell = Shell::new();
    shell.write("a", "x").link("a", "b").rename("a", "b").call(Record::SyncAll);
    assert_eq!(shell.worst(), "a=x b=x");
}

#[test]
fn a_record_that_does_not_fit_is_refused_by_name() {
    let mut disk = Disk::new();
    let fault = disk.apply(&Record::Unlink { path: b"nothing".into() });
    assert_eq!(fault, Err("nothing was removed and is not there".into()));
    let fault = disk.apply(&Record::Write { fd: 3, offset: 0, data: Vec::new() });
    assert_eq!(fault, Err("descriptor 3 is not open".into()));
}

/// Calls of chance among few names, so that they meet. What is not possible is not called.
fn random_call(random: &mut Xoshiro256PlusPlus) -> Record {
    let mut path = || {
        let (folder, name) = (random.next_u64() % 3, random.next_u64() % 3);
        format!("{}{}", ["", "d0/", "d0/d1/"][folder as usize], ["d0", "d1", "f"][name as usize]).into_bytes()
    };
    let (path, to) = (path(), path());
    let fd = (random.next_u64() % 4) as i32;
    let data = vec![b'a' + (random.next_u64() % 26) as u8; 3];
    match random.next_u64() % 12 {
        0..3 => Record::MakeFolder { path },
        3 => Record::Unlink { path },
        4 => Record::Rename { from: path, to },
        5 => Record::Link { from: path, to },
        6 => Record::Open { fd, path, create: false, truncate: false },
        7 | 8 => Record::Open { fd, path, create: true, truncate: random.next_u64().is_multiple_of(2) },
        9 => Record::Sync { fd },
        _ => Record::Write { fd, offset: random.next_u64() % 4, data },
    }
}

/// Whether the kernel would allow it.
fn possible(image: &Image, call: &Record) -> bool {
    let path = |path: &[u8]| std::path::PathBuf::from(String::from_utf8_lossy(path).into_owned());
    let entry = |bytes: &[u8]| image.entries.get(&path(bytes));
    let folder = |bytes: &[u8]| {
        let path = path(bytes);
        path.parent().is_none_or(|parent| {
            parent.as_os_str().is_empty() || matches!(image.entries.get(parent), Some(Entry::Folder))
        })
    };
    match call {
        Record::MakeFolder { path } => folder(path) && entry(path).is_none(),
        Record::Unlink { path } => matches!(entry(path), Some(Entry::File { .. })),
        Record::Link { from, to } => {
            matches!(entry(from), Some(Entry::File { .. })) && folder(to) && entry(to).is_none()
        }
        Record::Rename { from, to } => {
            let kinds = match (entry(from), entry(to)) {
                (Some(_), None) => folder(to),
                (Some(Entry::File { .. }), Some(Entry::File { .. })) => true,
                _ => false,
            };
            kinds && !path(to).starts_with(path(from))
        }
        Record::Open { path, create, truncate, .. } => match entry(path) {
            Some(Entry::Folder) => !create && !truncate,
            Some(Entry::File { .. }) => true,
            None => *create && folder(path),
        },
        _ => true,
    }
}

#[test]
fn whatever_was_done_all_of_it_stays_when_everything_was_synced() {
    for seed in 0..300 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut disk = Disk::new();
        let mut calls = 0;
        while calls < 60 {
            let call = random_call(&mut random);
            if possible(&disk.image(Loss::Nothing), &call) && disk.apply(&call).is_ok() {
                calls += 1;
            }
        }
        let seen = disk.image(Loss::Nothing);
        disk.apply(&Record::SyncAll).expect("always possible");
        for loss in [Loss::Nothing, Loss::Everything, Loss::Journal(seed), Loss::Prefixes(seed), Loss::Parts(seed)] {
            assert_eq!(disk.image(loss).difference(&seen), None, "seed {seed}, {loss:?}");
        }
    }
}

#[test]
fn an_image_that_is_made_real_is_what_it_was() {
    for seed in 0..20 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut disk = Disk::new();
        for _ in 0..60 {
            let call = random_call(&mut random);
            if possible(&disk.image(Loss::Nothing), &call) {
                let _ = disk.apply(&call);
            }
        }
        for loss in [Loss::Nothing, Loss::Everything, Loss::Journal(seed), Loss::Prefixes(seed), Loss::Parts(seed)] {
            let image = disk.image(loss);
            let folder = tempfile::tempdir().expect("a folder");
            image.write(folder.path()).expect("parents come first, and every name is given once");
            let real = Image::of(folder.path()).expect("the folder can be read");
            assert_eq!(real.difference(&image), None, "seed {seed}, {loss:?}");
        }
    }
}

#[test]
fn records_are_read_as_they_were_written() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut records: Vec<Record> = (0..500).map(|_| random_call(&mut random)).collect();
    records.extend([
        Record::Begin { process: 9 },
        Record::SyncAll,
        Record::Truncate { fd: 4, len: 1 << 40 },
        Record::Close { fd: 5 },
        Record::Duplicate { from: 5, to: 6 },
        Record::RemoveFolder { path: b"d".into() },
    ]);
    let mut bytes = Vec::new();
    records.iter().for_each(|record| record.encode(&mut bytes));
    assert_eq!(Record::decode_all(&bytes).as_ref(), Some(&records));
    // The last record is cut, as in a process that was killed.
    let cut = Record::decode_all(&bytes[..bytes.len() - 1]).expect("a trace");
    assert_eq!(cut, records[..records.len() - 1]);
    assert_eq!(Record::decode_all(b"\x01\0\0\0\xff"), None);
}
