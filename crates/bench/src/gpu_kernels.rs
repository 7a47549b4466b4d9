//! `popfit-bench gpu-kernels`: the time of a round on a GPU, and of each of its kernels, by the number of members.

use std::path::PathBuf;
use std::sync::Arc;

use popfit::low_level::Job;
use popfit::low_level::gpu::GpuDevice;
use popfit::low_level::recording::{Recording, Scope, Values};
use popfit::low_level::solver::{Batch, Device as _, LevenbergMarquardt, Method};
use popfit_cli::{Failure, cells, line, print};

use super::kernels::of_spectrum;

#[derive(clap::Args)]
pub struct Arguments {
    /// Model file
    model: PathBuf,
    /// File of spectra, of which all members fit the first
    spectra: PathBuf,
    /// GPU, as popfit's --device
    #[arg(long, default_value = "gpu")]
    device: String,
    /// Numbers of members
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,32,256,2048,8192,16384,65535")]
    members: Vec<usize>,
    /// Rounds of a measurement
    #[arg(long, value_name = "N", default_value_t = 16)]
    rounds: u32,
}

/// Prints the milliseconds of a round, and what it saves to leave out each kernel.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let device = GpuDevice::parse(&arguments.device)?;
    let Job { recording, batch } = of_spectrum(&arguments.model, &arguments.spectra)?.linearise;
    // nothing that a member can reach ends it, so that all take part in every round
    let method = Method::LevenbergMarquardt(LevenbergMarquardt::default().ftol(f64::MIN_POSITIVE).xtol(0.0));
    let most = device.capacity(&recording, None)?;
    let (some, too_many): (Vec<usize>, Vec<usize>) = arguments.members.iter().partition(|members| **members <= most);
    let mut columns: Vec<Vec<String>> = Vec::new();
    for &members in &some {
        let batch = repeated(&recording, &batch, members);
        let times = device.round_times(recording.clone(), &method, &batch, arguments.rounds)?;
        if columns.is_empty() {
            let stems = times.kernels.iter().map(|(stem, _)| (*stem).to_owned());
            columns.push(["ms a round".to_owned()].into_iter().chain(stems).collect());
            columns[0].extend(cells(["all", "µs a member"]));
        }
        let kernels = times.kernels.iter().map(|(_, seconds)| format!("{:.4}", 1e3 * seconds));
        let mut column: Vec<String> = [members.to_string()].into_iter().chain(kernels).collect();
        column.push(format!("{:.4}", 1e3 * times.seconds));
        column.push(format!("{:.3}", 1e6 * times.seconds / members as f64));
        columns.push(column);
    }
    line(format_args!("{}, {} rounds in a pass", device.name(), arguments.rounds));
    let rows = columns.first().map_or(0, Vec::len);
    print(&(0..rows).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect::<Vec<_>>());
    for members in too_many {
        line(format_args!("{members} members do not fit into the device's memory; {most} do"));
    }
    Ok(())
}

/// Returns a batch of one spectrum so many times, each with its only start.
fn repeated(recording: &Recording, one: &Batch, count: usize) -> Batch {
    let block = |values: &Values| match values {
        Values::F32(values) => Values::Blocks(vec![values.clone(); count]),
        Values::F64(values) => Values::Blocks(vec![Arc::new(values.iter().map(|x| *x as f32).collect()); count]),
        Values::I32(values) => Values::I32(Arc::new(values.repeat(count))),
        Values::Blocks(blocks) => Values::Blocks(vec![blocks[0].clone(); count]),
    };
    let blocks = one.blocks.iter().map(|(id, values)| match recording.block(*id).scope {
        Scope::Spectrum => (*id, block(values)),
        _ => (*id, values.clone()),
    });
    Batch {
        spectra: count,
        blocks: blocks.collect(),
        lower: one.lower.repeat(count),
        upper: one.upper.repeat(count),
        prior_mean: one.prior_mean.repeat(count),
        prior_weight: one.prior_weight.repeat(count),
        group: (0..count as u32).collect(),
        starts: one.starts.repeat(count),
        simplices: Vec::new(),
    }
}
