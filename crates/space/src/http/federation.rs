//! A query with `SERVICE`: its clauses are asked of the endpoints that the operator allows, and then the query with their rows is
//! asked of the space. No thread waits for another endpoint, and whoever closes the connection ends the calls for it.

use axum::http::StatusCode;
use bytes::Bytes;
use futures_util::future::join_all;
use sparesults::{QueryResultsFormat, QueryResultsParser, SliceQueryResultsParserOutput};
use tidegate_graph::{FederatedQuery, Query, QueryLimits, ServiceClause, ServiceRows};
use tokio::time::Instant;

use super::problem::SpaceProblem;
use crate::handle::SpaceHandle;
use crate::limits::{SERVICE_CALLS_MAX, SERVICE_ROWS_MAX};
use crate::service_endpoints::{ServiceEndpoint, ServiceEndpoints};

/// A query whose clauses were answered, but for the silent ones that were not.
pub(super) struct AnsweredQuery {
    query: FederatedQuery,
    answers: Vec<Option<Bytes>>,
}

/// Asks every endpoint of a query, until then at most.
pub(super) async fn call(
    handle: &SpaceHandle,
    query: FederatedQuery,
    until: Instant,
) -> Result<AnsweredQuery, SpaceProblem> {
    let services = &handle.shared.services;
    let found = query.clauses().iter().map(|clause| Ok((clause, endpoint(services, clause)?)));
    let found: Vec<(&ServiceClause, &ServiceEndpoint)> = found.collect::<Result<_, SpaceProblem>>()?;
    if found.len() > SERVICE_CALLS_MAX {
        let detail = format!("{} SERVICE clauses: a query has at most {SERVICE_CALLS_MAX}", found.len());
        return Err(SpaceProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "limit", detail));
    }
    let calls = found.iter().map(|(clause, endpoint)| async move {
        let left = until.saturating_duration_since(Instant::now());
        match services.call(endpoint, &clause.query, left).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(_) if clause.is_silent => Ok(None),
            Err(why) => Err(failed(clause, &why)),
        }
    });
    let answers = join_all(calls).await.into_iter().collect::<Result<_, _>>()?;
    Ok(AnsweredQuery { query, answers })
}

fn endpoint<'a>(services: &'a ServiceEndpoints, clause: &ServiceClause) -> Result<&'a ServiceEndpoint, SpaceProblem> {
    services.find(clause.endpoint.as_str()).ok_or_else(|| {
        let detail = format!("SERVICE {} is not allowed: the setting space.services does not name it", clause.endpoint);
        SpaceProblem::new(StatusCode::BAD_REQUEST, "not-done-here", detail)
    })
}

fn failed(clause: &ServiceClause, why: &str) -> SpaceProblem {
    let detail = format!("SERVICE {}: {why}", clause.endpoint);
    SpaceProblem::new(StatusCode::BAD_GATEWAY, "service-failed", detail)
}

impl AnsweredQuery {
    /// Bytes of the answers.
    pub(super) fn bytes(&self) -> usize {
        self.answers.iter().flatten().map(Bytes::len).sum()
    }

    /// The query that is left. For a thread that reads texts.
    pub(super) fn query(self, limits: &QueryLimits) -> Result<Query, SpaceProblem> {
        let Self { query, answers } = self;
        let mut rows = Vec::with_capacity(answers.len());
        for (clause, answer) in query.clauses().iter().zip(&answers) {
            rows.push(match answer.as_deref().map(read_rows) {
                None => None,
                Some(Ok(rows)) => Some(rows),
                Some(Err(_)) if clause.is_silent => None,
                Some(Err(why)) => return Err(failed(clause, &why)),
            });
        }
        Ok(query.with_rows(rows, limits)?)
    }
}

fn read_rows(bytes: &[u8]) -> Result<ServiceRows, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("its answer is no result in JSON: {error}");
    let parser = QueryResultsParser::from_format(QueryResultsFormat::Json);
    let SliceQueryResultsParserOutput::Solutions(solutions) = parser.for_slice(bytes).map_err(|error| wrong(&error))?
    else {
        return Err("it has answered with a truth value".to_owned());
    };
    let variables = solutions.variables().to_vec();
    let mut rows = Vec::new();
    for solution in solutions {
        if rows.len() == SERVICE_ROWS_MAX {
            return Err(format!("its answer has more than {SERVICE_ROWS_MAX} rows"));
        }
        rows.push(solution.map_err(|error| wrong(&error))?.values().to_vec());
    }
    Ok(ServiceRows { variables, rows })
}
