// Asks the server. Each request carries the session's token, which only this page knows, beside the cookie.

const KEPT = "mortar-session";

let session = null;
try {
  session = JSON.parse(localStorage.getItem(KEPT));
} catch {
  localStorage.removeItem(KEPT);
}

// A refusal: `code` is that of the admin protocol.
export class Refused extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered with status ${status}`);
    this.status = status;
    this.code = error?.code ?? "unknown";
  }
}

async function ask(method, path, body, token) {
  const headers = { "Mortar-Console": token ?? session?.token ?? "nobody" };
  const answer = await fetch(`/api/${path}`, { method, headers, body, credentials: "same-origin", cache: "no-store" });
  const json = answer.headers.get("Content-Type") === "application/json" ? await answer.json() : null;
  if (answer.status === 401) keep(null);
  if (!answer.ok) throw new Refused(answer.status, json);
  return json;
}

function keep(told) {
  session = told;
  if (told) localStorage.setItem(KEPT, JSON.stringify(told));
  else localStorage.removeItem(KEPT);
}

export const signedIn = () => session?.name ?? null;

// Sends a key file once, and keeps what comes back instead.
export async function signIn(file) {
  keep(await ask("POST", "sign-in", file, "sign-in"));
}

export async function signOut() {
  try {
    await ask("POST", "sign-out");
  } finally {
    keep(null);
  }
}

let touched = true;
for (const event of ["pointerdown", "keydown"]) addEventListener(event, () => (touched = true), { passive: true });

// Looks at something. A look that nobody is there for says so, and the session ends some time later.
export function look(path) {
  return ask("GET", touched ? path : `${path}?again`);
}

// All looks of one round are made.
export const rested = () => (touched = false);

// Has the server do something; the request is one of the admin protocol.
export const act = (name, fields) => ask("POST", "do", JSON.stringify({ [name]: fields })).then((answer) => answer[name]);
