"""The rules for one sentence: how it may begin, and which private terms it must not use; and the private terms in names of code.

A rule is an expression for the private term, the standard term, and an expression for uses that are allowed all the same.
"""

import re

BEGINNING = re.compile(r"^[\"'(\[*_]*(Who|Whom|Whose|What|Of|Those|Whoever)\b(?!['’]s\b)")

TERMS = [
    (r"words?", "notice, notification", r"(?:32|64)-bit words?|key ?words?|(?:bare|between|machine) words?|words? of (?:a|the|its) (?:standard|machine)|in other words|words? in capitals"),
    (r"tells?|told|telling", "notify, announce, report, say", r"(?:tell|tells|told|telling) (?:\w+ ){0,3}apart|tell (?:the|its|their) (?:owner|tenant)s?"),
    (r"heard|hears?|hearsay|ears?", "receive, be notified", None),
    (r"left with (?:the|its|a) (?:store|writer)|what was left", "submitted, queued job", None),
    (r"(?:its|the|by|each|whose|a|their|message's) places?", "position", r"(?:takes?|took|taking) (?:its|the|a|their) places?|the place (?:to|where|for|of the)|a place (?:to|where|for)"),
    (r"paces?|paced|pacing", "rate, rate limiter", None),
    (r"meters?", "usage counter, rate limiter", None),
    (r"desks?|shelf|shelves|scribes?|tellers?|keepers?", "authenticator, cache, recorder, reporter, lease holder", None),
    (r"unkept|homed|kept (?:sessions?|ones?)|fresh", "persistent, local, new", None),
    (r"(?:holds?|held|holding) (?:\w+ ){0,2}up", "pause, delay", None),
    (r"(?:is|are|was|were) (?:ahead|away)|(?:is|are|was|were) behind(?! (?:a|an|the|its|it|this|that|Envoy)\b)", "prefetched, offline, lagging", None),
    (r"bury|buries|buried|burying|dying", "recover a dead pod's sessions", None),
    (r"fences? of (?:a|the) turn|(?:a|the|its|each) marks?|stirs?|stirred", "barrier, commit marker, wake", r"(?:a|the|its|each) marks? (?:in|of) (?:Envoy|Grafana|the page)"),
    (r"may enter|(?:let|lets|letting) (?:\w+ ){0,2}in", "authenticate, admit", r"(?:let|lets|letting) (?:\w+ ){0,2}in (?:one|a|the) \w+"),
    (r"go(?:es|ing)? on|went on", "continue, resume", r"come and go on"),
    (r"(?:is|are) so today|(?:for|at most) so long(?! (?:that|as)\b)", "still applies, for this long", None),
    (r"takes? no (?:clients?|changes?|connections?|devices?|more (?:clients?|devices?))", "accept no", None),
    (r"(?:rules?|patterns?)(?: that)? fits?(?! (?:in|into|within)\b)", "match", None),
    (r"hooks?|letters?", "webhook, event, dead letter", r"dead[- ]letters?|(?:git|preStop|lifecycle|Helm) hooks?|(?:first|capital|small|lower-case|upper-case|decision) letters?|letters?(?:,| and| or| of the alphabet| \(a to z\))"),
]
TERMS = [(re.compile(rf"(?<![\w-])(?:{term})(?![\w-])", re.I), instead, re.compile(allowed, re.I) if allowed else None) for term, instead, allowed in TERMS]

NAMES = re.compile(r"`[^`]*`|\]\([^)]*\)|<[^>]*>|\"[^\"]*\"|https?://\S+")


def findings(sentence):
    """Yields what is wrong with a sentence, each as a text that says what to write instead."""
    begin = BEGINNING.match(sentence)
    if begin and not re.search(r"\?[\"')*`_]*$", sentence):
        yield f'begins with "{begin.group(1)}": name the actor'
    # Names of the code, titles of links and quotations are as they are.
    plain = NAMES.sub(lambda match: " " * len(match.group(0)), sentence)
    for term, instead, allowed in TERMS:
        rest = allowed.sub(lambda match: " " * len(match.group(0)), plain) if allowed else plain
        if match := term.search(rest):
            yield f'"{match.group(0)}": {instead}'


# Parts of a name, such as `fresh` in `is_fresh` and `Meter` in `RateMeter`.
NAME_TERMS = {
    "pace": "rate, rate limiter",
    "meter": "usage counter, rate limiter",
    "desk": "authenticator",
    "shelf": "cache",
    "scribe": "recorder",
    "teller": "reporter",
    "keeper": "lease holder",
    "tell": "notify",
    "told": "notified",
    "heard": "received",
    "hearsay": "notice",
    "homed": "local",
    "fresh": "new",
    "unkept": "in memory, unstored",
    "unleft": "not submitted, unwritten",
    "bury": "recover",
    "buried": "recovered",
    "dying": "being recovered",
    "stir": "wake",
    "hook": "webhook",
}
ALLOWED_NAMES = {"panic_hook"}
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def findings_of_name(name):
    """Yields what is wrong with the name of an item or a file."""
    if name not in ALLOWED_NAMES:
        for part in PART.findall(name):
            part = part.lower()
            if instead := NAME_TERMS.get(part) or NAME_TERMS.get(part.removesuffix("s")):
                yield f'"{part}" in the name {name}: {instead}'


NOT_OF_THE_SERVER = {"services/conformance", "storage/simulation"}
# Names that a type may share, with the reason: if no other file can use the type, and of one thing in several crates.
LOCAL_NAMES = {
    "State": "the fields behind the lock of the file's one type, or the states of its state machine",
    "Entry": "the entry of the file's one cache or table",
    "Inner": "the fields that a cheap handle shares by an Arc",
}
SAME_THING = {
    "Broker": "the API describes the broker that the edge runs",
    "Millis": "u64 as the clocks of several crates count it",
    "Mailbox": "the edge names the mailbox with its own kind of mail",
}
