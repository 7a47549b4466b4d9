//! One arm of spectra: its validated arrays, from which batches are read.

use std::borrow::Cow;
use std::sync::Arc;

use super::names;
use super::source::{ArrayHead, ArrayRows, ArraySource, SourcePlace, format_shape};
use super::weights::{self, WeightArray};
use crate::error::Result;
use crate::spectra::arm::check_grid;
use crate::spectra::widening::{MaskRule, PixelMask};
use crate::spectra::{ArmSpectra, NoiseCovariance, Resolution, Wavelength, air};
use crate::values::Values;

/// The arrays of an arm, each with `length` rows of `pixels`.
pub struct ArrayArm<R> {
    pub name: String,
    pub length: usize,
    pub pixels: usize,
    grid: ArmGrid<R>,
    /// True if the stored wavelengths are in air. Those of batches are in vacuum.
    pub in_air: bool,
    flux: R,
    /// Inverse variances, or standard errors; `None` if the covariance gives them.
    weight: Option<R>,
    /// True if the weights are sigma, not ivar.
    is_sigma: bool,
    mask: Option<R>,
    /// Meaning of the bits of a mask of integers.
    rule: MaskRule,
    /// Number of diagonals and rows of the resolution matrices.
    resolution: Option<(usize, R)>,
    /// Number of diagonals and rows of the covariance matrices.
    covariance: Option<(usize, R)>,
    /// Flux and weights of earlier batches, whose memory is used again. The system fills new pages with zeros.
    spare: Vec<[Values<'static>; 2]>,
}

/// Number of bytes from which reading on a second thread is faster.
pub const MIN_BYTES_FOR_TWO_THREADS: u64 = 1 << 22;

/// The wavelength grid of all spectra, or the rows of one per spectrum.
enum ArmGrid<R> {
    Shared(Arc<[f64]>),
    Own(R),
}

impl<R> ArrayArm<R> {
    /// Finds the arrays of arm `name` (empty: no prefix), checks their shapes, and reads each through once to find
    /// damage.
    pub fn open<'a, S>(source: &mut S, name: String, rule: MaskRule) -> Result<ArrayArm<R>>
    where
        S: ArraySource<'a, Rows = R>,
        R: ArrayRows<'a>,
    {
        let key = |part: &str| names::array_name(&name, part);
        // 1. Find the arrays, and reserve the memory that they take beside the spectra.
        let flux = key("flux");
        let shape = read_shape(source, &flux)?;
        let [length, pixels] = shape;
        if pixels == 0 {
            return Err(source.place().error(format!("`{flux}` has no pixels")));
        }
        for array in names::ARM_ARRAYS {
            source.reserve_memory(&key(array))?;
        }
        // 2. Check and read through the weights, the flux and the optional arrays.
        let weight_array = weights::find_weights(source, key, shape)?;
        let is_sigma = matches!(weight_array, WeightArray::Sigma(_));
        let in_air = is_in_air(source, [&key("medium"), "medium"])?;
        expect_numbers(source, &flux, shape)?;
        let weight = match weight_array {
            WeightArray::Ivar(weight) | WeightArray::Sigma(weight) => {
                expect_numbers(source, &weight, shape)?;
                source.check_two_arrays(&flux, &weight)?;
                Some(weight)
            }
            WeightArray::Covariance => {
                source.read_through_array(&flux)?;
                None
            }
        };
        let mask = match source.read_head(&key("mask"))? {
            Some(head) => Some(open_flags(source, &key("mask"), head, shape)?),
            None => None,
        };
        let resolution = open_resolution(source, &key("resolution"), shape)?;
        let covariance = open_covariance(source, &key("covariance"), shape)?;
        let grid = open_grid(source, &key("wavelength"), shape, in_air)?;
        // 3. Open the arrays for reading row by row.
        let flux = source.open_rows(&flux)?;
        let weight = weight.map(|weight| source.open_rows(&weight)).transpose()?;
        Ok(ArrayArm {
            name,
            length,
            pixels,
            grid,
            in_air,
            flux,
            weight,
            is_sigma,
            mask,
            rule,
            resolution,
            covariance,
            spare: Vec::new(),
        })
    }

    /// Returns the memory that one spectrum of this arm takes (bytes).
    pub fn spectrum_bytes<'a>(&self) -> u64
    where
        R: ArrayRows<'a>,
    {
        let element_bytes = |rows: &R| {
            if rows.kind().is_single() {
                size_of::<f32>()
            } else {
                size_of::<f64>()
            }
        };
        let weight = match &self.weight {
            Some(weight) if !self.is_sigma => element_bytes(weight),
            _ => size_of::<f64>(),
        };
        let wavelength = if matches!(self.grid, ArmGrid::Own(_)) {
            size_of::<f64>()
        } else {
            0
        };
        let diagonals = self
            .resolution
            .as_ref()
            .map_or(0, |(diagonals, _)| *diagonals);
        let mask = usize::from(self.mask.is_some());
        let resolution = diagonals * size_of::<f32>();
        let covariance = self
            .covariance
            .as_ref()
            .map_or(0, |(diagonals, rows)| diagonals * element_bytes(rows));
        let matrices = resolution + covariance;
        let pixel_bytes = element_bytes(&self.flux) + weight + wavelength + mask + matrices;
        (self.pixels as u64).saturating_mul(pixel_bytes as u64)
    }

    /// Reads the next `rows` spectra of this arm.
    pub fn read_batch<'a>(&mut self, rows: usize, place: &SourcePlace) -> Result<ArmSpectra<'a>>
    where
        R: ArrayRows<'a>,
    {
        let too_large = || {
            place.too_large_error(format!(
                "{rows} spectra at once do not fit memory; read smaller batches"
            ))
        };
        // 1. Read flux and weights, at the same time if they are large.
        let elements = rows.checked_mul(self.pixels).ok_or_else(too_large)?;
        let bytes = elements.saturating_mul(size_of::<f64>()) as u64;
        let is_large = bytes > MIN_BYTES_FOR_TWO_THREADS;
        let [flux_memory, weight_memory] = self.spare.pop().unwrap_or_default();
        let flux = &mut self.flux;
        let weight = &mut self.weight;
        let read_flux = || flux.take_values(elements, flux_memory);
        let read_ivar = || match weight {
            Some(sigma) if self.is_sigma => sigma
                .take_doubles(elements, weight_memory)
                .map(sigmas_to_ivars),
            Some(ivar) => ivar.take_values(elements, weight_memory),
            None => Ok(Values::default()),
        };
        let (flux, ivar) = run_both(is_large, read_flux, read_ivar);
        let flux = flux?;
        let mut ivar = ivar?;
        // 2. Read the wavelengths.
        let wavelength = match &mut self.grid {
            ArmGrid::Shared(grid) => Wavelength::Shared(grid.clone()),
            ArmGrid::Own(grids) => {
                let mut grids = grids.take_doubles(elements, Values::default())?;
                if self.in_air {
                    grids
                        .to_mut()
                        .iter_mut()
                        .for_each(|w| *w = air::to_vacuum(*w));
                }
                Wavelength::Own(grids.into())
            }
        };
        // 3. Read the mask: bits if they may widen errors, else flags.
        let applied = self.rule.applied_widening(self.has_bits());
        let mut mask: Cow<[bool]> = Cow::default();
        let mut pixel_masks = None;
        match &mut self.mask {
            Some(bits) if applied.as_ref().is_some_and(|applied| applied.has_bits) => {
                let mut judged: Vec<PixelMask> = Vec::new();
                judged
                    .try_reserve_exact(elements)
                    .map_err(|_| too_large())?;
                bits.take_bits(elements, &mut |bits| {
                    judged.push(self.rule.judge_bits(bits))
                })?;
                pixel_masks = Some(judged);
            }
            Some(flags) => mask = flags.take_flags(elements)?,
            None => {}
        }
        // 4. Read the resolution matrices.
        let resolution = match &mut self.resolution {
            Some((diagonals, matrices)) => {
                let count = elements.checked_mul(*diagonals).ok_or_else(too_large)?;
                Some(Resolution {
                    diagonals: *diagonals,
                    values: matrices.take_singles(count)?,
                })
            }
            None => None,
        };
        // 5. Read the covariance matrices, whose variances give the weights if there are no others.
        let covariance = match &mut self.covariance {
            Some((diagonals, matrices)) => {
                let count = elements.checked_mul(*diagonals).ok_or_else(too_large)?;
                Some(NoiseCovariance {
                    diagonals: *diagonals,
                    values: matrices.take_values(count, Values::default())?,
                })
            }
            None => None,
        };
        if let (None, Some(covariance)) = (&self.weight, &covariance) {
            ivar = covariance.ivar(self.pixels).into();
        }
        let arm = ArmSpectra {
            name: self.name.clone(),
            wavelength,
            pixels: self.pixels,
            flux,
            ivar,
            mask,
            resolution,
            covariance,
            widening: applied.clone(),
        };
        match pixel_masks {
            Some(pixel_masks) => arm.with_pixel_masks(pixel_masks, applied),
            None => Ok(arm),
        }
    }

    /// Keeps the memory of a batch's flux and ivar that is no longer needed, for the next
    /// [`read_batch`](Self::read_batch).
    pub fn recycle(&mut self, used: ArmSpectra<'static>) {
        self.spare.push([used.flux, used.ivar]);
    }

    /// Returns the arm with its name and shared grid but without spectra.
    pub fn without_spectra<'a>(&self) -> ArmSpectra<'a>
    where
        R: ArrayRows<'a>,
    {
        let wavelength = match &self.grid {
            ArmGrid::Shared(grid) => Wavelength::Shared(grid.clone()),
            ArmGrid::Own(_) => Wavelength::Own(Values::default()),
        };
        let resolution = self.resolution.as_ref().map(|(diagonals, _)| Resolution {
            diagonals: *diagonals,
            values: Cow::default(),
        });
        let covariance = self
            .covariance
            .as_ref()
            .map(|(diagonals, _)| NoiseCovariance {
                diagonals: *diagonals,
                values: Values::default(),
            });
        ArmSpectra {
            name: self.name.clone(),
            wavelength,
            pixels: self.pixels,
            flux: Values::default(),
            ivar: Values::default(),
            mask: Cow::default(),
            resolution,
            covariance,
            widening: self.rule.applied_widening(self.has_bits()),
        }
    }

    /// Returns whether the arm has a mask of integers.
    fn has_bits<'a>(&self) -> bool
    where
        R: ArrayRows<'a>,
    {
        self.mask
            .as_ref()
            .is_some_and(|mask| mask.kind().is_integer())
    }
}

/// Runs both functions, at the same time if `is_large`: the first on a thread of its own, because fits keep rayon's
/// pool busy.
pub fn run_both<A: Send, B>(
    is_large: bool,
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B,
) -> (A, B) {
    if !is_large {
        return (first(), second());
    }
    std::thread::scope(|scope| {
        let first_thread = scope.spawn(first);
        let second_result = second();
        let first_result = first_thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (first_result, second_result)
    })
}

/// Converts standard deviations to inverse variances, 1/σ², in the same memory.
fn sigmas_to_ivars<'a>(sigma: Cow<'a, [f64]>) -> Values<'a> {
    let mut sigma = sigma.into_owned();
    sigma
        .iter_mut()
        .for_each(|value| *value = sigma_to_ivar(*value));
    sigma.into()
}

/// Returns 1/sigma². An infinite sigma masks the pixel; an invalid one becomes NaN or negative, a bad weight.
fn sigma_to_ivar(sigma: f64) -> f64 {
    if sigma == f64::NEG_INFINITY {
        f64::NAN
    } else {
        sigma.signum() / (sigma * sigma)
    }
}

/// Returns whether an arm's wavelengths are in air, from the first of the arrays `names` that exists, which is the text
/// "air" or "vacuum". Without any of them wavelengths are in vacuum.
fn is_in_air<'a>(source: &mut impl ArraySource<'a>, names: [&str; 2]) -> Result<bool> {
    for name in names {
        if source.read_head(name)?.is_some() {
            let text = source.read_text(name)?;
            return air::is_air(name, text.as_deref())
                .map_err(|message| source.place().error(message));
        }
    }
    Ok(false)
}

/// Returns the shape (spectra, pixels) of an array, which is one spectrum if it has one dimension; fails if there is no
/// array of this name.
fn read_shape<'a>(source: &mut impl ArraySource<'a>, key: &str) -> Result<[usize; 2]> {
    match source.require_head(key)?.shape[..] {
        [pixels] => Ok([1, pixels]),
        [length, pixels] => Ok([length, pixels]),
        ref shape => {
            let fault = format!(
                "has the shape {}, not (spectra, pixels)",
                format_shape(shape)
            );
            Err(source.place().shape_error(key, fault))
        }
    }
}

/// Fails for an array of another shape.
fn expect_shape<'a>(
    source: &mut impl ArraySource<'a>,
    key: &str,
    expected: [usize; 2],
) -> Result<()> {
    if read_shape(source, key)? == expected {
        return Ok(());
    }
    let shape = source.require_head(key)?.shape;
    let shapes = format!(
        "has the shape {}, flux {}",
        format_shape(&shape),
        format_shape(&expected)
    );
    let fault = match shape == [expected[1]] {
        true => format!(
            "{shapes}: each spectrum needs its own row of {key}, such as np.broadcast_to({key}, flux.shape) makes of \
             one row for all"
        ),
        false => shapes,
    };
    Err(source.place().shape_error(key, fault))
}

/// Fails for an array that has no numbers, or another shape.
pub fn expect_numbers<'a>(
    source: &mut impl ArraySource<'a>,
    key: &str,
    expected: [usize; 2],
) -> Result<()> {
    expect_shape(source, key, expected)?;
    require_numbers(source, key)
}

/// Fails for an array that has no numbers.
fn require_numbers<'a>(source: &mut impl ArraySource<'a>, key: &str) -> Result<()> {
    if source.require_head(key)?.kind.is_number() {
        Ok(())
    } else {
        Err(source.place().error(format!("{key}: not numbers")))
    }
}

/// Reads an array of numbers through, and returns its rows.
fn open_numbers<'a, S: ArraySource<'a>>(source: &mut S, key: &str) -> Result<S::Rows> {
    require_numbers(source, key)?;
    source.read_through_array(key)?;
    source.open_rows(key)
}

/// Checks an array of flags (booleans or integers) of the expected shape, reads it through, and returns its rows.
fn open_flags<'a, S: ArraySource<'a>>(
    source: &mut S,
    key: &str,
    head: ArrayHead,
    expected: [usize; 2],
) -> Result<S::Rows> {
    if !head.kind.is_flag() {
        return Err(source
            .place()
            .error(format!("`{key}` is neither bool nor integers")));
    }
    expect_shape(source, key, expected)?;
    source.read_through_array(key)?;
    source.open_rows(key)
}

/// Returns the diagonals and the rows of resolution matrices (spectra, odd diagonals, pixels), after reading them
/// through. For a single spectrum the first dimension may be absent.
fn open_resolution<'a, S: ArraySource<'a>>(
    source: &mut S,
    key: &str,
    [length, pixels]: [usize; 2],
) -> Result<Option<(usize, S::Rows)>> {
    let Some(head) = source.read_head(key)? else {
        return Ok(None);
    };
    let diagonals = count_diagonals(&head, [length, pixels]).unwrap_or(0);
    if diagonals.is_multiple_of(2) {
        let fault = format!(
            "has the shape {}, not ({length}, odd diagonals, {pixels})",
            format_shape(&head.shape)
        );
        return Err(source.place().shape_error(key, fault));
    }
    Ok(Some((diagonals, open_numbers(source, key)?)))
}

/// Returns the diagonals and the rows of covariance matrices (spectra, diagonals, pixels), after reading them through.
/// For a single spectrum the first dimension may be absent.
fn open_covariance<'a, S: ArraySource<'a>>(
    source: &mut S,
    key: &str,
    [length, pixels]: [usize; 2],
) -> Result<Option<(usize, S::Rows)>> {
    let Some(head) = source.read_head(key)? else {
        return Ok(None);
    };
    let diagonals = count_diagonals(&head, [length, pixels]);
    let Some(diagonals) = diagonals.filter(|diagonals| (1..=pixels).contains(diagonals)) else {
        let is_shared = matches!(head.shape[..], [_, columns] if columns == pixels);
        let remedy = if is_shared {
            ": each spectrum needs its own matrix, such as np.broadcast_to makes of one matrix for all"
        } else {
            ""
        };
        let fault = format!(
            "has the shape {}, not ({length}, diagonals, {pixels}) with 1 to {pixels} diagonals{remedy}",
            format_shape(&head.shape)
        );
        return Err(source.place().shape_error(key, fault));
    };
    Ok(Some((diagonals, open_numbers(source, key)?)))
}

/// Returns the number of diagonals of an array (spectra, diagonals, pixels), or of one without the first dimension for
/// a single spectrum; `None` if the array has another shape.
fn count_diagonals(head: &ArrayHead, [length, pixels]: [usize; 2]) -> Option<usize> {
    match head.shape[..] {
        [rows, diagonals, columns] if rows == length && columns == pixels => Some(diagonals),
        [diagonals, columns] if length == 1 && columns == pixels => Some(diagonals),
        _ => None,
    }
}

/// Reads and checks a wavelength grid shared by all spectra (one-dimensional, in vacuum), or returns the rows of each
/// spectrum's own (two-dimensional).
fn open_grid<'a, S: ArraySource<'a>>(
    source: &mut S,
    key: &str,
    [length, pixels]: [usize; 2],
    in_air: bool,
) -> Result<ArmGrid<S::Rows>> {
    let head = source.require_head(key)?;
    if head.shape.len() != 1 {
        expect_numbers(source, key, [length, pixels])?;
        source.read_through_array(key)?;
        return source.open_rows(key).map(ArmGrid::Own);
    }
    if head.shape != [pixels] {
        let fault = format!(
            "has the shape {}, flux {pixels} pixels",
            format_shape(&head.shape)
        );
        return Err(source.place().shape_error(key, fault));
    }
    require_numbers(source, key)?;
    let values = source.read_numbers(key, &|w| if in_air { air::to_vacuum(w) } else { w })?;
    check_grid(&values, &source.place().with_file(key))?;
    Ok(ArmGrid::Shared(values.into()))
}
