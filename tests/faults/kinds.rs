//! Kinds of faults, after SQLite's: which operations they meet, whether they last, and what the system says.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use popfit::low_level::faults::{Installed, Operation, install};

pub struct Kind {
    pub name: &'static str,
    /// Selects the operations that may fail.
    meets: fn(Operation) -> bool,
    /// From the k-th operation on, not only the k-th.
    pub lasts: bool,
    /// Error code of the system; `None`: the run is interrupted instead.
    pub code: Option<i32>,
}

const IO: i32 = 5;
const FULL: i32 = 28;
const TOO_MANY_OPEN: i32 = 24;
const TRY_AGAIN: i32 = 4;

fn any(operation: Operation) -> bool {
    operation != Operation::Allocate
}

fn grows(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Create | Operation::Write | Operation::Sync | Operation::Link
    )
}

fn opens(operation: Operation) -> bool {
    matches!(operation, Operation::Open | Operation::Create)
}

fn moves(operation: Operation) -> bool {
    matches!(operation, Operation::Read | Operation::Write)
}

fn allocates(operation: Operation) -> bool {
    operation == Operation::Allocate
}

pub const KINDS: [Kind; 9] = [
    Kind {
        name: "an error",
        meets: any,
        lasts: false,
        code: Some(IO),
    },
    Kind {
        name: "errors from then on",
        meets: any,
        lasts: true,
        code: Some(IO),
    },
    Kind {
        name: "disk full",
        meets: grows,
        lasts: true,
        code: Some(FULL),
    },
    Kind {
        name: "cannot open",
        meets: opens,
        lasts: false,
        code: Some(TOO_MANY_OPEN),
    },
    Kind {
        name: "can open nothing more",
        meets: opens,
        lasts: true,
        code: Some(TOO_MANY_OPEN),
    },
    Kind {
        name: "try again",
        meets: moves,
        lasts: false,
        code: Some(TRY_AGAIN),
    },
    Kind {
        name: "interrupt",
        meets: any,
        lasts: false,
        code: None,
    },
    Kind {
        name: "no memory",
        meets: allocates,
        lasts: false,
        code: Some(IO),
    },
    Kind {
        name: "no memory from then on",
        meets: allocates,
        lasts: true,
        code: Some(IO),
    },
];

/// Record of a hook.
#[derive(Default)]
pub struct Seen {
    calls: u64,
    /// The operation that was the k-th.
    pub hit: Option<Operation>,
    /// Files that could not be removed.
    pub kept: usize,
}

impl Kind {
    /// A hook that lets the k-th operation fail, or sets `cancel` there.
    pub fn arm(&self, k: u64, cancel: &Arc<AtomicBool>) -> (Installed, Arc<Mutex<Seen>>) {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (log, cancel, meets, lasts, code) = (
            seen.clone(),
            cancel.clone(),
            self.meets,
            self.lasts,
            self.code,
        );
        let hook = move |operation: Operation| {
            if !meets(operation) {
                return None;
            }
            let mut seen = log.lock().unwrap();
            seen.calls += 1;
            if seen.calls < k || (seen.calls > k && !lasts) {
                return None;
            }
            seen.hit.get_or_insert(operation);
            let Some(code) = code else {
                cancel.store(true, Ordering::Relaxed);
                return None;
            };
            seen.kept += usize::from(operation == Operation::Remove);
            Some(io::Error::from_raw_os_error(code))
        };
        (install(Box::new(hook)), seen)
    }
}

/// Nothing fails, and no other test's hook is in place.
pub fn calm() -> Installed {
    install(Box::new(|_| None))
}
