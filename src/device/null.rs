//! A device that computes nothing: every fit ends in its first round, where it began, and what a card would be sent is
//! copied once. A run on it takes as long as the host alone does, on any machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Device;
use crate::buffers::LossSums;
use crate::error::{Error, Result};
use crate::math::triangle::{packed_index, packed_length};
use crate::recording::{BufferId, Recording, Values};
use crate::solver::small::{SmallBatch, SmallColumns, SmallFitter, SmallProblem, WAITING};
use crate::solver::{self, Batch, Method, Outcome, Pending, Places, Population, Status};
use crate::threads;

/// Most members of a population: those of a card with much memory.
const MOST_MEMBERS: usize = 65_535;
/// Most workers of a run, as of a card.
const MOST_WORKERS: usize = 8;

/// The device `null`, for tests and benchmarks of the host. It stands for a discrete GPU of infinite speed: so many
/// workers share it, and its batches are as large. Nobody verifies its results, which are no fits.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullDevice;

impl From<NullDevice> for Device {
    fn from(device: NullDevice) -> Device {
        Device::one(device)
    }
}

impl solver::Device for NullDevice {
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
        (threads::count() / 2).clamp(2, MOST_WORKERS)
    }

    fn capacity(&self, _: &Recording, _: Option<u64>) -> Result<usize> {
        Ok(MOST_MEMBERS)
    }

    fn population(&self, recording: Arc<Recording>, method: &Method, capacity: usize) -> Result<Box<dyn Population>> {
        let (staged, waiting, starts) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Ok(Box::new(NullPopulation { recording, lanes: method.lanes(), capacity, staged, waiting, starts }))
    }

    fn small_fitter(&self, problem: SmallProblem) -> Result<Option<Box<dyn SmallFitter>>> {
        Ok(Some(Box::new(NullSmallFitter { points: problem.points, staged: Vec::new() })))
    }
}

/// Members that end where they began.
struct NullPopulation {
    recording: Arc<Recording>,
    lanes: usize,
    capacity: usize,
    /// Copy of the last spectra that entered, in place of the memory from which a card copies.
    staged: Vec<f32>,
    /// By slot, the starts of the members that have entered since the last round.
    waiting: BTreeMap<usize, Vec<f64>>,
    /// The same of those that have ended.
    starts: BTreeMap<usize, Vec<f64>>,
}

impl NullPopulation {
    /// Returns the outcome of a member that converged in its first round at its start.
    fn outcome(&self, slot: usize) -> Result<Outcome> {
        let parameters = self.recording.parameters.len();
        let Some(start) = self.starts.get(&slot) else { return Err(nothing("in this slot")) };
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

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn clear(&mut self) {
        self.waiting.clear();
        self.starts.clear();
    }

    fn enter<'a>(&'a mut self, batch: &'a Batch, places: &'a Places) -> Pending<'a, ()> {
        self.staged.clear();
        for (_, values) in &batch.blocks {
            stage(values, &mut self.staged);
        }
        let parameters = self.recording.parameters.len();
        let starts = batch.starts.chunks_exact(parameters).map(<[f64]>::to_vec);
        self.waiting.extend(places.starts.iter().copied().zip(starts));
        Box::pin(async { Ok(()) })
    }

    fn advance(&mut self, _: u32) -> Pending<'_, usize> {
        self.starts.append(&mut self.waiting);
        Box::pin(async { Ok(0) })
    }

    fn active(&mut self) -> Pending<'_, Vec<usize>> {
        Box::pin(async { Ok(self.waiting.keys().copied().collect()) })
    }

    fn read<'a>(&'a mut self, starts: &'a [usize]) -> Pending<'a, Vec<Outcome>> {
        Box::pin(async { starts.iter().map(|slot| self.outcome(*slot)).collect() })
    }

    fn inspect(&mut self, _: BufferId) -> Pending<'_, Vec<f64>> {
        Box::pin(async { Err(nothing("to inspect")) })
    }
}

/// Small fits that end where they began.
struct NullSmallFitter {
    points: usize,
    /// Copy of the data of the fits that are made, as f32.
    staged: Vec<f32>,
}

impl SmallFitter for NullSmallFitter {
    fn fit(&mut self, batch: &SmallBatch<'_>, columns: &mut SmallColumns<'_>) -> Result<()> {
        let parameters = columns.parameters.len() / columns.chi2.len().max(1);
        self.staged.clear();
        for (fit, y) in batch.y.chunks_exact(self.points).enumerate() {
            if columns.status[fit] != WAITING {
                continue;
            }
            self.staged.extend(y.iter().map(|y| *y as f32));
            columns.variances[fit * parameters..][..parameters].fill(1.0);
            (columns.chi2[fit], columns.promises[fit]) = (1.0, 0.0);
            (columns.status[fit], columns.rounds[fit]) = (Status::Ftol.code() as i8, 1);
        }
        Ok(())
    }
}

/// Appends values to what a card would copy. Integers are left out: they are few.
fn stage(values: &Values, staged: &mut Vec<f32>) {
    match values {
        Values::F32(values) => staged.extend_from_slice(values),
        Values::F64(values) => staged.extend(values.iter().map(|x| *x as f32)),
        Values::Blocks(blocks) => blocks.iter().for_each(|block| staged.extend_from_slice(block)),
        Values::I32(_) => {}
    }
}

/// Returns the error that the device has computed nothing.
fn nothing(what: &str) -> Error {
    Error::Usage(format!("the device `null` computes nothing, and has nothing {what}"))
}
