//! Key that identifies a run: a run is resumed only by one with the same key.

use sha2::{Digest, Sha256};

use crate::io::output::Metadata;
use crate::spectra::{InputFiles, Selection};
use crate::spectral::SpectralFitter;

impl SpectralFitter {
    /// Returns the key of a run for its [`Journal`](crate::low_level::Journal): all that its rows depend on, in lines
    /// `name = value`. These are fitter, model, inputs and selection. `model` is the model file's text, if there is
    /// one; it makes the key easier to read. `inputs` have been [read](InputFiles::read). They count by name and
    /// contents, not by folder, so that the same files in another folder are the same run.
    #[doc(hidden)]
    pub fn resume_key(&self, model: &str, selection: &Selection, inputs: &InputFiles) -> String {
        // 1. Version, device and emulators.
        let Metadata {
            device,
            emulators,
            settings,
            ..
        } = Metadata::of(self);
        // results do not depend on the number of threads
        let device = if device.starts_with("cpu") {
            "cpu"
        } else {
            &device
        };
        let mut lines = vec![
            format!("version = {}", env!("CARGO_PKG_VERSION")),
            format!("device = {device}"),
        ];
        lines.extend(
            emulators
                .iter()
                .map(|(file, hash)| format!("emulator {file} = {hash}")),
        );
        // 2. Wavelengths of the emulators.
        for (arm, emulator) in self.model.arms() {
            // a grid may come from a file of its own
            let bytes: Vec<u8> = emulator
                .wavelength()
                .iter()
                .flat_map(|wavelength| wavelength.to_le_bytes())
                .collect();
            lines.push(format!(
                "wavelength of arm {arm:?} = {}",
                sha256_hex(&bytes)
            ));
        }
        // 3. Input and selection.
        lines.extend(inputs.lines());
        lines.extend(describe_selection(selection));
        // 4. Settings of the fitter and the model.
        lines.push(format!(
            "batch = {}",
            self.batch_size
                .map_or("not given".into(), |batch| batch.to_string())
        ));
        lines.push(format!("velocity scan = {}", self.velocity_scan));
        lines.push(settings);
        lines.push(model.into());
        lines.push(format!(
            "resolved model = {}",
            sha256_hex(self.model.settings().as_bytes())
        ));
        lines.join("\n")
    }
}

/// Returns the SHA-256 of some bytes, as hexadecimal text.
fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns which spectra a run selects, as lines of text for its key.
fn describe_selection(selection: &Selection) -> [String; 5] {
    // `widen` is part of the model's settings, and so is what joins exposures
    let Selection {
        target_ids,
        objtype,
        good_fibres,
        min_signal_to_noise,
        arms,
        widen: _,
        join_exposures: _,
    } = selection;
    let or_all = |list: Option<String>| list.unwrap_or_else(|| "all".into());
    let ids = target_ids.as_ref().map(|ids| {
        ids.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",")
    });
    [
        format!("target ids = {}", or_all(ids)),
        format!("objtype = {}", or_all(objtype.clone())),
        format!("good fibres = {good_fibres}"),
        format!(
            "least signal-to-noise = {}",
            min_signal_to_noise.map_or("none".into(), |minimum| minimum.to_string())
        ),
        format!(
            "arms = {}",
            or_all(arms.as_ref().map(|arms| arms.join(",")))
        ),
    ]
}
