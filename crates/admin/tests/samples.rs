//! A frozen sample of each request, of its answer, and of each error: `testdata/v1/*.json`.
//!
//! The code writes each message exactly as the sample has it, and reads the sample as that message. So neither can change
//! without the other. Fields are added with new samples (`NAME.2.json` with the new field); the old ones are read for ever.
//! UPDATE=1 writes samples that are not there yet, and never changes one.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod values;

use admin::{AdminAnswer, AdminError, AdminRequest, ErrorCode, REQUESTS};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/v1")
}

/// The JSON of a body, laid out for people.
fn pretty(body: &[u8]) -> String {
    assert_eq!(body.first(), Some(&admin::TAG));
    let json: serde_json::Value = serde_json::from_slice(&body[1..]).unwrap();
    serde_json::to_string_pretty(&json).unwrap() + "\n"
}

/// The body of a sample.
fn body(text: &str) -> Vec<u8> {
    [&[admin::TAG], text.as_bytes()].concat()
}

/// The sample of that name, which is like `fresh`.
fn frozen(name: &str, fresh: &str) -> String {
    let path = folder().join(name);
    if std::env::var_os("UPDATE").is_some() && !path.exists() {
        fs::create_dir_all(folder()).unwrap();
        fs::write(&path, fresh).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_else(|e| {
        panic!("{}: {e}: write it with UPDATE=1 cargo test -p admin", path.display())
    });
    assert_eq!(text, fresh, "{name}: the sample is not what the code writes");
    text
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
        let text = frozen(&format!("{name}.request.json"), &pretty(&admin::encode_request(request.clone())));
        assert_eq!(admin::decode_request(&body(&text)), Ok(request));
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
        let text = frozen(&format!("{name}.answer.json"), &pretty(&admin::encode_answer(Ok(answer.clone()))));
        assert_eq!(admin::decode_answer(&body(&text)), Ok(Ok(answer)));
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
        ErrorCode::Unavailable,
        ErrorCode::Stale,
        ErrorCode::Failed,
        ErrorCode::Version,
        ErrorCode::Unknown,
    ];
    for code in codes {
        let error = AdminError::new(code, "volume x does not exist: see mortar volume list");
        let name = serde_json::to_value(code).unwrap();
        let name = format!("error.{}.json", name.as_str().unwrap());
        let text = frozen(&name, &pretty(&admin::encode_answer(Err(error.clone()))));
        assert_eq!(admin::decode_answer(&body(&text)), Ok(Err(error)));
    }
}

/// Fields that came later have defaults: what an older program sends is read.
#[test]
fn what_is_left_out_has_a_default() {
    let bare = body(r#"{"version":1,"request":{"volume-create":{"name":"v","bricks":["h:/b"],"new":1}}}"#);
    let Ok(AdminRequest::VolumeCreate(create)) = admin::decode_request(&bare) else { panic!("not read") };
    assert_eq!((create.replica, create.arbiter, create.force), (None, None, false));
    let brick = r#"{"set":1,"brick":2,"server":"h","path":"/b","online":true,"in_sync":true,"role":"primary","epoch":3}"#;
    let answer = format!(r#"{{"version":1,"answer":{{"volume-heal":{{"name":"v","bricks":[{brick}]}}}}}}"#);
    let Ok(Ok(AdminAnswer::VolumeHeal(heal))) = admin::decode_answer(&body(&answer)) else { panic!("not read") };
    assert_eq!((heal.bricks[0].lsn.0, heal.bricks[0].heal), (0, None));
}
