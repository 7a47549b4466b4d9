//! The effort of a first guess, which grows if few pixels of a spectrum count or its lines say little.

use pulp::NullaryFnOnce;

use super::Prepared;
use super::choose::{Competition, MOST_COMPETING};
use super::look::Candidate;
use crate::model::PreparedArm;

/// Share of the pixels in range that are in effect below which a spectrum is scarce, if it does not use its grid's
/// continuum basis.
const SCARCE_SHARE: f64 = 0.125;
/// The share below which any spectrum is partial. A spectrum that does not use its grid's continuum basis always is.
const PARTIAL_SHARE: f64 = 0.6;
/// Reduction of χ² by the lines of the best template below which the first guess is thorough. Of 6,000 spectra of which
/// the blue 60 % were left out by the arm's range, 295 missed the minimum without a thorough first guess. In all of
/// these the lines gained less than 112, and in none of 6,000 whole spectra less than 200.
const MIN_LINE_GAIN: f64 = 250.0;
/// The smallest such reduction for partial spectra.
const MIN_LINE_GAIN_OF_PARTIAL: f64 = 1000.0;
/// Share of the shortlist behind which a leader counts as late. The first guess is thorough, too, if one of the best
/// [`LEADERS`] templates is late, because better ones may be missing from the shortlist. Of 6,000 spectra of which the
/// blue 50 % were masked, 159 missed the minimum, and all of these had a late leader.
const LATE_SHARE: f64 = 0.6;
/// Number of best templates that may be late.
const LEADERS: usize = 3;
/// Factor by which the refitted continuum raises the gain of hidden lines at least. Of whole spectra 6 % have a late
/// leader and miss nothing. Their first guess is thorough only if their lines are hidden, as in all of those 159, and
/// in 0.2 % of whole spectra.
const HIDDEN_GAIN_RATIO: f64 = 1.4;
/// Starts of a scarce spectrum. With those that compete alone, 69 of 6,000 spectra of which the red 90 % were masked
/// missed the minimum, and 2 with these.
const STARTS_OF_SCARCE: usize = 32;
/// Maximum number of competing starts after a thorough first guess, times the share of pixels in effect (at most a
/// half). Of 6,000 spectra of which the blue 60 and 75 % were masked, 12 and 17 missed the minimum, and 17
/// and 30 with never more than 8 starts.
const STARTS_OVER_SHARE: f64 = 4.0;
/// Factor by which competing templates may then rise further above the best one, because their χ² says less about the
/// χ² of a fit from them.
const LENIENCY: f64 = 4.0;
/// Number of labels whose best templates are judged at all velocities. Of 6,000 spectra of which the blue 75 % were
/// masked, 30 missed the minimum with 16, 26 with 32, and 275 with none.
const RESCANNED_LABELS: usize = 16;
/// Number of labels whose best templates are judged at all velocities if a network ends inside the data. The
/// continuum that is fitted without lines absorbs the wings of lines there, which biases the velocity. Of 12,000 stars
/// seen through one or two pieces of a network (`tests/reference/check_ends.py`), 8 ended more than five errors off
/// without this, and 1 with it.
const RESCANNED_LABELS_OF_CUT: usize = 8;
/// [`LENIENCY`] if a network ends inside the data. With 4, 3 of 10,000 of these stars ended more than five errors off.
const LENIENCY_OF_CUT: f64 = 6.0;
/// Maximum number of starts per spectrum, unless the user sets it.
pub const MAX_GUESSED_STARTS: usize = if MOST_COMPETING > STARTS_OF_SCARCE {
    MOST_COMPETING
} else {
    STARTS_OF_SCARCE
};

/// Choice of a spectrum's starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StartChoice {
    /// The templates that compete with the best one.
    Competing(Competition),
    /// This many of the best templates that differ.
    Distinct(usize),
}

/// The effort of one spectrum's first guess.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// All templates are judged with their own continua, not only the shortlist.
    pub judges_all: bool,
    /// Number of labels whose best templates are judged at all velocities.
    pub rescanned: usize,
    pub starts: StartChoice,
}

impl Effort {
    /// Decides how thorough a spectrum's first guess is, and how many starts it has.
    ///
    /// `by_lines` is the shortlist of templates in the order of their lines alone, and `refitted` the same in the order
    /// that refitted continua give them. `is_cut` is true if a network ends inside the data.
    pub fn new(
        prepared: &Prepared,
        is_cut: bool,
        by_lines: &[Candidate],
        refitted: &[Candidate],
    ) -> Effort {
        let share = count_effective_pixels(prepared) / prepared.in_range as f64;
        let has_grid_basis = prepared.arms.iter().all(PreparedArm::has_grid_basis);
        // 1. A scarce spectrum has many distinct starts.
        if share < SCARCE_SHARE && !has_grid_basis {
            return Effort {
                judges_all: true,
                rescanned: RESCANNED_LABELS,
                starts: StartChoice::Distinct(STARTS_OF_SCARCE),
            };
        }
        // 2. The guess is thorough if the lines say little, or hide behind the continuum and the shortlist misled.
        let is_partial = share < PARTIAL_SHARE || !has_grid_basis;
        let min_line_gain = if is_partial {
            MIN_LINE_GAIN_OF_PARTIAL
        } else {
            MIN_LINE_GAIN
        };
        let gain_by_lines = -f64::from(by_lines[0].score);
        let refitted_gain = -f64::from(refitted[0].score);
        let is_hidden = is_partial || refitted_gain > HIDDEN_GAIN_RATIO * gain_by_lines;
        let is_thorough =
            refitted_gain < min_line_gain || is_hidden && leader_is_late(by_lines, refitted);
        if !is_cut && !is_thorough {
            return Effort {
                judges_all: false,
                rescanned: 0,
                starts: StartChoice::Competing(Competition::USUAL),
            };
        }
        // 3. A thorough guess, or one where a network ends inside the data, lets more templates compete.
        let leniency = if is_cut { LENIENCY_OF_CUT } else { LENIENCY };
        let max_starts = (STARTS_OVER_SHARE / share.min(0.5)) as usize;
        let rule = Competition {
            max_starts: max_starts.min(STARTS_OF_SCARCE),
            rise: leniency * Competition::USUAL.rise,
            share: leniency * Competition::USUAL.share,
        };
        Effort {
            judges_all: is_thorough,
            rescanned: if is_thorough {
                RESCANNED_LABELS
            } else {
                RESCANNED_LABELS_OF_CUT
            },
            starts: StartChoice::Competing(rule),
        }
    }
}

/// Returns whether one of the best templates with refitted continua comes from the end of the shortlist.
fn leader_is_late(by_lines: &[Candidate], refitted: &[Candidate]) -> bool {
    let latest_rank = refitted
        .iter()
        .take(LEADERS)
        .filter_map(|leader| {
            by_lines
                .iter()
                .position(|candidate| candidate.template == leader.template)
        })
        .max();
    latest_rank.is_some_and(|rank| rank as f64 >= LATE_SHARE * by_lines.len() as f64)
}

/// Independent partial sums over pixels, which the compiler can vectorise.
const PIXEL_SUM_LANES: usize = 8;

/// Returns the effective number of pixels, (Σ w)² / Σ w² of the inverse variances w (Kish 1965, Survey Sampling,
/// §11.7), summed over arms.
fn count_effective_pixels(prepared: &Prepared) -> f64 {
    prepared
        .arms
        .iter()
        .map(|arm| {
            pulp::Arch::new().dispatch(EffectivePixels {
                weight: &arm.weight,
            })
        })
        .sum()
}

/// Counts the effective number of pixels of one arm, (Σ w)² / Σ w².
struct EffectivePixels<'a> {
    /// Square roots of the inverse variances.
    weight: &'a [f32],
}

impl NullaryFnOnce for EffectivePixels<'_> {
    type Output = f64;

    #[inline(always)]
    fn call(self) -> f64 {
        let mut sums = [0f64; PIXEL_SUM_LANES];
        let mut squares = [0f64; PIXEL_SUM_LANES];
        for chunk in self.weight.chunks(PIXEL_SUM_LANES) {
            for ((weight, sum), square) in chunk.iter().zip(&mut sums).zip(&mut squares) {
                let ivar = f64::from(*weight).powi(2);
                *sum += ivar;
                *square += ivar * ivar;
            }
        }
        let [sum, squares] = [sums, squares].map(|lanes| lanes.iter().sum::<f64>());
        if squares > 0.0 {
            sum * sum / squares
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{demo, prepare_all};
    use super::*;

    /// Pixels whose weight is lowered by many orders count as little as masked ones.
    #[test]
    fn lowered_weights_count_as_masked_pixels() {
        for factor in [0.0, 1e-8] {
            let (model, _, mut spectra) = demo();
            let arm = &mut spectra.arms[0];
            let lowered = arm.pixels * 9 / 10;
            for ivar in arm.ivar.to_mut().chunks_mut(arm.pixels) {
                ivar[..lowered].iter_mut().for_each(|w| *w *= factor);
            }
            for prepared in prepare_all(&model, &spectra).1 {
                let share = count_effective_pixels(&prepared) / prepared.in_range as f64;
                assert!((0.05..0.1).contains(&share), "{factor}: {share}");
                let candidates = [candidate(0, -1e6)];
                assert_eq!(
                    Effort::new(&prepared, false, &candidates, &candidates).starts,
                    StartChoice::Distinct(MAX_GUESSED_STARTS),
                    "{factor}"
                );
            }
        }
    }

    fn candidate(template: usize, score: f32) -> Candidate {
        Candidate {
            template,
            velocity: 0.0,
            score,
        }
    }

    /// Returns the shortlist of templates 0 to 9 by their lines, which gain 1,000 at most, and the shortlist by
    /// refitted continua, which give `leader` this gain.
    fn shortlist(leader: usize, gain: f32) -> [Vec<Candidate>; 2] {
        let by_lines: Vec<Candidate> = (0..10).map(|k| candidate(k, k as f32 - 1000.0)).collect();
        let mut refitted = by_lines.clone();
        refitted[leader].score = -gain;
        refitted.sort_by(Candidate::order);
        [by_lines, refitted]
    }

    #[test]
    fn the_guess_is_thorough_if_the_continuum_hides_the_lines() {
        let (model, _, mut spectra) = demo();
        let is_thorough = |prepared: &Prepared, leader: usize, gain: f32| {
            let [by_lines, refitted] = shortlist(leader, gain);
            Effort::new(prepared, false, &by_lines, &refitted).judges_all
        };
        let whole = &prepare_all(&model, &spectra).1[0];
        let late = 6;
        assert!(!is_thorough(whole, late - 1, 1500.0));
        assert!(!is_thorough(whole, late, 1300.0));
        assert!(is_thorough(whole, late, 1500.0));
        let pixels = spectra.arms[0].pixels;
        spectra.arms[0].ivar.to_mut()[..pixels / 2].fill(0.0);
        let partial = &prepare_all(&model, &spectra).1[0];
        assert!(!is_thorough(partial, late - 1, 1400.0));
        assert!(is_thorough(partial, late, 1200.0));
        // The guess is thorough if the lines say little.
        let weak = |gain: f32| [candidate(0, -gain)];
        assert!(Effort::new(whole, false, &weak(240.0), &weak(240.0)).judges_all);
        assert!(!Effort::new(whole, false, &weak(260.0), &weak(260.0)).judges_all);
        assert!(Effort::new(partial, false, &weak(990.0), &weak(990.0)).judges_all);
        // A network that ends inside the data needs a rescan and more starts.
        let [usual, cut] =
            [false, true].map(|is_cut| Effort::new(whole, is_cut, &weak(1e5), &weak(1e5)));
        assert!(
            !cut.judges_all && usual.rescanned == 0 && cut.rescanned == RESCANNED_LABELS_OF_CUT
        );
        assert_ne!(cut.starts, usual.starts);
    }
}
