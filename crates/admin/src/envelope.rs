//! The body of a control frame that carries the admin protocol: [`TAG`], then JSON with the version and the message.
//!
//! The version is read before the message: a request of a newer version is refused by name, whatever it holds.

use crate::{AdminAnswer, AdminError, AdminRequest, ErrorCode};
use serde::{Deserialize, Serialize};

/// The first byte of the body. 0 and 1 belong to what servers tell each other.
pub const TAG: u8 = 2;

/// The version of this program. Added fields and requests leave it as it is.
pub const VERSION: u32 = 1;

#[derive(Deserialize)]
struct Head {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Asked {
    version: u32,
    request: AdminRequest,
}

#[derive(Serialize, Deserialize)]
struct Answered {
    version: u32,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Answer(AdminAnswer),
    Error(AdminError),
}

/// An answer that this program cannot read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreadable {
    /// The body belongs to another protocol.
    #[error("this is no answer of the admin protocol: use programs of like age")]
    OtherProtocol,
    /// The server speaks a newer version.
    #[error(
        "it answers in version {0} of the admin protocol, this program knows {VERSION}: update this program"
    )]
    Newer(u32),
    /// The JSON is not what this version has.
    #[error("its answer cannot be read ({0}): use programs of like age")]
    Json(String),
}

fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut body = vec![TAG];
    let written = serde_json::to_writer(&mut body, message);
    assert!(written.is_ok(), "all maps of the protocol have string keys, and memory takes every byte");
    body
}

fn decode<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, Unreadable> {
    let Some((&TAG, json)) = body.split_first() else { return Err(Unreadable::OtherProtocol) };
    let unreadable = |e: serde_json::Error| Unreadable::Json(e.to_string());
    let head: Head = serde_json::from_slice(json).map_err(unreadable)?;
    if head.version > VERSION {
        return Err(Unreadable::Newer(head.version));
    }
    serde_json::from_slice(json).map_err(unreadable)
}

/// The body that asks.
pub fn encode_request(request: AdminRequest) -> Vec<u8> {
    encode(&Asked { version: VERSION, request })
}

/// Reads the body that asks.
///
/// # Errors
/// The answer to give: the request is of a newer version, or unreadable.
pub fn decode_request(body: &[u8]) -> Result<AdminRequest, AdminError> {
    decode::<Asked>(body).map(|asked| asked.request).map_err(|e| {
        let line = match e {
            Unreadable::Newer(version) => format!(
                "the request has version {version} of the admin protocol, this server knows {VERSION}: update the server, \
                 or use an older program"
            ),
            Unreadable::OtherProtocol => "this is no request of the admin protocol".to_owned(),
            Unreadable::Json(e) => format!("the request cannot be read ({e}): use programs of like age"),
        };
        AdminError::new(ErrorCode::Version, line)
    })
}

/// The body that answers.
pub fn encode_answer(answer: Result<AdminAnswer, AdminError>) -> Vec<u8> {
    let outcome = match answer {
        Ok(answer) => Outcome::Answer(answer),
        Err(e) => Outcome::Error(e),
    };
    encode(&Answered { version: VERSION, outcome })
}

/// Reads the body that answers: what the server says.
///
/// # Errors
/// It cannot be read.
pub fn decode_answer(body: &[u8]) -> Result<Result<AdminAnswer, AdminError>, Unreadable> {
    Ok(match decode::<Answered>(body)?.outcome {
        Outcome::Answer(answer) => Ok(answer),
        Outcome::Error(e) => Err(e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(json: &str) -> Vec<u8> {
        [&[TAG], json.as_bytes()].concat()
    }

    #[test]
    fn a_newer_request_is_refused_by_its_version() {
        let e = decode_request(&body(r#"{"version":2,"request":{"what-we-do-not-know":1}}"#)).unwrap_err();
        assert_eq!(e.code, ErrorCode::Version);
        assert!(e.message.contains("version 2"), "{e}");
    }

    #[test]
    fn bytes_that_are_no_request_are_refused() {
        for wrong in [&b""[..], b"\0{}", b"\x02", b"\x02{", b"\x02{\"version\":1}", b"\x02[1]"] {
            assert_eq!(decode_request(wrong).unwrap_err().code, ErrorCode::Version, "{wrong:?}");
        }
        assert_eq!(decode_answer(b"\0{}"), Err(Unreadable::OtherProtocol));
        assert_eq!(decode_answer(&body(r#"{"version":7}"#)), Err(Unreadable::Newer(7)));
    }

    #[test]
    fn a_code_of_a_newer_server_is_unknown() {
        let answer = body(r#"{"version":1,"error":{"code":"moon-phase","message":"wait","more":1}}"#);
        assert_eq!(decode_answer(&answer), Ok(Err(AdminError::new(ErrorCode::Unknown, "wait"))));
    }
}
