//! Test that simplices end alike whether their points are evaluated at once or one after another, also where others
//! enter in the middle of an iteration.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use web_time::Instant;

use super::adapter::{self, AdapterChoice};
use super::context::{GpuContext, Options};
use super::fusion_tests::{Size, make_example};
use super::population::GpuPopulation;
use crate::recording::{Recording, Scope, Values};
use crate::solver::profile::Meter;
use crate::solver::{Batch, Method, NelderMead, Outcome, Population, Queue, stream};
use popfit_testing::required::{Need, skip};

const SIZE: Size = Size {
    members: 13,
    hidden: 16,
    columns: 80,
    pixels: 80,
};

/// Starts that enter a few at a time.
struct SpectraQueue<'a> {
    recording: &'a Recording,
    batch: &'a Batch,
    max_spectra: usize,
    next_spectrum: usize,
    outcomes: Vec<Vec<Outcome>>,
}

impl SpectraQueue<'_> {
    /// Returns a batch of these spectra, each with its one start.
    fn select_spectra(&self, spectra: Range<usize>) -> Batch {
        let select_rows = |rows: &[f64]| {
            let length = rows.len() / self.batch.spectra;
            rows[spectra.start * length..spectra.end * length].to_vec()
        };
        let select_block =
            |(id, values): &(_, Values)| match (self.recording.block(*id).scope, values) {
                (Scope::Spectrum, Values::F32(all)) => {
                    let length = self.recording.block(*id).length;
                    (
                        *id,
                        Values::F32(
                            all[spectra.start * length..spectra.end * length]
                                .to_vec()
                                .into(),
                        ),
                    )
                }
                _ => (*id, values.clone()),
            };
        Batch {
            spectra: spectra.len(),
            blocks: self.batch.blocks.iter().map(select_block).collect(),
            lower: select_rows(&self.batch.lower),
            upper: select_rows(&self.batch.upper),
            prior_mean: select_rows(&self.batch.prior_mean),
            prior_weight: select_rows(&self.batch.prior_weight),
            group: (0..spectra.len() as u32).collect(),
            starts: select_rows(&self.batch.starts),
            simplices: Vec::new(),
            is_evaluation: false,
        }
    }
}

impl Queue for SpectraQueue<'_> {
    fn next(&mut self, spectra: usize, _starts: usize) -> Option<Batch> {
        let first = self.next_spectrum;
        self.next_spectrum = (first + spectra.min(self.max_spectra)).min(self.batch.spectra);
        (self.next_spectrum > first).then(|| self.select_spectra(first..self.next_spectrum))
    }

    fn is_empty(&self) -> bool {
        self.next_spectrum == self.batch.spectra
    }

    fn end(&mut self, number: usize, outcomes: Vec<Outcome>) {
        self.outcomes[number] = outcomes;
    }
}

/// Searches from all starts of the example, where so many simplices are few; returns the outcomes, and how many points
/// the device has evaluated. At most `max_spectra` are in flight.
fn search_all_starts(context: &Arc<GpuContext>, max_spectra: usize) -> (Vec<Outcome>, usize) {
    let (recording, batch) = make_example(SIZE);
    let method = Method::NelderMead(NelderMead::default());
    let mut population = GpuPopulation::new(
        context.clone(),
        Arc::new(recording.clone()),
        &method,
        max_spectra,
    )
    .unwrap();
    let meter = Arc::new(Meter::new(Instant::now()));
    population.measure(meter.clone());
    let outcomes = vec![Vec::new(); batch.spectra];
    let mut queue = SpectraQueue {
        recording: &recording,
        batch: &batch,
        max_spectra,
        next_spectrum: 0,
        outcomes,
    };
    pollster::block_on(stream(&mut population, &mut queue, &AtomicBool::new(false))).unwrap();
    let evaluated = meter
        .spending()
        .submissions
        .iter()
        .flat_map(|look| &look.active)
        .sum();
    (queue.outcomes.concat(), evaluated)
}

#[test]
fn simplices_end_alike_with_points_at_once_or_one_after_another() {
    let adapter = match adapter::choose_adapter(AdapterChoice::Best) {
        Ok((_, adapter)) => adapter,
        Err(error) => return skip(Need::Gpu, error),
    };
    let context = |few_simplices: usize| {
        let mut context = GpuContext::open(adapter.clone(), Options::default()).unwrap();
        context.kernels.few_simplices = few_simplices;
        Arc::new(context)
    };
    let [never, below_half, always] = [0, SIZE.members / 2, SIZE.members].map(context);
    let (reference, all) = search_all_starts(&always, SIZE.members);
    let assert_same = |outcomes: &[Outcome], case: &str| {
        let comparable = |outcome: &Outcome| {
            let bits = outcome
                .parameters
                .iter()
                .chain([&outcome.chi2])
                .map(|x| x.to_bits())
                .collect::<Vec<u64>>();
            (outcome.status, outcome.rounds, outcome.evaluations, bits)
        };
        assert_eq!(outcomes.len(), reference.len());
        outcomes
            .iter()
            .zip(&reference)
            .for_each(|(a, b)| assert_eq!(comparable(a), comparable(b), "{case}"));
    };
    let (outcomes, fewest) = search_all_starts(&never, SIZE.members);
    assert_same(&outcomes, "one after another");
    let (outcomes, fewer) = search_all_starts(&below_half, SIZE.members);
    assert_same(&outcomes, "at once as soon as half have ended");
    println!("{fewest}, {fewer} and {all} points");
    assert!(
        2 * fewest < all && fewest < fewer && fewer < all,
        "{fewest} {fewer} {all}"
    );
    // With four places, new simplices enter whatever those in flight are about to do.
    for context in [never, context(2), always] {
        let (outcomes, _) = search_all_starts(&context, 4);
        assert_same(&outcomes, "four at a time");
    }
}
