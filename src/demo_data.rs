//! Files of the demo, which are compiled into the program.

/// Names and contents of the files. The model file refers to the emulator in the same folder.
pub static FILES: [(&str, &[u8]); 4] = [
    (
        "model.toml",
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/model.toml")),
    ),
    (
        "emulator.safetensors",
        include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/data/emulator.safetensors"
        )),
    ),
    (
        "spectra.npz",
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/spectra.npz")),
    ),
    (
        "truth.npz",
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/truth.npz")),
    ),
];
