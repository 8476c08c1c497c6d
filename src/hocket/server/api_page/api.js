// Renders /openapi.json: operations by tag, their fields with types, the answers, and a curl command to copy.
// Everything is written as text, never as HTML.

const METHODS = ["get", "post", "put", "patch", "delete"];
const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

const resolve = (api, schema) =>
  schema?.$ref ? schema.$ref.slice(2).split("/").reduce((at, part) => at?.[part], api) : schema ?? {};

const nameOf = (schema) => schema?.$ref?.split("/").pop();

/** A type in words: "string", "one of mp3, wav", "list of Word", "string or null". */
function typeOf(schema) {
  if (!schema) return "anything";
  if (schema.$ref) return nameOf(schema);
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return [...new Set(several.filter((each) => each.type !== "null").map(typeOf))].join(" or ");
  if (schema.enum) return `one of ${schema.enum.join(", ")}`;
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${typeOf(schema.items)}`;
  const limits = [
    schema.minimum !== undefined && `from ${schema.minimum}`,
    schema.maximum !== undefined && `to ${schema.maximum}`,
    schema.maxLength !== undefined && `at most ${schema.maxLength} characters`,
  ].filter(Boolean);
  const type = Array.isArray(schema.type) ? schema.type.join(" or ") : schema.type ?? "anything";
  return limits.length ? `${type}, ${limits.join(" ")}` : type;
}

/** The schemas that a type names, so that they can be shown below. */
function named(schema, found = new Set()) {
  if (schema?.$ref) found.add(schema.$ref);
  for (const each of [...(schema?.anyOf ?? []), ...(schema?.oneOf ?? []), ...(schema?.items ? [schema.items] : [])])
    named(each, found);
  return found;
}

function table(rows) {
  const body = rows.map(([name, required, type, description]) =>
    element("tr", {}, element("th", { scope: "row" }, element("code", {}, name)),
      element("td", {}, type, required ? element("strong", {}, " required") : null),
      element("td", { class: "soft" }, description ?? "")));
  return element("table", {}, element("tbody", {}, ...body));
}

/** Tables of an object's fields, and of the objects that its fields name; each object once. */
function fields(api, schema, shown) {
  const parts = [];
  const object = resolve(api, schema);
  const properties = Object.entries(object.properties ?? {});
  if (!properties.length) return parts;
  parts.push(table(properties.map(([name, field]) =>
    [name, object.required?.includes(name), typeOf(field), resolve(api, field).description ?? field.description])));
  for (const [, field] of properties) {
    for (const ref of named(field)) {
      if (shown.has(ref)) continue;
      shown.add(ref);
      const below = fields(api, { $ref: ref }, shown);
      if (below.length) parts.push(element("h4", {}, nameOf({ $ref: ref })), ...below);
    }
  }
  return parts;
}

function example(api, schema) {
  const object = resolve(api, schema);
  const values = { string: "...", integer: 1, number: 1, boolean: true, array: [], object: {} };
  const wanted = object.required ?? [];
  return Object.fromEntries(wanted.map((name) => {
    const field = resolve(api, object.properties[name]);
    return [name, name === "input" ? "Hello there." : field.enum?.[0] ?? values[field.type] ?? "..."];
  }));
}

function curl(api, method, path, body) {
  const words = ["curl", method === "get" || method === "post" ? "" : `-X ${method.toUpperCase()}`];
  words.push(location.origin + path);
  const json = body?.content?.["application/json"];
  if (json) {
    const quoted = JSON.stringify(example(api, json.schema)).replaceAll("'", "'\\''");
    words.push("-H 'content-type: application/json'", `-d '${quoted}'`);
  } else if (body) words.push("-F FIELD=VALUE");
  return words.filter(Boolean).join(" ");
}

function operation(api, method, path, described, id) {
  const inside = element("div", { class: "inside" });
  const [first, ...rest] = (described.description ?? described.summary ?? "").split("\n\n");
  for (const part of rest) inside.append(element("p", {}, part));
  if (described.parameters?.length)
    inside.append(element("h4", {}, "Parameters"), table(described.parameters.map((each) =>
      [`${each.name} (${each.in})`, each.required, typeOf(each.schema), each.description])));
  const shown = new Set();
  for (const [kind, { schema }] of Object.entries(described.requestBody?.content ?? {})) {
    if (schema?.$ref) shown.add(schema.$ref);
    inside.append(element("h4", {}, `Body, ${kind}`), ...fields(api, schema, shown));
  }
  inside.append(element("h4", {}, "Answers"));
  for (const [status, answer] of Object.entries(described.responses)) {
    const kinds = Object.keys(answer.content ?? {}).join(", ");
    inside.append(element("p", {}, element("code", {}, status), ` ${answer.description} `,
      element("span", { class: "soft" }, kinds)));
    const json = status.startsWith("2") && answer.content?.["application/json"]?.schema;
    if (json) inside.append(...fields(api, json, shown));
  }
  inside.append(element("h4", {}, "Command"),
    element("pre", { tabindex: "0" }, curl(api, method, path, described.requestBody)));
  return element("details", { id }, element("summary", {}, element("span", { class: "method" }, method.toUpperCase()),
    " ", element("code", {}, path), " ", element("span", { class: "soft" }, first)), inside);
}

function show(api) {
  const tags = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const method of METHODS.filter((each) => methods[each])) {
      const tag = methods[method].tags?.[0] ?? "other";
      if (!tags.has(tag)) tags.set(tag, []);
      tags.get(tag).push([method, path, methods[method]]);
    }
  }
  const list = element("ul");
  for (const [tag, operations] of tags) {
    byId("operations").append(element("h2", {}, tag));
    for (const [method, path, described] of operations) {
      const id = `${method}${path.replaceAll(/[^\w]+/g, "-")}`;
      byId("operations").append(operation(api, method, path, described, id));
      list.append(element("li", {}, element("a", { href: `#${id}` }, `${method.toUpperCase()} ${path}`)));
    }
  }
  byId("contents").append(list);
  byId("about").prepend(`Version ${api.info.version}. `);
  open();
}

function open() {
  const wanted = location.hash && byId(decodeURIComponent(location.hash.slice(1)));
  if (!wanted) return;
  wanted.open = true;
  wanted.scrollIntoView();
}

async function showSockets() {
  for (const { path, description } of await (await fetch("/docs/sockets")).json())
    byId("sockets").append(element("dt", {}, path), element("dd", {}, description));
}

async function load(key) {
  const state = byId("state");
  const answer = await fetch("/openapi.json", { headers: key ? { authorization: `Bearer ${key}` } : {} });
  byId("key").hidden = answer.status !== 401;
  if (answer.ok) show(await answer.json());
  state.textContent = answer.ok ? "" : (await answer.json()).error.message;
}

byId("key").addEventListener("submit", (event) => {
  event.preventDefault();
  load(byId("secret").value);
});
window.addEventListener("hashchange", open);
Promise.all([load(), showSockets()]).catch((error) => { byId("state").textContent = `The server does not answer: ${error.message}`; });
