//! popfit beside argmin and levenberg-marquardt, on this machine, in one run: the same data, starts, objective and
//! tolerance. The peers evaluate popfit's own model on the CPU, a fit at a time.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use popfit::low_level::AvailableDevices;
use popfit::{Device, Error, OutputFile};
use popfit_cli::{Failure, cells, line, print};
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde::Serialize;

use super::peers::Peer;
use super::race::{self, Run};
use super::score::{Row, best};
use super::workload::Workload;
use super::{machine, scaling};

#[derive(clap::Args)]
pub struct Arguments {
    /// Few fits and little time for each solver: to see that it runs
    #[arg(long)]
    quick: bool,
    /// Write the numbers here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A GPU beside the CPU: gpu, gpu:N or gpu:NAME; without, all but software ones
    #[arg(long, value_name = "D")]
    device: Option<String>,
    /// Leave out the other crates' solvers
    #[arg(long)]
    without_peers: bool,
    /// popfit alone, instead: what a fit costs by the number of spectra, starts, pixels and labels
    #[arg(long)]
    scaling: bool,
    /// File in which --scaling draws its plot
    #[arg(
        long,
        value_name = "FILE.svg",
        requires = "scaling",
        default_value = "scaling.svg"
    )]
    plot: PathBuf,
    /// Replace the files of --json and --plot if they exist
    #[arg(long)]
    overwrite: bool,
}

/// Content of the file that `--json` writes.
#[derive(Serialize)]
struct Report {
    machine: String,
    versions: BTreeMap<String, String>,
    /// Description of each workload.
    data: BTreeMap<&'static str, String>,
    rows: Vec<Row>,
}

/// Times every solver on every workload and device; prints tables, the machine and versions, and writes a JSON file.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    // before the run, which would be in vain
    let create = |path: &PathBuf| OutputFile::create(path, arguments.overwrite);
    let json = arguments.json.as_ref().map(create).transpose()?;
    let plot = arguments
        .scaling
        .then(|| create(&arguments.plot))
        .transpose()?;
    let gpus = gpus(arguments.device.as_deref())?;
    if let Some(plot) = plot {
        let devices = [vec![Device::cpu()], gpus].concat();
        return scaling::run(&devices, arguments.quick, scaling::Outputs { plot, json });
    }
    let (one, all) = (pool(1)?, pool(0)?);
    let budget = Duration::from_secs_f64(if arguments.quick { 0.2 } else { 6.0 });
    let mut report = Report {
        machine: machine::machine(&gpus),
        versions: machine::versions(),
        data: BTreeMap::new(),
        rows: Vec::new(),
    };
    for workload in Workload::all(arguments.quick)? {
        let mut runs = Vec::new();
        for (name, solver) in workload.solvers() {
            for (device, pool) in gpus
                .iter()
                .map(|gpu| (gpu.clone(), &all))
                .chain([(Device::cpu(), &all), (Device::cpu(), &one)])
            {
                tell(&workload, name, pool);
                runs.push(
                    race::popfit(&workload, name, solver, &device, pool, budget)
                        .map_err(Failure::running)?,
                );
            }
        }
        for peer in Peer::ALL.into_iter().filter(|_| !arguments.without_peers) {
            for pool in [&all, &one] {
                tell(&workload, peer.name(), pool);
                runs.push(race::peer(&workload, peer, pool, budget).map_err(Failure::running)?);
            }
        }
        let rows = rows(&workload, runs).map_err(Failure::running)?;
        print_rows(&rows, &workload);
        report.data.insert(workload.name(), workload.data());
        report.rows.extend(rows);
    }
    line(EXPLANATION);
    if arguments.quick {
        line(QUICK);
    }
    let versions: Vec<String> = report
        .versions
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    line(format_args!(
        "\n{}\n{}",
        report.machine,
        versions.join(", ")
    ));
    json.map_or(Ok(()), |file| write(file, &report))
}

const EXPLANATION: &str = "\nreached: share of the fits within 1e-3 of the lowest objective that any solver found, in \
    f64; fits that stop short or fail count as not reached. to 99 %: seconds for all fits of the workload at this \
    rate, where at least 99 % reach it. fits: how many were done; a solver does as many as it has time for, from the \
    first on. Evaluations with derivatives and without count alike; GF/s are those of matrix products and sums over \
    pixels that are made.";

const QUICK: &str = "--quick: that all of it runs. Its fits are too few, and its times too short, for ratios: these \
    are those of the full run.";

/// Prints on standard error what is timed now, as all of it takes a quarter of an hour.
fn tell(workload: &Workload, solver: &str, pool: &ThreadPool) {
    let _ = writeln!(
        std::io::stderr(),
        "{}: {solver}, {} threads",
        workload.name(),
        pool.current_num_threads()
    );
}

/// Returns the GPUs to measure: the one named (none for `cpu`), else all that are not software.
fn gpus(named: Option<&str>) -> Result<Vec<Device>, Failure> {
    if let Some(name) = named {
        return Ok(if name == "cpu" {
            Vec::new()
        } else {
            vec![name.parse::<Device>()?]
        });
    }
    let all = AvailableDevices::find_all()
        .devices
        .into_iter()
        .filter(|d| d.selector != "cpu");
    let (software, hardware): (Vec<_>, Vec<_>) = all.partition(|d| d.software);
    for left_out in software {
        let _ = writeln!(
            std::io::stderr(),
            "{0} is software: --device {0} has it take part",
            left_out.selector
        );
    }
    Ok(hardware
        .iter()
        .map(|d| d.selector.parse::<Device>())
        .collect::<Result<_, _>>()?)
}

/// Returns a pool of this many threads; 0 means one for each core.
fn pool(threads: usize) -> Result<ThreadPool, Failure> {
    let built = ThreadPoolBuilder::new().num_threads(threads).build();
    built.map_err(|error| Failure::running(Error::System(format!("threads: {error}"))))
}

/// Returns each run's table row, its answers compared with the best answer that any run or the reference found.
fn rows(workload: &Workload, runs: Vec<Run>) -> popfit::Result<Vec<Row>> {
    let mut objectives = Vec::with_capacity(runs.len() + 1);
    for run in &runs {
        objectives.push(workload.judge(&run.answers)?);
    }
    let most = runs.iter().map(|run| run.answers.len()).max().unwrap_or(0);
    objectives.push(workload.judge(&workload.reference(most)?.by_fit(most))?);
    let best = best(&objectives);
    let pairs = runs.into_iter().zip(&objectives);
    Ok(pairs
        .map(|(run, found)| Row::new(workload.name(), workload.fits(), run, found, &best))
        .collect())
}

/// Prints a workload's description and a table with a row per run.
fn print_rows(rows: &[Row], workload: &Workload) {
    let head = [
        "solver",
        "device",
        "fits",
        "fits/s",
        "evaluations",
        "reached",
        "median gap",
        "to 99 %",
        "GF/s",
    ];
    let mut table = vec![cells(head)];
    for row in rows {
        table.push(vec![
            row.solver.into(),
            row.device.clone(),
            row.fits.to_string(),
            format!("{:.1}", row.fits_per_s),
            format!("{:.1}", row.evaluations_per_fit),
            format!("{:.4}", row.within),
            format!("{:.1e}", row.gap_median),
            row.seconds.map_or("-".into(), |s| format!("{s:.3} s")),
            format!("{:.2}", row.gflops),
        ]);
    }
    line(format_args!("\n{}: {}", workload.name(), workload.data()));
    print(&table);
}

/// Writes a report to the file as JSON.
pub fn write(file: OutputFile, report: &impl Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(report).map_err(|error| Failure::usage(error.to_string()))?;
    file.write(text).map_err(Failure::running)
}
