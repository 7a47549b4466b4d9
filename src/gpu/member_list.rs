//! The host's copy of the list of members: starts that enter are added to it, and it is read back after rounds.

use super::layout::{LIST_HEADER_WORDS, Layout};
use crate::error::{Error, Result};
use crate::recording::{Kind, Recording, Scope, Values};
use crate::solver::member::Active;
use crate::solver::{Batch, Places};

/// The host's copy of the list of members.
#[derive(Debug)]
pub(super) struct MemberList {
    layout: Layout,
    /// The list as the device has it, without the room for `compact`.
    pub members: Vec<u32>,
}

impl MemberList {
    /// Makes the list of a population without members.
    pub fn new(layout: Layout) -> MemberList {
        MemberList {
            layout,
            members: vec![0; LIST_HEADER_WORDS + 3 * layout.capacity],
        }
    }

    /// Lists the members of a batch's starts, which take part in the next round; returns how many members are active
    /// then.
    pub fn add_members(&mut self, batch: &Batch, places: &Places, active: Active) -> Active {
        // 1. Append the new members to those that take part. Those that pause move behind them.
        let capacity = self.layout.capacity;
        let pausing = self.members
            [LIST_HEADER_WORDS + active.taking_part..LIST_HEADER_WORDS + active.all]
            .to_vec();
        let mut taking_part = active.taking_part;
        for (start, spectrum) in places.starts.iter().zip(&batch.group) {
            self.members[LIST_HEADER_WORDS + taking_part] = *start as u32;
            self.members[LIST_HEADER_WORDS + capacity + start] =
                places.spectra[*spectrum as usize] as u32;
            taking_part += 1;
        }
        let entered = Active {
            all: taking_part + pausing.len(),
            taking_part,
        };
        self.members[LIST_HEADER_WORDS + taking_part..LIST_HEADER_WORDS + entered.all]
            .copy_from_slice(&pausing);
        // 2. Write the header.
        self.members[..LIST_HEADER_WORDS]
            .copy_from_slice(&[entered.taking_part, entered.all].map(|count| count as u32));
        // 3. Write the ring of each group.
        let ring_length = places.ring.len().min(capacity);
        self.members[LIST_HEADER_WORDS + 2 * capacity..][..ring_length]
            .copy_from_slice(&places.ring[..ring_length]);
        entered
    }
}

/// Fails unless the places of a batch's spectra are below `capacity`, and its arrays have the lengths that they must.
pub(super) fn check_batch(
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
    if batch
        .group
        .iter()
        .any(|spectrum| *spectrum as usize >= batch.spectra)
    {
        return Err(Error::Usage(
            "a member of a spectrum that is not in the batch".into(),
        ));
    }
    for (id, values) in &batch.blocks {
        let block = recording.block(*id);
        let n_blocks = if block.scope == Scope::Spectrum {
            batch.spectra
        } else {
            1
        };
        check_length(&block.name, values.len(), n_blocks * block.length)?;
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

/// Fails with [`Error::ShapeMismatch`] unless the length of the array `name` is the expected one.
fn check_length(name: &str, length: usize, expected: usize) -> Result<()> {
    if length == expected {
        return Ok(());
    }
    Err(Error::mismatch(name, format!("{length} numbers, not {expected}")).naming(name))
}

/// Returns each spectrum's lower and upper bounds, prior means and prior weights: (spectra, 4, parameters).
pub(super) fn collect_limits(batch: &Batch, parameters: usize) -> Vec<f32> {
    let kinds = [
        &batch.lower,
        &batch.upper,
        &batch.prior_mean,
        &batch.prior_weight,
    ];
    let mut limits = Vec::with_capacity(batch.spectra * kinds.len() * parameters);
    for spectrum in 0..batch.spectra {
        for values in kinds {
            let of_spectrum = &values[spectrum * parameters..(spectrum + 1) * parameters];
            limits.extend(of_spectrum.iter().map(|x| *x as f32));
        }
    }
    limits
}
