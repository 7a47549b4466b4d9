//! The kernels of a recording as text, without a device, so that compilers for cards that are not present can be tried
//! on them.

use super::choice::{Kernels, NVIDIA_VENDOR};
use super::fusion::{AllowedFusions, MAX_STORAGE_BUFFERS};
use super::layout::Layout;
use super::{small, stages};
use crate::error::Result;
use crate::kernels::product::Products;
use crate::recording::Recording;
use crate::solver::LevenbergMarquardt;
use crate::solver::small::packing::Packing;
use crate::solver::small::{Shape, SmallProblem};

/// A kernel as a device compiles it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KernelSource {
    /// Name of its file in `shaders/`. Several kernels of a recording may have the same.
    pub stem: &'static str,
    /// WGSL, whose entry point is `main` and whose bindings are storage buffers of group 0.
    pub wgsl: String,
}

/// Returns the kernels of a round of a population of `capacity` starts, in their order, and those by which members
/// enter and leave, as NVIDIA's cards get them.
///
/// # Errors
/// Returns [`Error::Model`](crate::Error::Model) for a recording that no GPU can run.
pub fn kernel_sources(
    recording: &Recording,
    settings: &LevenbergMarquardt,
    capacity: usize,
) -> Result<Vec<KernelSource>> {
    let Kernels { product, fused } =
        Kernels::of_class(wgpu::DeviceType::DiscreteGpu, NVIDIA_VENDOR);
    let workgroup_bytes = wgpu::Limits::default().max_compute_workgroup_storage_size;
    let fusions = AllowedFusions {
        fused,
        storage_buffers: MAX_STORAGE_BUFFERS,
        workgroup_bytes,
    };
    let products = Products {
        full: product,
        halves: product,
    };
    let layout = Layout {
        parameters: recording.parameters.len(),
        capacity,
    };
    let stage_groups = fusions.group_stages(recording, products);
    let mut shaders = stages::round_shaders(recording, &stage_groups, layout, settings, products)?;
    shaders.extend(stages::transfer_shaders(recording, layout, products));
    Ok(shaders
        .iter()
        .map(|shader| KernelSource {
            stem: shader.stem,
            wgsl: shader.source().text,
        })
        .collect())
}

/// Returns the kernel of small fits that share a grid and have neither weights nor bounds.
///
/// # Errors
/// Returns [`Error::Model`](crate::Error::Model) for a setting that f32 does not hold.
pub fn small_fit_source(problem: &SmallProblem) -> Result<KernelSource> {
    let shape = Shape {
        own_grid: false,
        is_weighted: false,
        own_units: false,
        is_bounded: false,
    };
    let source = small::small_source(
        problem,
        Packing::new(problem, shape),
        problem.tolerances.reduction,
    )?;
    Ok(KernelSource {
        stem: "small",
        wgsl: source.text,
    })
}
