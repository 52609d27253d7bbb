// What npm's `@modelcontextprotocol/conformance` calls to be asked something in turn: by requests of the server
// (revisions before 2026-07-28), and by results that require input (2026-07-28).

import {
  acceptedContent,
  fromJsonSchema,
  inputRequired,
  inputResponse,
} from "@modelcontextprotocol/server";
import { text } from "./content.mjs";

const object = (properties, required = Object.keys(properties)) => ({
  type: "object",
  properties,
  required,
});
const string = { type: "string" };

const message = (text, maxTokens) => ({
  messages: [{ role: "user", content: { type: "text", text } }],
  maxTokens,
});

/** Registers all of them. `states` seals what a client keeps between two rounds. */
export function addRounds(server, states) {
  addRequests(server);
  addSingle(server);
  addSealed(server, states);
}

const ENUMS = {
  untitledSingle: { ...string, enum: ["option1", "option2", "option3"] },
  titledSingle: { ...string, oneOf: titled("First Option", "Second Option", "Third Option") },
  legacyEnum: {
    ...string,
    enum: ["opt1", "opt2", "opt3"],
    enumNames: ["Option One", "Option Two", "Option Three"],
  },
  untitledMulti: { type: "array", items: { ...string, enum: ["option1", "option2", "option3"] } },
  titledMulti: { type: "array", items: { anyOf: titled("First Choice", "Second Choice", "Third Choice") } },
};

const DEFAULTS = {
  name: { ...string, default: "John Doe" },
  age: { type: "integer", default: 30 },
  score: { type: "number", default: 95.5 },
  status: { ...string, enum: ["active", "inactive", "pending"], default: "active" },
  verified: { type: "boolean", default: true },
};

function titled(...titles) {
  return titles.map((title, index) => ({ const: `value${index + 1}`, title }));
}

/** Tools that send the client a request while they work. */
function addRequests(server) {
  const tool = (name, properties, call) => {
    const inputSchema = fromJsonSchema(object(properties));
    server.registerTool(name, { description: name, inputSchema }, call);
  };
  tool("test_sampling", { prompt: string }, async ({ prompt }, { mcpReq }) => {
    const { content } = await mcpReq.requestSampling(message(prompt, 100));
    return text(`LLM response: ${content.text}`);
  });
  tool("test_elicitation", { message: string }, async ({ message }, { mcpReq }) => {
    const requestedSchema = object({
      username: { ...string, description: "User's response" },
      email: { ...string, description: "User's email address" },
    });
    const { action, content } = await mcpReq.elicitInput({ message, requestedSchema });
    return text(`User response: action: ${action}, content: ${JSON.stringify(content)}`);
  });
  const forms = { test_elicitation_sep1034_defaults: DEFAULTS, test_elicitation_sep1330_enums: ENUMS };
  for (const [name, properties] of Object.entries(forms)) {
    tool(name, {}, async (_, { mcpReq }) => {
      const requestedSchema = object(properties, []);
      const answer = await mcpReq.elicitInput({ message: "Please fill in the form", requestedSchema });
      const content = JSON.stringify(answer.content);
      return text(`Elicitation completed: action=${answer.action}, content=${content}`);
    });
  }
}

/** A question for a form with one field. */
const ask = (message, field, type = "string") =>
  inputRequired.elicit({ message, requestedSchema: object({ [field]: { type } }) });

const NAME = { user_name: ask("What is your name?", "name") };

/** The text in a field of a form that was filled in, or `undefined`. */
function filledIn(mcpReq, key, field) {
  const value = acceptedContent(mcpReq.inputResponses, key)?.[field];
  return typeof value === "string" ? value : undefined;
}

/** Tools and a prompt that ask one thing and keep nothing. */
function addSingle(server) {
  const tool = (name, call) => server.registerTool(name, { description: name }, call);
  tool("test_input_required_result_elicitation", ({ mcpReq }) => {
    const name = filledIn(mcpReq, "user_name", "name");
    return name === undefined ? inputRequired({ inputRequests: NAME }) : text(`Hello, ${name}!`);
  });
  tool("test_input_required_result_sampling", ({ mcpReq }) => {
    const answer = inputResponse(mcpReq.inputResponses, "capital_question");
    if (answer.kind === "sampling") return text(answer.result.content.text);
    const question = inputRequired.createMessage(message("What is the capital of France?", 100));
    return inputRequired({ inputRequests: { capital_question: question } });
  });
  tool("test_input_required_result_list_roots", ({ mcpReq }) => {
    const answer = inputResponse(mcpReq.inputResponses, "client_roots");
    if (answer.kind === "roots") return text(`Roots: ${answer.roots.map((root) => root.uri)}`);
    return inputRequired({ inputRequests: { client_roots: inputRequired.listRoots() } });
  });
  tool("test_input_required_result_capabilities", ({ mcpReq }) => {
    if (mcpReq.inputResponses !== undefined) return text("done");
    const can = mcpReq.envelope?.["io.modelcontextprotocol/clientCapabilities"] ?? {};
    const inputRequests = {
      ...(can.elicitation && NAME),
      ...(can.sampling && { greeting: inputRequired.createMessage(message("Generate a greeting", 50)) }),
      ...(can.roots && { client_roots: inputRequired.listRoots() }),
    };
    return Object.keys(inputRequests).length > 0 ? inputRequired({ inputRequests }) : text("done");
  });
  // The SDK refuses to ask for what the client did not say that it can do.
  tool("test_missing_capability", ({ mcpReq }) => {
    if (mcpReq.inputResponses !== undefined) return text("done");
    const question = inputRequired.createMessage(message("Say something", 50));
    return inputRequired({ inputRequests: { question } });
  });
  tool("test_streaming_elicitation", ({ mcpReq }) => {
    const can = mcpReq.envelope?.["io.modelcontextprotocol/clientCapabilities"] ?? {};
    const asked = mcpReq.inputResponses !== undefined || !can.elicitation;
    return asked ? text("done") : inputRequired({ inputRequests: NAME });
  });
  const name = "test_input_required_result_prompt";
  server.registerPrompt(name, { description: name }, ({ mcpReq }) => {
    const context = filledIn(mcpReq, "user_context", "context");
    if (context !== undefined) {
      return { messages: [{ role: "user", content: { type: "text", text: `Context: ${context}` } }] };
    }
    const question = ask("What context should the prompt use?", "context");
    return inputRequired({ inputRequests: { user_context: question } });
  });
}

/** Tools whose client brings back a state that it cannot change. */
function addSealed(server, states) {
  const tool = (name, call) => server.registerTool(name, { description: name }, call);
  for (const name of ["test_input_required_result_request_state", "test_input_required_result_tampered_state"]) {
    tool(name, async ({ mcpReq }) => {
      const state = mcpReq.requestState();
      if (state?.tool === name && mcpReq.inputResponses?.confirm) return text("state-ok");
      const inputRequests = { confirm: ask("Please confirm", "ok", "boolean") };
      return inputRequired({ inputRequests, requestState: await states.mint({ tool: name }) });
    });
  }
  tool("test_input_required_result_multiple_inputs", async ({ mcpReq }) => {
    const inputRequests = {
      ...NAME,
      greeting: inputRequired.createMessage(message("Generate a greeting", 50)),
      client_roots: inputRequired.listRoots(),
    };
    const all = Object.keys(inputRequests).every((key) => mcpReq.inputResponses?.[key]);
    if (mcpReq.requestState() && all) return text("all answered");
    return inputRequired({ inputRequests, requestState: await states.mint({ step: 1 }) });
  });
  tool("test_input_required_result_multi_round", async ({ mcpReq }) => {
    const step = mcpReq.requestState()?.step ?? 0;
    if (step === 2 && filledIn(mcpReq, "step2", "color") !== undefined) return text("both answered");
    const second = step === 1 && filledIn(mcpReq, "step1", "name") !== undefined;
    const inputRequests = second
      ? { step2: ask("Step 2: What is your favorite color?", "color") }
      : { step1: ask("Step 1: What is your name?", "name") };
    return inputRequired({ inputRequests, requestState: await states.mint({ step: second ? 2 : 1 }) });
  });
}
