//! A folder with a tiny network, a model and spectra, and the program run in it.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use popfit_testing::tiny::{PIXELS, linear_layer, network_file, wave, wavelength};
use popfit_testing::{bools, f64s, file, npz};

pub const SPECTRA: usize = 5;
/// Continuum coefficients of the model.
pub const TERMS: usize = 2;

/// The arrays of an NPZ file with arm `b`.
#[derive(Clone)]
pub struct Arrays {
    /// One grid, or one a spectrum.
    pub wavelength: Vec<f64>,
    pub flux: Vec<f64>,
    pub weight: Vec<f64>,
    /// Kind of the weights: ivar or sigma.
    pub weights: &'static str,
    pub mask: Vec<bool>,
    /// A value for each spectrum.
    pub columns: Vec<(&'static str, Vec<f64>)>,
}

impl Arrays {
    /// Spectra without a fault: 1 + a wave for each of the labels `a` and `b`, S/N 100.
    pub fn good() -> Arrays {
        let label = |n: usize, l: usize| 3.0 * ((2 * n + l) as f64 * 1.7).sin();
        let noise = |k: f64| 0.01 * (k * 12.9898).sin() * (k * 78.233).cos();
        let value = |n: usize, j: usize| {
            let lines: f64 = (0..2).map(|l| label(n, l) * f64::from(wave(l, j))).sum();
            1.0 + lines + noise((n * PIXELS + j) as f64)
        };
        Arrays {
            wavelength: wavelength(),
            flux: (0..SPECTRA)
                .flat_map(|n| (0..PIXELS).map(move |j| value(n, j)))
                .collect(),
            weight: vec![1e4; SPECTRA * PIXELS],
            weights: "ivar",
            mask: vec![false; SPECTRA * PIXELS],
            columns: Vec::new(),
        }
    }

    pub fn with_own_grids(mut self) -> Arrays {
        self.wavelength = self.wavelength.repeat(SPECTRA);
        self
    }

    pub fn with_sigma(mut self) -> Arrays {
        self.weight.iter_mut().for_each(|w| *w = w.sqrt().recip());
        self.weights = "sigma";
        self
    }

    /// Some of the spectra, on their shared grid.
    pub fn only(mut self, some: std::ops::Range<usize>) -> Arrays {
        let range = some.start * PIXELS..some.end * PIXELS;
        (self.flux, self.weight) = (
            self.flux[range.clone()].to_vec(),
            self.weight[range.clone()].to_vec(),
        );
        self.mask = self.mask[range].to_vec();
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let n = self.flux.len() / PIXELS;
        let grid = if self.wavelength.len() == PIXELS {
            vec![PIXELS]
        } else {
            vec![n, PIXELS]
        };
        let weights = format!("b_{}", self.weights);
        let mut arrays = vec![
            ("b_wavelength", f64s(&grid, &self.wavelength)),
            ("b_flux", f64s(&[n, PIXELS], &self.flux)),
            (weights.as_str(), f64s(&[n, PIXELS], &self.weight)),
            ("b_mask", bools(&[n, PIXELS], &self.mask)),
        ];
        arrays.extend(
            self.columns
                .iter()
                .map(|(name, values)| (*name, f64s(&[n], values))),
        );
        npz(&arrays, false)
    }
}

/// A folder to run in.
pub struct Place {
    pub folder: TempDir,
}

impl Place {
    /// With `more` at the end of the model file.
    pub fn new(more: &str) -> Place {
        Place::with_network(
            more,
            &network_file(&["a", "b"], "relu", &[linear_layer(2, wave)]),
        )
    }

    pub fn with_network(more: &str, network: &[u8]) -> Place {
        let place = Place {
            folder: tempfile::tempdir().unwrap(),
        };
        file(place.path(), "net.safetensors", network);
        place.model(more);
        place
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn model(&self, more: &str) {
        let continuum = if more.contains("[continuum]") {
            String::new()
        } else {
            format!("[continuum]\nkind = \"chebyshev\"\nterms = {TERMS}\n")
        };
        let text =
            format!("[[arm]]\nname = \"b\"\nemulator = \"net.safetensors\"\n{continuum}{more}");
        file(self.path(), "model.toml", text.as_bytes());
    }

    /// Fits `spectra.npz` with these bytes.
    pub fn fit(&self, spectra: &[u8], more: &[&str]) -> Run {
        file(self.path(), "spectra.npz", spectra);
        self.run(&["spectra.npz"], more)
    }

    /// Fits into `out.csv`, of which the result has the text.
    pub fn run(&self, spectra: &[&str], more: &[&str]) -> Run {
        self.run_into("out.csv", spectra, more)
    }

    /// Fits into a table of any format.
    pub fn run_into(&self, out: &str, spectra: &[&str], more: &[&str]) -> Run {
        let table = self.path().join(out);
        let _ = std::fs::remove_file(&table);
        let before = self.names();
        let mut command = Command::new(env!("CARGO_BIN_EXE_popfit"));
        command
            .current_dir(self.path())
            .args(["fit", "model.toml"])
            .args(spectra)
            .args(["-o", out]);
        if !more.contains(&"--device") {
            command.args(["--device", "cpu"]);
        }
        let output = command.args(more).output().unwrap();
        let run = Run::new(&output, std::fs::read_to_string(&table).ok());
        let mut expected = before;
        expected.extend(table.exists().then(|| out.to_string()));
        expected.sort();
        assert_eq!(
            self.names(),
            expected,
            "nothing but the table is left: {}",
            run.message
        );
        run
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// End of a run of the program.
pub struct Run {
    pub code: Option<i32>,
    pub message: String,
    table: Option<String>,
}

impl Run {
    fn new(output: &Output, table: Option<String>) -> Run {
        Run {
            code: output.status.code(),
            message: String::from_utf8_lossy(&output.stderr).into_owned(),
            table,
        }
    }

    /// Lines of the table, without its head.
    #[track_caller]
    pub fn lines(&self) -> Vec<&str> {
        assert_eq!(self.code, Some(0), "{}", self.message);
        self.table.as_deref().unwrap().lines().skip(1).collect()
    }

    /// The cells of a row, by column.
    pub fn row(&self, place: usize) -> HashMap<String, String> {
        let mut table = csv::Reader::from_reader(self.table.as_deref().unwrap().as_bytes());
        let head = table.headers().unwrap().clone();
        let row = table.records().nth(place).unwrap().unwrap();
        head.iter()
            .zip(row.iter())
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect()
    }

    #[track_caller]
    pub fn says(&self, parts: &[&str]) {
        for part in parts {
            assert!(
                self.message.contains(part),
                "no {part:?} in: {}",
                self.message
            );
        }
    }

    /// Exit code 2, and nothing written.
    #[track_caller]
    pub fn is_refused(&self, parts: &[&str]) {
        assert!(
            self.code == Some(2) && self.table.is_none(),
            "{:?}: {}",
            self.code,
            self.message
        );
        self.says(parts);
    }
}

pub fn number(row: &HashMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap()
}
