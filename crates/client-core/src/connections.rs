//! The connections of a session to one server: their numbers, which of them are given up, and when one broke.
//!
//! A request that was sent and not answered may lie on its connection and come in at any time. So the session numbers its
//! connections, and each new one tells the server which is the oldest that still counts: nothing that lies on an older one
//! is begun from then on.
//!
//! What must always be true: a connection that is given up never becomes valid again, and those before it are given up too.

use ids::SetId;

/// What has become of connections to a server; it changes whenever one broke, and is another one for each
/// [`Connections`]. The server may then have forgotten what the session holds open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Era {
    first: u64,
    breaks: u64,
}

/// What a new connection says to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// Its number.
    pub number: u64,
    /// The oldest connection that still counts.
    pub oldest: u64,
}

/// The connections to one server, at one address.
#[derive(Debug)]
pub struct Connections {
    first: u64,
    newest: u64,
    /// Connections with smaller numbers are given up.
    oldest: u64,
    breaks: u64,
    /// The server's shards; 1 until it told.
    shards: u16,
}

impl Connections {
    /// Connections whose numbers begin with `first`. All that the session had to this server before must have smaller
    /// ones, and are given up.
    pub fn new(first: u64) -> Connections {
        Connections { first, newest: first.saturating_sub(1), oldest: first, breaks: 0, shards: 1 }
    }

    /// A new connection. `next` gives numbers of a counter of the whole session: each is larger than all before.
    pub fn begin(&mut self, next: impl FnOnce() -> u64) -> Numbered {
        let number = next();
        assert!(number > self.newest, "numbers of connections ascend");
        self.newest = number;
        Numbered { number, oldest: self.oldest }
    }

    /// Whether a connection is given up: no call begins on it.
    pub fn is_given_up(&self, number: u64) -> bool {
        number < self.oldest
    }

    /// Gives up a connection on which something was asked and not answered, and all others so far with it. What others
    /// asked there meanwhile is either answered or asked again. Whether that is news, so that idle connections have to be
    /// closed.
    pub fn give_up(&mut self, number: u64) -> bool {
        assert!(number <= self.newest, "only what was begun is given up");
        let news = !self.is_given_up(number);
        if news {
            self.oldest = self.newest + 1;
        }
        news
    }

    /// A connection broke with a call on it: the others are most likely broken too. As [`Connections::give_up`].
    pub fn broke(&mut self, number: u64) -> bool {
        self.breaks += 1;
        self.give_up(number)
    }

    /// A connection broke that carried no call.
    pub fn idle_broke(&mut self) {
        self.breaks += 1;
    }

    /// What has become of connections so far.
    pub fn era(&self) -> Era {
        Era { first: self.first, breaks: self.breaks }
    }

    /// The server told how many shards it has. Whether that is news, so that idle connections lead to the wrong ones.
    pub fn handshake_done(&mut self, shards: u16) -> bool {
        let before = core::mem::replace(&mut self.shards, shards.max(1));
        before != self.shards
    }

    /// The shard that answers for a set.
    pub fn shard(&self, set: SetId) -> u16 {
        u16::try_from(set.0 % u32::from(self.shards)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_takes_all_older_ones_along_and_no_newer_one() {
        let mut c = Connections::new(5);
        assert_eq!(c.begin(|| 5), Numbered { number: 5, oldest: 5 });
        assert_eq!(c.begin(|| 8), Numbered { number: 8, oldest: 5 });
        assert!(c.give_up(5));
        assert!(c.is_given_up(5) && c.is_given_up(8), "what is sent again overtakes nothing on the others");
        assert_eq!(c.begin(|| 9), Numbered { number: 9, oldest: 9 });
        assert!(!c.give_up(8), "it was given up before");
        assert!(!c.is_given_up(9));
    }

    #[test]
    fn what_a_server_had_at_another_address_is_given_up() {
        let mut c = Connections::new(1);
        let old = c.begin(|| 1).number;
        let before = c.era();
        let c = Connections::new(2);
        assert!(c.is_given_up(old));
        assert_ne!(c.era(), before);
    }

    #[test]
    fn each_break_makes_a_new_era_and_giving_up_does_not() {
        let mut c = Connections::new(1);
        let (a, b) = (c.begin(|| 1).number, c.begin(|| 2).number);
        let at_first = c.era();
        c.give_up(a);
        assert_eq!(c.era(), at_first);
        assert!(!c.broke(b), "it was given up with the other");
        let second = c.era();
        assert_ne!(second, at_first);
        c.idle_broke();
        assert_ne!(c.era(), second);
    }

    #[test]
    fn sets_are_spread_over_the_shards_that_the_server_told() {
        let mut c = Connections::new(1);
        assert_eq!(c.shard(SetId(7)), 0, "it has not told");
        assert!(c.handshake_done(3));
        assert!(!c.handshake_done(3));
        assert_eq!(c.shard(SetId(7)), 1);
        assert!(c.handshake_done(0), "none is as good as one");
        assert_eq!(c.shard(SetId(7)), 0);
    }
}
