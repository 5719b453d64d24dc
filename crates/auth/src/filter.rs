//! The filter of a rule: a topic filter whose levels may hold `%u` (user name), `%c` (client id) and `%{claim.NAME}` (what a
//! token says of its user).
//!
//! Three questions: does it match this topic, does it *cover* this filter (every topic of the other is one of its own),
//! do the two *overlap* (some topic belongs to both)? Nothing is substituted into text: a name is compared with the topic
//! where it stands, so it can never act as a wildcard or as two levels. A name with `+`, `#` or `/` (or an empty one) is
//! of no use there: an allowing rule then does not match, and a denying one matches everything from that level on
//! (CVE-2017-7650: such names passed by mosquitto's patterns). A claim that a token does not have is nobody's: a rule about it,
//! allowing or denying, does not concern whoever shows that token.
//!
//! Topics that begin with `$` belong only to filters that say so literally: neither a wildcard nor a user named `$SYS`
//! reaches them.

use std::sync::Arc;

use tidegate_wire_mqtt::{Limits, TopicFilter};

use crate::acl::AclEffect;
use crate::fault::FileFault;
use crate::limits::NAME_BYTES_MAX;

/// Whose names stand for `%u`, `%c` and claims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequesterNames<'a> {
    pub(crate) user: Option<&'a str>,
    pub(crate) client: &'a str,
    pub(crate) claims: &'a [(Arc<str>, Arc<str>)],
}

impl<'a> RequesterNames<'a> {
    fn claim(&self, name: &str) -> Option<&'a str> {
        self.claims.iter().find(|(own, _)| **own == *name).map(|(_, value)| &**value)
    }
}

/// A topic name with its first bytes in a register: most rules are told apart by them, without following a pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Topic<'a> {
    text: &'a str,
    /// Shorter names are filled up with zeros, which no filter contains.
    head: u128,
}

impl<'a> Topic<'a> {
    #[inline]
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, head: head(text.as_bytes()) }
    }

    pub(crate) fn as_str(self) -> &'a str {
        self.text
    }
}

/// Whether `%u` and `%c` in the text mean something, and `%{claim.NAME}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// All of them.
    WithClaims,
    /// The first two, as for mosquitto.
    Substituted,
    Literal,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    text: Box<str>,
    levels: Box<[FilterLevel]>,
    shape: FilterShape,
    /// Bytes and levels in front that are plain text, with the slash behind them: compared at once.
    plain_bytes: usize,
    plain_levels: usize,
    /// What the head of a topic must be, where the mask has ones.
    head: u128,
    head_mask: u128,
    /// Its first level is text that begins with `$`.
    is_dollar: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FilterLevel {
    Text(Box<str>),
    /// `+`
    Any,
    /// `#`
    Rest,
    /// Text with names in it.
    Pattern(Box<[FilterPiece]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FilterPiece {
    Text(Box<str>),
    User,
    Client,
    Claim(Box<str>),
}

/// Most filters of real rules are one of the first three, and each of them is one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterShape {
    /// `a/b`
    Exact,
    /// `a/b/#`
    Below,
    /// `#`
    All,
    Mixed,
}

/// How a level with names compares with a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LevelMatch {
    Same,
    Different,
    /// A name that may not be compared.
    Unusable,
}

impl Filter {
    pub(crate) fn parse(text: &str, names: Names) -> Result<Self, FileFault> {
        let checked =
            TopicFilter::parse(text, &Limits::default()).map_err(|wrong| FileFault::FilterInvalid(wrong.detail))?;
        if checked.group().is_some() {
            return Err(FileFault::FilterShared);
        }
        let levels: Box<[FilterLevel]> =
            text.split('/').map(|level| FilterLevel::parse(level, names)).collect::<Result<_, _>>()?;
        let plain_levels = levels.iter().take_while(|level| matches!(level, FilterLevel::Text(_))).count();
        let plain_bytes = text.split_inclusive('/').take(plain_levels).map(str::len).sum();
        let shape = match levels[plain_levels..] {
            [] => FilterShape::Exact,
            [FilterLevel::Rest] if plain_levels == 0 => FilterShape::All,
            [FilterLevel::Rest] => FilterShape::Below,
            _ => FilterShape::Mixed,
        };
        let is_dollar = text.starts_with('$');
        if is_dollar && plain_levels == 0 {
            // A user named SYS would read `$SYS` by way of `$%u`.
            return Err(FileFault::FilterInvalid("a name in the first level of a $ topic"));
        }
        // The slash is not part of the head: `a/#` also matches `a`.
        let plain = text[..plain_bytes].strip_suffix('/').filter(|_| shape != FilterShape::Exact);
        let plain = plain.unwrap_or(&text[..plain_bytes]).as_bytes();
        let head_mask = head(&vec![u8::MAX; plain.len()]);
        let head = head(plain);
        Ok(Self { text: text.into(), levels, shape, plain_bytes, plain_levels, head, head_mask, is_dollar })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether this topic belongs to the filter. The hot path: asked for every publication and every delivery.
    #[inline]
    pub(crate) fn matches(&self, topic: Topic<'_>, who: RequesterNames<'_>, effect: AclEffect) -> bool {
        if topic.head & self.head_mask != self.head {
            return false;
        }
        let plain = &self.text.as_bytes()[..self.plain_bytes];
        let topic_bytes = topic.text.as_bytes();
        match self.shape {
            FilterShape::Exact => topic_bytes == plain,
            // `a/b/#` also matches `a/b`: the plain part without its slash.
            FilterShape::Below => topic_bytes.starts_with(plain) || topic_bytes == &plain[..plain.len() - 1],
            FilterShape::All => !topic_bytes.starts_with(b"$"),
            FilterShape::Mixed => {
                topic_bytes.strip_prefix(plain).is_some_and(|rest| self.matches_rest(topic, rest, who, effect))
            }
        }
    }

    fn matches_rest(&self, topic: Topic<'_>, rest: &[u8], who: RequesterNames<'_>, effect: AclEffect) -> bool {
        if topic.text.starts_with('$') && !self.is_dollar {
            return false;
        }
        let mut rest = Some(rest);
        for level in &self.levels[self.plain_levels..] {
            if *level == FilterLevel::Rest {
                return true;
            }
            let Some(text) = rest else { return false };
            // Levels are short: looking byte by byte beats a search that prepares itself for long texts.
            let end = text.iter().position(|&byte| byte == b'/').unwrap_or(text.len());
            match level.like(&text[..end], who) {
                LevelMatch::Same => rest = text.get(end + 1..),
                LevelMatch::Different => return false,
                LevelMatch::Unusable => return effect == AclEffect::Deny,
            }
        }
        rest.is_none()
    }

    /// Whether every topic that the requested filter matches is matched by this one.
    pub(crate) fn covers(&self, requested: &str, who: RequesterNames<'_>, effect: AclEffect) -> bool {
        if requested.starts_with('$') && !self.is_dollar {
            return false;
        }
        let mut levels = requested.split('/');
        for (index, level) in self.levels.iter().enumerate() {
            if *level == FilterLevel::Rest {
                return true;
            }
            match levels.next() {
                None => return false,
                // `#` is more than `+/#` by the parent level alone, and these two have none: no topic is empty.
                Some("#") => {
                    let has_parent = !matches!(requested, "#" | "/#");
                    return !has_parent && matches!(self.levels[index..], [FilterLevel::Any, FilterLevel::Rest]);
                }
                Some(wanted) => match level.like(wanted.as_bytes(), who) {
                    LevelMatch::Same => {}
                    LevelMatch::Different => return false,
                    LevelMatch::Unusable => return effect == AclEffect::Deny,
                },
            }
        }
        levels.next().is_none()
    }

    /// Whether some topic is matched by both. For rules that allow: an unusable name does not overlap.
    pub(crate) fn overlaps(&self, requested: &str, who: RequesterNames<'_>) -> bool {
        // `$` topics are spoken of by both or by neither: no wildcard reaches them.
        let is_same_realm = requested.starts_with('$') == self.is_dollar;
        if !is_same_realm || self.levels.iter().any(|level| level.is_unusable(who)) {
            return false;
        }
        let mut levels = requested.split('/');
        for level in &self.levels {
            match (level, levels.next()) {
                (FilterLevel::Rest, _) | (_, Some("#")) => return true,
                (_, None) => return false,
                (_, Some("+")) => {}
                (_, Some(wanted)) => {
                    if level.like(wanted.as_bytes(), who) != LevelMatch::Same {
                        return false;
                    }
                }
            }
        }
        matches!(levels.next(), None | Some("#"))
    }
}

impl FilterLevel {
    fn parse(text: &str, names: Names) -> Result<Self, FileFault> {
        Ok(match text {
            "+" => Self::Any,
            "#" => Self::Rest,
            _ if names == Names::Literal => Self::Text(text.into()),
            _ => {
                let pieces = pieces(text, names)?;
                if pieces.iter().all(|piece| matches!(piece, FilterPiece::Text(_))) {
                    Self::Text(text.into())
                } else {
                    Self::Pattern(pieces.into())
                }
            }
        })
    }

    #[inline]
    fn like(&self, text: &[u8], who: RequesterNames<'_>) -> LevelMatch {
        let is_same = match self {
            Self::Any | Self::Rest => true,
            Self::Text(own) => own.as_bytes() == text,
            Self::Pattern(pieces) => return like(pieces, text, who),
        };
        if is_same { LevelMatch::Same } else { LevelMatch::Different }
    }

    fn is_unusable(&self, who: RequesterNames<'_>) -> bool {
        let Self::Pattern(pieces) = self else { return false };
        pieces.iter().any(|piece| match piece {
            FilterPiece::Text(_) => false,
            FilterPiece::User => who.user.is_none_or(|name| !is_usable(name)),
            FilterPiece::Client => !is_usable(who.client),
            FilterPiece::Claim(name) => who.claim(name).is_none_or(|value| !is_usable(value)),
        })
    }
}

fn like(pieces: &[FilterPiece], text: &[u8], who: RequesterNames<'_>) -> LevelMatch {
    let mut rest = Some(text);
    for piece in pieces {
        let part = match piece {
            FilterPiece::Text(part) => part,
            FilterPiece::Client => who.client,
            FilterPiece::User => match who.user {
                Some(name) => name,
                // Rules about a user's own topics, allowing or denying, do not concern those who are nobody.
                None => return LevelMatch::Different,
            },
            FilterPiece::Claim(name) => match who.claim(name) {
                Some(value) => value,
                None => return LevelMatch::Different,
            },
        };
        if !matches!(piece, FilterPiece::Text(_)) && !is_usable(part) {
            return LevelMatch::Unusable;
        }
        rest = rest.and_then(|rest| rest.strip_prefix(part.as_bytes()));
    }
    if rest == Some(&[]) { LevelMatch::Same } else { LevelMatch::Different }
}

/// The first sixteen bytes, or what there is.
#[inline]
fn head(bytes: &[u8]) -> u128 {
    // One load for all but short texts.
    let head = bytes.first_chunk().copied().unwrap_or_else(|| {
        let mut head = [0; HEAD_BYTES];
        head[..bytes.len()].copy_from_slice(bytes);
        head
    });
    u128::from_le_bytes(head)
}

const HEAD_BYTES: usize = 16;

fn is_usable(name: &str) -> bool {
    !name.is_empty() && !name.bytes().any(|byte| matches!(byte, b'+' | b'#' | b'/'))
}

fn pieces(mut text: &str, names: Names) -> Result<Vec<FilterPiece>, FileFault> {
    let mut pieces = Vec::new();
    while let Some(at) = next_name(text, names) {
        if at > 0 {
            pieces.push(FilterPiece::Text(text[..at].into()));
        }
        text = &text[at..];
        let (piece, length) = if text.starts_with("%u") {
            (FilterPiece::User, 2)
        } else if text.starts_with("%c") {
            (FilterPiece::Client, 2)
        } else {
            let name = claim_name(text).ok_or(FileFault::FilterInvalid(CLAIM_WANTED))?;
            (FilterPiece::Claim(name.into()), CLAIM.len() + name.len() + 1)
        };
        pieces.push(piece);
        text = &text[length..];
    }
    if !text.is_empty() || pieces.is_empty() {
        pieces.push(FilterPiece::Text(text.into()));
    }
    Ok(pieces)
}

const CLAIM: &str = "%{claim.";
const CLAIM_WANTED: &str = "\"%{\" begins a claim of a token, as in %{claim.site}";

/// The name in a `%{claim.NAME}` that begins this text.
fn claim_name(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix(CLAIM)?.split_once('}')?;
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(['+', '#', '/', '{', '%']);
    is_name.then_some(name)
}

/// The claims that a rule's filter speaks of.
pub fn claims_of(filter: &str) -> impl Iterator<Item = &str> {
    filter.match_indices(CLAIM).filter_map(|(at, _)| claim_name(&filter[at..]))
}

/// Where the first name stands. Any other `%` is text.
fn next_name(text: &str, names: Names) -> Option<usize> {
    let claim = text.find("%{").filter(|_| names == Names::WithClaims);
    [text.find("%u"), text.find("%c"), claim].into_iter().flatten().min()
}

/// Whether every topic matched by `requested` is also matched by `rule`: what a subscription needs to be allowed. Both
/// are plain topic filters, without names and without `$share`; anything else is covered by nothing and covers nothing.
pub fn covers(rule: &str, requested: &str) -> bool {
    let nobody = RequesterNames { user: None, client: "", claims: &[] };
    Filter::parse(requested, Names::Literal).is_ok()
        && Filter::parse(rule, Names::Literal).is_ok_and(|rule| rule.covers(requested, nobody, AclEffect::Allow))
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
