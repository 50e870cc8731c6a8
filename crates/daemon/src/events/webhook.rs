//! Events sent to the pool's webhook: a POST with a line of JSON for each.
//!
//! Each server sends what it noted itself; what all servers note of a change of the pool, the leader of the pool's store
//! sends. The others hear from it how far it has come ([`Sender::done`]), and whoever leads next goes on there. What waits is
//! in the log of events ([`super::Events`]), which is bounded: what leaves it unsent is counted.

use super::{Events, KEPT};
use admin::{Event, WebhookServer};
use cluster::WebhookSince;
use std::time::Duration;

/// Events of one POST.
const BATCH: usize = 100;
/// The pause after a failure, at first and at most; it doubles.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A server that starts does not know how far the leader had come: changes of the pool that are not older may be unsent.
const AGAIN: Duration = Duration::from_secs(30);

/// Sends lines to an address.
pub(crate) trait Post {
    /// # Errors
    /// Why they were not taken.
    fn post(&self, url: &str, lines: Vec<u8>) -> impl Future<Output = Result<(), NotTaken>> + Send;
}

/// Why events were not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NotTaken {
    /// The same again may be taken later.
    Yet(String),
    /// It will never be.
    Ever(String),
}

/// How far sending has come.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    /// The number of the next event that is looked at.
    next: u64,
    /// Whether this server led when it looked last.
    led: bool,
    /// Changes of the pool up to this one came before the webhook.
    before: u64,
    /// Taken up and not sent.
    batch: Vec<Event>,
    /// The newest change of the pool that was looked at.
    looked_at: u64,
    /// Changes of the pool up to this one are sent or given up, as far as is known.
    done: u64,
    /// Failures since the last success.
    failures: u32,
    /// What is told of it.
    pub(crate) told: WebhookServer,
}

impl Sender {
    /// Begins with the events that came since the webhook was set; with those that come from now on if nobody said when that
    /// was.
    pub(crate) fn begin(events: &Events, since: Option<WebhookSince>) -> Sender {
        let newest = events.newest_change(u64::MAX);
        let (next, before) =
            since.map_or_else(|| (events.end(), newest), |since| (events.first_since(since), since.version));
        Sender { next, looked_at: newest.max(before), before, done: before, ..Sender::default() }
    }

    /// Begins with the events that came since the process began, which found the webhook set.
    pub(crate) fn resume(events: &Events, since: Option<WebhookSince>, now_ms: u64) -> Sender {
        let again = u64::try_from(AGAIN.as_millis()).unwrap_or(u64::MAX);
        let before = since.map_or(0, |since| since.version);
        let done = events.newest_change(now_ms.saturating_sub(again)).max(before);
        let looked_at = events.newest_change(u64::MAX).max(before);
        Sender { looked_at, before, done, ..Sender::default() }
    }

    /// Takes up the next events that this server is to send. Whether there are any.
    pub(crate) fn take_up(&mut self, events: &Events, leads: bool) -> bool {
        if !self.batch.is_empty() {
            return true;
        }
        let (lost, new) = events.from(self.next, BATCH);
        if leads && !self.led {
            let older = events.before(self.next, KEPT);
            self.batch.extend(older.into_iter().filter(|e| e.version.is_some_and(|v| v > self.done)));
        }
        self.led = leads;
        self.told.dropped += lost;
        self.next += lost + new.len() as u64;
        let newest = new.iter().filter_map(|e| e.version).max().unwrap_or_default();
        self.looked_at = self.looked_at.max(newest);
        let is_own = |version: Option<u64>| version.is_none_or(|v| leads && v > self.before);
        self.batch.extend(new.into_iter().filter(|e| is_own(e.version)));
        self.note_done(events);
        !self.batch.is_empty()
    }

    /// Sends the first of what was taken up. For how long to wait after a failure.
    pub(crate) async fn send(&mut self, events: &Events, url: &str, by: &impl Post) -> Option<Duration> {
        let first = self.batch.get(..BATCH).unwrap_or(&self.batch);
        let many = first.len();
        match by.post(url, lines(first)).await {
            Ok(()) => {
                self.told.sent += many as u64;
                (self.told.error, self.failures) = (None, 0);
            }
            Err(NotTaken::Ever(why)) => {
                self.told.dropped += many as u64;
                self.told.error = Some(why);
            }
            Err(NotTaken::Yet(why)) => {
                self.told.error = Some(why);
                self.failures = self.failures.saturating_add(1);
                return Some((PAUSE.0 * 2_u32.saturating_pow(self.failures.min(10) - 1)).min(PAUSE.1));
            }
        }
        self.batch.drain(..many);
        self.note_done(events);
        None
    }

    /// How many events wait.
    pub(crate) fn waiting(&self, events: &Events) -> u64 {
        self.batch.len() as u64 + events.end().saturating_sub(self.next)
    }

    /// Changes of the pool up to this one are sent or given up, as far as this server knows.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Whether changes of the pool were left to the leader that may not have sent them yet.
    pub(crate) fn is_behind(&self) -> bool {
        !self.led && self.looked_at > self.done
    }

    /// The leader says that it has come so far.
    pub(crate) fn hear(&mut self, done: u64) {
        self.done = self.done.max(done);
    }

    fn note_done(&mut self, events: &Events) {
        if !self.led {
            return;
        }
        let done = match self.batch.iter().find_map(|e| e.version) {
            Some(unsent) => unsent.saturating_sub(1),
            None if self.next == events.end() => self.looked_at,
            // What comes next may be of the same change.
            None => self.looked_at.saturating_sub(1),
        };
        self.done = self.done.max(done);
    }
}

fn lines(events: &[Event]) -> Vec<u8> {
    let mut lines = Vec::new();
    for event in events {
        lines.extend(serde_json::to_vec(event).unwrap_or_default());
        lines.push(b'\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::State;
    use std::sync::Mutex;

    /// Answers these, one after the other, and takes what comes when there are no more.
    #[derive(Default)]
    struct Receiver(Mutex<(Vec<NotTaken>, Vec<String>)>);

    impl Post for Receiver {
        async fn post(&self, _: &str, lines: Vec<u8>) -> Result<(), NotTaken> {
            let mut all = crate::shared::lock(&self.0);
            if let Some(answer) = all.0.pop() {
                return Err(answer);
            }
            let texts = lines.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice::<Event>(l).ok());
            all.1.extend(texts.map(|e| e.text));
            Ok(())
        }
    }

    fn add(events: &Events, text: &str, version: Option<u64>) {
        events.add(Event {
            text: text.to_owned(),
            kind: super::super::ADMIN.to_owned(),
            version,
            ..Event::default()
        });
    }

    #[tokio::test]
    async fn what_fails_is_sent_again_later_and_later_and_in_order() {
        let (events, receiver) = (Events::default(), Receiver::default());
        add(&events, "before", None);
        let mut sender = Sender::begin(&events, None);
        add(&events, "a", None);
        let no = || NotTaken::Yet("no".to_owned());
        crate::shared::lock(&receiver.0).0 = vec![no(), no(), no()];
        let mut pauses = Vec::new();
        for _ in 0..3 {
            assert!(sender.take_up(&events, false));
            pauses.push(sender.send(&events, "", &receiver).await.unwrap().as_secs());
        }
        add(&events, "b", None);
        assert_eq!((pauses, sender.waiting(&events)), (vec![1, 2, 4], 2));
        while sender.take_up(&events, false) {
            assert_eq!(sender.send(&events, "", &receiver).await, None);
        }
        assert_eq!(crate::shared::lock(&receiver.0).1, ["a", "b"]);
        assert_eq!((sender.told.sent, sender.told.dropped, &sender.told.error), (2, 0, &None));
    }

    #[tokio::test]
    async fn what_is_lost_or_refused_for_good_is_counted() {
        let (events, receiver) = (Events::default(), Receiver::default());
        let mut sender = Sender::begin(&events, None);
        for n in 0..super::super::KEPT + 30 {
            add(&events, &n.to_string(), None);
        }
        crate::shared::lock(&receiver.0).0 = vec![NotTaken::Ever("400".to_owned())];
        while sender.take_up(&events, false) {
            assert_eq!(sender.send(&events, "", &receiver).await, None);
        }
        let batch = BATCH as u64;
        assert_eq!(sender.told.dropped, 30 + batch);
        assert_eq!(sender.told.sent, super::super::KEPT as u64 - batch);
        assert_eq!(crate::shared::lock(&receiver.0).1.first().unwrap(), &(30 + BATCH).to_string());
    }

    fn sent(receiver: &Receiver) -> Vec<String> {
        std::mem::take(&mut crate::shared::lock(&receiver.0).1)
    }

    async fn send_all(sender: &mut Sender, events: &Events, receiver: &Receiver, leads: bool) -> Vec<String> {
        while sender.take_up(events, leads) {
            assert_eq!(sender.send(events, "", receiver).await, None);
        }
        sent(receiver)
    }

    /// The leader sends what all servers note. Whoever leads after it sends what it had not, however long that has waited.
    #[tokio::test]
    async fn what_the_leader_has_not_sent_the_next_one_sends() {
        let (events, receiver) = (Events::default(), Receiver::default());
        add(&events, "before", Some(4));
        let (mut leader, mut other) = (Sender::begin(&events, None), Sender::begin(&events, None));
        add(&events, "of one", None);
        for (text, version) in [("a", 5), ("b", 6), ("c", 6)] {
            add(&events, text, Some(version));
        }
        assert_eq!(send_all(&mut other, &events, &receiver, false).await, ["of one"]);
        assert!(other.is_behind());
        assert_eq!(send_all(&mut leader, &events, &receiver, true).await, ["of one", "a", "b", "c"]);
        assert_eq!((leader.done(), leader.is_behind()), (6, false));
        other.hear(leader.done());
        assert!(!other.is_behind());
        add(&events, "d", Some(7));
        add(&events, "e", Some(8));
        assert!(leader.take_up(&events, true));
        crate::shared::lock(&receiver.0).0 = vec![NotTaken::Yet("no".to_owned())];
        assert!(leader.send(&events, "", &receiver).await.is_some());
        assert!(send_all(&mut other, &events, &receiver, false).await.is_empty());
        other.hear(leader.done());
        assert_eq!((leader.done(), other.done(), other.is_behind()), (6, 6, true));
        assert_eq!(send_all(&mut other, &events, &receiver, true).await, ["d", "e"]);
        assert_eq!(other.done(), 8);
        assert!(!other.take_up(&events, true), "once");
    }

    fn state(version: u64, since: Option<WebhookSince>) -> State {
        State { version, webhook_since: since, ..State::default() }
    }

    /// A server hears of the webhook, and looks some time after that: what came since the webhook was set is sent.
    #[tokio::test]
    async fn events_are_sent_from_when_the_webhook_was_set() {
        let (events, receiver) = (Events::default(), Receiver::default());
        add(&events, "change before", Some(4));
        add(&events, "own before", None);
        let set = events.since(0, 9)[1].at_ms + 1;
        while super::super::unix_millis() < set {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        add(&events, "own", None);
        let since = Some(WebhookSince { version: 5, at_ms: Some(set) });
        events.note_changes("", &state(4, None), &state(5, since));
        add(&events, "change", Some(6));
        add(&events, "own later", None);
        let all = ["own", "change", "own later"];
        let mut sender = Sender::begin(&events, since);
        assert_eq!(send_all(&mut sender, &events, &receiver, true).await, all);
        assert_eq!((sender.told.sent, sender.done()), (3, 6));
        // Who leads later sends the changes only.
        let mut other = Sender::begin(&events, since);
        assert_eq!(send_all(&mut other, &events, &receiver, false).await, ["own", "own later"]);
        assert_eq!(send_all(&mut other, &events, &receiver, true).await, ["change"]);
    }

    /// Clocks differ: what a server noted after it heard of the address is sent whatever its clock says, and of the changes
    /// of the pool those after it.
    #[tokio::test]
    async fn a_clock_that_is_late_loses_nothing_that_came_after_the_address() {
        let (events, receiver) = (Events::default(), Receiver::default());
        add(&events, "own before", None);
        let since = Some(WebhookSince { version: 5, at_ms: Some(u64::MAX) });
        events.note_changes("", &state(4, None), &state(5, since));
        add(&events, "own", None);
        add(&events, "of the address", Some(5));
        add(&events, "change", Some(6));
        let mut sender = Sender::begin(&events, since);
        assert_eq!(send_all(&mut sender, &events, &receiver, true).await, ["own", "change"]);
        // One whose clock is ahead, too, sends no change of before.
        let since = Some(WebhookSince { version: 5, at_ms: Some(0) });
        let mut sender = Sender::begin(&events, since);
        assert_eq!(send_all(&mut sender, &events, &receiver, true).await, ["own before", "own", "change"]);
        // Nobody said when: from when it was heard of.
        let since = Some(WebhookSince { version: 5, at_ms: None });
        let mut sender = Sender::begin(&events, since);
        assert_eq!(send_all(&mut sender, &events, &receiver, true).await, ["own", "change"]);
    }

    /// A server that starts right after the webhook was set sends no change of before again.
    #[tokio::test]
    async fn a_start_sends_no_change_that_came_before_the_webhook() {
        let (events, receiver) = (Events::default(), Receiver::default());
        add(&events, "before", Some(4));
        add(&events, "after", Some(6));
        let since = Some(WebhookSince { version: 5, at_ms: Some(0) });
        let mut sender = Sender::resume(&events, since, events.since(0, 1)[0].at_ms);
        assert_eq!(send_all(&mut sender, &events, &receiver, true).await, ["after"]);
    }

    /// One that has just started knows nothing of the leader before: what is not old is sent again.
    #[tokio::test]
    async fn after_a_start_what_is_young_is_sent_again() {
        let (events, receiver) = (Events::default(), Receiver::default());
        add(&events, "of the process before", Some(4));
        let now = events.since(0, 1)[0].at_ms;
        let mut young = Sender::resume(&events, None, now);
        let mut old = Sender::resume(&events, None, now + 31_000);
        // What came in this process is counted; all of it did here.
        (young.next, old.next) = (events.end(), events.end());
        assert_eq!(send_all(&mut young, &events, &receiver, true).await, ["of the process before"]);
        assert!(send_all(&mut old, &events, &receiver, true).await.is_empty());
    }

    #[tokio::test]
    async fn many_are_sent_in_parts() {
        let (events, receiver) = (Events::default(), Receiver::default());
        let mut sender = Sender::begin(&events, None);
        for n in 1..=250 {
            add(&events, &n.to_string(), Some(n));
        }
        assert!(send_all(&mut sender, &events, &receiver, false).await.is_empty());
        assert!(sender.take_up(&events, true));
        assert_eq!(sender.send(&events, "", &receiver).await, None);
        assert_eq!((sent(&receiver).len(), sender.done(), sender.waiting(&events)), (BATCH, 100, 150));
        assert_eq!(send_all(&mut sender, &events, &receiver, true).await.len(), 150);
        assert_eq!((sender.told.sent, sender.done()), (250, 250));
    }
}
