//! Where bytes are cut into pieces, so that equal stretches of two versions of a state become equal pieces.
//!
//! A cut depends on the 64 bytes before it and on the start of its piece, not on where the piece lies: after an insertion the cuts fall into
//! step again within a piece or two. A gear hash as in FastCDC (Xia et al. 2016): a shift, an addition and a table for each byte;
//! a stricter mask before the average length and a looser one after it bring lengths together.

/// No piece but the last is shorter, in bytes.
pub(super) const PIECE_BYTES_MIN: usize = 16 << 10;
/// Pieces have about this many bytes on average.
const PIECE_BYTES_AVERAGE: usize = 64 << 10;
/// No piece is longer, in bytes.
pub(super) const PIECE_BYTES_MAX: usize = 256 << 10;

/// Of the highest bits, which depend on the most bytes: one in 2^18 before the average, one in 2^14 after it.
const STRICT: u64 = !0 << (64 - 18);
const LOOSE: u64 = !0 << (64 - 14);

/// A number for each byte, the same for ever: a change of it makes every piece of a stored state a new one.
const GEAR: [u64; 256] = gear();

const fn gear() -> [u64; 256] {
    let mut table = [0; 256];
    let mut state: u64 = 0x7765_6972;
    let mut i = 0;
    while i < 256 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[i] = z ^ (z >> 31);
        i += 1;
    }
    table
}

/// The length of the first piece of `data`, which is all that is left or at least [`PIECE_BYTES_MAX`] of it.
pub(super) fn first_piece(data: &[u8]) -> usize {
    let end = data.len().min(PIECE_BYTES_MAX);
    if end <= PIECE_BYTES_MIN {
        return end;
    }
    let mut hash: u64 = 0;
    let average = PIECE_BYTES_AVERAGE.min(end);
    for (range, mask) in [(PIECE_BYTES_MIN..average, STRICT), (average..end, LOOSE)] {
        let start = range.start;
        for (at, byte) in data[range].iter().enumerate() {
            hash = (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
            if hash & mask == 0 {
                return start + at + 1;
            }
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::testing::Random;
    use super::*;

    fn noise(seed: u64, bytes: usize) -> Vec<u8> {
        let mut random = Random(seed);
        std::iter::repeat_with(|| random.next().to_le_bytes()).flatten().take(bytes).collect()
    }

    fn pieces(mut data: &[u8]) -> Vec<&[u8]> {
        let mut pieces = Vec::new();
        while !data.is_empty() {
            let (piece, rest) = data.split_at(first_piece(data));
            pieces.push(piece);
            data = rest;
        }
        pieces
    }

    #[test]
    fn pieces_keep_their_limits_and_are_about_as_long_as_they_should_be() {
        let data = noise(1, 8 << 20);
        let pieces = pieces(&data);
        let (last, others) = pieces.split_last().unwrap();
        assert!(last.len() <= PIECE_BYTES_MAX);
        assert!(others.iter().all(|piece| (PIECE_BYTES_MIN..=PIECE_BYTES_MAX).contains(&piece.len())));
        let average = data.len() / pieces.len();
        assert!((PIECE_BYTES_AVERAGE / 2..PIECE_BYTES_AVERAGE * 2).contains(&average), "{average}");
        // Also where no byte differs from the next.
        assert!(self::pieces(&vec![7; 1 << 20]).iter().all(|piece| piece.len() >= PIECE_BYTES_MIN));
    }

    #[test]
    fn after_an_insertion_a_removal_or_a_change_nearly_all_pieces_are_the_same() {
        let data = noise(2, 8 << 20);
        let before: HashSet<&[u8]> = pieces(&data).into_iter().collect();
        let at = 100_000;
        let inserted = [&data[..at], b"something", &data[at..]].concat();
        let removed = [&data[..at], &data[at + 5..]].concat();
        let mut changed = data.clone();
        changed[at] ^= 1;
        for other in [inserted, removed, changed] {
            let new: usize = pieces(&other).iter().filter(|p| !before.contains(**p)).map(|p| p.len()).sum();
            assert!(new <= 3 * PIECE_BYTES_MAX, "{new} bytes are new");
        }
    }

    #[test]
    fn the_cuts_of_a_given_state_are_the_same_for_ever() {
        let lengths: Vec<usize> = pieces(&noise(3, 400_000)).iter().map(|piece| piece.len()).collect();
        assert_eq!(lengths, LENGTHS_FOR_EVER);
    }

    const LENGTHS_FOR_EVER: [usize; 6] = [66_792, 79_537, 76_561, 64_620, 65_969, 46_521];
}
