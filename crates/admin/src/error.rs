//! Why a request was refused or failed: a code for programs, one line for people.

use serde::{Deserialize, Serialize};

/// What kind of refusal or failure it is. Codes are added, never renamed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The request, or a value in it, is never allowed.
    Invalid,
    /// A volume, server, option or brick that the request names does not exist.
    NotFound,
    /// What was to be made exists already.
    Exists,
    /// The request does not fit the present state: something has to be stopped, started or freed first.
    Conflict,
    /// A limit of the pool would be exceeded.
    Limit,
    /// A server that the request concerns does not answer. Whether it did its part is not known.
    Unreachable,
    /// Nobody listens at the address of a server that the request concerns, so that nothing was done there.
    ConnectionRefused,
    /// No majority of the pool's servers answers.
    Unavailable,
    /// The state changed meanwhile: the same request can be sent again.
    Stale,
    /// A server tried and could not, for instance because of its disk.
    Failed,
    /// The request has a newer version, or cannot be read.
    Version,
    /// A code of a newer server.
    #[serde(other)]
    Unknown,
}

impl ErrorCode {
    /// All codes with what they mean, for the reference of the documentation.
    pub const ALL: [(ErrorCode, &str); 12] = [
        (ErrorCode::Invalid, "The request, or a value in it, is never allowed"),
        (ErrorCode::NotFound, "A volume, server, option or brick that the request names does not exist"),
        (ErrorCode::Exists, "What was to be made exists already"),
        (
            ErrorCode::Conflict,
            "The request does not fit the present state: something has to be stopped, started or freed first",
        ),
        (ErrorCode::Limit, "A limit of the pool would be exceeded"),
        (
            ErrorCode::Unreachable,
            "A server does not answer, or lets nobody in: whether it did its part is not known",
        ),
        (
            ErrorCode::ConnectionRefused,
            "Nobody listens at the address of a server, so that nothing was done there",
        ),
        (ErrorCode::Unavailable, "No majority of the pool's servers answers"),
        (ErrorCode::Stale, "The state changed meanwhile: the same request can be sent again"),
        (
            ErrorCode::Failed,
            "A server tried and could not, for instance because of its disk; or the command itself could not",
        ),
        (ErrorCode::Version, "The request has a newer version, or cannot be read"),
        (ErrorCode::Unknown, "A code of a newer server"),
    ];
}

/// A refusal or failure.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct AdminError {
    /// Its kind.
    #[serde(default = "unknown")]
    pub code: ErrorCode,
    /// One line that names the object, the reason and what to do.
    pub message: String,
}

fn unknown() -> ErrorCode {
    ErrorCode::Unknown
}

impl AdminError {
    /// An error of that kind with that line.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> AdminError {
        AdminError { code, message: message.into() }
    }

    /// The same kind of error with these words before its line.
    #[must_use]
    pub fn before(self, words: &str) -> AdminError {
        AdminError { message: format!("{words}{}", self.message), ..self }
    }

    /// The same kind of error with these words after its line.
    #[must_use]
    pub fn after(self, words: &str) -> AdminError {
        AdminError { message: format!("{}{words}", self.message), ..self }
    }
}

/// For code that passes on the line alone.
impl From<AdminError> for String {
    fn from(e: AdminError) -> String {
        e.message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_code_has_one_meaning() {
        let names: BTreeSet<String> =
            ErrorCode::ALL.iter().map(|(code, _)| serde_json::to_string(code).unwrap()).collect();
        assert_eq!(names.len(), ErrorCode::Unknown as usize + 1);
        assert_eq!(ErrorCode::ALL.len(), names.len());
    }
}
