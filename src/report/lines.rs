//! Names of well-known stellar lines, and places for their labels above a picture.
//!
//! The curves of a spectrum stretch to any width. Tick labels and line names are HTML above them, and a container query
//! chooses between names placed for wide and for narrow pictures.

use crate::recording::LIGHT;

/// A line, or several of one name.
struct Feature {
    name: &'static str,
    /// Å in vacuum, as all of popfit's wavelengths are.
    rest: &'static [f64],
}

/// Well-known features of stellar spectra, the most useful first: where labels would overlap, the earlier one stays.
///
/// Rest wavelengths are those of the NIST Atomic Spectra Database; those that it gives in air are converted as in
/// `spectra::air` (Morton 1991).
const STELLAR_FEATURES: &[Feature] = &[
    Feature {
        name: "Hα",
        rest: &[6564.61],
    },
    Feature {
        name: "Hβ",
        rest: &[4862.69],
    },
    Feature {
        name: "Mg b",
        rest: &[5168.76, 5174.12, 5185.05],
    },
    Feature {
        name: "Na D",
        rest: &[5891.58, 5897.56],
    },
    Feature {
        name: "Ca II",
        rest: &[3934.78, 3969.59],
    },
    Feature {
        name: "Ca II",
        rest: &[8500.35, 8544.44, 8664.52],
    },
    Feature {
        name: "Hγ",
        rest: &[4341.69],
    },
    Feature {
        name: "Hδ",
        rest: &[4102.90],
    },
    Feature {
        name: "Ca I",
        rest: &[4227.92],
    },
    Feature {
        name: "G band",
        rest: &[4305.6],
    },
    Feature {
        name: "Li I",
        rest: &[6709.61],
    },
    Feature {
        name: "Na I",
        rest: &[8185.51, 8197.08],
    },
    Feature {
        name: "Fe I",
        rest: &[5271.00],
    },
    Feature {
        name: "K I",
        rest: &[7701.09],
    },
    Feature {
        name: "Pa δ",
        rest: &[10052.1],
    },
    Feature {
        name: "Mg I",
        rest: &[15745.02, 15753.29, 15770.15],
    },
    Feature {
        name: "Br 11",
        rest: &[16811.1],
    },
    Feature {
        name: "Br 13",
        rest: &[16113.7],
    },
    Feature {
        name: "Al I",
        rest: &[16723.52, 16755.14, 16767.94],
    },
    Feature {
        name: "K I",
        rest: &[15167.21, 15172.52],
    },
];

/// Width of a character of a label, in CSS pixels.
const LABEL_CHARACTER_WIDTH: f64 = 7.0;
/// Smallest gap between two labels, in CSS pixels.
const MIN_LABEL_GAP: f64 = 5.0;
/// Number of rows of labels above a picture.
pub const LABEL_ROWS: usize = 2;

/// A feature of the spectrum that has a label.
#[derive(Clone, Debug, PartialEq)]
pub struct LineLabel {
    pub name: &'static str,
    /// Place of the label's middle, 0 at the left end of the picture and 1 at the right.
    pub middle: f64,
    /// Row of the label, 0 next to the picture.
    pub level: usize,
    /// Observed wavelengths of the lines inside the picture, Å in vacuum.
    pub lines: Vec<f64>,
}

/// Returns names of spectral lines of a star with this velocity (km/s) from `from` to `to` (Å) that fit into `width`
/// pixels. No two of them overlap. None without a finite velocity.
pub fn place_labels(velocity: f64, from: f64, to: f64, width: f64) -> Vec<LineLabel> {
    // relativistic, as the model's own shift: ln(1 + z) = artanh(v / c)
    let shift = (velocity / LIGHT).atanh().exp();
    let mut placed: Vec<LineLabel> = Vec::new();
    if !shift.is_finite() {
        return placed;
    }
    for feature in STELLAR_FEATURES {
        // 1. Choose the lines of the feature that lie in the picture.
        let observed = feature.rest.iter().map(|rest| rest * shift);
        let lines: Vec<f64> = observed.filter(|line| (from..=to).contains(line)).collect();
        if lines.is_empty() {
            continue;
        }
        // 2. The label stands over their middle, but does not reach beyond the picture.
        let mean = lines.iter().sum::<f64>() / lines.len() as f64;
        let half_width = 0.5 * label_width(feature.name) / width;
        let middle =
            ((mean - from) / (to - from)).clamp(half_width.min(0.5), (1.0 - half_width).max(0.5));
        // 3. Take the lowest row in which it overlaps no other label. Without one it has no label.
        let level = (0..LABEL_ROWS).find(|level| {
            placed
                .iter()
                .filter(|label| label.level == *level)
                .all(|label| is_far_enough(label, feature.name, middle, width))
        });
        if let Some(level) = level {
            placed.push(LineLabel {
                name: feature.name,
                middle,
                level,
                lines,
            });
        }
    }
    placed
}

/// Returns whether a label `name` at `middle` (0 to 1 of the picture's `width`, pixels) would not overlap the label
/// `placed`.
fn is_far_enough(placed: &LineLabel, name: &str, middle: f64, width: f64) -> bool {
    let min_distance = 0.5 * (label_width(placed.name) + label_width(name)) + MIN_LABEL_GAP;
    (placed.middle - middle).abs() * width >= min_distance
}

/// Estimates how wide a label's text is drawn (CSS pixels).
fn label_width(name: &str) -> f64 {
    LABEL_CHARACTER_WIDTH * name.chars().count() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::air::to_vacuum;

    #[test]
    fn rest_wavelengths_are_the_textbooks_in_vacuum() {
        let in_air = [
            ("Hα", vec![6562.80]),
            ("Hβ", vec![4861.33]),
            ("Hγ", vec![4340.47]),
            ("Hδ", vec![4101.74]),
            ("Mg b", vec![5167.32, 5172.68, 5183.60]),
            ("Na D", vec![5889.95, 5895.92]),
            ("Ca II", vec![3933.66, 3968.47]),
            ("Ca II", vec![8498.02, 8542.09, 8662.14]),
            ("Ca I", vec![4226.73]),
            ("Li I", vec![6707.76]),
            ("Na I", vec![8183.26, 8194.82]),
            ("Fe I", vec![5269.54]),
            ("K I", vec![7698.97]),
            ("Mg I", vec![15740.72, 15748.99, 15765.84]),
            ("Al I", vec![16718.96, 16750.56, 16763.36]),
            ("K I", vec![15163.07, 15168.38]),
        ];
        for (name, air) in in_air {
            let vacuum: Vec<f64> = air.into_iter().map(to_vacuum).collect();
            let feature = STELLAR_FEATURES
                .iter()
                .filter(|feature| feature.name == name)
                .find(|feature| (feature.rest[0] - vacuum[0]).abs() < 100.0)
                .unwrap_or_else(|| panic!("{name} {vacuum:?}"));
            assert_eq!(feature.rest.len(), vacuum.len(), "{name}");
            for (rest, vacuum) in feature.rest.iter().zip(vacuum) {
                assert!((rest - vacuum).abs() < 0.03, "{name}: {rest}, not {vacuum}");
            }
        }
        // Rydberg's formula, with the constant of hydrogen in 1/Å
        let rydberg_wavelength =
            |lower: f64, upper: f64| 1.0 / (1.096_775_83e-3 * (lower.powi(-2) - upper.powi(-2)));
        for (name, lower, upper) in [
            ("Hα", 2.0, 3.0),
            ("Pa δ", 3.0, 7.0),
            ("Br 11", 4.0, 11.0),
            ("Br 13", 4.0, 13.0),
        ] {
            let rest = STELLAR_FEATURES
                .iter()
                .find(|feature| feature.name == name)
                .map(|feature| feature.rest[0]);
            assert!(
                (rest.unwrap() - rydberg_wavelength(lower, upper)).abs() < 0.6,
                "{name}: {}",
                rydberg_wavelength(lower, upper)
            );
        }
    }

    #[test]
    fn lines_move_with_the_star() {
        let still = &place_labels(0.0, 6500.0, 6600.0, 400.0)[0];
        assert_eq!((still.name, still.lines.as_slice()), ("Hα", &[6564.61][..]));
        let moving = &place_labels(300.0, 6500.0, 6600.0, 400.0)[0];
        assert!((moving.lines[0] / 6564.61 - 1.0 - 300.0 / LIGHT).abs() < 1e-6);
        assert_eq!(place_labels(f64::NAN, 6500.0, 6600.0, 400.0), []);
        assert_eq!(place_labels(0.0, 100.0, 200.0, 400.0), []);
    }

    #[test]
    fn labels_do_not_overlap_or_stick_out() {
        for [from, to, width] in [
            [3600.0, 9800.0, 276.0],
            [3600.0, 5800.0, 330.0],
            [15000.0, 17000.0, 40.0],
        ] {
            let labels = place_labels(0.0, from, to, width);
            assert!(labels.len() > 1, "{labels:?}");
            for (k, label) in labels.iter().enumerate() {
                let half_width = 0.5 * label_width(label.name) / width;
                assert!(
                    label.middle - half_width > -1e-9 && label.middle + half_width < 1.0 + 1e-9,
                    "{label:?}"
                );
                for other in labels[..k]
                    .iter()
                    .filter(|other| other.level == label.level)
                {
                    assert!(
                        is_far_enough(other, label.name, label.middle, width),
                        "{other:?} {label:?}"
                    );
                }
            }
        }
    }
}
