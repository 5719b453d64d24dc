//! A large change, made in pieces on a copy of the data while other changes are committed.
//!
//! ```text
//! M  the data                 S  what the data will be: a copy of M without what the masks match,
//!                                and with each named quad as the last step that names it wants it
//! a commit changes M          the same is done to S, but for quads that the large change decides
//! the end                     S takes the place of M, in one moment
//! ```
//! So the large change comes behind every commit that it overlaps, whatever that was: the order is a serial one, and
//! nobody sees a part of it. A copy shares what is equal, and both sides name terms by the same numbers. Knows neither time
//! nor whose turn it is; driven by [`GraphSpace`](crate::GraphSpace).

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use oxrdf::{BlankNode, NamedOrBlankNode, Quad as RdfQuad, Term};

use crate::dataset::{Dataset, QuadChange};
use crate::delta::{DeltaEncoder, QuadDelta};
use crate::dictionary::Id;
use crate::draft::DraftedUpdate;
use crate::error::{GraphError, Limit};
use crate::index::{IdPattern, Index, Quad};
use crate::masks::{Interests, Mask};
use crate::prepare::{held_masks, pattern_ids};
use crate::update::Update;

/// One step of a large change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangeStep {
    /// A quad comes; its blank nodes are new ones, the same in all quads.
    Insert(RdfQuad),
    /// A quad comes as it is.
    InsertNamed(RdfQuad),
    Remove(RdfQuad),
}

type ChangeSteps = Box<dyn Iterator<Item = ChangeStep> + Send>;

/// A change that is to be made in pieces.
pub struct LargeChange {
    clears: Vec<Mask>,
    steps: ChangeSteps,
    /// How many steps there are.
    count: usize,
}

impl LargeChange {
    /// Removes what matches any of the masks, then inserts the quads.
    pub fn edit(remove: Vec<Mask>, insert: Vec<RdfQuad>) -> Self {
        let count = insert.len();
        Self { clears: remove, steps: Box::new(insert.into_iter().map(ChangeStep::Insert)), count }
    }

    /// An update that says its quads one by one; given back if it has to look at the data.
    pub fn of_update(update: Box<Update>) -> Result<Self, Box<Update>> {
        if update.reads() {
            return Err(update);
        }
        let count = update.size();
        Ok(Self { clears: Vec::new(), steps: Box::new(update.into_named()), count })
    }

    /// What an update was found to do. None if it failed.
    pub fn of_drafted(drafted: DraftedUpdate) -> Option<Self> {
        let steps = drafted.outcome.ok()?;
        let count = steps.len();
        Some(Self { clears: Vec::new(), steps: Box::new(steps.into_iter()), count })
    }
}

/// What has to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StagingPhase {
    /// What the masks match leaves; so many of them match nothing any more.
    Clearing(usize),
    /// The steps are done.
    Stepping,
    /// The bytes for the log are written, of so many quads: what others add meanwhile is written at the end.
    Encoding(usize),
}

/// A quad that the change decides.
#[derive(Clone, Copy)]
pub(crate) struct StagedQuad {
    ids: Quad,
    /// It is there afterwards.
    is_wanted: bool,
    /// It is there now.
    is_there: bool,
}

/// A large change under way.
pub(crate) struct Staging {
    index: Index,
    clears: Vec<IdPattern>,
    /// The same, to be asked whether any of them matches a quad.
    cleared: Interests,
    steps: ChangeSteps,
    phase: StagingPhase,
    quads: Vec<StagedQuad>,
    /// The same quads in words: apart, so that at the end all of them are the delta, and none is moved.
    texts: Vec<RdfQuad>,
    places: HashMap<Quad, u32, FixedState>,
    /// Steps that took effect on the copy, and bytes of their terms.
    effects: usize,
    effect_bytes: usize,
    /// New names of blank nodes, and what they have in common.
    blanks: BTreeMap<String, BlankNode>,
    name: String,
    /// None if no log wants bytes.
    encoder: Option<DeltaEncoder>,
    /// Where terms are in its table.
    terms: HashMap<Id, u64, FixedState>,
    encoded: usize,
    /// What others did was too much for it: it cannot be done any more.
    failed: Option<Limit>,
}

/// A large change that has taken place.
pub(crate) struct StagedOutcome {
    pub(crate) change: QuadChange,
    pub(crate) delta: QuadDelta,
    /// For a log: for each quad that the change decides, whether it is there afterwards.
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) blanks: Vec<(BlankNode, BlankNode)>,
    /// Quads that were as they had to be.
    pub(crate) unchanged: Vec<RdfQuad>,
}

impl Staging {
    /// `number` is that of no other large change since the space was opened.
    pub(crate) fn new(
        change: LargeChange,
        dataset: &mut Dataset,
        number: u64,
        is_logged: bool,
    ) -> Result<Self, GraphError> {
        let LargeChange { clears, steps, count } = change;
        // Room for all of them at once: to make more is a pause for everybody, the longer the more there are.
        let count = count.min(dataset.limits().change_quads_max);
        let clears = held_masks(&clears, &mut dataset.dictionary)?;
        let mut cleared = Interests::new(&dataset.dictionary.terms().hasher());
        for (place, pattern) in clears.iter().enumerate() {
            cleared.add(pattern, place);
        }
        Ok(Self {
            index: dataset.index().clone(),
            clears,
            cleared,
            steps,
            phase: StagingPhase::Clearing(0),
            quads: Vec::with_capacity(count),
            texts: Vec::with_capacity(count),
            places: HashMap::with_capacity_and_hasher(count, dataset.dictionary.terms().hasher()),
            effects: 0,
            effect_bytes: 0,
            blanks: BTreeMap::new(),
            name: format!("v{}s{number}", dataset.version() + 1),
            encoder: is_logged.then(DeltaEncoder::default),
            terms: HashMap::with_capacity_and_hasher(
                if is_logged { count } else { 0 },
                dataset.dictionary.terms().hasher(),
            ),
            encoded: 0,
            failed: None,
        })
    }

    /// Does so many steps; whether all are done. Each takes as long as any other: one quad, or one look at a mask.
    pub(crate) fn piece(&mut self, dataset: &mut Dataset, steps_max: usize) -> Result<bool, GraphError> {
        if let Some(limit) = self.failed {
            return Err(limit.into());
        }
        for _ in 0..steps_max {
            match self.phase {
                // Never back: what others add under a mask does not come into the copy.
                StagingPhase::Clearing(passed) => match self.clears.get(passed) {
                    Some(pattern) => match self.index.scan(*pattern).next() {
                        Some(quad) => self.decide(quad, None, false, dataset)?,
                        None => self.phase = StagingPhase::Clearing(passed + 1),
                    },
                    None => self.phase = StagingPhase::Stepping,
                },
                StagingPhase::Stepping => match self.steps.next() {
                    Some(step) => self.step(step, dataset)?,
                    None => self.phase = StagingPhase::Encoding(self.quads.len()),
                },
                StagingPhase::Encoding(count) => {
                    if self.encoded >= count || !self.encode_next(dataset) {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    fn step(&mut self, step: ChangeStep, dataset: &mut Dataset) -> Result<(), GraphError> {
        let (quad, is_wanted) = match step {
            ChangeStep::Insert(mut quad) => {
                if let NamedOrBlankNode::BlankNode(node) = &mut quad.subject {
                    *node = self.fresh(node);
                }
                if let Term::BlankNode(node) = &mut quad.object {
                    *node = self.fresh(node);
                }
                (quad, true)
            }
            ChangeStep::InsertNamed(quad) => (quad, true),
            ChangeStep::Remove(quad) => (quad, false),
        };
        let ids = dataset.intern_quad(quad.as_ref())?;
        Ok(self.decide(ids, Some(quad), is_wanted, dataset)?)
    }

    fn fresh(&mut self, node: &BlankNode) -> BlankNode {
        let next = self.blanks.len() + 1;
        let fresh = || BlankNode::new_unchecked(format!("{}n{next}", self.name));
        self.blanks.entry(node.as_str().to_owned()).or_insert_with(fresh).clone()
    }

    /// Whether a quad is there afterwards.
    fn decide(
        &mut self,
        ids: Quad,
        quad: Option<RdfQuad>,
        is_wanted: bool,
        dataset: &mut Dataset,
    ) -> Result<(), Limit> {
        if is_wanted && self.index.len() >= dataset.limits().quads_max && !self.index.contains(ids) {
            return Err(Limit::Quads);
        }
        let is_effect = if is_wanted { self.index.insert(ids) } else { self.index.remove(ids) };
        if let Some(known) = self.places.get(&ids).and_then(|place| self.quads.get_mut(*place as usize)) {
            known.is_wanted = is_wanted;
        } else {
            self.add(ids, quad, is_wanted, dataset.contains_ids(ids), dataset)?;
        }
        if is_wanted && is_effect {
            dataset.cover_beside(self.index.len().saturating_sub(dataset.index().len()))?;
        }
        if is_effect { self.count(ids, dataset) } else { Ok(()) }
    }

    /// One more quad is changed.
    fn count(&mut self, ids: Quad, dataset: &Dataset) -> Result<(), Limit> {
        self.effects += 1;
        self.effect_bytes += dataset.text_bytes(ids);
        match () {
            () if self.effects > dataset.limits().change_quads_max => Err(Limit::ChangeQuads),
            () if self.effect_bytes > dataset.limits().change_bytes_max => Err(Limit::ChangeBytes),
            () => Ok(()),
        }
    }

    /// Its terms are held until the end.
    fn add(
        &mut self,
        ids: Quad,
        quad: Option<RdfQuad>,
        is_wanted: bool,
        is_there: bool,
        dataset: &mut Dataset,
    ) -> Result<(), Limit> {
        let place = u32::try_from(self.quads.len()).map_err(|_| Limit::ChangeQuads)?;
        let quad = quad.or_else(|| dataset.quad(ids)).ok_or(Limit::Terms)?;
        for id in ids.ids() {
            dataset.dictionary.hold(id);
        }
        self.places.insert(ids, place);
        self.quads.push(StagedQuad { ids, is_wanted, is_there });
        self.texts.push(quad);
        Ok(())
    }

    /// Another change was committed.
    pub(crate) fn follow(&mut self, change: &QuadChange, dataset: &mut Dataset) {
        if self.failed.is_none() {
            self.failed = self.imitate(change, dataset).err();
        }
    }

    fn imitate(&mut self, change: &QuadChange, dataset: &mut Dataset) -> Result<(), Limit> {
        for ids in &change.added {
            if let Some(known) = self.places.get(ids).and_then(|place| self.quads.get_mut(*place as usize)) {
                known.is_there = true;
            } else if self.is_cleared(*ids) {
                self.add(*ids, None, false, true, dataset)?;
                self.count(*ids, dataset)?;
            } else {
                self.index.insert(*ids);
            }
        }
        for ids in &change.removed {
            if let Some(known) = self.places.get(ids).and_then(|place| self.quads.get_mut(*place as usize)) {
                known.is_there = false;
            } else {
                self.index.remove(*ids);
            }
        }
        Ok(())
    }

    fn is_cleared(&self, quad: Quad) -> bool {
        let mut is_cleared = false;
        self.cleared.of(quad, |_| is_cleared = true);
        is_cleared
    }

    /// False if nothing is left to be written.
    fn encode_next(&mut self, dataset: &Dataset) -> bool {
        let (Some(encoder), Some(next)) = (&mut self.encoder, self.quads.get(self.encoded)) else { return false };
        let texts = dataset.dictionary.terms();
        // In the order of a delta's terms.
        encoder.push(next.is_wanted, next.ids.ids(), |encoder, id| {
            *self.terms.entry(id).or_insert_with(|| encoder.add(texts.text(id).unwrap_or_default()))
        });
        self.encoded += 1;
        true
    }

    /// Whether it can be done, after what others have done meanwhile.
    pub(crate) fn check(&self, dataset: &Dataset) -> Result<(), Limit> {
        match self.failed {
            Some(limit) => Err(limit),
            None if self.index.len() > dataset.limits().quads_max.max(dataset.index().len()) => Err(Limit::Quads),
            None => Ok(()),
        }
    }

    /// The copy takes the place of the data.
    pub(crate) fn finish(mut self, dataset: &mut Dataset) -> StagedOutcome {
        while self.encode_next(dataset) {}
        release(&self.clears, dataset);
        let mut change = QuadChange::default();
        for staged in &self.quads {
            // What came keeps what was held for it; what left is held by the data, too.
            let released = match staged.effect() {
                StagedEffect::Added => {
                    change.added.push(staged.ids);
                    0
                }
                StagedEffect::Removed => {
                    change.removed.push(staged.ids);
                    2
                }
                StagedEffect::Nothing => 1,
            };
            for id in (0..released).flat_map(|_| staged.ids.ids()) {
                dataset.dictionary.release(id);
            }
        }
        let (mut delta, unchanged) = in_words(&self.quads, self.texts, &change);
        if !delta.is_empty() {
            dataset.adopt(self.index);
        }
        delta.version = dataset.version();
        let bytes = self.encoder.filter(|_| !delta.is_empty()).map(|encoder| encoder.finish(delta.version));
        let blanks = self.blanks.into_iter().map(|(old, new)| (BlankNode::new_unchecked(old), new)).collect();
        StagedOutcome { change, delta, bytes, blanks, unchanged }
    }

    /// Nothing of it takes place: what it holds is to be let go, as many at once as is convenient.
    pub(crate) fn discard(self, dataset: &mut Dataset) -> (Vec<StagedQuad>, Vec<RdfQuad>) {
        release(&self.clears, dataset);
        (self.quads, self.texts)
    }
}

/// What becomes of a quad that a change decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StagedEffect {
    Added,
    Removed,
    Nothing,
}

/// A change in words, and those that are none. Most loads only add what is new, and then nothing is moved.
fn in_words(quads: &[StagedQuad], texts: Vec<RdfQuad>, change: &QuadChange) -> (QuadDelta, Vec<RdfQuad>) {
    let mut delta = QuadDelta::default();
    if change.added.len() == texts.len() {
        delta.added = texts;
        return (delta, Vec::new());
    }
    if change.removed.len() == texts.len() {
        delta.removed = texts;
        return (delta, Vec::new());
    }
    if change.added.is_empty() && change.removed.is_empty() {
        return (delta, texts);
    }
    let mut unchanged = Vec::new();
    for (staged, quad) in quads.iter().zip(texts) {
        match staged.effect() {
            StagedEffect::Added => delta.added.push(quad),
            StagedEffect::Removed => delta.removed.push(quad),
            StagedEffect::Nothing => unchanged.push(quad),
        }
    }
    (delta, unchanged)
}

fn release(patterns: &[IdPattern], dataset: &mut Dataset) {
    for id in patterns.iter().flat_map(pattern_ids) {
        dataset.dictionary.release(id);
    }
}

impl StagedQuad {
    fn effect(self) -> StagedEffect {
        match (self.is_wanted, self.is_there) {
            (true, false) => StagedEffect::Added,
            (false, true) => StagedEffect::Removed,
            _ => StagedEffect::Nothing,
        }
    }

    pub(crate) fn let_go(self, dataset: &mut Dataset) {
        for id in self.ids.ids() {
            dataset.dictionary.release(id);
        }
    }
}
