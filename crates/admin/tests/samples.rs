//! A frozen sample of each request, of its answer, and of each error: `testdata/v1/*.json`.
//!
//! The code writes each message exactly as the newest sample has it, and reads the sample as that message. So neither can
//! change without the other; older samples are read for ever.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod json_sample;
mod values;

use admin::{AdminAnswer, AdminError, AdminRequest, ErrorCode, REQUESTS};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/v1")
}

fn json(body: &[u8]) -> Value {
    assert_eq!(body.first(), Some(&admin::TAG));
    serde_json::from_slice(&body[1..]).unwrap()
}

fn body(json: &str) -> Vec<u8> {
    [&[admin::TAG], json.as_bytes()].concat()
}

/// What each sample of a message is read as; the newest one has all fields.
fn read<T>(name: &str, written: &[u8], decode: impl Fn(&[u8]) -> T) -> T {
    let samples = json_sample::frozen(&folder(), name, &json(written));
    samples.iter().map(|s| decode(&body(&s.to_string()))).last().unwrap()
}

/// The name in JSON of a request or answer.
fn name_of<T: Serialize>(message: &T) -> String {
    let json = serde_json::to_value(message).unwrap();
    json.as_object().unwrap().keys().next().unwrap().clone()
}

fn round<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value);
}

#[test]
fn every_request_is_frozen() {
    let mut seen = BTreeSet::new();
    for request in values::requests() {
        let name = name_of(&request);
        round(&request);
        let written = admin::encode_request(request.clone());
        let sample = read(&format!("{name}.request"), &written, |b| admin::decode_request(b).unwrap());
        assert_eq!(sample, request);
        seen.insert(name);
    }
    assert_eq!(seen, REQUESTS.iter().map(|r| r.to_string()).collect(), "requests without a sample");
}

#[test]
fn every_answer_is_frozen() {
    let mut seen = BTreeSet::new();
    for answer in values::answers() {
        let name = name_of(&answer);
        round(&answer);
        let written = admin::encode_answer(Ok(answer.clone()));
        let sample = read(&format!("{name}.answer"), &written, |b| admin::decode_answer(b).unwrap());
        assert_eq!(sample, Ok(answer));
        seen.insert(name);
    }
    assert_eq!(seen, REQUESTS.iter().map(|r| r.to_string()).collect(), "answers without a sample");
}

#[test]
fn every_error_is_frozen() {
    let codes = [
        ErrorCode::Invalid,
        ErrorCode::NotFound,
        ErrorCode::Exists,
        ErrorCode::Conflict,
        ErrorCode::Limit,
        ErrorCode::Unreachable,
        ErrorCode::ConnectionRefused,
        ErrorCode::Unavailable,
        ErrorCode::Stale,
        ErrorCode::Failed,
        ErrorCode::Version,
        ErrorCode::Unknown,
    ];
    for code in codes {
        let error = AdminError::new(code, "volume x does not exist: see mortar volume list");
        let name = serde_json::to_value(code).unwrap();
        let name = format!("error.{}", name.as_str().unwrap());
        let written = admin::encode_answer(Err(error.clone()));
        let sample = read(&name, &written, |b| admin::decode_answer(b).unwrap());
        assert_eq!(sample, Err(error));
    }
}

/// Fields that came later have defaults: what an older program sends is read.
#[test]
fn what_is_left_out_has_a_default() {
    let bare = body(r#"{"version":1,"request":{"volume-create":{"name":"v","bricks":["h:/b"],"new":1}}}"#);
    let Ok(AdminRequest::VolumeCreate(create)) = admin::decode_request(&bare) else { panic!("not read") };
    assert_eq!((create.replica, create.arbiter, create.force, create.adopt), (None, None, false, false));
    let brick = r#"{"set":1,"brick":2,"server":"h","path":"/b","online":true,"in_sync":true,"role":"primary","epoch":3}"#;
    let answer = format!(r#"{{"version":1,"answer":{{"volume-heal":{{"name":"v","bricks":[{brick}]}}}}}}"#);
    let Ok(Ok(AdminAnswer::VolumeHeal(heal))) = admin::decode_answer(&body(&answer)) else {
        panic!("not read")
    };
    assert_eq!((heal.bricks[0].lsn.0, heal.bricks[0].heal), (0, None));
}
