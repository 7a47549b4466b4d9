//! The threads on which a run computes: rayon's global pool, or a kept pool of as many threads as a
//! [`Control`](crate::Control) asks for.
//!
//! The pool is known to the thread that runs [`with_pool`], and every parallel loop goes through [`in_pool`]. The run
//! itself stays on its own threads: it waits for locks, channels and devices, and a worker of a pool that waits takes
//! up other work, which may need what the first holds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, InvalidSetting, Result};

/// Pools by their number of threads. They are kept as long as the process, so that a call does not wait for threads to
/// start.
static KEPT: Mutex<BTreeMap<usize, Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// Pool of the run to which this thread belongs; `None` for the pool in which it is, or the global one.
    static CURRENT: RefCell<Option<Arc<ThreadPool>>> = const { RefCell::new(None) };
}

/// Returns the kept pool of `threads` threads, which the first call starts.
///
/// # Errors
/// Returns [`Error::InvalidSettings`] for 0 threads, and [`Error::Usage`] if the system refuses to start them.
pub(crate) fn kept_pool(threads: usize) -> Result<Arc<ThreadPool>> {
    if threads == 0 {
        let faults = vec![InvalidSetting::new("threads", "it is 0; choose at least 1")];
        return Err(Error::InvalidSettings { faults });
    }
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(&threads) {
        return Ok(known.clone());
    }
    let pool = new_pool(threads)?;
    kept.insert(threads, pool.clone());
    Ok(pool)
}

/// Starts a pool of `threads` threads, whose names say so.
fn new_pool(threads: usize) -> Result<Arc<ThreadPool>> {
    // Linux shows the first 15 bytes of a name
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(move |k| format!("popfit {k}/{threads}"));
    let pool = pool
        .build()
        .map_err(|error| Error::Usage(format!("threads: {threads} cannot be started: {error}")))?;
    Ok(Arc::new(pool))
}

/// Returns the pool of the run to which this thread belongs, to be given to the threads that the run starts.
pub(crate) fn current() -> Option<Arc<ThreadPool>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Returns the pool for a run whose own threads wait for each other. Called from a worker of a pool, that is a fresh
/// pool of as many threads: the worker waits, too, and nobody might be left to do the work.
pub(crate) fn pool_to_wait_for() -> Result<Option<Arc<ThreadPool>>> {
    if rayon::current_thread_index().is_none() {
        Ok(current())
    } else {
        new_pool(count()).map(Some)
    }
}

/// Does `work` with `pool` as the current one of this thread; without a pool the current one stays.
pub(crate) fn with_pool<R>(pool: Option<Arc<ThreadPool>>, work: impl FnOnce() -> R) -> R {
    /// Brings the former pool back, also after a panic.
    struct Former(Option<Arc<ThreadPool>>);
    impl Drop for Former {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let Some(pool) = pool else { return work() };
    let _former = Former(CURRENT.replace(Some(pool)));
    work()
}

/// Starts a thread of a run, whose name profilers show. It panics if the system refuses, as [`Scope::spawn`] does.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let thread = std::thread::Builder::new()
        .name(name.into())
        .spawn_scoped(scope, work);
    thread.unwrap_or_else(|error| {
        panic::resume_unwind(Box::new(format!("{name} cannot be started: {error}")))
    })
}

/// Returns the result of `work` for each item, in their order. Each item has a thread of its own for as long, but the
/// first, which the calling thread takes: fits keep the pool busy, and who reads for them must not wait for it.
pub(crate) fn map_each<T: Send, R: Send>(
    name: &str,
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let mut items = items.into_iter();
    let Some(first) = items.next() else {
        return Vec::new();
    };
    std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = items
            .map(|item| spawn(scope, name, move || work(item)))
            .collect();
        let first = work(first);
        let joined = others.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| panic::resume_unwind(panic))
        });
        std::iter::once(first).chain(joined).collect()
    })
}

/// Does `work`, which is a parallel loop, in the current pool.
pub(crate) fn in_pool<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    match current() {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

/// Returns the number of threads of the current pool.
pub(crate) fn count() -> usize {
    current().map_or_else(rayon::current_num_threads, |pool| {
        pool.current_num_threads()
    })
}
