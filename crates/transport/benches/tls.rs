//! What encryption costs: frames over loopback, plain and encrypted in turn, so that both see the same machine.
//!
//! `cargo bench -p transport`. A stream is 1 MiB frames one after the other; a call is 200 bytes there and back, each side on
//! a thread of its own.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints")]

use bytes::Bytes;
use ids::{KeyId, ServerId};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use transport::{FrameReader, FrameSender, secure, write_frames};
use trust::{Authority, Channel, Holder, Identity, KeyFile, KeyName, PrivateKey};
use wire::{Frame, Kind};

const STREAM: u64 = 400;
const CALLS: u64 = 5_000;
const ROUNDS: usize = 5;

type Read = Box<dyn AsyncRead + Unpin + Send>;
type Write = Box<dyn AsyncWrite + Unpin + Send>;

async fn side(socket: TcpStream, channel: Option<Channel>) -> (Read, Write) {
    socket.set_nodelay(true).unwrap();
    match channel {
        None => {
            let (r, w) = socket.into_split();
            (Box::new(r), Box::new(w))
        }
        Some(channel) => {
            let tls = secure(socket, channel, "bench", Duration::from_secs(5)).await.unwrap();
            (Box::new(tls.reader), Box::new(tls.writer))
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Answers each frame with as much payload as its body says.
async fn serve(reader: Read, writer: Write) {
    let (mut reader, (sender, queue)) = (FrameReader::new(reader), FrameSender::channel());
    let serving = async {
        while let Ok(Some(frame)) = reader.next().await {
            let len = u32::from_le_bytes(frame.body.first_chunk().copied().unwrap()) as usize;
            sender.send(Frame::with_payload(Kind::Reply, frame.id, vec![0; 40], vec![0; len].into()));
        }
    };
    tokio::select! { () = serving => {}, _ = write_frames(writer, queue, None) => {} }
}

/// Asks `count` times with so much payload each way, at most `ahead` before an answer.
async fn ask(reader: Read, writer: Write, (count, ahead): (u64, u64), (up, down): (usize, u32)) -> Duration {
    let (mut reader, (sender, queue)) = (FrameReader::new(reader), FrameSender::channel());
    let payload = Bytes::from(vec![5; up]);
    let mut body = vec![0; 100];
    body.splice(..4, down.to_le_bytes());
    let asking = async {
        let begun = Instant::now();
        for id in 0..count + ahead {
            if id < count {
                sender.send(Frame::with_payload(Kind::Call, id, body.clone(), payload.clone()));
            }
            if id >= ahead {
                reader.next().await.unwrap().unwrap();
            }
        }
        begun.elapsed()
    };
    tokio::select! { took = asking => took, _ = write_frames(writer, queue, None) => unreachable!() }
}

fn measure(keys: Option<&(KeyFile, KeyFile)>, count: (u64, u64), bytes: (usize, u32)) -> Duration {
    let channels = keys.map(|(client, server)| {
        let server = Channel::server(trust::server_config(server).unwrap()).unwrap();
        (Channel::client(trust::client_config(client).unwrap()).unwrap(), server)
    });
    let (at_client, at_server) = channels.unzip();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let server = std::thread::spawn(move || {
        runtime().block_on(async {
            let (socket, _) = TcpListener::from_std(listener).unwrap().accept().await.unwrap();
            let (reader, writer) = side(socket, at_server).await;
            serve(reader, writer).await;
        });
    });
    let took = runtime().block_on(async {
        let (reader, writer) = side(TcpStream::connect(address).await.unwrap(), at_client).await;
        ask(reader, writer, count, bytes).await
    });
    server.join().unwrap();
    took
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let authority = Authority::new([7; 16], PrivateKey::generate().unwrap()).unwrap();
    let of = |key, holder| Identity { pool: [7; 16], key: KeyId(key), holder };
    let client = of(2, Holder::Client(KeyName::new("web").unwrap()));
    let keys = (
        KeyFile::issue(&authority, &client, None).unwrap(),
        KeyFile::issue(&authority, &of(1, Holder::Server(ServerId(1))), None).unwrap(),
    );
    let cases = [
        ("write 1 MiB, 1 under way", (STREAM, 1), (1 << 20, 0)),
        ("write 1 MiB, 8 under way", (STREAM, 8), (1 << 20, 0)),
        ("read 1 MiB, 1 under way", (STREAM, 1), (0, 1 << 20)),
        ("read 1 MiB, 8 under way", (STREAM, 8), (0, 1 << 20)),
        ("call of 200 bytes", (CALLS, 1), (0, 0)),
    ];
    for (name, count, bytes) in cases {
        let (mut plain, mut sealed) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            plain.push(measure(None, count, bytes).as_secs_f64() / count.0 as f64 * 1e6);
            sealed.push(measure(Some(&keys), count, bytes).as_secs_f64() / count.0 as f64 * 1e6);
        }
        let (plain, sealed) = (median(plain), median(sealed));
        println!("{name:26} plain {plain:8.1} us   TLS {sealed:8.1} us   ratio {:.2}", plain / sealed);
    }
}
