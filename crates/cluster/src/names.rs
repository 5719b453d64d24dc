//! Names of clusters and nodes, and the subjects made of them. What is not plain is refused here, before it is part of a
//! subject: a dot, a star or a space there would be somebody else's.

use std::fmt;

use crate::entry::FileKey;
use crate::limits::NAME_BYTES_MAX;

/// Why something is no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadName(String);

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        write!(f, "{text:?} is no name: 1 to {NAME_BYTES_MAX} of a-z, 0-9 and - (it becomes a part of subjects)")
    }
}

impl std::error::Error for BadName {}

fn checked(text: &str) -> Result<String, BadName> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(is_plain) {
        return Err(BadName(text.chars().take(2 * NAME_BYTES_MAX).collect()));
    }
    Ok(text.to_owned())
}

macro_rules! name {
    ($(#[$text:meta])* $name:ident) => {
        $(#[$text])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = BadName;

            fn from_str(text: &str) -> Result<Self, BadName> {
                checked(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The name of a node: one of its cluster.
    NodeName
);
name!(
    /// The name of a cluster: one of its engine.
    ClusterName
);

/// Which part of a stream a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Who carries the lineage.
    Owner,
    /// Which files there are.
    Names,
    /// The bytes of one file.
    File(FileKey),
}

/// The names that a lineage has at the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subjects {
    cluster: ClusterName,
    lineage: NodeName,
}

impl Subjects {
    /// Of this lineage.
    pub fn new(cluster: ClusterName, lineage: NodeName) -> Self {
        Self { cluster, lineage }
    }

    /// The stream.
    pub fn stream(&self) -> String {
        format!("TG_DISK_{}_{}", self.cluster, self.lineage)
    }

    /// The bucket of leases, which all lineages of the cluster share.
    pub fn bucket(&self) -> String {
        format!("TG_NODES_{}", self.cluster)
    }

    /// The subject of a node's lease in the bucket.
    pub fn lease(&self, node: &NodeName) -> String {
        format!("$KV.{}.{node}", self.bucket())
    }

    /// The key in the bucket under which this lineage's hand-overs are: capitals, so that no node has this name.
    pub fn handovers(&self) -> String {
        format!("HANDOVERS.{}", self.lineage)
    }

    /// Everything in the stream.
    pub fn all(&self) -> String {
        format!("tg.disk.{}.{}.>", self.cluster, self.lineage)
    }

    /// One subject of it.
    pub fn text(&self, subject: Subject) -> String {
        let Self { cluster, lineage } = self;
        match subject {
            Subject::Owner => format!("tg.disk.{cluster}.{lineage}.owner"),
            Subject::Names => format!("tg.disk.{cluster}.{lineage}.names"),
            Subject::File(FileKey { epoch, count }) => format!("tg.disk.{cluster}.{lineage}.file.{epoch}.{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_reach_into_other_subjects_are_refused() {
        for bad in ["", "a.b", "*", ">", "a b", "A", "ä", "a_b", &"x".repeat(33), "a\n"] {
            let error = bad.parse::<NodeName>().unwrap_err().to_string();
            assert!(error.contains("is no name"), "{bad:?}: {error}");
        }
        for good in ["a", "node-1", &"x".repeat(32)] {
            assert_eq!(good.parse::<NodeName>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn two_lineages_share_no_stream_and_no_subject() {
        // No underscore in a name, so the parts of a stream's name cannot be mistaken for each other.
        let of = |cluster: &str, lineage: &str| Subjects::new(cluster.parse().unwrap(), lineage.parse().unwrap());
        let (one, other) = (of("a", "b-c"), of("a-b", "c"));
        assert_ne!(one.stream(), other.stream());
        assert_ne!(one.all(), other.all());
        assert!(one.handovers() != other.handovers() && one.handovers().parse::<NodeName>().is_err());
        let file = Subject::File(FileKey { epoch: 3, count: 14 });
        assert_eq!(one.text(file), "tg.disk.a.b-c.file.3.14");
    }
}
