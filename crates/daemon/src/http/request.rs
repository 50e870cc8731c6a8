//! What is asked over HTTP: read with bounds, and refused unless it is written plainly.

use std::net::IpAddr;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of a request's head.
pub(crate) const HEAD: usize = 8 << 10;
/// Lines of it after the first.
const LINES: usize = 64;

/// What is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    Get,
    /// The head of what `Get` gives.
    Head,
    Post,
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// What is before the `?`.
    pub(crate) path: String,
    /// What is behind it.
    pub(crate) query: String,
    /// Names in small letters.
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) from: IpAddr,
}

/// Why nothing is done for a request.
#[derive(Debug)]
pub(super) enum Refused {
    /// It is answered with that status.
    Request(&'static str),
    /// Nobody waits for an answer.
    Gone(std::io::Error),
}

impl From<std::io::Error> for Refused {
    fn from(e: std::io::Error) -> Refused {
        Refused::Gone(e)
    }
}

const BAD: Refused = Refused::Request("400 Bad Request");

impl Request {
    /// The value of a line of the head; `None`: there is none, or there are several.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(n, _)| n == name);
        let (_, value) = all.next()?;
        all.next().is_none().then_some(value.as_str())
    }

    /// Whether there is such a line in the head.
    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(n, _)| n == name)
    }

    /// Reads a head that ends with an empty line.
    fn of(head: &[u8], from: IpAddr) -> Result<Request, Refused> {
        let head = std::str::from_utf8(head).map_err(|_| BAD)?;
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(BAD);
        };
        if !version.starts_with("HTTP/1.") || !target.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(BAD);
        }
        let method = match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            _ => return Err(Refused::Request("405 Method Not Allowed")),
        };
        let headers = lines.take_while(|l| !l.is_empty()).map(line);
        let headers = headers.collect::<Option<Vec<_>>>().filter(|h| h.len() <= LINES).ok_or(BAD)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (path, query) = (path.to_owned(), query.to_owned());
        Ok(Request { method, path, query, headers, body: Vec::new(), from })
    }

    /// How long its body is.
    fn length(&self, most: usize) -> Result<usize, Refused> {
        if self.has("transfer-encoding") {
            return Err(Refused::Request("411 Length Required"));
        }
        if !self.has("content-length") {
            return Ok(0);
        }
        let digits = self.header("content-length").filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
        match digits.filter(|d| (1..=18).contains(&d.len())).and_then(|d| d.parse().ok()) {
            None => Err(BAD),
            Some(length) if length > most => Err(Refused::Request("413 Content Too Large")),
            Some(length) => Ok(length),
        }
    }
}

/// A line of the head: its name in small letters, and its value.
fn line(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let good =
        !name.is_empty() && name.bytes().all(plain) && !value.contains(|c: char| c.is_control() && c != '\t');
    good.then(|| (name.to_ascii_lowercase(), value.trim().to_owned()))
}

/// Reads a request whose body has at most `most` bytes.
pub(super) async fn read<R: AsyncRead + Unpin>(
    reader: &mut R,
    from: IpAddr,
    most: usize,
) -> Result<Request, Refused> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        let mut part = [0; 1024];
        let n = if bytes.len() >= HEAD { 0 } else { reader.read(&mut part).await? };
        if n == 0 && bytes.is_empty() {
            return Err(Refused::Gone(std::io::ErrorKind::UnexpectedEof.into()));
        }
        if n == 0 {
            return Err(Refused::Request("431 Request Header Fields Too Large"));
        }
        bytes.extend(part.iter().take(n));
    };
    let body = bytes.split_off(end);
    let mut request = Request::of(&bytes, from)?;
    let length = request.length(most)?;
    request.body = body;
    // Who sends more than he announced asks twice on one connection: the rest is not looked at.
    request.body.truncate(length);
    let lacking = length - request.body.len();
    let mut rest = vec![0; lacking];
    reader.read_exact(&mut rest).await?;
    request.body.extend(rest);
    Ok(request)
}

#[cfg(test)]
impl Request {
    /// A request as a browser sends it.
    pub(crate) fn test(method: Method, target: &str, headers: &[(&str, &str)], body: &str) -> Request {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Request {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            headers: headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            body: body.as_bytes().to_vec(),
            from: [192, 0, 2, 1].into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(bytes: &str) -> Result<Request, &'static str> {
        match read(&mut bytes.as_bytes(), [127, 0, 0, 1].into(), 8).await {
            Ok(request) => Ok(request),
            Err(Refused::Request(status)) => Err(status),
            Err(Refused::Gone(_)) => Err("gone"),
        }
    }

    #[tokio::test]
    async fn requests_as_browsers_write_them() {
        let text = "POST /a/b?c=d HTTP/1.1\r\nHost: h:1\r\nCONTENT-length:  3 \r\nX: \r\n\r\nxyzw";
        let request = asked(text).await.unwrap();
        assert_eq!((request.method, &*request.path, &*request.query), (Method::Post, "/a/b", "c=d"));
        assert_eq!((request.header("host"), request.header("x")), (Some("h:1"), Some("")));
        assert_eq!((request.header("y"), &*request.body), (None, &b"xyz"[..]));
        let twice = asked("GET / HTTP/1.0\r\na: 1\r\nA: 2\r\n\r\n").await.unwrap();
        assert_eq!((twice.method, twice.header("a")), (Method::Get, None), "which one is meant?");
    }

    #[tokio::test]
    async fn what_is_no_request_is_refused() {
        let bad = "400 Bad Request";
        for (text, status) in [
            ("", "gone"),
            ("GET / HTTP/1.1\r\n", "431 Request Header Fields Too Large"),
            ("\r\n\r\n", bad),
            ("GET\r\n\r\n", bad),
            ("GET /\r\n\r\n", bad),
            ("GET / HTTP/2\r\n\r\n", bad),
            ("GET / HTTP/1.1 x\r\n\r\n", bad),
            ("GET /\u{e4} HTTP/1.1\r\n\r\n", bad),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", bad),
            ("GET / HTTP/1.1\r\n folded: x\r\n\r\n", bad),
            ("GET / HTTP/1.1\r\nname : x\r\n\r\n", bad),
            ("GET / HTTP/1.1\r\na: x\ny\r\n\r\n", bad),
            ("PUT / HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n", "413 Content Too Large"),
            ("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", bad),
            ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", bad),
            ("POST / HTTP/1.1\r\nContent-Length:\r\n\r\n", bad),
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", bad),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "411 Length Required"),
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nx", "gone"),
        ] {
            assert_eq!(asked(text).await.unwrap_err(), status, "{text:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(LINES + 1));
        assert_eq!(asked(&many).await.unwrap_err(), bad);
    }
}
