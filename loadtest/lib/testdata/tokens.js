// Notes what sealing makes of a token whose letters are all the same.
import { seal, unseal } from '../tokens.js';

export const options = { vus: 1, iterations: 1 };

export default function () {
  const token = 'a'.repeat(96);
  const first = seal(token, 'secret');
  const second = seal(token, 'secret');
  console.log(`NOTE ${JSON.stringify({
    sealed: [first.sealed, second.sealed],
    isTheToken: unseal(first, 'secret') === token,
    isTheTokenForOthers: unseal(first, 'another secret') === token,
  })}`);
}
