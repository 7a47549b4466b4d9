//! The kernels that an adapter is given: a table by its class, with overrides from the environment. Products use
//! registers alone on software adapters, and tiles in workgroup memory on cards (`shaders/variants/`).
//!
//! The choice depends on the adapter alone, never on a clock: two runs on one machine have the same bits.
//! `POPFIT_GPU_TILES` and `POPFIT_GPU_FUSION` replace the table's entries, to compare them on a card or to avoid a
//! kernel that a driver miscompiles.

use std::fmt;

use super::fusion::Fused;
use crate::error::{Error, Result};
use crate::kernels::product::{TILES, Variant};

/// Environment variable with the product's kernel: `registers`, or tiles of `8x8`, `16x8` or `16x16` invocations.
const TILES_VARIABLE: &str = "POPFIT_GPU_TILES";
/// Environment variable with the stages that share a kernel: `none`, or a list of `layers`, `sums` and `rows`.
const FUSION_VARIABLE: &str = "POPFIT_GPU_FUSION";

/// PCI vendor number of NVIDIA.
pub(super) const NVIDIA_VENDOR: u32 = 0x10de;
/// PCI vendor number of AMD.
const AMD_VENDOR: u32 = 0x1002;

/// The kernels of one adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kernels {
    /// The kernel of f32 products.
    pub product: Variant,
    /// Stages that share a kernel.
    pub fused: Fused,
}

impl Kernels {
    /// Returns an adapter's product kernel and fusions: those of its class, unless environment variables name others.
    /// Fails with [`Error::Usage`] where a variable has an invalid value.
    pub fn for_adapter(info: &wgpu::AdapterInfo) -> Result<Kernels> {
        let table = Kernels::of_class(info.device_type, info.vendor);
        let non_empty_value = |variable: &str| {
            std::env::var(variable)
                .ok()
                .filter(|value| !value.is_empty())
        };
        let values = [TILES_VARIABLE, FUSION_VARIABLE].map(non_empty_value);
        table.with_overrides(values.each_ref().map(Option::as_deref))
    }

    /// Returns the kernels for a type of device and its vendor: the product kernel and the fusions.
    ///
    /// Software adapters have no real workgroup memory, and a second sweep costs them a third. Large tiles
    /// need the registers and the memory of a discrete card, whose kernels wait for memory: there fusion halves the
    /// bytes. On an H100 tiles of 16 x 8 took 20 % less time than those of 16 x 16. The kernel that resamples, too,
    /// spills registers on AMD cards. Other GPUs share the bandwidth and the caches of their processor.
    pub const fn of_class(kind: wgpu::DeviceType, vendor: u32) -> Kernels {
        let [small, middle, large] = TILES;
        let (product, fused) = match (kind, vendor) {
            (wgpu::DeviceType::Cpu, _) => (Variant::Registers, Fused::UNFUSED),
            (wgpu::DeviceType::DiscreteGpu, NVIDIA_VENDOR) => (
                middle,
                Fused {
                    layers: true,
                    sums: true,
                    rows: true,
                },
            ),
            (wgpu::DeviceType::DiscreteGpu, AMD_VENDOR) => (
                large,
                Fused {
                    layers: true,
                    sums: true,
                    rows: false,
                },
            ),
            (wgpu::DeviceType::DiscreteGpu, _) => (
                small,
                Fused {
                    layers: true,
                    sums: false,
                    rows: false,
                },
            ),
            _ => (
                small,
                Fused {
                    layers: true,
                    sums: false,
                    rows: false,
                },
            ),
        };
        Kernels { product, fused }
    }

    /// Replaces entries by those that the user's environment variables name, if any.
    fn with_overrides(mut self, [tiles, fusion]: [Option<&str>; 2]) -> Result<Kernels> {
        if let Some(text) = tiles {
            self.product = parse_tiles(text)?;
        }
        if let Some(text) = fusion {
            self.fused = parse_fusion(text)?;
        }
        Ok(self)
    }
}

impl fmt::Display for Kernels {
    /// Writes the values of the variables, as in `16x16 tiles; fused: layers, sums`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.product {
            Variant::Tiles { x, y } => write!(f, "{x}x{y} tiles")?,
            _ => write!(f, "registers")?,
        }
        let Fused { layers, sums, rows } = self.fused;
        let names = [(layers, "layers"), (sums, "sums"), (rows, "rows")];
        let fused: Vec<&str> = names
            .iter()
            .filter(|(is_fused, _)| *is_fused)
            .map(|(_, name)| *name)
            .collect();
        write!(
            f,
            "; fused: {}",
            if fused.is_empty() {
                "none".to_owned()
            } else {
                fused.join(", ")
            }
        )
    }
}

/// Parses the name of a product kernel: `registers`, or the size of a tile; any other name is a usage error.
fn parse_tiles(text: &str) -> Result<Variant> {
    let has_name = |variant: &Variant| matches!(variant, Variant::Tiles { x, y } if text == format!("{x}x{y}"));
    match TILES.into_iter().find(has_name) {
        Some(variant) => Ok(variant),
        None if text == "registers" => Ok(Variant::Registers),
        None => Err(Error::Usage(format!(
            "{TILES_VARIABLE} is registers, 8x8, 16x8 or 16x16, not \"{text}\""
        ))),
    }
}

/// Parses a list of fusions such as `layers,sums,rows`, or `none`; any other name is a usage error.
fn parse_fusion(text: &str) -> Result<Fused> {
    let mut fused = Fused::UNFUSED;
    for name in text
        .split(',')
        .map(str::trim)
        .filter(|name| *name != "none")
    {
        match name {
            "layers" => fused.layers = true,
            "sums" => fused.sums = true,
            "rows" => fused.rows = true,
            _ => {
                let valid = "none, or some of layers, sums and rows, separated by commas";
                return Err(Error::Usage(format!(
                    "{FUSION_VARIABLE} is {valid}, not \"{text}\""
                )));
            }
        }
    }
    Ok(fused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_adapters_has_its_kernels() {
        let kernels = |kind, vendor| Kernels::of_class(kind, vendor).to_string();
        assert_eq!(
            kernels(wgpu::DeviceType::Cpu, 0x10005),
            "registers; fused: none"
        );
        assert_eq!(
            kernels(wgpu::DeviceType::DiscreteGpu, NVIDIA_VENDOR),
            "16x8 tiles; fused: layers, sums, rows"
        );
        assert_eq!(
            kernels(wgpu::DeviceType::DiscreteGpu, AMD_VENDOR),
            "16x16 tiles; fused: layers, sums"
        );
        assert_eq!(
            kernels(wgpu::DeviceType::IntegratedGpu, AMD_VENDOR),
            "8x8 tiles; fused: layers"
        );
    }

    #[test]
    fn environment_variables_override_each_kernel() {
        let table = Kernels::of_class(wgpu::DeviceType::Cpu, 0);
        let overridden = |values| {
            table
                .with_overrides(values)
                .map(|kernels| kernels.to_string())
        };
        let tiles = overridden([Some("16x8"), None]).unwrap();
        assert_eq!(tiles, "16x8 tiles; fused: none");
        let fusion = overridden([None, Some("rows, layers")]).unwrap();
        assert_eq!(fusion, "registers; fused: layers, rows");
        let all = overridden([Some("registers"), Some("none")]).unwrap();
        assert_eq!(all, "registers; fused: none");
        for (wrong, name) in [([Some("4x4"), None], "4x4"), ([None, Some("all")], "all")] {
            assert!(
                overridden(wrong)
                    .unwrap_err()
                    .to_string()
                    .contains(&format!("not \"{name}\""))
            );
        }
    }
}
