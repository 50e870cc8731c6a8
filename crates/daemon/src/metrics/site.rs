//! Metrics over HTTP or HTTPS: one page, for everybody who reaches it.

use crate::http::{Answer, Bounds, Key, Method, Request, Site};
use std::sync::Arc;
use trust::ServerConfig;

/// Gives out what `text` makes, on `/metrics`.
pub(crate) struct MetricsSite<T> {
    key: Option<Key>,
    text: T,
}

impl<T> MetricsSite<T> {
    /// Encrypted if there is a key.
    pub(crate) fn new(key: Option<Key>, text: T) -> MetricsSite<T> {
        MetricsSite { key, text }
    }
}

impl<T, F> Site for MetricsSite<T>
where
    T: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = String> + Send,
{
    const BOUNDS: Bounds = Bounds { body: 0, connections: 8, of_one_address: 8 };
    const NAME: &'static str = "metrics";

    fn key(&self) -> Option<Arc<ServerConfig>> {
        self.key.as_ref().map(|key| key())
    }

    async fn answer(&self, request: Request) -> Answer {
        match (request.method, &*request.path) {
            (Method::Post, _) => Answer::status("405 Method Not Allowed"),
            (_, "/metrics") => {
                Answer::of("text/plain; version=0.0.4; charset=utf-8", (self.text)().await.into_bytes())
            }
            (_, "/") => Answer::text("200 OK", "metrics are at /metrics\n"),
            _ => Answer::status("404 Not Found"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_asked_for() {
        let site = MetricsSite::new(None, || async { "x 1\n".to_owned() });
        let asked = |method, target: &str| site.answer(Request::test(method, target, &[], ""));
        for target in ["/metrics", "/metrics?x=1"] {
            let answer = asked(Method::Get, target).await;
            assert_eq!((answer.status, &*answer.body), ("200 OK", &b"x 1\n"[..]));
            let kind = &answer.headers[0];
            assert_eq!((kind.0, &*kind.1), ("Content-Type", "text/plain; version=0.0.4; charset=utf-8"));
        }
        assert_eq!(asked(Method::Head, "/metrics").await.status, "200 OK");
        assert_eq!(asked(Method::Get, "/").await.status, "200 OK");
        assert_eq!(asked(Method::Get, "/secret").await.status, "404 Not Found");
        assert_eq!(asked(Method::Post, "/metrics").await.status, "405 Method Not Allowed");
    }
}
