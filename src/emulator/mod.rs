//! Emulators: trained networks that map labels to a rest-frame template.

mod check;
mod description;
#[cfg(feature = "files")]
mod file;
mod forward;
pub(crate) use forward::Evaluator;
pub(crate) mod grid;
mod layers;
mod native;
#[cfg(feature = "files")]
mod payne;
mod unique;
mod unit;
mod write;

use std::io::Cursor;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
pub use crate::recording::{Activation, Transform};
#[cfg(feature = "files")]
pub use file::read_wavelength;
pub(crate) use forward::transpose_padded;
pub(crate) use grid::{GridSegment, TemplateGrid};
pub use layers::EmulatorLayers;

/// A label of an emulator: an input, its unit, its scaling z = (transform(x) − mean) / std and its training range.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// The name that models and tables use.
    pub name: String,
    /// Empty without one.
    pub unit: String,
    /// Before the scaling.
    pub transform: Transform,
    /// Mean of the transformed label.
    pub mean: f64,
    /// Standard deviation of the transformed label; positive.
    pub std: f64,
    /// Lower end of the training range, physical.
    pub min: f64,
    /// Upper end of the training range, physical.
    pub max: f64,
}

/// A dense layer: `weight` (outputs, inputs) row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Numbers that enter.
    pub inputs: usize,
    /// Numbers that leave.
    pub outputs: usize,
    /// (outputs, inputs), row by row.
    pub weight: Vec<f32>,
    /// (outputs)
    pub bias: Vec<f32>,
    /// A folded batch norm after the activation: scale and offset.
    pub affine: Option<(Vec<f32>, Vec<f32>)>,
}

/// Network shapes. `w0` (pixels, hidden, labels), `b0` and `w1` (pixels, hidden), `b1` (pixels).
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Network {
    /// Layers for all pixels, in their order.
    Dense(Vec<Layer>),
    /// One tiny network per pixel.
    #[allow(missing_docs, reason = "their shapes stand above")]
    PerPixel {
        hidden: usize,
        w0: Vec<f32>,
        b0: Vec<f32>,
        w1: Vec<f32>,
        b1: Vec<f32>,
    },
}

/// Convex hull of the training set: outside where normal · z + offset > 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Hull {
    /// Indices of labels.
    pub axes: Vec<usize>,
    /// (facets, axes + 1): normal, offset.
    pub facets: Vec<f64>,
}

/// A trained network.
///
/// Two of them are equal if they compute the same: their [source](Emulator::source) and their [hash](Emulator::hash)
/// may differ.
#[derive(Clone, Debug)]
pub struct Emulator {
    pub(crate) source: String,
    pub(crate) hash: String,
    pub(crate) labels: Vec<Label>,
    /// Å, vacuum; empty when the file carries none.
    pub(crate) wavelength: Vec<f64>,
    pub(crate) activation: Activation,
    /// The file does not name the activation.
    pub(crate) activation_is_assumed: bool,
    /// `Identity` or `Exp`.
    pub(crate) output: Activation,
    pub(crate) network: Network,
    pub(crate) hulls: Vec<Hull>,
}

impl PartialEq for Emulator {
    fn eq(&self, other: &Emulator) -> bool {
        let Emulator {
            source: _,
            hash: _,
            labels,
            wavelength,
            activation,
            activation_is_assumed,
            output,
            network,
            hulls,
        } = self;
        *labels == other.labels
            && *wavelength == other.wavelength
            && *activation == other.activation
            && *activation_is_assumed == other.activation_is_assumed
            && *output == other.output
            && *network == other.network
            && *hulls == other.hulls
    }
}

impl Emulator {
    /// Makes an emulator from arrays in memory. They are checked like those of a file.
    ///
    /// The [hash](Emulator::hash) is that of the file that `Emulator::write` makes.
    ///
    /// ```
    /// use popfit::emulator::{Activation, EmulatorLayers, Label, Layer};
    /// use popfit::{Emulator, WriteOptions};
    ///
    /// let labels = vec![Label::new("teff", "K", 4000.0..=7000.0), Label::new("feh", "dex", -2.5..=0.5)];
    /// let wavelength: Vec<f64> = (0..100).map(|i| 5000.0 * (1e-4 * f64::from(i)).exp()).collect();
    /// let hidden = Layer::new([0.3, -0.1, 0.2, 0.5, -0.4, 0.1], [0.0, 0.1, -0.1]); // 2 labels, 3 units
    /// let pixels = Layer::new(vec![0.02; 300], vec![1.0; 100]); // 3 units, 100 pixels
    /// let layers = EmulatorLayers {
    ///     wavelength,
    ///     ..EmulatorLayers::new(labels, Activation::Silu, vec![hidden, pixels])
    /// };
    /// let emulator = Emulator::from_layers(layers)?;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("net.safetensors");
    /// emulator.write(&path, WriteOptions::default())?;
    /// assert_eq!(Emulator::open(&path)?, emulator);
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Model` when shapes or values make no sense, `BadWavelength` when the grid cannot be used.
    pub fn from_layers(layers: EmulatorLayers) -> Result<Emulator> {
        let mut emulator = layers.into_unchecked();
        let name = emulator.source.clone();
        let fault = |message| Error::model(format!("{name}: {message}"));
        emulator.check(fault)?;
        let bytes = write::serialise(&emulator, None).map_err(fault)?;
        emulator.hash = to_hexadecimal(&Sha256::digest(bytes));
        Ok(emulator)
    }

    /// Returns the network as the bytes of popfit's own file (safetensors), from which
    /// [`from_bytes`](Emulator::from_bytes) makes an equal one with the same [hash](Emulator::hash).
    ///
    /// ```
    /// use popfit::Emulator;
    ///
    /// let emulator = Emulator::open("data/emulator.safetensors")?;
    /// let copy = Emulator::from_bytes("a copy", &emulator.to_bytes()?)?;
    /// assert_eq!((&copy, copy.hash()), (&emulator, emulator.hash()));
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Model` for a network that the format cannot hold. There is none that a file or
    /// [`from_layers`](Emulator::from_layers) can make.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let fault = |message| Error::model(format!("{}: {message}", self.source));
        let bytes = write::serialise(self, None).map_err(fault)?;
        if to_hexadecimal(&Sha256::digest(&bytes)) == self.hash {
            return Ok(bytes);
        }
        write::serialise(self, Some(&self.hash)).map_err(fault)
    }

    /// Reads and checks a network from the bytes of a popfit safetensors file. `name` becomes its
    /// [source](Emulator::source), and stands in messages.
    ///
    /// # Errors
    /// `Format`, `TooLarge` or `BadWavelength` when the bytes are not a sound network.
    pub fn from_bytes(name: impl Into<String>, bytes: &[u8]) -> Result<Emulator> {
        let name = PathBuf::from(name.into());
        let mut emulator = native::read_network(&name, Cursor::new(bytes), bytes.len() as u64)?;
        emulator.check(|message| Error::format(&name, message))?;
        if emulator.hash.is_empty() {
            emulator.hash = to_hexadecimal(&Sha256::digest(bytes));
        }
        Ok(emulator)
    }

    /// Sets or replaces the template grid, one wavelength per pixel, Å in vacuum and uniform in ln λ in pieces.
    ///
    /// # Errors
    /// `ShapeMismatch` when it has not one value per pixel, `BadWavelength` when it is not finite, positive and
    /// increasing, or not uniform in ln λ in pieces that [`TemplateGrid`] can use.
    pub fn with_wavelength(mut self, wavelength: Vec<f64>) -> Result<Emulator> {
        if wavelength.len() != self.pixels() {
            let message = format!(
                "wavelength has {} values, the network {} pixels",
                wavelength.len(),
                self.pixels()
            );
            return Err(Error::mismatch(self.source, message).naming("wavelength"));
        }
        check::check_wavelength(&wavelength, &self.source)?;
        self.wavelength = wavelength;
        Ok(self)
    }

    /// Renames all labels, in the network's order; fails unless there is one distinct name for each.
    ///
    /// # Errors
    /// `Model` when there are more or fewer than the network has, or two are the same.
    pub fn with_label_names(mut self, names: &[String]) -> Result<Emulator> {
        if names.len() != self.labels.len() {
            let message = format!(
                "{}: {} label names for {} labels",
                self.source,
                names.len(),
                self.labels.len()
            );
            return Err(Error::model_setting("names", message));
        }
        for (label, name) in self.labels.iter_mut().zip(names) {
            label.name.clone_from(name);
        }
        check::check_names(&self.labels).map_err(|message| {
            Error::model_setting("names", format!("{}: {message}", self.source))
        })?;
        Ok(self)
    }

    /// Sets the hidden activation of a network whose file does not name it; fails if the file names another.
    ///
    /// # Errors
    /// `Model` when it is not an activation for hidden layers, or the file names another one.
    pub fn with_activation(mut self, activation: Activation) -> Result<Emulator> {
        let name = activation.name();
        let is_for_hidden_layers = Activation::of_name(name) == Some(activation);
        let is_allowed = self.activation_is_assumed || self.activation == activation;
        let message = if !is_for_hidden_layers {
            format!("{name} is not an activation for hidden layers")
        } else if !is_allowed {
            format!("its activation is {}, not {name}", self.activation.name())
        } else {
            self.activation = activation;
            self.activation_is_assumed = false;
            return Ok(self);
        };
        Err(Error::model_setting(
            "activation",
            format!("{}: {message}", self.source),
        ))
    }

    /// Returns the activation of the hidden layers.
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// Returns whether the hidden activation is an assumption, because the file does not name it and it was not
    /// [set](Emulator::with_activation).
    #[doc(hidden)]
    pub fn assumes_activation(&self) -> bool {
        self.activation_is_assumed
    }

    /// Returns the network's inputs: name, unit, scaling and training range of each.
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// Returns the vacuum wavelengths of the pixels in Å; empty when the file has none.
    pub fn wavelength(&self) -> &[f64] {
        &self.wavelength
    }

    /// Returns the convex hulls of the training labels, empty if the file has none.
    pub fn hulls(&self) -> &[Hull] {
        &self.hulls
    }

    /// Returns the number of pixels of a template.
    pub fn pixels(&self) -> usize {
        match &self.network {
            Network::Dense(layers) => layers.last().map_or(0, |layer| layer.outputs),
            Network::PerPixel { b1, .. } => b1.len(),
        }
    }

    /// Returns the SHA-256 of the network's file, hexadecimal; of one in memory, that of the file that would be
    /// written. It survives [`to_bytes`](Emulator::to_bytes).
    #[doc(hidden)]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the path of the file that the network was read from, or the name given to one in memory.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// Returns the bytes as lower-case hexadecimal text.
fn to_hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
