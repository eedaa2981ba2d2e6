//! A column of optional byte strings: read as [`Column`], made by [`ColumnBuilder`].

/// A column of optional byte strings, borrowed.
///
/// Row `i` lies at `offsets[i]..offsets[i + 1]` of the bytes; no offsets means that no row has a value. Bit `i % 8` of byte
/// `i / 8` of `nulls` says that row `i` has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Column<'a> {
    offsets: &'a [u32],
    bytes: &'a [u8],
    nulls: &'a [u8],
}

impl<'a> Column<'a> {
    /// A column of its parts, which must hold to the rules of `wit/types.wit`.
    #[inline]
    pub fn new(offsets: &'a [u32], bytes: &'a [u8], nulls: &'a [u8]) -> Self {
        Self { offsets, bytes, nulls }
    }

    #[inline]
    pub(crate) fn parts(self) -> (&'a [u32], &'a [u8], &'a [u8]) {
        (self.offsets, self.bytes, self.nulls)
    }

    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn check(&self, rows: usize) -> Result<(), String> {
        let (offsets, nulls) = (self.offsets, self.nulls);
        let fault = |what: &str| Err(what.to_owned());
        if offsets.is_empty() {
            return if self.bytes.is_empty() && nulls.is_empty() { Ok(()) } else { fault("bytes without offsets") };
        }
        if offsets.len() != rows + 1 || offsets[0] != 0 || offsets[rows] as usize != self.bytes.len() {
            return fault("offsets do not fit the rows and bytes");
        }
        if offsets.windows(2).any(|pair| pair[0] > pair[1]) {
            return fault("offsets go down");
        }
        if offsets.windows(2).any(|pair| pair[1] - pair[0] > 16 << 20) {
            return fault("a row of more than 16 MiB");
        }
        if !nulls.is_empty()
            && (nulls.len() != rows.div_ceil(8) || !rows.is_multiple_of(8) && nulls[rows / 8] >> (rows % 8) != 0)
        {
            return fault("null bits do not fit the rows");
        }
        if (0..rows).any(|row| self.is_null(row) && offsets[row] != offsets[row + 1]) {
            return fault("a row that is null has bytes");
        }
        Ok(())
    }

    pub(crate) fn assert_rows(&self, rows: usize) {
        assert!(
            self.offsets.is_empty() || self.offsets.len() == rows + 1,
            "a column of {} rows for a batch of {rows} records",
            self.offsets.len().saturating_sub(1)
        );
    }

    /// The bytes of a row; none where it has none, or where there is no such row.
    #[inline]
    pub fn get(&self, row: usize) -> Option<&'a [u8]> {
        let end = *self.offsets.get(row + 1)? as usize;
        if self.is_null(row) { None } else { Some(&self.bytes[self.offsets[row] as usize..end]) }
    }

    /// The bytes of a row that is known to have some. A fast path for columns without nulls.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    #[inline]
    pub fn bytes_at(&self, row: usize) -> &'a [u8] {
        &self.bytes[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }

    /// Whether no row has a value.
    #[inline]
    pub fn is_absent(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Whether every row has a value.
    #[inline]
    pub fn is_full(&self) -> bool {
        !self.offsets.is_empty() && self.nulls.is_empty()
    }

    #[inline]
    fn is_null(&self, row: usize) -> bool {
        !self.nulls.is_empty() && self.nulls[row / 8] & (1 << (row % 8)) != 0
    }

    /// All bytes, row after row.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where rows begin and end, or nothing when no row has a value.
    #[inline]
    pub fn offsets(&self) -> &'a [u32] {
        self.offsets
    }

    /// Which rows have no value: bit `i % 8` of byte `i / 8`; empty where every row has one.
    #[inline]
    pub fn nulls(&self) -> &'a [u8] {
        self.nulls
    }

    /// How many bytes each row has, if every row has a value and all have the same length, which is not 0. Then
    /// `bytes().chunks_exact(width)` are the rows: the fastest way through a column.
    pub fn fixed_width(&self) -> Option<usize> {
        let width = *self.offsets.get(1)?;
        if width == 0 || !self.nulls.is_empty() {
            return None;
        }
        // No branch inside, so that it becomes vector code.
        let equal = self.offsets.windows(2).fold(true, |equal, pair| equal & (pair[1].wrapping_sub(pair[0]) == width));
        equal.then_some(width as usize)
    }
}

/// Makes a column, row by row; keeps its memory when it is cleared.
#[derive(Clone, Debug, Default)]
pub struct ColumnBuilder {
    rows: usize,
    offsets: Vec<u32>,
    bytes: Vec<u8>,
    nulls: Vec<u8>,
}

impl ColumnBuilder {
    /// An empty column.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The bytes of all rows together.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The column so far.
    #[inline]
    pub fn view(&self) -> Column<'_> {
        Column::new(&self.offsets, &self.bytes, &self.nulls)
    }

    /// Adds a row.
    #[inline]
    pub fn push(&mut self, value: Option<&[u8]>) {
        match value {
            Some(bytes) => self.push_bytes(bytes),
            None => self.push_null(),
        }
    }

    /// Adds a row that has a value.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.push_with(|to| to.extend_from_slice(bytes));
    }

    /// Adds a row whose bytes `write` appends: no copy of what is made on the way.
    ///
    /// `write` must not touch what is already there.
    #[inline]
    pub fn push_with<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        if self.offsets.is_empty() {
            self.begin();
        }
        let result = write(&mut self.bytes);
        self.offsets.push(self.bytes.len() as u32);
        if !self.nulls.is_empty() && self.rows.is_multiple_of(8) {
            self.nulls.push(0);
        }
        self.rows += 1;
        result
    }

    /// Adds a row without a value.
    #[inline]
    pub fn push_null(&mut self) {
        let row = self.rows;
        self.rows += 1;
        if self.offsets.is_empty() {
            return;
        }
        self.offsets.push(self.bytes.len() as u32);
        self.nulls.resize(row / 8 + 1, 0);
        self.nulls[row / 8] |= 1 << (row % 8);
    }

    /// Fills an empty column with `rows` rows of `N` bytes each, as fast as they can be written.
    ///
    /// # Panics
    ///
    /// If it is not empty.
    pub fn fill_fixed<const N: usize>(&mut self, rows: usize) -> &mut [[u8; N]] {
        assert!(self.is_empty(), "fill_fixed wants an empty column");
        self.rows = rows;
        if rows > 0 {
            self.offsets.extend((0..=rows as u32).map(|row| row * N as u32));
        }
        self.bytes.resize(rows * N, 0);
        self.bytes.as_chunks_mut::<N>().0
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.offsets.clear();
        self.bytes.clear();
        self.nulls.clear();
    }

    /// The first row that has a value comes after `rows` rows that have none.
    #[cold]
    fn begin(&mut self) {
        let rows = self.rows;
        self.offsets.resize(rows + 1, 0);
        if rows > 0 {
            self.nulls.resize(rows.div_ceil(8), 0xff);
            if !rows.is_multiple_of(8) {
                self.nulls[rows / 8] = (1 << (rows % 8)) - 1;
            }
        }
    }

    /// Makes the last `rows - to` rows undone.
    pub(crate) fn truncate(&mut self, to: usize) {
        if to >= self.rows {
            return;
        }
        self.rows = to;
        if !self.offsets.is_empty() {
            self.offsets.truncate(to + 1);
            self.bytes.truncate(self.offsets[to] as usize);
        }
        if !self.nulls.is_empty() {
            self.nulls.truncate(to.div_ceil(8));
            if !to.is_multiple_of(8)
                && let Some(last) = self.nulls.last_mut()
            {
                *last &= (1 << (to % 8)) - 1;
            }
        }
        if self.offsets.len() == 1 || self.bytes.is_empty() && self.all_null() {
            self.offsets.clear();
            self.bytes.clear();
            self.nulls.clear();
        }
    }

    fn all_null(&self) -> bool {
        (0..self.rows).all(|row| self.view().get(row).is_none())
    }

    /// Adds bytes to the last row; there must be one, and it must have a value.
    pub(crate) fn extend_last(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        if let Some(end) = self.offsets.last_mut() {
            *end = self.bytes.len() as u32;
        }
    }
}
