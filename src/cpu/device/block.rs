//! Contents of the buffers that kernels read.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::io::memory::room;
use crate::kernels::narrow::round_to_half;
use crate::math::Real;
use crate::recording::{Buffer, Kind, Scope, Values};

/// A buffer's elements.
pub enum Block<R> {
    Float(Floats<R>),
    Index(Vec<i32>),
}

/// Floating-point elements of a buffer: copies, one array of a batch that is shared as long as it lies where a copy
/// would put it, or an array for each place, which hides what the other two have there.
pub struct Floats<R> {
    own: Vec<R>,
    shared: Option<Arc<Vec<R>>>,
    /// By place, the array that is shared for it alone.
    blocks: Vec<Option<Arc<Vec<R>>>>,
}

impl<R: Real> Floats<R> {
    /// Wraps a vector as a block that owns its numbers and shares none.
    fn new(own: Vec<R>) -> Floats<R> {
        Floats {
            own,
            shared: None,
            blocks: Vec::new(),
        }
    }

    /// Returns the block of `length` numbers at a place, shared or not.
    pub fn block(&self, place: usize, length: usize) -> &[R] {
        match self.blocks.get(place) {
            Some(Some(block)) => block,
            _ => &self.all()[place * length..(place + 1) * length],
        }
    }

    /// Returns the copies, or the one shared array, without what is shared for single places.
    pub fn all(&self) -> &[R] {
        self.shared.as_ref().map_or(&self.own, |shared| shared)
    }

    /// Copies consecutive blocks of `length` elements of `values` to these block indices, or shares them; returns bytes
    /// copied.
    fn put(&mut self, values: &Values, length: usize, places: &[usize]) -> usize {
        if let Some(blocks) = R::blocks(values) {
            debug_assert!(
                blocks.len() == places.len() && blocks.iter().all(|block| block.len() == length)
            );
            let end = places.iter().max().map_or(0, |last| last + 1);
            self.blocks.resize(end.max(self.blocks.len()), None);
            places
                .iter()
                .zip(blocks)
                .for_each(|(place, block)| self.blocks[*place] = Some(block.clone()));
            return 0;
        }
        for place in places {
            if let Some(block) = self.blocks.get_mut(*place) {
                *block = None;
            }
        }
        let shared = R::share(values);
        if let Some(shared) = &shared
            && self.all().is_empty()
            && are_first(places)
        {
            self.shared = Some(shared.clone());
            return 0;
        }
        let before = self.shared.take();
        before
            .iter()
            .for_each(|before| self.own.extend_from_slice(before));
        match &shared {
            Some(values) => scatter(&mut self.own, values, length, places, R::NAN),
            None => scatter(&mut self.own, &R::convert(values), length, places, R::NAN),
        }
        before.map_or(0, |before| size_of_val(before.as_slice()))
            + size_of::<R>() * length * places.len()
    }
}

impl<R: Real> Block<R> {
    /// Makes the host's storage of a recording's buffer: its constants, room for `capacity` spectra, or nothing if its
    /// values are packed elsewhere; `None` if out of memory.
    pub fn of_buffer(buffer: &Buffer, is_packed: bool, capacity: usize) -> Option<Block<R>> {
        match (&buffer.values, buffer.scope) {
            (Some(values), _) if !is_packed => Some(Block::new(buffer.kind, values)),
            (None, Scope::Spectrum) => {
                Block::with_room(buffer.kind, buffer.length.checked_mul(capacity)?)
            }
            _ => Some(Block::Float(Floats::new(Vec::new()))),
        }
    }

    /// Makes an empty block with room for `length` elements; `None` when there is no memory for it.
    pub fn with_room(kind: Kind, length: usize) -> Option<Block<R>> {
        Some(match kind {
            Kind::Index => Block::Index(room(length)?),
            Kind::Float | Kind::Half => Block::Float(Floats::new(room(length)?)),
        })
    }

    /// Makes a block of all `values`: indices, halves rounded to f16, or floats, shared where they have precision R
    /// already.
    pub fn new(kind: Kind, values: &Values) -> Block<R> {
        match (kind, values) {
            (Kind::Index, Values::I32(v)) => Block::Index(v.to_vec()),
            (Kind::Half, _) => {
                let mut own = R::convert(values);
                own.iter_mut().for_each(|x| *x = round_to_half(*x));
                Block::Float(Floats::new(own))
            }
            _ => Block::Float(Floats {
                own: Vec::new(),
                shared: Some(shared(values)),
                blocks: Vec::new(),
            }),
        }
    }

    /// Copies consecutive blocks of `length` elements of `values` to these block indices, or shares them; returns bytes
    /// copied. The buffer grows as needed.
    pub fn put(&mut self, kind: Kind, values: &Values, length: usize, places: &[usize]) -> usize {
        match (self, kind, values) {
            (Block::Index(all), Kind::Index, Values::I32(own)) => {
                scatter(all, own, length, places, 0);
                size_of_val(own.as_slice())
            }
            (Block::Float(all), Kind::Float, own) => all.put(own, length, places),
            (this, kind, own) => {
                *this = Block::new(kind, own);
                this.own_bytes()
            }
        }
    }

    /// Returns the number of bytes of the block's own copy, without shared values.
    pub fn own_bytes(&self) -> usize {
        match self {
            Block::Float(all) => size_of_val(all.own.as_slice()),
            Block::Index(all) => size_of_val(all.as_slice()),
        }
    }

    /// Returns the size of all the block's elements, shared ones included (bytes).
    pub fn bytes(&self) -> usize {
        match self {
            Block::Float(all) => {
                // spectra may share one
                let blocks: BTreeMap<_, _> = all
                    .blocks
                    .iter()
                    .flatten()
                    .map(|block| (block.as_ptr(), size_of_val(block.as_slice())))
                    .collect();
                size_of_val(all.all()) + blocks.values().sum::<usize>()
            }
            Block::Index(all) => size_of_val(all.as_slice()),
        }
    }

    /// Removes all elements; numbers that were shared are released.
    pub fn clear(&mut self) {
        match self {
            Block::Float(all) => {
                all.own.clear();
                all.shared = None;
                all.blocks.clear();
            }
            Block::Index(all) => all.clear(),
        }
    }
}

/// Returns the values in the precision R; they are copied only if theirs is another.
fn shared<R: Real>(values: &Values) -> Arc<Vec<R>> {
    R::share(values).unwrap_or_else(|| Arc::new(R::convert(values)))
}

/// Returns whether the block indices are 0, 1, 2, … in order.
fn are_first(places: &[usize]) -> bool {
    places.iter().copied().eq(0..places.len())
}

/// Copies consecutive blocks of `length` elements of `own` to these block indices of `all`; new gaps between get
/// `fill`.
pub fn scatter<T: Copy>(all: &mut Vec<T>, own: &[T], length: usize, places: &[usize], fill: T) {
    if all.is_empty() && are_first(places) {
        all.extend_from_slice(own);
        return;
    }
    let end = places.iter().max().map_or(0, |last| (last + 1) * length);
    all.resize(end.max(all.len()), fill);
    for (block, place) in own.chunks_exact(length.max(1)).zip(places) {
        all[place * length..(place + 1) * length].copy_from_slice(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_copied_only_once_others_join_it() {
        let values = |from: usize, count: usize| {
            Values::F32(Arc::new(
                (2 * from..2 * (from + count)).map(|x| x as f32).collect(),
            ))
        };
        let first = values(0, 3);
        let mut block = Block::<f32>::with_room(Kind::Float, 8).unwrap();
        assert_eq!(block.put(Kind::Float, &first, 2, &[0, 1, 2]), 0);
        let (Block::Float(floats), Values::F32(own)) = (&block, &first) else {
            panic!()
        };
        assert_eq!(floats.all().as_ptr(), own.as_ptr());
        assert_eq!(block.put(Kind::Float, &values(10, 2), 2, &[1, 3]), 24 + 16);
        let Block::Float(floats) = &block else {
            panic!()
        };
        assert_eq!(floats.all(), [0.0, 1.0, 20.0, 21.0, 4.0, 5.0, 22.0, 23.0]);
        assert_eq!(floats.own.capacity(), 8);
        block.clear();
        assert_eq!(block.bytes(), 0);
        let mut double = Block::<f64>::with_room(Kind::Float, 8).unwrap();
        assert_eq!(double.put(Kind::Float, &first, 2, &[0, 1, 2]), 48);
        assert_eq!(double.bytes(), 48);
    }

    #[test]
    fn blocks_that_are_shared_alone_replace_others_at_their_places() {
        let whole = |x: f32| Values::F32(Arc::new(vec![x; 4]));
        let apart = |x: f32| Values::Blocks(vec![Arc::new(vec![x; 2]), Arc::new(vec![x + 1.0; 2])]);
        let mut block = Block::<f32>::with_room(Kind::Float, 8).unwrap();
        let values = apart(1.0);
        assert_eq!(block.put(Kind::Float, &values, 2, &[0, 2]), 0);
        let (Block::Float(floats), Values::Blocks(own)) = (&block, &values) else {
            panic!()
        };
        assert_eq!(floats.block(2, 2).as_ptr(), own[1].as_ptr());
        // copies between and over them, and blocks over copies
        block.put(Kind::Float, &whole(5.0), 2, &[1, 2]);
        block.put(Kind::Float, &apart(7.0), 2, &[3, 1]);
        let Block::Float(floats) = &block else {
            panic!()
        };
        let seen: Vec<f32> = (0..4)
            .flat_map(|place| floats.block(place, 2).to_vec())
            .collect();
        assert_eq!(seen, [1.0, 1.0, 8.0, 8.0, 5.0, 5.0, 7.0, 7.0]);
        block.clear();
        assert_eq!(block.bytes(), 0);
        // other precisions get copies, and a block of its own is shared whole
        let mut double = Block::<f64>::with_room(Kind::Float, 8).unwrap();
        assert_eq!(double.put(Kind::Float, &apart(1.0), 2, &[0, 1]), 32);
        let Block::Float(floats) = &double else {
            panic!()
        };
        assert_eq!(floats.all(), [1.0, 1.0, 2.0, 2.0]);
        let only = Arc::new(vec![1f32; 2]);
        let Block::Float(floats) =
            Block::<f32>::new(Kind::Float, &Values::Blocks(vec![only.clone()]))
        else {
            panic!()
        };
        assert_eq!(floats.all().as_ptr(), only.as_ptr());
    }
}
