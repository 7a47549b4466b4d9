//! Damage that the cases of the list do to spectra, files and models, and their looks at rows.

use std::ops::Range;

use popfit::{FitRow, Status};

use crate::kinds::{Fault, Seen, Shown};
use crate::setup::{Arrays, SPECTRA};
use popfit_testing::fits;
use popfit_testing::tiny::PIXELS;

/// A pixel of spectrum `n`.
pub const fn at(n: usize, pixel: usize) -> usize {
    n * PIXELS + pixel
}

/// All pixels of spectrum `n`.
pub const fn own(n: usize) -> Range<usize> {
    at(n, 0)..at(n, PIXELS)
}

/// Masks all but `count` pixels.
pub fn keep(arrays: &mut Arrays, n: usize, count: usize) {
    let step = PIXELS / count;
    (0..PIXELS)
        .filter(|j| j % step != 0 || j / step >= count)
        .for_each(|j| arrays.weight[at(n, j)] = 0.0);
}

/// Another unit of flux.
pub fn scale(arrays: &mut Arrays, n: usize, by: f64) {
    arrays.flux[own(n)].iter_mut().for_each(|f| *f *= by);
    arrays.weight[own(n)].iter_mut().for_each(|w| *w /= by * by);
}

/// A column of starts for label `a`.
pub fn with_column() -> Arrays {
    Arrays {
        columns: vec![("A0", vec![0.5; SPECTRA])],
        ..Arrays::good()
    }
}

/// Spectra that each have a grid of their own.
pub const fn own_grid(spoil: fn(&mut Arrays, usize), expect: fn(&Seen) -> bool) -> Shown {
    Shown::Fault(Fault {
        model: "",
        sound: || Arrays::good().with_own_grids(),
        spoil,
        expect,
    })
}

/// The file of sound spectra with another grid.
pub fn grid(spoil: fn(&mut [f64])) -> Vec<u8> {
    let mut arrays = Arrays::good();
    spoil(&mut arrays.wavelength);
    arrays.bytes()
}

/// A bad input of this cause, with nothing that looks like a result.
pub fn refused(row: &FitRow, cause: &str) -> bool {
    let nothing = |values: &[f64]| values.iter().all(|x| x.is_nan());
    (row.status, row.status_text.as_str()) == (Status::BadInput, cause)
        && nothing(&row.errors)
        && nothing(&row.correlations)
        && nothing(&[row.chi2, row.objective])
        && row.start.is_none()
}

/// The same fit, to the bit; a NaN is a NaN.
pub fn alike(a: &FitRow, b: &FitRow) -> bool {
    let plain = |row: &FitRow| {
        let (status, text, mut numbers, counts) = fits::bits(row);
        numbers
            .iter_mut()
            .filter(|x| f64::from_bits(**x).is_nan())
            .for_each(|x| *x = f64::NAN.to_bits());
        (status, text, numbers, counts)
    };
    plain(a) == plain(b)
}

/// Distance of the parameters in errors; NaN where there is one.
pub fn offset(row: &FitRow, other: &FitRow) -> f64 {
    fits::offset(row, &other.parameters, &other.errors)
}

/// Files of spectra.
pub mod file {
    use super::*;
    use popfit_testing::tiny::wavelength;
    use popfit_testing::{f32s, f64s, npz, raw_npy};

    pub fn sound() -> Vec<u8> {
        Arrays::good().bytes()
    }

    pub fn cut(end: usize) -> Vec<u8> {
        sound()[..end].to_vec()
    }

    /// A bit of the flux: the CRC is not its own.
    pub fn flipped() -> Vec<u8> {
        let mut bytes = sound();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        bytes
    }

    pub fn short_ivar() -> Vec<u8> {
        arrays(PIXELS, PIXELS - 1)
    }

    pub fn short_grid() -> Vec<u8> {
        arrays(PIXELS - 1, PIXELS)
    }

    fn arrays(grid: usize, ivar: usize) -> Vec<u8> {
        let ones = |pixels: usize| f64s(&[SPECTRA, pixels], &vec![1.0; SPECTRA * pixels]);
        let grid = f64s(&[grid], &wavelength()[..grid]);
        npz(
            &[
                ("b_wavelength", grid),
                ("b_flux", ones(PIXELS)),
                ("b_ivar", ones(ivar)),
            ],
            false,
        )
    }

    /// A flux that claims a type and a shape.
    pub fn claiming(descr: &str, shape: &str) -> Vec<u8> {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        let arrays = [
            ("b_wavelength", f64s(&[PIXELS], &wavelength())),
            ("b_flux", raw_npy(&text, &[0; 64])),
        ];
        npz(&arrays, false)
    }

    /// One spectrum of eight million pixels of zeros: a hundredth of a megabyte, 200 in memory.
    pub fn bomb() -> Vec<u8> {
        let zeros = f32s(&[8_000_000], &vec![0.0; 8_000_000]);
        npz(
            &[
                ("b_wavelength", zeros.clone()),
                ("b_flux", zeros.clone()),
                ("b_ivar", zeros),
            ],
            true,
        )
    }
}

/// Networks of the labels `a` and `b`.
pub mod network {
    use popfit_testing::tiny::{Layer, PIXELS, linear_layer, network_file, wave};

    /// For [`overflowing`]: where it is infinite, and where it is not.
    pub const FAR: &str =
        "[continuum]\nkind = \"none\"\n[labels.a]\nstart = 6.0\n[labels.b]\nfixed = 0.0\n";
    pub const NEAR: &str =
        "[continuum]\nkind = \"none\"\n[labels.a]\nstart = 0.0\n[labels.b]\nfixed = 0.0\n";

    fn of(coefficient: fn(usize, usize) -> f32) -> Vec<u8> {
        network_file(&["a", "b"], "relu", &[linear_layer(2, coefficient)])
    }

    /// Sound.
    pub fn two_waves() -> Vec<u8> {
        of(wave)
    }

    /// `b` does nothing.
    pub fn idle() -> Vec<u8> {
        of(|l, j| if l == 0 { wave(0, j) } else { 0.0 })
    }

    /// `b` does what `a` does.
    pub fn pair() -> Vec<u8> {
        of(|_, j| wave(0, j))
    }

    /// Infinite above a = 4.13.
    pub fn overflowing() -> Vec<u8> {
        let hidden = Layer {
            outputs: 2,
            weight: vec![1.0, 0.0, 1.0, 0.0],
            bias: vec![-3.0, 20.0],
        };
        let weight = (0..PIXELS).flat_map(|j| [3e38, 1.0 + wave(0, j)]).collect();
        let output = Layer {
            outputs: PIXELS,
            weight,
            bias: vec![-19.0; PIXELS],
        };
        network_file(&["a", "b"], "relu", &[hidden, output])
    }
}
