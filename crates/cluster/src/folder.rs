//! The folders whose files a lineage has: the store's, and that of the smart space. A file of the space has its folder before its
//! name, as on paths; one of the store has none, as in streams from before there was another.
//!
//! Both are in one stream, behind one opening: who may write the one may write the other, and no more than that.

/// A folder of a lineage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Folder {
    /// Sessions, messages, bans.
    Store,
    /// The smart space.
    Space,
}

const SPACE: &str = "space/";

impl Folder {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Store, Self::Space];

    /// The folder of a file of the lineage, and its name in there.
    pub fn of(name: &str) -> (Self, &str) {
        name.strip_prefix(SPACE).map_or((Self::Store, name), |inside| (Self::Space, inside))
    }

    /// The name that a file of this folder has in the lineage.
    pub fn name(self, inside: &str) -> String {
        match self {
            Self::Store => inside.to_owned(),
            Self::Space => format!("{SPACE}{inside}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_folder_and_no_other() {
        for folder in Folder::ALL {
            assert_eq!(Folder::of(&folder.name("log-1.tide")), (folder, "log-1.tide"));
        }
        assert_eq!(Folder::of("spaces/log-1.tide").0, Folder::Store, "which knows no such file");
    }
}
