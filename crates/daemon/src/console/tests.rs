//! What is asked of the console, as browsers and others ask it.

use super::*;
use crate::shared::lock;
use admin::{PeerStatus, VolumeStart, VolumeStarted};
use ids::KeyId;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use trust::{Authority, Holder, Identity, KeyName, PrivateKey, WebKey};

/// A server that remembers what it was asked.
#[derive(Default)]
struct Fake {
    revoked: AtomicBool,
    asked: Mutex<Vec<(AdminRequest, String)>>,
    entries: Mutex<Vec<String>>,
}

impl Host for Arc<Fake> {
    fn recognize(&self, key_file: &[u8]) -> Result<Speaker, String> {
        let name =
            std::str::from_utf8(key_file).ok().and_then(|text| KeyName::new(text.strip_prefix("key of ")?));
        let holder = Holder::Admin(name.ok_or("no key")?);
        Ok(Speaker::Key(Identity { pool: [1; 16], key: KeyId(7), holder }))
    }

    fn lets_in(&self, _: &Speaker) -> bool {
        !self.revoked.load(Ordering::Relaxed)
    }

    fn note_entry(&self, who: String) {
        lock(&self.entries).push(who);
    }

    async fn ask(&self, request: AdminRequest, who: String) -> Result<AdminAnswer, AdminError> {
        lock(&self.asked).push((request.clone(), who));
        match request {
            AdminRequest::PeerStatus(_) => {
                Ok(AdminAnswer::PeerStatus(PeerStatus { pool: "p".to_owned(), ..PeerStatus::default() }))
            }
            AdminRequest::VolumeStart(VolumeStart { name }) => {
                Ok(AdminAnswer::VolumeStart(VolumeStarted { name, serving: true, already: false }))
            }
            _ => Err(AdminError::new(ErrorCode::Conflict, "not now")),
        }
    }
}

fn console() -> (Arc<Fake>, Console<Arc<Fake>>) {
    let authority = Authority::new([1; 16], PrivateKey::generate().unwrap()).unwrap();
    let key = WebKey::issue(&authority, &["h".to_owned()]).unwrap();
    let fake = Arc::new(Fake::default());
    let key = key.config().unwrap();
    (fake.clone(), Console::new(fake, Box::new(move || key.clone())))
}

fn value<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.iter().find(|(n, _)| *n == name).map(|(_, value)| &**value)
}

fn body(answer: &Answer) -> serde_json::Value {
    serde_json::from_slice(&answer.body).unwrap()
}

/// Signs in; the cookie, and what the page says.
async fn signed_in(console: &Console<Arc<Fake>>) -> (String, String) {
    let own = [(TOKEN, "sign-in"), ("host", "h:9"), ("origin", "https://h:9")];
    let answer = console.answer(Request::test(Method::Post, "/api/sign-in", &own, "key of ann")).await;
    assert_eq!(answer.status, "200 OK");
    let told = body(&answer);
    assert_eq!((&told["name"], &told["idle_seconds"]), (&"ann".into(), &1800.into()));
    let set = value(&answer, "Set-Cookie").unwrap();
    let (cookie, rules) = set.split_once(';').unwrap();
    assert_eq!(rules, " Path=/; Secure; HttpOnly; SameSite=Strict");
    (cookie.to_owned(), told["token"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn who_has_signed_in_sees_and_does_things_by_name() {
    let (fake, console) = console();
    let (cookie, token) = signed_in(&console).await;
    let cookies = format!("a=b; {cookie}");
    let own = [("cookie", cookies.as_str()), (TOKEN, token.as_str())];
    let answer = console.answer(Request::test(Method::Get, "/api/pool?again", &own, "")).await;
    assert_eq!((answer.status, &body(&answer)["pool"]), ("200 OK", &"p".into()));
    assert_eq!(value(&answer, "Cache-Control"), Some("no-store"));
    let start = r#"{"volume-start":{"name":"v"}}"#;
    let answer = console.answer(Request::test(Method::Post, "/api/do", &own, start)).await;
    assert_eq!((answer.status, &body(&answer)["volume-start"]["name"]), ("200 OK", &"v".into()));
    let answer = console.answer(Request::test(Method::Get, "/api/volumes/v/profile", &own, "")).await;
    assert_eq!((answer.status, &body(&answer)["message"]), ("409 Conflict", &"not now".into()));
    let who = "ann at 192.0.2.1 (console)";
    assert!(lock(&fake.asked).iter().all(|(_, asker)| asker == who), "{:?}", lock(&fake.asked));
    assert_eq!(lock(&fake.asked).len(), 3);
    assert_eq!(*lock(&fake.entries), [who]);
    for path in ["/api/", "/api/none", "/api/volumes/v", "/api/volumes/v/none"] {
        let answer = console.answer(Request::test(Method::Get, path, &own, "")).await;
        assert_eq!(answer.status, "404 Not Found", "{path}");
    }
}

#[tokio::test]
async fn nothing_is_told_without_a_session() {
    let (fake, console) = console();
    let (cookie, token) = signed_in(&console).await;
    let other = "0".repeat(64);
    let foreign = format!("__Host-mortar={other}");
    for headers in [
        vec![(TOKEN, token.as_str())],
        vec![(TOKEN, token.as_str()), ("cookie", foreign.as_str())],
        vec![(TOKEN, other.as_str()), ("cookie", cookie.as_str())],
        vec![(TOKEN, "sign-in"), ("cookie", cookie.as_str())],
    ] {
        for (method, path) in [
            (Method::Get, "/api/pool"),
            (Method::Post, "/api/do"),
            (Method::Post, "/api/sign-out"),
            (Method::Get, "/api/sign-in"),
            (Method::Get, "/api/none"),
        ] {
            let answer = console.answer(Request::test(method, path, &headers, "{}")).await;
            assert_eq!(answer.status, "401 Unauthorized", "{path} {headers:?}");
        }
    }
    assert!(lock(&fake.asked).is_empty());
    let refused = Request::test(Method::Post, "/api/sign-in", &[(TOKEN, "sign-in")], "some text");
    assert_eq!(console.answer(refused).await.status, "403 Forbidden");
}

#[tokio::test]
async fn pages_of_other_servers_ask_for_nothing() {
    let (fake, console) = console();
    let (cookie, token) = signed_in(&console).await;
    let both = [("cookie", cookie.as_str()), (TOKEN, token.as_str())];
    for more in [
        vec![("host", "h:9"), ("origin", "https://elsewhere:9")],
        vec![("host", "h:9"), ("origin", "http://h:9")],
        vec![("host", "h:9"), ("origin", "null")],
        vec![("origin", "https://h:9")],
        vec![("sec-fetch-site", "cross-site")],
        vec![("sec-fetch-site", "same-site")],
    ] {
        let headers = [&both[..], &more].concat();
        for (method, path) in
            [(Method::Post, "/api/do"), (Method::Get, "/api/pool"), (Method::Post, "/api/sign-in")]
        {
            let answer = console.answer(Request::test(method, path, &headers, "key of ann")).await;
            assert_eq!(answer.status, "403 Forbidden", "{path} {more:?}");
        }
    }
    // A form of another page cannot write that line.
    let answer = console.answer(Request::test(Method::Post, "/api/do", &both[..1], "{}")).await;
    assert_eq!(answer.status, "403 Forbidden");
    assert!(lock(&fake.asked).is_empty());
    let fine = [&both[..], &[("host", "h:9"), ("origin", "https://h:9"), ("sec-fetch-site", "same-origin")]]
        .concat();
    assert_eq!(console.answer(Request::test(Method::Get, "/api/pool", &fine, "")).await.status, "200 OK");
}

#[tokio::test]
async fn a_session_ends_with_its_key_or_when_somebody_signs_out() {
    let (fake, console) = console();
    let (cookie, token) = signed_in(&console).await;
    let own = [("cookie", cookie.as_str()), (TOKEN, token.as_str())];
    let answer = console.answer(Request::test(Method::Post, "/api/sign-out", &own, "")).await;
    assert!(value(&answer, "Set-Cookie").unwrap().ends_with("; Max-Age=0"));
    assert_eq!(
        console.answer(Request::test(Method::Get, "/api/pool", &own, "")).await.status,
        "401 Unauthorized"
    );
    let (cookie, token) = signed_in(&console).await;
    let own = [("cookie", cookie.as_str()), (TOKEN, token.as_str())];
    fake.revoked.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(
            console.answer(Request::test(Method::Get, "/api/pool", &own, "")).await.status,
            "401 Unauthorized"
        );
        fake.revoked.store(false, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn the_console_makes_no_keys_and_takes_nothing_away() {
    let (fake, console) = console();
    let (cookie, token) = signed_in(&console).await;
    let own = [("cookie", cookie.as_str()), (TOKEN, token.as_str())];
    for request in [
        r#"{"pool-key":{"name":"x"}}"#,
        r#"{"pool-token":{"valid":9}}"#,
        r#"{"client-add":{"name":"x","volume":"v"}}"#,
        r#"{"client-revoke":{"name":"x"}}"#,
        r#"{"volume-delete":{"name":"v"}}"#,
        r#"{"peer-detach":{"host":"h"}}"#,
        r#"{"config-apply":{"document":""}}"#,
    ] {
        let answer = console.answer(Request::test(Method::Post, "/api/do", &own, request)).await;
        assert_eq!(answer.status, "403 Forbidden", "{request}");
    }
    for request in ["", "[]", r#"{"volume-start":{}}"#, r#"{"no":{}}"#] {
        let answer = console.answer(Request::test(Method::Post, "/api/do", &own, request)).await;
        assert_eq!(answer.status, "400 Bad Request", "{request}");
    }
    assert!(lock(&fake.asked).is_empty());
}

#[tokio::test]
async fn everybody_gets_the_page_with_its_policy() {
    let (_, console) = console();
    let answer = console.answer(Request::test(Method::Get, "/", &[], "")).await;
    assert_eq!((answer.status, value(&answer, "Content-Type")), ("200 OK", Some("text/html; charset=utf-8")));
    let policy = value(&answer, "Content-Security-Policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"),
        "{policy}"
    );
    for (method, path, status) in [
        (Method::Get, "/app.js", "200 OK"),
        (Method::Head, "/style.css", "200 OK"),
        (Method::Get, "/../keys", "404 Not Found"),
        (Method::Post, "/", "405 Method Not Allowed"),
        (Method::Get, "/api/pool", "403 Forbidden"),
    ] {
        let answer = console.answer(Request::test(method, path, &[], "")).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(value(&answer, "Content-Security-Policy").is_some());
    }
}
