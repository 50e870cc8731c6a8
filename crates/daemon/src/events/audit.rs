//! How requests of administrators are told in the log of events.

use super::{LINE, shortened};
use admin::{AdminAnswer, AdminError, AdminRequest, DrainAction, ProfileAction, RebalanceAction};
use serde_json::Value;

/// Characters of a request that are told: a document may have very many.
const REQUEST: usize = LINE / 2;
/// What is never told, whatever request has it.
const SECRET: [&str; 5] = ["token", "key_file", "secret", "password", "url"];

/// A request that may change something: its name and what it says, and the volume that it is about.
pub(crate) fn audited(request: &AdminRequest) -> Option<(String, Option<String>)> {
    if only_looks(request) {
        return None;
    }
    let Ok(Value::Object(all)) = serde_json::to_value(request) else { return None };
    let (name, mut fields) = all.into_iter().next()?;
    if let Value::Object(fields) = &mut fields {
        fields.retain(|_, value| !value.is_null());
        // What a document says, not its comments: these may be all that there is room for.
        if let Some(Value::String(document)) = fields.get_mut("document") {
            let says = |line: &&str| !line.is_empty() && !line.starts_with('#');
            let lines: Vec<&str> = document.lines().map(str::trim).filter(says).collect();
            *document = lines.join("\n");
        }
        for secret in SECRET {
            if let Some(value) = fields.get_mut(secret) {
                *value = Value::String("...".to_owned());
            }
        }
    }
    let of_volume = name.starts_with("volume-");
    let volume = fields.get("name").and_then(Value::as_str).filter(|_| of_volume).map(str::to_owned);
    let said = if fields.as_object().is_some_and(serde_json::Map::is_empty) {
        String::new()
    } else {
        format!(" {fields}")
    };
    Some((format!("{name}{said}"), volume))
}

/// The line about a request: what it says, as far as there is room, and what came of it.
pub(crate) fn line(request: &str, answer: &Result<AdminAnswer, AdminError>) -> String {
    let outcome = match answer {
        Ok(_) => "done".to_owned(),
        Err(e) => format!("not done: {e}"),
    };
    shortened(&format!("{}: {outcome}", shortened(request, REQUEST)), LINE)
}

/// Whether it changes nothing. What is not named here is told.
fn only_looks(request: &AdminRequest) -> bool {
    use AdminRequest as R;
    match request {
        R::PeerStatus(_)
        // Each mount on a server's machine asks for one, and gets the same one.
        | R::LocalKey(_)
        | R::PoolList(_)
        | R::ClientList(_)
        | R::VolumeInfo(_)
        | R::VolumeStatus(_)
        | R::VolumeClients(_)
        | R::VolumeFds(_)
        | R::VolumeQueues(_)
        | R::VolumeTop(_)
        | R::VolumeList(_)
        | R::VolumeGet(_)
        | R::VolumeHeal(_)
        | R::VolumeHealInfo(_)
        | R::Events(_)
        | R::Doctor(_)
        | R::ConfigDiff(_)
        | R::ConfigExport(_) => true,
        R::VolumeProfile(r) => r.action == ProfileAction::Info,
        R::VolumeDrain(r) => r.action == DrainAction::Status,
        R::VolumeAdopt(r) => !r.begin,
        R::VolumeRebalance(r) => r.dry_run || r.action == RebalanceAction::Status,
        R::ConfigApply(r) => r.dry_run,
        R::EventsWebhook(r) => r.url.is_none() && !r.remove,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::{Ask, ClientList, PoolList, PoolSecure, VolumeCreate, VolumeStart};

    #[test]
    fn what_changes_something_is_told() {
        assert_eq!(audited(&PoolList {}.into_request()), None);
        assert_eq!(audited(&ClientList {}.into_request()), None);
        assert_eq!(audited(&PoolSecure {}.into_request()).unwrap().0, "pool-secure");
        let start = VolumeStart { name: "home".to_owned() }.into_request();
        let told = audited(&start).unwrap();
        assert_eq!(told, (r#"volume-start {"name":"home"}"#.to_owned(), Some("home".to_owned())));
        let create = VolumeCreate {
            name: "home".to_owned(),
            replica: None,
            arbiter: None,
            stripe: None,
            bricks: vec!["h:/b".to_owned()],
            force: false,
            adopt: false,
        };
        let (told, _) = audited(&create.into_request()).unwrap();
        assert!(
            told.starts_with("volume-create {") && told.contains("h:/b") && !told.contains("null"),
            "{told}"
        );
    }

    #[test]
    fn comments_of_a_document_are_not_told() {
        let document = "# a long comment\n\nformat = 1\n  # another\n[volume.v]\n".to_owned();
        let apply = admin::ConfigApply { document, dry_run: false, plan: None }.into_request();
        let (request, _) = audited(&apply).unwrap();
        assert!(request.contains(r#"format = 1\n[volume.v]"#) && !request.contains("comment"), "{request}");
    }

    #[test]
    fn a_long_request_does_not_hide_what_came_of_it() {
        let document = "x".repeat(100_000);
        let apply = admin::ConfigApply { document, dry_run: false, plan: None }.into_request();
        let (request, _) = audited(&apply).unwrap();
        let refused = Err(AdminError::new(admin::ErrorCode::Conflict, "no"));
        let told = line(&request, &refused);
        assert!(told.starts_with("config-apply {") && told.ends_with("...: not done: no"), "{told}");
        assert!(told.len() <= LINE);
    }
}
