//! The description of the API as OpenAPI: what all routes have in common is said here once.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, License, OpenApi, Ref, RefOr, Response, ResponseBuilder,
    SecurityRequirement, Server,
};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{CSRF, SourceAddress};
use super::problem::{ApiResult, Problem, WrongField};
use super::{Api, PATH, examples, headers, parameters};
use crate::limits::NUMBER_MAX;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(get_openapi))
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "description", security(()),
    responses((status = 200, description = "The description of the API", body = serde_json::Value)))]
async fn get_openapi(
    State(api): State<Api>,
    SourceAddress(address): SourceAddress,
) -> ApiResult<impl IntoResponse> {
    api.rates().unauthenticated(address)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], api.described()))
}

const ABOUT: &str = "Everything that can be done with Millrace: organisations, brokers, who may connect to them, and what \
    they do.\n\nSign in with POST /sign-in, which sets a cookie, and send `csrf_token` of its answer in the header X-CSRF-Token with \
    each change; or make an API token, and send it as `Authorization: Bearer mlr_...`.\n\nErrors are application/problem+json \
    (RFC 9457). Lists come in pages: send `next_cursor` as `cursor`. What can be changed has an ETag: send it with \
    If-Match. PUT sets a whole object: a field that is left out gets its default, except secrets and `is_public` of a plan, \
    which stay. PATCH changes the fields that it has and keeps all others: a field that is null counts as left out, unless its \
    description gives null a meaning. Times are unix milliseconds. Every answer has an X-Request-Id: give it to the operator with a \
    question about the request. An answer to a change of who may connect, of rules or of limits has the header \
    Millrace-In-Force-At-Ms: from then on it is in force on every server that reaches the store.\n\nRate limits count requests by \
    caller, address or organisation. RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers) of an answer say \
    which limits have counted the request, and what is left; 429 says with Retry-After when to try again.";

/// Some generators of clients want the SPDX identifier, others show the name.
pub(super) fn licence() -> License {
    let mut licence = License::new("Apache-2.0");
    licence.identifier = Some("Apache-2.0".into());
    licence
}

pub(crate) fn complete(mut router: OpenApiRouter<Api>) -> OpenApiRouter<Api> {
    let api = router.get_openapi_mut();
    api.info = InfoBuilder::new()
        .title("Millrace")
        .version("1")
        .description(Some(ABOUT))
        .license(Some(licence()))
        .build();
    api.servers = Some(vec![Server::new(PATH)]);
    let both: SecurityRequirement = SecurityRequirement::new("cookie", [""; 0]).add("csrf", [""; 0]);
    api.security = Some(vec![SecurityRequirement::new("token", [""; 0]), both]);
    let components = api.components.get_or_insert_with(Components::new);
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("An API token")).build();
    components.add_security_scheme("token", SecurityScheme::Http(token));
    let key = |name: &str| ApiKeyValue::new(name);
    components.add_security_scheme("cookie", SecurityScheme::ApiKey(ApiKey::Cookie(key("__Host-millrace"))));
    components.add_security_scheme("csrf", SecurityScheme::ApiKey(ApiKey::Header(key(CSRF))));
    open_parts(components);
    bound_limits(components);
    describe_answers(api);
    headers::declare_rate_limits(api);
    router
}

pub(super) fn describe_answers(api: &mut OpenApi) {
    examples::add(api);
    let components = api.components.get_or_insert_with(Components::new);
    components.schemas.insert(Problem::name().into(), Problem::schema());
    components.schemas.insert(WrongField::name().into(), WrongField::schema());
    headers::declare(components);
    for (status, name, title) in Problem::KINDS {
        components.responses.insert(name.into(), RefOr::T(problem(status.as_u16(), name, title)));
    }
    let versioned = headers::versioned(&api.paths);
    for (path, item) in &mut api.paths.paths {
        let methods = [
            ("get", &mut item.get),
            ("post", &mut item.post),
            ("put", &mut item.put),
            ("patch", &mut item.patch),
            ("delete", &mut item.delete),
        ];
        for (method, operation) in methods {
            if let Some(operation) = operation {
                parameters::describe(operation);
                add_problems(operation, method, path);
                headers::describe(operation, (method, path), &versioned);
            }
        }
    }
}

/// A schema that is part of another one cannot forbid the other parts' fields. The server still refuses unknown fields.
fn open_parts(components: &mut Components) {
    let wholes = components.schemas.values().filter_map(|schema| match schema {
        RefOr::T(Schema::AllOf(all)) => Some(all.items.iter()),
        _ => None,
    });
    let parts = wholes.flatten().filter_map(|part| match part {
        RefOr::Ref(part) => part.ref_location.rsplit('/').next().map(str::to_owned),
        RefOr::T(_) => None,
    });
    for name in parts.collect::<Vec<_>>() {
        if let Some(RefOr::T(Schema::Object(part))) = components.schemas.get_mut(&name) {
            part.additional_properties = None;
        }
    }
}

/// Changes of limits are checked one by one, so their bound is not in the type (`domain::limit_changes`).
fn bound_limits(components: &mut Components) {
    for name in ["BrokerLimits", "ClientLimits"] {
        let Some(RefOr::T(Schema::Object(limits))) = components.schemas.get_mut(name) else { continue };
        for limit in limits.properties.values_mut() {
            if let RefOr::T(Schema::Object(limit)) = limit {
                limit.maximum = usize::try_from(NUMBER_MAX).ok().map(utoipa::Number::UInt);
            }
        }
    }
}

fn problem(status: u16, name: &str, title: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    let mut response =
        ResponseBuilder::new().description(title).content("application/problem+json", content).build();
    examples::problems::show(name, &mut response);
    headers::add(&mut response, "X-Request-Id");
    if matches!(status, 429 | 503) {
        headers::add(&mut response, "Retry-After");
    }
    response
}

/// The problems with which an operation may end, by its method, path and parameters.
fn add_problems(operation: &mut Operation, method: &str, path: &str) {
    let is_open = operation
        .security
        .as_ref()
        .is_some_and(|all| all.iter().any(|one| *one == SecurityRequirement::default()));
    let is_live = operation.tags.iter().flatten().any(|tag| tag == "clients");
    let parameters = operation.parameters.as_deref().unwrap_or_default();
    let is_if_match = |of: &RefOr<Parameter>| match of {
        RefOr::T(of) => of.parameter_in == ParameterIn::Header && of.name == "If-Match",
        RefOr::Ref(_) => false,
    };
    let is_conditional = parameters.iter().any(is_if_match);
    let mut names = vec!["bad-request", "internal", "unavailable", "method-not-allowed"];
    names.push("too-many-requests");
    // A browser comes there by GET, and may be refused like any other sign-in.
    let signs_in = path.starts_with("/sign-in/oidc");
    if !is_open || method != "get" || signs_in {
        names.extend(["unauthenticated", "forbidden"]);
    }
    if path.contains('{') {
        names.push("not-found");
    }
    if method != "get" || signs_in {
        names.push("conflict");
    }
    if operation.request_body.is_some() || method != "get" || !parameters.is_empty() {
        names.push("invalid");
    }
    if is_live {
        names.push("not-implemented");
    }
    if operation.request_body.is_some() {
        names.extend(["too-large", "not-json", "timeout"]);
    }
    if is_conditional {
        names.extend(["changed", "no-precondition"]);
    }
    for name in names {
        let Some((status, ..)) = Problem::KINDS.iter().find(|(_, of, _)| *of == name) else { continue };
        let code = status.as_u16().to_string();
        operation.responses.responses.entry(code).or_insert(RefOr::Ref(Ref::from_response_name(name)));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_part_of_a_schema_forbids_the_fields_of_the_others() {
        let described = serde_json::to_value(super::super::openapi()).unwrap();
        let schemas = described["components"]["schemas"].as_object().unwrap();
        let mut parts = 0;
        for whole in schemas.values().filter_map(|schema| schema["allOf"].as_array()) {
            for part in whole.iter().filter_map(|part| part["$ref"].as_str()) {
                let name = part.rsplit('/').next().unwrap();
                assert!(schemas[name].get("additionalProperties").is_none(), "{name}");
                parts += 1;
            }
        }
        assert!(parts > 4);
    }

    const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

    #[test]
    fn the_openapi_files_are_what_the_routes_say() {
        for (file, now) in [
            ("openapi.json", super::super::openapi()),
            ("operator.openapi.json", super::super::operator_openapi()),
        ] {
            let path = std::path::Path::new(FOLDER).join(file);
            let now = now.to_pretty_json().unwrap() + "\n";
            if std::env::var("MILLRACE_OPENAPI").is_ok_and(|what| what == "write") {
                std::fs::write(path, now).unwrap();
                continue;
            }
            let then = std::fs::read_to_string(path).unwrap_or_default();
            assert!(
                now == then,
                "{file} is behind: MILLRACE_OPENAPI=write cargo test -p millrace-control openapi"
            );
        }
    }
}
