//! One arm of spectra: its arrays, validated, and their rows.

use std::borrow::Cow;
use std::sync::Arc;

use super::names;
use super::source::{Head, Place, Rows, Source, shown};
use super::weights::{self, Weight};
use crate::error::Result;
use crate::spectra::arm::check_grid;
use crate::spectra::widening::{MaskRule, PixelMask};
use crate::spectra::{ArmSpectra, Resolution, Wavelength, air};
use crate::values::Values;

/// The arrays of an arm; all have `length` rows of `pixels`.
pub struct Arm<R> {
    pub name: String,
    pub length: usize,
    pub pixels: usize,
    grid: Grid<R>,
    /// The wavelengths given are in air; those handed out are in vacuum.
    pub in_air: bool,
    flux: R,
    weight: R,
    /// The weights are sigma, not ivar.
    is_sigma: bool,
    mask: Option<R>,
    /// Meaning of the bits of the mask, if it is of integers.
    rule: MaskRule,
    /// Its diagonals.
    resolution: Option<(usize, R)>,
    /// Memory of earlier batches' flux and weights: the system would have to fill new pages with zeros.
    spare: Vec<[Values<'static>; 2]>,
}

/// Bytes that are worth a second thread.
pub const LARGE: u64 = 1 << 22;

enum Grid<R> {
    Shared(Arc<[f64]>),
    Own(R),
}

impl<R> Arm<R> {
    /// Finds the arrays of arm `name` (empty: no prefix), checks their shapes, and reads each through once to find
    /// damage.
    pub fn open<'a, S>(source: &mut S, name: String, rule: MaskRule) -> Result<Arm<R>>
    where
        S: Source<'a, Rows = R>,
        R: Rows<'a>,
    {
        let key = |part: &str| names::array(&name, part);
        let flux = key("flux");
        let shape = shape_of_rows(source, &flux)?;
        let [length, pixels] = shape;
        if pixels == 0 {
            return Err(source.place().fault(format!("`{flux}` has no pixels")));
        }
        for array in ["flux", "ivar", "sigma", "mask", "resolution", "wavelength"] {
            source.reserve(&key(array))?;
        }
        let Weight {
            key: weight,
            is_sigma,
        } = weights::weight(source, key, shape)?;
        let in_air = is_in_air(source, [&key("medium"), "medium"])?;
        expect_numbers(source, &flux, shape)?;
        expect_numbers(source, &weight, shape)?;
        source.check_both(&flux, &weight)?;
        let mask = match source.head(&key("mask"))? {
            Some(head) => Some(flags(source, &key("mask"), head, shape)?),
            None => None,
        };
        let resolution = resolution(source, &key("resolution"), shape)?;
        let grid = grid(source, &key("wavelength"), shape, in_air)?;
        let (flux, weight) = (source.rows(&flux)?, source.rows(&weight)?);
        let spare = Vec::new();
        Ok(Arm {
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
            spare,
        })
    }

    /// Returns the memory that one spectrum of this arm takes (bytes).
    pub fn bytes<'a>(&self) -> u64
    where
        R: Rows<'a>,
    {
        let element = |rows: &R| {
            if rows.kind().is_single() {
                size_of::<f32>()
            } else {
                size_of::<f64>()
            }
        };
        let weight = if self.is_sigma {
            size_of::<f64>()
        } else {
            element(&self.weight)
        };
        let wavelength = if matches!(self.grid, Grid::Own(_)) {
            size_of::<f64>()
        } else {
            0
        };
        let diagonals = self
            .resolution
            .as_ref()
            .map_or(0, |(diagonals, _)| *diagonals);
        let mask = usize::from(self.mask.is_some());
        let pixel = element(&self.flux) + weight + wavelength + mask + diagonals * size_of::<f32>();
        (self.pixels as u64).saturating_mul(pixel as u64)
    }

    /// Takes the next `rows` spectra of this arm.
    pub fn batch<'a>(&mut self, rows: usize, place: &Place) -> Result<ArmSpectra<'a>>
    where
        R: Rows<'a>,
    {
        let too_many = || {
            place.too_large(format!(
                "{rows} spectra at once do not fit memory; read smaller batches"
            ))
        };
        let elements = rows.checked_mul(self.pixels).ok_or_else(too_many)?;
        let is_large = elements.saturating_mul(size_of::<f64>()) as u64 > LARGE;
        let [first, second] = self.spare.pop().unwrap_or_default();
        let applied = self.rule.applied(self.has_bits());
        let (flux, weight) = (&mut self.flux, &mut self.weight);
        let read_weight = || match self.is_sigma {
            true => weight.take_doubles(elements, second).map(ivar_of_all),
            false => weight.take_values(elements, second),
        };
        let (flux, ivar) = join(is_large, || flux.take_values(elements, first), read_weight);
        let (flux, ivar) = (flux?, ivar?);
        let wavelength = match &mut self.grid {
            Grid::Shared(grid) => Wavelength::Shared(grid.clone()),
            Grid::Own(grids) => {
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
        let mut mask: Cow<[bool]> = Cow::default();
        let mut pixels = None;
        match &mut self.mask {
            Some(bits) if applied.as_ref().is_some_and(|applied| applied.has_bits) => {
                let mut judged: Vec<PixelMask> = Vec::new();
                judged.try_reserve_exact(elements).map_err(|_| too_many())?;
                bits.take_bits(elements, &mut |bits| judged.push(self.rule.judge(bits)))?;
                pixels = Some(judged);
            }
            Some(flags) => mask = flags.take_flags(elements)?,
            None => {}
        }
        let resolution = match &mut self.resolution {
            Some((diagonals, matrices)) => {
                let count = elements.checked_mul(*diagonals).ok_or_else(too_many)?;
                Some(Resolution {
                    diagonals: *diagonals,
                    values: matrices.take_singles(count)?,
                })
            }
            None => None,
        };
        let (name, widening) = (self.name.clone(), applied.clone());
        let arm = ArmSpectra {
            name,
            wavelength,
            pixels: self.pixels,
            flux,
            ivar,
            mask,
            resolution,
            widening,
        };
        match pixels {
            Some(pixels) => arm.with_pixels(pixels, applied),
            None => Ok(arm),
        }
    }

    /// Keeps the memory of a batch's flux and ivar that is no longer needed, for the next [`batch`](Self::batch).
    pub fn recycle(&mut self, used: ArmSpectra<'static>) {
        self.spare.push([used.flux, used.ivar]);
    }

    /// Returns the arm with its name and shared grid but without spectra.
    pub fn empty<'a>(&self) -> ArmSpectra<'a>
    where
        R: Rows<'a>,
    {
        let wavelength = match &self.grid {
            Grid::Shared(grid) => Wavelength::Shared(grid.clone()),
            Grid::Own(_) => Wavelength::Own(Values::default()),
        };
        let (flux, ivar, mask) = (Values::default(), Values::default(), Cow::default());
        let none = |(diagonals, _): &(usize, R)| Resolution {
            diagonals: *diagonals,
            values: Cow::default(),
        };
        let resolution = self.resolution.as_ref().map(none);
        let (name, widening) = (self.name.clone(), self.rule.applied(self.has_bits()));
        ArmSpectra {
            name,
            wavelength,
            pixels: self.pixels,
            flux,
            ivar,
            mask,
            resolution,
            widening,
        }
    }

    /// Returns whether the arm has a mask of integers.
    fn has_bits<'a>(&self) -> bool
    where
        R: Rows<'a>,
    {
        self.mask
            .as_ref()
            .is_some_and(|mask| mask.kind().is_integer())
    }
}

/// Runs both functions, at the same time if `is_large`: the first on a thread of its own, because fits keep rayon's
/// pool busy.
pub fn join<A: Send, B>(
    is_large: bool,
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B,
) -> (A, B) {
    if !is_large {
        return (first(), second());
    }
    std::thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        (
            first
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            second,
        )
    })
}

/// Converts standard deviations to inverse variances, 1/σ², in the same memory.
fn ivar_of_all<'a>(sigma: Cow<'a, [f64]>) -> Values<'a> {
    let mut sigma = sigma.into_owned();
    sigma.iter_mut().for_each(|x| *x = ivar_of(*x));
    sigma.into()
}

/// Returns 1/sigma²: an infinite sigma masks the pixel; what is no sigma becomes NaN or negative, a bad weight.
fn ivar_of(sigma: f64) -> f64 {
    if sigma == f64::NEG_INFINITY {
        f64::NAN
    } else {
        sigma.signum() / (sigma * sigma)
    }
}

/// Returns whether an arm's wavelengths are in air: the first of the arrays `names` that is there is the text "air" or
/// "vacuum". Without any of them they are in vacuum.
fn is_in_air<'a>(source: &mut impl Source<'a>, names: [&str; 2]) -> Result<bool> {
    for name in names {
        if source.head(name)?.is_some() {
            let text = source.text(name)?;
            return air::is_air(name, text.as_deref())
                .map_err(|message| source.place().fault(message));
        }
    }
    Ok(false)
}

/// Returns the shape (spectra, pixels) of an array, of which one dimension is one spectrum; fails if there is none of
/// this name.
fn shape_of_rows<'a>(source: &mut impl Source<'a>, key: &str) -> Result<[usize; 2]> {
    match source.required(key)?.shape[..] {
        [pixels] => Ok([1, pixels]),
        [n, pixels] => Ok([n, pixels]),
        ref other => {
            let said = format!("has the shape {}, not (spectra, pixels)", shown(other));
            Err(source.place().shape_fault(key, said))
        }
    }
}

/// Fails for an array of another shape.
fn expect<'a>(source: &mut impl Source<'a>, key: &str, expected: [usize; 2]) -> Result<()> {
    if shape_of_rows(source, key)? == expected {
        return Ok(());
    }
    let found = source.required(key)?.shape;
    let shapes = format!("has the shape {}, flux {}", shown(&found), shown(&expected));
    let said = match found == [expected[1]] {
        true => format!(
            "{shapes}: each spectrum needs its own row of {key}, such as np.broadcast_to({key}, flux.shape) makes of \
             one row for all"
        ),
        false => shapes,
    };
    Err(source.place().shape_fault(key, said))
}

/// Fails for an array that has no numbers, or another shape.
pub fn expect_numbers<'a>(
    source: &mut impl Source<'a>,
    key: &str,
    expected: [usize; 2],
) -> Result<()> {
    expect(source, key, expected)?;
    refuse_others(source, key)
}

/// Fails for an array that has no numbers.
fn refuse_others<'a>(source: &mut impl Source<'a>, key: &str) -> Result<()> {
    if source.required(key)?.kind.is_number() {
        Ok(())
    } else {
        Err(source.place().fault(format!("{key}: not numbers")))
    }
}

/// Checks an array of flags (booleans or integers) of the expected shape, reads it through, and returns its rows.
fn flags<'a, S: Source<'a>>(
    source: &mut S,
    key: &str,
    head: Head,
    expected: [usize; 2],
) -> Result<S::Rows> {
    if !head.kind.is_flag() {
        return Err(source
            .place()
            .fault(format!("`{key}` is neither bool nor integers")));
    }
    expect(source, key, expected)?;
    source.check(key)?;
    source.rows(key)
}

/// Returns the diagonals and the rows of resolution matrices (spectra, odd diagonals, pixels), read through; one
/// spectrum's may lack the first dimension.
fn resolution<'a, S: Source<'a>>(
    source: &mut S,
    key: &str,
    [length, pixels]: [usize; 2],
) -> Result<Option<(usize, S::Rows)>> {
    let Some(head) = source.head(key)? else {
        return Ok(None);
    };
    let diagonals = match head.shape[..] {
        [n, diagonals, p] if (n, p) == (length, pixels) => diagonals,
        [diagonals, p] if (1, p) == (length, pixels) => diagonals,
        _ => 0,
    };
    if diagonals.is_multiple_of(2) {
        let said = format!(
            "has the shape {}, not ({length}, odd diagonals, {pixels})",
            shown(&head.shape)
        );
        return Err(source.place().shape_fault(key, said));
    }
    refuse_others(source, key)?;
    source.check(key)?;
    Ok(Some((diagonals, source.rows(key)?)))
}

/// Reads and checks a wavelength grid shared by all spectra (one-dimensional, in vacuum), or returns the rows of each
/// spectrum's own (two-dimensional).
fn grid<'a, S: Source<'a>>(
    source: &mut S,
    key: &str,
    [length, pixels]: [usize; 2],
    in_air: bool,
) -> Result<Grid<S::Rows>> {
    let head = source.required(key)?;
    if head.shape.len() != 1 {
        expect_numbers(source, key, [length, pixels])?;
        source.check(key)?;
        return source.rows(key).map(Grid::Own);
    }
    if head.shape != [pixels] {
        let said = format!("has the shape {}, flux {pixels} pixels", shown(&head.shape));
        return Err(source.place().shape_fault(key, said));
    }
    refuse_others(source, key)?;
    let values = source.numbers(key, &|x| if in_air { air::to_vacuum(x) } else { x })?;
    check_grid(&values, &source.place().with_file(key))?;
    Ok(Grid::Shared(values.into()))
}
