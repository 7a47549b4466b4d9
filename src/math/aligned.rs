//! Memory for numbers that is aligned to cache lines.

use std::ops::{Deref, DerefMut};

use super::Real;

/// Size of a cache line in bytes. A vector that straddles two lines takes twice as long to load or store.
const CACHE_LINE_BYTES: usize = 64;

/// Owned slice whose first element lies at the beginning of a cache line.
#[derive(Debug, Default)]
pub struct Aligned<R> {
    memory: Vec<R>,
    /// Index of the first element in memory.
    first: usize,
}

impl<R: Real> Aligned<R> {
    /// Makes `length` elements of one value, the first of which begins a cache line.
    pub fn new(length: usize, value: R) -> Aligned<R> {
        let mut aligned = Aligned {
            memory: Vec::new(),
            first: 0,
        };
        aligned.resize(length, value);
        aligned
    }

    /// Changes the number of elements. New elements have this value; if the memory moves, the earlier ones may be
    /// shifted and hold older contents.
    pub fn resize(&mut self, length: usize, value: R) {
        let spare = CACHE_LINE_BYTES / size_of::<R>();
        self.memory.resize(length + spare, value);
        // Any place is correct; an aligned one is faster.
        self.first = self
            .memory
            .as_ptr()
            .align_offset(CACHE_LINE_BYTES)
            .min(spare);
        self.memory.truncate(self.first + length);
    }
}

impl<R> Deref for Aligned<R> {
    type Target = [R];

    fn deref(&self) -> &[R] {
        self.memory.get(self.first..).unwrap_or_default()
    }
}

impl<R> DerefMut for Aligned<R> {
    fn deref_mut(&mut self) -> &mut [R] {
        self.memory.get_mut(self.first..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_every_length_begin_at_a_cache_line() {
        let mut aligned = Aligned::new(3, 1f32);
        assert_eq!(*aligned, [1.0; 3]);
        for length in [0, 1, 1000, 7, 100_000] {
            aligned.resize(length, 2.0);
            assert_eq!(aligned.len(), length);
            assert_eq!(aligned.as_ptr() as usize % CACHE_LINE_BYTES, 0);
        }
        assert!(Aligned::<f64>::default().is_empty());
        assert_eq!(
            Aligned::new(5, 1f64).as_ptr() as usize % CACHE_LINE_BYTES,
            0
        );
    }
}
