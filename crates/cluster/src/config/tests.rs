use super::*;
use crate::{OptionChange, testing};

fn pool() -> State {
    let mut state = testing::pool(3);
    testing::create(&mut state, "a.b", 3, 1, 3);
    let mut w = testing::volume(&state, "w", 1, 0, 2);
    w.bricks.iter_mut().for_each(|b| b.path.push_str("-w \"q\""));
    state.apply(&Command::CreateVolume(w)).unwrap();
    state.apply(&Command::StartVolume { name: "w".into() }).unwrap();
    let change = |key: &str, value: &str| OptionChange {
        volume: "w".into(),
        key: key.into(),
        value: Some(value.into()),
    };
    let changes = vec![change("network.ping-timeout", "5s"), change("user.note", "a \"b\" \\c")];
    state.apply(&Command::SetOptions { changes }).unwrap();
    state
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn what_is_exported_changes_nothing_when_applied() {
    let mut state = pool();
    let text = export(&state);
    let document = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(document.volumes.len(), 2);
    assert_eq!(diff(&state, &document), []);
    let command = to_command(&state, &document, 0).unwrap();
    state.apply(&command).unwrap();
    assert_eq!(export(&state).replace("version = 8", "version = 7"), text);
    assert!(text.contains("# how long a silent server keeps its place in its sets (default \"3s\")"));
}

#[test]
fn a_document_makes_a_pool_of_its_own() {
    let text = export(&pool());
    let mut empty = testing::pool(3);
    let document = parse(&text).unwrap();
    let lines: Vec<String> = diff(&empty, &document).iter().map(Change::to_string).collect();
    assert_eq!(lines[0], "create volume a.b with 3 bricks");
    assert!(lines.contains(&"set network.ping-timeout of volume w from default to '5s'".to_string()));
    assert!(lines.contains(&"start volume w".to_string()));
    let command = to_command(&empty, &document, 5).unwrap();
    empty.apply(&command).unwrap();
    assert_eq!(diff(&empty, &document), []);
    assert_eq!(empty.volume("w").unwrap().created, 5);
}

#[test]
fn options_with_and_without_quoted_dots() {
    let text =
        "[volume.w.options]\nnetwork.ping-timeout = 4\n\"features.read-only\" = true\nuser.x = \"y\"\n";
    let document = parse(text).unwrap();
    let options = &document.volumes[0].options;
    assert_eq!(options.len(), 3);
    assert_eq!(options["network.ping-timeout"], "4");
    let state = pool();
    let lines: Vec<String> = diff(&state, &document).iter().map(Change::to_string).collect();
    assert!(
        lines.contains(&"set user.note of volume w from 'a \"b\" \\c' to default".to_string()),
        "{lines:?}"
    );
    let mut stopped = document.clone();
    stopped.volumes[0].status = Some(Status::Stopped);
    assert!(diff(&state, &stopped).contains(&Change::Stop { volume: "w".into() }));
}

#[test]
fn more_bricks_are_a_change() {
    let mut state = crate::testing::pool(2);
    crate::testing::create(&mut state, "v", 2, 0, 2);
    let text = "[volume.v]\nbricks = [\"h1:/b1\", \"h2:/b2\", \"h1:/b3\", \"h2:/b4\"]\n";
    let document = parse(text).unwrap();
    let lines: Vec<String> = diff(&state, &document).iter().map(Change::to_string).collect();
    assert_eq!(lines, ["add 2 bricks to volume v"]);
    state.apply(&to_command(&state, &document, 0).unwrap()).unwrap();
    assert_eq!(diff(&state, &document), []);
    assert_eq!(state.volume("v").unwrap().sets.len(), 2);
}

#[test]
fn mistakes_are_named_with_their_line() {
    assert!(error("format = 1\nvolum = 3\n").starts_with("line 2: 'volum' is unknown"));
    assert!(
        error("[volume.v]\nreplca = 3\n").starts_with("line 2: 'replca' is unknown in volume v: use replica")
    );
    assert!(
        error("\n[volume.v.options]\n\"network.ping\" = 3\n")
            .starts_with("line 3: option 'network.ping' is unknown")
    );
    assert!(
        error("[volume.v.options]\nnetwork.ping-timeout = \"x\"\n").contains("a duration from 1s to 60s")
    );
    assert!(error("[volume.v.options]\nuser.a = 1.5\n").contains("must be a text"));
    assert!(error("[volume.\"a/b\"]\n").contains("volume name 'a/b' is not allowed"));
    assert!(error("[volume.v]\nstatus = \"up\"\n").contains("status must be"));
    assert!(error("[volume.v]\nbricks = [1]\n").contains("HOST:/PATH"));
    assert!(error("[volume.v]\nreplica = -1\n").contains("whole number"));
    assert!(error("[volume.v]\nforce = 1\n").contains("true or false"));
    assert!(error("[pool]\nname = 1\n").contains("'name' is unknown in [pool]"));
    assert!(error("format = 2\n").contains("update it"));
    assert!(error("volume = 3\n").contains("must be a table"));
    assert!(error("a = \n").starts_with("line 1: "));
}

#[test]
fn an_empty_document_is_refused() {
    for empty in ["", "\n# nothing\n"] {
        assert!(parse(empty).unwrap_err().message.contains("is empty"));
    }
    assert!(parse("[pool]\n").unwrap().volumes.is_empty(), "a pool without volumes is no mistake");
}

#[test]
fn unknown_hosts_are_refused() {
    let document = parse("[volume.v]\nbricks = [\"h9:/x\"]\n").unwrap();
    assert_eq!(to_command(&pool(), &document, 0), Err(Refusal::UnknownHost { host: "h9".into() }));
}
