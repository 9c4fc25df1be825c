//! Parses query strings. An unknown parameter is an error, because it may be a misspelt filter that would silently
//! return everything.

use std::collections::HashMap;

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use super::json;
use super::problem::{ApiResult, Problem};

/// Paths whose parameters come from somebody else: an identity provider may add its own (RFC 6749 section 4.1.2).
const OPEN: &str = "/sign-in/oidc";

/// The query parameters of all operations, by method and path.
pub(crate) struct KnownParameters {
    prefix: &'static str,
    names: HashMap<(Method, String), Vec<String>>,
}

impl KnownParameters {
    /// `prefix` is the path at which the described routes are nested.
    pub(crate) fn of(api: &OpenApi, prefix: &'static str) -> Self {
        let mut names = HashMap::new();
        for (path, item) in api.paths.paths.iter().filter(|(path, _)| !path.starts_with(OPEN)) {
            let methods = [
                (Method::GET, &item.get),
                (Method::POST, &item.post),
                (Method::PUT, &item.put),
                (Method::PATCH, &item.patch),
                (Method::DELETE, &item.delete),
            ];
            for (method, operation) in methods {
                if let Some(operation) = operation {
                    names.insert((method, path.clone()), names_of(operation));
                }
            }
        }
        Self { prefix, names }
    }

    fn check(&self, method: &Method, path: &str, uri: &Uri) -> ApiResult<()> {
        let Some(query) = uri.query().filter(|query| !query.is_empty()) else { return Ok(()) };
        let path = path.strip_prefix(self.prefix).unwrap_or(path);
        let method = if method == Method::HEAD { Method::GET } else { method.clone() };
        let Some(known) = self.names.get(&(method, path.to_owned())) else { return Ok(()) };
        // Parsing would replace bytes that are not UTF-8, and so name another topic, for example.
        if let Some(pair) = query.split('&').find(|pair| percent_decode_str(pair).decode_utf8().is_err()) {
            let name = percent_decode_str(pair.split('=').next().unwrap_or_default()).decode_utf8_lossy();
            return Err(wrong(&name, "is not UTF-8"));
        }
        let is_known = |name: &str| known.iter().any(|known| known == name);
        match form_urlencoded::parse(query.as_bytes()).find(|(name, _)| !is_known(name)) {
            None => Ok(()),
            Some((name, _)) if known.is_empty() => {
                Err(wrong(&name, "is not known here: this request takes no parameters"))
            }
            Some((name, _)) => {
                Err(wrong(&name, &format!("is not known here: there are {}", known.join(", "))))
            }
        }
    }
}

fn names_of(operation: &Operation) -> Vec<String> {
    let parameters = operation.parameters.iter().flatten().filter_map(|one| match one {
        RefOr::T(one) if one.parameter_in == ParameterIn::Query => Some(one.name.clone()),
        _ => None,
    });
    parameters.collect()
}

pub(crate) async fn refuse_unknown(known: &KnownParameters, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let checked = path.map_or(Ok(()), |path| known.check(request.method(), path.as_str(), request.uri()));
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

pub(crate) fn parse<T: DeserializeOwned + IntoParams>(uri: &Uri) -> ApiResult<T> {
    let pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let text = serde_urlencoded::Deserializer::new(pairs);
    serde_path_to_error::deserialize(text)
        .map_err(|found| wrong_value::<T>(&found.path().to_string(), &found.inner().to_string()))
}

/// Translates serde's error for the API's users.
fn wrong_value<T: IntoParams>(path: &str, said: &str) -> Problem {
    let quoted = |prefix: &str| Some(said.strip_prefix(prefix)?.trim_matches('`'));
    if let Some(name) = quoted("missing field ") {
        return wrong(name, "is missing");
    }
    if let Some(name) = quoted("duplicate field ") {
        return wrong(name, "is there more than once");
    }
    let detail = if let Some(rest) = said.strip_prefix("unknown variant ") {
        json::found_and_wanted(rest, || None)
    } else if said.contains("digit") || said.contains("integer") || said.contains("number too") {
        let range = json::ranges::of_parameter::<T>(path);
        format!("must be a whole number{}", range.map_or_else(String::new, |range| format!(" from {range}")))
    } else if said.contains("`true` or `false`") {
        "must be true or false".into()
    } else {
        "cannot be read".into()
    };
    wrong(path, &detail)
}

pub(crate) fn wrong(name: &str, detail: &str) -> Problem {
    let whole = format!("the query parameter \"{name}\" {detail}");
    Problem::new(StatusCode::BAD_REQUEST, whole).about(name, detail)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use utoipa::ToSchema;

    use super::*;

    #[derive(Debug, Deserialize, IntoParams)]
    #[allow(dead_code, reason = "only read")]
    struct Wanted {
        topic: String,
        #[param(minimum = 1, maximum = 200)]
        limit: Option<u64>,
        retained: Option<bool>,
        step: Option<Step>,
    }

    #[derive(Debug, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    enum Step {
        Hour,
        Day,
    }

    #[test]
    fn a_wrong_parameter_is_named_in_the_words_of_the_api() {
        for (query, name, detail) in [
            ("", "topic", "is missing"),
            ("topic=a&topic=b", "topic", "is there more than once"),
            ("topic=a&limit=abc", "limit", "must be a whole number from 1 to 200"),
            ("topic=a&limit=-1", "limit", "must be a whole number from 1 to 200"),
            ("topic=a&limit=", "limit", "must be a whole number from 1 to 200"),
            ("topic=a&limit=99999999999999999999", "limit", "must be a whole number from 1 to 200"),
            ("topic=a&retained=maybe", "retained", "must be true or false"),
            ("topic=a&step=week", "step", "is `week`, and must be `hour` or `day`"),
            ("topic=a&step=digit", "step", "is `digit`, and must be `hour` or `day`"),
        ] {
            let uri: Uri = format!("/x?{query}").parse().unwrap();
            let problem = serde_json::to_value(parse::<Wanted>(&uri).unwrap_err()).unwrap();
            assert_eq!(problem["status"], 400);
            let field = &problem["fields"][0];
            assert_eq!((&field["field"], &field["detail"]), (&name.into(), &detail.into()), "{query}");
        }
        let uri: Uri = "/x?topic=a%2Fb&limit=5&retained=true&step=day&".parse().unwrap();
        assert_eq!(parse::<Wanted>(&uri).unwrap().topic, "a/b");
    }
}
