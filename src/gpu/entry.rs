//! The list of members as the host knows it: written to when starts enter, read after rounds.

use super::layout::{HEAD, Layout};
use crate::error::{Error, Result};
use crate::recording::{Kind, Recording, Scope, Values};
use crate::solver::member::Active;
use crate::solver::{Batch, Places};

/// The host's copy of the list of members.
#[derive(Debug)]
pub(super) struct Entry {
    layout: Layout,
    /// The list as the device has it, without the room for `compact`.
    pub members: Vec<u32>,
}

impl Entry {
    /// Makes the list of a population without members.
    pub fn new(layout: Layout) -> Entry {
        Entry {
            layout,
            members: vec![0; HEAD + 3 * layout.capacity],
        }
    }

    /// Lists the members of a batch's starts, which take part in the next round; returns how many members are active
    /// then.
    pub fn enter(
        &mut self,
        batch: &Batch,
        places: &Places,
        lanes: usize,
        active: Active,
    ) -> Active {
        let capacity = self.layout.capacity;
        let sitting_out = self.members[HEAD + active.taking_part..HEAD + active.all].to_vec();
        let mut next = active.taking_part;
        for (start, spectrum) in places.starts.iter().zip(&batch.group) {
            for slot in start * lanes..(start + 1) * lanes {
                self.members[HEAD + next] = slot as u32;
                self.members[HEAD + capacity + slot] = places.spectra[*spectrum as usize] as u32;
                next += 1;
            }
        }
        let entered = Active {
            all: next + sitting_out.len(),
            taking_part: next,
        };
        self.members[HEAD + next..HEAD + entered.all].copy_from_slice(&sitting_out);
        self.members[..HEAD]
            .copy_from_slice(&[entered.taking_part, entered.all].map(|count| count as u32));
        // a population of simplices has fewer starts than slots, and does not ask
        let length = places.ring.len().min(capacity);
        self.members[HEAD + 2 * capacity..][..length].copy_from_slice(&places.ring[..length]);
        entered
    }
}

/// Fails unless the places of a batch's spectra are below `capacity`, and its arrays have the lengths that they must.
pub(super) fn check(
    recording: &Recording,
    batch: &Batch,
    spectra: &[usize],
    capacity: usize,
) -> Result<()> {
    if spectra.iter().any(|place| *place >= capacity) {
        return Err(Error::Usage(format!(
            "{} spectra in a population of {capacity}",
            batch.spectra
        )));
    }
    let parameters = recording.parameters.len();
    for values in [
        &batch.lower,
        &batch.upper,
        &batch.prior_mean,
        &batch.prior_weight,
    ] {
        check_length(
            "bounds and priors",
            values.len(),
            batch.spectra * parameters,
        )?;
    }
    check_length("starts", batch.starts.len(), batch.members() * parameters)?;
    if batch.group.iter().any(|s| *s as usize >= batch.spectra) {
        return Err(Error::Usage(
            "a member of a spectrum that is not in the batch".into(),
        ));
    }
    for (id, values) in &batch.blocks {
        let block = recording.block(*id);
        let blocks = if block.scope == Scope::Spectrum {
            batch.spectra
        } else {
            1
        };
        check_length(&block.name, values.len(), blocks * block.length)?;
        if let Values::Blocks(arrays) = values {
            arrays
                .iter()
                .try_for_each(|array| check_length(&block.name, array.len(), block.length))?;
        }
        if (block.kind == Kind::Index) != matches!(values, Values::I32(_)) {
            return Err(Error::Usage(format!(
                "{}: elements of another kind",
                block.name
            )));
        }
    }
    Ok(())
}

/// Fails with [`Error::ShapeMismatch`] unless the length of an array, called `what`, is the expected one.
fn check_length(what: &str, length: usize, expected: usize) -> Result<()> {
    if length == expected {
        return Ok(());
    }
    Err(Error::mismatch(what, format!("{length} numbers, not {expected}")).naming(what))
}

/// Returns each spectrum's lower and upper bounds, prior means and prior weights: (spectra, 4, parameters).
pub(super) fn limits(batch: &Batch, parameters: usize) -> Vec<f32> {
    let kinds = [
        &batch.lower,
        &batch.upper,
        &batch.prior_mean,
        &batch.prior_weight,
    ];
    let of_spectrum = |s: usize| {
        kinds
            .into_iter()
            .flat_map(move |v| &v[s * parameters..(s + 1) * parameters])
    };
    (0..batch.spectra)
        .flat_map(of_spectrum)
        .map(|x| *x as f32)
        .collect()
}
