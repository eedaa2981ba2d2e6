//! Keys as a table compares them: by 64-bit words. On wasm32 `==` of two slices goes byte by byte, which would be half
//! of a counting operator's time.

use crate::batch::key_hash;

/// Keys up to this many bytes lie in the entry itself.
pub(crate) const INLINE_MAX: usize = 16;

/// The length code of a key that does not.
pub(crate) const LONG: u32 = 31;

/// A key with its hash. Made from bytes alone it hashes them; [`crate::Record::keyed`] has the host's hash.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) hash: u64,
}

impl<'a> Key<'a> {
    /// A key whose hash is known. A wrong hash makes a key that is not found again.
    #[inline]
    pub fn with_hash(bytes: &'a [u8], hash: u64) -> Self {
        Self { bytes, hash }
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its hash.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

impl<'a> From<&'a [u8]> for Key<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, hash: key_hash(bytes) }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Key<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(text: &'a str) -> Self {
        Self::from(text.as_bytes())
    }
}

#[inline(always)]
fn load8(bytes: &[u8], at: usize) -> u64 {
    match bytes[at..].first_chunk::<8>() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => 0,
    }
}

#[inline(always)]
fn load4(bytes: &[u8], at: usize) -> u64 {
    match bytes[at..].first_chunk::<4>() {
        Some(four) => u64::from(u32::from_le_bytes(*four)),
        None => 0,
    }
}

/// The bytes of a short key as two words, little-endian, filled up with zeros. Longer keys give their first 16 bytes.
#[inline(always)]
pub(crate) fn words(key: &[u8]) -> (u64, u64) {
    match key.len() {
        8 => (load8(key, 0), 0),
        n if n >= 16 => (load8(key, 0), load8(key, 8)),
        n @ 9..=15 => (load8(key, 0), load8(key, n - 8) >> ((16 - n) * 8)),
        // Two loads that overlap: where they do, they agree.
        n @ 4..=7 => (load4(key, 0) | load4(key, n - 4) << ((n - 4) * 8), 0),
        _ => (key.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0),
    }
}

/// Whether two keys of more than eight bytes are equal.
#[inline]
pub(crate) fn equal_long(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let ((a_words, _), (b_words, _)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    if a_words.iter().zip(b_words).any(|(a, b)| u64::from_le_bytes(*a) != u64::from_le_bytes(*b)) {
        return false;
    }
    match (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        (Some(a), Some(b)) => u64::from_le_bytes(*a) == u64::from_le_bytes(*b),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_the_bytes_of_a_key_in_order_and_nothing_else() {
        let bytes: Vec<u8> = (1..=40).collect();
        for length in 0..=20 {
            let (k0, k1) = words(&bytes[..length]);
            let mut expected = [0; 16];
            expected[..length.min(16)].copy_from_slice(&bytes[..length.min(16)]);
            assert_eq!([k0.to_le_bytes(), k1.to_le_bytes()].concat(), expected, "length {length}");
        }
    }

    #[test]
    fn long_keys_are_equal_only_when_every_byte_is() {
        for length in 9..40_usize {
            let key: Vec<u8> = (0..length as u8).collect();
            assert!(equal_long(&key, &key.clone()));
            assert!(!equal_long(&key, &key[1..]));
            for at in 0..length {
                let mut other = key.clone();
                other[at] ^= 1;
                assert!(!equal_long(&key, &other), "byte {at} of {length}");
            }
        }
    }
}
