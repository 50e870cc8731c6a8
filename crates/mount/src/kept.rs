//! What concerns the client stays as it was mounted. A mount tells what that is, so that a remount which wants something else is
//! refused: mount(8) hands over what stands in fstab together with what somebody has written.

use crate::options::Options;
use client::Key;
use std::collections::BTreeMap;
use std::path::Path;

/// The extended attribute of a mount's root that tells it: the kernel lets only root ask for such, and no file of a volume has it.
pub(crate) const ATTRIBUTE: &str = "trusted.mortar.mount";
/// It has two paths at most.
const LONGEST: usize = 16 << 10;

/// Words of `-o`, by what they are about; empty: none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Kept(BTreeMap<String, String>);

/// A word that a remount does not bring about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// It.
    pub word: String,
    /// What it is instead.
    pub kept: String,
}

impl Kept {
    /// What a mount with these options keeps.
    pub(crate) fn of(options: &Options) -> Kept {
        let client = &options.client;
        let soft =
            client.soft.map_or_else(|| "hard".to_owned(), |soft| format!("soft={}", soft.as_secs_f64()));
        let key = match &client.key {
            Some(Key::File(path)) => format!("key={}", path.display()),
            Some(Key::Settings(_) | Key::Given(_)) | None => String::new(),
        };
        let text = |about: &str, value: &Option<String>| {
            value.as_ref().map_or_else(String::new, |value| format!("{about}={value}"))
        };
        let all = [
            ("soft", soft),
            ("network-timeout", format!("network-timeout={}", client.network_timeout.as_secs_f64())),
            ("quorum-wait", format!("quorum-wait={}", client.quorum_wait.as_secs_f64())),
            ("threads", format!("threads={}", options.threads)),
            ("key", key),
            ("fsname", text("fsname", &options.fsname)),
            ("log", text("log", &options.log)),
            ("log-level", text("log-level", &options.log_level)),
        ];
        Kept(all.into_iter().map(|(about, word)| (about.to_owned(), word)).collect())
    }

    /// As the mount tells it.
    pub(crate) fn text(&self) -> Vec<u8> {
        let all: Vec<String> = self.0.iter().map(|(about, word)| format!("{about}:{word}")).collect();
        all.join("\0").into_bytes()
    }

    fn parse(text: &[u8]) -> Kept {
        let parts = text.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let words = parts.filter_map(|part| part.split_once(':').map(|(a, w)| (a.to_owned(), w.to_owned())));
        Kept(words.collect())
    }

    /// What the mount at a directory keeps; `None`: it does not tell, as one of a version before.
    pub(crate) fn at(dir: &Path) -> Option<Kept> {
        let mut text = vec![0; LONGEST];
        let length = rustix::fs::getxattr(dir, ATTRIBUTE, &mut text[..]).ok()?;
        text.get(..length).map(Kept::parse)
    }

    /// The first word among those that were written which is not what the mount keeps.
    pub(crate) fn refuses(&self, wanted: &Options) -> Option<Refused> {
        let words = Kept::of(wanted).0.into_iter().filter(|(about, _)| wanted.named.contains(about.as_str()));
        let mut others = words.filter_map(|(about, word)| {
            let kept = self.0.get(&about).filter(|kept| **kept != word)?;
            Some(Refused { word, kept: kept.clone() })
        });
        others.next()
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Refused { word, kept } = self;
        match word.split_once('=') {
            Some((about, _)) if kept.is_empty() => {
                write!(f, "mount option {word}: it is mounted without {about}")
            }
            _ => write!(f, "mount option {word}: it is mounted with {kept}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &str) -> Options {
        let mut options = Options::default();
        options.apply(words).unwrap();
        options
    }

    #[test]
    fn what_is_written_has_to_be_what_is_there() {
        let mounted = options("soft=20,key=/etc/a key:1,noatime,threads=8");
        let kept = Kept::parse(&Kept::of(&mounted).text());
        assert_eq!(kept, Kept::of(&mounted));
        let refused = |words: &str| kept.refuses(&options(words)).map(|refused| refused.to_string());
        for same in ["", "remount,ro", "remount,soft=20s,atime", "remount,key=/etc/a key:1,threads=8"] {
            assert_eq!(refused(same), None, "{same}");
        }
        for (words, said) in [
            ("remount,soft=5", "mount option soft=5: it is mounted with soft=20"),
            ("remount,soft=20,hard", "mount option hard: it is mounted with soft=20"),
            ("remount,key=/b", "mount option key=/b: it is mounted with key=/etc/a key:1"),
            ("remount,log=/tmp/l", "mount option log=/tmp/l: it is mounted without log"),
            ("quorum-wait=1", "mount option quorum-wait=1: it is mounted with quorum-wait=0"),
        ] {
            assert_eq!(refused(words).as_deref(), Some(said), "{words}");
        }
        // One of another version tells other things.
        assert_eq!(Kept::parse(b"").refuses(&options("soft=5")), None);
        assert_eq!(Kept::parse(b"soft\0threads:threads=8\0\xff").refuses(&options("soft=5,threads=8")), None);
    }
}
