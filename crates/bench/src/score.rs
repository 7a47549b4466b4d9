//! Score of a solver: its distance from the best that any of them found.

use serde::Serialize;

use super::race::Run;

/// An objective this near the best known has reached it.
const REACHED: f64 = 1e-3;
/// Share of the fits that must reach it before a time is given.
const NEARLY_ALL: f64 = 0.99;

/// One line of the table and of the JSON file.
#[derive(Serialize)]
pub struct Row {
    pub workload: &'static str,
    pub solver: &'static str,
    pub device: String,
    pub fits: usize,
    pub fits_per_s: f64,
    pub evaluations_per_fit: f64,
    #[serde(rename = "within_1e-3")]
    pub within: f64,
    /// `null` when half of the fits have no answer.
    pub gap_median: f64,
    /// Until all fits of the workload are done, at this rate; `null` when fewer than 99 % of them reach the best.
    #[serde(rename = "seconds_to_99_percent")]
    pub seconds: Option<f64>,
    pub gflops: f64,
}

impl Row {
    /// Returns a run's table row: its speed, and how many answers have objectives near the `best` known ones.
    pub fn new(
        workload: &'static str,
        fits: usize,
        run: Run,
        objectives: &[f64],
        best: &[f64],
    ) -> Row {
        let mut gaps: Vec<f64> = objectives
            .iter()
            .zip(best)
            .map(|(found, best)| found - best)
            .collect();
        // no answer is a gap without end
        gaps.iter_mut()
            .filter(|gap| gap.is_nan())
            .for_each(|gap| *gap = f64::INFINITY);
        gaps.sort_by(f64::total_cmp);
        let within =
            gaps.iter().filter(|gap| **gap <= REACHED).count() as f64 / gaps.len().max(1) as f64;
        Row {
            workload,
            solver: run.solver,
            device: run.device,
            fits: gaps.len(),
            fits_per_s: run.fits_per_s,
            evaluations_per_fit: run.evaluations,
            within,
            gap_median: gaps.get(gaps.len() / 2).copied().unwrap_or(f64::NAN),
            seconds: (within >= NEARLY_ALL).then(|| fits as f64 / run.fits_per_s),
            gflops: run.operations * run.fits_per_s * 1e-9,
        }
    }
}

/// Returns the lowest objective of each fit in any of the lists, which may have different lengths.
pub fn best(objectives: &[Vec<f64>]) -> Vec<f64> {
    let count = objectives.iter().map(Vec::len).max().unwrap_or(0);
    let lowest = |k: usize| {
        objectives
            .iter()
            .filter_map(|all| all.get(k))
            .copied()
            .fold(f64::INFINITY, f64::min)
    };
    (0..count).map(lowest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_that_stops_short_or_has_no_answer_counts() {
        let run = || Run {
            solver: "some",
            device: "cpu".into(),
            answers: Vec::new(),
            fits_per_s: 2.0,
            evaluations: 3.0,
            operations: 1e9,
        };
        let objectives = [
            vec![1.0, 2.0, f64::INFINITY, 4.0],
            vec![1.0005, 1.5, 3.0, 4.0],
        ];
        let best = best(&objectives);
        assert_eq!(best, [1.0, 1.5, 3.0, 4.0]);
        let row = Row::new("any", 10, run(), &objectives[0], &best);
        assert_eq!(
            (row.fits, row.within, row.gap_median, row.gflops),
            (4, 0.5, 0.5, 2.0)
        );
        assert_eq!(row.seconds, None);
        assert_eq!(Row::new("any", 10, run(), &best, &best).seconds, Some(5.0));
    }
}
