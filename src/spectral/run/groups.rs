//! Groups of a batch's spectra whose arms have the same shape, so that they are fitted together.
//!
//! If arms differ in their number of pixels, rows are as long as the next multiple of 512, and pixels beyond the end of
//! a spectrum have no weight. Forty files of one spectrum thus make one population instead of forty. Spectra with
//! another continuum basis than their grid's (`model/set_basis.rs`) form groups of their own: one for each window that
//! many of them use, and one for each set of arms in which the others do so. The recording of the latter has one basis
//! per spectrum. The kernels are the same, and no bit of a fit depends on the group.

use std::sync::Arc;

use super::prepared_files::PreparedFile;
use super::{Grids, ReadySpectrum};
use crate::model::{ArmLayout, Sampling, SpectrumFault};
use crate::spectral::input::layout::mark_own_bases;

/// Spectra whose arms have one shape, so that they share a population.
pub(super) struct SpectrumGroup {
    pub layout: Vec<ArmLayout>,
    pub grids: Arc<[Grids]>,
    pub ready: Vec<ReadySpectrum>,
}

/// If the numbers of pixels of an arm differ among the files, they are rounded up to a multiple of this number.
const PIXEL_COUNT_STEP: usize = 512;

/// Returns the layout that files must have in common to be fitted together. `have_other_pixels` marks the arms whose
/// number of pixels differs among the files; it is rounded up. The wavelength grids may differ unless they are the
/// template's.
fn find_common_layout(file: &PreparedFile, have_other_pixels: &[bool]) -> Vec<ArmLayout> {
    let mut layout = file.layout.clone();
    for (arm, has_other_pixels) in layout.iter_mut().zip(have_other_pixels) {
        if *has_other_pixels && !arm.is_template {
            arm.pixels = arm.pixels.next_multiple_of(PIXEL_COUNT_STEP);
        }
        arm.shared_grid = arm.is_template;
    }
    layout
}

/// Divides the spectra of all files into groups of one layout, each of which is fitted together. `counts` are the
/// numbers of spectra of each file.
pub(super) fn group_spectra(
    prepared_files: &[PreparedFile],
    counts: &[usize],
    ready: Vec<ReadySpectrum>,
) -> impl Iterator<Item = SpectrumGroup> {
    // 1. Find the files of each layout.
    let arms = prepared_files.first().map_or(0, |file| file.layout.len());
    let have_other_pixels: Vec<bool> = (0..arms)
        .map(|a| {
            let pixels = |file: &PreparedFile| file.layout[a].pixels;
            prepared_files
                .windows(2)
                .any(|neighbours| pixels(&neighbours[0]) != pixels(&neighbours[1]))
        })
        .collect();
    let mut pieces_of_layouts: Vec<(Vec<ArmLayout>, Vec<usize>)> = Vec::new();
    for (k, file) in prepared_files.iter().enumerate() {
        let layout = find_common_layout(file, &have_other_pixels);
        match pieces_of_layouts
            .iter_mut()
            .find(|(known_layout, _)| *known_layout == layout)
        {
            Some((_, members)) => members.push(k),
            None => pieces_of_layouts.push((layout, vec![k])),
        }
    }
    // 2. Sort the spectra by file.
    let piece_of_place: Vec<usize> = counts
        .iter()
        .enumerate()
        .flat_map(|(k, count)| std::iter::repeat_n(k, *count))
        .collect();
    let mut spectra_of_pieces: Vec<Vec<ReadySpectrum>> =
        prepared_files.iter().map(|_| Vec::new()).collect();
    for spectrum in ready {
        spectra_of_pieces[piece_of_place[spectrum.place]].push(spectrum);
    }
    // 3. Divide the spectra of each layout by their continuum bases.
    pieces_of_layouts
        .into_iter()
        .flat_map(move |(mut layout, members)| {
            let grids: Arc<[Grids]> = (0..layout.len())
                .map(|a| join_grids(prepared_files, counts, &members, a))
                .collect();
            for (arm, grid) in layout.iter_mut().zip(&*grids) {
                arm.shared_grid = matches!(grid, Grids::Shared(_));
            }
            let spectra = members
                .iter()
                .flat_map(|k| std::mem::take(&mut spectra_of_pieces[*k]))
                .collect();
            divide_by_basis(layout, grids, spectra)
        })
}

/// The windows of a spectrum's arms (`model/window.rs`).
type ArmWindows = Vec<Option<Arc<Sampling>>>;

/// Minimum number of spectra of one window that are fitted apart from others.
const MIN_SPECTRA_PER_WINDOW: usize = 8;
/// Maximum ratio of the number of spectra of a shape to that of one window's, if these are fitted apart.
const MAX_SPECTRA_RATIO: usize = 16;

/// Divides spectra of one layout into groups by their continuum bases. Those of a frequent window are fitted together
/// as if the window were their grid.
fn divide_by_basis(
    layout: Vec<ArmLayout>,
    grids: Arc<[Grids]>,
    ready: Vec<ReadySpectrum>,
) -> Vec<SpectrumGroup> {
    let frequent_windows = find_frequent_windows(&ready);
    // Each group has the index of its frequent window, if any.
    let mut groups: Vec<(Option<usize>, SpectrumGroup)> = Vec::new();
    for spectrum in ready {
        // 1. Determine the layout of the spectrum's group.
        let windows = collect_windows(&spectrum);
        let window = frequent_windows
            .iter()
            .position(|frequent| are_same_windows(frequent, &windows));
        let mut layout = mark_own_bases(layout.clone(), std::iter::once(&*spectrum.prepared));
        if window.is_some() {
            for (arm, window_of_arm) in layout.iter_mut().zip(&windows) {
                if window_of_arm.is_some() {
                    arm.shared_grid = true;
                    arm.own_basis = false;
                }
            }
        }
        // 2. Add the spectrum to the group, if there is one already.
        let group = groups
            .iter_mut()
            .find(|(group_window, group)| *group_window == window && group.layout == layout);
        if let Some((_, group)) = group {
            group.ready.push(spectrum);
            continue;
        }
        // 3. Else make the group, behind those of the same layout, which need the same populations.
        let grids = if window.is_some() {
            replace_by_windows(&grids, &windows)
        } else {
            grids.clone()
        };
        let place = groups
            .iter()
            .rposition(|(_, group)| group.layout == layout)
            .map_or(groups.len(), |last| last + 1);
        let group = SpectrumGroup {
            layout,
            grids,
            ready: vec![spectrum],
        };
        groups.insert(place, (window, group));
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Returns the windows that enough of the spectra share to be fitted apart from the others.
fn find_frequent_windows(ready: &[ReadySpectrum]) -> Vec<ArmWindows> {
    let mut counts: Vec<(ArmWindows, usize)> = Vec::new();
    for spectrum in ready {
        let windows = collect_windows(spectrum);
        if windows.iter().all(Option::is_none) {
            continue;
        }
        match counts
            .iter_mut()
            .find(|(counted, _)| are_same_windows(counted, &windows))
        {
            Some((_, count)) => *count += 1,
            None => counts.push((windows, 1)),
        }
    }
    counts.retain(|(_, count)| {
        *count >= MIN_SPECTRA_PER_WINDOW && MAX_SPECTRA_RATIO * *count >= ready.len()
    });
    counts.into_iter().map(|(windows, _)| windows).collect()
}

/// Returns the windows of a spectrum's arms.
fn collect_windows(spectrum: &ReadySpectrum) -> ArmWindows {
    spectrum
        .prepared
        .arms
        .iter()
        .map(|arm| arm.window.clone())
        .collect()
}

/// Returns whether two spectra use the same windows in all arms.
fn are_same_windows(a: &ArmWindows, b: &ArmWindows) -> bool {
    a.iter()
        .zip(b)
        .all(|(a, b)| a.as_ref().map(Arc::as_ptr) == b.as_ref().map(Arc::as_ptr))
}

/// Returns the grids, in which the window of each arm, if it has one, replaces the arm's grid.
fn replace_by_windows(grids: &[Grids], windows: &ArmWindows) -> Arc<[Grids]> {
    let arms = grids.iter().zip(windows);
    arms.map(|(grid, window)| match window {
        Some(window) => Grids::Shared(window.clone()),
        None => grid.clone(),
    })
    .collect()
}

/// Returns the wavelength samplings of an arm for the files of one layout (`members`): one if all share it, else one
/// per spectrum of the whole batch.
fn join_grids(
    prepared_files: &[PreparedFile],
    counts: &[usize],
    members: &[usize],
    arm: usize,
) -> Grids {
    let shared_sampling = |k: &usize| prepared_files[*k].grids[arm].shared();
    if let Some(Some(first)) = members.first().map(shared_sampling)
        && members
            .iter()
            .all(|k| shared_sampling(k).is_some_and(|sampling| Arc::ptr_eq(sampling, first)))
    {
        return Grids::Shared(first.clone());
    }
    let mut samplings = Vec::with_capacity(counts.iter().sum());
    for (file, count) in prepared_files.iter().zip(counts) {
        for k in 0..*count {
            samplings.push(
                file.grids[arm]
                    .get(k)
                    .cloned()
                    .map_err(SpectrumFault::clone),
            );
        }
    }
    Grids::Own(samplings)
}
