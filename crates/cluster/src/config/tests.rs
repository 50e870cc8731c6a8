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
    let text = export(&state, 0);
    let document = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(document.volumes.len(), 2);
    assert_eq!(diff(&state, &document, 0), []);
    let command = to_command(&state, &document, 0).unwrap();
    state.apply(&command).unwrap();
    assert_eq!(export(&state, 0).replace("version = 8", "version = 7"), text);
    assert!(text.contains("# how long a silent server keeps its place in its sets (default \"3s\")"));
}

#[test]
fn a_document_makes_a_pool_of_its_own() {
    let text = export(&pool(), 0);
    let mut empty = testing::pool(3);
    let document = parse(&text).unwrap();
    let lines: Vec<String> = diff(&empty, &document, 0).iter().map(Change::to_string).collect();
    assert_eq!(lines[0], "create volume a.b with 3 bricks");
    assert!(lines.contains(&"set network.ping-timeout of volume w from default to '5s'".to_string()));
    assert!(lines.contains(&"start volume w".to_string()));
    let command = to_command(&empty, &document, 5).unwrap();
    empty.apply(&command).unwrap();
    assert_eq!(diff(&empty, &document, 0), []);
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
    let lines: Vec<String> = diff(&state, &document, 0).iter().map(Change::to_string).collect();
    assert!(
        lines.contains(&"set user.note of volume w from 'a \"b\" \\c' to default".to_string()),
        "{lines:?}"
    );
    let mut stopped = document.clone();
    stopped.volumes[0].status = Some(Status::Stopped);
    assert!(diff(&state, &stopped, 0).contains(&Change::Stop { volume: "w".into() }));
}

#[test]
fn more_bricks_are_a_change() {
    let mut state = crate::testing::pool(2);
    crate::testing::create(&mut state, "v", 2, 0, 2);
    let text = "[volume.v]\nbricks = [\"h1:/b1\", \"h2:/b2\", \"h1:/b3\", \"h2:/b4\"]\n";
    let document = parse(text).unwrap();
    let lines: Vec<String> = diff(&state, &document, 0).iter().map(Change::to_string).collect();
    assert_eq!(lines, ["add 2 bricks to volume v"]);
    state.apply(&to_command(&state, &document, 0).unwrap()).unwrap();
    assert_eq!(diff(&state, &document, 0), []);
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

fn with_keys() -> State {
    let mut state = pool();
    let volume = state.volume("w").unwrap().clone();
    let subdir = crate::KeySubdir {
        set: volume.sets[0],
        epoch: ids::Epoch(1),
        lsn: ids::Lsn(7),
        home: volume.sets[0],
        path: "/a \"b\"".into(),
    };
    let plain = |name: &str| crate::ClientKey {
        name: name.into(),
        volume: volume.id,
        read_only: false,
        squash: None,
        users: Vec::new(),
        subdir: None,
    };
    let user = |uid, groups: &[u32]| crate::KeyUser {
        uid,
        gid: 5,
        groups: groups.to_vec(),
        name: Some("ann".into()),
    };
    let keys = [
        (plain("web"), None),
        (crate::ClientKey { read_only: true, subdir: Some(subdir), ..plain("below") }, None),
        (crate::ClientKey { squash: Some(crate::Squash { uid: 7, gid: 8 }), ..plain("one") }, None),
        (crate::ClientKey { users: vec![user(1, &[]), user(2, &[3, 4])], ..plain("some") }, None),
        (plain("ends"), Some(100)),
        (plain("root.server1.volume1"), None),
    ];
    for (client, until) in keys {
        let key = crate::Key { holder: crate::KeyHolder::Client(client), created: 1, until };
        state.apply(&Command::AddKey(key)).unwrap();
    }
    state
}

#[test]
fn keys_of_clients_are_in_the_document() {
    let state = with_keys();
    let text = export(&state, 1);
    let document = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(diff(&state, &document, 1), []);
    let names: Vec<&str> = document.clients.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["below", "one", "some", "web"], "what ends by itself and what is root's is left out");
    // In a pool that has the volumes and no keys each is made, after everything else.
    let lines: Vec<String> = diff(&pool(), &document, 1).iter().map(Change::to_string).collect();
    assert_eq!(lines, ["below", "one", "some", "web"].map(|n| format!("make key {n} for volume w")));
}

#[test]
fn keys_that_differ_are_named_and_those_that_ended_are_none() {
    let state = with_keys();
    let differ = |text: &str| {
        let document = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        diff(&state, &document, 1).iter().map(Change::to_string).collect::<Vec<_>>()
    };
    for (text, what) in [
        ("[client.web]\nvolume = \"a.b\"\n", "volume"),
        ("[client.web]\nvolume = \"w\"\nread_only = true\n", "read_only"),
        ("[client.one]\nvolume = \"w\"\nsquash = \"7:9\"\n", "squash"),
        ("[client.some]\nvolume = \"w\"\nusers = [\"1:5\", \"2:5+3\"]\n", "users"),
        ("[client.below]\nvolume = \"w\"\nread_only = true\nsubdir = \"/a\"\n", "subdir"),
    ] {
        let lines = differ(text);
        assert!(lines.len() == 1 && lines[0].contains(&format!("with another {what}: end it")), "{lines:?}");
    }
    let ends = "[client.ends]\nvolume = \"w\"\nexpires = \"2h\"\n";
    assert!(differ(ends).is_empty(), "it keeps its end");
    let document = parse(ends).unwrap();
    assert_eq!(document.clients[0].expires, Some(7200));
    assert_eq!(diff(&state, &document, 101).len(), 1, "it has ended, and is made anew");
}

#[test]
fn keys_are_written_as_they_are_given_to_commands() {
    for (text, says) in [
        ("[client.a]\n", "line 1: client a lacks the volume"),
        ("[client.a]\nvolume = 1\n", "volume must be a text"),
        ("[client.a]\nvolum = \"v\"\n", "'volum' is unknown in client a: use volume"),
        ("[client.a]\nread_only = 1\n", "read_only must be true or false"),
        ("[client.a]\nsquash = \"ann\"\n", "squash 'ann': write \"UID:GID\""),
        ("[client.a]\nsquash = \"1:2+3\"\n", "write \"UID:GID\""),
        ("[client.a]\nusers = \"1:2\"\n", "users must be a list"),
        ("[client.a]\nusers = [\"1\"]\n", "line 2: users must be a list"),
        ("[client.a]\nexpires = \"1w\"\n", "expires '1w': write \"90d\""),
        ("[client.a]\nexpires = \"99999999999999999999d\"\n", "write \"90d\""),
        ("[client.a]\nexpires = \"\u{e9}\"\n", "write \"90d\""),
        ("[server.a]\naddress = \"a\"\n", "address 'a': write HOST:PORT"),
        ("[server.a]\nfingerprint = 1\n", "fingerprint must be a text"),
    ] {
        assert!(error(text).contains(says), "{text}: {}", error(text));
    }
}

#[test]
fn servers_that_the_pool_lacks_are_taken_in_first() {
    let state = pool();
    let text = "[volume.n]\nbricks = [\"h9:/x\", \"h1:/x\"]\n[server.h9]\naddress = \"[::1]:9\"\nfingerprint = \"f\"\n\
                [server.h1]\nid = 1\n";
    let document = parse(text).unwrap();
    let changes = diff(&state, &document, 0);
    let h9 = ServerDoc { host: "h9".into(), port: Some(9), fingerprint: Some("f".into()) };
    assert_eq!(changes[0], Change::TakeIn(h9.clone()));
    assert_eq!(changes[0].to_string(), "take server h9 into the pool");
    assert_eq!(changes[1], Change::Create { volume: "n".into(), bricks: 2 });
    assert_eq!(changes.len(), 2);
    assert!(to_command(&state, &document, 0).is_err(), "its bricks are nobody's yet");
    let mut planned = with_servers(&state, &document);
    let command = to_command(&planned, &document, 0).unwrap();
    planned.apply(&command).unwrap();
}

#[test]
fn unknown_hosts_are_refused() {
    let document = parse("[volume.v]\nbricks = [\"h9:/x\"]\n").unwrap();
    assert_eq!(to_command(&pool(), &document, 0), Err(Refusal::UnknownHost { host: "h9".into() }));
}

/// A volume that a document makes has the options of the document and no others: applied again it changes nothing.
#[test]
fn a_volume_of_a_document_begins_with_the_options_that_it_names() {
    let mut state = testing::pool(2);
    state.apply(&Command::RaiseLevel { level: crate::LEVEL }).unwrap();
    let (bricks, size) = ("[volume.v]\nbricks = [\"h1:/b\", \"h2:/b\"]\n", "cluster.large-file-size");
    for (text, large) in
        [(bricks.to_owned(), 0), (format!("{bricks}[volume.v.options]\n\"{size}\" = \"1MB\"\n"), 1 << 20)]
    {
        let document = parse(&text).unwrap();
        state.apply(&to_command(&state, &document, 0).unwrap()).unwrap();
        assert_eq!(state.volume("v").unwrap().typed_options().large_file_size, large);
        assert_eq!(diff(&state, &document, 0), []);
    }
}
