//! One side of a connection's encryption: bytes go in and out, the socket is somebody else's.
//!
//! rustls opens records where they lie and seals them where they are sent from (its unbuffered interface): of the other one, that
//! copies what comes 4 KiB at a time, a stream would spend as much time on copies as on encryption.

use crate::error::{Distrust, IdentityError, TrustError};
use crate::identity::Identity;
use crate::outgoing::Outgoing;
use crate::room::Room;
use crate::tls::{identity_of, server_name};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, ServerConfig};
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::ops::Deref;
use std::sync::Arc;

/// Both sides of TLS.
enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

impl Deref for Side {
    type Target = CommonState;

    fn deref(&self) -> &CommonState {
        match self {
            Side::Client(client) => client,
            Side::Server(server) => server,
        }
    }
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Side::Client(_)) { "Client" } else { "Server" })
    }
}

/// The state of one side of an encrypted connection.
#[derive(Debug)]
pub struct Channel {
    side: Side,
    /// What came from the socket, of which `from..to` was not opened yet: at rest less than a record.
    incoming: Vec<u8>,
    from: usize,
    to: usize,
    room: Room,
    /// What was opened, and from where on it was not given yet.
    opened: Vec<u8>,
    given: usize,
    outgoing: Outgoing,
    /// The other side said that it sends nothing more.
    ended: bool,
    /// Why nothing else comes of it, but word of that for the other side.
    refused: Option<rustls::Error>,
}

/// What a step has led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Something was opened, or there is something for the socket: more may follow.
    More,
    /// All that came was looked at.
    Rests,
}

fn refused(why: rustls::Error) -> io::Error {
    match Distrust::of(&why) {
        Some(distrust) => io::Error::new(ErrorKind::InvalidData, distrust),
        None => io::Error::new(ErrorKind::InvalidData, why),
    }
}

/// What is to be written when all that came was looked at.
enum Writing<'a, 'p> {
    Nothing,
    /// These bytes; how many of them were sealed is noted.
    Bytes(&'a [IoSlice<'p>], &'a mut usize),
    /// That nothing more comes.
    End,
}

/// What a step works on beside TLS.
struct Work<'a, 'p> {
    outgoing: &'a mut Outgoing,
    ended: &'a mut bool,
    refused: &'a mut Option<rustls::Error>,
    writing: Writing<'a, 'p>,
}

impl Work<'_, '_> {
    /// Does what TLS wants now, and gives what it has opened; how much of what came can be dropped.
    fn handle<Data>(
        self,
        status: UnbufferedStatus<'_, '_, Data>,
        give: &mut dyn FnMut(&[u8]),
    ) -> (usize, io::Result<Step>) {
        let UnbufferedStatus { mut discard, state } = status;
        let done = match state {
            Err(why) => {
                *self.refused = Some(why.clone());
                Err(refused(why))
            }
            Ok(ConnectionState::ReadTraffic(mut records)) => {
                let mut result = Ok(Step::More);
                while let Some(record) = records.next_record() {
                    match record {
                        Ok(record) => {
                            discard += record.discard;
                            give(record.payload);
                        }
                        Err(why) => result = Err(refused(why)),
                    }
                }
                result
            }
            Ok(ConnectionState::EncodeTlsData(mut message)) => {
                self.outgoing.put(|room| message.encode(room)).map(|()| Step::More)
            }
            Ok(ConnectionState::TransmitTlsData(sent)) => {
                // It goes with all else, in order.
                sent.done();
                Ok(Step::More)
            }
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                let news = !std::mem::replace(self.ended, true);
                Ok(if news { Step::More } else { Step::Rests })
            }
            Ok(ConnectionState::WriteTraffic(mut writer)) => {
                let written = match self.writing {
                    Writing::Nothing => Ok(()),
                    Writing::Bytes(parts, sealed) => {
                        self.outgoing.seal(parts, sealed, |bytes, room| writer.encrypt(bytes, room))
                    }
                    Writing::End => self.outgoing.put(|room| writer.queue_close_notify(room)),
                };
                written.map(|()| Step::Rests)
            }
            Ok(ConnectionState::BlockedHandshake) => Ok(Step::Rests),
            // Data before the end of the handshake is never offered.
            Ok(_) => Err(ErrorKind::InvalidData.into()),
        };
        (discard, done)
    }
}

impl Channel {
    /// The side that connects.
    ///
    /// # Errors
    /// TLS does not take the settings.
    pub fn client(config: Arc<ClientConfig>) -> Result<Channel, TrustError> {
        let client = UnbufferedClientConnection::new(config, server_name())?;
        Ok(Channel::new(Side::Client(Box::new(client))))
    }

    /// The side that was connected to.
    ///
    /// # Errors
    /// TLS does not take the settings.
    pub fn server(config: Arc<ServerConfig>) -> Result<Channel, TrustError> {
        Ok(Channel::new(Side::Server(Box::new(UnbufferedServerConnection::new(config)?))))
    }

    fn new(side: Side) -> Channel {
        Channel {
            side,
            incoming: Vec::new(),
            from: 0,
            to: 0,
            room: Room::default(),
            opened: Vec::new(),
            given: 0,
            outgoing: Outgoing::default(),
            ended: false,
            refused: None,
        }
    }

    /// Whether the handshake is not over on this side.
    pub fn is_shaking_hands(&self) -> bool {
        self.side.is_handshaking()
    }

    /// Who is on the other side, after the handshake; `None`: somebody without a key.
    ///
    /// # Errors
    /// Its certificate says nothing.
    pub fn identity(&self) -> Result<Option<Identity>, IdentityError> {
        identity_of(self.side.peer_certificates())
    }

    /// Room for bytes from the socket. To be asked for when all that came was opened; none if more would have to be kept than any
    /// message of TLS has.
    pub fn room(&mut self) -> &mut [u8] {
        if self.from > 0 {
            self.incoming.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        self.room.make(&mut self.incoming, self.to);
        self.incoming.get_mut(self.to..).unwrap_or_default()
    }

    /// So many bytes were put into [`Channel::room`].
    ///
    /// # Panics
    /// There was no room for so many.
    pub fn received(&mut self, bytes: usize) {
        let had = self.incoming.len() - self.to;
        self.to += bytes;
        assert!(self.to <= self.incoming.len(), "no more comes than there is room for");
        self.room.came(bytes, had);
    }

    /// One step of TLS. At most one record is opened; what is to be sealed is, when all that came was looked at.
    fn step(&mut self, writing: Writing<'_, '_>, give: &mut dyn FnMut(&[u8])) -> io::Result<Step> {
        let Channel { side, incoming, from, to, outgoing, ended, refused: why, .. } = self;
        if let Some(why) = why.as_ref().filter(|_| !side.wants_write()) {
            return Err(refused(why.clone()));
        }
        let came = incoming.get_mut(*from..*to).unwrap_or_default();
        let work = Work { outgoing, ended, refused: why, writing };
        let (discard, done) = match side {
            Side::Client(client) => work.handle(client.process_tls_records(came), give),
            Side::Server(server) => work.handle(server.process_tls_records(came), give),
        };
        // After its end nothing of the other side counts.
        *from = if *ended || why.is_some() { *to } else { (*from + discard).min(*to) };
        done
    }

    /// Whether a step would find nothing to do: it costs as much as opening a short record does.
    fn rests(&self) -> bool {
        let waits = self.from < self.to || self.ended || self.refused.is_some();
        !waits && !self.side.is_handshaking() && !self.side.wants_write()
    }

    /// One step, with what it opens kept.
    fn step_keeping(&mut self, writing: Writing<'_, '_>) -> io::Result<Step> {
        let mut opened = std::mem::take(&mut self.opened);
        let done = self.step(writing, &mut |bytes| opened.extend_from_slice(bytes));
        self.opened = opened;
        done
    }

    /// Gives the next of what came to TLS; false if nothing is left.
    ///
    /// # Errors
    /// The other side is refused, refuses us, or sends what is no TLS. An alert may wait to be sent.
    pub fn process(&mut self) -> io::Result<bool> {
        Ok(self.step_keeping(Writing::Nothing)? == Step::More)
    }

    /// Gives what the other side sent, as far as it came, at most `most` bytes; how many these were. 0: more has to come from
    /// the socket first.
    ///
    /// # Errors
    /// As [`Channel::process`].
    pub fn open(&mut self, most: usize, mut give: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut done = 0;
        if let Some(kept) = self.opened.get(self.given..).filter(|kept| !kept.is_empty()) {
            let kept = kept.get(..most).unwrap_or(kept);
            give(kept);
            done = kept.len();
            self.given += done;
            if self.given < self.opened.len() {
                return Ok(done);
            }
            (self.opened, self.given) = (Vec::new(), 0);
        }
        while done < most && !self.rests() {
            let mut rest = Vec::new();
            let step = self.step(Writing::Nothing, &mut |bytes| {
                let (now, later) = bytes.split_at(bytes.len().min(most - done));
                give(now);
                done += now.len();
                rest.extend_from_slice(later);
            })?;
            self.opened = rest;
            if step == Step::Rests {
                break;
            }
        }
        Ok(done)
    }

    /// Whether what came already can be given, or is the end: [`Channel::open`] would not ask for more from the socket.
    ///
    /// # Errors
    /// As [`Channel::process`].
    pub fn has_opened(&mut self) -> io::Result<bool> {
        while self.opened.is_empty() && !self.ended {
            if self.rests() || !self.process()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the other side said that it sends nothing more.
    pub fn is_ended(&self) -> bool {
        self.ended && self.opened.is_empty()
    }

    /// Takes bytes that are to be sent, as many as there is room for; they go with the next [`Channel::send`].
    ///
    /// # Errors
    /// Those of [`Channel::process`], as what came before is looked at first; [`ErrorKind::NotConnected`] before the end of the
    /// handshake, and after both sides said that nothing more comes.
    pub fn seal(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut sealed = 0;
        while self.step_keeping(Writing::Bytes(parts, &mut sealed))? == Step::More {}
        let nothing = parts.iter().all(|part| part.is_empty());
        if sealed == 0 && !nothing && !self.outgoing.has_unsent() {
            return Err(ErrorKind::NotConnected.into());
        }
        Ok(sealed)
    }

    /// Whether there is something for the socket.
    pub fn has_unsent(&self) -> bool {
        self.outgoing.has_unsent() || self.side.wants_write()
    }

    /// Hands what is for the socket to `write`, until nothing is left.
    ///
    /// # Errors
    /// Those of `write`; what it did not take stays. Those of [`Channel::process`].
    pub fn send(&mut self, write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<()> {
        while self.side.wants_write() {
            self.process()?;
        }
        self.outgoing.send(write)
    }

    /// Says that nothing more will be sent, if the handshake is over and nothing is wrong with the connection.
    pub fn close(&mut self) {
        while matches!(self.step_keeping(Writing::End), Ok(Step::More)) {}
    }
}
