"""The driver of the generated Python client: a broker's life, and an error with its type."""

import os
import time
from uuid import UUID

from millrace import AuthenticatedClient
from millrace.api.access import create_credential, set_access, test_access
from millrace.api.brokers import create_broker, delete_broker, get_broker, get_usage
from millrace.api.messages import publish
from millrace.models import (
    AccessAnswer,
    AccessQuestion,
    AccessSettings,
    Action,
    Broker,
    Effect,
    GetUsageStep,
    MadeCredential,
    NewBroker,
    NewCredential,
    NewMessage,
    Problem,
    Published,
    Rule,
    TestedAction,
    Usage,
)


def done(step):
    print("done:", step, flush=True)


def expect(kind, answer):
    if not isinstance(answer, kind):
        raise AssertionError(f"{answer} is no {kind.__name__}")
    return answer


def main():
    api = AuthenticatedClient(base_url=os.environ["MILLRACE_API"], token=os.environ["MILLRACE_TOKEN"])
    organisation = UUID(os.environ["MILLRACE_ORGANISATION"])

    made = create_broker.sync(organisation, client=api, body=NewBroker(display_name="From Python"))
    broker = expect(Broker, made).name
    done("broker")

    rule = Rule(effect=Effect.ALLOW, action=Action.PUBLISH, filter_="plant/%c/#")
    credential = create_credential.sync(
        organisation, broker, client=api, body=NewCredential(user="pump", rules=[rule])
    )
    if not expect(MadeCredential, credential).secret or credential.rules[0].filter_ != rule.filter_:
        raise AssertionError(credential)
    done("credential")

    deny = Rule(effect=Effect.DENY, action=Action.ALL, filter_="secret/#")
    settings = set_access.sync(organisation, broker, client=api, if_match="*", body=AccessSettings(rules=[deny]))
    if expect(AccessSettings, settings).rules[0].filter_ != deny.filter_:
        raise AssertionError(settings)
    question = AccessQuestion(client_id="pump", user="pump", action=TestedAction.PUBLISH, topic="secret/key")
    tested = expect(AccessAnswer, test_access.sync(organisation, broker, client=api, body=question))
    if tested.allowed or expect(Rule, tested.rule).filter_ != deny.filter_:
        raise AssertionError(tested)
    done("rule")

    message = NewMessage(topic="plant/pump/level", payload="12.5", qos=1)
    published = expect(Published, publish.sync(organisation, broker, client=api, body=message))
    if not published.stored:
        raise AssertionError(published)
    done("publish")

    end = time.monotonic() + 60
    while True:
        usage = expect(Usage, get_usage.sync(organisation, broker, client=api, step=GetUsageStep.TOTAL))
        if usage.total.used.messages_in > 0:
            break
        if time.monotonic() > end:
            raise TimeoutError(f"the message is not counted: {usage}")
        time.sleep(0.2)
    done("usage")

    removed = delete_broker.sync_detailed(organisation, broker, client=api, if_match="*")
    if removed.status_code != 204:
        raise AssertionError(removed)
    done("delete")

    problem = expect(Problem, get_broker.sync(organisation, broker, client=api))
    if problem.status != 404 or problem.type_ != "urn:millrace:problem:not-found":
        raise AssertionError(problem)
    done("problem")


main()
