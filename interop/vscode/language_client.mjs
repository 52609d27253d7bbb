// The client of a language server, with npm's `vscode-languageserver-protocol`: opens a document and asks for what
// takes large answers. Tells a line of JSON for each answer.
//   node language_client.mjs stdio COMMAND ARGS…     starts the server
//   node language_client.mjs HOST:PORT|unix:PATH     goes to it
// The document has so many members as the variable MEMBERS says.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import net from "node:net";
import {
  createProtocolConnection,
  SocketMessageReader,
  SocketMessageWriter,
  StreamMessageReader,
  StreamMessageWriter,
} from "vscode-languageserver-protocol/node";

const tell = (line) => console.log(JSON.stringify(line));
const about = (value) => {
  const text = JSON.stringify(value);
  return { bytes: Buffer.byteLength(text), sha256: createHash("sha256").update(text).digest("hex") };
};

async function connect([place, ...command]) {
  if (place === "stdio") {
    const server = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
    const ended = new Promise((resolve) => server.once("exit", resolve));
    return [new StreamMessageReader(server.stdout), new StreamMessageWriter(server.stdin), ended];
  }
  const [host, port] = place.split(":");
  const socket = net.connect(host === "unix" ? { path: port } : { host, port: Number(port) });
  await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
  const ended = new Promise((resolve) => socket.once("close", resolve));
  return [new SocketMessageReader(socket), new SocketMessageWriter(socket), ended];
}

const [reader, writer, ended] = await connect(process.argv.slice(2));
const connection = createProtocolConnection(reader, writer);
const diagnostics = new Promise((resolve) =>
  connection.onNotification("textDocument/publishDiagnostics", resolve),
);
connection.listen();

const capabilities = {
  textDocument: { documentSymbol: { hierarchicalDocumentSymbolSupport: true }, publishDiagnostics: {} },
};
const initializationOptions = { provideFormatter: true };
const params = { processId: process.pid, rootUri: null, capabilities, initializationOptions };
const { capabilities: can } = await connection.sendRequest("initialize", params);
tell({ initialize: about(can) });
await connection.sendNotification("initialized", {});

const members = Array.from({ length: Number(process.env.MEMBERS) }, (_, at) => `"m${at}":["é漢🚢\\n",${at}]`);
const textDocument = { uri: "memory://large.json", languageId: "json", version: 1 };
const text = `{${members.join(",")}}`;
await connection.sendNotification("textDocument/didOpen", { textDocument: { ...textDocument, text } });
const all = { start: { line: 0, character: 0 }, end: { line: 0, character: text.length } };
const asked = {
  "textDocument/documentSymbol": {},
  "textDocument/rangeFormatting": { range: all, options: { tabSize: 2, insertSpaces: true } },
  "textDocument/hover": { position: { line: 0, character: 3 } },
  "textDocument/foldingRange": {},
};
// All at once.
const answers = Object.entries(asked).map(async ([method, params]) => {
  const answer = await connection.sendRequest(method, { textDocument, ...params });
  return { [method]: about(answer) };
});
for (const answer of await Promise.all(answers)) tell(answer);
tell({ diagnostics: about(await diagnostics) });
tell({ document: about(text) });
tell({ unknown: await connection.sendRequest("no/such").catch(({ code }) => code) });
await connection.sendRequest("shutdown");
await connection.sendNotification("exit");
await ended;
tell({ ended: true });
connection.dispose();
