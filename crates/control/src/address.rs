//! Who counts as one by an address: whoever has one address of IPv6 has a network of 2⁶⁴ of them.

use core::net::IpAddr;

/// The address itself, of IPv4; of IPv6 its network of 64 bits. Two that are equal after this are counted together.
pub fn place_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => {
            let mut octets = six.octets();
            octets[8..].fill(0);
            octets.into()
        }
        four @ IpAddr::V4(_) => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_a_network_of_64_bits_are_one_and_a_mapped_address_is_what_it_maps() {
        let of = |text: &str| place_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.7"), of("10.0.0.7"));
        assert_ne!(of("10.0.0.7"), of("10.0.0.8"));
    }
}
