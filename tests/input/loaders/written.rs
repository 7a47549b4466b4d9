//! Networks from memory, and networks that are written and read again.

use super::emulators::{DESCRIPTION, log_grid, native_bytes, payne_arrays};
use super::*;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use popfit::emulator::{EmulatorLayers, Hull, Label, Layer};
use popfit::{ModelFile, WriteOptions};

/// Returns layers with 2 labels, a hidden layer of 3 with scale and offset, and 8 pixels.
fn layers() -> EmulatorLayers {
    let labels = vec![
        Label::new("teff", "K", 4000.0..=7000.0).scaled_log10(3.7, 0.1),
        // a scaling that a sloppy parser of JSON would round
        Label::new("feh", "dex", -2.5..=0.1 + 0.2).scaled(-1.1100000000000003, 0.9299999999999999),
    ];
    let hidden = Layer::new(ramp(6), ramp(3)).scale_and_offset(ramp(3), ramp(3));
    let hull = Hull {
        axes: vec![1],
        facets: vec![1.0, -2.0, -1.0, -2.0],
    };
    EmulatorLayers {
        wavelength: log_grid().to_vec(),
        output: Activation::Exp { clip: 33.3 },
        hulls: vec![hull],
        ..EmulatorLayers::new(
            labels,
            Activation::Gelu,
            vec![hidden, Layer::new(ramp(24), ramp(8))],
        )
    }
}

/// Writes an emulator, and reads it again.
fn write_and_read(emulator: &Emulator) -> Emulator {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("written.safetensors");
    emulator.write(&path, WriteOptions::default()).unwrap();
    Emulator::open(&path).unwrap()
}

/// Returns the bits of all numbers, by which −0.0 and 0.0 differ.
fn bits_of_numbers(emulator: &Emulator) -> Vec<u64> {
    let labels = emulator
        .labels()
        .iter()
        .flat_map(|label| [label.mean, label.std, label.min, label.max]);
    let hulls = emulator.hulls().iter().flat_map(|hull| hull.facets.clone());
    let flux = emulator
        .templates(&vec![1.3; emulator.labels().len()])
        .into_iter()
        .map(f64::from);
    labels
        .chain(hulls)
        .chain(emulator.wavelength().iter().copied())
        .chain(flux)
        .map(f64::to_bits)
        .collect()
}

/// Asserts that an emulator is written and read without a change of any bit.
#[track_caller]
fn assert_round_trip(emulator: &Emulator) {
    let back = write_and_read(emulator);
    assert_eq!(back, *emulator);
    assert_eq!(bits_of_numbers(&back), bits_of_numbers(emulator));
    // Writing it again gives the same bytes.
    assert_eq!(write_and_read(&back).hash(), back.hash());
}

#[test]
fn a_written_network_is_read_back_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let emulator = Emulator::from_layers(layers()).unwrap();
    assert_round_trip(&emulator);
    assert_eq!(write_and_read(&emulator).hash(), emulator.hash());
    assert_round_trip(&Emulator::open(popfit_testing::demo_emulator()).unwrap());
    let native = native_bytes(&DESCRIPTION.replace("ACT", "tanh"), |_| ());
    assert_round_trip(&Emulator::open(file(folder.path(), "n.safetensors", &native)).unwrap());
    let payne = Emulator::open(file(
        folder.path(),
        "payne.npz",
        &npz(&payne_arrays(f32s), false),
    ))
    .unwrap();
    let named = payne.with_activation(Activation::Sigmoid).unwrap();
    assert_round_trip(&named);
    assert_round_trip(
        &named
            .with_label_names(&["teff".into(), "feh".into()])
            .unwrap(),
    );
}

#[test]
fn layers_in_memory_give_the_network_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = native_bytes(&DESCRIPTION.replace("ACT", "silu"), |_| ());
    let opened = Emulator::open(file(folder.path(), "n.safetensors", &bytes)).unwrap();
    let labels = vec![
        Label::new("teff", "K", 4000.0..=7000.0).scaled_log10(3.7, 0.1),
        Label::new("logg", "dex", 1.0..=5.0).scaled(3.0, 1.0),
    ];
    let hidden = Layer::new(ramp(6), ramp(3)).scale_and_offset(ramp(3), ramp(3));
    let made = EmulatorLayers {
        wavelength: log_grid().to_vec(),
        output: Activation::Exp { clip: 2.0 },
        hulls: vec![Hull {
            axes: vec![1],
            facets: vec![1.0, -2.0, -1.0, -2.0],
        }],
        ..EmulatorLayers::new(
            labels,
            Activation::Silu,
            vec![hidden, Layer::new(vec![0.5; 24], ramp(8))],
        )
    };
    assert_eq!(Emulator::from_layers(made).unwrap(), opened);
}

#[test]
fn invalid_layers_are_refused_as_those_of_a_file() {
    let refuse = |change: fn(&mut EmulatorLayers), expected: &str| {
        let mut layers = EmulatorLayers {
            name: "mine".into(),
            ..layers()
        };
        change(&mut layers);
        let message = Emulator::from_layers(layers).unwrap_err().to_string();
        assert!(
            message.contains("mine: ") && message.contains(expected),
            "{expected}: {message}"
        );
    };
    refuse(|l| l.labels.clear(), "the network has no labels");
    refuse(|l| l.layers.clear(), "the network has no pixels");
    refuse(
        |l| l.labels[1].name = "teff".into(),
        "label name `teff` is empty or repeated",
    );
    refuse(
        |l| l.labels[0].min = 8000.0,
        "label teff: 8000 to 7000 is not a training range",
    );
    refuse(
        |l| l.layers[0].bias[1] = f32::NAN,
        "layer 0: bias: value 1 is not finite",
    );
    refuse(
        |l| l.layers[0].bias.truncate(2),
        "layer 0 has 3 outputs, but its bias has 2 numbers",
    );
    refuse(
        |l| l.layers[1].weight.truncate(23),
        "layer 1 has 23 weights: expected 24, for 8 outputs of 3 inputs",
    );
    refuse(
        |l| drop(l.layers.pop()),
        "`wavelength` has 8 values, but the network has 3 pixels",
    );
    refuse(
        |l| l.activation = Activation::Identity,
        "identity is not an activation for hidden layers",
    );
    refuse(
        |l| l.output = Activation::Relu,
        "relu is no function of the output layer",
    );
    refuse(
        |l| l.output = Activation::Exp { clip: 0.0 },
        "the clip of the output is 0",
    );
    refuse(
        |l| l.hulls[0].axes = vec![2],
        "hull 0 acts on the labels [2]: expected different indices from 0 to 1",
    );
    refuse(|l| l.wavelength[3] = 1.0, "wavelengths must increase");
    refuse(|l| l.wavelength[3] += 0.1, "uniform in ln λ");
}

#[test]
fn an_existing_file_is_replaced_only_if_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "net.safetensors", b"mine");
    let emulator = Emulator::from_layers(layers()).unwrap();
    let refused = emulator.write(&path, WriteOptions::default()).unwrap_err();
    assert!(matches!(refused, Error::OutputExists { .. }), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    emulator
        .write(
            &path,
            WriteOptions {
                overwrite: true,
                ..WriteOptions::default()
            },
        )
        .unwrap();
    assert_eq!(Emulator::open(&path).unwrap(), emulator);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The NPZ file of a network per pixel: two labels, three hidden units and two pixels.
fn per_pixel_bytes() -> Vec<u8> {
    let arrays = [
        ("w_array_0", f32s(&[2, 3, 2], &ramp(12))),
        ("w_array_1", f32s(&[2, 3], &ramp(6))),
        ("b_array_0", f32s(&[2, 3], &ramp(6))),
        ("b_array_1", f32s(&[2], &ramp(2))),
        ("x_min", f64s(&[2], &[0.0, 0.0])),
        ("x_max", f64s(&[2], &[1.0, 1.0])),
    ];
    npz(&arrays, false)
}

/// Bytes preserve all numbers of a network, the hash of its file, and whether its activation is assumed.
#[test]
fn bytes_give_the_same_network_with_the_hash_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let assumed = Emulator::open(file(
        folder.path(),
        "payne.npz",
        &npz(&payne_arrays(f32s), false),
    ))
    .unwrap();
    assert!(assumed.assumes_activation());
    let per_pixel = Emulator::open(file(folder.path(), "pixel.npz", &per_pixel_bytes())).unwrap();
    // two pieces of eight pixels
    let gapped: Vec<f64> = log_grid()
        .iter()
        .copied()
        .chain(log_grid().iter().map(|w| 2.0 * w))
        .collect();
    let mut wide = layers();
    wide.wavelength = gapped;
    wide.layers[1] = Layer::new(ramp(48), ramp(16));
    let pieces = Emulator::from_layers(wide).unwrap();
    let demo = Emulator::open(popfit_testing::demo_emulator()).unwrap();
    for emulator in [assumed, per_pixel, pieces, demo] {
        let written = emulator.to_bytes().unwrap();
        let back = Emulator::from_bytes(emulator.source(), &written).unwrap();
        assert_eq!(back, emulator);
        assert_eq!(bits_of_numbers(&back), bits_of_numbers(&emulator));
        assert_eq!(
            (back.hash(), back.source()),
            (emulator.hash(), emulator.source())
        );
        assert_eq!(back.to_bytes().unwrap(), written);
        // as a file they are the same
        let opened = Emulator::open(file(folder.path(), "bytes.safetensors", &written)).unwrap();
        assert_eq!(opened, emulator);
        // but a file's hash is that of its own bytes, whatever it says
        let digest: String = Sha256::digest(&written)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(opened.hash(), digest);
        assert_eq!(write_and_read(&emulator), emulator);
        for length in [0, 7, 8, 20, written.len() / 2, written.len() - 1] {
            let refused = Emulator::from_bytes("mine", &written[..length])
                .unwrap_err()
                .to_string();
            assert!(refused.starts_with("mine: "), "{refused}");
        }
    }
}

/// A model is built with networks in memory by the same code as with files.
#[test]
fn a_model_file_is_built_with_networks_in_memory() {
    let demo = Emulator::open(popfit_testing::demo_emulator()).unwrap();
    let text = "[velocity]\nrange = [-500, 500]\n[[arm]]\nname = 'b'\nemulator = 'nets/b'\nwavelength = 'grid.npz'\n";
    let file = ModelFile::from_text("gone/model.toml", text).unwrap();
    let mut asked = Vec::new();
    let model = file.build_with(|files| {
        asked.push((
            files.arm.to_string(),
            files.emulator.to_path_buf(),
            files.wavelength.map(PathBuf::from),
        ));
        Ok(demo.clone())
    });
    assert_eq!(
        asked,
        [("b".to_string(), "nets/b".into(), Some("grid.npz".into()))]
    );
    let arms: Vec<_> = model.as_ref().unwrap().arms().collect();
    assert_eq!(arms, [("b", &demo)]);
    let missing = file.build().unwrap_err().to_string();
    assert!(
        missing.contains("gone") && missing.contains("names this file as its `emulator`"),
        "{missing}"
    );
    let refused = file
        .build_with(|_| Err(Error::Usage("no such network".into())))
        .unwrap_err();
    assert_eq!(refused.to_string(), "no such network");
}
