//! Contents of the buffers that kernels read.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::io::memory::try_with_capacity;
use crate::kernels::split::round_to_half;
use crate::math::Real;
use crate::recording::{Buffer, Kind, Scope, Values};

/// A buffer's elements.
pub enum BufferElements<R> {
    Float(Floats<R>),
    Index(Vec<i32>),
}

/// Floating-point elements of a buffer: copies, one array of a batch that is shared as long as it lies where a copy
/// would put it, or an array for each place, which hides what the other two have there.
pub struct Floats<R> {
    copies: Vec<R>,
    shared: Option<Arc<Vec<R>>>,
    /// By place, the array that is shared for it alone.
    shared_blocks: Vec<Option<Arc<Vec<R>>>>,
}

impl<R: Real> Floats<R> {
    /// Wraps a vector as a block that owns its numbers and shares none.
    fn new(copies: Vec<R>) -> Floats<R> {
        Floats {
            copies,
            shared: None,
            shared_blocks: Vec::new(),
        }
    }

    /// Returns the block of `length` numbers at a place, shared or not.
    pub fn block_at(&self, place: usize, length: usize) -> &[R] {
        match self.shared_blocks.get(place) {
            Some(Some(block)) => block,
            _ => &self.whole()[place * length..(place + 1) * length],
        }
    }

    /// Returns the copies, or the one shared array, without what is shared for single places.
    pub fn whole(&self) -> &[R] {
        self.shared.as_ref().map_or(&self.copies, |shared| shared)
    }

    /// Copies consecutive blocks of `length` elements of `values` to these block indices, or shares them; returns bytes
    /// copied.
    fn store_blocks(&mut self, values: &Values, length: usize, places: &[usize]) -> usize {
        // 1. Values that come as one array per place are shared there.
        if let Some(blocks) = R::blocks(values) {
            debug_assert!(
                blocks.len() == places.len() && blocks.iter().all(|block| block.len() == length)
            );
            let end = places.iter().max().map_or(0, |last| last + 1);
            self.shared_blocks
                .resize(end.max(self.shared_blocks.len()), None);
            for (place, block) in places.iter().zip(blocks) {
                self.shared_blocks[*place] = Some(block.clone());
            }
            return 0;
        }
        for place in places {
            if let Some(block) = self.shared_blocks.get_mut(*place) {
                *block = None;
            }
        }
        // 2. The array of the first batch is shared if its blocks lie where copies would lie.
        let shareable = R::share(values);
        if let Some(array) = &shareable
            && self.whole().is_empty()
            && are_first(places)
        {
            self.shared = Some(array.clone());
            return 0;
        }
        // 3. Else all are copies, also what was shared before.
        let shared_before = self.shared.take();
        if let Some(shared) = &shared_before {
            self.copies.extend_from_slice(shared);
        }
        match &shareable {
            Some(array) => scatter_blocks(&mut self.copies, array, length, places, R::NAN),
            None => scatter_blocks(
                &mut self.copies,
                &R::convert(values),
                length,
                places,
                R::NAN,
            ),
        }
        shared_before.map_or(0, |shared| size_of_val(shared.as_slice()))
            + size_of::<R>() * length * places.len()
    }
}

impl<R: Real> BufferElements<R> {
    /// Makes the host's storage of a recording's buffer: its constants, room for `capacity` spectra, or nothing if its
    /// values are packed elsewhere; `None` if out of memory.
    pub fn from_buffer(
        buffer: &Buffer,
        is_packed: bool,
        capacity: usize,
    ) -> Option<BufferElements<R>> {
        match (&buffer.values, buffer.scope) {
            (Some(values), _) if !is_packed => Some(BufferElements::new(buffer.kind, values)),
            (None, Scope::Spectrum) => {
                BufferElements::with_capacity(buffer.kind, buffer.length.checked_mul(capacity)?)
            }
            _ => Some(BufferElements::Float(Floats::new(Vec::new()))),
        }
    }

    /// Makes an empty block with room for `length` elements; `None` when there is no memory for it.
    pub fn with_capacity(kind: Kind, length: usize) -> Option<BufferElements<R>> {
        Some(match kind {
            Kind::Index => BufferElements::Index(try_with_capacity(length)?),
            Kind::Float | Kind::Half => {
                BufferElements::Float(Floats::new(try_with_capacity(length)?))
            }
        })
    }

    /// Makes a block of all `values`: indices, halves rounded to f16, or floats, shared where they have precision R
    /// already.
    pub fn new(kind: Kind, values: &Values) -> BufferElements<R> {
        match (kind, values) {
            (Kind::Index, Values::I32(indices)) => BufferElements::Index(indices.to_vec()),
            (Kind::Half, _) => {
                let mut halves = R::convert(values);
                halves.iter_mut().for_each(|x| *x = round_to_half(*x));
                BufferElements::Float(Floats::new(halves))
            }
            _ => BufferElements::Float(Floats {
                copies: Vec::new(),
                shared: Some(share_or_convert(values)),
                shared_blocks: Vec::new(),
            }),
        }
    }

    /// Copies consecutive blocks of `length` elements of `values` to these block indices, or shares them; returns bytes
    /// copied. The buffer grows as needed.
    pub fn store_blocks(
        &mut self,
        kind: Kind,
        values: &Values,
        length: usize,
        places: &[usize],
    ) -> usize {
        match (self, kind, values) {
            (BufferElements::Index(indices), Kind::Index, Values::I32(added)) => {
                scatter_blocks(indices, added, length, places, 0);
                size_of_val(added.as_slice())
            }
            (BufferElements::Float(floats), Kind::Float, values) => {
                floats.store_blocks(values, length, places)
            }
            (elements, kind, values) => {
                *elements = BufferElements::new(kind, values);
                elements.own_bytes()
            }
        }
    }

    /// Returns the number of bytes of the block's own copy, without shared values.
    pub fn own_bytes(&self) -> usize {
        match self {
            BufferElements::Float(floats) => size_of_val(floats.copies.as_slice()),
            BufferElements::Index(indices) => size_of_val(indices.as_slice()),
        }
    }

    /// Returns the size of all the block's elements, shared ones included (bytes).
    pub fn bytes(&self) -> usize {
        match self {
            BufferElements::Float(floats) => {
                // Several spectra may share one array, which counts once.
                let shared_blocks: BTreeMap<_, _> = floats
                    .shared_blocks
                    .iter()
                    .flatten()
                    .map(|block| (block.as_ptr(), size_of_val(block.as_slice())))
                    .collect();
                size_of_val(floats.whole()) + shared_blocks.values().sum::<usize>()
            }
            BufferElements::Index(indices) => size_of_val(indices.as_slice()),
        }
    }

    /// Removes all elements; numbers that were shared are released.
    pub fn clear(&mut self) {
        match self {
            BufferElements::Float(floats) => {
                floats.copies.clear();
                floats.shared = None;
                floats.shared_blocks.clear();
            }
            BufferElements::Index(indices) => indices.clear(),
        }
    }
}

/// Returns the values in the precision R; they are copied only if theirs is another.
fn share_or_convert<R: Real>(values: &Values) -> Arc<Vec<R>> {
    R::share(values).unwrap_or_else(|| Arc::new(R::convert(values)))
}

/// Returns whether the block indices are 0, 1, 2, … in order.
fn are_first(places: &[usize]) -> bool {
    places.iter().copied().eq(0..places.len())
}

/// Copies consecutive blocks of `length` elements of `added` to these block indices of `elements`; new gaps between
/// them get `fill`.
pub fn scatter_blocks<T: Copy>(
    elements: &mut Vec<T>,
    added: &[T],
    length: usize,
    places: &[usize],
    fill: T,
) {
    if elements.is_empty() && are_first(places) {
        elements.extend_from_slice(added);
        return;
    }
    let end = places.iter().max().map_or(0, |last| (last + 1) * length);
    elements.resize(end.max(elements.len()), fill);
    for (block, place) in added.chunks_exact(length.max(1)).zip(places) {
        elements[place * length..(place + 1) * length].copy_from_slice(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_batch_is_shared_until_another_joins_it() {
        let values = |from: usize, count: usize| {
            Values::F32(Arc::new(
                (2 * from..2 * (from + count)).map(|x| x as f32).collect(),
            ))
        };
        let first = values(0, 3);
        let mut block = BufferElements::<f32>::with_capacity(Kind::Float, 8).unwrap();
        assert_eq!(block.store_blocks(Kind::Float, &first, 2, &[0, 1, 2]), 0);
        let (BufferElements::Float(floats), Values::F32(array)) = (&block, &first) else {
            panic!()
        };
        assert_eq!(floats.whole().as_ptr(), array.as_ptr());
        assert_eq!(
            block.store_blocks(Kind::Float, &values(10, 2), 2, &[1, 3]),
            24 + 16
        );
        let BufferElements::Float(floats) = &block else {
            panic!()
        };
        assert_eq!(floats.whole(), [0.0, 1.0, 20.0, 21.0, 4.0, 5.0, 22.0, 23.0]);
        assert_eq!(floats.copies.capacity(), 8);
        block.clear();
        assert_eq!(block.bytes(), 0);
        let mut double = BufferElements::<f64>::with_capacity(Kind::Float, 8).unwrap();
        assert_eq!(double.store_blocks(Kind::Float, &first, 2, &[0, 1, 2]), 48);
        assert_eq!(double.bytes(), 48);
    }

    #[test]
    fn shared_blocks_replace_copies_at_their_places() {
        let one_array = |x: f32| Values::F32(Arc::new(vec![x; 4]));
        let separate_blocks =
            |x: f32| Values::Blocks(vec![Arc::new(vec![x; 2]), Arc::new(vec![x + 1.0; 2])]);
        let mut block = BufferElements::<f32>::with_capacity(Kind::Float, 8).unwrap();
        let values = separate_blocks(1.0);
        assert_eq!(block.store_blocks(Kind::Float, &values, 2, &[0, 2]), 0);
        let (BufferElements::Float(floats), Values::Blocks(arrays)) = (&block, &values) else {
            panic!()
        };
        assert_eq!(floats.block_at(2, 2).as_ptr(), arrays[1].as_ptr());
        // Copies go between and over the shared blocks, and then shared blocks over copies.
        block.store_blocks(Kind::Float, &one_array(5.0), 2, &[1, 2]);
        block.store_blocks(Kind::Float, &separate_blocks(7.0), 2, &[3, 1]);
        let BufferElements::Float(floats) = &block else {
            panic!()
        };
        let stored: Vec<f32> = (0..4)
            .flat_map(|place| floats.block_at(place, 2).to_vec())
            .collect();
        assert_eq!(stored, [1.0, 1.0, 8.0, 8.0, 5.0, 5.0, 7.0, 7.0]);
        block.clear();
        assert_eq!(block.bytes(), 0);
        // Other precisions get copies, and a single block is shared whole.
        let mut double = BufferElements::<f64>::with_capacity(Kind::Float, 8).unwrap();
        assert_eq!(
            double.store_blocks(Kind::Float, &separate_blocks(1.0), 2, &[0, 1]),
            32
        );
        let BufferElements::Float(floats) = &double else {
            panic!()
        };
        assert_eq!(floats.whole(), [1.0, 1.0, 2.0, 2.0]);
        let array = Arc::new(vec![1f32; 2]);
        let BufferElements::Float(floats) =
            BufferElements::<f32>::new(Kind::Float, &Values::Blocks(vec![array.clone()]))
        else {
            panic!()
        };
        assert_eq!(floats.whole().as_ptr(), array.as_ptr());
    }
}
