//! Who is not let in, until when, and why. Pure: time is an argument. By the operator, or by the core for those who
//! publish too fast however often they are told (F136); every ban ends.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::access::{lasting_name, name_by_address};

use crate::limits::BANS_MAX;

/// Whom a ban is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Banned {
    /// A client identifier, wherever it comes from.
    Client(String),
    /// A user.
    User(String),
    /// A network: an address and how many of its bits count.
    Network(IpAddr, u8),
    /// A client identifier from one network only: others who use the name are not to suffer for it.
    ClientAt(String, IpAddr, u8),
    /// A client identifier of one user only: neither its other clients nor others who use the name are to suffer for it.
    ClientOf(String, String),
}

impl Banned {
    /// The client without a user that comes from this address: /24 of IPv4, /64 of IPv6.
    pub(crate) fn client_near(client_id: &str, ip: IpAddr) -> Self {
        let ip = ip.to_canonical();
        let bits = if ip.is_ipv4() { 24 } else { 64 };
        Self::ClientAt(client_id.to_owned(), masked(ip, bits), bits)
    }

    /// The one way to write it.
    pub(crate) fn normal(self) -> Self {
        match self {
            // A port is another one with the next connection.
            Self::Client(client) => Self::Client(lasting_name(&client).to_owned()),
            Self::ClientOf(client, user) => Self::ClientOf(lasting_name(&client).to_owned(), user),
            Self::Network(ip, bits) => Self::Network(masked(ip.to_canonical(), bits), bits),
            Self::ClientAt(client, ip, bits) => {
                Self::ClientAt(lasting_name(&client).to_owned(), masked(ip.to_canonical(), bits), bits)
            }
            other @ Self::User(_) => other,
        }
    }

    /// Whether somebody with this client identifier and user, from this address, is meant.
    pub fn concerns(&self, client_id: &str, user: Option<&str>, ip: IpAddr) -> bool {
        let is_near = |net: &IpAddr, bits: u8| masked(ip.to_canonical(), bits) == *net;
        let by_address = name_by_address(client_id, ip);
        let is_it = |name: &String| name == lasting_name(client_id) || Some(name) == by_address.as_ref();
        match self {
            Self::Client(client) => is_it(client),
            Self::User(banned) => user == Some(banned),
            Self::Network(net, bits) => is_near(net, *bits),
            Self::ClientAt(client, net, bits) => is_it(client) && is_near(net, *bits),
            Self::ClientOf(client, banned) => is_it(client) && user == Some(banned),
        }
    }
}

/// A ban as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    /// For whom.
    pub whom: Banned,
    /// How long it still lasts.
    pub left: Duration,
    pub reason: String,
    /// How often somebody whom it concerns has tried to come in all the same, since this process began.
    pub tries: u64,
    /// How long ago the last of these tries was.
    pub last_try: Option<Duration>,
}

/// One ban.
#[derive(Debug)]
struct KeptBan {
    until: Timestamp,
    reason: String,
    tries: u64,
    last_try: Timestamp,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Bans {
    by_whom: BTreeMap<Banned, KeptBan>,
    /// How many networks of each size there are: a few sizes, so that looking up is a few lookups.
    sizes: BTreeMap<u8, usize>,
}

impl Bans {
    /// Bans somebody; the later end counts. False: the table is full of bans that have not ended.
    pub(crate) fn add(&mut self, whom: Banned, time: Duration, reason: &str, now: Timestamp) -> bool {
        let (whom, until) = (whom.normal(), now + time);
        if let Some(ban) = self.by_whom.get_mut(&whom) {
            if until > ban.until {
                (ban.until, ban.reason) = (until, reason.to_owned());
            }
            return true;
        }
        if self.by_whom.len() >= BANS_MAX {
            self.expire(now);
        }
        if self.by_whom.len() >= BANS_MAX {
            return false;
        }
        if let Some(bits) = bits_of(&whom) {
            *self.sizes.entry(bits).or_default() += 1;
        }
        let (reason, tries, last_try) = (reason.to_owned(), 0, Timestamp::ZERO);
        self.by_whom.insert(whom, KeptBan { until, reason, tries, last_try });
        true
    }

    /// Until when somebody is banned, and why.
    pub(crate) fn get(&self, whom: &Banned) -> Option<(Timestamp, &str)> {
        self.by_whom.get(whom).map(|ban| (ban.until, ban.reason.as_str()))
    }

    /// False if there was none.
    pub(crate) fn remove(&mut self, whom: Banned) -> bool {
        let whom = whom.normal();
        let was_there = self.by_whom.remove(&whom).is_some();
        if let Some(bits) = bits_of(&whom).filter(|_| was_there)
            && let Some(count) = self.sizes.get_mut(&bits)
        {
            *count -= 1;
            if *count == 0 {
                self.sizes.remove(&bits);
            }
        }
        was_there
    }

    /// Somebody tries to come in: how long it has to stay away, none if it is not banned. What it tries in vain is counted.
    pub(crate) fn find(&mut self, client_id: &str, user: Option<&str>, ip: IpAddr, now: Timestamp) -> Option<Duration> {
        if self.by_whom.is_empty() {
            return None;
        }
        let ip = ip.to_canonical();
        let names = [Some(lasting_name(client_id).to_owned()), name_by_address(client_id, ip)];
        let named = names.iter().flatten().flat_map(|name| {
            let of_user = user.map(|user| Banned::ClientOf(name.clone(), user.to_owned()));
            [Some(Banned::Client(name.clone())), of_user]
        });
        let of_user = user.map(|user| Banned::User(user.to_owned()));
        let near = self.sizes.keys().flat_map(|bits| {
            let net = masked(ip, *bits);
            let clients = names.iter().flatten().map(move |name| Banned::ClientAt(name.clone(), net, *bits));
            clients.chain([Banned::Network(net, *bits)])
        });
        let all = named.flatten().chain(of_user).chain(near);
        let longest =
            all.filter_map(|whom| Some((self.by_whom.get(&whom)?.until, whom))).max_by_key(|(until, _)| *until);
        let (_, whom) = longest.filter(|(until, _)| *until > now)?;
        let ban = self.by_whom.get_mut(&whom)?;
        (ban.tries, ban.last_try) = (ban.tries.saturating_add(1), now);
        Some(ban.until.since(now))
    }

    /// All that have not ended.
    pub(crate) fn list(&self, now: Timestamp) -> Vec<Ban> {
        let ban = |(whom, kept): (&Banned, &KeptBan)| Ban {
            whom: whom.clone(),
            left: kept.until.since(now),
            reason: kept.reason.clone(),
            tries: kept.tries,
            last_try: (kept.tries > 0).then(|| now.since(kept.last_try)),
        };
        self.by_whom.iter().map(ban).filter(|ban| !ban.left.is_zero()).collect()
    }

    fn expire(&mut self, now: Timestamp) {
        let over: Vec<Banned> =
            self.by_whom.iter().filter(|(_, ban)| ban.until <= now).map(|(whom, _)| whom.clone()).collect();
        for whom in over {
            self.remove(whom);
        }
    }
}

fn bits_of(whom: &Banned) -> Option<u8> {
    match whom {
        Banned::Network(_, bits) | Banned::ClientAt(_, _, bits) => Some(*bits),
        Banned::Client(_) | Banned::User(_) | Banned::ClientOf(..) => None,
    }
}

/// The first so many bits of an address.
pub(crate) fn masked(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4((ip.to_bits() & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_by_an_address_of_http_holds_over_connections_and_for_streams() {
        let (mut bans, now) = (Bans::default(), Timestamp::ZERO);
        let (here, there) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        bans.add(Banned::Client("$http/10.0.0.1:5000".into()), Duration::from_secs(60), "a test", now);
        for id in ["$http/10.0.0.1:5000", "$http/10.0.0.1:6000", "$http/t0123"] {
            assert!(bans.find(id, None, here, now).is_some(), "{id}");
            assert!(bans.list(now)[0].whom.concerns(id, Some("ann"), here), "{id}");
        }
        for (id, ip) in [("$http/10.0.0.2:5000", there), ("$http/t0123", there), ("lamp", here)] {
            assert!(bans.find(id, None, ip, now).is_none(), "{id}");
        }
        assert!(bans.remove(Banned::Client("$http/10.0.0.1:7000".into())));
        assert!(bans.find("$http/10.0.0.1:5000", None, here, now).is_none());
    }

    #[test]
    fn a_ban_by_an_address_of_coap_holds_over_ports_and_knows_sessions_from_none() {
        let here = IpAddr::from([10, 0, 0, 1]);
        let (plain, inside) = ("$coap/10.0.0.1:5000", "$coap/dtls/10.0.0.1:5000");
        let (plain_later, inside_later) = ("$coap/10.0.0.1:6000", "$coap/dtls/10.0.0.1:6000");
        for (banned, same, others) in [(plain, plain_later, inside_later), (inside, inside_later, plain_later)] {
            let (mut bans, now) = (Bans::default(), Timestamp::ZERO);
            bans.add(Banned::Client(banned.into()), Duration::from_secs(60), "a test", now);
            assert!(bans.find(same, None, here, now).is_some(), "{banned}: {same}");
            assert!(bans.find(others, Some("ann"), here, now).is_none(), "{banned}: {others}");
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_kind_finds_whom_it_means_and_ends() {
        let now = Timestamp::from_secs_f64(100.0);
        let mut bans = Bans::default();
        assert!(bans.add(Banned::Client("c".into()), MINUTE, "x", now));
        assert!(bans.add(Banned::User("u".into()), 2 * MINUTE, "x", now));
        assert!(bans.add(Banned::Network(ip("10.1.2.3"), 16), MINUTE, "x", now));
        assert!(bans.add(Banned::client_near("d", ip("::ffff:10.9.2.3")), MINUTE, "x", now));
        let mut find = |client, user, from: &str| bans.find(client, user, ip(from), now);
        assert_eq!(find("c", None, "1.1.1.1"), Some(MINUTE));
        assert_eq!(find("e", Some("u"), "1.1.1.1"), Some(2 * MINUTE));
        assert_eq!(find("e", None, "10.1.200.3"), Some(MINUTE));
        assert_eq!(find("e", None, "10.2.200.3"), None);
        assert_eq!(find("d", None, "10.9.2.77"), Some(MINUTE));
        assert_eq!(find("d", None, "10.9.3.77"), None, "somebody else with that name");
        assert_eq!(find("e", None, "10.9.2.77"), None, "a neighbour");
        assert_eq!(bans.find("c", None, ip("1.1.1.1"), now + MINUTE), None);
        assert_eq!(bans.list(now).len(), 4);
        assert_eq!(bans.list(now + MINUTE).len(), 1);
        assert!(bans.remove(Banned::Network(ip("10.1.7.7"), 16)));
        assert_eq!(bans.find("e", None, ip("10.1.200.3"), now), None);
        assert!(!bans.remove(Banned::Client("nobody".into())));
    }

    #[test]
    fn f136_a_client_of_a_user_is_neither_the_user_nor_the_client_of_another() {
        let (mut bans, now) = (Bans::default(), Timestamp::ZERO);
        let whom = Banned::ClientOf("c".into(), "u".into());
        assert!(bans.add(whom.clone(), MINUTE, "x", now));
        for (client, user, is_banned) in
            [("c", Some("u"), true), ("d", Some("u"), false), ("c", Some("v"), false), ("c", None, false)]
        {
            let here = ip("1.1.1.1");
            assert_eq!(bans.find(client, user, here, now).is_some(), is_banned, "{client} {user:?}");
            assert_eq!(whom.concerns(client, user, here), is_banned, "{client} {user:?}");
        }
    }

    #[test]
    fn tries_of_the_banned_are_counted_with_the_ban_that_keeps_them_out() {
        let (mut bans, now) = (Bans::default(), Timestamp::from_secs_f64(100.0));
        let here = ip("10.1.1.1");
        assert!(bans.add(Banned::Client("c".into()), MINUTE, "x", now));
        assert!(bans.add(Banned::Network(here, 16), 2 * MINUTE, "x", now));
        let tries =
            |bans: &Bans, at| bans.list(at).into_iter().map(|ban| (ban.tries, ban.last_try)).collect::<Vec<_>>();
        assert_eq!(tries(&bans, now), [(0, None), (0, None)]);
        bans.find("c", None, ip("1.1.1.1"), now);
        bans.find("c", None, here, now);
        bans.find("d", None, here, now + MINUTE / 2);
        bans.find("d", None, ip("1.1.1.1"), now);
        assert_eq!(tries(&bans, now + MINUTE / 2), [(1, Some(MINUTE / 2)), (2, Some(Duration::ZERO))]);
        assert!(bans.add(Banned::Client("c".into()), 3 * MINUTE, "y", now), "a longer one goes on counting");
        assert_eq!(bans.list(now)[0].tries, 1);
    }

    #[test]
    fn the_table_is_bounded_and_what_has_ended_makes_room() {
        let (mut bans, now) = (Bans::default(), Timestamp::ZERO);
        for n in 0..BANS_MAX {
            assert!(bans.add(Banned::Client(n.to_string()), MINUTE, "x", now));
        }
        assert!(!bans.add(Banned::Client("one more".into()), MINUTE, "x", now));
        assert!(bans.add(Banned::Client("0".into()), 2 * MINUTE, "x", now), "a longer one of the same");
        assert!(bans.add(Banned::Client("one more".into()), MINUTE, "x", now + MINUTE));
    }

    #[test]
    fn a_whole_family_of_addresses_is_masked_without_overflow() {
        assert_eq!(masked(ip("10.1.2.3"), 0), ip("0.0.0.0"));
        assert_eq!(masked(ip("10.1.2.3"), 32), ip("10.1.2.3"));
        assert_eq!(masked(ip("ffff::1"), 0), ip("::"));
        assert_eq!(masked(ip("ffff::1"), 255), ip("ffff::1"));
    }
}
