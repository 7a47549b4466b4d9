//! A fit has the same bits alone, in any batch, order or chunk, on each device (`docs/src/devices.md`).

use popfit::{Continuum, Device, FitTable, Spectra, SpectralModel};
use popfit_testing::fits::{
    bits, devices, fitter, least_memory, pick, same_bits, sound, synb_spectra,
};
use popfit_testing::random::Random;
use popfit_testing::{rotating_model, synb_model, tiny};

/// A permutation of 0..n with no pattern.
fn shuffled(n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut random = Random(12_345);
    for k in (1..n).rev() {
        order.swap(k, random.below(k + 1));
    }
    order
}

fn check(device: &Device, model: SpectralModel, spectra: &Spectra) -> FitTable {
    let fitter = fitter(model, device);
    let together = fitter.fit(spectra).unwrap();
    sound(&together);
    let again = fitter.fit(spectra).unwrap();
    for (a, b) in together.to_rows().into_iter().zip(again.to_rows()) {
        same_bits(a, b, "again");
    }
    let order = shuffled(spectra.len());
    let other = fitter.fit(&pick(spectra, &order)).unwrap();
    for (row, &n) in other.to_rows().into_iter().zip(&order) {
        assert_eq!(row.id, together.row(n).to_row().id);
        same_bits(&row, together.row(n).to_row(), "in another order");
    }
    for n in [0, spectra.len() / 2, spectra.len() - 1] {
        let alone = fitter.fit(&spectra.slice(n..n + 1)).unwrap();
        assert_eq!(alone.row(0).to_row().row, n as u64);
        same_bits(alone.row(0).to_row(), together.row(n).to_row(), "alone");
    }
    let copies = fitter.fit(&pick(spectra, &[3, 0, 3, 1, 2, 3, 3])).unwrap();
    for k in [0, 2, 5, 6] {
        same_bits(copies.row(k).to_row(), together.row(3).to_row(), "a copy");
    }
    together
}

#[test]
fn any_batch_and_order() {
    for device in devices() {
        check(&device, synb_model(), &synb_spectra());
    }
}

/// Starts that recur have their rows kept by the CPU; alone nothing recurs.
#[test]
fn starts_that_many_share() {
    let spectra = synb_spectra();
    for model in [synb_model(), rotating_model()] {
        let fitter = fitter(model, &Device::cpu());
        let order: Vec<usize> = (0..20).flat_map(|_| [3, 50, 77, 10, 126]).collect();
        let together = fitter.fit(&pick(&spectra, &order)).unwrap();
        for (row, &n) in together.to_rows().into_iter().zip(&order) {
            let alone = fitter.fit(&spectra.slice(n..n + 1)).unwrap();
            same_bits(&row, alone.row(0).to_row(), "among its copies");
        }
    }
}

#[test]
fn any_chunk() {
    let spectra = synb_spectra();
    for device in devices() {
        let fitter = fitter(synb_model(), &device);
        let whole = fitter.fit(&spectra).unwrap();
        let one = spectra.slice(0..1);
        // a spectrum's starts enter together, and of spectra with little masked there are four at most
        let least = least_memory(&fitter.clone().starts(4), &one);
        // chunks of one spectrum, of a few, and of many
        for (bytes, count) in [(least, 16), (least + least / 3, 128), (3 * least, 128)] {
            let chunked = fitter
                .clone()
                .max_memory(bytes)
                .fit(&spectra.slice(0..count))
                .unwrap();
            for (a, b) in chunked.to_rows().into_iter().zip(whole.to_rows()) {
                same_bits(
                    a,
                    b,
                    &format!("{}: in chunks of {bytes} bytes", device.name()),
                );
            }
        }
    }
}

/// Batches of spectra in memory go to several workers.
#[test]
fn any_batch_in_memory() {
    let spectra = synb_spectra().slice(0..40);
    for device in devices() {
        let whole = fitter(synb_model(), &device);
        let parted = whole.clone().batch_size(7);
        let rows = whole.fit(&spectra).unwrap();
        let starts: Vec<f64> = rows
            .to_rows()
            .into_iter()
            .flat_map(|row| row.parameters)
            .collect();
        let (parts, again) = (
            parted.fit(&spectra).unwrap(),
            parted.fit_from(&spectra, &starts).unwrap(),
        );
        let once = whole.fit_from(&spectra, &starts).unwrap();
        assert_eq!((parts.len(), again.len()), (spectra.len(), spectra.len()));
        let larger = whole.clone().batch_size(1000).fit(&spectra).unwrap();
        assert!(
            larger
                .to_rows()
                .into_iter()
                .zip(rows.to_rows())
                .all(|(a, b)| bits(&a) == bits(&b))
        );
        assert!(parted.fit(&spectra.slice(0..0)).unwrap().is_empty());
        for (k, (row, parted)) in rows.to_rows().into_iter().zip(parts.to_rows()).enumerate() {
            assert_eq!((&row.id, row.row), (&parted.id, parted.row));
            same_bits(row, parted, "in batches");
            same_bits(
                once.row(k).to_row(),
                again.row(k).to_row(),
                "in batches from starts of its own",
            );
        }
    }
}

#[test]
fn any_number_of_threads() {
    let spectra = synb_spectra().slice(0..32);
    let fit = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            fitter(synb_model(), &Device::cpu())
                .batch_size(10)
                .fit(&spectra)
                .unwrap()
        })
    };
    let (one, many) = (fit(1), fit(5));
    assert_eq!([one.len(), many.len()], [spectra.len(); 2]);
    assert!(
        one.to_rows()
            .into_iter()
            .zip(many.to_rows())
            .all(|(a, b)| bits(&a) == bits(&b))
    );
}

#[test]
fn without_a_velocity_or_a_continuum() {
    let emulator = || popfit::Emulator::open(popfit_testing::demo_emulator()).unwrap();
    let spectra = synb_spectra().slice(0..24);
    for device in devices() {
        let at_rest = SpectralModel::builder()
            .arm("", emulator())
            .continuum(Continuum::rbf(10))
            .build()
            .unwrap();
        check(&device, at_rest, &spectra);
        let bare = SpectralModel::builder()
            .arm("", emulator())
            .velocity(-500.0..=500.0)
            .continuum(Continuum::none());
        check(&device, bare.build().unwrap(), &spectra);
    }
}

#[test]
fn one_spectrum_in_a_hundred_thousand() {
    let emulator = tiny::linear(&["a", "b"], tiny::wave);
    let count = 100_000;
    let labels: Vec<f64> = (0..2 * count)
        .map(|k| 5.0 * (k as f64 * 0.7).sin())
        .collect();
    let spectra = tiny::spectra(&emulator, &labels, 0.01);
    let fitter = fitter(tiny::model(emulator, 0.0), &Device::cpu());
    let all = fitter.fit(&spectra).unwrap();
    assert_eq!(all.len(), count);
    for n in [0, 2047, 2048, 65_536, count - 1] {
        let alone = fitter.fit(&spectra.slice(n..n + 1)).unwrap();
        same_bits(alone.row(0).to_row(), all.row(n).to_row(), "alone");
    }
}
