//! The grammar's top: global options and the list of commands.

use crate::commands::{bench, brick, config, demo, mount, peer, pool, server, volume};
use clap::{Args, Parser, Subcommand};

/// A distributed file system on plain directories.
///
/// Start a server on each machine (mortar server), join them (mortar peer probe), make a volume of directories
/// (mortar volume create, start) and mount it (mortar mount). `mortar demo` shows all of it on this machine.
#[derive(Parser, Debug)]
#[command(name = "mortar", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// The server to ask: any of the pool.
    #[arg(long, global = true, value_name = "HOST[:PORT]", default_value = "127.0.0.1")]
    pub(crate) server: String,
    /// Print one JSON document instead of a table.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Do not ask before something is taken away.
    #[arg(long, global = true)]
    pub(crate) yes: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    Server(server::ServerCommand),
    #[command(subcommand)]
    Peer(peer::Peer),
    #[command(subcommand)]
    Pool(pool::Pool),
    #[command(subcommand)]
    Volume(volume::Volume),
    #[command(subcommand)]
    Config(config::Config),
    Mount(mount::MountCommand),
    #[command(subcommand)]
    Brick(brick::BrickCommand),
    Demo(demo::Demo),
    Bench(bench::Bench),
}

/// Reads the command line and does what it says. Wrong words end the process with 2 here.
pub(crate) fn run() -> anyhow::Result<()> {
    Cli::parse().run()
}

/// The same, of these words.
pub(crate) fn run_words(words: Vec<std::ffi::OsString>) -> anyhow::Result<()> {
    Cli::parse_from(words).run()
}

impl Cli {
    fn run(self) -> anyhow::Result<()> {
        let Cli { global, command } = self;
        match command {
            Command::Server(c) => c.run(),
            Command::Peer(c) => c.run(&global),
            Command::Pool(c) => c.run(&global),
            Command::Volume(c) => c.run(&global),
            Command::Config(c) => c.run(&global),
            Command::Mount(c) => c.run(),
            Command::Brick(c) => c.run(&global),
            Command::Demo(c) => c.run(),
            Command::Bench(c) => c.run(&global),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }

    /// The words of the contract, which users have in scripts.
    #[test]
    fn the_contract_is_kept() {
        let accepted = [
            "server --state /s --address h:1 --admin h:2 --log f --log-level debug",
            "--server h:1 peer probe h2:24240",
            "peer detach h --force",
            "peer replace h",
            "peer replace h --by h2:24240 --yes",
            "peer status --json",
            "pool list",
            "pool recover --state /s --yes",
            "volume create v h:/a",
            "volume create v replica 3 arbiter 1 h1:/a h2:/a h3:/a --force",
            "volume start v",
            "volume stop v --yes",
            "volume delete v",
            "volume info",
            "volume info v",
            "volume status v",
            "volume list",
            "volume set v a.b 1 c.d 2",
            "volume get v",
            "volume get v a.b",
            "volume reset v",
            "volume reset v a.b",
            "config export",
            "config apply f --dry-run",
            "volume heal v",
            "volume heal v info",
            "mount h1,h2:/v/sub /mnt -o ro,noatime --foreground",
            "brick check /b --repair",
            "demo --dir /d --servers 2 --seconds 3",
            "bench /d --phase mkdir --phase ls --count 5",
        ];
        for line in accepted {
            let words = std::iter::once("mortar").chain(line.split(' '));
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
        for line in
            ["", "peer", "volume", "volume create v", "volume heal v now", "volume set v a.b", "peer probe"]
        {
            let words = std::iter::once("mortar").chain(line.split(' ').filter(|w| !w.is_empty()));
            assert!(Cli::try_parse_from(words).is_err(), "{line}");
        }
    }
}
