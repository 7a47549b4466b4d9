//! The threads on which a run computes: rayon's global pool, or a shared pool with the number of threads that a
//! [`Control`](crate::Control) asks for.
//!
//! The pool is known to the thread that runs [`with_pool`], and every parallel loop goes through [`in_pool`]. The run
//! itself stays on its own threads: it waits for locks, channels and devices, and a waiting worker of
//! a pool takes up other work, which may need a lock that the first work holds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, InvalidSetting, Result};

/// Pools by their number of threads. They last as long as the process, so that later calls need not start threads.
static SHARED_POOLS: Mutex<BTreeMap<usize, Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// Pool of the run to which this thread belongs; `None` for the pool in which it is, or the global one.
    static CURRENT_POOL: RefCell<Option<Arc<ThreadPool>>> = const { RefCell::new(None) };
}

/// Returns the fault of a number of threads that no pool can have.
pub(crate) fn thread_fault(threads: usize) -> Option<InvalidSetting> {
    (threads == 0).then(|| InvalidSetting::new("threads", "it is 0; choose at least 1"))
}

/// Returns the shared pool of `threads` threads, which the first call starts.
///
/// # Errors
/// Returns [`Error::InvalidSettings`] for 0 threads, and [`Error::System`] if the system refuses to start them.
pub(crate) fn shared_pool(threads: usize) -> Result<Arc<ThreadPool>> {
    InvalidSetting::none_of(thread_fault(threads).into_iter().collect())?;
    let mut pools = SHARED_POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(&threads) {
        return Ok(pool.clone());
    }
    let pool = start_pool(threads)?;
    pools.insert(threads, pool.clone());
    Ok(pool)
}

/// Starts a pool of `threads` threads, whose names contain their number.
fn start_pool(threads: usize) -> Result<Arc<ThreadPool>> {
    // Linux shows the first 15 bytes of a name.
    let builder = ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(move |k| format!("popfit {k}/{threads}"));
    let pool = builder
        .build()
        .map_err(|error| Error::System(format!("threads: {threads} cannot be started: {error}")))?;
    Ok(Arc::new(pool))
}

/// Returns the pool of the run to which this thread belongs, to be given to the threads that the run starts.
pub(crate) fn current_pool() -> Option<Arc<ThreadPool>> {
    CURRENT_POOL.with_borrow(Clone::clone)
}

/// Returns the pool for a run whose own threads wait for each other. In a worker of a pool it starts a
/// new pool of as many threads, because the worker also waits, and no worker might be left to do the work.
pub(crate) fn pool_to_wait_for() -> Result<Option<Arc<ThreadPool>>> {
    if rayon::current_thread_index().is_none() {
        Ok(current_pool())
    } else {
        start_pool(thread_count()).map(Some)
    }
}

/// Runs `work` with `pool` as the current one of this thread; without a pool the current one stays.
pub(crate) fn with_pool<R>(pool: Option<Arc<ThreadPool>>, work: impl FnOnce() -> R) -> R {
    /// Restores the former pool, also after a panic.
    struct RestorePool(Option<Arc<ThreadPool>>);
    impl Drop for RestorePool {
        fn drop(&mut self) {
            CURRENT_POOL.set(self.0.take());
        }
    }
    let Some(pool) = pool else { return work() };
    let _restore = RestorePool(CURRENT_POOL.replace(Some(pool)));
    work()
}

/// Starts a thread of a run, with a name for profilers. It panics if the system refuses, as [`Scope::spawn`] does.
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

/// Returns the result of `work` for each item, in their order. The calling thread works on the first item, and a new
/// thread on each of the others. Fits keep the pool busy, and readers, which call this function, must not wait for it.
pub(crate) fn map_on_own_threads<T: Send, R: Send>(
    name: &str,
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let mut items = items.into_iter();
    let Some(first_item) = items.next() else {
        return Vec::new();
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items
            .map(|item| spawn(scope, name, move || work(item)))
            .collect();
        let first_result = work(first_item);
        let other_results = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| panic::resume_unwind(panic))
        });
        std::iter::once(first_result).chain(other_results).collect()
    })
}

/// Runs `work`, which is a parallel loop, in the current pool.
pub(crate) fn in_pool<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    match current_pool() {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

/// Returns the number of threads of the current pool.
pub(crate) fn thread_count() -> usize {
    current_pool().map_or_else(rayon::current_num_threads, |pool| {
        pool.current_num_threads()
    })
}
