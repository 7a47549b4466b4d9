//! The picture of one arm: flux, model and continuum above, residuals in errors below, masked pixels and well-known
//! lines marked. The fitted continuum is what the template is multiplied by, so its legend says *multiplier*: with a
//! network of absolute fluxes it is not the star's continuum.
//!
//! The curves are stretched to whatever width there is; tick labels and line names are HTML at places in percent, so
//! that they are as legible on a phone as on a wide screen.

use std::fmt::Write;

use super::axis::{Axis, Tick, range, range_within};
use super::lines::{LEVELS, Label, labels};
use super::number::{count, escape, number};
use super::smooth::{Residuals, Window};
use super::trace::{Grid, HEIGHT};
use crate::math;
use crate::spectral::ArmFit;

/// Smallest range of the axis of the residuals, in errors. The largest is four times as much.
const RESIDUALS: f64 = 5.0;
/// Distance from the bulk beyond which fluxes are spikes, and not drawn. It leaves line cores in the picture.
const SPIKE: f64 = 6.0;
/// Ratio of the medians of continuum and model, or its inverse, above which the template is in other units than the
/// continuum.
const FAR_CONTINUUM: f64 = 3.0;

/// Room of a picture in its card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The arm stands alone.
    Whole,
    /// Several arms stand side by side.
    Shared,
}

impl Room {
    /// Returns how many pixel columns wide the curves of an arm are drawn: 750 for a single arm, 400 if several share a
    /// row.
    fn columns(self) -> usize {
        match self {
            Room::Whole => 750,
            Room::Shared => 400,
        }
    }
}

/// Smallest width of a picture with wide labels, in CSS pixels, as in the style sheet's container query.
const WIDE: f64 = 700.0;
/// Width of the narrowest picture, in CSS pixels.
const NARROW: f64 = 270.0;

/// Returns HTML that draws an arm's data, model and continuum over residuals; lines are named at `velocity` (km/s)
/// unless it is NaN.
pub fn html(arm: &ArmFit, velocity: f64, room: Room) -> String {
    let (from, to) = ends(&arm.wavelength);
    let grid = Grid {
        wavelength: &arm.wavelength,
        from,
        to,
        columns: room.columns(),
    };
    let continuum = Continuum::of(arm);
    let (low, high) = flux_range(arm, &continuum);
    let axis = Axis::linear("", low, high);
    let bands = grid.bands(&arm.mask);
    let [flux, model, smooth] =
        [&arm.flux, &arm.model, &continuum.flux].map(|values| grid.curve(values, low, high));
    let window = Window::of(arm.wavelength.len());
    let (alone, below) = if fitted(arm) {
        ("", residuals(arm, &grid, &bands, window))
    } else {
        (" alone", String::new())
    };
    let (names, ticks) = line_names(&grid, velocity, room);
    let columns = grid.columns;
    format!(
        "<div class='arm{alone}' data-x='{from:.3},{to:.3}' data-y='{:e},{:e}'>\
         <p class=read>{}<span>{}</span></p>{names}<span class=ylabel>flux</span><div class=y>{}</div>\
         <svg class=flux viewBox='0 0 {columns} {HEIGHT}' preserveAspectRatio=none>\
         <path class=band d='{bands}'/>{ticks}\
         <path class=data d='{flux}'/><path class=continuum d='{smooth}'/><path class=model d='{model}'/></svg>{below}\
         <div class=x>{}</div><p class=xlabel>vacuum wavelength (Å)</p></div>",
        axis.from,
        axis.to,
        arm_name(arm),
        legend(arm, &continuum, window),
        vertical(&axis, 5, 0.05),
        horizontal(&Axis::linear("", from, to)),
    )
}

/// Returns the arm's name as HTML; nothing if it has none.
fn arm_name(arm: &ArmFit) -> String {
    if arm.name.is_empty() {
        String::new()
    } else {
        format!("<b>arm {}</b>", escape(&arm.name))
    }
}

/// Returns HTML that draws (data − model) / error of an arm with its running mean over a window of pixels.
fn residuals(arm: &ArmFit, grid: &Grid, bands: &str, window: Window) -> String {
    let values: Vec<f64> = (0..arm.flux.len()).map(|j| residual(arm, j)).collect();
    let mean = arm_residuals(arm).running_mean(window);
    let (low, high) = range(&values, 0.05);
    let most = low.abs().max(high.abs()).clamp(RESIDUALS, 4.0 * RESIDUALS);
    let [curve, mean] = [&values, &mean].map(|values| grid.curve(values, -most, most));
    let (columns, zero) = (grid.columns, HEIGHT / 2.0);
    format!(
        "<span class='ylabel low'>residual / σ</span><div class='y low'>{}</div>\
         <svg class=residual viewBox='0 0 {columns} {HEIGHT}' preserveAspectRatio=none data-most='{most:.3}'>\
         <path class=band d='{bands}'/><path class=data d='{curve}'/><path class=zero d='M0 {zero}h{columns}'/>\
         <path class=mean d='{mean}'/></svg>",
        vertical(&Axis::linear("", -most, most), 4, -0.01),
    )
}

/// Returns whether the arm has a model, that is any finite model flux.
fn fitted(arm: &ArmFit) -> bool {
    arm.model.iter().any(|x| x.is_finite())
}

/// Returns the least and the greatest finite wavelength, or (0, 1) if there are not two different ones.
fn ends(wavelength: &[f64]) -> (f64, f64) {
    let finite = || wavelength.iter().copied().filter(|w| w.is_finite());
    let (from, to) = (
        finite().fold(f64::INFINITY, f64::min),
        finite().fold(f64::NEG_INFINITY, f64::max),
    );
    if from < to { (from, to) } else { (0.0, 1.0) }
}

/// The fitted continuum as it is drawn.
struct Continuum {
    /// (pixels); NaN where there is none.
    flux: Vec<f64>,
    /// Factor by which the fitted continuum is multiplied.
    factor: f64,
}

impl Continuum {
    /// Returns the continuum curve to draw for an arm, rescaled to the model's median if it lies far from the model. A
    /// network of absolute fluxes has a continuum in units of its own, which is scaled to the middle of the model.
    fn of(arm: &ArmFit) -> Continuum {
        let ratio = median(&arm.model) / median(&arm.continuum);
        let is_near = (FAR_CONTINUUM.recip()..=FAR_CONTINUUM).contains(&ratio);
        let factor = if is_near || !ratio.is_finite() || ratio == 0.0 {
            1.0
        } else {
            ratio
        };
        let flux = (0..arm.flux.len())
            .map(|j| arm.continuum.get(j).map_or(f64::NAN, |flux| flux * factor));
        Continuum {
            flux: flux.collect(),
            factor,
        }
    }

    /// Returns whether the continuum has any finite value, so that there is a curve to draw.
    fn is_drawn(&self) -> bool {
        self.flux.iter().any(|flux| flux.is_finite())
    }
}

/// Returns the median of the finite values (the upper middle one of an even number); NaN if there is none.
fn median(values: &[f64]) -> f64 {
    let mut finite: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    math::median(&mut finite).unwrap_or(f64::NAN)
}

/// Returns the HTML legend of an arm's picture: data, and model, continuum, mean residuals and masked pixels where
/// drawn.
fn legend(arm: &ArmFit, continuum: &Continuum, window: Window) -> String {
    let mut out = String::from("<span class=key><i class=data></i>data</span>");
    let mut entry = |class: &str, text: &str| {
        let _ = write!(out, "<span class=key><i class={class}></i>{text}</span>");
    };
    if fitted(arm) {
        entry("model", "model");
    }
    if continuum.is_drawn() {
        let factor = if continuum.factor == 1.0 {
            String::new()
        } else {
            format!(" × {}", number(continuum.factor, 2))
        };
        entry("continuum", &format!("multiplier{factor}"));
    }
    if fitted(arm) {
        entry("mean", &format!("mean of {} residuals", window.pixels()));
    }
    let masked = arm.mask.iter().filter(|masked| **masked).count();
    if masked > 0 {
        let pixels = if masked == 1 { "pixel" } else { "pixels" };
        entry("band", &format!("{} masked {pixels}", count(masked as u64)));
    }
    out
}

/// Returns (data − model) / error of pixel `j`; NaN if it is masked.
fn residual(arm: &ArmFit, j: usize) -> f64 {
    if arm.mask[j] {
        f64::NAN
    } else {
        (arm.flux[j] - arm.model[j]) / arm.error[j]
    }
}

/// Returns data − model and 1 / error² of each pixel; the latter is 0 for pixels that are masked or not finite.
fn arm_residuals(arm: &ArmFit) -> Residuals {
    let difference: Vec<f64> = arm
        .flux
        .iter()
        .zip(&arm.model)
        .map(|(flux, model)| flux - model)
        .collect();
    let ivar = (0..arm.flux.len()).map(|j| {
        let ivar = arm.error[j].powi(-2);
        if arm.mask[j] || !ivar.is_finite() || !difference[j].is_finite() {
            0.0
        } else {
            ivar
        }
    });
    Residuals {
        ivar: ivar.collect(),
        difference,
    }
}

/// Returns the flux range to draw, with a margin: that of unmasked data (without spikes), model and continuum.
fn flux_range(arm: &ArmFit, continuum: &Continuum) -> (f64, f64) {
    let counted: Vec<f64> = arm
        .flux
        .iter()
        .zip(&arm.mask)
        .filter(|(_, masked)| !**masked)
        .map(|(y, _)| *y)
        .collect();
    let mut all = range_within(
        if counted.is_empty() {
            &arm.flux
        } else {
            &counted
        },
        0.06,
        SPIKE,
    );
    for (is_drawn, values) in [
        (fitted(arm), &arm.model),
        (continuum.is_drawn(), &continuum.flux),
    ] {
        if is_drawn {
            let (low, high) = range_within(values, 0.06, SPIKE);
            all = (all.0.min(low), all.1.max(high));
        }
    }
    all
}

/// Returns HTML with the names of spectral lines for wide and narrow screens, and SVG paths that mark the lines. Arms
/// side by side leave the same space for names, so that their axes are level.
fn line_names(grid: &Grid, velocity: f64, room: Room) -> (String, String) {
    let (mut names, mut ticks) = (String::new(), String::new());
    for (class, width) in [("wide", WIDE), ("narrow", NARROW)] {
        let all = labels(velocity, grid.from, grid.to, width);
        let levels = match room {
            Room::Whole => all.iter().map(|label| label.level + 1).max().unwrap_or(0),
            Room::Shared => LEVELS,
        };
        let texts: String = all.iter().map(name).collect();
        let _ = write!(names, "<div class='names {class} l{levels}'>{texts}</div>");
        let places = all
            .iter()
            .flat_map(|label| &label.lines)
            .map(|line| grid.place(*line));
        let marks = places.fold(String::new(), |path, x| {
            path + &format!("M{x:.1} 0v{HEIGHT}")
        });
        let _ = write!(ticks, "<path class='line {class}' d='{marks}'/>");
    }
    (names, ticks)
}

/// Returns the HTML of a spectral line's name, placed above the picture.
fn name(label: &Label) -> String {
    let (left, level) = (100.0 * label.middle, label.level);
    format!(
        "<i class=l{level} style='left:{left:.2}%'>{}</i>",
        label.name
    )
}

/// Returns the HTML of about `most` tick labels on the y axis, without those at places (0 to 1) below `from`. The upper
/// picture leaves room at its foot for the highest tick of the lower one.
fn vertical(axis: &Axis, most: usize, from: f64) -> String {
    let ticks = axis
        .ticks(most)
        .into_iter()
        .filter(|tick| tick.place >= from);
    ticks
        .map(|Tick { place, text }| format!("<i style='bottom:{:.1}%'>{text}</i>", 100.0 * place))
        .collect()
}

/// Returns the HTML of about nine tick labels on the x axis, every second one hidden on narrow screens. Those that are
/// left out in narrow pictures have the class `more`.
fn horizontal(axis: &Axis) -> String {
    let ticks = axis.ticks(9).into_iter().enumerate();
    let texts = ticks.map(|(k, Tick { place, text })| {
        let class = if k % 2 == 1 { " class=more" } else { "" };
        format!("<i{class} style='left:{:.2}%'>{text}</i>", 100.0 * place)
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An arm of 40 pixels around Hα with a model of this middle, and its continuum.
    fn arm(model: f64, continuum: Option<f64>) -> ArmFit {
        let pixels = 40;
        ArmFit {
            wavelength: (0..pixels).map(|j| 6545.0 + f64::from(j)).collect(),
            flux: vec![model; pixels as usize],
            error: vec![0.1; pixels as usize],
            model: vec![model; pixels as usize],
            continuum: continuum.map_or_else(Vec::new, |flux| vec![flux; pixels as usize]),
            mask: vec![false; pixels as usize],
            ..ArmFit::default()
        }
    }

    #[test]
    fn only_a_continuum_in_other_units_is_scaled() {
        let near = Continuum::of(&arm(2.0, Some(2.5)));
        assert_eq!((near.factor, near.flux[0]), (1.0, 2.5));
        let far = Continuum::of(&arm(2.0, Some(4e-6)));
        assert_eq!((far.factor, far.flux[0]), (5e5, 2.0));
        assert!(html(&arm(2.0, Some(4e-6)), 0.0, Room::Whole).contains("</i>multiplier × 500000<"));
    }

    #[test]
    fn what_is_missing_is_not_in_the_legend() {
        let whole = html(&arm(1.0, Some(1.0)), 0.0, Room::Whole);
        for text in [
            ">Hα</i>",
            "</i>multiplier<",
            "</i>mean of 5 residuals<",
            "</i>model<",
        ] {
            assert!(whole.contains(text), "{text}: {whole}");
        }
        let without_continuum = html(&arm(1.0, None), 0.0, Room::Whole);
        assert!(
            !without_continuum.contains("</i>multiplier"),
            "{without_continuum}"
        );
        let without_fit = html(&arm(f64::NAN, None), f64::NAN, Room::Whole);
        for text in ["Hα", "</i>model", "</i>mean", "NaN"] {
            assert!(!without_fit.contains(text), "{text}: {without_fit}");
        }
    }
}
