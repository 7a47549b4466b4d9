//! The wavelengths that data and model share.

use std::path::PathBuf;

use popfit::low_level::checks::{ArmCoverage, measure_coverage};
use popfit::spectra::{Wavelength, open_reader};
use popfit::{Spectra, SpectralFitter};

use crate::Failure;
use crate::rows::{cells, print as columns};

/// Files that have the same coverage, in a row of the table.
struct Row {
    coverage: ArmCoverage,
    first: String,
    files: usize,
    /// Each spectrum has a grid of its own, and this is that of the first one.
    is_own: bool,
}

/// Prints a table of wavelengths that data and model cover and the fit uses: a row per arm, more where files differ.
/// `heads` are the files without their spectra.
pub fn print(fitter: &SpectralFitter, heads: &[Spectra], paths: &[PathBuf]) -> Result<(), Failure> {
    let mut all: Vec<Row> = Vec::new();
    for (head, path) in heads.iter().zip(paths) {
        let is_own = head
            .arms
            .iter()
            .any(|arm| matches!(arm.wavelength, Wavelength::Own(_)));
        // the first spectrum stands for those whose grids differ
        let first = if is_own {
            open_reader(path)?.next_batch(1)?
        } else {
            None
        };
        for coverage in measure_coverage(fitter, first.as_ref().unwrap_or(head))? {
            match all.iter_mut().find(|row| row.coverage == coverage) {
                Some(row) => row.files += 1,
                None => all.push(Row {
                    coverage,
                    first: head.file.to_string(),
                    files: 1,
                    is_own,
                }),
            }
        }
    }
    let mut rows = vec![cells([
        "file",
        "arm",
        "data cover Å",
        "model covers Å",
        "used Å",
        "pixels used",
    ])];
    rows.extend(all.iter().map(Row::cells));
    columns(&rows);
    for Row {
        coverage:
            ArmCoverage {
                name,
                most_unreached,
                used_pixels,
                ..
            },
        first,
        ..
    } in &all
    {
        if *most_unreached > 0 {
            let arm = if name.is_empty() {
                String::new()
            } else {
                format!(", arm {name}")
            };
            crate::stdout::line(format_args!(
                "\nnote: {first}{arm}: the network ends inside the data. Pixels to which velocity, vsini or line spread carry \
                 light from beyond its ends do not count: up to {most_unreached} of {used_pixels} at the bounds of \
                 velocity and vsini"
            ));
        }
    }
    if all.iter().any(|row| row.is_own) {
        crate::stdout::line(
            "(each spectrum has wavelengths of its own: these are of the first one in the file)",
        );
    }
    Ok(())
}

impl Row {
    /// Returns the cells of an arm's row in the printed table.
    fn cells(&self) -> Vec<String> {
        let ArmCoverage {
            name,
            data,
            model,
            used,
            pixels,
            used_pixels,
            ..
        } = &self.coverage;
        let more = match self.files {
            1 => String::new(),
            files => format!(" and {} more", files - 1),
        };
        vec![
            format!("{}{more}", self.first),
            name.clone(),
            range(data.0, data.1),
            range(model.0, model.1),
            used.map_or("none".into(), |(first, last)| range(first, last)),
            format!("{used_pixels} of {pixels}"),
        ]
    }
}

/// Formats a wavelength range (Å) as `first–last` with two decimals.
fn range(first: f64, last: f64) -> String {
    format!("{first:.2}–{last:.2}")
}
