// Questions to the broker. Addresses are relative, so that a path before the door does not matter.

export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ?? `the broker answered ${status}`);
    this.status = status;
    this.type = body?.type ?? "";
  }
}

let token = "";
let onLogin = () => {};

export function whenLoginIsNeeded(then) { onLogin = then; }

export async function whoAmI() {
  const session = await get("login");
  token = session.token ?? "";
  return session;
}

export async function logIn(user, password) {
  const session = await send("POST", "login", { user, password });
  token = session.token ?? "";
  return session;
}

async function answer(response) {
  const kind = response.headers.get("content-type") ?? "";
  const body = kind.includes("json") ? await response.json() : await response.text();
  if (response.ok) return body;
  if (response.status === 401 && !response.url.endsWith("/login")) onLogin();
  throw new Problem(response.status, body);
}

export async function get(path, words = {}) {
  const query = new URLSearchParams(Object.entries(words).filter(([, value]) => value !== undefined && value !== ""));
  const text = query.toString();
  return answer(await fetch(`api/v1/${path}${text ? `?${text}` : ""}`, { credentials: "same-origin" }));
}

export async function send(method, path, body) {
  const headers = { "x-csrf-token": token };
  if (body !== undefined) headers["content-type"] = "application/json";
  const options = { method, headers, credentials: "same-origin" };
  if (body !== undefined) options.body = JSON.stringify(body);
  return answer(await fetch(`api/v1/${path}`, options));
}

// What goes on, for all pages: the latest tick and the latest top lists, and word of each new one.
export class Live extends EventTarget {
  constructor() {
    super();
    this.tick = null;
    this.top = null;
    this.state = "connecting";
  }

  open() {
    this.close();
    this.source = new EventSource("api/v1/events");
    this.source.onopen = () => this.say("live");
    this.source.onerror = () => {
      this.say("reconnecting");
      // Refused for good, for instance because too many listen or nobody is logged in: not by itself.
      if (this.source.readyState === EventSource.CLOSED) {
        clearTimeout(this.later);
        this.later = setTimeout(() => this.open(), 5000);
      }
    };
    for (const kind of ["tick", "top"]) {
      this.source.addEventListener(kind, (event) => {
        this[kind] = JSON.parse(event.data);
        this.dispatchEvent(new Event(kind));
      });
    }
  }

  close() {
    clearTimeout(this.later);
    this.source?.close();
    this.source = null;
  }

  say(state) {
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }

  // Calls back now, if something is known, and from now on; the answer ends it.
  on(kind, then) {
    const call = () => then(this[kind]);
    this.addEventListener(kind, call);
    if (this[kind]) call();
    return () => this.removeEventListener(kind, call);
  }
}

// Asks again and again while a page is open and seen; the answer ends it.
export function repeat(seconds, ask, failed) {
  let timer = 0;
  let isOver = false;
  const turn = async () => {
    try {
      if (!document.hidden) await ask();
      if (!isOver) failed?.(null);
    } catch (problem) {
      if (!isOver) failed?.(problem);
    }
    if (!isOver) timer = setTimeout(turn, seconds * 1000);
  };
  turn();
  return () => { isOver = true; clearTimeout(timer); };
}
