//! Data that the populations of one recording share, and constants that it shares with another recording.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Buffer, BufferId, Recording};

/// What the populations of a recording hold at present; `None` before the first, a dead reference after the last.
type Shared = Mutex<Option<Weak<dyn Any + Send + Sync>>>;

/// Data that a device makes of a recording once for all its populations of it, as long as one of them has it. A copy of
/// the recording, which may be changed, begins anew.
#[derive(Default)]
pub struct Kin {
    shared: Arc<Shared>,
    relative: Option<Relative>,
}

/// Another recording that has some of the same constants.
struct Relative {
    shared: Arc<Shared>,
    /// By buffer, the other recording's buffer with the same constant.
    same: Vec<Option<BufferId>>,
}

impl Kin {
    /// Returns what populations of this recording share, or, where none holds it any more, what `make` makes.
    pub fn share<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let other = shared
            .as_ref()
            .and_then(Weak::upgrade)
            .and_then(|other| other.downcast().ok());
        other.unwrap_or_else(|| {
            let made = Arc::new(make());
            let any: Arc<dyn Any + Send + Sync> = made.clone();
            *shared = Some(Arc::downgrade(&any));
            made
        })
    }

    /// Returns what the populations of the related recording share, and that recording's buffer with the same constant
    /// as `buffer`; `None` if there is no such recording, constant or population.
    pub(crate) fn of_relative<T: Any + Send + Sync>(
        &self,
        buffer: usize,
    ) -> Option<(Arc<T>, BufferId)> {
        let Relative { shared, same } = self.relative.as_ref()?;
        let place = same.get(buffer).copied()??;
        let shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        Some((shared.as_ref()?.upgrade()?.downcast().ok()?, place))
    }

    /// Returns how many hold the shared data at present.
    #[cfg(test)]
    pub fn sharers(&self) -> usize {
        self.shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map_or(0, Weak::strong_count)
    }
}

impl Recording {
    /// Shares the memory of equal constants of the same name and kind with another recording of the same model, and
    /// what devices make of them.
    pub(crate) fn share_constants(&mut self, other: &Recording) {
        let is_same =
            |a: &Buffer, b: &Buffer| a.name == b.name && a.kind == b.kind && a.values == b.values;
        let mut same = vec![None; self.buffers.len()];
        for (buffer, same) in self
            .buffers
            .iter_mut()
            .zip(&mut same)
            .filter(|(buffer, _)| buffer.values.is_some())
        {
            if let Some(place) = other
                .buffers
                .iter()
                .position(|there| is_same(buffer, there))
            {
                buffer.values.clone_from(&other.buffers[place].values);
                *same = Some(BufferId(place));
            }
        }
        self.kin.relative = Some(Relative {
            shared: other.kin.shared.clone(),
            same,
        });
    }
}

impl Clone for Kin {
    fn clone(&self) -> Kin {
        Kin::default()
    }
}

impl fmt::Debug for Kin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kin")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Values;

    #[test]
    fn is_shared_as_long_as_somebody_has_it() {
        let kin = Kin::default();
        let first = kin.share(|| 1u32);
        let second = kin.share(|| 2u32);
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(*kin.clone().share(|| 3u32), 3);
        drop((first, second));
        assert_eq!(*kin.share(|| 4u32), 4);
    }

    #[test]
    fn equal_constants_of_the_same_name_are_shared() {
        let recording = |constants: &[(&str, f32)]| {
            let mut recording = Recording::default();
            for (name, value) in constants {
                recording.constant(*name, Values::F32(vec![*value; 3].into()));
            }
            recording
        };
        let first = recording(&[("a", 1.0), ("b", 2.0), ("c", 3.0)]);
        let mut second = recording(&[("c", 3.0), ("b", 2.5), ("d", 1.0)]);
        second.share_constants(&first);
        let array = |recording: &Recording, id: usize| match &recording.buffers[id].values {
            Some(Values::F32(array)) => array.clone(),
            _ => panic!("an array of f32"),
        };
        assert!(Arc::ptr_eq(&array(&second, 0), &array(&first, 2)));
        assert_eq!([array(&second, 1)[0], array(&second, 2)[0]], [2.5, 1.0]);
        // what a device made of the first one's constants, as long as a population has it
        assert!(second.kin.of_relative::<u32>(0).is_none());
        let made = first.kin.share(|| 7u32);
        assert_eq!(
            second.kin.of_relative::<u32>(0),
            Some((made.clone(), BufferId(2)))
        );
        assert!(
            second.kin.of_relative::<u32>(1).is_none()
                && second.kin.of_relative::<i32>(0).is_none()
        );
        drop(made);
        assert!(second.kin.of_relative::<u32>(0).is_none());
    }
}
