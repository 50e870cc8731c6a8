//! What happened in a pool, as an answer: an audit trail, and the changes that nobody asked for.

use serde::{Deserialize, Serialize};

/// What happened, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EventReports {
    /// Each event.
    pub events: Vec<Event>,
    /// Servers that did not tell.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What happened?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GetEvents {
    /// Not before then, in milliseconds since 1970.
    #[serde(default)]
    pub since_ms: u64,
    /// At most so many of the newest.
    pub most: u32,
}

/// Where are events sent, and where from now on?
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EventsWebhook {
    /// There from now on: `http://` or `https://`, host and path. May hold a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Nowhere from now on.
    #[serde(default)]
    pub remove: bool,
}

/// Where events are sent, and how that does.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WebhookReport {
    /// The address; `None`: nowhere. Its path may hold a secret.
    #[serde(default)]
    pub url: Option<String>,
    /// Each server that told.
    #[serde(default)]
    pub servers: Vec<WebhookServer>,
    /// Servers that did not tell.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// How a server's sending does, since it started or the address was changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WebhookServer {
    /// Its host.
    pub server: String,
    /// Events that were taken.
    #[serde(default)]
    pub sent: u64,
    /// Events that were given up: too many waited, or the receiver will never take them.
    #[serde(default)]
    pub dropped: u64,
    /// Events that wait.
    #[serde(default)]
    pub waiting: u64,
    /// Why the last try failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Event {
    /// When, in milliseconds since 1970, by the clock of the server that noted it.
    pub at_ms: u64,
    /// The host of that server.
    pub server: String,
    /// What kind of thing, in small letters: `admin`, `view`, `brick` and the like.
    pub kind: String,
    /// One line for people.
    pub text: String,
    /// Who did it, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The volume that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The version of the pool's state that it came with: all servers note that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// Servers note a change of the pool when they learn of it: within so many milliseconds of each other.
const TOGETHER: u64 = 5_000;

impl Event {
    /// Whether it is the same event, told again, or the same change of the pool as another server noted it.
    pub fn is_same(&self, other: &Event) -> bool {
        if self.text != other.text {
            return false;
        }
        let both = self.version.is_some() && other.version.is_some();
        if both && self.server != other.server {
            return self.at_ms.abs_diff(other.at_ms) <= TOGETHER;
        }
        self.at_ms == other.at_ms && self.server == other.server
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_servers_noted_is_the_same_only_of_the_pool() {
        let event = |at_ms, server: &str, version| Event {
            at_ms,
            server: server.to_owned(),
            text: "x".to_owned(),
            version,
            ..Event::default()
        };
        assert!(event(1, "a", Some(2)).is_same(&event(4000, "b", Some(3))));
        assert!(!event(1, "a", Some(2)).is_same(&event(6000, "b", Some(3))));
        assert!(!event(1, "a", Some(2)).is_same(&event(2, "a", Some(3))), "it happened twice");
        assert!(!event(1, "a", None).is_same(&event(1, "b", None)));
        assert!(event(1, "a", None).is_same(&event(1, "a", None)));
    }
}
