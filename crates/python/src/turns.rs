//! Turns of a run's threads at a function of Python.
//!
//! numpy gives Python's lock away and takes it back in each operation on more than 500 numbers. Two threads in short
//! calls hand it to and fro, and gain nothing beside one: fits of a Gauss function of numpy took 14.6 µs per curve.
//! They take 11.2 µs where a thread waits until the other one has returned, if it waits without sleep: to be woken
//! takes as long as a call. Long calls gain by running together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Time within which an expected call counts as short.
const SHORT: Duration = Duration::from_micros(200);

/// Lets one thread at a time make calls that are short.
pub struct Turns {
    lock: Mutex<()>,
    /// Shortest times of a call in ps, and of a call per number that it returns.
    shortest: AtomicU64,
    shortest_per_number: AtomicU64,
}

impl Turns {
    /// Makes turns of a function of which nothing is known: it counts as quick.
    pub fn new() -> Turns {
        Turns { lock: Mutex::new(()), shortest: AtomicU64::new(0), shortest_per_number: AtomicU64::new(0) }
    }

    /// Makes a call that returns so many `numbers`, when it is this thread's turn.
    pub fn take<R>(&self, numbers: usize, call: impl FnOnce() -> R) -> R {
        let numbers = numbers.max(1) as u64;
        let turn = self.is_short(numbers).then(|| self.wait());
        let begin = Instant::now();
        let result = call();
        let taken = picoseconds(begin.elapsed());
        drop(turn);
        lower(&self.shortest, taken);
        lower(&self.shortest_per_number, taken / numbers);
        result
    }

    /// Returns whether a call that returns so many numbers may take less than [`SHORT`].
    fn is_short(&self, numbers: u64) -> bool {
        let by_numbers = self.shortest_per_number.load(Ordering::Relaxed).saturating_mul(numbers);
        self.shortest.load(Ordering::Relaxed).max(by_numbers) < picoseconds(SHORT)
    }

    /// Waits for this thread's turn, at first without sleep.
    fn wait(&self) -> MutexGuard<'_, ()> {
        let begin = Instant::now();
        while begin.elapsed() < SHORT {
            match self.lock.try_lock() {
                Ok(turn) => return turn,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a time in ps, at least 1.
fn picoseconds(time: Duration) -> u64 {
    u64::try_from(1000 * time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Lowers a shortest time to the one that was `taken`, if that is shorter. 0 stands for a time that is not known.
fn lower(shortest: &AtomicU64, taken: u64) {
    let known = shortest.load(Ordering::Relaxed);
    if known == 0 || taken < known {
        shortest.store(taken.max(1), Ordering::Relaxed);
    }
}
