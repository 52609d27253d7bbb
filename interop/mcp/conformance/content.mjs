// What npm's `@modelcontextprotocol/conformance` reads and calls: tools, resources and prompts that answer at
// once, or after what they tell on the way. Its scenarios say what each must answer.

import { setTimeout as wait } from "node:timers/promises";
import { completable, fromJsonSchema, ResourceTemplate } from "@modelcontextprotocol/server";
import { z } from "zod";

/** A picture of one pixel. */
const PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

/** A sound of no length. */
const WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/** Time between two messages of one call. */
const STEP_MS = 50;

export const text = (text) => ({ content: [{ type: "text", text }] });

const image = { type: "image", data: PNG, mimeType: "image/png" };
const audio = { type: "audio", data: WAV, mimeType: "audio/wav" };
const resource = (uri, mimeType, text) => ({ type: "resource", resource: { uri, mimeType, text } });

/** Tools without arguments, and their results. */
const FIXED = {
  test_simple_text: text("This is a simple text response for testing."),
  test_image_content: { content: [image] },
  test_audio_content: { content: [audio] },
  test_embedded_resource: {
    content: [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")],
  },
  test_multiple_content_types: {
    content: [
      ...text("Multiple content types test:").content,
      image,
      resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
  },
};

/** A schema whose words no part of the way may lose. */
const SCHEMA_2020_12 = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  $defs: {
    address: {
      $anchor: "addressDef",
      type: "object",
      properties: { street: { type: "string" }, city: { type: "string" } },
    },
  },
  properties: {
    name: { type: "string" },
    address: { $ref: "#/$defs/address" },
    contactMethod: { type: "string", enum: ["phone", "email"] },
    phone: { type: "string" },
    email: { type: "string" },
  },
  allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
  if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
  then: { required: ["phone"] },
  else: { required: ["email"] },
  additionalProperties: false,
};

/** An argument that a client also says in a header of its request. */
const WITH_HEADER = {
  type: "object",
  properties: { region: { type: "string", "x-mcp-header": "Region" } },
  required: ["region"],
};

/** Registers all of them. */
export function addContent(server, notify) {
  addTools(server, notify);
  addResources(server);
  addPrompts(server);
}

function addTools(server, notify) {
  const tool = (name, call) => server.registerTool(name, { description: name }, call);
  for (const [name, result] of Object.entries(FIXED)) tool(name, () => result);
  tool("test_error_handling", () => {
    throw new Error("This tool intentionally returns an error for testing");
  });
  tool("test_tool_with_logging", logging);
  tool("test_logging_tool", logging);
  tool("test_tool_with_progress", async ({ mcpReq }) => {
    const progressToken = mcpReq._meta?.progressToken;
    for (const progress of [0, 50, 100]) {
      if (progress > 0) await wait(STEP_MS);
      if (progressToken === undefined) continue;
      const params = { progressToken, progress, total: 100 };
      await mcpReq.notify({ method: "notifications/progress", params });
    }
    return text("done");
  });
  tool("test_reconnection", async ({ http }) => {
    http?.closeSSE?.();
    await wait(STEP_MS);
    return text("Reconnection test completed successfully");
  });
  tool("test_trigger_tool_change", () => (notify.toolsChanged(), text("told")));
  tool("test_trigger_prompt_change", () => (notify.promptsChanged(), text("told")));
  const described = (name, schema) => ({ description: name, inputSchema: fromJsonSchema(schema) });
  const schemas = { json_schema_2020_12_tool: SCHEMA_2020_12, test_custom_headers: WITH_HEADER };
  for (const [name, schema] of Object.entries(schemas)) {
    server.registerTool(name, described(name, schema), (args) => text(JSON.stringify(args)));
  }
}

async function logging({ mcpReq }) {
  for (const [step, said] of ["Tool execution started", "Tool processing data", "Tool execution completed"].entries()) {
    if (step > 0) await wait(STEP_MS);
    await mcpReq.log("info", said);
  }
  return text("done");
}

function addResources(server) {
  const fixed = [
    ["test://static-text", "text/plain", { text: "This is the content of the static text resource." }],
    ["test://static-binary", "image/png", { blob: PNG }],
    ["test://watched-resource", "text/plain", { text: "This resource is watched." }],
  ];
  for (const [uri, mimeType, content] of fixed) {
    const about = { description: uri, mimeType };
    server.registerResource(uri, uri, about, () => ({ contents: [{ uri, mimeType, ...content }] }));
  }
  const template = new ResourceTemplate("test://template/{id}/data", { list: undefined });
  const about = { description: "data of an id", mimeType: "application/json" };
  server.registerResource("template", template, about, (uri, { id }) => {
    const data = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
    return { contents: [{ uri: uri.href, mimeType: "application/json", text: data }] };
  });
  const watched = new Set();
  server.server.setRequestHandler("resources/subscribe", ({ params }) => (watched.add(params.uri), {}));
  server.server.setRequestHandler("resources/unsubscribe", ({ params }) => (watched.delete(params.uri), {}));
}

function addPrompts(server) {
  const say = (...contents) => ({ messages: contents.map((content) => ({ role: "user", content })) });
  const words = (text) => ({ type: "text", text });
  const prompt = (name, argsSchema, get) =>
    server.registerPrompt(name, { description: name, argsSchema }, get);
  prompt("test_simple_prompt", undefined, () => say(words("This is a simple prompt for testing.")));
  const known = ["paris", "park", "party"];
  const first = completable(z.string(), (begun) => known.filter((word) => word.startsWith(begun)));
  prompt("test_prompt_with_arguments", z.object({ arg1: first, arg2: z.string() }), ({ arg1, arg2 }) =>
    say(words(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)),
  );
  prompt("test_prompt_with_embedded_resource", z.object({ resourceUri: z.string() }), ({ resourceUri }) =>
    say(
      resource(resourceUri, "text/plain", "Embedded resource content for testing."),
      words("Please process the embedded resource above."),
    ),
  );
  prompt("test_prompt_with_image", undefined, () => say(image, words("Please analyze the image above.")));
}
