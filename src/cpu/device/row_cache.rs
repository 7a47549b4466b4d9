//! Cache of the model rows of starts that recur. Its keys are the bits of the parameters on which the rows depend, and
//! it holds up to 128 MiB.
//!
//! A first guess takes the starts of all spectra from one library, and a spectrum's own numbers enter only where rows
//! are resampled onto its pixels. The rows that an arm's stages leave before that (those of the network, and their
//! spline) are cached for starts that come again. They have the bits that the stages would compute again. Of the 5.7
//! linearisations of a `synb` spectrum 2 are at such starts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::math::Real;
use crate::recording::{BufferId, Recording, Stage};

/// Maximum number of bytes of rows that the populations of a recording cache.
const MAX_CACHE_BYTES: usize = 128 << 20;
/// A population of n members may cache the rows of n less this many starts: that of a single spectrum caches none.
const STARTS_NOT_CACHED: usize = 2;
/// Number of starts seen once that the table remembers per start that may be cached.
const SEEN_PER_CACHED_START: usize = 16;

/// The stages whose rows are cached: those of an arm before the first one that depends on the spectrum.
pub struct CacheableStages {
    /// By stage.
    is_cacheable: Vec<bool>,
    /// By stage: the buffer of the rows that the last cacheable one of an arm leaves.
    cached_outputs: Vec<Option<BufferId>>,
    /// By buffer: the offset of such rows in a start's cached rows.
    offsets: Vec<Option<usize>>,
    /// Number of elements of a start's cached rows.
    length: usize,
    /// The parameters on which the cached rows depend, ascending.
    parameters: Vec<usize>,
}

impl CacheableStages {
    /// Finds the stages whose output rows do not depend on the spectrum and can be cached; `None` without a network.
    pub fn new(recording: &Recording) -> Option<CacheableStages> {
        let n_stages = recording.stages.len();
        let mut cacheable = CacheableStages {
            is_cacheable: vec![false; n_stages],
            cached_outputs: vec![None; n_stages],
            offsets: vec![None; recording.buffers.len()],
            length: 0,
            parameters: Vec::new(),
        };
        // 1. Mark the cacheable stages. In an arm they are consecutive: labels begin an arm, and each further one
        //    follows another. Where the next stage is not cacheable, the rows of the one before it are cached.
        let mut previous: Option<(usize, BufferId)> = None;
        for (k, stage) in recording.stages.iter().enumerate() {
            let output = stage.cacheable_output(recording.declared());
            cacheable.is_cacheable[k] =
                output.is_some() && (previous.is_some() || matches!(stage, Stage::Labels(_)));
            if let (false, Some((last, rows))) = (cacheable.is_cacheable[k], previous) {
                cacheable.mark_last_stage(recording, last, rows);
            }
            previous = output
                .filter(|_| cacheable.is_cacheable[k])
                .map(|output| (k, output));
            cacheable.parameters.extend(stage.cacheable_parameters());
        }
        cacheable.parameters.sort_unstable();
        cacheable.parameters.dedup();
        // 2. The rows of a product belong to a whole tile, not to a member, and cannot be cached.
        let caches_product = recording
            .stages
            .iter()
            .zip(&cacheable.cached_outputs)
            .any(|(stage, output)| output.is_some() && matches!(stage, Stage::Product(_)));
        (previous.is_none() && cacheable.length > 0 && !caches_product).then_some(cacheable)
    }

    /// Marks `stage` as the last cacheable one of an arm, and places its rows in the cache behind those of earlier
    /// arms.
    fn mark_last_stage(&mut self, recording: &Recording, stage: usize, rows: BufferId) {
        self.cached_outputs[stage] = Some(rows);
        self.offsets[rows.0] = Some(self.length);
        self.length += recording.block(rows).length;
    }

    /// Returns whether the output rows of the stage of this index can be cached.
    pub fn is_cacheable(&self, stage: usize) -> bool {
        self.is_cacheable[stage]
    }

    /// Returns the buffer of the rows that are cached after this stage, if it is the last such stage of an arm.
    pub fn cached_output(&self, stage: usize) -> Option<BufferId> {
        self.cached_outputs[stage]
    }

    /// Returns the size of the rows that are cached for one start, in bytes at precision R.
    pub fn bytes_per_start<R>(&self) -> usize {
        self.length * size_of::<R>()
    }
}

/// Returns how many members of `member_bytes` each fit into `available_bytes` beside the cache, which takes
/// `cached_bytes` for each.
pub fn max_members(available_bytes: u64, member_bytes: u64, cached_bytes: u64) -> u64 {
    let members_with_own_rows = available_bytes / (member_bytes + cached_bytes);
    let members_with_full_cache =
        available_bytes.saturating_sub(MAX_CACHE_BYTES as u64) / member_bytes;
    // A population may be too small to cache any rows, or so large that its cache is full.
    (available_bytes / member_bytes)
        .min(STARTS_NOT_CACHED as u64)
        .max(members_with_own_rows)
        .max(members_with_full_cache)
}

/// Result of looking up the rows of the point at which a member is evaluated.
pub enum CacheLookup<R> {
    /// The rows are not cached.
    Miss,
    /// The start has come a second time: these are its rows to be cached, arm by arm, while they are computed.
    MissToStore(Vec<R>),
    /// The cached rows.
    Hit(Arc<Vec<R>>),
}

impl<R> CacheLookup<R> {
    /// Returns whether the start's rows were found in the cache, so that they need not be computed.
    pub fn is_hit(&self) -> bool {
        matches!(self, CacheLookup::Hit(_))
    }

    /// Returns the cached rows of buffer `id` (`length` elements); `None` if this start or buffer is not cached.
    pub fn cached_rows(
        &self,
        cacheable: &CacheableStages,
        id: BufferId,
        length: usize,
    ) -> Option<&[R]> {
        let (CacheLookup::Hit(rows), Some(offset)) = (self, cacheable.offsets[id.0]) else {
            return None;
        };
        rows.get(offset..)?.get(..length)
    }
}

/// The cached rows of all populations of a recording.
pub struct RowCache<R> {
    pub cacheable: CacheableStages,
    table: Mutex<CacheTable<R>>,
    /// Maximum number of starts that are cached.
    max_starts: usize,
}

/// Table of the starts that have come at least once.
struct CacheTable<R> {
    /// By the bits of the parameters.
    starts: HashMap<Vec<u64>, CacheEntry<R>>,
    /// Number of starts that are cached or being computed.
    count: usize,
    /// Number of starts that found no room since others were last dropped.
    refused: usize,
}

/// State of a start in the cache.
enum CacheEntry<R> {
    /// It has come once.
    SeenOnce,
    /// A thread computes its rows.
    Computing,
    /// Its rows, and the number of requests for them, which is halved as time goes by.
    Cached(Arc<Vec<R>>, usize),
}

impl<R> CacheTable<R> {
    /// Drops cached starts that were seen once or not asked for of late, and halves the others' counts of requests.
    fn drop_unused_starts(&mut self) {
        self.refused = 0;
        self.starts.retain(|_, entry| match entry {
            CacheEntry::SeenOnce | CacheEntry::Cached(_, 0) => false,
            CacheEntry::Computing => true,
            CacheEntry::Cached(_, requests) => {
                *requests /= 2;
                true
            }
        });
        self.count = self.starts.len();
    }
}

impl<R: Real> RowCache<R> {
    /// Makes an empty cache for populations of `capacity` members; `None` where nothing can be cached.
    pub fn new(recording: &Recording, capacity: usize) -> Option<RowCache<R>> {
        let cacheable = CacheableStages::new(recording)?;
        let max_starts = capacity
            .saturating_sub(STARTS_NOT_CACHED)
            .min(MAX_CACHE_BYTES / cacheable.bytes_per_start::<R>());
        let table = Mutex::new(CacheTable {
            starts: HashMap::new(),
            count: 0,
            refused: 0,
        });
        (max_starts > 0).then_some(RowCache {
            cacheable,
            table,
            max_starts,
        })
    }

    /// Looks up the cached rows of the start at `u` and counts the request: a hit, a miss to be stored, or a miss.
    pub fn look_up(&self, u: &[f64]) -> CacheLookup<R> {
        let key = self.key(u);
        let mut table = self.lock();
        // After as many refusals as there are cached starts, we make room for the starts of late.
        if table.refused >= self.max_starts {
            table.drop_unused_starts();
        }
        let can_cache = table.count < self.max_starts;
        let can_remember = table.starts.len() < SEEN_PER_CACHED_START * self.max_starts;
        match table.starts.get_mut(&key) {
            Some(CacheEntry::Cached(rows, requests)) => {
                *requests += 1;
                return CacheLookup::Hit(rows.clone());
            }
            Some(CacheEntry::SeenOnce) if can_cache => {
                table.starts.insert(key, CacheEntry::Computing);
                table.count += 1;
                return CacheLookup::MissToStore(Vec::new());
            }
            None if can_remember => {
                table.starts.insert(key, CacheEntry::SeenOnce);
            }
            Some(CacheEntry::Computing) => {}
            _ => table.refused += 1,
        }
        CacheLookup::Miss
    }

    /// Stores the rows of the start at `u`, which has been asked for a second time, in the cache.
    pub fn store(&self, u: &[f64], rows: Vec<R>) {
        debug_assert_eq!(rows.len(), self.cacheable.length, "all arms' rows");
        let key = self.key(u);
        self.lock()
            .starts
            .insert(key, CacheEntry::Cached(Arc::new(rows), 1));
    }

    /// Returns the size of the rows that are cached or are about to be (bytes).
    pub fn bytes(&self) -> usize {
        self.lock().count * self.cacheable.bytes_per_start::<R>()
    }

    /// Locks the table of cached starts; a panic of another thread while it had the lock does not matter.
    fn lock(&self) -> MutexGuard<'_, CacheTable<R>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cache's key of a start: the bits of those parameters of `u` on which the cached rows depend.
    fn key(&self, u: &[f64]) -> Vec<u64> {
        self.cacheable
            .parameters
            .iter()
            .map(|&p| u[p].to_bits())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::Emulator;
    use crate::model::{ArmLayout, Continuum, SpectralModel, SpectralObjective};
    use crate::recording::Precision;
    use crate::solver::Objective;

    fn record_objective(vsini: bool, layout: ArmLayout) -> Recording {
        let emulator = Emulator::open(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/data/emulator.safetensors"
        ))
        .unwrap();
        let model = SpectralModel::builder()
            .arm("b", emulator)
            .velocity(-500.0..=500.0)
            .continuum(Continuum::rbf(6));
        let model = if vsini {
            model.vsini(0.0..=200.0)
        } else {
            model
        };
        SpectralObjective::new(&model.build().unwrap(), &[layout], Precision::F32).record()
    }

    const LAYOUT: ArmLayout = ArmLayout {
        pixels: 100,
        shared_grid: true,
        diagonals: 0,
        is_template: false,
        own_basis: false,
    };

    #[test]
    fn starts_are_cached_at_their_second_visit_while_there_is_room() {
        let recording = record_objective(false, LAYOUT);
        let cache = RowCache::<f32>::new(&recording, 2 + STARTS_NOT_CACHED).unwrap();
        // The rows depend on the labels, but neither on the velocity nor on the parameters behind it.
        assert_eq!(cache.cacheable.parameters, [1, 2, 3, 4]);
        let point = |velocity: f64, teff: f64| [velocity, teff, 0.1, 0.2, 0.3];
        for teff in [1.0, 2.0] {
            assert!(matches!(
                cache.look_up(&point(3.0, teff)),
                CacheLookup::Miss
            ));
            assert!(
                matches!(cache.look_up(&point(4.0, teff)), CacheLookup::MissToStore(rows) if rows.is_empty())
            );
            // While one member computes the rows, others compute their own.
            assert!(matches!(
                cache.look_up(&point(6.0, teff)),
                CacheLookup::Miss
            ));
            cache.store(&point(4.0, teff), vec![teff as f32; cache.cacheable.length]);
            let CacheLookup::Hit(rows) = cache.look_up(&point(5.0, teff)) else {
                panic!("the rows were stored")
            };
            assert_eq!(rows[6], teff as f32);
        }
        assert_eq!(cache.bytes(), 2 * cache.cacheable.bytes_per_start::<f32>());
        // A start that is not requested any more makes room in the end; one that is requested stays.
        let mut stored = Vec::new();
        for k in 0..12 {
            assert!(cache.look_up(&point(k.into(), 1.0)).is_hit());
            stored.push(matches!(
                cache.look_up(&point(0.0, 3.0)),
                CacheLookup::MissToStore(_)
            ));
        }
        assert!(!stored[0] && stored.contains(&true), "{stored:?}");
        assert!(!cache.look_up(&point(0.0, 2.0)).is_hit());
        assert!(RowCache::<f32>::new(&recording, STARTS_NOT_CACHED).is_none());
    }

    #[test]
    fn max_members_reserves_memory_for_the_cache() {
        // (available, member, cached): no room at all; two members without a cache; six with as many cached starts;
        // many with a full cache.
        assert_eq!(max_members(99, 100, 40), 0);
        assert_eq!(max_members(299, 100, 400), 2);
        assert_eq!(max_members(3000, 100, 400), 6);
        assert_eq!(
            max_members(3 * MAX_CACHE_BYTES as u64, 1 << 10, 1 << 30),
            2 * (MAX_CACHE_BYTES as u64 >> 10)
        );
    }

    #[test]
    fn cacheable_stages_end_at_the_first_that_depends_on_the_spectrum() {
        let cacheable_stages = |recording: &Recording| -> Vec<usize> {
            let cacheable = CacheableStages::new(recording).unwrap();
            (0..recording.stages.len())
                .filter(|&k| cacheable.is_cacheable(k))
                .collect()
        };
        // Stage 0 is the prior. Labels, five products and activations, and the prefilter are cacheable; resampling, the
        // continuum and the normal matrix are not.
        assert_eq!(
            cacheable_stages(&record_objective(false, LAYOUT)),
            (1..13).collect::<Vec<_>>()
        );
        let rotating = record_objective(
            true,
            ArmLayout {
                diagonals: 3,
                ..LAYOUT
            },
        );
        assert_eq!(cacheable_stages(&rotating), (1..14).collect::<Vec<_>>());
        assert_eq!(
            CacheableStages::new(&rotating).unwrap().parameters,
            [1, 2, 3, 4, 5]
        );
        // On the template's own pixels there is no spline.
        assert_eq!(
            cacheable_stages(&record_objective(
                false,
                ArmLayout {
                    is_template: true,
                    ..LAYOUT
                }
            )),
            (1..12).collect::<Vec<_>>()
        );
        assert!(CacheableStages::new(&Recording::default()).is_none());
    }
}
