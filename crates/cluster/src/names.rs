//! What users may call things: volume names, brick paths, addresses.

use std::cmp::Ordering;

use ids::ServerId;

use crate::{Refusal, limits};

/// Refuses what is not a volume name.
pub fn check_volume_name(name: &str) -> Result<(), Refusal> {
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let rest = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if first && rest && name.len() <= limits::VOLUME_NAME {
        Ok(())
    } else {
        Err(Refusal::VolumeName { name: name.to_string() })
    }
}

/// Refuses what is not "host:port".
pub fn check_address(address: &str) -> Result<(), Refusal> {
    let sound = address.rsplit_once(':').is_some_and(|(host, port)| {
        let plain = host.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
        !host.is_empty() && plain && port.parse::<u16>().is_ok_and(|p| p > 0)
    });
    if sound && address.len() <= limits::ADDRESS {
        Ok(())
    } else {
        Err(Refusal::Address { address: address.to_string() })
    }
}

/// Refuses what cannot be the HOST of HOST:/PATH.
pub(crate) fn check_host(host: &str) -> Result<(), Refusal> {
    let plain = host.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
    if !host.is_empty() && plain && host.len() <= limits::ADDRESS {
        Ok(())
    } else {
        Err(Refusal::Host { host: host.to_string() })
    }
}

/// HOST:/PATH as users write it. The address of a host that has colons itself stands in brackets.
pub(crate) fn brick_name(host: &str, path: &str) -> String {
    format!("{}:{path}", ids::bracketed(host))
}

/// A host as the pool stores it: an address without its brackets.
pub(crate) fn bare_host(host: &str) -> &str {
    host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host)
}

/// A brick's path in its one normal form: absolute, no empty, `.` or `..` part, no slash at its end.
pub fn normal_path(path: &str) -> Result<String, Refusal> {
    let refuse = || Refusal::BrickPath { path: path.to_string() };
    if !path.starts_with('/') || path.len() > limits::BRICK_PATH || path.chars().any(char::is_control) {
        return Err(refuse());
    }
    let mut normal = String::new();
    for part in path.split('/').filter(|p| !p.is_empty() && *p != ".") {
        if part == ".." || part == ".mortar" {
            return Err(refuse());
        }
        normal.push('/');
        normal.push_str(part);
    }
    if normal.is_empty() { Err(refuse()) } else { Ok(normal) }
}

/// Whether two normal paths are the same directory or one lies inside the other.
pub(crate) fn overlap(a: &str, b: &str) -> bool {
    let inside =
        |a: &str, b: &str| b.strip_prefix(a).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    inside(a, b) || inside(b, a)
}

/// An order in which a directory comes right before what lies inside it.
pub(crate) fn path_order(a: (ServerId, &str), b: (ServerId, &str)) -> Ordering {
    a.0.cmp(&b.0).then_with(|| a.1.split('/').cmp(b.1.split('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_names() {
        for good in ["a", "vol1", "9lives", "a.b-c_d", &"x".repeat(64)] {
            assert_eq!(check_volume_name(good), Ok(()), "{good}");
        }
        for bad in ["", "a/b", "-a", ".a", "_a", "a b", "\u{e4}", &"x".repeat(65)] {
            assert!(check_volume_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_name_refusal_says_what_to_do() {
        assert_eq!(
            check_volume_name("a/b").unwrap_err().to_string(),
            "volume name 'a/b' is not allowed: use 1 to 64 letters, digits, '-', '_' or '.', starting with a letter \
             or digit"
        );
    }

    #[test]
    fn addresses() {
        for good in ["h:1", "127.0.0.11:24240", "[::1]:24240", "fs1.example.org:65535"] {
            assert_eq!(check_address(good), Ok(()), "{good}");
        }
        for bad in ["", "h", "h:", ":1", "h:0", "h:65536", "h :1", "h/x:1"] {
            assert!(check_address(bad).is_err(), "{bad}");
        }
        assert!(check_host("fs1").is_ok() && check_host("").is_err() && check_host("a b").is_err());
    }

    #[test]
    fn paths_have_one_form() {
        for (given, normal) in [("/a", "/a"), ("/a/", "/a"), ("//a/./b//", "/a/b")] {
            assert_eq!(normal_path(given).unwrap(), normal);
        }
        for bad in ["", "a", "/", "//", "/a/../b", "/a\nb", "/a/.mortar", &format!("/{}", "x".repeat(2000))] {
            assert!(normal_path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn overlaps() {
        assert!(overlap("/a", "/a") && overlap("/a", "/a/b") && overlap("/a/b", "/a"));
        assert!(!overlap("/a", "/ab") && !overlap("/a/b", "/a/c"));
    }

    #[test]
    fn a_directory_comes_right_before_its_inside() {
        let mut paths = [(ServerId(1), "/a/b"), (ServerId(1), "/a-b"), (ServerId(1), "/a")];
        paths.sort_by(|a, b| path_order(*a, *b));
        assert_eq!(paths.map(|p| p.1), ["/a", "/a/b", "/a-b"]);
    }
}
