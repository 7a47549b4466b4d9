//! Rows of starts that recur, kept by the bits of the parameters on which they depend, in up to 128 MiB.
//!
//! A first guess takes the starts of all spectra from one library, and a spectrum's own numbers come in only where rows
//! are resampled onto its pixels. What an arm's stages leave before that (the rows of the network, their spline) is
//! kept for starts that come again. It has the bits that the stages would make again. Of the 5.7 linearisations of a
//! `synb` spectrum 2 are at such starts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::math::Real;
use crate::recording::{BufferId, Recording, Stage};

/// Most bytes of rows that the populations of a recording keep.
const MOST_BYTES: usize = 128 << 20;
/// A population of n members may keep the rows of n less this many starts: that of a single spectrum keeps none.
const ALONE: usize = 2;
/// Points that have been seen once, remembered for each start that may be kept.
const SEEN: usize = 16;

/// The stages whose rows are cached: those of an arm before the first one that depends on the spectrum.
pub struct Heads {
    /// By stage.
    is_head: Vec<bool>,
    /// By stage: the rows that the last one of an arm leaves.
    ends: Vec<Option<BufferId>>,
    /// By buffer: where such rows lie in what is kept of a start.
    places: Vec<Option<usize>>,
    /// Elements of that.
    length: usize,
    /// The parameters that it depends on, ascending.
    parameters: Vec<usize>,
}

impl Heads {
    /// Finds the stages whose output rows do not depend on the spectrum and can be cached; `None` without a network.
    pub fn new(recording: &Recording) -> Option<Heads> {
        let (stages, buffers) = (recording.stages.len(), recording.buffers.len());
        let mut heads = Heads {
            is_head: vec![false; stages],
            ends: vec![None; stages],
            places: vec![None; buffers],
            length: 0,
            parameters: Vec::new(),
        };
        // what an arm's last stage left, if it was one of its head
        let mut left: Option<(usize, BufferId)> = None;
        for (k, stage) in recording.stages.iter().enumerate() {
            let output = stage.cacheable_output(recording.declared());
            // labels begin an arm, and what else is of a head follows another of it
            heads.is_head[k] =
                output.is_some() && (left.is_some() || matches!(stage, Stage::Labels(_)));
            if let (false, Some((last, rows))) = (heads.is_head[k], left) {
                heads.end(recording, last, rows);
            }
            left = output
                .filter(|_| heads.is_head[k])
                .map(|output| (k, output));
            heads.parameters.extend(stage.cacheable_parameters());
        }
        heads.parameters.sort_unstable();
        heads.parameters.dedup();
        // a product's rows are those of a tile, not of a member
        let is_product = |(stage, end): (&Stage, &Option<BufferId>)| {
            end.is_some() && matches!(stage, Stage::Product(_))
        };
        let products = recording.stages.iter().zip(&heads.ends).any(is_product);
        (left.is_none() && heads.length > 0 && !products).then_some(heads)
    }

    /// Marks `stage` as the last cacheable one of an arm, and places its rows in the cache behind those of earlier
    /// arms.
    fn end(&mut self, recording: &Recording, stage: usize, rows: BufferId) {
        self.ends[stage] = Some(rows);
        self.places[rows.0] = Some(self.length);
        self.length += recording.block(rows).length;
    }

    /// Returns whether the output rows of the stage of this index can be cached.
    pub fn is_head(&self, stage: usize) -> bool {
        self.is_head[stage]
    }

    /// Returns the buffer of the rows that are cached after this stage, if it is the last such stage of an arm.
    pub fn end_of(&self, stage: usize) -> Option<BufferId> {
        self.ends[stage]
    }

    /// Returns the size of the rows that are cached for one start, in bytes at precision R.
    pub fn bytes<R>(&self) -> usize {
        self.length * size_of::<R>()
    }
}

/// Returns how many members of `member` bytes each fit into `left` bytes beside the cache, which keeps `kept` for each.
pub fn members(left: u64, member: u64, kept: u64) -> u64 {
    let with_kept = left / (member + kept);
    let with_all = left.saturating_sub(MOST_BYTES as u64) / member;
    // too few to keep any, or so many that they keep the most
    (left / member)
        .min(ALONE as u64)
        .max(with_kept)
        .max(with_all)
}

/// Result of looking up the rows of the point at which a member is evaluated.
pub enum Head<R> {
    /// Nothing.
    Unknown,
    /// It comes again: these are its rows, arm by arm, while they are made.
    Again(Vec<R>),
    Known(Arc<Vec<R>>),
}

impl<R> Head<R> {
    /// Returns whether the start's rows were found in the cache, so that they need not be computed.
    pub fn is_known(&self) -> bool {
        matches!(self, Head::Known(_))
    }

    /// Returns the cached rows of buffer `id` (`length` elements); `None` if this start or buffer is not cached.
    pub fn rows(&self, heads: &Heads, id: BufferId, length: usize) -> Option<&[R]> {
        let (Head::Known(rows), Some(place)) = (self, heads.places[id.0]) else {
            return None;
        };
        rows.get(place..)?.get(..length)
    }
}

/// The cached rows of all populations of a recording.
pub struct Known<R> {
    pub heads: Heads,
    kept: Mutex<Kept<R>>,
    /// Starts that may be kept.
    most: usize,
}

struct Kept<R> {
    /// By the bits of the parameters.
    starts: HashMap<Vec<u64>, Entry<R>>,
    /// Number of starts that are or will be kept.
    count: usize,
    /// Starts that found no room since others were last forgotten.
    refused: usize,
}

enum Entry<R> {
    /// Once.
    Seen,
    /// Somebody makes its rows.
    Begun,
    /// Rows, and the number of requests for them, which is halved as time goes by.
    Kept(Arc<Vec<R>>, usize),
}

impl<R> Kept<R> {
    /// Drops cached starts that were seen once or not asked for of late, and halves the others' counts of requests.
    fn age(&mut self) {
        self.refused = 0;
        self.starts.retain(|_, entry| match entry {
            Entry::Seen | Entry::Kept(_, 0) => false,
            Entry::Begun => true,
            Entry::Kept(_, asked) => {
                *asked /= 2;
                true
            }
        });
        self.count = self.starts.len();
    }
}

impl<R: Real> Known<R> {
    /// Makes an empty cache for populations of `capacity` members; `None` where nothing can be cached.
    pub fn new(recording: &Recording, capacity: usize) -> Option<Known<R>> {
        let heads = Heads::new(recording)?;
        let most = capacity
            .saturating_sub(ALONE)
            .min(MOST_BYTES / heads.bytes::<R>());
        let kept = Mutex::new(Kept {
            starts: HashMap::new(),
            count: 0,
            refused: 0,
        });
        (most > 0).then_some(Known { heads, kept, most })
    }

    /// Looks up the cached rows of the start at `u` and counts the request: known, to be kept now, or unknown.
    pub fn head(&self, u: &[f64]) -> Head<R> {
        let (key, mut kept) = (self.key(u), self.lock());
        if kept.refused >= self.most {
            kept.age();
        }
        let (keeps, sees) = (kept.count < self.most, kept.starts.len() < SEEN * self.most);
        match kept.starts.get_mut(&key) {
            Some(Entry::Kept(rows, asked)) => {
                *asked += 1;
                return Head::Known(rows.clone());
            }
            Some(Entry::Seen) if keeps => {
                kept.starts.insert(key, Entry::Begun);
                kept.count += 1;
                return Head::Again(Vec::new());
            }
            None if sees => {
                kept.starts.insert(key, Entry::Seen);
            }
            Some(Entry::Begun) => {}
            _ => kept.refused += 1,
        }
        Head::Unknown
    }

    /// Stores the rows of the start at `u`, which has been asked for a second time, in the cache.
    pub fn keep(&self, u: &[f64], rows: Vec<R>) {
        debug_assert_eq!(rows.len(), self.heads.length, "all arms' rows");
        let key = self.key(u);
        self.lock()
            .starts
            .insert(key, Entry::Kept(Arc::new(rows), 1));
    }

    /// Returns the size of the rows that are cached or are about to be (bytes).
    pub fn bytes(&self) -> usize {
        self.lock().count * self.heads.bytes::<R>()
    }

    /// Locks the table of cached starts; a panic of another thread while it had the lock does not matter.
    fn lock(&self) -> MutexGuard<'_, Kept<R>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cache's key of a start: the bits of those parameters of `u` on which the cached rows depend.
    fn key(&self, u: &[f64]) -> Vec<u64> {
        self.heads
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

    fn recording(vsini: bool, layout: ArmLayout) -> Recording {
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
    fn what_is_seen_twice_is_kept_as_long_as_there_is_room() {
        let recording = recording(false, LAYOUT);
        let known = Known::<f32>::new(&recording, 2 + ALONE).unwrap();
        // the labels; neither the velocity nor what follows it
        assert_eq!(known.heads.parameters, [1, 2, 3, 4]);
        let at = |velocity: f64, teff: f64| [velocity, teff, 0.1, 0.2, 0.3];
        for teff in [1.0, 2.0] {
            assert!(matches!(known.head(&at(3.0, teff)), Head::Unknown));
            assert!(matches!(known.head(&at(4.0, teff)), Head::Again(rows) if rows.is_empty()));
            // while it is made, others make their own
            assert!(matches!(known.head(&at(6.0, teff)), Head::Unknown));
            known.keep(&at(4.0, teff), vec![teff as f32; known.heads.length]);
            let Head::Known(rows) = known.head(&at(5.0, teff)) else {
                panic!("it was kept")
            };
            assert_eq!(rows[6], teff as f32);
        }
        assert_eq!(known.bytes(), 2 * known.heads.bytes::<f32>());
        // what nobody asks for makes room in the end; what somebody does, stays
        let mut found = Vec::new();
        for k in 0..12 {
            assert!(known.head(&at(k.into(), 1.0)).is_known());
            found.push(matches!(known.head(&at(0.0, 3.0)), Head::Again(_)));
        }
        assert!(!found[0] && found.contains(&true), "{found:?}");
        assert!(!known.head(&at(0.0, 2.0)).is_known());
        assert!(Known::<f32>::new(&recording, ALONE).is_none());
    }

    #[test]
    fn what_is_kept_has_its_room() {
        // (left, member, kept): none for anything; two without; six and as many starts; many and the most
        assert_eq!(members(99, 100, 40), 0);
        assert_eq!(members(299, 100, 400), 2);
        assert_eq!(members(3000, 100, 400), 6);
        assert_eq!(
            members(3 * MOST_BYTES as u64, 1 << 10, 1 << 30),
            2 * (MOST_BYTES as u64 >> 10)
        );
    }

    #[test]
    fn heads_end_where_a_spectrum_has_its_hand_in() {
        let names = |recording: &Recording| -> Vec<usize> {
            let heads = Heads::new(recording).unwrap();
            (0..recording.stages.len())
                .filter(|&k| heads.is_head(k))
                .collect()
        };
        // prior, labels, five products and activations, prefilter; resample, continuum, normal
        assert_eq!(
            names(&recording(false, LAYOUT)),
            (1..13).collect::<Vec<_>>()
        );
        let rotating = recording(
            true,
            ArmLayout {
                diagonals: 3,
                ..LAYOUT
            },
        );
        assert_eq!(names(&rotating), (1..14).collect::<Vec<_>>());
        assert_eq!(Heads::new(&rotating).unwrap().parameters, [1, 2, 3, 4, 5]);
        // on the template's own pixels there is no spline
        assert_eq!(
            names(&recording(
                false,
                ArmLayout {
                    is_template: true,
                    ..LAYOUT
                }
            )),
            (1..12).collect::<Vec<_>>()
        );
        assert!(Heads::new(&Recording::default()).is_none());
    }
}
