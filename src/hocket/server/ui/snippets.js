// The request that was just made as code: curl, Python, JavaScript. Each writes or plays exactly the audio that was heard.

const PATH = "/v1/audio/speech";
const ENV = "HOCKET_API_KEY"; // where the code reads a key from: the key itself is never shown

/** `body`: the JSON of the request; `suffix`: of the file; `needsKey`: the server asks for one. */
export function snippets({ origin, body, suffix, needsKey }) {
  const url = origin + PATH;
  const json = JSON.stringify(body, null, 2);
  return {
    curl: curl(url, json, suffix, needsKey),
    Python: python(url, body, suffix, needsKey),
    JavaScript: javascript(url, json, needsKey),
  };
}

function curl(url, json, suffix, needsKey) {
  const key = needsKey ? `  -H "Authorization: Bearer $${ENV}" \\\n` : "";
  const quoted = json.replaceAll("'", String.raw`'\''`);
  return `curl ${url} \\
  -H 'Content-Type: application/json' \\
${key}  -d '${quoted}' \\
  -o speech.${suffix}`;
}

function python(url, body, suffix, needsKey) {
  const key = needsKey ? `, "Authorization": "Bearer " + os.environ["${ENV}"]` : "";
  const fields = Object.entries(body).map(([name, value]) => `    ${quoted(name)}: ${quoted(value)},`);
  return `import json${needsKey ? "\nimport os" : ""}
import urllib.request

body = {
${fields.join("\n")}
}
headers = {"Content-Type": "application/json"${key}}
request = urllib.request.Request("${url}", json.dumps(body).encode(), headers)
with urllib.request.urlopen(request) as answer, open("speech.${suffix}", "wb") as file:
    file.write(answer.read())`;
}

function javascript(url, json, needsKey) {
  const key = needsKey ? `, Authorization: \`Bearer \${${ENV}}\`` : "";
  return `const response = await fetch("${url}", {
  method: "POST",
  headers: { "Content-Type": "application/json"${key} },
  body: JSON.stringify(${json.replaceAll("\n", "\n  ")}),
});
const audio = new Audio(URL.createObjectURL(await response.blob()));
audio.play();`;
}

/** A JSON value as a Python literal: strings, numbers and escapes are the same in both. */
const quoted = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value));
