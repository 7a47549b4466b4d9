//! The sections of a model file, read key by key.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::path::PathBuf;

use super::keys::{Section, Setting};
use super::{
    Continuum, ContinuumKind, Interpolation, LabelColumns, LabelSettings, LineSpread, NonFinite,
    Pixels, SpectraSettings,
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

/// Continuum terms unless the file says how many.
const DEFAULT_TERMS: usize = 10;

/// `[velocity]` or `[vsini]`, km/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum VelocityEntry {
    /// No such table: the spectra are in the rest frame, and nothing rotates.
    Absent,
    Range(f64, f64),
    Fixed(f64),
}

/// `[velocity]` or `[vsini]` with its start and prior.
pub(super) struct Motion {
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
pub(super) fn arm(section: &Section<'_>) -> Result<ArmEntry> {
    section.only(&[
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
    let range = section.interval("range")?;
    if range.is_some_and(|(low, high)| low <= 0.0 || low == high) {
        return Err(section.error("range", "must be two different positive wavelengths in Å"));
    }
    Ok(ArmEntry {
        name: section.required("name", section.text("name")?)?.to_string(),
        emulator: section
            .required("emulator", section.text("emulator")?)?
            .into(),
        wavelength: section.text("wavelength")?.map(PathBuf::from),
        labels: section.texts("labels")?,
        activation: section.choice("activation", Activation::NAMES)?,
        range,
        interpolation: section
            .choice("interpolation", Interpolation::NAMES)?
            .unwrap_or(Interpolation::Cubic),
        line_spread: line_spread(section)?,
        pixels: section.choice("pixels", Pixels::NAMES)?,
        continuum: section
            .section("continuum")?
            .map(|section| continuum(&section, false))
            .transpose()?,
    })
}

/// Reads an arm's `line_spread`: "none", "file", or a table with a resolving power or a width (FWHM in Å).
fn line_spread(arm: &Section<'_>) -> Result<LineSpread> {
    if !arm.is_table("line_spread") {
        let words = [("none", LineSpread::None), ("file", LineSpread::File)];
        let forms = ["{ resolving_power = … }", "{ fwhm = … }"];
        return Ok(arm
            .choice_or("line_spread", &words, &forms)?
            .unwrap_or_default());
    }
    let section = arm.required("line_spread", arm.section("line_spread")?)?;
    section.only(&["resolving_power", "fwhm"])?;
    match (section.number("resolving_power")?, section.number("fwhm")?) {
        (Some(_), Some(_)) => Err(section.error("fwhm", "excludes `resolving_power`")),
        (Some(power), None) => Ok(LineSpread::ResolvingPower(power)),
        (None, Some(width)) => Ok(LineSpread::Fwhm(width)),
        (None, None) => section.required("resolving_power", None),
    }
}

/// Reads the kind and number of terms of a continuum section; the key `marginalise` is allowed
/// only in the section of the `whole_model`, not of an arm.
pub(super) fn continuum(section: &Section<'_>, whole_model: bool) -> Result<Continuum> {
    section.only(if whole_model {
        &["kind", "terms", "marginalise"]
    } else {
        &["kind", "terms"]
    })?;
    let kind = section
        .choice("kind", ContinuumKind::NAMES)?
        .unwrap_or(ContinuumKind::Chebyshev);
    if kind == ContinuumKind::None {
        return match section.has("terms") {
            true => Err(section.error("terms", "has no meaning without a continuum")),
            false => Ok(Continuum::none()),
        };
    }
    let terms = section
        .integer("terms", kind.terms())?
        .unwrap_or(DEFAULT_TERMS);
    Ok(Continuum { kind, terms })
}

/// Reads the section `velocity` or `vsini`: range or fixed value in km/s, start and prior; absent if the file has none.
pub(super) fn motion(top: &Section<'_>, name: &str) -> Result<Motion> {
    let Some(section) = top.section(name)? else {
        return Ok(Motion {
            entry: VelocityEntry::Absent,
            settings: LabelSettings::default(),
        });
    };
    match name {
        "velocity" => section.only(&["range", "fixed", "start", "prior", "scan"])?,
        _ => section.only(&["range", "fixed", "start", "prior"])?,
    }
    let entry = match (section.interval("range")?, section.number("fixed")?) {
        (Some(_), Some(_)) => return Err(section.error("fixed", "excludes `range`")),
        (Some((low, high)), None) => VelocityEntry::Range(low, high),
        (None, Some(velocity)) => VelocityEntry::Fixed(velocity),
        (None, None) => return section.required("range", None),
    };
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
    let settings = known_of(&section)?;
    if let (VelocityEntry::Fixed(_), Some(key)) = (
        entry,
        ["start", "prior"].into_iter().find(|key| section.has(key)),
    ) {
        return Err(section.error("fixed", format!("excludes `{key}`")));
    }
    Ok(Motion { entry, settings })
}

/// Reads the section `labels`: each label's name and settings, in the order of the file.
pub(super) fn labels(section: &Section<'_>) -> Result<Vec<(String, LabelSettings)>> {
    let read = |name: &str| {
        let label = section.required(name, section.section(name)?)?;
        Ok((name.to_string(), label_settings(&label)?))
    };
    section.names().map(read).collect()
}

/// Reads the settings of one label: start, bounds, fixed value, tie and prior; fails on those that exclude each other.
fn label_settings(section: &Section<'_>) -> Result<LabelSettings> {
    section.only(&["start", "bounds", "fixed", "tied", "prior"])?;
    let mut settings = known_of(section)?;
    settings.fixed = section.number("fixed")?;
    settings.tied = section.text("tied")?.map(str::to_string);
    if let Some((low, high)) = section.settings("bounds")? {
        let ((low, lower), (high, upper)) = (low.split(), high.split());
        settings.bounds = Some((
            low.unwrap_or(f64::NEG_INFINITY),
            high.unwrap_or(f64::INFINITY),
        ));
        (settings.columns.lower, settings.columns.upper) = (lower, upper);
    }
    for (alone, others) in [
        ("tied", &["fixed", "start", "bounds", "prior"][..]),
        ("fixed", &["start", "bounds", "prior"][..]),
    ] {
        if let Some(other) = others
            .iter()
            .find(|other| section.has(alone) && section.has(other))
        {
            return Err(section.error(alone, format!("excludes `{other}`")));
        }
    }
    Ok(settings)
}

/// Reads the optional `start` and `prior` of a label, velocity or vsini, each a number or a column.
fn known_of(section: &Section<'_>) -> Result<LabelSettings> {
    let mut settings = LabelSettings::default();
    if let Some(start) = section.setting("start")? {
        (settings.start, settings.columns.start) = start.split();
    }
    if let Some(section) = section.section("prior")? {
        (settings.prior, settings.columns) = prior(&section, settings.columns)?;
    }
    Ok(settings)
}

/// Reads a prior's mean and sigma: (mean, sigma), with 0 and 1 where a column gives them, and `columns` with those
/// columns' names.
fn prior(
    section: &Section<'_>,
    columns: LabelColumns,
) -> Result<(Option<(f64, f64)>, LabelColumns)> {
    section.only(&["mean", "sigma"])?;
    let mean = section.required("mean", section.setting("mean")?)?;
    let sigma = section.required("sigma", section.setting("sigma")?)?;
    if matches!(sigma, Setting::Number(x) if x <= 0.0) {
        return Err(section.error("sigma", "must be positive"));
    }
    let ((mean, mean_column), (sigma, sigma_column)) = (mean.split(), sigma.split());
    let columns = LabelColumns {
        mean: mean_column,
        sigma: sigma_column,
        ..columns
    };
    // a column takes the place of these numbers
    Ok((Some((mean.unwrap_or(0.0), sigma.unwrap_or(1.0))), columns))
}

/// Reads the section `spectra`: masked intervals (Å) in the observer's and in the star's frame, bits that widen errors,
/// the error floor, the rule for pixels that are not finite, and the loss.
pub(super) fn spectra(section: &Section<'_>) -> Result<SpectraSettings> {
    section.only(&[
        "mask",
        "mask_rest",
        "widen",
        "error_floor",
        "nonfinite",
        "loss",
    ])?;
    let error_floor = section.number("error_floor")?.unwrap_or(0.0);
    if error_floor < 0.0 {
        return Err(section.error("error_floor", "must not be negative"));
    }
    let nonfinite = section
        .choice("nonfinite", NonFinite::NAMES)?
        .unwrap_or_default();
    let (mask, mask_rest) = (section.intervals("mask")?, section.intervals("mask_rest")?);
    let (widen, loss) = (widening(section)?, loss(section)?);
    Ok(SpectraSettings {
        mask,
        mask_rest,
        widen,
        error_floor,
        nonfinite,
        loss,
    })
}

/// Reads `widen` of the spectra: bits of masks and the factor by which they widen errors; `None` if it is absent.
fn widening(spectra: &Section<'_>) -> Result<Option<Widening>> {
    let Some(section) = spectra.section("widen")? else {
        return Ok(None);
    };
    section.only(&["bits", "factor"])?;
    let bits = section.required("bits", section.bits("bits")?)?;
    let factor = section.required("factor", section.number("factor")?)?;
    let widening = Widening::new(bits, factor);
    match widening.fault() {
        Some((key, message)) => Err(section.error(key, message)),
        None => Ok(Some(widening)),
    }
}

/// Reads the `loss` of the spectra: the name of a robust loss, or a table with its kind and number.
fn loss(spectra: &Section<'_>) -> Result<Estimator> {
    if !spectra.is_table("loss") {
        return Ok(spectra.choice("loss", LOSSES)?.unwrap_or_default());
    }
    let section = spectra.required("loss", spectra.section("loss")?)?;
    section.only(&["kind", "scale", "dof"])?;
    let usual = section.required("kind", section.choice("kind", LOSSES)?)?;
    let (key, other) = if matches!(usual, Estimator::Student(_)) {
        ("dof", "scale")
    } else {
        ("scale", "dof")
    };
    if section.has(other) {
        return Err(section.error(
            other,
            format!("has no meaning for this kind, which takes `{key}`"),
        ));
    }
    let number = section.number(key)?;
    if number.is_some_and(|number| number <= 0.0) {
        return Err(section.error(key, "must be positive"));
    }
    Ok(number.map_or(usual, |number| usual.with_number(number)))
}

/// Reads the section `solver`: solver kind, number of starts, and whether released errors are asked for; each may be
/// absent.
pub(super) fn solver(section: &Section<'_>) -> Result<SolverEntry> {
    section.only(&["kind", "starts", "released_errors"])?;
    Ok(SolverEntry {
        kind: section.parsed("kind", Solver::NAMES)?,
        starts: section.integer("starts", 1..=MOST_STARTS)?,
        released_errors: section.boolean("released_errors")?,
    })
}
