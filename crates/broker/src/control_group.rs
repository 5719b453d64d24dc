//! What the control groups of this process allow it, in both versions of them.
//!
//! Linux tells in three places: `/proc/self/cgroup` has the names of the groups, `/proc/self/mountinfo` where they are
//! mounted, and files there have the limits. A group may have no limit of its own and be inside one that has: systemd's
//! `MemoryMax=` of a slice, a pod. So every group from the own one up to the mount is asked, and the least limit holds.
//!
//! Pure: the texts and a way to read files are arguments. `machine` has the real ones.

/// The least limit of memory among the groups of a process, if any has one. `read` gives the text of a file.
pub(crate) fn memory_limit(groups: &str, mounts: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    let groups = groups.lines().filter_map(CgroupLine::parse);
    let folders = groups.flat_map(|group| folders(&group, &mounts));
    let limits = folders.filter_map(|(version, folder)| {
        let texts = version.files().map(|file| read(&format!("{folder}/{file}")));
        texts.into_iter().flatten().filter_map(|text| limit(&text)).min()
    });
    limits.min()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupVersion {
    One,
    Two,
}

impl CgroupVersion {
    /// Where limits are. `memory.high` ends nobody, but whoever is above it is slowed until it is useless. `memory.stat`
    /// of version 1 knows of groups that are above the mount, and cannot be seen in a container.
    const fn files(self) -> [&'static str; 2] {
        match self {
            Self::One => ["memory.limit_in_bytes", "memory.stat"],
            Self::Two => ["memory.max", "memory.high"],
        }
    }
}

/// A limit in one of these files: a number, or `max` for none, or a line of `memory.stat`. Version 1 says "none" by a
/// number close to 2^63.
fn limit(text: &str) -> Option<u64> {
    let inherited = text.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit "));
    inherited.unwrap_or(text).trim().parse().ok().filter(|bytes| *bytes > 0 && *bytes < 1 << 62)
}

/// A line of `/proc/self/cgroup`: `4:memory:/system.slice/x.service`, or `0::/…` in version 2.
#[derive(Debug)]
struct CgroupLine<'a> {
    version: CgroupVersion,
    path: &'a str,
}

impl<'a> CgroupLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let version = match (number, controllers) {
            ("0", "") => CgroupVersion::Two,
            _ if controllers.split(',').any(|name| name == "memory") => CgroupVersion::One,
            _ => return None,
        };
        Some(Self { version, path: path.strip_suffix(" (deleted)").unwrap_or(path) })
    }
}

/// A line of `/proc/self/mountinfo` that shows groups: `35 31 0:32 /its/root /where rw - cgroup cgroup rw,memory`.
#[derive(Debug)]
struct Mount {
    version: CgroupVersion,
    root: String,
    point: String,
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let version = match (kind.next()?, kind.nth(1)) {
            ("cgroup2", _) => CgroupVersion::Two,
            ("cgroup", Some(options)) if options.split(',').any(|option| option == "memory") => CgroupVersion::One,
            _ => return None,
        };
        let mut place = place.split(' ').skip(3);
        Some(Self { version, root: unescape(place.next()?), point: unescape(place.next()?) })
    }
}

/// Spaces, tabs, line breaks and backslashes are written as three octal digits.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if byte.is_ascii() => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            _ => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

/// The folders of a group and of those around it, as far as they are mounted. A container may be shown a mount whose
/// root it cannot name: then the mount itself is the best that is known.
fn folders(group: &CgroupLine<'_>, mounts: &[Mount]) -> Vec<(CgroupVersion, String)> {
    let mounts = || mounts.iter().filter(|mount| mount.version == group.version);
    let mut found = Vec::new();
    for mount in mounts() {
        let Some(below) = below(group.path, &mount.root) else { continue };
        let mut folder = mount.point.trim_end_matches('/').to_owned();
        found.push((group.version, folder.clone()));
        for name in below {
            folder.push('/');
            folder.push_str(name);
            found.push((group.version, folder.clone()));
        }
    }
    if found.is_empty() {
        found.extend(mounts().map(|mount| (group.version, mount.point.clone())));
    }
    found
}

/// The names that lead from the root of a mount to a group; none if it is elsewhere.
fn below<'a>(path: &'a str, root: &str) -> Option<Vec<&'a str>> {
    let names = |path: &'a str| path.split('/').filter(|name| !name.is_empty());
    let mut rest = names(path);
    for name in root.split('/').filter(|name| !name.is_empty()) {
        if rest.next() != Some(name) {
            return None;
        }
    }
    let rest: Vec<&str> = rest.collect();
    // A way up leads out of what is mounted here.
    (!rest.contains(&"..")).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const NONE_V1: &str = "9223372036854771712\n";

    fn found(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<u64> {
        let read = |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
        memory_limit(groups, mounts, read)
    }

    const V2: &str = "\
24 30 0:22 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
31 23 0:27 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
";

    #[test]
    fn a_service_of_systemd_with_memory_max() {
        let group = "0::/system.slice/tidegate.service\n";
        let own = ("/sys/fs/cgroup/system.slice/tidegate.service/memory.max", "167772160\n");
        let high = ("/sys/fs/cgroup/system.slice/tidegate.service/memory.high", "max\n");
        assert_eq!(found(group, V2, &[own, high]), Some(160 * MIB));
    }

    #[test]
    fn memory_high_counts_and_the_least_of_both_holds() {
        let group = "0::/system.slice/tidegate.service\n";
        let own = ("/sys/fs/cgroup/system.slice/tidegate.service/memory.max", "167772160\n");
        let high = ("/sys/fs/cgroup/system.slice/tidegate.service/memory.high", "134217728\n");
        assert_eq!(found(group, V2, &[own, high]), Some(128 * MIB));
        assert_eq!(found(group, V2, &[high]), Some(128 * MIB));
    }

    #[test]
    fn the_least_limit_of_all_groups_around_holds() {
        let group = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/tidegate.service\n";
        let files = [
            ("/sys/fs/cgroup/user.slice/memory.max", "1073741824\n"),
            ("/sys/fs/cgroup/user.slice/user-1000.slice/memory.max", "max\n"),
            ("/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/memory.high", "268435456\n"),
            ("/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/memory.max", "536870912\n"),
            (
                "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/tidegate.service/memory.max",
                "max\n",
            ),
            ("/sys/fs/cgroup/other.slice/memory.max", "1\n"),
        ];
        assert_eq!(found(group, V2, &files), Some(256 * MIB));
    }

    #[test]
    fn a_container_with_a_namespace_of_its_own() {
        let mounts = "638 637 0:27 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n";
        let files = [("/sys/fs/cgroup/memory.max", "134217728\n"), ("/sys/fs/cgroup/memory.high", "max\n")];
        assert_eq!(found("0::/\n", mounts, &files), Some(128 * MIB));
        // The namespace is the container's and the mount is not: its root has no name in here.
        let mounts = mounts.replace(" / /sys", " /../.. /sys");
        assert_eq!(found("0::/\n", &mounts, &files), Some(128 * MIB));
    }

    #[test]
    fn a_container_that_shares_the_namespace_of_its_host() {
        // Docker with --cgroupns=host: the name is the host's, and the mount's root is the container's group.
        let groups = "0::/system.slice/docker-5f3a.scope\n";
        let mounts =
            "638 637 0:27 /system.slice/docker-5f3a.scope /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n";
        let files = [("/sys/fs/cgroup/memory.max", "134217728\n")];
        assert_eq!(found(groups, mounts, &files), Some(128 * MIB));
        // A process that was moved out of the group that its namespace began with.
        assert_eq!(found("0::/../other\n", V2, &[("/sys/fs/cgroup/memory.max", "134217728\n")]), Some(128 * MIB));
    }

    const V1: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:17 - cgroup cgroup rw,memory
";

    #[test]
    fn version_1_with_a_group_of_its_own() {
        let groups = "9:name=systemd:/\n4:memory:/hf\n1:cpu,cpuacct:/elsewhere\n";
        let files = [
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", NONE_V1),
            ("/sys/fs/cgroup/memory/hf/memory.limit_in_bytes", "167772160\n"),
        ];
        assert_eq!(found(groups, V1, &files), Some(160 * MIB));
        assert_eq!(found(groups, V1, &files[..1]), None);
    }

    #[test]
    fn version_1_tells_of_groups_that_cannot_be_seen() {
        let groups = "11:memory:/docker/0123456789ab\n";
        let mounts = "35 31 0:32 /docker/0123456789ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let files = [
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", NONE_V1),
            (
                "/sys/fs/cgroup/memory/memory.stat",
                "cache 0\nrss 4096\nhierarchical_memory_limit 268435456\nhierarchical_memsw_limit 9223372036854771712\n",
            ),
        ];
        assert_eq!(found(groups, mounts, &files), Some(256 * MIB));
    }

    #[test]
    fn both_versions_at_once() {
        // As systemd's "hybrid" has it: memory is in version 1, and version 2 is there for names only.
        let mounts = format!("{V1}41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
        let groups = "4:memory:/system.slice/tidegate.service\n0::/system.slice/tidegate.service\n";
        let files = [("/sys/fs/cgroup/memory/system.slice/tidegate.service/memory.limit_in_bytes", "167772160\n")];
        assert_eq!(found(groups, &mounts, &files), Some(160 * MIB));
        // And the other way round.
        let files = [("/sys/fs/cgroup/unified/system.slice/tidegate.service/memory.max", "134217728\n")];
        assert_eq!(found(groups, &mounts, &files), Some(128 * MIB));
    }

    #[test]
    fn another_mount_of_the_same_groups_says_nothing_about_ours() {
        let mounts = format!("{V2}99 23 0:27 /system.slice/other.service /mnt/other rw - cgroup2 cgroup2 rw\n");
        let group = "0::/system.slice/tidegate.service\n";
        let files = [
            ("/mnt/other/memory.max", "1048576\n"),
            ("/sys/fs/cgroup/system.slice/tidegate.service/memory.max", "167772160\n"),
        ];
        assert_eq!(found(group, &mounts, &files), Some(160 * MIB));
        // Names are compared whole: a.service is not inside of a.
        assert_eq!(below("/ab/c", "/a"), None);
        assert_eq!(below("/a/b/c", "/a"), Some(vec!["b", "c"]));
    }

    #[test]
    fn odd_names_are_read_as_they_are_meant() {
        let mounts = "31 23 0:27 / /mnt/a\\040b\\134c rw - cgroup2 cgroup2 rw\n";
        let group = "0::/x:y/tidegate.service (deleted)\n";
        let files = [("/mnt/a b\\c/x:y/tidegate.service/memory.max", "167772160\n")];
        assert_eq!(found(group, mounts, &files), Some(160 * MIB));
        assert_eq!(unescape("a\\9z\\"), "a\\9z\\");
    }

    #[test]
    fn nonsense_is_no_limit() {
        for (groups, mounts) in
            [("", ""), ("0::/", ""), ("", V2), ("0::\n4\n::\n", "x - \n- cgroup2\n"), ("0::/", "- -")]
        {
            assert_eq!(found(groups, mounts, &[]), None, "{groups} {mounts}");
        }
        for text in ["", "max", "0", "-1", "1.5", "99999999999999999999", NONE_V1] {
            assert_eq!(limit(text), None, "{text}");
        }
    }
}
