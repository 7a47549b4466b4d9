//! Simplices whose points are evaluated at once, and those whose points are evaluated one after another, end alike.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::adapter::{self, Choice};
use super::context::{Context, Options};
use super::fusion_tests::{Size, example};
use super::population::GpuPopulation;
use crate::error::Result;
use crate::solver::{Method, NelderMead, Outcome, optimise};
use popfit_testing::required::{Need, skip};

const SIZE: Size = Size { members: 13, hidden: 16, columns: 80, pixels: 80 };

/// Searches from all starts of the example on the best adapter, where so many simplices are few.
fn search(few_simplices: usize) -> Result<Vec<Outcome>> {
    let mut context = adapter::choose(Choice::Best).and_then(|adapter| Context::open(adapter, Options::default()))?;
    context.kernels.few_simplices = few_simplices;
    let (recording, batch) = example(SIZE);
    let method = Method::NelderMead(NelderMead::default());
    let mut population = GpuPopulation::new(Arc::new(context), Arc::new(recording), &method, SIZE.members)?;
    pollster::block_on(optimise(&mut population, &batch, &AtomicBool::new(false), &mut |_| {}))
}

#[test]
fn the_number_of_points_at_once_changes_no_bit() {
    let at_once = match search(SIZE.members) {
        Ok(outcomes) => outcomes,
        Err(error) => return skip(Need::Gpu, error),
    };
    let evaluations = |all: &[Outcome]| all.iter().map(|outcome| outcome.evaluations).sum::<u32>();
    // one after another, and at once as soon as half of them have ended
    for few in [0, SIZE.members / 2] {
        let found = search(few).unwrap();
        for (a, b) in at_once.iter().zip(&found) {
            let bits = |o: &Outcome| o.parameters.iter().chain([&o.chi2]).map(|x| x.to_bits()).collect::<Vec<u64>>();
            assert_eq!((a.status, a.rounds, bits(a)), (b.status, b.rounds, bits(b)));
        }
        let (fewer, all) = (evaluations(&found), evaluations(&at_once));
        println!("{few}: {fewer} evaluations instead of {all}");
        assert!(2 * fewer < all || few > 0 && fewer < all, "{few}: {fewer} of {all}");
    }
}
