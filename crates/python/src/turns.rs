//! Turns of a run's threads at a function of Python.
//!
//! numpy gives Python's lock away and takes it back in each operation on more than 500 numbers. Two threads in short
//! calls hand it to and fro, and gain nothing beside one: fits of a Gauss function of numpy took 14.6 µs per curve.
//! They take 11.2 µs where a thread waits until the other one has returned, if it waits without sleep: to be woken
//! takes as long as a call. Long calls gain by running together.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Time within which an expected call counts as short.
const SHORT: Duration = Duration::from_micros(200);
/// Factor by which the shortest known times grow with each call: what was quick once may not be so again.
const FORGETTING: f64 = 1.02;

thread_local! {
    /// True while it is this thread's turn: a call that its own call makes does not wait for it.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// Lets one thread at a time make calls that are short.
#[derive(Default)]
pub struct Turns {
    lock: Mutex<()>,
    /// Shortest time of the last calls in ps, and of a call per number that it returns; 0 where none is known, as of a
    /// quick function.
    shortest: AtomicU64,
    shortest_per_number: AtomicU64,
}

impl Turns {
    /// Makes a call that returns so many `numbers`, when it is this thread's turn.
    pub fn take<T, E>(&self, numbers: usize, call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let numbers = numbers.max(1) as u64;
        let turn = (self.is_short(numbers) && !HAS_TURN.get()).then(|| Turn::new(self.wait()));
        let begin = Instant::now();
        let result = call();
        let taken = picoseconds(begin.elapsed());
        drop(turn);
        // a call that fails may be shorter than others
        if result.is_ok() {
            lower(&self.shortest, taken);
            lower(&self.shortest_per_number, taken / numbers);
        }
        result
    }

    /// Returns whether a call that returns so many numbers may take less than [`SHORT`].
    fn is_short(&self, numbers: u64) -> bool {
        let by_numbers = self
            .shortest_per_number
            .load(Ordering::Relaxed)
            .saturating_mul(numbers);
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

/// This thread's turn, which ends where it is dropped, after a panic, too.
struct Turn<'a>(#[expect(dead_code, reason = "it is held")] MutexGuard<'a, ()>);

impl<'a> Turn<'a> {
    /// Begins the turn of the thread that holds the lock.
    fn new(lock: MutexGuard<'a, ()>) -> Turn<'a> {
        HAS_TURN.set(true);
        Turn(lock)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        HAS_TURN.set(false);
    }
}

/// Returns a time in ps, at least 1.
fn picoseconds(time: Duration) -> u64 {
    u64::try_from(1000 * time.as_nanos())
        .unwrap_or(u64::MAX)
        .max(1)
}

/// Lowers a shortest time to the one that was `taken` if that is shorter, and lets it grow otherwise. 0 stands for a
/// time that is not known.
fn lower(shortest: &AtomicU64, taken: u64) {
    let known = shortest.load(Ordering::Relaxed);
    let grown = (known as f64 * FORGETTING) as u64 + 1;
    shortest.store(
        if known == 0 || taken < grown {
            taken.max(1)
        } else {
            grown
        },
        Ordering::Relaxed,
    );
}
