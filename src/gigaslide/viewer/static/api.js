// Requests to the server. A request that gets no answer at all means that the viewer was closed.

const listeners = [];

export function whenGone(listener) {
  listeners.push(listener);
}

async function ask(address, options) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch {
    listeners.forEach((listener) => listener());
    throw new Error("The viewer has been closed.");
  }
  const value = await answer.json().catch(() => ({ error: `The viewer answered ${answer.status}.` }));
  if (!answer.ok) throw new Error(value.error);
  return value;
}

export function get(name) {
  return ask(`/api/${name}`);
}

export function post(name, value = null) {
  return ask(`/api/${name}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(value),
  });
}
