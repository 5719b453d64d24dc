use super::*;
use proptest::prelude::*;

fn key() -> impl Strategy<Value = FileKey> {
    (any::<u64>(), any::<u64>()).prop_map(|(epoch, count)| FileKey { epoch, count })
}

fn name() -> impl Strategy<Value = String> {
    let folder = prop::sample::select(Folder::LOGS.to_vec());
    (folder, 0..1_000_000_000_000_u64).prop_map(|(folder, number)| folder.name(&format!("log-{number:012}.tide")))
}

fn op() -> impl Strategy<Value = DiskOp> {
    let node = || "[a-z0-9-]{1,32}".prop_map(|text| text.parse::<NodeName>().unwrap());
    let entry = || (key(), name(), any::<u64>()).prop_map(|(file, name, size)| FileEntry { file, name, size });
    prop_oneof![
        (node(), any::<u64>(), any::<u64>()).prop_map(|(node, incarnation, cluster)| DiskOp::Open(Opening {
            node,
            incarnation,
            cluster
        })),
        (key(), name()).prop_map(|(file, name)| DiskOp::Create { file, name }),
        (key(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(file, at, bytes)| DiskOp::Append { file, at, bytes: bytes.into() }),
        (key(), any::<u64>()).prop_map(|(file, size)| DiskOp::Truncate { file, size }),
        (key(), name()).prop_map(|(file, name)| DiskOp::Rename { file, name }),
        key().prop_map(|file| DiskOp::Remove { file }),
        prop::collection::vec(entry(), 0..9).prop_map(|files| DiskOp::Table { files }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(epoch: u64, number: u64, op in op()) {
        let entry = Entry { epoch, number, op };
        prop_assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
    }

    #[test]
    fn a_flipped_bit_is_never_another_entry(op in op(), at: prop::sample::Index, bit in 0..8_u8) {
        let mut bytes = Entry { epoch: 1, number: 2, op }.encode().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Entry::decode(&bytes.into()).is_err());
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..200), is_summed: bool) {
        if is_summed && bytes.len() > 4 {
            bytes[..3].copy_from_slice(b"TD\x01");
            let sum = crc32c::crc32c(&bytes);
            bytes.extend(sum.to_le_bytes());
        }
        let _ = Entry::decode(&bytes.into());
    }
}

#[test]
fn only_the_logs_own_files_are_mirrored() {
    for name in ["log-000000000001.tide", "snapshot-000000000009.tide", "snapshot-000000000009.tide.tmp"] {
        assert!(Folder::LOGS.iter().all(|folder| is_mirrored(&folder.name(name))), "{name}");
    }
    assert!(is_mirrored("access/users") && is_mirrored("access/rules.tmp"));
    let others = [
        "access/",
        "access/log-1.tide",
        "access/../users",
        "users",
        "space/",
        "space/LOCK",
        "space/a/b.tide",
        "space/../a.tide",
        "space/space/a.tide",
        "LOCK",
        "MARK",
        "RESERVE",
        "CLUSTER",
        "log-1.tide.bad",
        "../a.tide",
        "a/b.tide",
        ".tide",
        "",
        ".tmp",
    ];
    for name in others {
        assert!(!is_mirrored(name), "{name}");
    }
}

#[test]
fn what_is_about_the_store_alone_is_read_by_releases_that_know_no_other_folder() {
    let key = FileKey { epoch: 1, count: 2 };
    let version = |op| Entry { epoch: 1, number: 2, op }.encode()[2];
    let create = |folder: Folder| DiskOp::Create { file: key, name: folder.name("log-1.tide") };
    let entry = |folder: Folder| FileEntry { file: key, name: folder.name("log-1.tide"), size: 3 };
    assert_eq!((version(create(Folder::Store)), version(create(Folder::Space))), (1, 2));
    assert_eq!(version(DiskOp::Table { files: vec![entry(Folder::Store)] }), 1);
    assert_eq!(version(DiskOp::Table { files: vec![entry(Folder::Store), entry(Folder::Space)] }), 2);
    let mut newer = Entry { epoch: 1, number: 2, op: DiskOp::Remove { file: key } }.encode().to_vec();
    newer[2] = 3;
    let body = newer.len() - SUM_BYTES;
    let sum = crc32c::crc32c(&newer[..body]).to_le_bytes();
    newer[body..].copy_from_slice(&sum);
    let error = Entry::decode(&newer.into()).unwrap_err();
    assert_eq!(error, EntryError::Version(3));
    assert!(error.to_string().contains("reads up to 2; use the newer release"), "{error}");
}
