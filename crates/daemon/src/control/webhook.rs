//! Sending events to the pool's webhook, and what administrators ask about it.

use super::Control;
use super::protocol::{ClusterReply, ClusterRequest};
use crate::clock;
use crate::events::{NotTaken, Post, Sender};
use crate::shared::lock;
use admin::{AdminError, EventsWebhook, WebhookReport, WebhookServer};
use cluster::{Command, State, WebhookSince};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// For one POST, from the name's address to the answer.
const WAIT: Duration = Duration::from_secs(10);
/// A new address, and that this server leads now, are seen after so long, and how far the leader has come is asked for so
/// often.
const LOOK: Duration = Duration::from_secs(1);
/// What happens at once is sent together.
const GATHER: Duration = Duration::from_millis(200);
/// Where systems keep the certificates of authorities that they believe.
const AUTHORITIES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// How sending does, for whoever asks, and up to which change of the pool everything is sent or given up.
#[derive(Debug, Default)]
pub(crate) struct Webhook(Mutex<(WebhookServer, u64)>);

/// Where events are sent, and from when on.
#[derive(PartialEq, Eq)]
struct Setting {
    url: String,
    since: Option<WebhookSince>,
}

impl Setting {
    fn of(state: &State) -> Option<Setting> {
        let url = state.webhook.clone()?;
        Some(Setting { url, since: state.webhook_since })
    }
}

/// Sends events for ever, as long as the pool has a webhook.
pub(super) async fn run(control: Arc<Control>) {
    // That this server has started is an event already.
    let mut found = Setting::of(&control.state());
    loop {
        let Some(setting) = Setting::of(&control.state()) else {
            found = None;
            tokio::time::sleep(LOOK).await;
            continue;
        };
        let agent = match tokio::task::spawn_blocking(agent).await {
            Ok(agent) => Ureq(agent),
            Err(e) => {
                tracing::warn!("events cannot be sent to the webhook: {e}");
                tokio::time::sleep(LOOK).await;
                continue;
            }
        };
        let (events, since) = (&control.shared.events, setting.since);
        let begun = match found.take() {
            Some(found) if found == setting => Sender::resume(events, since, unix_millis()),
            _ => Sender::begin(events, since),
        };
        send(&control, begun, &setting, &agent).await;
        *lock(&control.webhook.0) = (WebhookServer::default(), 0);
    }
}

/// Sends events to this address, as long as it is the pool's.
async fn send(control: &Arc<Control>, mut sender: Sender, setting: &Setting, by: &impl Post) {
    let events = &control.shared.events;
    let mut next_try = clock::now();
    loop {
        if Setting::of(&control.state()).as_ref() != Some(setting) {
            let waiting = sender.waiting(events);
            if waiting > 0 {
                tracing::warn!("{waiting} events were not sent to the webhook before it was changed");
            }
            return;
        }
        let before = (sender.told.dropped, sender.told.error.is_some());
        let leads = leads(control);
        if sender.take_up(events, leads) && clock::now() >= next_try {
            if let Some(pause) = sender.send(events, &setting.url, by).await {
                next_try = clock::now() + pause;
            }
        } else {
            let _more = tokio::time::timeout(LOOK, events.more.notified()).await;
            tokio::time::sleep(GATHER).await;
        }
        if sender.is_behind()
            && let Some(done) = done_by_leader(control).await
        {
            sender.hear(done);
        }
        tell(&sender, before);
        let told = WebhookServer { waiting: sender.waiting(events), ..sender.told.clone() };
        *lock(&control.webhook.0) = (told, sender.done());
    }
}

/// Logs what an administrator has to know: that events are given up, and that sending begins or ends to fail.
fn tell(sender: &Sender, (dropped, failed): (u64, bool)) {
    let (now, error) = (sender.told.dropped, sender.told.error.as_deref());
    if now > dropped {
        let why = error.unwrap_or("too many waited");
        tracing::warn!("{} events were not sent to the webhook and are given up: {why}", now - dropped);
    } else if let (Some(why), false) = (error, failed) {
        tracing::warn!("the webhook takes no events: {why}; they wait and are sent again");
    } else if failed && error.is_none() {
        tracing::info!("the webhook takes events again");
    }
}

fn unix_millis() -> u64 {
    u64::try_from(clock::unix_time().as_millis()).unwrap_or(u64::MAX)
}

fn leads(control: &Control) -> bool {
    control.store().leader().is_some_and(|(leader, _)| leader == control.shared.me())
}

/// Up to which change of the pool the leader has sent everything, if it says so soon.
async fn done_by_leader(control: &Control) -> Option<u64> {
    let (_, address) = control.store().leader()?;
    let asked = control.ask_cluster(&address, ClusterRequest::Webhook);
    match tokio::time::timeout(LOOK, asked).await {
        Ok(Ok(ClusterReply::Webhook { done, .. })) => Some(done),
        _ => None,
    }
}

impl Control {
    /// Tells and changes where events are sent.
    pub(super) async fn events_webhook(&self, request: EventsWebhook) -> Result<WebhookReport, AdminError> {
        if request.url.is_some() || request.remove {
            let url = request.url.filter(|_| !request.remove);
            self.propose(Command::SetWebhook { url, at_ms: Some(unix_millis()) }).await?;
        }
        let state = self.linearizable().await?;
        if state.webhook.is_none() {
            return Ok(WebhookReport::default());
        }
        let (replies, notes) = self.ask_servers(state.servers.values(), &ClusterRequest::Webhook).await;
        let told = |reply| if let ClusterReply::Webhook { told, .. } = reply { Some(told) } else { None };
        let servers = replies.into_iter().filter_map(told).collect();
        Ok(WebhookReport { url: state.webhook.clone(), servers, notes })
    }

    pub(super) fn own_webhook(&self) -> ClusterReply {
        let (told, done) = lock(&self.webhook.0).clone();
        ClusterReply::Webhook { told: WebhookServer { server: self.own_host(), ..told }, done }
    }
}

/// What speaks HTTP. It believes the authorities that this system believes.
fn agent() -> Agent {
    let read = AUTHORITIES.iter().find_map(|file| fs::read(file).ok()).unwrap_or_default();
    let certificates = parse_pem(&read).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let roots = RootCerts::Specific(Arc::new(certificates.collect()));
    let tls = TlsConfig::builder()
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    // An answer that leads elsewhere is none: what it leads to nobody has set.
    Agent::config_builder()
        .timeout_global(Some(WAIT))
        .max_redirects(0)
        .http_status_as_error(false)
        .proxy(None)
        .tls_config(tls)
        .user_agent(concat!("mortar/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

struct Ureq(Agent);

impl Post for Ureq {
    async fn post(&self, url: &str, lines: Vec<u8>) -> Result<(), NotTaken> {
        let (agent, to) = (self.0.clone(), url.to_owned());
        let posted = tokio::task::spawn_blocking(move || {
            agent.post(&to).header("Content-Type", "application/x-ndjson").send(&lines[..])
        });
        match posted.await {
            Ok(Ok(answer)) => verdict_on(answer.status().as_u16()),
            // The address may hold a secret, and the log gets what is said here.
            Ok(Err(e)) => Err(NotTaken::Yet(e.to_string().replace(url, "its address"))),
            Err(e) => Err(NotTaken::Yet(e.to_string())),
        }
    }
}

/// What the status of an answer means.
fn verdict_on(status: u16) -> Result<(), NotTaken> {
    match status {
        200..=299 => Ok(()),
        // Too slow or too many: not for ever. What is refused as it is will be refused again.
        400..=499 if status != 408 && status != 429 => {
            Err(NotTaken::Ever(format!("the receiver answered {status}")))
        }
        _ => Err(NotTaken::Yet(format!("the receiver answered {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_take_refuse_and_put_off() {
        assert!([200, 202, 204].into_iter().all(|status| verdict_on(status).is_ok()));
        assert!(
            [400, 401, 404, 413]
                .into_iter()
                .all(|status| matches!(verdict_on(status), Err(NotTaken::Ever(_))))
        );
        let later = [301, 408, 429, 500, 503];
        assert!(later.into_iter().all(|status| matches!(verdict_on(status), Err(NotTaken::Yet(_)))));
    }
}
