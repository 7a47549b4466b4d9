//! An endless stream of good and bad spectra, and who watches what the process holds meanwhile (Linux).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::demo_file as data;
use crate::memory::read_process_memory;
use popfit::spectra::{SpectraReader, open_reader};
use popfit::{Device, FitRow, ModelFile, Result, Sink, Spectra, SpectralFitter, Status};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(10);
/// Resident memory may grow so much after the first fifth of the time: allocators keep what they had.
const MOST_GROWTH: u64 = 48 << 20;
/// A stream of a file has threads that close theirs a little later.
const MOST_HANDLES: usize = 16;

/// Damage to flux and ivar, and the cause that the row must name. Most spectra are left as they are.
type Fault = (fn(&mut [f64], &mut [f64]), &'static str);

const FAULTS: [Fault; 4] = [
    (|flux, _| flux.fill(f64::NAN), "non_finite_input"),
    (|_, ivar| ivar.fill(-1.0), "bad_weight"),
    (|_, ivar| ivar.fill(0.0), "no_data"),
    (|_, ivar| ivar[5..].fill(0.0), "underdetermined"),
];
/// One in so many spectra gets the first fault, the next one the second, ….
const EVERY: u64 = 11;

fn fault(number: u64) -> Option<&'static Fault> {
    FAULTS.get((number % EVERY) as usize)
}

/// Memory and handles of this process.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Bytes that are resident.
    pub memory: u64,
    pub handles: usize,
}

impl Held {
    pub fn now() -> Held {
        let handles = std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count());
        Held {
            memory: read_process_memory("self", "VmRSS").unwrap_or(0),
            handles,
        }
    }
}

/// The demo's spectra over and over, each time from the file, until the time is over.
struct Endless {
    end: Instant,
    file: Option<Box<dyn SpectraReader>>,
    /// A torn copy of the file, which is no file of spectra: opening it is an error each time.
    torn: PathBuf,
    yielded: u64,
}

impl SpectraReader for Endless {
    fn len(&self) -> u64 {
        u64::MAX
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>> {
        if Instant::now() >= self.end {
            return Ok(None);
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => {
                assert!(open_reader(&self.torn).is_err());
                open_reader(data("spectra.npz"))?
            }
        };
        let Some(mut batch) = file.next_batch(max)? else {
            return self.next_batch(max);
        };
        self.file = Some(file);
        for n in 0..batch.len() {
            if let Some((spoil, _)) = fault(self.yielded) {
                let arm = &mut batch.arms[0];
                let range = n * arm.pixels..(n + 1) * arm.pixels;
                spoil(
                    &mut arm.flux.to_mut()[range.clone()],
                    &mut arm.ivar.to_mut()[range],
                );
            }
            self.yielded += 1;
        }
        Ok(Some(batch))
    }

    fn empty(&self) -> Spectra<'static> {
        Spectra::open(data("spectra.npz"))
            .map_or_else(|error| panic!("{error}"), |all| all.slice(0..0))
    }
}

/// Takes the rows, and what the process holds from time to time.
struct Watch {
    begin: Instant,
    /// Time at which growth begins to count.
    warm: Instant,
    looked: Instant,
    rows: u64,
    refused: u64,
    /// The row of each spectrum of the file when it was first fitted.
    first: Vec<Option<FitRow>>,
    base: Option<Held>,
    most: Held,
    faults: Vec<String>,
}

impl Watch {
    fn look(&mut self) {
        let (held, now) = (Held::now(), Instant::now());
        self.looked = now;
        println!(
            "{:6.0} s: {} rows, {} of them refused, {:.1} MiB, {} handles",
            (now - self.begin).as_secs_f64(),
            self.rows,
            self.refused,
            held.memory as f64 / f64::from(1 << 20),
            held.handles
        );
        if now < self.warm {
            return;
        }
        let base = *self.base.get_or_insert(held);
        self.most = Held {
            memory: self.most.memory.max(held.memory),
            handles: self.most.handles.max(held.handles),
        };
        if held.memory > base.memory + MOST_GROWTH {
            self.faults.push(format!(
                "memory grew from {} to {} bytes",
                base.memory, held.memory
            ));
        }
        if held.handles > base.handles + MOST_HANDLES {
            self.faults.push(format!(
                "handles grew from {} to {}",
                base.handles, held.handles
            ));
        }
    }

    fn check(&mut self, row: &FitRow) {
        let expected = fault(self.rows).map(|(_, cause)| *cause);
        let refused = (row.status == Status::BadInput).then_some(row.status_text.as_str());
        if refused != expected {
            self.faults.push(format!(
                "row {}: {:?} instead of {expected:?}",
                self.rows, row.status_text
            ));
        }
        self.refused += u64::from(refused.is_some());
        self.rows += 1;
        let first = &mut self.first[row.row as usize];
        match first {
            _ if refused.is_some() => {}
            None => *first = Some(row.clone()),
            Some(first)
                if first.parameters == row.parameters
                    && first.chi2.to_bits() == row.chi2.to_bits() => {}
            Some(first) => self.faults.push(format!(
                "id {}: {:?}, before {:?}",
                row.id, row.parameters, first.parameters
            )),
        }
    }
}

impl Sink for Watch {
    fn append(&mut self, _: &Spectra, rows: &[FitRow]) -> Result<()> {
        rows.iter().for_each(|row| self.check(row));
        if self.looked.elapsed() >= LOOK {
            self.look();
        }
        Ok(())
    }
}

/// Streams for `time`; what went wrong, in words.
pub fn soak(device: Device, time: Duration) -> Result<Vec<String>> {
    let fitter = SpectralFitter::new(ModelFile::open(data("model.toml"))?.build()?, device);
    let torn = std::env::temp_dir().join(format!("popfit-soak-{}.npz", std::process::id()));
    let whole = std::fs::read(data("spectra.npz")).unwrap_or_default();
    std::fs::write(&torn, &whole[..whole.len() / 2]).map_err(|source| popfit::Error::Io {
        path: torn.clone(),
        source,
    })?;
    let begin = Instant::now();
    let mut source = Endless {
        end: begin + time,
        file: None,
        torn: torn.clone(),
        yielded: 0,
    };
    let count = open_reader(data("spectra.npz"))?.len() as usize;
    let nothing = Held {
        memory: 0,
        handles: 0,
    };
    let mut watch = Watch {
        begin,
        warm: begin + time / 5,
        looked: begin,
        rows: 0,
        refused: 0,
        first: vec![None; count],
        base: None,
        most: nothing,
        faults: Vec::new(),
    };
    println!("{}", fitter.device_name());
    let summary = fitter.fit_stream(&mut source, &mut watch);
    // what cannot be removed harms nobody
    let _ = std::fs::remove_file(&torn);
    let summary = summary?;
    watch.look();
    if (summary.fits, watch.rows) != (source.yielded, source.yielded) || watch.rows == 0 {
        watch.faults.push(format!(
            "{} spectra, {} fits, {} rows",
            source.yielded, summary.fits, watch.rows
        ));
    }
    let base = watch.base.unwrap_or(nothing);
    println!(
        "{} spectra in, {} rows out; from the first fifth to the most: {:.1} to {:.1} MiB, {} to {} handles",
        source.yielded,
        watch.rows,
        base.memory as f64 / f64::from(1 << 20),
        watch.most.memory as f64 / f64::from(1 << 20),
        base.handles,
        watch.most.handles
    );
    Ok(watch.faults)
}
