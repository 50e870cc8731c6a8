use super::*;
use crate::testing;
use std::time::Duration;

fn volume(options: &[(&str, &str)]) -> Volume {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    let mut volume = state.volume("v").unwrap().clone();
    volume.options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    volume
}

#[test]
fn the_table_is_sound() {
    assert!(TABLE.is_sorted_by_key(|o| o.key));
    for o in TABLE {
        let value = parse(o.key, o.default).unwrap_or_else(|_| panic!("default of {}", o.key));
        assert_eq!(value.to_string(), o.default, "the default of {} is written as it is shown", o.key);
        assert_eq!(parse(o.key, &value.to_string()).as_ref(), Ok(&value), "{}", o.key);
        assert!(!o.help.is_empty() && !o.help.ends_with('.'), "{}", o.key);
    }
}

#[test]
fn values_as_people_write_them() {
    let ms = |n| Ok(Value::Duration(Duration::from_millis(n)));
    for (text, n) in [("1500ms", 1500), ("3", 3000), ("3s", 3000), ("1m", 60_000), ("1 min", 60_000)] {
        assert_eq!(parse("network.ping-timeout", text), ms(n), "{text}");
    }
    for (text, n) in
        [("64MB", 64 << 20), ("64mb", 64 << 20), ("64MiB", 64 << 20), ("64M", 64 << 20), ("1GB", 1 << 30)]
    {
        assert_eq!(parse("storage.journal-size", text), Ok(Value::Size(n)), "{text}");
    }
    for (text, yes) in [("on", true), ("true", true), ("no", false), ("0", false)] {
        assert_eq!(parse("features.read-only", text), Ok(Value::Bool(yes)));
    }
    assert_eq!(parse("cluster.min-free-disk", "5"), Ok(Value::Percent(5)));
    assert_eq!(
        parse("auth.allow", "10.0.0.1, 10.0.0.2,"),
        Ok(Value::List(vec!["10.0.0.1".into(), "10.0.0.2".into()]))
    );
}

#[test]
fn values_that_are_none() {
    for (key, text) in [
        ("network.ping-timeout", "0s"),
        ("network.ping-timeout", "61s"),
        ("network.ping-timeout", "-3s"),
        ("network.ping-timeout", "3 parsecs"),
        ("network.ping-timeout", "99999999999999999999h"),
        ("storage.journal-size", "1"),
        ("storage.journal-size", "1XB"),
        ("storage.fd-limit", "0"),
        ("storage.fd-limit", "+4"),
        ("cluster.min-free-disk", "101%"),
        ("cluster.quorum-type", "AUTO"),
        ("features.read-only", "maybe"),
        ("auth.allow", "a b"),
        ("user.note", "two\nlines"),
    ] {
        assert!(matches!(parse(key, text), Err(Bad::Value { .. })), "{key} {text}");
    }
    for (key, text) in [("auth.reject", "127.0.0"), ("auth.allow", "127.0.0.1/33"), ("auth.allow", "*,-x")] {
        assert!(matches!(check(key, text), Err(Bad::Value { .. })), "{key} {text}");
        assert!(parse(key, text).is_ok(), "an older version has set it: {key} {text}");
    }
    assert!(check("auth.reject", "127.*, 10.0.0.0/8, localhost").is_ok() && check("auth.reject", "").is_ok());
    assert_eq!(parse("no.such", "1"), Err(Bad::Unknown));
    assert_eq!(parse("user.", "1"), Err(Bad::Unknown));
    assert!(parse("user.x", &"x".repeat(5000)).is_err());
}

#[test]
fn an_unknown_key_is_told_its_neighbour() {
    let nearest = |key: &str| match unknown(key) {
        Refusal::UnknownOption { nearest, .. } => nearest.unwrap_or_default(),
        other => panic!("{other}"),
    };
    assert_eq!(nearest("network.ping-timeot"), "network.ping-timeout");
    assert_eq!(nearest("cluster.read-only"), "features.read-only");
    assert_eq!(nearest("performance.io-cache"), "");
    assert_eq!(unknown("x").to_string(), "option 'x' is unknown: see mortar volume get VOL");
}

#[test]
fn what_nobody_set_reads_as_the_default() {
    let options = volume(&[]).typed_options();
    assert_eq!(options.auth_allow, ["*"]);
    assert!(options.auth_reject.is_empty() && !options.read_only);
    assert_eq!((options.client_attr_timeout, options.client_entry_timeout), (Duration::ZERO, Duration::ZERO));
    assert_eq!((options.min_free_disk, options.quorum_count), (1, 1));
    assert_eq!(options.quorum_type, QuorumType::Auto);
    assert_eq!((options.fd_limit, options.journal_size), (256, 256 << 20));
    assert_eq!(options.ping_timeout, Duration::from_secs(3));
    assert_eq!(options.sync_interval, Duration::from_secs(5));
    assert_eq!(options.slow_operation, Duration::from_secs(1));
}

#[test]
fn what_was_set_reads_by_its_type() {
    let options = volume(&[
        ("network.ping-timeout", "5s"),
        ("features.read-only", "on"),
        ("auth.allow", "a,b"),
        ("cluster.quorum-type", "fixed"),
        ("cluster.min-free-disk", "7%"),
        ("storage.journal-size", "64MB"),
        ("user.note", "hi"),
    ])
    .typed_options();
    assert_eq!((options.ping_timeout, options.read_only), (Duration::from_secs(5), true));
    assert_eq!(options.auth_allow, ["a", "b"]);
    assert_eq!((options.quorum_type, options.min_free_disk), (QuorumType::Fixed, 7));
    assert_eq!(options.journal_size, 64 << 20);
}

#[test]
fn every_word_of_a_closed_list_has_a_value() {
    for word in ["auto", "fixed", "none"] {
        let options = volume(&[("cluster.quorum-type", word)]).typed_options();
        assert_eq!(options.quorum_type.to_string(), word);
    }
}

#[test]
fn what_no_longer_parses_reads_as_the_default() {
    let v = volume(&[("network.ping-timeout", "9 parsecs"), ("cluster.quorum-type", "most")]);
    assert_eq!(v.typed_options(), volume(&[]).typed_options());
}

#[test]
fn an_option_that_is_read_alone_reads_the_same() {
    for set in [&[][..], &[("network.ping-timeout", "5s")], &[("network.ping-timeout", "9 parsecs")]] {
        let volume = volume(set);
        assert_eq!(volume.ping_timeout(), volume.typed_options().ping_timeout);
    }
}

#[test]
fn all_options_are_listed_with_their_defaults() {
    let lines = volume(&[("user.note", "hi"), ("features.read-only", "on")]).option_lines();
    assert_eq!(lines.len(), TABLE.len() + 1);
    let read_only = lines.iter().find(|l| l.key == "features.read-only").unwrap();
    assert_eq!((read_only.value.as_str(), read_only.default.as_str(), read_only.is_set), ("on", "off", true));
    assert!(lines.iter().any(|l| l.key == "user.note" && l.value == "hi"));
}

#[test]
fn shown_in_the_largest_unit() {
    assert_eq!([0, 1, 1024, 1536, 1 << 30].map(show_size), ["0B", "1B", "1KB", "1536B", "1GB"]);
    let shown = [0, 1, 1000, 1500, 60_000, 7_200_000].map(|ms| show_duration(Duration::from_millis(ms)));
    assert_eq!(shown, ["0s", "1ms", "1s", "1500ms", "60s", "2h"]);
}
