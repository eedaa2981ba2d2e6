//! The wrapping of every small object: a magic that says what it is, a format version, a postcard body, and a blake3
//! hash of all of it.
//!
//! A flipped bit, a cut tail or an object of another kind is found before a byte of the body is looked at. What is
//! decoded after that is what somebody running this program wrote, but it is still checked for its limits: `open` takes
//! no more than the caller's limit, and postcard reads from a slice, so nothing larger is ever allocated.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use super::error::CheckpointError;

/// What kind of object it is: the first eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Magic(pub(crate) &'static [u8; 8]);

/// The version of the format that this program writes, and the only one it reads.
pub(crate) const FORMAT_VERSION: u16 = 1;

const HEAD_BYTES: usize = 8 + 2;
const HASH_BYTES: usize = 32;

/// Wraps a body.
pub(crate) fn seal<T: Serialize>(magic: Magic, body: &T) -> Result<Bytes, CheckpointError> {
    let mut bytes = Vec::with_capacity(1024);
    bytes.extend_from_slice(magic.0);
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    let mut bytes = postcard::to_extend(body, bytes)
        .map_err(|error| CheckpointError::Refused(format!("cannot encode an object: {error}")))?;
    let hash = blake3::hash(&bytes);
    bytes.extend_from_slice(hash.as_bytes());
    Ok(bytes.into())
}

/// Unwraps a body, or says what is wrong with the object.
pub(crate) fn open<T: DeserializeOwned>(magic: Magic, bytes: &[u8]) -> Result<T, String> {
    if bytes.len() < HEAD_BYTES + HASH_BYTES {
        return Err(format!("it has {} bytes, fewer than any object of its kind", bytes.len()));
    }
    let (sealed, hash) = bytes.split_at(bytes.len() - HASH_BYTES);
    if sealed[..8] != *magic.0 {
        return Err(format!("it does not begin with {:?}", String::from_utf8_lossy(magic.0)));
    }
    if blake3::hash(sealed).as_bytes() != hash {
        return Err("its content does not match its hash".into());
    }
    let version = u16::from_le_bytes([sealed[8], sealed[9]]);
    if version != FORMAT_VERSION {
        return Err(format!("it is of format version {version}, and this program reads {FORMAT_VERSION}"));
    }
    let (body, rest) = postcard::take_from_bytes(&sealed[HEAD_BYTES..])
        .map_err(|error| format!("its body cannot be decoded: {error}"))?;
    if !rest.is_empty() {
        return Err(format!("{} bytes follow its body", rest.len()));
    }
    Ok(body)
}
