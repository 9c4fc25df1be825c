// The driver of the generated TypeScript client: a broker's life, and an error with its type.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import {
  AccessApi,
  BrokersApi,
  Configuration,
  MessagesApi,
  type Problem,
  ProblemFromJSON,
  ResponseError,
  type Rule,
  type Used,
} from "./millrace";

function environment(name: string): string {
  const value = process.env[name];
  assert(value, `${name} is not set`);
  return value;
}

const done = (step: string) => console.log("done:", step);

async function problemOf(request: Promise<unknown>): Promise<Problem> {
  try {
    await request;
  } catch (error) {
    if (error instanceof ResponseError) return ProblemFromJSON(await error.response.json());
    throw error;
  }
  throw new Error("an answer without problem");
}

async function drive() {
  const configuration = new Configuration({
    basePath: environment("MILLRACE_API"),
    accessToken: environment("MILLRACE_TOKEN"),
  });
  const brokers = new BrokersApi(configuration);
  const access = new AccessApi(configuration);
  const messages = new MessagesApi(configuration);
  const organisation = environment("MILLRACE_ORGANISATION");

  const newBroker = { displayName: "From TypeScript" };
  const { name: broker } = await brokers.createBroker({ organisation, newBroker });
  const at = { organisation, broker };
  done("broker");

  const rule: Rule = { effect: "allow", action: "publish", filter: "plant/%c/#" };
  const newCredential = { user: "pump", rules: [rule] };
  const credential = await access.createCredential({ ...at, newCredential });
  assert.equal(credential.rules[0].filter, rule.filter);
  assert(credential.secret);
  done("credential");

  const deny: Rule = { effect: "deny", action: "all", filter: "secret/#" };
  const settings = await access.setAccess({ ...at, ifMatch: "*", accessSettings: { rules: [deny] } });
  assert.equal(settings.rules?.[0].filter, deny.filter);
  const accessQuestion = { clientId: "pump", user: "pump", action: "publish", topic: "secret/key" } as const;
  const tested = await access.testAccess({ ...at, accessQuestion });
  assert.equal(tested.allowed, false);
  assert.equal(tested.rule?.filter, deny.filter);
  done("rule");

  const newMessage = { topic: "plant/pump/level", payload: "12.5", qos: 1 };
  const published = await messages.publish({ ...at, newMessage });
  assert.equal(published.stored, true);
  done("publish");

  const end = Date.now() + 60_000;
  let used: Used;
  do {
    assert(Date.now() < end, "the message is not counted");
    await sleep(200);
    used = (await brokers.getUsage({ ...at, step: "total" })).total.used;
  } while (used.messagesIn === 0);
  done("usage");

  await brokers.deleteBroker({ ...at, ifMatch: "*" });
  done("delete");

  const problem = await problemOf(brokers.getBroker(at));
  assert.equal(problem.status, 404);
  assert.equal(problem.type, "urn:millrace:problem:not-found");
  done("problem");
}

drive().catch((error: unknown) => {
  console.error(error);
  process.exitCode = 1;
});
