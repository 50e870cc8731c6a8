//! Where the pool's servers send their events.

use crate::{Outcome, Refusal, State, limits};
use serde::{Deserialize, Serialize};

/// Since when events are sent to the webhook.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WebhookSince {
    /// The version of the state that has this address first: changes of the pool that come later are sent.
    pub version: u64,
    /// When somebody asked for it, by the clock of the server that he asked, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
}

/// What is wrong with the address of a webhook; `None`: nothing.
///
/// Only its form is looked at: a scheme that servers speak, a host, and nothing that has to be written otherwise.
pub fn webhook_fault(url: &str) -> Option<&'static str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let Some(authority) = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default()) else {
        return Some("write http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH");
    };
    // Before it may be a user and a password.
    let host = authority.rsplit('@').next().unwrap_or_default();
    let (name, port) = match host.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((address, port))) => (address, port.strip_prefix(':').or(port.is_empty().then_some("80"))),
        Some(None) => return Some("a bracket of its host is not closed"),
        None => host.split_once(':').map_or((host, Some("80")), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() {
        Some("it names no host")
    } else if port.and_then(|port| port.parse::<u16>().ok()).is_none_or(|port| port == 0) {
        Some("its port is not a number from 1 to 65535")
    } else if url.len() > limits::WEBHOOK {
        Some("it has more than 2048 characters")
    } else if !url.bytes().all(|b| b.is_ascii_graphic()) {
        Some("it holds blanks or other than ASCII characters")
    } else {
        None
    }
}

impl State {
    pub(crate) fn set_webhook(&mut self, url: Option<&str>, at_ms: Option<u64>) -> Result<Outcome, Refusal> {
        if let Some(why) = url.and_then(webhook_fault) {
            return Err(Refusal::Webhook { why: why.to_string() });
        }
        // The address that is set already is sent to from when it was set.
        if self.webhook.as_deref() != url {
            self.webhook = url.map(str::to_string);
            self.webhook_since = url.map(|_| WebhookSince { version: self.version + 1, at_ms });
        }
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    #[test]
    fn addresses_of_webhooks() {
        for good in [
            "http://h/",
            "https://hooks.example.org/T0/B1?x=y",
            "http://[::1]:8080",
            "http://10.0.0.1:1/a",
            "https://u:p@h:8443/",
        ] {
            assert_eq!(webhook_fault(good), None, "{good}");
        }
        let long = format!("http://h/{}", "x".repeat(limits::WEBHOOK));
        for bad in [
            "",
            "h/",
            "ftp://h/",
            "http://",
            "http:///path",
            "http://:80/",
            "http://u@/",
            "http://h:/",
            "http://h:0/",
            "http://h:65536/",
            "http://h:x/",
            "http://::1/",
            "http://[::1/",
            "http://[::1]x/",
            "http://h/a b",
            "http://h/\n",
            "http://\u{e4}/",
            &long,
        ] {
            assert!(webhook_fault(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_webhook_is_set_and_removed() {
        let mut state = crate::testing::pool(1);
        let set = |url: Option<&str>, at_ms| Command::SetWebhook { url: url.map(str::to_owned), at_ms };
        state.apply(&set(Some("http://h/"), Some(5))).unwrap();
        let version = state.version;
        let since = Some(WebhookSince { version, at_ms: Some(5) });
        assert!(state.apply(&set(Some("h"), Some(6))).is_err());
        assert_eq!((state.webhook.as_deref(), state.version), (Some("http://h/"), version));
        state.apply(&set(Some("http://h/"), Some(7))).unwrap();
        assert_eq!(state.webhook_since, since, "the same address again");
        state.apply(&set(Some("http://i/"), None)).unwrap();
        assert_eq!(state.webhook_since, Some(WebhookSince { version: state.version, at_ms: None }));
        state.apply(&set(None, Some(8))).unwrap();
        assert_eq!((state.webhook, state.webhook_since), (None, None));
    }
}
