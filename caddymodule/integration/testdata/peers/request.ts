// Sends the requests of the client that orval makes of the accounts API's document. orval
// writes every body as JSON, also a form and lines.
export async function request<T>(path: string, { method, body, headers }: RequestInit): Promise<T> {
  const all = new Headers({ Authorization: `Bearer ${process.env.ACCOUNTS_KEY}` });
  new Headers(headers).forEach((value, name) => all.set(name, value));
  const type = all.get('Content-Type');
  const sent = type === 'application/x-ndjson' ? JSON.parse(body as string) : type?.endsWith('form-urlencoded') ? new URLSearchParams(JSON.parse(body as string)) : body;
  if (all.get('Authorization') === '') all.delete('Authorization');
  const response = await fetch(process.env.ACCOUNTS_API + path, { method, body: sent, headers: all });
  const text = await response.text();
  const data = response.headers.get('Content-Type') === 'application/json' ? JSON.parse(text) : text;
  return { status: response.status, headers: response.headers, data } as T;
}
