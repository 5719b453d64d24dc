//! `/api/v1/openapi.json`: the list of all places, as OpenAPI. The same list is what `GET /` answers without a browser,
//! and a test holds it against the routes.

use axum::http::Method;
use serde_json::{Map, Value, json};

use crate::guard::{TOKEN, needed};
use crate::problem::{Answered, json_of};
use crate::status::VERSION;

/// One thing that can be asked.
#[derive(Debug)]
pub(crate) struct EndpointDoc {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    about: &'static str,
    /// Words after the question mark.
    query: &'static [&'static str],
    /// Members of the body.
    body: &'static [&'static str],
}

const fn get(path: &'static str, about: &'static str, query: &'static [&'static str]) -> EndpointDoc {
    EndpointDoc { method: "get", path, about, query, body: &[] }
}

const fn act(
    method: &'static str,
    path: &'static str,
    about: &'static str,
    query: &'static [&'static str],
    body: &'static [&'static str],
) -> EndpointDoc {
    EndpointDoc { method, path, about, query, body }
}

pub(crate) const DOCS: &[EndpointDoc] = &[
    get("/api/v1/status", "Counters, rates, pressure and the ledger", &[]),
    get("/api/v1/events", "Server-sent events: `tick` is the status once a second, `top` the top lists", &[]),
    get("/api/v1/history", "Up to an hour of rates and gauges", &["seconds"]),
    get(
        "/api/v1/clients",
        "Clients, or with state=closed connections that have ended",
        &["sort", "limit", "cursor", "state"],
    ),
    get("/api/v1/clients/{id}", "One client", &[]),
    act("delete", "/api/v1/clients/{id}", "End its connection (0x98)", &[], &[]),
    act("delete", "/api/v1/clients/{id}/session", "End its session, and its connection if it has one", &[], &[]),
    get("/api/v1/clients/{id}/why", "What happened to a client, in words and in numbers", &[]),
    get("/api/v1/clients/{id}/history", "An hour of a client, if it was among the first or somebody looked at it", &[]),
    get("/api/v1/drops", "What was lost, why, and by whom", &[]),
    get("/api/v1/alarms", "Alarms that are raised, what will be one if it lasts, and the last that are over", &[]),
    get("/api/v1/classes", "What became of the messages of each class", &[]),
    get("/api/v1/topics", "What is published to, by a sample", &[]),
    get("/api/v1/retained", "Retained messages that match a filter", &["filter", "cursor"]),
    get("/api/v1/limits", "Limits of single clients and users", &[]),
    act(
        "put",
        "/api/v1/limits",
        "Limit a client or a user, or entitle it",
        &[],
        &["client", "user", "rate", "entitled"],
    ),
    act("delete", "/api/v1/limits", "Take a limit away", &["client", "user"], &[]),
    get("/api/v1/bans", "Who is kept out", &[]),
    act(
        "post",
        "/api/v1/bans",
        "Keep somebody out for a time",
        &[],
        &["client", "user", "network", "seconds", "reason"],
    ),
    act("delete", "/api/v1/bans", "Let somebody in again", &["client", "user", "network"], &[]),
    get("/api/v1/bridges", "Bridges to other brokers: state, pace, what waits, what was refused", &[]),
    get("/api/v1/bridges/{name}", "One bridge, in numbers and in words", &[]),
    get("/api/v1/sinks", "Sinks: state, what waits, what was taken and refused", &[]),
    get("/api/v1/sinks/{name}", "One sink, in numbers and in words", &[]),
    get("/api/v1/cluster", "This node of a cluster: role, epoch, owner, lag; null without one", &[]),
    get("/api/v1/space", "The smart space: requests, sharing, standing queries", &[]),
    get("/api/v1/kps", "KPs of the smart space: class, role, and what became of their requests", &[]),
    get("/api/v1/queries", "Queries under way, slow ones and standing ones", &[]),
    act("post", "/api/v1/queries", "Run a SPARQL query", &[], &["query"]),
    act("delete", "/api/v1/queries/{number}", "Cancel a query that runs", &[], &[]),
    act("post", "/api/v1/updates", "Run a SPARQL update", &[], &["update"]),
    get("/api/v1/mqtt", "WebSocket: MQTT for a page, with the rights of the user that it names", &[]),
    get("/api/v1/system", "The process: memory, store, listeners, certificates", &[]),
    get("/api/v1/store", "The store and its sync times", &[]),
    get("/api/v1/config", "Every setting, with where it comes from", &[]),
    get("/api/v1/users", "Users with their roles, and the rules of access", &[]),
    act("put", "/api/v1/users", "Add a user, or change its password or roles", &[], &["name", "password", "roles"]),
    act("delete", "/api/v1/users", "Remove a user", &["name"], &[]),
    act(
        "put",
        "/api/v1/rules",
        "Replace the file of the rules of access, unless it has changed",
        &[],
        &["text", "before"],
    ),
    get("/api/v1/tokens", "Tokens that clients give as passwords: what is asked of them, who lost theirs", &[]),
    act("post", "/api/v1/tokens", "Make a token of a user, told once", &[], &["user", "roles", "seconds"]),
    act("delete", "/api/v1/tokens", "Take all tokens of a user back that were made until now", &["user"], &[]),
    get("/api/v1/audit", "The last changes through the admin API", &[]),
    get("/api/v1/demo", "How the demonstration goes", &[]),
    act("post", "/api/v1/demo", "Begin the demonstration", &[], &["gate"]),
    act("delete", "/api/v1/demo", "End the demonstration", &[], &[]),
    get("/api/v1/login", "Who one is, and the token for changes from a page", &[]),
    act("post", "/api/v1/login", "Log in: the answer sets a cookie", &[], &["user", "password"]),
    act("delete", "/api/v1/login", "Log out", &[], &[]),
    act("post", "/api/v1/trace", "Begin to write down when messages come, without names", &[], &["groups"]),
    get("/api/v1/trace", "What was written down since the last time", &["recording"]),
    act("post", "/api/v1/log", "Begin to follow a client, or some topics", &[], &["client", "topic"]),
    get("/api/v1/log", "What happened there since the last time, without payloads", &["log"]),
    act("post", "/api/v1/reload", "Read configuration, users and certificates again", &[], &[]),
    act("post", "/api/v1/backup", "Copy the store into a directory of this machine", &[], &["to"]),
    act("post", "/api/v1/drain", "Tell everybody, and end", &[], &[]),
    get("/api/v1/openapi.json", "This document", &[]),
    get("/metrics", "OpenMetrics", &[]),
    get("/healthz", "Whether the loops turn", &[]),
    get("/readyz", "Whether new clients are welcome", &[]),
    get("/version", "Name and version", &[]),
];

pub(crate) async fn show() -> Answered {
    Ok(json_of(&document()))
}

fn document() -> Value {
    let mut paths = Map::new();
    for doc in DOCS {
        let place = paths.entry(doc.path).or_insert_with(|| json!({}));
        place[doc.method] = operation(doc);
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Tidegate, the admin API", "version": VERSION },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "basic": { "type": "http", "scheme": "basic" },
                "session": { "type": "apiKey", "in": "cookie", "name": "tidegate-session" },
            },
            "schemas": { "Problem": {
                "type": "object",
                "required": ["type", "title", "status", "detail"],
                "properties": {
                    "type": { "type": "string" },
                    "title": { "type": "string" },
                    "status": { "type": "integer" },
                    "detail": { "type": "string" },
                },
            } },
        },
    })
}

fn operation(doc: &EndpointDoc) -> Value {
    let parameter = |name: &str, place: &str| {
        let is_path = place == "path";
        json!({ "name": name, "in": place, "required": is_path, "schema": { "type": "string" } })
    };
    let in_path = doc.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = in_path.map(|name| parameter(name, "path")).collect();
    parameters.extend(doc.query.iter().map(|name| parameter(name, "query")));
    let is_change = doc.method != "get";
    if is_change {
        parameters.push(json!({
            "name": TOKEN, "in": "header", "required": false, "schema": { "type": "string" },
            "description": "Needed from a browser; GET /api/v1/login has it.",
        }));
    }
    let problem = json!({
        "description": "A problem (RFC 9457)",
        "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
    });
    let method = Method::from_bytes(doc.method.to_uppercase().as_bytes()).unwrap_or(Method::GET);
    let is_free = matches!(doc.path, "/healthz" | "/readyz" | "/version" | "/api/v1/login");
    let role = (!is_free).then(|| needed(&method, doc.path).name());
    let mut operation = json!({
        "summary": doc.about,
        "parameters": parameters,
        "responses": { "200": { "description": "Done" }, "4XX": problem, "5XX": problem },
        "x-role": role,
        "security": if is_free { json!([]) } else { json!([{ "basic": [] }, { "session": [] }]) },
    });
    if !doc.body.is_empty() {
        let members: Map<String, Value> = doc.body.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        let schema = json!({ "type": "object", "properties": members });
        operation["requestBody"] = json!({ "content": { "application/json": { "schema": schema } } });
    }
    operation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_every_place_and_its_role() {
        let document = document();
        let count: usize =
            document["paths"].as_object().unwrap().values().map(|it| it.as_object().unwrap().len()).sum();
        assert_eq!(count, DOCS.len());
        let role = |path: &str, method: &str| document["paths"][path][method]["x-role"].as_str().map(str::to_owned);
        assert_eq!(role("/api/v1/status", "get").as_deref(), Some("viewer"));
        assert_eq!(role("/api/v1/clients/{id}", "delete").as_deref(), Some("operator"));
        assert_eq!(role("/api/v1/drain", "post").as_deref(), Some("admin"));
        assert_eq!(role("/healthz", "get"), None);
        let parameters = document["paths"]["/api/v1/clients/{id}"]["get"]["parameters"].as_array().unwrap();
        assert_eq!(parameters[0]["name"], "id");
    }
}
