// Tokens on their way from setup() to the VUs.
//
// An account may get 60 tokens an hour, so VUs share the one that setup() gets. The only way
// from setup() to the VUs is what setup() returns, and k6 writes that into --summary-export
// and shows it on its REST API. So a token is sealed, which means encrypted with the account's secret,
// which the VUs have from the settings: each byte is XORed with HMAC-SHA256(secret, nonce and block
// number).
import { hmac, randomBytes } from 'k6/crypto';

// seal encrypts a token, which must be ASCII, and returns {nonce, sealed}.
export function seal(token, secret) {
  const nonce = hex(Array.from(new Uint8Array(randomBytes(16))));
  const bytes = Array.from(token, (c) => c.charCodeAt(0));
  return { nonce, sealed: hex(mask(bytes, secret, nonce)) };
}

// unseal returns the token that was sealed with the same secret.
export function unseal({ nonce, sealed }, secret) {
  return String.fromCharCode(...mask(unhex(sealed), secret, nonce));
}

// mask returns the bytes XORed with the key stream of a secret and a nonce. Masked twice they are as before.
function mask(bytes, secret, nonce) {
  const masked = [];
  let block;
  for (let i = 0; i < bytes.length; i++) {
    if (i % 32 === 0) block = unhex(hmac('sha256', secret, `${nonce}:${i / 32}`, 'hex'));
    masked.push(bytes[i] ^ block[i % 32]);
  }
  return masked;
}

function hex(bytes) {
  return bytes.map((b) => b.toString(16).padStart(2, '0')).join('');
}

function unhex(text) {
  return (text.match(/../g) || []).map((pair) => parseInt(pair, 16));
}
