const client = 'fetch';
const mutator = { path: './request.ts', name: 'request' };

module.exports = {
  auth: { input: 'auth.json', output: { target: 'auth.ts', client } },
  accounts: { input: 'accounts.json', output: { target: 'accounts.ts', client, override: { mutator } } },
};
