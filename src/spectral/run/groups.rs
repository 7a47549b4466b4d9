//! Groups of a batch's spectra whose arms have the same shape, so that they are fitted together.
//!
//! If arms differ in their number of pixels, rows are as long as the next multiple of 512, and pixels beyond the end of
//! a spectrum have no weight. Forty files of one spectrum thus make one population instead of forty. Spectra with
//! another continuum basis than their grid's (`model/set_basis.rs`) form groups of their own: one for each window that
//! many of them use, and for the others one for each set of arms in which they do, whose recording has one basis per
//! spectrum. The kernels are the same, and no bit of a fit depends on the group.

use std::sync::Arc;

use super::pieces::Piece;
use super::{Grids, ReadySpectrum};
use crate::model::{ArmLayout, Fault, Sampling};
use crate::spectral::input::layout::layout_for;

/// Spectra whose arms have one shape, so that they share a population.
pub(super) struct Group {
    pub layout: Vec<ArmLayout>,
    pub grids: Arc<[Grids]>,
    pub ready: Vec<ReadySpectrum>,
}

/// If arms differ in their number of pixels, it is rounded up to a multiple of this.
const PIXELS: usize = 512;

/// Returns the layout that pieces must have in common to be fitted together; where pixels `differ`, it has them rounded
/// up. `differ` marks the arms whose number of pixels differs among the pieces. Their wavelength grids may differ
/// unless they are the template's.
fn shape(piece: &Piece, differ: &[bool]) -> Vec<ArmLayout> {
    let one = |(arm, differs): (&ArmLayout, &bool)| {
        let wide = *differs && !arm.is_template;
        let pixels = if wide {
            arm.pixels.next_multiple_of(PIXELS)
        } else {
            arm.pixels
        };
        ArmLayout {
            shared_grid: arm.is_template,
            pixels,
            ..*arm
        }
    };
    piece.layout.iter().zip(differ).map(one).collect()
}

/// Divides the spectra of all pieces into groups of one layout, each of which is fitted together. `counts` are the
/// numbers of spectra of each piece.
pub(super) fn groups(
    pieces: &[Piece],
    counts: &[usize],
    ready: Vec<ReadySpectrum>,
) -> impl Iterator<Item = Group> {
    let pixels = |piece: &Piece, a: usize| piece.layout[a].pixels;
    let arms = pieces.first().map_or(0, |piece| piece.layout.len());
    let differ: Vec<bool> = (0..arms)
        .map(|a| {
            pieces
                .windows(2)
                .any(|two| pixels(&two[0], a) != pixels(&two[1], a))
        })
        .collect();
    let mut shapes: Vec<(Vec<ArmLayout>, Vec<usize>)> = Vec::new();
    for (k, piece) in pieces.iter().enumerate() {
        let own = shape(piece, &differ);
        match shapes.iter_mut().find(|(other, _)| *other == own) {
            Some((_, members)) => members.push(k),
            None => shapes.push((own, vec![k])),
        }
    }
    let of_place: Vec<usize> = counts
        .iter()
        .enumerate()
        .flat_map(|(k, count)| std::iter::repeat_n(k, *count))
        .collect();
    let mut waiting: Vec<Vec<ReadySpectrum>> = pieces.iter().map(|_| Vec::new()).collect();
    ready
        .into_iter()
        .for_each(|one| waiting[of_place[one.place]].push(one));
    shapes.into_iter().flat_map(move |(mut layout, members)| {
        let grids: Arc<[Grids]> = (0..layout.len())
            .map(|a| common_grids(pieces, counts, &members, a))
            .collect();
        for (arm, grid) in layout.iter_mut().zip(&*grids) {
            arm.shared_grid = matches!(grid, Grids::Shared(_));
        }
        by_basis(
            layout,
            grids,
            members
                .iter()
                .flat_map(|k| std::mem::take(&mut waiting[*k]))
                .collect(),
        )
    })
}

/// The windows of a spectrum's arms (`model/window.rs`).
type ArmWindows = Vec<Option<Arc<Sampling>>>;

/// Minimum number of spectra of one window that are fitted apart from others.
const MIN_TOGETHER: usize = 8;
/// Maximum ratio of the number of spectra of a shape to that of one window's, if these are fitted apart.
const ONE_IN: usize = 16;

/// Divides spectra of one layout into groups by their continuum bases. Those of a frequent window are fitted together
/// as if the window were their grid.
fn by_basis(layout: Vec<ArmLayout>, grids: Arc<[Grids]>, ready: Vec<ReadySpectrum>) -> Vec<Group> {
    let frequent = frequent_windows(&ready);
    let mut all: Vec<(Option<usize>, Group)> = Vec::new();
    for one in ready {
        let windows = windows(&one);
        let window = frequent.iter().position(|other| are_same(other, &windows));
        let mut layout = layout_for(layout.clone(), std::iter::once(&*one.prepared));
        if window.is_some() {
            for (arm, _) in layout
                .iter_mut()
                .zip(&windows)
                .filter(|(_, window)| window.is_some())
            {
                (arm.shared_grid, arm.own_basis) = (true, false);
            }
        }
        match all
            .iter_mut()
            .find(|(other, group)| *other == window && group.layout == layout)
        {
            Some((_, group)) => group.ready.push(one),
            None => {
                let grids = if window.is_some() {
                    narrowed(&grids, &windows)
                } else {
                    grids.clone()
                };
                // next to those of its layout, which need the same populations
                let place = all
                    .iter()
                    .rposition(|(_, group)| group.layout == layout)
                    .map_or(all.len(), |last| last + 1);
                all.insert(
                    place,
                    (
                        window,
                        Group {
                            layout,
                            grids,
                            ready: vec![one],
                        },
                    ),
                );
            }
        }
    }
    all.into_iter().map(|(_, group)| group).collect()
}

/// Returns the windows that enough of the spectra share to be fitted apart from the others.
fn frequent_windows(ready: &[ReadySpectrum]) -> Vec<ArmWindows> {
    let mut counts: Vec<(ArmWindows, usize)> = Vec::new();
    for windows in ready
        .iter()
        .map(windows)
        .filter(|windows| windows.iter().any(Option::is_some))
    {
        match counts
            .iter_mut()
            .find(|(other, _)| are_same(other, &windows))
        {
            Some((_, count)) => *count += 1,
            None => counts.push((windows, 1)),
        }
    }
    let is_frequent = |count: usize| count >= MIN_TOGETHER && ONE_IN * count >= ready.len();
    counts
        .into_iter()
        .filter(|(_, count)| is_frequent(*count))
        .map(|(windows, _)| windows)
        .collect()
}

/// Returns the windows of a spectrum's arms.
fn windows(one: &ReadySpectrum) -> ArmWindows {
    one.prepared
        .arms
        .iter()
        .map(|arm| arm.window.clone())
        .collect()
}

/// Returns whether two spectra use the same windows in all arms.
fn are_same(a: &ArmWindows, b: &ArmWindows) -> bool {
    let pairs = a.iter().zip(b);
    pairs
        .into_iter()
        .all(|(a, b)| a.as_ref().map(Arc::as_ptr) == b.as_ref().map(Arc::as_ptr))
}

/// Returns the grids with those of the arms that have a window replaced by it.
fn narrowed(grids: &[Grids], windows: &ArmWindows) -> Arc<[Grids]> {
    let one = |(grid, window): (&Grids, &Option<Arc<Sampling>>)| match window {
        Some(window) => Grids::Shared(window.clone()),
        None => grid.clone(),
    };
    grids.iter().zip(windows).map(one).collect()
}

/// Returns the wavelength samplings of some pieces in an arm: one if all share it, else one per spectrum of the whole
/// batch.
fn common_grids(pieces: &[Piece], counts: &[usize], members: &[usize], arm: usize) -> Grids {
    let grid = |k: &usize| pieces[*k].grids[arm].shared();
    if let Some(Some(first)) = members.first().map(grid)
        && members
            .iter()
            .all(|k| grid(k).is_some_and(|other| Arc::ptr_eq(other, first)))
    {
        return Grids::Shared(first.clone());
    }
    let own = |(piece, count): (&Piece, &usize)| {
        (0..*count)
            .map(|k| piece.grids[arm].of(k).cloned().map_err(Fault::clone))
            .collect::<Vec<_>>()
    };
    Grids::Own(pieces.iter().zip(counts).flat_map(own).collect())
}
