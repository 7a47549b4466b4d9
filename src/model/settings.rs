//! Settings of a model, as a user gives them: arms, continuum, parameters.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::buffers::Estimator;
use crate::emulator::Emulator;
pub use crate::recording::Interpolation;
use crate::setters::setters;
use crate::spectra::Widening;
use crate::words::named;

/// A smooth multiplicative function, linear in its coefficients, which are solved for without iterations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Continuum {
    /// Kind of its basis.
    pub(crate) kind: ContinuumKind,
    /// Number of coefficients.
    pub(crate) terms: usize,
}

/// Basis of a continuum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContinuumKind {
    /// Chebyshev polynomials T₀, T₁, … of the wavelength, scaled to ±1 over the arm.
    Chebyshev,
    /// The basis of rvspecfit: 1, x, x² and `terms − 3` Gaussians.
    Rbf,
    /// No continuum: the model's flux is compared with the data as it is.
    None,
}

named!(ContinuumKind, "kind of continuum", ["chebyshev" => Chebyshev, "rbf" => Rbf, "none" => None]);

impl ContinuumKind {
    /// Returns the allowed numbers of continuum terms of this kind: 0, 1 to 32 or 4 to 32.
    pub(crate) const fn terms(self) -> std::ops::RangeInclusive<usize> {
        /// Maximum number of terms of either basis.
        const MAX_CONTINUUM_TERMS: usize = 32;
        match self {
            ContinuumKind::None => 0..=0,
            ContinuumKind::Chebyshev => 1..=MAX_CONTINUUM_TERMS,
            ContinuumKind::Rbf => 4..=MAX_CONTINUUM_TERMS,
        }
    }
}

impl Continuum {
    /// Makes a continuum of `terms` Chebyshev polynomials, of degrees 0 to `terms` − 1.
    pub const fn chebyshev(terms: usize) -> Continuum {
        Continuum {
            kind: ContinuumKind::Chebyshev,
            terms,
        }
    }

    /// Makes a continuum of `terms` functions as in rvspecfit: 1, x, x² and Gaussians (radial basis functions).
    pub const fn rbf(terms: usize) -> Continuum {
        Continuum {
            kind: ContinuumKind::Rbf,
            terms,
        }
    }

    /// Leaves the continuum out, for normalised spectra.
    pub const fn none() -> Continuum {
        Continuum {
            kind: ContinuumKind::None,
            terms: 0,
        }
    }
}

/// Line spread function of the spectrograph, in addition to that of the emulator's templates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum LineSpread {
    /// No additional broadening.
    #[default]
    None,
    /// The spectra's own banded resolution matrix, after resampling.
    File,
    /// Resolving power R = λ/Δλ, with Δλ the full width at half maximum: a Gaussian of σ = 1/(2.3548 R) in ln λ on the
    /// template.
    ResolvingPower(f64),
    /// Full width at half maximum of a Gaussian, Å, at the template's own wavelengths.
    Fwhm(f64),
}

/// Meaning of a spectrum's pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Pixels {
    /// The value at the pixel's wavelength.
    Sample,
    /// The mean over the pixel, uniformly in ln λ as the template's grid is. The pixel's edges lie half way between the
    /// wavelengths of the spectrum's grid.
    Integrate,
}

named!(Pixels, "meaning of pixels", ["sample" => Sample, "integrate" => Integrate]);

/// One arm of the spectrograph: an emulator, and which of the spectra's arrays it is compared with.
#[derive(Clone, Debug)]
pub struct Arm {
    pub(crate) name: String,
    pub(crate) emulator: Arc<Emulator>,
    pub(crate) range: Option<(f64, f64)>,
    pub(crate) interpolation: Interpolation,
    pub(crate) continuum: Option<Continuum>,
    pub(crate) line_spread: LineSpread,
    pub(crate) pixels: Option<Pixels>,
}

impl Arm {
    /// Makes an arm with default settings from an emulator; `name` is that of the arm in the files of spectra.
    pub fn new(name: impl Into<String>, emulator: Emulator) -> Arm {
        Arm::from_shared(name, Arc::new(emulator))
    }

    /// Makes an arm with default settings from an emulator that other arms may share.
    pub(super) fn from_shared(name: impl Into<String>, emulator: Arc<Emulator>) -> Arm {
        Arm {
            name: name.into(),
            emulator,
            range: None,
            interpolation: Interpolation::Cubic,
            continuum: None,
            line_spread: LineSpread::None,
            pixels: None,
        }
    }

    /// Restricts the arm to pixels in this range of wavelengths (Å).
    #[must_use]
    pub fn range(mut self, range: RangeInclusive<f64>) -> Arm {
        self.range = Some(range.into_inner());
        self
    }

    /// Sets how the template is interpolated; the cubic B-spline is right unless the network was trained with a linear
    /// one.
    #[must_use]
    pub fn interpolation(mut self, interpolation: Interpolation) -> Arm {
        self.interpolation = interpolation;
        self
    }

    /// Overrides the model's continuum for this arm.
    #[must_use]
    pub fn continuum(mut self, continuum: Continuum) -> Arm {
        self.continuum = Some(continuum);
        self
    }

    /// Sets the instrument's line spread, by which templates are broadened; `LineSpread::None` unless set.
    #[must_use]
    pub fn line_spread(mut self, line_spread: LineSpread) -> Arm {
        self.line_spread = line_spread;
        self
    }

    /// Sets what a pixel shows of the template; `Pixels::Sample` unless set. `popfit check` warns where pixels are
    /// wide.
    #[must_use]
    pub fn pixels(mut self, pixels: Pixels) -> Arm {
        self.pixels = Some(pixels);
        self
    }
}

/// Settings of a label: start, bounds, fixed value or tie, prior and columns. Physical units.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LabelSettings {
    pub(crate) start: Option<f64>,
    pub(crate) bounds: Option<(f64, f64)>,
    pub(crate) fixed: Option<f64>,
    pub(crate) tied: Option<String>,
    pub(crate) prior: Option<(f64, f64)>,
    pub(crate) columns: LabelColumns,
}

setters!(LabelSettings {
    /// Sets the value of every start, in place of those of the first guess.
    start: f64, Some;
    /// Sets the value at which the label is held.
    fixed: f64, Some;
    /// Sets a linear combination of other labels, such as `0.4 - 0.1*feh`. It excludes all other settings.
    tied: impl Into<String>, into;
});

impl LabelSettings {
    /// Sets the lower and upper bound of the label, in physical units, in place of the emulator's training range.
    #[must_use]
    pub fn bounds(mut self, bounds: RangeInclusive<f64>) -> LabelSettings {
        self.bounds = Some(bounds.into_inner());
        self
    }

    /// Sets a Gaussian prior of the label, its mean and standard deviation in physical units.
    #[must_use]
    pub fn prior(mut self, mean: f64, sigma: f64) -> LabelSettings {
        self.prior = Some((mean, sigma));
        self
    }

    /// Sets the column of the spectra's own table with the value at which the fit of each spectrum begins.
    #[must_use]
    pub fn start_column(mut self, column: impl Into<String>) -> LabelSettings {
        self.columns.start = Some(column.into());
        self
    }

    /// Sets the column of the lower bound. Bounds from columns are clipped to those of the model.
    #[must_use]
    pub fn lower_column(mut self, column: impl Into<String>) -> LabelSettings {
        self.columns.lower = Some(column.into());
        self
    }

    /// Sets the column of the upper bound, clipped likewise.
    #[must_use]
    pub fn upper_column(mut self, column: impl Into<String>) -> LabelSettings {
        self.columns.upper = Some(column.into());
        self
    }

    /// Sets the column of the prior's mean.
    #[must_use]
    pub fn mean_column(mut self, column: impl Into<String>) -> LabelSettings {
        self.columns.mean = Some(column.into());
        self
    }

    /// Sets the column of the prior's standard deviation.
    #[must_use]
    pub fn sigma_column(mut self, column: impl Into<String>) -> LabelSettings {
        self.columns.sigma = Some(column.into());
        self
    }
}

/// Columns of the spectra's own table with values per spectrum, which replace the numbers of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelColumns {
    pub start: Option<String>,
    pub lower: Option<String>,
    pub upper: Option<String>,
    pub mean: Option<String>,
    pub sigma: Option<String>,
}

/// Treatment of pixels whose ivar is not finite, or whose flux is not finite although ivar > 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum NonFinite {
    /// The spectrum gets status −1.
    #[default]
    Error,
    /// The pixel is masked and the row is flagged.
    Mask,
}

named!(NonFinite, "treatment of pixels that are not finite", ["error" => Error, "mask" => Mask]);

/// Treatment of the spectra when they are read: masks, widened errors and floors.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SpectraSettings {
    pub(crate) mask: Vec<(f64, f64)>,
    pub(crate) mask_rest: Vec<(f64, f64)>,
    pub(crate) widen: Option<Widening>,
    pub(crate) jitter: Jitter,
    pub(crate) error_floor: f64,
    pub(crate) nonfinite: NonFinite,
    pub(crate) loss: Estimator,
}

setters!(SpectraSettings {
    /// Sets the masked intervals in the observer's frame, in Å.
    mask: Vec<(f64, f64)>;
    /// Sets the masked intervals in the star's frame, that of the network, in Å in vacuum. A pixel does not count if
    /// it lies in an interval at any velocity within a margin of the fitted one.
    mask_rest: Vec<(f64, f64)>;
    /// Sets the bits of the spectra's masks that widen errors instead of masking pixels. The spectra are to be read
    /// with the same rule: `Selection::widen` for files, or
    /// [`ArmSpectra::with_mask_bits`](crate::spectra::ArmSpectra::with_mask_bits) for arrays.
    widen: Widening, Some;
    /// Sets the fraction of each pixel's flux that is added to its error in quadrature.
    jitter: impl Into<Jitter>, convert;
    /// Sets the fraction of the median error to which smaller errors are raised, after the jitter.
    error_floor: f64;
    /// Sets the treatment of pixels that are not finite.
    nonfinite: NonFinite;
    /// Sets the loss of the pixels' residuals: least squares unless it is a robust one.
    loss: Estimator;
});

/// Errors that are a fraction of the flux, such as those of calibration. They are added to the errors of the pixels in
/// quadrature.
#[derive(Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Jitter {
    /// σ² + (s · flux)² with this fraction s, and the flux of the data.
    Fraction(f64),
    /// σ² + (s m)² with the flux m of the best-fit model, or (k σ)² with k ≥ 1: in each arm of each spectrum the
    /// likelier of the two, with s or k of the greatest likelihood.
    Fitted,
}

impl Default for Jitter {
    fn default() -> Jitter {
        Jitter::Fraction(0.0)
    }
}

/// A fraction is written as its number, as models of journals and plans have it.
impl std::fmt::Debug for Jitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Jitter::Fraction(fraction) => fraction.fmt(f),
            Jitter::Fitted => f.write_str("Fitted"),
        }
    }
}

impl From<f64> for Jitter {
    fn from(fraction: f64) -> Jitter {
        Jitter::Fraction(fraction)
    }
}

/// Treatment of the other parameters while the velocity is scanned.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum VelocityScan {
    /// There is no scan.
    #[default]
    Off,
    /// Labels and vsini stay at the best fit, as in rvspecfit.
    Fixed,
    /// Labels and vsini are fitted anew at every velocity.
    Refitted,
}

named!(VelocityScan, "scan of the velocity", ["off" => Off, "fixed" => Fixed, "refitted" => Refitted]);

/// Velocity of an object that was exposed several times. All exposures have the same labels and vsini, and each has a
/// continuum and a resolution of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ExposureVelocity {
    /// All exposures have one velocity.
    Shared,
    /// Each exposure has its own velocity.
    Each,
}

named!(ExposureVelocity, "velocity of exposures", ["shared" => Shared, "each" => Each]);

/// Labels that the spectra of a cluster share: those with the same value in a column.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SharedLabels {
    /// Name of the column of texts or whole numbers. A spectrum whose value is an empty text, a negative number or NaN
    /// belongs to no cluster.
    pub column: String,
    /// Names of the labels, which are free parameters of the model.
    pub labels: Vec<String>,
}
