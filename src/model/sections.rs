//! The sections of a model file, read key by key.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::path::PathBuf;

use super::keys::{Section, Setting};
use super::{
    Continuum, ContinuumKind, ExposureVelocity, Interpolation, Jitter, LabelColumns, LabelSettings,
    LineSpread, NonFinite, Pixels, SharedLabels, SpectraSettings,
};
use crate::buffers::Estimator;
use crate::emulator::Activation;
use crate::error::Result;
use crate::recording::LIGHT;
use crate::solver::{MOST_STARTS, Solver};
use crate::spectra::Widening;

/// Robust losses with their default numbers. Huber's and Cauchy's lose 5 % of the information of normal residuals
/// (Huber 1981; Holland & Welsch 1977).
const LOSSES: &[(&str, Estimator)] = &[
    ("huber", Estimator::Huber(1.345)),
    ("student", Estimator::Student(4.0)),
    ("cauchy", Estimator::Cauchy(2.385)),
];

/// Number of continuum terms if the file does not give it.
const DEFAULT_TERMS: usize = 10;

/// `[velocity]` or `[vsini]`, km/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum VelocityEntry {
    /// The file has no such table: the spectra are in the rest frame, and the model has no rotation.
    Absent,
    Range(f64, f64),
    Fixed(f64),
}

/// `[velocity]` or `[vsini]` with its start and prior.
pub(super) struct MotionEntry {
    pub entry: VelocityEntry,
    pub settings: LabelSettings,
}

/// `[solver]`.
#[derive(Default)]
pub(super) struct SolverEntry {
    pub kind: Option<Solver>,
    pub starts: Option<usize>,
    pub released_errors: Option<bool>,
}

/// `[[arm]]`; paths as written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ArmEntry {
    pub name: String,
    pub emulator: PathBuf,
    pub wavelength: Option<PathBuf>,
    pub labels: Option<Vec<String>>,
    pub activation: Option<Activation>,
    pub range: Option<(f64, f64)>,
    pub interpolation: Interpolation,
    pub line_spread: LineSpread,
    pub pixels: Option<Pixels>,
    pub continuum: Option<Continuum>,
}

/// Reads the settings of one `[[arm]]` section: name, emulator path, wavelength range (Å), line spread and so on.
pub(super) fn read_arm(section: &Section<'_>) -> Result<ArmEntry> {
    section.check_keys(&[
        "name",
        "emulator",
        "wavelength",
        "labels",
        "activation",
        "range",
        "interpolation",
        "line_spread",
        "pixels",
        "continuum",
    ])?;
    let range = section.read_interval("range")?;
    if range.is_some_and(|(low, high)| low <= 0.0 || low == high) {
        return Err(section.error("range", "must be two different positive wavelengths in Å"));
    }
    Ok(ArmEntry {
        name: section
            .require("name", section.read_text("name")?)?
            .to_string(),
        emulator: section
            .require("emulator", section.read_text("emulator")?)?
            .into(),
        wavelength: section.read_text("wavelength")?.map(PathBuf::from),
        labels: section.read_texts("labels")?,
        activation: section.read_choice("activation", Activation::NAMES)?,
        range,
        interpolation: section
            .read_choice("interpolation", Interpolation::NAMES)?
            .unwrap_or(Interpolation::Cubic),
        line_spread: read_line_spread(section)?,
        pixels: section.read_choice("pixels", Pixels::NAMES)?,
        continuum: section
            .open_section("continuum")?
            .map(|section| read_continuum(&section, false))
            .transpose()?,
    })
}

/// Reads `[exposures]`: whether the exposures of an object share their velocity.
pub(super) fn read_exposures(section: &Section<'_>) -> Result<ExposureVelocity> {
    section.check_keys(&["velocity"])?;
    section.require(
        "velocity",
        section.read_choice("velocity", ExposureVelocity::NAMES)?,
    )
}

/// Reads `[shared]`: the column of clusters, and the labels that the spectra of a cluster share.
pub(super) fn read_shared(section: &Section<'_>) -> Result<SharedLabels> {
    section.check_keys(&["column", "labels"])?;
    Ok(SharedLabels {
        column: section
            .require("column", section.read_text("column")?)?
            .to_string(),
        labels: section.require("labels", section.read_texts("labels")?)?,
    })
}

/// Reads an arm's `line_spread`: "none", "file", or a table with a resolving power or a width (FWHM in Å).
fn read_line_spread(arm: &Section<'_>) -> Result<LineSpread> {
    if !arm.is_table("line_spread") {
        let words = [("none", LineSpread::None), ("file", LineSpread::File)];
        let forms = ["{ resolving_power = … }", "{ fwhm = … }"];
        return Ok(arm
            .read_choice_or_form("line_spread", &words, &forms)?
            .unwrap_or_default());
    }
    let section = arm.require("line_spread", arm.open_section("line_spread")?)?;
    section.check_keys(&["resolving_power", "fwhm"])?;
    match (
        section.read_number("resolving_power")?,
        section.read_number("fwhm")?,
    ) {
        (Some(_), Some(_)) => Err(section.error("fwhm", "excludes `resolving_power`")),
        (Some(power), None) => Ok(LineSpread::ResolvingPower(power)),
        (None, Some(width)) => Ok(LineSpread::Fwhm(width)),
        (None, None) => section.require("resolving_power", None),
    }
}

/// Reads the kind and number of terms of a continuum section; the key `marginalise` is allowed
/// only in the section of the `whole_model`, not of an arm.
pub(super) fn read_continuum(section: &Section<'_>, whole_model: bool) -> Result<Continuum> {
    section.check_keys(if whole_model {
        &["kind", "terms", "marginalise"]
    } else {
        &["kind", "terms"]
    })?;
    let kind = section
        .read_choice("kind", ContinuumKind::NAMES)?
        .unwrap_or(ContinuumKind::Chebyshev);
    if kind == ContinuumKind::None {
        if section.has_key("terms") {
            return Err(section.error("terms", "has no meaning without a continuum"));
        }
        return Ok(Continuum::none());
    }
    let terms = section
        .read_integer("terms", kind.terms())?
        .unwrap_or(DEFAULT_TERMS);
    Ok(Continuum { kind, terms })
}

/// Reads the section `velocity` or `vsini`: range or fixed value in km/s, start and prior; absent if the file has none.
pub(super) fn read_motion(top: &Section<'_>, name: &str) -> Result<MotionEntry> {
    let Some(section) = top.open_section(name)? else {
        return Ok(MotionEntry {
            entry: VelocityEntry::Absent,
            settings: LabelSettings::default(),
        });
    };
    // 1. Read the range or the fixed value.
    match name {
        "velocity" => section.check_keys(&["range", "fixed", "start", "prior", "scan"])?,
        _ => section.check_keys(&["range", "fixed", "start", "prior"])?,
    }
    let entry = match (
        section.read_interval("range")?,
        section.read_number("fixed")?,
    ) {
        (Some(_), Some(_)) => return Err(section.error("fixed", "excludes `range`")),
        (Some((low, high)), None) => VelocityEntry::Range(low, high),
        (None, Some(velocity)) => VelocityEntry::Fixed(velocity),
        (None, None) => return section.require("range", None),
    };
    // 2. Check its limits.
    let (key, slowest, fastest) = match entry {
        VelocityEntry::Range(low, high) => ("range", low, low.abs().max(high.abs())),
        VelocityEntry::Fixed(velocity) => ("fixed", velocity, velocity.abs()),
        VelocityEntry::Absent => ("range", 0.0, 0.0),
    };
    if fastest >= LIGHT {
        return Err(section.error(key, "must be below the speed of light, in km/s"));
    }
    if name == "vsini" && slowest < 0.0 {
        return Err(section.error(key, "must not be negative"));
    }
    // 3. Read start and prior, which only a free velocity has.
    let settings = read_start_and_prior(&section)?;
    if let VelocityEntry::Fixed(_) = entry {
        for key in ["start", "prior"] {
            if section.has_key(key) {
                return Err(section.error("fixed", format!("excludes `{key}`")));
            }
        }
    }
    Ok(MotionEntry { entry, settings })
}

/// Reads the section `labels`: each label's name and settings, in the order of the file.
pub(super) fn read_labels(section: &Section<'_>) -> Result<Vec<(String, LabelSettings)>> {
    let mut labels = Vec::new();
    for name in section.key_names() {
        let label = section.require(name, section.open_section(name)?)?;
        labels.push((name.to_string(), read_label_settings(&label)?));
    }
    Ok(labels)
}

/// Reads the settings of one label: start, bounds, fixed value, tie and prior; fails on those that exclude each other.
fn read_label_settings(section: &Section<'_>) -> Result<LabelSettings> {
    section.check_keys(&["start", "bounds", "fixed", "tied", "prior"])?;
    let mut settings = read_start_and_prior(section)?;
    settings.fixed = section.read_number("fixed")?;
    settings.tied = section.read_text("tied")?.map(str::to_string);
    if let Some((low, high)) = section.read_setting_pair("bounds")? {
        let (lower, lower_column) = low.split();
        let (upper, upper_column) = high.split();
        settings.bounds = Some((
            lower.unwrap_or(f64::NEG_INFINITY),
            upper.unwrap_or(f64::INFINITY),
        ));
        settings.columns.lower = lower_column;
        settings.columns.upper = upper_column;
    }
    for (key, excluded_keys) in [
        ("tied", &["fixed", "start", "bounds", "prior"][..]),
        ("fixed", &["start", "bounds", "prior"][..]),
    ] {
        for excluded_key in excluded_keys {
            if section.has_key(key) && section.has_key(excluded_key) {
                return Err(section.error(key, format!("excludes `{excluded_key}`")));
            }
        }
    }
    Ok(settings)
}

/// Reads the optional `start` and `prior` of a label, velocity or vsini, each a number or a column.
fn read_start_and_prior(section: &Section<'_>) -> Result<LabelSettings> {
    let mut settings = LabelSettings::default();
    if let Some(start) = section.read_setting("start")? {
        (settings.start, settings.columns.start) = start.split();
    }
    if let Some(section) = section.open_section("prior")? {
        (settings.prior, settings.columns) = read_prior(&section, settings.columns)?;
    }
    Ok(settings)
}

/// Reads a prior's mean and sigma: (mean, sigma), with 0 and 1 where a column gives them, and `columns` with those
/// columns' names.
fn read_prior(
    section: &Section<'_>,
    columns: LabelColumns,
) -> Result<(Option<(f64, f64)>, LabelColumns)> {
    section.check_keys(&["mean", "sigma"])?;
    let mean = section.require("mean", section.read_setting("mean")?)?;
    let sigma = section.require("sigma", section.read_setting("sigma")?)?;
    if matches!(sigma, Setting::Number(x) if x <= 0.0) {
        return Err(section.error("sigma", "must be positive"));
    }
    let (mean, mean_column) = mean.split();
    let (sigma, sigma_column) = sigma.split();
    let columns = LabelColumns {
        mean: mean_column,
        sigma: sigma_column,
        ..columns
    };
    // A column replaces the numbers 0 and 1.
    Ok((Some((mean.unwrap_or(0.0), sigma.unwrap_or(1.0))), columns))
}

/// Reads the section `spectra`: masked intervals (Å) in the observer's and in the star's frame, bits that widen errors,
/// the jitter, the error floor, the rule for pixels that are not finite, and the loss.
pub(super) fn read_spectra(section: &Section<'_>) -> Result<SpectraSettings> {
    section.check_keys(&[
        "mask",
        "mask_rest",
        "widen",
        "jitter",
        "error_floor",
        "nonfinite",
        "loss",
    ])?;
    let read_fraction = |key: &str| match section.read_number(key)?.unwrap_or(0.0) {
        fraction if fraction < 0.0 => Err(section.error(key, "must not be negative")),
        fraction => Ok(fraction),
    };
    let jitter = if section.is_text("jitter") {
        section
            .read_choice_or_form("jitter", &[("fit", Jitter::Fitted)], &["a number"])?
            .unwrap_or_default()
    } else {
        Jitter::Fraction(read_fraction("jitter")?)
    };
    let error_floor = read_fraction("error_floor")?;
    let nonfinite = section
        .read_choice("nonfinite", NonFinite::NAMES)?
        .unwrap_or_default();
    Ok(SpectraSettings {
        mask: section.read_intervals("mask")?,
        mask_rest: section.read_intervals("mask_rest")?,
        widen: read_widening(section)?,
        jitter,
        error_floor,
        nonfinite,
        loss: read_loss(section)?,
    })
}

/// Reads `widen` of the spectra: bits of masks and the factor by which they widen errors; `None` if it is absent.
fn read_widening(spectra: &Section<'_>) -> Result<Option<Widening>> {
    let Some(section) = spectra.open_section("widen")? else {
        return Ok(None);
    };
    section.check_keys(&["bits", "factor"])?;
    let bits = section.require("bits", section.read_bits("bits")?)?;
    let factor = section.require("factor", section.read_number("factor")?)?;
    let widening = Widening::new(bits, factor);
    match widening.fault() {
        Some((key, message)) => Err(section.error(key, message)),
        None => Ok(Some(widening)),
    }
}

/// Reads the `loss` of the spectra: the name of a robust loss, or a table with its kind and number.
fn read_loss(spectra: &Section<'_>) -> Result<Estimator> {
    if !spectra.is_table("loss") {
        return Ok(spectra.read_choice("loss", LOSSES)?.unwrap_or_default());
    }
    let section = spectra.require("loss", spectra.open_section("loss")?)?;
    section.check_keys(&["kind", "scale", "dof"])?;
    let default_loss = section.require("kind", section.read_choice("kind", LOSSES)?)?;
    let (key, other_key) = if matches!(default_loss, Estimator::Student(_)) {
        ("dof", "scale")
    } else {
        ("scale", "dof")
    };
    if section.has_key(other_key) {
        return Err(section.error(
            other_key,
            format!("has no meaning for this kind, which takes `{key}`"),
        ));
    }
    let number = section.read_number(key)?;
    if number.is_some_and(|number| number <= 0.0) {
        return Err(section.error(key, "must be positive"));
    }
    Ok(number.map_or(default_loss, |number| default_loss.with_number(number)))
}

/// Reads the section `solver`: solver kind, number of starts, and whether released errors are asked for; each may be
/// absent.
pub(super) fn read_solver(section: &Section<'_>) -> Result<SolverEntry> {
    section.check_keys(&["kind", "starts", "released_errors"])?;
    Ok(SolverEntry {
        kind: section.read_parsed("kind", Solver::NAMES)?,
        starts: section.read_integer("starts", 1..=MOST_STARTS)?,
        released_errors: section.read_boolean("released_errors")?,
    })
}
