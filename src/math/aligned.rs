//! Numbers that begin where a line of the cache does.

use std::ops::{Deref, DerefMut};

use super::Real;

/// Bytes of a cache line. A vector that straddles two lines takes twice as long to load or store.
const LINE: usize = 64;

/// A slice of its own whose first element lies at the beginning of a cache line.
#[derive(Debug, Default)]
pub struct Aligned<R> {
    memory: Vec<R>,
    first: usize,
}

impl<R: Real> Aligned<R> {
    /// Makes `length` elements of one value, the first of which begins a cache line.
    pub fn new(length: usize, value: R) -> Aligned<R> {
        let mut all = Aligned {
            memory: Vec::new(),
            first: 0,
        };
        all.resize(length, value);
        all
    }

    /// Changes the number of elements; where the memory moves, the earlier ones may be shifted. New elements have this
    /// value; the others may hold anything that lay there before.
    pub fn resize(&mut self, length: usize, value: R) {
        let spare = LINE / size_of::<R>();
        self.memory.resize(length + spare, value);
        // any other place would do as well, but for speed
        self.first = self.memory.as_ptr().align_offset(LINE).min(spare);
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
    fn every_length_begins_at_a_line() {
        let mut all = Aligned::new(3, 1f32);
        assert_eq!(*all, [1.0; 3]);
        for length in [0, 1, 1000, 7, 100_000] {
            all.resize(length, 2.0);
            assert_eq!(all.len(), length);
            assert_eq!(all.as_ptr() as usize % LINE, 0);
        }
        assert!(Aligned::<f64>::default().is_empty());
        assert_eq!(Aligned::new(5, 1f64).as_ptr() as usize % LINE, 0);
    }
}
