//! What is answered to an HTTP request.

use serde::Serialize;
use std::borrow::Cow;

/// An answer. The connection ends with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// The code and its words.
    pub(crate) status: &'static str,
    /// Further lines of the head.
    pub(crate) headers: Vec<(&'static str, Cow<'static, str>)>,
    /// What is sent.
    pub(crate) body: Cow<'static, [u8]>,
}

impl Answer {
    /// Something of that media type.
    pub(crate) fn of(kind: &'static str, body: impl Into<Cow<'static, [u8]>>) -> Answer {
        Answer { status: "200 OK", headers: vec![("Content-Type", kind.into())], body: body.into() }
    }

    /// Plain text.
    pub(crate) fn text(status: &'static str, text: impl Into<String>) -> Answer {
        Answer { status, ..Answer::of("text/plain; charset=utf-8", text.into().into_bytes()) }
    }

    /// The words of a status, as the text too.
    pub(crate) fn status(status: &'static str) -> Answer {
        Answer::text(status, format!("{status}\n"))
    }

    /// JSON.
    pub(crate) fn json<T: Serialize>(status: &'static str, value: &T) -> Answer {
        match serde_json::to_vec(value) {
            Ok(body) => Answer { status, ..Answer::of("application/json", body) },
            Err(e) => Answer::text("500 Internal Server Error", format!("{e}\n")),
        }
    }

    /// One more line in the head.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Answer {
        self.headers.push((name, value.into()));
        self
    }

    /// The bytes of it, with the body or without.
    pub(crate) fn encode(&self, with_body: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {}\r\n", self.status);
        let length = Cow::from(self.body.len().to_string());
        let own = [("Content-Length", length), ("Connection", "close".into())];
        for (name, value) in self.headers.iter().chain(&own) {
            assert!(!value.contains(['\r', '\n']), "{name}: a line of the head has no ends of lines in it");
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        if with_body {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}
