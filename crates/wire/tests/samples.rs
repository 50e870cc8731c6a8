//! A frozen sample of each message, `testdata/v2/<type>/<tag>.txt`: it is decoded to the same value, and encoded to the same
//! bytes, for as long as version 1 is spoken. A variant that is added needs a file of its own: `UPDATE=1 cargo test -p wire`.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use crate::sample;
use crate::schema::{Schema, Shape};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;
use wire::{Frame, FrameHead, Kind, Wire};

fn folder(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/v2").join(kind)
}

fn decode<T: Wire>(bytes: &[u8]) -> T {
    T::from_bytes(bytes).unwrap()
}

fn encode<T: Wire>(value: &T) -> Vec<u8> {
    value.to_bytes()
}

/// A sample of each variant. Samples of variants that went out of use stay, and are refused.
fn variants<T: Wire + Debug>(schema: &Schema, name: &str) {
    let Shape::Enum(variants) = schema.shape(name) else { panic!("{name} is no enum") };
    let there: BTreeSet<String> = fs::read_dir(folder(name))
        .map(|files| files.map(|f| f.unwrap().file_name().into_string().unwrap()).collect())
        .unwrap_or_default();
    let known: BTreeSet<String> = variants.iter().map(|v| format!("{:02}.txt", v.tag)).collect();
    let missing: Vec<String> = variants
        .iter()
        .filter(|v| !there.contains(&format!("{:02}.txt", v.tag)))
        .map(|v| format!("{name}::{}", v.name))
        .collect();
    assert!(missing.is_empty() || sample::updates(), "no sample of {missing:?}: UPDATE=1 cargo test -p wire");
    for retired in there.difference(&known) {
        let bytes = sample::bytes(&folder(name).join(retired));
        assert!(
            T::from_bytes(&bytes).is_err(),
            "{name}: {retired}: a tag that went out of use means nothing"
        );
    }
    for v in variants {
        let file = folder(name).join(format!("{:02}.txt", v.tag));
        sample::check(&file, || schema.variant(v), decode::<T>, encode::<T>);
        assert_eq!(sample::bytes(&file).first(), Some(&v.tag), "{}", file.display());
    }
}

fn structure<T: Wire + Debug>(schema: &Schema, name: &str) {
    let file = folder(name).join("value.txt");
    sample::check(&file, || schema.value(name), decode::<T>, encode::<T>);
}

#[test]
fn every_variant_is_frozen() {
    let schema = Schema::read();
    variants::<wire::hello::Purpose>(&schema, "Purpose");
    variants::<wire::op::Node>(&schema, "Node");
    variants::<wire::op::SetTime>(&schema, "SetTime");
    variants::<wire::op::LockClaim>(&schema, "LockClaim");
    variants::<wire::rights::Right>(&schema, "Right");
    variants::<wire::Op>(&schema, "Op");
    variants::<wire::Body>(&schema, "Body");
    variants::<wire::Fail>(&schema, "Fail");
    variants::<wire::Change>(&schema, "Change");
    variants::<wire::peer::PeerBody>(&schema, "PeerBody");
    variants::<wire::peer::Sent>(&schema, "Sent");
    variants::<wire::map::WatchEvent>(&schema, "WatchEvent");
    let checked = [
        "Purpose",
        "Node",
        "SetTime",
        "LockClaim",
        "Right",
        "Op",
        "Body",
        "Fail",
        "Change",
        "PeerBody",
        "Sent",
        "WatchEvent",
    ];
    let forgotten: Vec<&str> = schema.enums().filter(|e| !checked.contains(e)).collect();
    assert!(forgotten.is_empty(), "enums without frozen samples: {forgotten:?}: name them in this test");
}

#[test]
fn whole_messages_are_frozen() {
    let schema = Schema::read();
    structure::<wire::hello::Hello>(&schema, "Hello");
    structure::<wire::hello::HelloReply>(&schema, "HelloReply");
    structure::<wire::Call>(&schema, "Call");
    structure::<wire::peer::PeerMessage>(&schema, "PeerMessage");
    structure::<wire::map::Watch>(&schema, "Watch");
    structure::<wire::map::VolumeMap>(&schema, "VolumeMap");
    // Written by hand in the code: not in the schema.
    let ok = || [vec![1], schema.value("Body")].concat();
    sample::check(&folder("Reply").join("done.txt"), ok, decode::<wire::Reply>, encode::<wire::Reply>);
    let fail = || [vec![0], schema.value("Fail")].concat();
    sample::check(&folder("Reply").join("fail.txt"), fail, decode::<wire::Reply>, encode::<wire::Reply>);
}

/// A frame of each kind: the head with the checksum, then body and payload.
#[test]
fn frames_are_frozen() {
    let kinds = [
        Kind::Hello,
        Kind::HelloReply,
        Kind::Call,
        Kind::Reply,
        Kind::Peer,
        Kind::Control,
        Kind::ControlReply,
        Kind::Event,
        Kind::Watch,
    ];
    let of_users = kinds.map(|kind| (kind, 0)).into_iter().chain([(Kind::Call, 1000)]);
    for (kind, user) in of_users {
        let of_user = if user == 0 { "" } else { "-user" };
        let file = folder("Frame").join(format!("{:02}{of_user}.txt", kind as u8));
        let fresh = || {
            let payload = Bytes::from_static(b"payload");
            let mut frame = Frame::with_payload(kind, 0x0102_0304_0506_0708, b"body".to_vec(), payload);
            frame.grant = if kind == Kind::Reply { 250 } else { 0 };
            frame.user = user;
            [&frame.head()[..], &frame.body, &frame.payload].concat()
        };
        let decode = |bytes: &[u8]| {
            let (head, rest) = bytes.split_first_chunk().unwrap();
            let head = FrameHead::decode(head).unwrap();
            let (body, payload) = rest.split_at(head.body_len);
            assert_eq!(payload.len(), head.payload_len);
            head.verify(body, payload).unwrap();
            let mut frame = Frame::with_payload(head.kind, head.id, body.to_vec(), payload.to_vec().into());
            (frame.grant, frame.user) = (head.grant, head.user);
            frame
        };
        let encode = |f: &Frame| [&f.head()[..], &f.body, &f.payload].concat();
        sample::check(&file, fresh, decode, encode);
    }
}
