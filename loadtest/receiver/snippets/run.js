// Answers "true" or "false" for each line of {secret, headers, body, now} on standard input.
const { verify } = require('./verify.js');
for (const line of require('node:fs').readFileSync(0, 'utf8').trim().split('\n')) {
  const c = JSON.parse(line);
  console.log(verify(c.secret, c.headers, Buffer.from(c.body), c.now * 1000));
}
