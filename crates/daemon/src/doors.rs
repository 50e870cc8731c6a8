//! What comes over HTTP, taken without a connection: for tests that give any bytes.

use crate::http::{self, Answer, Site};
use crate::{console, metrics::MetricsSite};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Takes bytes as a request over HTTP and works out what the console and the page of metrics answer to somebody who is not
/// signed in. Whether it is a request.
///
/// # Panics
/// An answer is not one, which no bytes may bring about.
pub fn is_http_request(bytes: &[u8]) -> bool {
    match at_once(http::read_bytes(bytes, console::BODY)) {
        Some(Ok(request)) => {
            check(&console::to_stranger(&request));
            let metrics = at_once(MetricsSite::new(None, || async { String::new() }).answer(request));
            metrics.as_ref().map(check);
            metrics.is_some()
        }
        Some(Err(refusal)) => {
            refusal.as_ref().map(check);
            false
        }
        None => false,
    }
}

/// What comes of something that waits for nobody.
fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// The head ends where it is to end: nothing of a request gets into it.
fn check(answer: &Answer) {
    let head = answer.encode(false);
    let ends = head.windows(4).filter(|w| w == b"\r\n\r\n").count();
    assert!(head.starts_with(b"HTTP/1.1 ") && head.ends_with(b"\r\n\r\n") && ends == 1, "{answer:?}");
}

#[cfg(test)]
mod tests {
    use super::is_http_request;

    #[test]
    fn requests_are_told_from_other_bytes() {
        assert!(is_http_request(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert!(is_http_request(
            b"POST /api/do HTTP/1.1\r\nmortar-console: x\r\nContent-Length: 2\r\n\r\n{}"
        ));
        for no in
            ["", "GET /metrics", "GET / HTTP/2\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n{}"]
        {
            assert!(!is_http_request(no.as_bytes()), "{no:?}");
        }
    }
}
