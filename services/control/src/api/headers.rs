//! Headers of answers in the description of the API, and the header `Location`.
//!
//! The tests of the API compare the headers of each answer with this description.

use axum::http::{HeaderName, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::{Operation, Parameter, ParameterIn, Paths};
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::{Components, OpenApi, Ref, RefOr, Response};

use super::PATH;
use super::guard;

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Operations that answer 201 without `Location`, because what they make has no path.
const WITHOUT_LOCATION: [&str; 7] = [
    "sign_up",
    "confirm_sign_up",
    "begin_second_factor",
    "create_connect_token",
    "create_credential_batch",
    "claim",
    "make_reset_link",
];

/// Last segments of POST paths that change the object named before them. The answer has the object's new ETag.
const CHANGING: [&str; 3] = ["/suspend", "/resume", "/rotate"];

/// The header of an answer that has made the object at these segments of the API's path.
pub(crate) fn location(segments: &[&str]) -> [(HeaderName, String); 1] {
    let encoded = segments.iter().map(|segment| utf8_percent_encode(segment, PLAIN).to_string());
    let path = encoded.fold(PATH.to_owned(), |path, segment| path + "/" + &segment);
    [(header::LOCATION, path)]
}

pub(super) fn declare(components: &mut Components) {
    let text = || Object::with_type(Type::String);
    let integer = || Object::with_type(Type::Integer);
    let all = [
        ("X-Request-Id", text(), "Id of the request, which the server's log repeats for server errors"),
        ("Location", text(), "Path of the new object; of a redirection, the address to open next"),
        (
            "ETag",
            text(),
            "Version of the object. A change sends it in If-Match, and is refused if the object has changed since",
        ),
        ("Retry-After", integer(), "Seconds after which to try again"),
        (
            "RateLimit-Policy",
            text(),
            "The rate limits that counted this request, by name: at most `q` requests at once, and all `q` again after `w` seconds, such as `\"requests\";q=500;w=10`",
        ),
        (
            "RateLimit",
            text(),
            "Requests that these rate limits still admit: `r` at once, and the full number again after `t` seconds, such as `\"requests\";r=499;t=1`",
        ),
        (
            "Millrace-In-Force-At-Ms",
            integer(),
            "Time in unix milliseconds from which the change is in force on every server that reaches the store",
        ),
    ];
    for (name, schema, description) in all {
        let header: Header = HeaderBuilder::new().schema(Some(schema)).description(Some(description)).build();
        components.headers.insert(name.into(), RefOr::T(header));
    }
}

const RATE_LIMITS: [&str; 2] = ["RateLimit-Policy", "RateLimit"];

pub(super) fn add(response: &mut Response, name: &str) {
    let reference = Ref::new(format!("#/components/headers/{name}"));
    response.headers.insert(name.into(), RefOr::Ref(reference));
}

/// Paths of objects that are changed with If-Match.
pub(super) fn versioned(paths: &Paths) -> Vec<String> {
    let is_if_match = |of: &RefOr<Parameter>| match of {
        RefOr::T(of) => of.parameter_in == ParameterIn::Header && of.name == "If-Match",
        RefOr::Ref(_) => false,
    };
    let has_version = |operation: &Option<Operation>| {
        operation.iter().flat_map(|one| one.parameters.iter().flatten()).any(is_if_match)
    };
    let changed = paths.paths.iter().filter(|(_, item)| has_version(&item.put) || has_version(&item.patch));
    changed.map(|(path, _)| path.clone()).collect()
}

/// Adds the headers of rate limits to every answer. Only the tenants' API calls it: the operators' API has no rate limits.
pub(super) fn declare_rate_limits(api: &mut OpenApi) {
    let shared = api.components.iter_mut().flat_map(|all| all.responses.values_mut());
    let operations = api.paths.paths.values_mut().flat_map(|item| {
        [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete]
            .into_iter()
            .flatten()
    });
    let own = operations.flat_map(|operation| operation.responses.responses.values_mut());
    for response in shared.chain(own) {
        if let RefOr::T(response) = response {
            RATE_LIMITS.into_iter().for_each(|name| add(response, name));
        }
    }
}

/// Adds to the answers of an operation the headers that they have. `versioned`: the result of [`versioned`].
pub(super) fn describe(operation: &mut Operation, (method, path): (&str, &str), versioned: &[String]) {
    let has_version = |path: &str| versioned.iter().any(|one| one == path);
    let makes_versioned = versioned
        .iter()
        .any(|one| one.rsplit_once('/').is_some_and(|(list, last)| list == path && last.starts_with('{')));
    let is_changed = CHANGING.iter().any(|end| path.strip_suffix(end).is_some_and(has_version));
    let has_location = operation.operation_id.as_deref().is_none_or(|id| !WITHOUT_LOCATION.contains(&id));
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        add(response, "X-Request-Id");
        if status.starts_with('3') {
            add(response, "Location");
        }
        if !status.starts_with('2') {
            continue;
        }
        let has_etag = match method {
            "get" | "put" | "patch" => has_version(path),
            "post" => is_changed || (status == "201" && makes_versioned),
            _ => false,
        };
        if has_etag {
            add(response, "ETag");
        }
        if status == "201" && has_location {
            add(response, "Location");
        }
        if method != "get" && guard::is_read_by_pods(path) {
            add(response, "Millrace-In-Force-At-Ms");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_path_whatever_the_name_is() {
        let path = |name: &str| location(&["organisations", name])[0].1.clone();
        assert_eq!(path("a-1_b.c~"), "/api/v1/organisations/a-1_b.c~");
        assert_eq!(path("a/b?c#d%e f\r\né"), "/api/v1/organisations/a%2Fb%3Fc%23d%25e%20f%0D%0A%C3%A9");
    }
}
