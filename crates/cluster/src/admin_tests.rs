use super::*;
use crate::arbitration::Holding;

fn round<T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug>(value: T) -> String {
    let text = serde_json::to_string(&value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), value);
    text
}

#[test]
fn requests_in_json() {
    assert_eq!(round(AdminRequest::PeerStatus), "\"peer-status\"");
    let set = AdminRequest::VolumeSet { name: "v".into(), options: vec![("a".into(), "b".into())] };
    assert_eq!(round(set), r#"{"volume-set":{"name":"v","options":[["a","b"]]}}"#);
    let bare: AdminRequest =
        serde_json::from_str(r#"{"volume-create":{"name":"v","bricks":["h:/b"],"new":1}}"#).unwrap();
    assert!(matches!(bare, AdminRequest::VolumeCreate { replica: None, force: false, .. }));
}

#[test]
fn replies_in_json() {
    let brick = r#"{"set":1,"brick":2,"server":"h","path":"/b","online":true,"in_sync":true,"role":"primary","epoch":3}"#;
    let status: BrickStatus = serde_json::from_str(brick).unwrap();
    assert_eq!((status.lsn, status.heal), (Lsn(0), None));
    round(AdminReply::Heal(HealInfo { name: "v".into(), bricks: vec![status], notes: vec![] }));
    round(AdminReply::PeerStatus(PeerStatus::default()));
    let error = AdminError::from(Refusal::NoPool);
    assert_eq!(error.to_string(), Refusal::NoPool.to_string());
    round(AdminReply::Error(error));
}

#[test]
fn servers_talk_in_json() {
    round(ClusterRequest::Raft(serde_json::json!({"a": 1})));
    round(ClusterRequest::Forward(Command::StartVolume { name: "v".into() }));
    round(ClusterReply::Outcome(Err(Refusal::StaleEpoch {
        set: SetId(1),
        expected: Epoch(1),
        actual: Epoch(2),
    })));
    round(ClusterReply::NotLeader { leader: Some((ServerId(1), "h:1".into())) });
    let (pool, identity) = ("p".into(), "i".into());
    round(ClusterRequest::CutOff { pool, identity, recoveries: 1, host: "h".into() });
    let ask = ClusterRequest::Evidence { pool: "p".into(), set: SetId(1), brick: BrickId(2) };
    assert_eq!(round(ask), r#"{"evidence":{"pool":"p","set":1,"brick":2}}"#);
    let holding = Holding { epoch: Epoch(3), last: Lsn(9), durable: Lsn(7) };
    let lost = ClusterReply::Evidence(Evidence::LostMemory(holding));
    assert_eq!(round(lost), r#"{"evidence":{"lost-memory":{"epoch":3,"last":9,"durable":7}}}"#);
    let refused = ClusterReply::Evidence(Evidence::Refused { millis: 5 });
    assert_eq!(round(refused), r#"{"evidence":{"refused":{"millis":5}}}"#);
    let beat: ClusterRequest = serde_json::from_str(r#"{"heartbeat":{"server":1,"identity":"x"}}"#).unwrap();
    assert!(matches!(beat, ClusterRequest::Heartbeat { version: 0, .. }));
}
