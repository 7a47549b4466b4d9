//! `popfit-bench gpu-kernels`: the time of a round on a GPU, and of each of its kernels, by the number of members. All
//! members take part in every round, as nothing lists those that are left.

use std::path::PathBuf;
use std::sync::Arc;

use popfit::low_level::Job;
use popfit::low_level::gpu::GpuDevice;
use popfit::low_level::recording::{Recording, Scope, Values};
use popfit::low_level::solver::{Backend as _, Batch, LevenbergMarquardt};
use popfit_cli::{Failure, line};

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
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,32,256,2048,8192,16384,65535"
    )]
    members: Vec<usize>,
    /// Rounds of a measurement
    #[arg(long, value_name = "N", default_value_t = 16)]
    rounds: u32,
}

/// Prints the milliseconds of a round and what it saves to leave out each kernel, a line for each number of members as
/// soon as it is known.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let device = GpuDevice::parse(&arguments.device)?;
    let Job { recording, batch } = of_spectrum(&arguments.model, &arguments.spectra)?.linearise;
    let settings = LevenbergMarquardt::default();
    let most = device.capacity(&recording, None)?;
    line(format_args!(
        "{}, {} rounds in a pass",
        device.name(),
        arguments.rounds
    ));
    let mut has_head = false;
    for &members in &arguments.members {
        if members > most {
            line(format_args!(
                "{members} members do not fit into the device's memory; {most} do"
            ));
            continue;
        }
        let batch = repeated(&recording, &batch, members);
        let times = match device.round_times(recording.clone(), &settings, &batch, arguments.rounds)
        {
            Ok(times) => times,
            Err(error) => {
                line(format_args!("{members} members: {error}"));
                continue;
            }
        };
        if !has_head {
            let stems: Vec<&str> = times.kernels.iter().map(|(stem, _)| *stem).collect();
            line(format_args!(
                "members; ms per round; µs per round and member; ms of {}",
                stems.join(", ")
            ));
            has_head = true;
        }
        let kernels: Vec<String> = times
            .kernels
            .iter()
            .map(|(_, seconds)| format!("{:.4}", 1e3 * seconds))
            .collect();
        let each = 1e6 * times.seconds / members as f64;
        line(format_args!(
            "{members}; {:.4}; {each:.3}; {}",
            1e3 * times.seconds,
            kernels.join(", ")
        ));
    }
    Ok(())
}

/// Returns a batch of one spectrum so many times, each with its only start.
fn repeated(recording: &Recording, one: &Batch, count: usize) -> Batch {
    let block = |values: &Values| match values {
        Values::F32(values) => Values::Blocks(vec![values.clone(); count]),
        Values::F64(values) => {
            let one: Arc<Vec<f32>> = Arc::new(values.iter().map(|x| *x as f32).collect());
            Values::Blocks(vec![one; count])
        }
        Values::I32(values) => Values::I32(Arc::new(values.repeat(count))),
        Values::Blocks(blocks) => Values::Blocks(vec![blocks[0].clone(); count]),
    };
    let blocks = one
        .blocks
        .iter()
        .map(|(id, values)| match recording.block(*id).scope {
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
        is_evaluation: false,
    }
}
