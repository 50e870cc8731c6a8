//! Lines of the log about calls that took long: where their time went, as far as the client can tell. The servers' lines about
//! the same call name it by the same session and operation (docs/design/0026).

use std::sync::Arc;
use std::time::Duration;

use ids::{OpId, SetId};

use crate::call::Client;
use crate::server_link::ServerLink;

/// The option that says from when on a call is slow; none is with 0.
const LIMIT: &str = "diagnostics.slow-operation";
/// What it is if nobody has set it.
const DEFAULT: Duration = Duration::from_secs(1);

/// From when on a call is slow, by the volume's options.
pub(crate) fn limit<'a>(option: impl FnOnce(&str) -> Option<&'a [u8]>) -> Duration {
    let Some(text) = option(LIMIT) else { return DEFAULT };
    crate::options::duration(&String::from_utf8_lossy(text)).unwrap_or(DEFAULT)
}

/// Whether what took so long is slow.
fn is_slow(took: Duration, limit: Duration) -> bool {
    !limit.is_zero() && took >= limit
}

/// Where the time of one call goes, from one moment to the next.
#[derive(Default)]
pub(crate) struct Stages {
    /// From when on the call is slow; 0: never.
    pub(crate) limit: Duration,
    /// The call's age up to which it is known.
    known: Duration,
    tries: u32,
    asked: Duration,
    waited: Duration,
    /// The server that was asked last.
    server: Option<Arc<ServerLink>>,
    /// Why it was not done at once.
    why: Option<String>,
}

impl Stages {
    /// A server was asked until now, the call's age.
    pub(crate) fn tried(&mut self, server: &Arc<ServerLink>, now: Duration) {
        self.tries = self.tries.saturating_add(1);
        self.asked += now.saturating_sub(self.known);
        self.known = now;
        self.server = Some(Arc::clone(server));
    }

    /// It waited until now before it is tried again.
    pub(crate) fn waited(&mut self, why: String, now: Duration) {
        self.waited += now.saturating_sub(self.known);
        self.known = now;
        self.why = Some(why);
    }

    /// Tells of the call if it was slow.
    pub(crate) fn tell(&self, what: &str, set: SetId, id: OpId) {
        if is_slow(self.known, self.limit) {
            tracing::warn!("slow: {what} of set {set} {}", self.line(id));
        }
    }

    fn line(&self, OpId { session, seq }: OpId) -> String {
        let Stages { limit: _, known, tries, asked, waited, server, why } = self;
        let last = match server {
            Some(server) => format!(", {} at last", server.address),
            None => String::new(),
        };
        let why = why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!(
            "for session {:016x}, operation {seq}, took {known:.1?}: {asked:.1?} for the answers to {tries} tries{last}; \
             {waited:.1?} between them{why}",
            session.0
        )
    }
}

impl Client {
    /// For so long all threads that the kernel's requests have were at calls, and other calls may have waited in the kernel:
    /// the log says so if a call that waited so long would be slow.
    pub fn tell_crowded(&self, lasted: Duration, threads: usize) {
        if is_slow(lasted, self.core.current().slow) {
            tracing::warn!(
                "slow: all {threads} threads of this mount were at calls for {lasted:.1?}, and others may have waited in the \
                 kernel meanwhile; mount with more if that is so while servers are well: -o threads=N"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{ServerId, SessionId};

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_line_says_where_the_time_went() {
        let server = Arc::new(ServerLink::new(ServerId(2), "server2:24240".to_owned()));
        let mut stages = Stages::default();
        stages.waited("no brick of the set may serve".to_owned(), ms(300));
        stages.tried(&server, ms(1000));
        stages.waited("busy".to_owned(), ms(1100));
        stages.tried(&server, ms(1150));
        let id = OpId { session: SessionId(0xab), seq: 12 };
        assert_eq!(
            stages.line(id),
            "for session 00000000000000ab, operation 12, took 1.2s: 750.0ms for the answers to 2 tries, server2:24240 at \
             last; 400.0ms between them (busy)"
        );
    }

    #[test]
    fn the_limit_is_the_volumes() {
        assert_eq!(limit(|_| None), ms(1000));
        assert_eq!(limit(|_| Some(b"300ms")), ms(300));
        assert_eq!(limit(|_| Some(b"0s")), ms(0));
        assert_eq!(limit(|_| Some(b"nonsense")), ms(1000));
    }
}
