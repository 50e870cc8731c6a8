//! A small HTTP/1.1 server: enough for Prometheus and for browsers, and nothing that could be abused.
//!
//! It reads one request of bounded size, answers and closes. Some connections at a time are served, each for some
//! seconds; who is slower is cut off. What is asked for is answered by a [`Site`].

mod answer;
mod request;

pub(crate) use answer::Answer;
pub(crate) use request::{Method, Request};

use request::Refused;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use transport::{Connection, TransportError, secure};
use trust::{Channel, ServerConfig};

use crate::shared::lock;

/// For a request to come, and for its answer to be taken.
const WAIT: Duration = Duration::from_secs(10);
/// For the other side to close the connection after the answer.
const LINGER: Duration = Duration::from_secs(1);
/// How a handshake of TLS begins.
const TLS: u8 = 0x16;

/// How much may be asked of a site.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes of a request's body.
    pub(crate) body: usize,
    /// Connections at a time; further ones wait to be accepted.
    pub(crate) connections: usize,
    /// Of these, connections of one address; further ones are closed.
    pub(crate) of_one_address: usize,
}

/// What TLS is to do on the next connection: a site may get another key while it is served.
pub(crate) type Key = Box<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

/// What a server gives out at one address.
pub(crate) trait Site: Send + Sync + 'static {
    /// How much may be asked of it.
    const BOUNDS: Bounds;
    /// What it is called in the log.
    const NAME: &'static str;

    /// The key that it is encrypted with; `None`: it is not.
    fn key(&self) -> Option<Arc<ServerConfig>>;

    /// The answer to a request.
    fn answer(&self, request: Request) -> impl Future<Output = Answer> + Send;
}

/// Serves a site, for ever.
pub(crate) async fn serve<S: Site>(listener: TcpListener, site: S) {
    let (site, places) = (Arc::new(site), Arc::new(Semaphore::new(S::BOUNDS.connections)));
    let addresses = Arc::new(Addresses::default());
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, from)) => {
                let from = from.ip();
                let Some(counted) = addresses.enter(from, S::BOUNDS.of_one_address) else { continue };
                let site = site.clone();
                tokio::spawn(async move {
                    if let Err(e) = converse(stream, from, &*site).await {
                        tracing::debug!("{}, {}: {e}", S::NAME, ids::bracketed(&from.to_string()));
                    }
                    drop((place, counted));
                });
            }
            Err(e) => {
                tracing::warn!("accept a connection for {}: {e}", S::NAME);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// One request and its answer.
async fn converse<S: Site>(stream: TcpStream, from: IpAddr, site: &S) -> Result<(), TransportError> {
    let Ok(opened) = tokio::time::timeout(WAIT, open(stream, from, site.key())).await else {
        return Err(TransportError::Closed);
    };
    let (mut connection, refused) = opened?;
    let (answer, method) = match refused {
        Some(answer) => (answer, Method::Get),
        None => {
            let read = request::read(&mut connection.reader, from, S::BOUNDS.body);
            match tokio::time::timeout(WAIT, read).await {
                Ok(Ok(request)) => {
                    let method = request.method;
                    (site.answer(request).await, method)
                }
                Ok(Err(Refused::Gone(e))) => return Err(e.into()),
                Ok(Err(Refused::Request(status))) => (Answer::status(status), Method::Get),
                Err(_) => (Answer::status("408 Request Timeout"), Method::Get),
            }
        }
    };
    let send = async {
        connection.writer.write_all(&answer.encode(method != Method::Head)).await?;
        connection.writer.shutdown().await
    };
    tokio::time::timeout(WAIT, send).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
    // What was not read yet would have the system reset the connection, and the answer with it.
    let read_rest = async {
        let mut rest = [0; 1024];
        while connection.reader.read(&mut rest).await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    tokio::time::timeout(LINGER, read_rest).await.unwrap_or(Ok(()))?;
    Ok(())
}

/// The request that these bytes are, and what is answered if they are none.
pub(crate) async fn read_bytes(mut bytes: &[u8], most: usize) -> Result<Request, Option<Answer>> {
    match request::read(&mut bytes, IpAddr::from([0; 4]), most).await {
        Ok(request) => Ok(request),
        Err(Refused::Request(status)) => Err(Some(Answer::status(status))),
        Err(Refused::Gone(_)) => Err(None),
    }
}

/// The connection, encrypted if there is a key; with an answer for whoever speaks without TLS then.
async fn open(
    stream: TcpStream,
    from: IpAddr,
    key: Option<Arc<ServerConfig>>,
) -> Result<(Connection, Option<Answer>), TransportError> {
    let Some(key) = key else { return Ok((stream.into(), None)) };
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(TransportError::Closed);
    }
    if first != [TLS] {
        let answer = Answer::text("400 Bad Request", "this is served over https:// only\n");
        return Ok((stream.into(), Some(answer)));
    }
    stream.set_nodelay(true)?;
    let channel = Channel::server(key).map_err(|_| TransportError::Closed)?;
    Ok((secure(stream, channel, &from.to_string(), WAIT).await?.into(), None))
}

/// Connections by address.
#[derive(Debug, Default)]
struct Addresses(Mutex<HashMap<IpAddr, usize>>);

/// A connection of an address; it counts while this lives.
#[derive(Debug)]
struct Counted(Arc<Addresses>, IpAddr);

impl Addresses {
    /// `None`: the address has `most` connections.
    fn enter(self: &Arc<Self>, from: IpAddr, most: usize) -> Option<Counted> {
        let mut all = lock(&self.0);
        let own = all.entry(from).or_default();
        if *own >= most {
            return None;
        }
        *own += 1;
        Some(Counted(self.clone(), from))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut all = lock(&self.0.0);
        if let Some(own) = all.get_mut(&self.1) {
            *own -= 1;
            if *own == 0 {
                all.remove(&self.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One;

    impl Site for One {
        const BOUNDS: Bounds = Bounds { body: 10, connections: 4, of_one_address: 4 };
        const NAME: &'static str = "a test";

        fn key(&self) -> Option<Arc<ServerConfig>> {
            None
        }

        async fn answer(&self, request: Request) -> Answer {
            let body = String::from_utf8(request.body).unwrap();
            Answer::text("200 OK", format!("{} {body}\n", request.path))
        }
    }

    async fn begin() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, One));
        at
    }

    async fn answer(to: std::net::SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn a_request_is_answered_though_others_never_ask() {
        let at = begin().await;
        let mut idle = Vec::new();
        for _ in 1..One::BOUNDS.connections {
            idle.push(TcpStream::connect(at).await.unwrap());
        }
        let text = answer(at, b"GET /a HTTP/1.1\r\n\r\n").await;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n/a \n"), "{text}");
        let text = answer(at, b"HEAD /a HTTP/1.1\r\n\r\n").await;
        assert!(text.contains("Content-Length: 4\r\n") && text.ends_with("\r\n\r\n"), "{text}");
        let text = answer(at, b"POST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyz").await;
        assert!(text.ends_with("/b xyz\n"), "{text}");
        let text = answer(at, &[b'a'; request::HEAD]).await;
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
        let text = answer(at, b"POST /b HTTP/1.1\r\nContent-Length: 11\r\n\r\n").await;
        assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_never_asks_is_cut_off() {
        let at = begin().await;
        let mut idle = Vec::new();
        for _ in 0..One::BOUNDS.connections {
            idle.push(TcpStream::connect(at).await.unwrap());
        }
        // The body that was announced does not come either.
        idle[0].write_all(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n").await.unwrap();
        let mut late = TcpStream::connect(at).await.unwrap();
        let mut told = String::new();
        idle[0].read_to_string(&mut told).await.unwrap();
        assert!(told.starts_with("HTTP/1.1 408 "), "{told}");
        idle.clear();
        late.write_all(b"GET /a HTTP/1.1\r\n\r\n").await.unwrap();
        let mut text = String::new();
        late.read_to_string(&mut text).await.unwrap();
        assert!(text.ends_with("/a \n"), "{text}");
    }

    #[test]
    fn one_address_does_not_take_all_places() {
        let addresses = Arc::new(Addresses::default());
        let (one, other) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let first = addresses.enter(one, 2).unwrap();
        let _second = addresses.enter(one, 2).unwrap();
        assert!(addresses.enter(one, 2).is_none());
        assert!(addresses.enter(other, 2).is_some());
        drop(first);
        assert!(addresses.enter(one, 2).is_some());
        assert_eq!(lock(&addresses.0).len(), 1, "nothing is kept of those who left");
    }
}
