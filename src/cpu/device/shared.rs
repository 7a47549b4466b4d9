//! Data that all populations of a recording share, among them those of the workers of a run: packed weights, rows of
//! starts that recur, and spare tiles ([`Recording::shared_data`](crate::recording::Recording)).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::block::BufferElements;
use super::row_cache::RowCache;
use super::tile::{MemberTile, tile_elements};
use crate::math::Real;
use crate::math::product::Packed;
use crate::recording::{Product, Recording, Stage};
use crate::threads;

/// Resources that all populations of a recording share.
pub struct SharedModelData<R> {
    /// By buffer: a product's packed weights. Recordings that share their constants share these, too.
    packed_weights: Vec<Option<Arc<Packed<R>>>>,
    /// `None` where no rows can be cached.
    pub row_cache: Option<RowCache<R>>,
    tile_members: usize,
    tiles: Mutex<TileStock<R>>,
}

/// The tiles of all populations.
struct TileStock<R> {
    /// The tiles that no thread uses at present.
    spare: Vec<MemberTile<R>>,
    /// Number of all tiles, borrowed ones included.
    count: usize,
}

impl<R: Real> SharedModelData<R> {
    /// Returns the packed weights and the cache that populations of a recording share; makes them if none has them yet.
    pub fn for_recording(recording: &Recording, capacity: usize) -> Arc<SharedModelData<R>> {
        recording.shared_data.share(|| {
            let mut packed_weights: Vec<_> = recording.buffers.iter().map(|_| None).collect();
            for stage in &recording.stages {
                if let Stage::Product(product) = stage {
                    packed_weights[product.weight.0] =
                        SharedModelData::weights_of_origin(recording, product)
                            .or_else(|| pack_weights(recording, product));
                }
            }
            let tiles = Mutex::new(TileStock {
                spare: Vec::new(),
                count: 0,
            });
            SharedModelData {
                packed_weights,
                row_cache: RowCache::new(recording, capacity),
                tile_members: MemberTile::<R>::members_per_tile(recording),
                tiles,
            }
        })
    }

    /// Returns a product's packed weights if populations of a recording with the same constant have them.
    fn weights_of_origin(recording: &Recording, product: &Product) -> Option<Arc<Packed<R>>> {
        let (origin, buffer) = recording
            .shared_data
            .of_origin::<SharedModelData<R>>(product.weight.0)?;
        origin.packed_weights[buffer.0]
            .clone()
            .filter(|packed| packed.shape() == [product.inner, product.columns])
    }

    /// Returns the weights in the buffer of this index, packed for products; `None` if no product uses it as weights.
    pub fn packed_weights(&self, buffer: usize) -> Option<&Packed<R>> {
        self.packed_weights[buffer].as_deref()
    }

    /// Takes a spare tile (working memory of a few members), or makes one.
    pub fn borrow_tile(&self, recording: &Recording) -> MemberTile<R> {
        let mut tiles = self.lock();
        let spare = tiles.spare.pop();
        tiles.count += usize::from(spare.is_none());
        drop(tiles);
        spare.unwrap_or_else(|| MemberTile::new(recording, self.tile_members))
    }

    /// Puts a borrowed tile back among the spare ones, unless there are as many as threads.
    pub fn return_tile(&self, tile: MemberTile<R>) {
        let mut tiles = self.lock();
        if tiles.spare.len() < threads::thread_count() {
            tiles.spare.push(tile);
        } else {
            tiles.count -= 1;
        }
    }

    /// Locks the tiles; a panic of another thread while it had the lock does not matter.
    fn lock(&self) -> MutexGuard<'_, TileStock<R>> {
        self.tiles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the size of the packed weights, of the cached rows and of the tiles (bytes).
    pub fn bytes(&self, recording: &Recording) -> usize {
        // Recordings that share packed weights count a share of them each.
        let weights_bytes: usize = self
            .packed_weights
            .iter()
            .flatten()
            .map(|weights| weights.bytes() / Arc::strong_count(weights))
            .sum();
        let bytes_per_tile = tile_elements(recording, self.tile_members) * size_of::<R>();
        weights_bytes
            + self.lock().count * bytes_per_tile
            + self.row_cache.as_ref().map_or(0, RowCache::bytes)
    }
}

/// Packs a product's weights; returns `None` if they are no constant.
fn pack_weights<R: Real>(recording: &Recording, product: &Product) -> Option<Arc<Packed<R>>> {
    let buffer = recording.block(product.weight);
    let BufferElements::Float(weight) = BufferElements::new(buffer.kind, buffer.values.as_ref()?)
    else {
        return None;
    };
    Some(Arc::new(Packed::new(
        weight.whole(),
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
        let record_product = |name: &str, value: f32| {
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
                factor: 1.0,
                added_to: None,
            };
            recording.stages.push(Stage::Product(product));
            recording
        };
        let first = record_product("w", 1.0);
        let shared = SharedModelData::<f32>::for_recording(&first, 1);
        for (other, is_shared) in [(("w", 1.0), true), (("w", 2.0), false), (("v", 1.0), false)] {
            let mut other = record_product(other.0, other.1);
            other.share_constants(&first);
            let [first_weights, other_weights] =
                [&shared, &SharedModelData::for_recording(&other, 1)]
                    .map(|shared| std::ptr::from_ref(shared.packed_weights(2).unwrap()));
            assert_eq!(first_weights == other_weights, is_shared);
        }
        // Tiles come from one stock, which keeps no more spare tiles than there are threads.
        let threads = threads::thread_count();
        let count_tiles = |shared: &SharedModelData<f32>| shared.lock().count;
        let tiles: Vec<_> = (0..threads + 1)
            .map(|_| shared.borrow_tile(&first))
            .collect();
        assert!(
            tiles.iter().all(|tile| tile.rows(BufferId(0)).len() >= 16)
                && count_tiles(&shared) == threads + 1
        );
        tiles.into_iter().for_each(|tile| shared.return_tile(tile));
        drop(SharedModelData::<f32>::for_recording(&first, 1).borrow_tile(&first));
        let spare = shared.lock().spare.len();
        assert_eq!((count_tiles(&shared), spare), (threads, threads - 1));
        // Populations of another precision pack weights of their own.
        let mut double = record_product("w", 1.0);
        double.share_constants(&first);
        assert_eq!(
            SharedModelData::<f64>::for_recording(&double, 1)
                .packed_weights(2)
                .map(Packed::bytes),
            shared.packed_weights(2).map(|w| 2 * w.bytes())
        );
    }
}
