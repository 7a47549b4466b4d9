//! Simplices whose points are evaluated at once, and those whose points are evaluated one after another, end alike,
//! also where others enter in the middle of an iteration.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use web_time::Instant;

use super::adapter::{self, Choice};
use super::context::{Context, Options};
use super::fusion_tests::{Size, example};
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
struct Few<'a> {
    recording: &'a Recording,
    batch: &'a Batch,
    most: usize,
    next: usize,
    outcomes: Vec<Vec<Outcome>>,
}

impl Few<'_> {
    /// Some of the batch's spectra, each with its one start.
    fn some(&self, spectra: Range<usize>) -> Batch {
        let rows = |all: &[f64]| {
            let count = all.len() / self.batch.spectra;
            all[spectra.start * count..spectra.end * count].to_vec()
        };
        let part = |(id, values): &(_, Values)| match (self.recording.block(*id).scope, values) {
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
            blocks: self.batch.blocks.iter().map(part).collect(),
            lower: rows(&self.batch.lower),
            upper: rows(&self.batch.upper),
            prior_mean: rows(&self.batch.prior_mean),
            prior_weight: rows(&self.batch.prior_weight),
            group: (0..spectra.len() as u32).collect(),
            starts: rows(&self.batch.starts),
            simplices: Vec::new(),
            is_evaluation: false,
        }
    }
}

impl Queue for Few<'_> {
    fn next(&mut self, spectra: usize, _starts: usize) -> Option<Batch> {
        let first = self.next;
        self.next = (first + spectra.min(self.most)).min(self.batch.spectra);
        (self.next > first).then(|| self.some(first..self.next))
    }

    fn is_empty(&self) -> bool {
        self.next == self.batch.spectra
    }

    fn end(&mut self, number: usize, outcomes: Vec<Outcome>) {
        self.outcomes[number] = outcomes;
    }
}

/// Searches from all starts of the example, where so many simplices are few; returns the outcomes, and how many points
/// the device has evaluated. At most `most` are in flight.
fn search(context: &Arc<Context>, most: usize) -> (Vec<Outcome>, usize) {
    let (recording, batch) = example(SIZE);
    let method = Method::NelderMead(NelderMead::default());
    let mut population =
        GpuPopulation::new(context.clone(), Arc::new(recording.clone()), &method, most).unwrap();
    let meter = Arc::new(Meter::new(Instant::now()));
    population.measure(meter.clone());
    let outcomes = vec![Vec::new(); batch.spectra];
    let mut queue = Few {
        recording: &recording,
        batch: &batch,
        most,
        next: 0,
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
fn points_at_once_or_one_after_another_find_the_same() {
    let adapter = match adapter::choose(Choice::Best) {
        Ok((_, adapter)) => adapter,
        Err(error) => return skip(Need::Gpu, error),
    };
    let context = |few_simplices: usize| {
        let mut context = Context::open(adapter.clone(), Options::default()).unwrap();
        context.kernels.few_simplices = few_simplices;
        Arc::new(context)
    };
    let [never, below_half, always] = [0, SIZE.members / 2, SIZE.members].map(context);
    let (reference, all) = search(&always, SIZE.members);
    let same = |found: &[Outcome], what: &str| {
        let one = |o: &Outcome| {
            let bits = o
                .parameters
                .iter()
                .chain([&o.chi2])
                .map(|x| x.to_bits())
                .collect::<Vec<u64>>();
            (o.status, o.rounds, o.evaluations, bits)
        };
        assert_eq!(found.len(), reference.len());
        found
            .iter()
            .zip(&reference)
            .for_each(|(a, b)| assert_eq!(one(a), one(b), "{what}"));
    };
    let (found, fewest) = search(&never, SIZE.members);
    same(&found, "one after another");
    let (found, fewer) = search(&below_half, SIZE.members);
    same(&found, "at once as soon as half have ended");
    println!("{fewest}, {fewer} and {all} points");
    assert!(
        2 * fewest < all && fewest < fewer && fewer < all,
        "{fewest} {fewer} {all}"
    );
    // places are filled anew, whatever those in flight are about to do
    for few in [never, context(2), always] {
        let (found, _) = search(&few, 4);
        same(&found, "four at a time");
    }
}
