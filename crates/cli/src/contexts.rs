//! The file in which a person keeps which pools there are: `~/.config/mortar/config.toml`.
//!
//! Nothing of a pool is in it, only where to find it, and with which key. What is given with `--server` or in MORTAR_SERVER is
//! stronger.

use anyhow::{Context, anyhow};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contexts {
    /// Which context counts if none is named.
    #[serde(default)]
    context: Option<String>,
    /// Pools by the names that a person gives them.
    #[serde(default)]
    contexts: BTreeMap<String, PoolContext>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolContext {
    /// Its servers, between commas.
    pub(crate) server: String,
    /// The file of the key to show to them. In the document a relative path is one beside the document.
    #[serde(default)]
    pub(crate) key: Option<PathBuf>,
}

/// The context that is named, or the one that counts. None if there is no file, or none counts.
///
/// # Errors
/// The file cannot be read, or has no such context.
pub(crate) fn pool(named: Option<&str>) -> anyhow::Result<Option<PoolContext>> {
    let Some(file) = of_user("config.toml") else { return none(named) };
    match std::fs::read_to_string(&file) {
        Ok(text) => chosen(&text, named, &file),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => none(named),
        Err(e) => Err(e).with_context(|| file.display().to_string()),
    }
}

fn none(named: Option<&str>) -> anyhow::Result<Option<PoolContext>> {
    match named {
        Some(name) => Err(anyhow!("context {name}: there is no ~/.config/mortar/config.toml: write one")),
        None => Ok(None),
    }
}

/// Where a person keeps a file of that name, in `~/.config/mortar`.
pub(crate) fn of_user(name: &str) -> Option<PathBuf> {
    Some(folder(|key| std::env::var_os(key).map(PathBuf::from))?.join(name))
}

/// That folder, by the variables of the environment.
fn folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let folder = variable("XDG_CONFIG_HOME").filter(|f| f.is_absolute());
    Some(folder.or_else(|| Some(variable("HOME")?.join(".config")))?.join("mortar"))
}

fn chosen(text: &str, named: Option<&str>, file: &Path) -> anyhow::Result<Option<PoolContext>> {
    let at = file.display();
    let read: Contexts = toml::from_str(text).map_err(|e| {
        let before = e.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        anyhow!("{at}: line {}: {}", before.matches('\n').count() + 1, e.message().trim())
    })?;
    let Some(name) = named.or(read.context.as_deref()) else { return Ok(None) };
    match read.contexts.get(name) {
        Some(pool) => {
            let mut pool = pool.clone();
            let beside = |key: PathBuf| file.parent().map_or_else(|| key.clone(), |folder| folder.join(&key));
            pool.key = pool.key.map(beside);
            Ok(Some(pool))
        }
        None => {
            let known: Vec<&str> = read.contexts.keys().map(String::as_str).collect();
            Err(anyhow!("context {name} is not in {at}: it has {}", known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "context = \"home\"\n[contexts.home]\nserver = \"a,b:9\"\n[contexts.work]\nserver = \"w\"\n";

    #[test]
    fn the_context_that_counts_or_is_named() {
        let of = |text, named| {
            let chosen = chosen(text, named, Path::new("config.toml")).map_err(|e| e.to_string());
            chosen.map(|pool| pool.map(|pool| pool.server))
        };
        assert_eq!(of(TEXT, None), Ok(Some("a,b:9".to_owned())));
        assert_eq!(of(TEXT, Some("work")), Ok(Some("w".to_owned())));
        assert_eq!(of("", None), Ok(None));
        let unknown = of(TEXT, Some("moon")).unwrap_err();
        assert_eq!(unknown, "context moon is not in config.toml: it has home, work");
        let misspelt = of("contxt = \"a\"", None).unwrap_err();
        assert!(misspelt.starts_with("config.toml: line 1: unknown field `contxt`"), "{misspelt}");
        let unfinished = of("\n[contexts.a]\nserver = \"a", None).unwrap_err();
        assert!(unfinished.starts_with("config.toml: line 3: "), "{unfinished}");
    }

    #[test]
    fn a_key_of_a_context_lies_beside_the_file() {
        let of = |key: &str| {
            let text = format!("context = \"a\"\n[contexts.a]\nserver = \"a\"\nkey = \"{key}\"\n");
            chosen(&text, None, Path::new("/h/config.toml")).unwrap().unwrap().key.unwrap()
        };
        assert_eq!((of("a.key"), of("/k/a.key")), ("/h/a.key".into(), "/k/a.key".into()));
    }

    #[test]
    fn the_file_is_where_others_are() {
        let of = |xdg: Option<&str>, home: Option<&str>| {
            folder(|key| if key == "HOME" { home } else { xdg }.map(PathBuf::from))
        };
        assert_eq!(of(None, Some("/h")), Some("/h/.config/mortar".into()));
        assert_eq!(of(Some("/x"), Some("/h")), Some("/x/mortar".into()));
        assert_eq!((of(Some("relative"), None), of(None, None)), (None, None));
    }
}
