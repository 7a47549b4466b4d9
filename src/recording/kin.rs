//! Data that the populations of one recording share.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Data that a device makes of a recording once for all its populations of it, as long as one of them has it. A copy of
/// the recording, which may be changed, begins anew.
#[derive(Default)]
pub struct Kin(Mutex<Option<Weak<dyn Any + Send + Sync>>>);

impl Kin {
    /// Returns what populations of this recording share, or, where none holds it any more, what `make` makes.
    pub fn share<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let other = known.as_ref().and_then(Weak::upgrade).and_then(|other| other.downcast().ok());
        other.unwrap_or_else(|| {
            let made = Arc::new(make());
            let any: Arc<dyn Any + Send + Sync> = made.clone();
            *known = Some(Arc::downgrade(&any));
            made
        })
    }

    /// Returns how many hold the shared data at present.
    #[cfg(test)]
    pub fn sharers(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, Weak::strong_count)
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
}
