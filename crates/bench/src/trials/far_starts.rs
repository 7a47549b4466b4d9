//! `popfit-bench far-starts`: the number of fits that find the best minimum from starts far away.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use popfit::Formula;
use popfit_cli::Failure;
use popfit_testing::far_starts::{Far, POINTS, Problems, arrived, problems};

use super::io_failure;

/// Curves of each family and kind of amplitude.
const COUNT: usize = 200;

#[derive(clap::Args)]
pub struct Arguments {
    /// File for the problems, as lines of JSON. benches/peers/far_starts.py counts scipy's fits of them
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = arguments.file.clone().unwrap_or_default();
    let file = arguments.file.as_ref().map(File::create).transpose();
    let mut file = file
        .map_err(|source| io_failure(&path, source))?
        .map(BufWriter::new);
    for far in [Far::Amplitudes, Far::Magnitudes, Far::Factors, Far::Signs] {
        let (mut all, mut found) = (0, 0);
        for problems in problems(far, COUNT)? {
            let (fits, lowest) = problems.fit()?;
            let best = arrived(&fits, &lowest);
            let evaluations: u32 = fits.iter().map(|fit| fit.evaluations).sum();
            println!(
                "{far:?}, amplitudes {:5} {best:4} of {COUNT}, {:3} evaluations each  {}",
                problems.amplitudes,
                evaluations as usize / COUNT,
                problems.text
            );
            (all, found) = (all + COUNT, found + best);
            if let Some(file) = &mut file {
                let formula = Formula::parse(problems.text)?;
                write(file, far, &formula, &problems, &lowest)
                    .map_err(|source| io_failure(&path, source))?;
            }
        }
        println!(
            "{far:?}: {found} of {all}, {:.1} %",
            100.0 * found as f64 / all as f64
        );
    }
    Ok(())
}

/// Writes one line of JSON per curve.
fn write(
    file: &mut impl Write,
    far: Far,
    formula: &Formula,
    Problems {
        text,
        amplitudes,
        x,
        y,
        starts,
        ..
    }: &Problems,
    lowest: &[f64],
) -> std::io::Result<()> {
    let names = formula.parameters();
    for ((y, start), lowest) in y.chunks(POINTS).zip(starts.chunks(names.len())).zip(lowest) {
        let kind = format!(
            r#""far": "{far:?}", "amplitudes": "{amplitudes}", "text": "{text}", "names": {names:?}"#
        );
        writeln!(
            file,
            r#"{{{kind}, "x": {x:?}, "y": {y:?}, "start": {start:?}, "lowest": {lowest:e}}}"#
        )?;
    }
    Ok(())
}
