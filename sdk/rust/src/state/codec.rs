//! How a value of state becomes bytes and comes back.

/// A value that can be kept in state.
///
/// Its default is what a key has that was not seen before. The encoding is part of what a checkpoint holds: when it changes, raise the
/// plugin's state version and read the old one in [`crate::Stateful::restore`].
///
/// Equal values must encode to equal bytes: a checkpoint is verified by making it again.
pub trait State: Default {
    /// Appends the encoded value.
    fn encode(&self, to: &mut Vec<u8>);

    /// Decodes a value from exactly the bytes that [`encode`](Self::encode) has appended.
    ///
    /// # Errors
    ///
    /// What is wrong with the bytes, as a clause.
    fn decode(from: &[u8]) -> Result<Self, String>;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl State for $number {
            #[inline]
            fn encode(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn decode(from: &[u8]) -> Result<Self, String> {
                match from.try_into() {
                    Ok(bytes) => Ok(Self::from_le_bytes(bytes)),
                    Err(_) => Err(wrong_length(stringify!($number), size_of::<Self>(), from.len())),
                }
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

#[cold]
fn wrong_length(what: &str, must: usize, is: usize) -> String {
    format!("{what} takes {must} bytes, not {is}")
}

impl State for bool {
    fn encode(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn decode(from: &[u8]) -> Result<Self, String> {
        match from {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err("a bool is one byte, 0 or 1".into()),
        }
    }
}

impl State for () {
    fn encode(&self, _: &mut Vec<u8>) {}

    fn decode(from: &[u8]) -> Result<Self, String> {
        if from.is_empty() { Ok(()) } else { Err(wrong_length("nothing", 0, from.len())) }
    }
}

impl State for Vec<u8> {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self);
    }

    fn decode(from: &[u8]) -> Result<Self, String> {
        Ok(from.to_vec())
    }
}

impl State for String {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.as_bytes());
    }

    fn decode(from: &[u8]) -> Result<Self, String> {
        std::str::from_utf8(from).map(str::to_owned).map_err(|error| error.to_string())
    }
}

impl<const N: usize> State for [u64; N]
where
    [u64; N]: Default,
{
    fn encode(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|word| to.extend_from_slice(&word.to_le_bytes()));
    }

    fn decode(from: &[u8]) -> Result<Self, String> {
        let (words, rest) = from.as_chunks::<8>();
        if words.len() != N || !rest.is_empty() {
            return Err(wrong_length("an array of numbers", N * 8, from.len()));
        }
        Ok(std::array::from_fn(|i| u64::from_le_bytes(words[i])))
    }
}

/// Keeps any serde type in state, encoded by postcard.
///
/// Avoid `HashMap` and `HashSet` inside: their order differs between two runs, and so would the bytes. `BTreeMap` is fine.
#[cfg(feature = "postcard")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Postcard<T>(pub T);

#[cfg(feature = "postcard")]
impl<T: Default + serde::Serialize + serde::de::DeserializeOwned> State for Postcard<T> {
    fn encode(&self, to: &mut Vec<u8>) {
        postcard::to_io(&self.0, to).expect("a value of state can be encoded: its Serialize does not fail");
    }

    fn decode(from: &[u8]) -> Result<Self, String> {
        match postcard::take_from_bytes(from) {
            Ok((value, [])) => Ok(Self(value)),
            Ok((_, rest)) => Err(format!("{} bytes are left over", rest.len())),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[cfg(feature = "postcard")]
impl<T> std::ops::Deref for Postcard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(feature = "postcard")]
impl<T> std::ops::DerefMut for Postcard<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
