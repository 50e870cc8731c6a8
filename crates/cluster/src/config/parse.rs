//! Reading the document. Whatever is not known is refused with its line.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::client::{lifetime, squash};
use super::{ClientDoc, Document, FORMAT, ParseError, ServerDoc, VolumeDoc};
use crate::{Status, check_volume_name, options};

type Item<'a> = toml::Spanned<DeValue<'a>>;

/// Reads a document.
pub fn parse(text: &str) -> Result<Document, ParseError> {
    let p = Parser { text };
    let root = DeTable::parse(text).map_err(|e| {
        let at = e.span().map_or(0, |s| s.start);
        p.error(at, e.message().trim().replace('\n', ", "))
    })?;
    if root.get_ref().is_empty() {
        let message = "the document is empty: mortar config export prints one".to_owned();
        return Err(ParseError { line: 1, message });
    }
    let mut document = Document::default();
    for (key, item) in root.get_ref() {
        let at = key.span().start;
        match key.get_ref().as_ref() {
            "format" => p.format(item)?,
            "pool" => p.known(item, &["id", "version"], "[pool]")?,
            "server" => {
                for (host, item) in p.table(item, "server")? {
                    document.servers.push(p.server(host.get_ref(), item)?);
                }
            }
            "volume" => {
                for (name, item) in p.table(item, "volume")? {
                    let at = name.span().start;
                    document.volumes.push(p.volume(name.get_ref(), at, item)?);
                }
            }
            "client" => {
                for (name, item) in p.table(item, "client")? {
                    document.clients.push(p.client(name.get_ref(), name.span().start, item)?);
                }
            }
            other => {
                let message = format!("'{other}' is unknown: use format, pool, server, volume, client");
                return Err(p.error(at, message));
            }
        }
    }
    document.servers.sort_by(|a, b| a.host.cmp(&b.host));
    document.clients.sort_by(|a, b| a.name.cmp(&b.name));
    document.volumes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(document)
}

struct Parser<'a> {
    text: &'a str,
}

impl Parser<'_> {
    fn error(&self, at: usize, message: String) -> ParseError {
        let before = self.text.as_bytes().iter().take(at);
        ParseError { line: before.filter(|b| **b == b'\n').count() + 1, message }
    }

    fn table<'t, 'i>(&self, item: &'t Item<'i>, what: &str) -> Result<&'t DeTable<'i>, ParseError> {
        let wrong = || self.error(item.span().start, format!("{what} must be a table"));
        item.get_ref().as_table().ok_or_else(wrong)
    }

    fn format(&self, item: &Item<'_>) -> Result<(), ParseError> {
        let format = self.number(item, "format")?;
        if format == 0 || u64::from(format) > FORMAT {
            let message = format!("format {format} is not known, this program reads {FORMAT}: update it");
            return Err(self.error(item.span().start, message));
        }
        Ok(())
    }

    fn known(&self, item: &Item<'_>, keys: &[&str], what: &str) -> Result<(), ParseError> {
        for key in self.table(item, what)?.keys() {
            if !keys.contains(&key.get_ref().as_ref()) {
                let message = format!("'{}' is unknown in {what}: use {}", key.get_ref(), keys.join(", "));
                return Err(self.error(key.span().start, message));
            }
        }
        Ok(())
    }

    fn text(&self, item: &Item<'_>, what: &str) -> Result<String, ParseError> {
        let wrong = || self.error(item.span().start, format!("{what} must be a text"));
        item.get_ref().as_str().map(str::to_owned).ok_or_else(wrong)
    }

    fn flag(&self, item: &Item<'_>, what: &str) -> Result<bool, ParseError> {
        let wrong = || self.error(item.span().start, format!("{what} must be true or false"));
        item.get_ref().as_bool().ok_or_else(wrong)
    }

    /// A text that `read` understands; `form` says how it is written.
    fn written<T>(
        &self,
        item: &Item<'_>,
        (what, form): (&str, &str),
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ParseError> {
        let text = self.text(item, what)?;
        let wrong = || self.error(item.span().start, format!("{what} '{text}': write {form}"));
        read(&text).ok_or_else(wrong)
    }

    fn server(&self, host: &str, item: &Item<'_>) -> Result<ServerDoc, ParseError> {
        let what = format!("server {host}");
        self.known(item, &["id", "address", "role", "fingerprint"], &what)?;
        let mut doc = ServerDoc { host: host.to_owned(), ..ServerDoc::default() };
        for (key, item) in self.table(item, &what)? {
            match key.get_ref().as_ref() {
                "address" => {
                    let port = |text: &str| text.rsplit_once(':')?.1.parse().ok().filter(|port| *port > 0);
                    doc.port = Some(self.written(item, ("address", "HOST:PORT"), port)?);
                }
                "fingerprint" => doc.fingerprint = Some(self.text(item, "fingerprint")?),
                // For the reader.
                _ => {}
            }
        }
        Ok(doc)
    }

    fn client(&self, name: &str, at: usize, item: &Item<'_>) -> Result<ClientDoc, ParseError> {
        let what = format!("client {name}");
        let keys = ["volume", "read_only", "squash", "users", "subdir", "expires"];
        self.known(item, &keys, &what)?;
        let mut doc = ClientDoc { name: name.to_owned(), ..ClientDoc::default() };
        for (key, item) in self.table(item, &what)? {
            match key.get_ref().as_ref() {
                "volume" => doc.volume = self.text(item, "volume")?,
                "read_only" => doc.read_only = self.flag(item, "read_only")?,
                "squash" => doc.squash = Some(self.written(item, ("squash", "\"UID:GID\""), squash)?),
                "users" => doc.users = self.users(item)?,
                "subdir" => doc.subdir = Some(self.text(item, "subdir")?),
                _ => doc.expires = Some(self.written(item, ("expires", "\"90d\" or \"12h\""), lifetime)?),
            }
        }
        if doc.volume.is_empty() {
            return Err(self.error(at, format!("{what} lacks the volume that its key is for")));
        }
        Ok(doc)
    }

    fn users(&self, item: &Item<'_>) -> Result<Vec<crate::KeyUser>, ParseError> {
        let form = "users must be a list of \"UID:GID\" or \"UID:GID+GID+GID\"";
        let list = item.get_ref().as_array().ok_or_else(|| self.error(item.span().start, form.into()))?;
        let one = |item: &Item<'_>| {
            let user = item.get_ref().as_str().and_then(|text| text.parse().ok());
            user.ok_or_else(|| self.error(item.span().start, form.into()))
        };
        list.iter().map(one).collect()
    }

    fn volume(&self, name: &str, at: usize, item: &Item<'_>) -> Result<VolumeDoc, ParseError> {
        check_volume_name(name).map_err(|e| self.error(at, e.to_string()))?;
        let what = format!("volume {name}");
        self.known(item, &["replica", "arbiter", "bricks", "force", "status", "options"], &what)?;
        let mut doc = VolumeDoc { name: name.to_string(), ..VolumeDoc::default() };
        for (key, item) in self.table(item, &what)? {
            match key.get_ref().as_ref() {
                "replica" => doc.replica = Some(self.number(item, "replica")?),
                "arbiter" => doc.arbiter = Some(self.number(item, "arbiter")?),
                "bricks" => doc.bricks = self.bricks(item)?,
                "force" => doc.force = self.flag(item, "force")?,
                "status" => doc.status = Some(self.status(item)?),
                _ => self.options(self.table(item, "options")?, "", &mut doc.options)?,
            }
        }
        Ok(doc)
    }

    fn number(&self, item: &Item<'_>, what: &str) -> Result<u32, ParseError> {
        let wrong = || self.error(item.span().start, format!("{what} must be a whole number"));
        let integer = item.get_ref().as_integer().ok_or_else(wrong)?;
        u32::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| wrong())
    }

    fn bricks(&self, item: &Item<'_>) -> Result<Vec<String>, ParseError> {
        let wrong = |at| self.error(at, "bricks must be a list of \"HOST:/PATH\"".into());
        let list = item.get_ref().as_array().ok_or_else(|| wrong(item.span().start))?;
        let text =
            |b: &Item<'_>| b.get_ref().as_str().map(str::to_string).ok_or_else(|| wrong(b.span().start));
        list.iter().map(text).collect()
    }

    fn status(&self, item: &Item<'_>) -> Result<Status, ParseError> {
        match item.get_ref().as_str() {
            Some("started") => Ok(Status::Started),
            Some("stopped") => Ok(Status::Stopped),
            Some("created") => Ok(Status::Created),
            _ => Err(self.error(item.span().start, "status must be \"started\" or \"stopped\"".into())),
        }
    }

    /// Options, whether their dots are quoted ("a.b" = 1) or make tables (a.b = 1).
    fn options(
        &self,
        table: &DeTable<'_>,
        prefix: &str,
        into: &mut BTreeMap<String, String>,
    ) -> Result<(), ParseError> {
        for (key, item) in table {
            let key_text = format!("{prefix}{}", key.get_ref());
            let at = key.span().start;
            let value = match item.get_ref() {
                DeValue::Table(inner) => {
                    self.options(inner, &format!("{key_text}."), into)?;
                    continue;
                }
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(n) => n.as_str().to_string(),
                DeValue::Boolean(yes) => yes.to_string(),
                _ => {
                    return Err(self
                        .error(at, format!("option {key_text} must be a text, a number or true or false")));
                }
            };
            match options::check(&key_text, &value) {
                Ok(_) => drop(into.insert(key_text, value)),
                Err(options::Bad::Unknown) => {
                    return Err(self.error(at, options::unknown(&key_text).to_string()));
                }
                Err(options::Bad::Value { expected }) => {
                    let value = ids::excerpt(&value);
                    return Err(
                        self.error(at, format!("option {key_text} cannot be '{value}': use {expected}"))
                    );
                }
            }
        }
        Ok(())
    }
}
