//! What a request may do with less than all rights: questions are of the graphs that may be read, and what touches a graph
//! without the right is refused before anything of it is done.

use std::sync::Arc;

use oxrdf::{GraphNameRef, NamedOrBlankNodeRef, Quad};
use tidegate_graph::{ForbiddenGraph, GraphError, GraphList, GraphRights, Mask, MaskGraph, QueryLimits};

use super::request::{SpaceRequest, Watched};

impl<C> SpaceRequest<C> {
    /// The same request by somebody with these rights.
    pub(crate) fn restricted(self, rights: &Arc<GraphRights>, limits: &QueryLimits) -> Result<Self, GraphError> {
        Ok(match self {
            Self::Query { query, form } => Self::Query { query: Box::new((*query).restricted(rights, limits)?), form },
            Self::Match { mut masks, form } => {
                let readable = Arc::new(rights.read.clone());
                masks.iter_mut().try_for_each(|mask| restrict(mask, &readable))?;
                Self::Match { masks, form }
            }
            Self::Update(update) => Self::Update(Box::new((*update).restricted(rights, limits)?)),
            Self::Edit { remove, insert } => {
                remove.iter().try_for_each(|mask| check_mask(mask, &rights.write))?;
                check_quads(&insert, &rights.write)?;
                Self::Edit { remove, insert }
            }
            Self::Put { target, replaces, insert } => {
                // Quads that are added to graphs of their own name them themselves.
                if replaces || named(&target).is_some() {
                    check_mask(&target, &rights.write)?;
                }
                check_quads(&insert, &rights.write)?;
                Self::Put { target, replaces, insert }
            }
            Self::Subscribe { what, name, seen, outlet } => {
                let what = match what {
                    Watched::Query(query) => Watched::Query(Box::new((*query).restricted(rights, limits)?)),
                    Watched::Masks(masks) => {
                        masks.iter().try_for_each(|mask| check_read(mask, &rights.read))?;
                        Watched::Masks(masks)
                    }
                };
                Self::Subscribe { what, name, seen, outlet }
            }
            // A rule acts on everything, long after whoever made it has left.
            Self::AddRule { .. } | Self::RemoveRule(_) if !rights.is_everything() => {
                return Err(ForbiddenGraph::writing_all().into());
            }
            other @ (Self::AddRule { .. } | Self::RemoveRule(_)) => other,
        })
    }
}

/// The one graph of a mask, if it has one.
fn named(mask: &Mask) -> Option<GraphNameRef<'_>> {
    match &mask.graph {
        MaskGraph::Default => Some(GraphNameRef::DefaultGraph),
        MaskGraph::Named(name) => Some(match name.as_ref() {
            NamedOrBlankNodeRef::NamedNode(name) => name.into(),
            NamedOrBlankNodeRef::BlankNode(name) => name.into(),
        }),
        MaskGraph::AnyNamed | MaskGraph::Any | MaskGraph::Readable(_) => None,
    }
}

/// What a mask matches, in the graphs that may be read; one that it names must be among them.
fn restrict(mask: &mut Mask, readable: &Arc<GraphList>) -> Result<(), ForbiddenGraph> {
    match named(mask) {
        Some(graph) if readable.has(graph) => Ok(()),
        Some(graph) => Err(ForbiddenGraph::reading(graph)),
        None if readable.has_all() => Ok(()),
        None if mask.graph == MaskGraph::Any => {
            mask.graph = MaskGraph::Readable(Arc::clone(readable));
            Ok(())
        }
        // Nobody asks for all named graphs and not for the default one.
        None => Err(ForbiddenGraph { is_write: false, graph: None }),
    }
}

fn check_read(mask: &Mask, readable: &GraphList) -> Result<(), ForbiddenGraph> {
    match named(mask) {
        Some(graph) if readable.has(graph) => Ok(()),
        Some(graph) => Err(ForbiddenGraph::reading(graph)),
        None if readable.has_all() => Ok(()),
        None => Err(ForbiddenGraph { is_write: false, graph: None }),
    }
}

fn check_mask(mask: &Mask, writable: &GraphList) -> Result<(), ForbiddenGraph> {
    match named(mask) {
        Some(graph) if writable.has(graph) => Ok(()),
        Some(graph) => Err(ForbiddenGraph::writing(graph)),
        None if writable.has_all() => Ok(()),
        None => Err(ForbiddenGraph::writing_all()),
    }
}

fn check_quads(quads: &[Quad], writable: &GraphList) -> Result<(), ForbiddenGraph> {
    let forbidden = quads.iter().find(|quad| !writable.has(quad.graph_name.as_ref()));
    forbidden.map_or(Ok(()), |quad| Err(ForbiddenGraph::writing(quad.graph_name.as_ref())))
}
