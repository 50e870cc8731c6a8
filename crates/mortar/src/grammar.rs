//! The grammar's top: global options and the list of commands.

use crate::generated::{Completions, Manual};
use crate::recover::Recover;
use crate::server::ServerCommand;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use cli::{Commands, Global, PoolKey, PoolList, PoolRotateAuthority, PoolRotateKey, PoolSecure, PoolToken};
use std::ffi::OsString;

/// A distributed file system on plain directories.
///
/// Start a server on each machine (mortar server), join them (mortar peer probe), make a volume of directories
/// (mortar volume create, start) and mount it (mortar mount). `mortar demo` shows all of it on this machine.
#[derive(Parser, Debug)]
#[command(name = "mortar", version)]
pub(crate) struct Mortar {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Server(ServerCommand),
    #[command(subcommand)]
    Pool(Pool),
    #[command(flatten)]
    Other(Commands),
    Completions(Completions),
    #[command(hide = true)]
    Manual(Manual),
}

/// The pool as a whole.
#[derive(Subcommand, Debug)]
enum Pool {
    List(PoolList),
    Secure(PoolSecure),
    Token(PoolToken),
    Key(PoolKey),
    RotateKey(PoolRotateKey),
    RotateAuthority(PoolRotateAuthority),
    Recover(Recover),
}

/// How an answer is shown: the name of the option in matches.
const FORM: &str = "form";
/// Forms that programs read.
const DOCUMENTS: [&str; 2] = ["json", "yaml"];
/// Commands without an answer.
const SILENT: [&str; 6] = ["server", "mount", "completions", "manual", "recover", "demo"];

/// The whole grammar.
pub(crate) fn grammar() -> clap::Command {
    answering(Mortar::command())
}

/// The same grammar, in which each command that has an answer takes `-o`: those that show something have it from [`Commands`].
fn answering(command: clap::Command) -> clap::Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let has_form = command.get_arguments().any(|arg| arg.get_short() == Some('o'));
    if names.is_empty() && !has_form && !SILENT.contains(&command.get_name()) {
        let form = Arg::new(FORM)
            .short('o')
            .long("output")
            .value_name("FORM")
            .value_parser(PossibleValuesParser::new(DOCUMENTS))
            .help("Give the answer as a document for programs");
        return command.arg(form);
    }
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, answering))
}

/// The form that the command in these words was asked for, if it is a document.
fn document(matches: &ArgMatches) -> Option<&'static str> {
    let mut at = matches;
    while let Some((_, sub)) = at.subcommand() {
        at = sub;
    }
    let given = at.try_get_raw(FORM).ok().flatten()?.next_back()?;
    DOCUMENTS.into_iter().find(|form| given == *form)
}

impl Mortar {
    /// What these words mean.
    ///
    /// # Errors
    /// They are no command, or ask for help.
    pub(crate) fn of(words: &[OsString]) -> Result<Mortar, clap::Error> {
        let mut grammar = grammar();
        let matches = grammar.try_get_matches_from_mut(words)?;
        let mut command = Mortar::from_arg_matches(&matches).map_err(|e| e.format(&mut grammar))?;
        let form = document(&matches);
        command.global.json |= form.is_some();
        if form == Some("yaml") {
            cli::output::give_yaml();
        }
        Ok(command)
    }

    /// Whether programs read what we print.
    pub(crate) fn is_json(&self) -> bool {
        self.global.json
    }

    /// Does what the command line says.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Mortar { global, command } = self;
        match command {
            Command::Server(c) => c.run(),
            Command::Pool(Pool::List(c)) => c.run(&global),
            Command::Pool(Pool::Secure(c)) => c.run(&global),
            Command::Pool(Pool::Token(c)) => c.run(&global),
            Command::Pool(Pool::Key(c)) => c.run(&global),
            Command::Pool(Pool::RotateKey(c)) => c.run(&global),
            Command::Pool(Pool::RotateAuthority(c)) => c.run(&global),
            Command::Pool(Pool::Recover(c)) => c.run(&global),
            Command::Other(c) => c.run(&global),
            Command::Completions(c) => c.run(),
            Command::Manual(c) => c.run(),
        }
    }
}

/// Whether words that are no command ask for answers that programs read.
pub(crate) fn asks_for_json(words: &[OsString]) -> bool {
    let words = words.iter().take_while(|word| *word != "--");
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let is_document = |word: &str| DOCUMENTS.contains(&word);
    let alone = |word: &str| {
        let form = word.strip_prefix("--output=").or_else(|| word.strip_prefix("-o"));
        word == "--json" || form.is_some_and(|form| is_document(form.trim_start_matches('=')))
    };
    let two =
        |pair: &[String]| matches!(pair, [o, form] if (o == "-o" || o == "--output") && is_document(form));
    words.iter().any(|word| alone(word)) || words.windows(2).any(two)
}

/// What is wrong with words that are no command, in one line.
pub(crate) fn complaint(e: &clap::Error) -> String {
    let text = e.to_string();
    let first: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let line = first.join(" ");
    line.strip_prefix("error: ").map_or(line.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    #[test]
    fn the_grammar_is_sound() {
        grammar().debug_assert();
    }

    #[test]
    fn whatever_has_an_answer_gives_it_as_a_document() {
        fn commands<'a>(at: &'a clap::Command, out: &mut Vec<&'a clap::Command>) {
            match at.has_subcommands() {
                true => at.get_subcommands().for_each(|sub| commands(sub, out)),
                false => out.push(at),
            }
        }
        let (grammar, mut all) = (grammar(), Vec::new());
        commands(&grammar, &mut all);
        assert!(all.len() > 40);
        for command in all {
            let has_form = command.get_arguments().any(|arg| arg.get_long() == Some("output"));
            assert_ne!(has_form, SILENT.contains(&command.get_name()), "{}", command.get_name());
        }
        let is_json = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            Mortar::of(&words).unwrap().is_json()
        };
        for line in ["mortar volume start v -o json", "mortar volume info -o json", "mortar events -o yaml"] {
            assert!(is_json(line), "{line}");
        }
        for line in ["mortar volume start v", "mortar volume info -o wide", "mortar mount h:/v /m -o ro"] {
            assert!(!is_json(line), "{line}");
        }
    }

    /// The texts of files beneath a folder, by the ends of their names.
    fn texts(folder: &Path, end: &str, out: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                texts(&path, end, out);
            } else if path.to_string_lossy().ends_with(end) {
                out.push((path.clone(), std::fs::read_to_string(path).unwrap()));
            }
        }
    }

    /// What messages, help and documents tell people to type exists.
    #[test]
    fn commands_that_are_recommended_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut all =
            vec![(root.join("README.md"), std::fs::read_to_string(root.join("README.md")).unwrap())];
        texts(&root.join("docs/guide"), ".md", &mut all);
        for of in ["admin", "brick", "cli", "client", "cluster", "daemon", "mortar", "mount", "server-core"] {
            texts(&root.join("crates").join(of).join("src"), ".rs", &mut all);
        }
        let (grammar, mut found) = (grammar(), 0);
        for (path, text) in &all {
            for (quote, rest) in ["`mortar ", "(mortar ", "\"mortar ", "\nmortar "]
                .iter()
                .flat_map(|begin| text.split(begin).skip(1).map(|rest| (*begin, rest)))
            {
                let end = |c: char| !(c.is_ascii_lowercase() || c == '-' || c == ' ');
                let (line, _) = rest.split_once(end).unwrap_or((rest, ""));
                let mut at = &grammar;
                for word in line.split(' ').take_while(|w| !w.is_empty() && !w.starts_with('-')) {
                    if !at.has_subcommands() {
                        break;
                    }
                    at = at.find_subcommand(word).unwrap_or_else(|| {
                        panic!("{}: {quote}{line}: there is no command {word}", path.display())
                    });
                    found += 1;
                }
            }
        }
        assert!(found > 200, "{found} commands were found");
    }

    #[test]
    fn programs_are_told_what_is_wrong_with_their_words() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(asks_for_json(&words("--json volume")) && asks_for_json(&words("x --json")));
        for line in ["x -o json", "x -oyaml", "x --output=json", "x --output yaml"] {
            assert!(asks_for_json(&words(line)), "{line}");
        }
        assert!(!asks_for_json(&words("x -- --json")) && !asks_for_json(&words("x -o wide")));
        let told = |line: &str| {
            let program = std::iter::once(OsString::from("mortar"));
            complaint(&Mortar::try_parse_from(program.chain(words(line))).unwrap_err())
        };
        assert_eq!(told("foo"), "unrecognized subcommand 'foo'");
        assert_eq!(told("volume start"), "the following required arguments were not provided: <VOL>");
    }

    /// The words of the contract, which users have in scripts.
    #[test]
    fn the_contract_is_kept() {
        let accepted = [
            "server --state /s --address h:1 --admin h:2 --metrics 127.0.0.1:9240 --log f --log-level debug",
            "server --state /s --address h --console 0.0.0.0:9443 --console-key f",
            "server --state /s --address h --metrics h:9240 --metrics-tls",
            "server --state /s --address h --metrics h:9240 --metrics-key f",
            "--server h:1 peer probe h2:24240",
            "peer probe h2 --fingerprint ab",
            "server --state /s --address h:1 --invite",
            "peer detach h --force",
            "peer replace h",
            "peer replace h --by h2:24240 --yes",
            "peer status --json",
            "pool list",
            "pool secure --yes",
            "pool token --expires 1h --replace h",
            "pool key ann --out f",
            "client add web --volume v --read-only --expires 90d --out f",
            "client add web --volume v --subdir /p",
            "client add web --volume v --squash 1000:100",
            "client add web --volume v --users ann,1001:100+27",
            "client list --json",
            "client revoke web --yes",
            "client rotate web --after 1h",
            "--key f volume list",
            "server --state /s --address h --join TOKEN@h2:5",
            "pool recover --state /s --yes",
            "volume create v h:/a",
            "volume create v replica 3 arbiter 1 h1:/a h2:/a h3:/a --force",
            "volume start v",
            "volume stop v --yes",
            "volume delete v",
            "volume info",
            "volume info v",
            "volume status v",
            "volume status v clients",
            "volume status v queues",
            "volume profile v start",
            "volume profile v info --interval",
            "volume profile v stop",
            "volume top v",
            "volume top v files --by bytes --once",
            "volume top v directories --seconds 1 --lines 5",
            "volume top v clients --json",
            "events --since 2h --follow --volume v",
            "doctor --json",
            "support bundle /tmp/f",
            "volume status v fds",
            "volume list",
            "volume set v a.b 1 c.d 2",
            "volume get v",
            "volume get v a.b",
            "volume reset v",
            "volume reset v a.b",
            "config export",
            "config diff f",
            "completions bash",
            "config apply f --dry-run",
            "config apply - --keys d --yes",
            "volume heal v",
            "volume heal v info",
            "mount h1,h2:/v/sub /mnt -o ro,noatime --foreground",
            "brick check /b --repair",
            "demo --dir /d --servers 2 --seconds 3",
            "bench /d --phase mkdir --phase ls --count 5",
        ];
        for line in accepted {
            let words = std::iter::once("mortar").chain(line.split(' '));
            assert!(Mortar::try_parse_from(words).is_ok(), "{line}");
        }
        let help = Mortar::try_parse_from(["mortar", "help", "volume", "create"]).unwrap_err();
        assert_eq!(help.kind(), clap::error::ErrorKind::DisplayHelp, "{help}");
        for line in
            ["", "peer", "volume", "volume create v", "volume heal v now", "volume set v a.b", "peer probe"]
        {
            let words = std::iter::once("mortar").chain(line.split(' ').filter(|w| !w.is_empty()));
            assert!(Mortar::try_parse_from(words).is_err(), "{line}");
        }
    }
}
