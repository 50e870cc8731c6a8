//! `mortar volume create`.

use crate::ask;
use crate::cli::Global;
use crate::error::usage;
use crate::output::{self, with_notes};
use clap::Args;

/// Make a volume of directories on servers of the pool.
///
/// Bricks are taken in the order given: with `replica 2` each two of them are one set and hold the same data.
/// `replica 3 arbiter 1`: every third brick keeps names and attributes but no data.
/// `stripe 4`: the data of each file that grows large lies on four sets (the option cluster.stripe-count).
/// The directories are made if they are not there. Start the volume afterwards.
///
/// With `--adopt` the first brick is a directory that holds data already. It becomes the volume's where it lies, without
/// being copied: files, directories, links, devices, owners, modes, times, ACLs and attributes stay as they are. Nobody may
/// change it from then on but through a mount. The other directories must be empty; the others of its set get their copies
/// after the volume is started, see `mortar volume heal VOL info`.
#[derive(Args, Debug)]
#[command(
    override_usage = "mortar volume create VOL [replica N [arbiter N]] [stripe N] BRICK... [--adopt] [--force]",
    after_help = "Examples:\n  mortar volume create home replica 2 s1:/data/home s2:/data/home s3:/data/home s1:/data2/home\n  \
                  mortar volume create photos replica 2 s1:/srv/photos s2:/data/photos --adopt"
)]
pub(crate) struct Create {
    /// The volume's name.
    #[arg(value_name = "VOL")]
    name: String,
    /// replica N, arbiter N, stripe N, and the bricks as HOST:/PATH, HOST as it was probed.
    #[arg(value_name = "BRICK", required = true)]
    words: Vec<String>,
    /// Allow two bricks of one set on one server.
    #[arg(long)]
    force: bool,
    /// The first brick holds data, which becomes the volume's where it lies.
    #[arg(long)]
    adopt: bool,
}

impl Create {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let layout = layout(&self.words)?;
        let request = admin::VolumeCreate {
            name: self.name,
            replica: layout.replica,
            arbiter: layout.arbiter,
            stripe: layout.stripe,
            bricks: layout.bricks,
            force: self.force,
            adopt: self.adopt,
        };
        let answer = ask::ask(global, request)?;
        let mut line = format!("volume {0} is created: start it with mortar volume start {0}", answer.name);
        if self.adopt {
            line.push_str("; its data is taken over then, see mortar volume status");
        }
        output::done(global.json, &answer, &with_notes(line, &answer.notes))
    }
}

/// How many bricks form a set, and which.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) replica: Option<u32>,
    pub(super) arbiter: Option<u32>,
    pub(super) stripe: Option<u32>,
    pub(super) bricks: Vec<String>,
}

/// `[replica N [arbiter N]] [stripe N] BRICK...`
pub(super) fn layout(words: &[String]) -> anyhow::Result<Layout> {
    let mut layout = Layout::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let place = match word.as_str() {
            "replica" => &mut layout.replica,
            "arbiter" => &mut layout.arbiter,
            "stripe" => &mut layout.stripe,
            "disperse" | "disperse-data" | "redundancy" => {
                return usage(format!("{word}: there is no erasure coding yet: use replica N"));
            }
            "transport" => return usage("transport: there is only tcp: leave the word out"),
            _ => {
                layout.bricks.push(word.clone());
                continue;
            }
        };
        match rest.next().and_then(|n| n.parse().ok()) {
            Some(n) if place.is_none() && layout.bricks.is_empty() => *place = Some(n),
            _ => {
                return usage(format!(
                    "{word}: write [replica N [arbiter N]] [stripe N] once, before the bricks"
                ));
            }
        }
    }
    if layout.bricks.is_empty() {
        return usage("no brick is given: write HOST:/PATH");
    }
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> anyhow::Result<Layout> {
        layout(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_become_a_layout() {
        let bricks = vec!["a:/x".to_owned(), "b:/x".to_owned()];
        assert_eq!(of("a:/x b:/x").unwrap(), Layout { bricks: bricks.clone(), ..Layout::default() });
        let layout = Layout { replica: Some(3), arbiter: Some(1), stripe: Some(4), bricks };
        assert_eq!(of("replica 3 arbiter 1 stripe 4 a:/x b:/x").unwrap(), layout);
        for wrong in [
            "replica",
            "replica x a:/x",
            "replica 2",
            "a:/x replica 2",
            "stripe a:/x",
            "replica 2 replica 2 a:/x",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        // What users of GlusterFS are used to.
        let told = |line: &str| of(line).unwrap_err().to_string();
        assert!(told("disperse 3 redundancy 1 a:/x").contains("no erasure coding yet"));
        assert!(told("replica 2 transport tcp a:/x b:/x").contains("leave the word out"));
    }
}
