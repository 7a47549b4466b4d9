//! The GPU device: a whole round of a recording, stage by stage over all its members, through wgpu.
//!
//! The stages of a population become WGSL kernels (`shaders/`), into which constants, sizes and the layout of buffers
//! are generated. Several rounds are recorded in one submission and one pass. Each dispatch has the size that `compact`
//! wrote, and at the end the host reads back the list of the members that are still active. A kernel collects the
//! numbers of members that leave, and places those of members that enter, so that no others are copied (`transfer.rs`).
//!
//! Software adapters have at most 512 starts in flight. Where a submission takes over half a second, the host reads the
//! list after every round (`solver/rounds.rs`), so that a cancelled run need not wait.

mod adapter;
mod buffers;
mod cache;
mod choice;
mod commands;
mod context;
mod counts;
mod faults;
mod fusion;
#[cfg(test)]
mod fusion_tests;
mod known_answer;
mod layout;
mod listing;
mod member_list;
mod missing;
mod open_devices;
mod pipelines;
mod plausible;
mod population;
mod probe;
mod readback;
mod round_times;
mod small;
mod stages;
mod step_constants;
#[cfg(test)]
mod step_tests;
#[cfg(test)]
mod tests;
mod timing;
mod transfer;
#[cfg(test)]
mod transfer_tests;
mod trusted;
pub(crate) mod user;
mod visible;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::kernels::product::TILES;
use crate::kernels::shader::MAX_MEMBERS;
use crate::recording::Recording;
use crate::solver::profile::DeviceCalls;
use crate::solver::small::{SmallFitter, SmallModel, SmallProblem};
use crate::solver::{Backend, LevenbergMarquardt, Population};
use crate::threads;
use adapter::AdapterChoice;
pub use adapter::{AdapterDescription, adapters, hardware, missing_hardware};
use context::{GpuContext, Options};
#[doc(hidden)]
pub use faults::{Fault, Faults};

pub use listing::{KernelSource, kernel_sources, small_fit_source};
pub use missing::driver_to_add;
pub use open_devices::close;
pub use round_times::RoundTimes;

/// Maximum number of workers that share a discrete GPU.
const MAX_WORKERS: usize = 8;
/// Number of starts in flight that keep a software adapter busy.
const SOFTWARE_STARTS_IN_FLIGHT: usize = 512;
/// Number of starts in flight that keep a card busy.
const CARD_STARTS_IN_FLIGHT: usize = 8192;

/// One GPU adapter, whose arithmetic has been probed.
#[derive(Clone, Debug)]
pub struct GpuDevice {
    /// Shared by all clones of the device, so that a device that is opened again replaces the old one for all of them.
    current: Arc<Mutex<Arc<GpuContext>>>,
}

impl GpuDevice {
    /// Opens the adapter of this index, which [`AdapterDescription::index`] gives.
    ///
    /// # Errors
    /// Returns [`Error::NoAdapter`] if there is no such adapter, [`Error::Usage`] if the environment variable
    /// `POPFIT_GPU_TILES` or `POPFIT_GPU_FUSION` has an invalid value, [`Error::DeviceUntrusted`] if the adapter's
    /// arithmetic fails the probe, and otherwise the error with which the adapter refuses to work: [`Error::Device`],
    /// [`Error::DeviceLost`] or [`Error::OutOfMemory`].
    pub fn open(index: usize) -> Result<GpuDevice> {
        GpuDevice::choose(AdapterChoice::Index(index))
    }

    /// Opens the best adapter: discrete, integrated, others, software last.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn best() -> Result<GpuDevice> {
        GpuDevice::choose(AdapterChoice::Best)
    }

    /// Opens the best adapter that is not software: what `auto` takes.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn hardware() -> Result<GpuDevice> {
        GpuDevice::choose(AdapterChoice::Hardware)
    }

    /// Opens every discrete and integrated GPU; without one, every other adapter. An adapter that several backends show
    /// is taken once. The list is empty if there is no adapter.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn every() -> Result<Vec<GpuDevice>> {
        adapter::every_gpu()?
            .into_iter()
            .map(GpuDevice::open)
            .collect()
    }

    /// Opens the first adapter whose name contains `part`, in any case.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn by_name(part: &str) -> Result<GpuDevice> {
        GpuDevice::choose(AdapterChoice::Name(part))
    }

    /// Opens the adapter that a text names: `gpu` (the best), `gpu:N` (its index), `gpu:pci=PLACE` (its place on the
    /// PCI bus) or `gpu:NAME` (a part of its name).
    ///
    /// # Errors
    /// The errors of [`open`](Self::open); [`Error::InvalidArgument`] for any other text.
    pub fn parse(text: &str) -> Result<GpuDevice> {
        match text.strip_prefix("gpu") {
            Some("") => GpuDevice::best(),
            Some(rest) if rest.starts_with(':') && rest.len() > 1 => match rest[1..].parse() {
                Ok(index) => GpuDevice::open(index),
                Err(_) => GpuDevice::choose(match rest[1..].strip_prefix("pci=") {
                    Some(place) => AdapterChoice::Pci(place),
                    None => AdapterChoice::Name(&rest[1..]),
                }),
            },
            _ => Err(Error::invalid(
                "device",
                format!("{text} names no GPU: gpu, gpu:N, gpu:pci=PLACE or gpu:NAME"),
            )),
        }
    }

    /// Returns whether the adapter is software that computes on the processor.
    #[must_use]
    pub fn is_software(&self) -> bool {
        self.context().software
    }

    /// Returns the same device with its products computed by the `which`-th tiled kernel (for tests). Products made
    /// before keep their kernel.
    #[doc(hidden)]
    #[must_use]
    pub fn with_tiles(self, which: usize) -> GpuDevice {
        self.reopen_with(|fresh| fresh.product = OnceLock::from(TILES[which % TILES.len()]))
    }

    /// Returns the same device with its products of halves computed by cooperative matrices, which a software adapter
    /// would not choose by itself (for tests). `None` where there are none.
    #[doc(hidden)]
    #[must_use]
    pub fn with_cooperative_products(self) -> Option<GpuDevice> {
        let device = self.reopen_with(|fresh| fresh.halves = OnceLock::new());
        let context = device.with_matrices();
        let _ = context.halves.set(context.matrix_kernel()?);
        Some(device)
    }

    /// Returns the same device with labels fused into the kernel of the priors, activations into that of their product
    /// and hidden layers into one (tiles alone allow these two) if `layers`, and the stages before the sums over pixels
    /// into theirs if `sums` (for tests). Populations made before keep their
    /// kernels.
    #[doc(hidden)]
    #[must_use]
    pub fn with_fusion(self, layers: bool, sums: bool) -> GpuDevice {
        let fused = fusion::Fused {
            layers,
            sums,
            rows: sums,
        };
        self.reopen_with(|fresh| fresh.fused = OnceLock::from(fused))
    }

    /// Returns a device of the same adapter, opened once more, with faults that a test injects.
    #[doc(hidden)]
    pub fn with_faults(self, faults: Arc<Faults>) -> Result<GpuDevice> {
        let old = self.context();
        // The new device does not share the time limit of the old one.
        let limit = Arc::new(AtomicU64::new(old.options.limit.load(Ordering::Relaxed)));
        let options = Options {
            faults: Some(faults),
            limit,
            ..old.options.clone()
        };
        Ok(GpuDevice::from_context(GpuContext::open(
            old.adapter.clone(),
            options,
        )?))
    }

    /// Returns a device of the same adapter, opened once more, whose populations begin with NaN in all buffers, so that
    /// what a kernel fails to write is seen (for tests).
    #[doc(hidden)]
    pub fn with_poison(self) -> Result<GpuDevice> {
        let old = self.context();
        let options = Options {
            poison: true,
            ..old.options.clone()
        };
        Ok(GpuDevice::from_context(GpuContext::open(
            old.adapter.clone(),
            options,
        )?))
    }

    /// Opens the device once more where a fault has left it of no use (for tests).
    #[doc(hidden)]
    pub fn revive(&self) -> Result<()> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.wait_for(None, None).is_err() {
            *current = Arc::new(current.reopen()?);
        }
        Ok(())
    }

    /// Returns the open device of the chosen adapter, or opens and probes it; fails if there is none or a probe fails.
    fn choose(choice: AdapterChoice) -> Result<GpuDevice> {
        open_devices::open_or_reuse(choice)
    }

    /// Makes a device of an open context.
    fn from_context(context: GpuContext) -> GpuDevice {
        GpuDevice {
            current: Arc::new(Mutex::new(Arc::new(context))),
        }
    }

    /// Returns the device opened once more, with its context changed by `change`, or itself where that fails (for
    /// tests). The open device itself is not changed, because all of the process shares it.
    fn reopen_with(self, change: impl FnOnce(&mut GpuContext)) -> GpuDevice {
        match self.context().reopen() {
            Ok(mut fresh) => {
                change(&mut fresh);
                GpuDevice::from_context(fresh)
            }
            Err(_) => self,
        }
    }

    /// Opens and probes the device again if it has failed.
    fn reopen_if_failed(&self) -> Result<()> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.check_health().is_err() {
            let fresh = current.reopen()?;
            probe::probe_arithmetic(&fresh, true)?;
            *current = Arc::new(fresh);
        }
        Ok(())
    }

    /// Returns the open context, reopened with cooperative matrices first if the adapter has them and they are right.
    fn with_matrices(&self) -> Arc<GpuContext> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if !current.options.cooperative && adapter::matrix_kernel(&current.adapter).is_some() {
            // If cooperative matrices do not work, the device goes on without them.
            if let Ok(fresh) = current
                .with_matrices()
                .and_then(|fresh| probe::probe_arithmetic(&fresh, true).map(|()| fresh))
            {
                *current = Arc::new(fresh);
            }
        }
        current.clone()
    }

    /// Returns the context in which a recording runs: with cooperative matrices where it has halves.
    fn context_of(&self, recording: &Recording) -> Arc<GpuContext> {
        if recording.has_halves() {
            self.with_matrices()
        } else {
            self.context()
        }
    }

    /// Returns the context that is open at present; a device that is opened again gets another.
    fn context(&self) -> Arc<GpuContext> {
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Plans the sizes of the GPU buffers of a population of `capacity` members.
    fn plan_buffers(&self, recording: &Recording, capacity: usize) -> buffers::BufferPlan {
        let layout = layout::Layout {
            parameters: recording.parameters.len(),
            capacity,
        };
        let context = self.context();
        let products = context.product_kernels(recording.has_halves());
        let unwritten = context
            .allowed_fusions()
            .unwritten_buffers(recording, products);
        buffers::BufferPlan::new(recording, layout, recording.stages.len() + 2, &unwritten)
    }
}

impl Backend for GpuDevice {
    fn name(&self) -> String {
        self.context().name.clone()
    }

    fn renew(&self, failure: &Error) -> Result<bool> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // A device that was only short of memory need not be opened again.
        if current.check_health().is_err() || !matches!(failure, Error::OutOfMemory { .. }) {
            let fresh = current.reopen()?;
            probe::probe_arithmetic(&fresh, true)?;
            *current = Arc::new(fresh);
        }
        Ok(true)
    }

    fn set_limit(&self, limit: Duration) {
        let milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1);
        self.context()
            .options
            .limit
            .store(milliseconds, Ordering::Relaxed);
    }

    fn runs_wgsl(&self) -> bool {
        true
    }

    /// Returns the number of starts in flight that keep the adapter busy. A processor's few cores need few, and whoever
    /// cancels a run waits for all that has been submitted. A round of a card takes half a millisecond however few they
    /// are, and 3 ms for 4,096 (of the demo's model).
    fn enough(&self) -> usize {
        if self.is_software() {
            SOFTWARE_STARTS_IN_FLIGHT
        } else {
            CARD_STARTS_IN_FLIGHT
        }
    }

    /// Returns 2, or half of the processor's threads, at most 8, on a discrete GPU: it is faster than the few threads
    /// that prepare its spectra.
    fn workers(&self) -> usize {
        let is_card =
            self.context().adapter.get_info().device_type == wgpu::DeviceType::DiscreteGpu;
        if is_card {
            (threads::thread_count() / 2).clamp(2, MAX_WORKERS)
        } else {
            2
        }
    }

    fn memory(&self) -> Option<u64> {
        Some(self.context().memory)
    }

    fn calls(&self) -> DeviceCalls {
        self.context().counts.snapshot()
    }

    fn capacity(&self, recording: &Recording, memory: Option<u64>) -> Result<usize> {
        let context = self.context();
        let memory = memory.unwrap_or(context.memory / 2);
        let fits = |capacity| {
            self.plan_buffers(recording, capacity)
                .is_within_limits(&context.limits, memory)
        };
        if !fits(1) {
            let bytes = self.plan_buffers(recording, 1).total_bytes();
            return Err(context.too_large(format!(
                "one spectrum needs {bytes} bytes, there are {memory}"
            )));
        }
        // Bisect for the largest population that fits.
        let mut fitting = 1;
        let mut too_large = MAX_MEMBERS + 1;
        while too_large - fitting > 1 {
            let middle = fitting.midpoint(too_large);
            if fits(middle) {
                fitting = middle;
            } else {
                too_large = middle;
            }
        }
        Ok(fitting)
    }

    fn population(
        &self,
        recording: Arc<Recording>,
        settings: &LevenbergMarquardt,
        capacity: usize,
    ) -> Result<Box<dyn Population>> {
        Ok(Box::new(population::GpuPopulation::new(
            self.context_of(&recording),
            recording,
            settings,
            capacity,
        )?))
    }

    fn small_fitter(&self, problem: SmallProblem) -> Result<Option<Box<dyn SmallFitter>>> {
        // WGSL has no functions of f64. The CPU makes the fits that the GPU does not support.
        let is_plain = problem.estimator.is_least_squares() && problem.priors.is_empty();
        let is_small = problem.parameters <= small::MAX_SMALL_PARAMETERS
            && problem.points <= small::MAX_SMALL_POINTS;
        let is_supported = is_plain && is_small && matches!(problem.model, SmallModel::Single(..));
        Ok(is_supported.then(|| {
            Box::new(small::GpuSmallFitter::new(self.context(), problem)) as Box<dyn SmallFitter>
        }))
    }
}
