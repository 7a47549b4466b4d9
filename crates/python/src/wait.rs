//! Runs of the crate with the GIL released: a thread of its own works, and the caller's thread asks for signals and
//! reports progress.

use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::mem::ManuallyDrop;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use popfit::{Control, Error};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::errors::{exception, input_error, of_class};

/// Time between two looks at signals and progress.
const PERIOD: Duration = Duration::from_millis(50);

/// True once this process has begun a run, and so has threads and devices that a fork does not copy.
static HAS_RUN: AtomicBool = AtomicBool::new(false);
/// True in a forked child whose parent had begun a run.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Threads that may have a pool of their own for short runs. Such a pool stays for ever, 8 kB of it.
const MOST_OWN_POOLS: usize = 64;
/// Threads that have asked for one.
static OWN_POOLS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// True while a run's worker calls a function of the user.
    static IS_CALLED: Cell<bool> = const { Cell::new(false) };
    /// Pool whose one worker is this thread, for the first threads that ask for one. It is never dropped: rayon's own
    /// data of the thread may be gone by then.
    static HERE: OnceCell<Option<ManuallyDrop<ThreadPool>>> = const { OnceCell::new() };
}

/// Calls a function of the user from a run's worker: runs that it makes stay on this thread.
pub fn call_user<R>(call: impl FnOnce() -> R) -> R {
    let before = IS_CALLED.replace(true);
    let result = call();
    IS_CALLED.set(before);
    result
}

/// Marks a child after a fork; `popfit/__init__.py` registers it.
#[pyfunction]
pub fn after_fork() {
    IS_FORKED.store(HAS_RUN.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Returns whether this is a forked child whose parent had begun a run.
pub fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

/// Refuses work in a forked child whose parent has fitted: it would wait for threads that do not exist there.
pub fn begin(py: Python<'_>) -> PyResult<()> {
    if is_forked() {
        let message = "this process was forked from one that had used popfit, whose threads and devices a fork does \
                       not copy: use multiprocessing's start method \"spawn\" or \"forkserver\"";
        return Err(of_class(py, "ForkError", message.into(), |_| Ok(())));
    }
    HAS_RUN.store(true, Ordering::Relaxed);
    Ok(())
}

/// Progress, timeout and threads of a run.
#[derive(Default)]
pub struct Watch {
    /// Called with the numbers of finished and of all fits.
    pub progress: Option<Py<PyAny>>,
    /// Maximum time of the run.
    pub timeout: Option<Duration>,
    /// Number of threads, where the processor's is not wanted.
    pub threads: Option<usize>,
    /// Set once the run is to end.
    pub cancel: Option<Arc<AtomicBool>>,
    /// True for a run of milliseconds, which stays on the caller's thread: to wake others takes longer.
    pub is_short: bool,
}

impl Watch {
    /// Returns a watch of a run without progress and timeout.
    pub fn of_threads(threads: usize) -> Watch {
        Watch {
            threads: Some(threads),
            ..Watch::default()
        }
    }
}

/// A run's result, and the exception (of a signal, or of the function for progress) that ended it early.
pub struct Outcome<T> {
    pub result: T,
    pub stopped: Option<PyErr>,
}

/// Runs `work` with the GIL released, until it ends or an exception on the caller's thread cancels it.
///
/// # Errors
/// Returns the exception of `work`'s error, or that which ended the run, with the former as its cause; an
/// `InternalError` if `work` panics.
pub fn run<T: Send>(
    py: Python<'_>,
    watch: Watch,
    work: impl FnOnce(&Control) -> Result<T, Error> + Send,
) -> PyResult<Outcome<T>> {
    begin(py)?;
    let Watch {
        progress,
        timeout,
        threads,
        cancel,
        is_short,
    } = watch;
    let (done, total) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut control = Control::default();
    if progress.is_some() {
        let (done, total) = (done.clone(), total.clone());
        control.progress = Some(Arc::new(move |ended, all| {
            total.store(all, Ordering::Relaxed);
            done.store(ended, Ordering::Relaxed);
        }));
    }
    control.timeout = timeout;
    if let Some(cancel) = cancel {
        control.cancel = cancel;
    }
    // A user's function that runs inside a run's worker runs there: a thread of its own would wait for a pool whose
    // workers wait for Python.
    if is_short || IS_CALLED.get() {
        let result = run_here(py, || work(&control))?.map_err(|error| exception(py, &error))?;
        if let Some(progress) = &progress {
            progress.call1(
                py,
                (done.load(Ordering::Relaxed), total.load(Ordering::Relaxed)),
            )?;
        }
        return Ok(Outcome {
            result,
            stopped: None,
        });
    }
    control.threads = threads;
    let report = |py: Python<'_>| match &progress {
        Some(progress) if total.load(Ordering::Relaxed) > 0 => progress
            .call1(
                py,
                (done.load(Ordering::Relaxed), total.load(Ordering::Relaxed)),
            )
            .map(drop),
        _ => Ok(()),
    };
    let (ended, mut stopped) = py.detach(|| {
        thread::scope(|scope| {
            let (ends, ended) = channel::<()>();
            let control = &control;
            let worker = scope.spawn(move || {
                // dropped when the work ends, even by a panic
                let _ends = ends;
                work(control)
            });
            let mut stopped = None;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(PERIOD) {
                if stopped.is_none() {
                    stopped =
                        Python::attach(|py| py.check_signals().and_then(|()| report(py))).err();
                    control.cancel.store(stopped.is_some(), Ordering::Relaxed);
                }
            }
            (worker.join(), stopped)
        })
    });
    match (
        ended.map_err(|panic| internal_error(py, panic.as_ref()))?,
        stopped.take(),
    ) {
        (Ok(result), stopped) => Ok(Outcome {
            result,
            stopped: stopped.or_else(|| report(py).err()),
        }),
        (Err(error), None) => Err(exception(py, &error)),
        // the crate's error says what is left of a run that was ended
        (Err(error), Some(stop)) => {
            stop.set_cause(py, Some(exception(py, &error)));
            Err(stop)
        }
    }
}

/// Runs `work` on this thread alone, with the GIL released.
///
/// # Errors
/// Returns an `InternalError` if `work` panics.
fn run_here<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let caught = || panic::catch_unwind(AssertUnwindSafe(work));
    let ended = py.detach(|| {
        if rayon::current_thread_index().is_some() {
            return caught();
        }
        let pool = || {
            let is_early = OWN_POOLS.fetch_add(1, Ordering::Relaxed) < MOST_OWN_POOLS;
            let build = || {
                ThreadPoolBuilder::new()
                    .num_threads(1)
                    .use_current_thread()
                    .build()
                    .ok()
            };
            is_early.then(build).flatten().map(ManuallyDrop::new)
        };
        HERE.with(|here| match here.get_or_init(pool) {
            Some(pool) => pool.install(caught),
            None => caught(),
        })
    });
    ended.map_err(|panic| internal_error(py, panic.as_ref()))
}

/// Runs `work` as [`run`] does, where nothing is lost if an exception on the caller's thread ends it.
///
/// # Errors
/// Those of [`run`], and the exception that ended it.
pub fn run_or_raise<T: Send>(
    py: Python<'_>,
    watch: Watch,
    work: impl FnOnce(&Control) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let Outcome { result, stopped } = run(py, watch, work)?;
    stopped.map_or(Ok(result), Err)
}

/// Returns the `InternalError` of a panic.
fn internal_error(py: Python<'_>, panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let message = format!(
        "a fault of popfit: {text}. Please report it, with what popfit.show_versions() prints"
    );
    of_class(py, "InternalError", message, |_| Ok(()))
}

/// Progress, timeout and threads of a run, as Python gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct GivenWatch {
    progress: Option<Py<PyAny>>,
    /// Seconds.
    timeout: Option<f64>,
    threads: usize,
}

impl GivenWatch {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Returns an `InputError` if the time is negative or not a number, or if there are no threads.
    pub fn check(self, py: Python<'_>) -> PyResult<Watch> {
        let GivenWatch {
            progress,
            timeout,
            threads,
        } = self;
        if threads == 0 {
            return Err(input_error(py, "threads", "threads: 0; give 1 or more"));
        }
        let timeout = timeout.map(Duration::try_from_secs_f64).transpose();
        let timeout =
            timeout.map_err(|error| input_error(py, "timeout", format!("timeout: {error}")))?;
        Ok(Watch {
            progress,
            timeout,
            threads: Some(threads),
            ..Watch::default()
        })
    }
}
