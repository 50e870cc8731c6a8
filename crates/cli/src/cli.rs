//! The commands of this library as one piece of a grammar, and the global options.

use crate::commands::{bench, brick, client, config, demo, doctor, events, mount, peer, support, volume};
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use std::path::PathBuf;

/// What every command takes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of all commands")]
pub struct Global {
    /// The server to ask: any of the pool, the first of several that answers. Unless given: as MORTAR_SERVER says, as the
    /// context in ~/.config/mortar/config.toml, or the one that runs on this machine, by its local socket.
    #[arg(long, global = true, value_name = "HOST[:PORT],...")]
    pub server: Option<String>,
    /// The pool to ask, by its name in ~/.config/mortar/config.toml.
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "server")]
    pub context: Option<String>,
    /// The key file to show to the server. Unless given: as MORTAR_KEY says, or ~/.config/mortar/key if it is there. Root needs
    /// none on a machine where a server of the pool runs.
    #[arg(long = "key", global = true, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Print one JSON document instead of a table.
    #[arg(long, global = true)]
    pub json: bool,
    /// Do not ask before something is taken away.
    #[arg(long, global = true)]
    pub yes: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    #[command(subcommand)]
    Peer(peer::Peer),
    #[command(subcommand)]
    Volume(volume::Volume),
    #[command(subcommand)]
    Client(client::Client),
    #[command(subcommand)]
    Config(config::Config),
    Mount(mount::MountCommand),
    #[command(subcommand)]
    Brick(brick::BrickCommand),
    Events(events::Events),
    Doctor(doctor::Doctor),
    #[command(subcommand)]
    Support(support::Support),
    Demo(demo::Demo),
    Bench(bench::Bench),
}

/// One of the commands of this library, as a part of the program's grammar.
#[derive(Debug)]
pub struct Commands(Command);

impl FromArgMatches for Commands {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Commands, clap::Error> {
        Command::from_arg_matches(matches).map(Commands)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Subcommand for Commands {
    fn augment_subcommands(grammar: clap::Command) -> clap::Command {
        Command::augment_subcommands(grammar)
    }

    fn augment_subcommands_for_update(grammar: clap::Command) -> clap::Command {
        Command::augment_subcommands_for_update(grammar)
    }

    fn has_subcommand(name: &str) -> bool {
        Command::has_subcommand(name)
    }
}

impl Commands {
    /// Does what the command says.
    ///
    /// # Errors
    /// One line that names the object, the reason and what to do.
    pub fn run(self, global: &Global) -> anyhow::Result<()> {
        match self.0 {
            Command::Peer(c) => c.run(global),
            Command::Volume(c) => c.run(global),
            Command::Client(c) => c.run(global),
            Command::Config(c) => c.run(global),
            Command::Mount(c) => c.run(global.key_file.as_deref()),
            Command::Brick(c) => c.run(global),
            Command::Events(c) => c.run(global),
            Command::Doctor(c) => c.run(global),
            Command::Support(c) => c.run(global),
            Command::Demo(c) => c.run(),
            Command::Bench(c) => c.run(global),
        }
    }
}
