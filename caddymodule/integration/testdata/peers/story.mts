// What the clients made from the OpenAPI document have in common: docs/examples/accounts
// has the story that they tell, with comments.

export const { ACCOUNTS_API, ACCOUNTS_KEY, SIGNUP_KEY, SUPPORT_KEY, APP } = process.env as Record<string, string>;
export const name = process.argv[2]!;
export const subject = `a/b ü+% ${name}`;

export const bearer = (key: string | undefined) => ({ Authorization: `Bearer ${key}` });
export const basic = { Authorization: `Basic ${btoa(`stats:${encodeURIComponent(ACCOUNTS_KEY!)}`)}` };
export const form = { 'Content-Type': 'application/x-www-form-urlencoded' };
export const lines = { 'Content-Type': 'application/x-ndjson' };

export async function visit(token: string | undefined, path: string, method = 'GET') {
  const response = await fetch(APP + path, { method, headers: bearer(token) });
  return { status: response.status, text: await response.text() };
}

export async function until<T>(ask: () => Promise<T | undefined | false>): Promise<T> {
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    await new Promise((resume) => setTimeout(resume, 50));
  }
}

export const actorIn = (request: string) => decodeURIComponent(/^X-Profile-Actor: (\S*)/m.exec(request)![1]!);
export const moving = (exported: string) => exported.split('\n').find((line) => line.includes(`"${name}-moves"`))!;
