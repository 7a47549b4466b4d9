//! `popfit-bench nist`: the NIST StRD problems of nonlinear regression on every solver, in digits of agreement with the
//! certified answers.
//!
//! Of Lanczos1 no fit in f64 has the standard deviations: its residuals are 1e-13 of its data, whose rounding to f64 is
//! 1e-16 of them. In 60-digit arithmetic the rounded data give 3.4 digits, those that are printed 10.6
//! (`tests/python/check_lanczos1.py`).

use popfit::{CurveFit, CurveFitter, Device, Solver, Status};

use popfit_cli::{Failure, cells, line, print};
use popfit_testing::nist::{NistProblem, digits, problems};

/// Digits at which a run counts as solved, and those at which its standard deviations count as right.
const SOLVED: f64 = 4.0;
const RIGHT: f64 = 6.0;

#[derive(clap::Args)]
pub struct Arguments {
    /// cpu, gpu, gpu:N or gpu:NAME; without, the CPU and the best GPU, software included
    #[arg(long, value_name = "D")]
    device: Option<String>,
}

/// One way to solve them all; the settings are the same for every problem.
struct Way {
    name: &'static str,
    device: Device,
    solver: Solver,
    differences: bool,
    polish: bool,
}

/// One fit.
struct End {
    /// Digits of the worst parameter, and of the worst standard deviation.
    parameters: f64,
    errors: f64,
    status: Status,
}

/// Fits NIST's problems; prints the correct digits by problem, start and solver, and how the runs ended.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let devices = match &arguments.device {
        Some(name) => vec![name.parse::<Device>()?],
        None => std::iter::once(Device::cpu())
            .chain("gpu".parse::<Device>().ok())
            .collect(),
    };
    let problems = problems()?;
    let ways: Vec<Way> = devices.iter().flat_map(ways).collect();
    let mut columns = Vec::with_capacity(ways.len());
    for way in &ways {
        columns.push(column(way, &problems).map_err(Failure::running)?);
    }
    let mut rows = vec![cells(["problem", "start"])];
    rows[0].extend(ways.iter().map(|way| way.name.to_owned()));
    for (k, problem) in problems.iter().enumerate() {
        for start in 0..2 {
            let mut row = vec![problem.name.clone(), (start + 1).to_string()];
            row.extend(
                columns
                    .iter()
                    .map(|column| format!("{:.1}", column[2 * k + start].parameters)),
            );
            rows.push(row);
        }
    }
    rows.extend(totals(&columns));
    print(&rows);
    line(format_args!(
        "\ndigits of the worst parameter (log relative error, at most 11); solved: at least {SOLVED}"
    ));
    line(format_args!(
        "errors: standard deviations of which the worst has at least {RIGHT} digits (Lanczos1's data, once they are \
         f64, leave 3.4 of them); below, how the runs ended"
    ));
    for device in &devices {
        line(device.name());
    }
    Ok(())
}

/// Returns the ways (solver and settings) in which the problems are solved on this device.
fn ways(device: &Device) -> Vec<Way> {
    let lm: Solver = CurveFitter::LEVENBERG_MARQUARDT.into();
    let way = |name, polish| Way {
        name,
        device: device.clone(),
        solver: lm,
        differences: false,
        polish,
    };
    if device.name() != Device::cpu().name() {
        return vec![way("lm, gpu f32", false), way("lm, gpu, polished", true)];
    }
    vec![
        way("lm", true),
        Way {
            differences: true,
            ..way("lm, differences", true)
        },
        Way {
            solver: CurveFitter::NELDER_MEAD.into(),
            ..way("nelder-mead", true)
        },
    ]
}

/// Solves every problem in this way, from its first and from its second start, and returns how each run ended.
fn column(way: &Way, problems: &[NistProblem]) -> popfit::Result<Vec<End>> {
    let mut column = Vec::with_capacity(2 * problems.len());
    for problem in problems {
        let fitter = CurveFitter::new(problem.model(way.differences), way.device.clone())
            .solver(way.solver)
            .polish(way.polish);
        let end = |fit: &CurveFit| End {
            parameters: digits(&fit.parameters, &problem.certified),
            errors: digits(&fit.errors, &problem.certified_errors),
            status: fit.status,
        };
        column.extend(problem.fit(&fitter)?.iter().map(end));
    }
    Ok(column)
}

/// Returns the table's last rows: runs solved, standard errors that are right, and runs by status.
fn totals(columns: &[Vec<End>]) -> Vec<Vec<String>> {
    let row = |name: &str, counts: &dyn Fn(&End) -> bool| {
        let count = |column: &Vec<End>| {
            format!(
                "{} of {}",
                column.iter().filter(|end| counts(end)).count(),
                column.len()
            )
        };
        [cells([name, ""]), columns.iter().map(count).collect()].concat()
    };
    let mut statuses: Vec<Status> = columns.iter().flatten().map(|end| end.status).collect();
    statuses.sort_by_key(|status| -status.code());
    statuses.dedup();
    let mut rows = vec![
        row("solved", &|end| end.parameters >= SOLVED),
        row("errors", &|end| end.errors >= RIGHT),
    ];
    rows.extend(
        statuses
            .into_iter()
            .map(|status| row(status.name(), &|end| end.status == status)),
    );
    rows
}
