//! Whether a chunk is worth compressing, and how.
//!
//! State is written once and read seldom, and the stream waits for none of it; still a core that compresses what does not shrink is
//! a core taken from the stream. So a sample decides, from the bytes alone: the same chunk is stored in the same way whenever it is written.

/// Level of zstd: negative ones are its fast ones. Counters shrink to a third at 1 GB/s a core.
const LEVEL: i32 = -5;
/// What is shorter is left as it is: an entry of the index is nearly as long.
const SHORT: usize = 256;
/// A chunk up to this length is its own sample.
const SAMPLE_BYTES: usize = 12 << 10;
/// Samples are taken at so many places.
const SAMPLES: usize = 3;

/// Compresses chunks, one after the other.
#[derive(Default)]
pub(super) struct Compressor {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    sample: Vec<u8>,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

impl Compressor {
    /// The chunk as zstd, if that takes at most seven eighths of its bytes.
    pub(super) fn compress(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        if data.len() < SHORT {
            return None;
        }
        if data.len() > SAMPLE_BYTES {
            let mut sample = std::mem::take(&mut self.sample);
            sample.clear();
            let part = SAMPLE_BYTES / SAMPLES;
            for place in 0..SAMPLES {
                let start = (data.len() - part) / (SAMPLES - 1) * place;
                sample.extend_from_slice(&data[start..start + part]);
            }
            let shrinks = self.shrunk(&sample);
            self.sample = sample;
            shrinks?;
        }
        self.shrunk(data)
    }

    fn shrunk(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(zstd::bulk::Compressor::new(LEVEL).ok()?),
        };
        let limit = data.len() - data.len() / 8;
        // What does not fit is an error, and then it does not pay.
        let mut to = Vec::with_capacity(limit);
        zstd.compress_to_buffer(data, &mut to).ok()?;
        to.shrink_to_fit();
        Some(to)
    }
}

/// The chunk of `plain` bytes. Not a byte more is made, whatever `stored` says about itself: what would be longer is refused.
pub(super) fn decompress(stored: &[u8], plain: usize) -> Result<Vec<u8>, String> {
    let mut to = Vec::with_capacity(plain);
    let mut zstd = zstd::bulk::Decompressor::new().map_err(|error| format!("cannot be decompressed: {error}"))?;
    zstd.decompress_to_buffer(stored, &mut to)
        .map_err(|error| format!("cannot be decompressed into its {plain} bytes: {error}"))?;
    if to.len() == plain {
        Ok(to)
    } else {
        Err(format!("has {} bytes decompressed, and {plain} are declared", to.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Random;
    use super::*;

    fn noise(bytes: usize) -> Vec<u8> {
        let mut random = Random(7);
        std::iter::repeat_with(|| random.next() as u8).take(bytes).collect()
    }

    #[test]
    fn what_shrinks_is_compressed_and_comes_back() {
        for length in [SHORT, 1000, SAMPLE_BYTES, SAMPLE_BYTES + 1, 300_000] {
            let data: Vec<u8> = (0..length).map(|i| (i / 40) as u8).collect();
            let stored = Compressor::default().compress(&data).expect("it shrinks");
            assert!(stored.len() < data.len() / 2, "{length}: {}", stored.len());
            assert_eq!(decompress(&stored, length).unwrap(), data);
        }
    }

    #[test]
    fn noise_and_what_is_short_are_left_as_they_are() {
        assert_eq!(Compressor::default().compress(&[0; SHORT - 1]), None);
        for length in [SHORT, 5000, 300_000] {
            assert_eq!(Compressor::default().compress(&noise(length)), None, "{length}");
        }
        // Half of it noise: seven eighths are not reached by much, and it is taken.
        let half = [noise(100_000), vec![0; 100_000]].concat();
        assert!(Compressor::default().compress(&half).is_some());
    }

    #[test]
    fn decompression_stops_at_the_declared_length() {
        let bomb = Compressor::default().compress(&vec![0; 1 << 20]).expect("it shrinks");
        assert!(bomb.len() < 1000);
        for declared in [0, 1, 1000, (1 << 20) - 1, (1 << 20) + 1] {
            let error = decompress(&bomb, declared).unwrap_err();
            assert!(error.contains(&declared.to_string()), "{declared}: {error}");
        }
    }
}
