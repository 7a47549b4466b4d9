//! Leases: while a worker fits a part that it found free, others look for another.
//!
//! A lease only saves work. Two workers that fit one part write the same rows, of which the first to be whole stays.

use std::fs::File;
use std::io::{ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use popfit::{Error, Result};

use super::worker::random_number;

/// Number of heartbeats in the time after which a silent lease may be taken over.
const HEARTBEATS_PER_LIFETIME: u32 = 5;

/// A lease of one part, which ends when it is dropped.
pub(super) struct Lease {
    path: PathBuf,
    /// Dropped to end the heartbeat.
    end: Option<Sender<()>>,
    heartbeat: Option<JoinHandle<()>>,
}

/// How an attempt to take a lease ended.
pub(super) enum Taken {
    /// The part was free.
    Free(Lease),
    /// Its worker had been silent for too long. The text says which worker that was.
    Silent(Lease, String),
    /// Another worker fits it.
    Held,
}

impl Lease {
    /// Takes the lease at `path` for the worker of this name, unless another worker holds it and has given a sign of
    /// life within `lifetime`.
    pub fn take(path: &Path, worker: &str, lifetime: Duration) -> Result<Taken> {
        let io = |source| Error::Io {
            path: path.into(),
            source,
        };
        let mut silent = None;
        // a lease that ends between two looks at it, or is taken over, is looked for again
        for _ in 0..8 {
            match File::create_new(path) {
                Ok(file) => {
                    let lease = Lease::begin(path, file, worker, lifetime).map_err(io)?;
                    return Ok(match silent {
                        None => Taken::Free(lease),
                        Some(former) => Taken::Silent(lease, former),
                    });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io(error)),
            }
            let Ok(before) = std::fs::metadata(path).and_then(|lease| lease.modified()) else {
                continue;
            };
            // its worker beats as often as its own lifetime asks for
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let (former, seconds) = text.trim_end().split_once('\n').unwrap_or((&text, ""));
            let of_former = seconds
                .parse()
                .map_or(Duration::ZERO, Duration::from_secs_f64);
            if !is_older(path, before, lifetime.max(of_former)).map_err(io)? {
                return Ok(Taken::Held);
            }
            // of several that find it silent, the one that can move it away goes on
            let away = path.with_extension(format!("{:016x}-silent", random_number()));
            if std::fs::rename(path, &away).is_ok() {
                silent = Some(former.trim_end().to_string());
                let _ = std::fs::remove_file(&away);
            }
        }
        Ok(Taken::Held)
    }

    /// Writes the worker's name into the new lease, and starts its heartbeat.
    fn begin(
        path: &Path,
        mut file: File,
        worker: &str,
        lifetime: Duration,
    ) -> std::io::Result<Lease> {
        let text = format!("{worker}\n{}\n", lifetime.as_secs_f64());
        file.write_all(text.as_bytes())?;
        let (end, ended) = channel::<()>();
        let period = lifetime / HEARTBEATS_PER_LIFETIME;
        let beat = move || {
            while ended.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                // written anew, it has the time of the file system's clock; a missed beat is made up for by the next
                let _ = file.rewind().and_then(|()| file.write_all(text.as_bytes()));
            }
        };
        let heartbeat = std::thread::Builder::new()
            .name("popfit lease".into())
            .spawn(beat)?;
        Ok(Lease {
            path: path.into(),
            end: Some(end),
            heartbeat: Some(heartbeat),
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(heartbeat) = self.heartbeat.take() {
            let _ = heartbeat.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns whether a file system that gives a new file the time "now" counts `before` as more than `age` ago, or as
/// much to come. The clocks of machines differ; that of the file system is one.
fn is_older(beside: &Path, before: SystemTime, age: Duration) -> std::io::Result<bool> {
    let probe = beside.with_extension(format!("{:016x}-clock", random_number()));
    let written = File::create(&probe).and_then(|mut file| {
        file.write_all(b"now")?;
        file.metadata()?.modified()
    });
    let _ = std::fs::remove_file(&probe);
    let distance = match written?.duration_since(before) {
        Ok(since) => since,
        Err(to_come) => to_come.duration(),
    };
    Ok(distance > age)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_millis(200);

    #[test]
    fn a_held_lease_is_not_taken_and_an_ended_one_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".lease-00000");
        let Taken::Free(lease) = Lease::take(&path, "one", LIFETIME).unwrap() else {
            panic!("it is free");
        };
        // several lifetimes: the heartbeat keeps it
        for _ in 0..10 {
            std::thread::sleep(LIFETIME / 2);
            assert!(matches!(
                Lease::take(&path, "two", LIFETIME).unwrap(),
                Taken::Held
            ));
        }
        drop(lease);
        assert!(matches!(
            Lease::take(&path, "two", LIFETIME).unwrap(),
            Taken::Free(_)
        ));
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            0,
            "nothing stays"
        );
    }

    #[test]
    fn a_silent_lease_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".lease-00000");
        std::fs::write(&path, "one\n").unwrap();
        assert!(matches!(
            Lease::take(&path, "two", LIFETIME).unwrap(),
            Taken::Held
        ));
        std::thread::sleep(2 * LIFETIME);
        match Lease::take(&path, "two", LIFETIME).unwrap() {
            Taken::Silent(_, former) => assert_eq!(former, "one"),
            _ => panic!("nobody holds it"),
        }
    }
}
