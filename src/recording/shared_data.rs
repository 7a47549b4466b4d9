//! Data that the populations of one recording share, and constants that it shares with another recording.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Buffer, BufferId, Recording};

/// Data that the populations of a recording hold at present; `None` before the first, a dead reference after the last.
type HeldData = Mutex<Option<Weak<dyn Any + Send + Sync>>>;

/// Data that a device makes of a recording once for all its populations, and keeps as long as one of them holds it. A
/// copy of the recording, which may be changed, shares nothing.
#[derive(Default)]
pub struct SharedData {
    shared: Arc<HeldData>,
    origin: Option<Origin>,
}

/// Another recording that has some of the same constants.
struct Origin {
    shared: Arc<HeldData>,
    /// By buffer, the other recording's buffer with the same constant.
    same_constants: Vec<Option<BufferId>>,
}

impl SharedData {
    /// Returns the data that populations of this recording share, or the result of `make` where none holds any.
    pub fn share<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let held = shared
            .as_ref()
            .and_then(Weak::upgrade)
            .and_then(|data| data.downcast().ok());
        held.unwrap_or_else(|| {
            let data = Arc::new(make());
            let any: Arc<dyn Any + Send + Sync> = data.clone();
            *shared = Some(Arc::downgrade(&any));
            data
        })
    }

    /// Returns the data that the populations of the related recording share, and that recording's buffer with the same
    /// constant as `buffer`; `None` if there is no such recording, constant or population.
    pub(crate) fn of_origin<T: Any + Send + Sync>(
        &self,
        buffer: usize,
    ) -> Option<(Arc<T>, BufferId)> {
        let Origin {
            shared,
            same_constants,
        } = self.origin.as_ref()?;
        let related_buffer = same_constants.get(buffer).copied()??;
        let shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let data = shared.as_ref()?.upgrade()?.downcast().ok()?;
        Some((data, related_buffer))
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
    /// the data that devices make of them.
    pub(crate) fn share_constants(&mut self, other: &Recording) {
        let mut same_constants = vec![None; self.buffers.len()];
        for (buffer, same) in self.buffers.iter_mut().zip(&mut same_constants) {
            if buffer.values.is_none() {
                continue;
            }
            let equal = other
                .buffers
                .iter()
                .position(|candidate| is_same_constant(buffer, candidate));
            if let Some(id) = equal {
                buffer.values.clone_from(&other.buffers[id].values);
                *same = Some(BufferId(id));
            }
        }
        self.shared_data.origin = Some(Origin {
            shared: other.shared_data.shared.clone(),
            same_constants,
        });
    }
}

/// Returns whether two buffers have the same name, kind and values.
fn is_same_constant(a: &Buffer, b: &Buffer) -> bool {
    a.name == b.name && a.kind == b.kind && a.values == b.values
}

impl Clone for SharedData {
    fn clone(&self) -> SharedData {
        SharedData::default()
    }
}

impl fmt::Debug for SharedData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedData")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Values;

    #[test]
    fn data_are_shared_as_long_as_they_are_held() {
        let shared_data = SharedData::default();
        let first = shared_data.share(|| 1u32);
        let second = shared_data.share(|| 2u32);
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(*shared_data.clone().share(|| 3u32), 3);
        drop((first, second));
        assert_eq!(*shared_data.share(|| 4u32), 4);
    }

    #[test]
    fn equal_constants_of_the_same_name_are_shared() {
        let first = recording_with(&[("a", 1.0), ("b", 2.0), ("c", 3.0)]);
        let mut second = recording_with(&[("c", 3.0), ("b", 2.5), ("d", 1.0)]);
        second.share_constants(&first);
        assert!(Arc::ptr_eq(
            &constant_of(&second, 0),
            &constant_of(&first, 2)
        ));
        assert_eq!(
            [constant_of(&second, 1)[0], constant_of(&second, 2)[0]],
            [2.5, 1.0]
        );
        // The data that a device made of the first one's constants, as long as a population holds them.
        assert!(second.shared_data.of_origin::<u32>(0).is_none());
        let data = first.shared_data.share(|| 7u32);
        assert_eq!(
            second.shared_data.of_origin::<u32>(0),
            Some((data.clone(), BufferId(2)))
        );
        assert!(
            second.shared_data.of_origin::<u32>(1).is_none()
                && second.shared_data.of_origin::<i32>(0).is_none()
        );
        drop(data);
        assert!(second.shared_data.of_origin::<u32>(0).is_none());
    }

    fn recording_with(constants: &[(&str, f32)]) -> Recording {
        let mut recording = Recording::default();
        for (name, value) in constants {
            recording.constant(*name, Values::F32(vec![*value; 3].into()));
        }
        recording
    }

    fn constant_of(recording: &Recording, id: usize) -> Arc<Vec<f32>> {
        match &recording.buffers[id].values {
            Some(Values::F32(array)) => array.clone(),
            _ => panic!("an array of f32"),
        }
    }
}
