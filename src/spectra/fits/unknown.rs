//! Refusals of files that have none of the layouts, or several: what the file seems to be, and the way out.

use super::{FORMATS, Format, apogee};
use crate::error::Error;
use crate::io::fits::cards::Header;
use crate::io::fits::hdu::{Fits, Hdu, Kind};

/// The way out for whoever has a file of spectra that popfit refuses.
pub(in crate::spectra) const WAY_OUT: &str = "\
popfit reads any spectra from an NPZ file, which three lines of Python make of arrays (spectra, pixels):
  import numpy as np
  wavelength, flux, ivar = …  # Å in vacuum; any unit; 1/σ² of the flux, and 0 where a pixel is bad
  np.savez(\"spectra.npz\", wavelength=wavelength, flux=flux, ivar=ivar)";

/// Columns and units that a refusal lists.
const LISTED: usize = 12;

/// A layout that popfit knows and does not read.
struct Unread {
    name: &'static str,
    matches: fn(&Fits) -> bool,
}

/// All such layouts, in the order in which they are tried.
const UNREAD: [Unread; 4] = [
    Unread {
        name: "an APOGEE aspcapStar (normalised flux, its error and the best fit)",
        matches: apogee::is_aspcap_star,
    },
    Unread {
        name: "an SDSS spSpec or a spectrum of LAMOST's pilot survey",
        matches: |fits| {
            let is_image =
                |hdu: &Hdu| matches!(&hdu.kind, Kind::Image(image) if image.shape.len() == 2);
            fits.hdus
                .first()
                .is_some_and(|hdu| is_image(hdu) && hdu.header.float("COEFF0").is_some())
        },
    },
    Unread {
        name: "a table of results that popfit wrote",
        matches: |fits| {
            ["RESULTS", "METADATA"]
                .iter()
                .all(|name| fits.hdus.iter().any(|hdu| hdu.name == *name))
        },
    },
    Unread {
        name: "images on a wavelength grid that is not uniform in log₁₀ λ",
        matches: |fits| {
            let has_grid = |header: &Header| {
                header.float("CRVAL1").is_some() && header.float("CDELT1").is_some()
            };
            fits.hdus
                .iter()
                .any(|hdu| has_grid(&hdu.header) && !apogee::has_log_grid(&hdu.header))
        },
    },
];

/// Returns the refusal of a file that `found` layouts match, none or more than one.
pub(super) fn refuse(fits: &Fits, found: &[&Format]) -> Error {
    if !found.is_empty() {
        let names: Vec<&str> = found.iter().map(|format| format.name).collect();
        let message = format!(
            "it has all that makes {}: popfit cannot tell which it is; {WAY_OUT}",
            names.join(" and ")
        );
        return Error::format(&fits.path, message);
    }
    let units: Vec<String> = fits.hdus.iter().take(LISTED).map(describe).collect();
    let more = if fits.hdus.len() > LISTED {
        ", …"
    } else {
        ""
    };
    let seems = UNREAD.iter().find(|layout| (layout.matches)(fits));
    let seems = seems.map_or_else(String::new, |layout| {
        format!("it seems to be {}; ", layout.name)
    });
    let known: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    let message = format!(
        "no layout of spectra that popfit knows; {seems}it has {}{more}; popfit reads {}; {WAY_OUT}",
        units.join(", "),
        known.join(", ")
    );
    Error::format(&fits.path, message)
}

/// Returns the error of a file of a known layout that contradicts this layout, with what the file was taken for and the
/// way out.
pub(super) fn explain(error: Error, format: &Format) -> Error {
    let add = |message: String| {
        format!(
            "{message}; the file was taken for {}; {WAY_OUT}",
            format.name
        )
    };
    match error {
        Error::Format {
            path,
            offset,
            message,
        } => Error::Format {
            path,
            offset,
            message: add(message),
        },
        Error::ShapeMismatch {
            what,
            argument,
            message,
        } => Error::ShapeMismatch {
            what,
            argument,
            message: add(message),
        },
        Error::BadWavelength {
            what,
            index,
            message,
        } => Error::BadWavelength {
            what,
            index,
            message: add(message),
        },
        other => other,
    }
}

/// Returns a unit's index and name, with its shape or its columns.
fn describe(hdu: &Hdu) -> String {
    let contents = match &hdu.kind {
        Kind::Image(image) if image.shape.is_empty() => return hdu.label(),
        Kind::Image(image) => format!("an image of {:?}", image.shape),
        Kind::Table(table) => {
            let names: Vec<&str> = table
                .columns
                .iter()
                .take(LISTED)
                .map(|column| column.name.as_str())
                .collect();
            let more = if table.columns.len() > LISTED {
                ", …"
            } else {
                ""
            };
            format!("a table of {}{more}", names.join(", "))
        }
        Kind::Other(what) => what.clone(),
    };
    format!("{}: {contents}", hdu.label())
}
