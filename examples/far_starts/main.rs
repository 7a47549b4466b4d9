//! The number of fits that find the best minimum from starts far away: `cargo run --release --example far_starts
//! [FILE]`. If FILE is given, the problems go there, for `benches/peers/far_starts.py`, which counts scipy's.

mod problems;

use std::fs::File;
use std::io::{BufWriter, Write};

use popfit::Formula;
use problems::{Far, POINTS, Problems, arrived, problems};

/// Curves of each family and kind of amplitude.
const COUNT: usize = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut file = std::env::args()
        .nth(1)
        .map(File::create)
        .transpose()?
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
                write(file, far, &problems, &lowest)?;
            }
        }
        println!(
            "{far:?}: {found} of {all}, {:.1} %",
            100.0 * found as f64 / all as f64
        );
    }
    Ok(())
}

/// One line of JSON a curve.
fn write(
    file: &mut impl Write,
    far: Far,
    Problems {
        text,
        amplitudes,
        x,
        y,
        starts,
        ..
    }: &Problems,
    lowest: &[f64],
) -> Result<(), Box<dyn std::error::Error>> {
    let formula = Formula::parse(text)?;
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
