//! What the web console of this server may ask, and who may sign in.

use super::Control;
use crate::clock::unix_now;
use crate::console::Host;
use crate::speaker::Speaker;
use admin::{AdminAnswer, AdminError, AdminRequest, Event};
use std::sync::Arc;
use trust::{Holder, Identity, KeyFile};

impl Host for Arc<Control> {
    fn recognize(&self, key_file: &[u8]) -> Result<Speaker, String> {
        let keys = self.own_keys().map_err(|e| e.message)?;
        let file = KeyFile::decode(key_file).map_err(|e| format!("this is no key file: {e}"))?;
        let file = file.with_authorities(keys.authorities().to_vec());
        let file = file.map_err(|_| "this key is of another pool".to_owned())?;
        if !matches!(file.identity(), Identity { holder: Holder::Admin(_), .. }) {
            return Err("this is not an administrator's key: mortar pool key makes one".to_owned());
        }
        let who = Speaker::Key(file.identity().clone());
        who.admitted(&self.state(), true, unix_now()).map(|()| who)
    }

    fn lets_in(&self, who: &Speaker) -> bool {
        // This server may have come into another pool, which gives the same numbers to other keys.
        let of_pool = matches!(who, Speaker::Key(identity) if identity.pool == self.shared.pool());
        of_pool && who.admitted(&self.state(), true, unix_now()).is_ok()
    }

    fn note_entry(&self, who: String) {
        tracing::info!("{who}: signed in");
        let text = "signed in to the console".to_owned();
        self.note(Event { kind: "admin".to_owned(), text, who: Some(who), ..Event::default() });
    }

    async fn ask(&self, request: AdminRequest, who: String) -> Result<AdminAnswer, AdminError> {
        self.audited_admin(request, who).await
    }
}
