//! Arrays of one of three types, shared.

use std::sync::Arc;

/// Elements of a buffer on the host.
#[derive(Clone, Debug)]
pub enum Values {
    /// Single precision.
    F32(Arc<Vec<f32>>),
    /// Double precision.
    F64(Arc<Vec<f64>>),
    /// Whole numbers.
    I32(Arc<Vec<i32>>),
}

impl Values {
    /// Returns the number of elements of the array.
    pub fn len(&self) -> usize {
        match self {
            Values::F32(v) => v.len(),
            Values::F64(v) => v.len(),
            Values::I32(v) => v.len(),
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
}
