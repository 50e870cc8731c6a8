//! What happened in the pool: collected from all its servers.

use super::Control;
use super::protocol::{ClusterReply, ClusterRequest};
use crate::events::{ADMIN, audited, line};
use admin::{AdminAnswer, AdminError, AdminRequest, ErrorCode, Event, EventReports};
use cluster::State;
use ids::ServerId;
use std::sync::Arc;

/// Takes up the events of earlier processes, and keeps those to come.
pub(super) fn begin(control: &Arc<Control>) {
    control.shared.events.take_up(control.folder.path());
    control.note(server("this server has started"));
    let this = control.clone();
    tokio::spawn(async move { this.shared.events.keep_writing(this.folder.path()).await });
}

/// The server ends.
pub(super) fn end(control: &Control) {
    control.note(server("this server stops"));
    control.shared.events.write_rest(control.folder.path());
}

fn server(text: &str) -> Event {
    Event { kind: "server".to_owned(), text: text.to_owned(), ..Event::default() }
}

/// The same change is noted by all servers at about the same time: so many events may lie between.
const NEAR: usize = 200;

/// Events in one answer.
const MOST: usize = 2000;

impl Control {
    /// Does what an administrator asks, and notes who did what.
    pub(super) async fn audited_admin(
        self: &Arc<Self>,
        request: AdminRequest,
        who: String,
    ) -> Result<AdminAnswer, AdminError> {
        let Some((what, volume)) = audited(&request) else { return self.admin(request).await };
        let answer = self.admin(request).await;
        let text = line(&what, &answer);
        let waits = matches!(&answer, Err(e) if e.code == ErrorCode::ConnectionRefused);
        if waits && self.shared.events.is_told(&who, &text) {
            return answer;
        }
        tracing::info!("{who}: {text}");
        self.note(Event { kind: ADMIN.to_owned(), text, who: Some(who), volume, ..Event::default() });
        answer
    }

    /// Something happened on this server.
    pub(super) fn note(&self, event: Event) {
        self.shared.events.add(Event { server: self.own_host(), ..event });
    }

    /// A new state of the pool comes after the one that is known.
    pub(super) fn note_state(&self, after: &State) {
        let before = self.shared.state();
        self.shared.events.note_changes(&self.own_host(), &before, after);
    }

    /// A server of the pool is silent.
    pub(super) fn note_silent(&self, id: ServerId, state: &State) {
        let host = state.servers.get(&id).map_or_else(|| id.to_string(), |s| ids::bracketed(&s.host));
        self.note(server(&format!("server {host} is silent: its bricks leave the views")));
    }

    /// The name by which the pool knows this server.
    pub(super) fn own_host(&self) -> String {
        let state = self.state();
        state.servers.get(&self.shared.me()).map_or_else(|| self.address.clone(), |s| s.host.clone())
    }

    pub(super) fn own_events(&self, since_ms: u64, most: usize) -> ClusterReply {
        ClusterReply::Events(self.shared.events.since(since_ms, most.min(MOST)))
    }

    pub(super) async fn events(&self, since_ms: u64, most: u32) -> EventReports {
        let state = self.state();
        let most = usize::try_from(most).unwrap_or(MOST).min(MOST);
        let request = ClusterRequest::Events { since_ms, most };
        let (replies, notes) = self.ask_servers(state.servers.values(), &request).await;
        let theirs = |reply| if let ClusterReply::Events(events) = reply { events } else { vec![] };
        EventReports { events: merged(replies.into_iter().flat_map(theirs).collect(), most), notes }
    }
}

/// In the order of their times, what several servers noted of one change once.
fn merged(mut all: Vec<Event>, most: usize) -> Vec<Event> {
    all.sort_by(|a, b| (a.at_ms, &a.server).cmp(&(b.at_ms, &b.server)));
    let mut events: Vec<Event> = Vec::new();
    for event in all {
        if !events.iter().rev().take(NEAR).any(|e| e.is_same(&event)) {
            events.push(event);
        }
    }
    let first = events.len().saturating_sub(most);
    events.split_off(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_servers_noted_is_told_once() {
        let event = |at_ms, server: &str, text: &str, version| Event {
            at_ms,
            server: server.to_owned(),
            text: text.to_owned(),
            version,
            ..Event::default()
        };
        let all = vec![
            event(5, "a", "view", Some(7)),
            event(3, "b", "view", Some(7)),
            event(4, "b", "view", Some(8)),
            event(6000, "b", "option", Some(9)),
            event(6001, "a", "option", Some(10)),
            event(1, "a", "started", None),
            event(1, "b", "started", None),
        ];
        let told: Vec<_> = merged(all.clone(), 10).iter().map(|e| (e.at_ms, e.server.clone())).collect();
        let own = |at: u64, server: &str| (at, server.to_owned());
        assert_eq!(told, [own(1, "a"), own(1, "b"), own(3, "b"), own(4, "b"), own(6000, "b")]);
        assert_eq!(merged(all, 1)[0].at_ms, 6000);
    }
}
