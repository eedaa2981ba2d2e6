//! Names and numbers of things: each its own type, so that an epoch is never taken for a generation.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The number after this one.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// The number of a checkpoint attempt: strictly increasing in a job id, never used twice. The first is 1.
    Epoch
}
number! {
    /// A run of a job: the log sequence number of its claim.
    Generation
}

/// The identity of a job's history: random, made when a job first runs under a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub [u8; 16]);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for JobId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.as_bytes();
        let bad = || format!("job id {text:?} is not 32 hexadecimal digits");
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(bad());
        }
        let mut id = [0; 16];
        for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| bad())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| bad())?;
        }
        Ok(Self(id))
    }
}

/// The name of a node in its pipeline: its identity for state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct NodeName(Arc<str>);

impl From<String> for NodeName {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.as_str().to_owned()
    }
}

impl NodeName {
    /// Wraps a name that the plan has checked (see [`name_fault`]).
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::borrow::Borrow<str> for NodeName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// One parallel instance of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// Which node.
    pub node: NodeName,
    /// Its number in the node, from 0.
    pub subtask: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.node, self.subtask)
    }
}

/// Says what is wrong with a name that does not match `[a-z0-9][a-z0-9-]{0,62}`; none if it does. Names of jobs and
/// nodes become parts of object names and paths.
pub fn name_fault(name: &str) -> Option<&'static str> {
    let bytes = name.as_bytes();
    match bytes {
        [] => Some("is empty"),
        _ if bytes.len() > 63 => Some("is longer than 63 characters"),
        [b'-', ..] => Some("begins with a hyphen"),
        _ if bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-')) => None,
        _ => Some("has characters other than lower-case letters, digits and hyphens"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_reads_back_what_it_prints() {
        let id = JobId([7, 0, 255, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("07".parse::<JobId>().is_err());
        assert!("+7".repeat(16).parse::<JobId>().is_err());
        assert!("é".repeat(16).parse::<JobId>().is_err());
    }

    #[test]
    fn names_that_would_leave_their_folder_are_refused() {
        for bad in ["", "-a", "a/b", "..", "a.b", "A", "ä", &"a".repeat(64)] {
            assert!(name_fault(bad).is_some(), "{bad}");
        }
        for good in ["a", "0", "flight-delays", &"a".repeat(63)] {
            assert_eq!(name_fault(good), None, "{good}");
        }
    }
}
