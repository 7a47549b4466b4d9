//! Refusals of files that match none of the layouts, or several. They say what the file seems to be, and what to do.

use super::{SURVEY_FORMATS, SurveyFormat, apogee};
use crate::error::Error;
use crate::io::fits::cards::Header;
use crate::io::fits::hdu::{Fits, Hdu, HduKind};

/// Advice for users who have a file of spectra that popfit refuses.
pub(in crate::spectra) const WAY_OUT: &str = "\
popfit reads any spectra from an NPZ file, which three lines of Python make of arrays (spectra, pixels):
  import numpy as np
  wavelength, flux, ivar = …  # Å in vacuum; any unit; 1/σ² of the flux, and 0 where a pixel is bad
  np.savez(\"spectra.npz\", wavelength=wavelength, flux=flux, ivar=ivar)";

/// Maximum number of columns and of HDUs that a refusal lists.
const MAX_LISTED: usize = 12;

/// A layout that popfit knows and does not read.
struct UnreadLayout {
    name: &'static str,
    matches: fn(&Fits) -> bool,
}

/// All such layouts, in the order of the tests.
const UNREAD_LAYOUTS: [UnreadLayout; 4] = [
    UnreadLayout {
        name: "an APOGEE aspcapStar (normalised flux, its error and the best fit)",
        matches: apogee::is_aspcap_star,
    },
    UnreadLayout {
        name: "an SDSS spSpec or a spectrum of LAMOST's pilot survey",
        matches: |fits| {
            let is_image =
                |hdu: &Hdu| matches!(&hdu.kind, HduKind::Image(image) if image.shape.len() == 2);
            fits.hdus
                .first()
                .is_some_and(|hdu| is_image(hdu) && hdu.header.float("COEFF0").is_some())
        },
    },
    UnreadLayout {
        name: "a table of results that popfit wrote",
        matches: |fits| {
            ["RESULTS", "METADATA"]
                .iter()
                .all(|name| fits.hdus.iter().any(|hdu| hdu.name == *name))
        },
    },
    UnreadLayout {
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

/// Returns the error for a file that matches these layouts, none or more than one.
pub(super) fn refusal_error(fits: &Fits, matching: &[&SurveyFormat]) -> Error {
    // 1. Several layouts match.
    if !matching.is_empty() {
        let names: Vec<&str> = matching.iter().map(|format| format.name).collect();
        let message = format!(
            "it has all that makes {}: popfit cannot tell which it is; {WAY_OUT}",
            names.join(" and ")
        );
        return Error::format(&fits.path, message);
    }
    // 2. No layout matches: describe the file, and guess what it may be.
    let hdus: Vec<String> = fits
        .hdus
        .iter()
        .take(MAX_LISTED)
        .map(describe_hdu)
        .collect();
    let ellipsis = if fits.hdus.len() > MAX_LISTED {
        ", …"
    } else {
        ""
    };
    let unread_layout = UNREAD_LAYOUTS.iter().find(|layout| (layout.matches)(fits));
    let guess = unread_layout.map_or_else(String::new, |layout| {
        format!("it seems to be {}; ", layout.name)
    });
    let known_layouts: Vec<&str> = SURVEY_FORMATS.iter().map(|format| format.name).collect();
    let message = format!(
        "no layout of spectra that popfit knows; {guess}it has {}{ellipsis}; popfit reads {}; {WAY_OUT}",
        hdus.join(", "),
        known_layouts.join(", ")
    );
    Error::format(&fits.path, message)
}

/// Adds to the error of a file that contradicts its layout the name of the layout and the advice.
pub(super) fn add_format(error: Error, format: &SurveyFormat) -> Error {
    let add_to = |message: String| {
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
            message: add_to(message),
        },
        Error::ShapeMismatch {
            what,
            argument,
            message,
        } => Error::ShapeMismatch {
            what,
            argument,
            message: add_to(message),
        },
        Error::BadWavelength {
            what,
            index,
            message,
        } => Error::BadWavelength {
            what,
            index,
            message: add_to(message),
        },
        other => other,
    }
}

/// Returns an HDU's index and name, with its shape or its columns.
fn describe_hdu(hdu: &Hdu) -> String {
    let contents = match &hdu.kind {
        HduKind::Image(image) if image.shape.is_empty() => return hdu.label(),
        HduKind::Image(image) => format!("an image of {:?}", image.shape),
        HduKind::Table(table) => {
            let names: Vec<&str> = table
                .columns
                .iter()
                .take(MAX_LISTED)
                .map(|column| column.name.as_str())
                .collect();
            let ellipsis = if table.columns.len() > MAX_LISTED {
                ", …"
            } else {
                ""
            };
            format!("a table of {}{ellipsis}", names.join(", "))
        }
        HduKind::Other(description) => description.clone(),
    };
    format!("{}: {contents}", hdu.label())
}
