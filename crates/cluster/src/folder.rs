//! The folders whose files a lineage has: the store's, that of the smart space, and what says who may come in. A file has its folder
//! before its name, as on paths; one of the store has none, as in streams from before there was another.
//!
//! All are in one stream, behind one opening: who may write the one may write the others, and nobody else.

/// A folder of a lineage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Folder {
    /// Sessions, messages, bans.
    Store,
    /// The smart space.
    Space,
    /// Users and rules of access: no log, but [files](ACCESS_FILES) that are replaced as a whole.
    Access,
}

/// The files of [`Folder::Access`].
pub const ACCESS_FILES: [&str; 3] = ["users", "rules", "revoked-tokens"];

const SPACE: &str = "space/";
const ACCESS: &str = "access/";

impl Folder {
    /// Those that have a log.
    pub const LOGS: [Self; 2] = [Self::Store, Self::Space];

    /// The folder of a file of the lineage, and its name in there.
    pub fn of(name: &str) -> (Self, &str) {
        match (name.strip_prefix(SPACE), name.strip_prefix(ACCESS)) {
            (Some(inside), _) => (Self::Space, inside),
            (_, Some(inside)) => (Self::Access, inside),
            (None, None) => (Self::Store, name),
        }
    }

    /// The name that a file of this folder has in the lineage.
    pub fn name(self, inside: &str) -> String {
        match self {
            Self::Store => inside.to_owned(),
            Self::Space => format!("{SPACE}{inside}"),
            Self::Access => format!("{ACCESS}{inside}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_folder_and_no_other() {
        for folder in [Folder::Store, Folder::Space, Folder::Access] {
            assert_eq!(Folder::of(&folder.name("log-1.tide")), (folder, "log-1.tide"));
        }
        assert_eq!(Folder::of("spaces/log-1.tide").0, Folder::Store, "which knows no such file");
    }
}
