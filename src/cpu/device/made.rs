//! Data that all populations of a recording share, among them those of the workers of a run: packed weights, rows of
//! starts that recur, and spare tiles ([`Recording::kin`](crate::recording::Recording)).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::block::Block;
use super::known::Known;
use super::tile::{Tile, elements};
use crate::math::Real;
use crate::math::product::Packed;
use crate::recording::{Product, Recording, Stage};
use crate::threads;

pub struct Made<R> {
    /// By buffer: a product's weights. Recordings that share their constants share these, too.
    packed: Vec<Option<Arc<Packed<R>>>>,
    /// `None` where nothing can be kept.
    pub known: Option<Known<R>>,
    tile_members: usize,
    tiles: Mutex<Tiles<R>>,
}

/// The tiles of all populations.
struct Tiles<R> {
    /// Those that no thread uses at present.
    spare: Vec<Tile<R>>,
    /// Number of all.
    count: usize,
}

impl<R: Real> Made<R> {
    /// Returns the packed weights and the cache that populations of a recording share; makes them if none has them yet.
    pub fn of(recording: &Recording, capacity: usize) -> Arc<Made<R>> {
        recording.kin.share(|| {
            let mut packed: Vec<_> = recording.buffers.iter().map(|_| None).collect();
            for stage in &recording.stages {
                if let Stage::Product(product) = stage {
                    packed[product.weight.0] =
                        Made::relative(recording, product).or_else(|| pack(recording, product));
                }
            }
            let tiles = Mutex::new(Tiles {
                spare: Vec::new(),
                count: 0,
            });
            Made {
                packed,
                known: Known::new(recording, capacity),
                tile_members: Tile::<R>::members(recording),
                tiles,
            }
        })
    }

    /// Returns a product's packed weights if populations of a recording with the same constant have them.
    fn relative(recording: &Recording, product: &Product) -> Option<Arc<Packed<R>>> {
        let (made, place) = recording.kin.of_relative::<Made<R>>(product.weight.0)?;
        made.packed[place.0]
            .clone()
            .filter(|packed| packed.shape() == [product.inner, product.columns])
    }

    /// Returns the weights in the buffer of this index, packed for products; `None` if no product uses it as weights.
    pub fn packed(&self, buffer: usize) -> Option<&Packed<R>> {
        self.packed[buffer].as_deref()
    }

    /// Takes a spare tile (working memory of a few members), or makes one.
    pub fn borrow_tile(&self, recording: &Recording) -> Tile<R> {
        let mut tiles = self.lock();
        let spare = tiles.spare.pop();
        tiles.count += usize::from(spare.is_none());
        drop(tiles);
        spare.unwrap_or_else(|| Tile::new(recording, self.tile_members))
    }

    /// Puts a borrowed tile back among the spare ones, unless there are as many as threads.
    pub fn return_tile(&self, tile: Tile<R>) {
        let mut tiles = self.lock();
        if tiles.spare.len() < threads::thread_count() {
            tiles.spare.push(tile);
        } else {
            tiles.count -= 1;
        }
    }

    /// Locks the tiles; a panic of another thread while it had the lock does not matter.
    fn lock(&self) -> MutexGuard<'_, Tiles<R>> {
        self.tiles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the size of the packed weights, of the cached rows and of the tiles (bytes).
    pub fn bytes(&self, recording: &Recording) -> usize {
        let packed: usize = self
            .packed
            .iter()
            .flatten()
            .map(|weights| weights.bytes() / Arc::strong_count(weights))
            .sum();
        let tile = elements(recording, self.tile_members) * size_of::<R>();
        packed + self.lock().count * tile + self.known.as_ref().map_or(0, Known::bytes)
    }
}

/// Packs a product's weights; returns `None` if they are no constant.
fn pack<R: Real>(recording: &Recording, product: &Product) -> Option<Arc<Packed<R>>> {
    let buffer = recording.block(product.weight);
    let Block::Float(weight) = Block::new(buffer.kind, buffer.values.as_ref()?) else {
        return None;
    };
    Some(Arc::new(Packed::new(
        weight.all(),
        product.inner,
        product.columns,
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{BufferId, Kind, Scope, Values};

    #[test]
    fn recordings_with_the_same_weights_pack_them_once() {
        let recording = |name: &str, value: f32| {
            let mut recording = Recording::default();
            let [input, output] =
                ["x", "y"].map(|name| recording.buffer(name, Scope::Member, Kind::Float, 16));
            let weight = recording.constant(name, Values::F32(vec![value; 4 * 16].into()));
            let product = Product {
                input,
                weight,
                output,
                rows: 1,
                inner: 4,
                columns: 16,
            };
            recording.stages.push(Stage::Product(product));
            recording
        };
        let first = recording("w", 1.0);
        let made = Made::<f32>::of(&first, 1);
        for (other, is_shared) in [(("w", 1.0), true), (("w", 2.0), false), (("v", 1.0), false)] {
            let mut other = recording(other.0, other.1);
            other.share_constants(&first);
            let [here, there] = [&made, &Made::of(&other, 1)]
                .map(|made| std::ptr::from_ref(made.packed(2).unwrap()));
            assert_eq!(here == there, is_shared);
        }
        // tiles come from one stock, which keeps no more than there are threads
        let threads = threads::thread_count();
        let count = |made: &Made<f32>| made.lock().count;
        let tiles: Vec<_> = (0..threads + 1).map(|_| made.borrow_tile(&first)).collect();
        assert!(
            tiles.iter().all(|tile| tile.rows(BufferId(0)).len() >= 16)
                && count(&made) == threads + 1
        );
        tiles.into_iter().for_each(|tile| made.return_tile(tile));
        drop(Made::<f32>::of(&first, 1).borrow_tile(&first));
        let spare = made.lock().spare.len();
        assert_eq!((count(&made), spare), (threads, threads - 1));
        // in another precision they are others
        let mut double = recording("w", 1.0);
        double.share_constants(&first);
        assert_eq!(
            Made::<f64>::of(&double, 1).packed(2).map(Packed::bytes),
            made.packed(2).map(|w| 2 * w.bytes())
        );
    }
}
