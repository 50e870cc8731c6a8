//! The web console: a page for browsers, and the admin protocol as JSON over HTTP for whoever signed in with an
//! administrator's key.
//!
//! Owns sessions, the page, and which request of the admin protocol each path stands for. What is asked is done by the
//! same code as for commands ([`Host`]), so the log of events tells of it too.
//! Always true: nothing but the page's own files is given out without a session; a session is looked up, and its key
//! looked at, for each request anew.

mod page;
mod sessions;

use crate::clock;
use crate::http::{Answer, Bounds, Key, Method, Request, Site};
use crate::speaker::Speaker;
use admin::{
    AdminAnswer, AdminError, AdminRequest, Ask, ErrorCode, GetDoctor, GetEvents, GetPeerStatus,
    VolumeClients, VolumeHealInfo, VolumeInfo, VolumeProfile, VolumeRebalance, VolumeStatus,
};
use serde::Serialize;
use sessions::{Secrets, Sessions};
use std::sync::Arc;
use trust::ServerConfig;

/// The name of the cookie. By its beginning browsers know that it is for this server alone, and for TLS only.
const COOKIE: &str = "__Host-mortar";
/// The line of a request's head that only the page itself writes: browsers do not let other pages do so.
const TOKEN: &str = "mortar-console";
/// Bytes of a request's body.
pub(crate) const BODY: usize = 64 << 10;
/// The newest events that are shown.
const EVENTS: u32 = 200;

/// The server whose console it is.
pub(crate) trait Host: Send + Sync + 'static {
    /// Whose key file it is, if the pool lets him administer it.
    ///
    /// # Errors
    /// Words for him.
    fn recognize(&self, key_file: &[u8]) -> Result<Speaker, String>;

    /// Whether the pool still lets him in.
    fn lets_in(&self, who: &Speaker) -> bool;

    /// Somebody has signed in.
    fn note_entry(&self, who: String);

    /// Does what an administrator asks.
    fn ask(
        &self,
        request: AdminRequest,
        who: String,
    ) -> impl Future<Output = Result<AdminAnswer, AdminError>> + Send;
}

/// The console of a server.
pub(crate) struct Console<H> {
    host: H,
    key: Key,
    sessions: Sessions,
}

/// What the page learns when somebody signs in.
#[derive(Serialize)]
struct SignedIn {
    /// Who it is.
    name: String,
    /// What the page has to say with each request.
    token: String,
    /// After how many seconds without anybody the session ends.
    idle_seconds: u64,
}

impl<H: Host> Site for Console<H> {
    const BOUNDS: Bounds = Bounds { body: BODY, connections: 64, of_one_address: 24 };
    const NAME: &'static str = "the console";

    fn key(&self) -> Option<Arc<ServerConfig>> {
        Some((self.key)())
    }

    async fn answer(&self, request: Request) -> Answer {
        let answer = match of_api(&request) {
            Ok(what) => self.api(what, &request).await,
            Err(answer) => answer,
        };
        page::guarded(answer)
    }
}

/// Which part of the API is asked for.
///
/// # Errors
/// What anybody gets who asks for something else: a file of the page, or a refusal.
fn of_api(request: &Request) -> Result<&str, Answer> {
    match request.path.strip_prefix("/api/") {
        Some(what) if is_ours(request) => Ok(what),
        Some(_) => Err(error("403 Forbidden", ErrorCode::Invalid, "another page asks: sign in here")),
        None if request.method == Method::Post => Err(Answer::status("405 Method Not Allowed")),
        None => Err(page::file(&request.path).unwrap_or_else(|| Answer::status("404 Not Found"))),
    }
}

/// The secrets of the session that a request says it belongs to.
fn secrets(request: &Request) -> Option<Secrets> {
    let pairs = request.header("cookie")?.split(';').filter_map(|pair| pair.trim().split_once('='));
    let mut own = pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value);
    Some(Secrets { cookie: own.next()?.to_owned(), token: request.header(TOKEN)?.to_owned() })
}

/// What is answered to a request of somebody who has no session.
pub(crate) fn to_stranger(request: &Request) -> Answer {
    let _of_no_session = secrets(request);
    page::guarded(of_api(request).map_or_else(|answer| answer, |_| not_signed_in()))
}

fn not_signed_in() -> Answer {
    error("401 Unauthorized", ErrorCode::Invalid, "nobody is signed in, or not any more: sign in")
}

/// Whether the console's own page asks, or a program; not the page of another server.
fn is_ours(request: &Request) -> bool {
    let origin = match (request.header("origin"), request.header("host")) {
        (Some(origin), Some(host)) => origin.strip_prefix("https://") == Some(host),
        (Some(_), None) => false,
        (None, _) => true,
    };
    let from_here = request.header("sec-fetch-site").is_none_or(|site| site == "same-origin");
    origin && from_here && request.header(TOKEN).is_some()
}

impl<H: Host> Console<H> {
    pub(crate) fn new(host: H, key: Key) -> Console<H> {
        Console { host, key, sessions: Sessions::default() }
    }

    async fn api(&self, what: &str, request: &Request) -> Answer {
        let answer = match (request.method, what) {
            (Method::Post, "sign-in") => self.sign_in(request),
            _ => match self.session(request) {
                None => not_signed_in(),
                Some((secrets, who)) => match (request.method, what) {
                    (Method::Post, "sign-out") => {
                        self.sessions.end(&secrets);
                        Answer::json("200 OK", &()).with("Set-Cookie", cookie("", Some(0)))
                    }
                    (Method::Post, "do") => self.act(&request.body, called(&who, request)).await,
                    (Method::Post, _) => Answer::status("404 Not Found"),
                    _ => self.look(what, called(&who, request)).await,
                },
            },
        };
        answer.with("Cache-Control", "no-store")
    }

    fn sign_in(&self, request: &Request) -> Answer {
        match self.host.recognize(&request.body) {
            Err(why) => {
                // Not among the events: whoever reaches the port could fill them.
                let from = ids::bracketed(&request.from.to_string());
                tracing::warn!("sign-in to the console from {from} refused: {why}");
                error("403 Forbidden", ErrorCode::Invalid, why)
            }
            Ok(who) => {
                self.host.note_entry(called(&who, request));
                let secrets = self.sessions.begin(clock::now(), who.clone());
                let told = SignedIn {
                    name: who.called(None),
                    token: secrets.token,
                    idle_seconds: sessions::IDLE.as_secs(),
                };
                Answer::json("200 OK", &told).with("Set-Cookie", cookie(&secrets.cookie, None))
            }
        }
    }

    /// The session that a request belongs to, and whose it is.
    fn session(&self, request: &Request) -> Option<(Secrets, Speaker)> {
        let secrets = secrets(request)?;
        // A page that looks again by itself says so: it does not keep the session.
        let person = request.query != "again";
        let who = self.sessions.of(clock::now(), &secrets, person)?;
        if self.host.lets_in(&who) {
            return Some((secrets, who));
        }
        self.sessions.end(&secrets);
        None
    }

    /// What a path shows.
    async fn look(&self, what: &str, who: String) -> Answer {
        let of_volume = what.strip_prefix("volumes/").and_then(|rest| rest.split_once('/'));
        let Some((name, what)) = of_volume else {
            return match what {
                "pool" => self.tell(GetPeerStatus {}, who).await,
                "volumes" => self.tell(VolumeStatus { name: None }, who).await,
                "info" => self.tell(VolumeInfo { name: None }, who).await,
                "events" => self.tell(GetEvents { since_ms: 0, most: EVENTS }, who).await,
                "doctor" => self.tell(GetDoctor {}, who).await,
                "session" => Answer::json("200 OK", &who),
                _ => Answer::status("404 Not Found"),
            };
        };
        let name = name.to_owned();
        match what {
            "heal" => self.tell(VolumeHealInfo { name }, who).await,
            "clients" => self.tell(VolumeClients { name }, who).await,
            "rebalance" => {
                let (action, dry_run) = (admin::RebalanceAction::Status, false);
                self.tell(VolumeRebalance { name, action, dry_run }, who).await
            }
            "profile" => {
                let action = admin::ProfileAction::Info;
                self.tell(VolumeProfile { name, action }, who).await
            }
            _ => Answer::status("404 Not Found"),
        }
    }

    /// Asks, and gives the answer as it stands in the admin protocol.
    async fn tell<A: Ask<Answer: Serialize>>(&self, asked: A, who: String) -> Answer {
        match self.host.ask(asked.into_request(), who).await.map(A::take) {
            Ok(Some(answer)) => Answer::json("200 OK", &answer),
            Ok(None) => error("500 Internal Server Error", ErrorCode::Failed, "an unexpected answer came"),
            Err(e) => refused(&e),
        }
    }

    /// Does what the body asks for, if the console may.
    async fn act(&self, body: &[u8], who: String) -> Answer {
        let request: AdminRequest = match serde_json::from_slice(body) {
            Ok(request) => request,
            Err(e) => {
                return error(
                    "400 Bad Request",
                    ErrorCode::Invalid,
                    format!("the request cannot be read: {e}"),
                );
            }
        };
        if !is_offered(&request) {
            return error(
                "403 Forbidden",
                ErrorCode::Invalid,
                "the console does not do that: use the command line",
            );
        }
        match self.host.ask(request, who).await {
            Ok(answer) => Answer::json("200 OK", &answer),
            Err(e) => refused(&e),
        }
    }
}

/// What the console does. Nothing that makes keys or takes data away: who finds a signed-in browser must not stay.
fn is_offered(request: &AdminRequest) -> bool {
    use AdminRequest as R;
    matches!(
        request,
        R::VolumeStart(_)
            | R::VolumeStop(_)
            | R::VolumeHeal(_)
            | R::VolumeRebalance(_)
            | R::VolumeProfile(_)
            | R::PeerDrain(_)
    )
}

/// What the log of events calls him.
fn called(who: &Speaker, request: &Request) -> String {
    format!("{} (console)", who.called(Some(request.from)))
}

/// The line that has a browser keep the cookie, until it ends or for so many seconds.
fn cookie(value: &str, seconds: Option<u32>) -> String {
    let age = seconds.map_or_else(String::new, |s| format!("; Max-Age={s}"));
    format!("{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Strict{age}")
}

fn error(status: &'static str, code: ErrorCode, why: impl Into<String>) -> Answer {
    Answer::json(status, &AdminError::new(code, why))
}

/// The answer to a request that the pool refuses.
fn refused(e: &AdminError) -> Answer {
    let status = match e.code {
        ErrorCode::Invalid | ErrorCode::Version => "400 Bad Request",
        ErrorCode::NotFound => "404 Not Found",
        ErrorCode::Exists | ErrorCode::Conflict | ErrorCode::Limit | ErrorCode::Stale => "409 Conflict",
        ErrorCode::Unreachable | ErrorCode::ConnectionRefused | ErrorCode::Unavailable => {
            "503 Service Unavailable"
        }
        ErrorCode::Failed | ErrorCode::Unknown => "500 Internal Server Error",
    };
    Answer::json(status, e)
}

#[cfg(test)]
mod tests;
