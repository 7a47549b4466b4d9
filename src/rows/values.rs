//! Arrays of one of three types, shared.

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
    /// Single precision, in blocks of equal length that need not lie beside each other.
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

/// Returns blocks one after another in a single array.
pub(crate) fn joined(blocks: &[Arc<Vec<f32>>]) -> Vec<f32> {
    // These are most of a batch's bytes, so that all cores take part.
    blocks.par_iter().flat_map_iter(|block| block.iter().copied()).collect()
}
