//! `HOST[:PORT]`, as people write servers.

use crate::error::usage;
use std::net::SocketAddrV6;

/// HOST:PORT of what somebody has written for a server, or for `what` it is.
///
/// # Errors
/// Nobody can have that address: exit code 2.
pub fn host_and_port(what: &str, given: &str) -> anyhow::Result<String> {
    let address = transport::with_port(given);
    let (host, port) = address.rsplit_once(':').unwrap_or_default();
    let is_host = match host.starts_with('[') {
        true => address.parse::<SocketAddrV6>().is_ok(),
        false => !host.is_empty() && !host.contains(['/', ' ', ':']),
    };
    if is_host && port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Ok(address);
    }
    usage(format!("{what} {given}: write HOST or HOST:PORT with a port from 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::host_and_port;

    #[test]
    fn a_port_is_added_and_what_cannot_be_is_refused() {
        for (given, wanted) in [
            ("h", "h:24240"),
            ("h:9", "h:9"),
            ("under_score.example:9", "under_score.example:9"),
            ("127.0.0.1", "127.0.0.1:24240"),
            ("fd00::1", "[fd00::1]:24240"),
            ("[fd00::1]", "[fd00::1]:24240"),
            ("[fd00::1]:9", "[fd00::1]:9"),
            ("[fe80::1%2]:9", "[fe80::1%2]:9"),
        ] {
            assert_eq!(host_and_port("server", given).unwrap(), wanted);
        }
        for wrong in [
            "",
            ":9",
            "h:",
            "h:0",
            "h:99999",
            "h:x",
            "http://h",
            "http://h:9",
            "a b",
            "a/b",
            "[x]:9",
            ":::9",
            "[::1]9",
        ] {
            let e = host_and_port("address", wrong).unwrap_err().to_string();
            assert_eq!(e, format!("address {wrong}: write HOST or HOST:PORT with a port from 1 to 65535"));
        }
    }
}
