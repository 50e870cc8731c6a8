//! What is mounted, as users write it: `HOST[:PORT][,HOST...]:/VOL[/SUBDIR]`.

use std::fmt;

/// A volume, or a directory in it, and servers that know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// `host:port` each; at least one.
    pub servers: Vec<String>,
    /// The volume's name.
    pub volume: String,
    /// A directory in the volume, without slashes at its ends; empty for the whole volume.
    pub subdir: String,
}

/// A source that cannot be understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not what can be mounted: {why}; write HOST[:PORT][,HOST...]:/VOL[/SUBDIR]")]
pub struct BadSource {
    text: String,
    why: &'static str,
}

/// Understands a source.
///
/// # Errors
/// One line that says what is wrong and how to write it.
pub fn parse(text: &str) -> Result<Source, BadSource> {
    let bad = |why| BadSource { text: text.to_owned(), why };
    // No host has a slash: the first one begins the volume.
    let (servers, path) = text.split_once('/').ok_or(bad("there is no volume"))?;
    let servers = servers.strip_suffix(':').ok_or(bad("a colon has to stand between host and volume"))?;
    let servers = servers
        .split(',')
        .map(|host| client::address::normal(host).ok_or(bad("a host or port is wrong")))
        .collect::<Result<Vec<_>, _>>()?;
    let (volume, subdir) = path.split_once('/').unwrap_or((path, ""));
    if volume.is_empty() {
        return Err(bad("there is no volume"));
    }
    let parts: Vec<&str> = subdir.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
    if parts.contains(&"..") {
        return Err(bad("the directory must not contain \"..\""));
    }
    Ok(Source { servers, volume: volume.to_owned(), subdir: parts.join("/") })
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:/{}", self.servers.join(","), self.volume)?;
        if self.subdir.is_empty() { Ok(()) } else { write!(f, "/{}", self.subdir) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources() {
        let ok = |text: &str, shown: &str| assert_eq!(parse(text).unwrap().to_string(), shown, "{text}");
        ok("h:/v", "h:24240:/v");
        ok("h1,h2:99:/v/", "h1:24240,h2:99:/v");
        ok("[::1]:/v/a//b/./c/", "[::1]:24240:/v/a/b/c");
        ok("[fe80::1]:9,h:/v", "[fe80::1]:9,h:24240:/v");
        ok("::1:/v", "[::1]:24240:/v");
        ok("h:/v/a:/b", "h:24240:/v/a:/b");
        for bad in ["", "h", "h:", "h:v", "h/v", ":/v", "h:/", "h://v", "h,:/v", "h:/v/../w", "h:0:/v", "/v"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("h:v").unwrap_err().to_string().starts_with("\"h:v\" is not"));
    }
}
