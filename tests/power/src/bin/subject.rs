//! A small program to be recorded: it publishes as a sink must, or forgets one thing; or it makes every kind of call.
//!
//! `weir-power-subject publish FOLDER EPOCHS [FORGOTTEN]` stages each epoch as a folder with two parts, renames it into
//! place and then marks it; FORGOTTEN is the step that it leaves out. `weir-power-subject exercise FOLDER` writes, copies,
//! links, renames and removes, in four threads at once. `weir-power-subject refused FOLDER` maps a file to write to it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["publish", folder, epochs, ref forgotten @ ..] => {
            publish(Path::new(folder), epochs.parse().unwrap_or(1), forgotten.first().copied().unwrap_or(""))
        }
        ["exercise", folder] => std::thread::scope(|scope| {
            let folder = Path::new(folder);
            let threads: Vec<_> =
                (0..4).map(|thread| scope.spawn(move || exercise(&folder.join(format!("thread-{thread}"))))).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
        }),
        ["refused", folder] => map(&Path::new(folder).join("mapped")),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "publish, exercise or refused")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Publishes so many epochs. What is forgotten is one of `part`, `staging`, `staging-parent`, `parent`, `marker`.
fn publish(root: &Path, epochs: u64, forgotten: &str) -> io::Result<()> {
    let unless = |step: &str, path: &Path| if step == forgotten { Ok(()) } else { sync(path) };
    let staging = root.join("staging");
    fs::create_dir_all(&staging)?;
    fs::create_dir_all(root.join("markers"))?;
    sync(root)?;
    for epoch in 0..epochs {
        let staged = staging.join(format!("{epoch}"));
        fs::create_dir(&staged)?;
        unless("staging-parent", &staging)?;
        for part in ["a", "b"] {
            let path = staged.join(part);
            let mut file = File::create(&path)?;
            for _ in 0..3 {
                file.write_all(format!("epoch {epoch} ").as_bytes())?;
            }
            drop(file);
            unless("part", &path)?;
        }
        unless("staging", &staged)?;
        fs::rename(&staged, root.join(format!("epoch-{epoch}")))?;
        unless("parent", root)?;
        let marker = root.join("markers").join(format!("{epoch}"));
        File::create(&marker)?.write_all(b"done")?;
        unless("marker", &marker)?;
        unless("marker", &root.join("markers"))?;
    }
    Ok(())
}

fn exercise(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder.join("deep/er"))?;
    let at = |name: &str| folder.join(name);

    for round in 0..20 {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(round % 5 == 0).open(at("plain"))?;
        file.write_all(format!("round {round}").as_bytes())?;
        let wrote = file.write_vectored(&[IoSlice::new(b" one"), IoSlice::new(b""), IoSlice::new(b" two")])?;
        assert_eq!(wrote, 8, "a file takes all of it");
        file.write_at(b"AT", 3)?;
        let mut second = file.try_clone()?;
        second.write_all(b" by the second")?;
        drop(file);
        second.set_len(40 - round)?;
        second.sync_data()?;
        drop(second);
        // Numbers are given out again, and must not be taken for what they were.
        let other = File::open("/proc/self/status")?;
        drop(other);

        let mut log = OpenOptions::new().append(true).create(true).open(at("log"))?;
        log.write_all(b"a line\n")?;
        log.write_all(b"and another\n")?;
        log.sync_all()?;

        fs::copy(at("log"), at("copy"))?;
        let mut copy = OpenOptions::new().append(true).open(at("copy"))?;
        io::copy(&mut File::open(at("plain"))?, &mut copy)?;
        let mut whole = File::create(at("whole"))?;
        io::copy(&mut File::open(at("log"))?, &mut whole)?;
        io::copy(&mut File::open("/proc/self/status")?, &mut whole)?;

        fs::write(at("fresh"), [b'x'; 100])?;
        fs::hard_link(at("fresh"), at(&format!("link-{round}")))?;
        fs::remove_file(at("fresh"))?;
        fs::write(at("fresh"), b"another file of that name")?;
        fs::rename(at("fresh"), at(&format!("deep/er/renamed-{round}")))?;
        fs::rename(at("plain"), at("moved"))?;
        fs::rename(at("moved"), at("plain"))?;
        sync(&at("deep/er"))?;

        fs::create_dir_all(at("tree/of/folders"))?;
        fs::write(at("tree/of/folders/leaf"), b"leaf")?;
        fs::rename(at("tree/of"), at(&format!("deep/of-{round}")))?;
        if round % 3 == 0 {
            fs::remove_dir_all(at(&format!("deep/of-{round}")))?;
        }
        fs::remove_dir(at("tree"))?;
        sync(folder)?;
        // What fails changes nothing.
        let _ = fs::rename(at("nothing"), at("plain"));
        let _ = fs::remove_dir(at("deep"));
        let _ = File::create_new(at("plain"));
    }
    Ok(())
}

fn map(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    file.set_len(4096)?;
    // SAFETY: a new map, which nobody uses.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if map == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}
