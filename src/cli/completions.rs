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

/// Prints the script.
pub fn run(arguments: &Arguments, mut command: clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "popfit", &mut script);
    line(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}

/// Writes the pages.
pub fn write_man(arguments: &ManArguments, mut command: clap::Command) -> Result<(), Failure> {
    let folder = &arguments.folder;
    std::fs::create_dir_all(folder).map_err(|source| Error::Io { path: folder.clone(), source })?;
    command.build();
    let commands = command.get_subcommands().filter(|one| one.get_name() != "help");
    let pages: Vec<clap::Command> = std::iter::once(command.clone()).chain(commands.cloned()).collect();
    for page in pages {
        let name = match page.get_name() {
            "popfit" => "popfit".to_string(),
            command => format!("popfit-{command}"),
        };
        let mut text = Vec::new();
        let path = folder.join(format!("{name}.1"));
        let rendered = clap_mangen::Man::new(page).title(name.to_uppercase()).render(&mut text);
        rendered.map_err(|source| Error::Io { path: path.clone(), source })?;
        OutputFile::create(path, arguments.overwrite)?.write(text)?;
    }
    Ok(())
}
