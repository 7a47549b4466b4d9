//! Tests of first guesses on the demo's spectra, and helpers that other tests of this folder use.

use super::look::VelocitySearch;
use super::refit::{ContinuumRefit, SpectrumArm};
use super::*;
use crate::math::triangle::{cholesky, packed_index, solve_lower};
use crate::model::continuum::inner_product;
use crate::model::{PreparedArm, RawArm, prepare_spectrum};
use crate::spectra::Wavelength;
use crate::{Continuum, Emulator, Spectra};

/// Returns the exact χ² of a template at all fine velocities.
fn score_at_fine_velocities(guess: &FirstGuess, template: usize, signals: &[Signals]) -> Vec<f32> {
    let mut scores = vec![0.0; guess.fine_velocities.len()];
    for (segment, signals) in guess.segments.iter().zip(signals) {
        segment.add_exact_scores(
            template,
            signals,
            0..guess.fine_velocities.len(),
            &mut scores,
        );
    }
    scores
}

/// Returns the sums of a spectrum in the fine bins of each segment.
fn sum_signals(
    guess: &FirstGuess,
    prepared: &Prepared,
    sampling: &Sampling,
    limits: &[ParameterLimits],
) -> Vec<Signals> {
    let smooth = fit_smooth_continua(prepared, &[sampling]);
    let mut exposures = guess.sum_exposures(prepared, &smooth, &[sampling], limits);
    exposures.swap_remove(0).signals
}

pub fn demo() -> (SpectralModel, FirstGuess, Spectra<'static>) {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
    let emulator = Emulator::open(format!("{data}/emulator.safetensors")).unwrap();
    let builder = SpectralModel::builder()
        .arm("", emulator)
        .velocity(-1000.0..=1000.0);
    let model = builder.continuum(Continuum::rbf(10)).build().unwrap();
    let guess = FirstGuess::new(&model, 3).unwrap();
    (
        model,
        guess,
        Spectra::open(format!("{data}/spectra.npz"))
            .unwrap()
            .slice(0..16),
    )
}

pub fn prepare_all(model: &SpectralModel, spectra: &Spectra) -> (Sampling, Vec<Prepared>) {
    let arm = &spectra.arms[0];
    let Wavelength::Shared(grid) = &arm.wavelength else {
        panic!("one grid")
    };
    let sampling = Sampling::new(&model.arms[0], grid, &[], 0).unwrap();
    let prepared = (0..arm.len())
        .map(|k| {
            let pixels = k * arm.pixels..(k + 1) * arm.pixels;
            let raw = RawArm {
                wavelength: arm.grid(k),
                flux: arm.flux.double(pixels.clone()),
                ivar: arm.ivar.double(pixels),
                mask: &[],
                resolution: None,
                covariance: None,
            };
            prepare_spectrum(model, &[raw], &[&sampling], None, &[]).unwrap()
        })
        .collect();
    (sampling, prepared)
}

/// A start lies next to the fine velocity with the lowest exact χ² of all, although few velocities are scored exactly.
#[test]
fn starts_lie_at_the_minimum_of_their_exact_scores() {
    let (model, guess, spectra) = demo();
    let (sampling, all_prepared) = prepare_all(&model, &spectra);
    let limits: Vec<ParameterLimits> = model.parameters.iter().map(limits_of).collect();
    let velocity = model.free_velocity().unwrap();
    for prepared in all_prepared {
        let signals = sum_signals(&guess, &prepared, &sampling, &limits);
        let starts = guess.starts(&prepared, &[&sampling], &limits, Some(2));
        assert_eq!(starts.len(), 2);
        for start in &starts {
            let is_start_template =
                |u: &Vec<f64>| (0..u.len()).all(|p| p == velocity || u[p] == start.u[p]);
            let template = guess
                .template_parameters
                .iter()
                .position(is_start_template)
                .unwrap();
            let scores = score_at_fine_velocities(&guess, template, &signals);
            let lowest = (0..scores.len())
                .min_by(|a, b| scores[*a].total_cmp(&scores[*b]))
                .unwrap();
            let start_velocity = model.parameters[velocity].to_physical(start.u[velocity]);
            let half_step = 0.5 * (guess.fine_velocities[1] - guess.fine_velocities[0]) + 1e-2;
            assert!(
                (start_velocity - guess.fine_velocities[lowest]).abs() <= half_step,
                "{start_velocity} {}",
                guess.fine_velocities[lowest]
            );
            assert_ne!(
                start_velocity, guess.fine_velocities[lowest],
                "not between velocities"
            );
        }
    }
}

/// Returns χ² + ln det A of a template shifted by so many of its pixels, with its continuum fitted to the spectrum's
/// pixels themselves.
fn refit_pixel_by_pixel(arm: &PreparedArm, sampling: &Sampling, flux: &[f32], shift: f64) -> f64 {
    let pixels = sampling.pixels;
    let template = |j: usize| {
        let unshifted = f64::from(sampling.index[j] & 0xff_ffff) + f64::from(sampling.fraction[j]);
        let position = (unshifted - shift).clamp(0.0, flux.len() as f64 - 1.001);
        let index = position as usize;
        let fraction = position.fract();
        f64::from(flux[index]) * (1.0 - fraction) + f64::from(flux[index + 1]) * fraction
    };
    let stride = arm.weight.len();
    let weighted_term = |k: usize| -> Vec<f64> {
        let basis = &arm.basis(sampling)[k * stride..][..pixels];
        (0..pixels)
            .map(|j| f64::from(basis[j] * arm.weight[j]) * template(j))
            .collect()
    };
    let rows: Vec<Vec<f64>> = (0..arm.rank).map(weighted_term).collect();
    let mut normal: Vec<f64> = (0..arm.rank)
        .flat_map(|i| (0..=i).map(move |j| (i, j)))
        .map(|(i, j)| inner_product(&rows[i], &rows[j]))
        .collect();
    let data: Vec<f64> = arm.weighted_flux[..pixels]
        .iter()
        .map(|d| f64::from(*d))
        .collect();
    let mut slopes: Vec<f64> = rows.iter().map(|row| inner_product(row, &data)).collect();
    assert!(cholesky(&mut normal, arm.rank));
    solve_lower(&normal, &mut slopes);
    let ln_det: f64 = (0..arm.rank)
        .map(|k| 2.0 * normal[packed_index(k, k)].ln())
        .sum();
    inner_product(&data, &data) - inner_product(&slopes, &slopes) + ln_det
}

/// The refit in bins ranks templates as a fit of the continuum to the pixels does.
#[test]
fn refit_in_bins_ranks_templates_as_pixels_do() {
    let (model, guess, spectra) = demo();
    let (sampling, all_prepared) = prepare_all(&model, &spectra);
    let limits: Vec<ParameterLimits> = model.parameters.iter().map(limits_of).collect();
    let arm = &model.arms[0];
    let free_velocity = model.free_velocity().unwrap();
    let labels: Vec<f64> = guess
        .template_parameters
        .iter()
        .flat_map(|u| physical_labels(&model, arm, u))
        .collect();
    let flux = arm.emulator.templates(&labels);
    for prepared in all_prepared.iter().take(6) {
        let start = &guess.starts(prepared, &[&sampling], &limits, Some(1))[0];
        let velocity = model.parameters[free_velocity].to_physical(start.u[free_velocity]);
        let smooth = fit_smooth_continua(prepared, &[&sampling]);
        let signals = sum_signals(&guess, prepared, &sampling, &limits);
        let mut candidates: Vec<Candidate> = (0..guess.template_parameters.len())
            .map(|template| Candidate {
                template,
                velocity,
                score: 0.0,
            })
            .collect();
        let prepared_arm = &prepared.arms[0];
        let spectrum_arm = SpectrumArm {
            index: 0,
            prepared: prepared_arm,
            smooth: &smooth[0],
            sampling: &sampling,
            segments: &guess.segments,
            signals: &signals,
        };
        ContinuumRefit::new(spectrum_arm, true).add_scores(&mut candidates);
        let shift = (velocity / LIGHT).atanh() / arm.grid.segments[0].step;
        let exact = flux
            .chunks(arm.emulator.pixels())
            .map(|flux| refit_pixel_by_pixel(prepared_arm, &sampling, flux, shift));
        let best = exact
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap()
            .0;
        let rank = candidates
            .iter()
            .filter(|candidate| candidate.score < candidates[best].score)
            .count();
        assert!(rank < 4, "{rank} templates are better");
    }
}

/// Templates outside of the shortlist become starts, too, if the shortlist gives fewer than wanted.
#[test]
fn many_starts_are_distinct() {
    let (model, guess, spectra) = demo();
    let (sampling, all_prepared) = prepare_all(&model, &spectra);
    let limits: Vec<ParameterLimits> = model.parameters.iter().map(limits_of).collect();
    let starts = |count| guess.starts(&all_prepared[0], &[&sampling], &limits, Some(count));
    let two = starts(2);
    let many = starts(64);
    assert!(many.len() == 64 && many[..2] == two);
    let shortlist_length = guess
        .template_parameters
        .len()
        .div_ceil(TEMPLATES_PER_SHORTLISTED);
    // The starts cannot all come from the shortlist.
    assert!(many.len() >= shortlist_length);
    let is_repeated = |k: &usize| many[..*k].contains(&many[*k]);
    assert_eq!((0..64).find(is_repeated), None);
}

/// A spectrum has more starts if fewer of its pixels count; an explicit number still holds.
#[test]
fn scarce_data_have_many_starts() {
    for (share, expected_counts) in [(0.5, 1..=8), (0.1, MAX_GUESSED_STARTS..=MAX_GUESSED_STARTS)] {
        let (model, guess, mut spectra) = demo();
        let limits: Vec<ParameterLimits> = model.parameters.iter().map(limits_of).collect();
        let arm = &mut spectra.arms[0];
        let masked = (arm.pixels as f64 * (1.0 - share)) as usize;
        arm.ivar
            .to_mut()
            .chunks_mut(arm.pixels)
            .for_each(|ivar| ivar[..masked].fill(0.0));
        let (sampling, all_prepared) = prepare_all(&model, &spectra);
        for prepared in &all_prepared {
            assert!(!prepared.arms[0].has_grid_basis());
            let count_starts = |count| guess.starts(prepared, &[&sampling], &limits, count).len();
            assert_eq!(count_starts(Some(3)), 3);
            let guessed = count_starts(None);
            assert!(expected_counts.contains(&guessed), "{guessed}");
        }
    }
}

/// Exact scores refine a velocity inside the bounds, or at the start, even if a parabola led beyond them.
#[test]
fn exact_scores_refine_velocities_inside_the_bounds() {
    let (model, guess, spectra) = demo();
    let (sampling, all_prepared) = prepare_all(&model, &spectra);
    let all_limits: Vec<ParameterLimits> = model.parameters.iter().map(limits_of).collect();
    let signals = sum_signals(&guess, &all_prepared[0], &sampling, &all_limits);
    let exact = score_at_fine_velocities(&guess, 5, &signals);
    let velocity = &model.parameters[model.free_velocity().unwrap()];
    for (k, &velocity_start) in guess.fine_velocities.iter().enumerate() {
        let limits_at_start = ParameterLimits {
            start: Some(velocity_start),
            ..limits_of(velocity)
        };
        let search = VelocitySearch::new(&guess.fine_velocities, Some(&limits_at_start));
        for beyond in [-200.0, -110.0, 0.0, 110.0, 200.0] {
            let mut candidate = Candidate {
                template: 5,
                velocity: velocity_start + beyond,
                score: f32::NAN,
            };
            search.refine_by_exact_scores(&mut candidate, &guess.segments, &signals);
            assert!(
                (candidate.score - exact[k]).abs() <= 1e-4 * exact[k].abs(),
                "{velocity_start} {beyond}: {}",
                candidate.score
            );
        }
    }
}

fn limits_of(parameter: &ModelParameter) -> ParameterLimits {
    let ModelParameter {
        lower,
        upper,
        start,
        prior,
        ..
    } = parameter;
    ParameterLimits {
        lower: *lower,
        upper: *upper,
        start: *start,
        prior: *prior,
    }
}
