//! Who reads bytes of others, and what has to hold for what it reads.

use crate::samples::{hex, plain, plain_named};
use bytes::Bytes;
use cluster::{Command, Outcome, State};
use disk_format::{Identity, Marks, Record, SegmentHead, Tag, sealed};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::OnceLock;
use wire::hello::{Hello, HelloReply};
use wire::map::{VolumeMap, Watch, WatchEvent};
use wire::peer::PeerMessage;
use wire::{Call, Frame, FrameHead, Kind, Name, Op, Reply, Wire};

/// A decoder, and samples of what it reads.
#[derive(Clone, Debug)]
pub struct Target {
    /// What it reads.
    pub name: &'static str,
    pub(crate) samples: Vec<Vec<u8>>,
    /// True if the bytes were read as a value.
    pub(crate) read: fn(&[u8]) -> bool,
}

/// All of them.
pub fn targets() -> Vec<Target> {
    let new = |name, samples, read| Target { name, samples, read };
    let mut all = vec![
        new("frame", hex("wire/testdata/v2/Frame"), frame as fn(&[u8]) -> bool),
        new("call", calls(), call),
        new("reply", replies(), message::<Reply>),
        new("message of a brick", peer_messages(), message::<PeerMessage>),
        new("hello", hex("wire/testdata/v2/Hello"), message::<Hello>),
        new("answer to a hello", hex("wire/testdata/v2/HelloReply"), message::<HelloReply>),
        new("map of a volume", hex("wire/testdata/v2/VolumeMap"), message::<VolumeMap>),
        new("watch", hex("wire/testdata/v2/Watch"), message::<Watch>),
        new("event of a watch", hex("wire/testdata/v2/WatchEvent"), message::<WatchEvent>),
        new("name", vec![b"name".to_vec(), b"..".to_vec(), b".mortar".to_vec()], name),
    ];
    all.extend(on_disk().map(|(name, samples, read)| new(name, samples, read)));
    all.extend(of_the_pool().map(|(name, samples, read)| new(name, samples, read)));
    all.push(new("request of the kernel", kernel_requests(), kernel_request));
    all.push(new("request over HTTP", http_requests(), daemon::is_http_request));
    all
}

/// A decoder with a known fault, which has to be found. It is not among [`targets`].
///
/// It reads calls as servers do, and adds up offset and length of one operation without a check: that goes wrong for less
/// than one in 2^32 of all values, in one field of one of many operations, of bytes that are read as a call.
pub fn planted() -> Target {
    Target { name: "decoder with a known fault", samples: calls(), read: unchecked_sum }
}

fn unchecked_sum(bytes: &[u8]) -> bool {
    let Ok(call) = Call::from_bytes(bytes) else { return false };
    if let Op::Fallocate { offset, len, .. } = call.op {
        let end = offset.checked_add(len);
        assert!(end.is_some(), "the planted fault: offset {offset} and length {len} overflow");
    }
    true
}

type Row = (&'static str, Vec<Vec<u8>>, fn(&[u8]) -> bool);

fn on_disk() -> [Row; 15] {
    let at = |of: &str| hex(&format!("disk-format/testdata/{of}"));
    let both = |one: &str, two: &str| [at(one), at(two)].concat();
    [
        ("record", at("record/v1"), record),
        ("end of a journal", damaged_journals(), rest_of_journal),
        ("segment", at("segment/v1"), |b| again(b, SegmentHead::decode, SegmentHead::encode)),
        ("tag", both("tag/v1", "tag/v2"), |b| again(b, Tag::decode, Tag::encode)),
        ("intent", [both("intent/v1", "intent/v2"), both("intent/v3", "intent/v4")].concat(), intent),
        ("names of a copy", at("names/v1"), |b| {
            again(b, wire::op::decode_names, |names: &Vec<wire::op::EntryName>| wire::op::encode_names(names))
        }),
        ("where a file goes", at("names/v2"), |b| {
            let decode = |b: &[u8]| match wire::op::Leaving::decode(b) {
                Ok(None) => Err(wire::codec::DecodeError::Short),
                other => other,
            };
            again(b, decode, |leaving: &Option<wire::op::Leaving>| {
                leaving.as_ref().map_or_else(Vec::new, wire::op::Leaving::encode)
            })
        }),
        ("where a striped file lies", stripes(), |b| {
            again(b, wire::stripes::Stripes::decode, wire::stripes::Stripes::encode)
        }),
        (
            "whose a piece is",
            vec![wire::stripes::PieceOf { file: ids::Fid::default(), generation: 1 }.encode()],
            |b| again(b, wire::stripes::PieceOf::decode, wire::stripes::PieceOf::encode),
        ),
        ("parent", at("adoption/v1"), |b| {
            again(b, disk_format::adoption::Parent::decode, disk_format::adoption::Parent::encode)
        }),
        ("became", at("adoption/v1"), |b| {
            again(b, disk_format::adoption::Became::decode, disk_format::adoption::Became::encode)
        }),
        ("top directory", at("top/v1"), |b| again(b, disk_format::Top::decode, disk_format::Top::encode)),
        ("identity", at("identity/v1"), |b| again(&sealed_again(b), Identity::decode, Identity::encode)),
        ("marks", at("marks/v1"), |b| again(&sealed_again(b), Marks::decode, Marks::encode)),
        ("state of a brick", at("state/v1"), |b| {
            again(&sealed_again(b), disk_format::State::decode, disk_format::State::encode)
        }),
    ]
}

fn of_the_pool() -> [Row; 12] {
    let admin = |what| {
        let bodies = plain_named("admin/testdata/v1", what).into_iter();
        bodies.map(|json| [&[admin::TAG], json.as_slice()].concat()).collect::<Vec<_>>()
    };
    let keys = plain("trust/testdata/v1");
    let texts = |all: &[&str]| all.iter().map(|t| t.as_bytes().to_vec()).collect::<Vec<_>>();
    [
        ("request of an administrator", admin(".request."), |b| admin::decode_request(b).is_ok()),
        ("answer to an administrator", admin(".answer."), |b| admin::decode_answer(b).is_ok()),
        ("command of the pool", plain("cluster/testdata/v1/command"), json::<Command>),
        ("outcome of a command", plain("cluster/testdata/v1/outcome"), json::<Outcome>),
        ("state of the pool", plain("cluster/testdata/v1/state"), json::<State>),
        ("command that is applied", plain("cluster/testdata/v1/command"), applied),
        ("configuration", configurations(), configuration),
        ("option", texts(&OPTIONS), option),
        ("address and path", texts(&["server1:24240", "[fd00::1]:1", "/data/home", "home"]), addresses),
        ("key file", keys.clone(), |b| trust::KeyFile::decode(b).is_ok()),
        ("authority", keys, |b| trust::Authority::decode(b).is_ok()),
        ("token and identity", texts(&[TOKEN, IDENTITY, "0a:1b"]), token),
    ]
}

/// Decodes, and holds that what was read is read again when it is written.
fn again<T: PartialEq + Debug, E: Debug>(
    bytes: &[u8],
    decode: fn(&[u8]) -> Result<T, E>,
    encode: fn(&T) -> Vec<u8>,
) -> bool {
    let Ok(value) = decode(bytes) else { return false };
    let back = decode(&encode(&value));
    assert!(back.as_ref().is_ok_and(|b| *b == value), "{value:?} is read again as {back:?}");
    true
}

fn message<T: Wire + PartialEq + Debug>(bytes: &[u8]) -> bool {
    again(bytes, T::from_bytes, T::to_bytes)
}

fn call(bytes: &[u8]) -> bool {
    let Ok(call) = Call::from_bytes(bytes) else { return false };
    // What is asked of each request before its set decides.
    let op = &call.op;
    assert!(wire::op::COUNTED.get(op.index()) == Some(&op.name()), "{op:?}");
    let _known = (op.object(), op.is_sync(), op.is_between_sets(), op.changes());
    message::<Call>(bytes)
}

fn calls() -> Vec<Vec<u8>> {
    let frames = hex("wire/testdata/v2/Call");
    let sample = frames.first().and_then(|b| Call::from_bytes(b).ok());
    let ops = hex("wire/testdata/v2/Op").into_iter().filter_map(|b| Op::from_bytes(&b).ok());
    let with = |op| Some(Call { op, ..sample.clone()? }.to_bytes());
    ops.filter_map(with).chain(frames.clone()).collect()
}

fn replies() -> Vec<Vec<u8>> {
    let bodies = hex("wire/testdata/v2/Body").into_iter().filter_map(|b| wire::Body::from_bytes(&b).ok());
    let fails = hex("wire/testdata/v2/Fail").into_iter().filter_map(|b| wire::Fail::from_bytes(&b).ok());
    let all = bodies.map(Ok).chain(fails.map(Err)).map(|r| Reply(r).to_bytes());
    all.chain(hex("wire/testdata/v2/Reply")).collect()
}

fn peer_messages() -> Vec<Vec<u8>> {
    let whole = hex("wire/testdata/v2/PeerMessage");
    let sample = whole.first().and_then(|b| PeerMessage::from_bytes(b).ok());
    let bodies = hex("wire/testdata/v2/PeerBody").into_iter();
    let bodies = bodies.filter_map(|b| wire::peer::PeerBody::from_bytes(&b).ok());
    let with = |body| Some(PeerMessage { body, ..sample.clone()? }.to_bytes());
    bodies.filter_map(with).chain(whole.clone()).collect()
}

/// A frame as it comes from a connection: a head, and so many bytes as it says. Then the same bytes as a body of a frame
/// that is whole.
fn frame(bytes: &[u8]) -> bool {
    let whole = Frame::with_payload(Kind::Call, 1, bytes.to_vec(), Bytes::new());
    let head = FrameHead::decode(&whole.head()).map(|h| h.verify(bytes, b""));
    assert_eq!(head, Ok(Ok(())), "a frame of ours is not read");
    let Some((head, rest)) = bytes.split_first_chunk() else { return false };
    let Ok(head) = FrameHead::decode(head) else { return false };
    let body = rest.split_at_checked(head.body_len);
    let parts = body.and_then(|(body, rest)| Some((body, rest.get(..head.payload_len)?)));
    parts.is_some_and(|(body, payload)| head.verify(body, payload).is_ok())
}

fn name(bytes: &[u8]) -> bool {
    let Ok(name) = Name::new(bytes) else { return false };
    let back = Name::from_bytes(&name.to_bytes());
    assert_eq!(back.as_ref(), Ok(&name));
    true
}

/// A record whose length and checksum are those of its content, so that the content is read.
fn record_again(bytes: &[u8]) -> Vec<u8> {
    const HEAD: usize = 12;
    let Some((_, body)) = bytes.split_at_checked(HEAD) else { return bytes.to_vec() };
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    let crc = disk_format::crc64(&[&len, body]).to_le_bytes();
    [&len, crc.as_slice(), body].concat()
}

fn record(bytes: &[u8]) -> bool {
    let _as_it_is = Record::decode(bytes);
    let whole = record_again(bytes);
    let Ok((record, length)) = Record::decode(&whole) else { return false };
    assert_eq!(length, whole.len());
    let _touched = record.change.touched();
    let back = Record::decode(&record.encode());
    assert!(back.as_ref().is_ok_and(|(r, _)| *r == record), "{record:?} is read again as {back:?}");
    true
}

/// Two records, the first of them damaged.
fn damaged_journals() -> Vec<Vec<u8>> {
    let records = hex("disk-format/testdata/record/v1");
    let pairs = records.windows(2).map(|two| two.concat());
    pairs.map(|pair| pair.into_iter().skip(1).collect()).collect()
}

fn rest_of_journal(bytes: &[u8]) -> bool {
    match disk_format::journal::classify(bytes, ids::Lsn(0)) {
        disk_format::journal::Rest::Torn => false,
        disk_format::journal::Rest::Damaged { skipped } => {
            assert!(skipped < bytes.len());
            true
        }
    }
}

fn intent(bytes: &[u8]) -> bool {
    let Ok(meant) = disk_format::tag::decode_intent(bytes) else { return false };
    let _decider = meant.intent.decider();
    assert_eq!(disk_format::tag::decode_intent(&meant.encode()), Ok(meant));
    true
}

/// A sealed file whose length and checksum are those of its content, so that the content is read.
fn sealed_again(bytes: &[u8]) -> Vec<u8> {
    let Some((head, body)) = bytes.split_at_checked(sealed::HEAD) else { return bytes.to_vec() };
    let (Some(kind), Some(version)) = (head.get(4..8), head.get(8..12)) else { return bytes.to_vec() };
    let (Ok(kind), Ok(version)) = (kind.try_into(), version.try_into()) else { return bytes.to_vec() };
    sealed::seal(kind, u32::from_le_bytes(version), body)
}

fn json<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<T>(bytes) else { return false };
    let written = serde_json::to_vec(&value).unwrap_or_default();
    let back = serde_json::from_slice::<T>(&written);
    assert!(back.as_ref().is_ok_and(|b| *b == value), "{value:?} is read again as {back:?}");
    true
}

fn states() -> &'static [State] {
    static STATES: OnceLock<Vec<State>> = OnceLock::new();
    STATES.get_or_init(|| {
        let all = plain("cluster/testdata/v1/state");
        all.iter().filter_map(|json| serde_json::from_slice(json).ok()).collect()
    })
}

/// A command of the pool's store is applied by each server: what is impossible is refused, and what is done leaves a state
/// in which all holds that has to.
fn applied(bytes: &[u8]) -> bool {
    let Ok(command) = serde_json::from_slice::<Command>(bytes) else { return false };
    let mut done = false;
    for state in states() {
        let mut state = state.clone();
        for _ in 0..2 {
            done |= state.apply(&command).is_ok();
            state.check();
        }
    }
    done
}

fn configurations() -> Vec<Vec<u8>> {
    states().iter().map(|state| cluster::config::export(state, 1).into_bytes()).collect()
}

fn configuration(bytes: &[u8]) -> bool {
    let Ok(document) =
        std::str::from_utf8(bytes).map_err(drop).and_then(|t| cluster::config::parse(t).map_err(drop))
    else {
        return false;
    };
    let mut done = false;
    for state in states() {
        let planned = cluster::config::with_servers(state, &document);
        if let Ok(command) = cluster::config::to_command(&planned, &document, 1) {
            let mut state = planned;
            done |= state.apply(&command).is_ok();
            state.check();
        }
    }
    done
}

const OPTIONS: [&str; 14] = [
    "on",
    "off",
    "5s",
    "250ms",
    "1h",
    "0",
    "1",
    "64MiB",
    "10%",
    "16EiB",
    "auto",
    "*",
    "10.0.0.0/8,fd00::/8,host.example",
    "majority",
];

fn option(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let mut read = false;
    for info in cluster::options::TABLE {
        let Ok(value) = cluster::options::parse(info.key, text) else { continue };
        read = true;
        let shown = value.to_string();
        let back = cluster::options::parse(info.key, &shown);
        assert!(back.as_ref().is_ok_and(|b| *b == value), "{}: {value:?} is shown as {shown}", info.key);
    }
    read
}

fn addresses(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let named = cluster::check_address(text).is_ok() | cluster::check_volume_name(text).is_ok();
    let Ok(path) = cluster::normal_path(text) else { return named };
    assert_eq!(cluster::normal_path(&path).as_ref(), Ok(&path), "a path of ours is not one");
    true
}

/// What is kept beside a striped file with two pieces, and a cut.
fn stripes() -> Vec<Vec<u8>> {
    let layout =
        wire::stripes::Layout { generation: 1, base: 0, unit: 4096, pieces: vec![ids::Fid::default(); 2] };
    let cut = Some(wire::stripes::Cut { generation: 2, end: 5, then: None });
    vec![wire::stripes::Stripes { layout, cut }.encode()]
}

/// The longest fixed part of the kernel's requests.
const KERNEL_BODY: usize = 96;

/// A request of the kernel for each operation that there is: a body of zeros with names behind it, of the first length that
/// is read.
#[allow(clippy::host_endian_bytes, reason = "the kernel's protocol is in the host's byte order")]
fn kernel_requests() -> Vec<Vec<u8>> {
    let body = |zeros: usize| [vec![0; zeros], b"a\0b\0".to_vec(), vec![0; 8]].concat();
    let request = |operation: u32, zeros| {
        let body: Vec<u8> = body(zeros);
        let head = [0, operation, 7, 0, 9, 0, 1000, 1000, 42, 0].map(u32::to_ne_bytes).concat();
        kernel_request_again(&[head, body].concat())
    };
    let shortest = |operation| {
        (0..=KERNEL_BODY).step_by(4).map(|zeros| request(operation, zeros)).find(|r| fuse::is_request(r))
    };
    (1..64).filter_map(shortest).collect()
}

/// A request whose length is that of its bytes, so that its body is read.
#[allow(clippy::host_endian_bytes, reason = "the kernel's protocol is in the host's byte order")]
fn kernel_request_again(bytes: &[u8]) -> Vec<u8> {
    let mut whole = bytes.to_vec();
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_ne_bytes();
    for (to, from) in whole.iter_mut().zip(len) {
        *to = from;
    }
    whole
}

fn kernel_request(bytes: &[u8]) -> bool {
    let _as_it_is = fuse::is_request(bytes);
    fuse::is_request(&kernel_request_again(bytes))
}

/// As Prometheus, browsers and the console's page write them.
fn http_requests() -> Vec<Vec<u8>> {
    let lines: [&[&str]; 5] = [
        &["GET /metrics HTTP/1.1", "Host: server1:9090", "Accept: text/plain;version=0.0.4;q=0.5,*/*;q=0.1"],
        &[
            "GET /app.js?x=1 HTTP/1.1",
            "Host: server1:8443",
            "Sec-Fetch-Site: same-origin",
            "Cookie: a=b; c=d",
        ],
        &["HEAD / HTTP/1.0"],
        &[
            "POST /api/do HTTP/1.1",
            "Host: server1:8443",
            "Origin: https://server1:8443",
            "Mortar-Console: 0123456789abcdef",
            "Cookie: __Host-mortar=0123456789abcdef",
            "Content-Length: 2",
            "",
            "{}",
        ],
        &[
            "GET /api/volumes/home/profile?again HTTP/1.1",
            "mortar-console: x",
            "cookie: __Host-mortar=",
            "x:\ty",
        ],
    ];
    let ended = |lines: &&[&str]| {
        let end = if lines.contains(&"") { "" } else { "\r\n\r\n" };
        format!("{}{end}", lines.join("\r\n")).into_bytes()
    };
    lines.iter().map(ended).collect()
}

/// The form of a token: it is found by its checksum to be none.
const TOKEN: &str = "mortar-join-1-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A client's.
const IDENTITY: &str = "mortar://0123456789abcdef0123456789abcdef/client/0000000000000007/web-1";

fn token(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let token = trust::JoinToken::parse(text, 0).is_ok();
    let print = trust::Fingerprint::parse(text).is_some();
    let identity = trust::Identity::from_uri(text).is_ok();
    token | print | identity
}
