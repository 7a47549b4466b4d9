//! The demo's data, inside whatever is linked with them.

/// Names and contents. A model file finds its emulator beside it.
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
