//! The directory that a key is for: looked up through the volume, as any client would, when the key is made.

use super::Control;
use super::answers::{conflict, failed, not_found};
use admin::{AdminError, ErrorCode};
use client::{Client, GivenKey, Key, Object, Options};
use cluster::KeySubdir;
use std::time::Duration;
use wire::{Errno, Name};

/// The volume answers within this time, or the key is not made.
const CALL_LIMIT: Duration = Duration::from_secs(10);

impl Control {
    /// The directory at a path from the volume's top.
    pub(super) async fn subdir_of(&self, volume: &str, path: String) -> Result<KeySubdir, AdminError> {
        // This server may get another key meanwhile.
        let shared = self.shared.clone();
        let another = move |_| shared.dials().ok().flatten();
        let key = self.shared.dials().map_err(failed)?;
        let key = key.map(|first| Key::Given(GivenKey::new(first, another)));
        let options = Options { soft: Some(CALL_LIMIT), key, ..Options::default() };
        let (address, volume) = (self.address.clone(), volume.to_owned());
        let look = move || {
            let client = Client::connect(&[address], &volume, options);
            let client =
                client.map_err(|e| conflict(format!("volume {volume} cannot be asked for {path}: {e}")))?;
            find(&client, &volume, path)
        };
        tokio::task::spawn_blocking(look).await.map_err(failed)?
    }
}

/// The names on a path, none of which leads up.
fn names(path: &str) -> Option<Vec<Name>> {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let names: Option<Vec<Name>> = parts.map(|part| Name::new(part.as_bytes()).ok()).collect();
    names.filter(|names| !names.is_empty())
}

fn find(client: &Client, volume: &str, path: String) -> Result<KeySubdir, AdminError> {
    let Some(names) = names(&path) else {
        let why = "write the path of a directory from the volume's top, such as /projects/web, without '..'; for all of \
                   the volume leave --subdir out";
        return Err(AdminError::new(ErrorCode::Invalid, format!("a key cannot be for {path}: {why}")));
    };
    let mut at = client.root();
    let mut shown = String::new();
    for name in names {
        shown.push('/');
        shown.push_str(&name.to_string());
        let found = client.lookup(at, &name);
        match found {
            Ok(attr) if attr.is_dir() => at = Object::from(&attr),
            Ok(_) => return Err(conflict(format!("{shown} on volume {volume} is no directory: name one"))),
            Err(Errno::ENOENT | Errno::ESTALE) => {
                let remedy = "make it through a mount first, and then the key";
                return Err(not_found(format!("there is no {shown} on volume {volume}: {remedy}")));
            }
            Err(e) => return Err(failed(format!("look up {shown} on volume {volume}: {e}"))),
        }
    }
    let Object { fid, home } = at;
    Ok(KeySubdir { set: fid.set, epoch: fid.epoch, lsn: fid.lsn, home, path: shown })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_down_from_the_top() {
        let of = |path: &str| names(path).map(|n| n.iter().map(Name::to_string).collect::<Vec<_>>());
        assert_eq!(of("/a//b/./c/"), Some(["a", "b", "c"].map(str::to_owned).into()));
        assert_eq!(of("a"), Some(vec!["a".to_owned()]));
        for none in ["", "/", "/.", "/a/../b", "..", "/a\0b"] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }
}
