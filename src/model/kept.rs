//! Data that later rooms make of a model once, kept with it for all of its clones.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;

/// Number of keys whose data are kept: the first guess of the usual seed, and that of another one.
const MOST: usize = 2;

/// Data made of a model and of a key, which are in memory once. They may be large: those of the keys that were made
/// last are kept.
#[derive(Clone, Default)]
pub struct Kept(Arc<Shared>);

#[derive(Default)]
struct Shared {
    made: Mutex<Vec<(u64, Arc<dyn Any + Send + Sync>)>>,
    /// Held while data are made, so that they are made once.
    making: Mutex<()>,
}

impl Kept {
    /// Returns the data of a key, which the first call makes. Each type of data needs keys of its own.
    ///
    /// # Errors
    /// Returns the errors of `make`.
    pub fn get_or_make<T: Send + Sync + 'static>(
        &self,
        key: u64,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        if let Some(known) = self.get(key) {
            return Ok(known);
        }
        // A worker of rayon's must not wait: while it does so in `make`, it may take up work that comes here, too.
        let _making = match rayon::current_thread_index() {
            Some(_) => self.0.making.try_lock().ok(),
            None => Some(lock(&self.0.making)),
        };
        if let Some(known) = self.get(key) {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        let mut all = lock(&self.0.made);
        if all.len() == MOST {
            all.remove(0);
        }
        all.push((key, made.clone()));
        Ok(made)
    }

    /// Returns the data of a key if they have been made.
    fn get<T: Send + Sync + 'static>(&self, key: u64) -> Option<Arc<T>> {
        let all = lock(&self.0.made);
        let (_, made) = all.iter().find(|(other, _)| *other == key)?;
        made.clone().downcast().ok()
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept")
            .field("keys", &lock(&self.0.made).len())
            .finish_non_exhaustive()
    }
}

/// Locks a mutex, also after another thread has panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;
    use crate::error::Error;

    /// Workers of a pool that come back to what they are making do not wait for themselves.
    #[test]
    fn workers_that_make_data_meet_others_that_want_them() {
        let kept = Kept::default();
        let make = || -> Result<usize> { Ok((0..1000usize).into_par_iter().map(|k| k % 7).sum()) };
        let all: Vec<usize> = (0..64)
            .into_par_iter()
            .map(|_| *kept.get_or_make(1, make).unwrap())
            .collect();
        assert!(all.iter().all(|sum| *sum == all[0]));
    }

    #[test]
    fn data_are_made_once_for_a_key_and_the_last_keys_stay() {
        let kept = Kept::default();
        let of = |key: u64| kept.clone().get_or_make(key, || Ok(key)).unwrap();
        let first = of(1);
        assert!(Arc::ptr_eq(&first, &of(1)) && *of(2) == 2);
        assert!(Arc::ptr_eq(&first, &of(1)));
        of(3);
        assert!(!Arc::ptr_eq(&first, &of(1)));
        let failed = kept.get_or_make::<u64>(9, || Err(Error::Usage("no".into())));
        assert!(failed.is_err() && *of(9) == 9);
    }
}
