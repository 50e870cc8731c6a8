//! A small HTTP/1.1 server for one page: enough for Prometheus, and nothing that could be abused.
//!
//! It reads a head of at most 8 KiB, answers and closes. Some at a time are served, each for some seconds; who is slower is
//! cut off.

use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Bytes of a request.
const HEAD: usize = 8 << 10;
/// Requests at a time; further ones wait to be accepted.
const AT_A_TIME: usize = 8;
/// For a request to come, and for its answer to be taken.
const WAIT: Duration = Duration::from_secs(10);

/// Gives out what `page` makes, on `/metrics`, for ever.
pub(crate) async fn serve<F: Future<Output = String> + Send>(
    listener: TcpListener,
    page: impl Fn() -> F + Send + Sync + 'static,
) {
    let (page, places) = (Arc::new(page), Arc::new(Semaphore::new(AT_A_TIME)));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((mut stream, _)) => {
                let page = page.clone();
                tokio::spawn(async move {
                    let head = tokio::time::timeout(WAIT, head(&mut stream)).await;
                    let answer = match head {
                        Ok(Ok(head)) => match Asked::of(&head) {
                            Asked::Metrics { body } => Answer { body, ..Answer::ok(page().await) },
                            Asked::Start => Answer::ok("metrics are at /metrics\n".to_owned()),
                            Asked::Other(status) => Answer::refused(status),
                        },
                        Ok(Err(_)) => return,
                        Err(_) => Answer::refused("408 Request Timeout"),
                    };
                    let _cut = tokio::time::timeout(WAIT, answer.send(&mut stream)).await;
                    drop(place);
                });
            }
            Err(e) => {
                tracing::warn!("accept a connection for metrics: {e}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Reads until the empty line.
async fn head(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    loop {
        let mut part = [0; 1024];
        let n = stream.read(&mut part).await?;
        head.extend(part.iter().take(n));
        if n == 0 || head.windows(4).any(|w| w == b"\r\n\r\n") || head.len() >= HEAD {
            return Ok(head);
        }
    }
}

/// What is asked for.
#[derive(PartialEq, Eq, Debug)]
enum Asked {
    Metrics { body: bool },
    Start,
    Other(&'static str),
}

impl Asked {
    fn of(head: &[u8]) -> Asked {
        if !head.windows(4).any(|w| w == b"\r\n\r\n") {
            return Asked::Other("431 Request Header Fields Too Large");
        }
        let line = head.split(|b| *b == b'\r').next().unwrap_or_default();
        let mut words = line.split(|b| *b == b' ');
        let (method, target, version) = (words.next(), words.next(), words.next());
        if !version.is_some_and(|v| v.starts_with(b"HTTP/1.")) || words.next().is_some() {
            return Asked::Other("400 Bad Request");
        }
        let path = target.and_then(|t| t.split(|b| *b == b'?').next());
        match (method, path) {
            (Some(b"GET"), Some(b"/metrics")) => Asked::Metrics { body: true },
            (Some(b"HEAD"), Some(b"/metrics")) => Asked::Metrics { body: false },
            (Some(b"GET"), Some(b"/")) => Asked::Start,
            (Some(b"GET" | b"HEAD"), _) => Asked::Other("404 Not Found"),
            _ => Asked::Other("405 Method Not Allowed"),
        }
    }
}

/// What is answered.
struct Answer {
    status: &'static str,
    text: String,
    /// Send the text too.
    body: bool,
}

impl Answer {
    fn ok(text: String) -> Answer {
        Answer { status: "200 OK", text, body: true }
    }

    fn refused(status: &'static str) -> Answer {
        Answer { status, text: format!("{status}\n"), body: true }
    }

    async fn send(self, stream: &mut TcpStream) -> std::io::Result<()> {
        let mut answer = format!(
            "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.status,
            self.text.len()
        );
        if self.body {
            answer.push_str(&self.text);
        }
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let asked = |line: &str| Asked::of(format!("{line}\r\nHost: h\r\n\r\n").as_bytes());
        assert_eq!(asked("GET /metrics HTTP/1.1"), Asked::Metrics { body: true });
        assert_eq!(asked("GET /metrics?x=1 HTTP/1.0"), Asked::Metrics { body: true });
        assert_eq!(asked("HEAD /metrics HTTP/1.1"), Asked::Metrics { body: false });
        assert_eq!(asked("GET / HTTP/1.1"), Asked::Start);
        assert_eq!(asked("GET /secret HTTP/1.1"), Asked::Other("404 Not Found"));
        assert_eq!(asked("POST /metrics HTTP/1.1"), Asked::Other("405 Method Not Allowed"));
        for bad in ["", "GET", "GET /metrics", "GET /metrics HTTP/2", "GET /metrics HTTP/1.1 x"] {
            assert_eq!(asked(bad), Asked::Other("400 Bad Request"), "{bad}");
        }
        let unfinished = Asked::of(b"GET /metrics HTTP/1.1\r\n");
        assert_eq!(unfinished, Asked::Other("431 Request Header Fields Too Large"));
    }

    async fn answer(to: std::net::SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn a_page_is_given_out_though_others_never_ask() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, || async { "x 1\n".to_owned() }));
        let mut idle = Vec::new();
        for _ in 1..AT_A_TIME {
            idle.push(TcpStream::connect(at).await.unwrap());
        }
        let text = answer(at, b"GET /metrics HTTP/1.1\r\n\r\n").await;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nx 1\n"), "{text}");
        let text = answer(at, &[b'a'; HEAD]).await;
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_never_asks_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, || async { "x 1\n".to_owned() }));
        let mut idle = Vec::new();
        for _ in 0..AT_A_TIME {
            idle.push(TcpStream::connect(at).await.unwrap());
        }
        let text = answer(at, b"GET /metrics HTTP/1.1\r\n\r\n").await;
        assert!(text.ends_with("x 1\n"), "{text}");
    }
}
