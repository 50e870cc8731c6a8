//! Frames over encrypted connections, on real sockets.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use bytes::Bytes;
use ids::{KeyId, ServerId};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use transport::{
    DirectSender, FrameReader, FrameSender, TlsConnection, TransportError, secure, write_frames,
};
use trust::{Authority, Channel, Holder, Identity, KeyFile, KeyName, PrivateKey};
use wire::{Frame, Kind};

const WAIT: Duration = Duration::from_secs(10);

struct Keys {
    server: KeyFile,
    client: KeyFile,
}

fn keys() -> Keys {
    let authority = Authority::new([7; 16], PrivateKey::generate().unwrap()).unwrap();
    let of = |key, holder| Identity { pool: [7; 16], key: KeyId(key), holder };
    let client = of(2, Holder::Client(KeyName::new("web").unwrap()));
    Keys {
        server: KeyFile::issue(&authority, &of(1, Holder::Server(ServerId(1))), None).unwrap(),
        client: KeyFile::issue(&authority, &client, None).unwrap(),
    }
}

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, server) =
        tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    (client.unwrap(), server.unwrap().0)
}

type Secured = Result<TlsConnection, TransportError>;

async fn both(client: &KeyFile, server: &KeyFile) -> (Secured, Secured) {
    let (a, b) = sockets().await;
    let at_client = Channel::client(trust::client_config(client).unwrap()).unwrap();
    let at_server = Channel::server(trust::server_config(server).unwrap()).unwrap();
    tokio::join!(secure(a, at_client, "server", WAIT), secure(b, at_server, "client", WAIT))
}

async fn connected() -> (TlsConnection, TlsConnection) {
    let keys = keys();
    let (client, server) = both(&keys.client, &keys.server).await;
    let (client, server) = (client.unwrap(), server.unwrap());
    assert_eq!(client.identity.as_ref(), Some(keys.server.identity()));
    assert_eq!(server.identity.as_ref(), Some(keys.client.identity()));
    (client, server)
}

fn frames() -> Vec<Frame> {
    let sizes = [0, 1, 100, 16 << 10, (16 << 10) + 1, 100 << 10, 5, 1 << 20, 300 << 10, 3];
    let of = |(id, size): (u64, usize)| {
        let payload: Vec<u8> = (0..size).map(|at| (at as u64 ^ id) as u8).collect();
        Frame::with_payload(Kind::Reply, id, vec![1; 40], payload.into())
    };
    (1..=60).zip(sizes.into_iter().cycle()).map(of).collect()
}

/// Everything comes, in order, and then the end.
async fn all_come(reader: transport::TlsReader) {
    let mut reader = FrameReader::new(reader);
    for frame in frames() {
        let read = reader.next().await.unwrap().expect("not the end");
        assert_eq!((read.id, &read.payload), (frame.id, &frame.payload));
    }
    assert!(reader.next().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_come_through_in_both_directions_at_once() {
    let (client, server) = connected().await;
    let write = |writer| {
        let (sender, queue) = FrameSender::channel();
        frames().into_iter().for_each(|f| assert!(sender.send(f)));
        write_frames(writer, queue, Some(WAIT))
    };
    let (there, back) = (write(client.writer), write(server.writer));
    let all = async {
        tokio::join!(
            tokio::spawn(there),
            tokio::spawn(back),
            all_come(client.reader),
            all_come(server.reader)
        )
    };
    let (there, back, (), ()) = tokio::time::timeout(WAIT, all).await.expect("in time");
    there.unwrap().unwrap();
    back.unwrap().unwrap();
}

/// A single small frame is not kept until more comes.
#[tokio::test]
async fn one_frame_is_on_its_way_at_once() {
    let (client, server) = connected().await;
    let (sender, queue) = FrameSender::channel();
    let _writing = tokio::spawn(write_frames(client.writer, queue, None));
    let mut reader = FrameReader::new(server.reader);
    for id in 0..3 {
        assert!(sender.send(Frame::new(Kind::Call, id, vec![1])));
        let read = tokio::time::timeout(WAIT, reader.next()).await.expect("in time");
        assert_eq!(read.unwrap().unwrap().id, id);
    }
}

#[tokio::test]
async fn a_direct_sender_sends_at_once_and_drains_what_had_no_room() {
    let (client, server) = connected().await;
    let sender = DirectSender::new(client.writer);
    let draining = sender.clone();
    let many = 40;
    let payload = Bytes::from(vec![3; 1 << 20]);
    for id in 0..many {
        sender.send(Frame::with_payload(Kind::Peer, id, vec![], payload.clone()));
    }
    assert!(sender.queued() > 0, "a socket has no room for 40 MiB");
    let mut reader = FrameReader::new(server.reader);
    let read = async {
        for id in 0..many {
            let frame = reader.next().await.unwrap().unwrap();
            assert_eq!((frame.id, frame.payload.len()), (id, payload.len()));
        }
    };
    tokio::select! {
        e = draining.drain() => panic!("{e}"),
        () = read => {}
        () = tokio::time::sleep(WAIT) => panic!("{} bytes still wait", sender.queued()),
    }
    assert_eq!(sender.queued(), 0);
}

/// A connection whose sockets hold little, so that most of a frame that TLS has taken waits.
async fn narrow() -> (TlsConnection, TlsConnection) {
    let (a, b) = sockets().await;
    rustix::net::sockopt::set_socket_send_buffer_size(&a, 4096).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&b, 4096).unwrap();
    let keys = keys();
    let at_client = Channel::client(trust::client_config(&keys.client).unwrap()).unwrap();
    let at_server = Channel::server(trust::server_config(&keys.server).unwrap()).unwrap();
    let (client, server) =
        tokio::join!(secure(a, at_client, "server", WAIT), secure(b, at_server, "client", WAIT));
    (client.unwrap(), server.unwrap())
}

#[tokio::test]
async fn what_the_socket_had_no_room_for_follows_without_another_frame() {
    for timeout in [None, Some(WAIT)] {
        let (client, server) = narrow().await;
        let (sender, queue) = FrameSender::channel();
        let writing = tokio::spawn(write_frames(client.writer, queue, timeout));
        assert!(sender.send(Frame::with_payload(Kind::Reply, 1, vec![], vec![3; 100_000].into())));
        tokio::time::sleep(Duration::from_millis(50)).await;
        let read = tokio::time::timeout(WAIT, FrameReader::new(server.reader).next()).await;
        assert_eq!(read.expect("in time").unwrap().unwrap().payload.len(), 100_000);
        drop(sender);
        writing.await.unwrap().unwrap();
    }
    let (client, server) = narrow().await;
    let sender = DirectSender::new(client.writer);
    sender.send(Frame::with_payload(Kind::Peer, 1, vec![], vec![3; 50_000].into()));
    assert_eq!(sender.queued(), 0, "TLS has taken it");
    let mut reader = FrameReader::new(server.reader);
    tokio::select! {
        e = sender.drain() => panic!("{e}"),
        read = reader.next() => assert_eq!(read.unwrap().unwrap().payload.len(), 50_000),
        () = tokio::time::sleep(WAIT) => panic!("the rest never comes"),
    }
}

#[tokio::test]
async fn who_takes_nothing_is_given_up() {
    let (client, _server) = connected().await;
    let (sender, queue) = FrameSender::channel();
    let writing = tokio::spawn(write_frames(client.writer, queue, Some(Duration::from_millis(300))));
    let payload = Bytes::from(vec![3; 1 << 20]);
    (0..40)
        .for_each(|id| assert!(sender.send(Frame::with_payload(Kind::Reply, id, vec![], payload.clone()))));
    assert!(matches!(writing.await.unwrap(), Err(TransportError::Stalled)));
}

#[tokio::test]
async fn a_false_server_and_a_plain_one_are_refused() {
    let (ours, theirs) = (keys(), keys());
    let (client, _) = both(&ours.client, &theirs.server).await;
    assert!(matches!(client, Err(TransportError::Insecure { .. })), "{client:?}");
    let (client, _) = both(&ours.client, &ours.client).await;
    assert!(matches!(client, Err(TransportError::Insecure { .. })), "{client:?}");
    let (a, mut b) = sockets().await;
    b.write_all(&Frame::new(Kind::HelloReply, 0, vec![]).head()).await.unwrap();
    let channel = Channel::client(trust::client_config(&ours.client).unwrap()).unwrap();
    let client = secure(a, channel, "plain", WAIT).await;
    assert!(matches!(client, Err(TransportError::Insecure { .. })), "{client:?}");
}

/// In TLS 1.3 whoever connects is done first: he hears of it when he reads.
#[tokio::test]
async fn a_foreign_key_gets_nothing() {
    let (ours, theirs) = (keys(), keys());
    let (a, b) = sockets().await;
    let believes_us = {
        let authorities = [theirs.client.authorities(), ours.server.authorities()].concat();
        theirs.client.with_authorities(authorities).unwrap()
    };
    let at_client = Channel::client(trust::client_config(&believes_us).unwrap()).unwrap();
    let at_server = Channel::server(trust::server_config(&ours.server).unwrap()).unwrap();
    let (client, server) =
        tokio::join!(secure(a, at_client, "server", WAIT), secure(b, at_server, "client", WAIT));
    assert!(matches!(server, Err(TransportError::Insecure { .. })), "{server:?}");
    if let Ok(client) = client {
        let read = FrameReader::new(client.reader).next().await;
        assert!(read.is_err(), "{read:?}");
    }
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_given_up() {
    let keys = keys();
    let (mut a, b) = sockets().await;
    a.write_all(&[0x16, 3, 1]).await.unwrap();
    let channel = Channel::server(trust::server_config(&keys.server).unwrap()).unwrap();
    let server = secure(b, channel, "slow", Duration::from_millis(200)).await;
    assert!(matches!(server, Err(TransportError::TimedOut { .. })), "{server:?}");
}

/// Bytes that somebody between the two changes, adds or cuts off.
#[tokio::test]
async fn what_was_changed_on_the_way_is_an_error() {
    for (at, cut) in [(20, false), (700, false), (700, true)] {
        let keys = keys();
        let (a, mut between_a) = sockets().await;
        let (mut between_b, b) = sockets().await;
        let carry = async move {
            let (mut carried, mut bytes) = (0, [0; 64]);
            let (mut from_a, mut to_a) = between_a.split();
            let (mut from_b, mut to_b) = between_b.split();
            let there = async {
                while let Ok(n @ 1..) = from_a.read(&mut bytes).await {
                    // From the handshake's end on.
                    if carried <= 3000 + at && 3000 + at < carried + n {
                        bytes[3000 + at - carried] ^= 1;
                        if cut {
                            break;
                        }
                    }
                    carried += n;
                    if to_b.write_all(&bytes[..n]).await.is_err() {
                        break;
                    }
                }
            };
            let back = tokio::io::copy(&mut from_b, &mut to_a);
            tokio::select! { () = there => {}, _ = back => {} }
        };
        let carrying = tokio::spawn(carry);
        let at_client = Channel::client(trust::client_config(&keys.client).unwrap()).unwrap();
        let at_server = Channel::server(trust::server_config(&keys.server).unwrap()).unwrap();
        let (client, server) =
            tokio::join!(secure(a, at_client, "server", WAIT), secure(b, at_server, "client", WAIT));
        let (client, server) = (client.unwrap(), server.unwrap());
        let (sender, queue) = FrameSender::channel();
        let writing = tokio::spawn(write_frames(client.writer, queue, None));
        assert!(sender.send(Frame::with_payload(Kind::Call, 1, vec![1], vec![5; 100_000].into())));
        let read = tokio::time::timeout(WAIT, FrameReader::new(server.reader).next()).await;
        match read.expect("in time") {
            // Nothing of the frame was whole yet: to its reader that is a connection that was closed before it.
            Ok(None) => assert!(cut, "{at}"),
            read => assert!(read.is_err(), "{at} {cut}"),
        }
        drop(sender);
        let _broken = writing.await;
        let _done = carrying.await;
    }
}
