//! What is worth an event in a change of the pool's state.

use cluster::{Set, State, Status, Volume};
use ids::BrickId;
use std::collections::{BTreeMap, BTreeSet};

/// One thing that changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    pub(super) kind: &'static str,
    pub(super) volume: Option<String>,
    pub(super) text: String,
}

/// What changed from one state of a pool to a later one.
pub(super) fn changes(before: &State, after: &State) -> Vec<Change> {
    let mut all = Changes::default();
    if before.pool.is_empty() {
        return all.0;
    }
    if before.pool != after.pool {
        let text = match after.pool.as_str() {
            // Until it has the other pool's store.
            "" => format!("this server left pool {}", before.pool),
            pool => format!("this server is in pool {pool} now"),
        };
        all.add("server", None, text);
        return all.0;
    }
    servers(&mut all, before, after);
    for (id, now) in &after.volumes {
        match before.volumes.get(id) {
            Some(then) => volume(&mut all, (before, then), (after, now)),
            None => {
                let how = if before.retired.contains_key(id) { "imported" } else { "created" };
                all.add("volume", Some(now), format!("volume {} was {how}", now.name));
            }
        }
    }
    for (_, gone) in before.volumes.iter().filter(|(id, _)| !after.volumes.contains_key(id)) {
        all.add("volume", Some(gone), format!("volume {} was deleted", gone.name));
    }
    all.0
}

#[derive(Default)]
struct Changes(Vec<Change>);

impl Changes {
    fn add(&mut self, kind: &'static str, volume: Option<&Volume>, text: String) {
        self.0.push(Change { kind, volume: volume.map(|v| v.name.clone()), text });
    }
}

fn servers(all: &mut Changes, before: &State, after: &State) {
    for (id, now) in &after.servers {
        match before.servers.get(id) {
            None => all.add("server", None, format!("server {} joined the pool as number {id}", now.host)),
            Some(then) if then.address != now.address => {
                let text = format!("server {} moved from {} to {}", now.host, then.address, now.address);
                all.add("server", None, text);
            }
            Some(then) if now.lost && !then.lost => {
                all.add(
                    "server",
                    None,
                    format!("server {} was fenced off by a recovery of the pool", now.host),
                );
            }
            Some(_) => {}
        }
    }
    for (_, gone) in before.servers.iter().filter(|(id, _)| !after.servers.contains_key(id)) {
        all.add("server", None, format!("server {} left the pool", gone.host));
    }
}

fn volume(all: &mut Changes, (before, then): (&State, &Volume), (after, now): (&State, &Volume)) {
    if then.status != now.status {
        let what = match now.status {
            Status::Started => "started",
            Status::Stopped => "stopped",
            Status::Created => "made as new",
        };
        all.add("volume", Some(now), format!("volume {} was {what}", now.name));
    }
    options(all, then, (after, now));
    for id in &now.sets {
        match (before.sets.get(id), after.sets.get(id)) {
            (Some(old), Some(new)) => set(all, now, (before, old), (after, new)),
            (None, Some(new)) => {
                all.add("volume", Some(now), format!("volume {} got set {}", now.name, new.name()));
            }
            _ => {}
        }
    }
}

fn options(all: &mut Changes, then: &Volume, (after, now): (&State, &Volume)) {
    let keys: BTreeSet<&String> = then.options.keys().chain(now.options.keys()).collect();
    for key in keys {
        let text = match (then.options.get(key), now.options.get(key)) {
            (a, b) if a == b => continue,
            (_, Some(_)) if key == "cluster.drain" => emptied(after, now),
            (_, Some(value)) => format!("volume {}: {key} is {value} now", now.name),
            (_, None) => format!("volume {}: {key} has its default again", now.name),
        };
        all.add("option", Some(now), text);
    }
}

/// The option has ids of sets, which people do not know.
fn emptied(after: &State, now: &Volume) -> String {
    let drain = now.typed_options().drain;
    let sets = after.sets_of(now).filter(|set| drain.contains(&set.id));
    let sets: Vec<String> = sets.map(|set| format!("set {}", set.name())).collect();
    format!("volume {}: cluster.drain is {} now", now.name, sets.join(", "))
}

fn set(all: &mut Changes, volume: &Volume, (before, then): (&State, &Set), (after, now): (&State, &Set)) {
    let named = |state: &State, set: &Set| -> BTreeMap<BrickId, String> {
        set.bricks.iter().map(|b| (b.id, state.brick_name(b))).collect()
    };
    let (old, new) = (named(before, then), named(after, now));
    let name = |b: &BrickId| new.get(b).or(old.get(b)).cloned().unwrap_or_else(|| b.to_string());
    let of = format!("volume {} set {}", volume.name, now.name());
    for brick in new.keys().filter(|b| !old.contains_key(b)) {
        all.add("brick", Some(volume), format!("{of}: {} is a brick now, and is filled", name(brick)));
    }
    for brick in old.keys().filter(|b| !new.contains_key(b)) {
        all.add("brick", Some(volume), format!("{of}: {} is no brick any more", name(brick)));
    }
    for brick in then.view.in_sync.iter().filter(|b| new.contains_key(b) && !now.view.in_sync.contains(b)) {
        all.add(
            "view",
            Some(volume),
            format!("{of}: {} is out of the view, and misses changes", name(brick)),
        );
    }
    for brick in now.view.in_sync.iter().filter(|b| !then.view.in_sync.contains(b)) {
        all.add("view", Some(volume), format!("{of}: {} holds every change again", name(brick)));
    }
    match (then.view.primary, now.view.primary) {
        (a, b) if a == b => {}
        (_, Some(b)) => {
            all.add("view", Some(volume), format!("{of}: {} leads in epoch {}", name(&b), now.view.epoch))
        }
        (_, None) => all.add("view", Some(volume), format!("{of}: nobody leads: it serves nobody")),
    }
    if now.lost_before > then.lost_before {
        all.add(
            "view",
            Some(volume),
            format!("{of}: what was not synced before epoch {} is lost", now.lost_before),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{Brick, Server, View};
    use ids::{Epoch, ServerId, SetId, VolumeId};

    fn state() -> State {
        let server = |id| Server {
            id: ServerId(id),
            identity: "i".to_owned(),
            host: format!("h{id}"),
            address: format!("h{id}:1"),
            role: cluster::Role::Voter,
            lost: false,
        };
        let brick = |id: u32| Brick {
            id: BrickId(id),
            server: ServerId(id.into()),
            path: "/b".to_owned(),
            arbiter: false,
            ..serde_json::from_value(serde_json::json!({
                "id": id, "server": id, "path": "/b"
            }))
            .unwrap()
        };
        let view =
            View { epoch: Epoch(2), primary: Some(BrickId(1)), in_sync: [BrickId(1), BrickId(2)].into() };
        let set = Set {
            id: SetId(7),
            volume: VolumeId(1),
            number: 1,
            bricks: vec![brick(1), brick(2)],
            view,
            lost_before: Epoch(0),
        };
        let volume = Volume {
            id: VolumeId(1),
            name: "v".to_owned(),
            status: Status::Started,
            replica: 2,
            arbiter: 0,
            sets: vec![SetId(7)],
            options: BTreeMap::new(),
            created: 0,
            numbered: 1,
        };
        State {
            pool: "p".to_owned(),
            servers: [(ServerId(1), server(1)), (ServerId(2), server(2))].into(),
            volumes: [(VolumeId(1), volume)].into(),
            sets: [(SetId(7), set)].into(),
            ..State::default()
        }
    }

    fn texts(before: &State, after: &State) -> Vec<String> {
        changes(before, after).into_iter().map(|c| c.text).collect()
    }

    #[test]
    fn a_failover_and_a_return_are_told() {
        let before = state();
        assert!(texts(&before, &before).is_empty());
        let mut after = before.clone();
        let view = &mut after.sets.get_mut(&SetId(7)).unwrap().view;
        *view = View { epoch: Epoch(3), primary: Some(BrickId(2)), in_sync: [BrickId(2)].into() };
        let told = [
            "volume v set 1: h1:/b is out of the view, and misses changes",
            "volume v set 1: h2:/b leads in epoch 3",
        ];
        assert_eq!(texts(&before, &after), told);
        assert_eq!(texts(&after, &before)[0], "volume v set 1: h1:/b holds every change again");
        let mut gone = after.clone();
        gone.sets.get_mut(&SetId(7)).unwrap().view.primary = None;
        assert_eq!(texts(&after, &gone), ["volume v set 1: nobody leads: it serves nobody"]);
    }

    #[test]
    fn what_administrators_change_is_told() {
        let before = state();
        let mut after = before.clone();
        after.servers.remove(&ServerId(2));
        let v = after.volumes.get_mut(&VolumeId(1)).unwrap();
        v.status = Status::Stopped;
        v.options.insert("a.b".to_owned(), "1".to_owned());
        v.options.insert("cluster.drain".to_owned(), "7".to_owned());
        let told = [
            "server h2 left the pool",
            "volume v was stopped",
            "volume v: a.b is 1 now",
            "volume v: cluster.drain is set 1 now",
        ];
        assert_eq!(texts(&before, &after), told);
        assert_eq!(changes(&before, &after)[1].volume.as_deref(), Some("v"));
        assert!(
            texts(&State::default(), &before).is_empty(),
            "what is there when a server starts is no news"
        );
        let other = State { pool: "q".to_owned(), ..State::default() };
        assert_eq!(texts(&before, &other), ["this server is in pool q now"]);
        assert_eq!(texts(&before, &State::default()), ["this server left pool p"]);
    }
}
