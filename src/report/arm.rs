//! The picture of one arm: flux, model and continuum above, residuals in errors below, masked pixels and well-known
//! lines marked. The fitted continuum is what the template is multiplied by, so its legend says *multiplier*: with a
//! network of absolute fluxes it is not the star's continuum.
//!
//! The curves are stretched to whatever width there is; tick labels and line names are HTML at places in percent, so
//! that they are as legible on a phone as on a wide screen.

use std::fmt::Write;

use super::axis::{PlotAxis, Tick, find_range, find_range_within};
use super::lines::{LABEL_ROWS, LineLabel, place_labels};
use super::number::{escape_html, format_count, format_number};
use super::smooth::{ArmResiduals, MeanWindow};
use super::trace::{PATH_HEIGHT, PictureGrid};
use crate::math;
use crate::spectral::ArmFit;

/// Smallest range of the axis of the residuals, in errors. The largest is four times as much.
const MIN_RESIDUAL_RANGE: f64 = 5.0;
/// Distance from the bulk beyond which fluxes are spikes, and not drawn. It leaves line cores in the picture.
const MAX_SPIKE_DISTANCE: f64 = 6.0;
/// Ratio of the medians of continuum and model, or its inverse, above which the template is in other units than the
/// continuum.
const MAX_CONTINUUM_RATIO: f64 = 3.0;

/// Share of its card's width that a picture has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureWidth {
    /// The arm stands alone.
    Whole,
    /// Several arms stand side by side.
    Shared,
}

impl PictureWidth {
    /// Returns how many pixel columns wide the curves of an arm are drawn: 750 for a single arm, 400 if several share a
    /// row.
    fn columns(self) -> usize {
        match self {
            PictureWidth::Whole => 750,
            PictureWidth::Shared => 400,
        }
    }
}

/// Smallest width of a picture with wide labels, in CSS pixels, as in the style sheet's container query.
const WIDE_PICTURE_WIDTH: f64 = 700.0;
/// Width of the narrowest picture, in CSS pixels.
const NARROW_PICTURE_WIDTH: f64 = 270.0;

/// Returns HTML that draws an arm's data, model and continuum over residuals; lines are named at `velocity` (km/s)
/// unless it is NaN.
pub fn draw_arm(arm: &ArmFit, velocity: f64, picture_width: PictureWidth) -> String {
    // 1. Choose the axes, and turn flux, model and continuum into paths on them.
    let (first_wavelength, last_wavelength) = find_wavelength_range(&arm.wavelength);
    let grid = PictureGrid {
        wavelength: &arm.wavelength,
        from: first_wavelength,
        to: last_wavelength,
        columns: picture_width.columns(),
    };
    let continuum = DrawnContinuum::from_arm(arm);
    let (low, high) = find_flux_range(arm, &continuum);
    let flux_axis = PlotAxis::linear("", low, high);
    let mask_bands = grid.mask_path(&arm.mask);
    let flux_path = grid.curve_path(&arm.flux, low, high);
    let model_path = grid.curve_path(&arm.model, low, high);
    let continuum_path = grid.curve_path(&continuum.flux, low, high);
    // 2. Draw the residuals below, if there is a fit.
    let window = MeanWindow::for_pixels(arm.wavelength.len());
    let (class, residual_picture) = if has_model(arm) {
        ("", draw_residuals(arm, &grid, &mask_bands, window))
    } else {
        (" alone", String::new())
    };
    // 3. Put the pictures, the names of lines and the tick labels together.
    let (line_names, line_marks) = draw_line_names(&grid, velocity, picture_width);
    let columns = grid.columns;
    format!(
        "<div class='arm{class}' data-x='{first_wavelength:.3},{last_wavelength:.3}' data-y='{:e},{:e}'>\
         <p class=read>{}<span>{}</span></p>{line_names}<span class=ylabel>flux</span><div class=y>{}</div>\
         <svg class=flux viewBox='0 0 {columns} {PATH_HEIGHT}' preserveAspectRatio=none>\
         <path class=band d='{mask_bands}'/>{line_marks}\
         <path class=data d='{flux_path}'/><path class=continuum d='{continuum_path}'/>\
         <path class=model d='{model_path}'/></svg>{residual_picture}\
         <div class=x>{}</div><p class=xlabel>vacuum wavelength (Å)</p></div>",
        flux_axis.from,
        flux_axis.to,
        arm_name(arm),
        draw_legend(arm, &continuum, window),
        y_tick_labels(&flux_axis, 5, 0.05),
        x_tick_labels(&PlotAxis::linear("", first_wavelength, last_wavelength)),
    )
}

/// Returns the arm's name as HTML; nothing if it has none.
fn arm_name(arm: &ArmFit) -> String {
    if arm.name.is_empty() {
        String::new()
    } else {
        format!("<b>arm {}</b>", escape_html(&arm.name))
    }
}

/// Returns HTML that draws (data − model) / error of an arm with its running mean over a window of pixels.
fn draw_residuals(
    arm: &ArmFit,
    grid: &PictureGrid,
    mask_bands: &str,
    window: MeanWindow,
) -> String {
    let residuals: Vec<f64> = (0..arm.flux.len())
        .map(|pixel| residual_in_errors(arm, pixel))
        .collect();
    let running_mean = unmasked_residuals(arm).running_mean(window);
    let (low, high) = find_range(&residuals, 0.05);
    let limit = low
        .abs()
        .max(high.abs())
        .clamp(MIN_RESIDUAL_RANGE, 4.0 * MIN_RESIDUAL_RANGE);
    let residual_path = grid.curve_path(&residuals, -limit, limit);
    let mean_path = grid.curve_path(&running_mean, -limit, limit);
    let columns = grid.columns;
    let zero = PATH_HEIGHT / 2.0;
    format!(
        "<span class='ylabel low'>residual / σ</span><div class='y low'>{}</div>\
         <svg class=residual viewBox='0 0 {columns} {PATH_HEIGHT}' preserveAspectRatio=none data-most='{limit:.3}'>\
         <path class=band d='{mask_bands}'/><path class=data d='{residual_path}'/>\
         <path class=zero d='M0 {zero}h{columns}'/><path class=mean d='{mean_path}'/></svg>",
        y_tick_labels(&PlotAxis::linear("", -limit, limit), 4, -0.01),
    )
}

/// Returns whether the arm has a model, that is any finite model flux.
fn has_model(arm: &ArmFit) -> bool {
    arm.model.iter().any(|flux| flux.is_finite())
}

/// Returns the least and the greatest finite wavelength, or (0, 1) if there are not two different ones.
fn find_wavelength_range(wavelength: &[f64]) -> (f64, f64) {
    let mut least = f64::INFINITY;
    let mut greatest = f64::NEG_INFINITY;
    for wavelength in wavelength.iter().filter(|w| w.is_finite()) {
        least = least.min(*wavelength);
        greatest = greatest.max(*wavelength);
    }
    if least < greatest {
        (least, greatest)
    } else {
        (0.0, 1.0)
    }
}

/// The fitted continuum as it is drawn.
struct DrawnContinuum {
    /// (pixels); NaN where there is none.
    flux: Vec<f64>,
    /// Factor by which the fitted continuum is multiplied.
    factor: f64,
}

impl DrawnContinuum {
    /// Returns the continuum curve to draw for an arm, rescaled to the model's median if it lies far from the model. A
    /// network of absolute fluxes has a continuum in units of its own, which is scaled to the middle of the model.
    fn from_arm(arm: &ArmFit) -> DrawnContinuum {
        let ratio = median_of_finite(&arm.model) / median_of_finite(&arm.continuum);
        let is_near = (MAX_CONTINUUM_RATIO.recip()..=MAX_CONTINUUM_RATIO).contains(&ratio);
        let factor = if is_near || !ratio.is_finite() || ratio == 0.0 {
            1.0
        } else {
            ratio
        };
        let flux = (0..arm.flux.len())
            .map(|pixel| {
                arm.continuum
                    .get(pixel)
                    .map_or(f64::NAN, |flux| flux * factor)
            })
            .collect();
        DrawnContinuum { flux, factor }
    }

    /// Returns whether the continuum has any finite value, so that there is a curve to draw.
    fn is_drawn(&self) -> bool {
        self.flux.iter().any(|flux| flux.is_finite())
    }
}

/// Returns the median of the finite values (the upper middle one of an even number); NaN if there is none.
fn median_of_finite(values: &[f64]) -> f64 {
    let mut finite: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    math::median(&mut finite).unwrap_or(f64::NAN)
}

/// Returns the HTML legend of an arm's picture: data, and model, continuum, mean residuals and masked pixels where
/// drawn.
fn draw_legend(arm: &ArmFit, continuum: &DrawnContinuum, window: MeanWindow) -> String {
    let mut legend = legend_entry("data", "data");
    if has_model(arm) {
        legend += &legend_entry("model", "model");
    }
    if continuum.is_drawn() {
        let factor = if continuum.factor == 1.0 {
            String::new()
        } else {
            format!(" × {}", format_number(continuum.factor, 2))
        };
        legend += &legend_entry("continuum", &format!("multiplier{factor}"));
    }
    if has_model(arm) {
        legend += &legend_entry("mean", &format!("mean of {} residuals", window.pixels()));
    }
    let masked = arm.mask.iter().filter(|is_masked| **is_masked).count();
    if masked > 0 {
        let noun = if masked == 1 { "pixel" } else { "pixels" };
        legend += &legend_entry(
            "band",
            &format!("{} masked {noun}", format_count(masked as u64)),
        );
    }
    legend
}

/// Returns the HTML of a legend's entry, whose mark has the style of a CSS class.
fn legend_entry(class: &str, text: &str) -> String {
    format!("<span class=key><i class={class}></i>{text}</span>")
}

/// Returns (data − model) / error of pixel `pixel`; NaN if it is masked.
fn residual_in_errors(arm: &ArmFit, pixel: usize) -> f64 {
    if arm.mask[pixel] {
        f64::NAN
    } else {
        (arm.flux[pixel] - arm.model[pixel]) / arm.error[pixel]
    }
}

/// Returns data − model and 1 / error² of each pixel; the latter is 0 for pixels that are masked or not finite.
fn unmasked_residuals(arm: &ArmFit) -> ArmResiduals {
    let mut difference = Vec::with_capacity(arm.flux.len());
    let mut ivar = Vec::with_capacity(arm.flux.len());
    for (pixel, (flux, model)) in arm.flux.iter().zip(&arm.model).enumerate() {
        let residual = flux - model;
        let weight = arm.error[pixel].powi(-2);
        let is_counted = !arm.mask[pixel] && weight.is_finite() && residual.is_finite();
        difference.push(residual);
        ivar.push(if is_counted { weight } else { 0.0 });
    }
    ArmResiduals { difference, ivar }
}

/// Returns the flux range to draw, with a margin: that of unmasked data (without spikes), model and continuum.
fn find_flux_range(arm: &ArmFit, continuum: &DrawnContinuum) -> (f64, f64) {
    let unmasked: Vec<f64> = arm
        .flux
        .iter()
        .zip(&arm.mask)
        .filter(|(_, is_masked)| !**is_masked)
        .map(|(flux, _)| *flux)
        .collect();
    let data = if unmasked.is_empty() {
        &arm.flux
    } else {
        &unmasked
    };
    let (mut low, mut high) = find_range_within(data, 0.06, MAX_SPIKE_DISTANCE);
    for (is_drawn, curve) in [
        (has_model(arm), &arm.model),
        (continuum.is_drawn(), &continuum.flux),
    ] {
        if is_drawn {
            let (curve_low, curve_high) = find_range_within(curve, 0.06, MAX_SPIKE_DISTANCE);
            low = low.min(curve_low);
            high = high.max(curve_high);
        }
    }
    (low, high)
}

/// Returns HTML with the names of spectral lines for wide and narrow screens, and SVG paths that mark the lines. Arms
/// side by side leave the same space for names, so that their axes are level.
fn draw_line_names(
    grid: &PictureGrid,
    velocity: f64,
    picture_width: PictureWidth,
) -> (String, String) {
    let mut names = String::new();
    let mut marks = String::new();
    for (class, pixels) in [
        ("wide", WIDE_PICTURE_WIDTH),
        ("narrow", NARROW_PICTURE_WIDTH),
    ] {
        // 1. Place the names for this width of the picture.
        let labels = place_labels(velocity, grid.from, grid.to, pixels);
        let rows = match picture_width {
            PictureWidth::Whole => labels
                .iter()
                .map(|label| label.level + 1)
                .max()
                .unwrap_or(0),
            PictureWidth::Shared => LABEL_ROWS,
        };
        // 2. Draw them in rows above it.
        let texts: String = labels.iter().map(draw_line_name).collect();
        let _ = write!(names, "<div class='names {class} l{rows}'>{texts}</div>");
        // 3. Mark all their lines in the picture.
        let mut path = String::new();
        for line in labels.iter().flat_map(|label| &label.lines) {
            let _ = write!(path, "M{:.1} 0v{PATH_HEIGHT}", grid.column_of(*line));
        }
        let _ = write!(marks, "<path class='line {class}' d='{path}'/>");
    }
    (names, marks)
}

/// Returns the HTML of a spectral line's name, placed above the picture.
fn draw_line_name(label: &LineLabel) -> String {
    let left = 100.0 * label.middle;
    format!(
        "<i class=l{} style='left:{left:.2}%'>{}</i>",
        label.level, label.name
    )
}

/// Returns the HTML of about `count` tick labels on the y axis, without those below the fraction `lowest` of its
/// length. The upper picture leaves room at its foot for the highest tick of the lower one.
fn y_tick_labels(axis: &PlotAxis, count: usize, lowest: f64) -> String {
    axis.choose_ticks(count)
        .into_iter()
        .filter(|tick| tick.fraction >= lowest)
        .map(|Tick { fraction, text }| {
            format!("<i style='bottom:{:.1}%'>{text}</i>", 100.0 * fraction)
        })
        .collect()
}

/// Returns the HTML of about nine tick labels on the x axis. Every second one has the class `more`, which narrow
/// pictures hide.
fn x_tick_labels(axis: &PlotAxis) -> String {
    let mut labels = String::new();
    for (k, Tick { fraction, text }) in axis.choose_ticks(9).into_iter().enumerate() {
        let class = if k % 2 == 1 { " class=more" } else { "" };
        let left = 100.0 * fraction;
        let _ = write!(labels, "<i{class} style='left:{left:.2}%'>{text}</i>");
    }
    labels
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
    fn continuum_is_scaled_only_if_in_other_units() {
        let near = DrawnContinuum::from_arm(&arm(2.0, Some(2.5)));
        assert_eq!((near.factor, near.flux[0]), (1.0, 2.5));
        let far = DrawnContinuum::from_arm(&arm(2.0, Some(4e-6)));
        assert_eq!((far.factor, far.flux[0]), (5e5, 2.0));
        assert!(
            draw_arm(&arm(2.0, Some(4e-6)), 0.0, PictureWidth::Whole)
                .contains("</i>multiplier × 500000<")
        );
    }

    #[test]
    fn legend_names_only_the_curves_that_are_drawn() {
        let with_fit_and_continuum = draw_arm(&arm(1.0, Some(1.0)), 0.0, PictureWidth::Whole);
        for text in [
            ">Hα</i>",
            "</i>multiplier<",
            "</i>mean of 5 residuals<",
            "</i>model<",
        ] {
            assert!(
                with_fit_and_continuum.contains(text),
                "{text}: {with_fit_and_continuum}"
            );
        }
        let without_continuum = draw_arm(&arm(1.0, None), 0.0, PictureWidth::Whole);
        assert!(
            !without_continuum.contains("</i>multiplier"),
            "{without_continuum}"
        );
        let without_fit = draw_arm(&arm(f64::NAN, None), f64::NAN, PictureWidth::Whole);
        for text in ["Hα", "</i>model", "</i>mean", "NaN"] {
            assert!(!without_fit.contains(text), "{text}: {without_fit}");
        }
    }
}
