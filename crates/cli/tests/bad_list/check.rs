//! Goes through the list: the library and the command on every device.

use popfit::{Device, FitRow, FitTable, ModelFile, Result, Spectra, SpectralFitter};

use crate::damage::{alike, network};
use crate::kinds::{Fault, Refused, Seen, Shown, Whole};
use crate::list::LIST;
use crate::setup::{Arrays, Place, SPECTRA};
use popfit_testing::file;
use popfit_testing::fits::{devices, sound};

/// Places of the bad spectrum: first, in the middle, last.
const PLACES: [usize; 3] = [0, 2, SPECTRA - 1];

/// A folder, and the device that fits what is in it.
struct Bench<'a> {
    place: &'a Place,
    device: &'a Device,
    /// Value of `--device`.
    name: &'static str,
}

/// Every device and its name on the command line: the CPU first.
fn each_device(check: impl Fn(&Device, &'static str)) {
    devices()
        .iter()
        .zip(["cpu", "gpu"])
        .for_each(|(device, name)| check(device, name));
}

impl Bench<'_> {
    /// `spectra.npz` under `model.toml`, by the library.
    fn library(&self) -> Result<Vec<FitRow>> {
        let model = ModelFile::open(self.place.path().join("model.toml"))?;
        let spectra = Spectra::open(self.place.path().join("spectra.npz"))?;
        let solver = model.solver.unwrap_or_default();
        let table = SpectralFitter::new(model.build()?, self.device.clone())
            .solver(solver)
            .fit(&spectra)?;
        sound(&table);
        Ok(table.to_rows())
    }

    /// The rows of the library alone.
    fn quick_rows(&self, arrays: &Arrays) -> Vec<FitRow> {
        file(self.place.path(), "spectra.npz", &arrays.bytes());
        self.library().unwrap()
    }

    /// The rows of both, which are the same.
    fn rows(&self, arrays: &Arrays, what: &str) -> Vec<FitRow> {
        file(self.place.path(), "spectra.npz", &arrays.bytes());
        let run = self.place.run_into(
            "out.parquet",
            &["spectra.npz"],
            &["--device", self.name, "--quiet"],
        );
        let written = FitTable::read(self.place.path().join("out.parquet"))
            .unwrap()
            .0;
        std::fs::remove_file(self.place.path().join("out.parquet")).unwrap();
        sound(&written);
        let expected = if written.is_empty()
            || written
                .to_rows()
                .into_iter()
                .any(|row| row.status.is_success())
        {
            0
        } else {
            3
        };
        assert_eq!(
            run.code,
            Some(expected),
            "{what}, {}: {}",
            self.name,
            run.message
        );
        let rows = self.library().unwrap();
        assert_eq!(rows.len(), written.len(), "{what}");
        for (row, written) in rows.iter().zip(written.to_rows()) {
            assert!(
                alike(row, &written),
                "{what}, {}: the command is not the library:\n{row:?}\n{written:?}",
                self.name
            );
        }
        rows
    }

    fn fault(&self, fault: &Fault, what: &str) {
        // a process on a software GPU takes seconds to begin: there the command sees the middle place alone
        let rows_of = |arrays: &Arrays, place: usize| match self.name == "cpu" || place == PLACES[1]
        {
            true => self.rows(arrays, what),
            false => self.quick_rows(arrays),
        };
        let clean = rows_of(&(fault.sound)(), PLACES[0]);
        assert!(
            clean.iter().all(|row| row.status.is_success()),
            "{what}: {clean:?}"
        );
        for bad in PLACES {
            let mut arrays = (fault.sound)();
            (fault.spoil)(&mut arrays, bad);
            let rows = rows_of(&arrays, bad);
            assert_eq!(rows.len(), SPECTRA, "{what}");
            for (n, (row, clean)) in rows.iter().zip(&clean).enumerate() {
                assert!(
                    n == bad || alike(row, clean),
                    "{what}, bad {bad}: spectrum {n} changed:\n{row:?}\n{clean:?}"
                );
            }
            let seen = Seen {
                row: &rows[bad],
                clean: &clean,
                bad,
            };
            assert!(
                (fault.expect)(&seen),
                "{what}, {}, place {bad}: {:?}",
                self.name,
                seen.row
            );
        }
    }

    fn whole(&self, whole: &Whole, what: &str) {
        let sound = Place::new("");
        let clean = Bench {
            place: &sound,
            ..*self
        }
        .rows(&Arrays::good(), what);
        let rows = self.rows(&(whole.arrays)(), what);
        assert!(
            (whole.expect)(&rows, &clean),
            "{what}, {}: {rows:?}",
            self.name
        );
    }

    fn refused(&self, refused: &Refused, what: &str) {
        let bytes = (refused.file)();
        self.place
            .fit(&bytes, &["--device", self.name])
            .is_refused(refused.words);
        file(self.place.path(), "spectra.npz", &bytes);
        let message = self
            .library()
            .map(|rows| format!("{what}: {rows:?}"))
            .unwrap_err()
            .to_string();
        for word in refused.words {
            assert!(message.contains(word), "{what}: no {word:?} in {message}");
        }
    }
}

#[test]
fn faults_of_one_spectrum() {
    each_device(|device, name| {
        for (number, case, shown) in LIST {
            for (k, fault) in shown
                .iter()
                .enumerate()
                .filter_map(|(k, s)| Some((k, as_fault(s)?)))
            {
                let place = Place::new(fault.model);
                Bench {
                    place: &place,
                    device,
                    name,
                }
                .fault(fault, &format!("row {number}, {case}, {k}"));
            }
        }
    });
}

fn as_fault(shown: &Shown) -> Option<&Fault> {
    if let Shown::Fault(fault) = shown {
        Some(fault)
    } else {
        None
    }
}

#[test]
fn whole_batches_and_models() {
    each_device(|device, name| {
        for (number, case, shown) in LIST {
            for whole in shown.iter().filter_map(|s| {
                if let Shown::Whole(whole) = s {
                    Some(whole)
                } else {
                    None
                }
            }) {
                let place = Place::with_network(whole.model, &(whole.network)());
                Bench {
                    place: &place,
                    device,
                    name,
                }
                .whole(whole, &format!("row {number}, {case}"));
            }
        }
    });
}

#[test]
fn files_and_models_that_are_refused() {
    each_device(|device, name| {
        for (number, case, shown) in LIST {
            for refused in shown.iter().filter_map(|s| {
                if let Shown::Refused(refused) = s {
                    Some(refused)
                } else {
                    None
                }
            }) {
                let place = Place::with_network(refused.model, &network::two_waves());
                Bench {
                    place: &place,
                    device,
                    name,
                }
                .refused(refused, &format!("row {number}, {case}"));
            }
        }
    });
}
