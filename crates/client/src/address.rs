//! `HOST[:PORT]`, as users write servers.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// The port of a server where none is given.
pub const DEFAULT_PORT: u16 = 24240;

/// `HOST[:PORT]` as `host:port`; IPv6 addresses stand in brackets if a port follows, and may where none does.
///
/// `None` if it is neither.
pub fn normal(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        let host: std::net::Ipv6Addr = host.parse().ok()?;
        let port = if after.is_empty() { DEFAULT_PORT } else { port(after.strip_prefix(':')?)? };
        return Some(format!("[{host}]:{port}"));
    }
    if let Ok(host) = text.parse::<std::net::Ipv6Addr>() {
        return Some(format!("[{host}]:{DEFAULT_PORT}"));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, rest)) => (host, port(rest)?),
        None => (text, DEFAULT_PORT),
    };
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    (!host.is_empty() && host.bytes().all(fine)).then(|| format!("{host}:{port}"))
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|p| *p != 0)
}

/// The socket addresses of `host:port`; asks the system's resolver if the host is a name.
///
/// # Errors
/// What the resolver says.
pub(crate) fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(one) = address.parse() {
        return Ok(vec![one]);
    }
    let all: Vec<_> = address.to_socket_addrs()?.collect();
    if all.is_empty() { Err(io::Error::other("the name has no address")) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_port() {
        let ok = |a: &str, b: &str| assert_eq!(normal(a).as_deref(), Some(b), "{a}");
        ok("h1", "h1:24240");
        ok("127.0.0.11", "127.0.0.11:24240");
        ok("h1:99", "h1:99");
        ok("[::1]", "[::1]:24240");
        ok("[fe80::2]:7", "[fe80::2]:7");
        ok("::1", "[::1]:24240");
        for bad in ["", ":1", "h:", "h:0", "h:70000", "h:1:2", "[::1", "[x]", "[::1]9", "a/b", "a b"] {
            assert_eq!(normal(bad), None, "{bad}");
        }
    }
}
