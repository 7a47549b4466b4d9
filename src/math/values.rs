//! Arrays of one of three types, shared as a whole or block by block.

use std::sync::Arc;

/// Elements of a buffer on the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Single precision.
    F32(Arc<Vec<f32>>),
    /// Double precision.
    F64(Arc<Vec<f64>>),
    /// Whole numbers.
    I32(Arc<Vec<i32>>),
    /// Single precision, one array per spectrum, each as long as a block of the buffer.
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
        if matches!(self, Values::F64(_)) {
            8 * self.len()
        } else {
            4 * self.len()
        }
    }

    /// Returns the elements as f64.
    pub fn to_f64(&self) -> Vec<f64> {
        match self {
            Values::F32(v) => v.iter().map(|x| f64::from(*x)).collect(),
            Values::F64(v) => v.to_vec(),
            Values::I32(v) => v.iter().map(|x| f64::from(*x)).collect(),
            Values::Blocks(blocks) => blocks
                .iter()
                .flat_map(|block| block.iter())
                .map(|x| f64::from(*x))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_and_read_in_order() {
        let values = Values::Blocks((0..40).map(|k| Arc::new(vec![k as f32, 0.5])).collect());
        assert_eq!((values.len(), values.bytes()), (80, 320));
        assert_eq!(
            values.to_f64(),
            (0..40)
                .flat_map(|k| [f64::from(k), 0.5])
                .collect::<Vec<_>>()
        );
    }
}
