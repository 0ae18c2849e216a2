"""A server for the tests of the command line: every text that it says would do something on a terminal, or is none."""

import json
import sys
from typing import Any

BAD = "<\x1b]0;PWNED\x07\x1b[2J\x9b31m\x7f\u202e\u2066\x08\r>"
RESULT: dict[str, Any] = {"resultType": "complete"}
TASK: dict[str, object] = {
    "taskId": BAD,
    "status": "completed",
    "ttlMs": 10**400,
    "result": {"content": [{"type": "text", "text": BAD}]},
    "statusMessage": BAD,
    "lastUpdatedAt": "2026-01-01T" + BAD,
}
TOOL: dict[str, Any] = {
    "name": "t",
    "title": BAD,
    "description": "d" + BAD,
    "inputSchema": {"type": "object", "properties": {BAD: {}}},
}
# What a schema may be as well.
ODD: list[dict[str, Any]] = [
    {"properties": ["a"]},
    {"properties": {"a": {"type": [["x"], 5]}}},
    {"properties": {"a": {"enum": 5}, "b": 5, "c": {"$ref": "#/properties/a/x"}, "d": {"$ref": 5}}},
    {"properties": {"a": {"anyOf": 5, "allOf": [5], "items": 5}}, "required": 5},
    {"properties": {"a": {"type": "array", "items": [1]}}, "required": [["a"]]},
    {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 50}}},
    {"properties": None, "$defs": 5},
]


def answer(method: str, params: dict[str, object]) -> dict[str, object]:
    name = str(params.get("name", ""))
    if method == "server/discover":
        info = {"name": "evil" + BAD, "version": "1"}
        capabilities: dict[str, object] = {"tools": {}, "prompts": {}, "resources": {}}
        meta = {"io.modelcontextprotocol/serverInfo": info}
        return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "_meta": meta}
    if method == "tools/list":
        odd = [{"name": f"odd{n}", "inputSchema": {"type": "object", **schema}} for n, schema in enumerate(ODD)]
        more = ["t" + BAD, "fails", "silent", "refuses", "links", "data"]
        return {"tools": [TOOL, *({**TOOL, "name": name} for name in more), *odd]}
    if method == "tools/call" and name == "refuses":
        raise ValueError("refused" + BAD)
    if method == "tools/call" and name == "data":
        return {"content": [], "structuredContent": {"a": BAD}}
    if method == "tools/call" and name == "links":
        link = {"type": "resource_link", "uri": "u:" + BAD, "name": BAD}
        image = {"type": "image", "data": "YQ==", "mimeType": BAD}
        inside = {"type": "resource", "resource": {"uri": BAD, "blob": "YQ==", "mimeType": BAD}}
        return {"content": [link, image, inside]}
    if method == "tools/call":
        text = [] if name == "silent" else [{"type": "text", "text": "result" + BAD + "\n\tnext"}]
        return {"content": text, "isError": name in ("fails", "silent")}
    if method == "prompts/list":
        return {"prompts": [{"name": "p" + BAD, "description": BAD}, {"name": "p", "arguments": [{"name": BAD}]}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": "prompt" + BAD}}]}
    if method == "resources/list":
        return {"resources": [{"uri": "r:" + BAD, "name": BAD, "description": BAD}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "t:" + BAD, "name": BAD, "description": BAD}]}
    if method == "resources/read" and params.get("uri") == "bytes:":
        return {"contents": [{"uri": BAD, "blob": "//8=", "mimeType": BAD}]}
    if method == "resources/read" and params.get("uri") == "no:":
        raise LookupError("no:" + BAD)
    if method == "resources/read":
        return {"contents": [{"uri": "x:", "text": "contents" + BAD}]}
    return TASK


def main() -> None:
    # With bytes that are no text.
    sys.stderr.buffer.write(b"\xff\xfe " + f"started{BAD}\n".encode())
    sys.stderr.flush()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue

        def tell(method: str, **params: object) -> None:
            print(json.dumps({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}), flush=True)

        token = message["params"]["_meta"].get("progressToken")
        if token is not None:
            for total in ("abc", 10**400, -1, 0, None, 2):
                tell("progress", progressToken=token, progress=10**400, total=total, message=f"[/x]\\ {BAD}\n")
        if message["method"] == "tools/call":
            tell("message", level="info", data="log" + BAD, logger=BAD)
            tell("message", level="info", data={"log": BAD}, logger=5)
        out: dict[str, object] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            out["result"] = {**RESULT, **answer(message["method"], message["params"])}
        except LookupError as exc:
            out["error"] = {"code": -32602, "message": str(exc), "data": {"uri": "no:" + BAD}}
        except ValueError as exc:
            out["error"] = {"code": -32000, "message": str(exc)}
        print(json.dumps(out), flush=True)


if __name__ == "__main__":
    main()
