//! How a knowledge processor (KP) stands among the others: its role, its share, and whose it is. Values only; who has which is
//! decided by the operator's classes, behind [`AccessPolicy`](crate::AccessPolicy).

/// Who comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KpRole {
    /// Best effort: whatever services leave, and a small share always.
    #[default]
    Customer,
    /// Services that others rely on: before customers.
    Service,
}

impl KpRole {
    /// Both, by [`KpRole::index`].
    pub const ALL: [Self; 2] = [Self::Customer, Self::Service];

    /// Position in [`KpRole::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// As settings and lists have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::Service => "service",
        }
    }
}

/// A KP's role and its share among those of the same role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KpStanding {
    /// Who comes first.
    pub role: KpRole,
    /// Its share beside others of its role: 1 ..= 256, as that of a class; beyond, the next of these.
    pub weight: u32,
}

impl Default for KpStanding {
    fn default() -> Self {
        Self { role: KpRole::Customer, weight: WEIGHT_USUAL }
    }
}

impl KpStanding {
    /// What so much work costs whoever has this share.
    pub(crate) fn charge(self, work: u64) -> u64 {
        let weight = u64::from(self.weight.clamp(1, WEIGHT_MAX));
        // Whole charges even for the least work, and the usual share pays what the work is.
        (work.max(1).saturating_mul(WEIGHT_USUAL.into()) / weight).max(1)
    }
}

/// The share of whoever is in no class of its own: that of the class `normal`.
pub(crate) const WEIGHT_USUAL: u32 = 2;
/// The largest share: that of a class.
pub(crate) const WEIGHT_MAX: u32 = 256;
