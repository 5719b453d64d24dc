use super::*;
use proptest::prelude::*;
use std::fmt::Write;

/// A frame as a client sends it.
pub(crate) fn masked(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut out = Vec::new();
    put_binary_head(payload.len(), &mut out);
    out[0] = first;
    out[1] |= 0x80;
    out.extend_from_slice(&mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    out
}

/// What came out: the payload, and a letter for each control frame; or the fault.
fn decode_in(pieces: &[&[u8]]) -> Result<(Vec<u8>, String), CloseCode> {
    let (mut decoder, mut payload, mut controls) = (Decoder::default(), Vec::new(), String::new());
    for piece in pieces {
        let mut buffer = piece.to_vec();
        let count = decoder.decode(&mut buffer, |control| match control {
            ControlFrame::Ping(data) => write!(controls, "ping{}", data.len()).unwrap(),
            ControlFrame::Pong => controls.push_str("pong"),
            ControlFrame::Close => controls.push_str("close"),
        })?;
        payload.extend_from_slice(&buffer[..count]);
        if controls.ends_with("close") {
            break;
        }
    }
    Ok((payload, controls))
}

#[test]
fn frames_may_share_and_span_and_be_interrupted() {
    let mut stream = masked(0x82, b"one", [1, 2, 3, 4]);
    stream.extend(masked(0x02, b"two ", [9, 8, 7, 6]));
    stream.extend(masked(0x89, b"hi", [5, 5, 5, 5]));
    stream.extend(masked(0x00, b"and ", [0, 0, 0, 0]));
    stream.extend(masked(0x80, b"three", [1, 0, 1, 0]));
    assert_eq!(decode_in(&[&stream]), Ok((b"onetwo and three".to_vec(), "ping2".into())));
}

#[test]
fn all_three_forms_of_length() {
    for len in [0, 1, 125, 126, 0xffff, 0x1_0000, 100_000] {
        let payload = vec![0x5a; len];
        assert_eq!(decode_in(&[&masked(0x82, &payload, [3, 1, 4, 1])]), Ok((payload, String::new())), "{len}");
    }
}

#[test]
fn f084_what_a_client_must_not_send() {
    use CloseCode::{ProtocolError, TooBig, UnsupportedData};
    let cases: &[(&str, &[u8], CloseCode)] = &[
        ("text", &[0x81, 0x80], UnsupportedData),
        ("unmasked", &[0x82, 0x01], ProtocolError),
        ("reserved bit", &[0xc2, 0x80], ProtocolError),
        ("reserved opcode", &[0x83, 0x80], ProtocolError),
        ("reserved control opcode", &[0x8b, 0x80], ProtocolError),
        ("fragmented ping", &[0x09, 0x80], ProtocolError),
        ("long ping", &[0x89, 0xfe], ProtocolError),
        ("continuation of nothing", &[0x80, 0x80], ProtocolError),
        ("two-byte length for 125", &[0x82, 0xfe, 0, 125, 0, 0, 0, 0], ProtocolError),
        ("eight-byte length for 65535", &[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0], ProtocolError),
        ("1 GB", &[0x82, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0], TooBig),
        ("2^63", &[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], TooBig),
        ("new message inside one", &[0x02, 0x80, 0, 0, 0, 0, 0x82, 0x80], ProtocolError),
    ];
    for (name, bytes, expected) in cases {
        assert_eq!(decode_in(&[bytes]), Err(*expected), "{name}");
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(decode_in(&single), Err(*expected), "{name}, byte by byte");
    }
}

#[test]
fn nothing_after_a_close_is_looked_at() {
    let mut stream = masked(0x82, b"last", [1, 1, 1, 1]);
    stream.extend(masked(0x88, &1000_u16.to_be_bytes(), [7, 7, 7, 7]));
    stream.extend_from_slice(b"whatever");
    assert_eq!(decode_in(&[&stream]), Ok((b"last".to_vec(), "close".into())));
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![prop::collection::vec(any::<u8>(), 0..200), Just(vec![7; 70_000])];
    let data = (payload, any::<[u8; 4]>()).prop_map(|(payload, mask)| masked(0x82, &payload, mask));
    let ping = (prop::collection::vec(any::<u8>(), 0..126), any::<[u8; 4]>())
        .prop_map(|(payload, mask)| masked(0x89, &payload, mask));
    let noise = prop::collection::vec(any::<u8>(), 0..20);
    prop::collection::vec(prop_oneof![4 => data, 2 => ping, 1 => noise], 0..8).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn any_split_gives_the_same(stream in frames(), cuts in prop::collection::vec(0.0..1.0, 0..12)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut: &f64| (cut * stream.len() as f64) as usize).collect();
        cuts.sort_unstable();
        let (mut pieces, mut from) = (Vec::new(), 0);
        for cut in cuts.into_iter().chain([stream.len()]) {
            pieces.push(&stream[from..cut]);
            from = cut;
        }
        prop_assert_eq!(decode_in(&pieces), decode_in(&[&stream]));
    }
}
