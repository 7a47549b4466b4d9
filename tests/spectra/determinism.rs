//! A fit has the same bits alone, in any batch, order or chunk, on each device (`docs/src/devices.md`).

use popfit::{Continuum, Device, FitTable, Spectra, SpectralModel};
use popfit_testing::fits::{
    bits, devices, fitter, least_memory, pick, same_bits, sound, synb_spectra,
};
use popfit_testing::random::Random;
use popfit_testing::{rotating_model, synb_model, tiny};

/// Returns a permutation of 0..n with no pattern.
fn shuffle_indices(n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut random = Random(12_345);
    for k in (1..n).rev() {
        order.swap(k, random.below(k + 1));
    }
    order
}

fn check_bits(device: &Device, model: SpectralModel, spectra: &Spectra) -> FitTable {
    let fitter = fitter(model, device);
    let together = fitter.fit(spectra).unwrap();
    sound(&together);
    let again = fitter.fit(spectra).unwrap();
    for (a, b) in together.to_rows().into_iter().zip(again.to_rows()) {
        same_bits(a, b, "again");
    }
    let order = shuffle_indices(spectra.len());
    let shuffled = fitter.fit(&pick(spectra, &order)).unwrap();
    for (row, &n) in shuffled.to_rows().into_iter().zip(&order) {
        assert_eq!(row.id, together.row(n).id);
        same_bits(&row, together.row(n), "in another order");
    }
    for n in [0, spectra.len() / 2, spectra.len() - 1] {
        let alone = fitter.fit(&spectra.slice(n..n + 1)).unwrap();
        assert_eq!(alone.row(0).row, n as u64);
        same_bits(alone.row(0), together.row(n), "alone");
    }
    let copies = fitter.fit(&pick(spectra, &[3, 0, 3, 1, 2, 3, 3])).unwrap();
    for k in [0, 2, 5, 6] {
        same_bits(copies.row(k), together.row(3), "a copy");
    }
    together
}

#[test]
fn a_fit_has_the_same_bits_in_any_batch_and_order() {
    for device in devices() {
        check_bits(&device, synb_model(), &synb_spectra());
    }
}

/// The CPU caches the rows of starts that recur. Alone no start recurs.
#[test]
fn cached_rows_of_recurring_starts_change_no_bit() {
    let spectra = synb_spectra();
    for model in [synb_model(), rotating_model()] {
        let fitter = fitter(model, &Device::cpu());
        let order: Vec<usize> = (0..20).flat_map(|_| [3, 50, 77, 10, 126]).collect();
        let together = fitter.fit(&pick(&spectra, &order)).unwrap();
        for (row, &n) in together.to_rows().into_iter().zip(&order) {
            let alone = fitter.fit(&spectra.slice(n..n + 1)).unwrap();
            same_bits(&row, alone.row(0), "among its copies");
        }
    }
}

#[test]
fn a_fit_has_the_same_bits_with_any_memory() {
    let spectra = synb_spectra();
    for device in devices() {
        let fitter = fitter(synb_model(), &device);
        let whole = fitter.fit(&spectra).unwrap();
        let single = spectra.slice(0..1);
        // The starts of a spectrum enter together. Spectra with few masked pixels have four at most.
        let least = least_memory(&fitter.clone().starts(4), &single);
        // The memory holds one spectrum, a few, or many.
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
fn a_fit_has_the_same_bits_with_any_batch_size() {
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
        let parts = parted.fit(&spectra).unwrap();
        let parts_from_starts = parted.fit_from(&spectra, &starts).unwrap();
        let whole_from_starts = whole.fit_from(&spectra, &starts).unwrap();
        assert_eq!(
            (parts.len(), parts_from_starts.len()),
            (spectra.len(), spectra.len())
        );
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
                whole_from_starts.row(k),
                parts_from_starts.row(k),
                "in batches from starts of its own",
            );
        }
    }
}

#[test]
fn a_fit_has_the_same_bits_with_any_number_of_threads() {
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
    let single_thread = fit(1);
    let five_threads = fit(5);
    assert_eq!(
        [single_thread.len(), five_threads.len()],
        [spectra.len(); 2]
    );
    assert!(
        single_thread
            .to_rows()
            .into_iter()
            .zip(five_threads.to_rows())
            .all(|(a, b)| bits(&a) == bits(&b))
    );
}

#[test]
fn models_without_a_velocity_or_a_continuum_are_deterministic() {
    let emulator = || popfit::Emulator::open(popfit_testing::demo_emulator()).unwrap();
    let spectra = synb_spectra().slice(0..24);
    for device in devices() {
        let at_rest = SpectralModel::builder()
            .arm("", emulator())
            .continuum(Continuum::rbf(10))
            .build()
            .unwrap();
        check_bits(&device, at_rest, &spectra);
        let bare = SpectralModel::builder()
            .arm("", emulator())
            .velocity(-500.0..=500.0)
            .continuum(Continuum::none());
        check_bits(&device, bare.build().unwrap(), &spectra);
    }
}

#[test]
fn a_fit_has_the_same_bits_among_a_hundred_thousand() {
    let emulator = tiny::linear(&["a", "b"], tiny::wave);
    let count = 100_000;
    let labels: Vec<f64> = (0..2 * count)
        .map(|k| 5.0 * (k as f64 * 0.7).sin())
        .collect();
    let spectra = tiny::spectra(&emulator, &labels, 0.01);
    let fitter = fitter(tiny::model(emulator, 0.0), &Device::cpu());
    let together = fitter.fit(&spectra).unwrap();
    assert_eq!(together.len(), count);
    for n in [0, 2047, 2048, 65_536, count - 1] {
        let alone = fitter.fit(&spectra.slice(n..n + 1)).unwrap();
        same_bits(alone.row(0), together.row(n), "alone");
    }
}
