//! Pixels that the template covers (see `docs/src/equations.md`, section 4).
//!
//! The light of a pixel comes from its Doppler-shifted place in the template and from the neighbourhood of that place.
//! Interpolation, line spread, rotation and the spectra's own resolution carry it from there. The template *covers* a
//! pixel if all of these places lie inside it. Beyond the ends of a piece of the template the spectrum is unknown, and
//! the kernels assume a flux without lines. Pixels that need it would pull vsini to zero, and bias the other parameters
//! by many errors. They do not count.
//!
//! Masks of the star's frame are applied in the same way, because the pixels that they hide depend on the velocity.

use super::sampling::Sampling;
use super::spread::half_width;
use super::{Interpolation, ModelArm, ParameterLimits, SpectralModel};
use crate::emulator::GridSegment;
use crate::recording::{LIGHT, Rotation, Velocity};

/// Margin of velocity and of vsini around a point, in km/s.
const MOTION_MARGIN: f64 = 5.0;
/// Velocities in km/s are widened to multiples of this, so that points near each other have the same pixels.
const VELOCITY_STEP: f64 = 20.0;
/// vsini in km/s is widened to the next of these. The library of the first guess has 5, 30, 80 and 200.
const VSINI_STEPS: [f64; 5] = [25.0, 60.0, 120.0, 250.0, 500.0];
/// Number of pixels next to an end of the template in which a cubic spline is inaccurate, because the template is
/// continued by its end value. The error is 2 % of the slope per pixel in the second interval from the end, and 0.15 %
/// in the fourth.
const SPLINE_PIXELS: f64 = 3.0;
/// Rounding of a pixel's place, in template pixels.
const PLACE_ROUNDING: f64 = 1e-5;

/// Ranges of radial velocities, and the largest vsini, at which the templates have to cover the pixels of a spectrum.
#[derive(Clone, Debug, PartialEq)]
pub struct Motion {
    /// (exposures) Lowest and highest velocity in km/s. A spectrum by itself is one exposure.
    velocities: Vec<[f64; 2]>,
    /// Largest vsini in km/s.
    vsini: f64,
}

/// The motion in one arm of a spectrum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArmMotion {
    /// Lowest and highest velocity in km/s.
    velocity: [f64; 2],
    /// Largest vsini in km/s.
    vsini: f64,
}

impl Motion {
    /// Returns the velocities and vsini in a margin around parameters `u`, in the solver's units, as far as a
    /// spectrum's bounds allow them.
    pub fn around(model: &SpectralModel, u: &[f64], limits: &[ParameterLimits]) -> Motion {
        let physical_value = |p: usize| model.parameters[p].to_physical(u[p]);
        let widen_velocity = |velocity: &Velocity| match *velocity {
            Velocity::Fixed(speed) => [speed; 2],
            Velocity::Parameter(p) => {
                let ParameterLimits { lower, upper, .. } = limits[p];
                let steps = physical_value(p) / VELOCITY_STEP;
                let margin = MOTION_MARGIN / VELOCITY_STEP;
                [
                    ((steps - margin).floor() * VELOCITY_STEP).max(lower),
                    ((steps + margin).ceil() * VELOCITY_STEP).min(upper),
                ]
            }
        };
        let vsini = match model.vsini {
            None => 0.0,
            Some(Rotation::Fixed(speed)) => speed,
            Some(Rotation::Parameter { parameter: p, .. }) => {
                let smallest = physical_value(p) + MOTION_MARGIN;
                let next_step = VSINI_STEPS.into_iter().find(|step| *step >= smallest);
                next_step.unwrap_or(f64::INFINITY).min(limits[p].upper)
            }
        };
        Motion {
            velocities: model.velocities.iter().map(widen_velocity).collect(),
            vsini,
        }
    }

    /// Returns the motion around the first of a spectrum's starts `u`, in the solver's units, that also contains the
    /// velocities of the others, which compete with it; `None` without starts.
    pub fn around_starts<'s>(
        model: &SpectralModel,
        starts: impl IntoIterator<Item = &'s Vec<f64>>,
        limits: &[ParameterLimits],
    ) -> Option<Motion> {
        let mut motions = starts.into_iter().map(|u| Motion::around(model, u, limits));
        let first = motions.next()?;
        let vsini = first.vsini;
        Some(motions.fold(first, |widest, motion| Motion {
            vsini,
            ..widest.union(&motion)
        }))
    }

    /// Returns the motion in arm `a`, which is that of its exposure.
    pub fn of_arm(&self, a: usize) -> ArmMotion {
        ArmMotion {
            velocity: self.velocities[a % self.velocities.len()],
            vsini: self.vsini,
        }
    }

    /// Returns the smallest motion that contains this one and another.
    pub fn union(&self, other: &Motion) -> Motion {
        let velocities = self.velocities.iter().zip(&other.velocities);
        Motion {
            velocities: velocities
                .map(|([low, high], [other_low, other_high])| {
                    [low.min(*other_low), high.max(*other_high)]
                })
                .collect(),
            vsini: self.vsini.max(other.vsini),
        }
    }
}

impl ArmMotion {
    /// Returns the motions at the lowest and the highest velocity of the model, at its largest vsini.
    pub fn extremes(model: &SpectralModel) -> [ArmMotion; 2] {
        let (low, high) = model.velocity_range().into_inner();
        let vsini = match model.vsini {
            None => 0.0,
            Some(Rotation::Fixed(vsini) | Rotation::Parameter { most: vsini, .. }) => vsini,
        };
        [low, high].map(|velocity| ArmMotion {
            velocity: [velocity; 2],
            vsini,
        })
    }

    /// Returns how far the motion moves the template over the pixels of a spectrum, and how far rotation carries light,
    /// in ln λ: shift at the lowest velocity, shift at the highest, and half-width.
    fn in_log_wavelength(self) -> ([f64; 2], f64) {
        (
            self.velocity
                .map(|velocity| (velocity / LIGHT).clamp(-1.0, 1.0).atanh()),
            self.vsini.max(0.0) / LIGHT,
        )
    }
}

/// Distances in ln λ between pixels and the ends of their piece of the template, at rest and without rotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Clearance {
    lower: f64,
    upper: f64,
}

impl Clearance {
    /// The clearance of a grid without pixels.
    pub(super) const INFINITE: Clearance = Clearance {
        lower: f64::INFINITY,
        upper: f64::INFINITY,
    };

    /// Returns the smaller of two distances to either end.
    fn min(self, other: Clearance) -> Clearance {
        Clearance {
            lower: self.lower.min(other.lower),
            upper: self.upper.min(other.upper),
        }
    }

    /// Returns whether the template covers a pixel of this clearance, where kernels reach `kernels` further (ln λ).
    fn admits(self, [lowest, highest]: [f64; 2], kernels: f64) -> bool {
        // A receding star shifts the place of a pixel towards the lower end of the template.
        self.lower - highest >= kernels && self.upper + lowest >= kernels
    }
}

impl Sampling {
    /// Returns the piece of the template in which a pixel lies at rest, and its place there in template pixels; `None`
    /// if it lies outside the template.
    fn place_in_template<'a>(
        &self,
        arm: &'a ModelArm,
        pixel: usize,
    ) -> Option<(&'a GridSegment, f64)> {
        let packed = self.index[pixel];
        let segment = arm.grid.segments.get(usize::try_from(packed).ok()? >> 24)?;
        let place = f64::from(packed & 0xff_ffff) + f64::from(self.fraction[pixel]);
        Some((segment, place - segment.start as f64))
    }

    /// Returns the distances from a pixel to the ends of its piece, less the reach of the arm's line spread and the
    /// extent of the pixel; `None` if the pixel lies outside the template at rest.
    fn clearance_of(&self, arm: &ModelArm, pixel: usize) -> Option<Clearance> {
        let (segment, place) = self.place_in_template(arm, pixel)?;
        let spread = half_width(arm, segment) - PLACE_ROUNDING;
        let [lower_edges, upper_edges] = [0, self.edges.len() / 2];
        let edge = |index: usize| self.edges.get(index).map_or(0.0, |edge| f64::from(*edge));
        let below = edge(lower_edges + pixel);
        let above = edge(upper_edges + pixel);
        let last_place = (segment.end - 1 - segment.start) as f64;
        Some(Clearance {
            lower: (place - below - spread) * segment.step,
            upper: (last_place - place - above - spread) * segment.step,
        })
    }

    /// Returns the smallest clearance among the pixels that count at rest and those from which a resolution matrix
    /// carries light to them.
    pub(super) fn least_clearance(&self, arm: &ModelArm) -> Clearance {
        let half = self.resolution_half;
        let counted = (0..self.pixels).filter(|&j| self.on[j]);
        counted
            .flat_map(|j| j.saturating_sub(half)..=j + half)
            .filter_map(|j| (j < self.pixels).then(|| self.clearance_of(arm, j))?)
            .fold(Clearance::INFINITE, Clearance::min)
    }

    /// Returns how far interpolation and rotation carry light beyond their pixels, in template pixels of this grid.
    fn kernel_pixels(&self, arm: &ModelArm, motion: ArmMotion) -> f64 {
        let is_sampled = !(self.is_template && motion.velocity == [0.0, 0.0]);
        let is_cubic = arm.interpolation == Interpolation::Cubic;
        let spline = if is_sampled && is_cubic {
            SPLINE_PIXELS
        } else {
            0.0
        };
        spline + f64::from(u8::from(motion.vsini > 0.0))
    }

    /// Returns whether the template covers all pixels that count at rest.
    fn reaches_all(&self, arm: &ModelArm, motion: ArmMotion) -> bool {
        let largest_step = arm
            .grid
            .segments
            .iter()
            .map(|segment| segment.step)
            .fold(0.0, f64::max);
        let (shifts, rotation) = motion.in_log_wavelength();
        self.clearance.admits(
            shifts,
            rotation + self.kernel_pixels(arm, motion) * largest_step,
        )
    }

    /// Returns which of the pixels that count at rest the template covers (pixels).
    pub fn find_reached(&self, arm: &ModelArm, motion: ArmMotion) -> Vec<bool> {
        if self.reaches_all(arm, motion) {
            return self.on.clone();
        }
        let (shifts, rotation) = motion.in_log_wavelength();
        let kernel_pixels = self.kernel_pixels(arm, motion);
        let mut reached = self.on.clone();
        for j in 0..self.pixels {
            let is_covered = self.clearance_of(arm, j).is_some_and(|clearance| {
                let segment = &arm.grid.segments[(self.index[j] >> 24) as usize];
                clearance.admits(shifts, rotation + kernel_pixels * segment.step)
            });
            // An uncovered pixel also excludes those to which a resolution matrix carries its light.
            if !is_covered {
                let end = (j + self.resolution_half + 1).min(self.pixels);
                reached[j.saturating_sub(self.resolution_half)..end].fill(false);
            }
        }
        reached
    }

    /// Returns whether a pixel that counts at rest lies in a mask of the star's frame at any velocity of a motion.
    fn is_masked(&self, arm: &ModelArm, motion: ArmMotion, pixel: usize) -> bool {
        let ([lowest, highest], _) = motion.in_log_wavelength();
        if arm.mask_rest.is_empty() {
            return false;
        }
        let Some((segment, place)) = self.place_in_template(arm, pixel) else {
            return false;
        };
        let log_wavelength = segment.origin + place * segment.step;
        arm.mask_rest
            .iter()
            .any(|[low, high]| log_wavelength - highest <= *high && log_wavelength - lowest >= *low)
    }

    /// Returns whether all pixels that count at rest also count at a motion, without a test of each pixel.
    pub fn counts_all(&self, arm: &ModelArm, motion: ArmMotion) -> bool {
        arm.mask_rest.is_empty() && self.reaches_all(arm, motion)
    }

    /// Returns which of the pixels that count at rest also count at a motion (pixels): those that the template covers,
    /// outside the masks of the star's frame.
    pub fn find_counted(&self, arm: &ModelArm, motion: ArmMotion) -> Vec<bool> {
        let mut counted = self.find_reached(arm, motion);
        for (j, counts) in counted.iter_mut().enumerate() {
            *counts = *counts && !self.is_masked(arm, motion, j);
        }
        counted
    }
}

/// Numbers of an arm's pixels that the model uses, and that the template does not cover, at a motion.
pub(super) struct PixelCounts {
    /// Number of pixels that the model uses; the spectrum may mask some of them.
    pub in_range: usize,
    /// Number of pixels with weight that are left out because the template does not cover them.
    pub unreached: usize,
}

impl PixelCounts {
    /// Sets the `ivar` of a pixel to 0 if the arm's template does not cover it at a motion, or if it lies in a mask of
    /// the star's frame. Returns the numbers of pixels.
    pub fn mask_uncounted(
        arm: &ModelArm,
        sampling: &Sampling,
        motion: Option<ArmMotion>,
        ivar: &mut [f64],
    ) -> PixelCounts {
        let all_counted = PixelCounts {
            in_range: sampling.used,
            unreached: 0,
        };
        let Some(motion) = motion.filter(|motion| !sampling.counts_all(arm, *motion)) else {
            return all_counted;
        };
        let counted = sampling.find_counted(arm, motion);
        let mut unreached = 0;
        for (j, w) in ivar.iter_mut().enumerate() {
            if !counted[j] && *w > 0.0 {
                *w = 0.0;
                unreached += usize::from(!sampling.is_masked(arm, motion, j));
            }
        }
        PixelCounts {
            in_range: counted.iter().filter(|counts| **counts).count(),
            unreached,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Emulator;
    use crate::model::{Arm, ExposureVelocity};

    fn build_model(rotation: bool) -> SpectralModel {
        let emulator = Emulator::open(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/data/emulator.safetensors"
        ))
        .unwrap();
        let builder = SpectralModel::builder()
            .add_arm(Arm::new("", emulator))
            .velocity(-500.0..=500.0);
        if rotation {
            builder.vsini(0.0..=300.0)
        } else {
            builder
        }
        .build()
        .unwrap()
    }

    /// Returns the limits of a model's parameters, and its lower bounds in the solver's units.
    fn list_limits(model: &SpectralModel) -> (Vec<ParameterLimits>, Vec<f64>) {
        let parameters = model.parameters.iter();
        parameters
            .map(|parameter| (parameter.limits(), parameter.to_u(parameter.lower)))
            .unzip()
    }

    /// Counts the pixels of the template's own grid that do not count at each end.
    fn count_excluded(model: &SpectralModel, velocity: f64, vsini: f64) -> [usize; 2] {
        let arm = &model.arms[0];
        let sampling = Sampling::new(arm, arm.emulator.wavelength(), &[], 0).unwrap();
        let motion = ArmMotion {
            velocity: [velocity; 2],
            vsini,
        };
        let reached = sampling.find_reached(arm, motion);
        assert_eq!(sampling.reaches_all(arm, motion), reached == sampling.on);
        let ends = [
            reached.iter().position(|on| *on),
            reached.iter().rev().position(|on| *on),
        ];
        assert_eq!(
            reached.iter().filter(|on| !**on).count(),
            ends.iter().flatten().sum::<usize>()
        );
        ends.map(Option::unwrap)
    }

    #[test]
    fn pixels_beyond_the_template_do_not_count() {
        let model = build_model(true);
        let step = model.arms[0].grid.segments[0].step;
        let template_pixels = |velocity: f64| velocity / LIGHT / step;
        assert_eq!(count_excluded(&model, 0.0, 0.0), [0, 0]);
        // The pixels of a receding star are read further to the blue.
        let shift = (template_pixels(400.0) + SPLINE_PIXELS).ceil() as usize;
        assert_eq!(count_excluded(&model, 400.0, 0.0), [shift, 0]);
        assert_eq!(count_excluded(&model, -400.0, 0.0), [0, shift]);
        let rotation = (template_pixels(200.0) + 1.0).ceil() as usize;
        assert_eq!(count_excluded(&model, 0.0, 200.0), [rotation, rotation]);
    }

    #[test]
    fn margins_end_at_the_bounds_and_unions_contain_both_motions() {
        let model = build_model(true);
        let (limits, mut u) = list_limits(&model);
        u[0] = model.parameters[0].to_u(490.0);
        u[1] = model.parameters[1].to_u(100.0);
        let motion = Motion::around(&model, &u, &limits);
        assert_eq!(
            motion,
            Motion {
                velocities: vec![[480.0, 500.0]],
                vsini: 120.0
            }
        );
        u[1] = model.parameters[1].to_u(280.0);
        assert_eq!(Motion::around(&model, &u, &limits).vsini, 300.0);
        let other_motion = Motion {
            velocities: vec![[-20.0, 490.0]],
            vsini: 3.0,
        };
        assert_eq!(
            motion.union(&other_motion),
            Motion {
                velocities: vec![[-20.0, 500.0]],
                vsini: 120.0
            }
        );
    }

    /// A fast exposure takes no pixels from the others.
    #[test]
    fn each_exposure_has_the_pixels_of_its_own_velocity() {
        let mut model = build_model(false);
        model.exposures = Some(ExposureVelocity::Each);
        let model = model.for_exposures(2);
        let (limits, mut u) = list_limits(&model);
        let fast = model.free_velocities()[1];
        u[0] = model.parameters[0].to_u(0.0);
        u[fast] = model.parameters[fast].to_u(400.0);
        let motion = Motion::around(&model, &u, &limits);
        let arm = &model.arms[0];
        let sampling = Sampling::new(arm, arm.emulator.wavelength(), &[], 0).unwrap();
        let excluded = [0, 1].map(|a| {
            let counted = sampling.find_counted(arm, motion.of_arm(a));
            counted.iter().filter(|counts| !**counts).count()
        });
        let step = arm.grid.segments[0].step;
        let shift = |velocity: f64| (velocity / LIGHT / step + SPLINE_PIXELS).ceil() as usize;
        assert_eq!(excluded, [2 * shift(20.0), shift(420.0)]);
    }
}
