//! One arm of an NPZ file: its arrays, validated, and their streams.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use super::arm::check_grid;
use super::npz_choices::{self, Weight};
use super::npz_names;
use super::widening::{MaskRule, PixelMask};
use super::{ArmSpectra, Resolution, Wavelength, air};
use crate::error::{Error, Result};
use crate::io::npz::{Archive, Header, Stream, too_large};
use crate::values::Values;

/// The arrays of an arm; all have `length` rows of `pixels`.
pub(super) struct Arm {
    pub(super) name: String,
    pub(super) length: usize,
    pub(super) pixels: usize,
    grid: Grid,
    /// The file's wavelengths are in air; those handed out are in vacuum.
    pub(super) in_air: bool,
    flux: Stream,
    weight: Stream,
    /// The weights are sigma, not ivar.
    is_sigma: bool,
    mask: Option<Stream>,
    /// Meaning of the bits of the mask, if it is of integers.
    rule: MaskRule,
    /// Its diagonals.
    resolution: Option<(usize, Stream)>,
    /// Memory of earlier batches' flux and weights: the system would have to fill new pages with zeros.
    spare: Vec<[Values<'static>; 2]>,
}

/// Bytes that are worth a second thread.
const LARGE: u64 = 1 << 22;

enum Grid {
    Shared(Arc<[f64]>),
    Own(Stream),
}

impl Arm {
    /// Opens the arrays of arm `name` (empty: no prefix), checks their shapes, and reads each through once to find
    /// damage. A shared grid is taken from `budget`, in bytes.
    pub(super) fn open(archive: &mut Archive, name: String, budget: &mut u64, rule: MaskRule) -> Result<Arm> {
        let key = |part: &str| npz_names::array(&name, part);
        let flux = key("flux");
        let [length, pixels] = rows(archive, &flux)?;
        if pixels == 0 {
            return Err(Error::format(archive.path(), format!("`{flux}` has no pixels")));
        }
        for array in ["flux", "ivar", "sigma", "mask", "resolution", "wavelength"] {
            hold_transposed(archive, &key(array), budget)?;
        }
        let Weight { key: weight, is_sigma } = npz_choices::weight(archive, key, [length, pixels])?;
        let in_air = archive.is_in_air(&[&key("medium"), "medium"])?;
        if archive.file_length() > LARGE {
            let mut other = Archive::open(archive.path())?;
            let of_flux = || numbers(archive, &flux, [length, pixels]);
            let (first, second) = join(true, of_flux, || numbers(&mut other, &weight, [length, pixels]));
            first.and(second)?;
        } else {
            numbers(archive, &flux, [length, pixels])?;
            numbers(archive, &weight, [length, pixels])?;
        }
        let mask = match archive.header(&key("mask"))? {
            Some(header) => Some(flags(archive, &key("mask"), header, [length, pixels])?),
            None => None,
        };
        let resolution = resolution(archive, &key("resolution"), [length, pixels])?;
        let grid = grid(archive, &key("wavelength"), [length, pixels], Wavelengths { in_air, budget })?;
        let (flux, weight) = (archive.stream(&flux)?, archive.stream(&weight)?);
        let spare = Vec::new();
        Ok(Arm { name, length, pixels, grid, in_air, flux, weight, is_sigma, mask, rule, resolution, spare })
    }

    /// Returns the memory that one spectrum of this arm takes (bytes).
    pub(super) fn bytes(&self) -> u64 {
        let flux = element_bytes(&self.flux);
        let weight = if self.is_sigma { size_of::<f64>() } else { element_bytes(&self.weight) };
        let wavelength = if matches!(self.grid, Grid::Own(_)) { size_of::<f64>() } else { 0 };
        let diagonals = self.resolution.as_ref().map_or(0, |(diagonals, _)| *diagonals);
        let pixel = flux + weight + wavelength + usize::from(self.mask.is_some()) + diagonals * size_of::<f32>();
        (self.pixels as u64).saturating_mul(pixel as u64)
    }

    /// Reads the next `rows` spectra of this arm.
    pub(super) fn batch(&mut self, rows: usize, path: &Path) -> Result<ArmSpectra<'static>> {
        let elements = rows.checked_mul(self.pixels).ok_or_else(|| {
            too_large(path, format!("{rows} spectra at once do not fit memory; read smaller batches"))
        })?;
        let is_large = elements.saturating_mul(size_of::<f64>()) as u64 > LARGE;
        let [first, second] = self.spare.pop().unwrap_or_default();
        let (flux, weight) = (&mut self.flux, &mut self.weight);
        let read_weight = || match self.is_sigma {
            true => doubles(weight, second, elements, path).map(ivar_of_all),
            false => values(weight, second, elements, path),
        };
        let (flux, ivar) = join(is_large, || values(flux, first, elements, path), read_weight);
        let (flux, ivar) = (flux?, ivar?);
        let wavelength = match &mut self.grid {
            Grid::Shared(grid) => Wavelength::Shared(grid.clone()),
            Grid::Own(stream) => {
                let mut grids = doubles(stream, Values::default(), elements, path)?;
                if self.in_air {
                    grids.iter_mut().for_each(|w| *w = air::to_vacuum(*w));
                }
                Wavelength::Own(grids.into())
            }
        };
        let applied = self.rule.applied(self.has_bits());
        let mut mask: Vec<bool> = Vec::new();
        let mut pixels = None;
        match &mut self.mask {
            Some(stream) if applied.as_ref().is_some_and(|applied| applied.has_bits) => {
                pixels = Some(read_bits(stream, &self.rule, elements, path)?);
            }
            Some(stream) => {
                mask = reserve(elements, path)?;
                stream.take(elements, |dtype, bytes| dtype.flags(bytes, &mut mask))?;
            }
            None => {}
        }
        let resolution = match &mut self.resolution {
            Some((diagonals, stream)) => Some(matrices(stream, *diagonals, elements, path)?),
            None => None,
        };
        let (name, mask, widening) = (self.name.clone(), mask.into(), applied.clone());
        let arm = ArmSpectra { name, wavelength, pixels: self.pixels, flux, ivar, mask, resolution, widening };
        match pixels {
            Some(pixels) => arm.with_pixels(pixels, applied),
            None => Ok(arm),
        }
    }

    /// Keeps the memory of a batch's flux and ivar that is no longer needed, for the next [`batch`](Self::batch).
    pub(super) fn recycle(&mut self, used: ArmSpectra<'static>) {
        self.spare.push([used.flux, used.ivar]);
    }

    /// Returns the arm with its name and shared grid but without spectra.
    pub(super) fn empty(&self) -> ArmSpectra<'static> {
        let wavelength = match &self.grid {
            Grid::Shared(grid) => Wavelength::Shared(grid.clone()),
            Grid::Own(_) => Wavelength::Own(Values::default()),
        };
        let (flux, ivar, mask) = (Values::default(), Values::default(), Cow::default());
        let none = |(diagonals, _): &(usize, Stream)| Resolution { diagonals: *diagonals, values: Vec::new() };
        let resolution = self.resolution.as_ref().map(none);
        let (name, widening) = (self.name.clone(), self.rule.applied(self.has_bits()));
        ArmSpectra { name, wavelength, pixels: self.pixels, flux, ivar, mask, resolution, widening }
    }

    /// Returns whether the arm has a mask of integers.
    fn has_bits(&self) -> bool {
        self.mask.as_ref().is_some_and(|mask| mask.dtype().is_integer())
    }
}

/// Reads the integers of the next pixels' mask, and returns what their bits mean.
fn read_bits(stream: &mut Stream, rule: &MaskRule, elements: usize, path: &Path) -> Result<Vec<PixelMask>> {
    let mut pixels = reserve(elements, path)?;
    let mut bits = Vec::new();
    stream.take(elements, |dtype, bytes| {
        bits.clear();
        dtype.bits(bytes, &mut bits)?;
        pixels.extend(bits.iter().map(|bits| rule.judge(*bits)));
        Ok(())
    })?;
    Ok(pixels)
}

/// Runs both functions, at the same time if `is_large`: the first on a thread of its own, because fits keep rayon's
/// pool busy.
fn join<A: Send, B>(is_large: bool, first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B) -> (A, B) {
    if !is_large {
        return (first(), second());
    }
    std::thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        (first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), second)
    })
}

/// Returns the size of a number that [`values`] makes of this array's elements: 4 bytes for floats up to f32, else 8.
fn element_bytes(stream: &Stream) -> usize {
    if stream.dtype().is_single() { size_of::<f32>() } else { size_of::<f64>() }
}

/// Reads the next `elements` numbers: as f32 if the array holds no more, else as f64, in the memory of `spare` if it
/// has enough.
fn values(stream: &mut Stream, spare: Values<'static>, elements: usize, path: &Path) -> Result<Values<'static>> {
    if !stream.dtype().is_single() {
        return doubles(stream, spare, elements, path).map(Values::from);
    }
    let mut values = room(spare.into_single_memory(), elements, path)?;
    stream.take(elements, |dtype, bytes| dtype.singles(bytes, &mut values))?;
    Ok(values.into())
}

/// Reads the next `elements` numbers as f64, whatever type the array holds.
fn doubles(stream: &mut Stream, spare: Values<'static>, elements: usize, path: &Path) -> Result<Vec<f64>> {
    let mut values = room(spare.into_double_memory(), elements, path)?;
    stream.take(elements, |dtype, bytes| dtype.numbers(bytes, &mut values))?;
    Ok(values)
}

/// Converts standard deviations to inverse variances, 1/σ², in the same memory.
fn ivar_of_all(mut sigma: Vec<f64>) -> Values<'static> {
    sigma.iter_mut().for_each(|x| *x = ivar_of(*x));
    sigma.into()
}

/// Returns 1/sigma²: an infinite sigma masks the pixel; what is no sigma becomes NaN or negative, a bad weight.
fn ivar_of(sigma: f64) -> f64 {
    if sigma == f64::NEG_INFINITY { f64::NAN } else { sigma.signum() / (sigma * sigma) }
}

/// Returns an empty vector with room for `elements`; fails if memory is short.
pub(super) fn reserve<T>(elements: usize, path: &Path) -> Result<Vec<T>> {
    room(Vec::new(), elements, path)
}

/// Returns an empty vector with room for `elements`, that of `spare` if it has as much; fails if memory is short.
fn room<T>(mut spare: Vec<T>, elements: usize, path: &Path) -> Result<Vec<T>> {
    spare.clear();
    match spare.try_reserve_exact(elements) {
        Ok(()) => Ok(spare),
        Err(_) => Err(too_large(path, format!("{elements} values do not fit memory; read smaller batches"))),
    }
}

/// Returns the shape (spectra, pixels) of an array; fails if the file does not have it.
fn rows(archive: &mut Archive, key: &str) -> Result<[usize; 2]> {
    match archive.header(key)? {
        Some(header) => shape(archive, key, &header),
        None => Err(archive.missing(key)),
    }
}

/// Returns the shape (spectra, pixels) of an array; one dimension is one spectrum.
fn shape(archive: &Archive, key: &str, header: &Header) -> Result<[usize; 2]> {
    match header.shape[..] {
        [pixels] => Ok([1, pixels]),
        [n, pixels] => Ok([n, pixels]),
        _ => {
            let message = format!("{key} has the shape {:?}, not (spectra, pixels)", header.shape);
            Err(Error::mismatch(archive.path().display().to_string(), message).naming(key))
        }
    }
}

/// Fails for an array of another shape.
pub(super) fn expect(archive: &mut Archive, key: &str, expected: [usize; 2]) -> Result<()> {
    let found = rows(archive, key)?;
    if found == expected {
        return Ok(());
    }
    let header = archive.header(key)?.map(|header| header.shape).unwrap_or_default();
    let message = match header == [expected[1]] {
        true => format!(
            "{key} has the shape {header:?}, flux {expected:?}: each spectrum needs its own row of {key}, such as \
             np.broadcast_to({key}, flux.shape) makes of one row for all"
        ),
        false => format!("{key} has the shape {header:?}, flux {expected:?}"),
    };
    Err(Error::mismatch(archive.path().display().to_string(), message).naming(key))
}

/// Checks an array of numbers of the expected shape, and reads it through.
fn numbers(archive: &mut Archive, key: &str, expected: [usize; 2]) -> Result<()> {
    expect(archive, key, expected)?;
    archive.scan(key, |dtype, _| if dtype.is_number() { Ok(()) } else { Err("not numbers".to_string()) })
}

/// Checks an array of flags (booleans or integers) of the expected shape, reads it through, and opens its stream.
fn flags(archive: &mut Archive, key: &str, header: Header, expected: [usize; 2]) -> Result<Stream> {
    if !header.dtype.is_flag() {
        return Err(Error::format(archive.path(), format!("`{key}` is neither bool nor integers")));
    }
    expect(archive, key, expected)?;
    archive.scan(key, |_, _| Ok(()))?;
    archive.stream(key)
}

/// Resolution matrices (spectra, odd diagonals, pixels), read through; one spectrum's may lack the first dimension.
fn resolution(archive: &mut Archive, key: &str, [length, pixels]: [usize; 2]) -> Result<Option<(usize, Stream)>> {
    let Some(header) = archive.header(key)? else { return Ok(None) };
    let diagonals = match header.shape[..] {
        [n, diagonals, p] if (n, p) == (length, pixels) => diagonals,
        [diagonals, p] if (1, p) == (length, pixels) => diagonals,
        _ => 0,
    };
    if diagonals.is_multiple_of(2) {
        let message = format!("{key} has the shape {:?}, not ({length}, odd diagonals, {pixels})", header.shape);
        return Err(Error::mismatch(archive.path().display().to_string(), message).naming(key));
    }
    archive.scan(key, |dtype, _| if dtype.is_number() { Ok(()) } else { Err("not numbers".to_string()) })?;
    Ok(Some((diagonals, archive.stream(key)?)))
}

/// Reads the resolution matrices of the next spectra, whose flux has `elements` elements in all.
fn matrices(stream: &mut Stream, diagonals: usize, elements: usize, path: &Path) -> Result<Resolution> {
    let count = elements
        .checked_mul(diagonals)
        .ok_or_else(|| too_large(path, format!("{elements} pixels at once do not fit memory; read smaller batches")))?;
    let mut values = reserve(count, path)?;
    let mut wide = Vec::new();
    stream.take(count, |dtype, bytes| {
        wide.clear();
        dtype.numbers(bytes, &mut wide)?;
        values.extend(wide.iter().map(|x| *x as f32));
        Ok(())
    })?;
    Ok(Resolution { diagonals, values })
}

/// Takes from `budget` the bytes of an array in Fortran order, which is held whole while it is read.
fn hold_transposed(archive: &mut Archive, key: &str, budget: &mut u64) -> Result<()> {
    let Some(header) = archive.header(key)?.filter(Header::is_transposed) else { return Ok(()) };
    let bytes = (header.elements() as u64).saturating_mul(header.dtype.bytes() as u64);
    *budget = budget.checked_sub(bytes).ok_or_else(|| {
        let message = format!(
            "`{key}` is in Fortran order, and holds {bytes} bytes, far more than the file has (is it a zip bomb?)"
        );
        too_large(archive.path(), message)
    })?;
    Ok(())
}

/// Settings with which wavelengths are read.
struct Wavelengths<'a> {
    in_air: bool,
    /// Bytes that a shared grid may take.
    budget: &'a mut u64,
}

/// Reads and checks a wavelength grid shared by all spectra (one-dimensional, in vacuum), or opens each spectrum's own
/// (two-dimensional) for reading.
fn grid(archive: &mut Archive, key: &str, [length, pixels]: [usize; 2], how: Wavelengths) -> Result<Grid> {
    let Wavelengths { in_air, budget } = how;
    let Some(header) = archive.header(key)? else {
        return Err(archive.missing(key));
    };
    if header.shape.len() != 1 {
        numbers(archive, key, [length, pixels])?;
        return archive.stream(key).map(Grid::Own);
    }
    let what = archive.path().display().to_string();
    if header.shape != [pixels] {
        let message = format!("{key} has the shape {:?}, flux {pixels} pixels", header.shape);
        return Err(Error::mismatch(what, message).naming(key));
    }
    let array = archive.read(key, budget, |x| if in_air { air::to_vacuum(x) } else { x })?;
    // it is copied once, to be shared
    let bytes = array.values.len() as u64 * size_of::<f64>() as u64;
    *budget = budget.checked_sub(bytes).ok_or_else(|| {
        too_large(
            archive.path(),
            format!("`{key}` holds {bytes} bytes, more than this file should (is it a zip bomb?)"),
        )
    })?;
    check_grid(&array.values, &format!("{what}: {key}"))?;
    Ok(Grid::Shared(array.values.into()))
}
