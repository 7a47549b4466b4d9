//! Cache of data that later rooms make of a model once, shared by all of its clones.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;

/// Maximum number of cached keys: the first guess of the usual seed, and that of another one.
const MAX_CACHED_KEYS: usize = 2;

/// Data made of a model and of a key, which are in memory once. They may be large, so only those of the latest keys are
/// cached.
#[derive(Clone, Default)]
pub struct ModelCache(Arc<CacheState>);

#[derive(Default)]
struct CacheState {
    /// Data by key, the latest at the end.
    entries: Mutex<Vec<(u64, Arc<dyn Any + Send + Sync>)>>,
    /// Locked while data are made, so that they are made once.
    making: Mutex<()>,
}

impl ModelCache {
    /// Returns the data of a key, which the first call makes. Each type of data needs keys of its own.
    ///
    /// # Errors
    /// Returns the errors of `make`.
    pub fn get_or_make<T: Send + Sync + 'static>(
        &self,
        key: u64,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        if let Some(data) = self.get(key) {
            return Ok(data);
        }
        // A worker of rayon must not wait for the lock: while it waits inside `make`, rayon may give it another task
        // that needs the same data, and it would wait for itself.
        let _making = match rayon::current_thread_index() {
            Some(_) => self.0.making.try_lock().ok(),
            None => Some(lock_mutex(&self.0.making)),
        };
        if let Some(data) = self.get(key) {
            return Ok(data);
        }
        let data = Arc::new(make()?);
        let mut entries = lock_mutex(&self.0.entries);
        if entries.len() == MAX_CACHED_KEYS {
            entries.remove(0);
        }
        entries.push((key, data.clone()));
        Ok(data)
    }

    /// Returns the data of a key if they have been made.
    fn get<T: Send + Sync + 'static>(&self, key: u64) -> Option<Arc<T>> {
        let entries = lock_mutex(&self.0.entries);
        let (_, data) = entries.iter().find(|(cached_key, _)| *cached_key == key)?;
        data.clone().downcast().ok()
    }
}

impl std::fmt::Debug for ModelCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelCache")
            .field("keys", &lock_mutex(&self.0.entries).len())
            .finish_non_exhaustive()
    }
}

/// Locks a mutex, also after another thread has panicked while it held the lock.
fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;
    use crate::error::Error;

    /// A worker of a pool that needs the data which it is making does not wait for itself.
    #[test]
    fn workers_that_need_the_data_they_make_do_not_deadlock() {
        let cache = ModelCache::default();
        let make = || -> Result<usize> { Ok((0..1000usize).into_par_iter().map(|k| k % 7).sum()) };
        let sums: Vec<usize> = (0..64)
            .into_par_iter()
            .map(|_| *cache.get_or_make(1, make).unwrap())
            .collect();
        assert!(sums.iter().all(|sum| *sum == sums[0]));
    }

    #[test]
    fn data_are_made_once_per_key_and_the_latest_keys_stay() {
        let cache = ModelCache::default();
        let get = |key: u64| cache.clone().get_or_make(key, || Ok(key)).unwrap();
        let first = get(1);
        assert!(Arc::ptr_eq(&first, &get(1)) && *get(2) == 2);
        assert!(Arc::ptr_eq(&first, &get(1)));
        get(3);
        assert!(!Arc::ptr_eq(&first, &get(1)));
        let failed = cache.get_or_make::<u64>(9, || Err(Error::Usage("no".into())));
        assert!(failed.is_err() && *get(9) == 9);
    }
}
