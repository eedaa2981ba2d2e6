//! Paths of a pipeline file: where they start, and whether two of them get in each other's way.
//!
//! Nothing here looks at a disk, so that a check gives the same answer everywhere. Links are followed where a
//! folder is opened, not here.

use std::path::{Component, Path, PathBuf};

/// A path below the folder of the pipeline file, or an absolute one as it is; without `.` steps.
pub(super) fn below(dir: &Path, path: impl AsRef<Path>) -> PathBuf {
    let joined: PathBuf = dir.join(path).components().filter(|step| *step != Component::CurDir).collect();
    if joined.as_os_str().is_empty() { PathBuf::from(".") } else { joined }
}

/// The path in a form that can be compared: absolute, without `.` and `..`.
pub(super) fn plain(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut plain = PathBuf::new();
    for step in absolute.components() {
        match step {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            step => plain.push(step),
        }
    }
    plain
}

/// How two folders stand to each other, if one holds the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlap {
    Same,
    /// The first is inside the second.
    Inside,
    /// The first holds the second.
    Around,
}

/// Compares two paths that [`plain`] has made.
pub(super) fn overlap(one: &Path, other: &Path) -> Option<Overlap> {
    // Among many folders most pairs have nothing in common: look at bytes before looking at steps.
    let (bytes, other_bytes) = (one.as_os_str().as_encoded_bytes(), other.as_os_str().as_encoded_bytes());
    if !bytes.starts_with(other_bytes) && !other_bytes.starts_with(bytes) {
        return None;
    }
    if one == other {
        Some(Overlap::Same)
    } else if one.starts_with(other) {
        Some(Overlap::Inside)
    } else if other.starts_with(one) {
        Some(Overlap::Around)
    } else {
        None
    }
}

/// The part of a glob before its first wildcard: every file that it matches is below.
pub(super) fn root_of_glob(glob: &str) -> PathBuf {
    Path::new(glob)
        .components()
        .take_while(|step| !step.as_os_str().to_string_lossy().contains(['*', '?', '[']))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_start_at_the_folder_of_the_file() {
        for (dir, path, result) in [
            (".", "out", "out"),
            ("a/b", "./out/", "a/b/out"),
            ("a/b", "../out", "a/b/../out"),
            ("a", "/x", "/x"),
            (".", ".", "."),
        ] {
            assert_eq!(below(Path::new(dir), path), Path::new(result), "{dir} {path}");
        }
    }

    #[test]
    fn overlaps_are_found_however_paths_are_written() {
        for (one, other, result) in [
            ("out", "./out", Some(Overlap::Same)),
            ("out", "a/../out/", Some(Overlap::Same)),
            ("out/a", "out", Some(Overlap::Inside)),
            ("out", "out/a", Some(Overlap::Around)),
            ("out-a", "out", None),
            ("/x", "/y", None),
            ("/../x", "/x", Some(Overlap::Same)),
        ] {
            assert_eq!(overlap(&plain(Path::new(one)), &plain(Path::new(other))), result, "{one} {other}");
        }
    }

    #[test]
    fn a_glob_has_a_root() {
        assert_eq!(root_of_glob("a/b/*.csv"), Path::new("a/b"));
        assert_eq!(root_of_glob("a/b.csv"), Path::new("a/b.csv"));
        assert_eq!(root_of_glob("*/b"), Path::new(""));
    }
}
