//! Join tokens: with one a server comes into a pool, once, until a certain time.
//!
//! The token carries what the pool is known by, so that the server that joins knows whom it speaks to before it says the
//! secret. The pool keeps a hash of the secret only.

use crate::authority::Fingerprint;
use crate::error::TokenError;
use crate::identity::{hex, unhex};
use ids::KeyId;
use ring::digest::{SHA256, digest};
use std::fmt;

/// How a token begins, and what follows that in those of this version.
const PREFIX: &str = "mortar-join-";
const VERSION: &str = "1-";
const SUM: usize = 4;
const LENGTH: usize = 32 + 8 + 16 + 8 + SUM;

fn hash(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().unwrap_or_else(|_| unreachable!("SHA-256 has 32 bytes"))
}

/// A token, as whoever joins has it. `Debug` does not show its secret, [`JoinToken::text`] does.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    authority: Fingerprint,
    number: KeyId,
    secret: [u8; 16],
    until: u64,
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({} of {}, until {})", self.number, self.authority, self.until)
    }
}

impl JoinToken {
    /// A token of the pool with this authority. `secret` is random, `until` in seconds after 1970.
    pub fn new(authority: Fingerprint, number: KeyId, secret: [u8; 16], until: u64) -> JoinToken {
        JoinToken { authority, number, secret, until }
    }

    /// What the pool is known by.
    pub fn authority(&self) -> Fingerprint {
        self.authority
    }

    /// Which token it is.
    pub fn number(&self) -> KeyId {
        self.number
    }

    /// What only those who have the token know.
    pub fn secret(&self) -> &[u8; 16] {
        &self.secret
    }

    /// What the pool keeps of it.
    pub fn stored(&self) -> StoredToken {
        StoredToken { secret_hash: hash(&self.secret), until: self.until }
    }

    /// As it is copied from terminal to terminal.
    pub fn text(&self) -> String {
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend_from_slice(&self.authority.0);
        bytes.extend_from_slice(&self.number.0.to_le_bytes());
        bytes.extend_from_slice(&self.secret);
        bytes.extend_from_slice(&self.until.to_le_bytes());
        let sum = hash(&bytes);
        bytes.extend_from_slice(sum.first_chunk::<SUM>().unwrap_or(&[0; SUM]));
        format!("{PREFIX}{VERSION}{}", hex(&bytes))
    }

    /// Whether a text begins as a token does, of any version.
    pub fn is_begun(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// Reads [`JoinToken::text`]; blanks around it do not count. `now` is in seconds after 1970.
    ///
    /// # Errors
    /// It is no token, not whole, or its time is over.
    pub fn parse(text: &str, now: u64) -> Result<JoinToken, TokenError> {
        let own = text.trim().strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix(VERSION));
        let digits = own.ok_or(TokenError::NotAToken)?;
        let bytes: [u8; LENGTH] = unhex(digits).ok_or(TokenError::Damaged)?;
        let (told, sum) = bytes.split_last_chunk::<SUM>().ok_or(TokenError::Damaged)?;
        if !hash(told).starts_with(sum) {
            return Err(TokenError::Damaged);
        }
        let read = || {
            let (authority, rest) = told.split_first_chunk()?;
            let (number, rest) = rest.split_first_chunk()?;
            let (secret, rest) = rest.split_first_chunk()?;
            let (until, _) = rest.split_first_chunk()?;
            Some(JoinToken {
                authority: Fingerprint(*authority),
                number: KeyId(u64::from_le_bytes(*number)),
                secret: *secret,
                until: u64::from_le_bytes(*until),
            })
        };
        let token = read().ok_or(TokenError::Damaged)?;
        if now > token.until { Err(TokenError::Expired) } else { Ok(token) }
    }
}

/// What the pool's store keeps of a token, under its number, until somebody joined with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredToken {
    /// SHA-256 of the secret.
    pub secret_hash: [u8; 32],
    /// Seconds after 1970.
    pub until: u64,
}

impl StoredToken {
    /// Whether this secret lets in, at `now` seconds after 1970.
    ///
    /// # Errors
    /// It does not.
    pub fn admits(&self, secret: &[u8; 16], now: u64) -> Result<(), TokenError> {
        // What is compared are hashes: the time that takes says nothing about the secret.
        if hash(secret) != self.secret_hash {
            Err(TokenError::Unknown)
        } else if now > self.until {
            Err(TokenError::Expired)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> JoinToken {
        JoinToken::new(Fingerprint([9; 32]), KeyId(5), [7; 16], 1000)
    }

    #[test]
    fn a_token_says_what_was_put_into_it() {
        let text = token().text();
        let frozen = "mortar-join-1-0909090909090909090909090909090909090909090909090909090909090909\
                      050000000000000007070707070707070707070707070707e803000000000000";
        assert_eq!(text.get(..text.len() - 8), Some(frozen));
        assert_eq!(JoinToken::parse(&format!(" {text}\n"), 1000), Ok(token()));
        assert_eq!(JoinToken::parse(&text, 1001), Err(TokenError::Expired));
        assert!(!format!("{:?}", token()).contains("0707"), "the secret is not shown");
    }

    #[test]
    fn each_wrong_character_is_seen() {
        let text = token().text();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            for other in [b'0', b'f', b'A', b'-'] {
                let right = std::mem::replace(&mut bytes[at], other);
                if right != other {
                    let read = JoinToken::parse(std::str::from_utf8(&bytes).unwrap(), 0);
                    assert!(read.is_err(), "{at}: {read:?}");
                }
                bytes[at] = right;
            }
            assert!(JoinToken::parse(&text[..at], 0).is_err());
        }
        assert!(JoinToken::parse(&format!("{text}00"), 0).is_err());
        assert_eq!(JoinToken::parse("hello", 0), Err(TokenError::NotAToken));
        assert!(JoinToken::is_begun(&text[..20]) && !JoinToken::is_begun("hello"));
    }

    #[test]
    fn only_its_own_secret_and_only_in_time() {
        let stored = token().stored();
        assert_eq!(stored.admits(&[7; 16], 1000), Ok(()));
        assert_eq!(stored.admits(&[7; 16], 1001), Err(TokenError::Expired));
        assert_eq!(stored.admits(&[8; 16], 0), Err(TokenError::Unknown));
    }
}
