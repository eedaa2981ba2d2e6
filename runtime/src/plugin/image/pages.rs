//! Which pages have changed, by their hashes; and which pages were seen, by a bit each.
//!
//! A hash of 128 bits tells a change: two different pages of honest code have the same one with a probability of 2^-128. XXH3 is no
//! cryptographic hash, but its secret is random and never leaves the process, so a guest cannot prepare pages that collide; all it
//! could spoil is its own state. It reads memory nearly as fast as memory can be read, and several times as fast as blake3 does. 16 bytes are kept for 4 KiB.

use xxhash_rust::xxh3::xxh3_128_with_secret;

use super::format::PAGE_BYTES;

/// More than the least that XXH3 asks for, which is 136.
const SECRET_BYTES: usize = 192;

/// The hashes of all pages, as they were when they were last noted.
pub(super) struct Hashes {
    secret: [u8; SECRET_BYTES],
    zero: u128,
    memories: Vec<Vec<u128>>,
}

/// What is told of a page that is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    /// It is not what it was. A page that was not there was all zeros.
    pub(super) changed: bool,
    /// It is all zeros.
    pub(super) zero: bool,
}

impl Hashes {
    /// No pages yet.
    pub(super) fn new(memories: usize) -> Self {
        let mut secret = [0; SECRET_BYTES];
        // Without randomness it still tells changes.
        if getrandom::fill(&mut secret).is_err() {
            secret = std::array::from_fn(|n| (n * 151 + 43) as u8);
        }
        let zero = xxh3_128_with_secret(&[0; PAGE_BYTES], &secret);
        Self { secret, zero, memories: vec![Vec::new(); memories] }
    }

    /// Notes a page as it is now.
    pub(super) fn note(&mut self, memory: usize, page: u32, bytes: &[u8]) -> Noted {
        let hash = xxh3_128_with_secret(bytes, &self.secret);
        let zero = hash == self.zero;
        let Some(pages) = self.memories.get_mut(memory) else { return Noted { changed: true, zero } };
        let page = page as usize;
        if page >= pages.len() {
            pages.resize(page + 1, self.zero);
        }
        let changed = std::mem::replace(&mut pages[page], hash) != hash;
        Noted { changed, zero }
    }
}

/// A set of pages.
#[derive(Debug)]
pub(super) struct PageSet(Vec<Vec<u64>>);

impl PageSet {
    pub(super) fn new(memories: usize) -> Self {
        Self(vec![Vec::new(); memories])
    }

    pub(super) fn insert(&mut self, memory: usize, page: u32) {
        let Some(words) = self.0.get_mut(memory) else { return };
        let word = page as usize / 64;
        if word >= words.len() {
            words.resize(word + 1, 0);
        }
        words[word] |= 1 << (page % 64);
    }

    pub(super) fn contains(&self, memory: usize, page: u32) -> bool {
        let word = self.0.get(memory).and_then(|words| words.get(page as usize / 64));
        word.is_some_and(|word| word & (1 << (page % 64)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_page_has_changed_when_its_bytes_have(
            writes in prop::collection::vec((0..2_usize, 0..5_u32, 0..PAGE_BYTES, 0..3_u8), 0..60),
        ) {
            let mut hashes = Hashes::new(2);
            let mut pages = vec![vec![vec![0_u8; PAGE_BYTES]; 5]; 2];
            for (memory, page, at, byte) in writes {
                let bytes = &mut pages[memory][page as usize];
                let changed = std::mem::replace(&mut bytes[at], byte) != byte;
                let zero = bytes.iter().all(|&byte| byte == 0);
                prop_assert_eq!(hashes.note(memory, page, bytes), Noted { changed, zero });
                prop_assert_eq!(hashes.note(memory, page, bytes), Noted { changed: false, zero });
            }
        }

        #[test]
        fn a_page_set_holds_what_was_put_in(pages in prop::collection::btree_set((0..2_usize, 0..200_u32), 0..50)) {
            let mut set = PageSet::new(2);
            pages.iter().for_each(|&(memory, page)| set.insert(memory, page));
            for memory in 0..3 {
                for page in 0..300 {
                    prop_assert_eq!(set.contains(memory, page), pages.contains(&(memory, page)));
                }
            }
        }
    }
}
