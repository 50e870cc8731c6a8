//! What is wrong with a pool, or soon may be, as an answer.

use serde::{Deserialize, Serialize};

/// What was looked at and found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DoctorReport {
    /// What was looked at, in the order of the looks.
    pub checked: Vec<String>,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// Something that is wrong, or may become so.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A server, a brick, a set.
    pub object: String,
    /// What is wrong with it.
    pub cause: String,
    /// What to do.
    pub remedy: String,
}

/// How bad something is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It does not work.
    #[default]
    Error,
    /// It works, and may not for long.
    Warning,
}
