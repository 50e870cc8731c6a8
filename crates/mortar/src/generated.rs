//! What is made of the grammar: completions of shells, manual pages, the reference of the documentation.
//!
//! Nothing of it is in the repository, so it cannot lag behind the commands.

use crate::grammar::grammar;
use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use cli::output;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Print what a shell needs to complete the words of this program.
///
/// The packages install it for bash, zsh and fish.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar completions bash > /etc/bash_completion.d/mortar")]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut grammar(), "mortar", &mut script);
        output::line(String::from_utf8_lossy(&script).trim_end())
    }
}

/// Write the manual pages into a directory, or with --reference the reference of commands, options and errors in Markdown.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar manual /usr/local/share/man/man1")]
pub(crate) struct Manual {
    /// Where to: made if it is not there.
    dir: PathBuf,
    /// Pages in Markdown instead: commands.md, options.md and errors.md.
    #[arg(long)]
    reference: bool,
}

impl Manual {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Manual { dir, reference } = self;
        fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        let mut grammar = grammar().disable_help_subcommand(true);
        grammar.build();
        if reference {
            let mut text = "# Commands\n\nMade of the program's grammar by `make docs`.\n".to_owned();
            describe(&grammar, &mut text);
            write(&dir, "commands.md", text.as_bytes())?;
            write(&dir, "errors.md", errors().as_bytes())?;
            return write(&dir, "options.md", options().as_bytes());
        }
        pages(&grammar, "mortar", &dir)
    }
}

fn write(dir: &Path, name: &str, content: &[u8]) -> anyhow::Result<()> {
    let file = dir.join(name);
    fs::write(&file, content).with_context(|| format!("write {}", file.display()))
}

/// The table of the options of volumes.
fn options() -> String {
    let mut text = "# Options of volumes\n\nSet with `mortar volume set VOL KEY VALUE`, shown by `mortar volume get VOL`.\n\n\
                    | option | default | values | what it does |\n|---|---|---|---|\n"
        .to_owned();
    for [key, default, values, help] in daemon::volume_options() {
        let cells = [format!("`{key}`"), format!("`{default}`"), values, help];
        let cells = cells.map(|c| c.replace('|', "\\|").replace("``", ""));
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

/// The table of error codes, and exit codes.
fn errors() -> String {
    let mut text = "# Errors\n\nA command that fails prints one line on stderr, which names the object, the reason and what to do. \
                    With `--json` it is a document: `{\"error\": {\"code\", \"message\", \"remedy\"}}`. \
                    The exit code is 0 for what is done, 1 for what was refused or failed, and 2 for words that are no command.\n\n\
                    | code | what it means |\n|---|---|\n"
        .to_owned();
    for (code, meaning) in daemon::error_codes() {
        text.push_str(&format!("| `{code}` | {meaning} |\n"));
    }
    text.push_str("| `usage` | The words are no command; exit code 2 |\n");
    text
}

/// Commands beneath this one that people use.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help")
}

/// A page for a command and each beneath it: mortar-volume-create.1.
fn pages(command: &Command, name: &str, dir: &Path) -> anyhow::Result<()> {
    let mut page = Vec::new();
    let versioned = command.clone().version(env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(versioned).title(name).manual("Mortar").render(&mut page)?;
    write(dir, &format!("{name}.1"), &page)?;
    shown(command).try_for_each(|c| pages(c, &format!("{name}-{}", c.get_name()), dir))
}

/// The help of each command that does something, in the order of the grammar.
fn describe(command: &Command, text: &mut String) {
    let mut beneath = shown(command).peekable();
    if beneath.peek().is_none() {
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
        let help = command.clone().render_long_help().to_string();
        let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
        // Writing into a String does not fail.
        let _ = write!(text, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n"));
    }
    beneath.for_each(|c| describe(c, text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_a_description() {
        let dir = std::env::temp_dir().join(format!("mortar-manual-{}", std::process::id()));
        Manual { dir: dir.clone(), reference: false }.run().unwrap();
        Manual { dir: dir.clone(), reference: true }.run().unwrap();
        let page = fs::read_to_string(dir.join("mortar-volume-create.1")).unwrap();
        assert!(page.contains("replica") && page.contains("Example"), "{page}");
        let reference = fs::read_to_string(dir.join("commands.md")).unwrap();
        for command in ["mortar server", "mortar volume create", "mortar config diff", "mortar mount"] {
            assert!(reference.contains(&format!("\n## {command}\n")), "{command}");
            assert!(dir.join(format!("{}.1", command.replace(' ', "-"))).exists(), "{command}");
        }
        let options = fs::read_to_string(dir.join("options.md")).unwrap();
        assert!(
            options.contains("\n| `network.ping-timeout` | `3s` | a duration from 1s to 60s | "),
            "{options}"
        );
        let errors = fs::read_to_string(dir.join("errors.md")).unwrap();
        assert!(errors.contains("\n| `not-found` | ") && errors.contains("\n| `usage` | "), "{errors}");
        fs::remove_dir_all(&dir).unwrap();
    }
}
