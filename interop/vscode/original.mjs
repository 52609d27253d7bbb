// The modules of VS Code as npm has them. They run in node as they are: nothing is bundled or patched.

export {
  RPCProtocol,
  ResponsiveState,
} from "@codingame/monaco-vscode-api/vscode/vs/workbench/services/extensions/common/rpcProtocol";
export {
  createProxyIdentifier,
  SerializableObjectWithBuffers,
} from "@codingame/monaco-vscode-api/vscode/vs/workbench/services/extensions/common/proxyIdentifier";
export {
  Protocol,
  PersistentProtocol,
  SocketCloseEventType,
} from "@codingame/monaco-vscode-api/vscode/vs/base/parts/ipc/common/ipc.net";
export { VSBuffer } from "@codingame/monaco-vscode-api/vscode/vs/base/common/buffer";
export {
  CancellationToken,
  CancellationTokenSource,
} from "@codingame/monaco-vscode-api/vscode/vs/base/common/cancellation";
export {
  CancellationError,
  setUnexpectedErrorHandler,
} from "@codingame/monaco-vscode-api/vscode/vs/base/common/errors";
export { Emitter } from "@codingame/monaco-vscode-api/vscode/vs/base/common/event";
export { URI } from "@codingame/monaco-vscode-api/vscode/vs/base/common/uri";
export { createURITransformer } from "@codingame/monaco-vscode-api/vscode/vs/base/common/uriTransformer";
