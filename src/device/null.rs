//! A device that computes nothing. Every fit ends in its first round at its start, and the data that a card would get
//! are copied once. A run on it takes as long as the work of the host alone, on any machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use super::Device;
use crate::buffers::LossSums;
use crate::error::{Error, Result};
use crate::math::triangle::{packed_index, packed_length};
use crate::recording::{BufferId, Recording, Values};
use crate::solver::small::packing::{FITS_PER_BLOCK as BLOCK, Packing};
use crate::solver::small::{PART, SmallFitter, SmallParts, SmallProblem};
use crate::solver::{
    self, Batch, LevenbergMarquardt, Outcome, Pending, Places, Population, Status,
};
use crate::threads;

/// Maximum number of members of a population: that of a card with much memory.
const MAX_NULL_MEMBERS: usize = 65_535;
/// Maximum number of workers of a run: that of a card.
const MAX_NULL_WORKERS: usize = 8;

/// The device `null`, for tests and benchmarks of the host. It stands for a discrete GPU of infinite speed: so many
/// workers share it, and its batches are as large. Nobody verifies its results, which are no fits.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullDevice;

impl From<NullDevice> for Device {
    fn from(device: NullDevice) -> Device {
        Device::from_single(device)
    }
}

impl solver::Backend for NullDevice {
    fn name(&self) -> String {
        "null".into()
    }

    fn runs_wgsl(&self) -> bool {
        true
    }

    fn is_verified(&self) -> bool {
        false
    }

    fn workers(&self) -> usize {
        match threads::thread_count() {
            1 => 1, // stages do not overlap, so that their times are those of one core
            count => (count / 2).clamp(2, MAX_NULL_WORKERS),
        }
    }

    fn capacity(&self, _: &Recording, _: Option<u64>) -> Result<usize> {
        Ok(MAX_NULL_MEMBERS)
    }

    fn population(
        &self,
        recording: Arc<Recording>,
        _: &LevenbergMarquardt,
        capacity: usize,
    ) -> Result<Box<dyn Population>> {
        Ok(Box::new(NullPopulation {
            recording,
            capacity,
            staged: Vec::new(),
            waiting_starts: BTreeMap::new(),
            ended_starts: BTreeMap::new(),
        }))
    }

    fn small_fitter(&self, problem: SmallProblem) -> Result<Option<Box<dyn SmallFitter>>> {
        Ok(Some(Box::new(NullSmallFitter {
            problem,
            rows: Vec::new(),
        })))
    }
}

/// Members that end at their starts.
struct NullPopulation {
    recording: Arc<Recording>,
    capacity: usize,
    /// Copy of the last spectra that were uploaded, in place of a card's staging memory.
    staged: Vec<f32>,
    /// By slot, the starts of the members that have entered since the last round.
    waiting_starts: BTreeMap<usize, Vec<f64>>,
    /// By slot, the starts of the members that have ended.
    ended_starts: BTreeMap<usize, Vec<f64>>,
}

impl NullPopulation {
    /// Returns the outcome of a member that converged in its first round at its start.
    fn outcome_at_start(&self, slot: usize) -> Result<Outcome> {
        let parameters = self.recording.parameters.len();
        let Some(start) = self.ended_starts.get(&slot) else {
            return Err(nothing_error("in this slot"));
        };
        let mut normal_matrix = vec![0.0; packed_length(parameters)];
        (0..parameters).for_each(|p| normal_matrix[packed_index(p, p)] = 1.0);
        Ok(Outcome {
            status: Some(Status::Ftol),
            gave_way: None,
            rounds: 1,
            evaluations: 1,
            parameters: start.clone(),
            chi2: 1.0,
            penalty: 0.0,
            ln_det: 0.0,
            loss: LossSums::default(),
            gradient: vec![0.0; parameters],
            normal_matrix,
        })
    }
}

impl Population for NullPopulation {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn clear(&mut self) {
        self.waiting_starts.clear();
        self.ended_starts.clear();
    }

    fn upload(&mut self, batch: &Batch, _: &[usize]) -> Result<()> {
        self.staged.clear();
        for (_, values) in &batch.blocks {
            stage_values(values, &mut self.staged);
        }
        Ok(())
    }

    fn enter_members(&mut self, batch: &Batch, places: &Places) -> Result<()> {
        let parameters = self.recording.parameters.len();
        let starts = batch.starts.chunks_exact(parameters).map(<[f64]>::to_vec);
        self.waiting_starts
            .extend(places.starts.iter().copied().zip(starts));
        Ok(())
    }

    fn advance(&mut self, _: u32) -> Pending<'_, usize> {
        self.ended_starts.append(&mut self.waiting_starts);
        Box::pin(async { Ok(0) })
    }

    fn active(&mut self) -> Pending<'_, Vec<usize>> {
        Box::pin(async { Ok(self.waiting_starts.keys().copied().collect()) })
    }

    fn read<'a>(&'a mut self, starts: &'a [usize]) -> Pending<'a, Vec<Outcome>> {
        Box::pin(async {
            starts
                .iter()
                .map(|slot| self.outcome_at_start(*slot))
                .collect()
        })
    }

    fn inspect(&mut self, _: BufferId) -> Pending<'_, Vec<f64>> {
        Box::pin(async { Err(nothing_error("to inspect")) })
    }
}

/// Small fits that end at their starts. They are packed as for a card, and unpacked from the results it would return.
struct NullSmallFitter {
    problem: SmallProblem,
    /// In place of the memory from which a card copies, and to which it copies.
    rows: Vec<NullRows>,
}

/// The rows of a part.
#[derive(Default)]
struct NullRows {
    /// `None` if no fit of the part is to be made.
    packing: Option<Packing>,
    sent: Vec<f32>,
    results: Vec<u32>,
}

impl NullRows {
    /// Begins a part, packs its fits, and ends them at once.
    fn pack_part(&mut self, problem: &SmallProblem, parts: &dyn SmallParts, part: usize) {
        let NullRows {
            packing,
            sent,
            results,
        } = self;
        *packing = parts.begin(part).map(|shape| Packing::new(problem, shape));
        let Some(packing) = *packing else { return };
        sent.clear();
        parts.lend(part, &mut |batch, columns| {
            let fits = columns.status.len();
            results.resize(fits.next_multiple_of(BLOCK) * packing.result(), 0);
            let mut observed = Vec::new();
            let mut given = Vec::new();
            for (first, results) in (0..fits)
                .step_by(BLOCK)
                .zip(results.chunks_mut(BLOCK * packing.result()))
            {
                let block = first..(first + BLOCK).min(fits);
                packing.pack_observed(block.clone(), batch, &mut observed);
                packing.pack_given(block, batch, &mut given);
                sent.extend_from_slice(&observed);
                sent.extend_from_slice(&given);
                packing.end_at_starts(&given, results);
            }
        });
    }

    /// Unpacks the results of a part, and ends it.
    fn unpack_part(&self, parts: &dyn SmallParts, part: usize) -> Result<()> {
        let Some(packing) = self.packing else {
            return Ok(());
        };
        let mut unpacked = Ok(());
        parts.lend(part, &mut |_, columns| {
            unpacked = packing.unpack(&self.results, columns)
        });
        unpacked.map_err(|_| nothing_error("to unpack"))?;
        parts.finish_part(part)
    }
}

impl SmallFitter for NullSmallFitter {
    fn fit(&mut self, parts: &dyn SmallParts) -> Result<()> {
        let NullSmallFitter { problem, rows } = self;
        let parts_per_turn = (problem.capacity / PART).max(1);
        rows.resize_with(parts_per_turn, NullRows::default);
        for first in (0..parts.count()).step_by(parts_per_turn) {
            let range = first..(first + parts_per_turn).min(parts.count());
            threads::in_pool(|| {
                let rows_of_parts = rows.par_iter_mut().zip(range.clone());
                rows_of_parts.for_each(|(rows, part)| rows.pack_part(problem, parts, part));
                rows.par_iter()
                    .zip(range)
                    .try_for_each(|(rows, part)| rows.unpack_part(parts, part))
            })?;
        }
        Ok(())
    }
}

/// Appends values to the staged data. Integers are left out, because they are few.
fn stage_values(values: &Values, staged: &mut Vec<f32>) {
    match values {
        Values::F32(values) => staged.extend_from_slice(values),
        Values::F64(values) => staged.extend(values.iter().map(|x| *x as f32)),
        Values::Blocks(blocks) => blocks
            .iter()
            .for_each(|block| staged.extend_from_slice(block)),
        Values::I32(_) => {}
    }
}

/// Returns the error that the device has computed nothing.
fn nothing_error(what: &str) -> Error {
    Error::Usage(format!(
        "the device `null` computes nothing, and has nothing {what}"
    ))
}
