//! Spectra of several files: prepared file by file, fitted together where their arms have the same shape.
//!
//! Where arms differ in their number of pixels, rows are as long as the next multiple of 512, and pixels beyond a
//! spectrum's end have no weight. So forty files of one spectrum make one population instead of forty. Journal and
//! table have the rows file by file. Spectra that need a continuum basis of their own (`model/prepare.rs`) form a
//! population of their own, whose recording has one basis per spectrum; the kernels are the same.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rayon::prelude::*;

use super::{Grids, Ready, Run, SharedGrid, Started};
use crate::error::Result;
use crate::fit::assemble::{matched, prepare_all};
use crate::fit::given::given;
use crate::fit::layout::{diagonals, layout, layout_for};
use crate::fit::limits::Tables;
use crate::fit::negative_flux::has_negative_flux;
use crate::fit::workers::Tally;
use crate::fit::{Flags, SpectralFitter};
use crate::model::{ArmLayout, Fault, FirstGuess, Limits, ModelArm, Prepared, Sampling};
use crate::spectra::{ArmSpectra, Spectra, Wavelength};

/// Samplings that the next batch may find again.
const KEPT: usize = 4;

/// Part of a batch that comes from one file.
pub(super) struct Piece<'s> {
    tables: Tables<'s>,
    pub grids: Vec<Grids>,
    pub layout: Vec<ArmLayout>,
    prepared: Vec<std::result::Result<Prepared, Fault>>,
}

/// Spectra whose arms have one shape: they enter a population together.
pub(super) struct Group {
    pub layout: Vec<ArmLayout>,
    pub grids: Arc<[Grids]>,
    pub ready: Vec<Ready>,
}

impl Run<'_> {
    /// All that is known of the spectra without a fit.
    pub(super) fn pieces<'s>(&mut self, files: &[&'s Spectra]) -> Result<Vec<Piece<'s>>>
    where
        Self: 's,
    {
        let model = &self.fitter.model;
        let arms = files.iter().map(|spectra| matched(model, spectra)).collect::<Result<Vec<_>>>()?;
        let grids = self.all_grids(&arms, files)?;
        let prepare = |((spectra, arms), grids): ((&&'s Spectra, &Vec<Cow<ArmSpectra>>), Vec<Grids>)| {
            let tables = Tables::new(model, spectra)?;
            let prepared = prepare_all(model, arms, &grids, spectra.len());
            Ok(Piece { tables, layout: layout(model, arms, &grids), grids, prepared })
        };
        let made: Vec<Result<Piece>> = files.par_iter().zip(&arms).zip(grids).map(prepare).collect();
        made.into_iter().collect()
    }

    /// The grids of each file's arms; shared ones of the last batch are found again.
    pub(super) fn all_grids(&mut self, arms: &[Vec<Cow<ArmSpectra>>], files: &[&Spectra]) -> Result<Vec<Vec<Grids>>> {
        let masks = &self.fitter.model.spectra.mask;
        let mut all: Vec<Vec<Grids>> = files.iter().map(|_| Vec::new()).collect();
        for (a, arm) in self.fitter.model.arms.iter().enumerate() {
            let data = || arms.iter().map(|arms| &*arms[a]);
            let known = std::mem::take(&mut self.shared[a]);
            let mut shared = with_samplings(known, arm, masks, data().zip(files.iter().copied()))?;
            for (data, all) in data().zip(&mut all) {
                all.push(match &data.wavelength {
                    Wavelength::Shared(grid) => {
                        let place = place_of(&shared, grid, diagonals(arm, data));
                        place.map_or_else(|| Grids::Own(Vec::new()), |k| Grids::Shared(shared[k].2.clone()))
                    }
                    Wavelength::Own(grids) => {
                        let make = |w: &[f64]| match Sampling::new(arm, w, masks, diagonals(arm, data)) {
                            Ok(sampling) => Ok(Arc::new(sampling)),
                            Err(fault) => Err(Fault::of_grid(arm, &fault)),
                        };
                        Grids::Own(grids.to_double().par_chunks_exact(data.pixels.max(1)).map(make).collect())
                    }
                });
            }
            // the latest
            self.shared[a] = shared.split_off(shared.len().saturating_sub(KEPT));
        }
        Ok(all)
    }

    /// The starts of all spectra of all files.
    pub(super) fn all_starts(&self, pieces: &mut [Piece], user: Option<&[f64]>) -> Result<Vec<Started>> {
        let is_needed = pieces.iter().any(|piece| piece.prepared.iter().any(|p| p.is_ok()));
        // made by one thread before many ask for it
        let guess = (is_needed && user.is_none()).then(|| self.fitter.first_guess()).transpose()?;
        let (fitter, tally) = (self.fitter, self.tally);
        let starts = |piece: &mut Piece| piece.starts(fitter, tally, (guess, user));
        Ok(pieces.par_iter_mut().flat_map_iter(starts).collect())
    }
}

/// Returns the place of a grid among those that are sampled, if it is there.
fn place_of<S>(all: &[(Arc<[f64]>, usize, S)], grid: &Arc<[f64]>, diagonals: usize) -> Option<usize> {
    all.iter().position(|(w, d, _)| *d == diagonals && (Arc::ptr_eq(w, grid) || w == grid))
}

/// The known samplings, and those of the files' shared grids that are not among them, each once.
fn with_samplings<'a>(
    mut known: Vec<SharedGrid>,
    arm: &ModelArm,
    masks: &[(f64, f64)],
    files: impl Iterator<Item = (&'a ArmSpectra<'a>, &'a Spectra<'a>)>,
) -> Result<Vec<SharedGrid>> {
    let mut new: Vec<(Arc<[f64]>, usize, &Spectra)> = Vec::new();
    for (data, spectra) in files {
        let (Wavelength::Shared(grid), diagonals) = (&data.wavelength, diagonals(arm, data)) else { continue };
        if place_of(&known, grid, diagonals).is_none() && place_of(&new, grid, diagonals).is_none() {
            new.push((grid.clone(), diagonals, spectra));
        }
    }
    let make = |(grid, diagonals, spectra): &(Arc<[f64]>, usize, &Spectra)| -> Result<SharedGrid> {
        let sampling = Sampling::of_file(arm, grid, masks, *diagonals, &spectra.file)?;
        Ok((grid.clone(), *diagonals, Arc::new(sampling)))
    };
    let made: Vec<Result<SharedGrid>> = new.par_iter().map(make).collect();
    for made in made {
        known.push(made?);
    }
    Ok(known)
}

impl Piece<'_> {
    /// Starts of every spectrum, in u, inside the bounds, and its flags.
    fn starts(
        &mut self,
        fitter: &SpectralFitter,
        tally: Option<&Tally>,
        (guess, user): (Option<&FirstGuess>, Option<&[f64]>),
    ) -> Vec<Started> {
        let model = &fitter.model;
        let (prepared, grids, tables) = (std::mem::take(&mut self.prepared), &self.grids, &self.tables);
        if let Some(user) = user {
            let place = prepared.into_iter().zip(user.chunks_exact(model.parameters.len().max(1))).enumerate();
            let one = |(k, (prepared, x))| -> Started {
                let (prepared, limits) = (prepared?, tables.of(k)?);
                let (start, clipped) = given(model, &limits, x)?;
                let flags = flags(&prepared, &samplings(grids, k), clipped);
                Ok((prepared, limits, vec![start], flags))
            };
            return place.map(one).collect();
        }
        let outside = |l: &Limits| l.start.is_some_and(|x| x < l.lower || x > l.upper);
        let cancelled = || tally.is_some_and(|tally| tally.cancel().load(Ordering::Relaxed));
        let one = |(k, prepared): (usize, std::result::Result<Prepared, Fault>)| {
            let (prepared, limits) = (prepared?, tables.of(k)?);
            let samplings = samplings(grids, k);
            let flags = flags(&prepared, &samplings, limits.iter().any(outside));
            if cancelled() {
                return Ok((prepared, limits, Vec::new(), flags)); // without a start it is not fitted
            }
            let starts = guess.map(|g| g.starts(&prepared, &samplings, &limits, fitter.starts)).unwrap_or_default();
            Ok((prepared, limits, starts, flags))
        };
        prepared.into_par_iter().enumerate().map(one).collect()
    }
}

/// Returns the sampling of a spectrum in each arm.
fn samplings(grids: &[Grids], spectrum: usize) -> Vec<&Sampling> {
    grids.iter().filter_map(|grid| grid.of(spectrum).ok()).map(|sampling| &**sampling).collect()
}

/// Flags of what is known before the fit.
fn flags(prepared: &Prepared, samplings: &[&Sampling], clipped: bool) -> Flags {
    let all = [(Flags::START_CLIPPED, clipped), (Flags::NEGATIVE_FLUX, has_negative_flux(&prepared.arms, samplings))];
    all.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).collect()
}

/// Arms that differ in pixels share a population if these, rounded up to a multiple of this, are as many.
const PIXELS: usize = 512;

/// The shape that pieces must share to be fitted together: on what grid an arm is sampled is each spectrum's own
/// affair, unless it is the template's, and so are its pixels, if those of some pieces differ.
fn shape(piece: &Piece, differ: &[bool]) -> Vec<ArmLayout> {
    let one = |(arm, differs): (&ArmLayout, &bool)| {
        let wide = *differs && !arm.is_template;
        let pixels = if wide { arm.pixels.next_multiple_of(PIXELS) } else { arm.pixels };
        ArmLayout { shared_grid: arm.is_template, pixels, ..*arm }
    };
    piece.layout.iter().zip(differ).map(one).collect()
}

/// Spectra by the shape of their arms, one group after another; `ready` and `counts` are those of all pieces, in order.
pub(super) fn groups<'s>(
    pieces: Vec<Piece<'s>>,
    counts: Vec<usize>,
    ready: Vec<Ready>,
) -> impl Iterator<Item = Group> + 's {
    let pixels = |piece: &Piece, a: usize| piece.layout[a].pixels;
    let arms = pieces.first().map_or(0, |piece| piece.layout.len());
    let differ: Vec<bool> =
        (0..arms).map(|a| pieces.windows(2).any(|two| pixels(&two[0], a) != pixels(&two[1], a))).collect();
    let mut shapes: Vec<(Vec<ArmLayout>, Vec<usize>)> = Vec::new();
    for (k, piece) in pieces.iter().enumerate() {
        let own = shape(piece, &differ);
        match shapes.iter_mut().find(|(other, _)| *other == own) {
            Some((_, members)) => members.push(k),
            None => shapes.push((own, vec![k])),
        }
    }
    let of_place: Vec<usize> =
        counts.iter().enumerate().flat_map(|(k, count)| std::iter::repeat_n(k, *count)).collect();
    let mut waiting: Vec<Vec<Ready>> = pieces.iter().map(|_| Vec::new()).collect();
    ready.into_iter().for_each(|one| waiting[of_place[one.place]].push(one));
    shapes.into_iter().flat_map(move |(mut layout, members)| {
        let grids: Arc<[Grids]> = (0..layout.len()).map(|a| together(&pieces, &counts, (&members, a))).collect();
        for (arm, grid) in layout.iter_mut().zip(&*grids) {
            arm.shared_grid = matches!(grid, Grids::Shared(_));
        }
        by_basis((layout, grids), members.iter().flat_map(|k| std::mem::take(&mut waiting[*k])))
    })
}

/// Spectra of one shape, apart where arms of theirs have a continuum basis of their own: what one spectrum needs is no
/// other's affair.
fn by_basis((layout, grids): (Vec<ArmLayout>, Arc<[Grids]>), ready: impl Iterator<Item = Ready>) -> Vec<Group> {
    let mut all: Vec<Group> = Vec::new();
    for one in ready {
        let own = layout_for(layout.clone(), std::iter::once(&one.prepared));
        match all.iter_mut().find(|group| group.layout == own) {
            Some(group) => group.ready.push(one),
            None => all.push(Group { layout: own, grids: grids.clone(), ready: vec![one] }),
        }
    }
    all
}

/// Returns the samplings of several pieces in an arm: one grid where all have the same, else one per spectrum of the
/// whole batch.
fn together(pieces: &[Piece], counts: &[usize], (members, arm): (&[usize], usize)) -> Grids {
    let grid = |k: &usize| match &pieces[*k].grids[arm] {
        Grids::Shared(sampling) => Some(sampling),
        Grids::Own(_) => None,
    };
    if let Some(Some(first)) = members.first().map(grid)
        && members.iter().all(|k| grid(k).is_some_and(|other| Arc::ptr_eq(other, first)))
    {
        return Grids::Shared(first.clone());
    }
    let own = |(piece, count): (&Piece, &usize)| {
        (0..*count).map(|k| piece.grids[arm].of(k).cloned().map_err(Fault::clone)).collect::<Vec<_>>()
    };
    Grids::Own(pieces.iter().zip(counts).flat_map(own).collect())
}
