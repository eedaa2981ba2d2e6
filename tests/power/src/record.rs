//! What the recorder writes and the model of a disk reads: one record for each call that changed something.
//!
//! This file is compiled into both sides. A record is a length (u32, little endian) and so many bytes: a tag and the
//! fields in the order in which they are declared, numbers little endian, bytes with their length before them. Paths are
//! relative to the watched root, have no links in them, and are empty for the root itself.

/// A call that succeeded, in the order in which the calls took place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A process began to write this trace. A second one makes the trace useless: the order across processes is unknown.
    Begin {
        /// Its number.
        process: u32,
    },
    /// A file or folder was opened.
    Open {
        /// The descriptor.
        fd: i32,
        /// What it is open on, as the kernel names it.
        path: Vec<u8>,
        /// It was made if it was not there.
        create: bool,
        /// It was emptied.
        truncate: bool,
    },
    /// Bytes were written.
    Write {
        /// The descriptor.
        fd: i32,
        /// Where, also for files that were opened to append.
        offset: u64,
        /// What.
        data: Vec<u8>,
    },
    /// The length of a file was set.
    Truncate {
        /// The descriptor.
        fd: i32,
        /// The length in bytes.
        len: u64,
    },
    /// A file's content, or a folder's entries, are on the disk.
    Sync {
        /// The descriptor.
        fd: i32,
    },
    /// Everything is on the disk.
    SyncAll,
    /// A descriptor was given back.
    Close {
        /// The descriptor.
        fd: i32,
    },
    /// A descriptor got a second number.
    Duplicate {
        /// The first number.
        from: i32,
        /// The second number, which was closed before if it was open.
        to: i32,
    },
    /// A file or folder got another name.
    Rename {
        /// The old one.
        from: Vec<u8>,
        /// The new one. What had it before is gone.
        to: Vec<u8>,
    },
    /// A file got a second name.
    Link {
        /// The first one.
        from: Vec<u8>,
        /// The second one.
        to: Vec<u8>,
    },
    /// A file lost a name.
    Unlink {
        /// The name.
        path: Vec<u8>,
    },
    /// A folder was made.
    MakeFolder {
        /// Its name.
        path: Vec<u8>,
    },
    /// A folder was removed.
    RemoveFolder {
        /// Its name.
        path: Vec<u8>,
    },
}

impl Record {
    /// Appends the record, with its length before it.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend_from_slice(&[0; 4]);
        match self {
            Self::Begin { process } => {
                to.push(0);
                to.extend_from_slice(&process.to_le_bytes());
            }
            Self::Open { fd, path, create, truncate } => {
                to.push(1);
                to.extend_from_slice(&fd.to_le_bytes());
                bytes(to, path);
                to.push(u8::from(*create));
                to.push(u8::from(*truncate));
            }
            Self::Write { fd, offset, data } => {
                to.push(2);
                to.extend_from_slice(&fd.to_le_bytes());
                to.extend_from_slice(&offset.to_le_bytes());
                bytes(to, data);
            }
            Self::Truncate { fd, len } => {
                to.push(3);
                to.extend_from_slice(&fd.to_le_bytes());
                to.extend_from_slice(&len.to_le_bytes());
            }
            Self::Sync { fd } => {
                to.push(4);
                to.extend_from_slice(&fd.to_le_bytes());
            }
            Self::SyncAll => to.push(5),
            Self::Close { fd } => {
                to.push(6);
                to.extend_from_slice(&fd.to_le_bytes());
            }
            Self::Duplicate { from, to: second } => {
                to.push(7);
                to.extend_from_slice(&from.to_le_bytes());
                to.extend_from_slice(&second.to_le_bytes());
            }
            Self::Rename { from, to: new } => {
                to.push(8);
                bytes(to, from);
                bytes(to, new);
            }
            Self::Link { from, to: new } => {
                to.push(9);
                bytes(to, from);
                bytes(to, new);
            }
            Self::Unlink { path } => {
                to.push(10);
                bytes(to, path);
            }
            Self::MakeFolder { path } => {
                to.push(11);
                bytes(to, path);
            }
            Self::RemoveFolder { path } => {
                to.push(12);
                bytes(to, path);
            }
        }
        let len = (to.len() - start - 4) as u32;
        to[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// All records of a trace. A record that the process could not finish writing, because it was killed, is left out.
    ///
    /// None if it is not a trace.
    pub fn decode_all(trace: &[u8]) -> Option<Vec<Self>> {
        let mut left = trace;
        let mut records = Vec::new();
        while let Some((len, rest)) = left.split_first_chunk::<4>() {
            let Some((record, rest)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize) else { break };
            records.push(Self::decode(record)?);
            left = rest;
        }
        Some(records)
    }

    fn decode(record: &[u8]) -> Option<Self> {
        let mut from = Reader(record);
        let decoded = match from.array::<1>()?[0] {
            0 => Self::Begin { process: u32::from_le_bytes(from.array()?) },
            1 => Self::Open { fd: from.fd()?, path: from.bytes()?, create: from.flag()?, truncate: from.flag()? },
            2 => Self::Write { fd: from.fd()?, offset: u64::from_le_bytes(from.array()?), data: from.bytes()? },
            3 => Self::Truncate { fd: from.fd()?, len: u64::from_le_bytes(from.array()?) },
            4 => Self::Sync { fd: from.fd()? },
            5 => Self::SyncAll,
            6 => Self::Close { fd: from.fd()? },
            7 => Self::Duplicate { from: from.fd()?, to: from.fd()? },
            8 => Self::Rename { from: from.bytes()?, to: from.bytes()? },
            9 => Self::Link { from: from.bytes()?, to: from.bytes()? },
            10 => Self::Unlink { path: from.bytes()? },
            11 => Self::MakeFolder { path: from.bytes()? },
            12 => Self::RemoveFolder { path: from.bytes()? },
            _ => return None,
        };
        from.0.is_empty().then_some(decoded)
    }
}

fn bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    to.extend_from_slice(bytes);
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }

    fn fd(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        self.array::<1>().map(|[flag]| flag != 0)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = u32::from_le_bytes(self.array()?) as usize;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }
}
