//! `popfit completions` and `popfit man`, made from the command line's own description.

use std::path::PathBuf;

use clap_complete::Shell;
use popfit::{Error, OutputFile};

use super::Failure;
use super::stdout::line;

#[derive(clap::Args)]
pub struct Arguments {
    /// bash, elvish, fish, powershell or zsh
    shell: Shell,
}

#[derive(clap::Args)]
pub struct ManArguments {
    /// The folder for popfit.1 and one page per command
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Replace pages that exist
    #[arg(long)]
    overwrite: bool,
}

/// Sections that every manual page ends with, in roff.
const COMMON: &str = r#".SH "EXIT STATUS"
.TP
\fB0\fR
Success; of \fBpopfit fit\fR: every spectrum has a row, and at least one fit converged.
.TP
\fB1\fR
The run failed or was interrupted, or two tables differ.
.TP
\fB2\fR
The usage, a file or the model is wrong; nothing was written.
.TP
\fB3\fR
The run came to its end, but no fit converged, or no spectrum was selected.
.SH ENVIRONMENT
.TP
\fBRAYON_NUM_THREADS\fR
The number of threads of the CPU.
.TP
\fBPOPFIT_VISIBLE_DEVICES\fR
The GPU adapters that popfit sees: numbers, places on the PCI bus and parts of names, separated by commas.
.TP
\fBPOPFIT_GPU_TILES\fR, \fBPOPFIT_GPU_FUSION\fR
Kernels of GPUs, which popfit otherwise chooses by the adapter.
.SH FILES
.TP
\fB.\fIOUT\fB.journal\fR
Beside the table \fIOUT\fR while \fBpopfit fit\fR runs, and after it was stopped: the rows that \fB\-\-resume\fR does not
fit again.
.TP
\fBpopfit/\fR
In the user's folder for caches: compiled kernels of GPUs.
"#;

/// Prints the script that lets a shell complete the options of the command `popfit`.
pub fn run(arguments: &Arguments, mut command: clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "popfit", &mut script);
    line(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}

/// Writes the manual pages of `popfit` and its subcommands into a folder, and prints how many.
pub fn write_man(arguments: &ManArguments, mut command: clap::Command) -> Result<(), Failure> {
    let folder = &arguments.folder;
    std::fs::create_dir_all(folder).map_err(|source| Error::Io {
        path: folder.clone(),
        source,
    })?;
    command.build();
    let mut pages = Vec::new();
    collect("popfit".into(), &command, &mut pages);
    for (name, page) in &pages {
        let mut text = Vec::new();
        let path = folder.join(format!("{name}.1"));
        let version = concat!("popfit ", env!("CARGO_PKG_VERSION"));
        let rendered = clap_mangen::Man::new(page.clone())
            .title(name.to_uppercase())
            .source(version)
            .render(&mut text);
        rendered.map_err(|source| Error::Io {
            path: path.clone(),
            source,
        })?;
        text.extend_from_slice(COMMON.as_bytes());
        OutputFile::create(path, arguments.overwrite)?.write(text)?;
    }
    line(format_args!(
        "wrote {} pages in {}",
        pages.len(),
        folder.display()
    ));
    Ok(())
}

/// Appends a command and all its subcommands to `pages`, with names such as `popfit-fit`, subcommands first.
fn collect(name: String, command: &clap::Command, pages: &mut Vec<(String, clap::Command)>) {
    for below in command
        .get_subcommands()
        .filter(|below| below.get_name() != "help")
    {
        collect(format!("{name}-{}", below.get_name()), below, pages);
    }
    pages.push((name, command.clone()));
}
