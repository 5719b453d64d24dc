//! Classes of those who ask instead of publishing: knowledge processors of the smart space. The same classes as those of
//! messages, without those that name topics: a question has none.
//!
//! What is shown counts before what is said: a user has shown a password, an address is known from the connection, a name is
//! only said. So a class that asks for nothing but names is met by names only where there are no users at all. A better class
//! than its own is a claimant's only ([`Class::claimants`]).

use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

use super::{Class, ClassId, Classes};
use crate::access::Identity;

/// Who comes first at the smart space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClassRole {
    /// Best effort: whatever services leave, and a small share always.
    #[default]
    Customer,
    /// Services that others rely on: before customers.
    Service,
}

/// Whoever asks, as its door knows it.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The user whose password was right.
    pub user: Option<&'a str>,
    /// Where the connection comes from.
    pub address: IpAddr,
    /// What it calls itself: an SSAP node, or `pace-client`.
    pub name: Option<&'a str>,
    /// Whether a name alone is believed: only where there are no users.
    pub believes_names: bool,
}

/// The class of an asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskerClass {
    /// The class.
    pub class: ClassId,
    /// It asked for another, without the right to it or by a name that no class has.
    pub is_claim_ignored: bool,
}

/// Addresses that begin alike: `10.0.0.0/8`, `fd00::/8`, or a single one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    bits: u8,
}

impl AddressRange {
    /// Whether an address is one of these; a v4 address in the clothes of v6 is taken for what it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(other)) => {
                (u32::from(first) ^ u32::from(other)).checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(first), IpAddr::V6(other)) => {
                (u128::from(first) ^ u128::from(other)).checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// The text is neither an address nor the beginning of some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnAddressRange;

impl FromStr for AddressRange {
    type Err = NotAnAddressRange;

    fn from_str(text: &str) -> Result<Self, NotAnAddressRange> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let first = address.parse::<IpAddr>().map_err(|_| NotAnAddressRange)?.to_canonical();
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse::<u8>).map_err(|_| NotAnAddressRange)?;
        if bits <= most { Ok(Self { first, bits }) } else { Err(NotAnAddressRange) }
    }
}

impl Class {
    /// Whether the address of a client is one that the class asks for.
    pub(super) fn is_from_there(&self, identity: &Identity) -> bool {
        self.addresses.is_empty() || identity.peer.parse::<SocketAddr>().is_ok_and(|peer| self.is_address(peer.ip()))
    }

    fn is_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|range| range.contains(address))
    }

    /// Whether everything that the class asks for is so.
    fn takes(&self, asker: &Asker<'_>) -> bool {
        let is_named = |name: &str| self.clients.iter().any(|pattern| pattern.matches(name));
        let is_user = |user: &str| self.users.iter().any(|name| **name == *user);
        let is_shown = asker.believes_names || !(self.users.is_empty() && self.addresses.is_empty());
        self.has_rules()
            && self.topics.is_empty()
            && is_shown
            && (self.users.is_empty() || asker.user.is_some_and(is_user))
            && (self.addresses.is_empty() || self.is_address(asker.address))
            && (self.clients.is_empty() || asker.name.is_some_and(is_named))
    }

    /// Who comes first: services, then by weight.
    fn rank(&self) -> (ClassRole, u32) {
        (self.role, self.weight)
    }

    fn lets_claim(&self, user: Option<&str>) -> bool {
        user.is_some_and(|user| self.claimants.iter().any(|name| **name == *user || **name == *ANYBODY))
    }
}

impl Classes {
    /// The class of whoever asks: by the first class whose rules it meets, else `normal`; or the one that it claims, if that is
    /// not better than its own or it may.
    pub fn of_asker(&self, asker: &Asker<'_>, claim: Option<&str>) -> AskerClass {
        let mut asked = self.order.iter().filter_map(|id| Some((*id, self.get(*id)?)));
        let own = asked.find(|(_, class)| class.takes(asker)).map_or(ClassId::NORMAL, |(id, _)| id);
        let Some(claim) = claim else { return AskerClass { class: own, is_claim_ignored: false } };
        let may =
            |class: &Class| self.get(own).is_some_and(|own| class.rank() <= own.rank()) || class.lets_claim(asker.user);
        match self.find(claim).filter(|id| self.get(*id).is_some_and(may)) {
            Some(class) => AskerClass { class, is_claim_ignored: false },
            None => AskerClass { class: own, is_claim_ignored: true },
        }
    }
}

/// Every user, among claimants.
const ANYBODY: &str = "*";

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::glob::Glob;

    fn range(text: &str) -> AddressRange {
        text.parse().unwrap()
    }

    fn asker<'a>(user: Option<&'a str>, address: &str, name: Option<&'a str>) -> Asker<'a> {
        Asker { user, address: address.parse().unwrap(), name, believes_names: false }
    }

    fn classes() -> Classes {
        let agents = Class {
            role: ClassRole::Service,
            users: vec!["agent".into()],
            claimants: vec!["boss".into()],
            ..Class::new("agents", 8)
        };
        let plant = Class { role: ClassRole::Service, addresses: vec![range("10.1.0.0/16")], ..Class::new("plant", 4) };
        let named = Class { clients: vec![Glob::new("lamp-*")], ..Class::new("lamps", 2) };
        let alarms = Class { topics: vec!["#".into()], users: vec!["agent".into()], ..Class::new("alarms", 9) };
        Classes::new(vec![alarms, agents, plant, named]).unwrap()
    }

    fn name_of(asker: &Asker<'_>, claim: Option<&str>) -> (Box<str>, bool) {
        let classes = classes();
        let AskerClass { class, is_claim_ignored } = classes.of_asker(asker, claim);
        (classes.get(class).unwrap().name.clone(), is_claim_ignored)
    }

    #[test]
    fn who_asks_belongs_to_a_class_by_user_address_or_name() {
        assert_eq!(name_of(&asker(Some("agent"), "192.168.0.1", None), None), ("agents".into(), false));
        assert_eq!(name_of(&asker(None, "10.1.2.3", None), None), ("plant".into(), false));
        assert_eq!(name_of(&asker(None, "::ffff:10.1.2.3", None), None), ("plant".into(), false));
        assert_eq!(name_of(&asker(None, "10.2.0.1", None), None), ("normal".into(), false));
        let lamp = asker(None, "10.2.0.1", Some("lamp-1"));
        assert_eq!(name_of(&lamp, None).0, "normal".into(), "a name is only said");
        assert_eq!(name_of(&Asker { believes_names: true, ..lamp }, None).0, "lamps".into());
    }

    #[test]
    fn f133_a_better_class_is_for_claimants_and_a_lesser_one_for_everybody() {
        let stranger = asker(None, "10.2.0.1", Some("agents"));
        assert_eq!(name_of(&stranger, Some("agents")), ("normal".into(), true));
        assert_eq!(name_of(&stranger, Some("no such class")), ("normal".into(), true));
        assert_eq!(name_of(&stranger, Some("low")), ("low".into(), false));
        assert_eq!(name_of(&asker(Some("boss"), "10.2.0.1", None), Some("agents")), ("agents".into(), false));
        assert_eq!(name_of(&asker(Some("boss"), "10.2.0.1", None), Some("plant")), ("normal".into(), true));
        let agent = asker(Some("agent"), "10.2.0.1", None);
        assert_eq!(name_of(&agent, Some("plant")), ("plant".into(), false), "the same role, a smaller share");
    }

    #[test]
    fn what_is_no_range_of_addresses_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "::/129", "localhost", "10.0.0.1:80"] {
            assert_eq!(text.parse::<AddressRange>(), Err(NotAnAddressRange), "{text:?}");
        }
        assert!(
            range("0.0.0.0/0").contains([1, 2, 3, 4].into()) && !range("0.0.0.0/0").contains("::1".parse().unwrap())
        );
        assert!(range("::/0").contains("fe80::1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn a_range_holds_those_whose_first_bits_are_the_same(first: u32, other: u32, bits in 0..=32_u8) {
            let text = alloc::format!("{}/{bits}", core::net::Ipv4Addr::from(first));
            let digits = |it: u32| (0..32).rev().map(|place| it >> place & 1).take(bits.into()).collect::<Vec<_>>();
            let address = IpAddr::from(core::net::Ipv4Addr::from(other));
            prop_assert_eq!(range(&text).contains(address), digits(first) == digits(other));
        }
    }
}
