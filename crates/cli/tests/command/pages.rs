//! Pages of the book, and the README, show what the command prints and what the folder `docs/examples` holds.

use std::fs;
use std::path::Path;

use popfit::FitTable;
use popfit_testing::{message, root};

use crate::popfit_in;

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the blocks of code of a page that have this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("```{language}\n");
    let parts = page.split(&opening).skip(1);
    parts
        .map(|part| part.split("\n```").next().unwrap())
        .collect()
}

/// Returns the commands that a page runs, without `popfit`, and what it shows of their output.
fn commands(page: &str) -> Vec<(&str, &str)> {
    let text = blocks(page, "text").into_iter();
    text.filter_map(|block| block.strip_prefix("$ popfit ")?.split_once('\n'))
        .collect()
}

/// Runs the command and returns what it has printed, without the lines of graphics drivers.
fn printed(folder: &Path, arguments: &str) -> String {
    let output = popfit_in(folder, &arguments.split_whitespace().collect::<Vec<_>>());
    assert!(
        output.status.success(),
        "popfit {arguments}: {}",
        message(&output)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &message(&output);
    text.lines()
        .filter(|line| !line.contains("XDG_RUNTIME_DIR"))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Returns the part of a line that does not depend on the machine's speed and memory.
fn lasting(line: &str) -> String {
    if line.contains("spectra/s") || line.contains("threads)") {
        return line.split(';').next().unwrap().into();
    }
    if line.contains("MiB") {
        return line.replace(|character: char| character.is_ascii_digit(), "");
    }
    line.into()
}

/// Compares numbers that processors with other vector instructions may round in another way: by 10⁻⁵ of the number, one
/// unit in the last place that the page shows, or `tolerance`.
fn agree(shown: &str, found: &str, tolerance: f64) -> bool {
    let [Ok(a), Ok(b)] = [shown, found].map(str::parse::<f64>) else {
        return shown == found;
    };
    let places = shown.split_once('.').map_or(0, |(_, digits)| digits.len());
    let unit = if shown.contains('e') {
        1e-8
    } else {
        0.1_f64.powi(i32::try_from(places).unwrap())
    };
    let limit = if places == 0 {
        0.0
    } else {
        (1e-5 * a.abs()).max(1.01 * unit).max(tolerance)
    };
    (a - b).abs() <= limit
}

fn lines_agree(shown: &str, found: &str, tolerance: f64) -> bool {
    let [shown, found] = [shown, found].map(lasting);
    let (shown, found) = (shown.split_whitespace(), found.split_whitespace());
    shown.clone().count() == found.clone().count()
        && shown.zip(found).all(|(a, b)| agree(a, b, tolerance))
}

/// Compares what a page shows with what was printed. A line of three dots stands for any number of lines.
#[track_caller]
fn assert_shown(shown: &str, printed: &str, tolerance: f64) {
    let mut found = printed.lines().peekable();
    let mut skips = false;
    // Only Linux reports the memory of a process.
    let is_printed_here = |line: &&str| cfg!(target_os = "linux") || !line.contains("MiB");
    for line in shown.lines().filter(is_printed_here) {
        if ["...", "…"].contains(&line.trim()) {
            skips = true;
            continue;
        }
        if skips {
            while found
                .next_if(|found| !lines_agree(line, found, tolerance))
                .is_some()
            {}
        }
        let next = found.next().unwrap_or("nothing");
        assert!(
            lines_agree(line, next, tolerance),
            "the page has\n{line}\npopfit prints\n{next}\nof\n{printed}"
        );
        skips = false;
    }
    assert!(
        skips || found.next().is_none(),
        "the page ends before popfit does:\n{printed}"
    );
}

#[test]
fn a_first_fit_prints_what_its_page_shows() {
    let folder = tempfile::tempdir().unwrap();
    let text = page("docs/src/first-fit.md");
    let commands = commands(&text);
    assert_eq!(commands.len(), 7);
    for (command, shown) in commands {
        // numbers that are differences count up to the accuracy that is aimed for
        let tolerance = if command.starts_with("compare") {
            0.02
        } else {
            0.0
        };
        let printed = printed(folder.path(), command);
        if command.starts_with("demo") {
            let readme = page("README.md");
            let table = blocks(&readme, "text")
                .into_iter()
                .find(|block| block.starts_with("parameter"))
                .unwrap();
            assert_shown(&format!("{table}\n..."), &printed, 0.0);
            assert_shown(&format!("{shown}\n..."), &printed, 0.0);
        } else {
            assert_shown(shown, &printed, tolerance);
        }
    }

    // the lines that pandas prints
    let (table, _) = FitTable::read(folder.path().join("first-fit.parquet")).unwrap();
    let shown = blocks(&text, "text")
        .into_iter()
        .find(|block| block.trim_start().starts_with("id  velocity"))
        .unwrap();
    let mut printed = format!("{}\n", shown.lines().next().unwrap());
    for (row, id) in table.ids().iter().take(3).enumerate() {
        printed += &format!("{id} {id}");
        for name in ["velocity", "teff"] {
            printed += &format!(
                " {:.3} {:.3}",
                table.floats(name).unwrap()[row],
                table.errors(name).unwrap()[row]
            );
        }
        printed += "\n";
    }
    assert_shown(shown, &printed, 0.0);
}

#[test]
fn the_tutorial_prints_what_its_page_shows() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "b.safetensors",
        "r.safetensors",
        "z.safetensors",
        "coadd-synth-505.fits.gz",
    ] {
        fs::copy(
            root().join("tests/data/desi").join(name),
            folder.path().join(name),
        )
        .unwrap();
    }
    let text = page("docs/src/desi.md");
    for model in blocks(&text, "toml") {
        let name = model
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("# "))
            .unwrap();
        fs::write(folder.path().join(name), model).unwrap();
    }
    let commands = commands(&text);
    assert_eq!(commands.len(), 2);
    for (command, shown) in commands {
        assert_shown(shown, &printed(folder.path(), command), 0.0);
    }
    // what the page says of flags and of feh
    let (table, _) = FitTable::read(folder.path().join("desi.parquet")).unwrap();
    let flags: Vec<u32> = table
        .flags()
        .iter()
        .map(|flags| flags.bits())
        .filter(|bits| *bits != 0)
        .collect();
    assert_eq!(flags, [4096, 4096, 4096, 144, 4096]);
}

#[test]
fn the_page_on_networks_has_the_converters() {
    let text = page("docs/src/network.md");
    let shown = blocks(&text, "python");
    let names = ["to_log_grid.py", "from_numpy.py", "from_pytorch.py"];
    assert_eq!(shown.len(), names.len());
    for (shown, name) in shown.iter().zip(names) {
        assert!(
            *shown == page(&format!("docs/examples/{name}")).trim_end(),
            "docs/examples/{name} is another"
        );
    }
}

#[test]
fn pages_are_not_taken_for_right() {
    assert!(lines_agree(
        "teff 8174.930 ± 14.314",
        "teff  8174.940 ± 14.313",
        0.0
    ));
    assert!(lines_agree(
        "64 spectra: 64 converged; 0.24 s, 266.0 spectra/s",
        "64 spectra: 64 converged; 1 s, 9 spectra/s",
        0.0
    ));
    for (shown, found) in [
        ("8174.930", "8175.930"),
        ("64 spectra", "63 spectra"),
        ("0.10", "0.13"),
        ("a b", "a"),
    ] {
        assert!(!lines_agree(shown, found, 0.0), "{shown} {found}");
    }
}
