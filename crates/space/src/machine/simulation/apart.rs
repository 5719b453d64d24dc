//! Changes that are made apart from the commits: somebody loads much, or changes what has to be found first.

use oxrdf::{GraphName, Literal, NamedNode, Quad};
use tidegate_graph::{CancelToken, QueryLimits, Update};

use super::world::{SimulatedRequest, SpaceWorld};
use crate::machine::front_desk::Control;
use crate::machine::request::SpaceRequest;

impl SpaceWorld {
    /// Something that is made apart from the commits.
    pub(super) fn change_much(&mut self) {
        let number = 3 + self.dice.below(8);
        let pairs: Vec<(u64, u64)> = (0..number).map(|_| (self.dice.below(3), self.dice.below(6))).collect();
        let quad = |(s, o): &(u64, u64)| {
            let (s, p) = (NamedNode::new_unchecked(format!("urn:s{s}")), NamedNode::new_unchecked("urn:p"));
            let o = Literal::from(i64::try_from(*o).unwrap());
            Quad::new(s, p, o, GraphName::DefaultGraph)
        };
        let insert = pairs.iter().map(quad).collect();
        let parse = |text: &str| SpaceRequest::Update(Box::new(Update::parse(text, &QueryLimits::default()).unwrap()));
        let (from, to) = (self.dice.below(3), self.dice.below(3));
        match self.dice.below(5) {
            0 => self.offer(SimulatedRequest::Load(pairs, false), SpaceRequest::Edit { remove: Vec::new(), insert }),
            1 => {
                let ask = SpaceRequest::Put { target: Box::default(), replaces: true, insert };
                self.offer(SimulatedRequest::Load(pairs, true), ask);
            }
            2 => {
                let triples: Vec<String> = pairs.iter().map(|(s, o)| format!("<urn:s{s}> <urn:p> {o}")).collect();
                let ask = parse(&format!("INSERT DATA {{ {} }}", triples.join(" . ")));
                self.offer(SimulatedRequest::Load(pairs, false), ask);
            }
            3 => {
                let text = format!(
                    "DELETE {{ <urn:s{from}> <urn:p> ?o }} INSERT {{ <urn:s{to}> <urn:p> ?o }} \
                     WHERE {{ <urn:s{from}> <urn:p> ?o }}"
                );
                self.offer(SimulatedRequest::Move(from, to), parse(&text));
            }
            _ => {
                let text = "INSERT { <urn:s2> <urn:p> ?n } WHERE { SELECT (COUNT(*) AS ?n) { ?s <urn:p> ?o } }";
                self.offer(SimulatedRequest::Count, parse(text));
            }
        }
    }

    /// The thread beside the writer works an update out.
    pub(super) fn work_out(&mut self) {
        if let Some((draft, until)) = self.draft.take() {
            self.seen.drafted += 1;
            let cancel = CancelToken::default();
            if until <= self.now {
                cancel.cancel();
            }
            let drafted = if self.dice.one_in(20) { draft.lost() } else { draft.run(&QueryLimits::default(), cancel) };
            self.desk.control(Control::Drafted(Box::new(drafted)));
        }
    }
}
