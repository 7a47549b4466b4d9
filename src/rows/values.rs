//! Arrays of one of three types, shared as a whole or block by block.

use std::sync::Arc;

use rayon::prelude::*;

/// Elements of a buffer on the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Single precision.
    F32(Arc<Vec<f32>>),
    /// Double precision.
    F64(Arc<Vec<f64>>),
    /// Whole numbers.
    I32(Arc<Vec<i32>>),
    /// Single precision: an array for each spectrum, all as long as a block of the buffer.
    Blocks(Vec<Arc<Vec<f32>>>),
}

impl Values {
    /// Returns the number of elements of the array.
    pub fn len(&self) -> usize {
        match self {
            Values::F32(v) => v.len(),
            Values::F64(v) => v.len(),
            Values::I32(v) => v.len(),
            Values::Blocks(blocks) => blocks.iter().map(|block| block.len()).sum(),
        }
    }

    /// Returns whether the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of the array's elements in bytes.
    pub fn bytes(&self) -> usize {
        if matches!(self, Values::F64(_)) { 8 * self.len() } else { 4 * self.len() }
    }

    /// Returns the elements as f64.
    pub fn to_f64(&self) -> Vec<f64> {
        match self {
            Values::F32(v) => v.iter().map(|x| f64::from(*x)).collect(),
            Values::F64(v) => v.to_vec(),
            Values::I32(v) => v.iter().map(|x| f64::from(*x)).collect(),
            Values::Blocks(blocks) => blocks.iter().flat_map(|block| block.iter()).map(|x| f64::from(*x)).collect(),
        }
    }
}

/// Returns blocks of equal length one after another in a single array.
pub(crate) fn joined(blocks: &[Arc<Vec<f32>>]) -> Vec<f32> {
    // These are most of a batch's bytes, so that all cores take part.
    let length = blocks.first().map_or(0, |block| block.len());
    let mut all = vec![0.0; length * blocks.len()];
    let places = all.par_chunks_mut(length.max(1)).zip(blocks);
    places.for_each(|(place, block)| place.copy_from_slice(block));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_joined_in_their_order() {
        let blocks: Vec<Arc<Vec<f32>>> = (0..40).map(|k| Arc::new(vec![k as f32, 0.5])).collect();
        let expected: Vec<f32> = (0..40).flat_map(|k| [k as f32, 0.5]).collect();
        assert_eq!(joined(&blocks), expected);
        let values = Values::Blocks(blocks);
        assert_eq!((values.len(), values.bytes()), (80, 320));
        assert_eq!(values.to_f64(), expected.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
        assert!(joined(&[]).is_empty() && joined(&[Arc::default()]).is_empty());
    }
}
