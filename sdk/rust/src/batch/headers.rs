//! Headers of a record: names and values, in the encoding of `wit/types.wit`.

/// Goes through the headers of a record: name and value of each, in order.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    rest: &'a [u8],
}

impl<'a> Headers<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// The first header of that name.
    pub fn get(mut self, name: &str) -> Option<&'a [u8]> {
        self.find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    pub(crate) fn encoded(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a str, &'a [u8]);

    /// Ends where the bytes do not decode, which the host has ruled out.
    fn next(&mut self) -> Option<Self::Item> {
        let (length, rest) = self.rest.split_first_chunk::<2>()?;
        let (name, rest) = rest.split_at_checked(u16::from_le_bytes(*length) as usize)?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.rest = rest;
        Some((std::str::from_utf8(name).ok()?, value))
    }
}

/// Appends one header.
///
/// # Panics
///
/// If the name has more than 65,535 bytes.
pub(crate) fn encode(to: &mut Vec<u8>, name: &str, value: &[u8]) {
    let length = u16::try_from(name.len()).expect("a header's name has at most 65,535 bytes");
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(name.as_bytes());
    to.extend_from_slice(&(value.len() as u32).to_le_bytes());
    to.extend_from_slice(value);
}
